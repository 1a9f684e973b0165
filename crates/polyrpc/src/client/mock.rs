use std::fmt;
use std::sync::Arc;

use polyrpc_core::Status;

use crate::call::{OutgoingCall, Response};
use crate::codec::Body;

/// Answers calls instead of a server, for tests.
#[derive(Clone)]
pub(super) struct Mock(Arc<dyn Fn(OutgoingCall<'_>) -> crate::Result<Body> + Send + Sync>);

impl Mock {
    pub(super) fn new(
        answer: impl Fn(OutgoingCall<'_>) -> crate::Result<Body> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(answer))
    }

    pub(super) fn call(&self, call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        let message = (self.0)(call).map_err(crate::Failure::into_status)?;
        Ok(Response::new(message))
    }
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mock")
    }
}

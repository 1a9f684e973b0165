use std::fmt;
use std::sync::Arc;

use polyrpc_core::Status;

use crate::call::Response;
use crate::codec::{Body, Codec};

/// A call that a mocked client received.
#[derive(Debug, Clone)]
pub struct MockCall {
    /// The service, as the caller named it.
    pub service: String,
    /// The method.
    pub method: String,
    /// The encoded request.
    pub body: Body,
}

impl MockCall {
    /// The request as a value.
    ///
    /// # Errors
    ///
    /// When the bytes are no `T`.
    pub fn decode<C: Codec<T>, T>(&self) -> super::Result<T> {
        Ok(C::decode(self.body.clone(), None)?)
    }

    /// An answer with this message, in the format of the request.
    ///
    /// # Errors
    ///
    /// When the codec cannot write it.
    pub fn answer<C: Codec<T>, T>(&self, message: &T) -> crate::Result<Body> {
        Ok(Body::new(self.body.format, C::encode(message, self.body.format, None)?))
    }
}

/// Answers calls in place of a server, for tests.
#[derive(Clone)]
pub(super) struct Mock(Arc<dyn Fn(MockCall) -> crate::Result<Body> + Send + Sync>);

impl Mock {
    pub(super) fn new(answer: impl Fn(MockCall) -> crate::Result<Body> + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }

    pub(super) fn call(&self, service: &str, method: &str, body: Body) -> Result<Response<Body>, Status> {
        let call = MockCall { service: service.to_owned(), method: method.to_owned(), body };
        let message = (self.0)(call).map_err(crate::Failure::into_status)?;
        Ok(Response::new(message))
    }
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mock")
    }
}

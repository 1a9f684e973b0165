use std::fmt;
use std::sync::Arc;

use polyrpc_core::Status;

use crate::call::Response;
use crate::codec::{Body, Codec};

/// Call received by a mocked client.
#[derive(Debug, Clone)]
pub struct MockCall {
    /// Service name, as given by the caller.
    pub service: String,
    /// Method name.
    pub method: String,
    /// Encoded request.
    pub body: Body,
}

impl MockCall {
    /// Decodes the request.
    ///
    /// # Errors
    ///
    /// If the bytes do not decode as `T`.
    pub fn decode<C: Codec<T>, T>(&self) -> super::Result<T> {
        Ok(C::decode(self.body.clone(), None)?)
    }

    /// Encodes a reply with this message, in the format of the request.
    ///
    /// # Errors
    ///
    /// If the codec cannot encode it.
    pub fn answer<C: Codec<T>, T>(&self, message: &T) -> crate::Result<Body> {
        Ok(Body::new(self.body.format, C::encode(message, self.body.format, None)?))
    }
}

/// Answers calls instead of a server, for tests.
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

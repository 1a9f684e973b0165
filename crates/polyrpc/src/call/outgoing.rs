use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use tokio::time::Instant;

use super::CallOptions;
use crate::codec::{Body, Codec};

/// A call on its way to a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OutgoingCall<'a> {
    /// The service; empty for a plain function.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// The encoded request, not compressed yet.
    pub body: Body,
    /// The call's other options; the timeout is the client's if the call has none of its own.
    pub options: CallOptions,
    /// The protocol that will carry it.
    pub protocol: Protocol,
}

impl OutgoingCall<'_> {
    /// Decodes the request.
    ///
    /// # Errors
    ///
    /// If the bytes are not a `T`.
    pub fn decode<C: Codec<T>, T>(&self) -> Result<T, Status> {
        C::decode(self.body.clone(), None)
    }

    /// Returns the same call with this request, encoded in the format of the previous one.
    ///
    /// # Errors
    ///
    /// If the codec cannot encode it.
    pub fn with_message<C: Codec<T>, T>(mut self, message: T) -> Result<Self, Status> {
        self.body = C::encode_request(message, self.body.format, None)?;
        Ok(self)
    }

    /// Encodes a reply with this message, in the format of the request, for a [mock](crate::Client::mock).
    ///
    /// # Errors
    ///
    /// If the codec cannot encode it.
    pub fn encode_reply<C: Codec<T>, T>(&self, message: &T) -> crate::Result<Body> {
        Ok(Body::new(self.body.format, C::encode(message, self.body.format, None)?))
    }

    /// Sets the timeout to the time left until the deadline.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.options.timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    }
}

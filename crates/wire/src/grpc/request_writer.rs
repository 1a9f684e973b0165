//! Requests of a client in a dialect with a framing of its own.

use std::fmt;

use bytes::Bytes;
use polyrpc_core::{Call, Compression, Status};

use super::framing::Framing;
use crate::http::h2::hpack::Indexing;

/// Framing of a client's calls, if it is neither gRPC's nor gRPC-Web's.
#[derive(Clone, Copy, Debug)]
pub struct ClientFraming(&'static dyn RequestWriter);

impl ClientFraming {
    pub(crate) fn new(writer: &'static dyn RequestWriter) -> Self {
        Self(writer)
    }

    pub(crate) fn writer(self) -> &'static dyn RequestWriter {
        self.0
    }
}

/// Writer of a dialect's requests, for every version of HTTP.
pub(crate) trait RequestWriter: fmt::Debug + Send + Sync {
    /// Creates the request of a call, whose messages use this compression.
    ///
    /// # Errors
    ///
    /// If the call cannot be expressed in the dialect.
    fn request(
        &self,
        call: &Call<'_>,
        is_stream: bool,
        compression: Compression,
    ) -> Result<FramedRequest, Status>;

    /// Passes the fields of the head to `add`, without metadata, credential and the client's name.
    fn fields(&self, request: &FramedRequest, call: &Call<'_>, add: &mut dyn FnMut(&[u8], &[u8], Indexing));
}

/// Head of a request, and its body if that is one message.
#[derive(Debug)]
pub(crate) struct FramedRequest {
    pub(crate) framing: &'static dyn Framing,
    /// HTTP method.
    pub(crate) method: &'static str,
    /// Path with query.
    pub(crate) target: String,
    pub(crate) body: RequestBody,
    /// Compression of the body, or of each message sent.
    pub(crate) compression: Compression,
}

/// Body of a request.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// The head contains the message.
    None,
    /// One message without a prefix.
    Message(Bytes),
    /// Messages that follow, each behind a prefix.
    Messages,
}

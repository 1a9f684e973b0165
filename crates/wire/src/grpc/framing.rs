//! Traits of a dialect with a framing of its own: they define the bodies of its requests and responses, and how it
//! reports failures. Its calls, their status and the sessions that carry them are gRPC's.

use std::fmt;

use bytes::Bytes;
use polyrpc_core::session::NotFound;
use polyrpc_core::{Call, Compression, Format, Head, Message, Metadata, Status};

use crate::http::h2::hpack::Fields;
use crate::http::head::WriteHead;

/// Framing of messages and results in HTTP bodies, for every version of HTTP. A dialect with several forms of bodies
/// has a framing for each.
pub(crate) trait Framing: fmt::Debug + Send + Sync {
    /// Returns the content type of bodies in this format.
    fn content_type(&self, format: Format) -> Vec<u8>;

    /// Whether the body of a request is one message without a prefix.
    fn has_bare_request(&self) -> bool;

    /// Returns the form of a response's body.
    fn response_body(&self) -> ResponseBody;

    /// Passes the fields of the head of a streamed response to `write`.
    fn head(
        &self,
        format: Format,
        compression: Compression,
        metadata: &Metadata,
        write: &mut dyn FnMut(&[u8], &[u8]),
    );

    /// Passes a message of a streamed response to `send`: in one piece, behind its prefix.
    fn message(&self, compression: Compression, message: Bytes, send: &mut dyn FnMut(&[u8], Bytes));

    /// Passes what follows the last message of a streamed response to `send`, in one piece.
    fn end(&self, failure: Option<&Status>, trailers: &Metadata, send: &mut dyn FnMut(&[u8], Bytes));

    /// Writes the head of a response that is sent as a whole, and returns its body.
    fn whole(
        &self,
        response: WholeResponse,
        format: Format,
        failure: Option<&Status>,
        trailers: &Metadata,
        head: &mut dyn WriteHead,
    ) -> Bytes;

    /// Returns the failure of a call to an unknown service or method.
    fn not_found(&self, call: &Call<'_>, missing: NotFound) -> Status;

    /// Returns how the failure to decompress or parse a message is reported.
    fn decode_failure(&self) -> fn(Status) -> Status;

    /// Returns the decoder of a response in this format. A body that is one message, and the last message of a stream,
    /// may have `limit` bytes.
    fn response_decoder(&self, format: Format, limit: usize) -> Box<dyn ResponseDecoder>;
}

/// Framings are statics: one is the same as another if both have the same address.
impl PartialEq for dyn Framing {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

impl Eq for dyn Framing {}

/// Decoder of a response, on the client. Bodies of messages with prefixes are split into these by its caller.
pub(crate) trait ResponseDecoder: fmt::Debug + Send + Sync {
    /// Whether the body is one message without a prefix.
    fn is_bare(&self) -> bool;

    /// Reads the head of the response into `head`.
    fn read_head(&mut self, fields: &Fields, head: &mut Head) -> Result<BodyContent, Status>;

    /// Takes a piece of the body, if that is one message; otherwise returns `false`. A failure ends the call.
    fn take(&mut self, piece: &[u8]) -> Result<bool, Status>;

    /// Marks the end of the body, and returns the result of the call as far as the connection knows it.
    fn body_ended(&mut self) -> CallResult;

    /// Returns the message of a complete body that is one message.
    fn message(&mut self) -> Option<Message>;

    /// Whether this flag is that of the last message of a stream, which contains the result of the call.
    fn is_end(&self, flag: u8) -> bool;

    /// Returns the maximum size of the last message.
    fn limit(&self) -> usize;

    /// Decodes the last message, sent with this flag. `compression` is that of the response's messages.
    fn read_end(&mut self, flag: u8, text: &Bytes, compression: Option<Compression>) -> Result<(), Status>;

    /// Rejects data after the last message.
    fn check_end(&mut self) -> Result<(), Status>;

    /// Returns the number of buffered bytes.
    fn held(&self) -> usize;

    /// Returns the result of the call: that in the last message, otherwise `end`, the result by the connection.
    fn finish(self: Box<Self>, end: CallResult) -> CallResult;
}

/// Result and trailers of a call.
pub(crate) type CallResult = (Result<(), Status>, Metadata);

/// Content of the body, as the head of a response announces it.
#[derive(Debug)]
pub(crate) enum BodyContent {
    /// Messages follow, in this compression; `None` if it is not supported.
    Messages(Option<Compression>),
    /// A failure follows.
    Failure,
}

/// Form of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseBody {
    /// Messages, each behind a prefix, and the result of the call.
    Prefixed,
    /// Messages as text, each on a line of its own. A failure before the first is sent as a whole.
    Text,
    /// One message: the response is sent as a whole, with the result of the call in its head.
    Message,
}

/// The collected parts of a response that is sent as a whole.
#[derive(Debug, Default)]
pub(crate) struct WholeResponse {
    pub(crate) compression: Compression,
    pub(crate) metadata: Metadata,
    pub(crate) message: Option<Bytes>,
    /// The method has sent more than one message; further ones are not needed.
    pub(crate) has_surplus: bool,
}

impl WholeResponse {
    /// Stores the head.
    pub(crate) fn start(&mut self, compression: Compression, metadata: Metadata) {
        (self.compression, self.metadata) = (compression, metadata);
    }

    /// Stores a message.
    pub(crate) fn add(&mut self, message: Bytes) {
        self.has_surplus |= self.message.replace(message).is_some();
    }
}

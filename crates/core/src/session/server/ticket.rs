use std::convert::identity;

use bytes::Bytes;

use crate::session::{NotFound, OfferedStreams, Violation};
use crate::{Call, Carrier, Format, Status, StreamId};

/// Maximum length of a body that a session converts to a message itself, in bytes: about a millisecond of work, for
/// which all other connections of the thread wait.
pub const MAX_CONVERTED_IN_PLACE: usize = 256 << 10;

/// Conversion of a long body, once it is decompressed, to the call's message.
pub type BodyConversion = Box<dyn FnOnce(Bytes) -> Result<Bytes, Status> + Send>;

/// Data needed to answer one call, which the session emits together with it.
///
/// The ticket is consumed by the reply, so that no call is answered twice; dropping it leaves the call unanswered. It
/// also implements the protocol's rules for this call, for the dispatcher of a server, which finds the method, decodes the
/// message and checks the reply. One connection may have calls of several kinds (gRPC, Connect and JSON
/// over HTTP/2), so that the rules belong to the call and not to the connection.
///
/// Every protocol implements it. Only [`not_found_failure`](Self::not_found_failure) is required; the others are for
/// protocols that differ from the rule.
pub trait Ticket: Send + 'static {
    /// Returns the failure of a call to a service or method that does not exist, with the protocol's own text and code.
    fn not_found_failure(&self, call: &Call<'_>, missing: NotFound) -> Status;

    /// Returns the function that maps a failure to decode the message to the protocol's own failure.
    fn decode_failure(&self) -> fn(Status) -> Status {
        identity
    }

    /// Maps a failure to decompress the message to the protocol's own failure: by default as a failure to
    /// [decode](Self::decode_failure) it.
    ///
    /// # Errors
    ///
    /// A [`Violation`] if such a message ends the connection instead (rpcx).
    fn decompression_failure(&self, status: Status) -> Result<Status, Violation> {
        Ok(self.decode_failure()(status))
    }

    /// Whether a call without a message means the default message, even if the format encodes that differently (gRPC,
    /// HTTP).
    fn may_be_empty(&self) -> bool {
        false
    }

    /// Returns the conversion of the call's body to its message, if the session leaves it to the server: the body, or what
    /// it decompresses to, is longer than [`MAX_CONVERTED_IN_PLACE`].
    fn body_conversion(&self) -> Option<BodyConversion> {
        None
    }

    /// Returns how the response carries metadata and trailers: the driver replaces a response whose metadata [cannot be
    /// sent](Carrier::check) by a failure.
    fn carrier(&self) -> Carrier {
        Carrier::Any
    }

    /// Returns the format of a reply if the handler does not select one: by default that of the request.
    fn reply_format(&self, request: Format) -> Format {
        request
    }

    /// Returns the identifier of this call in later events and in [`Streaming`](super::Streaming), which the session
    /// must have then; `None` if the call is one message each way.
    fn stream(&self) -> Option<StreamId> {
        None
    }

    /// Returns the streams that the caller offers with the call (brpc).
    fn offered_streams(&self) -> Option<OfferedStreams> {
        None
    }

    /// Whether it is an HTTP request other than a call: its metadata are all its fields, including `:method`, `:path`
    /// and `:authority`; its messages are the pieces of its body; the head of its response contains `:status`.
    fn is_exchange(&self) -> bool {
        false
    }
}

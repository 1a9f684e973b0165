use bytes::Bytes;

use crate::session::StreamOptions;
use crate::{Head, Metadata, Outbox, Status, StreamId};

/// Messages of streaming calls, on a server. `T` is the session's [`Ticket`](super::Ticket).
///
/// The driver uses it for calls whose ticket has a [stream](super::Ticket::stream) identifier: when a handler sends or
/// consumes messages, when the response ends, and when the server gives up a stream. A protocol that emits
/// [`ServerEvent::Open`](crate::session::ServerEvent::Open), or whose calls may be answered by several messages, must
/// have it.
///
/// Implemented by HTTP/1 (gRPC-Web, Connect, requests for the HTTP fallback), HTTP/2 (the same and gRPC) and baidu_std
/// (streams attached to a call).
pub trait Streaming<T> {
    /// Accepts the streams that a call [offers](super::Ticket::offered_streams), with a reply that must follow
    /// immediately. Each stream has its own ticket, by which it is [finished](Self::finish).
    fn accept_streams(&mut self, _ticket: &mut T, _options: &StreamOptions) -> Vec<T> {
        Vec::new()
    }

    /// Starts a streamed response: metadata before its messages, and their format and compression. Without it, the
    /// first message starts the response with an empty head.
    fn start_response(&mut self, stream: StreamId, head: Head, out: &mut Outbox);

    /// Sends one message of a response, encoded but not compressed yet.
    ///
    /// It is accepted regardless of [`has_room`](Self::has_room); the session buffers what the peer does not accept
    /// yet.
    fn send_message(&mut self, stream: StreamId, message: Bytes, out: &mut Outbox);

    /// Ends a streamed response, with its trailers.
    fn finish(&mut self, ticket: T, result: Result<(), Status>, trailers: Metadata, out: &mut Outbox);

    /// Whether the peer accepts more of this response now: always without flow control. If not,
    /// [`ServerEvent::Room`](crate::session::ServerEvent::Room) follows.
    fn has_room(&self, _stream: StreamId) -> bool {
        true
    }

    /// Records that the handler has consumed this many bytes of messages: the peer may send as many again.
    fn record_consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Outbox);

    /// Resets a stream, in any state, if the protocol can express that.
    fn reset(&mut self, _stream: StreamId, _out: &mut Outbox) {}
}

/// Streaming of protocols without streams: an empty type.
pub(super) enum NoStreaming {}

impl<T> Streaming<T> for NoStreaming {
    fn start_response(&mut self, _stream: StreamId, _head: Head, _out: &mut Outbox) {
        match *self {}
    }

    fn send_message(&mut self, _stream: StreamId, _message: Bytes, _out: &mut Outbox) {
        match *self {}
    }

    fn finish(&mut self, _ticket: T, _result: Result<(), Status>, _trailers: Metadata, _out: &mut Outbox) {
        match *self {}
    }

    fn record_consumed(&mut self, _stream: StreamId, _bytes: usize, _out: &mut Outbox) {
        match *self {}
    }
}

use bytes::Bytes;

use crate::session::StreamOptions;
use crate::{Call, CallId, Outbox, Status};

/// Opened calls, on a client: calls whose messages are sent and received one by one.
///
/// A connection uses it, under its lock, when a caller opens such a call, sends or consumes its messages and ends it,
/// and after each read. A protocol implements the ways to open a call that it has: [`open`](Self::open),
/// [`send_with_streams`](Self::send_with_streams) or [`subscribe`](Self::subscribe). Queries take `&mut self`, so that
/// a wrapping session (a WebSocket) can forward them.
///
/// Implemented by gRPC, gRPC-Web and Connect (streaming calls), baidu_std (attached streams), rest_rpc (subscriptions),
/// and by each of them within a WebSocket.
pub trait Streaming {
    /// Appends the start of a streaming call, whose body is empty.
    ///
    /// # Errors
    ///
    /// As [`Client::send`](super::Client::send); [`Unimplemented`](crate::Code::Unimplemented) if the protocol has no
    /// such calls.
    fn open(&mut self, _id: CallId, _call: Call<'_>, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no streams"))
    }

    /// Appends a call with attached streams, each with the identifier of an opened call. They start when the call has
    /// been answered, and have ended by then if they were not accepted.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    fn send_with_streams(
        &mut self,
        _id: CallId,
        _call: Call<'_>,
        _streams: &[CallId],
        _options: &StreamOptions,
        _out: &mut Outbox,
    ) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no attached streams"))
    }

    /// Appends a subscription: messages published under `key` and `token` arrive as
    /// [messages](crate::session::ClientEvent::Message) of this call until it is cancelled.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    fn subscribe(&mut self, _id: CallId, _key: &str, _token: &str, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }

    /// Sends one message of an opened call, encoded but not compressed yet. A subscription sends none.
    ///
    /// It is accepted regardless of [`has_room`](Self::has_room); the session buffers what the peer does not accept
    /// yet.
    fn send_message(&mut self, _id: CallId, _message: Bytes, _out: &mut Outbox) {}

    /// Ends the messages of an opened call; its response may continue. Sends nothing if the protocol [cannot express
    /// it](Self::half_closes).
    fn end(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Whether the protocol can express that one direction of an opened call has [ended](Self::end) while the other
    /// continues.
    fn half_closes(&mut self) -> bool {
        false
    }

    /// Ends an opened call gracefully, after the messages sent: both directions if they end together. Its
    /// [reply](crate::session::ClientEvent::Reply) confirms that the peer has received the end.
    fn close(&mut self, id: CallId, out: &mut Outbox) {
        self.end(id, out);
    }

    /// Whether the peer accepts more of this call now: always without flow control. If not,
    /// [`ClientEvent::Room`](crate::session::ClientEvent::Room) follows.
    fn has_room(&mut self, _id: CallId) -> bool {
        true
    }

    /// Whether the peer accepts any messages of this call.
    fn is_writable(&mut self, _id: CallId) -> bool {
        true
    }

    /// Records that the caller has consumed this many bytes of messages: the peer may send as many again.
    fn record_consumed(&mut self, id: CallId, bytes: usize, out: &mut Outbox);

    /// Whether the inbox is not parsed until messages were [consumed](Self::record_consumed), in a protocol without
    /// flow control, so that reading more is useless.
    fn blocks_input(&mut self) -> bool {
        false
    }
}

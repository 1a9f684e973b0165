//! Client side of a connection.

use bytes::{Bytes, BytesMut};

use super::{ClientEvent, StreamOptions, Violation};
use crate::{Call, CallId, Outbox, Status};

/// Client side of a connection.
pub trait Client {
    /// Appends a call to `out`. `id` is returned with the reply; it must not be in use on this connection.
    ///
    /// # Errors
    ///
    /// A [`Status`] if the protocol cannot express the call; nothing was appended then.
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status>;

    /// Appends the start of a streaming call, whose body is empty.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`Unimplemented`](crate::Code::Unimplemented) if the protocol has no streams.
    fn open(&mut self, _id: CallId, _call: Call<'_>, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no streams"))
    }

    /// Appends a call with attached streams, each with the identifier of an opened call. They start when the call has
    /// been answered, and have ended by then if they were not accepted.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    fn send_beside(
        &mut self,
        _id: CallId,
        _call: Call<'_>,
        _streams: &[CallId],
        _options: &StreamOptions,
        _out: &mut Outbox,
    ) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no streams beside a call"))
    }

    /// Appends a subscription: messages published under `key` and `token` arrive as [`ClientEvent::Message`]s of this
    /// call until it is cancelled.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`Unimplemented`](crate::Code::Unimplemented) if the protocol has no topics.
    fn subscribe(&mut self, _id: CallId, _key: &str, _token: &str, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }

    /// Sends one message of an opened call, encoded but not compressed yet.
    ///
    /// It is accepted regardless of [`has_room`](Self::has_room); the session buffers what the peer does not accept
    /// yet.
    fn message(&mut self, _id: CallId, _message: Bytes, _out: &mut Outbox) {}

    /// Ends the messages of an opened call; its response may continue. Sends nothing if the protocol [cannot express
    /// it](Self::half_closes).
    fn end(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Whether the protocol can express that one direction of an opened call has [ended](Self::end) while the other
    /// continues.
    fn half_closes(&self) -> bool {
        false
    }

    /// Ends an opened call gracefully, after the messages sent: both directions if they end together. Its
    /// [reply](ClientEvent::Reply) confirms that the peer has received the end.
    fn close(&mut self, id: CallId, out: &mut Outbox) {
        self.end(id, out);
    }

    /// Whether the peer accepts more of this call now. If not, [`ClientEvent::Room`] follows.
    fn has_room(&self, _id: CallId) -> bool {
        true
    }

    /// Whether the peer accepts any messages of this call.
    fn writable(&self, _id: CallId) -> bool {
        true
    }

    /// Records that the caller has consumed this many bytes of messages: the peer may send as many again.
    fn consumed(&mut self, _id: CallId, _bytes: usize, _out: &mut Outbox) {}

    /// Whether the inbox is not parsed until messages were [consumed](Self::consumed), in a protocol without flow
    /// control, so that reading more is useless.
    fn blocks_input(&self) -> bool {
        false
    }

    /// Takes the next event out of `inbox`, or returns `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection and fails all of its calls.
    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation>;

    /// Cancels a call: its reply is no longer awaited. The driver discards a later reply to it; protocols that support
    /// cancellation send it.
    fn cancel(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Returns the total number of bytes that the inbox must hold before the next event; 0 if unknown.
    fn bytes_needed(&self) -> usize;

    /// Whether calls are still buffered in the session until a handshake is complete: a connection that is to be closed
    /// stays open until they are sent.
    fn has_pending_output(&self) -> bool {
        false
    }

    /// Returns the maximum number of concurrent calls: 1 for a protocol without correlation ids.
    fn concurrency(&self) -> usize {
        usize::MAX
    }

    /// Whether another call may be sent, or the connection is about to end (`Connection: close`).
    fn reusable(&self) -> bool {
        true
    }

    /// Handles the end of the peer's output: a reply that is delimited by the end of the connection is complete now.
    fn end_of_stream(&mut self, _inbox: &mut BytesMut) -> Option<ClientEvent> {
        None
    }

    /// Returns a further explanation of a connection that the server closes, or breaks, before any successful call: a
    /// protocol with dialects lists the others.
    fn failure_hint(&self) -> Option<String> {
        None
    }

    /// Appends the protocol's heartbeat; its answer is [`ClientEvent::Alive`]. Returns `false` if there is no answer:
    /// the protocol has no heartbeat, servers do not answer it, or the peer would not tolerate it now.
    fn heartbeat(&mut self, _out: &mut Outbox) -> bool {
        false
    }
}

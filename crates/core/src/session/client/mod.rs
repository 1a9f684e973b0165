//! Client side of a connection: the session, and the parts that only some protocols have.

mod context;
mod streaming;

use bytes::BytesMut;

pub use self::context::SessionContext;
pub use self::streaming::Streaming;

use super::{ClientEvent, Violation};
use crate::{Call, CallId, Outbox, Status};

/// Client side of a connection.
///
/// Many callers share a connection: each [sends](Self::send) its call under the connection's lock, and the connection's
/// task takes [events](Self::next_event) after each read. A blocking client does both in the caller's thread.
///
/// Every protocol implements it; one with more than unary calls returns its [`Streaming`].
pub trait Client {
    /// Appends a call to `out`. `id` is returned with the reply; it must not be in use on this connection.
    ///
    /// # Errors
    ///
    /// A [`Status`] if the protocol cannot express the call; nothing was appended then.
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status>;

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

    /// Returns the number of bytes that the session holds of messages that are not complete yet, about.
    fn buffered(&self) -> usize {
        0
    }

    /// Returns the number of bytes that wait until the peer's windows have room.
    fn unsent(&self) -> usize {
        0
    }

    /// Returns the maximum number of concurrent calls whose end is awaited: 1 for a protocol without correlation ids.
    /// One-way calls that the peer still counts reduce it.
    fn concurrency(&self) -> usize {
        usize::MAX
    }

    /// Whether another call may be sent, or the connection is about to end (`Connection: close`).
    fn is_reusable(&self) -> bool {
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

    /// Returns the streaming of this session; `None` if its protocol has unary calls only. A session that has it
    /// implements [`Streaming`] and returns `Some(self)`.
    fn streaming(&mut self) -> Option<&mut dyn Streaming> {
        None
    }
}

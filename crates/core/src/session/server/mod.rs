//! Server side of a connection: the session, and the parts that only some protocols have.

mod context;
mod housekeeping;
mod pushing;
mod streaming;
mod ticket;

use bytes::BytesMut;

pub use self::context::SessionContext;
pub use self::housekeeping::{Housekeeping, Incomplete, KeepReason};
pub use self::pushing::Pushing;
pub use self::streaming::Streaming;
pub use self::ticket::{BodyConversion, MAX_CONVERTED_IN_PLACE, Ticket};

use self::streaming::NoStreaming;
use super::{ServerEvent, Verdict, Violation};
use crate::{Outbox, Reply, Status, StreamId};

/// Server side of a connection.
///
/// The connection's driver, one task, calls it in rounds: it takes [events](Self::next_event) until there are none,
/// [answers](Self::reply) the calls whose handlers are ready, and then writes the outbox and reads.
///
/// Every protocol implements it, together with [`Ticket`] and [`Housekeeping`]. A protocol with more than unary calls
/// returns its [`Streaming`] and [`Pushing`].
pub trait Server: Housekeeping {
    /// Data needed to answer a call.
    type Ticket: Ticket;

    /// Minimum number of replies to write while more calls are pending: with fewer, system calls and waking the peer
    /// cost more than is gained by keeping it busy.
    const WRITE_BATCH: usize = 16;

    /// Whether a client reconnects for its next call after its idle connection was closed.
    const RECONNECTS: bool = true;

    /// Takes the next event out of `inbox`, or returns `None` if more bytes are needed.
    ///
    /// Replies of the protocol itself (heartbeats, malformed calls) are appended to `out` without an event.
    ///
    /// # Errors
    ///
    /// A [`Violation`] ends the connection: `out` may still be written, but nothing more is read.
    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Self::Ticket>>, Violation>;

    /// Answers a call. Calls may be answered in any order; the session restores the order if the protocol requires it.
    fn reply(&mut self, ticket: Self::Ticket, reply: Reply, out: &mut Outbox);

    /// Answers a call whose credential was rejected, in the protocol's own form. Returns whether the connection must be
    /// closed after `out` is written.
    fn reject(&mut self, ticket: Self::Ticket, status: Status, out: &mut Outbox) -> bool;

    /// Applies the verdict on a request whose head was emitted by [`ServerEvent::Head`] (HTTP): if accepted, its body
    /// is read; otherwise the request is answered. Returns whether the connection must be closed after `out` is
    /// written.
    fn apply_verdict(&mut self, _stream: StreamId, _verdict: Verdict, _out: &mut Outbox) -> bool {
        false
    }

    /// Returns the total number of bytes that the inbox must hold before the next event; 0 if unknown. A hint for
    /// sizing reads: the length of a frame is known long before its last byte arrives, and it has been checked against
    /// [`Limits::message`](super::Limits::message).
    fn bytes_needed(&self) -> usize;

    /// Whether the inbox is not parsed before the next reply, so that reading more is useless (HTTP/1, rest_rpc).
    fn blocks_input(&self) -> bool {
        false
    }

    /// Drains the connection: calls that arrive from now on are rejected in the protocol's own form, and replies ask
    /// the peer not to reuse the connection if the protocol can express that.
    fn drain(&mut self, out: &mut Outbox);

    /// Whether the connection should be closed once all calls are answered and written (`Connection: close`, or a
    /// protocol error that was already reported).
    fn is_finished(&self) -> bool {
        false
    }

    /// Returns the streaming of this session; `None` if its protocol has unary calls only.
    ///
    /// A session that has it implements [`Streaming`] and returns `Some(self)`. The type is static, so that a message
    /// costs no dynamic call.
    fn streaming(&mut self) -> Option<&mut impl Streaming<Self::Ticket>> {
        None::<&mut NoStreaming>
    }

    /// Returns the pushing of this session; `None` if its protocol cannot push. A session that has it implements
    /// [`Pushing`] and returns `Some(self)`.
    fn pushing(&mut self) -> Option<&mut dyn Pushing> {
        None
    }
}

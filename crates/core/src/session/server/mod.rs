//! Server side of a connection.

mod ticket;

use std::time::Duration;

use bytes::{Bytes, BytesMut};

pub use self::ticket::Ticket;

use super::{Refusals, ServerEvent, StreamOptions, Verdict, Violation};
use crate::{Head, Metadata, Outbox, Push, Reply, Status, StreamId};

/// Server side of a connection.
pub trait Server {
    /// Data needed to answer a call.
    type Ticket: Ticket;

    /// Minimum number of replies to write while more calls are pending: with fewer, system calls and waking the peer
    /// cost more than is gained by keeping it busy.
    const PART: usize = 16;

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

    /// Accepts the offered streams, with a reply that must follow immediately. Each stream has its own ticket, by which
    /// it is [finished](Self::finish).
    fn accept_streams(&mut self, _ticket: &mut Self::Ticket, _options: &StreamOptions) -> Vec<Self::Ticket> {
        Vec::new()
    }

    /// Starts a streamed response: metadata before its messages, and their format and compression. Without it, the
    /// first message starts the response with an empty head.
    fn start_response(&mut self, _stream: StreamId, _head: Head, _out: &mut Outbox) {}

    /// Sends one message of a response, encoded but not compressed yet.
    ///
    /// It is accepted regardless of [`has_room`](Self::has_room); the session buffers what the peer does not accept
    /// yet.
    fn message(&mut self, _stream: StreamId, _message: Bytes, _out: &mut Outbox) {}

    /// Ends a streamed response, with its trailers.
    fn finish(
        &mut self,
        _ticket: Self::Ticket,
        _result: Result<(), Status>,
        _trailers: Metadata,
        _out: &mut Outbox,
    ) {
    }

    /// Whether the peer accepts more of this response now. If not, [`ServerEvent::Room`] follows.
    fn has_room(&self, _stream: StreamId) -> bool {
        true
    }

    /// Records that the handler has consumed this many bytes of messages: the peer may send as many again.
    fn consumed(&mut self, _stream: StreamId, _bytes: usize, _out: &mut Outbox) {}

    /// Resets a stream, in any state.
    fn reset(&mut self, _stream: StreamId, _out: &mut Outbox) {}

    /// Whether replies are still buffered in the session until there is room: a connection that is to be closed
    /// continues to read until then.
    fn has_pending_output(&self) -> bool {
        false
    }

    /// Whether the inbox is not parsed before the next reply, so that reading more is useless.
    fn blocks_input(&self) -> bool {
        false
    }

    /// Passes the time to the session, as the duration since a fixed moment. Applies timeouts that the session keeps
    /// itself; resulting events are returned by the next calls.
    ///
    /// The driver calls it before it asks for events, and at least every quarter of a second while the session [needs
    /// it](Self::needs_ticks). `true`: more timeouts have expired than were applied; the driver gives others their turn
    /// and then calls again.
    fn tick(&mut self, _now: Duration, _out: &mut Outbox) -> bool {
        false
    }

    /// Whether a timeout is running in the session, so that it needs [ticks](Self::tick) even if nothing arrives.
    fn needs_ticks(&self) -> bool {
        false
    }

    /// Applies the verdict on a request whose head was emitted by [`ServerEvent::Head`]: if accepted, its body is read;
    /// otherwise the request is answered. Returns whether the connection must be closed after `out` is written.
    fn apply_verdict(&mut self, _stream: StreamId, _verdict: Verdict, _out: &mut Outbox) -> bool {
        false
    }

    /// Returns the size of buffered requests in bytes: of incomplete messages, and of those not emitted yet.
    fn buffered(&self) -> usize {
        0
    }

    /// Returns the size of buffered responses in bytes, which wait for the peer's windows or for earlier responses.
    fn unsent(&self) -> usize {
        0
    }

    /// Pings the peer; its answer is [`ServerEvent::Alive`]. Returns `false` if the protocol has no ping.
    fn ping(&mut self, _out: &mut Outbox) -> bool {
        false
    }

    /// Reports to the peer why its connection is about to be closed, if the protocol supports that.
    fn abort(&mut self, _status: &Status, _out: &mut Outbox) {}

    /// Sends an unsolicited message.
    ///
    /// # Errors
    ///
    /// [`Unimplemented`](crate::Code::Unimplemented) if the protocol cannot push.
    fn push(&mut self, _push: Push, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol cannot push"))
    }

    /// Sends a published message of a topic to which the peer has [subscribed](ServerEvent::Subscribe).
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    fn publish(&mut self, _topic: &[u8], _data: Bytes, _out: &mut Outbox) -> Result<(), Status> {
        Err(Status::unimplemented("this protocol has no topics"))
    }

    /// Returns the total number of bytes that the inbox must hold before the next event; 0 if unknown. A hint for
    /// sizing reads: the length of a frame is known long before its last byte arrives, and it has been checked against
    /// [`Limits::message`](super::Limits::message).
    fn bytes_needed(&self) -> usize;

    /// Whether the inbox contains an incomplete event: its header has arrived, its end has not. Lets the driver
    /// distinguish slow peers from idle ones.
    fn is_mid_message(&self, inbox: &BytesMut) -> bool {
        !inbox.is_empty()
    }

    /// Whether the incomplete part is a head of unknown length (HTTP/1), which has a timeout of its own.
    fn is_in_head(&self) -> bool {
        false
    }

    /// Returns the number of heartbeats that were answered.
    fn heartbeats(&self) -> u64 {
        0
    }

    /// Returns the rejections without an event since the last call; `None` if there were none.
    ///
    /// The driver calls it when the session needs more bytes, and counts the result: it is the only record of these
    /// rejections.
    fn take_refusals(&mut self) -> Option<Refusals> {
        None
    }

    /// Announces that the server will drain soon, and accepts calls until then: replies ask the peer to use another
    /// connection for further calls, if the protocol can express that in a reply (`Connection: close`).
    fn go_away(&mut self) {}

    /// Drains the connection: calls that arrive from now on are rejected in the protocol's own form, and replies ask
    /// the peer not to reuse the connection if the protocol can express that.
    fn drain(&mut self, out: &mut Outbox);

    /// Whether a peer that was asked to drain may still send calls that it started before it noticed, or the rest of
    /// such a call: a draining server waits for them.
    fn expects(&self) -> bool {
        false
    }

    /// Whether the connection should be closed once all calls are answered and written (`Connection: close`, or a
    /// protocol error that was already reported).
    fn finished(&self) -> bool {
        false
    }
}

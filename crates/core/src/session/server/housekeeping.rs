use std::time::Duration;

use bytes::BytesMut;

use crate::session::Refusals;
use crate::{Outbox, Status};

/// Memory, time and shutdown of a connection, for the driver of a server.
///
/// The driver reads the state each time before it goes to sleep, to account for memory and to start and stop its
/// timeouts; it passes the time every quarter of a second; and it announces and awaits the end of the connection.
///
/// All methods have defaults for a session that keeps nothing between events: fb_rpc implements none of them. HTTP/1
/// and HTTP/2 implement most, baidu_std and net/rpc report their buffers, rpcx and rest_rpc their heartbeats.
pub trait Housekeeping {
    /// Returns which part of an event is incomplete: its header has arrived, its end has not. Lets the driver
    /// distinguish slow peers from idle ones.
    fn incomplete(&self, inbox: &BytesMut) -> Option<Incomplete> {
        (!inbox.is_empty()).then_some(Incomplete::Message)
    }

    /// Returns the size of buffered requests in bytes: of incomplete messages, and of those not emitted yet.
    fn buffered(&self) -> usize {
        0
    }

    /// Returns the size of buffered responses in bytes, which wait for the peer's windows or for earlier responses.
    fn unsent(&self) -> usize {
        0
    }

    /// Returns the rejections without an event since the last call; `None` if there were none.
    ///
    /// The driver calls it when the session needs more bytes, and counts the result: it is the only record of these
    /// rejections.
    fn take_refusals(&mut self) -> Option<Refusals> {
        None
    }

    /// Returns the number of heartbeats that were answered.
    fn heartbeats(&self) -> u64 {
        0
    }

    /// Passes the time to the session, as the duration since a fixed moment. Applies timeouts that the session keeps
    /// itself; resulting events are returned by the next calls.
    ///
    /// The driver calls it before it takes events, and at least every quarter of a second while the session [needs
    /// it](Self::needs_ticks). `true`: more timeouts have expired than were applied; the driver gives others their turn
    /// and then calls again.
    fn tick(&mut self, _now: Duration, _out: &mut Outbox) -> bool {
        false
    }

    /// Whether a timeout is running in the session, so that it needs [ticks](Self::tick) even if nothing arrives.
    fn needs_ticks(&self) -> bool {
        false
    }

    /// Pings the peer; its answer is [`ServerEvent::Alive`](crate::session::ServerEvent::Alive). Returns `false` if the
    /// protocol has no ping.
    fn ping(&mut self, _out: &mut Outbox) -> bool {
        false
    }

    /// Announces that the server will drain soon, and accepts calls until then: replies ask the peer to use another
    /// connection for further calls, if the protocol can express that in a reply (HTTP/1.1: `Connection: close`). HTTP/2
    /// announces it once the connection [drains](super::Server::drain), by a GOAWAY.
    fn announce_close(&mut self) {}

    /// Returns what a connection that [drains](super::Server::drain), or is to be closed, still waits for.
    fn keep_reason(&self) -> KeepReason {
        KeepReason::Nothing
    }

    /// Reports to the peer why its connection is about to be closed, if the protocol supports that.
    fn abort(&mut self, _status: &Status, _out: &mut Outbox) {}
}

/// Part of an event that is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incomplete {
    /// A head of unknown length (HTTP/1), which has a timeout of its own.
    Head,
    /// A message.
    Message,
}

/// Reason why a connection without unanswered calls stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// Nothing, once the inbox is empty.
    Nothing,
    /// Calls that the peer has started before it noticed that the connection drains, or the rest of such a call. They
    /// are waited for only for a while.
    Calls,
    /// Room for replies that are still buffered in the session: the connection continues to read until then.
    Room,
}

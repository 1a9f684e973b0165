//! How much one connection may do before others of its thread are polled.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::connections::ConnectionHandle;

/// Budget of a connection's turn.
///
/// A peer that floods always has more to read. The runtime's own budget would let its connection continue through 8 MiB
/// of small frames, tens of milliseconds in which no other connection of the thread is polled.
#[derive(Debug, Default)]
pub(super) struct FairnessBudget {
    reads: usize,
    bytes: usize,
    calls: usize,
    metadata: usize,
    /// Bytes of large replies.
    replied: usize,
    /// When the first calls had been handled.
    started: Option<Instant>,
    /// The budget is that of a [short](SHORT) turn.
    is_short: bool,
    /// The budget is used up: the rest of the bytes read is left for the next turn.
    is_exhausted: bool,
    /// The connection waits for its next turn.
    yielded: bool,
    /// The connection has one of the places of the [queue](super::turn_queue::TurnQueue).
    has_place: bool,
}

impl FairnessBudget {
    /// Starts a turn, unless the connection waits for one and was woken for another reason.
    pub(super) fn start_turn(&mut self, connection: &ConnectionHandle) {
        if !self.yielded {
            *self = Self { is_short: connection.turns().is_crowded(), ..Self::default() };
        } else if connection.take_turn() {
            *self = Self { has_place: true, ..Self::default() };
        }
    }

    /// Ends the turn of a connection that has nothing more to do for now.
    pub(super) fn end_turn(&mut self, connection: &ConnectionHandle) {
        if self.has_place && !self.yielded {
            self.has_place = false;
            connection.turns().leave(connection);
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns whether the connection waits for its next turn.
    pub(super) fn has_yielded(&self) -> bool {
        self.yielded
    }

    pub(super) fn record_read(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes;
    }

    /// Metadata of a call may be much work in a few bytes, when other calls have none.
    pub(super) fn record_call(&mut self, metadata: usize) {
        self.calls += 1;
        self.metadata += metadata;
        if self.calls.is_multiple_of(TIMED) {
            self.read_clock();
        }
        self.is_exhausted |= self.calls >= self.allowed(CALLS) || self.metadata >= METADATA;
    }

    /// Opening a streaming call is more work than answering a short one.
    pub(super) fn record_stream_open(&mut self, metadata: usize) {
        self.calls += OPENED - 1;
        self.record_call(metadata);
    }

    /// Making a large reply is work that the size of the request does not show.
    pub(super) fn record_reply(&mut self, length: usize) {
        self.replied += length;
        self.is_exhausted |= self.replied >= REPLIED;
    }

    /// How long handlers take is known only from the clock.
    fn read_clock(&mut self) {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        self.is_exhausted |= now.saturating_duration_since(started) > LONGEST;
    }

    /// Uses the budget up, since the session reports that it did much work.
    pub(super) fn exhaust(&mut self) {
        self.is_exhausted = true;
    }

    /// Returns `Pending` when the turn is over.
    pub(super) fn poll_budget(&mut self, connection: &Arc<ConnectionHandle>) -> Poll<()> {
        if self.reads < self.allowed(READS) && self.bytes < self.allowed(BYTES) && !self.is_exhausted {
            return Poll::Ready(());
        }
        if !self.yielded {
            self.yielded = true;
            connection.turns().wait(connection);
        }
        Poll::Pending
    }

    fn allowed(&self, full: usize) -> usize {
        match self.is_short {
            true => full / SHORT,
            false => full,
        }
    }
}

/// More than a peer that waits for its responses needs; yielding to the runtime costs less than half a microsecond.
const READS: usize = 8;

/// A few hundred small messages.
const BYTES: usize = 32 << 10;

/// As many as a well-behaved peer usually has in flight.
const CALLS: usize = 256;

/// Weight, in calls, of a call that is opened before its messages have arrived.
const OPENED: usize = 8;

/// The number of calls after which the clock is read. That costs more than a hundredth of the shortest call.
const TIMED: usize = 8;

/// How long calls are handled before others have their turn.
const LONGEST: Duration = Duration::from_micros(100);

/// About as much work as this many bytes.
const METADATA: usize = 2048;

/// As much as is copied in a quarter of a millisecond, into fresh memory.
const REPLIED: usize = 512 << 10;

/// Divisor of the budget of a turn that starts while others wait for theirs. If many connections start flooding, each
/// soon waits behind the others.
const SHORT: usize = 8;

//! How much one connection may do before others of its thread are looked at.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::connections::ConnectionHandle;

/// What a connection has used of its turn.
///
/// A peer that floods always has more to be read. The runtime's own budget would let its connection go on through
/// 8 MiB of small frames, tens of milliseconds in which no other connection of the thread is looked at.
#[derive(Debug, Default)]
pub(super) struct FairnessBudget {
    reads: usize,
    bytes: usize,
    calls: usize,
    metadata: usize,
    /// Bytes of large replies.
    replied: usize,
    /// When the first calls had been taken.
    started: Option<Instant>,
    /// The budget is that of a [short](SHORT) turn.
    is_short: bool,
    /// It was so much that the rest of what was read is left for the next turn.
    is_exhausted: bool,
    /// The connection waits for its next turn.
    yielded: bool,
    /// The connection has one of the [queue's](TurnQueue) places.
    has_place: bool,
}

impl FairnessBudget {
    /// Begins a turn, unless the connection waits for it and was woken for something else.
    pub(super) fn start_turn(&mut self, connection: &ConnectionHandle) {
        if !self.yielded {
            *self = Self { is_short: connection.turns().is_crowded(), ..Self::default() };
        } else if connection.take_turn() {
            *self = Self { has_place: true, ..Self::default() };
        }
    }

    /// Ends a turn of a connection that has nothing more to do for now.
    pub(super) fn end_turn(&mut self, connection: &ConnectionHandle) {
        if self.has_place && !self.yielded {
            self.has_place = false;
            connection.turns().leave(connection);
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Whether the connection waits for its next turn.
    pub(super) fn has_yielded(&self) -> bool {
        self.yielded
    }

    pub(super) fn record_read(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes;
    }

    /// What a call brought beside its message may be much in a few bytes, of which others have nothing.
    pub(super) fn record_call(&mut self, metadata: usize) {
        self.calls += 1;
        self.metadata += metadata;
        if self.calls.is_multiple_of(TIMED) {
            self.read_clock();
        }
        self.is_exhausted |= self.calls >= self.allowed(CALLS) || self.metadata >= METADATA;
    }

    /// To open a call is more work than to answer a short one.
    pub(super) fn record_stream_open(&mut self, metadata: usize) {
        self.calls += OPENED - 1;
        self.record_call(metadata);
    }

    /// To make a large reply is work that the request does not show.
    pub(super) fn record_reply(&mut self, length: usize) {
        self.replied += length;
        self.is_exhausted |= self.replied >= REPLIED;
    }

    /// How long handlers take is known to none but the clock.
    fn read_clock(&mut self) {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        self.is_exhausted |= now.saturating_duration_since(started) > LONGEST;
    }

    /// The session says that it was much.
    pub(super) fn exhaust(&mut self) {
        self.is_exhausted = true;
    }

    /// Pending when the turn is over.
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

/// More than a peer that waits for its answers needs; to go round by the runtime costs less than half a microsecond.
const READS: usize = 8;

/// Some hundred small messages.
const BYTES: usize = 32 << 10;

/// As many as an honest peer has under way, mostly.
const CALLS: usize = 256;

/// As how many calls one counts that is opened before its messages are here.
const OPENED: usize = 8;

/// After how many calls the clock is read. It costs more than a hundredth of the shortest call.
const TIMED: usize = 8;

/// How long calls are taken before others have their turn.
const LONGEST: Duration = Duration::from_micros(100);

/// About as much work as so many bytes.
const METADATA: usize = 2048;

/// As much as is copied in a quarter of a millisecond, into memory that is new.
const REPLIED: usize = 512 << 10;

/// By what the turn of a connection is shorter that begins while others wait for theirs. If it is one of many that begin
/// to flood, it soon waits behind them.
const SHORT: usize = 8;

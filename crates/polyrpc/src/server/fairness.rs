//! Limits the work of one connection before others of its thread are polled.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::connections::ConnectionHandle;
use super::turn_queue::Demand;
use crate::transport::ReadSize;

/// Budget of work in one turn of a connection.
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
    reply_bytes: usize,
    /// Bytes of the messages of calls.
    message_bytes: usize,
    /// When the first calls had been handled.
    started: Option<Instant>,
    /// Other connections wait for their turns.
    is_crowded: bool,
    /// The budget is that of a [short](SHORT_TURN_DIVISOR) turn.
    is_short: bool,
    /// The connection waits, or has waited, for its turn before reading anything.
    is_deferred: bool,
    /// Number of turns that handled calls within their budget; each turn that used its budget up divides it by
    /// [`TRUST_DECAY`].
    modest_turns: u8,
    /// The budget is used up: the rest of the bytes read is left for the next turn.
    is_exhausted: bool,
    /// The connection waits for its next turn.
    yielded: bool,
    /// The connection has a slot of the [queue](super::turn_queue::TurnQueue).
    has_slot: bool,
}

impl FairnessBudget {
    /// Starts a turn, unless the connection waits for one and was woken for another reason.
    pub(super) fn start_turn(&mut self, connection: &Arc<ConnectionHandle>) {
        let modest_turns = self.modest_turns;
        if !self.yielded {
            let is_crowded = connection.turns().is_crowded();
            *self = Self { is_crowded, is_short: is_crowded, modest_turns, ..Self::default() };
            if is_crowded && modest_turns < TRUSTED_AFTER_TURNS {
                self.is_deferred = true;
                self.yield_turn(connection, Demand::Modest);
            }
        } else if connection.take_turn() {
            let is_crowded = connection.turns().is_crowded();
            let is_short = is_crowded && self.is_deferred;
            *self = Self { has_slot: true, is_crowded, is_short, modest_turns, ..Self::default() };
        }
    }

    /// Ends the turn of a connection that has no more work for now.
    pub(super) fn end_turn(&mut self, connection: &ConnectionHandle) {
        if self.yielded {
            return;
        }
        if self.calls > 0 {
            self.modest_turns = self.modest_turns.saturating_add(1);
        }
        if self.has_slot {
            self.has_slot = false;
            connection.turns().leave(connection);
        }
    }

    /// Leaves the remaining work to the connection's next turn.
    fn yield_turn(&mut self, connection: &Arc<ConnectionHandle>, demand: Demand) {
        self.is_exhausted = true;
        self.yielded = true;
        connection.turns().enqueue(connection, demand);
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns the size of the next read.
    pub(super) fn read_size(&self) -> ReadSize {
        match (self.is_short, self.is_crowded) {
            (true, _) => ReadSize::Brief,
            // Thousands of connections may hold their input while they wait for their turns.
            (false, true) => ReadSize::Small,
            (false, false) => ReadSize::Large,
        }
    }

    /// Returns whether the connection waits for its next turn.
    pub(super) fn has_yielded(&self) -> bool {
        self.yielded
    }

    pub(super) fn record_read(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes;
    }

    /// Metadata may cause much work in a few bytes, so they are counted separately.
    pub(super) fn record_call(&mut self, metadata: usize) {
        self.calls += 1;
        self.metadata += metadata;
        if self.calls.is_multiple_of(CALLS_PER_CLOCK_READ) {
            self.read_clock();
        }
        self.is_exhausted |= self.calls >= self.scale_limit(MAX_CALLS) || self.metadata >= MAX_METADATA_BYTES;
    }

    /// Opening a streaming call is more work than answering a short one.
    pub(super) fn record_stream_open(&mut self, metadata: usize) {
        self.calls += STREAM_OPEN_WEIGHT - 1;
        self.record_call(metadata);
    }

    /// A large reply costs work that the size of the request does not show.
    pub(super) fn record_reply(&mut self, length: usize) {
        self.reply_bytes += length;
        self.is_exhausted |= self.reply_bytes >= MAX_REPLY_BYTES;
    }

    /// The messages of several calls may be much longer than what was read for them: in net/rpc, definitions of types
    /// that the peer sent once precede each value. A single long message was read in earlier turns.
    pub(super) fn record_message(&mut self, length: usize) {
        self.message_bytes += length;
        self.is_exhausted |= self.calls > 1 && self.message_bytes >= self.bytes + MAX_REPLY_BYTES;
    }

    /// Measures the time of handlers.
    fn read_clock(&mut self) {
        let now = Instant::now();
        let started = *self.started.get_or_insert(now);
        self.is_exhausted |= now.saturating_duration_since(started) > MAX_TURN;
    }

    /// Exhausts the budget, because the session reports much work.
    pub(super) fn exhaust(&mut self) {
        self.is_exhausted = true;
    }

    /// Returns `Pending` when the turn is over.
    pub(super) fn poll_budget(&mut self, connection: &Arc<ConnectionHandle>) -> Poll<()> {
        if self.reads < MAX_READS && self.bytes < self.scale_limit(MAX_BYTES) && !self.is_exhausted {
            return Poll::Ready(());
        }
        if !self.yielded {
            let demand = if self.modest_turns < TRUSTED_AFTER_TURNS { Demand::Heavy } else { Demand::Modest };
            self.modest_turns /= TRUST_DECAY;
            self.yield_turn(connection, demand);
        }
        Poll::Pending
    }

    fn scale_limit(&self, full: usize) -> usize {
        match self.is_short {
            true => full / SHORT_TURN_DIVISOR,
            false => full,
        }
    }
}

/// Maximum number of reads in a turn: more than a peer that waits for its responses needs. Yielding to the runtime costs
/// less than half a microsecond.
///
/// A [short](SHORT_TURN_DIVISOR) turn has the same limit: after each request another read shows that nothing follows, and
/// a connection without budget for that read would wait behind those that flood.
const MAX_READS: usize = 8;

/// Maximum number of bytes read in a turn: a few hundred small messages.
const MAX_BYTES: usize = 32 << 10;

/// Maximum number of calls in a turn: as many as a well-behaved peer usually has in flight.
const MAX_CALLS: usize = 256;

/// Weight, in calls, of a call that is opened before its messages have arrived.
const STREAM_OPEN_WEIGHT: usize = 8;

/// Number of calls between readings of the clock. A reading costs more than a hundredth of the shortest call.
const CALLS_PER_CLOCK_READ: usize = 8;

/// Number of turns within budget after which a connection no longer waits for its first turn while others flood: only
/// an unknown peer may be one of thousands that start to flood at the same time.
const TRUSTED_AFTER_TURNS: u8 = 8;

/// A used-up budget divides the number of modest turns by this: a peer that has been modest for long stays trusted after
/// one, which may be due to a thread that the system had stopped for a moment, but not after three in a row, such as for
/// one large message.
const TRUST_DECAY: u8 = 4;

/// Maximum time spent on handling calls in a turn.
const MAX_TURN: Duration = Duration::from_micros(100);

/// Maximum number of bytes of metadata in a turn: about as much work as [`MAX_BYTES`] bytes of messages.
const MAX_METADATA_BYTES: usize = 2048;

/// Maximum number of bytes of replies in a turn, and of messages beyond those read in it: these are copied into fresh
/// memory in a quarter of a millisecond.
const MAX_REPLY_BYTES: usize = 512 << 10;

/// Divisor of the budget of a turn that starts while others wait for theirs. If many connections start flooding, each
/// soon waits behind the others.
const SHORT_TURN_DIVISOR: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Peer;
    use crate::server::connections::{ConnectionGuard, ConnectionRegistry};

    /// A server's connections, some of which may flood.
    struct Connections(Arc<ConnectionRegistry>);

    impl Connections {
        fn new() -> Self {
            Self(Arc::new(ConnectionRegistry::new(
                Default::default(),
                Default::default(),
                Default::default(),
                Vec::new(),
                None,
            )))
        }

        fn open(&self) -> ConnectionGuard {
            self.0.try_register(Peer::InProcess).unwrap()
        }

        /// Opens connections that flood until one of them waits for its turn.
        fn flood(&self) -> Vec<ConnectionGuard> {
            let mut flooders = Vec::new();
            while flooders.last().is_none_or(|last: &ConnectionGuard| !last.connection.turns().is_crowded()) {
                let flooder = self.open();
                flooder.connection.turns().enqueue(&flooder.connection, Demand::Heavy);
                flooders.push(flooder);
            }
            flooders
        }
    }

    /// Handles one request, and ends the turn if there was one.
    fn call_once(budget: &mut FairnessBudget, connection: &Arc<ConnectionHandle>) -> Poll<()> {
        budget.start_turn(connection);
        std::task::ready!(budget.poll_budget(connection));
        budget.record_read(100);
        budget.record_call(0);
        budget.end_turn(connection);
        Poll::Ready(())
    }

    #[test]
    fn new_connection_waits_for_its_first_turn_while_others_flood() {
        let connections = Connections::new();
        let (connection, flooders) = (connections.open().connection.clone(), connections.flood());
        let mut budget = FairnessBudget::default();
        assert!(call_once(&mut budget, &connection).is_pending());
        assert!(budget.has_yielded());

        // The connections before it leave.
        flooders.iter().for_each(|flooder| connection.turns().leave(&flooder.connection));
        assert!(call_once(&mut budget, &connection).is_ready());
    }

    #[test]
    fn connection_within_its_budget_does_not_wait_while_others_flood() {
        let connections = Connections::new();
        let connection = connections.open().connection.clone();
        let mut budget = FairnessBudget::default();
        for _ in 0..TRUSTED_AFTER_TURNS {
            assert!(call_once(&mut budget, &connection).is_ready());
        }
        let _flooders = connections.flood();
        assert!(call_once(&mut budget, &connection).is_ready());
    }

    #[test]
    fn connection_that_exhausts_its_budget_waits_again() {
        let connections = Connections::new();
        let connection = connections.open().connection.clone();
        let mut budget = FairnessBudget { modest_turns: TRUSTED_AFTER_TURNS, ..FairnessBudget::default() };
        let _flooders = connections.flood();
        budget.start_turn(&connection);
        budget.exhaust();
        assert!(budget.poll_budget(&connection).is_pending());
        assert!(budget.modest_turns < TRUSTED_AFTER_TURNS);
    }

    #[test]
    fn connection_that_was_modest_for_long_stays_trusted_after_one_used_up_budget() {
        let connections = Connections::new();
        let connection = connections.open().connection.clone();
        let mut budget = FairnessBudget { modest_turns: u8::MAX, ..FairnessBudget::default() };
        let exhausted = (0..10).take_while(|_| {
            budget.exhaust();
            assert!(budget.poll_budget(&connection).is_pending());
            budget = FairnessBudget { modest_turns: budget.modest_turns, ..FairnessBudget::default() };
            budget.modest_turns >= TRUSTED_AFTER_TURNS
        });
        assert_eq!(exhausted.count(), 2);
    }

    #[test]
    fn messages_much_longer_than_what_was_read_end_the_turn() {
        let connection = Connections::new().open().connection.clone();
        let mut budget = FairnessBudget::default();
        budget.start_turn(&connection);
        budget.record_read(1000);
        let call = |budget: &mut FairnessBudget, length| {
            budget.record_call(0);
            budget.record_message(length);
            budget.is_exhausted()
        };
        // A message of earlier turns.
        assert!(!call(&mut budget, 10 * MAX_REPLY_BYTES));
        assert!(call(&mut budget, 100));

        // Small calls of one read, each with the definitions of its types.
        let mut budget = FairnessBudget::default();
        budget.start_turn(&connection);
        budget.record_read(1000);
        assert_eq!((0..10).take_while(|_| !call(&mut budget, MAX_REPLY_BYTES / 4)).count(), 4);
    }

    #[test]
    fn reads_are_small_while_others_wait() {
        let connections = Connections::new();
        let connection = connections.open().connection.clone();
        let mut budget = FairnessBudget { modest_turns: TRUSTED_AFTER_TURNS, ..FairnessBudget::default() };
        budget.start_turn(&connection);
        assert_eq!(budget.read_size(), ReadSize::Large);
        budget.end_turn(&connection);

        let _flooders = connections.flood();
        budget.start_turn(&connection);
        assert_eq!(budget.read_size(), ReadSize::Brief);
    }
}

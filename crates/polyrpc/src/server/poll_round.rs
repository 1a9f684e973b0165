//! Limits how long a connection polls its pending calls before other connections of its thread get their turn.
//!
//! Many of them may be ready at once: a peer has opened hundreds of streams whose handlers were never polled, or the
//! connection that they all wait for has ended. `FuturesUnordered` polls all that are ready before it returns. So each
//! call checks here first, and defers itself if the round has lasted too long.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The calls that the thread's current connection has polled.
#[derive(Debug, Clone, Copy)]
struct Round {
    polled: u32,
    /// When the first ones had been polled.
    started: Option<Instant>,
    is_over: bool,
}

thread_local! {
    static ROUND: Cell<Round> = const { Cell::new(Round::NEW) };
}

impl Round {
    const NEW: Self = Self { polled: 0, started: None, is_over: false };
}

/// Starts the round of a connection's turn.
pub(super) fn begin() {
    ROUND.set(Round::NEW);
}

/// Returns whether the round has lasted too long.
pub(super) fn is_over() -> bool {
    ROUND.get().is_over
}

/// Counts a call before it is polled. Returns `false` if the round is over.
pub(super) fn has_time() -> bool {
    let mut round = ROUND.get();
    if round.is_over {
        return false;
    }
    round.polled += 1;
    if round.polled.is_multiple_of(POLLS_PER_CLOCK_READ) {
        let now = Instant::now();
        let started = *round.started.get_or_insert(now);
        round.is_over = now.saturating_duration_since(started) > MAX_ROUND_DURATION;
    }
    ROUND.set(round);
    true
}

/// Number of calls between readings of the clock. A reading costs less than a hundredth of the poll of
/// most calls.
const POLLS_PER_CLOCK_READ: u32 = 8;

/// As long as a connection may handle calls in a turn ([`fairness`](super::fairness)).
const MAX_ROUND_DURATION: Duration = Duration::from_micros(100);

//! Failed authentications per peer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tick::TICK;

/// The failed credentials of a peer address, of which one is forgiven per second.
#[derive(Debug, Default)]
pub(super) struct FailedCredentials(AtomicU64);

/// Time after which one failure is forgotten.
const FAILURE_MEMORY: Duration = Duration::from_secs(1);

/// The longest delay of a response.
const MAX_DELAY: Duration = Duration::from_secs(30);

impl FailedCredentials {
    /// Counts a failure. Returns how long its response is to be delayed, since there were more than `free` before it.
    pub(super) fn count(&self, now: u32, free: u32) -> Duration {
        let mut failures = 0;
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
            let (left, at) = remaining(packed, now);
            failures = left.saturating_add(1);
            Some(u64::from(failures) << 32 | u64::from(at))
        });
        FAILURE_MEMORY.saturating_mul(failures.saturating_sub(free)).min(MAX_DELAY)
    }

    /// Returns whether there are failures that are not forgiven yet.
    pub(super) fn are_recent(&self, now: u32) -> bool {
        remaining(self.0.load(Ordering::Relaxed), now).0 > 0
    }
}

/// Returns how many failures are not forgiven at this tick, and the tick at which the next one is.
fn remaining(packed: u64, now: u32) -> (u32, u32) {
    let (failures, at) = ((packed >> 32) as u32, packed as u32);
    let forgiven = now.saturating_sub(at) / TICKS_PER_FAILURE;
    match failures.checked_sub(forgiven) {
        Some(left) if left > 0 => (left, at + forgiven * TICKS_PER_FAILURE),
        _ => (0, now),
    }
}

const TICKS_PER_FAILURE: u32 = (FAILURE_MEMORY.as_millis() / TICK.as_millis()) as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_failures_are_answered_with_growing_delay() {
        let failures = FailedCredentials::default();
        let delays: Vec<_> = (0..13).map(|_| failures.count(4, 10).as_secs()).collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!((0..100).map(|_| failures.count(4, 10)).max(), Some(MAX_DELAY));
    }

    #[test]
    fn one_failure_is_forgiven_per_second() {
        let failures = FailedCredentials::default();
        (0..10).for_each(|_| assert!(failures.count(0, 10).is_zero()));
        assert!(failures.are_recent(39));
        assert!(!failures.are_recent(40));
        assert_eq!(failures.count(2, 9), Duration::from_secs(2), "parts of a second add up");
        (0..10).for_each(|_| assert!(!failures.count(6, 10).is_zero()));
        assert!(failures.are_recent(80));
        let failures = FailedCredentials::default();
        (0..10).for_each(|_| assert!(failures.count(0, 10).is_zero()));
        assert_eq!(failures.count(4, 10), Duration::ZERO);
        assert_eq!(failures.count(4, 10), Duration::from_secs(1));
    }
}

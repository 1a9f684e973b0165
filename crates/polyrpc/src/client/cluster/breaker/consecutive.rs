use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Limit of consecutive failures.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConsecutiveLimit {
    pub(super) failures: u32,
    pub(super) within: Duration,
}

/// Counter of consecutive failures.
///
/// The atomics are relaxed: a race costs one failure more or less. While calls succeed, nothing is written.
#[derive(Debug, Default)]
pub(super) struct ConsecutiveFailures {
    failures: AtomicU32,
    /// Time of the last failure, in nanoseconds.
    last: AtomicU64,
}

impl ConsecutiveFailures {
    /// Records the end of a call. Returns whether there were too many failures.
    pub(super) fn record(&self, limit: &ConsecutiveLimit, failed: bool, now: Duration) -> bool {
        if !failed {
            if self.failures.load(Ordering::Relaxed) > 0 {
                self.forget();
            }
            return false;
        }
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let last = self.last.swap(now, Ordering::Relaxed);
        if Duration::from_nanos(now.saturating_sub(last)) >= limit.within {
            self.forget();
        }
        self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= limit.failures
    }

    pub(super) fn forget(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: ConsecutiveLimit = ConsecutiveLimit { failures: 3, within: Duration::from_secs(10) };

    fn failures_until_too_many(run: &ConsecutiveFailures, at: impl Fn(u64) -> Duration) -> Option<u64> {
        (1..100).find(|&n| run.record(&LIMIT, true, at(n)))
    }

    #[test]
    fn success_resets_consecutive_failures() {
        let run = ConsecutiveFailures::default();
        assert_eq!(failures_until_too_many(&run, Duration::from_secs), Some(3));
        let run = ConsecutiveFailures::default();
        for second in 1..20 {
            assert!(!run.record(&LIMIT, second % 3 != 0, Duration::from_secs(second)));
        }
    }

    #[test]
    fn failures_far_apart_are_not_consecutive() {
        let every_10_s = |n| Duration::from_secs(10 * n);
        assert_eq!(failures_until_too_many(&ConsecutiveFailures::default(), every_10_s), None);
        let every_9_s = |n| Duration::from_secs(9 * n);
        assert_eq!(failures_until_too_many(&ConsecutiveFailures::default(), every_9_s), Some(3));
    }
}

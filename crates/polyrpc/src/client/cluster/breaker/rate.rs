use std::time::Duration;

/// Limit of the share of failed calls.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RateLimit {
    pub(super) share: f64,
    pub(super) min_calls: u32,
    pub(super) window: Duration,
}

/// Sliding window of calls in ten buckets; the oldest bucket is dropped when a new one starts.
#[derive(Debug, Default)]
pub(super) struct Window {
    tenths: [Tenth; TENTHS],
    /// Number of the newest bucket since the time origin.
    newest: u64,
    calls: u32,
    failures: u32,
}

const TENTHS: usize = 10;

#[derive(Debug, Default, Clone, Copy)]
struct Tenth {
    calls: u32,
    failures: u32,
}

impl Window {
    /// Records the end of a call. Returns whether too many have failed.
    pub(super) fn record(&mut self, limit: &RateLimit, failed: bool, now: Duration) -> bool {
        self.advance(limit, now);
        let index = (self.newest % TENTHS as u64) as usize;
        if let Some(tenth) = self.tenths.get_mut(index) {
            tenth.calls = tenth.calls.saturating_add(1);
            tenth.failures = tenth.failures.saturating_add(u32::from(failed));
        }
        self.calls = self.calls.saturating_add(1);
        self.failures = self.failures.saturating_add(u32::from(failed));
        failed
            && self.calls >= limit.min_calls
            && f64::from(self.failures) >= limit.share * f64::from(self.calls)
    }

    /// Drops the buckets that are older than the window. Ignores a clock that goes backwards.
    fn advance(&mut self, limit: &RateLimit, now: Duration) {
        let tenth = (limit.window.as_nanos() / TENTHS as u128).max(1);
        let newest = u64::try_from(now.as_nanos() / tenth).unwrap_or(u64::MAX);
        let passed = newest.saturating_sub(self.newest);
        if passed == 0 {
            return;
        }
        for gone in 1..=passed.min(TENTHS as u64) {
            let index = (self.newest.wrapping_add(gone) % TENTHS as u64) as usize;
            if let Some(tenth) = self.tenths.get_mut(index) {
                let Tenth { calls, failures } = std::mem::take(tenth);
                self.calls = self.calls.saturating_sub(calls);
                self.failures = self.failures.saturating_sub(failures);
            }
        }
        self.newest = newest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: RateLimit = RateLimit { share: 0.5, min_calls: 10, window: Duration::from_secs(10) };

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn failure_rate_applies_after_enough_calls() {
        let mut window = Window::default();
        assert_eq!((1..100).find(|_| window.record(&LIMIT, true, at(5))), Some(10));
        let mut window = Window::default();
        (0..50).for_each(|_| assert!(!window.record(&LIMIT, false, at(5))));
        assert_eq!((1..100).find(|_| window.record(&LIMIT, true, at(5))), Some(50));
    }

    #[test]
    fn outcomes_older_than_the_window_are_dropped() {
        let mut window = Window::default();
        (0..9).for_each(|_| assert!(!window.record(&LIMIT, true, at(0))));
        assert!(!window.record(&LIMIT, true, at(10_000)), "the nine calls have expired");
        (0..8).for_each(|_| assert!(!window.record(&LIMIT, true, at(19_000))));
        assert!(window.record(&LIMIT, true, at(19_999)), "the one of 10 s still counts");
        assert!(!window.record(&LIMIT, true, at(1_000_000)));
        assert_eq!((window.calls, window.failures), (1, 1));
    }

    #[test]
    fn extreme_windows_never_panic() {
        for window in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let limit = RateLimit { window, ..LIMIT };
            let mut window = Window::default();
            for now in [Duration::MAX, Duration::ZERO, at(7), Duration::MAX] {
                window.record(&limit, true, now);
            }
        }
    }
}

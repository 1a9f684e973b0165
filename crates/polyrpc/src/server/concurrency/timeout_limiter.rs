use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::window::{SampleGate, SampleOutcome, Window, WindowProgress};
use crate::contention::Mutex;

/// The limiter that brpc calls `timeout` (`policy/timeout_concurrency_limiter.cpp`, with its constants).
#[derive(Debug)]
pub(super) struct TimeoutLimiter {
    /// Timeout of a caller that sends none.
    timeout: Duration,
    /// Upper bound of the calls at a time.
    max: usize,
    /// Average duration of a call, in microseconds.
    average: AtomicU64,
    gate: SampleGate,
    window: Mutex<Window>,
}

impl TimeoutLimiter {
    pub(super) fn new(timeout: Duration, max: usize, now: Instant) -> Self {
        let average = AtomicU64::new(INITIAL_MICROSECONDS);
        Self { timeout, max, average, gate: SampleGate::new(now), window: Mutex::default() }
    }

    /// Returns whether this many calls are admitted at a time, if the last one has this timeout. A single call is
    /// always admitted: otherwise the limiter would never learn that calls have become faster.
    pub(super) fn admits(&self, concurrency: usize, timeout: Option<Duration>) -> bool {
        let average = Duration::from_micros(self.average.load(Ordering::Relaxed));
        concurrency == 1 || concurrency <= self.max && average < timeout.unwrap_or(self.timeout)
    }

    /// Records the end of a call.
    pub(super) fn record_end(&self, outcome: SampleOutcome, latency: Duration, now: Instant) {
        if !self.gate.should_sample(now) {
            return;
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let WindowProgress::Full(measured) = window.add(outcome, latency, now) else { return };
        let average = match measured.average {
            Some(average) => average as u64,
            None => self.average.load(Ordering::Relaxed).saturating_mul(2),
        };
        self.average.store(average, Ordering::Relaxed);
    }
}

const INITIAL_MICROSECONDS: u64 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Ends a window of calls.
    fn window(limiter: &TimeoutLimiter, now: &mut Instant, outcome: SampleOutcome, latency: Duration) {
        for _ in 0..200 {
            *now += ms(1);
            limiter.record_end(outcome, latency, *now);
        }
    }

    #[test]
    fn call_is_admitted_if_it_can_be_answered_in_time() {
        let mut now = Instant::now();
        let limiter = TimeoutLimiter::new(ms(500), 100, now);
        assert!(limiter.admits(100, Some(ms(1))) && !limiter.admits(101, Some(ms(1))));
        window(&limiter, &mut now, SampleOutcome::Succeeded, ms(100));
        assert!(limiter.admits(2, Some(ms(101))) && !limiter.admits(2, Some(ms(100))));
        // A caller without a timeout counts as waiting for half a second.
        assert!(limiter.admits(2, None));
        window(&limiter, &mut now, SampleOutcome::Succeeded, ms(500));
        assert!(!limiter.admits(2, None));
        // A single call is admitted all the same, to notice when calls become faster.
        assert!(limiter.admits(1, Some(ms(1))));
        window(&limiter, &mut now, SampleOutcome::Succeeded, ms(2));
        assert!(limiter.admits(2, Some(ms(3))));
    }

    #[test]
    fn failures_double_the_expected_latency() {
        let mut now = Instant::now();
        let limiter = TimeoutLimiter::new(ms(500), 100, now);
        window(&limiter, &mut now, SampleOutcome::Failed, ms(1));
        assert!(!limiter.admits(2, Some(ms(1))) && limiter.admits(2, Some(ms(2))));
    }
}

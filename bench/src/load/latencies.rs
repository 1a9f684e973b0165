//! Latencies of all calls of a window, with at most one clock reading per call.
//!
//! In a closed loop the end of a call is the start of the next, so one reading serves both; a batch
//! of replies that arrive in one read shares one reading.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The recorded calls of one window.
#[derive(Debug)]
pub(crate) struct LatencyRecorder {
    histogram: Histogram<u64>,
    start: Instant,
    until: Instant,
    last: Instant,
    errors: u64,
}

impl LatencyRecorder {
    /// A window that starts now.
    pub(crate) fn start(window: Duration) -> Self {
        // From 1 ns to 60 s with three digits.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order");
        let start = Instant::now();
        Self { histogram, start, until: start + window, last: start, errors: 0 }
    }

    /// Start of the window and of the first calls.
    pub(crate) fn started(&self) -> Instant {
        self.start
    }

    /// Whether a call may still start at `now`.
    pub(crate) fn is_open_at(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Counts `calls` that started at `since` and ended at `now`.
    pub(crate) fn record(&mut self, since: Instant, now: Instant, calls: u64) {
        let took = now.saturating_duration_since(since).as_nanos() as u64;
        self.histogram.saturating_record_n(took, calls);
        self.last = now;
    }

    /// Counts wrong replies.
    pub(crate) fn record_errors(&mut self, errors: u64) {
        self.errors += errors;
    }

    /// Result of the window, which ended with its last reply.
    pub(crate) fn finish(self) -> Tally {
        Tally {
            calls: self.histogram.len(),
            errors: self.errors,
            elapsed_ns: (self.last - self.start).as_nanos() as u64,
            mean_ns: self.histogram.mean() as u64,
            p50_ns: self.histogram.value_at_quantile(0.5),
            p99_ns: self.histogram.value_at_quantile(0.99),
            p999_ns: self.histogram.value_at_quantile(0.999),
            max_ns: self.histogram.max(),
        }
    }
}

/// A recorder shared by many callers. On one thread the lock is never contended; threads hold it for some ten
/// nanoseconds per call.
#[derive(Clone, Debug)]
pub(crate) struct SharedLatencyRecorder(Arc<Mutex<LatencyRecorder>>);

impl SharedLatencyRecorder {
    /// A window that starts now.
    pub(crate) fn start(window: Duration) -> Self {
        Self(Arc::new(Mutex::new(LatencyRecorder::start(window))))
    }

    /// Start of the window and of the first calls.
    pub(crate) fn started(&self) -> Instant {
        self.lock().started()
    }

    /// Whether a call may still start at `now`.
    pub(crate) fn is_open_at(&self, now: Instant) -> bool {
        self.lock().is_open_at(now)
    }

    /// Counts a call that ended now, and returns the time.
    pub(crate) fn record_call(&self, began: Instant, is_right: bool) -> Instant {
        let ended = Instant::now();
        let mut latencies = self.lock();
        latencies.record(began, ended, 1);
        latencies.record_errors(u64::from(!is_right));
        ended
    }

    /// Result of the window, after every caller has ended.
    pub(crate) fn finish(self) -> Tally {
        let latencies = Arc::into_inner(self.0).expect("every caller has ended");
        latencies.into_inner().unwrap_or_else(PoisonError::into_inner).finish()
    }

    fn lock(&self) -> MutexGuard<'_, LatencyRecorder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of a window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Number of answered calls.
    pub(crate) calls: u64,
    /// Number of wrong replies among them.
    pub(crate) errors: u64,
    /// Time from the first request to the last reply.
    pub(crate) elapsed_ns: u64,
    /// Latency from the request to the reply.
    pub(crate) mean_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_counts_every_call_and_elapses_until_the_last() {
        let mut latencies = LatencyRecorder::start(Duration::from_millis(5));
        let start = latencies.started();
        latencies.record(start, start + Duration::from_micros(10), 98);
        latencies.record(start, start + Duration::from_millis(7), 2);
        latencies.record_errors(1);
        assert!(!latencies.is_open_at(start + Duration::from_millis(5)));

        let tally = latencies.finish();
        assert_eq!((tally.calls, tally.errors, tally.elapsed_ns), (100, 1, 7_000_000));
        assert_eq!(tally.p50_ns / 10, 1_000);
        assert!(tally.p99_ns >= 7_000_000 && tally.max_ns >= 7_000_000);
    }
}

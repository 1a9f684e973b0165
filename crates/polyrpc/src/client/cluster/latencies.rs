use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Latencies of recent calls.
///
/// Every call writes them, and they are read rarely. A read may mix newer and older values, which is equally valid.
#[derive(Debug)]
pub(super) struct Latencies {
    /// Ring buffer in microseconds; the newest value replaces the oldest.
    recent: [AtomicU32; RECENT],
    recorded: AtomicUsize,
    /// Cached quantile in microseconds, and the number of recorded calls when it was computed.
    cached: AtomicU32,
    computed_at: AtomicUsize,
}

/// Number of calls that count.
const RECENT: usize = 256;

/// Number of calls required for a quantile.
const MIN_CALLS: usize = 32;

/// Number of further calls for which a cached quantile stays valid.
const CACHED_CALLS: usize = 64;

impl Default for Latencies {
    fn default() -> Self {
        Self {
            recent: [const { AtomicU32::new(0) }; RECENT],
            recorded: AtomicUsize::new(0),
            cached: AtomicU32::new(0),
            computed_at: AtomicUsize::new(0),
        }
    }
}

impl Latencies {
    /// Records the latency of a call.
    pub(super) fn record(&self, latency: Duration) {
        let index = self.recorded.fetch_add(1, Ordering::Relaxed) % RECENT;
        if let Some(slot) = self.recent.get(index) {
            slot.store(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Returns this quantile of the recent latencies; `None` if there were too few calls. The value is
    /// cached; the quantile must always be the same.
    pub(super) fn quantile(&self, quantile: f64) -> Option<Duration> {
        let recorded = self.recorded.load(Ordering::Relaxed);
        if recorded < MIN_CALLS {
            return None;
        }
        let computed_at = self.computed_at.load(Ordering::Relaxed);
        if computed_at == 0 || recorded.wrapping_sub(computed_at) >= CACHED_CALLS {
            self.computed_at.store(recorded, Ordering::Relaxed);
            self.cached.store(self.quantile_of_recent(recorded, quantile), Ordering::Relaxed);
        }
        Some(Duration::from_micros(u64::from(self.cached.load(Ordering::Relaxed))))
    }

    #[cold]
    fn quantile_of_recent(&self, recorded: usize, quantile: f64) -> u32 {
        let mut all: Vec<u32> =
            self.recent.iter().take(recorded).map(|latency| latency.load(Ordering::Relaxed)).collect();
        all.sort_unstable();
        let index = (quantile.clamp(0.0, 1.0) * all.len() as f64) as usize;
        all.get(index).or_else(|| all.last()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_known_after_enough_calls() {
        let latencies = Latencies::default();
        (1..MIN_CALLS as u64).for_each(|millis| latencies.record(Duration::from_millis(millis)));
        assert_eq!(latencies.quantile(0.5), None);
        latencies.record(Duration::from_millis(100));
        assert_eq!(latencies.quantile(0.5), Some(Duration::from_millis(17)));
        (0..RECENT).for_each(|_| latencies.record(Duration::from_millis(7)));
        assert_eq!(latencies.quantile(0.99), Some(Duration::from_millis(7)));
    }

    #[test]
    fn extreme_quantiles_never_panic() {
        for (quantile, want) in [(f64::NAN, 1), (-1.0, 1), (2.0, 1)] {
            let latencies = Latencies::default();
            (0..MIN_CALLS).for_each(|_| latencies.record(Duration::from_millis(1)));
            assert_eq!(latencies.quantile(quantile), Some(Duration::from_millis(want)));
        }
    }
}

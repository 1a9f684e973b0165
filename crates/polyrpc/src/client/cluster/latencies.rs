use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// How long recent calls took.
///
/// Written by every call and read now and then: what is read may mix newer with older ones, which is as good.
#[derive(Debug)]
pub(super) struct Latencies {
    /// In microseconds, one after another, the newest in place of the oldest.
    recent: [AtomicU32; RECENT],
    noted: AtomicUsize,
    /// What was asked for last, in microseconds, and how many calls had been noted then.
    answer: AtomicU32,
    asked_at: AtomicUsize,
}

/// How many calls count.
const RECENT: usize = 256;

/// How many calls it takes to say anything.
const ENOUGH: usize = 32;

/// For how many calls an answer holds.
const FRESH: usize = 64;

impl Default for Latencies {
    fn default() -> Self {
        Self {
            recent: [const { AtomicU32::new(0) }; RECENT],
            noted: AtomicUsize::new(0),
            answer: AtomicU32::new(0),
            asked_at: AtomicUsize::new(0),
        }
    }
}

impl Latencies {
    /// A call took so long.
    pub(super) fn record(&self, latency: Duration) {
        let place = self.noted.fetch_add(1, Ordering::Relaxed) % RECENT;
        if let Some(slot) = self.recent.get(place) {
            slot.store(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// What this share of recent calls took at most; `None` when there were too few. It is worked out anew once in a
    /// while, always for the same share.
    pub(super) fn slowest(&self, share: f64) -> Option<Duration> {
        let noted = self.noted.load(Ordering::Relaxed);
        if noted < ENOUGH {
            return None;
        }
        let asked_at = self.asked_at.load(Ordering::Relaxed);
        if asked_at == 0 || noted.wrapping_sub(asked_at) >= FRESH {
            self.asked_at.store(noted, Ordering::Relaxed);
            self.answer.store(self.percentile_of_recent(noted, share), Ordering::Relaxed);
        }
        Some(Duration::from_micros(u64::from(self.answer.load(Ordering::Relaxed))))
    }

    #[cold]
    fn percentile_of_recent(&self, noted: usize, share: f64) -> u32 {
        let mut all: Vec<u32> =
            self.recent.iter().take(noted).map(|latency| latency.load(Ordering::Relaxed)).collect();
        all.sort_unstable();
        let place = (share.clamp(0.0, 1.0) * all.len() as f64) as usize;
        all.get(place).or_else(|| all.last()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_recent_calls_is_told_once_there_are_enough() {
        let latencies = Latencies::default();
        (1..ENOUGH as u64).for_each(|millis| latencies.record(Duration::from_millis(millis)));
        assert_eq!(latencies.slowest(0.5), None);
        latencies.record(Duration::from_millis(100));
        assert_eq!(latencies.slowest(0.5), Some(Duration::from_millis(17)));
        (0..RECENT).for_each(|_| latencies.record(Duration::from_millis(7)));
        assert_eq!(latencies.slowest(0.99), Some(Duration::from_millis(7)));
    }

    #[test]
    fn odd_shares_do_no_harm() {
        for (share, want) in [(f64::NAN, 1), (-1.0, 1), (2.0, 1)] {
            let latencies = Latencies::default();
            (0..ENOUGH).for_each(|_| latencies.record(Duration::from_millis(1)));
            assert_eq!(latencies.slowest(share), Some(Duration::from_millis(want)));
        }
    }
}

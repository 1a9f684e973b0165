//! How long calls took: buckets that grow with what falls into them, so that every latency is known to an eighth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets that are written from many threads.
#[derive(Debug)]
pub(super) struct Histogram([AtomicU64; BUCKETS]);

/// Each power of two is divided into so many buckets.
const PARTS: u64 = 1 << PARTS_LOG;
const PARTS_LOG: u32 = 3;

/// What takes longer falls into the last bucket: 2⁴² ns, more than an hour.
const LONGEST_LOG: u32 = 42;

const BUCKETS: usize = ((LONGEST_LOG - PARTS_LOG + 1) << PARTS_LOG) as usize;

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Histogram {
    pub(super) fn note(&self, nanos: u64) {
        if let Some(bucket) = self.0.get(bucket(nanos)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Below eight nanoseconds each has its own; from there on the highest four bits tell.
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.min((1 << LONGEST_LOG) - 1);
    let shift = (nanos | 1).ilog2().saturating_sub(PARTS_LOG);
    ((u64::from(shift) << PARTS_LOG) + (nanos >> shift)) as usize
}

/// Where a bucket begins, in nanoseconds.
fn floor(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket >> PARTS_LOG {
        0 => bucket,
        group => (PARTS + (bucket & (PARTS - 1))) << (group - 1),
    }
}

/// How often each bucket was hit at one time, or between two times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counts(Vec<u64>);

impl Default for Counts {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

impl Counts {
    pub(super) fn add(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.0.iter_mut().zip(&histogram.0) {
            *sum += bucket.load(Ordering::Relaxed);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }

    /// What came since.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// How many took no longer, give or take the bucket that it is in.
    pub(super) fn up_to(&self, latency: Duration) -> u64 {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.iter().take(bucket(nanos)).sum()
    }

    /// What this share of them took at most: the value at the ⌈share·n⌉th place, as if those of a bucket were spread
    /// evenly. Zero if there are none.
    pub(super) fn percentile(&self, share: f64) -> Duration {
        let rank = ((share * self.total() as f64).ceil() as u64).max(1);
        let mut before = 0;
        for (bucket, &count) in self.0.iter().enumerate() {
            if before + count >= rank {
                let (from, to) = (floor(bucket), floor(bucket + 1));
                let within = (rank - before) as f64 / count as f64;
                return Duration::from_nanos(from + ((to - from) as f64 * within) as u64);
            }
            before += count;
        }
        Duration::ZERO
    }

    /// What the longest took, up to the end of its bucket.
    pub(super) fn longest(&self) -> Duration {
        let last = self.0.iter().rposition(|&count| count > 0);
        last.map_or(Duration::ZERO, |bucket| Duration::from_nanos(floor(bucket + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(nanos: impl IntoIterator<Item = u64>) -> Counts {
        let histogram = Histogram::default();
        nanos.into_iter().for_each(|nanos| histogram.note(nanos));
        let mut counts = Counts::default();
        counts.add(&histogram);
        counts
    }

    #[test]
    fn every_latency_falls_between_the_bounds_of_its_bucket_which_are_an_eighth_apart() {
        let spread = (0..60).flat_map(|log| [0, 1, 7].map(|more| (1_u64 << log).saturating_add(more)));
        for nanos in spread.chain(0..4096).filter(|nanos| *nanos < 1 << LONGEST_LOG) {
            let (from, to) = (floor(bucket(nanos)), floor(bucket(nanos) + 1));
            assert!(from <= nanos && nanos < to, "{nanos}: {from}..{to}");
            assert!(to - from <= (nanos / 8).max(1), "{nanos}: {from}..{to}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_noted_give_or_take_an_eighth() {
        let counts = counts((1..=1000).map(|micros| micros * 1000));
        assert_eq!(counts.total(), 1000);
        for share in [0.5, 0.8, 0.9, 0.99, 0.999] {
            let told = counts.percentile(share).as_nanos() as f64 / 1e6;
            assert!((told - share).abs() < share / 16.0, "{share}: {told}");
        }
        assert!(counts.longest() >= Duration::from_millis(1));
        assert!(counts.longest() <= Duration::from_micros(1125));
    }

    #[test]
    fn nothing_noted_has_percentiles_of_zero() {
        let none = Counts::default();
        assert_eq!(
            (none.percentile(0.99), none.longest(), none.total()),
            (Duration::ZERO, Duration::ZERO, 0)
        );
        assert_eq!(none.percentile(f64::NAN), Duration::ZERO);
    }

    #[test]
    fn what_came_since_is_told() {
        let (then, now) = (counts([1000, 2000]), counts([1000, 2000, 1 << 20]));
        let since = now.since(&then);
        assert_eq!(since.total(), 1);
        assert!(since.percentile(0.5) > Duration::from_millis(1));
        assert_eq!(now.up_to(Duration::from_micros(100)), 2);
    }
}

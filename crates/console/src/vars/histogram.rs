//! Histograms of microseconds, with eight buckets for every doubling: each value is accurate to a tenth.

use std::sync::atomic::{AtomicU64, Ordering};

const PARTS: u64 = 8;
/// Values from 2³² µs on, more than an hour, are in the last bucket.
const BUCKETS: usize = (32 - 2) * PARTS as usize;

/// Buckets that several threads change.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], micros: AtomicU64::new(0) }
    }
}

impl Histogram {
    pub(super) fn record(&self, micros: u64) {
        // `bucket` is below the number of buckets.
        self.buckets[bucket(micros)].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Values below eight have a bucket each; from there on each power of two has eight.
fn bucket(micros: u64) -> usize {
    let index = match micros {
        0..PARTS => micros,
        _ => {
            let log = u64::from(micros.ilog2());
            (log - 2) * PARTS + ((micros >> (log - 3)) & (PARTS - 1))
        }
    };
    (index as usize).min(BUCKETS - 1)
}

/// Returns the smallest value of a bucket, and the first one that is above it.
fn bounds(bucket: usize) -> (u64, u64) {
    let start = |index: u64| match index {
        0..PARTS => index,
        _ => (PARTS + index % PARTS) << (index / PARTS - 1),
    };
    (start(bucket as u64), start(bucket as u64 + 1))
}

/// Counts at a time, or between two times.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    buckets: Vec<u64>,
    micros: u64,
}

impl Counts {
    pub(super) fn sum<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> Self {
        let mut counts = Self { buckets: vec![0; BUCKETS], micros: 0 };
        for histogram in histograms {
            for (sum, bucket) in counts.buckets.iter_mut().zip(&histogram.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            counts.micros = counts.micros.wrapping_add(histogram.micros.load(Ordering::Relaxed));
        }
        counts
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        let earlier_buckets = earlier.buckets.iter().chain(std::iter::repeat(&0));
        let buckets = self.buckets.iter().zip(earlier_buckets);
        Self {
            buckets: buckets.map(|(now, then)| now.saturating_sub(*then)).collect(),
            micros: self.micros.wrapping_sub(earlier.micros),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(super) fn average(&self) -> u64 {
        self.micros.checked_div(self.total()).unwrap_or(0)
    }

    /// Returns the quantile: the value of rank ⌈quantile·n⌉, with the values of a bucket spread evenly.
    pub(super) fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((quantile * self.total() as f64).ceil() as u64).max(1);
        let mut before = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            if before + count >= rank {
                let (from, to) = bounds(bucket);
                return from + (to - from - 1) * (rank - before) / count;
            }
            before += count;
        }
        0
    }

    pub(super) fn longest(&self) -> u64 {
        let last = self.buckets.iter().rposition(|&count| count > 0);
        last.map_or(0, |bucket| bounds(bucket).1 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_between_the_bounds_of_its_bucket() {
        for micros in (0..5000).chain((3..32).flat_map(|log| [(1 << log) - 1, 1 << log, (1 << log) + 1])) {
            let (from, to) = bounds(bucket(micros));
            assert!((from..to).contains(&micros), "{micros}: {from}..{to}");
            assert!(to - from <= (from / 8).max(1), "{micros}: {from}..{to}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_accurate_to_an_eighth() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.record(micros));
        let counts = Counts::sum([&histogram].into_iter());
        assert_eq!((counts.total(), counts.average()), (1000, 500));
        for (share, want) in [(0.5, 500), (0.99, 990), (1.0, 1000), (0.001, 1)] {
            let got = counts.quantile(share);
            assert!(got.abs_diff(want) <= want / 8 + 1, "{share}: {got}");
        }
        histogram.record(5_000_000);
        let since = Counts::sum([&histogram].into_iter()).since(&counts);
        assert_eq!(since.total(), 1);
        assert!(since.quantile(0.5) >= 4_500_000 && since.longest() >= 5_000_000);
    }
}

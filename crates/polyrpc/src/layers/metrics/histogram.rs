//! Histograms of durations: buckets grow exponentially, so that every latency is accurate to a tenth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets that are updated by many threads.
#[derive(Debug)]
pub(super) struct Histogram([AtomicU64; BUCKETS]);

/// Number of buckets per power of two, each 2^⅛ times as wide as the one before: schema 3 of Prometheus' native
/// histograms.
pub(super) const PARTS: i32 = 8;

/// Values up to this fall into the first bucket: 2⁻³⁰ s, about a nanosecond.
const SHORTEST_LOG: i32 = -30;

/// Values above this fall into the last bucket: 2¹² s, more than an hour.
const LONGEST_LOG: i32 = 12;

const BUCKETS: usize = ((LONGEST_LOG - SHORTEST_LOG) * PARTS + 1) as usize;

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Histogram {
    pub(super) fn record(&self, seconds: f64) {
        if let Some(bucket) = self.0.get(bucket(seconds)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The fractions of 2^⁰⁄₈ to 2^⁷⁄₈ in floating-point representation.
const FRACTIONS: [u64; PARTS as usize] = [
    0,
    1.090_507_732_665_257_7_f64.to_bits() & FRACTION,
    1.189_207_115_002_721_f64.to_bits() & FRACTION,
    1.296_839_554_651_009_6_f64.to_bits() & FRACTION,
    std::f64::consts::SQRT_2.to_bits() & FRACTION,
    1.542_210_825_407_940_7_f64.to_bits() & FRACTION,
    1.681_792_830_507_429_f64.to_bits() & FRACTION,
    1.834_008_086_409_342_4_f64.to_bits() & FRACTION,
];

const FRACTION: u64 = (1 << (f64::MANTISSA_DIGITS - 1)) - 1;

/// Returns the bucket of a value: it is above the bound of the bucket before, and not above its own.
fn bucket(seconds: f64) -> usize {
    // `max` may return either of two zeros, and the sign bit of -0.0 would be read as a large exponent.
    let bits = if seconds > 0.0 { seconds.to_bits() } else { 0 };
    let log = (bits >> (f64::MANTISSA_DIGITS - 1)) as i32 - (f64::MAX_EXP - 1);
    let fraction = bits & FRACTION;
    let part = FRACTIONS.iter().filter(|bound| fraction > **bound).count() as i32;
    let index = (log - SHORTEST_LOG).saturating_mul(PARTS).saturating_add(part);
    (index.max(0) as usize).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket, in seconds.
fn bound(bucket: usize) -> f64 {
    f64::exp2(bucket as f64 / f64::from(PARTS) + f64::from(SHORTEST_LOG))
}

/// Counts of the buckets at one time, or between two times.
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

    /// Returns the counts since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Joins the counts of values of any size; [`WideHistogram`] counts the large ones separately.
    #[cfg(feature = "metrics")]
    fn from_histograms(small: &Histogram, large: &Histogram) -> Self {
        let large = large.0.iter().skip(1);
        Self(small.0.iter().chain(large).map(|bucket| bucket.load(Ordering::Relaxed)).collect())
    }

    /// Returns whether they are counts of values of any size.
    pub(super) fn are_wide(&self) -> bool {
        self.0.len() > BUCKETS
    }

    /// Returns how many values were not above each of the bounds from 2^`from` to 2^`to`, with `step` of the
    /// histogram's own buckets from one to the next.
    pub(super) fn cumulative_counts(&self, (from, to): (i32, i32), step: usize) -> Vec<(f64, u64)> {
        let index_of = |log: i32| ((log - SHORTEST_LOG) * PARTS).max(0) as usize;
        let mut below = 0;
        let mut counted = 0;
        let bounds = (index_of(from)..=index_of(to)).step_by(step.max(1));
        bounds
            .map(|last| {
                below += self.0.iter().take(last + 1).skip(counted).sum::<u64>();
                counted = last + 1;
                (bound(last), below)
            })
            .collect()
    }

    /// Returns the buckets that are not empty, with their upper bounds as powers of 2^⅛ s.
    pub(super) fn native_buckets(&self) -> impl Iterator<Item = (i32, u64)> {
        let powers = SHORTEST_LOG * PARTS..;
        powers.zip(self.0.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Returns the quantile: the value at position ⌈quantile·n⌉, with the values of a bucket spread evenly.
    /// Zero if there are none.
    pub(super) fn quantile(&self, quantile: f64) -> Duration {
        let rank = ((quantile * self.total() as f64).ceil() as u64).max(1);
        let mut before = 0;
        for (bucket, &count) in self.0.iter().enumerate() {
            if before + count >= rank {
                let from = bucket.checked_sub(1).map_or(0.0, bound);
                let within = (rank - before) as f64 / count as f64;
                return Duration::from_secs_f64(from + (bound(bucket) - from) * within);
            }
            before += count;
        }
        Duration::ZERO
    }

    /// Returns the maximum, up to the bound of its bucket.
    pub(super) fn max(&self) -> Duration {
        let last = self.0.iter().rposition(|&count| count > 0);
        last.map_or(Duration::ZERO, |bucket| Duration::from_secs_f64(bound(bucket)))
    }
}

/// Buckets for values of any size, from 2⁻³⁰ to 2⁵⁴.
#[cfg(feature = "metrics")]
#[derive(Debug, Default)]
pub(super) struct WideHistogram {
    small: Histogram,
    /// Values above the bounds of the other histogram, scaled down.
    large: Histogram,
}

#[cfg(feature = "metrics")]
impl WideHistogram {
    pub(super) fn record(&self, value: f64) {
        let most = f64::exp2(f64::from(LONGEST_LOG));
        match value > most {
            false => self.small.record(value),
            true => self.large.record(value * f64::exp2(f64::from(SHORTEST_LOG - LONGEST_LOG))),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts::from_histograms(&self.small, &self.large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(nanos: impl IntoIterator<Item = u64>) -> Counts {
        let histogram = Histogram::default();
        nanos.into_iter().for_each(|nanos| histogram.record(nanos as f64 / 1e9));
        let mut counts = Counts::default();
        counts.add(&histogram);
        counts
    }

    #[test]
    fn every_latency_falls_into_a_bucket_narrower_than_a_tenth() {
        let spread = (1..41).flat_map(|log| [0, 1, 7].map(|more| (1_u64 << log) + more));
        for nanos in spread.chain(2..4096) {
            let seconds = nanos as f64 / 1e9;
            let (from, to) = (bound(bucket(seconds) - 1), bound(bucket(seconds)));
            assert!(from < seconds && seconds <= to, "{nanos}: {from}..{to}");
            assert!(to / from < 1.1, "{nanos}: {from}..{to}");
        }
        assert_eq!(bucket(f64::INFINITY), BUCKETS - 1);
        for odd in [0.0, -0.0, -1.0, f64::NAN, f64::MIN_POSITIVE, 1e-9 / 2.0] {
            assert_eq!(bucket(odd), 0, "{odd}");
        }
        assert_eq!(bound(bucket(1.0)), 1.0, "powers of two end their buckets");
    }

    #[test]
    fn quantiles_are_accurate_to_a_tenth() {
        let counts = counts((1..=1000).map(|micros| micros * 1000));
        assert_eq!(counts.total(), 1000);
        for share in [0.5, 0.8, 0.9, 0.99, 0.999] {
            let measured = counts.quantile(share).as_nanos() as f64 / 1e6;
            assert!((measured - share).abs() < share / 16.0, "{share}: {measured}");
        }
        assert!(counts.max() >= Duration::from_millis(1));
        assert!(counts.max() <= Duration::from_micros(1100));
    }

    #[test]
    fn empty_histogram_has_quantiles_of_zero() {
        let none = Counts::default();
        assert_eq!((none.quantile(0.99), none.max(), none.total()), (Duration::ZERO, Duration::ZERO, 0));
        assert_eq!(none.quantile(f64::NAN), Duration::ZERO);
    }

    #[test]
    fn difference_of_two_snapshots_is_computed() {
        let (then, now) = (counts([1000, 2000]), counts([1000, 2000, 1 << 20]));
        let since = now.since(&then);
        assert_eq!(since.total(), 1);
        assert!(since.quantile(0.5) > Duration::from_millis(1));
        assert_eq!(now.cumulative_counts((-14, 1), 8).first().map(|(_, count)| *count), Some(2));
        assert_eq!(now.cumulative_counts((-14, 1), 8).last().map(|(_, count)| *count), Some(3));
        assert_eq!(now.cumulative_counts((-14, 1), 1).len(), 15 * 8 + 1);
    }
}

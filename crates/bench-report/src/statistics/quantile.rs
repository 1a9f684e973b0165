//! Quantiles of many latencies, with exact intervals.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::probability::binomial_cdf;

/// A quantile of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QuantileEstimate {
    /// Share of the samples at or below the value: 0.99 for p99.
    pub quantile: f64,
    /// Value in nanoseconds, the upper end of its bucket.
    pub value: u64,
    /// Interval of the true quantile in nanoseconds; `None` if there are too few samples beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// Whether a quantile of `samples` samples may be reported: at least 10 lie above it, and at least 10 below.
pub fn is_reportable(samples: u64, quantile: f64) -> bool {
    // Rounded: 1 − 0.99 is not exactly 0.01, and 1000 calls suffice for p99.
    let beyond = samples as f64 * quantile.min(1.0 - quantile);
    (beyond * 1e6).round() >= MIN_BEYOND * 1e6
}

/// Value and interval of a quantile; `None` if [`is_reportable`] forbids it.
pub fn quantile_estimate(
    latencies: &Histogram<u64>,
    quantile: f64,
    confidence: f64,
) -> Option<QuantileEstimate> {
    is_reportable(latencies.len(), quantile).then(|| QuantileEstimate {
        quantile,
        value: latencies.value_at_quantile(quantile),
        interval: quantile_interval(latencies, quantile, confidence),
    })
}

/// Interval of a quantile by the order statistics of the samples: no distribution is assumed, but that samples are
/// independent. Those of one run are not quite (a stall delays many calls), so intervals of rounds are to be preferred
/// when runs are compared. The ends are widened to their buckets.
pub fn quantile_interval(latencies: &Histogram<u64>, quantile: f64, confidence: f64) -> Option<Interval> {
    let (lower, upper, confidence) = ranks(latencies.len(), quantile, confidence)?;
    let (low, high) = (value_at_rank(latencies, lower), value_at_rank(latencies, upper));
    Some(Interval {
        low: latencies.lowest_equivalent(low) as f64,
        high: latencies.highest_equivalent(high) as f64,
        confidence,
    })
}

/// Ranks, counted from 1, of the samples that bound the quantile, and the exact confidence. The number of samples below the
/// quantile is binomial, so it lies between the samples of rank `l` and `u` with probability F(u − 1) − F(l − 1).
pub(super) fn ranks(samples: u64, quantile: f64, confidence: f64) -> Option<(u64, u64, f64)> {
    let tail = (1.0 - confidence) / 2.0;
    let cdf = |k: u64| binomial_cdf(k, samples, quantile);
    // The largest rank `l` with F(l − 1) ≤ tail, and the smallest rank `u` with F(u − 1) ≥ 1 − tail.
    let lower = partition(samples, |rank| cdf(rank - 1) <= tail);
    let upper = partition(samples, |rank| cdf(rank - 1) < 1.0 - tail) + 1;
    if lower == 0 || upper > samples {
        return None;
    }
    Some((lower, upper, cdf(upper - 1) - cdf(lower - 1)))
}

/// Number of ranks in `1..=samples` for which `holds`, which is true up to some rank and false from there on.
fn partition(samples: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, samples);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn value_at_rank(latencies: &Histogram<u64>, rank: u64) -> u64 {
    let mut seen = 0;
    for step in latencies.iter_recorded() {
        seen += step.count_at_value();
        if seen >= rank {
            return step.value_iterated_to();
        }
    }
    latencies.max()
}

const MIN_BEYOND: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Conover, "Practical nonparametric statistics", table of ranks for the median: 10 samples, ranks 2 and 9, 97.9 %.
        let (lower, upper, confidence) = ranks(10, 0.5, 0.95).unwrap();
        assert_eq!((lower, upper), (2, 9));
        assert!((confidence - (1.0 - 22.0 / 1024.0)).abs() < 1e-12, "{confidence}");
        // Six samples: all of them, 96.9 %. Five do not reach 95 %.
        let (lower, upper, confidence) = ranks(6, 0.5, 0.95).unwrap();
        assert_eq!((lower, upper), (1, 6));
        assert!((confidence - 0.96875).abs() < 1e-12, "{confidence}");
        assert_eq!(ranks(5, 0.5, 0.95), None);
    }

    #[test]
    fn far_quantile_needs_samples_above_it() {
        assert!(is_reportable(1000, 0.99));
        assert!(!is_reportable(999, 0.99));
        assert!(is_reportable(20, 0.5));
        assert!(!is_reportable(19, 0.5));
        assert!(is_reportable(100_000, 0.9999));
        let mut latencies = Histogram::new(3).unwrap();
        latencies.record_n(1_000, 999).unwrap();
        assert_eq!(quantile_estimate(&latencies, 0.99, 0.95), None);
        assert_eq!(quantile_interval(&Histogram::<u64>::new(3).unwrap(), 0.5, 0.95), None);
    }

    #[test]
    fn interval_of_a_uniform_sample_has_the_known_ends() {
        let mut latencies = Histogram::new(5).unwrap();
        (1..=1000).for_each(|value| latencies.record(value).unwrap());
        let interval = quantile_interval(&latencies, 0.5, 0.95).unwrap();
        // ±1.96 · √250 = ±31 ranks.
        assert_eq!((interval.low, interval.high), (469.0, 532.0));
        assert!(interval.confidence >= 0.95 && interval.confidence < 0.96);
        let estimate = quantile_estimate(&latencies, 0.9, 0.95).unwrap();
        assert_eq!(estimate.value, 900);
    }

    #[test]
    fn interval_covers_the_true_quantile_as_often_as_it_promises() {
        let mut random = Random::new(7);
        for quantile in [0.5, 0.99] {
            let mut covered = 0;
            for _ in 0..1000 {
                let mut latencies = Histogram::new(3).unwrap();
                for _ in 0..2000 {
                    // Exponential with mean 1 ms.
                    let value = -(1.0 - random.uniform()).ln() * 1e6;
                    latencies.record(value as u64).unwrap();
                }
                let truth = -(1.0_f64 - quantile).ln() * 1e6;
                covered += u32::from(quantile_interval(&latencies, quantile, 0.95).unwrap().contains(truth));
            }
            // 95 % to 97 % with buckets, ± three standard deviations of 0.7 %.
            assert!((929..=995).contains(&covered), "p{quantile}: {covered} of 1000");
        }
    }
}

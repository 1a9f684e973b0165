//! Latencies in a fixed amount of memory: a program that looks for leaks must not grow itself.

use std::time::Duration;

/// Counts by powers of two of a microsecond, each divided in eight.
#[derive(Clone, Debug)]
pub(super) struct Latencies([u32; BUCKETS]);

const BUCKETS: usize = 256;

impl Default for Latencies {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Latencies {
    pub(super) fn add(&mut self, took: Duration) {
        let bucket = ((took.as_micros() as f64).max(1.0).log2() * 8.0) as usize;
        self.0[bucket.min(BUCKETS - 1)] += 1;
    }

    /// Upper bound of the bucket that contains the p99.
    pub(super) fn p99_ms(&self) -> f64 {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let mut left = all.div_ceil(100);
        for (bucket, count) in self.0.iter().enumerate().rev() {
            if u64::from(*count) >= left && *count > 0 {
                return 2_f64.powf((bucket + 1) as f64 / 8.0) / 1e3;
            }
            left = left.saturating_sub(u64::from(*count));
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_within_a_tenth_of_the_exact_one() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.p99_ms(), 0.0);
        (1..=1000).for_each(|ms| latencies.add(Duration::from_millis(ms)));
        let p99 = latencies.p99_ms();
        assert!((p99 / 990.0 - 1.0).abs() < 0.1, "{p99}");
    }
}

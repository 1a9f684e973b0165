use std::collections::BTreeMap;
use std::time::Duration;

/// Histogram of durations, which merges with those of other servers: bucket *n* ends at 2^(n/8) s.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Buckets(BTreeMap<i32, u64>);

/// Numbers of buckets that durations have: from 2⁻³⁰ s to 2³⁰ s.
const POSSIBLE: std::ops::RangeInclusive<i32> = -240..=240;

impl Buckets {
    /// Takes the buckets that another server has sent; those that no duration has are ignored.
    pub(crate) fn new(buckets: impl IntoIterator<Item = (i32, u64)>) -> Self {
        let mut own = Self::default();
        for (bucket, count) in buckets.into_iter().filter(|(bucket, _)| POSSIBLE.contains(bucket)) {
            own.add(bucket, count);
        }
        own
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(bucket, count)| self.add(*bucket, *count));
    }

    fn add(&mut self, bucket: i32, count: u64) {
        let known = self.0.entry(bucket).or_default();
        *known = known.saturating_add(count);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the percentile, with the values of a bucket spread evenly. Zero if there are none.
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        let total = self.0.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let rank = (share * total as f64).ceil().max(1.0);
        let mut before = 0.0;
        for (bucket, count) in &self.0 {
            let count = *count as f64;
            if before + count >= rank && count > 0.0 {
                let (from, to) = (bound(bucket - 1), bound(*bucket));
                return Duration::from_secs_f64(from + (to - from) * (rank - before) / count);
            }
            before += count;
        }
        Duration::ZERO
    }
}

/// Returns where a bucket ends, in seconds.
fn bound(bucket: i32) -> f64 {
    (f64::from(bucket) / 8.0).exp2()
}

/// Returns a duration as pages show it.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_of_several_servers_is_that_of_all_their_calls() {
        // A thousand calls of 1 ms at a fast server, and ten of 1 s at a slow one.
        let (fast, slow) = (Buckets::new([(-79, 1_000)]), Buckets::new([(0, 10)]));
        let mut all = fast.clone();
        all.merge(&slow);
        let millis = |buckets: &Buckets, share| buckets.percentile(share).as_millis();
        assert_eq!((millis(&all, 0.5), millis(&all, 0.99), millis(&all, 0.999)), (1, 1, 991));
        // The average of both servers' percentiles would be another: 500.
        assert_eq!((millis(&fast, 0.999), millis(&slow, 0.5)), (1, 958));
        assert_eq!(Buckets::default().percentile(0.99), Duration::ZERO);
    }

    #[test]
    fn impossible_counts_do_no_harm() {
        let mut odd = Buckets::new([(i32::MAX, 1), (i32::MIN, 1), (0, u64::MAX), (0, u64::MAX), (1, 0)]);
        odd.merge(&odd.clone());
        assert!(odd.percentile(1.0) <= Duration::from_secs(2));
    }
}

//! Layout of the encoding, and of the counts of a histogram.

/// First word of an encoded histogram.
pub(super) const V2_COOKIE: u32 = 0x1c84_9313;
/// First word of a compressed one.
pub(super) const V2_COMPRESSED_COOKIE: u32 = 0x1c84_9314;
/// Bytes before the counts: cookie, length, normalizing offset, digits, lowest and highest value, conversion ratio.
pub(super) const HEADER_BYTES: usize = 40;

/// How values are mapped to counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    unit_magnitude: u32,
    half_count_magnitude: u32,
}

impl Layout {
    /// `lowest` is at least 1, and `digits` is at most 5.
    pub(super) fn new(lowest: u64, digits: u32) -> Self {
        let exact = 2 * 10_u64.pow(digits);
        Self { unit_magnitude: lowest.ilog2(), half_count_magnitude: exact.next_power_of_two().ilog2() - 1 }
    }

    /// Lowest value that is counted at `index`; `None` if it exceeds 64 bits.
    pub(super) fn value_at(self, index: u64) -> Option<u64> {
        let half = 1_u64 << self.half_count_magnitude;
        let (bucket, sub_bucket) = match index >> self.half_count_magnitude {
            // The first bucket has both halves.
            0 | 1 => (0, index),
            bucket => (bucket - 1, index % half + half),
        };
        let shift = u32::try_from(bucket).ok()?.checked_add(self.unit_magnitude)?;
        (shift <= sub_bucket.leading_zeros()).then(|| sub_bucket << shift)
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    #[test]
    fn values_are_those_of_the_histogram() {
        for (lowest, digits) in [(1, 3), (1, 1), (1000, 2)] {
            let histogram = Histogram::<u64>::new_with_bounds(lowest, 1 << 40, digits).unwrap();
            let layout = Layout::new(lowest, digits.into());
            for (index, step) in histogram.iter_all().enumerate() {
                let value = layout.value_at(index as u64).unwrap();
                assert_eq!(histogram.highest_equivalent(value), step.value_iterated_to(), "{digits} {index}");
            }
        }
        assert_eq!(Layout::new(1, 3).value_at(u64::MAX), None);
    }
}

//! Methods that a run calls, each with a weight.

use crate::schedule::random::{Stream, random_below};

/// Choice of a method for each call: a function of the seed and the index of the call.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    /// Sums of the weights up to each method.
    sums: Vec<u64>,
    seed: u64,
}

impl Mix {
    /// A mix of methods with these weights, of which one is above 0.
    pub(crate) fn new(weights: impl IntoIterator<Item = u32>, seed: u64) -> Self {
        let mut sum = 0;
        let sums = weights.into_iter().map(|weight| {
            sum += u64::from(weight);
            sum
        });
        Self { sums: sums.collect(), seed }
    }

    /// The method of call number `index`.
    pub(crate) fn method(&self, index: u64) -> usize {
        match self.sums.as_slice() {
            [] | [_] => 0,
            [.., total] => {
                let drawn = random_below(self.seed, Stream::Methods, index, *total);
                self.sums.partition_point(|sum| *sum <= drawn)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_called_in_proportion_to_their_weights() {
        let mix = Mix::new([70, 0, 30], 1);
        let mut counts = [0_u32; 3];
        (0..100_000).for_each(|index| counts[mix.method(index)] += 1);
        assert!(counts[0].abs_diff(70_000) < 500 && counts[1] == 0, "{counts:?}");
        assert_eq!(Mix::new([5], 1).method(17), 0);
    }
}

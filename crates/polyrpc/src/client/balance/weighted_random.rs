use super::weights::Weights;
use super::{Candidate, LoadBalancer, PickContext, Picker, available, chance};

/// Any server, with a probability proportional to its weight: brpc's `wr`.
///
/// For many clients that call seldom, where weighted round robin, whose schedule each client starts from the beginning,
/// would be uneven. A weight of zero gets nothing. The pick is a binary search in the cumulative weights.
#[derive(Debug, Clone, Copy, Default)]
pub struct WeightedRandom;

impl LoadBalancer for WeightedRandom {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(WeightedRandomPicker(Weights::of(candidates)))
    }
}

struct WeightedRandomPicker(Weights);

impl Picker for WeightedRandomPicker {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        let Self(weights) = self;
        available::first_drawn(asked, || weights.at(chance::below(weights.total())))
            .or_else(|| available::by_weight(asked, weights.iter()))
    }
}

use super::weights::Weights;
use super::{Candidate, LoadBalancer, PickContext, Picker, available, rng};

/// See [`Policy::weighted_random`](super::Policy::weighted_random).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WeightedRandom;

impl LoadBalancer for WeightedRandom {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(WeightedRandomPicker(Weights::from_candidates(candidates)))
    }
}

struct WeightedRandomPicker(Weights);

impl Picker for WeightedRandomPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        let Self(weights) = self;
        available::first_drawn(context, || weights.at(rng::below(weights.total())))
            .or_else(|| available::by_weight(context, weights.iter()))
    }
}

use super::weights::Weights;
use super::{Candidate, LoadBalancer, PickContext, Picker, available, chance};

/// Any server, each as probable as it is heavy: brpc's `wr`.
///
/// For many clients that call seldom: turns, which each of them would begin anew, come out uneven then. A weight of zero
/// gets nothing. The weights are laid end to end and searched by halving.
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

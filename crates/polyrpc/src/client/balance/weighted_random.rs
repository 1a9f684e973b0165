use super::weights::Weights;
use super::{Asked, Balance, Candidate, Pick, available, chance};

/// Any server, each as probable as it is heavy: brpc's `wr`.
///
/// For many clients that call seldom: turns, which each of them would begin anew, come out uneven then. A weight of zero
/// gets nothing. The weights are laid end to end and searched by halving.
#[derive(Debug, Clone, Copy, Default)]
pub struct WeightedRandom;

impl Balance for WeightedRandom {
    fn over(&self, candidates: &[Candidate]) -> Box<dyn Pick> {
        Box::new(WeightedRandomPicker(Weights::of(candidates)))
    }
}

struct WeightedRandomPicker(Weights);

impl Pick for WeightedRandomPicker {
    fn pick(&self, asked: &Asked<'_>) -> Option<usize> {
        let Self(weights) = self;
        available::first_drawn(asked, || weights.at(chance::below(weights.total())))
            .or_else(|| available::by_weight(asked, weights.iter()))
    }
}

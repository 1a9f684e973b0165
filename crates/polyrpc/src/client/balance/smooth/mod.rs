mod schedule;

use std::sync::{Mutex, PoisonError};

use self::schedule::WeightedSchedule;
use super::picker_cache::PickerCache;
use super::weights::Weights;
use super::{Candidate, LoadBalancer, PickContext, Picker, available};

/// Turns by weight, as evenly mixed as can be: rpcx's `WeightedRoundRobin`.
///
/// At each turn every server gains its weight, the first of those that have gained most is chosen and pays the sum of
/// all weights. Weights of 5, 1 and 1 make `a a b a c a a`, over and over. A weight of zero gets nothing. A set of other
/// servers or weights begins anew.
///
/// rpcx makes a list of a whole round, which is as long as the weights are heavy; here the order is found turn by turn
/// (`WeightedSchedule`), in memory for each server and a short lock.
#[derive(Debug, Default)]
pub struct SmoothWeightedRoundRobin {
    last: PickerCache<SmoothPicker>,
}

impl SmoothWeightedRoundRobin {
    /// Begins with the heaviest server.
    pub fn new() -> Self {
        Self::default()
    }
}

impl LoadBalancer for SmoothWeightedRoundRobin {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let weights = Weights::of(candidates);
        let is_same = |last: &SmoothPicker| last.weights == weights;
        Box::new(self.last.get_or_build(candidates, is_same, || SmoothPicker::new(Weights::of(candidates))))
    }
}

pub(super) struct SmoothPicker {
    weights: Weights,
    race: Mutex<WeightedSchedule>,
}

impl SmoothPicker {
    pub(super) fn new(weights: Weights) -> Self {
        let race = Mutex::new(WeightedSchedule::new(weights.iter()));
        Self { weights, race }
    }
}

impl Picker for SmoothPicker {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        let mut race = self.race.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (0..available::DRAWS).map_while(|_| race.next()).find(|&place| asked.may_take(place));
        drop(race);
        next.or_else(|| available::by_weight(asked, self.weights.iter()))
    }
}

mod schedule;

use std::sync::PoisonError;

use self::schedule::WeightedSchedule;
use super::picker_cache::PickerCache;
use super::weights::Weights;
use super::{Candidate, LoadBalancer, PickContext, Picker, available};
use crate::contention::Mutex;

/// See [`Policy::smooth_weighted_round_robin`](super::Policy::smooth_weighted_round_robin).
#[derive(Debug, Default)]
pub(crate) struct SmoothWeightedRoundRobin {
    last: PickerCache<SmoothPicker>,
}

impl SmoothWeightedRoundRobin {
    /// Starts with the server of the highest weight.
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl LoadBalancer for SmoothWeightedRoundRobin {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let weights = Weights::from_candidates(candidates);
        let is_same = |last: &SmoothPicker| last.weights == weights;
        Box::new(
            self.last.get_or_build(candidates, is_same, || {
                SmoothPicker::new(Weights::from_candidates(candidates))
            }),
        )
    }
}

pub(super) struct SmoothPicker {
    weights: Weights,
    schedule: Mutex<WeightedSchedule>,
}

impl SmoothPicker {
    pub(super) fn new(weights: Weights) -> Self {
        let schedule = Mutex::new(WeightedSchedule::new(weights.iter()));
        Self { weights, schedule }
    }
}

impl Picker for SmoothPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let next =
            (0..available::DRAWS).map_while(|_| schedule.next()).find(|&index| context.is_eligible(index));
        drop(schedule);
        next.or_else(|| available::by_weight(context, self.weights.iter()))
    }
}

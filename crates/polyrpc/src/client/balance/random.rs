use super::{Candidate, LoadBalancer, PickContext, Picker, available};

/// See [`Policy::random`](super::Policy::random).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Random;

impl LoadBalancer for Random {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(RandomPicker(candidates.len()))
    }
}

struct RandomPicker(usize);

impl Picker for RandomPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        available::any_available(context, self.0, |index| index)
    }
}

use super::{Candidate, LoadBalancer, PickContext, Picker, available};

/// Any server, each with the same probability: brpc's `random`, rpcx's `RandomSelect`.
///
/// It is stateless, so changes of the set have no side effects; a server's share varies by the square root of its
/// calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random;

impl LoadBalancer for Random {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(RandomPicker(candidates.len()))
    }
}

struct RandomPicker(usize);

impl Picker for RandomPicker {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        available::any_available(asked, self.0, |place| place)
    }
}

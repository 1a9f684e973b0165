use super::{Candidate, LoadBalancer, PickContext, Picker, available};

/// Any server, each as probable as the others: brpc's `random`, rpcx's `RandomSelect`.
///
/// It needs no memory, so that nothing is wrong with it when servers come and go; a server's share varies by the square
/// root of its calls.
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

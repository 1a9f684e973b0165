use super::{Asked, Balance, Candidate, Pick, available};

/// Any server, each as probable as the others: brpc's `random`, rpcx's `RandomSelect`.
///
/// It needs no memory, so that nothing is wrong with it when servers come and go; a server's share varies by the square
/// root of its calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random;

impl Balance for Random {
    fn over(&self, candidates: &[Candidate]) -> Box<dyn Pick> {
        Box::new(RandomPicker(candidates.len()))
    }
}

struct RandomPicker(usize);

impl Pick for RandomPicker {
    fn pick(&self, asked: &Asked<'_>) -> Option<usize> {
        available::any_available(asked, self.0, |place| place)
    }
}

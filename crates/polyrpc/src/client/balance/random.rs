use super::{Asked, Balance, Candidate, Pick, spare};

/// Any server, each as probable as the others: brpc's `random`, rpcx's `RandomSelect`.
///
/// It needs no memory, so that nothing is wrong with it when servers come and go; a server's share varies by the square
/// root of its calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random;

impl Balance for Random {
    fn over(&self, candidates: &[Candidate]) -> Box<dyn Pick> {
        Box::new(Places(candidates.len()))
    }
}

struct Places(usize);

impl Pick for Places {
    fn pick(&self, asked: &Asked<'_>) -> Option<usize> {
        spare::any(asked, self.0, |place| place)
    }
}

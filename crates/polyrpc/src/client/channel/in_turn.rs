use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::client::balance::{Asked, Balance, Candidate, Pick};

/// Each server in its turn.
#[derive(Debug, Default)]
pub(super) struct InTurn(Arc<AtomicUsize>);

impl Balance for InTurn {
    fn over(&self, candidates: &[Candidate]) -> Box<dyn Pick> {
        Box::new(Turn { next: self.0.clone(), servers: candidates.len() })
    }
}

struct Turn {
    next: Arc<AtomicUsize>,
    servers: usize,
}

impl Pick for Turn {
    fn pick(&self, asked: &Asked<'_>) -> Option<usize> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        (0..self.servers)
            .map(|further| first.wrapping_add(further) % self.servers)
            .find(|&place| asked.may_take(place))
    }
}

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Candidate, LoadBalancer, PickContext, Picker, rng};

/// See [`Policy::round_robin`](super::Policy::round_robin).
#[derive(Debug, Clone)]
pub(crate) struct RoundRobin {
    turn: Arc<AtomicUsize>,
}

impl RoundRobin {
    /// Starts at a random position, so that clients that start together do not all begin with the same server.
    pub(crate) fn new() -> Self {
        Self::starting_at(rng::index(1 << 16))
    }

    /// Starts with the server with this index, modulo the number of servers.
    pub(crate) fn starting_at(index: usize) -> Self {
        Self { turn: Arc::new(AtomicUsize::new(index)) }
    }
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self::new()
    }
}

impl LoadBalancer for RoundRobin {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(RoundRobinPicker { n: candidates.len(), turn: self.turn.clone() })
    }
}

struct RoundRobinPicker {
    n: usize,
    turn: Arc<AtomicUsize>,
}

impl Picker for RoundRobinPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        if self.n == 0 {
            return None;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.n;
        let index_after = |passed| (turn + passed) % self.n;
        let passed = (0..self.n).find(|&passed| context.is_eligible(index_after(passed)))?;
        if passed > 0 {
            self.turn.fetch_add(passed, Ordering::Relaxed);
        }
        Some(index_after(passed))
    }
}

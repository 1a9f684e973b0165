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
        Self::from(rng::index(1 << 16))
    }

    /// Starts with the server at this place, modulo the number of servers.
    pub(crate) fn from(place: usize) -> Self {
        Self { turn: Arc::new(AtomicUsize::new(place)) }
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
        let place = |passed| (turn + passed) % self.n;
        let passed = (0..self.n).find(|&passed| context.is_eligible(place(passed)))?;
        if passed > 0 {
            self.turn.fetch_add(passed, Ordering::Relaxed);
        }
        Some(place(passed))
    }
}

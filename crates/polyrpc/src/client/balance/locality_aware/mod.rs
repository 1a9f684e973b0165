mod server;
mod tree;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::server::ServerWeight;
use self::tree::Tree;
use super::candidate_state::CandidateState;
use super::{AttemptOutcome, Candidate, LoadBalancer, PickContext, Picker, available, rng};

/// See [`Policy::locality_aware`](super::Policy::locality_aware).
#[derive(Debug)]
pub(crate) struct LocalityAware {
    state: CandidateState<ServerWeight>,
    since: Instant,
}

impl LocalityAware {
    /// Creates a balancer without any measurements.
    pub(crate) fn new() -> Self {
        Self { state: CandidateState::default(), since: Instant::now() }
    }
}

impl Default for LocalityAware {
    fn default() -> Self {
        Self::new()
    }
}

impl LoadBalancer for LocalityAware {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let servers = self.state.get_or_insert(candidates, |_| ServerWeight::default());
        set_initial_weights(&servers);
        let max_weight = MAX_TOTAL_WEIGHT / (servers.len() as i64).max(1);
        let tree = Tree::new(servers.iter().map(|server| server.base().min(max_weight)));
        Box::new(LocalityAwarePicker { servers, tree, max_weight, since: self.since })
    }
}

/// Gives new servers the average weight of the others.
fn set_initial_weights(servers: &[Arc<ServerWeight>]) {
    let known: Vec<_> =
        servers.iter().filter(|server| server.is_known()).map(|server| server.base()).collect();
    if !known.is_empty() {
        let average = known.iter().map(|&base| i128::from(base)).sum::<i128>() / known.len() as i128;
        servers.iter().for_each(|server| server.set_initial_weight(average as i64));
    }
}

/// Upper bound of the sum of all weights, which keeps it within 64 bits.
const MAX_TOTAL_WEIGHT: i64 = 1 << 62;

struct LocalityAwarePicker {
    servers: Box<[Arc<ServerWeight>]>,
    /// Weights as last seen by this set.
    tree: Tree,
    /// Maximum weight of a server.
    max_weight: i64,
    since: Instant,
}

impl LocalityAwarePicker {
    /// Returns a server's current weight and updates the tree with it.
    fn weigh(&self, index: usize, server: &ServerWeight, now: Duration) -> i64 {
        let weight = server.weight(now).min(self.max_weight);
        self.tree.set(index, weight);
        weight
    }

    /// Draws by weight; draws again if the server may not take the call or has lost weight since.
    fn pick_by_weight(&self, context: &PickContext<'_>) -> Option<usize> {
        let now = self.elapsed(context.now);
        (0..MAX_DRAWS).find_map(|_| {
            let total = self.tree.total();
            let (index, offset) = self.tree.find(rng::below(total.max(0) as u64) as i64)?;
            let server = self.servers.get(index)?;
            let is_available = context.is_available(index);
            if !is_available {
                // The server is to start slowly when it recovers.
                server.cut(total / self.servers.len() as i64);
            }
            let weight = self.weigh(index, server, now);
            (is_available && offset < weight && context.is_eligible(index)).then_some(index)
        })
    }

    /// Returns the time since the balancer was created.
    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

/// Number of draws before all servers are scanned.
const MAX_DRAWS: usize = 16;

impl Picker for LocalityAwarePicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        let weights = || (0..self.servers.len()).map(|index| (index, self.tree.weight(index).max(1) as u64));
        self.pick_by_weight(context).or_else(|| available::by_weight(context, weights()))
    }

    fn call_started(&self, index: usize, now: Instant) {
        if let Some(server) = self.servers.get(index) {
            server.record_start(self.elapsed(now));
        }
    }

    fn call_finished(&self, index: usize, outcome: &AttemptOutcome<'_>) {
        if let Some(server) = self.servers.get(index) {
            let now = self.elapsed(outcome.now);
            server.record_end(now, outcome);
            self.weigh(index, server, now);
        }
    }
}

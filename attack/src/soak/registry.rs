//! A registry that keeps changing its answers: other orders, dead servers, empty sets, errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyrpc::Status;
use polyrpc::discovery::{Attributes, Discover, Instance, InstanceStream, Network};

use super::misbehaviour::Rng;

/// A registry of these servers, of which the first is always listed if any is.
#[derive(Clone, Debug)]
pub(crate) struct FlappingRegistry {
    servers: Vec<Instance>,
    seed: u64,
}

/// Sets and errors reported so far, by all registries.
static SETS: AtomicU64 = AtomicU64::new(0);

impl FlappingRegistry {
    pub(crate) fn new(servers: Vec<Instance>, seed: u64) -> Self {
        Self { servers, seed }
    }

    /// Number of sets and errors that all of them have reported.
    pub(crate) fn sets() -> u64 {
        SETS.load(Ordering::Relaxed)
    }

    fn set(&self, index: u64, rng: &mut Rng) -> Result<Vec<Instance>, Status> {
        let all = self.servers.clone();
        // The first set must be complete: the client has nothing to fall back to.
        let kind = if index == 0 { 0 } else { rng.below(8) };
        match kind {
            0 | 1 => Ok(all),
            2 => Ok(all.into_iter().rev().collect()),
            3 => Ok(Vec::new()),
            4 => Err(Status::unavailable("the registry flaps")),
            5 => Ok(all.into_iter().chain(self.dead_server()).collect()),
            6 => Ok(all.into_iter().take(2).collect()),
            _ => Ok(all.into_iter().map(|one| one.with(weight(1 + rng.below(9)))).collect()),
        }
    }

    /// A server that does not exist: port 1 is never ours. Not over KCP, where connecting to it succeeds: it would take
    /// attempts from calls (docs/reliability.md).
    fn dead_server(&self) -> Option<Instance> {
        let network = self.servers.first()?.network;
        let address = match network {
            Network::Kcp => return None,
            Network::Unix => "/nonexistent/polyrpc.sock",
            _ => "127.0.0.1:1",
        };
        Some(Instance::new(network, address))
    }
}

fn weight(weight: u64) -> Attributes {
    Attributes::new().with("weight", weight.to_string())
}

impl Discover for FlappingRegistry {
    fn watch(&self) -> InstanceStream {
        let state = (self.clone(), Rng::new(self.seed), 0_u64);
        stream::unfold(state, |(registry, mut rng, index)| async move {
            if index > 0 {
                tokio::time::sleep(Duration::from_millis(100 + rng.below(1900))).await;
            }
            SETS.fetch_add(1, Ordering::Relaxed);
            let set = registry.set(index, &mut rng).map_err(Into::into);
            Some((set, (registry, rng, index + 1)))
        })
        .boxed()
    }
}

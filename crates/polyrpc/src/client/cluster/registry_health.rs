use std::collections::HashSet;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::snapshot::Snapshot;
use crate::discovery::{Instance, Network};
use crate::runtime::now;

/// Trust in the sets of a registry.
///
/// A registry may come back from an outage without its data. It then lists no server, and a moment later only those
/// that have registered again. A server that is missing in its sets has therefore not necessarily left. After an outage
/// the previous servers are kept for a while, unless they are unreachable.
///
/// ```text
///         failure            servers are missing
///  Full ──────────▶ Shaken ───────────────────────▶ Recovering
///   ▲                 │  ▲                               │  │
///   │                 │  └──────────── failure ──────────┘  │
///   └─────────────────┴─────────────────────────────────────┘
///     no server is missing, or the time is over
/// ```
#[derive(Default)]
pub(in crate::client) enum RegistryHealth<K> {
    /// A server that is missing in a set has left.
    #[default]
    Healthy,
    /// The registry fails.
    Degraded {
        /// Servers before the outage.
        before: Arc<K>,
    },
    /// The registry lists servers again.
    Recovering {
        /// Servers before the outage.
        before: Arc<K>,
        /// Last set from the registry.
        new_set: Vec<Instance>,
        /// Time from which the registry is trusted again.
        until: Instant,
    },
}

/// Time for which a running server may take to register again: the time for which an entry of ours is valid without
/// renewal (`Registration::ttl`).
const GRACE: Duration = Duration::from_secs(10);

/// Known servers, some of which may be missing in a set.
pub(in crate::client) trait KnownInstances {
    /// Keys of the servers, in any order.
    fn keys(&self) -> impl Iterator<Item = InstanceKey<'_>>;

    /// Returns the servers that may be kept although they are not listed.
    fn servers_to_keep(&self, is_missing: impl Fn(InstanceKey<'_>) -> bool) -> Vec<Instance>;
}

/// Identity of a server.
pub(in crate::client) type InstanceKey<'k> = (Network, &'k str);

impl<K: KnownInstances> RegistryHealth<K> {
    /// Marks the registry as failed, or as having lost its data.
    pub(in crate::client) fn degrade(&mut self, current: Option<Arc<K>>) {
        *self = match mem::take(self) {
            Self::Healthy => match current {
                Some(before) if before.keys().next().is_some() => Self::Degraded { before },
                _ => Self::Healthy,
            },
            Self::Degraded { before } | Self::Recovering { before, .. } => Self::Degraded { before },
        };
    }

    /// Applies a set. Returns the current servers to keep although they are missing in it.
    pub(in crate::client) fn reconcile(&mut self, set: &[Instance], current: &K) -> Vec<Instance> {
        let (before, until) = match mem::take(self) {
            Self::Healthy => return Vec::new(),
            Self::Degraded { before } => (before, Instant::now() + GRACE),
            Self::Recovering { until, .. } if until <= Instant::now() => return Vec::new(),
            Self::Recovering { before, until, .. } => (before, until),
        };
        let missing = find_missing(set, &*before, current);
        if set.is_empty() {
            // Servers have not had the time to register again yet.
            *self = Self::Degraded { before };
        } else if !missing.is_empty() {
            *self = Self::Recovering { before, new_set: set.to_vec(), until };
        }
        missing
    }

    /// Waits until the last set is trusted, if it is in doubt.
    pub(in crate::client) async fn wait_until_settled(&self) {
        match self {
            Self::Recovering { until, .. } => sleep_until(*until).await,
            Self::Healthy | Self::Degraded { .. } => pending().await,
        }
    }

    /// Returns the set that is in doubt, to be applied again.
    pub(in crate::client) fn pending_set(&self) -> Option<Vec<Instance>> {
        match self {
            Self::Recovering { new_set, .. } => Some(new_set.clone()),
            Self::Healthy | Self::Degraded { .. } => None,
        }
    }
}

/// Returns the servers from before the outage that are not listed. Servers that came later are excluded: a registry
/// that lists others each time would accumulate them.
fn find_missing<K: KnownInstances>(set: &[Instance], before: &K, current: &K) -> Vec<Instance> {
    let listed: HashSet<_> = set.iter().map(key).collect();
    let before: HashSet<_> = before.keys().collect();
    current.servers_to_keep(|key| !listed.contains(&key) && before.contains(&key))
}

fn key(instance: &Instance) -> InstanceKey<'_> {
    (instance.network, &instance.address)
}

impl KnownInstances for Snapshot {
    fn keys(&self) -> impl Iterator<Item = InstanceKey<'_>> {
        self.servers().map(|(endpoint, _)| endpoint.key())
    }

    /// Keeps the servers that are reachable, as far as is known.
    fn servers_to_keep(&self, is_missing: impl Fn(InstanceKey<'_>) -> bool) -> Vec<Instance> {
        let now = now();
        let missing = self
            .servers()
            .filter(|(endpoint, candidate)| is_missing(endpoint.key()) && candidate.load().is_available(now));
        missing.map(|(_, candidate)| candidate.instance().clone()).collect()
    }
}

/// Listed servers, where another component finds out whether they are reachable.
impl KnownInstances for Vec<Instance> {
    fn keys(&self) -> impl Iterator<Item = InstanceKey<'_>> {
        self.iter().map(key)
    }

    fn servers_to_keep(&self, is_missing: impl Fn(InstanceKey<'_>) -> bool) -> Vec<Instance> {
        self.iter().filter(|instance| is_missing(key(instance))).cloned().collect()
    }
}

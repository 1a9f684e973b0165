use std::collections::HashSet;
use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::now;
use super::snapshot::Snapshot;
use crate::discovery::{Instance, Network};

/// How far the sets of a registry are believed.
///
/// A registry that was gone may be back without its data. It then knows of nobody, and a moment later of those who have
/// entered themselves again; whoever is missing in its sets has not left. So after trouble who was there before stays for
/// a while, unless he cannot be reached.
///
/// ```text
///         trouble            somebody is missing
///  Full ──────────▶ Shaken ───────────────────────▶ Recovering
///   ▲                 │  ▲                               │  │
///   │                 │  └──────────── trouble ──────────┘  │
///   └─────────────────┴─────────────────────────────────────┘
///     nobody is missing, or the while is over
/// ```
#[derive(Default)]
pub(in crate::client) enum RegistryHealth<K> {
    /// Who is missing in a set has left.
    #[default]
    Healthy,
    /// The registry is in trouble.
    Degraded {
        /// Who was there when that began.
        before: Arc<K>,
    },
    /// It tells of servers again.
    Recovering {
        /// Who was there before the trouble.
        before: Arc<K>,
        /// What it told last.
        told: Vec<Instance>,
        /// When it is to be believed.
        until: Instant,
    },
}

/// How long whoever lives may take to enter himself again: as long as entries of ours are believed that are not entered
/// anew (`Registration::ttl`).
const GRACE: Duration = Duration::from_secs(10);

/// Who is known, of whom some may be missing in a set.
pub(in crate::client) trait KnownInstances {
    /// Who they are, in any order.
    fn keys(&self) -> impl Iterator<Item = InstanceKey<'_>>;

    /// Those that may be kept although they are not listed.
    fn retained(&self, is_missing: impl Fn(InstanceKey<'_>) -> bool) -> Vec<Instance>;
}

/// What makes a server this one and no other.
pub(in crate::client) type InstanceKey<'k> = (Network, &'k str);

impl<K: KnownInstances> RegistryHealth<K> {
    /// The registry fails, or has lost what it knew.
    pub(in crate::client) fn degrade(&mut self, current: Option<Arc<K>>) {
        *self = match mem::take(self) {
            Self::Healthy => match current {
                Some(before) if before.keys().next().is_some() => Self::Degraded { before },
                _ => Self::Healthy,
            },
            Self::Degraded { before } | Self::Recovering { before, .. } => Self::Degraded { before },
        };
    }

    /// Hears a set, and tells who stays of the current servers although he is missing in it.
    pub(in crate::client) fn reconcile(&mut self, set: &[Instance], current: &K) -> Vec<Instance> {
        let (before, until) = match mem::take(self) {
            Self::Healthy => return Vec::new(),
            Self::Degraded { before } => (before, Instant::now() + GRACE),
            Self::Recovering { until, .. } if until <= Instant::now() => return Vec::new(),
            Self::Recovering { before, until, .. } => (before, until),
        };
        let missing = missing(set, &*before, current);
        if set.is_empty() {
            // Servers have not had the time to register again yet.
            *self = Self::Degraded { before };
        } else if !missing.is_empty() {
            *self = Self::Recovering { before, told: set.to_vec(), until };
        }
        missing
    }

    /// Waits until the last set is to be believed, if that is in doubt.
    pub(in crate::client) async fn wait_until_settled(&self) {
        match self {
            Self::Recovering { until, .. } => sleep_until(*until).await,
            Self::Healthy | Self::Degraded { .. } => pending().await,
        }
    }

    /// The set that is in doubt, to be heard again.
    pub(in crate::client) fn pending_set(&self) -> Option<Vec<Instance>> {
        match self {
            Self::Recovering { told, .. } => Some(told.clone()),
            Self::Healthy | Self::Degraded { .. } => None,
        }
    }
}

/// Who was there before and is not listed. Not who came in the meantime: a registry that tells of others each time would
/// pile them up.
fn missing<K: KnownInstances>(set: &[Instance], before: &K, current: &K) -> Vec<Instance> {
    let listed: HashSet<_> = set.iter().map(key).collect();
    let before: HashSet<_> = before.keys().collect();
    current.retained(|key| !listed.contains(&key) && before.contains(&key))
}

fn key(instance: &Instance) -> InstanceKey<'_> {
    (instance.network, &instance.address)
}

impl KnownInstances for Snapshot {
    fn keys(&self) -> impl Iterator<Item = InstanceKey<'_>> {
        self.servers().map(|(endpoint, _)| endpoint.key())
    }

    /// Those that can be reached, as far as is known.
    fn retained(&self, is_missing: impl Fn(InstanceKey<'_>) -> bool) -> Vec<Instance> {
        let now = now();
        let missing = self
            .servers()
            .filter(|(endpoint, candidate)| is_missing(endpoint.key()) && candidate.load().is_available(now));
        missing.map(|(_, candidate)| candidate.instance().clone()).collect()
    }
}

/// Who was told of, where others find out whether they can be reached.
impl KnownInstances for Vec<Instance> {
    fn keys(&self) -> impl Iterator<Item = InstanceKey<'_>> {
        self.iter().map(key)
    }

    fn retained(&self, is_missing: impl Fn(InstanceKey<'_>) -> bool) -> Vec<Instance> {
        self.iter().filter(|instance| is_missing(key(instance))).cloned().collect()
    }
}

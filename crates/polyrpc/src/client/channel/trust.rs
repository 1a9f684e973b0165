use std::collections::HashSet;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::now;
use super::snapshot::Snapshot;
use crate::discovery::Instance;

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
pub(super) enum Trust {
    /// Who is missing in a set has left.
    #[default]
    Full,
    /// The registry is in trouble.
    Shaken {
        /// Who was there when that began.
        before: Arc<Snapshot>,
    },
    /// It tells of servers again.
    Recovering {
        /// Who was there before the trouble.
        before: Arc<Snapshot>,
        /// What it told last.
        told: Vec<Instance>,
        /// When it is to be believed.
        until: Instant,
    },
}

/// How long whoever lives may take to enter himself again: as long as entries of ours are believed that are not entered
/// anew (`Registration::ttl`).
const GRACE: Duration = Duration::from_secs(10);

impl Trust {
    /// The registry fails, or has lost what it knew.
    pub(super) fn shake(&mut self, current: Option<Arc<Snapshot>>) {
        *self = match mem::take(self) {
            Self::Full => match current {
                Some(before) if !before.is_empty() => Self::Shaken { before },
                _ => Self::Full,
            },
            Self::Shaken { before } | Self::Recovering { before, .. } => Self::Shaken { before },
        };
    }

    /// Hears a set, and tells who stays of the current servers although he is missing in it.
    pub(super) fn hear(&mut self, set: &[Instance], current: &Snapshot) -> Vec<Instance> {
        let (before, until) = match mem::take(self) {
            Self::Full => return Vec::new(),
            Self::Shaken { before } => (before, Instant::now() + GRACE),
            Self::Recovering { until, .. } if until <= Instant::now() => return Vec::new(),
            Self::Recovering { before, until, .. } => (before, until),
        };
        let missing = missing(set, &before, current);
        if set.is_empty() {
            // Nobody has had the time to enter himself yet.
            *self = Self::Shaken { before };
        } else if !missing.is_empty() {
            *self = Self::Recovering { before, told: set.to_vec(), until };
        }
        missing
    }

    /// When the last set is to be believed, if that is in doubt.
    pub(super) fn until(&self) -> Option<Instant> {
        match self {
            Self::Recovering { until, .. } => Some(*until),
            Self::Full | Self::Shaken { .. } => None,
        }
    }

    /// The set that is in doubt, to be heard again.
    pub(super) fn told(&self) -> Option<Vec<Instance>> {
        match self {
            Self::Recovering { told, .. } => Some(told.clone()),
            Self::Full | Self::Shaken { .. } => None,
        }
    }
}

/// Who was there before, is not listed and can be reached as far as is known. Not who came in the meantime: a registry
/// that tells of others each time would pile them up.
fn missing(set: &[Instance], before: &Snapshot, current: &Snapshot) -> Vec<Instance> {
    let listed: HashSet<_> = set.iter().map(|listed| (listed.network, &*listed.address)).collect();
    let now = now();
    current
        .servers()
        .filter(|(endpoint, candidate)| {
            !listed.contains(&endpoint.key())
                && before.place(endpoint).is_some()
                && candidate.load().is_available(now)
        })
        .map(|(_, candidate)| candidate.instance().clone())
        .collect()
}

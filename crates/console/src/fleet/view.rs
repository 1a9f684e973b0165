use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::snapshot::ServerSnapshot;

/// State of the servers. Pages use a clone, which shares the answers of the servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// The registry, as pages name it.
    pub(crate) registry: String,
    /// Why the registry could not be read the last time.
    pub(crate) failure: Option<String>,
    /// By their addresses in the registry.
    pub(crate) servers: BTreeMap<String, ServerView>,
    /// Number of servers that the registry lists in addition.
    pub(crate) left_out: usize,
}

/// A server that a registry lists.
#[derive(Debug, Clone)]
pub(crate) struct ServerView {
    pub(crate) address: String,
    /// Where its pages are: `host:port`; or why that is not known.
    pub(crate) admin: Result<String, &'static str>,
    /// Whether it accepts calls according to the registry.
    pub(crate) active: bool,
    pub(crate) weight: Option<String>,
    /// The last snapshot; `None` if the last query failed.
    pub(crate) snapshot: Option<Arc<ServerSnapshot>>,
    /// Time at which the snapshot was received.
    pub(super) snapshot_time: Option<Instant>,
    /// Reason why the last query failed.
    pub(crate) failure: Option<String>,
    /// Result of the last order.
    pub(crate) order: Option<String>,
}

impl ServerView {
    pub(super) fn new(address: String, admin: Result<String, &'static str>) -> Self {
        Self {
            address,
            admin,
            active: true,
            weight: None,
            snapshot: None,
            snapshot_time: None,
            failure: None,
            order: None,
        }
    }

    /// Stores a snapshot that was received at `now`.
    pub(super) fn set_snapshot(&mut self, mut snapshot: ServerSnapshot, now: Instant) {
        if let (Some(earlier), Some(then)) = (&self.snapshot, self.snapshot_time) {
            snapshot.compute_rates(earlier, now.saturating_duration_since(then));
        }
        (self.snapshot, self.snapshot_time, self.failure) = (Some(Arc::new(snapshot)), Some(now), None);
    }
}

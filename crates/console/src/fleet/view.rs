use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::look::Look;

/// State of the servers. Pages use a clone, which shares the answers of the servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// The registry, as pages name it.
    pub(crate) registry: String,
    /// Why the registry could not be read the last time.
    pub(crate) failure: Option<String>,
    /// By their addresses in the registry.
    pub(crate) servers: BTreeMap<String, ServerView>,
    /// How many more the registry lists.
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
    /// Its last answer; `None` if it could not be queried.
    pub(crate) look: Option<Arc<Look>>,
    /// Time of that answer.
    pub(super) looked: Option<Instant>,
    /// Why it could not be queried.
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
            look: None,
            looked: None,
            failure: None,
            order: None,
        }
    }

    /// Applies an answer.
    pub(super) fn set(&mut self, mut look: Look, now: Instant) {
        if let (Some(earlier), Some(then)) = (&self.look, self.looked) {
            look.compare(earlier, now.saturating_duration_since(then));
        }
        (self.look, self.looked, self.failure) = (Some(Arc::new(look)), Some(now), None);
    }
}

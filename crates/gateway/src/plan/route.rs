use std::sync::Arc;
use std::time::Duration;

use polyrpc::Metadata;
use polyrpc_transform::OnLoss;

use super::pairs::Pairs;
use super::pick::Shares;
use super::upstream::Upstream;
use crate::config::{Lined, Loss, Match, Rename, Route as Spec, Sticky};

/// Where calls go that match.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) line: usize,
    pub(crate) matches: Match,
    upstreams: Vec<Arc<Upstream>>,
    shares: Shares,
    pub(crate) sticky: Option<Sticky>,
    pub(crate) rename: Rename,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_loss: OnLoss,
    pub(crate) pairs: Pairs,
}

impl Route {
    pub(super) fn new(spec: &Lined<Spec>, known: &[Arc<Upstream>]) -> Self {
        let shares = spec.to.shares();
        let named = |name: &str| known.iter().find(|upstream| upstream.spec.name == name).cloned();
        let targets: Vec<_> =
            shares.iter().filter_map(|(name, share)| Some((named(name)?, *share))).collect();
        Self {
            line: spec.line,
            matches: spec.matches.clone(),
            shares: Shares::new(targets.iter().map(|(_, share)| *share)),
            upstreams: targets.into_iter().map(|(upstream, _)| upstream).collect(),
            sticky: spec.sticky.clone(),
            rename: spec.rename.clone(),
            timeout: spec.timeout.map(|timeout| timeout.0),
            on_loss: match spec.on_loss {
                Loss::Refuse => OnLoss::Refuse,
                Loss::Count => OnLoss::Count,
            },
            pairs: Pairs::default(),
        }
    }

    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// Whether the names match.
    pub(crate) fn matches_names(&self, service: &str, method: &str) -> bool {
        self.matches.service.as_ref().is_none_or(|glob| glob.matches(service))
            && self.matches.method.as_ref().is_none_or(|glob| glob.matches(method))
    }

    /// Whether a call matches.
    pub(super) fn matches(&self, service: &str, method: &str, metadata: &Metadata) -> bool {
        self.matches_names(service, method)
            && self
                .matches
                .metadata
                .iter()
                .all(|(key, glob)| metadata.get(key).is_some_and(|value| glob.matches(value)))
    }

    /// Returns the upstream of a call, by the key that it is bound to.
    pub(crate) fn pick(&self, key: Option<&[u8]>) -> Option<&Arc<Upstream>> {
        self.upstreams.get(self.shares.place(key)).or_else(|| self.upstreams.first())
    }

    /// Returns the name of a method for the upstream.
    pub(crate) fn target(&self, service: &str, method: &str) -> String {
        // A number is valid within its protocol only, and together with the number of its service.
        if method.starts_with('#') {
            return if service.is_empty() { method.to_owned() } else { format!("{service}/{method}") };
        }
        let service = self.rename.service.as_deref().unwrap_or(service);
        let method = self.rename.method.as_deref().unwrap_or(method);
        match service {
            "" => method.to_owned(),
            service => format!("{service}/{method}"),
        }
    }
}

use std::sync::Arc;
use std::time::Instant;

use super::endpoint::{Endpoint, EndpointInfo};
use crate::client::balance::{Candidate, Load, PickContext, Picker};
use crate::runtime::now;

/// Servers of a channel at one time, sorted by address, and their picker. A call keeps its snapshot until it ends.
pub(super) struct Snapshot {
    endpoints: Vec<Arc<Endpoint>>,
    candidates: Vec<Candidate>,
    pub(super) pick: Box<dyn Picker>,
}

impl Snapshot {
    /// Creates a snapshot of servers that are sorted by key, each with its attributes.
    pub(super) fn new(
        servers: Vec<(Arc<Endpoint>, Candidate)>,
        pick: impl FnOnce(&[Candidate]) -> Box<dyn Picker>,
    ) -> Self {
        let (endpoints, candidates): (Vec<_>, Vec<_>) = servers.into_iter().unzip();
        let pick = pick(&candidates);
        Self { endpoints, candidates, pick }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.endpoints.len()
    }

    pub(super) fn endpoint(&self, index: usize) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(index)
    }

    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = (&Arc<Endpoint>, &Candidate)> {
        self.endpoints.iter().zip(&self.candidates)
    }

    /// Returns the index of a server, if it is in the snapshot.
    pub(super) fn index_of(&self, endpoint: &Endpoint) -> Option<usize> {
        self.endpoints.binary_search_by(|known| known.key().cmp(&endpoint.key())).ok()
    }

    /// Returns the index of the server that is to answer. An index out of range counts as none.
    pub(super) fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        self.pick.pick(context).filter(|&index| index < self.endpoints.len())
    }

    /// Picks among these servers only, healthy or not. Servers that the balancer never offers get no calls here either.
    #[cold]
    pub(super) fn pick_among(
        &self,
        context: &PickContext<'_>,
        among: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let (healthy, unhealthy) = (Arc::<Load>::default(), Arc::<Load>::default());
        unhealthy.set_healthy(false);
        let servers = self.candidates.iter().enumerate();
        let supposed = servers
            .map(|(index, candidate)| candidate.with_load(if among(index) { &healthy } else { &unhealthy }));
        let candidates: Vec<_> = supposed.collect();
        self.pick(&PickContext { candidates: &candidates, ..*context })
    }

    /// Number of attempts in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.candidates.iter().map(|candidate| candidate.load().in_flight()).sum()
    }

    /// Number of servers that are considered healthy.
    pub(super) fn healthy_count(&self, now: Instant) -> usize {
        self.candidates.iter().filter(|candidate| candidate.load().is_available(now)).count()
    }

    /// Whether another server than the one with this index is considered healthy.
    pub(super) fn has_other_healthy(&self, index: usize, now: Instant) -> bool {
        let mut others = self.candidates.iter().enumerate().filter(|(other, _)| *other != index);
        others.any(|(_, candidate)| candidate.load().is_available(now))
    }

    pub(super) fn endpoint_infos(&self) -> Vec<EndpointInfo> {
        let now = now();
        self.servers().map(|(endpoint, candidate)| endpoint.info(candidate.instance(), now)).collect()
    }
}

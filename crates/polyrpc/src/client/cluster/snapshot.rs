use std::sync::Arc;
use std::time::Instant;

use super::endpoint::{Endpoint, EndpointInfo};
use super::now;
use crate::client::balance::{Candidate, Load, PickContext, Picker};

/// The servers of a channel at one time, in the order of their addresses, and who chooses among them. Calls keep the
/// one that they began with until they end.
pub(super) struct Snapshot {
    endpoints: Vec<Arc<Endpoint>>,
    candidates: Vec<Candidate>,
    pub(super) pick: Box<dyn Picker>,
}

impl Snapshot {
    /// Servers in the order of their keys, each with what is said of it.
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

    pub(super) fn endpoint(&self, place: usize) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(place)
    }

    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = (&Arc<Endpoint>, &Candidate)> {
        self.endpoints.iter().zip(&self.candidates)
    }

    /// The place of a server, if it is among them.
    pub(super) fn place(&self, endpoint: &Endpoint) -> Option<usize> {
        self.endpoints.binary_search_by(|known| known.key().cmp(&endpoint.key())).ok()
    }

    /// The place of the server that is to answer. A choice that is no place is none.
    pub(super) fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        self.pick.pick(asked).filter(|&place| place < self.endpoints.len())
    }

    /// The same among these servers only, be they thought to be well or not: those to which the balancer never gives a
    /// call get none now either.
    #[cold]
    pub(super) fn pick_among(&self, asked: &PickContext<'_>, among: impl Fn(usize) -> bool) -> Option<usize> {
        let (well, unwell) = (Arc::<Load>::default(), Arc::<Load>::default());
        unwell.set_well(false);
        let servers = self.candidates.iter().enumerate();
        let supposed =
            servers.map(|(place, candidate)| candidate.with_load(if among(place) { &well } else { &unwell }));
        let candidates: Vec<_> = supposed.collect();
        self.pick(&PickContext { candidates: &candidates, ..*asked })
    }

    /// How many attempts are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.candidates.iter().map(|candidate| candidate.load().in_flight()).sum()
    }

    /// How many of them are thought to be well.
    pub(super) fn well(&self, now: Instant) -> usize {
        self.candidates.iter().filter(|candidate| candidate.load().is_available(now)).count()
    }

    /// Whether any other than the one at this place is thought to be well.
    pub(super) fn has_other_healthy(&self, place: usize, now: Instant) -> bool {
        let mut others = self.candidates.iter().enumerate().filter(|(other, _)| *other != place);
        others.any(|(_, candidate)| candidate.load().is_available(now))
    }

    pub(super) fn facts(&self) -> Vec<EndpointInfo> {
        let now = now();
        self.servers().map(|(endpoint, candidate)| endpoint.facts(candidate.instance(), now)).collect()
    }
}

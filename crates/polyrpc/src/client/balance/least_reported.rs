use super::tiers::Tiers;
use super::{Candidate, LoadBalancer, Picker};

/// See [`Policy::least_reported`](super::Policy::least_reported).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeastReported;

impl LoadBalancer for LeastReported {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let ranks = candidates.iter().map(|candidate| reported_rate(candidate).unwrap_or(f64::INFINITY));
        Box::new(Tiers::from_ranks(ranks.enumerate()))
    }
}

fn reported_rate(candidate: &Candidate) -> Option<f64> {
    let attributes = &candidate.instance().attributes;
    let number = |name| attributes.value(name)?.parse().ok().filter(|rate: &f64| *rate >= 0.0);
    number("calls").or_else(|| number("tps"))
}

use super::tiers::Tiers;
use super::{Candidate, LoadBalancer, Picker};

/// Server that reports the fewest calls to the registry; any of those that report the same number: what rpcx of 2016
/// planned as `CallLeast`.
///
/// It reads `calls`, the mean rate of calls that rpcx's servers report, or else `tps`, which those of 2016 did. The
/// rate covers the calls of all clients but is as old as the last report: until the next one, all calls go to the same
/// server. Servers that report nothing come last.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastReported;

impl LoadBalancer for LeastReported {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let ranks = candidates.iter().map(|candidate| reported(candidate).unwrap_or(f64::INFINITY));
        Box::new(Tiers::by_rank(ranks.enumerate()))
    }
}

fn reported(candidate: &Candidate) -> Option<f64> {
    let attributes = &candidate.instance().attributes;
    let number = |name| attributes.value(name)?.parse().ok().filter(|rate: &f64| *rate >= 0.0);
    number("calls").or_else(|| number("tps"))
}

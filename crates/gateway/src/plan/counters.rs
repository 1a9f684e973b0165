use polyrpc_console::vars::{Counter, Family, Gauge, Latency};

use crate::mirror::Counts;

/// Counters of the calls of all routes.
#[derive(Debug)]
pub(crate) struct Counters {
    latency: Family<Latency, 2>,
    failures: Family<Counter, 2>,
    copies: Family<Counter, 2>,
    rolled_back: Family<Gauge, 1>,
    pushes: Family<Counter, 1>,
}

impl Counters {
    /// `gateway`: prefix of the names of the variables. Two gateways in one process need different ones.
    pub(crate) fn new(gateway: &str) -> Self {
        let named = |name: &str| format!("{gateway}_{name}");
        let labels = ["route", "upstream"];
        Self {
            latency: Family::new(&named("route"), labels),
            failures: Family::new(&named("route_failures"), labels),
            copies: Family::new(&named("mirror_copies"), ["route", "outcome"]),
            rolled_back: Family::new(&named("route_rolled_back"), ["route"]),
            pushes: Family::new(&named("dropped_pushes"), ["upstream"]),
        }
    }

    /// Returns the counters of the calls that a route sends to an upstream: successful and failed ones.
    pub(super) fn calls(&self, route: &str, upstream: &str) -> (Latency, Counter) {
        (self.latency.with([route, upstream]), self.failures.with([route, upstream]))
    }

    /// Returns the counter of the copies of a route's calls.
    pub(super) fn copies(&self, route: &str) -> Counts {
        Counts::new(&self.copies, route)
    }

    /// Returns the counter of the messages that an upstream's servers push.
    pub(super) fn pushes(&self, upstream: &str) -> Counter {
        self.pushes.with([upstream])
    }

    /// Returns the gauge that is 1 once a route fell back.
    pub(super) fn rollbacks(&self, route: &str) -> Gauge {
        self.rolled_back.with([route])
    }
}

use std::sync::Arc;
use std::time::Duration;

use super::by_latency::{ByLatency, CustomProbe};
use super::closest::Closest;
use super::hash::{DoubleJump, Jump};
use super::least_in_flight::LeastInFlight;
use super::least_reported::LeastReported;
use super::locality_aware::LocalityAware;
use super::random::Random;
use super::round_robin::RoundRobin;
use super::smooth::SmoothWeightedRoundRobin;
use super::sticky::Sticky;
use super::weighted_random::WeightedRandom;
use super::weighted_round_robin::WeightedRoundRobin;
use super::{Candidate, LoadBalancer, Picker};
use crate::discovery::Instance;

/// Built-in load balancer, created by one of these functions or parsed from its name in a flag or a configuration.
///
/// Clones share the state of the balancer, such as positions or latencies: create one for each client.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::balance::Policy;
///
/// # fn main() -> polyrpc::client::Result<()> {
/// let by_name: Policy = "c_murmurhash:replicas=200".parse()?;
/// # let _runtime = tokio::runtime::Runtime::new().unwrap();
/// # let _guard = _runtime.enter();
/// let client = Client::builder("rpcx+list://h1:8972,h2:8972").balance(Policy::round_robin()).build()?;
/// # Ok(())
/// # }
/// ```
///
/// # Names
///
/// The table of [this module](super) lists the names of brpc, rpcx and others. Parameters follow a colon, as in brpc,
/// separated by blanks: `p2c:choices=3 tau_ms=5000`, `closest:latitude=52.5 longitude=13.4`,
/// `sticky:c_murmurhash:replicas=200`. `WeightedRoundRobin` is rpcx's, the
/// [smooth](Self::smooth_weighted_round_robin) one; brpc's is `wrr`. rpcx's `SelectByUser` has no name here: implement
/// [`LoadBalancer`].
///
/// It is an error if the name is unknown (the error lists all names), or a parameter is unknown, missing or invalid.
#[derive(Debug, Clone)]
pub struct Policy(Arc<dyn LoadBalancer>);

impl Policy {
    /// Wraps any balancer in a policy.
    pub fn new(balancer: impl LoadBalancer) -> Self {
        Self(Arc::new(balancer))
    }

    /// Any server, each with the same probability: brpc's `random`, rpcx's `RandomSelect`.
    ///
    /// It is stateless, so changes of the set have no side effects; a server's share varies by the square root of its
    /// calls.
    pub fn random() -> Self {
        Self::new(Random)
    }

    /// One server after another: brpc's `rr`, rpcx's `RoundRobin`.
    ///
    /// A new set of servers continues at the position of the previous one. A server that may not take the call is
    /// skipped in a way that keeps the shares of the others equal. The first position is random, so that clients that
    /// start together do not all begin with the same server.
    pub fn round_robin() -> Self {
        Self::new(RoundRobin::new())
    }

    /// Smooth weighted round robin: rpcx's `WeightedRoundRobin`.
    ///
    /// At each turn every server gains its weight; the first server with the highest gain is chosen and pays the sum of
    /// all weights. Weights of 5, 1 and 1 yield `a a b a c a a`, repeatedly. A weight of zero gets nothing. A set with
    /// other servers or weights restarts the schedule.
    ///
    /// rpcx builds a list of a whole round, whose length is the sum of the weights; here the order is computed turn by
    /// turn (`WeightedSchedule`), with memory per server and a short lock.
    pub fn smooth_weighted_round_robin() -> Self {
        Self::new(SmoothWeightedRoundRobin::new())
    }

    /// Evenly spread weighted round robin, by the method of brpc's `wrr`.
    ///
    /// The weights are laid around a ring, and each pick advances by a stride that is coprime to their sum. Each server
    /// gets exactly its weight of the picks of a lap, seldom two in a row. The stride is not brpc's
    /// (`policy/weighted_round_robin_load_balancer.cpp`), so the order differs, and is more even. A weight of zero gets
    /// nothing. Callers share one position without a lock; [the smooth one](Self::smooth_weighted_round_robin) spreads
    /// still more evenly.
    pub fn weighted_round_robin() -> Self {
        Self::new(WeightedRoundRobin)
    }

    /// Any server, with a probability proportional to its weight: brpc's `wr`.
    ///
    /// For many clients that call seldom, where smooth weighted round robin, whose schedule each client starts from
    /// the beginning, would be uneven. A weight of zero gets nothing. The pick is a binary search in the cumulative
    /// weights.
    pub fn weighted_random() -> Self {
        Self::new(WeightedRandom)
    }

    /// Server with the fewest of this client's calls in flight; any of those with the same number.
    ///
    /// Each server gets new calls at the rate at which it answers, so calls of very different cost do not queue behind
    /// each other. Among up to 32 servers the pick is exact. Of more, 32 are drawn and the best of them is taken, since
    /// reading a thousand counts would take longer than they stay valid.
    pub fn least_in_flight() -> Self {
        Self::new(LeastInFlight)
    }

    /// Server that reports the fewest calls to the registry; any of those that report the same number: what rpcx of
    /// 2016 planned as `CallLeast`.
    ///
    /// It reads `calls`, the mean rate of calls that rpcx's servers report, or else `tps`, which those of 2016 did. The
    /// rate covers the calls of all clients but is as old as the last report: until the next one, all calls go to the
    /// same server. Servers without a report come last.
    pub fn least_reported() -> Self {
        Self::new(LeastReported)
    }

    /// Locality-aware balancing by throughput and latency: brpc's `la`.
    ///
    /// A server's weight is its answered calls per second divided by its latency. The nearest and fastest servers
    /// therefore take as many calls as they can, and the others the rest, where a fair balancer would send calls around
    /// the world. A server whose calls are in flight for longer than usual loses weight before any of them ends. Every
    /// server keeps a small weight, so that its recovery is noticed (brpc `docs/en/lalb.md`,
    /// `policy/locality_aware_load_balancer.cpp`).
    pub fn locality_aware() -> Self {
        Self::new(LocalityAware::new())
    }

    /// Stateless jump consistent hashing: the rpcx of 2016.
    ///
    /// The servers are sorted by name and the key jumps to one of them (J. Lamping, E. Veach, "A fast, minimal memory,
    /// consistent hash algorithm"). The number of moved keys is minimal if servers come and go at the end of the order;
    /// elsewhere all servers behind the change are affected too, which [`double_jump`](Self::double_jump) avoids. A key
    /// whose server may not take the call is rehashed and jumps again.
    pub fn jump() -> Self {
        Self::new(Jump)
    }

    /// Stateful consistent hashing: rpcx's `ConsistentHash`.
    ///
    /// Servers keep their slots; a key whose slot is empty jumps once more, among the present servers
    /// (`edwingeng/doublejump`). When a server leaves, only its own keys move, and a new server takes the slot that was
    /// vacated last. The mapping therefore depends on the order in which servers came and went, and clients that
    /// started at different times may disagree. Use [`Ring`](super::Ring) where they must agree.
    ///
    /// New servers of one set are added in the order of their names.
    pub fn double_jump() -> Self {
        Self::new(DoubleJump::default())
    }

    /// Geographically nearest server, or any of the nearest if several are at the same distance: rpcx's `Closest`.
    ///
    /// Servers publish their position as `latitude` and `longitude`, in degrees; those that do not get no calls. If the
    /// nearest server may not take a call, the next nearest gets it. `latitude` and `longitude` are the client's
    /// position, in degrees north and east.
    pub fn closest(latitude: f64, longitude: f64) -> Self {
        Self::new(Closest::new(latitude, longitude))
    }

    /// Weighted round robin by measured network latency: rpcx's `WeightedICMP`.
    ///
    /// Each server is probed three times. The mean latency gives its weight by rpcx's table: 191 up to 10 ms, one less
    /// for each further millisecond up to 200, one up to a second. Calls are spread as by [smooth weighted round
    /// robin](Self::smooth_weighted_round_robin). A server that takes longer or does not answer gets no calls. rpcx
    /// sends ICMP echo requests, which needs a privilege; here the time is measured in which TCP connects. A server
    /// that is reached by UDP need not accept TCP: a refused connection took one round trip as well. A server behind a
    /// Unix socket is local.
    ///
    /// A task of the balancer probes 64 servers at a time, repeats each probe after an interval, and ends with the
    /// balancer. It runs in the runtime in which the first set of servers arrived. A server that has not been measured
    /// yet counts as far away. If every probe fails, all servers get the same weight.
    pub fn by_latency() -> Self {
        Self::new(ByLatency::new())
    }

    /// The same, with latencies measured by `probe` at this interval, which is at least one second. The probe returns
    /// the round-trip time to a server, or `None` if it cannot be measured; its future may be dropped before it
    /// completes.
    pub fn by_latency_with_probe<P, F>(probe: P, interval: Duration) -> Self
    where
        P: Fn(Instance) -> F + Send + Sync + 'static,
        F: Future<Output = Option<Duration>> + Send + 'static,
    {
        Self::new(ByLatency::with_probe(CustomProbe(probe), interval))
    }

    /// Keeps the server that another balancer chose first while its connection holds: rpcx's option `Sticky`.
    ///
    /// For servers that keep state for their clients. A retry goes to another server without changing the choice. If
    /// the server's connection fails, or the server becomes unavailable or leaves, the other balancer chooses the next
    /// one to keep.
    pub fn sticky(inner: impl LoadBalancer) -> Self {
        Self::new(Sticky::new(inner))
    }
}

impl LoadBalancer for Policy {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        self.0.picker(candidates)
    }
}

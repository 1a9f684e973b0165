//! Load balancing: which server of a service a call goes to.
//!
//! A [`LoadBalancer`] builds a [`Picker`] for every set of servers that discovery yields; this may be slow, and the
//! balancer may keep state across sets. Each call uses the picker, which never waits and holds locks only briefly.
//!
//! | policy | names in brpc, rpcx and others | use when |
//! |---|---|---|
//! | [`Policy::random`] | `random`, `RandomSelect` | servers and calls are alike |
//! | [`Policy::round_robin`] | `rr`, `RoundRobin` | the same, and each server must get exactly its share |
//! | [`Policy::smooth_weighted_round_robin`] | `swrr`, `WeightedRoundRobin` | servers differ by known weights |
//! | [`Policy::weighted_round_robin`] | `wrr` | the same among many servers: no lock |
//! | [`Policy::weighted_random`] | `wr` | the same, and there are many clients that call seldom |
//! | [`Policy::least_in_flight`] | `least` | calls differ much in cost |
//! | [`Policy::least_reported`] | `least_reported`, `CallLeast` | a registry knows the servers' load from all clients |
//! | [`P2c`] | `p2c` | latencies differ and change: the one to start with |
//! | [`Policy::locality_aware`] | `la` | near and far servers are mixed, and the near ones are preferred |
//! | [`Policy::jump`], [`Policy::double_jump`] | `jump`, `doublejump`, `ConsistentHash` | equal calls go to one server, as with rpcx |
//! | [`Ring`] | `c_murmurhash`, `c_md5`, `c_ketama` | the same, as with brpc |
//! | [`Policy::closest`] | `closest`, `Closest` | servers publish their geographical position |
//! | [`Policy::by_latency`] | `latency`, `WeightedICMP` | the network's delay decides |
//! | [`Policy::sticky`] | `sticky` before any other | a server keeps state for its client |
//!
//! With the hashing policies, calls with the same [key](PickContext::key) go to the same server. If the caller sets
//! none, it is the hash of service, method and encoded request (of a long request, its beginning). [`rpcx_key`] is the
//! key that rpcx's Go clients derive from the same arguments.
//!
//! Implement both traits for any other policy:
//!
//! ```
//! use polyrpc::client::balance::{PickContext, LoadBalancer, Candidate, Picker};
//!
//! /// Prefers the servers of one zone, which the registry provides.
//! #[derive(Debug)]
//! struct Zone(&'static str);
//!
//! struct Near {
//!     first: Vec<usize>,
//! }
//!
//! impl LoadBalancer for Zone {
//!     fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
//!         let here = |&place: &usize| candidates[place].instance().attributes.value("zone") == Some(self.0);
//!         let (mut first, others): (Vec<_>, Vec<_>) = (0..candidates.len()).partition(here);
//!         first.extend(others);
//!         Box::new(Near { first })
//!     }
//! }
//!
//! impl Picker for Near {
//!     fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
//!         self.first.iter().copied().find(|&place| context.is_eligible(place))
//!     }
//! }
//! ```

mod candidate;

mod name;
mod policy;

mod random;
mod round_robin;

mod smooth;
mod weighted_random;
mod weighted_round_robin;

mod least_in_flight;
mod least_reported;

mod locality_aware;
mod p2c;

mod hash;

mod by_latency;
mod closest;

mod sticky;

mod available;
mod candidate_state;
mod picker_cache;
mod rng;
mod tiers;
mod weights;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Status};

use crate::client::retryable::is_by_server;

pub use self::candidate::Candidate;
pub use self::hash::{Ring, rpcx_key, rpcx_key_by_value};
pub use self::p2c::P2c;
pub use self::policy::Policy;

pub(crate) use self::candidate::Load;
pub(crate) use self::round_robin::RoundRobin;
pub(crate) use self::weighted_random::WeightedRandom;

/// Load balancing policy.
///
/// One balancer serves the calls of one channel: its state, such as positions or latencies, belongs to that channel's
/// servers.
pub trait LoadBalancer: fmt::Debug + Send + Sync + 'static {
    /// Builds the picker for a set of servers, which are identified by their places in it. The same [`Candidate`]
    /// denotes the same server as in the previous set.
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker>;
}

impl<B: LoadBalancer + ?Sized> LoadBalancer for Box<B> {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        (**self).picker(candidates)
    }
}

impl<B: LoadBalancer + ?Sized> LoadBalancer for Arc<B> {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        (**self).picker(candidates)
    }
}

/// Chooses among the servers of one set.
pub trait Picker: Send + Sync {
    /// Returns the place of the server that is to answer; `None` if no server may. If no server is considered healthy,
    /// the channel picks once more as if all were; a call that then gets no server fails.
    ///
    /// Only servers for which [`PickContext::is_eligible`] holds are offered.
    fn pick(&self, context: &PickContext<'_>) -> Option<usize>;

    /// Records the start of an attempt on the server at this place.
    fn call_started(&self, _place: usize, _now: Instant) {}

    /// Records the end of an attempt on the server at this place. It is called for every attempt that was reported to
    /// [`call_started`](Self::call_started), cancelled ones included.
    fn call_finished(&self, _place: usize, _outcome: &AttemptOutcome<'_>) {}
}

impl<P: Picker + ?Sized> Picker for Arc<P> {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        (**self).pick(context)
    }

    fn call_started(&self, place: usize, now: Instant) {
        (**self).call_started(place, now);
    }

    fn call_finished(&self, place: usize, outcome: &AttemptOutcome<'_>) {
        (**self).call_finished(place, outcome);
    }
}

/// Call that needs a server.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PickContext<'a> {
    /// Service name.
    pub service: &'a str,
    /// Method name.
    pub method: &'a str,
    /// Hash key; calls with the same key go to the same server. brpc's request code, or any other value that the caller
    /// sets; `None` if the caller sets none.
    pub key: Option<u64>,
    /// Encoded request.
    pub request: &'a [u8],
    /// Time of the pick.
    pub now: Instant,
    /// Candidates that the picker was built for.
    pub candidates: &'a [Candidate],
    /// Places that have been tried without success.
    pub tried: &'a [usize],
}

impl<'a> PickContext<'a> {
    /// Creates a call without names, key or request, for tests of a balancer.
    pub fn new(candidates: &'a [Candidate]) -> Self {
        let now = Instant::now();
        Self { service: "", method: "", key: None, request: &[], now, candidates, tried: &[] }
    }

    /// Whether the server at this place may take the call: it is considered healthy and has not been tried.
    pub fn is_eligible(&self, place: usize) -> bool {
        self.is_available(place) && !self.tried.contains(&place)
    }

    /// Whether the server at this place is considered healthy.
    pub fn is_available(&self, place: usize) -> bool {
        self.candidates.get(place).is_some_and(|candidate| candidate.is_available(self.now))
    }
}

/// Outcome of an attempt.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AttemptOutcome<'a> {
    /// Time from the start, which was the `now` of [`Picker::call_started`], to the end.
    pub latency: Duration,
    /// Time of the end.
    pub now: Instant,
    /// Reason of the failure, if it failed.
    pub failure: Option<&'a Status>,
    /// Timeout of the call.
    pub timeout: Option<Duration>,
    /// Number of attempts left and number of attempts made, this one included.
    pub attempts: (u32, u32),
}

impl AttemptOutcome<'_> {
    /// Creates the outcome of a call's only attempt, which succeeded, for tests of a balancer.
    pub fn new(latency: Duration, now: Instant) -> Self {
        Self { latency, now, failure: None, timeout: None, attempts: (0, 1) }
    }

    /// Whether the server is to blame: neither a rejection of the caller's own mistake nor a cancelled call counts.
    pub fn is_server_failure(&self) -> bool {
        self.failure.is_some_and(is_by_server)
    }

    /// Whether the call was cancelled before the answer: the latency is then only a lower bound.
    pub fn is_cancelled(&self) -> bool {
        !self.is_server_failure() && self.failure.is_some_and(|status| status.code() == Code::Cancelled)
    }
}

//! Which of the servers of a service answers a call.
//!
//! A [`LoadBalancer`] makes a [`Picker`] for every set of servers that discovery yields, slowly, and may remember what is to
//! outlive the set; a call asks the pick, which never waits and takes no lock that anybody holds for long.
//!
//! | how | by brpc's, rpcx's and other names ([`Policy`]) | to be used where |
//! |---|---|---|
//! | [`Random`] | `random`, `RandomSelect` | servers and calls are alike |
//! | [`RoundRobin`] | `rr`, `RoundRobin` | the same, and each server is to get exactly its share |
//! | [`SmoothWeightedRoundRobin`] | `swrr`, `WeightedRoundRobin` | servers differ by known weights |
//! | [`WeightedRoundRobin`] | `wrr` | the same among many servers: no lock |
//! | [`WeightedRandom`] | `wr` | the same, and clients are many and call seldom |
//! | [`LeastInFlight`] | `least` | calls differ much in what they cost |
//! | [`LeastReported`] | `least_reported`, `CallLeast` | a registry knows what the servers do for all clients |
//! | [`P2c`] | `p2c` | latencies differ and change: the one to begin with |
//! | [`LocalityAware`] | `la` | near and far servers are mixed, and the near ones are to work first |
//! | [`Jump`], [`DoubleJump`] | `jump`, `doublejump`, `ConsistentHash` | equal calls are to meet the same server, as with rpcx |
//! | [`Ring`] | `c_murmurhash`, `c_md5`, `c_ketama` | the same, as with brpc |
//! | [`Closest`] | `closest`, `Closest` | servers say where on earth they stand |
//! | [`ByLatency`] | `latency`, `WeightedICMP` | the network's delay decides |
//! | [`Sticky`] | `sticky` before any other | a server keeps something for its client |
//!
//! Any other is made by implementing both traits:
//!
//! ```
//! use polyrpc::client::balance::{Asked, Balance, Candidate, Pick};
//!
//! /// Prefers the servers of one zone, as the registry tells it.
//! #[derive(Debug)]
//! struct Zone(&'static str);
//!
//! struct Near {
//!     first: Vec<usize>,
//! }
//!
//! impl Balance for Zone {
//!     fn over(&self, candidates: &[Candidate]) -> Box<dyn Pick> {
//!         let here = |&place: &usize| candidates[place].instance().attributes.value("zone") == Some(self.0);
//!         let (mut first, others): (Vec<_>, Vec<_>) = (0..candidates.len()).partition(here);
//!         first.extend(others);
//!         Box::new(Near { first })
//!     }
//! }
//!
//! impl Pick for Near {
//!     fn pick(&self, asked: &Asked<'_>) -> Option<usize> {
//!         self.first.iter().copied().find(|&place| asked.may_take(place))
//!     }
//! }
//! ```

mod candidate;

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

pub mod hash;

mod by_latency;
mod closest;

mod sticky;

mod available;
mod candidate_state;
mod chance;
mod picker_cache;
mod tiers;
mod weights;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Fault, Scope, Status};

pub use self::by_latency::{ByLatency, Probe, TcpConnectProbe};
pub use self::candidate::{Candidate, Load};
pub use self::closest::Closest;
pub use self::hash::{DoubleJump, Jump, Ring};
pub use self::least_in_flight::LeastInFlight;
pub use self::least_reported::LeastReported;
pub use self::locality_aware::LocalityAware;
pub use self::p2c::P2c;
pub use self::policy::{Policy, named};
pub use self::random::Random;
pub use self::round_robin::RoundRobin;
pub use self::smooth::SmoothWeightedRoundRobin;
pub use self::sticky::Sticky;
pub use self::weighted_random::WeightedRandom;
pub use self::weighted_round_robin::WeightedRoundRobin;

/// A way to choose among servers.
///
/// One serves the calls of one channel: what it remembers, the turn or the latencies, belongs to that channel's servers.
pub trait LoadBalancer: fmt::Debug + Send + Sync + 'static {
    /// Makes the pick for a set of servers, which are known by their places in it from now on. The same
    /// [`Candidate`] means the same server as in the set before.
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
    /// The place of the server that is to answer; `None` if there is none that may. Where none is thought to be well it is
    /// asked once more as if all were; a call that gets none then fails.
    ///
    /// It offers only servers that [`PickContext::may_take`] the call.
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize>;

    /// An attempt on the server at this place begins.
    fn call_started(&self, _place: usize, _now: Instant) {}

    /// An attempt on the server at this place has ended. It is told of every attempt that [`call_started`](Self::call_started), of
    /// those too that were given up.
    fn call_finished(&self, _place: usize, _outcome: &AttemptOutcome<'_>) {}
}

impl<P: Picker + ?Sized> Picker for Arc<P> {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        (**self).pick(asked)
    }

    fn call_started(&self, place: usize, now: Instant) {
        (**self).call_started(place, now);
    }

    fn call_finished(&self, place: usize, outcome: &AttemptOutcome<'_>) {
        (**self).call_finished(place, outcome);
    }
}

/// The call that a server is sought for.
#[derive(Debug, Clone, Copy)]
pub struct PickContext<'a> {
    /// The service.
    pub service: &'a str,
    /// The method.
    pub method: &'a str,
    /// What calls have in common that are to go to the same server: brpc's request code, or whatever the caller says;
    /// `None` if he says nothing.
    pub key: Option<u64>,
    /// The encoded request.
    pub request: &'a [u8],
    /// When the call looks for a server.
    pub now: Instant,
    /// The candidates that the pick was made for.
    pub candidates: &'a [Candidate],
    /// The places that were tried in vain already.
    pub tried: &'a [usize],
}

impl PickContext<'_> {
    /// Whether the server at this place may have the call: it is thought to be well, and was not tried already.
    pub fn may_take(&self, place: usize) -> bool {
        self.is_available(place) && !self.tried.contains(&place)
    }

    /// Whether the server at this place is thought to be well.
    pub fn is_available(&self, place: usize) -> bool {
        self.candidates.get(place).is_some_and(|candidate| candidate.load().is_available(self.now))
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub struct AttemptOutcome<'a> {
    /// From its beginning, which was the `now` of [`Picker::call_started`], to its end.
    pub latency: Duration,
    /// When it ended.
    pub now: Instant,
    /// Why it failed, if it did.
    pub failure: Option<&'a Status>,
    /// How long the call was ready to wait.
    pub timeout: Option<Duration>,
    /// How many more attempts the call has, and how many it has had, this one among them.
    pub attempts: (u32, u32),
}

impl AttemptOutcome<'_> {
    /// Whether the server is to blame: a refusal of the caller's own mistake says nothing against it, nor does a call
    /// that was given up.
    pub fn is_server_failure(&self) -> bool {
        self.failure.is_some_and(|status| {
            status.scope() == Scope::Connection
                || (status.fault() != Fault::Caller && status.code() != Code::Cancelled)
        })
    }

    /// Whether the answer was not waited for: all that is known of the server is that it takes no less than this.
    pub fn is_cancelled(&self) -> bool {
        !self.is_server_failure() && self.failure.is_some_and(|status| status.code() == Code::Cancelled)
    }
}

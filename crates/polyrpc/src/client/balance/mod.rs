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
//!         let here = |&index: &usize| candidates[index].instance().attributes.value("zone") == Some(self.0);
//!         let (mut first, others): (Vec<_>, Vec<_>) = (0..candidates.len()).partition(here);
//!         first.extend(others);
//!         Box::new(Near { first })
//!     }
//! }
//!
//! impl Picker for Near {
//!     fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
//!         self.first.iter().copied().find(|&index| context.is_eligible(index))
//!     }
//! }
//! ```

// A new built-in policy also needs a constructor in `policy.rs`, a name in `policy_name.rs` (in `policy` and
// in `NAMES`), and a row in the table above.

mod candidate;
mod picker;

mod policy;
mod policy_name;

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

pub use self::candidate::Candidate;
pub use self::hash::{Ring, rpcx_key, rpcx_key_by_value};
pub use self::p2c::P2c;
pub use self::picker::{AttemptOutcome, LoadBalancer, PickContext, Picker};
pub use self::policy::Policy;

pub(crate) use self::candidate::Load;
pub(crate) use self::picker::AttemptCounts;
pub(crate) use self::round_robin::RoundRobin;
pub(crate) use self::weighted_random::WeightedRandom;

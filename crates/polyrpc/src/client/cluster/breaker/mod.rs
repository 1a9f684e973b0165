//! Circuit breaker: servers that fail too often get no calls for a while. A [`CircuitBreaker`] is the policy, a
//! [`circuit`] its state for one server. The call history is one of [`consecutive`], [`rate`] or [`cost`]. [`quota`]
//! limits how many servers are ejected at once. `Endpoint::try_eject` in `endpoint.rs` decides whether a
//! server that failed too often is ejected.

mod circuit;

mod consecutive;
mod cost;
mod rate;

mod quota;

use std::time::Duration;

pub(super) use self::circuit::CircuitState;
pub(super) use self::quota::{EjectionPermit, EjectionQuota};

/// Policy that decides when a failing server gets no more calls, and for how long.
///
/// Each server of a client has its own circuit. Failures are: connections that cannot be established or that break,
/// calls that time out, and the server's own errors. These do not count: the caller's mistakes, cancelled calls, and
/// the rejection of a full server ([`ResourceExhausted`](crate::Code::ResourceExhausted), brpc's `ELIMIT`), which would
/// turn a queue into a herd.
///
/// An *ejected* server gets no calls until its ejection is over and a [probe](super::HealthCheck) has succeeded. If
/// everything fails, no single server is the cause. Therefore only a [share](Self::max_ejection_ratio) of the
/// servers may be ejected at once, and never the last one that gets calls.
///
/// Without a circuit breaker, which is the default, unreachable servers get no calls either, but failing ones do.
/// Protocols without error codes (rpcx, net/rpc) cannot distinguish an application's rejection from a failure, so only
/// the user knows the right limit.
///
/// ```
/// use std::time::Duration;
///
/// use polyrpc::Client;
/// use polyrpc::client::CircuitBreaker;
/// use polyrpc::discovery::{Instance, List};
///
/// # fn main() -> polyrpc::Result<()> {
/// let servers = List::new([Instance::tcp("10.0.0.1:8972"), Instance::tcp("10.0.0.2:8972")]);
/// let client = Client::builder("rpcx://arith")
///     .discover(servers)
///     .circuit_breaker(CircuitBreaker::consecutive(5, Duration::from_secs(10)).max_ejection_ratio(0.3))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CircuitBreaker {
    trip: TripPolicy,
    shortest: Duration,
    longest: Duration,
    half_open: u32,
    max_ejection_ratio: f64,
}

/// Condition that opens the circuit.
#[derive(Debug, Clone, PartialEq)]
enum TripPolicy {
    Consecutive(consecutive::ConsecutiveLimit),
    Rate(rate::RateLimit),
    Cost([cost::CostLimit; 2]),
}

impl CircuitBreaker {
    /// Opens after this number of consecutive failures, each less than `within` after the previous one. At least one.
    pub fn consecutive(failures: u32, within: Duration) -> Self {
        Self::new(TripPolicy::Consecutive(consecutive::ConsecutiveLimit {
            failures: failures.max(1),
            within,
        }))
    }

    /// Opens if the ratio of failed calls to all of the last `window` is at least this and there were at least
    /// `min_calls` calls: `0.5` is every other call. A ratio that is not a number, or above one, means all calls.
    pub fn failure_ratio(ratio: f64, min_calls: u32, window: Duration) -> Self {
        let share = if ratio.is_nan() { 1.0 } else { ratio.clamp(0.0, 1.0) };
        Self::new(TripPolicy::Rate(rate::RateLimit { share, min_calls: min_calls.max(1), window }))
    }

    /// rpcx's `CircuitBreaker`: 95 % of at least 100 calls within 10 s.
    pub fn rpcx() -> Self {
        Self::failure_ratio(0.95, 100, Duration::from_secs(10))
    }

    /// brpc's `CircuitBreaker`: the cost of failures in time, relative to the usual latency, over two windows: of 3000
    /// calls, of which 5 % may fail, and of 1500, of which 10 % may.
    pub fn brpc() -> Self {
        Self::new(TripPolicy::Cost([
            cost::CostLimit { window: 3000, share: 0.05 },
            cost::CostLimit { window: 1500, share: 0.10 },
        ]))
    }

    fn new(trip: TripPolicy) -> Self {
        Self { trip, shortest: MIN_EJECTION, longest: MAX_EJECTION, half_open: 0, max_ejection_ratio: 0.5 }
    }

    /// Sets how long a server is ejected: `shortest` the first time, then twice as long each time unless the server
    /// was healthy for `longest` in between, up to `longest`. Default: 100 ms to 30 s, as in brpc.
    #[must_use]
    pub fn ejection_time(mut self, shortest: Duration, longest: Duration) -> Self {
        self.longest = longest.min(MAX_DURATION);
        self.shortest = shortest.min(self.longest);
        self
    }

    /// Sets how many calls must succeed once a server is back; the first failure among them ejects it again. Default:
    /// 0, which treats it like any other server.
    #[must_use]
    pub fn half_open(mut self, calls: u32) -> Self {
        self.half_open = calls;
        self
    }

    /// Sets the maximum ratio of ejected servers to all, rounded down to whole servers. At least one of several
    /// servers may be ejected, unless the ratio is zero. Default: 0.5.
    #[must_use]
    pub fn max_ejection_ratio(mut self, ratio: f64) -> Self {
        self.max_ejection_ratio = if ratio.is_nan() { 0.0 } else { ratio.clamp(0.0, 1.0) };
        self
    }

    /// Returns how many of this number of servers may be ejected.
    pub(super) fn ejection_limit(&self, servers: usize) -> usize {
        if self.max_ejection_ratio == 0.0 {
            return 0;
        }
        let share = (self.max_ejection_ratio * servers as f64) as usize;
        share.max(1).min(servers.saturating_sub(1))
    }
}

/// brpc `circuit_breaker.cpp`, `circuit_breaker_min_isolation_duration_ms`.
const MIN_EJECTION: Duration = Duration::from_millis(100);
/// brpc `circuit_breaker.cpp`, `circuit_breaker_max_isolation_duration_ms`.
const MAX_EJECTION: Duration = Duration::from_secs(30);
/// Longest duration that the clock arithmetic supports.
const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_server_stays() {
        let breaker = CircuitBreaker::rpcx();
        for (servers, out) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (9, 4), (100, 50)] {
            assert_eq!(breaker.ejection_limit(servers), out, "{servers}");
        }
        assert_eq!(breaker.clone().max_ejection_ratio(1.0).ejection_limit(10), 9);
        assert_eq!(breaker.clone().max_ejection_ratio(0.01).ejection_limit(10), 1);
        assert_eq!(breaker.clone().max_ejection_ratio(0.0).ejection_limit(10), 0);
        assert_eq!(breaker.clone().max_ejection_ratio(f64::NAN).ejection_limit(10), 0);
        assert_eq!(breaker.max_ejection_ratio(f64::INFINITY).ejection_limit(10), 9);
    }
}

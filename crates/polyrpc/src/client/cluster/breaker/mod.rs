//! Servers that fail too much get no calls for a while: what that is says a [`CircuitBreaker`]; a [`fuse`] judges one server
//! by it, from what a window remembers: [`consecutive`], [`rate`] or [`cost`]. How many may be out at once is kept by
//! [`quota`].

mod circuit;

mod consecutive;
mod cost;
mod rate;

mod quota;

use std::time::Duration;

pub(super) use self::circuit::CircuitState;
pub(super) use self::quota::{EjectionPermit, EjectionQuota};

/// When a server that fails gets no more calls, and for how long.
///
/// Each server of a client is judged by itself. What counts against it are connections that cannot be made or break,
/// calls that time out, and failures of the server's own. What does not: the caller's mistakes, calls that were given
/// up, and a full server's "not now" ([`ResourceExhausted`](crate::Code::ResourceExhausted), brpc's `ELIMIT`), which
/// would make a crowd out of a queue.
///
/// A server that is out, *isolated*, gets no calls until its time is over and a [probe](super::Health) has succeeded.
/// When everything fails that is not the fault of one server, so only a [share](Self::most_out) of them may be out at
/// once, and never the last that calls go to.
///
/// Without one, which is the default, servers that cannot be reached get no calls either, but those that fail do: by
/// protocols that have no codes (rpcx, net/rpc) an application's "no" cannot be told from a failure, so only who knows
/// the application can say what is too much.
///
/// ```
/// use std::time::Duration;
///
/// use polyrpc::Client;
/// use polyrpc::client::Breaker;
/// use polyrpc::discovery::{Instance, List};
///
/// # fn main() -> polyrpc::Result<()> {
/// let servers = List::new([Instance::tcp("10.0.0.1:8972"), Instance::tcp("10.0.0.2:8972")]);
/// let client = Client::builder("rpcx://arith")
///     .discover(servers)
///     .breaker(CircuitBreaker::consecutive(5, Duration::from_secs(10)).most_out(0.3))
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
    most_out: f64,
}

/// What is too much.
#[derive(Debug, Clone, PartialEq)]
enum TripPolicy {
    Consecutive(consecutive::ConsecutiveLimit),
    Rate(rate::RateLimit),
    Cost([cost::CostLimit; 2]),
}

impl CircuitBreaker {
    /// So many failures one after another, each less than `within` after the one before. At least one.
    pub fn consecutive(failures: u32, within: Duration) -> Self {
        Self::by(TripPolicy::Consecutive(consecutive::ConsecutiveLimit { failures: failures.max(1), within }))
    }

    /// This share of the calls of the last `window`, when there were at least so many: `0.5` is every other. A share
    /// that is no number, or beyond one, is all of them.
    pub fn rate(share: f64, least: u32, window: Duration) -> Self {
        let share = if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) };
        Self::by(TripPolicy::Rate(rate::RateLimit { share, least: least.max(1), window }))
    }

    /// rpcx's `CircuitBreaker`: 95 % of at least 100 calls within 10 s.
    pub fn rpcx() -> Self {
        Self::rate(0.95, 100, Duration::from_secs(10))
    }

    /// brpc's `CircuitBreaker`: what failures cost in time, compared with what calls usually take, over two windows, of
    /// 3000 calls of which 5 % may fail and of 1500 of which 10 % may.
    pub fn brpc() -> Self {
        Self::by(TripPolicy::Cost([
            cost::CostLimit { window: 3000, share: 0.05 },
            cost::CostLimit { window: 1500, share: 0.10 },
        ]))
    }

    fn by(trip: TripPolicy) -> Self {
        Self { trip, shortest: SHORTEST, longest: LONGEST, half_open: 0, most_out: 0.5 }
    }

    /// How long a server is out: `shortest` the first time, and twice as long each time that it was not well for
    /// `longest` in between, up to that. Default: 100 ms to 30 s, as by brpc.
    #[must_use]
    pub fn isolation(mut self, shortest: Duration, longest: Duration) -> Self {
        self.longest = longest.min(FOR_EVER);
        self.shortest = shortest.min(self.longest);
        self
    }

    /// How many calls must succeed once a server is back; the first failure among them takes it out again. Default: 0,
    /// which gives it the chance of any other.
    #[must_use]
    pub fn half_open(mut self, calls: u32) -> Self {
        self.half_open = calls;
        self
    }

    /// Which share of the servers may be out at once, rounded down, but one of several in any case unless the share is
    /// none. Default: 0.5.
    #[must_use]
    pub fn most_out(mut self, share: f64) -> Self {
        self.most_out = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self
    }

    /// How many of so many servers may be out.
    pub(super) fn places_out(&self, servers: usize) -> usize {
        if self.most_out == 0.0 {
            return 0;
        }
        let share = (self.most_out * servers as f64) as usize;
        share.max(1).min(servers.saturating_sub(1))
    }
}

/// brpc `circuit_breaker.cpp`, `circuit_breaker_min_isolation_duration_ms`.
const SHORTEST: Duration = Duration::from_millis(100);
/// brpc `circuit_breaker.cpp`, `circuit_breaker_max_isolation_duration_ms`.
const LONGEST: Duration = Duration::from_secs(30);
/// What clocks can say.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_server_stays() {
        let breaker = CircuitBreaker::rpcx();
        for (servers, out) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (9, 4), (100, 50)] {
            assert_eq!(breaker.places_out(servers), out, "{servers}");
        }
        assert_eq!(breaker.clone().most_out(1.0).places_out(10), 9);
        assert_eq!(breaker.clone().most_out(0.01).places_out(10), 1);
        assert_eq!(breaker.clone().most_out(0.0).places_out(10), 0);
        assert_eq!(breaker.clone().most_out(f64::NAN).places_out(10), 0);
        assert_eq!(breaker.most_out(f64::INFINITY).places_out(10), 9);
    }
}

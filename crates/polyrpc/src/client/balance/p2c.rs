use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::candidate_state::CandidateState;
use super::{AttemptOutcome, Candidate, LoadBalancer, PickContext, Picker, rng};

/// Power of two choices with Peak-EWMA: the better of two servers drawn at random, by latency, calls in flight and
/// weight; brpc's `p2c`.
///
/// The policy to start with: it needs no knowledge of the servers, avoids a slow server after one slow response, and does
/// not send the calls of all clients to the same server. A server's latency is a moving average that follows a worse
/// value at once and a better one slowly. It decays without new values, so that the server is tried again. Failed calls
/// count as slow ones.
#[derive(Debug)]
pub struct P2c {
    choices: usize,
    decay: Decay,
    state: CandidateState<Latency>,
    since: Instant,
}

/// Parameters of the moving averages.
#[derive(Debug, Clone, Copy)]
struct Decay {
    /// Time constant: after this time an average has decayed to 1/e.
    tau: Duration,
    /// Upper limit of the latency that a failed call counts as.
    max_penalty: Duration,
}

impl P2c {
    /// Two choices; an average decays to 1/e in 10 s; a failed call counts as at most 30 s.
    pub fn new() -> Self {
        let decay = Decay { tau: Duration::from_secs(10), max_penalty: Duration::from_secs(30) };
        Self { choices: 2, decay, state: CandidateState::default(), since: Instant::now() }
    }

    /// Sets the number of servers to draw, by default two: at least 2, at most 64.
    #[must_use]
    pub fn choices(mut self, choices: usize) -> Self {
        self.choices = choices.clamp(2, MAX_CHOICES);
        self
    }

    /// Sets the time in which an average decays to 1/e: the shorter, the sooner a slow server is tried again. At least
    /// a millisecond.
    #[must_use]
    pub fn tau(mut self, tau: Duration) -> Self {
        self.decay.tau = tau.max(Duration::from_millis(1));
        self
    }

    /// Limits the latency that a failed call counts as; `None` for no limit.
    #[must_use]
    pub fn max_penalty(mut self, latency: Option<Duration>) -> Self {
        self.decay.max_penalty = latency.unwrap_or(Duration::MAX);
        self
    }
}

const MAX_CHOICES: usize = 64;

impl Default for P2c {
    fn default() -> Self {
        Self::new()
    }
}

impl LoadBalancer for P2c {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let latencies = self.state.get_or_insert(candidates, |_| Latency::default());
        // brpc does not accept a weight of zero; here it counts as one.
        let weights = candidates.iter().map(|candidate| candidate.instance().attributes.weight().max(1));
        let servers = latencies.into_iter().zip(weights);
        Box::new(P2cPicker {
            servers: servers.map(|(latency, weight)| Server { latency, weight: weight.into() }).collect(),
            choices: self.choices,
            decay: self.decay,
            since: self.since,
        })
    }
}

struct P2cPicker {
    servers: Box<[Server]>,
    choices: usize,
    decay: Decay,
    since: Instant,
}

struct Server {
    latency: Arc<Latency>,
    weight: f64,
}

impl P2cPicker {
    /// Returns the best of some servers that may take the call; the first one of equals.
    fn best(&self, context: &PickContext<'_>, indices: impl Iterator<Item = usize>) -> Option<usize> {
        let now = self.elapsed(context.now);
        let scored = indices
            .filter(|&index| context.is_eligible(index))
            .map(|index| (index, self.score(context, index, now)));
        scored.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(index, _)| index)
    }

    /// Estimates the latency of a call; lower is better.
    fn score(&self, context: &PickContext<'_>, index: usize, now: u64) -> f64 {
        let (Some(server), Some(candidate)) = (self.servers.get(index), context.candidates.get(index)) else {
            return f64::INFINITY;
        };
        let latency = server.latency.decayed_average(now, self.decay.tau).max(MIN_LATENCY);
        latency * (candidate.load().in_flight() + 1) as f64 / server.weight
    }

    /// Draws distinct servers at random, in random order.
    fn sample(&self) -> ([usize; MAX_CHOICES], usize) {
        let mut drawn = [0; MAX_CHOICES];
        for count in 0..self.choices {
            let (before, rest) = drawn.split_at_mut(count);
            rest[0] = loop {
                let index = rng::index(self.servers.len());
                if !before.contains(&index) {
                    break index;
                }
            };
        }
        (drawn, self.choices)
    }

    /// Iterates over all servers, from a random one on.
    fn all(&self) -> impl Iterator<Item = usize> {
        let n = self.servers.len();
        let first = rng::index(n);
        (first..n).chain(0..first)
    }

    /// Returns nanoseconds since the balancer was created.
    fn elapsed(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A microsecond: smaller latencies count as equal.
const MIN_LATENCY: f64 = 1e3;

impl Picker for P2cPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        if self.servers.len() > self.choices {
            let (drawn, count) = self.sample();
            let best = self.best(context, drawn.into_iter().take(count));
            if best.is_some() {
                return best;
            }
        }
        self.best(context, self.all())
    }

    fn call_finished(&self, index: usize, outcome: &AttemptOutcome<'_>) {
        let Some(Server { latency, .. }) = self.servers.get(index) else { return };
        let now = self.elapsed(outcome.now);
        let took = nanos(outcome.latency);
        if outcome.is_server_failure() {
            latency.record_failure(took.max(outcome.timeout.map_or(0.0, nanos)), now, self.decay);
        } else if !outcome.is_cancelled() || latency.is_exceeded_by(took) {
            latency.record(took, now, self.decay.tau);
        }
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Moving average of a server's latency, in nanoseconds.
#[derive(Debug, Default)]
struct Latency {
    /// The bits of an `f64`.
    average: AtomicU64,
    /// Time of the last update, in nanoseconds since the balancer was created. A pick may read it with the average of
    /// another call, which is equally valid.
    at: AtomicU64,
    /// Serializes the updates of concurrent calls.
    update_lock: Mutex<()>,
}

impl Latency {
    fn average(&self) -> f64 {
        f64::from_bits(self.average.load(Ordering::Relaxed))
    }

    /// Returns the decayed average.
    fn decayed_average(&self, now: u64, tau: Duration) -> f64 {
        self.average() * self.decay_factor(now, tau)
    }

    /// Returns the weight that the last average still has.
    fn decay_factor(&self, now: u64, tau: Duration) -> f64 {
        let age = now.saturating_sub(self.at.load(Ordering::Relaxed));
        (-(age as f64) / nanos(tau)).exp()
    }

    fn is_exceeded_by(&self, latency: f64) -> bool {
        latency > self.average()
    }

    /// Records the latency of a successful call.
    fn record(&self, latency: f64, now: u64, tau: Duration) {
        let _update = self.update_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.update_average(latency, now, tau);
    }

    /// Records a failed call, which was to be answered within `latency` or took that long.
    fn record_failure(&self, latency: f64, now: u64, decay: Decay) {
        let _update = self.update_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let latency = latency.max(2.0 * self.average());
        self.update_average(latency.min(nanos(decay.max_penalty)), now, decay.tau);
    }

    fn update_average(&self, latency: f64, now: u64, tau: Duration) {
        let (average, remains) = (self.average(), self.decay_factor(now, tau));
        let average = if latency > average { latency } else { average * remains + latency * (1.0 - remains) };
        self.average.store(average.to_bits(), Ordering::Relaxed);
        self.at.fetch_max(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Duration = Duration::from_secs(10);
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn higher_latency_applies_at_once_and_lower_one_slowly() {
        let latency = Latency::default();
        latency.record(100.0, 0, TAU);
        latency.record(500.0, 0, TAU);
        assert_eq!(latency.average(), 500.0);
        latency.record(100.0, 10 * SECOND, TAU);
        let expected = 500.0 / std::f64::consts::E + 100.0 * (1.0 - 1.0 / std::f64::consts::E);
        assert!((latency.average() - expected).abs() < 1e-9);
        assert!((latency.decayed_average(20 * SECOND, TAU) - expected / std::f64::consts::E).abs() < 1e-9);
    }

    #[test]
    fn cancelled_call_raises_the_latency_and_never_lowers_it() {
        let (balance, candidates) = (P2c::new(), crate::client::balance::tests::candidates(2));
        let (picker, now) = (balance.picker(&candidates), Instant::now());
        let cancelled = polyrpc_core::Status::cancelled("the caller gave up");
        let ended = |index: usize, milliseconds: u64, failure: Option<&polyrpc_core::Status>| {
            let latency = Duration::from_millis(milliseconds);
            picker.call_finished(index, &AttemptOutcome { failure, ..AttemptOutcome::new(latency, now) });
        };
        let better =
            || picker.pick(&PickContext { now, ..crate::client::balance::tests::context(&candidates) });
        ended(0, 100, None);
        ended(1, 50, None);
        for _ in 0..1000 {
            ended(0, 1, Some(&cancelled));
        }
        assert_eq!(better(), Some(1), "calls that were given up early say nothing");
        ended(1, 200, Some(&cancelled));
        assert_eq!(better(), Some(0), "a call that was given up late took as long at least");
    }

    #[test]
    fn failure_counts_as_twice_the_average_up_to_the_limit() {
        let decay = Decay { tau: TAU, max_penalty: Duration::from_nanos(700) };
        let latency = Latency::default();
        latency.record_failure(200.0, 0, decay);
        assert_eq!(latency.average(), 200.0);
        latency.record_failure(1.0, 0, decay);
        assert_eq!(latency.average(), 400.0);
        latency.record_failure(1.0, 0, decay);
        assert_eq!(latency.average(), 700.0);
        latency.record_failure(1.0, 0, Decay { max_penalty: Duration::MAX, ..decay });
        assert_eq!(latency.average(), 1400.0);
    }
}

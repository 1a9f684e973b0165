use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use crate::client::balance::AttemptOutcome;
use crate::contention::{Mutex, MutexGuard};

/// Measurements of one server. Times are relative to the creation of the balancer.
#[derive(Debug)]
pub(super) struct ServerWeight(Mutex<WeightState>);

#[derive(Debug)]
struct WeightState {
    /// Weight regardless of the calls in flight; zero for a server without measurements.
    base: i64,
    in_flight: InFlight,
    replies: RecentReplies,
}

impl Default for ServerWeight {
    fn default() -> Self {
        let replies = RecentReplies { latest: VecDeque::with_capacity(MAX_REPLIES), average: Duration::ZERO };
        Self(Mutex::new(WeightState { base: 0, in_flight: InFlight::default(), replies }))
    }
}

impl ServerWeight {
    fn lock(&self) -> MutexGuard<'_, WeightState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server has a weight of its own.
    pub(super) fn is_known(&self) -> bool {
        self.lock().base > 0
    }

    /// Sets the weight of a server without measurements.
    pub(super) fn set_initial_weight(&self, base: i64) {
        let mut known = self.lock();
        if known.base == 0 {
            known.base = base;
        }
    }

    /// Returns the weight regardless of the calls in flight.
    pub(super) fn base(&self) -> i64 {
        match self.lock().base {
            0 => SCALE as i64,
            base => base,
        }
    }

    /// Limits the weight to this value.
    pub(super) fn cut(&self, base: i64) {
        let mut known = self.lock();
        if known.base == 0 || known.base > base {
            known.base = base.max(MIN_WEIGHT);
        }
    }

    /// Returns the current weight, which is reduced if calls have been in flight for longer than usual.
    pub(super) fn weight(&self, now: Duration) -> i64 {
        let known = self.lock();
        let base = if known.base == 0 { SCALE } else { known.base as f64 };
        let patience = known.replies.average.mul_f64(IN_FLIGHT_RATIO);
        let weight = match known.in_flight.age(now) {
            Some(age) if age >= patience && !patience.is_zero() => {
                base * (patience.as_secs_f64() / age.as_secs_f64())
            }
            _ => base,
        };
        (weight as i64).max(MIN_WEIGHT)
    }

    pub(super) fn record_start(&self, now: Duration) {
        self.lock().in_flight.record_start(now);
    }

    pub(super) fn record_end(&self, now: Duration, outcome: &AttemptOutcome<'_>) {
        let mut known = self.lock();
        known.in_flight.record_end(now.saturating_sub(outcome.latency));
        if outcome.is_server_failure() {
            known.replies.push_failure(now, failed_latency(outcome), outcome.timeout);
        } else if !outcome.is_cancelled() || outcome.latency > known.replies.average {
            known.replies.push(now, outcome.latency);
        } else {
            return;
        }
        known.base = known.replies.weight();
    }
}

/// Latency to charge for a failed attempt: the more attempts are left, the smaller the loss.
fn failed_latency(outcome: &AttemptOutcome<'_>) -> Duration {
    let lost = outcome.latency.mul_f64(ERROR_RATIO);
    let all = outcome.timeout.unwrap_or(lost);
    let left = outcome.attempts_left;
    let done = outcome.attempts_made.saturating_sub(1);
    let Some(retries) = left.checked_add(done).filter(|&retries| retries > 0) else { return all };
    (lost.saturating_mul(left).saturating_add(all.saturating_mul(done))) / retries
}

/// Start times of the calls in flight.
#[derive(Debug, Default)]
struct InFlight {
    calls: u32,
    /// Sum of the start times.
    began: Duration,
}

impl InFlight {
    fn record_start(&mut self, now: Duration) {
        self.calls = self.calls.saturating_add(1);
        self.began = self.began.saturating_add(now);
    }

    fn record_end(&mut self, began: Duration) {
        self.calls = self.calls.saturating_sub(1);
        // The last call resets the sum, and with it any rounding of the clocks.
        self.began = if self.calls == 0 { Duration::ZERO } else { self.began.saturating_sub(began) };
    }

    /// Returns the average time that the calls have been in flight.
    fn age(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.began.checked_div(self.calls)?))
    }
}

/// Most recent replies.
#[derive(Debug)]
struct RecentReplies {
    latest: VecDeque<RecentReply>,
    /// Average latency.
    average: Duration,
}

#[derive(Debug, Clone, Copy)]
struct RecentReply {
    ended: Duration,
    /// Sum of the latencies up to this reply.
    latencies: Duration,
}

impl RecentReplies {
    fn push(&mut self, ended: Duration, latency: Duration) {
        let before = self.latest.back().map_or(Duration::ZERO, |reply| reply.latencies);
        if self.latest.len() == MAX_REPLIES {
            self.latest.pop_front();
        }
        self.latest.push_back(RecentReply { ended, latencies: before.saturating_add(latency) });
        self.average = self.compute_average();
    }

    /// Adds a failure to the latency of the newest reply; it is no reply itself.
    fn push_failure(&mut self, ended: Duration, latency: Duration, timeout: Option<Duration>) {
        match self.latest.back_mut() {
            Some(newest) => newest.latencies = newest.latencies.saturating_add(latency),
            // Without any reply yet, the assumed latency is the time the call would have waited.
            None => self.push(ended, latency.max(timeout.unwrap_or_default())),
        }
        self.average = self.compute_average();
    }

    /// Average latency of the replies after the oldest, or of the only one.
    fn compute_average(&self) -> Duration {
        match (self.latest.front(), self.latest.back()) {
            (Some(oldest), Some(newest)) if self.latest.len() > 1 => {
                newest.latencies.saturating_sub(oldest.latencies) / (self.latest.len() - 1) as u32
            }
            (Some(only), _) => only.latencies,
            _ => Duration::ZERO,
        }
    }

    /// Replies per second; one, until there are enough replies to measure.
    fn rate(&self) -> f64 {
        let (Some(oldest), Some(newest)) = (self.latest.front(), self.latest.back()) else { return 1.0 };
        let span = newest.ended.saturating_sub(oldest.ended);
        let is_measured = self.latest.len() == MAX_REPLIES || span >= TRUSTED_SPAN;
        if !is_measured || span.is_zero() {
            return 1.0;
        }
        ((self.latest.len() - 1) as f64 / span.as_secs_f64()).max(1.0)
    }

    fn weight(&self) -> i64 {
        let micros = (self.average.as_secs_f64() * 1e6).max(1.0);
        ((self.rate() * SCALE / micros) as i64).max(MIN_WEIGHT)
    }
}

/// Number of replies that are remembered.
const MAX_REPLIES: usize = 128;

/// A rate is trusted once the replies span this time, even if they are few.
const TRUSTED_SPAN: Duration = Duration::from_secs(1);

/// Weight of a server that replies once a second within a microsecond; brpc's `WEIGHT_SCALE`.
const SCALE: f64 = (i64::MAX / 72_000_000 / 127) as f64;

/// Minimum weight of a server; brpc's `min_weight`.
const MIN_WEIGHT: i64 = 1000;

/// Calls in flight for this many times the average latency reduce their server's weight; brpc's
/// `punish_inflight_ratio`.
const IN_FLIGHT_RATIO: f64 = 1.5;

/// Factor by which the latency of a failed attempt is multiplied; brpc's `punish_error_ratio`.
const ERROR_RATIO: f64 = 1.2;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use polyrpc_core::Status;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn success(latency: Duration) -> AttemptOutcome<'static> {
        AttemptOutcome::new(latency, Instant::now())
    }

    #[test]
    fn weight_of_a_new_server_follows_its_latency() {
        let server = ServerWeight::default();
        assert_eq!(server.base(), 1_008_680_231);
        server.record_start(Duration::ZERO);
        server.record_end(MS, &success(MS));
        assert_eq!(server.weight(MS), 1_008_680);
        server.record_start(MS);
        server.record_end(4 * MS, &success(3 * MS));
        assert_eq!(server.weight(4 * MS), 336_226);
    }

    #[test]
    fn weight_follows_the_rate_after_enough_replies() {
        let server = ServerWeight::default();
        for turn in 0..128 {
            server.record_start(10 * turn * MS);
            server.record_end((10 * turn + 2) * MS, &success(2 * MS));
        }
        // 100 replies in a second, with a latency of two milliseconds each.
        assert!((server.base() - 50_434_011).abs() < 10, "{}", server.base());
    }

    #[test]
    fn slow_calls_in_flight_reduce_the_weight() {
        let server = ServerWeight::default();
        server.record_start(Duration::ZERO);
        server.record_end(2 * MS, &success(2 * MS));
        let base = server.base();
        server.record_start(10 * MS);
        server.record_start(12 * MS);
        assert_eq!(server.weight(13 * MS), base);
        assert_eq!(server.weight(41 * MS), base / 10);
        assert_eq!(server.weight(Duration::from_secs(3600)), MIN_WEIGHT);
        server.record_end(3_600_000 * MS, &success(3_599_990 * MS));
        assert_eq!(server.lock().in_flight.began, 12 * MS);
    }

    #[test]
    fn failure_penalty_depends_on_the_remaining_attempts() {
        let status = Status::unavailable("");
        let failed = |attempts_left, attempts_made| AttemptOutcome {
            failure: Some(&status),
            timeout: Some(100 * MS),
            attempts_left,
            attempts_made,
            ..success(10 * MS)
        };
        assert_eq!(failed_latency(&failed(0, 1)), 100 * MS);
        assert_eq!(failed_latency(&failed(3, 1)), 12 * MS);
        assert_eq!(failed_latency(&failed(1, 2)), 56 * MS);
        assert_eq!(failed_latency(&AttemptOutcome { timeout: None, ..failed(0, 1) }), 12 * MS);
        let server = ServerWeight::default();
        server.record_start(Duration::ZERO);
        server.record_end(10 * MS, &failed(3, 1));
        // The first attempt of all: charged with the time the call would have waited.
        assert_eq!(server.lock().replies.average, 100 * MS);
        server.record_start(Duration::ZERO);
        server.record_end(10 * MS, &failed(3, 1));
        let known = server.lock();
        assert_eq!((known.replies.average, known.replies.latest.len()), (112 * MS, 1));
    }

    #[test]
    fn cancelled_call_can_only_raise_the_latency() {
        let status = Status::cancelled("");
        let given_up = |latency| AttemptOutcome { failure: Some(&status), ..success(latency) };
        let server = ServerWeight::default();
        server.record_end(10 * MS, &success(10 * MS));
        server.record_end(20 * MS, &given_up(MS));
        assert_eq!(server.lock().replies.average, 10 * MS);
        server.record_end(40 * MS, &given_up(20 * MS));
        assert_eq!(server.lock().replies.average, 20 * MS);
    }
}

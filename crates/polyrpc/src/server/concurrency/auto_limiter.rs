use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::window::{SampleGate, SampleOutcome, Window, WindowProgress, WindowSummary};
use crate::contention::Mutex;

/// The limiter that brpc calls `auto` (`policy/auto_concurrency_limiter.cpp`, with its constants).
///
/// ```text
///              every 25 to 50 s                    two latencies later
///   Exploring ─────────────────▶ Draining ─────────────────────────────▶ Exploring
///     limit = latency · rate · (1 + explore)     limit = 0.9 · latency · rate,       latency forgotten
///                                                so that calls stop waiting
/// ```
#[derive(Debug)]
pub(super) struct AutoLimiter {
    /// Lower and upper bound of the limit.
    bounds: (usize, usize),
    limit: AtomicUsize,
    gate: SampleGate,
    /// Successful calls in this window, sampled or not.
    succeeded: AtomicU64,
    learned: Mutex<GradientState>,
}

#[derive(Debug)]
struct GradientState {
    window: Window,
    /// The latency without load, in microseconds.
    latency: Option<f64>,
    /// The highest rate, in calls a second.
    rate: f64,
    /// By how much the limit exceeds the concurrency that is known to work.
    explore: f64,
    phase: Phase,
    random: u64,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The latency is measured again from then on.
    Exploring { until: Instant },
    /// Samples are ignored until then: calls that had waited for each other are still finishing.
    Draining { until: Instant },
}

impl AutoLimiter {
    /// `seed` makes several limiters measure their latency at different times.
    pub(super) fn new(initial: usize, bounds: (usize, usize), now: Instant, seed: u64) -> Self {
        let mut learned = GradientState {
            window: Window::default(),
            latency: None,
            rate: 0.0,
            explore: MAX_EXPLORE,
            phase: Phase::Exploring { until: now },
            random: seed | 1,
        };
        learned.explore_until_next(now);
        let (_, max) = bounds;
        Self {
            bounds,
            limit: AtomicUsize::new(initial.clamp(1, max.max(1))),
            gate: SampleGate::new(now),
            succeeded: AtomicU64::new(0),
            learned: Mutex::new(learned),
        }
    }

    /// Returns whether this many calls are admitted at a time.
    pub(super) fn admits(&self, concurrency: usize) -> bool {
        concurrency <= self.limit()
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Records the end of a call.
    pub(super) fn record_end(&self, outcome: SampleOutcome, latency: Duration, now: Instant) {
        if outcome == SampleOutcome::Succeeded {
            self.succeeded.fetch_add(1, Ordering::Relaxed);
        }
        if self.gate.should_sample(now) {
            self.update(outcome, latency, now);
        }
    }

    fn update(&self, outcome: SampleOutcome, latency: Duration, now: Instant) {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Phase::Draining { until } = learned.phase {
            if now < until {
                return;
            }
            learned.latency = None;
            learned.explore_until_next(now);
            learned.window.restart(now);
            self.succeeded.store(0, Ordering::Relaxed);
        }
        match learned.window.add(outcome, latency, now) {
            WindowProgress::Open => {}
            WindowProgress::Discarded => self.succeeded.store(0, Ordering::Relaxed),
            WindowProgress::Full(measured) => {
                let succeeded = self.succeeded.swap(0, Ordering::Relaxed);
                let limit = match measured.average {
                    Some(average) => learned.limit(average, rate(succeeded, &measured), now),
                    None => self.limit() / 2,
                };
                let (min, max) = (self.bounds.0.max(1), self.bounds.1.max(1));
                self.limit.store(limit.max(min).min(max), Ordering::Relaxed);
            }
        }
    }
}

/// Returns the rate in calls per second.
fn rate(succeeded: u64, measured: &WindowSummary) -> f64 {
    succeeded as f64 / measured.took.as_secs_f64().max(f64::EPSILON)
}

impl GradientState {
    /// Computes the limit from a window: the average latency in microseconds, and calls per second.
    fn limit(&mut self, average: f64, rate: f64, now: Instant) -> usize {
        let latency = match self.latency {
            Some(lowest) if average >= lowest => lowest,
            Some(lowest) => smooth(lowest, average, SMOOTHING),
            None => average,
        };
        self.latency = Some(latency);
        self.rate = if rate >= self.rate { rate } else { smooth(self.rate, rate, SMOOTHING / 10.0) };
        let works = latency * self.rate / 1e6;
        match self.phase {
            Phase::Exploring { until } if until <= now => {
                self.phase = Phase::Draining { until: now + Duration::from_nanos((average * 2e3) as u64) };
                (works * DRAIN_FACTOR).ceil() as usize
            }
            _ => {
                let is_latency_stable = average <= latency * (1.0 + MIN_EXPLORE);
                let idle = rate <= self.rate / (1.0 + MIN_EXPLORE);
                self.explore = match is_latency_stable || idle {
                    true => (self.explore + EXPLORE_STEP).min(MAX_EXPLORE),
                    false => (self.explore - EXPLORE_STEP).max(MIN_EXPLORE),
                };
                (works * (1.0 + self.explore)) as usize
            }
        }
    }

    fn explore_until_next(&mut self, now: Instant) {
        // Marsaglia's xorshift: enough to keep servers from measuring in step.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 32) as f64 / f64::from(u32::MAX);
        self.phase = Phase::Exploring { until: now + REMEASURE_INTERVAL.mul_f64((1.0 + part) / 2.0) };
    }
}

fn smooth(old: f64, new: f64, factor: f64) -> f64 {
    new * factor + old * (1.0 - factor)
}

const SMOOTHING: f64 = 0.1;
const MAX_EXPLORE: f64 = 0.3;
const MIN_EXPLORE: f64 = 0.06;
const EXPLORE_STEP: f64 = 0.02;
const DRAIN_FACTOR: f64 = 0.9;
const REMEASURE_INTERVAL: Duration = Duration::from_secs(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// A limiter whose calls end at regular intervals.
    struct Steady {
        limiter: AutoLimiter,
        now: Instant,
    }

    impl Steady {
        fn new() -> Self {
            let now = Instant::now();
            Self { limiter: AutoLimiter::new(40, (2, usize::MAX), now, 7), now }
        }

        /// Ends 200 calls, one every `apart` microseconds.
        fn window(&mut self, outcome: SampleOutcome, latency: u64, apart: u64) -> usize {
            for _ in 0..200 {
                self.now += Duration::from_micros(apart);
                self.limiter.record_end(outcome, Duration::from_micros(latency), self.now);
            }
            self.limiter.limit()
        }
    }

    #[test]
    fn limit_is_latency_times_rate_plus_headroom() {
        let mut steady = Steady::new();
        assert_eq!(steady.limiter.limit(), 40);
        // 1,000 calls per second of 10 ms each are ten at a time. The first window has one interval less than calls.
        assert_eq!(steady.window(SampleOutcome::Succeeded, 10_000, 1_000), 13);
        // While latency is at its minimum and the rate at its maximum, more are allowed.
        assert_eq!(steady.window(SampleOutcome::Succeeded, 10_000, 1_000), 13);
    }

    #[test]
    fn limit_falls_if_latency_rises_without_throughput() {
        let mut steady = Steady::new();
        steady.window(SampleOutcome::Succeeded, 10_000, 1_000);
        let limits: Vec<_> =
            (0..14).map(|_| steady.window(SampleOutcome::Succeeded, 13_000, 1_000)).collect();
        assert!(limits.is_sorted_by(|a, b| a >= b), "{limits:?}");
        assert_eq!(limits.last(), Some(&10));
    }

    #[test]
    fn failures_halve_the_limit_down_to_the_minimum() {
        let mut steady = Steady::new();
        let limits: Vec<_> = (0..6).map(|_| steady.window(SampleOutcome::Failed, 10_000, 1_000)).collect();
        assert_eq!(limits, [20, 10, 5, 2, 2, 2]);
    }

    #[test]
    fn configured_maximum_holds() {
        let now = Instant::now();
        let limiter = AutoLimiter::new(40, (2, 8), now, 7);
        let mut steady = Steady { limiter, now };
        assert_eq!(steady.limiter.limit(), 8);
        assert_eq!(steady.window(SampleOutcome::Succeeded, 10_000, 1_000), 8);
        // An initial value below the minimum is raised to it.
        let limiter = AutoLimiter::new(0, (5, 0), now, 7);
        assert_eq!(limiter.limit(), 1);
    }

    #[test]
    fn latency_is_remeasured_by_draining_calls() {
        let mut steady = Steady::new();
        let began = steady.now;
        // The latency was low once, and has increased.
        steady.window(SampleOutcome::Succeeded, 1_000, 1_000);
        let drains =
            |steady: &Steady| matches!(steady.limiter.learned.lock().unwrap().phase, Phase::Draining { .. });
        while !drains(&steady) {
            // The measurements yield one call at a time; the minimum applies.
            assert_eq!(steady.window(SampleOutcome::Succeeded, 10_000, 1_000), 2);
        }
        let draining = steady.now - began;
        assert!((Duration::from_secs(25)..Duration::from_secs(51)).contains(&draining), "{draining:?}");
        // Samples of calls that had waited are ignored, and then the latency is the current one.
        let limits: Vec<_> =
            (0..40).map(|_| steady.window(SampleOutcome::Succeeded, 10_000, 1_000)).collect();
        assert!(limits[1] >= 10 && limits.is_sorted() && limits[39] == 13, "{limits:?}");
    }
}

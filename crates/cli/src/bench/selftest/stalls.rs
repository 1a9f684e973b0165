//! A server that stalls, whose response times are known.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use polyrpc::client::{CallOptions, ConnectionMode};
use polyrpc::codec::Body;
use polyrpc::{Client, Format};
use polyrpc_load::{
    Arrivals, CallKind, Histogram, Method, Order, Outcome, Pacing, Plan, Profile, Rate, RunLength, Stop,
};
use rustix::process::Signal;

use super::check::Check;
use super::child::Server;
use crate::bench::wake_ups::WakeUps;
use crate::failure::Failure;

/// Calls a server at a constant rate and stops it once in each period. Returns the length of each stop.
pub(super) fn measure_stalls(
    server: &Server,
    stalls: u32,
    most: usize,
) -> Result<(Outcome, Vec<Stall>), Failure> {
    let plan = plan(server, PERIOD * stalls, most)?;
    let load = thread::spawn(move || polyrpc_load::run(&plan, &Stop::default(), |_| {}));
    thread::sleep(WARMUP + PERIOD / 4);
    let mut made = Vec::new();
    for _ in 0..stalls {
        let started = Instant::now();
        made.push(Stall::make(server, STALL)?);
        thread::sleep(PERIOD.saturating_sub(started.elapsed()));
    }
    let outcome = load.join().map_err(|_| Failure::new("the load panicked"))?;
    Ok((outcome.map_err(|error| Failure::new(error.to_string()))?, made))
}

fn plan(server: &Server, duration: Duration, max_in_flight: usize) -> Result<Plan, Failure> {
    let url = server.url();
    let method = Method {
        name: "echo".to_owned(),
        target: "echo".to_owned(),
        weight: 1,
        kind: CallKind::Unary,
        messages: [Body::new(Format::MessagePack, &b"\xa5hello"[..])].into(),
        expected: None,
        order: Order::Sequence,
        options: CallOptions::default(),
    };
    let rate = Rate::per_second(RATE).map_err(Failure::new)?;
    Ok(Plan {
        client: Arc::new(move || Ok(Client::builder(&url))),
        methods: vec![method],
        pacing: Pacing::Open { profile: Profile::Constant(rate), arrivals: Arrivals::Constant },
        warmup: WARMUP,
        length: RunLength::Time(duration),
        connection_mode: ConnectionMode::Shared,
        connections: 1,
        threads: 1,
        max_in_flight,
        drain_timeout: Duration::from_secs(5),
        seed: 1,
        server: None,
    })
}

/// How long a server was stopped. This thread may be delayed between a signal and a reading of the clock, so there are bounds.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct Stall {
    least: Duration,
    most: Duration,
}

impl Stall {
    /// Stops a server for a time.
    pub(in crate::bench) fn make(server: &Server, length: Duration) -> Result<Self, Failure> {
        let before = Instant::now();
        server.signal(Signal::STOP)?;
        let stopped = Instant::now();
        thread::sleep(length);
        let least = stopped.elapsed();
        server.signal(Signal::CONT)?;
        Ok(Self { least, most: before.elapsed() })
    }
}

/// Response times of calls at a constant rate while the server stalls.
#[derive(Debug)]
pub(in crate::bench) struct ExpectedTimes {
    pub(in crate::bench) stalls: Vec<Stall>,
    pub(in crate::bench) duration: Duration,
}

impl ExpectedTimes {
    pub(super) fn compare(&self, outcome: &Outcome, noise: WakeUps) -> Vec<Check> {
        let response = outcome.response();
        let quantiles = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
        let mut checks: Vec<_> = quantiles
            .into_iter()
            .map(|(name, quantile)| {
                let measured = Duration::from_nanos(response.value_at_quantile(quantile));
                Check::from_times(name, self.quantile(quantile), measured, noise)
            })
            .collect();
        checks.push(Check::from_times("mean", self.mean(), mean(&response), noise));
        checks.push(Check {
            what: "calls".to_owned(),
            expected: format!("{} answered", outcome.counts.planned),
            measured: format!("{} answered", outcome.counts.succeeded),
            passed: outcome.counts.succeeded == outcome.counts.planned && outcome.counts.planned > 0,
        });
        checks
    }

    /// The quantile of the response times, with stalls as short and as long as they may have been.
    pub(in crate::bench) fn quantile(&self, quantile: f64) -> RangeInclusive<Duration> {
        let sum = |length: fn(&Stall) -> Duration| {
            self.quantile_of(&self.stalls.iter().map(length).collect::<Vec<_>>(), quantile)
        };
        sum(|stall| stall.least)..=sum(|stall| stall.most)
    }

    fn quantile_of(&self, stalls: &[Duration], quantile: f64) -> Duration {
        let (mut low, mut high) = (Duration::ZERO, stalls.iter().max().copied().unwrap_or_default());
        for _ in 0..40 {
            let middle = (low + high) / 2;
            // Calls wait longer than this that are planned while the rest of a stall is longer.
            let waiting: Duration = stalls.iter().map(|stall| stall.saturating_sub(middle)).sum();
            match waiting.as_secs_f64() / self.duration.as_secs_f64() > 1.0 - quantile {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    /// The mean, with bounds as those of a quantile.
    pub(in crate::bench) fn mean(&self) -> RangeInclusive<Duration> {
        let sum = |length: fn(&Stall) -> Duration| {
            let squares: f64 = self.stalls.iter().map(|stall| length(stall).as_secs_f64().powi(2)).sum();
            Duration::from_secs_f64(squares / 2.0 / self.duration.as_secs_f64())
        };
        sum(|stall| stall.least)..=sum(|stall| stall.most)
    }
}

fn mean(histogram: &Histogram<u64>) -> Duration {
    Duration::from_nanos(histogram.mean() as u64)
}

/// Calls per second: so few that a stall's backlog is answered within the tolerance.
const RATE: u64 = 1_000;
const WARMUP: Duration = Duration::from_millis(500);
pub(super) const PERIOD: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_of_equal_length_have_the_quantiles_of_the_formula() {
        let stall = Stall { least: STALL, most: STALL + Duration::from_millis(10) };
        let expected = ExpectedTimes { stalls: vec![stall; 4], duration: PERIOD * 4 };
        let near = |found: RangeInclusive<Duration>, formula: [Duration; 2]| {
            let found = [*found.start(), *found.end()];
            let is_near = |(one, other): (Duration, Duration)| one.abs_diff(other) < Duration::from_micros(1);
            assert!(found.into_iter().zip(formula).all(is_near), "{found:?} {formula:?}");
        };
        let formula = |stall| polyrpc_load::Stalls { stall, period: PERIOD, utilization: 0.0 };
        let bounds = [formula(stall.least), formula(stall.most)];
        for quantile in [0.5, 0.9, 0.99] {
            near(expected.quantile(quantile), bounds.map(|bound| bound.quantile(quantile)));
        }
        near(expected.mean(), bounds.map(|bound| bound.mean()));
    }
}

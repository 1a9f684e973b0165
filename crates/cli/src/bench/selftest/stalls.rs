//! A server that stalls, whose response times are known.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Client, Format};
use polyrpc_load::{
    Arrivals, Extent, Histogram, Method, Order, Outcome, Pacing, Plan, Profile, Rate, Shape, Sharing, Stop,
};
use rustix::process::Signal;

use super::check::Check;
use super::child::Server;
use crate::failure::Failure;

/// Calls a server at a constant rate and stops it once in each period. Returns the length of each stop.
pub(super) fn measure_stalls(
    server: &Server,
    stalls: u32,
    most: usize,
) -> Result<(Outcome, Vec<Duration>), Failure> {
    let plan = plan(server, PERIOD * stalls, most)?;
    let load = thread::spawn(move || polyrpc_load::run(&plan, &Stop::default(), |_| {}));
    thread::sleep(WARMUP + PERIOD / 4);
    let mut lengths = Vec::new();
    for _ in 0..stalls {
        let stopped = Instant::now();
        server.signal(Signal::STOP)?;
        thread::sleep(STALL);
        server.signal(Signal::CONT)?;
        lengths.push(stopped.elapsed());
        thread::sleep(PERIOD.saturating_sub(stopped.elapsed()));
    }
    let outcome = load.join().map_err(|_| Failure::new("the load panicked"))?;
    Ok((outcome.map_err(|error| Failure::new(error.to_string()))?, lengths))
}

fn plan(server: &Server, duration: Duration, most_in_flight: usize) -> Result<Plan, Failure> {
    let url = server.url();
    let method = Method {
        name: "echo".to_owned(),
        target: "echo".to_owned(),
        weight: 1,
        shape: Shape::Unary,
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
        extent: Extent::Time(duration),
        sharing: Sharing::Shared,
        connections: 1,
        threads: 1,
        most_in_flight,
        patience: Duration::from_secs(5),
        seed: 1,
        server: None,
    })
}

/// Response times of calls at a constant rate while the server stalls.
pub(in crate::bench) struct Expected {
    pub(in crate::bench) stalls: Vec<Duration>,
    pub(in crate::bench) duration: Duration,
}

impl Expected {
    pub(super) fn compare(&self, outcome: &Outcome) -> Vec<Check> {
        let response = outcome.response();
        let quantiles = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
        let mut checks: Vec<_> = quantiles
            .into_iter()
            .map(|(name, quantile)| {
                let measured = Duration::from_nanos(response.value_at_quantile(quantile));
                Check::of_times(name, self.quantile(quantile), measured)
            })
            .collect();
        checks.push(Check::of_times("mean", self.mean(), mean(&response)));
        checks.push(Check {
            what: "calls".to_owned(),
            expected: format!("{} answered", outcome.counts.planned),
            measured: format!("{} answered", outcome.counts.succeeded),
            passed: outcome.counts.succeeded == outcome.counts.planned && outcome.counts.planned > 0,
        });
        checks
    }

    /// Share of the calls that wait longer: those that are planned while the rest of a stall is longer.
    fn share_above(&self, time: Duration) -> f64 {
        let waiting: Duration = self.stalls.iter().map(|stall| stall.saturating_sub(time)).sum();
        waiting.as_secs_f64() / self.duration.as_secs_f64()
    }

    pub(in crate::bench) fn quantile(&self, quantile: f64) -> Duration {
        let (mut low, mut high) = (Duration::ZERO, self.stalls.iter().max().copied().unwrap_or_default());
        for _ in 0..40 {
            let middle = (low + high) / 2;
            match self.share_above(middle) > 1.0 - quantile {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    pub(in crate::bench) fn mean(&self) -> Duration {
        let squares: f64 = self.stalls.iter().map(|stall| stall.as_secs_f64().powi(2)).sum();
        Duration::from_secs_f64(squares / 2.0 / self.duration.as_secs_f64())
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
        let expected = Expected { stalls: vec![STALL; 4], duration: PERIOD * 4 };
        let formula = polyrpc_load::Stalls { stall: STALL, period: PERIOD, utilization: 0.0 };
        for quantile in [0.5, 0.9, 0.99] {
            assert!(
                expected.quantile(quantile).abs_diff(formula.quantile(quantile)) < Duration::from_micros(1)
            );
        }
        assert!(expected.mean().abs_diff(formula.mean()) < Duration::from_micros(1));
    }
}

//! When calls arrive, by the kernel's clock, compared with when they were planned.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use polyrpc::client::{CallOptions, ConnectionMode};
use polyrpc::codec::Body;
use polyrpc::{Client, Format};
use polyrpc_load::{
    Arrivals, CallKind, Method, Order, Outcome, Pacing, Plan, Profile, Rate, RunLength, Stop,
};

use super::check::Check;
use super::sink::Sink;
use crate::bench::wake_ups::{WakeUpProbe, WakeUps};
use crate::failure::Failure;
use crate::terminal::ShortDuration;

/// Compares the lag that the engine reports with the time between the plan and the arrival at the kernel.
pub(super) fn check_lag() -> Result<Vec<Check>, Failure> {
    let measured = ArrivalTimes::measure(1_000, Arrivals::Constant, Duration::from_secs(3))?;
    let lags = measured.lags()?;
    let quantiles = [("lag p50", 0.5), ("lag p90", 0.9), ("lag p99", 0.99)];
    let checks = quantiles.into_iter().map(|(name, quantile)| {
        let reported = Duration::from_nanos(measured.outcome.lag.value_at_quantile(quantile));
        let arrived = at_quantile(&lags, quantile);
        Check {
            what: name.to_owned(),
            expected: format!("{} ± {}", ShortDuration(reported), ShortDuration(TOLERANCE)),
            measured: ShortDuration(arrived).to_string(),
            passed: arrived.abs_diff(reported) <= TOLERANCE,
        }
        .unless_noisy(measured.noise)
    });
    Ok(checks.collect())
}

/// Compares the intervals between arrivals with the exponential distribution, by the test of Kolmogorov and Smirnov.
pub(super) fn check_poisson() -> Result<Check, Failure> {
    let measured = ArrivalTimes::measure(POISSON_RATE, Arrivals::Poisson, Duration::from_secs(5))?;
    let arrivals = measured.measured_arrivals()?;
    let gap = |pair: &[SystemTime]| match pair {
        [one, next] => next.duration_since(*one).unwrap_or_default().as_secs_f64() * POISSON_RATE as f64,
        _ => 0.0,
    };
    let gaps: Vec<f64> = arrivals.windows(2).map(gap).collect();
    let (distance, most) = (distance_to_exponential(gaps.clone()), CRITICAL / (gaps.len() as f64).sqrt());
    Ok(Check {
        what: "Poisson".to_owned(),
        expected: format!("D < {most:.4}"),
        measured: format!("D = {distance:.4}"),
        passed: distance < most,
    }
    .unless_noisy(measured.noise))
}

/// The greatest distance between the distribution of these times and the exponential one with a mean of 1.
fn distance_to_exponential(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    let distance = |(rank, time): (usize, &f64)| {
        let expected = 1.0 - (-time).exp();
        (expected - rank as f64 / count).max((rank + 1) as f64 / count - expected)
    };
    times.iter().enumerate().map(distance).fold(0.0, f64::max)
}

/// A load, and when its calls arrived.
struct ArrivalTimes {
    outcome: Outcome,
    arrivals: Vec<SystemTime>,
    rate: u64,
    /// The same moment by the clock of the engine and by that of the kernel's times.
    moment: (Instant, SystemTime),
    noise: WakeUps,
}

impl ArrivalTimes {
    fn measure(rate: u64, arrivals: Arrivals, duration: Duration) -> Result<Self, Failure> {
        let sink = Sink::start()?;
        let plan = plan(&sink.url(), rate, arrivals, duration)?;
        let moment = (Instant::now(), SystemTime::now());
        let probe = WakeUpProbe::start();
        let outcome = polyrpc_load::run(&plan, &Stop::default(), |_| {});
        let noise = probe.finish();
        let outcome = outcome.map_err(|error| Failure::new(error.to_string()))?;
        // The connection is closed with the client of the load.
        Ok(Self { outcome, arrivals: sink.finish()?, rate, moment, noise })
    }

    /// Without those of the warm-up.
    fn measured_arrivals(&self) -> Result<&[SystemTime], Failure> {
        let planned = usize::try_from(self.outcome.counts.planned).unwrap_or(usize::MAX);
        let before = self.arrivals.len().checked_sub(planned);
        match before.and_then(|before| self.arrivals.get(before..)) {
            Some(measured) if measured.len() > 1 => Ok(measured),
            _ => Err(Failure::new(format!(
                "{planned} calls were planned, and {} arrived",
                self.arrivals.len()
            ))),
        }
    }

    /// Sorted times from the plan to the arrival, at a constant rate.
    fn lags(&self) -> Result<Vec<Duration>, Failure> {
        let opened = self.outcome.opened.ok_or_else(|| Failure::new("the start of the load is unknown"))?;
        let (instant, time) = self.moment;
        let opened = time + opened.saturating_duration_since(instant);
        let lag = |(number, arrived): (usize, &SystemTime)| {
            let planned = opened + Duration::from_secs_f64(number as f64 / self.rate as f64);
            arrived.duration_since(planned).unwrap_or_default()
        };
        let mut lags: Vec<_> = self.measured_arrivals()?.iter().enumerate().map(lag).collect();
        lags.sort_unstable();
        Ok(lags)
    }
}

fn at_quantile(sorted: &[Duration], quantile: f64) -> Duration {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Calls that need no reply, over one connection.
fn plan(url: &str, rate: u64, arrivals: Arrivals, duration: Duration) -> Result<Plan, Failure> {
    let url = url.to_owned();
    let method = Method {
        name: "sink".to_owned(),
        target: "sink".to_owned(),
        weight: 1,
        kind: CallKind::Oneway,
        messages: [Body::new(Format::MessagePack, &b"\xa5hello"[..])].into(),
        expected: None,
        order: Order::Sequence,
        options: CallOptions { oneway: true, ..CallOptions::default() },
    };
    let profile = Profile::Constant(Rate::per_second(rate).map_err(Failure::new)?);
    Ok(Plan {
        client: Arc::new(move || Ok(Client::builder(&url))),
        methods: vec![method],
        pacing: Pacing::Open { profile, arrivals },
        warmup: Duration::from_millis(500),
        length: RunLength::Time(duration),
        connection_mode: ConnectionMode::Shared,
        connections: 1,
        threads: 1,
        max_in_flight: 10_000,
        drain_timeout: Duration::from_secs(5),
        seed: 1,
        server: None,
    })
}

/// Greatest difference: the time from the engine's clock reading to the kernel's, on a machine that is not busy.
const TOLERANCE: Duration = Duration::from_millis(1);
/// Calls per second: so few that a frame seldom arrives before the last one is read.
const POISSON_RATE: u64 = 200;
/// The 0.1 % point of the distribution of Kolmogorov and Smirnov.
const CRITICAL: f64 = 1.95;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exponential_times_are_near_the_exponential_distribution() {
        let ranks = (0..1000).map(|rank| (f64::from(rank) + 0.5) / 1000.0);
        let exponential: Vec<_> = ranks.clone().map(|share| -(1.0 - share).ln()).collect();
        assert!(distance_to_exponential(exponential) < 0.001);
        // A constant rate, and a uniform distribution.
        assert!(distance_to_exponential(vec![1.0; 1000]) > 0.6);
        assert!(
            distance_to_exponential(ranks.map(|share| 2.0 * share).collect()) > CRITICAL / 1000_f64.sqrt()
        );
    }

    #[test]
    fn quantile_is_the_least_time_that_covers_the_share() {
        let times: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(at_quantile(&times, 0.99), Duration::from_micros(99));
        assert_eq!(at_quantile(&[], 0.5), Duration::ZERO);
    }
}

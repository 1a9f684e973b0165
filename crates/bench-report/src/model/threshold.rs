//! Limits that a run must meet: `p99<5ms`, `errors<0.1%`, `rate>=20k`, `p99<1.1x`.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use super::latency::Latency;
use super::run::Run;
use super::verdict::ThresholdResult;
use crate::format::{Count, Nanoseconds};

/// A limit of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// The figure.
    pub metric: Metric,
    /// Which side of the limit the figure must be on.
    pub side: Side,
    /// The limit.
    pub limit: Limit,
}

/// The side of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
}

/// Kind of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// Responses of successful calls.
    Response,
    /// Responses of all calls.
    All,
    /// Time from the send.
    Service,
    /// Delay by the load generator.
    Lag,
}

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    /// A quantile, in nanoseconds.
    Quantile(Times, f64),
    /// The mean, in nanoseconds.
    Mean(Times),
    /// The maximum, in nanoseconds.
    Max(Times),
    /// Number of calls that failed or were not answered.
    ErrorCount,
    /// Their share.
    ErrorShare,
    /// Successful calls per second.
    Rate,
    /// CPU time of the load generator per call, in nanoseconds.
    ClientCpu,
    /// CPU time of the server per call, in nanoseconds.
    ServerCpu,
}

/// A limit: a value in the unit of the metric, or a multiple of a stored result's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// A value.
    Value(f64),
    /// A multiple of the baseline's value.
    OfBaseline(f64),
}

impl Threshold {
    /// Parses thresholds that are separated by commas.
    ///
    /// # Errors
    ///
    /// If one of them is malformed.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ThresholdError> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::parse).collect()
    }

    /// Whether a stored result is needed to judge it.
    pub fn needs_baseline(self) -> bool {
        matches!(self.limit, Limit::OfBaseline(_))
    }

    /// Judges a run.
    pub fn judge(self, run: &Run, baseline: Option<&Run>) -> ThresholdResult {
        let unknown = |reason: &str| ThresholdResult {
            threshold: self.to_string(),
            value: None,
            is_met: false,
            reason: Some(reason.to_owned()),
        };
        let value = match self.metric.value(run) {
            Ok(value) => value,
            Err(reason) => return unknown(reason),
        };
        let limit = match (self.limit, baseline) {
            (Limit::Value(limit), _) => limit,
            (Limit::OfBaseline(_), None) => return unknown("there is no baseline"),
            (Limit::OfBaseline(factor), Some(baseline)) => match self.metric.value(baseline) {
                Ok(stored) => stored * factor,
                Err(_) => return unknown("the baseline does not have this figure"),
            },
        };
        let is_met = match self.side {
            Side::Below => value < limit,
            Side::AtMost => value <= limit,
            Side::Above => value > limit,
            Side::AtLeast => value >= limit,
        };
        let mut shown = self.metric.show(value);
        if matches!(self.limit, Limit::OfBaseline(_)) {
            shown.push_str(&format!(", limit {}", self.metric.show(limit)));
        }
        ThresholdResult { threshold: self.to_string(), value: Some(shown), is_met, reason: None }
    }
}

impl Metric {
    /// Its value in a run, or why it is unknown.
    pub fn value(self, run: &Run) -> Result<f64, &'static str> {
        let samples = |times: Times| match times.latency(run) {
            None => Err("it was not measured"),
            Some(latency) if latency.count() == 0 => Err("there was no such call"),
            Some(latency) => Ok(latency),
        };
        match self {
            Self::Quantile(times, quantile) => match samples(times)?.quantile(quantile) {
                Some(estimate) => Ok(estimate.value as f64),
                None => Err("fewer than 10 calls lie beyond it"),
            },
            Self::Mean(times) => Ok(samples(times)?.histogram().mean()),
            Self::Max(times) => Ok(samples(times)?.histogram().max() as f64),
            Self::ErrorCount => Ok(run.error_count() as f64),
            Self::ErrorShare if run.counts.succeeded + run.error_count() == 0 => Err("there was no call"),
            Self::ErrorShare => Ok(run.error_share()),
            Self::Rate => Ok(run.calls_per_second),
            Self::ClientCpu => per_call(run.resources.client.cpu_us_per_call(run.counts.succeeded)),
            Self::ServerCpu => per_call(run.resources.server.cpu_us_per_call(run.counts.succeeded)),
        }
    }

    /// A value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::ErrorCount => Count(value).to_string(),
            Self::ErrorShare => format!("{} %", format_decimal(value * 100.0)),
            Self::Rate => format!("{}/s", Count(value)),
            _ => Nanoseconds(value).to_string(),
        }
    }
}

impl Times {
    fn latency(self, run: &Run) -> Option<&Latency> {
        match self {
            Self::Response => Some(&run.latency.response),
            Self::All => run.latency.all.as_ref(),
            Self::Service => run.latency.service.as_ref(),
            Self::Lag => run.latency.lag.as_ref(),
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Response => "",
            Self::All => "all.",
            Self::Service => "service.",
            Self::Lag => "lag.",
        }
    }
}

fn per_call(micros: Option<f64>) -> Result<f64, &'static str> {
    micros.map(|micros| micros * 1e3).ok_or("the CPU time is unknown")
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let error = |problem| ThresholdError { text: text.to_owned(), problem };
        let at = text.find(['<', '>']).ok_or_else(|| error(Problem::Operator))?;
        let (name, rest) = text.split_at(at);
        let signs = [("<=", Side::AtMost), (">=", Side::AtLeast), ("<", Side::Below), (">", Side::Above)];
        let found = signs.into_iter().find_map(|(sign, side)| Some((side, rest.strip_prefix(sign)?)));
        let (side, limit) = found.ok_or_else(|| error(Problem::Operator))?;
        let metric = parse_metric(name.trim(), limit.trim()).ok_or_else(|| error(Problem::Metric))?;
        let limit = parse_limit(metric, limit.trim()).ok_or_else(|| error(Problem::Limit(metric)))?;
        Ok(Self { metric, side, limit })
    }
}

fn parse_metric(name: &str, limit: &str) -> Option<Metric> {
    Some(match name {
        "errors" if limit.ends_with(['%', 'x']) => Metric::ErrorShare,
        "errors" => Metric::ErrorCount,
        "rate" => Metric::Rate,
        "client-cpu" => Metric::ClientCpu,
        "server-cpu" => Metric::ServerCpu,
        _ => {
            let (times, statistic) = match name.split_once('.') {
                Some(("all", statistic)) => (Times::All, statistic),
                Some(("service", statistic)) => (Times::Service, statistic),
                Some(("lag", statistic)) => (Times::Lag, statistic),
                _ => (Times::Response, name),
            };
            match statistic {
                "mean" => Metric::Mean(times),
                "max" => Metric::Max(times),
                _ => Metric::Quantile(times, parse_quantile(statistic)?),
            }
        }
    })
}

fn parse_quantile(name: &str) -> Option<f64> {
    let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
    // p99.9 is 0.999, not 0.9990000000000001.
    let quantile = (percent * 1e8).round() / 1e10;
    (quantile > 0.0 && quantile < 1.0).then_some(quantile)
}

fn parse_limit(metric: Metric, text: &str) -> Option<Limit> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..unit_at].parse().ok()?;
    let unit = text[unit_at..].trim();
    if unit == "x" {
        return (number > 0.0).then_some(Limit::OfBaseline(number));
    }
    let factor = match (metric, unit) {
        (Metric::ErrorShare, "%") => 0.01,
        (Metric::ErrorCount, "") => 1.0,
        (Metric::Rate, "" | "/s") => 1.0,
        (Metric::Rate, "k" | "k/s") => 1e3,
        (Metric::Rate, "M" | "M/s") => 1e6,
        (Metric::ErrorShare | Metric::ErrorCount | Metric::Rate, _) => return None,
        (_, "ns") => 1.0,
        (_, "us" | "µs" | "μs") => 1e3,
        (_, "ms") => 1e6,
        (_, "s") => 1e9,
        _ => return None,
    };
    Some(Limit::Value(number * factor))
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.side {
            Side::Below => "<",
            Side::AtMost => "≤",
            Side::Above => ">",
            Side::AtLeast => "≥",
        };
        match self.limit {
            Limit::Value(limit) => write!(f, "{} {sign} {}", self.metric, self.metric.show(limit)),
            Limit::OfBaseline(factor) => {
                write!(f, "{} {sign} {} × baseline", self.metric, format_decimal(factor))
            }
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantile(times, quantile) => {
                write!(f, "{}p{}", times.prefix(), format_decimal(quantile * 100.0))
            }
            Self::Mean(times) => write!(f, "{}mean", times.prefix()),
            Self::Max(times) => write!(f, "{}max", times.prefix()),
            Self::ErrorCount | Self::ErrorShare => f.write_str("errors"),
            Self::Rate => f.write_str("rate"),
            Self::ClientCpu => f.write_str("client CPU per call"),
            Self::ServerCpu => f.write_str("server CPU per call"),
        }
    }
}

/// Up to six decimals, without zeros at the end.
fn format_decimal(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Why text is no threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct ThresholdError {
    text: String,
    problem: Problem,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Problem {
    Operator,
    Metric,
    Limit(Metric),
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid threshold {:?}: ", self.text)?;
        f.write_str(match self.problem {
            Problem::Operator => "expected a figure, < or >, and a limit, as in p99<5ms",
            Problem::Metric => {
                "the figures are p50, p99.9 and so on, mean, max, the same after all., service. or lag., errors, rate, \
                 client-cpu, server-cpu"
            }
            Problem::Limit(Metric::ErrorCount | Metric::ErrorShare) => {
                "expected a number, a share as in 0.1%, or a multiple of the baseline as in 1.5x"
            }
            Problem::Limit(Metric::Rate) => "expected a rate as in 20k, or a multiple of the baseline as in 0.95x",
            Problem::Limit(_) => "expected a time as in 5ms or 800us, or a multiple of the baseline as in 1.1x",
        })
    }
}

impl Error for ThresholdError {}

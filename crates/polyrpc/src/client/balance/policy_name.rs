//! Policies by their names, as in a flag or a configuration.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use polyrpc_core::Status;

use super::by_latency::{ByLatency, TcpConnectProbe};
use super::{P2c, Policy, Ring};
use crate::client::Result;

impl FromStr for Policy {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        if name == "sticky" {
            return Ok(Self::sticky(parameters.parse::<Self>()?));
        }
        let mut parameters = Parameters::read(name, parameters)?;
        let policy = policy(name, &mut parameters)?;
        parameters.none_left()?;
        Ok(policy)
    }
}

fn policy(name: &str, parameters: &mut Parameters<'_>) -> Result<Policy> {
    Ok(match name {
        "random" | "RandomSelect" => Policy::random(),
        "rr" | "RoundRobin" => Policy::round_robin(),
        "swrr" | "WeightedRoundRobin" => Policy::smooth_weighted_round_robin(),
        "wrr" => Policy::weighted_round_robin(),
        "wr" => Policy::weighted_random(),
        "least" => Policy::least_in_flight(),
        "least_reported" | "CallLeast" => Policy::least_reported(),
        "p2c" => Policy::new(p2c(parameters)?),
        "la" => Policy::locality_aware(),
        "jump" => Policy::jump(),
        "doublejump" | "ConsistentHash" => Policy::double_jump(),
        "c_murmurhash" => Policy::new(ring(Ring::murmur(), parameters)?),
        "c_md5" => Policy::new(ring(Ring::md5(), parameters)?),
        "c_ketama" => Policy::new(ring(Ring::ketama(), parameters)?),
        "closest" | "Closest" => closest(parameters)?,
        "latency" | "WeightedICMP" => by_latency(parameters)?,
        _ => {
            let unknown = format!("there is no balancer `{name}`; there are {}", NAMES.join(", "));
            return Err(Status::invalid_argument(unknown).into());
        }
    })
}

/// All names: brpc's, rpcx's and ours.
const NAMES: [&str; 24] = [
    "random",
    "rr",
    "swrr",
    "wrr",
    "wr",
    "least",
    "least_reported",
    "p2c",
    "la",
    "jump",
    "doublejump",
    "c_murmurhash",
    "c_md5",
    "c_ketama",
    "closest",
    "latency",
    "sticky:NAME",
    "RandomSelect",
    "RoundRobin",
    "WeightedRoundRobin",
    "WeightedICMP",
    "ConsistentHash",
    "Closest",
    "CallLeast",
];

fn p2c(parameters: &mut Parameters<'_>) -> Result<P2c> {
    let mut p2c = P2c::new();
    if let Some(choices) = parameters.take_in_range("choices", 2..=64)? {
        p2c = p2c.choices(choices as usize);
    }
    if let Some(millis) = parameters.take_in_range("tau_ms", 1..=u64::MAX)? {
        p2c = p2c.tau(Duration::from_millis(millis));
    }
    if let Some(millis) = parameters.take_in_range("max_punish_ms", 0..=u64::MAX)? {
        p2c = p2c.max_penalty((millis > 0).then(|| Duration::from_millis(millis)));
    }
    Ok(p2c)
}

fn ring(ring: Ring, parameters: &mut Parameters<'_>) -> Result<Ring> {
    match parameters.take::<usize>("replicas")? {
        Some(replicas) => ring.replicas(replicas),
        None => Ok(ring),
    }
}

fn closest(parameters: &mut Parameters<'_>) -> Result<Policy> {
    let mut degrees = |name, most: f64| {
        let degrees: Option<f64> = parameters.take(name)?;
        let degrees = degrees.filter(|degrees| degrees.abs() <= most);
        degrees.ok_or_else(|| parameters.invalid(format_args!("expected `{name}` in degrees, up to {most}")))
    };
    Ok(Policy::closest(degrees("latitude", 90.0)?, degrees("longitude", 180.0)?))
}

fn by_latency(parameters: &mut Parameters<'_>) -> Result<Policy> {
    let interval = parameters.take_in_range("interval_ms", 1000..=u64::MAX)?;
    Ok(interval.map_or_else(Policy::by_latency, |millis| {
        Policy::new(ByLatency::with_probe(TcpConnectProbe, Duration::from_millis(millis)))
    }))
}

/// Parameters that are not consumed yet: `choices=3 tau_ms=5000`.
struct Parameters<'a> {
    balancer: &'a str,
    left: Vec<(&'a str, &'a str)>,
}

impl<'a> Parameters<'a> {
    fn read(balancer: &'a str, text: &'a str) -> Result<Self> {
        let mut parameters = Self { balancer, left: Vec::new() };
        for word in text.split_whitespace() {
            let Some(parameter) = word.split_once('=') else {
                return Err(parameters.invalid(format_args!("`{word}` is not `name=value`")));
            };
            parameters.left.push(parameter);
        }
        Ok(parameters)
    }

    /// Takes the value of a parameter, if present.
    fn take<T: FromStr>(&mut self, name: &str) -> Result<Option<T>> {
        let Some(index) = self.left.iter().position(|(known, _)| *known == name) else { return Ok(None) };
        let (_, value) = self.left.remove(index);
        let wrong = |_| self.invalid(format_args!("`{name}` cannot be `{value}`"));
        value.parse().map(Some).map_err(wrong)
    }

    /// Takes the value of a parameter as an integer in a range.
    fn take_in_range(&mut self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
        match self.take(name)? {
            Some(number) if !range.contains(&number) => {
                Err(self.invalid(format_args!("`{name}` is {} to {}", range.start(), range.end())))
            }
            number => Ok(number),
        }
    }

    fn none_left(&self) -> Result<()> {
        match self.left.first() {
            Some((name, _)) => {
                Err(self.invalid(format_args!("the parameter `{name}` is unknown or given twice")))
            }
            None => Ok(()),
        }
    }

    fn invalid(&self, why: impl Display) -> crate::Error {
        Status::invalid_argument(format!("balancer `{}`: {why}", self.balancer)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_name_builds_its_balancer() {
        for (text, kind) in [
            ("random", "Random"),
            ("rr", "RoundRobin"),
            ("RoundRobin", "RoundRobin"),
            ("swrr", "SmoothWeightedRoundRobin"),
            ("WeightedRoundRobin", "SmoothWeightedRoundRobin"),
            ("wrr", "WeightedRoundRobin"),
            ("wr", "WeightedRandom"),
            ("least", "LeastInFlight"),
            ("CallLeast", "LeastReported"),
            ("p2c", "P2c { choices: 2"),
            ("p2c:choices=3 tau_ms=5000", "P2c { choices: 3, decay: Decay { tau: 5s, max_penalty: 30s"),
            ("p2c: max_punish_ms=100 ", "P2c { choices: 2, decay: Decay { tau: 10s, max_penalty: 100ms"),
            ("la", "LocalityAware"),
            ("jump", "Jump"),
            ("ConsistentHash", "DoubleJump"),
            ("c_murmurhash:replicas=200", "Ring { hash: Murmur, replicas: 200"),
            ("c_md5", "Ring { hash: Md5, replicas: 100"),
            ("c_ketama", "Ring { hash: Ketama, replicas: 100"),
            ("Closest:latitude=1 longitude=-2.5", "Closest { latitude: 1.0, longitude: -2.5 }"),
            ("WeightedICMP", "ByLatency"),
            ("latency:interval_ms=5000", "ByLatency"),
            ("sticky:p2c:choices=4", "Sticky { inner: Policy(P2c { choices: 4"),
        ] {
            let policy = format!("{:?}", text.parse::<Policy>().unwrap());
            assert!(policy.starts_with(&format!("Policy({kind}")), "{text}: {policy}");
        }
    }

    #[test]
    fn unknown_policy_error_lists_the_names() {
        for (text, why) in [
            ("", "there is no balancer ``; there are random, rr, "),
            ("best", "there is no balancer `best`; there are random, rr, "),
            ("sticky", "there is no balancer ``"),
            ("rr:choices=3", "balancer `rr`: the parameter `choices` is unknown"),
            ("p2c:choices", "balancer `p2c`: `choices` is not `name=value`"),
            ("p2c:choices=x", "balancer `p2c`: `choices` cannot be `x`"),
            ("p2c:choices=65", "balancer `p2c`: `choices` is 2 to 64"),
            ("p2c:choices=3 choices=4", "given twice"),
            ("c_ketama:replicas=10", "replicas"),
            ("closest:latitude=1", "balancer `closest`: expected `longitude` in degrees, up to 180"),
            ("closest:latitude=91 longitude=1", "expected `latitude`"),
            ("latency:interval_ms=1", "`interval_ms` is 1000 to"),
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use polyrpc_core::Status;

use super::{
    ByLatency, Closest, DoubleJump, Jump, LeastInFlight, LeastReported, LoadBalancer, LocalityAware, P2c,
    Random, Ring, RoundRobin, SmoothWeightedRoundRobin, Sticky, TcpConnectProbe, WeightedRandom,
    WeightedRoundRobin,
};
use crate::client::Result;

/// Returns a balancer by its name, as in a flag or a configuration: `rr`, `p2c:choices=3 tau_ms=5000`,
/// `closest:latitude=52.5 longitude=13.4`, `sticky:c_murmurhash:replicas=200`.
///
/// brpc's and rpcx's names are accepted; parameters follow a colon, as in brpc, separated by blanks.
/// `WeightedRoundRobin` is rpcx's, the [smooth](SmoothWeightedRoundRobin) one; brpc's is `wrr`. rpcx's `SelectByUser`
/// has no name here: pass any implementation of [`LoadBalancer`] to the client itself.
///
/// # Errors
///
/// If the name is unknown (the error lists all names), or a parameter is unknown, missing or invalid.
pub fn named(text: &str) -> Result<Arc<dyn LoadBalancer>> {
    text.parse().map(|Policy(balance)| balance)
}

/// Balancer that is parsed from its name, as by [`named`].
#[derive(Debug, Clone)]
pub struct Policy(pub Arc<dyn LoadBalancer>);

impl FromStr for Policy {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        if name == "sticky" {
            return Ok(Self(Arc::new(Sticky::new(named(parameters)?))));
        }
        let mut parameters = Parameters::read(name, parameters)?;
        let balance = balance(name, &mut parameters)?;
        parameters.none_left()?;
        Ok(Self(balance))
    }
}

fn balance(name: &str, parameters: &mut Parameters<'_>) -> Result<Arc<dyn LoadBalancer>> {
    Ok(match name {
        "random" | "RandomSelect" => Arc::new(Random),
        "rr" | "RoundRobin" => Arc::new(RoundRobin::new()),
        "swrr" | "WeightedRoundRobin" => Arc::new(SmoothWeightedRoundRobin::new()),
        "wrr" => Arc::new(WeightedRoundRobin),
        "wr" => Arc::new(WeightedRandom),
        "least" => Arc::new(LeastInFlight),
        "least_reported" | "CallLeast" => Arc::new(LeastReported),
        "p2c" => Arc::new(p2c(parameters)?),
        "la" => Arc::new(LocalityAware::new()),
        "jump" => Arc::new(Jump),
        "doublejump" | "ConsistentHash" => Arc::new(DoubleJump::default()),
        "c_murmurhash" => Arc::new(ring(Ring::murmur(), parameters)?),
        "c_md5" => Arc::new(ring(Ring::md5(), parameters)?),
        "c_ketama" => Arc::new(ring(Ring::ketama(), parameters)?),
        "closest" | "Closest" => Arc::new(closest(parameters)?),
        "latency" | "WeightedICMP" => Arc::new(by_latency(parameters)?),
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
    if let Some(choices) = parameters.within("choices", 2..=64)? {
        p2c = p2c.choices(choices as usize);
    }
    if let Some(millis) = parameters.within("tau_ms", 1..=u64::MAX)? {
        p2c = p2c.tau(Duration::from_millis(millis));
    }
    if let Some(millis) = parameters.within("max_punish_ms", 0..=u64::MAX)? {
        p2c = p2c.max_punishment((millis > 0).then(|| Duration::from_millis(millis)));
    }
    Ok(p2c)
}

fn ring(ring: Ring, parameters: &mut Parameters<'_>) -> Result<Ring> {
    match parameters.take::<usize>("replicas")? {
        Some(replicas) => ring.replicas(replicas),
        None => Ok(ring),
    }
}

fn closest(parameters: &mut Parameters<'_>) -> Result<Closest> {
    let mut degrees = |name, most: f64| {
        let degrees: Option<f64> = parameters.take(name)?;
        let degrees = degrees.filter(|degrees| degrees.abs() <= most);
        degrees.ok_or_else(|| parameters.invalid(format_args!("want `{name}` in degrees, up to {most}")))
    };
    Ok(Closest::to(degrees("latitude", 90.0)?, degrees("longitude", 180.0)?))
}

fn by_latency(parameters: &mut Parameters<'_>) -> Result<ByLatency> {
    let interval = parameters.within("interval_ms", 1000..=u64::MAX)?;
    Ok(interval
        .map_or_else(ByLatency::new, |millis| ByLatency::by(TcpConnectProbe, Duration::from_millis(millis))))
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
    fn within(&mut self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
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
            ("p2c:choices=3 tau_ms=5000", "P2c { choices: 3, fading: Decay { tau: 5s, punishment: 30s"),
            ("p2c: max_punish_ms=100 ", "P2c { choices: 2, fading: Decay { tau: 10s, punishment: 100ms"),
            ("la", "LocalityAware"),
            ("jump", "Jump"),
            ("ConsistentHash", "DoubleJump"),
            ("c_murmurhash:replicas=200", "Ring { hash: Murmur, replicas: 200"),
            ("c_md5", "Ring { hash: Md5, replicas: 100"),
            ("c_ketama", "Ring { hash: Ketama, replicas: 100"),
            ("Closest:latitude=1 longitude=-2.5", "Closest { latitude: 1.0, longitude: -2.5 }"),
            ("WeightedICMP", "ByLatency"),
            ("latency:interval_ms=5000", "ByLatency"),
            ("sticky:p2c:choices=4", "Sticky { inner: P2c { choices: 4"),
        ] {
            let balance = format!("{:?}", named(text).unwrap());
            assert!(balance.starts_with(kind), "{text}: {balance}");
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
            ("closest:latitude=1", "balancer `closest`: want `longitude` in degrees, up to 180"),
            ("closest:latitude=91 longitude=1", "want `latitude`"),
            ("latency:interval_ms=1", "`interval_ms` is 1000 to"),
        ] {
            let error = named(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::histogram::{Buckets, micros};

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Look {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) ready: bool,
    /// In seconds.
    pub(crate) uptime: f64,
    pub(crate) connections: u64,
    /// Empty if it does not show them.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) methods: Vec<MethodLook>,
}

/// By which pages a server was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    PolyRpc,
    Brpc,
}

/// A method of a server, lately. Durations are in microseconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MethodLook {
    pub(crate) name: String,
    pub(crate) per_second: f64,
    pub(crate) errors_per_second: f64,
    pub(crate) in_flight: u64,
    /// The server's own percentiles.
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    /// Empty if it does not send them.
    pub(crate) buckets: Buckets,
}

/// How much of an answer is kept.
const METHODS: usize = 500;
const SETTINGS: usize = 500;
const LETTERS: usize = 200;

/// What `/fleet/self` answers: [`OwnLook`] in the frame of all pages.
#[derive(Deserialize)]
struct Framed {
    version: u32,
    page: String,
    data: OwnLook,
}

/// What a console says of its process to others.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OwnLook {
    pub(crate) version: String,
    pub(crate) ready: bool,
    pub(crate) uptime: f64,
    pub(crate) connections: u64,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) methods: Vec<OwnMethod>,
}

/// A method of [`OwnLook`]. Bucket *n* of its histogram ends at 2^(n/8) s.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OwnMethod {
    pub(crate) name: String,
    pub(crate) per_second: f64,
    pub(crate) errors_per_second: f64,
    pub(crate) in_flight: u64,
    pub(crate) buckets: Vec<(i32, u64)>,
}

impl Look {
    /// Reads the answer of another console; `None` if it is none.
    pub(super) fn parse(json: &str) -> Option<Self> {
        let framed: Framed = serde_json::from_str(json).ok()?;
        if framed.version != 1 || framed.page != "fleet-self" {
            return None;
        }
        let own = framed.data;
        let settings = own.settings.into_iter().take(SETTINGS);
        Some(Self {
            kind: Kind::PolyRpc,
            version: short(&own.version),
            ready: own.ready,
            uptime: finite(own.uptime),
            connections: own.connections,
            settings: settings.map(|(name, value)| (short(&name), short(&value))).collect(),
            methods: own.methods.into_iter().take(METHODS).map(MethodLook::of).collect(),
        })
    }

    /// Returns the calls and the failures of each second, over all methods.
    pub(crate) fn rates(&self) -> (f64, f64) {
        let sum = |rate: fn(&MethodLook) -> f64| self.methods.iter().map(rate).sum();
        (sum(|method| method.per_second), sum(|method| method.errors_per_second))
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.methods.iter().fold(0, |sum, method| sum.saturating_add(method.in_flight))
    }

    /// Returns the median and the 99th percentile over all methods, in microseconds: of all calls if the server sends
    /// histograms, and else those of its slowest method.
    pub(crate) fn percentiles(&self) -> (u64, u64) {
        let mut all = Buckets::default();
        self.methods.iter().for_each(|method| all.merge(&method.buckets));
        match all.is_empty() {
            false => (micros(all.percentile(0.5)), micros(all.percentile(0.99))),
            true => {
                let slowest = |of: fn(&MethodLook) -> u64| self.methods.iter().map(of).max().unwrap_or(0);
                (slowest(|method| method.p50), slowest(|method| method.p99))
            }
        }
    }
}

impl MethodLook {
    fn of(own: OwnMethod) -> Self {
        let buckets = Buckets::of(own.buckets);
        Self {
            name: short(&own.name),
            per_second: finite(own.per_second),
            errors_per_second: finite(own.errors_per_second),
            in_flight: own.in_flight,
            p50: micros(buckets.percentile(0.5)),
            p99: micros(buckets.percentile(0.99)),
            buckets,
        }
    }
}

/// Returns the beginning of a text that another server has chosen.
pub(super) fn short(text: &str) -> String {
    text.chars().take(LETTERS).collect()
}

fn finite(number: f64) -> f64 {
    if number.is_finite() { number.clamp(0.0, 1e15) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pages_and_later_versions_are_no_looks() {
        let page = |version: u32, name: &str, data: &str| {
            Look::parse(&format!("{{\"version\":{version},\"page\":\"{name}\",\"time\":1,\"data\":{data}}}"))
        };
        let data = serde_json::to_string(&OwnLook { version: "1".into(), ..OwnLook::default() }).unwrap();
        assert!(page(1, "fleet-self", &data).is_some());
        assert!(page(2, "fleet-self", &data).is_none() && page(1, "status", &data).is_none());
        assert!(page(1, "fleet-self", "{}").is_none() && Look::parse("").is_none());
    }

    #[test]
    fn long_answers_are_cut() {
        let method = |n| OwnMethod { name: format!("{n}{}", "x".repeat(500)), ..OwnMethod::default() };
        let own = OwnLook { methods: (0..900).map(method).collect(), ..OwnLook::default() };
        let json = serde_json::json!({ "version": 1, "page": "fleet-self", "data": own }).to_string();
        let look = Look::parse(&json).unwrap();
        assert_eq!((look.methods.len(), look.methods[0].name.len()), (METHODS, LETTERS));
    }
}

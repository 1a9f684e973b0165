use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::histogram::{Buckets, micros};

/// State of a server at one time, as the server reports it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerSnapshot {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) ready: bool,
    /// In seconds.
    pub(crate) uptime: f64,
    pub(crate) connections: u64,
    /// Empty if the server does not report them.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) methods: Vec<MethodSnapshot>,
    /// Names of its services; empty if the server does not report them.
    pub(crate) services: Vec<String>,
    /// The endpoints that clients in the server's process call.
    pub(crate) calls: Vec<EndpointSnapshot>,
}

/// An endpoint that a client in the server's process calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct EndpointSnapshot {
    /// The client's name.
    pub(crate) client: String,
    pub(crate) protocol: String,
    /// The address that is called.
    pub(crate) address: String,
    /// All attempts so far, and those that failed.
    pub(crate) attempts: u64,
    pub(crate) failures: u64,
    pub(crate) in_flight: u64,
    /// Attempts and failures since the previous snapshot.
    pub(crate) per_second: f64,
    pub(crate) failures_per_second: f64,
}

/// The pages by which a server was queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    PolyRpc,
    Brpc,
}

/// Recent figures of a method. Durations are in microseconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MethodSnapshot {
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

/// Limits of what is kept of a snapshot.
const MAX_METHODS: usize = 500;
const MAX_SETTINGS: usize = 500;
const MAX_SERVICES: usize = 50;
const MAX_ENDPOINTS: usize = 500;
const MAX_CHARS: usize = 200;

/// The answer of `/fleet/self`: [`OwnSnapshot`] in the frame of all pages.
#[derive(Deserialize)]
struct FramedSnapshot {
    version: u32,
    page: String,
    data: OwnSnapshot,
}

/// State of a process, as its own console reports it to others.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OwnSnapshot {
    pub(crate) version: String,
    pub(crate) ready: bool,
    pub(crate) uptime: f64,
    pub(crate) connections: u64,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) methods: Vec<OwnMethod>,
    /// Earlier consoles do not send these.
    #[serde(default)]
    pub(crate) services: Vec<String>,
    #[serde(default)]
    pub(crate) calls: Vec<OwnEndpoint>,
}

/// An endpoint that a client of the process calls.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OwnEndpoint {
    pub(crate) client: String,
    pub(crate) protocol: String,
    pub(crate) address: String,
    pub(crate) attempts: u64,
    pub(crate) failures: u64,
    pub(crate) in_flight: u64,
}

/// A method of [`OwnSnapshot`]. Bucket *n* of its histogram ends at 2^(n/8) s.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OwnMethod {
    pub(crate) name: String,
    pub(crate) per_second: f64,
    pub(crate) errors_per_second: f64,
    pub(crate) in_flight: u64,
    pub(crate) buckets: Vec<(i32, u64)>,
}

impl ServerSnapshot {
    /// Parses the response of another console; `None` if it is something else.
    pub(super) fn parse(json: &str) -> Option<Self> {
        let framed: FramedSnapshot = serde_json::from_str(json).ok()?;
        if framed.version != 1 || framed.page != "fleet-self" {
            return None;
        }
        let own = framed.data;
        let settings = own.settings.into_iter().take(MAX_SETTINGS);
        Some(Self {
            kind: Kind::PolyRpc,
            version: truncate(&own.version),
            ready: own.ready,
            uptime: to_finite(own.uptime),
            connections: own.connections,
            settings: settings.map(|(name, value)| (truncate(&name), truncate(&value))).collect(),
            methods: own.methods.into_iter().take(MAX_METHODS).map(MethodSnapshot::new).collect(),
            services: own.services.iter().take(MAX_SERVICES).map(|service| truncate(service)).collect(),
            calls: own.calls.into_iter().take(MAX_ENDPOINTS).map(EndpointSnapshot::new).collect(),
        })
    }

    /// Computes the rates of calls from the counts of an earlier snapshot, taken `elapsed` before.
    pub(super) fn compute_rates(&mut self, earlier: &Self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let known: HashMap<_, _> = earlier.calls.iter().map(|call| (call.key(), call)).collect();
        for call in &mut self.calls {
            let Some(known) = known.get(&call.key()).copied() else { continue };
            // The counts of a restarted process are smaller.
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            call.per_second = rate(call.attempts, known.attempts);
            call.failures_per_second = rate(call.failures, known.failures);
        }
    }

    /// Returns the calls and the failures of each second, over all methods.
    pub(crate) fn rates(&self) -> (f64, f64) {
        let sum = |rate: fn(&MethodSnapshot) -> f64| self.methods.iter().map(rate).sum();
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
                let slowest = |of: fn(&MethodSnapshot) -> u64| self.methods.iter().map(of).max().unwrap_or(0);
                (slowest(|method| method.p50), slowest(|method| method.p99))
            }
        }
    }
}

impl EndpointSnapshot {
    fn new(own: OwnEndpoint) -> Self {
        let OwnEndpoint { client, protocol, address, attempts, failures, in_flight } = own;
        let [client, protocol, address] = [client, protocol, address].map(|text| truncate(&text));
        Self { client, protocol, address, attempts, failures, in_flight, ..Self::default() }
    }

    /// Returns the key by which the same endpoint is found in another snapshot.
    fn key(&self) -> (&str, &str, &str) {
        (&self.client, &self.protocol, &self.address)
    }
}

impl MethodSnapshot {
    fn new(own: OwnMethod) -> Self {
        let buckets = Buckets::new(own.buckets);
        Self {
            name: truncate(&own.name),
            per_second: to_finite(own.per_second),
            errors_per_second: to_finite(own.errors_per_second),
            in_flight: own.in_flight,
            p50: micros(buckets.percentile(0.5)),
            p99: micros(buckets.percentile(0.99)),
            buckets,
        }
    }
}

/// Returns the first [`MAX_CHARS`] characters of a text from another server.
pub(super) fn truncate(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}

fn to_finite(number: f64) -> f64 {
    if number.is_finite() { number.clamp(0.0, 1e15) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_pages_and_later_versions_are_rejected() {
        let page = |version: u32, name: &str, data: &str| {
            ServerSnapshot::parse(&format!(
                "{{\"version\":{version},\"page\":\"{name}\",\"time\":1,\"data\":{data}}}"
            ))
        };
        let data =
            serde_json::to_string(&OwnSnapshot { version: "1".into(), ..OwnSnapshot::default() }).unwrap();
        assert!(page(1, "fleet-self", &data).is_some());
        assert!(page(2, "fleet-self", &data).is_none() && page(1, "status", &data).is_none());
        assert!(page(1, "fleet-self", "{}").is_none() && ServerSnapshot::parse("").is_none());
    }

    #[test]
    fn rates_are_those_between_two_snapshots() {
        let snapshot = |attempts, failures| {
            let call = OwnEndpoint {
                client: "stock".into(),
                address: "10.0.0.1:1".into(),
                attempts,
                failures,
                ..OwnEndpoint::default()
            };
            let own = OwnSnapshot { calls: vec![call], ..OwnSnapshot::default() };
            let json = serde_json::json!({ "version": 1, "page": "fleet-self", "data": own }).to_string();
            ServerSnapshot::parse(&json).unwrap()
        };
        let (earlier, mut now) = (snapshot(100, 1), snapshot(150, 2));
        now.compute_rates(&earlier, Duration::from_secs(2));
        assert_eq!((now.calls[0].per_second, now.calls[0].failures_per_second), (25.0, 0.5));
        let mut restarted = snapshot(10, 0);
        restarted.compute_rates(&now, Duration::from_secs(2));
        assert_eq!(restarted.calls[0].per_second, 0.0);
    }

    #[test]
    fn rates_are_separate_for_each_protocol() {
        let call = |protocol: &str, attempts| EndpointSnapshot {
            client: "stock".into(),
            protocol: protocol.into(),
            address: "10.0.0.1:1".into(),
            attempts,
            ..EndpointSnapshot::default()
        };
        let json = serde_json::json!({ "version": 1, "page": "fleet-self", "data": OwnSnapshot::default() });
        let snapshot = |calls| ServerSnapshot { calls, ..ServerSnapshot::parse(&json.to_string()).unwrap() };
        let earlier = snapshot(vec![call("rpcx", 100), call("grpc", 0)]);
        let mut now = snapshot(vec![call("grpc", 10), call("rpcx", 120)]);
        now.compute_rates(&earlier, Duration::from_secs(1));
        assert_eq!((now.calls[0].per_second, now.calls[1].per_second), (10.0, 20.0));
    }

    #[test]
    fn snapshots_without_calls_are_read() {
        let data = r#"{"version":"1","ready":true,"uptime":1,"connections":0,"settings":{},"methods":[]}"#;
        let snapshot =
            ServerSnapshot::parse(&format!(r#"{{"version":1,"page":"fleet-self","time":1,"data":{data}}}"#))
                .unwrap();
        assert!(snapshot.calls.is_empty() && snapshot.services.is_empty());
    }

    #[test]
    fn long_answers_are_cut() {
        let method = |n| OwnMethod { name: format!("{n}{}", "x".repeat(500)), ..OwnMethod::default() };
        let own = OwnSnapshot { methods: (0..900).map(method).collect(), ..OwnSnapshot::default() };
        let json = serde_json::json!({ "version": 1, "page": "fleet-self", "data": own }).to_string();
        let snapshot = ServerSnapshot::parse(&json).unwrap();
        assert_eq!((snapshot.methods.len(), snapshot.methods[0].name.len()), (MAX_METHODS, MAX_CHARS));
    }
}

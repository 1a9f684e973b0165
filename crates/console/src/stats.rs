//! State of a server and its methods at one time, from its monitor and from past samples.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use polyrpc::Code;
use polyrpc::introspection::ServerInfo;
use polyrpc::layer::Side;
use polyrpc::layers::{self, Metrics};
use polyrpc::service::MethodInfo;

use crate::history::{History, MethodKey};
use crate::observed::ObservedServer;
use crate::vars::{Kind, Reading, Value, to_underscored};

/// State of a server at one time.
#[derive(Debug)]
pub(crate) struct ServerStats {
    pub(crate) server: ObservedServer,
    pub(crate) version: String,
    pub(crate) uptime: Duration,
    pub(crate) started: SystemTime,
    /// Without the list of connections.
    pub(crate) load: ServerInfo,
    pub(crate) connections: usize,
    /// Maximum number of calls in flight.
    pub(crate) in_flight_limit: usize,
    pub(crate) is_counted: bool,
    /// The user's methods by service; functions are under the empty name.
    pub(crate) services: BTreeMap<String, Vec<MethodStats>>,
}

/// State of a method at one time.
#[derive(Debug)]
pub(crate) struct MethodStats {
    pub(crate) info: Arc<MethodInfo>,
    /// Its calls over all protocols; `None` if there was none.
    pub(crate) totals: Option<layers::MethodStats>,
    /// The same by protocol, without their durations.
    pub(crate) protocols: Vec<ProtocolCounts>,
    /// Its calls of the last seconds.
    recent: Recent,
    /// Histogram of their durations: see [`layers::MethodStats::buckets`].
    pub(crate) buckets: Vec<(i32, u64)>,
}

/// The calls of a method by one protocol.
#[derive(Debug)]
pub(crate) struct ProtocolCounts {
    pub(crate) protocol: &'static str,
    pub(crate) started: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) failures: Vec<(Code, u64)>,
}

/// Recent activity of a method. Durations are in microseconds.
#[derive(Debug, Default)]
struct Recent {
    per_second: f64,
    errors_per_second: f64,
    average: u64,
    /// In the order of [`PERCENTILES`].
    percentiles: [u64; PERCENTILES.len()],
    longest: u64,
}

impl ServerStats {
    /// Returns the state of a server; `None` if it is gone.
    pub(crate) fn collect(server: &ObservedServer, history: &History, now: Instant) -> Option<Self> {
        let monitor = &server.monitor;
        let (load, started) = (monitor.summary()?, monitor.started()?);
        let metrics = monitor.metrics();
        let mut counts = counts(metrics.as_ref());
        let mut services = BTreeMap::<String, Vec<_>>::new();
        for info in server.methods.iter().filter(|info| !info.is_standard) {
            let protocols = counts.remove(&(info.service.clone(), info.name.clone())).unwrap_or_default();
            let stats = MethodStats::new(server.id, info.clone(), protocols, history, now);
            services.entry(stats.info.service.clone()).or_default().push(stats);
        }
        let uptime = SystemTime::now().duration_since(started).unwrap_or_default();
        let in_flight_limit = monitor.limits().map_or(0, |limits| limits.in_flight);
        Some(Self {
            server: server.clone(),
            version: monitor.version(),
            uptime,
            started,
            connections: monitor.connection_count(),
            load,
            in_flight_limit,
            is_counted: metrics.is_some(),
            services,
        })
    }

    pub(crate) fn methods(&self) -> impl Iterator<Item = &MethodStats> {
        self.services.values().flatten()
    }

    /// Returns the number of calls and connections that were rejected before a method was called.
    pub(crate) fn refusals(&self) -> u64 {
        self.load.rejections.iter().map(|(_, count)| count).sum()
    }

    /// Returns its variables, by brpc's names (`server.cpp`, `Server::PrefixedVariables`), and those of its methods: of
    /// all, or only of those that were called.
    pub(crate) fn readings(&self, readings: &mut Vec<Reading>, of_all: bool) {
        let prefix = self.server.prefix();
        let mut add = |name: &str, kind, value: Value| {
            readings.push(Reading::new(format!("{prefix}_{name}"), kind, value));
        };
        add("concurrency", Kind::Gauge, self.load.calls.in_flight().into());
        add("connection_count", Kind::Gauge, self.connections.into());
        add(
            "eps",
            Kind::Gauge,
            (self.methods().map(MethodStats::errors_per_second).sum::<f64>().round() as u64).into(),
        );
        add("error", Kind::Counter, self.load.calls.failed.into());
        add("expired", Kind::Counter, self.load.expired.into());
        add("held_bytes", Kind::Gauge, self.load.held_bytes.into());
        add("refused", Kind::Counter, self.refusals().into());
        add("service_count", Kind::Gauge, self.services.len().into());
        add("start_time", Kind::Gauge, Value::Text(crate::time::Date(self.started).to_string()));
        add("uptime", Kind::Gauge, Value::Number(self.uptime.as_secs_f64()));
        for method in self.methods().filter(|method| of_all || method.totals.is_some()) {
            method.readings(&format!("{prefix}_{}", method.name()), readings);
        }
    }
}

/// Returns the counts of the servers' methods, by service and name.
fn counts(metrics: Option<&Metrics>) -> BTreeMap<(String, String), Vec<layers::MethodStats>> {
    let mut counts = BTreeMap::<_, Vec<_>>::new();
    let methods = metrics.map(Metrics::methods).unwrap_or_default();
    for method in methods.into_iter().filter(|method| method.side == Side::Server) {
        counts.entry((method.service.clone(), method.method.clone())).or_default().push(method);
    }
    counts
}

impl MethodStats {
    fn new(
        server: u64,
        info: Arc<MethodInfo>,
        by_protocol: Vec<layers::MethodStats>,
        history: &History,
        now: Instant,
    ) -> Self {
        let protocols = by_protocol.iter().map(ProtocolCounts::new).collect();
        let totals = by_protocol.into_iter().reduce(|sum, method| sum.merged(&method));
        let key = MethodKey { server, service: info.service.clone(), method: info.name.clone() };
        let (recent, buckets) = totals.as_ref().map_or_else(Default::default, |totals| {
            match history.recent_counts(&key, totals, now) {
                Some((recent, seconds)) => (Recent::new(&recent, seconds), recent.buckets()),
                // The period began before the first sample.
                None => (Recent::new(totals, 10.0), totals.buckets()),
            }
        });
        Self { info, totals, protocols, recent, buckets }
    }

    pub(crate) fn key(&self, server: u64) -> MethodKey {
        MethodKey { server, service: self.info.service.clone(), method: self.info.name.clone() }
    }

    /// Returns its name in variables: `example_echo_service_echo`.
    pub(crate) fn name(&self) -> String {
        match self.info.service.as_str() {
            "" => to_underscored(&self.info.name),
            service => to_underscored(&format!("{service}.{}", self.info.name)),
        }
    }

    /// Returns the number of calls that succeeded.
    pub(crate) fn count(&self) -> u64 {
        self.totals.as_ref().map_or(0, |totals| totals.succeeded)
    }

    pub(crate) fn errors(&self) -> u64 {
        self.totals.as_ref().map_or(0, |totals| totals.failed)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.totals.as_ref().map_or(0, layers::MethodStats::in_flight)
    }

    /// Returns the recent rate of successful calls per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.recent.per_second
    }

    pub(crate) fn errors_per_second(&self) -> f64 {
        self.recent.errors_per_second
    }

    /// Returns the recent average duration, in microseconds.
    pub(crate) fn average(&self) -> u64 {
        self.recent.average
    }

    /// Returns the recent percentiles of the durations, in microseconds, in the order of [`PERCENTILES`].
    pub(crate) fn percentiles(&self) -> [u64; PERCENTILES.len()] {
        self.recent.percentiles
    }

    pub(crate) fn longest(&self) -> u64 {
        self.recent.longest
    }

    fn readings(&self, prefix: &str, readings: &mut Vec<Reading>) {
        let mut add = |name: &str, kind, value: u64| {
            readings.push(Reading::new([prefix, "_", name].concat(), kind, value));
        };
        add("concurrency", Kind::Gauge, self.in_flight());
        add("count", Kind::Counter, self.count());
        add("eps", Kind::Gauge, self.errors_per_second().round() as u64);
        add("error", Kind::Counter, self.errors());
        add("latency", Kind::Gauge, self.average());
        for ((name, _), value) in PERCENTILES.into_iter().zip(self.percentiles()) {
            add(name, Kind::Gauge, value);
        }
        add("max_latency", Kind::Gauge, self.longest());
        add("qps", Kind::Gauge, self.per_second().round() as u64);
    }
}

impl ProtocolCounts {
    fn new(method: &layers::MethodStats) -> Self {
        Self {
            protocol: method.protocol,
            started: method.started,
            succeeded: method.succeeded,
            failed: method.failed,
            failures: method.failures().collect(),
        }
    }
}

impl Recent {
    fn new(recent: &layers::MethodStats, seconds: f64) -> Self {
        Self {
            per_second: recent.succeeded as f64 / seconds,
            errors_per_second: recent.failed as f64 / seconds,
            average: micros(recent.average),
            percentiles: PERCENTILES.map(|(_, share)| micros(recent.quantile(share))),
            longest: micros(recent.max()),
        }
    }
}

/// The percentiles that are variables, as bvar has them and with the median.
pub(crate) const PERCENTILES: [(&str, f64); 6] = [
    ("latency_50", 0.5),
    ("latency_80", 0.8),
    ("latency_90", 0.9),
    ("latency_99", 0.99),
    ("latency_999", 0.999),
    ("latency_9999", 0.9999),
];

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

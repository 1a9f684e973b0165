//! Metrics of calls and servers, by names of our own and by brpc's.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polyrpc_core::Code;

use super::family::{Family, Kind, Labels, Value};
use super::series::{Key, Series, Table, Totals};
use super::{exposition, process};
use crate::layer::Side;
use crate::{call, service};

/// Returns the metrics of all tables, with names and labels of our own.
pub(super) fn families(tables: &[&Table], servers: Option<call::Totals>, now: Instant) -> Vec<Family> {
    let all = snapshots(tables, now);
    let family =
        |name: &'static str, kind, help: &'static str, value: &dyn Fn(&SeriesSnapshot<'_>) -> Value| {
            let mut family = Family::new(name, kind, help);
            all.iter().for_each(|snapshot| family.add(labels(snapshot.key), value(snapshot)));
            family
        };
    let number = |number: u64| Value::Number(number as f64);
    let mut families = vec![
        family("polyrpc_calls_started_total", Kind::Counter, "Calls started.", &|snapshot| {
            number(snapshot.totals.started)
        }),
        outcomes(&all),
        family("polyrpc_calls_in_flight", Kind::Gauge, "Calls in flight.", &|snapshot| {
            number(snapshot.totals.in_flight())
        }),
        family(
            "polyrpc_call_duration_seconds",
            Kind::Histogram,
            "Latency of successful calls.",
            &|snapshot| Value::Histogram(snapshot.totals.took.clone(), snapshot.totals.nanos as f64 / 1e9),
        ),
        family(
            "polyrpc_call_duration_recent_seconds",
            Kind::Summary,
            "Recent latency of successful calls; sum and count cover all time.",
            &|snapshot| snapshot.quantiles(),
        ),
        family(
            "polyrpc_calls_recent_per_second",
            Kind::Gauge,
            "Recent successful calls per second.",
            &|snapshot| Value::Number(snapshot.per_second()),
        ),
    ];
    if let Some(servers) = servers {
        families.extend(server_families(&servers));
    }
    let version = vec![("version".into(), env!("CARGO_PKG_VERSION").into())];
    let build = Family::new("polyrpc_build_info", Kind::Gauge, "The version of PolyRPC; always 1.");
    families.push(build.with(version, Value::Number(1.0)));
    families.extend(process::families());
    families
}

/// Returns the series of all tables, sorted by name; those of the same key are one.
fn snapshots<'a>(tables: &[&'a Table], now: Instant) -> Vec<SeriesSnapshot<'a>> {
    let series = tables.iter().copied().flat_map(Table::all);
    let mut all: Vec<_> = series.map(|series| SeriesSnapshot::new(series, now)).collect();
    all.sort_by(|one, other| one.key.cmp(other.key));
    all.dedup_by(|next, known| {
        let is_same = next.key == known.key;
        if is_same {
            known.merge(next);
        }
        is_same
    });
    all
}

/// A snapshot of a series.
struct SeriesSnapshot<'a> {
    key: &'a Key,
    totals: Totals,
    recent: Totals,
    lately: Duration,
}

/// brpc's quantiles, in its order (`bvar/latency_recorder.cpp`).
const QUANTILES: [(&str, f64); 5] =
    [("0.8", 0.8), ("0.9", 0.9), ("0.99", 0.99), ("0.999", 0.999), ("0.9999", 0.9999)];

impl<'a> SeriesSnapshot<'a> {
    fn new(series: &'a Series, now: Instant) -> Self {
        let totals = series.totals();
        let (recent, lately) = series.recent_totals(&totals, now);
        Self { key: &series.key, totals, recent, lately }
    }

    fn quantiles(&self) -> Value {
        let took = |share| self.recent.took.quantile(share).as_secs_f64();
        let mut quantiles: Vec<_> = QUANTILES.iter().map(|&(name, share)| (name, took(share))).collect();
        quantiles.push(("1", self.recent.took.max().as_secs_f64()));
        Value::Summary(quantiles, self.totals.nanos as f64 / 1e9, self.totals.successes())
    }

    fn per_second(&self) -> f64 {
        per_second(self.recent.successes(), self.lately)
    }
}

fn labels(key: &Key) -> Labels {
    let Key { side, service, method, protocol } = key;
    vec![
        ("side".into(), side.as_str().into()),
        ("protocol".into(), Cow::Borrowed(*protocol)),
        ("service".into(), service.to_string().into()),
        ("method".into(), method.to_string().into()),
    ]
}

fn outcomes(all: &[SeriesSnapshot<'_>]) -> Family {
    let mut family = Family::new("polyrpc_calls_total", Kind::Counter, "Finished calls by code.");
    for snapshot in all {
        let mut add = |code: String, count: u64| {
            let mut labels = labels(snapshot.key);
            labels.push(("code".into(), code.into()));
            family.add(labels, Value::Number(count as f64));
        };
        add("ok".to_owned(), snapshot.totals.successes());
        for (code, &failed) in
            Code::ALL.iter().zip(&snapshot.totals.failed).filter(|(_, failed)| **failed > 0)
        {
            add(code.as_str().replace(' ', "_"), failed);
        }
    }
    family
}

/// Returns the metrics of servers as a whole.
fn server_families(servers: &call::Totals) -> Vec<Family> {
    let call::Totals { used, .. } = servers;
    let mut families: Vec<_> = [
        ("polyrpc_connections", "Open connections.", servers.connections),
        ("polyrpc_buffered_bytes", "Bytes buffered for peers.", used.memory),
        ("polyrpc_pending_handlers", "Calls with a pending handler.", used.calls),
        ("polyrpc_open_streams", "Open streams.", used.streams),
        ("polyrpc_queued_pushes", "Messages queued for push to clients.", servers.pushes),
    ]
    .map(|(name, help, value)| Family::gauge(name, help, value as f64))
    .into();
    let help = "Calls of blocking methods queued for a thread, in the whole process.";
    families.push(Family::gauge("polyrpc_queued_calls", help, service::queued_calls() as f64));
    families.extend(
        [
            ("polyrpc_connections_accepted_total", "Accepted connections.", servers.accepted),
            ("polyrpc_received_bytes_total", "Received bytes, with TLS after decryption.", servers.received),
            ("polyrpc_sent_bytes_total", "Sent bytes, with TLS before encryption.", servers.sent),
            (
                "polyrpc_unknown_fields_total",
                "Values of requests that match no field of their message.",
                servers.unknown_fields,
            ),
            (
                "polyrpc_omitted_metadata_total",
                "Metadata of relayed responses that the caller's protocol cannot carry, in the whole process.",
                call::removed_metadata_count(),
            ),
        ]
        .map(|(name, help, value)| Family::counter(name, help, value as f64)),
    );
    let refused = "Rejected calls and connections by cause.";
    families.push(causes("polyrpc_rejections_total", refused, &servers.rejections));
    let closed = "Connections closed by the server, by cause.";
    families.push(causes("polyrpc_connections_closed_total", closed, &servers.closed_connections));
    families
}

fn causes(name: &'static str, help: &'static str, counts: &[(&'static str, u64)]) -> Family {
    let mut family = Family::new(name, Kind::Counter, help);
    for (cause, count) in counts {
        family.add(vec![("cause".into(), (*cause).into())], Value::Number(*count as f64));
    }
    family
}

/// Returns the metrics of servers' calls, by brpc's names.
pub(super) fn brpc(table: &Table, name: &str, since: Instant, now: Instant) -> String {
    let mut methods = BTreeMap::<String, SeriesSnapshot<'_>>::new();
    let mut server = Totals::default();
    let mut failed_lately = 0.0;
    for series in table.all().into_iter().filter(|series| series.key.side == Side::Server) {
        let snapshot = SeriesSnapshot::new(series, now);
        server.merge(&snapshot.totals);
        failed_lately += per_second(snapshot.recent.failures(), snapshot.lately);
        let Key { service, method, .. } = snapshot.key;
        let separator = if service.is_empty() { "" } else { "." };
        let full = format!("{service}{separator}{method}");
        let name = format!("rpc_server_{name}_{}", to_underscored(&full));
        match methods.get_mut(&name) {
            None => drop(methods.insert(name, snapshot)),
            // Another protocol carried calls of the same method.
            Some(known) => known.merge(&snapshot),
        }
    }
    let gauge = |end: &str, value| Family::gauge(format!("rpc_server_{name}_{end}"), "", value);
    let mut families = vec![
        gauge("concurrency", server.in_flight() as f64),
        gauge("eps", failed_lately.round()),
        gauge("error", server.failures() as f64),
        gauge("uptime", now.saturating_duration_since(since).as_secs_f64()),
    ];
    for (name, snapshot) in methods {
        families.extend(snapshot.summary(&name));
    }
    exposition::text(&families, 1)
}

impl SeriesSnapshot<'_> {
    fn merge(&mut self, other: &Self) {
        self.totals.merge(&other.totals);
        self.recent.merge(&other.recent);
        self.lately = self.lately.max(other.lately);
    }

    /// Returns brpc's `LatencyRecorder` and the related metrics (`builtin/prometheus_metrics_service.cpp`). brpc has
    /// the average as the quantile `avg`, which is not a number and so breaks strict parsers.
    fn summary(&self, name: &str) -> [Family; 6] {
        let gauge = |end: &str, value| Family::gauge(format!("{name}_{end}"), "", value);
        let micros = |took: Duration| took.as_micros() as f64;
        let took = |share| micros(self.recent.took.quantile(share));
        let mut quantiles: Vec<_> = QUANTILES.iter().map(|&(name, share)| (name, took(share))).collect();
        quantiles.push(("1", micros(self.recent.took.max())));
        let sum = (self.totals.nanos / 1000) as f64;
        let summary = Value::Summary(quantiles, sum, self.totals.successes());
        [
            gauge("concurrency", self.totals.in_flight() as f64),
            gauge("eps", per_second(self.recent.failures(), self.lately).round()),
            gauge("error", self.totals.failures() as f64),
            Family::new(name.to_owned(), Kind::Summary, "").with(Labels::new(), summary),
            gauge("avg", micros(self.recent.average())),
            gauge("qps", self.per_second().round()),
        ]
    }
}

/// Converts a name as bvar does (`bvar/variable.cpp`, `to_underscored_name`).
pub(super) fn to_underscored(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    let mut was_upper = true;
    for letter in name.chars() {
        match letter {
            'A'..='Z' => {
                if !was_upper && !text.ends_with('_') {
                    text.push('_');
                }
                text.push(letter.to_ascii_lowercase());
            }
            'a'..='z' | '0'..='9' => text.push(letter),
            _ if text.is_empty() || text.ends_with('_') => {}
            _ => text.push('_'),
        }
        was_upper = letter.is_ascii_uppercase();
    }
    text
}

fn per_second(count: u64, lately: Duration) -> f64 {
    count as f64 / lately.as_secs_f64().max(1.0)
}

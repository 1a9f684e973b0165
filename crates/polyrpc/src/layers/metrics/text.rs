//! The text format of Prometheus (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::time::{Duration, Instant};

use polyrpc_wire::Code;

use super::series::{Key, Series, Table, Totals};
use crate::introspection;
use crate::layers::Side;

/// Everything, by names and labels of our own.
pub(super) fn prometheus(table: &Table, servers: Option<introspection::Totals>, now: Instant) -> String {
    let all: Vec<_> = table.all().into_iter().map(|series| Told::of(series, now)).collect();
    let mut page = Page(String::new());
    page.begin("polyrpc_calls_started_total", "counter", "Calls that began.");
    for told in &all {
        page.line("polyrpc_calls_started_total", told.labels(), told.totals.started);
    }
    page.begin("polyrpc_calls_total", "counter", "Calls that ended, by how.");
    for told in &all {
        told.outcomes(&mut page);
    }
    page.begin("polyrpc_calls_in_flight", "gauge", "Calls under way.");
    for told in &all {
        page.line("polyrpc_calls_in_flight", told.labels(), told.totals.in_flight());
    }
    page.begin("polyrpc_call_duration_seconds", "histogram", "How long calls took that succeeded.");
    for told in &all {
        told.histogram(&mut page);
    }
    let help = "How long calls took lately that succeeded.";
    page.begin("polyrpc_call_duration_recent_seconds", "gauge", help);
    for told in &all {
        told.quantiles(&mut page);
    }
    page.begin("polyrpc_calls_recent_per_second", "gauge", "Calls lately that succeeded.");
    for told in &all {
        page.line("polyrpc_calls_recent_per_second", told.labels(), told.per_second());
    }
    if let Some(servers) = servers {
        page.servers(&servers);
    }
    page.0
}

/// A series as it is told.
struct Told<'a> {
    key: &'a Key,
    totals: Totals,
    recent: Totals,
    lately: Duration,
}

/// Where the buckets of the histogram end, in powers of two of a nanosecond, four times as long from one to the next:
/// from 16 µs to 17 s.
const BOUNDS: [u32; 11] = [14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

/// brpc's, in its order (`bvar/latency_recorder.cpp`).
const QUANTILES: [(&str, f64); 5] =
    [("0.8", 0.8), ("0.9", 0.9), ("0.99", 0.99), ("0.999", 0.999), ("0.9999", 0.9999)];

impl<'a> Told<'a> {
    fn of(series: &'a Series, now: Instant) -> Self {
        let totals = series.totals();
        let (recent, lately) = series.recent(&totals, now);
        Self { key: &series.key, totals, recent, lately }
    }

    fn labels(&self) -> Labels<'_> {
        Labels { key: self.key, more: None }
    }

    fn with<'l>(&'l self, name: &'static str, value: &'l str) -> Labels<'l> {
        Labels { key: self.key, more: Some((name, value)) }
    }

    fn outcomes(&self, page: &mut Page) {
        const NAME: &str = "polyrpc_calls_total";
        page.line(NAME, self.with("code", "ok"), self.totals.succeeded());
        for (code, &failed) in Code::ALL.iter().zip(&self.totals.failed).filter(|(_, failed)| **failed > 0) {
            page.line(NAME, self.with("code", &code.as_str().replace(' ', "_")), failed);
        }
    }

    fn histogram(&self, page: &mut Page) {
        for log in BOUNDS {
            let bound = Duration::from_nanos(1 << log);
            let until = bound.as_secs_f64().to_string();
            let labels = self.with("le", &until);
            page.line("polyrpc_call_duration_seconds_bucket", labels, self.totals.took.up_to(bound));
        }
        let (all, sum) = (self.totals.succeeded(), self.totals.nanos as f64 / 1e9);
        page.line("polyrpc_call_duration_seconds_bucket", self.with("le", "+Inf"), all);
        page.line("polyrpc_call_duration_seconds_sum", self.labels(), sum);
        page.line("polyrpc_call_duration_seconds_count", self.labels(), all);
    }

    fn quantiles(&self, page: &mut Page) {
        const NAME: &str = "polyrpc_call_duration_recent_seconds";
        for (name, share) in QUANTILES {
            let took = self.recent.took.percentile(share).as_secs_f64();
            page.line(NAME, self.with("quantile", name), took);
        }
        page.line(NAME, self.with("quantile", "1"), self.recent.took.longest().as_secs_f64());
    }

    fn per_second(&self) -> f64 {
        per_second(self.recent.succeeded(), self.lately)
    }
}

/// What servers have answered, by brpc's names.
pub(super) fn brpc(table: &Table, name: &str, since: Instant, now: Instant) -> String {
    let mut methods = BTreeMap::<String, Told<'_>>::new();
    let mut server = Totals::default();
    let mut failed_lately = 0.0;
    for series in table.all().into_iter().filter(|series| series.key.side == Side::Server) {
        let told = Told::of(series, now);
        server.merge(&told.totals);
        failed_lately += per_second(told.recent.failures(), told.lately);
        let Key { service, method, .. } = told.key;
        let separator = if service.is_empty() { "" } else { "." };
        let full = format!("{service}{separator}{method}");
        let name = format!("rpc_server_{name}_{}", underscored(&full));
        match methods.get_mut(&name) {
            None => drop(methods.insert(name, told)),
            // Another protocol brought calls of the same method.
            Some(known) => known.merge(told),
        }
    }
    let mut page = Page(String::new());
    page.gauge(&format!("rpc_server_{name}_concurrency"), server.in_flight());
    page.gauge(&format!("rpc_server_{name}_eps"), failed_lately.round());
    page.gauge(&format!("rpc_server_{name}_error"), server.failures());
    page.gauge(&format!("rpc_server_{name}_uptime"), now.saturating_duration_since(since).as_secs_f64());
    for (name, told) in methods {
        told.summary(&name, &mut page);
    }
    page.0
}

impl Told<'_> {
    fn merge(&mut self, other: Self) {
        self.totals.merge(&other.totals);
        self.recent.merge(&other.recent);
        self.lately = self.lately.max(other.lately);
    }

    /// brpc's `LatencyRecorder` and what stands beside it (`builtin/prometheus_metrics_service.cpp`).
    fn summary(&self, name: &str, page: &mut Page) {
        page.gauge(&format!("{name}_concurrency"), self.totals.in_flight());
        page.gauge(&format!("{name}_eps"), per_second(self.recent.failures(), self.lately).round());
        page.gauge(&format!("{name}_error"), self.totals.failures());
        page.begin(name, "summary", "");
        for (quantile, share) in QUANTILES {
            let took = self.recent.took.percentile(share).as_micros();
            page.text(format_args!("{name}{{quantile=\"{quantile}\"}} {took}\n"));
        }
        let (longest, average) = (self.recent.took.longest().as_micros(), self.recent.average().as_micros());
        page.text(format_args!("{name}{{quantile=\"1\"}} {longest}\n{name}{{quantile=\"avg\"}} {average}\n"));
        let count = self.totals.succeeded();
        page.text(format_args!("{name}_sum {}\n{name}_count {count}\n", self.totals.nanos / 1000));
        page.gauge(&format!("{name}_qps"), self.per_second().round());
    }
}

/// A name as bvar writes it (`bvar/variable.cpp`, `to_underscored_name`).
pub(super) fn underscored(name: &str) -> String {
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

/// A page in the making.
struct Page(String);

impl Page {
    /// What servers count of themselves.
    fn servers(&mut self, servers: &introspection::Totals) {
        let used = servers.used;
        for (name, help, value) in [
            ("polyrpc_connections", "Open connections.", servers.connections),
            ("polyrpc_held_bytes", "Bytes that peers make the server hold.", used.memory),
            ("polyrpc_waiting_calls", "Calls whose handlers wait.", used.calls),
            ("polyrpc_open_streams", "Open streams.", used.streams),
        ] {
            self.begin(name, "gauge", help);
            self.text(format_args!("{name} {value}\n"));
        }
        let refused = "Calls and connections that were refused, by cause.";
        let closed = "Connections that the server closed, by cause.";
        self.causes("polyrpc_refusals_total", refused, &servers.refusals);
        self.causes("polyrpc_connections_closed_total", closed, &servers.closings);
        let name = "polyrpc_unknown_fields_total";
        self.begin(name, "counter", "Values of requests that no field of their messages was there for.");
        self.text(format_args!("{name} {}\n", servers.unknown_fields));
    }

    fn causes(&mut self, name: &str, help: &str, counts: &[(&'static str, u64)]) {
        self.begin(name, "counter", help);
        for (cause, count) in counts {
            self.text(format_args!("{name}{{cause=\"{cause}\"}} {count}\n"));
        }
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let space = if help.is_empty() { "" } else { " " };
        self.text(format_args!("# HELP {name}{space}{help}\n# TYPE {name} {kind}\n"));
    }

    fn gauge(&mut self, name: &str, value: impl Display) {
        self.begin(name, "gauge", "");
        self.text(format_args!("{name} {value}\n"));
    }

    fn line(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.text(format_args!("{name}{{{labels}}} {value}\n"));
    }

    fn text(&mut self, text: fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = self.0.write_fmt(text);
    }
}

struct Labels<'a> {
    key: &'a Key,
    more: Option<(&'static str, &'a str)>,
}

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { side, service, method, protocol } = self.key;
        write!(f, "side=\"{side}\",protocol=\"{protocol}\"")?;
        write!(f, ",service=\"{}\",method=\"{}\"", Escaped(service), Escaped(method))?;
        match self.more {
            Some((name, value)) => write!(f, ",{name}=\"{value}\""),
            None => Ok(()),
        }
    }
}

/// A label's value.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

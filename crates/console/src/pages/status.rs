//! `/status`: the methods, with their calls and latencies.

use polyrpc::layer::Side;
use polyrpc::layers::Metrics;
use serde::Serialize;

use super::chart::{number, sparkline};
use super::layout::{Document, render};
use super::signature::signature;
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::stats::{MethodStats, ProtocolCounts, ServerStats, micros};
use crate::text::Text;

#[derive(Serialize)]
struct Status {
    servers: Vec<Server>,
    /// Methods of the calls of servers that have no methods of their own, such as a gateway's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seen: Vec<CalledMethod>,
}

/// A method that callers named.
#[derive(Serialize)]
struct CalledMethod {
    method: String,
    protocol: &'static str,
    started: u64,
    succeeded: u64,
    failed: u64,
    /// Average duration of those that succeeded, in microseconds.
    latency: u64,
}

/// Maximum number of methods that callers named, the most frequent ones.
const MAX_SEEN: usize = 100;

impl CalledMethod {
    fn list(stats: &[ServerStats]) -> Vec<Self> {
        let mut known: Vec<Metrics> = Vec::new();
        for server in stats.iter().filter(|stats| stats.services.is_empty()) {
            // Listeners of a gateway count together.
            let Some(metrics) = server.server.monitor.metrics() else { continue };
            if !known.iter().any(|known| known.ptr_eq(&metrics)) {
                known.push(metrics);
            }
        }
        let methods = known.iter().flat_map(Metrics::methods).filter(|method| method.side == Side::Server);
        let mut seen: Vec<_> = methods
            .map(|method| Self {
                method: match method.service.as_str() {
                    "" => method.method.clone(),
                    service => format!("{service}/{}", method.method),
                },
                protocol: method.protocol,
                started: method.started,
                succeeded: method.succeeded,
                failed: method.failed,
                latency: micros(method.average),
            })
            .collect();
        seen.sort_by(|one, other| (other.started, &one.method).cmp(&(one.started, &other.method)));
        seen.truncate(MAX_SEEN);
        seen
    }

    fn write(&self, text: &mut Text) {
        text.value(&self.method).raw(" by ").raw(self.protocol).raw("\n");
        text.line("count", self.succeeded).line("error", self.failed).line("latency", self.latency).raw("\n");
    }

    fn write_row(&self, html: &mut Html) {
        html.raw("<tr>").cell(&self.method).cell(self.protocol);
        html.number(self.started).number(self.failed).number(self.latency).raw("</tr>");
    }
}

#[derive(Serialize)]
struct Server {
    address: String,
    version: String,
    uptime_seconds: f64,
    /// Calls and connections that were rejected before a method was called.
    non_service_error: u64,
    refusals: Vec<(&'static str, u64)>,
    connection_count: usize,
    max_concurrency: usize,
    concurrency: u64,
    /// Whether its calls are counted.
    counted: bool,
    services: Vec<Service>,
}

#[derive(Serialize)]
struct Service {
    name: String,
    methods: Vec<Method>,
}

/// Durations in microseconds; rates and percentiles are those of the last ten seconds.
#[derive(Serialize)]
struct Method {
    name: String,
    signature: String,
    count: u64,
    qps: f64,
    error: u64,
    eps: f64,
    latency: u64,
    latency_50: u64,
    latency_90: u64,
    latency_99: u64,
    latency_999: u64,
    latency_9999: u64,
    max_latency: u64,
    concurrency: u64,
    protocols: Vec<Protocol>,
    /// The calls of each of the last 60 seconds.
    #[serde(skip)]
    trend: Vec<f32>,
    #[serde(skip)]
    variable: String,
}

#[derive(Serialize)]
struct Protocol {
    protocol: &'static str,
    started: u64,
    succeeded: u64,
    failed: u64,
    failures: Vec<(&'static str, u64)>,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    render(request, &Status::new(state))
}

/// Returns the page as text.
pub(crate) fn text(state: &State) -> String {
    Status::new(state).text().into_string()
}

impl Status {
    fn new(state: &State) -> Self {
        let stats = state.stats();
        let history = state.history();
        let trend =
            |name: &str| history.trend(name).map(|trend| trend.seconds().collect()).unwrap_or_default();
        Self {
            servers: stats.iter().map(|stats| Server::new(stats, &trend)).collect(),
            seen: CalledMethod::list(&stats),
        }
    }
}

impl Server {
    fn new(stats: &ServerStats, trend: &impl Fn(&str) -> Vec<f32>) -> Self {
        let prefix = stats.server.prefix();
        let method = |method: &MethodStats| {
            let variable = format!("{prefix}_{}", method.name());
            Method::new(method, trend(&format!("{variable}_qps")), variable)
        };
        let services = stats.services.iter().map(|(name, methods)| Service {
            name: name.clone(),
            methods: methods.iter().map(method).collect(),
        });
        Self {
            address: stats.server.address(),
            version: stats.version.clone(),
            uptime_seconds: stats.uptime.as_secs_f64(),
            non_service_error: stats.refusals(),
            refusals: stats.load.rejections.iter().copied().filter(|(_, count)| *count > 0).collect(),
            connection_count: stats.connections,
            max_concurrency: stats.in_flight_limit,
            concurrency: stats.load.calls.in_flight(),
            counted: stats.is_counted,
            services: services.collect(),
        }
    }
}

impl Method {
    fn new(stats: &MethodStats, trend: Vec<f32>, variable: String) -> Self {
        let protocol = |counts: &ProtocolCounts| Protocol {
            protocol: counts.protocol,
            started: counts.started,
            succeeded: counts.succeeded,
            failed: counts.failed,
            failures: counts.failures.iter().map(|(code, count)| (code.as_str(), *count)).collect(),
        };
        let [latency_50, _, latency_90, latency_99, latency_999, latency_9999] = stats.percentiles();
        Self {
            name: stats.info.name.clone(),
            signature: signature(&stats.info),
            count: stats.count(),
            qps: stats.per_second(),
            error: stats.errors(),
            eps: stats.errors_per_second(),
            latency: stats.average(),
            latency_50,
            latency_90,
            latency_99,
            latency_999,
            latency_9999,
            max_latency: stats.longest(),
            concurrency: stats.in_flight(),
            protocols: stats.protocols.iter().map(protocol).collect(),
            trend,
            variable,
        }
    }
}

impl Document for Status {
    const NAME: &'static str = "status";
    const TITLE: &'static str = "Status";

    /// As `builtin/status_service.cpp` and `details/method_status.cpp` write it.
    fn text(&self) -> Text {
        let mut text = Text::default();
        for server in &self.servers {
            if self.servers.len() > 1 {
                text.raw("# ").value(&server.address).raw("\n");
            }
            text.line("version", &server.version)
                .line("non_service_error", server.non_service_error)
                .line("connection_count", server.connection_count)
                .line("max_concurrency", server.max_concurrency)
                .line("concurrency", server.concurrency);
            for service in &server.services {
                let name = if service.name.is_empty() { "functions" } else { &service.name };
                text.raw("[").value(name).raw("]\n\n");
                for method in &service.methods {
                    method.write(&mut text, server.counted);
                }
            }
        }
        if !self.seen.is_empty() {
            text.raw("[methods seen]\n\n");
            self.seen.iter().for_each(|method| method.write(&mut text));
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        for server in &self.servers {
            server.write(&mut html);
        }
        if !self.seen.is_empty() {
            html.table("Methods seen", &["Method", "Protocol", "Calls", "Errors", "Mean µs"]);
            self.seen.iter().for_each(|method| method.write_row(&mut html));
            html.end_table();
        }
        if self.servers.is_empty() {
            html.raw("<p>No server is observed.</p>");
        }
        html
    }
}

impl Method {
    fn write(&self, text: &mut Text, is_counted: bool) {
        text.value(&self.signature).raw("\n");
        if !is_counted {
            text.raw("not counted: the server lacks count_calls\n\n");
            return;
        }
        text.line("count", self.count)
            .line("qps", self.qps.round())
            .line("error", self.error)
            .line("eps", self.eps.round())
            .line("latency", self.latency)
            .line("latency_50", self.latency_50)
            .line("latency_90", self.latency_90)
            .line("latency_99", self.latency_99)
            .line("latency_999", self.latency_999)
            .line("latency_9999", self.latency_9999)
            .line("max_latency", self.max_latency)
            .line("concurrency", self.concurrency)
            .raw("\n");
    }

    fn write_row(&self, html: &mut Html) {
        html.raw("<tr><th scope=row><a href=\"/vars/").segment(&self.variable).raw("_*\">");
        html.text(&self.signature).raw("</a></th>");
        html.number(number(self.qps)).number(self.count).number(number(self.eps)).number(self.error);
        for latency in [
            self.latency,
            self.latency_50,
            self.latency_90,
            self.latency_99,
            self.latency_999,
            self.max_latency,
            self.concurrency,
        ] {
            html.number(latency);
        }
        let protocols: Vec<_> =
            self.protocols.iter().map(|known| format!("{} {}", known.protocol, known.started)).collect();
        html.cell(protocols.join(", ")).raw("<td>");
        sparkline(html, "calls a second in the last minute", self.trend.iter().copied());
        html.raw("</td></tr>");
    }
}

const COLUMNS: [&str; 14] = [
    "Method",
    "Calls/s",
    "Calls",
    "Errors/s",
    "Errors",
    "Mean µs",
    "50 %",
    "90 %",
    "99 %",
    "99.9 %",
    "Longest",
    "Under way",
    "Protocols",
    "Last minute",
];

impl Server {
    fn write(&self, html: &mut Html) {
        html.raw("<section><h2>").text(&self.address).raw("</h2><dl class=facts>");
        let facts = [
            ("Version", self.version.clone()),
            ("Uptime", format!("{:.0} s", self.uptime_seconds)),
            ("Connections", self.connection_count.to_string()),
            ("Calls under way", format!("{} of {}", self.concurrency, self.max_concurrency)),
            ("Refused", self.non_service_error.to_string()),
        ];
        for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
            html.raw("<div><dt>").raw(name).raw("</dt><dd>").text(value).raw("</dd></div>");
        }
        html.raw("</dl>");
        if !self.counted {
            html.raw("<p role=note>Calls are not counted: add <code>Server::count_calls</code>.</p>");
        }
        for service in &self.services {
            let name = if service.name.is_empty() { "Functions" } else { &service.name };
            html.table(name, &COLUMNS);
            service.methods.iter().for_each(|method| method.write_row(html));
            html.end_table();
        }
        html.raw("</section>");
    }
}

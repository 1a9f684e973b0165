//! `/fleet`: the servers of a registry. `/fleet/self`: the state of a console's own process, for such a page.

mod graph;
mod own;

use serde::Serialize;

use super::layout::{Document, failure, render};
use crate::console::State;
use crate::fleet::{CallGraph, Fleet, Kind, MergedMethod, ServerView, Summary, call_graph, summary};
use crate::html::Html;
use crate::reply::{Reply, TEXT};
use crate::request::{PageRequest, Verb};
use crate::text::{Text, format_count};

#[derive(Serialize)]
struct Servers {
    registry: String,
    /// Why the registry could not be read the last time.
    failure: Option<String>,
    servers: Vec<Row>,
    left_out: usize,
    reachable: usize,
    ready: usize,
    versions: Vec<(String, Vec<String>)>,
    methods: Vec<MethodRow>,
    /// Settings whose values differ between servers: the servers by value.
    skews: Vec<(String, Vec<(String, Vec<String>)>)>,
    calls: CallGraph,
    #[serde(skip)]
    form_token: Option<String>,
}

/// A server. Durations are in microseconds.
#[derive(Serialize)]
struct Row {
    address: String,
    /// Empty if the server does not say it in a form that can be used.
    admin: String,
    state: &'static str,
    /// Why it could not be queried.
    failure: Option<String>,
    kind: Option<Kind>,
    version: String,
    uptime: f64,
    weight: Option<String>,
    connections: u64,
    per_second: f64,
    errors_per_second: f64,
    in_flight: u64,
    p50: u64,
    p99: u64,
    /// How it differs from the others.
    outlier: Option<String>,
    /// Result of the last order.
    order: Option<String>,
}

#[derive(Serialize)]
struct MethodRow {
    name: String,
    servers: usize,
    per_second: f64,
    errors_per_second: f64,
    in_flight: u64,
    /// The median, the 90th, the 99th and the 99.9th, in microseconds.
    percentiles: Option<[u64; 4]>,
    /// How many busy servers send no histograms.
    without: usize,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    match (request.segment(1), request.verb) {
        (Some("self"), Verb::Get) => return own::answer(state),
        (Some(_), _) => return failure(request, 404, "There is no such page."),
        (None, _) => {}
    }
    let Some(fleet) = state.fleet() else {
        return failure(request, 404, "This process shows no registry: `polyrpc console REGISTRY-URL` does.");
    };
    match request.verb {
        Verb::Get => render(request, &Servers::new(fleet, super::change_token(state, request))),
        Verb::Post => order(fleet, request),
    }
}

/// Drains the server that a button names, or stops draining it. The caller's role was checked.
fn order(fleet: &Fleet, request: &PageRequest) -> Reply {
    let (address, drains) = match (request.parameter("drain"), request.parameter("serve")) {
        (Some(address), None) => (address, true),
        (None, Some(address)) => (address, false),
        _ => return failure(request, 400, "drain or serve is the address of a server."),
    };
    // Only listed servers are ever called.
    match fleet.drain(address, drains, &request.caller.name) {
        true => Reply::new(303, TEXT, "done\n").with("location", "/fleet"),
        false => failure(request, 404, "The registry lists no such server."),
    }
}

impl Servers {
    fn new(fleet: &Fleet, form_token: Option<String>) -> Self {
        let view = fleet.view();
        let servers: Vec<_> = view.servers.into_values().collect();
        let Summary { reachable, ready, versions, methods, skews, outliers } = summary(&servers);
        let calls = call_graph(&servers);
        let row = |server: ServerView| {
            let outlier = outliers.get(&server.address).cloned();
            Row::new(server, outlier)
        };
        Self {
            registry: view.registry,
            failure: view.failure,
            servers: servers.into_iter().map(row).collect(),
            left_out: view.left_out,
            reachable,
            ready,
            versions: versions.into_iter().collect(),
            methods: methods.into_iter().map(MethodRow::new).collect(),
            skews: skews.into_iter().map(|skew| (skew.name, skew.values.into_iter().collect())).collect(),
            calls,
            form_token,
        }
    }
}

impl Row {
    fn new(server: ServerView, outlier: Option<String>) -> Self {
        let ServerView { address, admin, active, weight, snapshot, failure, order, .. } = server;
        let state = match (&snapshot, &failure) {
            (Some(snapshot), _) if !snapshot.ready => "not ready",
            (Some(_), _) if !active => "inactive in the registry",
            (Some(_), _) => "ready",
            (None, Some(_)) => "unreachable",
            (None, None) => "not asked yet",
        };
        let (kind, version) =
            snapshot.as_ref().map(|snapshot| (snapshot.kind, snapshot.version.clone())).unzip();
        let (rates, percentiles) =
            snapshot.as_ref().map(|snapshot| (snapshot.rates(), snapshot.percentiles())).unwrap_or_default();
        Self {
            address,
            admin: admin.unwrap_or_default(),
            state,
            failure,
            kind,
            version: version.unwrap_or_default(),
            uptime: snapshot.as_ref().map_or(0.0, |snapshot| snapshot.uptime),
            weight,
            connections: snapshot.as_ref().map_or(0, |snapshot| snapshot.connections),
            per_second: rates.0,
            errors_per_second: rates.1,
            in_flight: snapshot.as_ref().map_or(0, |snapshot| snapshot.in_flight()),
            p50: percentiles.0,
            p99: percentiles.1,
            outlier,
            order,
        }
    }

    fn kind(&self) -> &'static str {
        match self.kind {
            Some(Kind::PolyRpc) => "PolyRPC",
            Some(Kind::Brpc) => "brpc's pages",
            None => "-",
        }
    }

    /// Returns notable differences.
    fn remark(&self) -> String {
        let order = self.order.as_ref().map(|order| format!("drain: {order}"));
        let all = [self.failure.clone(), self.outlier.clone(), order];
        all.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl MethodRow {
    fn new(method: MergedMethod) -> Self {
        let MergedMethod { name, servers, per_second, errors_per_second, in_flight, percentiles, without } =
            method;
        Self { name, servers, per_second, errors_per_second, in_flight, percentiles, without }
    }

    fn percentile(&self, at: usize) -> String {
        let percentile = self.percentiles.and_then(|percentiles| percentiles.get(at).copied());
        percentile.map_or_else(|| "-".to_owned(), |percentile| percentile.to_string())
    }
}

impl Document for Servers {
    const NAME: &'static str = "fleet";
    const TITLE: &'static str = "Servers of a registry";

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line("registry", &self.registry);
        if let Some(failure) = &self.failure {
            text.line("registry_failure", failure);
        }
        text.line("server_count", self.servers.len() + self.left_out)
            .line("reachable", self.reachable)
            .line("ready", self.ready);
        text.raw("Address               |State       |Pages        |Version     |Qps     |Eps     |P50(us) |P99(us) |Remark\n");
        for row in &self.servers {
            text.column(&row.address, 22).raw("|").column(row.state, 12).raw("|").column(row.kind(), 13);
            text.raw("|").column(&row.version, 12).raw("|").column(format_args!("{:.0}", row.per_second), 8);
            text.raw("|").column(format_args!("{:.0}", row.errors_per_second), 8).raw("|");
            text.column(row.p50, 8).raw("|").column(row.p99, 8).raw("|").value(row.remark()).raw("\n");
        }
        text.raw("\nMethod (servers): qps eps p50 p90 p99 p99.9 (us)\n");
        for method in &self.methods {
            text.value(&method.name).raw(" (").value(method.servers).raw("): ");
            text.value(format_args!("{:.0} {:.0}", method.per_second, method.errors_per_second));
            for at in 0..4 {
                text.raw(" ").value(method.percentile(at));
            }
            text.raw("\n");
        }
        for (version, servers) in &self.versions {
            text.raw("version ").value(version).raw(": ").value(servers.join(" ")).raw("\n");
        }
        for (name, values) in &self.skews {
            for (value, servers) in values {
                text.raw("setting ").value(name).raw(" = ").value(value).raw(": ");
                text.value(servers.join(" ")).raw("\n");
            }
        }
        let name = |index: usize| self.calls.nodes.get(index).map_or("", |node| &node.name);
        for edge in &self.calls.edges {
            text.raw("calls ").value(name(edge.caller)).raw(" -> ").value(name(edge.callee)).raw(": ");
            text.value(format_args!("{:.1} {:.1}", edge.per_second, edge.failures_per_second)).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        if let Some(failure) = &self.failure {
            html.raw("<p role=alert>The registry cannot be read: ").text(failure).raw("</p>");
        }
        self.server_table(&mut html);
        self.method_table(&mut html);
        self.call_table(&mut html);
        html.table("Versions", &["Version", "Servers"]);
        for (version, servers) in &self.versions {
            html.row(version, servers.join(", "));
        }
        html.end_table().table("Settings that differ", &["Setting", "Value", "Servers"]);
        for (name, values) in &self.skews {
            for (value, servers) in values {
                html.raw("<tr><th scope=row>").text(name).raw("</th>").cell(value).cell(servers.join(", "));
                html.raw("</tr>");
            }
        }
        html.end_table();
        html
    }
}

impl Servers {
    /// Adds the graph of calls, if any client of the servers is observed.
    fn call_table(&self, html: &mut Html) {
        html.raw("<h2>Who calls whom</h2>");
        if self.calls.links.is_empty() {
            html.raw(
                "<p>No server tells which others it calls: its program shows its clients to its console by ",
            )
            .raw("<code>Console::observe_client</code>.</p>");
            return;
        }
        graph::draw(html, &self.calls);
        html.table(
            "Calls from server to server",
            &[
                "Caller",
                "Server that is called",
                "Client",
                "Protocol",
                "Calls/s",
                "Failed/s",
                "Under way",
                "Calls",
            ],
        );
        for link in &self.calls.links {
            html.raw("<tr><th scope=row>").text(&link.caller).raw("</th><td>").text(&link.callee);
            html.raw(if link.is_listed { "</td>" } else { " (not in the registry)</td>" });
            html.cell(&link.client).cell(&link.protocol).number(format_args!("{:.1}", link.per_second));
            html.number(format_args!("{:.1}", link.failures_per_second));
            html.number(link.in_flight).number(link.attempts).raw("</tr>");
        }
        html.end_table();
    }

    fn server_table(&self, html: &mut Html) {
        if let Some(token) = &self.form_token {
            html.raw("<form method=post action=/fleet><input type=hidden name=token value=\"").text(token);
            html.raw("\">");
        }
        let caption = format_args!(
            "{}: {}, {} reachable, {} ready",
            self.registry,
            format_count(self.servers.len() + self.left_out, "server"),
            self.reachable,
            self.ready
        );
        html.table(
            caption,
            &[
                "Server",
                "State",
                "Pages",
                "Version",
                "Up",
                "Weight",
                "Connections",
                "Calls/s",
                "Failed/s",
                "Under way",
                "p50 µs",
                "p99 µs",
                "Remark",
                "Drain",
            ],
        );
        for row in &self.servers {
            html.raw("<tr><th scope=row>").text(&row.address).raw("</th>").cell(row.state).cell(row.kind());
            html.cell(&row.version).number(format_args!("{:.0} s", row.uptime));
            html.number(row.weight.as_deref().unwrap_or("")).number(row.connections);
            html.number(format_args!("{:.1}", row.per_second));
            html.number(format_args!("{:.1}", row.errors_per_second)).number(row.in_flight);
            html.number(row.p50).number(row.p99).cell(row.remark()).raw("<td>");
            if self.form_token.is_some() && row.kind == Some(Kind::PolyRpc) {
                for (name, label) in [("drain", "Drain"), ("serve", "Serve")] {
                    html.raw("<button name=").raw(name).raw(" value=\"").text(&row.address);
                    html.raw("\" aria-label=\"").raw(label).raw(" ").text(&row.address);
                    html.raw("\">").raw(label).raw("</button> ");
                }
            }
            html.raw("</td></tr>");
        }
        html.end_table().raw(if self.form_token.is_some() { "</form>" } else { "" });
    }

    fn method_table(&self, html: &mut Html) {
        html.table(
            "Methods over all servers; percentiles are those of all calls of servers that send histograms",
            &[
                "Method",
                "Servers",
                "Calls/s",
                "Failed/s",
                "Under way",
                "p50 µs",
                "p90 µs",
                "p99 µs",
                "p99.9 µs",
                "Without",
            ],
        );
        for method in &self.methods {
            html.raw("<tr><th scope=row>").text(&method.name).raw("</th>").number(method.servers);
            html.number(format_args!("{:.1}", method.per_second));
            html.number(format_args!("{:.1}", method.errors_per_second)).number(method.in_flight);
            for at in 0..4 {
                html.number(method.percentile(at));
            }
            html.number(method.without).raw("</tr>");
        }
        html.end_table();
    }
}

//! `/channels`: the calls of this process to other servers.

use polyrpc::client::EndpointInfo;
use polyrpc::layer::Side;
use polyrpc::layers::{MethodStats, Metrics};
use serde::Serialize;

use super::layout::{Document, render};
use crate::console::{NamedClient, State};
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::stats::micros;
use crate::text::{Text, format_count};

#[derive(Serialize)]
struct Channels {
    clients: Vec<ClientRow>,
    methods: Vec<Row>,
}

/// A client, and the servers that discovery found for it.
#[derive(Serialize)]
struct ClientRow {
    name: String,
    protocol: &'static str,
    servers: Vec<ServerRow>,
}

/// A server of a client.
#[derive(Serialize)]
struct ServerRow {
    address: String,
    attributes: String,
    /// Whether calls go there now.
    available: bool,
    /// Whether its circuit breaker has ejected it.
    isolated: bool,
    in_flight: usize,
    attempts: u64,
    failures: u64,
}

/// A method that is called. Durations are in microseconds, over all calls.
#[derive(Serialize)]
struct Row {
    name: String,
    protocol: &'static str,
    started: u64,
    succeeded: u64,
    failed: u64,
    in_flight: u64,
    latency: u64,
    latency_99: u64,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let clients = state.clients().iter().map(|client| ClientRow::new(client)).collect();
    let metrics = state.metrics();
    let methods = metrics.iter().flat_map(Metrics::methods).filter(|method| method.side == Side::Client);
    render(request, &Channels { clients, methods: methods.map(|method| Row::new(&method)).collect() })
}

impl ClientRow {
    fn new(observed: &NamedClient) -> Self {
        let servers = observed.client.endpoints();
        let protocol = observed.client.protocol().as_str();
        Self { name: observed.name.clone(), protocol, servers: servers.iter().map(ServerRow::new).collect() }
    }
}

impl ServerRow {
    fn new(info: &EndpointInfo) -> Self {
        let shown = |name: &&str| info.instance.attributes.value(name).map(|value| format!("{name}={value}"));
        let attributes: Vec<String> = ATTRIBUTES.iter().filter_map(shown).collect();
        Self {
            address: format!("{}@{}", info.instance.network, info.instance.address),
            attributes: attributes.join(" "),
            available: info.available,
            isolated: info.ejected,
            in_flight: info.in_flight,
            attempts: info.attempts,
            failures: info.failed_attempts,
        }
    }

    fn state(&self) -> &'static str {
        match (self.isolated, self.available) {
            (true, _) => "ejected",
            (false, true) => "available",
            (false, false) => "unavailable",
        }
    }
}

/// Attributes of servers that are shown; others may be secret.
const ATTRIBUTES: [&str; 5] = ["weight", "group", "state", "tag", "version"];

impl Row {
    fn new(method: &MethodStats) -> Self {
        let slash = if method.service.is_empty() { "" } else { "/" };
        Self {
            name: format!("{}{slash}{}", method.service, method.method),
            protocol: method.protocol,
            started: method.started,
            succeeded: method.succeeded,
            failed: method.failed,
            in_flight: method.in_flight(),
            latency: micros(method.average),
            latency_99: micros(method.quantile(0.99)),
        }
    }
}

impl Document for Channels {
    const NAME: &'static str = "channels";
    const TITLE: &'static str = "Channels";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for client in &self.clients {
            text.raw("[").value(&client.name).raw(" by ").value(client.protocol).raw("]\n");
            for server in &client.servers {
                text.value(&server.address).raw(" ").raw(server.state());
                text.raw(" calls=").value(server.attempts).raw(" failed=").value(server.failures);
                text.raw(" concurrency=")
                    .value(server.in_flight)
                    .raw(" ")
                    .value(&server.attributes)
                    .raw("\n");
            }
            text.raw("\n");
        }
        text.line("called_method_count", self.methods.len()).raw("\n");
        for row in &self.methods {
            text.raw("[").value(&row.name).raw(" by ").value(row.protocol).raw("]\n");
            text.line("count", row.succeeded)
                .line("error", row.failed)
                .line("latency", row.latency)
                .line("latency_99", row.latency_99)
                .line("concurrency", row.in_flight)
                .raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        for client in &self.clients {
            let caption = format_args!(
                "{} by {}: {}",
                client.name,
                client.protocol,
                format_count(client.servers.len(), "server")
            );
            html.table(caption, &["Server", "State", "Attributes", "Attempts", "Failed", "Under way"]);
            for server in &client.servers {
                html.raw("<tr><th scope=row>").text(&server.address).raw("</th>").cell(server.state());
                html.cell(&server.attributes).number(server.attempts).number(server.failures);
                html.number(server.in_flight).raw("</tr>");
            }
            html.end_table();
        }
        let columns = ["Method", "Protocol", "Calls", "Errors", "Under way", "Mean µs", "99 %"];
        html.table("Methods that this process calls", &columns);
        for row in &self.methods {
            html.raw("<tr><th scope=row>").text(&row.name).raw("</th>").cell(row.protocol);
            html.number(row.succeeded).number(row.failed).number(row.in_flight);
            html.number(row.latency).number(row.latency_99).raw("</tr>");
        }
        html.end_table();
        html
    }
}

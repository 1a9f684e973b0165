//! `/connections`: connections with their peers, protocols and traffic.

use std::time::{Duration, Instant, SystemTime};

use polyrpc::introspection::Connection;
use serde::Serialize;

use super::layout::{Document, failure, render};
use crate::console::State;
use crate::history::ConnectionRates;
use crate::html::Html;
use crate::observed::ObservedServer;
use crate::reply::{Reply, TEXT};
use crate::request::{PageRequest, Verb};
use crate::text::Text;
use crate::time::Date;

#[derive(Serialize)]
struct Connections {
    server_connection_count: usize,
    /// Those that the page shows.
    connections: Vec<Row>,
    #[serde(skip)]
    view: View,
    #[serde(skip)]
    form_token: Option<String>,
}

/// Which connections a page shows.
#[derive(Default)]
struct View {
    filter: String,
    sort: String,
    page: usize,
    /// How many pages there are.
    pages: usize,
}

/// A connection.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) id: u64,
    #[serde(skip)]
    created: SystemTime,
    age_seconds: f64,
    pub(super) server: String,
    pub(super) remote: String,
    tls: Option<&'static str>,
    protocol: Option<&'static str>,
    calls: u64,
    failed: u64,
    in_flight: u64,
    received: u64,
    sent: u64,
    held: usize,
    idle_seconds: Option<f64>,
    rates: ConnectionRates,
}

/// How many rows are shown unless all are wanted: brpc's `max_shown_connections`.
const MAX_SHOWN: usize = 1024;

/// Maximum number of rows of a page that shows all: other requests wait until it is written.
const MAX_SHOWN_TOGETHER: usize = 10_000;

/// Sort keys of connections, with their names on the page.
const SORTS: [(&str, &str); 6] = [
    ("", "Id"),
    ("remote", "Remote"),
    ("calls", "Calls"),
    ("received", "Received"),
    ("sent", "Sent"),
    ("held", "Held"),
];

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    if request.verb == Verb::Post {
        return order(state, request);
    }
    let (total, mut rows) = rows(state);
    if let Some(filter) = request.parameter("filter") {
        rows.retain(|row| {
            row.remote.contains(filter) || row.protocol.is_some_and(|name| name.contains(filter))
        });
    }
    match request.parameter("sort") {
        Some("remote") => rows.sort_by(|one, other| one.remote.cmp(&other.remote)),
        Some("received") => rows.sort_by_key(|row| std::cmp::Reverse(row.received)),
        Some("sent") => rows.sort_by_key(|row| std::cmp::Reverse(row.sent)),
        Some("calls") => rows.sort_by_key(|row| std::cmp::Reverse(row.calls)),
        Some("held") => rows.sort_by_key(|row| std::cmp::Reverse(row.held)),
        _ => rows.sort_by_key(|row| row.id),
    }
    let given = |name| request.parameter(name).unwrap_or_default().to_owned();
    let mut view = View { filter: given("filter"), sort: given("sort"), page: 0, pages: 1 };
    if request.parameter("givemeall").is_none() {
        view.page = usize::try_from(request.number("page").unwrap_or(0)).unwrap_or(usize::MAX);
        view.pages = rows.len().div_ceil(MAX_SHOWN);
        rows = rows.into_iter().skip(view.page.saturating_mul(MAX_SHOWN)).take(MAX_SHOWN).collect();
    }
    rows.truncate(MAX_SHOWN_TOGETHER);
    let form_token = super::change_token(state, request);
    render(request, &Connections { server_connection_count: total, connections: rows, view, form_token })
}

impl View {
    /// Adds the form of a search.
    fn write_form(&self, html: &mut Html) {
        html.raw("<form method=get action=/connections role=search><label>Address or protocol ");
        html.raw("<input name=filter value=\"")
            .text(&self.filter)
            .raw("\"></label> <label>By <select name=sort>");
        for (sort, label) in SORTS {
            html.raw("<option value=\"").raw(sort).raw(if sort == self.sort {
                "\" selected>"
            } else {
                "\">"
            });
            html.raw(label).raw("</option>");
        }
        html.raw("</select></label> <button>Search</button></form>");
    }

    /// Adds links to the pages before and after this one.
    fn write_links(&self, html: &mut Html) {
        if self.pages < 2 {
            return;
        }
        html.raw("<p>Page ").text(self.page.saturating_add(1)).raw(" of ").text(self.pages);
        let earlier = self.page.checked_sub(1).map(|page| page.min(self.pages - 1));
        let later = self.page.checked_add(1).filter(|page| *page < self.pages);
        for (page, label) in [(earlier, "Previous"), (later, "Next")] {
            if let Some(page) = page {
                html.raw(" <a href=\"/connections?page=")
                    .text(page)
                    .raw("&amp;filter=")
                    .segment(&self.filter);
                html.raw("&amp;sort=").segment(&self.sort).raw("\">").raw(label).raw("</a>");
            }
        }
        html.raw("</p>");
    }
}

/// How a connection ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// At once.
    Close,
    /// Once its calls are finished.
    Drain,
}

/// Ends the connection that a button of the page names.
fn order(state: &State, request: &PageRequest) -> Reply {
    let button = |name| request.number(name);
    let (id, end) = match (button("close"), button("drain")) {
        (Some(id), None) => (id, End::Close),
        (None, Some(id)) => (id, End::Drain),
        _ => return failure(request, 400, "close or drain is the id of a connection"),
    };
    match find(state, id) {
        Some(row) => end_connection(state, request, &row, end),
        None => failure(request, 404, "There is no such connection."),
    }
}

/// Ends a connection. The caller's role was checked.
pub(super) fn end_connection(state: &State, request: &PageRequest, row: &Row, end: End) -> Reply {
    let server = state.servers().into_iter().find(|server| server.id == row.id / PER_SERVER);
    let Some(server) = server else {
        return failure(request, 404, "There is no such connection.");
    };
    let (author, id, remote) = (request.caller.name.as_str(), row.id % PER_SERVER, row.remote.as_str());
    tracing::info!(author, connection = id, remote, ?end, "a connection is closed");
    let is_open = match end {
        End::Close => server.monitor.close_connection(id),
        End::Drain => server.monitor.drain_connection(id),
    };
    match is_open {
        true => Reply::new(303, TEXT, "done\n").with("location", "/connections"),
        false => failure(request, 404, "There is no such connection."),
    }
}

/// Returns the number of connections, and all of them.
fn rows(state: &State) -> (usize, Vec<Row>) {
    let (now, mut rows) = (Instant::now(), Vec::new());
    let servers: Vec<_> = state
        .servers()
        .into_iter()
        .filter_map(|server| server.monitor.info().map(|info| (server, info.connections)))
        .collect();
    let mut history = state.history();
    history.connections.view(now);
    for (server, connections) in &servers {
        for connection in connections {
            let rates = history.connections.rates(server.id, connection, now);
            rows.push(Row::new(server, connection, rates));
        }
    }
    (rows.len(), rows)
}

/// Returns one connection.
pub(super) fn find(state: &State, id: u64) -> Option<Row> {
    rows(state).1.into_iter().find(|row| row.id == id)
}

/// Numbers of connections are unique within a server; this makes them unique within the process.
const PER_SERVER: u64 = 1 << 40;

impl Row {
    fn new(server: &ObservedServer, connection: &Connection, rates: ConnectionRates) -> Self {
        let seconds = |duration: Duration| duration.as_secs_f64();
        Self {
            id: server.id * PER_SERVER + connection.id,
            created: SystemTime::now().checked_sub(connection.age).unwrap_or(SystemTime::UNIX_EPOCH),
            age_seconds: seconds(connection.age),
            server: server.address(),
            remote: connection.peer.to_string(),
            tls: connection.peer.tls().map(|tls| tls.version()),
            protocol: connection.protocol.map(|protocol| protocol.as_str()),
            calls: connection.calls.started,
            failed: connection.calls.failed,
            in_flight: connection.calls.in_flight(),
            received: connection.received,
            sent: connection.sent,
            held: connection.buffered_bytes,
            idle_seconds: connection.idle.map(seconds),
            rates,
        }
    }

    /// Returns the facts as text, for the page of one connection.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("server", self.server.clone()),
            ("remote_side", self.remote.clone()),
            ("created", Date(self.created).to_string()),
            ("ssl", self.tls.unwrap_or("No").to_owned()),
            ("protocol", self.protocol.unwrap_or("unknown").to_owned()),
            ("calls", self.calls.to_string()),
            ("failed_calls", self.failed.to_string()),
            ("calls_in_flight", self.in_flight.to_string()),
            ("received_bytes", self.received.to_string()),
            ("sent_bytes", self.sent.to_string()),
            ("held_bytes", self.held.to_string()),
            ("idle_seconds", self.idle_seconds.map_or_else(|| "busy".to_owned(), |idle| idle.to_string())),
        ]
    }
}

impl Document for Connections {
    const NAME: &'static str = "connections";
    const TITLE: &'static str = "Connections";

    /// As `builtin/connections_service.cpp` writes it. The number of the socket and its round-trip time are not known.
    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line("server_connection_count", self.server_connection_count);
        text.raw("CreatedTime               |RemoteSide         |SSL|Protocol    |fd   |InBytes/s|In/s  |")
            .raw("InBytes/m |In/m    |OutBytes/s|Out/s |OutBytes/m|Out/m   |Rtt/Var(ms)|SocketId\n");
        for row in &self.connections {
            let rates = &row.rates;
            text.column(format_args!("{:#}", Date(row.created)), 26)
                .raw("|")
                .column(&row.remote, 19)
                .raw("|");
            text.column(if row.tls.is_some() { "Yes" } else { "No" }, 3).raw("|");
            text.column(row.protocol.unwrap_or("unknown"), 12).raw("|").column("-", 5).raw("|");
            for (value, width) in [
                (rates.received_second, 9),
                (rates.calls_second, 6),
                (rates.received_minute, 10),
                (rates.calls_minute, 8),
                (rates.sent_second, 10),
                (rates.answers_second, 6),
                (rates.sent_minute, 10),
                (rates.answers_minute, 8),
            ] {
                text.column(value, width).raw("|");
            }
            text.column("-", 11).raw("|").value(row.id).raw("\n");
        }
        text.raw("\nchannel_connection_count: 0\n");
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        self.view.write_form(&mut html);
        self.view.write_links(&mut html);
        if let Some(token) = &self.form_token {
            html.raw("<form method=post action=/connections><input type=hidden name=token value=\"");
            html.text(token).raw("\">");
        }
        html.table(
            format_args!("{} of {} connections", self.connections.len(), self.server_connection_count),
            &[
                "Remote",
                "Protocol",
                "TLS",
                "Age",
                "Calls",
                "Failed",
                "Under way",
                "Calls/s",
                "Received",
                "Received/s",
                "Sent",
                "Sent/s",
                "Held",
                "Id",
                "End",
            ],
        );
        for row in &self.connections {
            html.raw("<tr><th scope=row>").text(&row.remote).raw("</th>");
            html.cell(row.protocol.unwrap_or("unknown")).cell(row.tls.unwrap_or("no"));
            html.number(format_args!("{:.0} s", row.age_seconds));
            html.number(row.calls).number(row.failed).number(row.in_flight).number(row.rates.calls_second);
            html.number(row.received).number(row.rates.received_second);
            html.number(row.sent).number(row.rates.sent_second).number(row.held);
            html.raw("<td><a href=\"/sockets/").text(row.id).raw("\">").text(row.id).raw("</a></td><td>");
            if self.form_token.is_some() {
                for (name, label) in [("drain", "Drain"), ("close", "Close")] {
                    html.raw("<button name=").raw(name).raw(" value=").text(row.id);
                    html.raw(" aria-label=\"").raw(label).raw(" ").text(&row.remote);
                    html.raw("\">").raw(label).raw("</button> ");
                }
            }
            html.raw("</td></tr>");
        }
        html.end_table().raw(if self.form_token.is_some() { "</form>" } else { "" });
        html
    }
}

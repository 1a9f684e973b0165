//! `/ids`: the calls in flight.

use serde::Serialize;

use super::layout::{Document, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::stats::{MethodStats, ServerStats};
use crate::text::Text;

#[derive(Serialize)]
struct Calls {
    servers: Vec<Server>,
}

#[derive(Serialize)]
struct Server {
    address: String,
    started: u64,
    succeeded: u64,
    failed: u64,
    in_flight: u64,
    /// Calls whose handlers wait, and open streams.
    pending: usize,
    streams: usize,
    methods: Vec<(String, u64)>,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let server = |stats: &ServerStats| {
        let under_way = stats.methods().filter(|method| method.in_flight() > 0);
        let name = |method: &MethodStats| {
            let slash = if method.info.service.is_empty() { "" } else { "/" };
            format!("{}{slash}{}", method.info.service, method.info.name)
        };
        let calls = stats.load.calls;
        Server {
            address: stats.server.address(),
            started: calls.started,
            succeeded: calls.succeeded,
            failed: calls.failed,
            in_flight: calls.in_flight(),
            pending: stats.load.pending_calls,
            streams: stats.load.open_streams,
            methods: under_way.map(|method| (name(method), method.in_flight())).collect(),
        }
    };
    render(request, &Calls { servers: state.stats().iter().map(server).collect() })
}

impl Document for Calls {
    const NAME: &'static str = "ids";
    const TITLE: &'static str = "Calls under way";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for server in &self.servers {
            text.raw("# ").value(&server.address).raw("\n");
            text.line("started", server.started)
                .line("succeeded", server.succeeded)
                .line("failed", server.failed)
                .line("in_flight", server.in_flight)
                .line("pending_handlers", server.pending)
                .line("open_streams", server.streams);
            for (name, count) in &server.methods {
                text.value(name).raw(": ").value(count).raw("\n");
            }
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        for server in &self.servers {
            html.table(&server.address, &["Name", "Value"]);
            html.row("Started", server.started)
                .row("Succeeded", server.succeeded)
                .row("Failed", server.failed)
                .row("Under way", server.in_flight)
                .row("Pending handlers", server.pending)
                .row("Open streams", server.streams);
            for (name, count) in &server.methods {
                html.row(name, count);
            }
            html.end_table();
        }
        html
    }
}

//! `/channels`: the calls of this process to other servers.

use polyrpc::layer::Side;
use polyrpc::layers::{Method, Metrics};
use serde::Serialize;

use super::layout::{Document, written};
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::stats::micros;
use crate::text::Text;

#[derive(Serialize)]
struct Channels {
    methods: Vec<Row>,
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
    let metrics = state.metrics();
    let methods = metrics.iter().flat_map(Metrics::methods).filter(|method| method.side == Side::Client);
    written(request, &Channels { methods: methods.map(|method| Row::of(&method)).collect() })
}

impl Row {
    fn of(method: &Method) -> Self {
        let slash = if method.service.is_empty() { "" } else { "/" };
        Self {
            name: format!("{}{slash}{}", method.service, method.method),
            protocol: method.protocol,
            started: method.started,
            succeeded: method.succeeded,
            failed: method.failed,
            in_flight: method.in_flight(),
            latency: micros(method.average),
            latency_99: micros(method.percentile(0.99)),
        }
    }
}

impl Document for Channels {
    const NAME: &'static str = "channels";
    const TITLE: &'static str = "Channels";

    fn text(&self) -> Text {
        let mut text = Text::default();
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

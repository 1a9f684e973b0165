//! `/rpcz`: recorded calls, and the spans of a trace.

mod export;
mod row;

mod trace;

use std::sync::Arc;
use std::time::Duration;

use polyrpc::layer::Side;
use serde::Serialize;

use self::row::Row;
use self::trace::Trace;
use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::{JSON, Reply, TEXT};
use crate::request::{PageFormat, PageRequest, Verb};
use crate::settings;
use crate::spans::{Search, Span, collector, rpcz_settings};
use crate::text::Text;
use crate::time;

/// The latest spans that a search accepts.
#[derive(Serialize)]
struct Spans {
    enabled: bool,
    /// How many spans there are.
    total: usize,
    spans: Vec<Row>,
    #[serde(skip)]
    search: [(&'static str, &'static str, String); 6],
    /// Whether only calls that failed are shown.
    #[serde(skip)]
    failed: bool,
}

/// How many spans are shown, and how many may be: other requests wait until a page is written.
const SHOWN: u64 = 100;
const MAX_SHOWN_SPANS: u64 = 1_000;

/// How many spans are exported for programs.
const MAX_EXPORTED_SPANS: u64 = 10_000;

/// How many spans of a trace are shown.
const OF_TRACE: usize = 1_000;

pub(super) fn answer(_: &State, request: &PageRequest) -> Reply {
    match request.segment(1) {
        Some("enable") => return switch(request, "true"),
        Some("disable") => return switch(request, "false"),
        Some(_) => return failure(request, 404, "There is no such page."),
        None if request.verb == Verb::Post => return failure(request, 405, "This page is only read."),
        None => {}
    }
    if let Some(id) = request.parameter("trace") {
        return trace_page(request, id);
    }
    let (Some(search), Some(shown)) = (search(request), number(request, "max_scan", SHOWN)) else {
        return failure(
            request,
            400,
            "A parameter is invalid: time is 2026/11/20-21:47:00, side client or server; the others are numbers.",
        );
    };
    let all = collector().spans();
    let is_for_programs = request.format == PageFormat::Json || exporter(request).is_some();
    let max = if is_for_programs { MAX_EXPORTED_SPANS } else { MAX_SHOWN_SPANS };
    let shown = shown.min(max) as usize;
    let found: Vec<_> = all.iter().filter(|span| search.accepts(span)).take(shown).cloned().collect();
    if let Some(exported) = export_spans(request, &found) {
        return exported;
    }
    let parameter = |name| request.parameter(name).unwrap_or_default().to_owned();
    let fields = [
        ("method", "Method contains"),
        ("protocol", "Protocol"),
        ("peer", "Peer contains"),
        ("min_latency", "At least µs"),
        ("error_code", "Error"),
        ("time", "Until"),
    ];
    let spans = Spans {
        enabled: rpcz_settings().enabled.get(),
        total: all.len(),
        spans: found.iter().map(|span| Row::new(span)).collect(),
        search: fields.map(|(name, label)| (name, label, parameter(name))),
        failed: search.failed,
    };
    render(request, &spans)
}

/// Returns a parameter that is a number, or what it is usually; `None` if it is something else.
fn number(request: &PageRequest, name: &str, usual: u64) -> Option<u64> {
    match request.parameter(name).filter(|value| !value.is_empty()) {
        None => Some(usual),
        Some(text) => text.parse().ok(),
    }
}

/// Starts or stops recording calls. The caller's role was checked.
fn switch(request: &PageRequest, on: &str) -> Reply {
    match settings::change("enable_rpcz", on, &request.caller.name, None) {
        Ok(_) if request.format == PageFormat::Html => {
            Reply::new(303, TEXT, "done\n").with("location", "/rpcz")
        }
        Ok(_) if on == "true" => Reply::new(200, TEXT, "rpcz is enabled\n"),
        Ok(_) => Reply::new(200, TEXT, "rpcz is disabled\n"),
        Err(_) => failure(request, 409, "The setting enable_rpcz cannot be changed."),
    }
}

fn trace_page(request: &PageRequest, id: &str) -> Reply {
    // Rust's own conversion accepts a sign, too.
    let is_id = id.len() <= 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
    // The half that every peer knows.
    let low = u128::from_str_radix(id, 16).ok().filter(|_| is_id).map(|id| id as u64);
    let Some(low) = low else {
        return failure(request, 400, "trace is a number of up to 32 hexadecimal digits.");
    };
    let all = collector().spans();
    let spans: Vec<_> = all.into_iter().filter(|span| span.trace_low() == low).take(OF_TRACE).collect();
    if spans.is_empty() {
        return failure(request, 404, "No call of this trace is known.");
    }
    match export_spans(request, &spans) {
        Some(exported) => exported,
        None => render(request, &Trace::new(spans)),
    }
}

/// Returns spans in the format of another program, if the request names one.
fn export_spans(request: &PageRequest, spans: &[Arc<Span>]) -> Option<Reply> {
    let export = exporter(request)?;
    Some(Reply::new(200, JSON, export(spans).to_string()))
}

/// Returns what writes the format of another program that the request names.
fn exporter(request: &PageRequest) -> Option<fn(&[Arc<Span>]) -> serde_json::Value> {
    match request.parameter("format")? {
        "otlp" => Some(export::otlp),
        "chrome" => Some(export::chrome),
        _ => None,
    }
}

/// Reads the search parameters; `None` if one is invalid.
fn search(request: &PageRequest) -> Option<Search> {
    let given = |name| request.parameter(name).filter(|value| !value.is_empty());
    let size = |name| Some(usize::try_from(number(request, name, 0)?).unwrap_or(usize::MAX));
    let until = match given("time") {
        // A second later: spans are shown with more digits than are typed.
        Some(text) => Some(time::parse(text)? + Duration::from_secs(u64::from(!text.contains('.')))),
        None => None,
    };
    let side = match given("side") {
        None => None,
        Some("client" | "C") => Some(Side::Client),
        Some("server" | "S") => Some(Side::Server),
        Some(_) => return None,
    };
    Some(Search {
        until,
        min_latency: Duration::from_micros(number(request, "min_latency", 0)?),
        min_request: size("min_request_size")?,
        min_reply: size("min_response_size")?,
        log_id: given("log_id").map(str::parse).transpose().ok()?,
        error: given("error_code").map(str::to_owned),
        failed: request.parameter("failed").is_some(),
        side,
        method: given("method").map(str::to_owned),
        protocol: given("protocol").map(str::to_owned),
        peer: given("peer").map(str::to_owned),
    })
}

impl Document for Spans {
    const NAME: &'static str = "rpcz";
    const TITLE: &'static str = "Recorded calls";

    /// As `builtin/rpcz_service.cpp` writes it.
    fn text(&self) -> Text {
        let mut text = Text::default();
        if !self.enabled {
            text.raw("rpcz is not enabled yet. You can turn on/off rpcz by accessing /rpcz/enable and /rpcz/disable respectively.\n");
        }
        for row in &self.spans {
            row.write(&mut text);
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        if !self.enabled {
            html.raw("<p role=note>Calls are not recorded: the setting enable_rpcz is off.</p>");
        }
        html.raw("<form method=get action=/rpcz role=search>");
        for (name, label, value) in &self.search {
            html.raw("<label>").raw(label).raw(" <input name=").raw(name).raw(" value=\"").text(value);
            html.raw("\"></label> ");
        }
        html.raw("<label><input type=checkbox name=failed").raw(if self.failed { " checked>" } else { ">" });
        html.raw(" Failed</label> <button>Search</button></form>");
        let caption = format_args!("{} of {} recorded calls, the latest first", self.spans.len(), self.total);
        html.table(
            caption,
            &["Time", "Method", "Side", "Protocol", "Peer", "µs", "Phases", "Request", "Reply", "Result"],
        );
        for row in &self.spans {
            row.write_html(&mut html);
        }
        html.end_table();
        html
    }
}

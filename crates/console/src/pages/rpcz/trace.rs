use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::row::Row;
use crate::html::Html;
use crate::pages::layout::Document;
use crate::spans::{Node, Span, tree};
use crate::stats::micros;
use crate::text::Text;

/// The spans of a trace, in the order of a waterfall.
#[derive(Serialize)]
pub(super) struct Trace {
    id: String,
    /// From the first beginning to the last end, in microseconds.
    took: u64,
    spans: Vec<TraceSpan>,
}

/// A span of a trace.
#[derive(Serialize)]
struct TraceSpan {
    #[serde(flatten)]
    row: Row,
    /// How many spans it is within.
    depth: usize,
    /// Microseconds since the first span began.
    start: u64,
    /// Whether the end of the trace waited for it.
    critical: bool,
}

impl Trace {
    pub(super) fn new(spans: Vec<Arc<Span>>) -> Self {
        let began = spans.iter().map(|span| span.began).min().unwrap_or(SystemTime::UNIX_EPOCH);
        let end = spans.iter().map(|span| span.end()).max().unwrap_or(began);
        let widest = spans.iter().max_by_key(|span| span.trace);
        let id = widest.map(|span| Row::new(span).trace).unwrap_or_default();
        let mut flat = Vec::with_capacity(spans.len());
        flatten(&tree(spans), 0, began, &mut flat);
        let took = end.duration_since(began).map_or(0, micros);
        Self { id, took, spans: flat }
    }
}

fn flatten(nodes: &[Node], depth: usize, began: SystemTime, out: &mut Vec<TraceSpan>) {
    for Node { span, children, is_critical } in nodes {
        let start = span.began.duration_since(began).map_or(0, micros);
        out.push(TraceSpan { row: Row::new(span), depth, start, critical: *is_critical });
        flatten(children, depth + 1, began, out);
    }
}

/// Depth to which spans are indented.
const DEEP: usize = 24;

/// Width of the waterfall in its own units.
const WIDTH: f64 = 1000.0;

impl Document for Trace {
    const NAME: &'static str = "rpcz";
    const TITLE: &'static str = "Trace";

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.raw("trace=").value(&self.id).raw(" took ").value(self.took).raw(" us\n");
        for span in &self.spans {
            let row = &span.row;
            text.column(span.start, 9).raw(if span.critical { "* " } else { "  " });
            for _ in 0..span.depth.min(DEEP) {
                text.raw("  ");
            }
            text.value(row.side).raw(" ").value(row.protocol).raw(" ").value(&row.name).raw(" ");
            text.value(row.took).raw(" us, ").value(&row.peer).raw(" [").value(row.result()).raw("]\n");
            for phase in &row.phases {
                self.indent(&mut text, span.depth);
                text.value(phase.name).raw(" ").value(phase.took).raw(" us\n");
            }
            for note in &row.notes {
                self.indent(&mut text, span.depth);
                text.value(note.at).raw(" us: ").value(&note.text).raw("\n");
            }
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<p>Trace ")
            .text(&self.id)
            .raw(": ")
            .text(self.took)
            .raw(" µs. Calls that its end waited for are marked ●. ");
        for (format, label) in [("otlp", "OpenTelemetry's JSON"), ("chrome", "Chrome's trace")] {
            html.raw("<a href=\"/rpcz?trace=").segment(&self.id).raw("&amp;format=").raw(format).raw("\">");
            html.raw(label).raw("</a> ");
        }
        html.raw("</p><p>");
        for (class, label) in LEGEND {
            html.raw("<svg class=key viewBox=\"0 0 12 12\" aria-hidden=true><rect class=").raw(class);
            html.raw(" width=12 height=12 /></svg> ").raw(label).raw(" ");
        }
        html.raw("</p>");
        html.table("Calls", &["Call", "Side", "Protocol", "Peer", "Start µs", "µs", "Waterfall", "Result"]);
        for span in &self.spans {
            self.write_row(span, &mut html);
        }
        html.end_table();
        self.write_notes(&mut html);
        html
    }
}

impl Trace {
    fn indent(&self, text: &mut Text, depth: usize) {
        text.column("", 13);
        for _ in 0..depth.min(DEEP) {
            text.raw("  ");
        }
    }

    fn write_row(&self, span: &TraceSpan, html: &mut Html) {
        let row = &span.row;
        html.raw("<tr><th scope=row>");
        for _ in 0..span.depth.min(DEEP) {
            html.raw("\u{a0}\u{a0}");
        }
        html.raw(if span.critical { "● " } else { "" }).text(&row.name).raw("</th>");
        html.cell(row.side)
            .cell(row.protocol)
            .cell(&row.peer)
            .number(span.start)
            .number(row.took)
            .raw("<td>");
        html.raw(
            "<svg class=waterfall viewBox=\"0 0 1000 16\" preserveAspectRatio=none role=img aria-label=\"",
        );
        html.text(format_args!("from {} to {} µs", span.start, span.start + row.took)).raw("\">");
        self.write_bar(html, "p-call", span.start, row.took);
        for phase in &row.phases {
            self.write_bar(html, class(phase.name), span.start + phase.start, phase.took);
        }
        html.raw("</svg></td>").cell(row.result()).raw("</tr>");
    }

    fn write_bar(&self, html: &mut Html, class: &'static str, start: u64, took: u64) {
        let scale = WIDTH / self.took.max(1) as f64;
        let left = (start as f64 * scale).min(WIDTH - 1.0);
        let width = (took as f64 * scale).clamp(1.0, WIDTH - left);
        html.raw("<rect class=").raw(class).raw(" y=1 height=14 x=\"").text(format_args!("{left:.1}"));
        html.raw("\" width=\"").text(format_args!("{width:.1}")).raw("\"/>");
    }

    fn write_notes(&self, html: &mut Html) {
        html.table("Phases and notes", &["Call", "Since its start, µs", "What"]);
        for span in &self.spans {
            let row = &span.row;
            if let Some(queued) = row.queued {
                html.raw("<tr>").cell(&row.name).number(0).cell(format_args!("waited {queued} µs before it"));
                html.raw("</tr>");
            }
            for phase in &row.phases {
                html.raw("<tr>").cell(&row.name).number(phase.start);
                html.cell(format_args!("{}: {} µs", phase.name, phase.took)).raw("</tr>");
            }
            for note in &row.notes {
                html.raw("<tr>").cell(&row.name).number(note.at).cell(&note.text).raw("</tr>");
            }
        }
        html.end_table();
    }
}

/// What the colours of the bars mean.
const LEGEND: [(&str, &str); 5] = [
    ("p-connect", "connect"),
    ("p-round-trip", "wait for the server"),
    ("p-codec", "decode, encode"),
    ("p-handle", "handler"),
    ("p-call", "anything else"),
];

fn class(phase: &str) -> &'static str {
    match phase {
        "decode" | "encode" => "p-codec",
        "handle" => "p-handle",
        "connect" => "p-connect",
        _ => "p-round-trip",
    }
}

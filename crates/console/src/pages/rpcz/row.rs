use std::fmt::{self, Write};

use polyrpc::layer::Side;
use serde::Serialize;

use crate::html::Html;
use crate::spans::{Event, Failure, Span, What};
use crate::stats::micros;
use crate::text::Text;
use crate::time::Date;

/// A recorded call. Times are in microseconds.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) trace: String,
    pub(super) span: String,
    pub(super) parent: Option<String>,
    pub(super) side: &'static str,
    pub(super) protocol: &'static str,
    pub(super) name: String,
    pub(super) peer: String,
    pub(super) log_id: u64,
    pub(super) began: String,
    /// Between the arrival of the request and the start of the call.
    pub(super) queued: Option<u64>,
    pub(super) took: u64,
    pub(super) request: usize,
    pub(super) reply: usize,
    pub(super) failure: Option<RowFailure>,
    pub(super) phases: Vec<RowPhase>,
    pub(super) notes: Vec<RowNote>,
}

#[derive(Serialize)]
pub(super) struct RowFailure {
    pub(super) code: &'static str,
    pub(super) number: Option<i32>,
    pub(super) message: String,
}

/// A phase: when it began after the call, and how long it took.
#[derive(Serialize)]
pub(super) struct RowPhase {
    pub(super) name: &'static str,
    pub(super) start: u64,
    pub(super) took: u64,
}

#[derive(Serialize)]
pub(super) struct RowNote {
    pub(super) at: u64,
    pub(super) text: String,
}

impl Row {
    pub(super) fn new(span: &Span) -> Self {
        let failure = |Failure { code, number, message }: &Failure| RowFailure {
            code: code.as_str(),
            number: *number,
            message: message.to_string(),
        };
        let note = |Event { at, what }: &Event| match what {
            What::Note(text) => Some(RowNote { at: micros(*at), text: text.to_string() }),
            What::Phase(_) => None,
        };
        let phases = span.phases().into_iter();
        Self {
            trace: trace_id(span.trace),
            span: format!("{:016x}", span.id),
            parent: span.parent.map(|id| format!("{id:016x}")),
            side: span.side.as_str(),
            protocol: span.protocol,
            name: span.name.to_string(),
            peer: span.peer.to_string(),
            log_id: span.log_id,
            began: format!("{:#}", Date(span.began)),
            queued: span.queued.map(micros),
            took: micros(span.took),
            request: span.request,
            reply: span.reply,
            failure: span.failure.as_ref().map(failure),
            phases: phases
                .map(|phase| RowPhase {
                    name: phase.name,
                    start: micros(phase.start),
                    took: micros(phase.took),
                })
                .collect(),
            notes: span.events.iter().filter_map(note).collect(),
        }
    }

    /// As brpc writes a span.
    pub(super) fn write(&self, text: &mut Text) {
        let side = if self.side == Side::Server.as_str() { "S" } else { "C" };
        text.value(&self.began).raw("    .").value(format_args!("{:>6}", self.took)).raw(" ").raw(side);
        text.raw(" trace=").value(self.trace.trim_start_matches('0'));
        text.raw(" span=").value(self.span.trim_start_matches('0'));
        text.raw(" log_id=").value(self.log_id).raw(" ").value(self.name.replace('/', "."));
        text.raw("(").value(self.request).raw(")=").value(self.reply);
        text.raw(" [").value(self.result()).raw("]\n");
    }

    /// Returns `OK`, or why it failed.
    pub(super) fn result(&self) -> String {
        match &self.failure {
            None => "OK".to_owned(),
            Some(RowFailure { code, number: None, message }) => format!("{code}: {message}"),
            Some(RowFailure { code, number: Some(number), message }) => format!("{code} {number}: {message}"),
        }
    }

    pub(super) fn write_html(&self, html: &mut Html) {
        html.raw("<tr><td>").text(&self.began).raw("</td><th scope=row><a href=\"/rpcz?trace=");
        html.segment(&self.trace).raw("\">").text(&self.name).raw("</a></th>");
        html.cell(self.side)
            .cell(self.protocol)
            .cell(&self.peer)
            .number(self.took)
            .cell(Phases(&self.phases));
        html.number(self.request).number(self.reply).cell(self.result()).raw("</tr>");
    }
}

/// Returns a trace's id with 32 digits, or with 16 if it is one of brpc's.
fn trace_id(trace: u128) -> String {
    match u64::try_from(trace) {
        Ok(low) => format!("{low:016x}"),
        Err(_) => format!("{trace:032x}"),
    }
}

/// `decode 5, handle 300`.
struct Phases<'p>(&'p [RowPhase]);

impl fmt::Display for Phases<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, phase) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            f.write_str(phase.name)?;
            f.write_char(' ')?;
            phase.took.fmt(f)?;
        }
        Ok(())
    }
}

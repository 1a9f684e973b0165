//! Spans in the formats of other programs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyrpc::layer::Side;
use serde_json::{Value, json};

use crate::spans::{Span, What};

/// As OTLP's JSON (`opentelemetry/proto/trace/v1/trace.proto`): ids in hexadecimal digits, times as texts.
pub(super) fn otlp(spans: &[Arc<Span>]) -> Value {
    let spans: Vec<Value> = spans.iter().map(|span| otlp_span(span)).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": [text("service.name", "polyrpc"), number("process.pid", std::process::id().into())] },
            "scopeSpans": [{
                "scope": { "name": "polyrpc", "version": env!("CARGO_PKG_VERSION") },
                "spans": spans,
            }],
        }],
    })
}

fn otlp_span(span: &Span) -> Value {
    let mut attributes = vec![
        text("rpc.system.name", span.protocol),
        text("rpc.method", &span.name),
        number("rpc.request.size", span.request as u64),
        number("rpc.response.size", span.reply as u64),
    ];
    if !span.peer.is_empty() {
        let key = if span.side == Side::Server { "network.peer.address" } else { "server.address" };
        attributes.push(text(key, &span.peer));
    }
    let status = match &span.failure {
        None => json!({}),
        Some(failure) => {
            attributes.push(text("error.type", failure.code.as_str()));
            json!({ "code": 2, "message": failure.message })
        }
    };
    let events: Vec<Value> = span
        .events
        .iter()
        .map(|event| {
            let name = match &event.what {
                What::Phase(name) => format!("{name} ended"),
                What::Note(text) => text.to_string(),
            };
            json!({ "timeUnixNano": nanos(span.began + event.at), "name": name })
        })
        .collect();
    json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "parentSpanId": span.parent.map_or_else(String::new, |id| format!("{id:016x}")),
        "name": &*span.name,
        "kind": if span.side == Side::Server { 2 } else { 3 },
        "startTimeUnixNano": nanos(span.began),
        "endTimeUnixNano": nanos(span.end()),
        "attributes": attributes,
        "events": events,
        "status": status,
    })
}

fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    // 64 bits are text in protobuf's JSON.
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// As Chrome's Trace Event Format, which `chrome://tracing` and Perfetto open: a row for each span, its phases within it.
pub(super) fn chrome(spans: &[Arc<Span>]) -> Value {
    let mut rows = HashMap::new();
    let mut events = Vec::new();
    for span in spans.iter().rev() {
        let next = rows.len() + 1;
        let row = *rows.entry((span.id, span.side)).or_insert(next);
        let start = span.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut add = |name: &str, at: std::time::Duration, took: std::time::Duration, more: Value| {
            events.push(json!({
                "name": name,
                "cat": span.protocol,
                "ph": "X",
                "ts": (start + at).as_nanos() as f64 / 1e3,
                "dur": took.as_nanos() as f64 / 1e3,
                "pid": std::process::id(),
                "tid": row,
                "args": more,
            }));
        };
        let failure = span.failure.as_ref().map(|failure| failure.message.to_string());
        let more = json!({
            "side": span.side.as_str(),
            "peer": &*span.peer,
            "trace": format!("{:032x}", span.trace),
            "span": format!("{:016x}", span.id),
            "failure": failure,
        });
        add(&span.name, std::time::Duration::ZERO, span.took, more);
        for phase in span.phases() {
            add(phase.name, phase.start, phase.took, json!({}));
        }
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

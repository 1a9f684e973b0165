use super::calls::{Call, Outcome};
use crate::message::Wire;
use crate::terminal::{Painter, ShortDuration, cut};

pub(super) fn head(paint: Painter) -> String {
    let names = line("protocol", "payload", "method", "reply", "latency");
    let rule = line(&"─".repeat(18), &"─".repeat(11), &"─".repeat(27), &"─".repeat(25), &"─".repeat(8));
    format!("{}\n{}", paint.dim(names), paint.dim(rule))
}

/// A call and its outcome; a long reply is cut, a failure is printed in full on a separate line.
pub(super) fn row(call: &Call, outcome: &Outcome, paint: Painter) -> String {
    let row = |reply: &str, latency: &str| {
        line(call.protocol, payload(call.format), call.target, &cut(reply, 25), latency)
    };
    match outcome {
        Outcome::Answered { reply, latency } => row(reply, &ShortDuration(*latency).to_string()),
        Outcome::Wrong { reply } => paint.red(format_args!("{}\n  wrong: {reply}", row(reply, "wrong"))),
        Outcome::Failed(failure) => paint.red(format_args!("{}\n  {failure}", row("", "failed"))),
    }
}

pub(super) fn verdict(calls: usize, failed: usize, paint: Painter) -> String {
    match failed {
        0 => paint.green(format_args!(
            "All {calls} calls were answered. Latencies are medians of calls one after another{BUILD}."
        )),
        _ => paint.red(format_args!("{failed} of {calls} calls failed.")),
    }
}

/// So that nobody takes the latencies for those of a release.
const BUILD: &str = if cfg!(debug_assertions) { ", in a debug build" } else { "" };

fn line(protocol: &str, payload: &str, method: &str, reply: &str, latency: &str) -> String {
    format!(" {protocol:<18}  {payload:<11}  {method:<27}  {reply:<25}  {latency:>8}")
}

fn payload(wire: Wire) -> &'static str {
    match wire {
        Wire::Protobuf => "protobuf",
        Wire::Json => "json",
        Wire::Msgpack => "msgpack",
        Wire::StructPack => "struct_pack",
        Wire::Gob => "gob",
        Wire::Raw => "raw",
        Wire::Text => "text",
        Wire::Flatbuffers => "flatbuffers",
        Wire::Cpp => "cpp",
    }
}

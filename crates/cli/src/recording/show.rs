//! `polyrpc recording show`: prints calls.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use polyrpc::payload::calendar::{DAY, date};
use polyrpc_record::call::{Field, Message, Side};
use polyrpc_record::value::{Undecodable, Value};
use polyrpc_record::{Call, DeclaredMessages};
use serde_json::json;

use super::described::{DescribedMessages, ProtoOptions};
use super::files;
use super::filter::Filter;
use crate::failure::Failure;
use crate::message::readable;
use crate::terminal;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    described: ProtoOptions,
    /// Print at most this number of calls
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print a line of JSON for each call
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let mut left = options.limit.unwrap_or(u64::MAX);
    if left == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let mut is_any = false;
    let described = options.described.read()?;
    files::for_each_call(&options.files, &options.filter, |schemas, mut call| {
        // The recording's own description is that of the server.
        let described = described
            .as_ref()
            .filter(|described| schemas.messages(&call).is_none() && described.declare(&mut call));
        let text = format_call(described.map_or(schemas, DescribedMessages::messages), &call, options.json);
        is_any = true;
        left -= 1;
        // The reader has closed the pipe: that is not a failure.
        Ok(terminal::print(&text)? && left > 0)
    })?;
    Ok(report_selection(is_any, &options.filter))
}

/// The exit code. A name that selects nothing is probably misspelled.
pub(crate) fn report_selection(is_any: bool, filter: &Filter) -> ExitCode {
    if is_any || !filter.has_name() {
        return ExitCode::SUCCESS;
    }
    terminal::print_error("note: no call matches the filter");
    ExitCode::FAILURE
}

/// A call, in a line of JSON or in several lines.
pub(crate) fn format_call(schemas: &DeclaredMessages, call: &Call, json: bool) -> String {
    if json { to_json(schemas, call).to_string() } else { to_text(schemas, call) }
}

/// A call in several lines.
fn to_text(schemas: &DeclaredMessages, call: &Call) -> String {
    let ended = match (&call.outcome, call.failure()) {
        (None, _) if call.side == Side::Capture && !call.took.is_zero() => {
            "the answer was not read".to_owned()
        }
        (None, _) => "no end was seen".to_owned(),
        (_, Some(failure)) if failure.message.is_empty() => {
            format!("{} (its text is not in the recording)", failure.code)
        }
        (_, Some(failure)) => format!("{}: {}", failure.code, to_one_line(&failure.message)),
        (Some(outcome), None) if outcome.closed => "the connection was closed".to_owned(),
        (Some(_), None) => "ok".to_owned(),
    };
    let peer = if call.peer.is_empty() { "-" } else { &call.peer };
    // Without an end there is no duration.
    let took = match call.outcome.is_none() && call.took.is_zero() {
        true => "-".to_owned(),
        false => format!("{:.1?}", call.took),
    };
    let mut lines = vec![format!(
        "{} {} {} {peer} {} {took} {ended}",
        timestamp(call.arrival).as_deref().unwrap_or("-"),
        call.side.as_str(),
        call.protocol,
        to_one_line(&call.full_name()),
    )];
    put_fields(&mut lines, '>', &call.metadata);
    put_message(&mut lines, '>', call.request.as_ref(), schemas.request(call));
    put_bytes(&mut lines, '>', &call.attachment);
    for event in &call.events {
        let arrow = if event.from_server { '<' } else { '>' };
        let text = if event.end { "(end)".to_owned() } else { readable(&event.message) };
        put_lines(&mut lines, arrow, &format!("+{:.1?} {text}", event.at));
    }
    if call.events_left_out > 0 {
        lines.push(format!("  ({} more messages were not kept)", call.events_left_out));
    }
    if let Some(outcome) = &call.outcome {
        put_fields(&mut lines, '<', &outcome.metadata);
        put_message(&mut lines, '<', outcome.response.as_ref(), schemas.response(call));
        put_bytes(&mut lines, '<', &outcome.attachment);
        put_fields(&mut lines, '<', &outcome.trailers);
    }
    lines.join("\n")
}

fn put_fields(lines: &mut Vec<String>, arrow: char, fields: &[Field]) {
    for field in fields {
        let value = if field.removed { "(removed)".to_owned() } else { readable(&field.value) };
        put_lines(lines, arrow, &format!("{}: {value}", to_one_line(&field.name)));
    }
}

fn put_message(
    lines: &mut Vec<String>,
    arrow: char,
    message: Option<&Message>,
    tree: Option<Result<Value, Undecodable>>,
) {
    let (Some(message), Some(tree)) = (message, tree) else { return };
    let text = match tree {
        Ok(tree) => tree.to_string(),
        Err(_) if message.omitted.is_empty() => readable(&message.body),
        Err(why) => format!("({why}; {} bytes)", message.length),
    };
    put_lines(lines, arrow, &text);
}

/// Every line of a text behind the arrow of its direction.
fn put_lines(lines: &mut Vec<String>, arrow: char, text: &str) {
    lines.extend(text.lines().map(|line| format!("  {arrow} {line}")));
}

/// A text in one line, with what a terminal would obey escaped. Quotation marks need no escapes here.
fn to_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' => line.push(c),
            other => line.extend(other.escape_debug()),
        }
    }
    line
}

fn put_bytes(lines: &mut Vec<String>, arrow: char, attachment: &[u8]) {
    if !attachment.is_empty() {
        lines.push(format!("  {arrow} attachment of {} bytes", attachment.len()));
    }
}

fn to_json(schemas: &DeclaredMessages, call: &Call) -> serde_json::Value {
    let message = |message: Option<&Message>, tree: Option<Result<Value, Undecodable>>| {
        let message = message?;
        Some(match tree? {
            Ok(tree) => tree.to_json(),
            Err(why) => json!({
                "undecoded": Value::Bytes(message.body.to_vec()).to_json(),
                "reason": why.to_string(),
            }),
        })
    };
    let fields = |fields: &[Field]| {
        let pair = |field: &Field| {
            let value = if field.removed { serde_json::Value::Null } else { readable(&field.value).into() };
            json!([field.name, value])
        };
        fields.iter().map(pair).collect::<serde_json::Value>()
    };
    let outcome = call.outcome.as_ref();
    json!({
        "time": timestamp(call.arrival),
        "side": call.side.as_str(),
        "protocol": call.protocol,
        "method": call.full_name(),
        "peer": call.peer,
        "took_ns": u64::try_from(call.took.as_nanos()).unwrap_or(u64::MAX),
        "format": call.request.as_ref().and_then(|request| request.format).map(|format| format.as_str()),
        "metadata": fields(&call.metadata),
        "request": message(call.request.as_ref(), schemas.request(call)),
        "response": message(outcome.and_then(|outcome| outcome.response.as_ref()), schemas.response(call)),
        "trailers": fields(outcome.map_or(&[][..], |outcome| &outcome.trailers[..])),
        "failure": call.failure().map(|failure| json!({
            "code": failure.code, "message": failure.message, "number": failure.number,
        })),
        "weight": call.weight,
    })
}

/// RFC 3339 in UTC, with milliseconds. `None` on the first day of 1970: the call was imported from a file without
/// times.
fn timestamp(nanos: u64) -> Option<String> {
    let seconds = (nanos / 1_000_000_000) as i64;
    if seconds < DAY {
        return None;
    }
    let (year, month, day) = date(seconds.div_euclid(DAY));
    let time = seconds.rem_euclid(DAY);
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        time / 3600,
        time / 60 % 60,
        time % 60,
        nanos / 1_000_000 % 1000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_peer_stays_in_its_line_without_escapes_of_quotes() {
        assert_eq!(to_one_line("can't \"x\"\n\u{1b}[1m"), r#"can't "x"\n\u{1b}[1m"#);
        let mut lines = Vec::new();
        put_lines(&mut lines, '<', "+1.0ms 00000000  00\n00000010  01");
        assert_eq!(lines, ["  < +1.0ms 00000000  00", "  < 00000010  01"]);
    }
}

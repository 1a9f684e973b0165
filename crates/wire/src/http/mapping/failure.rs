//! Response to a failed request: a `google.rpc.Status` in JSON.
//!
//! ```json
//! {"code":3,"message":"A: expected int64, found string","details":[]}
//! ```
//!
//! `code` is gRPC's, and brpc's number is in `x-bd-error-code` as usual. The types in `details` are not known here:
//! each has its `@type`, and as `value` its bytes in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polyrpc_core::protobuf::{Reader, WireType, put_tag, put_varint};
use polyrpc_core::status::texts;
use polyrpc_core::{Code, Json, Status};
use serde::Deserialize;
use serde_json::json;

use super::config::ServerConfig;
use super::response::plain;
use super::{content_type, status};
use crate::http::head::WriteHead;

/// Writes the head of an error response, without additional failure fields, and returns its body.
#[cold]
pub(super) fn write(http: u16, status: &Status, head: &mut impl WriteHead) -> Bytes {
    let body = body(status);
    head.begin(http, Some(body.len()));
    head.field("Content-Type", content_type::JSON.as_bytes());
    body.into()
}

/// Does the same for a request that is rejected before it is a call. The body is text if brpc's clients expect brpc's
/// bytes.
#[cold]
pub(super) fn refusal(
    http: u16,
    text: &'static str,
    config: &ServerConfig,
    head: &mut impl WriteHead,
) -> Bytes {
    match config.json() {
        Json::BrpcLenient => plain(http, text, head),
        _ => write(http, &Status::new(status::meaning(http), text.trim_end()), head),
    }
}

fn body(status: &Status) -> String {
    let details: Vec<_> = details(status.details())
        .into_iter()
        .map(|(name, value)| json!({ "@type": name, "value": STANDARD.encode(value) }))
        .collect();
    let message = serde_json::Value::from(status.message());
    format!(
        r#"{{"code":{},"message":{message},"details":{}}}"#,
        status.code() as u8,
        serde_json::Value::from(details)
    )
}

/// Parses the failure in a body, if it has this form.
#[cold]
pub(crate) fn read(body: &[u8]) -> Option<Status> {
    #[derive(Deserialize)]
    struct Failure {
        code: i32,
        message: String,
        #[serde(default)]
        details: Vec<serde_json::Value>,
    }
    let failure: Failure = serde_json::from_slice(body).ok()?;
    let code = Code::ALL.into_iter().find(|code| *code as i32 == failure.code)?;
    let text = |detail: &serde_json::Value, name: &str| Some(detail.get(name)?.as_str()?.to_owned());
    let details: Option<Vec<_>> = (failure.details.iter())
        .map(|detail| Some((text(detail, "@type")?, STANDARD.decode(text(detail, "value")?).ok()?)))
        .collect();
    let details = details.unwrap_or_default();
    let status = texts::from_peer(code, failure.message);
    if details.is_empty() {
        return Some(status);
    }
    let mut serialized = Vec::new();
    put_tag(&mut serialized, 1, WireType::Varint);
    put_varint(&mut serialized, code as u64);
    put_field(&mut serialized, 2, status.message().as_bytes());
    for (name, value) in details {
        let mut any = Vec::new();
        put_field(&mut any, 1, name.as_bytes());
        put_field(&mut any, 2, &value);
        put_field(&mut serialized, 3, &any);
    }
    Some(status.with_details(serialized))
}

fn put_field(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Returns the details of a serialized `google.rpc.Status`: type URLs and messages.
fn details(status: &[u8]) -> Vec<(String, Vec<u8>)> {
    let any = |bytes| {
        let mut parts = (String::new(), Vec::new());
        each_field(bytes, |number, bytes| match number {
            1 => parts.0 = String::from_utf8_lossy(bytes).into_owned(),
            2 => parts.1 = bytes.to_vec(),
            _ => {}
        });
        parts
    };
    let mut details = Vec::new();
    each_field(status, |number, bytes| {
        if number == 3 {
            details.push(any(bytes));
        }
    });
    details
}

/// Calls `show` for the length-delimited fields, up to the first malformed one.
fn each_field<'a>(message: &'a [u8], mut show: impl FnMut(u32, &'a [u8])) {
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let Some((number, wire)) = reader.tag() else { return };
        let read = match wire {
            WireType::Bytes => reader.bytes().map(|bytes| show(number, bytes)),
            other => reader.skip(number, other),
        };
        if read.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_round_trips_with_its_details() {
        let (name, value) = ("type.googleapis.com/google.rpc.DebugInfo", b"\x12\x01x");
        let any = [&[0x0a, name.len() as u8], name.as_bytes(), &[0x12, 3], value].concat();
        let details = [&[0x08, 5, 0x12, 1, b'm', 0x1a, any.len() as u8], &any[..]].concat();
        let status = Status::not_found("m").with_details(details);
        let body = body(&status);
        assert_eq!(
            body,
            r#"{"code":5,"message":"m","details":[{"@type":"type.googleapis.com/google.rpc.DebugInfo","value":"EgF4"}]}"#
        );
        assert_eq!(read(body.as_bytes()), Some(status));
        assert_eq!(read(br#"{"code":5,"message":"m"}"#), Some(Status::not_found("m")));
        for none in [&b""[..], b"{}", br#"{"code":99,"message":"m"}"#, br#"{"code":"5"}"#, b"5"] {
            assert_eq!(read(none), None);
        }
    }
}

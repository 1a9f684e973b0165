//! rpcx's gateway.

use std::time::Duration;

use polyrpc_core::session::NotFound;
use polyrpc_core::{Compression, Credential, Format, Json};
use polyrpc_payload::compress;

use super::*;
use crate::http::mapping::answer::not_found_in_rpcx;

fn request(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

const MUL: &str = "X-RPCX-ServicePath: Arith\r\nX-RPCX-ServiceMethod: Mul\r\n";

#[test]
fn serialize_type_selects_the_format() {
    for (number, format) in [
        ("0", Format::Raw),
        ("1", Format::Json(Json::Go)),
        ("2", Format::Protobuf),
        ("3", Format::MessagePack),
        ("4", Format::Other(4)),
    ] {
        let text = request(&format!("{MUL}X-RPCX-SerializeType: {number}\r\n"), "body");
        let (call, _) = TestConnection::new().send(text).call().expect("a call");
        assert_eq!((call.service, call.method, call.head.format), ("Arith", "Mul", format));
    }
}

#[test]
fn malformed_request_is_answered_200_with_the_failure_in_headers() {
    for (fields, want) in [
        ("X-RPCX-SerializeType: 1\r\n", "empty servicepath"),
        ("X-RPCX-ServicePath: Arith\r\nX-RPCX-SerializeType: 1\r\n", "empty servicemethod"),
        (MUL, "empty serialized type"),
        (
            "X-RPCX-ServicePath: A\r\nX-RPCX-ServiceMethod: B\r\nX-RPCX-SerializeType: x\r\n",
            "wrong serialized type",
        ),
        (
            "X-RPCX-ServicePath: A\r\nX-RPCX-ServiceMethod: B\r\nX-RPCX-SerializeType: 1\r\nX-RPCX-CompressType: z\r\n",
            "wrong compress type",
        ),
        (
            "X-RPCX-ServicePath: A\r\nX-RPCX-ServiceMethod: B\r\nX-RPCX-SerializeType: 1\r\nX-RPCX-Meta: a=%\r\n",
            "wrong metadata",
        ),
    ] {
        let (response, finished) = refuse(request(fields, "{}"));
        assert_eq!((response.status, finished, response.text()), (200, false, ""));
        assert_eq!(response.field("x-rpcx-messagestatustype"), Some("Error"));
        assert_eq!(response.field("x-rpcx-errormessage"), Some(want));
    }
}

#[test]
fn path_names_the_service_if_no_header_does() {
    let text =
        "POST /Arith HTTP/1.1\r\nHost: a\r\nX-RPCX-ServiceMethod: Mul\r\nX-RPCX-SerializeType: 1\r\n\r\n";
    let (call, _) = TestConnection::new().send(text).call().expect("a call");
    assert_eq!((call.service, call.method), ("Arith", "Mul"));
}

#[test]
fn metadata_credential_and_deadline_share_one_header() {
    let meta = "X-RPCX-Meta: k=a+b%21&__AUTH=token&__ServerTimeout=4999&k=second\r\n";
    let text = request(&format!("{MUL}X-RPCX-SerializeType: 1\r\ntraceparent: 00\r\n{meta}"), "{}");
    let (call, _) = TestConnection::new().send(&text).call().expect("a call");
    assert_eq!(call.head.metadata.get("k"), Some("a b!"));
    assert_eq!(call.head.metadata.get("traceparent"), Some("00"));
    assert_eq!(call.head.metadata.len(), 2);
    assert_eq!(call.timeout, Some(Duration::from_millis(4999)));
    assert_eq!(call.credential, Credential::Call(Some(Bytes::from_static(b"token"))));

    let text = text.replace("traceparent: 00", "Authorization: bearer x");
    let (call, _) = TestConnection::new().send(text).call().expect("a call");
    assert_eq!(call.credential, Credential::Call(Some(Bytes::from_static(b"bearer x"))));
}

#[test]
fn too_much_metadata_is_rejected_early() {
    let meta: String = (0..300).map(|n| format!("k{n}=&")).collect();
    let text = request(&format!("{MUL}X-RPCX-SerializeType: 1\r\nX-RPCX-Meta: {meta}\r\n"), "{}");
    assert_eq!(refuse(text).0.field("x-rpcx-errormessage"), Some("wrong metadata"));
}

#[test]
fn long_response_is_compressed_if_the_request_was() {
    let zipped = compress::compress(Compression::Gzip, b"{}").expect("gzip");
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\n{MUL}X-RPCX-SerializeType: 1\r\nX-RPCX-CompressType: 1\r\nContent-Length: {}\r\n\r\n",
        zipped.len()
    );
    let text = [head.as_bytes(), &zipped].concat();
    let (call, _) = TestConnection::new().send(&text).call().expect("a call");
    assert_eq!((call.head.compression, &call.body[..]), (Compression::Gzip, &zipped[..]));
    for (length, compressed) in [(1024, None), (1025, Some("1"))] {
        let body = vec![b' '; length];
        let response = answer(&text, |call| Reply::message(call.head.format, body.clone().into()));
        assert_eq!(response.field("x-rpcx-compresstype"), compressed);
        if compressed.is_some() {
            assert_eq!(compress::decompress(Compression::Gzip, &response.body, 1 << 20).expect("gzip"), body);
        }
    }
}

#[test]
fn oneway_and_heartbeat_requests_are_answered_as_calls() {
    for flag in ["Oneway", "Heartbeat"] {
        let text = request(&format!("{MUL}X-RPCX-SerializeType: 1\r\nX-RPCX-{flag}: 1\r\n"), "{}");
        let response = answer(text, |call| {
            assert!(!call.oneway);
            Reply::message(call.head.format, Bytes::from_static(b"done"))
        });
        assert_eq!(response.text(), "done", "{flag}");
    }
}

#[test]
fn message_id_is_64_bits_and_echoed() {
    for (id, is_one) in [
        ("0", true),
        ("18446744073709551615", true),
        ("18446744073709551616", false),
        ("abc", false),
        ("+1", false),
        ("-1", false),
        ("1.0", false),
    ] {
        let text = request(&format!("{MUL}X-RPCX-SerializeType: 1\r\nX-RPCX-MessageID: {id}\r\n"), "{}");
        let response = if is_one { answer(text, echo) } else { refuse(text).0 };
        assert_eq!((response.status, response.field("x-rpcx-messageid")), (200, Some(id)));
        let failure = response.field("x-rpcx-errormessage");
        assert_eq!(failure, (!is_one).then_some("wrong message id"), "{id}");
    }
}

#[test]
fn long_failure_text_is_shortened_to_fit_into_a_head() {
    let text = request(&format!("{MUL}X-RPCX-SerializeType: 1\r\n"), "{}");
    let response = answer(text, failing(Status::unknown("x".repeat(100_000))));
    let shown = response.field("x-rpcx-errormessage").expect("a text");
    assert!(shown.len() <= 16 << 10 && shown.ends_with("(shortened)"), "{}", shown.len());
}

#[test]
fn failure_text_cannot_break_its_header_line() {
    let text = request(&format!("{MUL}X-RPCX-SerializeType: 1\r\n"), "{}");
    let response = answer(&text, failing(Status::unknown("a\r\nb\0c")));
    assert_eq!((response.status, response.field("x-rpcx-errormessage")), (500, Some("a  b c")));
    let (call, _) = TestConnection::new().send(text).call().expect("a call");
    assert_eq!(not_found_in_rpcx(&call, NotFound::Service).message(), "rpcx: can't find service Arith");
    assert_eq!(not_found_in_rpcx(&call, NotFound::Method).message(), "rpcx: can't find method Mul");
}

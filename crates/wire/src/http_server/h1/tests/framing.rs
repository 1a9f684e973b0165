//! Message framing: limits, chunks, request smuggling, damaged input.

use polyrpc_core::Detection;
use polyrpc_core::testing::{assert_any_split, assert_survives_damage, damage, record_events};

use super::*;
use crate::http::h1::recognise;

#[test]
fn http_methods_are_detected_and_the_http2_preface_is_not() {
    for method in ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "CONNECT"] {
        let line = format!("{method} / HTTP/1.1");
        assert_eq!(recognise(line.as_bytes()), Detection::Is(()));
        for n in 0..=method.len() {
            assert_eq!(recognise(&line.as_bytes()[..n]), Detection::NeedMore, "{method} {n}");
        }
    }
    assert_eq!(recognise(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Detection::Unknown);
    assert_eq!(recognise(b"get / HTTP/1.1"), Detection::Unknown);
}

#[test]
fn request_with_an_unsupported_method_is_detected_and_answered_with_501() {
    for method in ["FOO", "PROPFIND", "GETX", "TRACE"] {
        let line = format!("{method} /");
        for n in 1..line.len() {
            assert_eq!(recognise(&line.as_bytes()[..n]), Detection::NeedMore, "{method} {n}");
        }
        assert_eq!(recognise(line.as_bytes()), Detection::Is(()), "{method}");
        assert_refused(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
    }
    for other in [&b"PRPC\0"[..], b"FOO\r\n", b"FOO 1", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"] {
        assert_eq!(recognise(other), Detection::Unknown);
    }
}

/// Asserts that a request is rejected with `status`, that the connection ends, and that nothing after it is parsed as
/// another request, for any split of the bytes.
#[track_caller]
fn assert_refused(request: &str, status: u16) {
    let (response, finished) = refuse(request);
    assert_eq!(
        (response.status, response.field("connection"), finished),
        (status, Some("close"), true),
        "{request:?}"
    );
    assert_any_split(server, request.as_bytes());
}

#[test]
fn request_with_ambiguous_length_is_rejected() {
    let smuggled = "0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -1",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length:",
        "Content-Length : 5",
        " Content-Length: 5",
        "Content-Length: 5\r\n folded: 1",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "X\0: 5",
        "X: \x01",
        "no colon",
        ": no name",
        "X: a\rb",
    ] {
        assert_refused(&format!("POST /S/M HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{smuggled}"), 400);
    }
    for coding in ["gzip, chunked", "chunked, gzip", "identity", "xchunked", "\"chunked\"", "chunked;a=b"] {
        assert_refused(
            &format!("POST /S/M HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n{smuggled}"),
            501,
        );
    }
    assert_refused(&format!("POST /S/M HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}"), 400);
}

#[test]
fn malformed_request_line_is_rejected() {
    for line in
        ["GET /", "GET  / HTTP/1.1", "GET / HTTP/3.0", "GET / HTTP/1.1 x", "GET /a b HTTP/1.1", "GET / ICY"]
    {
        assert_refused(&format!("{line}\r\n\r\n"), 400);
    }
}

#[test]
fn repeated_equal_lengths_and_bare_line_feeds_are_accepted() {
    let mut connection = TestConnection::new();
    connection.send(
        "POST /S/M HTTP/1.1\nHost: a\nContent-Length: 3\nContent-Length: 3\n\nabc\r\n\r\n\nPOST /S/M HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let calls = connection.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].0.body, "abc");
}

#[test]
fn forged_lengths_allocate_no_memory() {
    for (length, status) in [
        ("65536", 413),
        ("2147483647", 413),
        ("2147483648", 413),
        ("4294967295", 413),
        ("9223372036854775808", 413),
        ("18446744073709551615", 413),
        ("18446744073709551616", 413),
        ("99999999999999999999999999", 413),
    ] {
        assert_refused(&format!("POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"), status);
    }
    let mut connection = TestConnection::new();
    assert!(
        connection.send("POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n").call().is_none()
    );
    assert_eq!(connection.server.bytes_needed(), 60000);
    assert!(connection.server.incomplete(&connection.inbox).is_some());
}

fn chunk(body: &str) -> String {
    format!("POST /S/M HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n{body}")
}

#[test]
fn chunks_are_joined() {
    for body in [
        "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        "5;name=value;x=\"y\"\r\nabcde\r\n0;last\r\nTrailer: 1\r\nOther: 2\r\n\r\n",
        "0005 \r\nabcde\r\n00\r\n\r\n",
    ] {
        let request = chunk(body) + &bare("/S/M");
        let mut connection = TestConnection::new();
        let calls = connection.send(&request).calls();
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0].0.body, "abcde");
        assert_any_split(server, request.as_bytes());
        assert_survives_damage(server, request.as_bytes(), config().limits.message);
    }
}

#[test]
fn malformed_chunks_are_rejected() {
    for (body, status) in [
        ("\r\n", 400),
        ("x\r\n", 400),
        ("-1\r\n", 400),
        ("+1\r\n", 400),
        ("0x1\r\n", 400),
        (";a\r\n", 400),
        ("3 3\r\n", 400),
        ("3\nabc\r\n0\r\n\r\n", 400),
        ("3;a\nb\r\nabc\r\n0\r\n\r\n", 400),
        ("3\r\r\nabc\r\n", 400),
        ("3\r\nabcd\r\n", 400),
        ("3\r\nabc\n0\r\n\r\n", 400),
        ("3\r\nabc0\r\n\r\n", 400),
        ("0\r\nTrailer\n\r\n", 400),
        ("7fffffff\r\n", 413),
        ("80000000\r\n", 413),
        ("ffffffff\r\n", 413),
        ("7fffffffffffffff\r\n", 413),
        ("ffffffffffffffff\r\n", 413),
        ("10000000000000000\r\n", 413),
        ("ffffffffffffffffffffff\r\n", 413),
    ] {
        assert_refused(&chunk(body), status);
    }
}

#[test]
fn many_chunks_stay_within_the_limit() {
    let mut request = chunk("");
    for _ in 0..17 {
        request += "1000\r\n";
        request += &"x".repeat(4096);
        request += "\r\n";
    }
    assert_eq!(refuse(&request).0.status, 413);
}

#[test]
fn chunk_extensions_and_trailers_are_limited() {
    let extended = format!("1;{}\r\nx\r\n", "e".repeat(2000)).repeat(3);
    assert_refused(&chunk(&extended), 431);
    assert_refused(&chunk(&format!("0\r\n{}\r\n", format!("T: {}\r\n", "t".repeat(2000)).repeat(3))), 431);
    assert_refused(&chunk(&"1".repeat(5000)), 431);
}

#[test]
fn head_is_limited() {
    let fits = format!("POST /S/M HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat((4 << 10) - 36));
    assert_eq!(fits.len(), 4 << 10);
    assert_eq!(TestConnection::new().send(&fits).calls().len(), 1);
    for long in [
        fits.replace("X: ", "X: x"),
        format!("GET /{}", "x".repeat(5000)),
        format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(101)),
    ] {
        assert_eq!(refuse(&long).0.status, 431);
    }
}

#[test]
fn other_protocol_is_answered_with_400_unless_switching_is_allowed() {
    for foreign in [&b"\r\n\x08\0\0\x10"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRPC\0\0\0\0"] {
        let bytes = [&b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"[..], foreign].concat();
        let output = record_events(server(), &[&bytes]);
        let out = String::from_utf8(output.out).expect("text");
        assert!(!output.foreign && out.starts_with("HTTP/1.1 200 "), "{out}");
        assert!(out.contains("HTTP/1.1 400 ") && out.contains("Connection: close"), "{out}");
        let output = record_events(switching(), &[&bytes]);
        assert!(output.foreign && output.calls.is_empty());
        let output = record_events(switching(), &[foreign]);
        assert!(output.foreign && output.out.is_empty());
    }
}

#[test]
fn every_request_kind_yields_the_same_for_any_split_and_never_panics() {
    let rpc =
        r#"[{"jsonrpc":"2.0","method":"A.B","params":[1,{"a":"]"}],"id":1},{"jsonrpc":"2.0","method":"n"}]"#;
    for request in [
        post("/S/M/x", "application/proto", "\n\x05hello"),
        post("/jsonrpc", "application/json", rpc),
        "PUT /A HTTP/1.1\r\nHost: a\r\nX-RPCX-ServiceMethod: B\r\nX-RPCX-SerializeType: 1\r\nX-RPCX-Meta: a=%20\r\n\r\n"
            .to_owned(),
        "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "POST /S/M HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab".to_owned(),
        "CONNECT /_rpcx_ HTTP/1.0\n\n".to_owned(),
    ] {
        assert_any_split(server, request.as_bytes());
        assert_survives_damage(server, request.as_bytes(), config().limits.message);
    }
}

#[test]
fn trickling_head_is_scanned_once() {
    let mut connection = TestConnection::new();
    let request = format!("POST /S/M HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(2000));
    let (last, start) = request.as_bytes().split_last().expect("bytes");
    for byte in start {
        assert!(connection.send([*byte]).call().is_none());
    }
    assert_eq!(connection.send([*last]).calls().len(), 1);
}

#[test]
fn damaged_requests_yield_the_same_for_any_split() {
    for request in [
        post("/S/M", "application/proto", "\n\x05hello") + &get("/health"),
        chunk("3;a=b\r\nabc\r\n0\r\nT: 1\r\n\r\n") + &bare("/S/M"),
        post("/jsonrpc", "application/json", r#"{"jsonrpc":"2.0","method":"A.B","params":[1],"id":1}"#),
    ] {
        damage(request.as_bytes(), |damaged| {
            let single: Vec<&[u8]> = damaged.chunks(1).collect();
            assert_eq!(
                record_events(server(), &single),
                record_events(server(), &[damaged]),
                "{}",
                damaged.escape_ascii()
            );
        });
    }
}

#[test]
fn many_small_requests_and_chunks_need_no_deep_stack() {
    let mut connection = TestConnection::new();
    let out = connection.send(get("/health").repeat(50_000)).serve(echo);
    assert_eq!(out.windows(6).filter(|part| part == b"\r\n\r\nOK").count(), 50_000);
    let body = "1\r\nx\r\n".repeat(50_000) + "0\r\n\r\n";
    assert_eq!(connection.send(chunk(&body)).calls().len(), 1);
}

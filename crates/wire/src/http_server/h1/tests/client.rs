//! Tests of the client, alone and with the server.

use std::time::Duration;

use polyrpc_core::session::Client as _;
use polyrpc_core::session::{ClientEvent, NotFound};
use polyrpc_core::testing::{Pair, assert_bytes, assert_client_survives_damage, sole_reply};
use polyrpc_core::{CallId, Code, Compression, Credential, Format, Json};
use polyrpc_payload::compress;

use super::*;
use crate::http::{Client, ClientConfig};

const JSON: Format = Format::Json(Json::Brpc);

fn client_config(json_rpc: bool) -> ClientConfig {
    ClientConfig {
        limits: config().limits.clone(),
        authority: "host:1".to_owned(),
        credential: None,
        json_rpc,
    }
}

/// Returns a client that waits for the reply to one call.
fn waiting() -> Client {
    let mut client = Client::new(client_config(false));
    client
        .send(CallId(7), Call::new("S", "M", JSON, Bytes::new()), &mut Outbox::new())
        .expect("a plain call");
    client
}

#[test]
fn name_that_others_would_resolve_in_a_path_is_not_sent() {
    for name in [".", "..", "..;", "%2e%2e", "a/b", "a\\b", "a?b", "a#b", "a b", "a\0", "\u{e9}"] {
        for (service, method) in [(name, "M"), ("S", name)] {
            let mut out = Outbox::new();
            let call = Call::new(service, method, JSON, Bytes::new());
            let refused = Client::new(client_config(false)).send(CallId(7), call, &mut out);
            assert_eq!(refused.expect_err(name).code(), Code::InvalidArgument, "{name:?}");
            assert!(out.is_empty(), "{name:?}");
        }
    }
    for name in ["Echo", "a.b_c-d", "...", "Get[T]", "a::b"] {
        send(client_config(false), &Call::new("S", name, JSON, Bytes::new()));
    }
}

fn send(config: ClientConfig, call: &Call<'_>) -> String {
    let mut out = Outbox::new();
    Client::new(config).send(CallId(7), call.clone(), &mut out).expect("an expressible call");
    String::from_utf8(out.take()).expect("text")
}

/// Result of a waiting client that receives `bytes`, in one piece and byte by byte.
fn receive(bytes: impl AsRef<[u8]>) -> (Client, Result<Option<Reply>, polyrpc_core::Violation>) {
    let bytes = bytes.as_ref();
    let read = |chunk: usize| {
        let (mut client, mut inbox) = (waiting(), BytesMut::new());
        for piece in bytes.chunks(chunk) {
            inbox.extend_from_slice(piece);
            match client.next_event(&mut inbox, &mut Outbox::new()) {
                Ok(None) => {}
                Ok(Some(ClientEvent::Reply(id, reply))) => {
                    assert_eq!(id, CallId(7));
                    return (client, Ok(Some(reply)));
                }
                Ok(other) => panic!("unexpected {other:?}"),
                Err(violation) => return (client, Err(violation)),
            }
        }
        (client, Ok(None))
    };
    let (whole, single) = (read(bytes.len()), read(1));
    assert_eq!(format!("{:?}", whole.1), format!("{:?}", single.1));
    whole
}

fn reply(bytes: impl AsRef<[u8]>) -> Reply {
    receive(bytes).1.expect("no violation").expect("a whole response")
}

#[test]
fn call_becomes_an_http_request() {
    let mut call = Call::new("example.EchoService", "Echo", JSON, Bytes::from_static(b"{}"));
    assert_eq!(
        send(client_config(false), &call),
        "POST /example.EchoService/Echo HTTP/1.1\r\nHost: host:1\r\nContent-Length: 2\r\n\
         Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n{}"
    );
    call.timeout = Some(Duration::from_millis(1500));
    call.head.metadata.insert("log-id", "9");
    call.credential = Credential::Call(Some(Bytes::from_static(b"me")));
    let config = ClientConfig { credential: Some(Bytes::from_static(b"other")), ..client_config(false) };
    assert_eq!(
        send(config, &call),
        "POST /example.EchoService/Echo HTTP/1.1\r\nHost: host:1\r\nContent-Length: 2\r\n\
         Content-Type: application/json\r\nAuthorization: me\r\nAccept-Encoding: gzip\r\n\
         connect-timeout-ms: 1500\r\nlog-id: 9\r\n\r\n{}"
    );
    let plain = send(client_config(false), &Call::new("", "add", Format::Raw, Bytes::new()));
    assert!(plain.starts_with("POST /add HTTP/1.1\r\n"));
}

#[test]
fn timeout_is_sent_in_milliseconds_rounded_up() {
    for (timeout, sent) in [
        (Duration::from_millis(250), "250"),
        (Duration::from_micros(1500), "2"),
        (Duration::from_nanos(1), "1"),
        (Duration::MAX, "9999999999"),
    ] {
        let call = Call { timeout: Some(timeout), ..Call::new("S", "M", JSON, Bytes::new()) };
        let mapped = send(client_config(false), &call);
        assert!(mapped.contains(&format!("connect-timeout-ms: {sent}\r\n")), "{mapped}");
        let json_rpc = send(client_config(true), &call);
        assert!(json_rpc.contains(&format!("__ServerTimeout={sent}\r\n")), "{json_rpc}");
    }
}

#[test]
fn call_is_compressed_as_requested() {
    let message = [b'x'; 2000];
    let mut call = Call::new("example.EchoService", "Echo", JSON, Bytes::copy_from_slice(&message));
    call.head.compression = Compression::Gzip;
    let mut out = Outbox::new();
    Client::new(client_config(false)).send(CallId(1), call.clone(), &mut out).expect("HTTP knows gzip");
    let sent = out.take();
    let end = sent.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(sent[..end].to_vec()).expect("text");
    assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", sent.len() - end)), "{head}");
    let body = compress::decompress(Compression::Gzip, &sent[end..], 4096).expect("gzip");
    assert_bytes(body, message);
}

#[test]
fn call_that_http_cannot_express_is_not_sent() {
    let call = || Call::new("S", "M", JSON, Bytes::new());
    let mut other_format = call();
    other_format.head.format = Format::Other(4);
    let mut bad = call();
    bad.head.metadata.insert("bad", "a\r\nb");
    let mut snappy = call();
    snappy.head.compression = Compression::Snappy;
    let attached = Call { attachment: Bytes::from_static(b"x"), ..call() };
    let credential = Call { credential: Credential::Call(Some(Bytes::from_static(b"a\nb"))), ..call() };
    for call in [
        other_format,
        bad,
        snappy,
        attached,
        credential,
        Call { method: "a b", ..call() },
        Call { service: "a/b", ..call() },
    ] {
        let (mut client, mut out) = (Client::new(client_config(false)), Outbox::new());
        assert!(client.send(CallId(1), call.clone(), &mut out).is_err(), "{call:?}");
        assert!(out.is_empty());
    }
    let (mut client, mut out) = (Client::new(client_config(true)), Outbox::new());
    assert!(client.send(CallId(1), Call::new("S", "M", Format::Protobuf, Bytes::new()), &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn responses_end_by_length_by_chunks_or_with_the_connection() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nX-A: 1\r\n";
    for tail in [
        "Content-Length: 3\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\nT: 1\r\n\r\n",
    ] {
        let (client, got) = receive(format!("HTTP/1.1 100 Continue\r\n\r\n{head}{tail}"));
        let got = got.expect("no violation").expect("whole");
        assert_eq!(got.result.expect("success"), "abc");
        assert_eq!((got.head.format, got.head.metadata.get("x-a")), (Format::Protobuf, Some("1")));
        assert!(client.is_reusable());
    }
    let (mut client, mut inbox) = (waiting(), BytesMut::from(format!("{head}\r\nabc").as_bytes()));
    assert!(client.next_event(&mut inbox, &mut Outbox::new()).expect("no violation").is_none());
    assert!(!client.is_reusable());
    let answer = client.end_of_stream(&mut inbox).expect("the response is complete");
    assert_eq!(sole_reply(vec![answer]).1.result.expect("success"), "abc");
    assert!(waiting().end_of_stream(&mut BytesMut::new()).is_none());
}

#[test]
fn connection_is_reused_unless_the_peer_closes_it() {
    for (head, reusable) in [
        ("HTTP/1.1 200 OK\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n", false),
        ("HTTP/1.0 200 OK\r\n", false),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", true),
    ] {
        let (client, got) = receive(format!("{head}Content-Length: 0\r\n\r\n"));
        assert!(got.expect("no violation").is_some());
        assert_eq!(client.is_reusable(), reusable, "{head}");
    }
}

#[test]
fn failure_is_read_from_status_number_and_body() {
    let status = reply(
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 37\r\nContent-Type: text/plain\r\n\
         x-bd-error-code: 2004\r\n\r\n[127.0.0.1:18001][E54321]custom error",
    );
    let status = status.result.expect_err("a failure");
    assert_eq!((status.code(), status.number()), (Code::ResourceExhausted, Some(2004)));
    assert_eq!(status.message(), "[127.0.0.1:18001][E54321]custom error");
    let status =
        reply("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").result.expect_err("a failure");
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "HTTP 503 Service Unavailable"));
}

#[test]
fn only_a_response_that_ends_the_connection_reports_that_the_server_expects_tls() {
    let failure = |fields: &str| {
        let text = "unknown: This port expects TLS";
        let length = text.len();
        let response = format!("HTTP/1.1 400 Bad Request\r\n{fields}Content-Length: {length}\r\n\r\n{text}");
        reply(&response).result.expect_err("a failure")
    };
    assert_eq!(failure("Connection: close\r\n").scope(), polyrpc_core::Scope::Connection);
    for fields in ["", "Connection: close\r\nx-bd-error-code: 1003\r\n"] {
        let status = failure(fields);
        assert_eq!(status.scope(), polyrpc_core::Scope::Call, "{fields}");
        assert_eq!(status.message(), "unknown: This port expects TLS");
    }
}

#[test]
fn unexpected_response_is_described_in_the_error() {
    for (head, body, want) in [
        (
            "Content-Type: text/html\r\n",
            "<html>welcome</html>",
            r#"HTTP 200 OK came without a message: Content-Type text/html, a body that begins with "<html>welcome</html>""#,
        ),
        ("", "", "HTTP 200 OK came without a message: Content-Type none, an empty body"),
        (
            "Content-Type: application/json\r\n",
            "",
            "HTTP 200 OK came without a message: Content-Type application/json, an empty body",
        ),
        (
            // rpcx's gateway, for a request whose fields do not name a method.
            "X-RPCX-MessageStatusType: Error\r\nX-RPCX-ErrorMessage: empty servicemethod\r\n",
            "",
            "empty servicemethod, as reported by rpcx's gateway in HTTP 200: it is not called by `POST /Service/Method`",
        ),
    ] {
        let response = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let status = reply(&response).result.expect_err("no message");
        assert_eq!((status.code(), status.message()), (Code::Unknown, want));
    }
    // Handlers may respond with anything.
    for (head, body) in [("Content-Type: text/plain\r\n", "5"), ("", "an attachment")] {
        let response = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(reply(&response).result.expect("a body"), body);
    }
    let failed = "HTTP/1.1 500 x\r\nX-RPCX-ErrorMessage: boom\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(reply(failed).result.expect_err("a failure").message(), "boom");
}

#[test]
fn json_failure_is_read_with_its_code_and_number() {
    let body = r#"{"code":5,"message":"no user","details":[]}"#;
    let status = reply(format!(
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nx-bd-error-code: 3\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let status = status.result.expect_err("a failure");
    assert_eq!((status.code(), status.number(), status.message()), (Code::NotFound, Some(3), "no user"));
}

#[test]
fn compressed_response_is_passed_on() {
    let got = reply("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxy");
    assert_eq!(
        (got.head.compression, got.result.expect("success")),
        (Compression::Gzip, Bytes::from_static(b"xy"))
    );
    // Two lines are one list: the body is compressed twice.
    for codings in ["br", "br\r\nContent-Encoding: gzip"] {
        let got =
            reply(format!("HTTP/1.1 200 OK\r\nContent-Encoding: {codings}\r\nContent-Length: 2\r\n\r\nxy"));
        assert_eq!(got.result.expect_err("a failure").code(), Code::Unimplemented, "{codings}");
    }
}

#[test]
fn ambiguous_response_closes_the_connection() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "PRPC\r\n\r\n",
    ] {
        assert!(receive(bytes).1.is_err(), "{bytes}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(70_000));
    assert!(receive(endless).1.is_err());
    let mut idle = Client::new(client_config(false));
    assert!(idle.next_event(&mut BytesMut::from(&b"HTTP"[..]), &mut Outbox::new()).is_err());
}

#[test]
fn damaged_responses_never_panic() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-RPCX-Meta: a=1\r\n\r\nabc",
        "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\nx-bd-error-code: 2004\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ] {
        assert_client_survives_damage(waiting, bytes.as_bytes(), config().limits.message);
    }
    let waiting = || {
        let mut client = Client::new(client_config(true));
        client
            .send(CallId(7), Call::new("S", "M", JSON, Bytes::new()), &mut Outbox::new())
            .expect("a plain call");
        client
    };
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\n{\"jsonrpc\":\"2.0\",\"result\":[1],\"id\":7}";
    assert_client_survives_damage(waiting, bytes, config().limits.message);
}

#[test]
fn client_and_server_understand_each_other() {
    let mut pair = Pair::new(Client::new(client_config(false)), server());
    for format in [
        JSON,
        Format::Json(Json::Proto3),
        Format::Protobuf,
        Format::ProtoText,
        Format::MessagePack,
        Format::Raw,
    ] {
        let body = Bytes::from(vec![b'x'; 20_000]);
        let mut call = Call::new("S", "M", format, body.clone());
        call.timeout = Some(Duration::from_millis(250));
        call.head.metadata.insert("k", "v");
        let answers = pair.call(CallId(3), &call, |call| {
            assert_eq!((call.service, call.method, call.head.format), ("S", "M", format));
            assert_eq!(
                (call.timeout, call.head.metadata.get("k")),
                (Some(Duration::from_millis(250)), Some("v"))
            );
            let mut reply = echo(call);
            reply.head.metadata.insert("back", "b");
            reply
        });
        let (id, reply) = sole_reply(answers);
        assert_eq!((id, reply.result.expect("success")), (CallId(3), body));
        assert_eq!((reply.head.format, reply.head.metadata.get("back")), (format, Some("b")));
    }
}

#[test]
fn every_code_reaches_the_client() {
    for code in Code::ALL {
        let mut pair = Pair::new(Client::new(client_config(false)), server());
        let call = Call::new("S", "M", JSON, Bytes::new());
        let (_, reply) =
            sole_reply(pair.call(CallId(1), &call, |_| Reply::failure(Status::new(code, "why"))));
        let status = reply.result.expect_err("a failure");
        assert_eq!((status.code(), status.message()), (code, "why"));
    }
}

#[test]
fn json_rpc_round_trips() {
    let mut pair = Pair::new(Client::new(client_config(true)), server());
    let mut call = Call::new("Arith", "Mul", Format::Json(Json::Go), Bytes::from_static(br#"{"A":7}"#));
    call.timeout = Some(Duration::from_millis(250));
    call.head.metadata.insert("k", "v w");
    let (id, reply) = sole_reply(pair.call(CallId(9), &call, |call| {
        assert_eq!((call.service, call.method, &call.body[..]), ("Arith", "Mul", &br#"{"A":7}"#[..]));
        assert_eq!(
            (call.timeout, call.head.metadata.get("k")),
            (Some(Duration::from_millis(250)), Some("v w"))
        );
        let mut reply = echo(call);
        reply.head.metadata.insert("back", "b");
        reply
    }));
    assert_eq!((id, reply.head.metadata.get("back")), (CallId(9), Some("b")));
    assert_eq!(reply.result.expect("success"), r#"{"A":7}"#);

    let call = Call::new("", "f", JSON, Bytes::new());
    let (_, reply) = sole_reply(pair.call(CallId(10), &call, |call| {
        Reply::failure(crate::http::mapping::answer::not_found_in_rpcx(call, NotFound::Method))
    }));
    let status = reply.result.expect_err("a failure");
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "rpcx: can't find method f"));

    let failed = Status::internal("custom \"error\"").with_number(54321);
    let (_, reply) = sole_reply(pair.call(CallId(11), &call, |_| Reply::failure(failed.clone())));
    let status = reply.result.expect_err("a failure");
    assert_eq!((status.number(), status.message()), (Some(54321), "custom \"error\""));

    let notification = Call { oneway: true, ..call };
    let (id, reply) = sole_reply(pair.call(CallId(12), &notification, |call| {
        assert!(call.oneway);
        echo(call)
    }));
    assert_eq!((id, reply.result.expect("success")), (CallId(12), Bytes::new()));
}

#[test]
fn any_number_of_interim_responses_is_skipped() {
    let bytes = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100_000) + "HTTP/1.1 204 No Content\r\n\r\n";
    let (mut client, mut inbox) = (waiting(), BytesMut::from(bytes.as_bytes()));
    let answer =
        client.next_event(&mut inbox, &mut Outbox::new()).expect("no violation").expect("a response");
    assert!(sole_reply(vec![answer]).1.result.expect("success").is_empty());
}

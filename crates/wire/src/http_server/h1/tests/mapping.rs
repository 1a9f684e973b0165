//! brpc's mapping.

use std::time::Duration;

use polyrpc_core::session::NotFound;
use polyrpc_core::{Code, Compression, Credential, Format, Head, Json};
use polyrpc_payload::compress;

use super::*;

fn receive_call(request: impl AsRef<[u8]>) -> Call<'static> {
    TestConnection::new().send(request).call().expect("a call").0
}

#[test]
fn path_names_service_and_method_and_the_rest_is_metadata() {
    for (path, want) in [
        ("/example.EchoService/Echo", ("example.EchoService", "Echo", None)),
        ("//EchoService///Echo//", ("EchoService", "Echo", None)),
        ("/EchoService/Echo/a//b/", ("EchoService", "Echo", Some("a/b"))),
        ("/EchoService", ("EchoService", "", None)),
        ("/EchoService/Echo?a=/b/c#d", ("EchoService", "Echo", None)),
        ("http://host:80/EchoService/Echo", ("EchoService", "Echo", None)),
        ("http://host", ("", "", None)),
        ("/空/方法", ("空", "方法", None)),
    ] {
        let call = receive_call(post(path, "application/json", ""));
        let rest = call.head.metadata.get("x-bd-unresolved-path");
        assert_eq!((call.service, call.method, rest), want, "{path}");
    }
}

#[test]
fn path_that_others_would_resolve_is_refused() {
    for path in [
        "/Public/..",
        "/Public/.",
        "/../Admin",
        "/Public/%2e%2E%2fAdmin",
        "/Public/a%2Fb",
        "/Public/..;",
        "/Public/..\\Admin",
        "/Public/a%5cb",
        "/Public/a%00",
        "/Public/Get/../../Admin/Delete",
    ] {
        let mut connection = TestConnection::new();
        let request = post(path, "application/json", "{}");
        let out = connection.send(request).serve(|call| panic!("{path} calls {call:?}"));
        assert_eq!(Response::parse(&out).status, 400, "{path}");
    }
    for path in ["/S.a/M.b", "/S/...", "/S/.M", "/S/50%25", "/S/M/a%20b", "/S/M/a%2Fb", "/S/M/x;y"] {
        receive_call(post(path, "application/json", ""));
    }
}

#[test]
fn unresolved_path_header_of_a_peer_is_ignored() {
    let call = receive_call("POST /S/M HTTP/1.1\r\nHost: a\r\nX-Bd-Unresolved-Path: secret\r\n\r\n");
    assert!(call.head.metadata.is_empty());
}

#[test]
fn content_type_selects_the_format_and_is_echoed() {
    for (content_type, format) in [
        ("application/proto", Format::Protobuf),
        ("application/protobuf", Format::Protobuf),
        ("application/x-protobuf", Format::Protobuf),
        ("application/proto-text", Format::ProtoText),
        ("application/proto-json", Format::Json(Json::Proto3)),
        ("application/msgpack", Format::MessagePack),
        ("application/x-msgpack", Format::MessagePack),
        ("application/octet-stream", Format::Raw),
        ("application/json", Format::Json(Json::Brpc)),
        ("Application/PROTO; charset=utf-8", Format::Protobuf),
    ] {
        let request = post("/S/M", content_type, "body");
        assert_eq!(receive_call(&request).head.format, format, "{content_type}");
        assert_eq!(answer(&request, echo).field("content-type"), Some(content_type));
    }
    let request = "POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n1";
    assert_eq!(receive_call(request).head.format, Format::Json(Json::Brpc));
    assert_eq!(answer(request, echo).field("content-type"), Some("application/json"));
}

#[test]
fn response_content_type_follows_its_format() {
    let handler = |_: &Call<'_>| Reply::message(Format::Raw, Bytes::from_static(b"raw"));
    let response = answer(post("/S/M", "application/json", "{}"), handler);
    assert_eq!(response.field("content-type"), Some("application/octet-stream"));
}

#[test]
fn headers_are_metadata_except_connection_and_entity_headers() {
    let call = receive_call(
        "POST /S/M HTTP/1.1\r\nHost: a\r\nLog-Id: 9\r\nX-Long-Name-That-Nobody-Has-In-A-Table-Of-Names: 1\r\n\
         Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\n\
         Content-Language: de\r\nAccept-Encoding: gzip\r\nAuthorization: me\r\nExpect: nothing\r\n\
         X-Twice: a\r\nx-twice: b\r\n\r\n",
    );
    let metadata: Vec<_> = call.head.metadata.iter().collect();
    let want: [(&str, &[u8]); 3] =
        [("log-id", b"9"), ("x-long-name-that-nobody-has-in-a-table-of-names", b"1"), ("x-twice", b"a, b")];
    assert!(metadata.iter().map(|(key, value)| (*key, &value[..])).eq(want), "{metadata:?}");
    assert_eq!(call.credential, Credential::Call(Some(Bytes::from_static(b"me"))));
}

#[test]
fn timeout_is_read_as_connect_and_grpc_write_it() {
    for (fields, want) in [
        ("connect-timeout-ms: 1500", Some(Duration::from_millis(1500))),
        ("grpc-timeout: 100m", Some(Duration::from_millis(100))),
        ("grpc-timeout: 2S", Some(Duration::from_secs(2))),
        ("grpc-timeout: 99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
        ("grpc-timeout: 7u\r\nconnect-timeout-ms: 3", Some(Duration::from_millis(3))),
        ("connect-timeout-ms: 0", Some(Duration::ZERO)),
    ] {
        assert_eq!(
            receive_call(format!("POST /S/M HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")).timeout,
            want,
            "{fields}"
        );
    }
}

#[test]
fn compressed_requests_are_passed_on_unchanged() {
    for (coding, want) in [
        ("gzip", Compression::Gzip),
        ("x-gzip", Compression::Gzip),
        ("deflate", Compression::Zlib),
        ("identity", Compression::None),
    ] {
        let request = format!(
            "POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\nxy"
        );
        let call = receive_call(request);
        assert_eq!((call.head.compression, &call.body[..]), (want, &b"xy"[..]));
    }
    // Two lines are one list: the body is compressed twice.
    for codings in ["br", "br\r\nContent-Encoding: gzip", "gzip\r\nContent-Encoding: identity"] {
        let request = format!(
            "POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Encoding: {codings}\r\nContent-Length: 2\r\n\r\nxy"
        );
        let (response, finished) = refuse(request);
        assert_eq!((response.status, finished), (415, false), "{codings}");
    }
}

#[test]
fn response_is_compressed_only_if_requested_long_and_accepted() {
    let request =
        |accept: &str| format!("POST /S/M HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\n\r\n");
    let handler = |length: usize, compression| {
        move |call: &Call<'_>| {
            let mut reply = Reply::message(call.head.format, vec![b'x'; length].into());
            reply.head.compression = compression;
            reply
        }
    };
    let response = answer(request("deflate, gzip;q=0.5"), handler(512, Compression::Gzip));
    assert_eq!(response.field("content-encoding"), Some("gzip"));
    assert_eq!(compress::decompress(Compression::Gzip, &response.body, 1000).expect("gzip"), [b'x'; 512]);
    for (accept, length, compression) in [
        ("gzip", 511, Compression::Gzip),
        ("gzip", 512, Compression::None),
        ("deflate", 512, Compression::Gzip),
        ("gzip;q=0", 512, Compression::Gzip),
        ("gzip; Q=0", 512, Compression::Gzip),
        ("gzip;q=0.", 512, Compression::Gzip),
        ("gzip;q=0.000", 512, Compression::Gzip),
    ] {
        let response = answer(request(accept), handler(length, compression));
        assert_eq!((response.field("content-encoding"), response.body.len()), (None, length));
    }
}

#[test]
fn an_attachment_is_the_whole_body() {
    let handler = |_: &Call<'_>| Reply {
        attachment: Bytes::from_static(b"page"),
        ..Reply::message(Format::Raw, Bytes::new())
    };
    let response = answer(bare("/S/M"), handler);
    assert_eq!((response.text(), response.field("content-type")), ("page", None));
}

#[test]
fn response_metadata_becomes_headers_but_cannot_break_the_head() {
    let handler = |call: &Call<'_>| {
        let mut reply = echo(call);
        for (key, value) in [
            ("x-user", "grüße"),
            ("x-split", "a\r\nSet-Cookie: b"),
            ("x split", "a"),
            ("", "a"),
            ("content-length", "5"),
            ("Transfer-Encoding", "chunked"),
            ("connection", "close"),
            ("content-type", "text/html"),
        ] {
            reply.head.metadata.insert(key, value);
        }
        reply
    };
    let response = answer(post("/S/M", "application/json", "{}"), handler);
    let fields: Vec<_> =
        response.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(fields, [("content-length", "2"), ("content-type", "text/html"), ("x-user", "grüße")]);
}

#[test]
fn failure_is_sent_as_status_number_and_text() {
    for (status, want) in [
        (Status::internal("custom error").with_number(54321), (500, "54321", "[E54321]custom error")),
        (Status::not_found("no user"), (404, "3", "[E3]no user")),
        (Status::deadline_exceeded("late"), (504, "1008", "[E1008]late")),
        (Status::resource_exhausted(""), (503, "2004", "[E2004]")),
        (Status::unauthenticated("who?"), (401, "1004", "[E1004]who?")),
    ] {
        // As brpc's text if the listener is lenient, otherwise as JSON.
        let response =
            Response::parse(&TestConnection::lenient().send(bare("/S/M")).serve(failing(status.clone())));
        let text = format!("[127.0.0.1:18001]{}", want.2);
        assert_eq!(
            (response.status, response.field("x-bd-error-code"), response.text()),
            (want.0, Some(want.1), text.as_str())
        );
        let response = answer(bare("/S/M"), failing(status.clone()));
        let (code, message) = (status.code() as u8, status.message());
        let text = format!(r#"{{"code":{code},"message":"{message}","details":[]}}"#);
        assert_eq!(
            (response.status, response.field("x-bd-error-code"), response.text()),
            (want.0, Some(want.1), text.as_str())
        );
        assert_eq!(response.field("content-type"), Some("application/json"));
        assert_eq!(response.field("www-authenticate").is_some(), want.0 == 401);
    }
}

#[test]
fn unknown_method_is_answered_with_brpc_texts() {
    let (call, ticket) = TestConnection::new().send(bare("/S/M/rest")).call().expect("a call");
    for missing in [NotFound::Service, NotFound::Method] {
        let status = ticket.not_found_failure(&call, missing);
        assert_eq!((status.code(), status.number()), (Code::Unimplemented, Some(1002)));
        assert_eq!(status.message(), "Fail to find method on `/S/M/rest'");
    }
}

#[test]
fn built_in_pages_are_answered_by_the_session() {
    assert_eq!(refuse(get("/health")).0.text(), "OK");
    assert_eq!(refuse(get("/version?x=1")).0.text(), "Impl");
    assert!(refuse(get("/")).0.text().contains("/health"));
    let (response, _) = refuse("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((response.status, response.field("content-length")), (204, None));
    assert!(response.field("allow").is_some_and(|allow| allow.contains("POST")));
}

#[test]
fn head_response_has_a_length_but_no_body() {
    let mut connection = TestConnection::lenient();
    connection.send("HEAD /S/M HTTP/1.1\r\nHost: a\r\n\r\nHEAD /health HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.serve(|call| Reply::message(call.head.format, Bytes::from_static(b"12345")));
    connection.send("HEAD /S/M HTTP/1.1\r\nHost: a\r\n\r\nHEAD /health HTTP/1.1\r\nHost: a\r\n\r\n");
    let out = connection.serve(|call| Reply::message(call.head.format, Bytes::from_static(b"12345")));
    assert_eq!(
        String::from_utf8(out).expect("text"),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\n"
    );
}

#[test]
fn body_of_known_length_is_a_slice_of_the_inbox() {
    let mut connection = TestConnection::new();
    connection.send(post("/S/M", "application/octet-stream", &"x".repeat(10_000)));
    let whole = connection.inbox.as_ptr_range();
    let (call, _) = connection.call().expect("a call");
    assert!(whole.contains(&call.body.as_ptr()));
    assert_eq!(call.body.len(), 10_000);
}

#[test]
fn minimal_head_yields_a_call_with_defaults() {
    let call = receive_call(bare("/S/M"));
    assert!(!call.oneway && call.attachment.is_empty() && call.malformed.is_none() && call.timeout.is_none());
    let Head { compression, positional, .. } = call.head;
    assert_eq!((compression, positional), (Compression::None, false));
}

#[test]
fn message_requires_a_known_content_type() {
    for content_type in [
        "image/jpeg",
        "VIDEO/mp4; codecs=x",
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "application/unknown",
        "",
    ] {
        let (response, finished) = refuse(post("/S/M", content_type, "{}"));
        assert_eq!((response.status, finished), (415, false), "{content_type}");
        assert!(response.field("accept").is_some_and(|types| types.contains("application/proto,")));
        // A gRPC client parses a failure in JSON as one of Connect (its conformance suite sends an image).
        let is_media = content_type.starts_with("image/") || content_type.starts_with("VIDEO/");
        let answered = if is_media { "text/plain" } else { "application/json" };
        assert_eq!(response.field("content-type"), Some(answered), "{content_type}");
    }
}

#[test]
fn response_claims_no_charset_but_its_own() {
    for (asked, want) in [
        ("application/json; charset=utf-16", "application/json"),
        ("application/json;charset=UTF-8", "application/json;charset=UTF-8"),
        ("application/json; charset=utf-8; boundary=x", "application/json"),
        ("application/proto-text; v=1", "application/proto-text"),
    ] {
        assert_eq!(answer(post("/S/M", asked, "{}"), echo).field("content-type"), Some(want), "{asked}");
    }
}

#[test]
fn invalid_timeout_is_answered_without_a_call() {
    for (field, told) in [
        ("Connect-Timeout-Ms: abc", "the Connect-Timeout-Ms is not a number of up to ten digits"),
        ("connect-timeout-ms: -1", "the Connect-Timeout-Ms is not a number of up to ten digits"),
        ("connect-timeout-ms:", "the Connect-Timeout-Ms is not a number of up to ten digits"),
        ("grpc-timeout: 5", "the grpc-timeout is not a number of up to eight digits and a unit"),
        ("grpc-timeout: m", "the grpc-timeout is not a number of up to eight digits and a unit"),
        ("grpc-timeout: 123456789S", "the grpc-timeout is not a number of up to eight digits and a unit"),
        ("Connect-Timeout-Ms: 12345678901", "the Connect-Timeout-Ms is not a number of up to ten digits"),
        ("grpc-timeout: 99999999999H", "the grpc-timeout is not a number of up to eight digits and a unit"),
    ] {
        let request = format!(
            "POST /S/M HTTP/1.1\r\nHost: a\r\n{field}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        let mut connection = TestConnection::new();
        assert!(connection.send(&request).call().is_none(), "{field}");
        let answer = answer(&request, echo);
        assert_eq!(answer.status, 400, "{field}");
        assert!(answer.text().contains(told), "{}", answer.text());
    }
}

#[test]
fn every_sent_status_has_a_reason_phrase() {
    let request = "POST /S/M HTTP/1.1\r\nHost: a\r\nAccept: application/json;dialect=yaml\r\n\
        Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let out = TestConnection::new().send(request).serve(echo);
    assert!(out.starts_with(b"HTTP/1.1 406 Not Acceptable\r\n"), "{}", out.escape_ascii());
}

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::session::server::{Streaming as _, Ticket as _};
use polyrpc_core::session::{ClientEvent, NotFound, ServerEvent, Verdict};
use polyrpc_core::testing::{
    Pair, assert_any_split, assert_client_survives_damage, assert_survives_damage, sole_reply,
};
use polyrpc_core::{
    Call, CallId, Code, Compression, Format, Head, Json, Limits, Metadata, Outbox, Reply, Status,
};
use polyrpc_payload::compress;

use super::{UnaryMethod, frame, query, status};
use crate::http::ServerConfig;
use crate::http_server::h1::{Server, Ticket};
use crate::{grpc, grpc_web, http_server};

const LIMIT: usize = 1000;

fn config() -> Arc<ServerConfig> {
    let mut config = ServerConfig {
        limits: Limits { message: LIMIT, decompressed: LIMIT, ..Limits::default() },
        ..ServerConfig::default()
    };
    config.routes.declare_no_side_effects("a.Echo", "Look");
    Arc::new(config)
}

/// HTTP/1.1 server whose calls are answered by the test.
struct TestConnection {
    server: Server,
    inbox: BytesMut,
    out: Outbox,
    /// Messages and ends of streaming calls.
    parts: Vec<String>,
}

impl TestConnection {
    fn new(request: impl AsRef<[u8]>) -> Self {
        let inbox = BytesMut::from(request.as_ref());
        Self { server: Server::new(config()), inbox, out: Outbox::new(), parts: Vec::new() }
    }

    /// Returns the next call and its ticket.
    fn call(&mut self) -> Option<(Call<'static>, Ticket)> {
        loop {
            match self.server.next_event(&mut self.inbox, &mut self.out).expect("no violation")? {
                ServerEvent::Call(call, ticket) | ServerEvent::Open(call, ticket, _) => {
                    // The names borrow from the session.
                    let names = [call.service, call.method].map(|name| &*String::leak(name.to_owned()));
                    return Some((Call { service: names[0], method: names[1], ..call }, ticket));
                }
                ServerEvent::Head(_, stream) => {
                    self.server.apply_verdict(stream, Verdict::Accepted, &mut self.out);
                }
                ServerEvent::Message(_, message) => {
                    self.parts.push(String::from_utf8_lossy(&message.body).into_owned());
                }
                ServerEvent::End(_) => self.parts.push("end".to_owned()),
                ServerEvent::Cancelled(_) => self.parts.push("cancelled".to_owned()),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns head and body of the response.
    fn take_response(&mut self) -> (String, Vec<u8>) {
        let bytes = self.out.take();
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut body = BytesMut::from(&bytes[end..]);
        if head.contains("transfer-encoding: chunked") {
            let read = crate::http::h1::chunked::Chunked::default().read(&mut body, 1 << 20, 1 << 10);
            return (head, read.expect("chunks").expect("all of them").to_vec());
        }
        (head, body.to_vec())
    }
}

/// Response to a call, answered by `answer`, which may fail it.
fn answer_request(request: impl AsRef<[u8]>, answer: impl Fn(&Call<'_>) -> Reply) -> (String, Vec<u8>) {
    let mut connection = TestConnection::new(request);
    if let Some((call, ticket)) = connection.call() {
        let reply = match call.malformed.clone() {
            Some(status) => Reply::failure(status),
            None => answer(&call),
        };
        connection.server.reply(ticket, reply, &mut connection.out);
    }
    connection.take_response()
}

fn echo(call: &Call<'_>) -> Reply {
    Reply::message(call.head.format, call.body.clone())
}

fn post(content_type: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /a.Echo/Echo HTTP/1.1\r\nHost: h\r\nContent-Type: {content_type}\r\n{fields}\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn build_frame(flag: u8, body: &[u8]) -> Vec<u8> {
    [&[flag][..], &(body.len() as u32).to_be_bytes(), body].concat()
}

const VERSION: &str = "Connect-Protocol-Version: 1\r\n";
const PROTO: &str = "application/proto";
const STREAM: &str = "application/connect+proto";

#[test]
fn unary_call_carries_metadata_and_trailers_in_headers() {
    let fields = format!("{VERSION}Connect-Timeout-Ms: 7000\r\nX-Key: value\r\nData-Bin: q6s\r\n");
    let (head, body) = answer_request(post(PROTO, &fields, b"hello"), |call| {
        assert_eq!((call.service, call.method), ("a.Echo", "Echo"));
        assert_eq!((call.head.format, &call.body[..]), (Format::Protobuf, &b"hello"[..]));
        assert_eq!(call.timeout, Some(Duration::from_secs(7)));
        assert_eq!(call.head.metadata.get("x-key"), Some("value"));
        assert_eq!(call.head.metadata.bytes("data-bin").unwrap()[..], [0xab, 0xab]);
        assert_eq!(call.head.metadata.get("connect-protocol-version"), None);
        let mut reply = echo(call);
        reply.head.metadata.insert("Before", "b");
        reply.trailers.insert("behind-bin", &[1][..]);
        reply
    });
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-type: application/proto\r\n"));
    assert!(head.contains("before: b\r\ntrailer-behind-bin: AQ\r\n"), "{head}");
    assert_eq!(body, b"hello");
}

#[test]
fn json_call_is_connect_only_with_its_version_header() {
    let fails = |_: &Call<'_>| Reply::failure(Status::not_found("gone"));
    let (head, body) = answer_request(post("application/json; charset=utf-8", VERSION, b"{}"), fails);
    assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n"), "{head}");
    assert_eq!(body, br#"{"code":"not_found","message":"gone"}"#);
    let (_, body) = answer_request(post("application/json", "", b"{}"), fails);
    assert_eq!(body, br#"{"code":5,"message":"gone","details":[]}"#);
}

#[test]
fn failure_has_the_http_status_of_its_code_and_its_details() {
    for code in Code::ALL {
        let failure = Status::new(code, "why").with_detail("type.googleapis.com/a.Detail", b"\x08\x01");
        let written = status::write(&failure);
        assert_eq!(written["details"][0]["type"], "a.Detail");
        assert_eq!(written["details"][0]["value"], "CAE");
        let read = status::read(&written, Code::Unknown).expect("a failure");
        assert_eq!((read.code(), read.message()), (code, "why"));
        assert_eq!(read.typed_details(), failure.typed_details());
        assert!((400..600).contains(&status::http(&failure)));
    }
    let unnamed = status::read(&serde_json::json!({ "code": "odd", "message": "m" }), Code::Aborted);
    assert_eq!(unnamed, Some(Status::aborted("m")));
    assert_eq!(status::read(&serde_json::json!("m"), Code::Aborted), None);
}

#[test]
fn unknown_method_is_404_and_unimplemented_one_501() {
    for (missing, http) in [(true, "404"), (false, "501")] {
        let mut connection = TestConnection::new(post(PROTO, VERSION, b""));
        let (call, ticket) = connection.call().expect("a call");
        let status = match missing {
            true => ticket.not_found_failure(&call, NotFound::Method),
            false => Status::unimplemented("later"),
        };
        connection.server.reply(ticket, Reply::failure(status), &mut connection.out);
        let (head, body) = connection.take_response();
        assert!(head.starts_with(&format!("HTTP/1.1 {http} ")), "{head}");
        assert!(body.starts_with(br#"{"code":"unimplemented","#));
    }
}

#[test]
fn invalid_head_is_answered_in_the_form_of_the_call() {
    for (fields, code) in [
        ("Connect-Protocol-Version: 2\r\n".to_owned(), "invalid_argument"),
        (format!("{VERSION}Connect-Timeout-Ms: soon\r\n"), "invalid_argument"),
        (format!("{VERSION}Content-Encoding: odd\r\n"), "unimplemented"),
    ] {
        let (_, body) = answer_request(post(PROTO, &fields, b"x"), echo);
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with(&format!("{{\"code\":\"{code}\"")), "{body}");
    }
    let fields = "Connect-Content-Encoding: odd\r\n";
    let (head, body) = answer_request(post(STREAM, fields, &build_frame(0, b"x")), echo);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(body.starts_with(&[2]) && body[5..].starts_with(br#"{"error":{"code":"unimplemented","#));
}

#[test]
fn stream_is_answered_by_messages_and_an_end_message() {
    let body = [build_frame(0, b"one"), build_frame(0, b""), build_frame(0, b"three")].concat();
    let mut connection = TestConnection::new(post(STREAM, "", &body));
    let (call, ticket) = connection.call().expect("a call");
    assert_eq!(call.head.format, Format::Protobuf);
    assert!(connection.call().is_none());
    assert_eq!(connection.parts, ["one", "", "three", "end"]);
    let stream = ticket.stream().expect("it streams");
    let head = Head { metadata: [("k", "v")].into_iter().collect(), ..Head::default() };
    connection.server.start_response(stream, head, &mut connection.out);
    for message in ["one", "", "three"] {
        connection.server.send_message(stream, Bytes::from(message), &mut connection.out);
    }
    let mut trailers = Metadata::new();
    trailers.append("a", "1");
    trailers.append("a", "2");
    connection.server.finish(ticket, Err(Status::aborted("enough")), trailers, &mut connection.out);
    let (head, recorded) = connection.take_response();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\nk: v\r\n"));
    let (messages, end) = recorded.split_at(body.len());
    assert_eq!((messages, end[0]), (&body[..], 2));
    let want = br#"{"error":{"code":"aborted","message":"enough"},"metadata":{"a":["1","2"]}}"#;
    assert_eq!(&end[5..], want);
    let (result, trailers) = frame::read_end(&end[5..]).expect("the end of a stream");
    assert_eq!((result.unwrap_err().code(), trailers.all("a").count()), (Code::Aborted, 2));
}

#[test]
fn malformed_stream_fails_and_the_connection_stays_open() {
    for (body, code) in [
        (build_frame(4, b""), "internal"),
        (build_frame(2, b"{}"), "internal"),
        (build_frame(1, b"zipped"), "internal"),
        (build_frame(0, b"hello")[..7].to_vec(), "internal"),
        (build_frame(0, &[7; LIMIT + 1]), "resource_exhausted"),
    ] {
        let mut connection =
            TestConnection::new([post(STREAM, "", &body), post(PROTO, VERSION, b"x")].concat());
        let (call, ticket) = connection.call().expect("a call");
        if let Some(status) = call.malformed {
            connection.server.reply(ticket, Reply::failure(status), &mut connection.out);
        }
        assert_eq!(connection.call().expect("the connection goes on").0.body, "x");
        let (_, recorded) = connection.take_response();
        let want = format!("{{\"error\":{{\"code\":\"{code}\"");
        assert!(recorded[5..].starts_with(want.as_bytes()), "{}", String::from_utf8_lossy(&recorded));
    }
}

#[test]
fn unary_message_is_limited() {
    let mut connection = TestConnection::new(post(PROTO, VERSION, &[7; LIMIT + 1]));
    assert!(connection.call().expect("its head").0.body.is_empty());
    assert!(connection.call().is_none());
    assert_eq!(connection.parts, ["cancelled"]);
    let (head, body) = connection.take_response();
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(body.starts_with(br#"{"code":"resource_exhausted""#));
    assert_eq!(answer_request(post(PROTO, VERSION, &[7; LIMIT]), echo).1.len(), LIMIT);
}

#[test]
fn streaming_method_cannot_be_called_as_unary() {
    let mut connection = TestConnection::new(post(PROTO, VERSION, b"x"));
    let (_, ticket) = connection.call().expect("a call");
    assert!(ticket.stream().is_none());
}

#[test]
fn messages_are_compressed_as_negotiated() {
    let text = vec![b'a'; 500];
    let zipped = compress::compress(Compression::Gzip, &text).unwrap();
    let fields = format!("{VERSION}Content-Encoding: gzip\r\nAccept-Encoding: br, gzip\r\n");
    let (head, body) = answer_request(post(PROTO, &fields, &zipped), |call| {
        assert_eq!((call.head.compression, &call.body[..]), (Compression::Gzip, &zipped[..]));
        let head = Head { compression: Compression::Gzip, ..Head::default() };
        Reply::new(Ok(text.clone().into()), head)
    });
    assert!(head.contains("content-encoding: gzip\r\nvary: accept-encoding\r\n"), "{head}");
    assert_eq!(compress::decompress(Compression::Gzip, &body, LIMIT).unwrap(), text);
}

#[test]
fn get_calls_a_method_without_side_effects() {
    for target in [
        "/a.Echo/Look?connect=v1&encoding=json&message=%7B%22a%22%3A1%7D",
        "/a.Echo/Look?message=eyJhIjoxfQ&base64=1&connect=v1&encoding=json",
        "/a.Echo/Look?connect=v1&base64=1&encoding=json&message=eyJhIjoxfQ%3D%3D",
    ] {
        let (head, body) = answer_request(get(target), |call| {
            assert_eq!((call.service, call.method), ("a.Echo", "Look"));
            assert_eq!(call.head.format, Format::Json(Json::Proto3));
            echo(call)
        });
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{target}: {head}");
        assert_eq!(body, br#"{"a":1}"#, "{target}");
    }
}

#[test]
fn get_of_an_effectful_method_or_from_another_origin_is_rejected() {
    let (head, _) = answer_request(get("/a.Echo/Echo?connect=v1&encoding=json&message=%7B%7D"), |_| panic!());
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("Allow: POST\r\n"), "{head}");
    let target = "/a.Echo/Look?connect=v1&encoding=json&message=%7B%7D";
    let request = get(target).replace("Host: h\r\n", "Host: h\r\nSec-Fetch-Site: cross-site\r\n");
    let (head, _) = answer_request(request, |_| panic!("a page of another origin"));
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[test]
fn malformed_query_is_an_invalid_argument() {
    for query in [
        "connect=v1",
        "connect=v1&encoding=json",
        "connect=v1&message=x",
        "connect=v1&encoding=odd&message=x",
        "connect=v1&encoding=json&message=%7",
        "connect=v1&encoding=json&base64=1&message=%21",
    ] {
        let status = query::read(query.as_bytes()).expect_err(query);
        assert_eq!(status.code(), Code::InvalidArgument, "{query}");
        let (head, _) = answer_request(get(&format!("/a.Echo/Look?{query}")), echo);
        assert!(head.starts_with("HTTP/1.1 400 "), "{query}: {head}");
    }
    let status = query::read(b"connect=v1&compression=odd").expect_err("a compression");
    assert_eq!(status.code(), Code::Unimplemented);
}

#[test]
fn query_round_trips() {
    let message: Vec<u8> = (0..=255).collect();
    let text = query::write(Format::Protobuf, Compression::Gzip, &message);
    assert!(text.starts_with("connect=v1&base64=1&compression=gzip&encoding=proto&message="), "{text}");
    assert!(query::is_call(text.as_bytes()));
    let read = query::read(text.as_bytes()).expect("its own query");
    assert_eq!(
        (read.format, read.compression, &read.message[..]),
        (Format::Protobuf, Compression::Gzip, &message[..])
    );
}

#[test]
fn unknown_content_type_is_answered_with_the_supported_ones() {
    let (head, _) = answer_request(post("application/connect+thrift", VERSION, b""), echo);
    assert!(head.starts_with("HTTP/1.1 415 "), "{head}");
    assert!(head.contains("Accept-Post: application/proto, application/json, application/connect+proto"));
}

#[test]
fn plain_callers_receive_a_stream_as_lines_or_events() {
    let stream = |accept: &str, failure: Option<Status>| {
        let mut connection =
            TestConnection::new(post("application/json", &format!("Accept: {accept}\r\n"), b"{}"));
        let (call, ticket) = connection.call().expect("a call");
        assert_eq!((call.head.format, &call.body[..]), (Format::Json(Json::Proto3), &b"{}"[..]));
        let stream = ticket.stream().expect("it streams");
        connection.server.send_message(stream, Bytes::from_static(b"{\n\"a\": 1}"), &mut connection.out);
        connection.server.send_message(stream, Bytes::from_static(b"{}"), &mut connection.out);
        connection.server.finish(ticket, failure.map_or(Ok(()), Err), Metadata::new(), &mut connection.out);
        let (head, body) = connection.take_response();
        (head, String::from_utf8(body).unwrap())
    };
    let failure = || Some(Status::aborted("enough"));
    let error = r#"{"error":{"code":"aborted","message":"enough"}}"#;
    let (head, body) = stream("application/x-ndjson", None);
    assert!(head.contains("content-type: application/x-ndjson\r\n"), "{head}");
    assert_eq!(body, "{ \"a\": 1}\n{}\n");
    assert_eq!(stream("application/x-ndjson", failure()).1, format!("{{ \"a\": 1}}\n{{}}\n{error}\n"));
    let (head, body) = stream("text/event-stream", None);
    assert!(head.contains("content-type: text/event-stream\r\ncache-control: no-cache\r\n"), "{head}");
    assert_eq!(body, "data: { \"a\": 1}\n\ndata: {}\n\nevent: end\ndata: {}\n\n");
    let want = format!("data: {{ \"a\": 1}}\n\ndata: {{}}\n\nevent: error\ndata: {error}\n\n");
    assert_eq!(stream("text/event-stream", failure()).1, want);
}

#[test]
fn line_stream_that_fails_before_it_starts_has_the_http_status() {
    let fields = "Accept: application/x-ndjson\r\n";
    let fails = |_: &Call<'_>| Reply::failure(Status::not_found("gone"));
    let (head, body) = answer_request(post("application/json", fields, b"{}"), fails);
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    assert_eq!(body, br#"{"code":"not_found","message":"gone"}"#);
}

#[test]
fn stream_of_text_that_fails_before_it_starts_keeps_metadata_and_trailers() {
    let fails = || {
        let mut reply = Reply::failure(Status::unavailable("later"));
        reply.head.metadata.insert("retry-after", "5");
        reply.trailers.insert("why", "busy");
        reply
    };
    for accept in ["application/x-ndjson", "text/event-stream"] {
        let fields = format!("Accept: {accept}\r\n");
        let (head, body) = answer_request(post("application/json", &fields, b"{}"), |_| fails());
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert!(head.contains("retry-after: 5\r\n") && head.contains("trailer-why: busy\r\n"), "{head}");
        assert_eq!(body, br#"{"code":"unavailable","message":"later"}"#);
    }
}

#[test]
fn any_split_of_the_requests_yields_the_same_calls() {
    let stream = [build_frame(0, b"one"), build_frame(0, b"two")].concat();
    let requests: [Vec<u8>; 3] = [
        post(PROTO, VERSION, b"hello"),
        post(STREAM, "", &stream),
        get("/a.Echo/Look?connect=v1&encoding=json&message=%7B%7D").into(),
    ];
    for request in requests {
        assert_any_split(|| Server::new(config()), &request);
        assert_survives_damage(|| Server::new(config()), &request, LIMIT * 2 + (4 << 10));
    }
}

fn client(method: UnaryMethod) -> grpc_web::Client {
    grpc_web::Client::new(grpc_web::ClientConfig {
        limits: Limits { message: LIMIT, ..Limits::default() },
        authority: "h:1".to_owned(),
        credential: None,
        framing: Some(method.into()),
    })
}

const ID: CallId = CallId(1);

fn call(body: &'static [u8]) -> Call<'static> {
    Call::new("a.Echo", "Look", Format::Protobuf, Bytes::from_static(body))
}

/// Decodes a response to a unary call as a client does.
fn outcome(response: &[u8]) -> Reply {
    let mut client = client(UnaryMethod::Post);
    client.send(ID, call(b"hello"), &mut Outbox::new()).expect("a plain call");
    sole_reply(found(&mut client, response)).1
}

fn found(client: &mut grpc_web::Client, response: &[u8]) -> Vec<ClientEvent> {
    let (mut inbox, mut out) = (BytesMut::from(response), Outbox::new());
    std::iter::from_fn(|| client.next_event(&mut inbox, &mut out).expect("it is HTTP")).collect()
}

fn response(http: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {http}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn unary_response_is_a_message_or_a_failure() {
    let ok = "Content-Type: application/proto\r\n";
    let json = "Content-Type: application/json\r\n";
    let reply = outcome(&response("200 OK", &format!("{ok}A: 1\r\nTrailer-B: 2\r\n"), b"hi"));
    assert_eq!(reply.result, Ok(Bytes::from_static(b"hi")));
    assert_eq!((reply.head.metadata.get("a"), reply.trailers.get("b")), (Some("1"), Some("2")));
    let error = br#"{"code":"aborted","message":"m","details":[{"type":"a.B","value":"CAE"}]}"#;
    let failed = outcome(&response("409 Conflict", &format!("{json}Trailer-B: 2\r\n"), error));
    assert_eq!(failed.trailers.get("b"), Some("2"));
    let status = failed.result.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "m"));
    assert_eq!(status.typed_details()[0].type_name(), "a.B");
    for (bytes, code) in [
        (response("503 Busy", "", b"busy"), Code::Unavailable),
        (response("404 Gone", json, b"no JSON"), Code::Unimplemented),
        (response("409 Conflict", json, b"{}"), Code::Unknown),
        (response("200 OK", "Content-Type: text/html\r\n", b"page"), Code::Unknown),
        (response("200 OK", json, b"{}"), Code::Internal),
        (response("200 OK", &format!("{ok}Content-Encoding: odd\r\n"), b"x"), Code::Internal),
        (response("200 OK", ok, &[7; LIMIT + 1]), Code::ResourceExhausted),
    ] {
        let status = outcome(&bytes).result.unwrap_err();
        assert_eq!(status.code(), code, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn stream_ends_with_the_message_that_says_so() {
    let ok = format!("Content-Type: {STREAM}\r\n");
    let end = build_frame(2, br#"{"metadata":{"K":["v"]}}"#);
    let outcome = |body: &[u8]| {
        let mut client = client(UnaryMethod::Post);
        let mut out = Outbox::new();
        client.open(ID, call(b""), &mut out).expect("streams are expressed");
        client.send_message(ID, Bytes::from_static(b"one"), &mut out);
        client.end(ID, &mut out);
        let sent = String::from_utf8(out.take()).expect("text");
        assert!(sent.contains("content-type: application/connect+proto\r\n"), "{sent}");
        assert!(sent.ends_with("\r\n\r\n8\r\n\0\0\0\0\x03one\r\n0\r\n\r\n"), "{sent:?}");
        match found(&mut client, &response("200 OK", &ok, body)).pop() {
            Some(ClientEvent::Reply(ID, reply)) => reply,
            other => panic!("{other:?}"),
        }
    };
    let reply = outcome(&[build_frame(0, b"one"), end.clone()].concat());
    assert!(reply.result.is_ok());
    assert_eq!(reply.trailers.get("k"), Some("v"));
    for body in [
        build_frame(0, b"one"),
        build_frame(2, b"no JSON"),
        build_frame(2, br#"{"metadata":1}"#),
        build_frame(3, b"{}"),
        [end.clone(), build_frame(0, b"one")].concat(),
        [build_frame(0, b"one"), end[..9].to_vec()].concat(),
    ] {
        let status = outcome(&body).result.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{body:?}");
    }
    let failed = outcome(&build_frame(2, br#"{"error":{"code":"not_found"}}"#)).result.unwrap_err();
    assert_eq!(failed.code(), Code::NotFound);
}

#[test]
fn client_survives_damaged_responses() {
    let json = "Content-Type: application/json\r\n";
    let failed =
        response("409 Conflict", json, br#"{"code":"aborted","details":[{"type":"a","value":"CAE"}]}"#);
    let streamed = response(
        "200 OK",
        "Content-Type: application/connect+proto\r\n",
        &[build_frame(0, b"one"), build_frame(2, b"{}")].concat(),
    );
    let unary = || {
        let mut client = client(UnaryMethod::Post);
        client.send(ID, call(b"hello"), &mut Outbox::new()).expect("a plain call");
        client
    };
    let stream = || {
        let mut client = client(UnaryMethod::Post);
        client.open(ID, call(b""), &mut Outbox::new()).expect("a plain call");
        client
    };
    assert_client_survives_damage(unary, &failed, LIMIT);
    assert_client_survives_damage(stream, &streamed, LIMIT);
}

#[test]
fn client_and_server_understand_each_other_by_post_and_get() {
    for method in [UnaryMethod::Post, UnaryMethod::Get] {
        let mut pair = Pair::new(client(method), Server::new(config()));
        for (n, compression) in [(0, Compression::None), (1, Compression::Gzip)] {
            let mut call = call(b"hello");
            call.head.metadata.insert("k-bin", &b"\x00\x01"[..]);
            call.head.compression = compression;
            call.timeout = Some(Duration::from_millis(2999));
            let answers = pair.call(CallId(n), &call, |call| {
                assert_eq!((call.service, call.method), ("a.Echo", "Look"));
                assert_eq!(call.timeout, Some(Duration::from_millis(2999)));
                assert_eq!(call.head.metadata.bytes("k-bin").unwrap()[..], [0, 1]);
                let body = compress::decompress(call.head.compression, &call.body, LIMIT).unwrap();
                assert_eq!((call.head.compression, &body[..]), (compression, &b"hello"[..]));
                let mut reply = Reply::message(Format::Protobuf, body.into());
                reply.trailers.insert("behind", "all");
                reply
            });
            let (id, reply) = sole_reply(answers);
            assert_eq!((id, reply.result), (CallId(n), Ok(Bytes::from_static(b"hello"))));
            assert_eq!(reply.trailers.get("behind"), Some("all"));
            assert!(pair.client.is_reusable());
        }
    }
}

fn h2(method: UnaryMethod) -> Pair<grpc::Client, http_server::h2::Server> {
    let client = grpc::Client::new(grpc::ClientConfig {
        limits: Limits::default(),
        http: Default::default(),
        authority: "localhost".into(),
        tls: false,
        web: false,
        framing: Some(method.into()),
        credential: None,
    });
    let config = http_server::h2::ServerConfig { gateway: Some(config()), ..Default::default() };
    Pair::new(client, http_server::h2::Server::new(Arc::new(config)))
}

#[test]
fn client_and_server_understand_each_other_over_http2() {
    for method in [UnaryMethod::Post, UnaryMethod::Get] {
        let mut pair = h2(method);
        for n in 0..3 {
            let answers = pair.call(CallId(n), &call(b"hello"), |call| {
                let mut reply = echo(call);
                reply.trailers.insert("behind", "all");
                reply
            });
            let (_, reply) = sole_reply(answers);
            assert_eq!(reply.result, Ok(Bytes::from_static(b"hello")));
            assert_eq!(reply.trailers.get("behind"), Some("all"));
            let answers = pair.call(CallId(n + 10), &call(b""), |_| Reply::failure(Status::aborted("why")));
            assert_eq!(sole_reply(answers).1.result, Err(Status::aborted("why")));
        }
    }
}

#[test]
fn protocol_headers_are_rejected_as_metadata() {
    for name in ["connect-timeout-ms", "Trailer-A", "accept-encoding"] {
        let mut call = call(b"");
        call.head.metadata.insert(name, "1");
        let refused = client(UnaryMethod::Post).send(ID, call, &mut Outbox::new()).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}");
    }
}

#[test]
fn long_message_is_sent_by_post_even_if_get_is_preferred() {
    let (mut client, mut out) = (client(UnaryMethod::Get), Outbox::new());
    client.send(ID, call(&[b'a'; 4000]), &mut out).expect("a plain call");
    assert!(out.take().starts_with(b"POST /a.Echo/Look HTTP/1.1\r\n"));
}

#[test]
fn unary_response_is_reported_only_when_complete() {
    let mut client = client(UnaryMethod::Post);
    client.send(ID, call(b"hello"), &mut Outbox::new()).expect("a plain call");
    let whole = response("200 OK", "Content-Type: application/proto\r\n", b"hello");
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    for (at, byte) in whole.iter().enumerate() {
        inbox.extend_from_slice(&[*byte]);
        let event = client.next_event(&mut inbox, &mut out).expect("it is HTTP");
        assert_eq!(event.is_some(), at + 1 == whole.len(), "byte {at}");
    }
    assert!(client.is_reusable());
}

//! HTTP/2 requests other than gRPC.

use std::sync::Arc;

use polyrpc_core::session::{NotFound, Verdict};
use polyrpc_core::testing::{assert_any_split, assert_survives_damage};
use polyrpc_core::{Credential, Json, Limits};

use super::browser::{Browser, Field};
use super::*;
use crate::http::{Cors, ServerConfig as HttpConfig};

fn config() -> ServerConfig {
    let limits = Limits { message: 100_000, ..Limits::default() };
    let gateway = HttpConfig {
        limits,
        address: "127.0.0.1:1".into(),
        version: "one".into(),
        cors: Cors::Any,
        ..Default::default()
    };
    ServerConfig { gateway: Some(Arc::new(gateway)), ..ServerConfig::default() }
}

fn browser() -> Browser {
    Browser::new(config())
}

fn echo(server: &mut Server, ticket: Ticket, body: Bytes, out: &mut Outbox) {
    server.reply(ticket, Reply::message(Format::Json(Json::Brpc), body), out);
}

/// Returns the response to a request by a method that echoes its input.
fn echo_request(method: &str, path: &str, fields: &[Field<'_>], pieces: &[&[u8]]) -> (Vec<String>, String) {
    let mut browser = browser();
    browser.ask(method, path, fields, pieces);
    browser.serve(echo);
    let (head, body) = browser.answer();
    (head, String::from_utf8(body).unwrap())
}

const JSON: Field<'_> = ("content-type", "application/json");

#[test]
fn json_calls_work_as_over_http_1() {
    let mut browser = browser();
    let fields = [JSON, ("x-key", "value"), ("authorization", "me"), ("cookie", "a=1"), ("cookie", "b=2")];
    browser.ask("POST", "/EchoService/Echo/rest?x=1", &fields, &[b"{\"a\"", b":1}"]);
    browser.inbox.extend_from_slice(&browser.up.take());
    let Ok(Some(ServerEvent::Head(head, stream))) =
        browser.server.next_event(&mut browser.inbox, &mut browser.down)
    else {
        panic!("no head");
    };
    assert_eq!(head.target, Some(("EchoService", "Echo")));
    assert_eq!(head.credential, Credential::Call(Some("me".into())));
    browser.server.apply_verdict(stream, Verdict::Accepted, &mut browser.down);
    let Ok(Some(ServerEvent::Call(call, ticket))) =
        browser.server.next_event(&mut browser.inbox, &mut browser.down)
    else {
        panic!("no call");
    };
    assert_eq!((call.service, call.method, &call.body[..]), ("EchoService", "Echo", &b"{\"a\":1}"[..]));
    assert!(call.authenticated);
    assert_eq!(call.head.format, Format::Json(Json::Brpc));
    assert_eq!(call.head.metadata.get("x-key"), Some("value"));
    assert_eq!(call.head.metadata.get("cookie"), Some("a=1; b=2"));
    assert_eq!(call.head.metadata.get("x-bd-unresolved-path"), Some("rest"));
    assert_eq!(call.credential, Credential::Call(Some("me".into())));
    let unknown = ticket.not_found_failure(&call, NotFound::Service);
    assert_eq!(unknown.message(), "Fail to find method on `/EchoService/Echo/rest'");
    drop(call);
    let head = Head { metadata: [("Answer", "yes")].into_iter().collect(), ..Head::default() };
    let head = Head { format: Format::Json(Json::Brpc), ..head };
    browser.server.reply(ticket, Reply::new(Ok(Bytes::from_static(b"{}")), head), &mut browser.down);
    let (head, body) = browser.answer();
    let want = [":status: 200", "content-length: 2", "content-type: application/json", "answer: yes"];
    assert_eq!((head, &body[..]), (want.map(str::to_owned).to_vec(), &b"{}"[..]));
}

#[test]
fn failure_has_its_status_and_number() {
    let mut browser = browser();
    browser.ask("POST", "/EchoService/Echo", &[JSON], &[b"{}"]);
    browser
        .serve(|server, ticket, _, out| server.reply(ticket, Reply::failure(Status::not_found("no")), out));
    let (head, body) = browser.answer();
    assert_eq!(head[0], ":status: 404");
    assert!(head.contains(&"x-bd-error-code: 3".to_owned()), "{head:?}");
    assert_eq!(body, br#"{"code":5,"message":"no","details":[]}"#);
}

#[test]
fn built_in_pages_are_served() {
    for (path, want) in [("/health", "OK"), ("/version", "one")] {
        assert_eq!(echo_request("GET", path, &[], &[]).1, want);
        let (head, body) = echo_request("HEAD", path, &[], &[]);
        assert_eq!((&head[0][..], &body[..]), (":status: 200", ""));
    }
    assert_eq!(echo_request("PROPFIND", "/", &[], &[]).0[0], ":status: 501");
    let (head, _) = echo_request("OPTIONS", "/", &[], &[]);
    assert_eq!(head[0], ":status: 204");
}

#[test]
fn rpcx_gateway_is_served() {
    let fields = [
        ("x-rpcx-servicepath", "Arith"),
        ("x-rpcx-servicemethod", "Mul"),
        ("x-rpcx-serializetype", "1"),
        ("x-rpcx-messageid", "7"),
    ];
    let (head, body) = echo_request("POST", "/", &fields, &[b"{}"]);
    assert_eq!(body, "{}");
    assert!(head.contains(&"x-rpcx-messageid: 7".to_owned()), "{head:?}");
}

#[test]
fn json_rpc_batch_is_answered_after_its_last_reply() {
    let mut browser = browser();
    let batch = br#"[{"jsonrpc":"2.0","method":"A.b","params":[1],"id":1},{"jsonrpc":"2.0","method":"A.c"},
        {"jsonrpc":"2.0","method":"A.d","params":[2],"id":2}]"#;
    browser.ask("POST", "/jsonrpc", &[JSON], &[batch]);
    let mut tickets = Vec::new();
    browser.serve(|_, ticket, body, _| tickets.push((ticket, body)));
    assert_eq!(tickets.len(), 3);
    browser.answer();
    for (ticket, body) in tickets.into_iter().rev() {
        assert!(browser.down.is_empty());
        browser.server.reply(ticket, Reply::message(Format::Json(Json::Go), body), &mut browser.down);
    }
    let (head, body) = browser.answer();
    assert_eq!(head[0], ":status: 200");
    let want = r#"[{"jsonrpc":"2.0","result":[2],"id":2},{"jsonrpc":"2.0","result":[1],"id":1}]"#;
    assert_eq!(String::from_utf8(body).unwrap(), want);
}

#[test]
fn body_over_the_limit_is_rejected_and_the_connection_stays_open() {
    let piece = [b'x'; 10_000];
    let mut browser = browser();
    browser.ask("POST", "/EchoService/Echo", &[JSON], &[&piece[..]; 11]);
    let mut head = Vec::new();
    while head.is_empty() {
        let recorded = browser.serve(echo);
        assert!(recorded.iter().all(|event| event.ends_with("cancelled") || event.contains("announced")));
        head = browser.answer().0;
    }
    assert_eq!(head[0], ":status: 413");
    browser.ask("POST", "/EchoService/Echo", &[JSON], &[b"{}"]);
    browser.serve(echo);
    assert_eq!(browser.answer().1, b"{}");
}

#[test]
fn cors_headers_allow_listed_origins() {
    let (head, _) = echo_request("POST", "/EchoService/Echo", &[JSON, ("origin", "https://page")], &[b"{}"]);
    assert!(head.contains(&"access-control-allow-origin: https://page".to_owned()), "{head:?}");
    let fields = [("origin", "https://page"), ("access-control-request-method", "POST")];
    let (head, _) = echo_request("OPTIONS", "/EchoService/Echo", &fields, &[]);
    assert!(
        head.contains(&"access-control-allow-methods: POST, GET, PUT, PATCH, DELETE".to_owned()),
        "{head:?}"
    );
}

#[test]
fn plain_http_is_rejected_if_only_grpc_is_enabled() {
    let mut browser = Browser::new(ServerConfig::default());
    browser.ask("POST", "/EchoService/Echo", &[JSON], &[b"{}"]);
    browser.serve(echo);
    assert_eq!(browser.answer().0[0], ":status: 415");
    browser.ask("GET", "/", &[], &[]);
    browser.serve(echo);
    assert_eq!(browser.answer().0[0], ":status: 405");
}

#[test]
fn reset_stream_drops_its_batch() {
    let mut browser = browser();
    let batch = br#"[{"jsonrpc":"2.0","method":"A.b","params":[1],"id":1}]"#;
    browser.ask("POST", "/jsonrpc", &[JSON], &[batch]);
    let mut owed = None;
    browser.serve(|_, ticket, _, _| owed = Some(ticket));
    browser.http.reset(1, crate::http::h2::ErrorCode::CANCEL, &mut browser.up);
    assert_eq!(browser.serve(echo), ["StreamId(1) cancelled"]);
    browser.down.take();
    browser.server.reply(
        owed.unwrap(),
        Reply::message(Format::Json(Json::Go), "1".into()),
        &mut browser.down,
    );
    assert!(browser.down.is_empty());
}

/// Returns a browser with an open request: its head and the first part of its body have been sent.
fn half_asked(path: &str, body: usize) -> (Browser, u32) {
    let mut browser = browser();
    let stream = browser.http.open(&super::browser::block("POST", path, &[JSON]), false, &mut browser.up);
    browser.http.data(stream, b"", Bytes::from(vec![b' '; body]), false, &mut browser.up);
    (browser, stream)
}

/// Returns the events of a server without authentication.
fn next_events(browser: &mut Browser) -> Vec<String> {
    browser.inbox.extend_from_slice(&browser.up.take());
    let mut found = Vec::new();
    while let Some(event) = browser.server.next_event(&mut browser.inbox, &mut browser.down).unwrap() {
        if !matches!(event, ServerEvent::Pause) {
            found.push(polyrpc_core::testing::describe_event(&event));
        }
    }
    browser.server.assert_sound();
    found
}

#[test]
fn unauthenticated_request_can_send_its_first_window_only() {
    let (mut browser, stream) = half_asked("/EchoService/Echo", 90_000);
    assert_eq!(next_events(&mut browser).len(), 1);
    browser.answer();
    next_events(&mut browser);
    assert_eq!(browser.server.buffered(), 64 << 10, "what the first window lets through");
    browser.answer();
    assert_eq!(next_events(&mut browser), [""; 0]);
    assert_eq!(browser.server.buffered(), 64 << 10, "no more is granted");
    browser.server.apply_verdict(StreamId(stream.into()), Verdict::Accepted, &mut browser.down);
    browser.answer();
    next_events(&mut browser);
    assert_eq!(browser.server.buffered(), 90_000);
}

#[test]
fn rejected_request_is_answered_at_its_head_and_its_body_discarded() {
    let verdicts = [
        (Verdict::Unauthenticated(Status::unauthenticated("who are you")), ":status: 401", "who are you"),
        (Verdict::Missing(NotFound::Method), ":status: 404", "Fail to find method on `/EchoService/Echo'"),
        (Verdict::Refused(Status::unavailable("not now")), ":status: 503", "not now"),
    ];
    for (verdict, status, text) in verdicts {
        let (mut browser, stream) = half_asked("/EchoService/Echo", 90_000);
        next_events(&mut browser);
        browser.server.apply_verdict(StreamId(stream.into()), verdict, &mut browser.down);
        assert_eq!(browser.server.buffered(), 0);
        let (head, body) = browser.answer();
        assert_eq!(head[0], status);
        assert!(String::from_utf8_lossy(&body).contains(text), "{}", body.escape_ascii());
        for _ in 0..10 {
            next_events(&mut browser);
            browser.answer();
        }
        assert_eq!((browser.server.streams(), browser.http.streams()), (0, 0), "the peer was asked to stop");
        browser.ask("POST", "/EchoService/Echo", &[JSON], &[b"{}"]);
        browser.serve(echo);
        assert_eq!(browser.answer().1, b"{}", "the connection goes on");
    }
}

#[test]
fn request_that_ended_before_its_verdict_becomes_a_call_on_acceptance() {
    let (mut browser, stream) = half_asked("/EchoService/Echo", 10);
    browser.http.data(stream, b"", Bytes::from_static(b"{}"), true, &mut browser.up);
    let announced = next_events(&mut browser);
    assert!(announced.len() == 1 && announced[0].contains("announced"), "{announced:?}");
    assert!(!browser.server.needs_ticks(), "nothing of it is missing");
    browser.server.apply_verdict(StreamId(stream.into()), Verdict::Accepted, &mut browser.down);
    let called = next_events(&mut browser);
    assert!(called.len() == 1 && called[0].contains("authenticated: true"), "{called:?}");
    assert_eq!(browser.server.buffered(), 0);
}

#[test]
fn request_that_is_reset_before_its_verdict_is_cancelled() {
    let (mut browser, stream) = half_asked("/EchoService/Echo", 10);
    next_events(&mut browser);
    browser.http.reset(stream, crate::http::h2::ErrorCode::CANCEL, &mut browser.up);
    assert_eq!(next_events(&mut browser), ["StreamId(1) cancelled"]);
    browser.server.apply_verdict(StreamId(stream.into()), Verdict::Accepted, &mut browser.down);
    assert_eq!((next_events(&mut browser), browser.server.buffered()), (vec![], 0));
}

#[test]
fn oversized_content_length_is_rejected_at_its_head() {
    let mut browser = browser();
    let fields = [JSON, ("content-length", "100001")];
    browser.http.open(&super::browser::block("POST", "/EchoService/Echo", &fields), false, &mut browser.up);
    assert_eq!(next_events(&mut browser), [""; 0]);
    assert_eq!(browser.answer().0[0], ":status: 413");
}

#[test]
fn missing_body_is_answered_with_408() {
    let (mut browser, _) = half_asked("/EchoService/Echo", 10);
    browser.serve(echo);
    assert!(browser.server.needs_ticks());
    browser.server.tick(Duration::ZERO, &mut browser.down);
    browser.server.tick(Duration::from_secs(9), &mut browser.down);
    assert_eq!(next_events(&mut browser), [""; 0]);
    browser.server.tick(Duration::from_secs(10), &mut browser.down);
    assert_eq!(next_events(&mut browser), [""; 0], "no call was delivered");
    let (head, body) = browser.answer();
    assert_eq!(head[0], ":status: 408");
    assert!(
        body.starts_with(br#"{"code":4,"message":"the request's message did not arrive in time: "#),
        "{}",
        body.escape_ascii()
    );
    assert_eq!((browser.server.streams(), browser.server.timeouts()), (0, 1));
    assert!(!browser.server.needs_ticks());
}

#[test]
fn unauthenticated_request_without_its_body_is_cancelled() {
    let (mut browser, _) = half_asked("/EchoService/Echo", 10);
    next_events(&mut browser);
    browser.server.tick(Duration::ZERO, &mut browser.down);
    browser.server.tick(Duration::from_secs(10), &mut browser.down);
    assert_eq!(next_events(&mut browser), ["StreamId(1) cancelled"]);
    assert_eq!(browser.answer().0[0], ":status: 408");
}

#[test]
fn continue_is_sent_once_the_request_was_accepted() {
    let mut browser = browser();
    let fields = [JSON, ("expect", "100-continue")];
    let block = super::browser::block("POST", "/EchoService/Echo", &fields);
    let stream = browser.http.open(&block, false, &mut browser.up);
    assert_eq!(next_events(&mut browser).len(), 1);
    assert!(!browser.server.needs_ticks(), "the peer may not be late");
    browser.down.take();
    browser.server.apply_verdict(StreamId(stream.into()), Verdict::Accepted, &mut browser.down);
    // HEADERS on stream 1 without END_STREAM.
    let said = browser.down.take();
    assert_eq!(said[3..9], [1, 4, 0, 0, 0, 1]);
    let fields = crate::http::h2::hpack::Decoder::new(4096, 4096).decode(&said[9..]).unwrap();
    assert_eq!(fields.get(b":status"), Some(&b"100"[..]));
    assert!(browser.server.needs_ticks());
}

#[test]
fn oversized_header_list_is_answered_with_431() {
    let mut browser = browser();
    let cookie = "c".repeat(70_000);
    browser.ask("POST", "/EchoService/Echo", &[("cookie", &cookie), JSON], &[b"{}"]);
    assert_eq!(next_events(&mut browser), [""; 0]);
    let (head, body) = browser.answer();
    assert_eq!(head[0], ":status: 431");
    let text = String::from_utf8(body).unwrap();
    assert!(
        text.starts_with("the header list of 70") && text.ends_with("exceeds the limit of 65536"),
        "{text}"
    );
    browser.ask("POST", "/EchoService/Echo", &[JSON], &[b"{}"]);
    browser.serve(echo);
    assert_eq!(browser.answer().1, b"{}", "the connection goes on");
}

#[test]
fn any_split_yields_the_same_and_damage_never_panics() {
    let mut browser = browser();
    browser.ask("POST", "/EchoService/Echo", &[JSON], &[b"{\"a\"", b":1}"]);
    let bytes = browser.up.take();
    let server = || Server::new(config().into());
    assert_any_split(server, &bytes);
    assert_survives_damage(server, &bytes, 1 << 20);
}

/// Returns this number of fields with the same name.
fn copies(count: usize) -> Vec<Field<'static>> {
    vec![("x-key", "v"); count]
}

#[test]
fn request_can_have_as_many_headers_as_over_http_1() {
    let (head, _) = echo_request("POST", "/S/M", &[&copies(99)[..], &[JSON]].concat(), &[b"{}"]);
    assert_eq!(head[0], ":status: 200");
    for count in [100, 1_000] {
        let (head, body) = echo_request("POST", "/S/M", &[&copies(count)[..], &[JSON]].concat(), &[b"{}"]);
        assert_eq!(head[0], ":status: 431", "{count}");
        assert!(body.contains("header fields"), "{body}");
    }
}

#[test]
fn repeated_headers_are_joined_in_order() {
    let mut browser = browser();
    let fields =
        [("x-key", "1"), ("x-other", "a"), ("cookie", "a=1"), ("x-key", "2"), ("cookie", "b=2"), JSON];
    browser.ask("POST", "/S/M", &[&fields[..], &copies(20)[..]].concat(), &[]);
    browser.inbox.extend_from_slice(&browser.up.take());
    let Ok(Some(ServerEvent::Call(call, _))) =
        browser.server.next_event(&mut browser.inbox, &mut browser.down)
    else {
        panic!("no call");
    };
    let metadata: Vec<_> = call.head.metadata.iter().map(|(name, _)| name).collect();
    assert_eq!(metadata, ["x-key", "x-other", "cookie"]);
    assert_eq!(call.head.metadata.get("x-key"), Some(&*["1, 2", &", v".repeat(20)].concat()));
    assert_eq!(call.head.metadata.get("cookie"), Some("a=1; b=2"));
}

#[test]
fn stream_of_text_that_fails_before_it_starts_keeps_its_metadata() {
    let mut browser = browser();
    browser.ask("POST", "/EchoService/Echo", &[JSON, ("accept", "text/event-stream")], &[b"{}"]);
    browser.serve(|server, ticket, _, out| {
        let mut reply = Reply::failure(Status::unavailable("later"));
        reply.head.metadata.insert("retry-after", "5");
        server.reply(ticket, reply, out);
    });
    let (head, body) = browser.answer();
    assert_eq!(head[0], ":status: 503");
    assert!(head.iter().any(|field| field == "retry-after: 5"), "{head:?}");
    assert_eq!(body, br#"{"code":"unavailable","message":"later"}"#);
}

//! Authentication before the body arrives, and cross-origin restrictions of browsers.

use polyrpc_core::session::NotFound;
use polyrpc_core::{Credential, StreamId};

use super::http_rules::routes;
use super::*;
use crate::http::{Cors, Hosts, MethodCatalog};

const HEAD: &str = "POST /Echo/Say HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\nContent-Length: 4\r\n\r\n";

/// Returns the head that waits for a verdict: its names, its credential, and the stream of the verdict.
fn head(connection: &mut TestConnection) -> (Option<(String, String)>, Credential, StreamId) {
    match connection.server.next_event(&mut connection.inbox, &mut connection.out).expect("no violation") {
        Some(ServerEvent::Head(head, stream)) => {
            let target = head.target.map(|(service, method)| (service.to_owned(), method.to_owned()));
            (target, head.credential, stream)
        }
        other => panic!("expected a head, got {other:?}"),
    }
}

fn none(connection: &mut TestConnection) {
    let event =
        connection.server.next_event(&mut connection.inbox, &mut connection.out).expect("no violation");
    assert!(event.is_none(), "{event:?}");
}

fn apply_verdict(connection: &mut TestConnection, stream: StreamId, verdict: Verdict) -> bool {
    connection.server.apply_verdict(stream, verdict, &mut connection.out)
}

fn unauthenticated() -> Verdict {
    Verdict::Unauthenticated(Status::unauthenticated("who?"))
}

#[test]
fn body_is_read_once_its_head_was_accepted() {
    let mut connection = TestConnection::new();
    connection.send(HEAD);
    let (target, credential, stream) = head(&mut connection);
    assert_eq!(target, Some(("Echo".to_owned(), "Say".to_owned())));
    assert_eq!(credential, Credential::Call(Some(Bytes::from_static(b"me"))));
    none(connection.send("tr"));
    assert!(connection.server.blocks_input() && connection.server.incomplete(&connection.inbox).is_none());
    assert_eq!(
        (connection.server.bytes_needed(), connection.inbox.len()),
        (0, 2),
        "nothing is read, no room is made"
    );
    assert!(!apply_verdict(&mut connection, stream, Verdict::Accepted));
    none(&mut connection);
    assert!(!connection.server.blocks_input() && connection.server.incomplete(&connection.inbox).is_some());
    assert_eq!(connection.server.bytes_needed(), 4);
    let (call, _) = connection.send("ue").call().expect("a call");
    assert!(call.authenticated);
    assert_eq!(call.body, "true");
}

#[test]
fn complete_request_is_reported_as_a_call() {
    let mut connection = TestConnection::new();
    let (call, _) = connection.send(HEAD).send("true").call().expect("a call");
    assert!(!call.authenticated);
    let chunked = HEAD.replace("Content-Length: 4", "Transfer-Encoding: chunked");
    let (call, _) = connection.send(chunked).send("4\r\ntrue\r\n0\r\n\r\n").call().expect("a call");
    assert!(!call.authenticated);
}

#[test]
fn continue_is_sent_only_after_the_head_was_accepted() {
    let expecting = HEAD.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    let mut connection = TestConnection::new();
    connection.send(&expecting);
    let (.., stream) = head(&mut connection);
    assert!(connection.out.is_empty());
    apply_verdict(&mut connection, stream, Verdict::Accepted);
    assert_eq!(connection.output(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(connection.send("true").call().is_some());
    assert!(connection.out.is_empty());

    let mut connection = TestConnection::new();
    connection.send(&expecting);
    let (.., stream) = head(&mut connection);
    assert!(apply_verdict(&mut connection, stream, unauthenticated()), "whether the body comes is unknown");
    let response = connection.output();
    assert!(response.starts_with("HTTP/1.1 401 ") && response.contains("Connection: close"), "{response}");
}

#[test]
fn rejected_request_is_answered_before_its_body_arrives() {
    let mut connection = TestConnection::new();
    connection.send(HEAD);
    let (.., stream) = head(&mut connection);
    assert!(!apply_verdict(&mut connection, stream, unauthenticated()), "a short body is discarded");
    let response = connection.output();
    assert!(
        response.starts_with("HTTP/1.1 401 ") && response.contains("WWW-Authenticate: Bearer"),
        "{response}"
    );
    let (call, _) = connection.send("true").send(bare("/Next/Call")).call().expect("the next request");
    assert_eq!((call.service, call.method), ("Next", "Call"));

    let long = HEAD.replace("Length: 4", "Length: 65000");
    let long = format!("{}{}", long, "x".repeat(10));
    let config = ServerConfig { limits: Limits::default(), ..(*config()).clone() };
    for (request, verdict, http) in [
        (long.replace("65000", "1000000"), Verdict::Missing(NotFound::Service), 404),
        (long.replace("65000", "1000000"), Verdict::Refused(Status::resource_exhausted("full")), 503),
        (long.replace("Content-Length: 65000", "Transfer-Encoding: chunked"), unauthenticated(), 401),
    ] {
        let mut connection =
            TestConnection { server: Server::new(Arc::new(config.clone())), ..TestConnection::new() };
        connection.send(request.replace("xxxxxxxxxx", ""));
        let (.., stream) = head(&mut connection);
        assert!(apply_verdict(&mut connection, stream, verdict), "the connection ends");
        none(connection.send("x".repeat(1000)).send(bare("/Next/Call")));
        assert!(connection.server.is_finished() && connection.inbox.is_empty());
        let response = connection.output();
        assert!(response.starts_with(&format!("HTTP/1.1 {http} ")), "{response}");
        assert!(response.contains("Connection: close"), "{response}");
    }
}

#[test]
fn rejection_waits_for_earlier_responses() {
    let mut connection = TestConnection::new();
    let (call, ticket) = connection.send(post("/S/M", "application/json", "1")).call().expect("a call");
    connection.send(HEAD);
    let (.., stream) = head(&mut connection);
    apply_verdict(&mut connection, stream, unauthenticated());
    assert!(connection.out.is_empty());
    assert!(connection.server.unsent() > 50);
    connection.reply(ticket, echo(&call));
    assert_eq!(connection.server.unsent(), 0);
    let response = connection.output();
    assert!(response.find(" 200 OK").expect("200") < response.find(" 401 ").expect("401"), "{response}");
}

#[test]
fn verdict_on_another_request_is_ignored() {
    let mut connection = TestConnection::new();
    connection.send(HEAD);
    let (.., stream) = head(&mut connection);
    assert!(!apply_verdict(&mut connection, StreamId(stream.0 + 1), unauthenticated()));
    assert!(connection.out.is_empty());
    apply_verdict(&mut connection, stream, Verdict::Accepted);
    assert!(!apply_verdict(&mut connection, stream, unauthenticated()), "the first verdict holds");
    assert!(connection.send("true").call().is_some());
}

#[test]
fn grpc_web_call_is_authenticated_by_its_head() {
    let request = "POST /Echo/Say HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\n\
        Content-Type: application/grpc-web+proto\r\nContent-Length: 9\r\n\r\n";
    let mut connection = TestConnection::new();
    connection.send(request);
    let (target, credential, stream) = head(&mut connection);
    assert_eq!(target, Some(("Echo".to_owned(), "Say".to_owned())));
    assert_eq!(credential.bytes().map(|bytes| &bytes[..]), Some(&b"me"[..]));
    apply_verdict(&mut connection, stream, Verdict::Accepted);
    let (call, ticket) = connection.send(b"\0\0\0\0\x04true").call().expect("a call");
    assert!(call.authenticated);
    connection.reply(ticket, echo(&call));
    connection.out.take();
    connection.send(request);
    let (.., stream) = head(&mut connection);
    assert!(!apply_verdict(&mut connection, stream, unauthenticated()));
    assert!(String::from_utf8_lossy(&connection.out.take()).contains("grpc-status:16"));
    assert!(connection.send(b"\0\0\0\0\x04true").send(bare("/Next/Call")).call().is_some());
}

#[test]
fn incomplete_body_counts_as_buffered() {
    let mut connection = TestConnection::new();
    let chunked = HEAD.replace("Content-Length: 4", "Transfer-Encoding: chunked");
    connection.send(&chunked).send(format!("1000\r\n{}", "x".repeat(1000)));
    let (.., stream) = head(&mut connection);
    assert_eq!(connection.server.buffered(), chunked.len() + 1000);
    apply_verdict(&mut connection, stream, Verdict::Accepted);
    none(connection.send("x".repeat(1000)));
    assert_eq!(connection.server.buffered(), chunked.len() + 2000);
}

#[test]
fn collected_batch_responses_count_as_unsent() {
    let one = r#"{"jsonrpc":"2.0","method":"a.b","params":[1],"id":1}"#;
    let mut connection = TestConnection::new();
    let request = post("/jsonrpc", "application/json", &format!("[{one},{one},1]"));
    let mut calls = connection.send(&request).calls();
    let refused = connection.server.unsent();
    assert!(refused > 50, "the entry that is no request is answered already");
    let (call, ticket) = calls.remove(0);
    connection.reply(ticket, echo(&call));
    assert!(connection.server.unsent() > refused);
    let (call, ticket) = calls.remove(0);
    connection.reply(ticket, echo(&call));
    assert_eq!(connection.server.unsent(), 0);
    assert!(connection.output().contains(" 200 OK"));
}

#[test]
fn batch_of_more_than_a_thousand_entries_is_one_error() {
    let batch = |entries| {
        let text = format!("[{}]", vec!["1"; entries].join(","));
        refuse(post("/jsonrpc", "application/json-rpc", &text)).0
    };
    assert!(batch(1000).body.len() > 50_000);
    let response = batch(1001);
    assert!(response.body.len() < 200 && response.text().contains("more than 1000 entries"), "{response:?}");
}

#[test]
fn request_needs_exactly_one_valid_host() {
    let request = |fields: &str| format!("POST /S/M HTTP/1.1\r\n{fields}\r\n");
    for fields in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: a b\r\n",
        "Host: a, b\r\n",
        "Host: a/b\r\n",
        "Host: user@a\r\n",
        "Host: a:b\r\n",
        "Host: a:1:2\r\n",
        "Host: [::1\r\n",
        "Host: [x]\r\n",
        "Host: []\r\n",
        "Host: [::1]a\r\n",
        "Host: :80\r\n",
    ] {
        let (response, finished) = refuse(request(fields));
        assert_eq!((response.status, finished), (400, true), "{fields}");
    }
    for fields in
        ["Host: a\r\n", "Host:\r\n", "host: a.b:80\r\n", "Host: [::1]:80\r\n", "Host: 127.0.0.1\r\n"]
    {
        assert!(TestConnection::new().send(request(fields)).call().is_some(), "{fields}");
    }
    assert!(TestConnection::new().send("POST /S/M HTTP/1.0\r\n\r\n").call().is_some(), "HTTP/1.0 knows none");
    let absolute =
        |authority: &str, fields: &str| format!("POST http://{authority}/S/M HTTP/1.1\r\n{fields}\r\n");
    for (authority, fields) in [
        ("a", ""),
        ("a", "Host: a\r\nHost: a\r\n"),
        ("a\"b", "Host: a\r\n"),
        ("user@a", "Host: a\r\n"),
        ("a:b", "Host: a\r\n"),
    ] {
        let (response, finished) = refuse(absolute(authority, fields));
        assert_eq!((response.status, finished), (400, true), "{authority} {fields}");
    }
    assert!(TestConnection::new().send(absolute("a.b:80", "Host: a\r\n")).call().is_some());
}

/// Returns the HTTP status for a request to a server with this configuration; 200 if it is a call.
fn status(config: &ServerConfig, request: &str) -> u16 {
    let mut connection =
        TestConnection { server: Server::new(Arc::new(config.clone())), ..TestConnection::new() };
    Response::parse(&connection.send(request).serve(echo)).status
}

#[test]
fn method_requires_post_unless_declared_otherwise() {
    let strict = ServerConfig { routes: routes(), ..(*config()).clone() };
    let lenient = ServerConfig { lenient: true, ..strict.clone() };
    for verb in ["GET", "HEAD", "PUT", "DELETE", "PATCH"] {
        let request = format!("{verb} /S/M HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut connection =
            TestConnection { server: Server::new(Arc::new(strict.clone())), ..TestConnection::new() };
        let answer = connection.send(&request).serve(|call| panic!("{verb} calls {call:?}"));
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("Allow: POST\r\n"), "{answer}");
        let mut connection =
            TestConnection { server: Server::new(Arc::new(lenient.clone())), ..TestConnection::new() };
        assert!(connection.send(&request).call().is_some(), "{verb}");
    }
    assert_eq!(status(&strict, "GET /v1/books/1 HTTP/1.1\r\nHost: a\r\n\r\n"), 200, "a rule");
    assert_eq!(status(&strict, "GET /Books/Get HTTP/1.1\r\nHost: a\r\n\r\n"), 405, "has a rule only");
    assert_eq!(status(&strict, "GET /Books/List HTTP/1.1\r\nHost: a\r\n\r\n"), 200, "free of side effects");
    assert_eq!(status(&strict, "PUT /Books/List HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
}

#[derive(Debug)]
struct OnlyEcho;

impl MethodCatalog for OnlyEcho {
    fn offers(&self, service: &str, method: &str) -> bool {
        (service, method) == ("S", "M")
    }
}

#[test]
fn other_verb_is_405_on_a_known_path_and_404_elsewhere_and_401_if_guarded() {
    let open = ServerConfig { routes: routes(), methods: Some(Arc::new(OnlyEcho)), ..(*config()).clone() };
    let guarded = ServerConfig { guarded: true, ..open.clone() };
    for (request, want) in [
        ("GET /S/M", 405),
        ("PUT /S/M", 405),
        ("GET /S/N", 404),
        ("PATCH /favicon.ico", 404),
        ("DELETE /S/N/more", 404),
        ("DELETE /v1/books/1", 405),
    ] {
        let request = format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(status(&open, &request), want, "{request}");
        let mut connection =
            TestConnection { server: Server::new(Arc::new(guarded.clone())), ..TestConnection::new() };
        connection.send(&request);
        let Ok(Some(ServerEvent::Head(head, stream))) =
            connection.server.next_event(&mut connection.inbox, &mut connection.out)
        else {
            panic!("{request} needs a verdict");
        };
        assert!(head.target.is_none(), "{request}");
        let verdict = Verdict::Unauthenticated(Status::unauthenticated("who?"));
        connection.server.apply_verdict(stream, verdict, &mut connection.out);
        assert!(connection.output().starts_with("HTTP/1.1 401 "), "{request}");
        // The connection continues, and authenticated callers get the specific status.
        let told = Response::parse(&connection.send(&request).serve(|call| panic!("{call:?}")));
        assert_eq!((told.status, connection.server.is_finished()), (want, false), "{request}");
    }
}

#[test]
fn cross_origin_page_cannot_call_unless_allowed() {
    let strict = ServerConfig { routes: routes(), ..(*config()).clone() };
    let with = |cors| ServerConfig { cors, ..strict.clone() };
    let any = with(Cors::Any);
    let some = with(Cors::Origins(vec!["https://page".into()]));
    let lenient = ServerConfig { lenient: true, ..strict.clone() };
    let post = |path: &str, fields: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a:80\r\n{fields}Content-Length: 2\r\n\r\n{{}}")
    };
    let json = "Content-Type: application/json\r\n";
    for (fields, want) in [
        ("", [200, 200, 200, 200]),
        ("Origin: http://a:80\r\n", [200, 200, 200, 200]),
        ("Origin: https://page\r\n", [403, 200, 200, 200]),
        ("Origin: https://other\r\n", [403, 200, 403, 200]),
        ("Origin: null\r\n", [403, 200, 403, 200]),
        ("Origin: http://a\r\n", [403, 200, 403, 200]),
        ("Sec-Fetch-Site: same-origin\r\n", [200, 200, 200, 200]),
        ("Sec-Fetch-Site: none\r\n", [200, 200, 200, 200]),
        ("Sec-Fetch-Site: cross-site\r\n", [403, 200, 403, 200]),
        ("Sec-Fetch-Site: same-site\r\n", [403, 200, 403, 200]),
    ] {
        for request in [
            post("/S/M", &format!("{json}{fields}")),
            post("/v1/books", &format!("{json}{fields}")),
            format!("GET /v1/books/1 HTTP/1.1\r\nHost: a:80\r\n{fields}\r\n"),
            post(
                "/",
                &format!(
                    "X-RPCX-ServicePath: A\r\nX-RPCX-ServiceMethod: B\r\nX-RPCX-SerializeType: 1\r\n{fields}"
                ),
            ),
        ] {
            let got = [&strict, &any, &some, &lenient].map(|config| status(config, &request));
            assert_eq!(got, want, "{request}");
        }
    }
    // Without a content type, a page could have sent the request without a preflight.
    assert_eq!(status(&strict, &post("/S/M", "Origin: http://a:80\r\n")), 415);
    assert_eq!(status(&strict, &post("/v1/books", "Origin: http://a:80\r\n")), 415);
    assert_eq!(status(&strict, &post("/v1/books", "Content-Type: text/plain\r\n")), 415);
    assert_eq!(status(&strict, "GET /health HTTP/1.1\r\nHost: a\r\nOrigin: https://page\r\n\r\n"), 200);
}

#[test]
fn host_is_checked_if_a_page_could_have_chosen_it() {
    let strict = ServerConfig { routes: routes(), ..(*config()).clone() };
    let with = |names: &[&str], loopback| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ServerConfig { hosts: Hosts { names, loopback }, ..strict.clone() }
    };
    let local = with(&[], true);
    let listed = with(&["api.example"], false);
    let both = with(&["api.example"], true);
    let lenient = ServerConfig { lenient: true, ..local.clone() };
    let get = |host: &str| format!("GET /v1/books/1 HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let post = |host: &str, origin: &str| {
        format!("POST /S/M HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{origin}\r\n")
    };
    let rebound = "Origin: http://evil.example\r\n";
    for (request, want) in [
        (get("127.0.0.1:80"), [200, 200, 200, 200]),
        (get("localhost:80"), [200, 200, 200, 200]),
        (get("api.example:80"), [421, 200, 200, 200]),
        (get("evil.example"), [421, 421, 421, 200]),
        (post("evil.example", rebound), [421, 421, 421, 200]),
        (post("evil.example", ""), [200, 421, 421, 200]),
        (post("service.mesh", ""), [200, 421, 421, 200]),
        ("GET /v1/books/1 HTTP/1.0\r\n\r\n".to_owned(), [200, 421, 421, 200]),
    ] {
        let got = [&local, &listed, &both, &lenient].map(|config| status(config, &request));
        assert_eq!(got, want, "{request}");
    }
}

#[test]
fn credential_covers_the_connection_only_if_configured() {
    let trusting = ServerConfig { trust_connection: true, ..(*config()).clone() };
    let mut connection = TestConnection { server: Server::new(Arc::new(trusting)), ..TestConnection::new() };
    let (call, ticket) = connection.send(bare("/S/M")).call().expect("a call");
    assert_eq!(call.credential, Credential::Connection(None));
    assert!(
        connection.server.reject(ticket, Status::unauthenticated(""), &mut connection.out),
        "as brpc does"
    );
    assert!(connection.output().starts_with("HTTP/1.1 403 "));

    let mut connection = TestConnection::new();
    let (call, ticket) = connection.send(bare("/S/M")).call().expect("a call");
    assert_eq!(call.credential, Credential::Call(None));
    assert!(!connection.server.reject(ticket, Status::unauthenticated(""), &mut connection.out));
    let response = connection.output();
    assert!(response.starts_with("HTTP/1.1 401 ") && response.contains("Fail to authenticate"), "{response}");
    assert!(connection.send(bare("/S/M")).call().is_some(), "the other callers of a proxy are served");
}

#[test]
fn oversized_message_is_413_and_overload_is_503() {
    let too_large = Status::resource_exhausted("large").with_retry(polyrpc_core::Retry::Never);
    for path in ["/S/M", "/v1/books"] {
        let config = ServerConfig { routes: routes(), ..(*config()).clone() };
        let mut connection =
            TestConnection { server: Server::new(Arc::new(config)), ..TestConnection::new() };
        let request = post(path, "application/json", "{}");
        let response = Response::parse(&connection.send(&request).serve(failing(too_large.clone())));
        assert_eq!((response.status, response.field("retry-after")), (413, None), "{path}");
        let overload = Status::resource_exhausted("full");
        let response = Response::parse(&connection.send(&request).serve(failing(overload)));
        let want = if path == "/S/M" { 503 } else { 429 };
        assert_eq!((response.status, response.field("retry-after")), (want, Some("1")), "{path}");
    }
}

#[test]
fn upgraded_grpc_call_is_authenticated_by_its_head() {
    let config = ServerConfig { h2c: true, ..(*config()).clone() };
    let mut connection = TestConnection { server: Server::new(Arc::new(config)), ..TestConnection::new() };
    connection.send(
        "POST /Echo/Say HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABk\r\nContent-Type: application/grpc\r\nContent-Length: 9\r\n\r\n",
    );
    let (target, _, stream) = head(&mut connection);
    assert_eq!(target, Some(("Echo".to_owned(), "Say".to_owned())));
    apply_verdict(&mut connection, stream, Verdict::Accepted);
    connection.send(b"\0\0\0\0\x04true");
    let event =
        connection.server.next_event(&mut connection.inbox, &mut connection.out).expect("no violation");
    assert!(matches!(event, Some(ServerEvent::Upgrade(_))), "{event:?}");
}

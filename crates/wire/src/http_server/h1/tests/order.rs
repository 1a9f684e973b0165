//! Pipelining, keep-alive, draining.

use super::*;

#[test]
fn idle_session_is_small() {
    assert!(size_of::<Server>() <= 168, "{} bytes", size_of::<Server>());
}

fn bodies(text: &str) -> Vec<&str> {
    text.split("HTTP/1.1 ")
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once("\r\n\r\n").expect("a head").1)
        .collect()
}

#[test]
fn responses_are_sent_in_request_order() {
    let requests: String = (0..4).map(|n| post("/S/M", "application/json", &n.to_string())).collect();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut connection = TestConnection::new();
        let mut calls: Vec<_> = connection.send(&requests).calls().into_iter().map(Some).collect();
        for n in order {
            let (call, ticket) = calls[n].take().expect("unanswered");
            connection.reply(ticket, echo(&call));
        }
        assert_eq!(bodies(&connection.output()), ["0", "1", "2", "3"]);
    }
}

#[test]
fn built_in_responses_wait_for_earlier_ones() {
    let mut connection = TestConnection::new();
    let (call, ticket) =
        connection.send(post("/S/M", "application/json", "first") + &get("/health")).call().expect("a call");
    assert!(connection.call().is_none() && connection.out.is_empty());
    connection.reply(ticket, echo(&call));
    assert_eq!(bodies(&connection.output()), ["first", "OK"]);
}

#[test]
fn number_of_pipelined_requests_is_limited() {
    let mut connection = TestConnection::new();
    let mut calls = connection.send(bare("/S/M").repeat(100)).calls();
    assert_eq!(calls.len(), 64);
    assert!(
        connection.server.incomplete(&connection.inbox).is_none(),
        "pending responses are not a violation"
    );
    let (call, ticket) = calls.pop().expect("a call");
    connection.reply(ticket, echo(&call));
    assert_eq!(connection.calls().len(), 0, "the first response is pending, and so are all others");
    for (call, ticket) in calls {
        connection.reply(ticket, echo(&call));
    }
    assert_eq!(connection.calls().len(), 36);
}

#[test]
fn keep_alive_follows_version_and_headers() {
    for (request, field, finished) in [
        ("POST /S/M HTTP/1.1\r\nHost: a\r\n\r\n", None, false),
        ("POST /S/M HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", Some("close"), true),
        ("POST /S/M HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n", Some("close"), true),
        ("POST /S/M HTTP/1.0\r\n\r\n", Some("close"), true),
        ("POST /S/M HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive"), false),
    ] {
        let mut connection = TestConnection::new();
        let out = connection.send(request).serve(echo);
        assert_eq!(Response::parse(&out).field("connection"), field, "{request}");
        assert_eq!(connection.server.is_finished(), finished, "{request}");
    }
}

#[test]
fn bytes_after_the_last_request_are_not_read() {
    let mut connection = TestConnection::new();
    let out =
        connection.send("GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n").serve(echo);
    assert_eq!(Response::parse(&out).text(), "OK");
    assert!(connection.server.is_finished() && connection.inbox.is_empty());
}

#[test]
fn only_the_last_pending_response_announces_close() {
    let mut connection = TestConnection::new();
    connection.send(bare("/S/M")).send("POST /S/M HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    for (call, ticket) in connection.calls().into_iter().rev() {
        connection.reply(ticket, echo(&call));
    }
    let output = connection.output();
    assert_eq!(output.matches("Connection: close").count(), 1);
    assert!(output.find("Connection: close") > output.rfind("HTTP/1.1"));
}

#[test]
fn draining_session_ends_after_its_pending_responses() {
    let mut connection = TestConnection::new();
    let (call, ticket) = connection.send(bare("/S/M")).call().expect("a call");
    connection.server.drain(&mut connection.out);
    connection.reply(ticket, echo(&call));
    assert_eq!(Response::parse(&connection.out.take()).field("connection"), Some("close"));
    assert!(connection.server.is_finished());
}

#[test]
fn draining_session_rejects_late_requests() {
    let mut connection = TestConnection::new();
    connection.server.drain(&mut connection.out);
    assert!(!connection.server.is_finished());
    let response =
        Response::parse(&connection.send(bare("/S/M")).serve(|call| panic!("unexpected {call:?}")));
    assert_eq!((response.status, response.field("x-bd-error-code")), (503, Some("2003")));
    assert_eq!(response.text(), r#"{"code":14,"message":"Server is stopping","details":[]}"#);
    assert!(connection.server.is_finished());
}

#[test]
fn incomplete_request_is_rejected_after_pending_responses_when_draining() {
    let mut connection = TestConnection::new();
    let (call, ticket) = connection
        .send(bare("/S/M") + "POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
        .call()
        .expect("a call");
    assert!(connection.call().is_none());
    connection.server.drain(&mut connection.out);
    connection.reply(ticket, echo(&call));
    let output = connection.output();
    assert!(!output.contains("Connection"), "{output}");
    let response = Response::parse(&connection.send("bc").serve(echo));
    assert_eq!((response.status, response.field("connection")), (503, Some("close")));
}

#[test]
fn continue_is_sent_after_earlier_responses() {
    let expecting = "POST /S/M HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let mut connection = TestConnection::new();
    assert!(connection.send(expecting).call().is_none());
    assert_eq!(connection.output(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(connection.server.bytes_needed(), 3);
    assert_eq!(connection.send("abc").call().expect("a call").0.body, "abc");

    let mut connection = TestConnection::new();
    let (call, ticket) = connection.send(bare("/S/M")).call().expect("a call");
    assert!(connection.send(expecting).call().is_none() && connection.out.is_empty());
    connection.reply(ticket, echo(&call));
    assert!(connection.output().ends_with("\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"));
    assert_eq!(connection.send("abc").call().expect("a call").0.body, "abc");
}

#[test]
fn continue_is_not_sent_for_an_oversized_body() {
    let (response, finished) =
        refuse("POST /S/M HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n");
    assert_eq!((response.status, response.field("connection"), finished), (413, Some("close"), true));
}

#[test]
fn connect_waits_for_pending_responses() {
    let (mut server, mut out) = (server(), Outbox::new());
    let mut inbox =
        BytesMut::from(&b"POST /S/M HTTP/1.1\r\nHost: a\r\n\r\nCONNECT /_rpcx_ HTTP/1.0\n\n\x08"[..]);
    let event = server.next_event(&mut inbox, &mut out).expect("no violation");
    let Some(ServerEvent::Call(_, ticket)) = event else { panic!("expected a call") };
    assert!(server.next_event(&mut inbox, &mut out).expect("no violation").is_none());
    server.reply(ticket, Reply::message(polyrpc_core::Format::Raw, Bytes::new()), &mut out);
    let event = server.next_event(&mut inbox, &mut out).expect("no violation");
    assert!(matches!(event, Some(ServerEvent::Connect)));
    assert_eq!(inbox, b"\x08"[..]);
    assert!(out.take().ends_with(b"\r\n\r\nHTTP/1.0 200 Connected to rpcx\n\n"));
}

#[test]
fn connect_to_another_host_is_405() {
    let (response, finished) = refuse("CONNECT example.com:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((response.status, finished), (405, true));
}

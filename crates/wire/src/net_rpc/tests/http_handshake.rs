//! Connections that start with an HTTP handshake.

use super::*;

fn client() -> Client {
    let connect = Some(super::super::CONNECT_PATH.to_owned());
    Client::new(ClientConfig { codec: Codec::Json, connect, ..Default::default() })
}

const CALL: &str = "{\"method\":\"S.M\",\"params\":[{\"A\":7,\"B\":8}],\"id\":0}\n";
const REPLY: &str = "{\"id\":0,\"result\":{},\"error\":null}\n";

#[test]
fn calls_wait_for_the_response_to_connect() {
    for answer in [
        "HTTP/1.0 200 Connected to Go RPC\n\n",
        "HTTP/1.1 200 Connected to Go RPC\r\n\r\n",
        "HTTP/1.0 200 Connected to Go RPC\r\nVia: 1.0 a\r\n\r\n",
    ] {
        let (mut client, mut inbox, mut out) = (client(), BytesMut::new(), Outbox::new());
        client.send(CallId(1), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
        assert_bytes(out.take(), "CONNECT /_goRPC_ HTTP/1.0\n\n");
        for byte in answer.bytes() {
            assert!(out.is_empty());
            inbox.extend_from_slice(&[byte]);
            assert!(client.next_event(&mut inbox, &mut out).expect("HTTP").is_none());
        }
        assert_bytes(out.take(), CALL);
        assert!(inbox.is_empty());
        client.send(CallId(2), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
        assert_bytes(out.take(), CALL.replace(":0}", ":1}"));
        inbox.extend_from_slice(REPLY.as_bytes());
        let answer = client.next_event(&mut inbox, &mut out).expect("understood").expect("an answer");
        assert_eq!(sole_reply(vec![answer]).0, CallId(1));
    }
}

#[test]
fn one_way_call_that_waits_for_the_response_to_connect_is_pending_output() {
    let (mut client, mut inbox, mut out) = (client(), BytesMut::new(), Outbox::new());
    client.send(CallId(1), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
    assert!(!client.has_pending_output(), "its caller waits for it");
    let oneway = Call { oneway: true, ..call(Codec::Json, "S", "M") };
    client.send(CallId(2), oneway, &mut out).expect("the protocol can express it");
    assert!(client.has_pending_output());
    assert_eq!(client.unsent(), 2 * CALL.len());
    inbox.extend_from_slice(b"HTTP/1.0 200 Connected to Go RPC\n\n");
    assert!(client.next_event(&mut inbox, &mut out).expect("HTTP").is_none());
    assert!(!client.has_pending_output() && client.unsent() == 0);
}

#[test]
fn calls_that_wait_for_the_response_to_connect_are_limited() {
    let (mut client, mut out) = (client(), Outbox::new());
    let text = format!("\"{}\"", "x".repeat(1 << 20));
    let large = Call { body: text.into(), ..call(Codec::Json, "S", "M") };
    let mut sent = 0;
    let refusal = loop {
        match client.send(CallId(sent), large.clone(), &mut out) {
            Ok(()) => client.cancel(CallId(sent), &mut out),
            Err(refusal) => break refusal,
        }
        sent += 1;
        assert!(sent < 100, "{} bytes are held", client.unsent());
    };
    assert_eq!((sent, refusal.code()), (4, Code::ResourceExhausted));
    assert_bytes(out.take(), "CONNECT /_goRPC_ HTTP/1.0\n\n");
}

#[test]
fn unexpected_response_to_connect_closes_the_connection() {
    for (answer, want) in [
        ("HTTP/1.1 404 Not Found\r\n\r\n", "unexpected HTTP response: 404 Not Found"),
        ("HTTP/1.0 200 Connected to rpcx\n\n", "unexpected HTTP response: 200 Connected to rpcx"),
        ("HTTP/1.0 200 OK\n\n", "unexpected HTTP response: 200 OK"),
        ("{\"id\":0}\n\n", "unexpected HTTP response: {\"id\":0}"),
        ("\n\n", "unexpected HTTP response: "),
    ] {
        let (mut client, mut out) = (client(), Outbox::new());
        client.send(CallId(1), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
        let violation = client.next_event(&mut BytesMut::from(answer), &mut out).expect_err("a violation");
        assert_eq!(violation.to_string(), want);
    }
}

#[test]
fn endless_response_to_connect_is_limited() {
    let (mut client, mut out) = (client(), Outbox::new());
    client.send(CallId(1), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
    let mut inbox = BytesMut::from(&[b'x'; 64 << 10][..]);
    assert!(client.next_event(&mut inbox, &mut out).expect("not yet").is_none());
    inbox.extend_from_slice(b"x");
    assert!(client.next_event(&mut inbox, &mut out).is_err());
}

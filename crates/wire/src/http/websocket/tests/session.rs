//! Sessions of a protocol over a WebSocket: the endpoint, and the client of any protocol.

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as Session;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::{ClientEvent, ServerEvent};
use polyrpc_core::testing::{assert_bytes, assert_client_survives_damage, hex, sole_reply};
use polyrpc_core::{Call, CallId, Compression, Format, Json, Limits, Outbox, Reply};
use serde_json::Value;

use crate::http::websocket::{Client, ClientConfig, CloseCode, Endpoint, Random, Role};
use crate::http_server::h1;
use crate::rpcx;

const RANDOM: Random = || 0x0102_0304_0506_0708;

fn client() -> Client {
    carrying(Box::new(rpcx::Client::new(rpcx::ClientConfig::default())))
}

fn carrying(inner: Box<dyn Session + Send>) -> Client {
    let limits = Limits { header: 512, ..Limits::default() };
    let config = ClientConfig { limits, authority: "h:1".into(), path: "/_rpcx_".into(), random: RANDOM };
    Client::new(config, inner)
}

/// The server's side: HTTP, then rpcx within a WebSocket.
struct Peer {
    http: h1::Server,
    endpoint: Option<Endpoint>,
    rpcx: rpcx::Server,
    inbox: BytesMut,
    plain: BytesMut,
    out: Outbox,
}

impl Peer {
    fn new() -> Self {
        Self {
            http: h1::Server::new(<_>::default()),
            endpoint: None,
            rpcx: rpcx::Server::new(<_>::default()),
            inbox: BytesMut::new(),
            plain: BytesMut::new(),
            out: Outbox::new(),
        }
    }

    /// Reads the client's bytes and answers every call by echoing it; each response is a message.
    fn receive(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.inbox.extend_from_slice(bytes);
        if self.endpoint.is_none() {
            match self.http.next_event(&mut self.inbox, &mut self.out) {
                Ok(Some(ServerEvent::WebSocket)) => self.endpoint = Some(Endpoint::new(Role::Server)),
                other => panic!("{other:?}"),
            }
        }
        let endpoint = self.endpoint.as_mut().expect("opened above");
        endpoint.receive(&mut self.inbox, &mut self.plain);
        endpoint.answer(self.out.buffer());
        let mut answers = Outbox::new();
        while let Some(event) = self.rpcx.next_event(&mut self.plain, &mut answers).expect("no violation") {
            let ServerEvent::Call(call, ticket) = event else { panic!("{event:?}") };
            let reply = Reply::message(call.head.format, call.body.clone());
            drop(call);
            self.rpcx.reply(ticket, reply, &mut answers);
        }
        if !answers.is_empty() {
            endpoint.write_header(answers.len(), self.out.buffer());
            answers.append_to(&mut self.out);
        }
        self.out.take()
    }
}

fn call(body: &'static str) -> Call<'static> {
    Call::new("Arith", "Mul", Format::MessagePack, Bytes::from_static(body.as_bytes()))
}

fn answers(client: &mut Client, inbox: &mut BytesMut, out: &mut Outbox) -> Vec<ClientEvent> {
    std::iter::from_fn(|| client.next_event(inbox, out).expect("no violation")).collect()
}

#[test]
fn calls_wait_for_the_handshake_and_are_sent_in_one_message() {
    let (mut client, mut peer) = (client(), Peer::new());
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    client.send(CallId(1), call("one"), &mut out).unwrap();
    client.send(CallId(2), call("two"), &mut out).unwrap();
    let asked = out.take();
    assert!(asked.starts_with(b"GET /_rpcx_ HTTP/1.1\r\nHost: h:1\r\n") && asked.ends_with(b"\r\n\r\n"));
    inbox.extend_from_slice(&peer.receive(&asked));
    assert!(answers(&mut client, &mut inbox, &mut out).is_empty());

    let sent = out.take();
    assert_eq!(sent[0], 0x82, "one message of bytes");
    inbox.extend_from_slice(&peer.receive(&sent));
    let replies = answers(&mut client, &mut inbox, &mut out);
    let bodies: Vec<_> = replies
        .into_iter()
        .map(|answer| {
            let (id, reply) = sole_reply(vec![answer]);
            (id.0, reply.result.unwrap())
        })
        .collect();
    assert_eq!(bodies, [(1, Bytes::from("one")), (2, Bytes::from("two"))]);
    assert!(inbox.is_empty() && client.is_reusable());
}

#[test]
fn only_one_way_calls_that_wait_for_the_handshake_are_pending_output() {
    let (mut client, mut peer) = (client(), Peer::new());
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    client.send(CallId(1), call("one"), &mut out).unwrap();
    assert!(!client.has_pending_output(), "its caller waits for it");
    client.cancel(CallId(1), &mut out);
    assert!(!client.has_pending_output(), "it was given up");
    client.send(CallId(2), Call { oneway: true, ..call("two") }, &mut out).unwrap();
    assert!(client.has_pending_output());
    inbox.extend_from_slice(&peer.receive(&out.take()));
    assert!(answers(&mut client, &mut inbox, &mut out).is_empty());
    assert!(!client.has_pending_output() && client.unsent() == 0);
}

#[test]
fn response_can_arrive_in_any_pieces() {
    let (mut client, mut peer) = (client(), Peer::new());
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    client.send(CallId(1), call("one"), &mut out).unwrap();
    let mut found = Vec::new();
    for _ in 0..2 {
        for byte in peer.receive(&out.take()) {
            inbox.extend_from_slice(&[byte]);
            found.extend(answers(&mut client, &mut inbox, &mut out));
        }
    }
    assert_eq!(sole_reply(found).1.result.unwrap(), "one");
}

#[test]
fn last_of_several_pings_is_answered() {
    let mut endpoint = Endpoint::new(Role::Server);
    let (mut raw, mut plain, mut out) = (BytesMut::new(), BytesMut::new(), Vec::new());
    raw.extend_from_slice(b"\x89\x82\0\0\0\0hi\x89\x83\0\0\0\0you");
    endpoint.receive(&mut raw, &mut plain);
    endpoint.answer(&mut out);
    endpoint.answer(&mut out);
    assert_bytes(&out, b"\x8a\x03you");
    assert!(plain.is_empty() && endpoint.is_open());
}

#[test]
fn close_is_answered_by_its_code_and_protocol_errors_by_theirs() {
    for (came, expected) in [
        (&b"\x88\x80\0\0\0\0"[..], &b"\x88\x02\x03\xe8"[..]),
        (b"\x88\x82\0\0\0\0\x0f\xa0", b"\x88\x02\x0f\xa0"),
        (b"\x88\x81\0\0\0\0\x0f", b"\x88\x02\x03\xea"),
        (b"\x82\x01x", b"\x88\x02\x03\xea"),
    ] {
        let mut endpoint = Endpoint::new(Role::Server);
        let mut out = Vec::new();
        endpoint.receive(&mut BytesMut::from(came), &mut BytesMut::new());
        assert!(!endpoint.is_open());
        endpoint.close(CloseCode::GOING_AWAY, &mut out);
        endpoint.close(CloseCode::GOING_AWAY, &mut out);
        assert_bytes(&out, expected);
    }
}

#[test]
fn client_closes_when_the_server_closes() {
    let (mut client, mut peer) = (client(), Peer::new());
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    client.send(CallId(1), call("one"), &mut out).unwrap();
    inbox.extend_from_slice(&peer.receive(&out.take()));
    answers(&mut client, &mut inbox, &mut out);
    out.take();
    inbox.extend_from_slice(b"\x88\x02\x03\xe9");
    assert!(matches!(answers(&mut client, &mut inbox, &mut out)[..], [ClientEvent::GoAway]));
    assert!(!client.is_reusable());
    assert_eq!(out.take()[..2], [0x88, 0x82], "masked, with a code");
}

#[test]
fn heartbeat_is_that_of_the_inner_protocol_or_a_ping() {
    let (mut client, mut peer) = (carrying(Box::new(Mute)), Peer::new());
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    assert!(!client.heartbeat(&mut out), "there is no WebSocket yet");
    inbox.extend_from_slice(&peer.receive(&out.take()));
    answers(&mut client, &mut inbox, &mut out);
    assert!(client.heartbeat(&mut out));
    inbox.extend_from_slice(&peer.receive(&out.take()));
    assert!(matches!(answers(&mut client, &mut inbox, &mut out)[..], [ClientEvent::Alive]));
}

/// A protocol that sends nothing.
struct Mute;

impl Session for Mute {
    fn send(&mut self, _: CallId, _: Call<'_>, _: &mut Outbox) -> Result<(), polyrpc_core::Status> {
        Ok(())
    }

    fn next_event(
        &mut self,
        _: &mut BytesMut,
        _: &mut Outbox,
    ) -> Result<Option<ClientEvent>, polyrpc_core::Violation> {
        Ok(None)
    }

    fn bytes_needed(&self) -> usize {
        0
    }
}

#[test]
fn other_handshake_responses_close_the_connection() {
    let granted = {
        let mut out = Outbox::new();
        client().send(CallId(1), call("one"), &mut out).unwrap();
        String::from_utf8(Peer::new().receive(&out.take())).unwrap()
    };
    for (from, to, why) in [
        ("101 Switching Protocols", "405 Method Not Allowed", "HTTP 405 Method Not Allowed"),
        ("101 Switching Protocols", "200 OK", "HTTP 200 OK"),
        ("Upgrade: websocket", "Upgrade: h2c", "another protocol"),
        ("Connection: Upgrade", "Connection: close", "another protocol"),
        ("Accept: ", "Accept: A", "not to our WebSocket request"),
        ("Connection", "Sec-WebSocket-Extensions: permessage-deflate\r\nConnection", "extension"),
        ("Connection", "Sec-WebSocket-Protocol: chat\r\nConnection", "extension"),
        ("HTTP/1.1", "HTTQ/1.1", "malformed"),
        ("Connection", &format!("X: {}\r\nConnection", "x".repeat(512)), "too long"),
    ] {
        let (mut client, mut out) = (client(), Outbox::new());
        client.send(CallId(1), call("one"), &mut out).unwrap();
        let mut inbox = BytesMut::from(granted.replacen(from, to, 1).as_str());
        let violation = client.next_event(&mut inbox, &mut out).expect_err(to);
        assert!(violation.to_string().contains(why), "{violation}");
    }
}

#[test]
fn captured_conversation_is_reproduced() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../../../vectors/rpcx/ws.json")).expect("JSON");
    let [client, server] = [0, 1].map(|at| hex(vectors[at]["hex"].as_str().expect("hex")));
    // Go's client marks binary data as text.
    let mut http = h1::Server::new(<_>::default());
    let (mut inbox, mut out) = (BytesMut::from(&client[..]), Outbox::new());
    assert!(matches!(http.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::WebSocket))));
    let mut endpoint = Endpoint::new(Role::Server);
    let mut plain = BytesMut::new();
    endpoint.receive(&mut inbox, &mut plain);
    let mut rpcx = rpcx::Server::new(<_>::default());
    let mut answers = Outbox::new();
    let Ok(Some(ServerEvent::Call(call, ticket))) = rpcx.next_event(&mut plain, &mut answers) else {
        panic!("a call")
    };
    assert_eq!((call.service, call.method), ("Arith", "Mul"));
    assert_eq!(call.head.compression, Compression::None);
    drop(call);
    let reply = Reply::message(Format::Json(Json::Go), "{\"C\":56}".into());
    rpcx.reply(ticket, reply, &mut answers);
    endpoint.write_header(answers.len(), out.buffer());
    answers.append_to(&mut out);
    endpoint.close(CloseCode::NORMAL, out.buffer());
    assert_bytes(out.take(), server);
}

#[test]
fn damaged_conversation_never_panics() {
    let mut peer = Peer::new();
    let granted = {
        let mut out = Outbox::new();
        client().send(CallId(1), call("one"), &mut out).unwrap();
        peer.receive(&out.take())
    };
    let answer =
        [&granted[..], b"\x82\x10\x08\0\x80\x30\0\0\0\0\0\0\0\x01\0\0\0\0", b"\x89\x01x\x88\x02\x03\xe8"]
            .concat();
    let asking = || {
        let mut client = client();
        client.send(CallId(1), call("one"), &mut Outbox::new()).unwrap();
        client
    };
    assert_client_survives_damage(asking, &answer, 64 << 20);
}

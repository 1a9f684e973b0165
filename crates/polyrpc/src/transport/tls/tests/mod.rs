//! Two sessions that talk to each other without sockets.

mod authority;

use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::Outbox;
use polyrpc_wire::Protocol;
use rustls::pki_types::ServerName;

use self::authority::Authority;
use super::session::Session;
use super::{Client, Identity, Pem, Server};

/// One end, with its received bytes.
struct End {
    session: Session,
    incoming: Vec<u8>,
    plain: Vec<u8>,
    out: Outbox,
}

impl End {
    fn new(session: Session) -> Self {
        Self { session, incoming: Vec::new(), plain: Vec::new(), out: Outbox::new() }
    }

    /// Handles received bytes.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.incoming.extend_from_slice(bytes);
        loop {
            let opened = self.session.open(&mut self.incoming, &mut self.plain, 1);
            let opened = opened.map_err(|error| error.to_string())?;
            self.incoming.drain(..opened.discard);
            if opened.plain == 0 {
                return Ok(());
            }
        }
    }

    /// Returns everything to send, a few bytes at a time, as with a full socket.
    fn write_close_notify(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        while self.session.seal(&self.out).unwrap() {
            let n = self.session.outgoing().len().min(999);
            sent.extend_from_slice(&self.session.outgoing()[..n]);
            self.session.advance(n, &mut self.out);
        }
        sent
    }
}

struct Pair {
    client: End,
    server: End,
}

impl Pair {
    /// `fragments`: maximum size of the server's records.
    fn new(fragments: Option<usize>) -> Self {
        let authority = Authority::new("authority");
        let issued = authority.issue(&["localhost"]);
        let identity = Identity::new(Pem::bytes(issued.certificate), Pem::bytes(issued.key));
        let client = Client::new().ca(Pem::bytes(authority.pem())).config(Protocol::Grpc).unwrap();
        let mut server = Server::new(identity).unwrap().config(&Protocol::ALL);
        server.max_fragment_size = fragments;
        let name = ServerName::try_from("localhost").unwrap();
        Self {
            client: End::new(Session::client(Arc::new(client), name).unwrap()),
            server: End::new(Session::server(Arc::new(server)).unwrap()),
        }
    }

    /// Exchanges bytes, `step` at a time, until neither end has anything to send.
    fn exchange(&mut self, step: usize) {
        // The client sends first.
        self.client.receive(b"").unwrap();
        loop {
            let (to_server, to_client) = (self.client.write_close_notify(), self.server.write_close_notify());
            if to_server.is_empty() && to_client.is_empty() {
                return;
            }
            to_server.chunks(step).for_each(|bytes| self.server.receive(bytes).unwrap());
            to_client.chunks(step).for_each(|bytes| self.client.receive(bytes).unwrap());
        }
    }

    fn with_handshake() -> Self {
        let mut pair = Self::new(None);
        pair.exchange(usize::MAX);
        pair
    }
}

#[test]
fn handshake_succeeds_for_any_split() {
    for step in [1, 2, 5, 100, 10_000] {
        let mut pair = Pair::new(None);
        pair.exchange(step);
        for end in [&pair.client, &pair.server] {
            assert!(!end.session.is_handshaking(), "{step}");
            assert_eq!(end.session.alpn(), Some(&b"h2"[..]), "{step}");
            assert!(end.incoming.is_empty(), "{step}");
        }
    }
}

#[test]
fn bytes_round_trip_for_any_outbox_layout() {
    for step in [1, 1000, usize::MAX] {
        let mut pair = Pair::with_handshake();
        let large = Bytes::from((0..200_000).map(|n| n as u8).collect::<Vec<_>>());
        let want = [b"head", &large[..], b"tail"].concat();
        for out in [&mut pair.client.out, &mut pair.server.out] {
            out.extend_from_slice(b"head");
            out.body(large.clone());
            out.extend_from_slice(b"tail");
        }
        pair.exchange(step);
        assert!(pair.client.plain == want && pair.server.plain == want, "{step}");
        assert!(pair.client.out.is_empty() && pair.server.out.is_empty());
    }
}

#[test]
fn data_right_after_the_handshake_is_answered_at_once() {
    let mut pair = Pair::new(None);
    pair.client.receive(b"").unwrap();
    let hello = pair.client.write_close_notify();
    pair.server.receive(&hello).unwrap();
    let flight = pair.server.write_close_notify();
    pair.client.receive(&flight).unwrap();
    pair.client.out.extend_from_slice(b"question");
    let finished_and_question = pair.client.write_close_notify();
    // As a server that processes no more than the first plaintext.
    pair.server.incoming = finished_and_question;
    let opened = pair.server.session.open(&mut pair.server.incoming, &mut pair.server.plain, 1).unwrap();
    assert_eq!((opened.plain, &pair.server.plain[..]), (8, &b"question"[..]));
    pair.server.incoming.drain(..opened.discard);
    pair.server.out.extend_from_slice(b"answer");
    let sent = pair.server.write_close_notify();
    pair.client.receive(&sent).unwrap();
    assert_eq!(pair.client.plain, b"answer");
}

#[test]
fn unsent_bytes_stay_in_the_outbox() {
    let mut pair = Pair::with_handshake();
    pair.client.out.extend_from_slice(b"hello");
    assert!(pair.client.session.seal(&pair.client.out).unwrap());
    let record = pair.client.session.outgoing().to_vec();
    pair.client.session.advance(record.len() - 1, &mut pair.client.out);
    assert_eq!(pair.client.out.len(), 5);
    // Later data does not change what is already being sent.
    pair.client.out.extend_from_slice(b", you");
    pair.client.session.advance(1, &mut pair.client.out);
    assert_eq!(pair.client.out.len(), 5);
    pair.server.receive(&record).unwrap();
    assert_eq!(pair.server.plain, b"hello");
}

#[test]
fn handshake_message_can_span_records_while_sending() {
    let mut pair = Pair::new(Some(48));
    pair.client.receive(b"").unwrap();
    // Up to where the client can send; the server's tickets are still to come, in pieces.
    let hello = pair.client.write_close_notify();
    pair.server.receive(&hello).unwrap();
    let flight = pair.server.write_close_notify();
    pair.client.receive(&flight).unwrap();
    let finished = pair.client.write_close_notify();
    pair.server.receive(&finished).unwrap();
    let mut sent = Vec::new();
    for byte in pair.server.write_close_notify() {
        pair.client.out.extend_from_slice(b"x");
        sent.extend(pair.client.write_close_notify());
        pair.client.receive(&[byte]).unwrap();
    }
    sent.extend(pair.client.write_close_notify());
    pair.server.receive(&sent).unwrap();
    assert!(pair.client.out.is_empty());
    assert!(pair.server.plain.len() > 100 && pair.server.plain.iter().all(|byte| *byte == b'x'));
}

#[test]
fn flipped_bit_is_an_error_and_never_a_panic() {
    let mut hello = Pair::new(None);
    hello.client.receive(b"").unwrap();
    let hello = hello.client.write_close_notify();
    for at in 0..hello.len() {
        let mut flipped = hello.clone();
        flipped[at] ^= 1 << (at % 8);
        let mut pair = Pair::new(None);
        // It may still be a handshake message.
        let _ = pair.server.receive(&flipped);
        pair.server.write_close_notify();
    }
    let mut pair = Pair::with_handshake();
    pair.client.out.extend_from_slice(b"hello");
    let record = pair.client.write_close_notify();
    for at in 0..record.len() {
        let mut pair = Pair::with_handshake();
        pair.client.out.extend_from_slice(b"hello");
        let mut record = pair.client.write_close_notify();
        record[at] ^= 1 << (at % 8);
        let heard = pair.server.receive(&record);
        // The version in a record's header has no meaning (RFC 8446, section 5.1), and rustls tolerates a wrong type.
        assert!(pair.server.plain.is_empty() || pair.server.plain == b"hello", "{at}");
        if heard.is_err() {
            assert!(!pair.server.session.outgoing().is_empty(), "the peer receives an alert for {at}");
        }
    }
}

#[test]
fn close_notify_is_distinguished_from_truncation() {
    let mut pair = Pair::with_handshake();
    pair.client.out.extend_from_slice(b"last words");
    let mut sent = pair.client.write_close_notify();
    pair.client.session.close();
    sent.extend(pair.client.write_close_notify());
    pair.server.receive(&sent[..sent.len() - 1]).unwrap();
    assert!(!pair.server.session.peer_closed());
    pair.server.receive(&sent[sent.len() - 1..]).unwrap();
    assert!(pair.server.session.peer_closed());
    assert_eq!(pair.server.plain, b"last words");
    // The other half continues.
    pair.server.out.extend_from_slice(b"answer");
    let sent = pair.server.write_close_notify();
    pair.client.receive(&sent).unwrap();
    assert_eq!(pair.client.plain, b"answer");
}

#[test]
fn peer_without_tls_is_reported() {
    let mut pair = Pair::new(None);
    pair.client.receive(b"").unwrap();
    let error = pair.client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err();
    assert_eq!(error, "the server does not speak TLS");
}

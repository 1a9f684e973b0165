//! Handshake that upgrades HTTP to WebSocket (RFC 6455 §4).

use std::sync::Arc;

use bytes::BytesMut;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::ServerEvent;
use polyrpc_core::testing::{assert_any_split, assert_bytes, assert_survives_damage};
use polyrpc_core::{Outbox, Reply};

use crate::http::{Cors, ServerConfig};
use crate::http_server::h1::Server;

/// The request of the RFC (§1.3), at rpcx's path.
const REQUEST: &str = "GET /_rpcx_ HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
    Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Origin: http://server.example.com\r\nSec-WebSocket-Version: 13\r\n\r\n";

fn server() -> Server {
    Server::new(Arc::new(ServerConfig::default()))
}

/// Returns the server's response, and whether the connection upgrades to WebSocket.
fn answer_of(mut server: Server, request: &str) -> (String, bool) {
    let (mut inbox, mut out) = (BytesMut::from(request), Outbox::new());
    let event = server.next_event(&mut inbox, &mut out).expect("no violation");
    let granted = matches!(event, Some(ServerEvent::WebSocket));
    (String::from_utf8(out.take()).expect("text"), granted)
}

fn answer(request: &str) -> (String, bool) {
    answer_of(server(), request)
}

#[test]
fn rfc_example_request_is_upgraded() {
    let (answer, granted) = answer(REQUEST);
    assert!(granted);
    assert_bytes(
        answer,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    );
    assert_any_split(server, format!("{REQUEST}\u{82}\u{5}").as_bytes());
}

#[test]
fn invalid_upgrade_request_is_rejected_over_http() {
    for (from, to, status) in [
        ("Version: 13", "Version: 8", "HTTP/1.1 426 Upgrade Required\r\n"),
        ("Sec-WebSocket-Version: 13\r\n", "", "HTTP/1.1 426 Upgrade Required\r\n"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ==", "HTTP/1.1 400 Bad Request\r\n"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "????", "HTTP/1.1 400 Bad Request\r\n"),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", "HTTP/1.1 400 Bad Request\r\n"),
        ("Origin", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin", "HTTP/1.1 400 Bad Request\r\n"),
        ("keep-alive, Upgrade", "keep-alive", "HTTP/1.1 400 Bad Request\r\n"),
        ("Origin", "Sec-WebSocket-Protocol: rpcx, b\r\nOrigin", "HTTP/1.1 400 Bad Request\r\n"),
        ("Origin", "Sec-WebSocket-Protocol: a b\r\nOrigin", "HTTP/1.1 400 Bad Request\r\n"),
        ("http://server.example.com", "http://server.example.com.evil/", "HTTP/1.1 403 Forbidden\r\n"),
        ("http://server", "http://other", "HTTP/1.1 403 Forbidden\r\n"),
        ("http://server.example.com", "null", "HTTP/1.1 403 Forbidden\r\n"),
        // These requests do not ask for an upgrade.
        ("Upgrade: websocket", "Upgrade: other", "HTTP/1.1 405 Method Not Allowed\r\n"),
        ("HTTP/1.1", "HTTP/1.0", "HTTP/1.1 405 Method Not Allowed\r\n"),
        ("GET", "PUT", "HTTP/1.1 405 Method Not Allowed\r\n"),
    ] {
        let (answer, granted) = answer(&REQUEST.replacen(from, to, 1));
        assert!(!granted && answer.starts_with(status), "{to}: {answer}");
        let tells_version = answer.contains("\r\nSec-WebSocket-Version: 13\r\n");
        assert_eq!(tells_version, status.contains("426"), "{answer}");
    }
}

#[test]
fn rejected_upgrade_keeps_the_connection_in_http() {
    let refused = REQUEST.replace("Version: 13", "Version: 8");
    let (answers, _) = answer(&(refused + "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(answers.contains("426") && answers.ends_with("OK"), "{answers}");
}

#[test]
fn header_values_are_case_insensitive_and_origin_is_optional() {
    let odd =
        REQUEST.replace("Upgrade: websocket", "upgrade: h2, WebSocket").replace("Upgrade\r\n", "UPGRADE\r\n");
    assert!(answer(&odd).1);
    assert!(answer(&REQUEST.replace("Origin: http://server.example.com\r\n", "")).1);
    assert!(answer(&REQUEST.replace("http://server.example.com", "https://Server.Example.Com")).1);
    // Clients in Go send a URL.
    assert!(answer(&REQUEST.replace("http://server.example.com", "http://server.example.com/")).1);
}

#[test]
fn requested_subprotocol_is_confirmed() {
    let (answer, granted) = answer(&REQUEST.replace("Origin", "Sec-WebSocket-Protocol: rpcx\r\nOrigin"));
    assert!(granted && answer.ends_with("=\r\nSec-WebSocket-Protocol: rpcx\r\n\r\n"), "{answer}");
}

#[test]
fn cross_origin_pages_are_upgraded_if_allowed() {
    let foreign = REQUEST.replace("http://server", "http://other");
    let with = |cors| {
        let config = ServerConfig { cors, ..ServerConfig::default() };
        answer_of(Server::new(config.into()), &foreign).1
    };
    assert!(with(Cors::Any));
    assert!(with(Cors::Origins(vec!["http://other.example.com".into()])));
    assert!(!with(Cors::Origins(vec!["http://third.example.com".into()])));
}

#[test]
fn upgrade_waits_for_earlier_responses() {
    let mut server = server();
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    inbox.extend_from_slice(b"POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    inbox.extend_from_slice(REQUEST.as_bytes());
    inbox.extend_from_slice(b"\x82");
    let Ok(Some(ServerEvent::Call(call, ticket))) = server.next_event(&mut inbox, &mut out) else {
        panic!("a call")
    };
    let reply = Reply::message(call.head.format, "{}".into());
    drop(call);
    assert!(server.next_event(&mut inbox, &mut out).expect("waits").is_none());
    assert!(out.is_empty() && server.blocks_input());
    server.reply(ticket, reply, &mut out);
    assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::WebSocket))));
    assert_eq!(inbox, b"\x82"[..]);
}

#[test]
fn draining_server_rejects_upgrades() {
    let mut server = server();
    server.drain(&mut Outbox::new());
    let (answer, granted) = answer_of(server, REQUEST);
    assert!(!granted && answer.contains("503"), "{answer}");
}

#[test]
fn damaged_handshake_never_panics() {
    assert_survives_damage(server, REQUEST.as_bytes(), 64 << 10);
}

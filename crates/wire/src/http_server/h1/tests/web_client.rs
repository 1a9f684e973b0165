//! Tests of the gRPC-Web client, alone and with the server.

use std::time::Duration;

use polyrpc_core::session::Client as _;
use polyrpc_core::session::ClientEvent;
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::testing::{Pair, sole_reply};
use polyrpc_core::{CallId, Code, Compression, Format, Message};
use polyrpc_payload::compress;

use super::*;
use crate::grpc_web::{Client, ClientConfig};

const ID: CallId = CallId(7);

fn client() -> Client {
    let limits = Limits { message: 1000, ..Limits::default() };
    Client::new(ClientConfig { limits, authority: "host:1".to_owned(), credential: None, framing: None })
}

fn call() -> Call<'static> {
    Call::new("S", "M", Format::Protobuf, Bytes::from_static(b"hello"))
}

fn build_frame(flag: u8, body: &[u8]) -> Vec<u8> {
    [&[flag][..], &(body.len() as u32).to_be_bytes(), body].concat()
}

/// Returns a response with these fields and this body.
fn answer(fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{fields}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const WEB: &str = "content-type: application/grpc-web+proto\r\n";

/// Returns the reply of a call with this response, in one piece and byte by byte.
fn outcome(bytes: &[u8]) -> (Client, Reply) {
    let read = |chunk: usize| {
        let (mut client, mut inbox, mut out) = (client(), BytesMut::new(), Outbox::new());
        client.send(ID, call(), &mut out).expect("a plain call");
        let mut found = Vec::new();
        for piece in bytes.chunks(chunk) {
            inbox.extend_from_slice(piece);
            while let Some(answer) = client.next_event(&mut inbox, &mut out).expect("it is HTTP") {
                found.push(answer);
            }
        }
        if found.is_empty() {
            found.extend(client.end_of_stream(&mut inbox));
        }
        let (id, reply) = sole_reply(found);
        assert_eq!(id, ID);
        (client, reply)
    };
    let (whole, single) = (read(bytes.len()), read(1));
    assert_eq!(format!("{:?}", whole.1), format!("{:?}", single.1));
    whole
}

fn failure_of(bytes: &[u8]) -> Status {
    outcome(bytes).1.result.unwrap_err()
}

#[test]
fn call_and_response_round_trip_between_client_and_server() {
    let mut pair = Pair::new(client(), Server::new(config()));
    for n in 0..2 {
        let mut call = call();
        call.head.metadata.insert("k-bin", &b"\x00\x01"[..]);
        call.timeout = Some(Duration::from_secs(3));
        let answers = pair.call(CallId(n), &call, |call| {
            assert_eq!((call.service, call.method, &call.body[..]), ("S", "M", &b"hello"[..]));
            assert_eq!(call.timeout, Some(Duration::from_secs(3)));
            assert_eq!(call.head.metadata.bytes("k-bin").unwrap()[..], [0, 1]);
            let mut reply = Reply::message(Format::Protobuf, call.body.clone());
            reply.trailers.insert("behind", "all");
            reply
        });
        let (id, reply) = sole_reply(answers);
        assert_eq!((id, reply.result), (CallId(n), Ok(Bytes::from_static(b"hello"))));
        assert_eq!(reply.trailers.get("behind"), Some("all"));
        assert!(pair.client.is_reusable());
    }
}

/// Returns a client with an open call, and its output.
fn open_call() -> (Client, Outbox) {
    let (mut client, mut out) = (client(), Outbox::new());
    client.open(ID, Call { body: Bytes::new(), ..call() }, &mut out).expect("streams are expressed");
    (client, out)
}

fn next_events(client: &mut Client, inbox: &mut BytesMut) -> Vec<ClientEvent> {
    let mut out = Outbox::new();
    std::iter::from_fn(|| client.next_event(inbox, &mut out).expect("it is HTTP")).collect()
}

#[test]
fn messages_are_sent_and_received_one_by_one() {
    let (mut client, mut out) = open_call();
    client.send_message(ID, Bytes::from_static(b"one"), &mut out);
    client.end(ID, &mut out);
    let sent = String::from_utf8(out.take()).expect("text");
    assert!(sent.contains("transfer-encoding: chunked\r\n"), "{sent}");
    assert!(sent.ends_with("\r\n\r\n8\r\n\0\0\0\0\x03one\r\n0\r\n\r\n"), "{sent:?}");
    let end = build_frame(0x80, b"grpc-status: 0\r\n");
    let body = [build_frame(0, b"two"), build_frame(0, b""), end].concat();
    let events = next_events(&mut client, &mut BytesMut::from(&answer(WEB, &body)[..]));
    let body =
        |bytes: &'static [u8]| Message { body: Bytes::from_static(bytes), compression: Compression::None };
    match &events[..] {
        [
            ClientEvent::Head(ID, _),
            ClientEvent::Message(ID, two),
            ClientEvent::Message(ID, empty),
            ClientEvent::Reply(ID, reply),
        ] => {
            assert_eq!((two, empty), (&body(b"two"), &body(b"")));
            assert!(reply.result.is_ok());
        }
        other => panic!("{other:?}"),
    }
    assert!(client.is_reusable());
}

#[test]
fn unread_messages_apply_backpressure() {
    let (mut client, _) = open_call();
    let message = build_frame(0, &[7; 600]);
    let mut inbox = BytesMut::from(&answer(WEB, &message.repeat(4))[..]);
    assert_eq!(next_events(&mut client, &mut inbox).len(), 3, "the head and 1200 bytes of messages");
    assert!(client.blocks_input());
    client.record_consumed(ID, 600, &mut Outbox::new());
    assert!(!client.blocks_input());
    assert_eq!(next_events(&mut client, &mut inbox).len(), 1);
}

#[test]
fn trailers_are_case_insensitive_and_may_be_compressed() {
    let lines = b"Grpc-Status: 9\r\ngrpc-message: error\r\nX-Trailer: 1\r\nx-trailer: 2\r\n";
    let packed = compress::compress(Compression::Gzip, lines).unwrap();
    let gzip = format!("{WEB}grpc-encoding: gzip\r\n");
    for bytes in [answer(WEB, &build_frame(0x80, lines)), answer(&gzip, &build_frame(0x81, &packed))] {
        let (client, reply) = outcome(&bytes);
        let status = reply.result.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "error"));
        assert_eq!(reply.trailers.all("x-trailer").collect::<Vec<_>>(), ["1", "2"]);
        assert!(client.is_reusable());
    }
}

#[test]
fn status_in_the_head_ends_a_call_only_if_nothing_follows() {
    let head = format!("{WEB}grpc-status: 8\r\nx-trailer: 1\r\n");
    let (_, alone) = outcome(&answer(&head, b""));
    assert_eq!(alone.result.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(alone.trailers.get("x-trailer"), Some("1"));
    let failure = failure_of(&answer(&head, &build_frame(0x80, b"grpc-status: 9\r\n")));
    assert_eq!(failure.code(), Code::FailedPrecondition);
    assert_eq!(failure_of(&answer(&head, &build_frame(0, b"hello"))).code(), Code::Internal);
}

#[test]
fn truncated_or_unexpected_response_is_a_failure() {
    let end = build_frame(0x80, b"grpc-status: 0\r\n");
    let json = "content-type: application/grpc-web+json\r\n";
    for (bytes, code) in [
        (answer(WEB, &build_frame(0, b"hello")), Code::Internal),
        (answer(WEB, b""), Code::Internal),
        (answer(WEB, &build_frame(0x80, b"grpc-message: error\r\n")), Code::Internal),
        (answer(WEB, &end), Code::Unimplemented),
        (
            answer(WEB, &[build_frame(0, b"a"), build_frame(0, b"b"), end.clone()].concat()),
            Code::Unimplemented,
        ),
        (answer(WEB, &[build_frame(0, b"a"), end.clone(), vec![0]].concat()), Code::Internal),
        (answer(WEB, &build_frame(0, &[7; 1001])), Code::ResourceExhausted),
        (answer(json, &[build_frame(0, b"{}"), end.clone()].concat()), Code::Internal),
        (answer("content-type: image/jpeg\r\n", b"x"), Code::Unknown),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy".to_vec(), Code::Unavailable),
        (b"HTTP/1.0 404 Gone\r\n\r\nsome page".to_vec(), Code::Unimplemented),
    ] {
        assert_eq!(failure_of(&bytes).code(), code, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn response_can_end_with_its_connection() {
    let body = [build_frame(0, b"hello"), build_frame(0x80, b"grpc-status: 0\r\n")].concat();
    let head = format!("HTTP/1.0 200 OK\r\n{WEB}\r\n");
    let (client, reply) = outcome(&[head.as_bytes(), &body].concat());
    assert_eq!(reply.result, Ok(Bytes::from_static(b"hello")));
    assert!(!client.is_reusable());
}

#[test]
fn oneway_call_makes_its_connection_unusable_for_others() {
    let (mut client, mut out) = (client(), Outbox::new());
    client.send(ID, Call { oneway: true, ..call() }, &mut out).expect("a plain call");
    assert!(!client.is_reusable() && client.has_pending_output());
    let body = [build_frame(0, b"hello"), build_frame(0x80, b"grpc-status: 0\r\n")].concat();
    assert_eq!(next_events(&mut client, &mut BytesMut::from(&answer(WEB, &body)[..])).len(), 1);
    assert!(!client.is_reusable() && !client.has_pending_output());
}

#[test]
fn connection_of_a_cancelled_call_is_not_reused() {
    let (mut client, mut out) = open_call();
    client.cancel(ID, &mut out);
    assert!(!client.is_reusable());
    assert!(client.send(CallId(8), call(), &mut out).is_err());
    let mut inbox = BytesMut::from(&answer(WEB, b"whatever")[..]);
    assert!(next_events(&mut client, &mut inbox).is_empty() && inbox.is_empty());
}

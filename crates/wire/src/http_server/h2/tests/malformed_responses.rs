//! Servers that support HTTP/2 but do not answer as gRPC requires.

use super::*;
use crate::grpc::frame::prefix;
use crate::http::h2::hpack::encode_stateless;
use crate::http::h2::{self, Connection};

const STREAM: u32 = 1;

/// Writes the frames of such a server.
struct MalformedServer {
    http: Connection,
    out: Outbox,
}

impl MalformedServer {
    fn head(&mut self, fields: &[(&str, &str)], end: bool) {
        self.http.headers(STREAM, &block(fields), end, &mut self.out);
    }

    fn message(&mut self, body: &'static [u8]) {
        let body = Bytes::from_static(body);
        self.http.data(STREAM, &prefix(false, body.len()), body, false, &mut self.out);
    }

    fn trailers(&mut self, fields: &[(&str, &str)]) {
        self.http.trailers(STREAM, &block(fields), &mut self.out);
    }
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    encode_stateless(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), &mut block);
    block
}

/// Returns the result of a unary call with this response.
fn outcome(say: impl FnOnce(&mut MalformedServer)) -> Result<Bytes, Status> {
    let (mut client, mut up) = (client(), Outbox::new());
    client.send(CallId(7), call(b"hello"), &mut up).unwrap();
    let mut odd = MalformedServer { http: Connection::server(Default::default()), out: Outbox::new() };
    let mut inbox = BytesMut::from(&up.take()[..]);
    let recorded = odd.http.next_event(&mut inbox, &mut odd.out).unwrap();
    assert!(matches!(recorded, Some(h2::Event::Whole { stream: STREAM, .. })), "{recorded:?}");
    say(&mut odd);
    let mut outbox = BytesMut::from(&odd.out.take()[..]);
    match client.next_event(&mut outbox, &mut up).unwrap() {
        Some(ClientEvent::Reply(CallId(7), reply)) => reply.result,
        other => panic!("{other:?}"),
    }
}

const GRPC: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];
const OK: [(&str, &str); 1] = [("grpc-status", "0")];

#[test]
fn grpc_status_in_a_head_that_does_not_end_the_stream_is_ignored() {
    for (head, code) in [
        ([(":status", "503"), ("content-type", "application/grpc"), OK[0]], Code::Unavailable),
        ([(":status", "200"), ("content-type", "text/html"), OK[0]], Code::Unknown),
    ] {
        // The call ends immediately: further input is not stored.
        let status = outcome(|odd| odd.head(&head, false)).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
    }
    let alone = [(":status", "503"), ("content-type", "text/html"), ("grpc-status", "5")];
    assert_eq!(outcome(|odd| odd.head(&alone, true)).unwrap_err().code(), Code::NotFound);
}

#[test]
fn unary_response_without_exactly_one_message_is_unimplemented() {
    let answered = |messages: &[&'static [u8]], trailers: &[(&str, &str)]| {
        outcome(|odd| {
            odd.head(&GRPC, false);
            messages.iter().for_each(|message| odd.message(message));
            odd.trailers(trailers);
        })
    };
    assert_eq!(&answered(&[b"one"], &OK).unwrap()[..], b"one");
    assert_eq!(answered(&[], &OK).unwrap_err().code(), Code::Unimplemented);
    assert_eq!(answered(&[b"one", b"two"], &OK).unwrap_err().code(), Code::Unimplemented);
    // A failure needs no message.
    assert_eq!(answered(&[], &[("grpc-status", "5")]).unwrap_err().code(), Code::NotFound);
}

#[test]
fn response_in_another_format_than_its_call_is_rejected() {
    let ended = |content_type| {
        outcome(|odd| {
            odd.head(&[(":status", "200"), ("content-type", content_type)], false);
            odd.message(b"{}");
            odd.trailers(&OK);
        })
    };
    assert_eq!(ended("application/grpc+proto").unwrap(), "{}");
    let failed = ended("application/grpc+json").unwrap_err();
    assert_eq!(failed.code(), Code::Internal);
    assert_eq!(failed.message(), "the call is application/grpc and its response application/grpc+json");
}

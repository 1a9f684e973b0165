//! Both sides of a connection, with every codec.

mod credential;
mod failures;
mod hostile;
mod http_handshake;
mod json;
mod vectors;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::server::{Housekeeping as _, Ticket as _};
use polyrpc_core::session::{ClientEvent, NotFound, ServerEvent};
use polyrpc_core::testing::{Pair, assert_bytes, assert_case, hex, sole_reply};
use polyrpc_core::{
    Call, CallId, Code, Compression, Format, Json, Limits, Metadata, Outbox, Reply, Retry, Status,
};

use super::{Client, ClientConfig, Codec, Server, ServerConfig, Ticket};

#[test]
fn call_and_reply_round_trip() {
    for codec in Codec::ALL {
        let (call, mut pair) = (call(codec, "Arith", "Mul"), pair(codec));
        for id in [7, u64::MAX, 0] {
            let (replied, reply) = sole_reply(pair.call(CallId(id), &call, |recorded| {
                assert_case(codec.as_str(), (recorded.service, recorded.method), ("Arith", "Mul"));
                assert_eq!((recorded.head.format, recorded.head.positional), (codec.format(), false));
                assert_eq!((recorded.timeout, recorded.oneway, &recorded.malformed), (None, false, &None));
                assert_same(codec, &recorded.body, &call.body);
                Reply::message(recorded.head.format, recorded.body.clone())
            }));
            assert_eq!((replied, reply.head.format), (CallId(id), codec.format()));
            assert_same(codec, &reply.result.expect("success"), &call.body);
        }
    }
}

#[test]
fn sequence_numbers_count_from_0_independently_of_call_ids() {
    let (mut client, mut out) = (client(Codec::Json), Outbox::new());
    for id in [9, 1 << 40, 9] {
        client.send(CallId(id), call(Codec::Json, "S", "M"), &mut out).expect("the protocol can express it");
    }
    let said = String::from_utf8(out.take()).expect("a text");
    let ids: Vec<_> =
        said.lines().filter_map(|line| line.rsplit_once(r#""id":"#)).map(|(_, id)| id).collect();
    assert_eq!(ids, ["0}", "1}", "2}"]);
}

#[test]
fn responses_can_arrive_in_any_order() {
    for codec in Codec::ALL {
        let (mut server, mut client) = (server(codec), client(codec));
        let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
        for id in 10..13 {
            client
                .send(CallId(id), call(codec, "Arith", "Mul"), &mut out)
                .expect("the protocol can express it");
        }
        inbox.extend_from_slice(&out.take());
        let tickets: Vec<Ticket> = (0..3).map(|_| sole_call(&mut server, &mut inbox, &mut out)).collect();
        for ticket in tickets.into_iter().rev() {
            server.reply(ticket, Reply::message(codec.format(), body(codec)), &mut out);
        }
        inbox.extend_from_slice(&out.take());
        let mut ids = Vec::new();
        while let Some(answer) = client.next_event(&mut inbox, &mut out).expect("understood") {
            ids.push(sole_reply(vec![answer]).0.0);
        }
        assert_case(codec.as_str(), ids, vec![12, 11, 10]);
    }
}

#[test]
fn failure_arrives_with_its_text_and_the_next_call_is_answered() {
    for codec in Codec::ALL {
        let (call, mut pair) = (call(codec, "Arith", "Error"), pair(codec));
        for text in ["boom", "π ≠ \"3\"\n", "boom"] {
            let failed = pair.call(CallId(1), &call, |_| Reply::failure(Status::unknown(text)));
            assert_case(codec.as_str(), sole_reply(failed).1.result, Err(Status::unknown(text)));
        }
        let reply = pair.call(CallId(2), &call, |_| Reply::message(codec.format(), body(codec)));
        assert_same(codec, &sole_reply(reply).1.result.expect("success"), &body(codec));
    }
}

#[test]
fn failure_without_a_text_is_still_a_failure() {
    for codec in Codec::ALL {
        let failed =
            pair(codec).call(CallId(1), &call(codec, "S", "M"), |_| Reply::failure(Status::aborted("")));
        let status = sole_reply(failed).1.result.expect_err("a failure");
        assert_case(codec.as_str(), status.message(), Code::Aborted.as_str());
    }
}

#[test]
fn unknown_method_is_answered_with_go_texts() {
    for codec in Codec::ALL {
        for (service, method, missing, want) in [
            ("Nope", "Mul", NotFound::Service, "rpc: can't find service Nope.Mul"),
            ("a.b.Arith", "Nope", NotFound::Method, "rpc: can't find method a.b.Arith.Nope"),
            ("", "Mul", NotFound::Service, "rpc: service/method request ill-formed: Mul"),
            // The dot is kept: the called name is not a function `Mul`.
            ("", ".Mul", NotFound::Service, "rpc: can't find service .Mul"),
            ("", ".", NotFound::Service, "rpc: can't find service ."),
        ] {
            let (_, reply) = sole_reply(pair(codec).call_with_ticket(
                CallId(0),
                &call(codec, service, method),
                |recorded, ticket| {
                    assert_eq!(
                        (recorded.service, recorded.method),
                        (service, method),
                        "split at the last dot"
                    );
                    Reply::failure(ticket.not_found_failure(recorded, missing))
                },
            ));
            let status = reply.result.expect_err("a failure");
            assert_eq!((status.code(), status.message()), (Code::Unimplemented, want));
        }
    }
}

#[test]
fn reply_without_a_body_is_valid() {
    for codec in Codec::ALL {
        let empty = pair(codec)
            .call(CallId(1), &call(codec, "S", "M"), |_| Reply::message(codec.format(), Bytes::new()));
        assert!(sole_reply(empty).1.result.is_ok(), "{codec:?}");
        let mut call = call(codec, "S", "M");
        call.body = Bytes::new();
        let mut pair = pair(codec);
        for _ in 0..2 {
            let reply = pair.call(CallId(1), &call, |_| Reply::message(codec.format(), body(codec)));
            assert!(sole_reply(reply).1.result.is_ok(), "{codec:?}");
        }
    }
}

#[test]
fn large_shared_body_arrives_whole() {
    for codec in Codec::ALL {
        let body = large_body(codec);
        assert!(body.len() > 2 * Outbox::SHARE);
        let call = Call::new("Echo", "Raw", codec.format(), body.clone());
        let (_, reply) = sole_reply(pair(codec).call(CallId(1), &call, |recorded| {
            assert_same(codec, &recorded.body, &body);
            Reply::message(codec.format(), recorded.body.clone())
        }));
        assert_same(codec, &reply.result.expect("success"), &body);
    }
}

#[test]
fn response_to_a_oneway_call_is_dropped() {
    for codec in Codec::ALL {
        let mut oneway = call(codec, "S", "M");
        oneway.oneway = true;
        let mut pair = pair(codec);
        let answers = pair.call(CallId(1), &oneway, |_| Reply::message(codec.format(), body(codec)));
        assert!(answers.is_empty(), "{codec:?}");
        let reply =
            pair.call(CallId(1), &call(codec, "S", "M"), |_| Reply::message(codec.format(), body(codec)));
        assert!(sole_reply(reply).1.result.is_ok(), "{codec:?}");
    }
}

#[test]
fn late_response_to_a_cancelled_call_is_dropped() {
    for codec in Codec::ALL {
        let (mut server, mut client) = (server(codec), client(codec));
        let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
        for id in [1, 2] {
            client.send(CallId(id), call(codec, "S", "M"), &mut out).expect("the protocol can express it");
        }
        client.cancel(CallId(1), &mut out);
        inbox.extend_from_slice(&out.take());
        for _ in 0..2 {
            let ticket = sole_call(&mut server, &mut inbox, &mut out);
            server.reply(ticket, Reply::message(codec.format(), body(codec)), &mut out);
        }
        inbox.extend_from_slice(&out.take());
        let answer = client.next_event(&mut inbox, &mut out).expect("understood").expect("an answer");
        assert_eq!(sole_reply(vec![answer]).0, CallId(2));
        assert!(client.next_event(&mut inbox, &mut out).expect("understood").is_none());
    }
}

#[test]
fn draining_server_rejects_later_calls() {
    for codec in Codec::ALL {
        let mut pair = pair(codec);
        pair.server.drain(&mut Outbox::new());
        let refused = pair.call(CallId(1), &call(codec, "S", "M"), |_| panic!("nothing is called any more"));
        let status = sole_reply(refused).1.result.expect_err("a failure");
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "connection is shut down"));
        assert_eq!(status.retry(), Retry::Elsewhere);
    }
}

#[test]
fn unsupported_call_is_rejected_without_sending() {
    let refused = |codec, adorn: fn(&mut Call<'_>)| {
        let (mut client, mut out) = (client(codec), Outbox::new());
        let mut call = call(codec, "S", "M");
        adorn(&mut call);
        let status = client.send(CallId(0), call, &mut out).expect_err("a refusal");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(out.is_empty());
    };
    for codec in Codec::ALL {
        refused(codec, |call| (call.service, call.method) = ("", ""));
        refused(codec, |call| call.attachment = Bytes::from_static(b"beside"));
        refused(codec, |call| call.head.metadata = Metadata::from_iter([("k", "v")]));
        refused(codec, |call| call.head.compression = Compression::Gzip);
        refused(codec, |call| call.service = "a\x1fb");
        refused(codec, |call| call.head.format = Format::ProtoText);
    }
}

#[test]
fn reply_in_another_format_is_a_failure() {
    for codec in Codec::ALL {
        let (_, reply) = sole_reply(pair(codec).call(CallId(0), &call(codec, "S", "M"), |_| {
            Reply::message(Format::ProtoText, Bytes::from_static(b"a: 1"))
        }));
        let status = reply.result.expect_err("a failure");
        assert!(status.message().ends_with("cannot carry a reply in proto-text"), "{status}");
    }
}

#[test]
fn incomplete_message_is_distinguished_from_an_idle_connection() {
    for codec in Codec::ALL {
        let (mut client, mut out) = (client(codec), Outbox::new());
        client.send(CallId(0), call(codec, "Arith", "Mul"), &mut out).expect("the protocol can express it");
        let bytes = out.take();
        let mut inbox = BytesMut::new();
        let mut server = server(codec);
        assert!(server.incomplete(&inbox).is_none());
        for byte in &bytes[..bytes.len() - 1] {
            inbox.extend_from_slice(&[*byte]);
            let last = server.next_event(&mut inbox, &mut out).expect("a call");
            // JSON is complete before its line ends.
            if last.is_some() {
                break;
            }
            assert!(server.incomplete(&inbox).is_some(), "{codec:?}");
            assert!(server.bytes_needed() == 0 || server.bytes_needed() > inbox.len(), "{codec:?}");
        }
        inbox.extend_from_slice(&bytes[bytes.len() - 1..]);
        let _ = server.next_event(&mut inbox, &mut out).expect("a call");
        assert!(server.incomplete(&inbox).is_none(), "{codec:?}");
    }
}

#[test]
fn codec_is_detected_by_the_first_bytes_if_not_configured() {
    for codec in [Codec::Gob, Codec::Json, Codec::MessagePack] {
        let server = Server::new(Arc::default());
        let mut pair = Pair::new(client(codec), server);
        for _ in 0..2 {
            let reply = pair.call(CallId(0), &call(codec, "S", "M"), |recorded| {
                Reply::message(recorded.head.format, recorded.body.clone())
            });
            assert_eq!(sole_reply(reply).1.head.format, codec.format());
        }
    }
    let (mut server, mut out) = (Server::new(Arc::default()), Outbox::new());
    let mut inbox = BytesMut::from(&b"\x0b\x0a\x09Arith.Mul"[..]);
    assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::Foreign))));
}

// ------------------------------------------------------------------------------------------ helpers

fn server(codec: Codec) -> Server {
    server_within(codec, Limits::default())
}

fn server_within(codec: Codec, limits: Limits) -> Server {
    Server::new(Arc::new(ServerConfig { limits, codec: Some(codec) }))
}

fn client(codec: Codec) -> Client {
    Client::new(ClientConfig { codec, ..Default::default() })
}

fn pair(codec: Codec) -> Pair<Client, Server> {
    Pair::new(client(codec), server(codec))
}

fn call<'a>(codec: Codec, service: &'a str, method: &'a str) -> Call<'a> {
    Call::new(service, method, codec.format(), body(codec))
}

/// A struct of two numbers, A = 7 and B = 8.
fn body(codec: Codec) -> Bytes {
    match codec {
        Codec::Gob => hex("1eff81030101044172677301ff82000102010141010400010142010400000007ff82010e011000"),
        Codec::Json => Bytes::from_static(br#"{"A":7,"B":8}"#),
        Codec::MessagePack => hex("82a14107a14208"),
        Codec::Protobuf => hex("08071008"),
        Codec::Gencode => hex("0700000008000000"),
        Codec::Colfer => hex("000701087f"),
        Codec::Bson => hex("13000000 104100 07000000 104200 08000000 00"),
    }
}

/// A text of 20,000 letters.
fn large_body(codec: Codec) -> Bytes {
    let letters = "x".repeat(20_000);
    let framed = |head: &str, tail: &[u8]| [&hex(head)[..], letters.as_bytes(), tail].concat().into();
    match codec {
        // 20,005 bytes, of type 6, at the top, 20,000 of them the text.
        Codec::Gob => framed("fe4e25 0c00 fe4e20", b""),
        Codec::Json => format!("\"{letters}\"").into(),
        Codec::MessagePack => framed("da4e20", b""),
        Codec::Protobuf | Codec::Gencode | Codec::Colfer => letters.into(),
        Codec::Bson => framed("2d4e0000 026100 214e0000", b"\0\0"),
    }
}

/// A gob stream may number its types differently; the other bytes must be the same.
#[track_caller]
fn assert_same(codec: Codec, got: &[u8], want: &[u8]) {
    match codec {
        Codec::Gob => {
            let json = |bytes| polyrpc_payload::gob::to_json(bytes).expect("a gob");
            assert_eq!(json(got), json(want));
        }
        _ => assert_bytes(got, want),
    }
}

fn sole_call(server: &mut Server, inbox: &mut BytesMut, out: &mut Outbox) -> Ticket {
    match server.next_event(inbox, out) {
        Ok(Some(ServerEvent::Call(_, ticket))) => ticket,
        other => panic!("expected a call, got {other:?}"),
    }
}

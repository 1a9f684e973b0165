use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::server::{Pushing as _, Ticket as _};
use polyrpc_core::session::{ClientEvent, NotFound, ServerEvent};
use polyrpc_core::testing::{
    Pair, assert_any_split, assert_bytes, assert_case, assert_client_survives_damage, assert_survives_damage,
    hex, record_events, sole_reply,
};
use polyrpc_core::{
    Call, CallId, Code, Compression, Credential, Format, Json, Limits, Metadata, Outbox, Push, Reply, Retry,
    Status,
};
use polyrpc_payload::compress;
use serde_json::Value;

use super::frame::{Flags, Frame, NextFrame};
use super::{Client, ClientConfig, Compressors, Server, ServerConfig, Ticket, frame};

#[test]
fn every_captured_frame_is_parsed_into_its_fields() {
    let vectors = vectors();
    assert!(vectors.len() > 40, "found only {} frames", vectors.len());
    for Vector { name, bytes, fields, .. } in &vectors {
        let frame = parse(bytes);
        let header = frame.header;
        let flag = |flag| Value::from(header.flags.has(flag));
        let kind = if header.flags.has(Flags::RESPONSE) { "response" } else { "request" };
        assert_case(name, Value::from(header.version), fields["version"].clone());
        assert_case(name, Value::from(kind), fields["message_type"].clone());
        assert_case(name, flag(Flags::HEARTBEAT), fields["heartbeat"].clone());
        assert_case(name, flag(Flags::ONEWAY), fields["oneway"].clone());
        assert_case(name, Value::from(header.flags.is_failure() as u8), fields["status"].clone());
        assert_case(
            name,
            Value::from((frame.compression == Compression::Gzip) as u8),
            fields["compress"].clone(),
        );
        assert_case(name, Value::from(format_name(header.format())), fields["serialize"].clone());
        assert_case(name, Value::from(header.seq), fields["seq"].clone());
        assert_case(name, Value::from(bytes.len() - 16), fields["total_len"].clone());
        assert_case(name, frame.path(), text(&fields["service_path"]).as_bytes());
        assert_case(name, frame.method(), text(&fields["service_method"]).as_bytes());
        assert_bytes(frame.payload(), hex(text(&fields["payload_hex"])));
        if let Some(plain) = fields["payload_decompressed_hex"].as_str() {
            assert_bytes(plain_payload(&frame), hex(plain));
        }
        // The panic's stack trace was shortened in the decoded fields, not in the bytes.
        if !name.starts_with("rpcx_panic") {
            assert_case(name, pairs(&frame), metadata_of(fields));
        }
    }
}

#[test]
fn every_captured_call_is_answered_as_by_go() {
    for (request, response) in conversations() {
        let (mut server, mut inbox, mut out) = (server(), BytesMut::from(&request.bytes[..]), Outbox::new());
        if text(&request.fields["service_method"]).is_empty() {
            assert!(server.next_event(&mut inbox, &mut out).expect("a heartbeat").is_none());
        } else {
            let reply = response.as_ref().map_or_else(|| Reply::failure(Status::unknown("")), reply_of);
            let (call, ticket) = sole_call(&mut server, &mut inbox, &mut out);
            assert_call(&call, &request);
            server.reply(ticket, reply, &mut out);
        }
        match response {
            Some(response) => assert_same_answer(&out.take(), &response),
            None => assert!(out.is_empty(), "{}", request.name),
        }
        assert!(inbox.is_empty());
    }
}

#[test]
fn every_captured_response_is_read() {
    for (request, response) in conversations() {
        let Some(response) = response else { continue };
        let (mut inbox, mut out) = (BytesMut::from(&response.bytes[..]), Outbox::new());
        let answer = client().next_event(&mut inbox, &mut out).expect("understood").expect("whole");
        let fields = &response.fields;
        match answer {
            ClientEvent::Alive => assert_eq!(fields["heartbeat"], true),
            ClientEvent::Reply(id, reply) => {
                assert_case(&request.name, Value::from(id.0), request.fields["seq"].clone());
                assert_case(&request.name, format_name(reply.head.format), text(&fields["serialize"]));
                match reply.result {
                    Ok(body) => assert_bytes(body, hex(text(&fields["payload_hex"]))),
                    Err(status) => {
                        let told = text(&fields["metadata"]["__rpcx_error__"]);
                        // The stack trace, which follows in the text of a panic, is stored in the details.
                        let said = told.split(", stack: ").next();
                        assert_eq!(said, Some(status.message()), "{}", response.name);
                        assert!(reply.head.metadata.is_empty());
                    }
                }
            }
            other => panic!("{}: {other:?}", response.name),
        }
    }
}

#[test]
fn every_captured_request_is_written_as_by_go() {
    for (request, _) in conversations() {
        let (mut server, mut inbox, mut out) = (server(), BytesMut::from(&request.bytes[..]), Outbox::new());
        let Ok(Some(ServerEvent::Call(mut call, _))) = server.next_event(&mut inbox, &mut out) else {
            continue; // a heartbeat
        };
        let compressed = call.head.compression == Compression::Gzip;
        if compressed {
            call.body = gunzip(&call.body);
        }
        let id = CallId(request.fields["seq"].as_u64().expect("a number"));
        client().send(id, call.clone(), &mut out).expect("rpcx can express it");
        let written = out.take();
        if compressed {
            // Two gzip encoders never produce the same bytes; everything before the lengths that depend on them must
            // match.
            assert_bytes(&written[..12], &request.bytes[..12]);
            assert_bytes(plain_payload(&parse(&written)), plain_payload(&parse(&request.bytes)));
        } else {
            assert_bytes(written, &request.bytes);
        }
    }
}

#[test]
fn captured_push_round_trips() {
    let vectors = vectors();
    let pushed = vectors.iter().find(|v| v.name == "rpcx_push_conn0_s2c_0").expect("a vector");
    let push = Push {
        service: "push_path".into(),
        method: "push_method".into(),
        metadata: Metadata::from_iter([("pk", "pv")]),
        body: Bytes::from_static(b"abcde"),
    };
    let mut out = Outbox::new();
    server().push(push.clone(), &mut out).expect("rpcx can push");
    assert_bytes(out.take(), &pushed.bytes);

    let mut inbox = BytesMut::from(&pushed.bytes[..]);
    match client().next_event(&mut inbox, &mut out) {
        Ok(Some(ClientEvent::Push(got))) => assert_eq!(format!("{got:?}"), format!("{push:?}")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn call_and_reply_round_trip() {
    let mut call = call("Arith", "Mul", b"\x82\xa1A\x07\xa1B\x08");
    call.head.metadata = Metadata::from_iter([("k1", "v1"), ("k2", "")]);
    let (id, reply) = sole_reply(pair().call(CallId(u64::MAX / 3), &call, |recorded| {
        assert_eq!((recorded.service, recorded.method), ("Arith", "Mul"));
        assert_eq!(recorded.head.metadata, call.head.metadata);
        assert_eq!(recorded.credential, Credential::Call(None));
        assert_eq!((recorded.timeout, recorded.oneway), (None, false));
        let mut reply = Reply::message(recorded.head.format, recorded.body.clone());
        reply.head.metadata = Metadata::from_iter([("echo", "v1")]);
        reply
    }));
    assert_eq!(id, CallId(u64::MAX / 3));
    assert_bytes(reply.result.expect("success"), &call.body);
    assert_eq!(reply.head.format, Format::MessagePack);
    assert_eq!(reply.head.metadata, Metadata::from_iter([("echo", "v1")]));
}

#[test]
fn responses_can_arrive_in_any_order() {
    let (mut server, mut client, mut inbox, mut out) = (server(), client(), BytesMut::new(), Outbox::new());
    for id in 0..3 {
        client.send(CallId(id), call("Arith", "Mul", b""), &mut out).expect("rpcx can express it");
    }
    inbox.extend_from_slice(&out.take());
    let tickets: Vec<Ticket> = (0..3).map(|_| sole_call(&mut server, &mut inbox, &mut out).1).collect();
    for ticket in tickets.into_iter().rev() {
        server.reply(ticket, Reply::message(Format::MessagePack, Bytes::new()), &mut out);
    }
    inbox.extend_from_slice(&out.take());
    let mut ids = Vec::new();
    while let Some(answer) = client.next_event(&mut inbox, &mut out).expect("understood") {
        ids.push(sole_reply(vec![answer]).0.0);
    }
    assert_eq!(ids, [2, 1, 0]);
}

#[test]
fn every_format_with_an_rpcx_number_round_trips() {
    for format in [
        Format::Raw,
        Format::Json(Json::Go),
        Format::Protobuf,
        Format::MessagePack,
        Format::Other(4),
        Format::Other(15),
    ] {
        let call = Call::new("S", "M", format, Bytes::from_static(b"x"));
        let (_, reply) = sole_reply(pair().call(CallId(1), &call, |recorded| {
            assert_eq!(recorded.head.format, format);
            Reply::message(format, Bytes::new())
        }));
        assert_eq!(reply.head.format, format);
    }
}

#[test]
fn large_call_and_reply_are_compressed_on_request() {
    let body = Bytes::from(vec![b'x'; 1025]);
    let mut call = call("Echo", "Raw", &body);
    call.head.compression = Compression::Gzip;
    let (_, reply) = sole_reply(pair().call(CallId(0), &call, |recorded| {
        assert_eq!(recorded.head.compression, Compression::Gzip);
        assert_bytes(gunzip(&recorded.body), &body);
        Reply::message(Format::MessagePack, body.clone())
    }));
    assert_eq!(reply.head.compression, Compression::Gzip);
    assert_bytes(gunzip(&reply.result.expect("success")), &body);
}

#[test]
fn messages_up_to_1024_bytes_are_not_compressed() {
    let body = Bytes::from(vec![b'x'; 1024]);
    let mut call = call("Echo", "Raw", &body);
    call.head.compression = Compression::Gzip;
    let large = Bytes::from(vec![b'y'; 4096]);
    let (_, reply) = sole_reply(pair().call(CallId(0), &call, |recorded| {
        assert_eq!(recorded.head.compression, Compression::None);
        assert_bytes(&recorded.body, &body);
        Reply::message(Format::MessagePack, large.clone())
    }));
    assert_eq!(reply.head.compression, Compression::None, "the request was not compressed");
    assert_bytes(reply.result.expect("success"), &large);
}

#[test]
fn large_request_can_have_a_small_reply() {
    let mut call = call("Echo", "Raw", &[b'x'; 2000]);
    call.head.compression = Compression::Gzip;
    let (_, reply) = sole_reply(
        pair().call(CallId(0), &call, |_| Reply::message(Format::MessagePack, Bytes::from_static(b"ok"))),
    );
    assert_eq!(reply.head.compression, Compression::None);
}

#[test]
fn large_shared_body_arrives_whole() {
    let body = Bytes::from((0..100_000u32).flat_map(u32::to_be_bytes).collect::<Vec<u8>>());
    let call = call("Echo", "Raw", &body);
    let (_, reply) = sole_reply(pair().call(CallId(0), &call, |recorded| {
        assert_bytes(&recorded.body, &body);
        Reply::message(Format::Raw, recorded.body.clone())
    }));
    assert_bytes(reply.result.expect("success"), &body);
}

#[test]
fn oneway_call_is_never_answered() {
    let mut call = call("Arith", "Mul", b"");
    call.oneway = true;
    let mut pair = pair();
    for reply in [Reply::message(Format::Raw, Bytes::new()), Reply::failure(Status::internal("boom"))] {
        let answers = pair.call(CallId(0), &call, |recorded| {
            assert!(recorded.oneway);
            reply.clone()
        });
        assert!(answers.is_empty());
    }
    let (mut server, mut inbox, mut out) = (server(), BytesMut::new(), Outbox::new());
    client().send(CallId(0), call.clone(), &mut out).expect("rpcx can express it");
    inbox.extend_from_slice(&out.take());
    let (_, ticket) = sole_call(&mut server, &mut inbox, &mut out);
    assert!(
        server.reject(ticket, Status::unauthenticated("no"), &mut out),
        "the connection ends all the same"
    );
    assert!(out.is_empty());
}

#[test]
fn failure_arrives_with_its_text_and_reply_metadata() {
    let (_, reply) = sole_reply(pair().call(CallId(0), &call("Arith", "Error", b""), |_| {
        let mut reply = Reply::failure(Status::unknown("boom"));
        reply.head.metadata =
            Metadata::from_iter([("trace", "7"), ("__rpcx_error__", "the handler cannot override it")]);
        reply
    }));
    assert_eq!(reply.result, Err(Status::unknown("boom")));
    assert_eq!(reply.head.metadata, Metadata::from_iter([("trace", "7")]));
}

#[test]
fn unknown_method_is_answered_with_rpcx_texts() {
    for (missing, want) in [
        (NotFound::Service, "rpcx: can't find service NoSuch"),
        (NotFound::Method, "rpcx: can't find method Nope"),
    ] {
        let call = call("NoSuch", "Nope", b"");
        let (_, reply) = sole_reply(pair().call_with_ticket(CallId(0), &call, |recorded, ticket| {
            Reply::failure(ticket.not_found_failure(recorded, missing))
        }));
        let status = reply.result.expect_err("a failure");
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, want));
    }
}

#[test]
fn credential_is_sent_with_the_metadata() {
    let config =
        ClientConfig { credential: Some(Bytes::from_static(b"of the client")), ..Default::default() };
    let mut pair = Pair::new(Client::new(config), server());
    let mut call = call("Arith", "Mul", b"");
    call.head.metadata = Metadata::from_iter([("k", "v"), ("__AUTH", "by hand")]);
    let mut heard_of = |call: &Call<'_>| {
        let mut credential = None;
        pair.call(CallId(0), call, |recorded| {
            assert_eq!(recorded.head.metadata, Metadata::from_iter([("k", "v")]));
            credential = Some(recorded.credential.clone());
            Reply::message(Format::Raw, Bytes::new())
        });
        credential.expect("the call arrived")
    };
    assert_eq!(heard_of(&call), Credential::Call(Some(Bytes::from_static(b"of the client"))));
    call.credential = Credential::Call(Some(Bytes::from_static(b"of the call")));
    assert_eq!(heard_of(&call), Credential::Call(Some(Bytes::from_static(b"of the call"))));
}

#[test]
fn rejected_call_is_answered_and_the_connection_closed() {
    let request = vectors().into_iter().find(|v| v.name == "rpcx_auth_bad_conn0_c2s_0").expect("a vector");
    let response = vectors().into_iter().find(|v| v.name == "rpcx_auth_bad_conn0_s2c_0").expect("a vector");
    let (mut server, mut inbox, mut out) = (server(), BytesMut::from(&request.bytes[..]), Outbox::new());
    let (call, ticket) = sole_call(&mut server, &mut inbox, &mut out);
    assert_eq!(call.credential, Credential::Call(Some(Bytes::from_static(b"bearer wrong"))));
    assert!(server.reject(ticket, Status::unauthenticated("invalid token"), &mut out));
    assert_bytes(out.take(), &response.bytes);
}

#[test]
fn timeout_is_sent_in_milliseconds_rounded_up() {
    for (sent, recorded) in [
        (Duration::from_millis(4999), Duration::from_millis(4999)),
        (Duration::from_micros(1), Duration::from_millis(1)),
        (Duration::ZERO, Duration::from_millis(1)),
        (Duration::MAX, Duration::from_millis(i64::MAX as u64 / 1_000_000)),
    ] {
        let mut call = call("Arith", "Mul", b"");
        call.timeout = Some(sent);
        call.head.metadata = Metadata::from_iter([("__ServerTimeout", "replaced")]);
        pair().call(CallId(0), &call, |call| {
            assert_eq!(call.timeout, Some(recorded));
            assert!(call.head.metadata.is_empty());
            Reply::message(Format::Raw, Bytes::new())
        });
    }
}

#[test]
fn zero_or_malformed_timeout_is_ignored() {
    for (written, recorded) in [
        ("250", Some(Duration::from_millis(250))),
        ("+250", Some(Duration::from_millis(250))),
        ("0", None),
        ("-1", None),
        ("", None),
        ("1.5", None),
        ("soon", None),
        ("9223372036854775807", None),
        ("9223372036854775808", None),
    ] {
        let mut call = call("Arith", "Mul", b"");
        call.head.metadata = Metadata::from_iter([("__ServerTimeout", written)]);
        pair().call(CallId(0), &call, |call| {
            assert_case(written, call.timeout, recorded);
            Reply::message(Format::Raw, Bytes::new())
        });
    }
}

#[test]
fn heartbeat_is_answered_without_an_event() {
    let (mut server, mut client, mut inbox, mut out) = (server(), client(), BytesMut::new(), Outbox::new());
    assert!(client.heartbeat(&mut out));
    assert!(client.heartbeat(&mut out));
    inbox.extend_from_slice(&out.take());
    assert!(server.next_event(&mut inbox, &mut out).expect("heartbeats").is_none());
    inbox.extend_from_slice(&out.take());
    for _ in 0..2 {
        assert!(matches!(client.next_event(&mut inbox, &mut out), Ok(Some(ClientEvent::Alive))));
    }
    assert!(matches!(client.next_event(&mut inbox, &mut out), Ok(None)));
}

#[test]
fn heartbeat_is_echoed_with_any_payload() {
    let mut beat = request(b"", b"", &pair_block(b"k", b"v"), &[b'z'; 10_000]);
    beat[2] = 0x40 | 1 << 2;
    let mut echo = beat.clone();
    echo[2] |= 0x80;
    let lie = beat.len() - 10_000 - 4;
    beat[lie..lie + 4].copy_from_slice(&7u32.to_be_bytes());
    let recorded = record_events(server(), &[&beat]);
    assert!(recorded.calls.is_empty());
    assert_bytes(recorded.out, echo);
}

#[test]
fn heartbeat_with_malformed_metadata_closes_the_connection() {
    let mut beat = request(b"", b"", &[0, 0, 0, 9, b'k'], b"now");
    beat[2] = 0x40;
    let recorded = record_events(server(), &[&beat]);
    let violation = recorded.violation.expect("a violation").to_string();
    assert_eq!(violation, "wrong metadata lines. some keys or values are missing");
    assert!(recorded.out.is_empty());
}

#[test]
fn pushed_message_arrives_between_responses() {
    let (mut server, mut client, mut inbox, mut out) = (server(), client(), BytesMut::new(), Outbox::new());
    for text in ["one", "two"] {
        let push = Push {
            service: String::new(),
            method: "news".into(),
            metadata: Metadata::new(),
            body: Bytes::from(text),
        };
        server.push(push, &mut out).expect("rpcx can push");
    }
    inbox.extend_from_slice(&out.take());
    assert_eq!(inbox[11], 1, "the first is numbered 1");
    for text in ["one", "two"] {
        match client.next_event(&mut inbox, &mut out) {
            Ok(Some(ClientEvent::Push(push))) => assert_bytes(push.body, text),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn compressed_push_is_read_within_the_limit() {
    let body = compress::compress(Compression::Gzip, &[0; 2000]).expect("compressed");
    let mut push = request(b"p", b"m", b"", &body);
    push[2] = 0x20 | 1 << 2;
    let read = |decompressed| {
        let limits = Limits { decompressed, ..Limits::default() };
        let mut client = Client::new(ClientConfig { limits, ..<_>::default() });
        client.next_event(&mut BytesMut::from(&push[..]), &mut Outbox::new())
    };
    assert!(matches!(read(2000), Ok(Some(ClientEvent::Push(push))) if push.body == vec![0; 2000]));
    assert!(read(1999).is_err());
}

#[test]
fn draining_server_answers_late_calls_and_heartbeats() {
    let (mut server, mut client, mut inbox, mut out) = (server(), client(), BytesMut::new(), Outbox::new());
    let early = request(b"Arith", b"Mul", b"", b"");
    inbox.extend_from_slice(&early);
    let (_, ticket) = sole_call(&mut server, &mut inbox, &mut out);
    server.drain(&mut out);

    client.send(CallId(9), call("Arith", "Mul", b""), &mut out).expect("rpcx can express it");
    let mut oneway = call("Arith", "Mul", b"");
    oneway.oneway = true;
    client.send(CallId(10), oneway.clone(), &mut out).expect("rpcx can express it");
    client.heartbeat(&mut out);
    inbox.extend_from_slice(&out.take());
    assert!(server.next_event(&mut inbox, &mut out).expect("no event").is_none());
    server.reply(ticket, Reply::message(Format::Raw, Bytes::new()), &mut out);

    inbox.extend_from_slice(&out.take());
    let late = client.next_event(&mut inbox, &mut out).expect("understood").expect("whole");
    let (id, reply) = sole_reply(vec![late]);
    let status = reply.result.expect_err("refused");
    assert_eq!((id, status.code(), status.retry()), (CallId(9), Code::Unavailable, Retry::Elsewhere));
    assert!(matches!(client.next_event(&mut inbox, &mut out), Ok(Some(ClientEvent::Alive))));
    assert!(
        matches!(client.next_event(&mut inbox, &mut out), Ok(Some(ClientEvent::Reply(CallId(0), r))) if r.result.is_ok())
    );
}

#[test]
fn ticket_pins_no_read_buffer() {
    for path in [&b"Arith"[..], &[b'x'; 30], &[b'x'; 36], &[b'x'; 1000]] {
        let (mut server, mut inbox, mut out) = (server(), BytesMut::with_capacity(16 << 10), Outbox::new());
        let bytes = request(path, b"Mul", b"", b"body");
        inbox.extend_from_slice(&bytes);
        let (_, ticket) = sole_call(&mut server, &mut inbox, &mut out);
        assert!(server.next_event(&mut inbox, &mut out).expect("no event").is_none());
        assert!(inbox.try_reclaim(16 << 10), "the call with a path of {} bytes pins the buffer", path.len());
        server.reply(ticket, Reply::message(Format::MessagePack, Bytes::new()), &mut out);
        let response = parse(&out.take());
        assert_eq!((response.path(), response.method()), (path, &b"Mul"[..]));
    }
}

#[test]
fn unsupported_call_is_not_sent() {
    let refused = |change: &dyn Fn(&mut Call<'_>)| {
        let mut call = call("Arith", "Mul", &[0; 2000]);
        change(&mut call);
        let mut out = Outbox::new();
        let status = client().send(CallId(0), call.clone(), &mut out).expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(out.is_empty());
    };
    refused(&|call| (call.service, call.method) = ("", ""));
    refused(&|call| call.attachment = Bytes::from_static(b"beside"));
    refused(&|call| call.head.format = Format::ProtoText);
    refused(&|call| call.head.format = Format::Other(16));
    refused(&|call| call.head.format = Format::Other(1));
    refused(&|call| call.head.compression = Compression::Snappy);
    refused(&|call| call.head.compression = Compression::Other(1));
}

#[test]
fn version_and_reserved_bits_are_echoed() {
    let mut frame = request(b"S", b"M", b"", b"");
    frame[1] = 3;
    frame[3] = 0x3a;
    let answer = answer_to(&frame);
    assert_eq!((answer[1], answer[3]), (3, 0x3a));
}

#[test]
fn payload_extends_to_the_frame_end_for_any_announced_length() {
    for lie in [0, 1, 12, 14, u32::MAX] {
        let mut frame = request(b"S", b"M", b"", b"thirteen byte");
        let at = frame.len() - 13 - 4;
        frame[at..at + 4].copy_from_slice(&lie.to_be_bytes());
        let (mut inbox, mut out) = (BytesMut::from(&frame[..]), Outbox::new());
        let (mut server, body) = (server(), b"thirteen byte");
        assert_bytes(&sole_call(&mut server, &mut inbox, &mut out).0.body, body);
    }
}

#[test]
fn length_beyond_its_frame_closes_the_connection() {
    let metadata = pair_block(b"key", b"value");
    let frame = request(b"path", b"method", &metadata, b"payload");
    // total 12, path 16, method 24, metadata 34, key 38, value 45, payload 54
    for (field, at, truth) in
        [("path", 16, 4), ("method", 24, 6), ("metadata", 34, 16), ("key", 38, 3), ("value", 45, 5)]
    {
        assert_eq!(frame[at + 3], truth, "{field} stands elsewhere");
        for lie in [(1 << 31) - 1, 1 << 31, u32::MAX, u32::MAX - 15, 60] {
            let mut damaged = frame.clone();
            damaged[at..at + 4].copy_from_slice(&lie.to_be_bytes());
            let recorded = record_events(server(), &[&damaged]);
            assert!(recorded.violation.is_some(), "{field} of {lie}: {recorded:?}");
        }
    }
    for (field, at, lie) in [("key", 38, 2u32), ("key", 38, 4), ("value", 45, 4), ("value", 45, 6)] {
        let mut damaged = frame.clone();
        damaged[at..at + 4].copy_from_slice(&lie.to_be_bytes());
        let violation = record_events(server(), &[&damaged]).violation.expect("a violation").to_string();
        assert_eq!(violation, "wrong metadata lines. some keys or values are missing", "{field} of {lie}");
    }
}

#[test]
fn total_length_too_small_for_its_blocks_closes_the_connection() {
    for total in 0..16u32 {
        let mut frame = request(b"", b"", b"", b"");
        frame[12..16].copy_from_slice(&total.to_be_bytes());
        assert!(record_events(server(), &[&frame]).violation.is_some(), "{total}");
    }
    let recorded = record_events(server(), &[&request(b"", b"", b"", b"")]);
    assert_eq!((recorded.calls.len(), recorded.violation), (1, None), "an empty call is a call");
}

#[test]
fn oversized_frame_is_rejected_before_its_body_arrives() {
    let limits = Limits { message: 100, ..Limits::default() };
    let server = || Server::new(Arc::new(ServerConfig { limits: limits.clone(), ..<_>::default() }));
    let head = |total: u32| [&[8, 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0], &total.to_be_bytes()[..]].concat();
    for total in [85, (1 << 31) - 1, 1 << 31, u32::MAX] {
        let recorded = record_events(server(), &[&head(total)]);
        // The rest of a short one is discarded.
        assert_eq!(recorded.violation.is_none(), total == 85, "{total}");
        assert_eq!(recorded.out.is_empty(), total != 85, "{total}: an answer");
        let mut client = Client::new(ClientConfig { limits: limits.clone(), ..<_>::default() });
        assert!(client.next_event(&mut BytesMut::from(&head(total)[..]), &mut Outbox::new()).is_err());
    }
    let (mut session, mut inbox) = (server(), BytesMut::from(&head(84)[..]));
    assert!(session.next_event(&mut inbox, &mut Outbox::new()).expect("within the limit").is_none());
    assert_eq!(session.bytes_needed(), 100);
}

#[test]
fn unknown_compressor_closes_the_connection_without_a_response() {
    for number in 2..8 {
        let mut frame = request(b"S", b"M", b"", b"");
        frame[2] = number << 2;
        let recorded = record_events(server(), &[&frame]);
        assert!(recorded.violation.is_some() && recorded.calls.is_empty() && recorded.out.is_empty());
        frame[2] |= 0x80;
        assert!(client().next_event(&mut BytesMut::from(&frame[..]), &mut Outbox::new()).is_err());
    }
}

#[test]
fn name_that_is_not_utf8_matches_no_method() {
    for (path, method) in [(&b"\xff\xfe"[..], &b"Mul"[..]), (b"Arith", b"\xc3\x28")] {
        let frame = request(path, method, b"", b"");
        let (mut server, mut inbox, mut out) = (server(), BytesMut::from(&frame[..]), Outbox::new());
        let (call, ticket) = sole_call(&mut server, &mut inbox, &mut out);
        assert!([call.service, call.method].contains(&"\u{fffd}"));
        let status = ticket.not_found_failure(&call, NotFound::Service);
        server.reply(ticket, Reply::failure(status), &mut out);
        let answer = parse(&out.take());
        assert_eq!((answer.path(), answer.method()), (path, method), "the peer's own bytes go back");
    }
}

#[test]
fn metadata_can_be_repeated_empty_and_binary_but_is_limited() {
    let many = |n: usize| (0..n).flat_map(|i| pair_block(&i.to_be_bytes(), b"")).collect::<Vec<u8>>();
    let metadata = [pair_block(b"k", b"1"), pair_block(b"", b""), pair_block(b"k", b"2")].concat();
    let frame = request(b"S", b"M", &metadata, b"");
    let (mut session, mut inbox, mut out) = (server(), BytesMut::from(&frame[..]), Outbox::new());
    let (call, _) = sole_call(&mut session, &mut inbox, &mut out);
    assert_eq!(call.head.metadata, Metadata::from_iter([("k", "2"), ("", "")]));

    assert_eq!(
        record_events(server(), &[&request(b"S", b"M", &pair_block(b"\xff", b"\xff"), b"")]).violation,
        None
    );
    assert_eq!(record_events(server(), &[&request(b"S", b"M", &many(256), b"")]).violation, None);
    assert!(record_events(server(), &[&request(b"S", b"M", &many(257), b"")]).violation.is_some());
}

/// Metadata with this number of keys.
fn entries(count: usize) -> Metadata {
    (0..count).map(|n| (n.to_string(), "v")).collect()
}

#[test]
fn call_or_push_with_too_many_entries_is_not_sent() {
    let mut call = call("S", "M", b"");
    (call.credential, call.timeout) =
        (Credential::Call(Some(Bytes::from_static(b"me"))), Some(Duration::from_secs(1)));
    let (mut client, mut server, mut out) = (client(), server(), Outbox::new());
    call.head.metadata = entries(255);
    let refusal = client.send(CallId(0), call.clone(), &mut out).expect_err("257 with the protocol's own");
    assert_eq!((refusal.code(), refusal.retry()), (Code::ResourceExhausted, Retry::Never));
    assert!(refusal.message().contains("at most 256 entries of metadata, this one has 257"), "{refusal}");
    let push = |count| Push {
        service: "S".into(),
        method: "M".into(),
        metadata: entries(count),
        body: Bytes::new(),
    };
    assert_eq!(
        server.push(push(257), &mut out).map_err(|refusal| refusal.code()),
        Err(Code::ResourceExhausted)
    );
    assert!(out.is_empty());
    server.push(push(256), &mut Outbox::new()).expect("it is short enough");

    // Those that the protocol replaces do not count.
    call.head.metadata = entries(254);
    call.head.metadata.insert("__AUTH", "replaced");
    client.send(CallId(1), call, &mut out).expect("it is short enough");
    let mut inbox = BytesMut::from(&out.take()[..]);
    let (received, _) = sole_call(&mut server, &mut inbox, &mut out);
    assert_eq!(received.head.metadata.len(), 254);
}

#[test]
fn reply_with_too_many_entries_fails_only_its_call() {
    let mut pair = pair();
    let call = call("S", "M", b"");
    let mut reply = |count, failure: Option<&'static str>| {
        sole_reply(pair.call(CallId(0), &call, |call| {
            let mut reply = match failure {
                None => Reply::message(call.head.format, Bytes::new()),
                Some(text) => Reply::failure(Status::unknown(text)),
            };
            reply.head.metadata = entries(count);
            reply
        }))
        .1
    };
    let refused = reply(257, None).result.expect_err("a failure");
    assert!(refused.message().contains("257 entries of metadata where 256 are allowed"), "{refused}");
    assert_eq!(reply(256, None).head.metadata.len(), 256);
    for (count, received) in [(255, 255), (256, 0), (257, 0)] {
        let failed = reply(count, Some("boom"));
        assert_eq!((failed.result, failed.head.metadata.len()), (Err(Status::unknown("boom")), received));
    }
}

#[test]
fn received_response_with_too_many_entries_fails_only_its_call() {
    let many: Vec<u8> = (0..257_u32).flat_map(|n| pair_block(&n.to_be_bytes(), b"")).collect();
    let mut inbox = BytesMut::new();
    for metadata in [&many[..], b""] {
        let mut response = request(b"S", b"M", metadata, b"");
        response[2] = 0x80;
        inbox.extend_from_slice(&response);
    }
    let (mut client, mut out) = (client(), Outbox::new());
    let mut result = || {
        let event =
            client.next_event(&mut inbox, &mut out).expect("the connection goes on").expect("a reply");
        sole_reply(vec![event]).1.result
    };
    let failure = result().expect_err("a failure");
    assert_eq!((failure.code(), failure.retry()), (Code::ResourceExhausted, Retry::Never));
    assert_eq!(result(), Ok(Bytes::new()));
}

#[test]
fn call_with_two_credentials_is_malformed_and_has_none() {
    let metadata = [pair_block(b"__AUTH", b"one"), pair_block(b"k", b"v"), pair_block(b"__AUTH", b"other")];
    let frame = request(b"S", b"M", &metadata.concat(), b"");
    let (mut session, mut inbox, mut out) = (server(), BytesMut::from(&frame[..]), Outbox::new());
    let (call, _) = sole_call(&mut session, &mut inbox, &mut out);
    assert_eq!(call.credential, Credential::Call(None));
    let status = call.malformed.expect("a failure");
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("two credentials"), "{status}");
}

#[test]
fn bytes_of_another_protocol_after_a_frame_are_left_untouched() {
    let frame = request(b"S", b"M", b"", b"");
    let bytes = [&frame[..], b"GET / HTTP/1.1\r\n"].concat();
    let (mut server, mut inbox, mut out) = (server(), BytesMut::from(&bytes[..]), Outbox::new());
    sole_call(&mut server, &mut inbox, &mut out);
    for _ in 0..2 {
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::Foreign))));
        assert_bytes(&inbox, b"GET / HTTP/1.1\r\n");
    }
    assert!(client().next_event(&mut inbox, &mut out).is_err());
}

#[test]
fn undefined_status_is_a_failure() {
    for (status, failed) in [(0, false), (1, true), (2, true), (3, true)] {
        let mut frame = request(b"S", b"M", b"", b"");
        frame[2] = 0x80 | status;
        match client().next_event(&mut BytesMut::from(&frame[..]), &mut Outbox::new()) {
            Ok(Some(ClientEvent::Reply(_, reply))) => assert_eq!(reply.result.is_err(), failed),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn any_split_yields_the_same_events() {
    let mut beat = request(b"", b"", b"", b"\xd3\0\0\0\0\0\0\0\x01");
    beat[2] = 0x40;
    let bytes = [
        request(b"Arith", b"Mul", &pair_block(b"__AUTH", b"me"), b"\x82\xa1A\x07\xa1B\x08"),
        beat,
        request(b"Echo", b"Raw", b"", b""),
        b"GET /".to_vec(),
    ]
    .concat();
    assert_any_split(server, &bytes);
    assert!(record_events(server(), &[&bytes]).foreign);
    for Vector { bytes, .. } in vectors().iter().filter(|v| v.bytes.len() < 300) {
        assert_any_split(server, bytes);
    }
}

#[test]
fn damage_never_panics_or_needs_more_than_the_limit() {
    let limits = Limits { message: 1 << 16, ..Limits::default() };
    let config = Arc::new(ServerConfig { limits: limits.clone(), ..<_>::default() });
    let client = || Client::new(ClientConfig { limits: limits.clone(), ..<_>::default() });
    for Vector { bytes, .. } in vectors().iter().filter(|v| v.bytes.len() < 300) {
        assert_survives_damage(|| Server::new(config.clone()), bytes, 1 << 16);
        assert_client_survives_damage(client, bytes, 1 << 16);
    }
}

#[test]
fn idle_session_is_small_and_holds_no_frame() {
    assert!(size_of::<Server>() <= 128, "{} bytes", size_of::<Server>());
    let frame = Bytes::from(request(b"S", b"M", b"", b"body"));
    let (mut session, mut inbox, mut out) = (server(), BytesMut::from(&frame[..]), Outbox::new());
    let body = sole_call(&mut session, &mut inbox, &mut out).0.body;
    assert!(!body.is_unique(), "the names are still borrowed");
    assert!(session.next_event(&mut inbox, &mut out).expect("nothing more").is_none());
    drop(inbox);
    assert!(body.is_unique(), "only the body is left of the frame");
}

fn server() -> Server {
    Server::new(Arc::new(ServerConfig::default()))
}

fn client() -> Client {
    Client::new(ClientConfig::default())
}

fn pair() -> Pair<Client, Server> {
    Pair::new(client(), server())
}

fn call<'a>(service: &'a str, method: &'a str, body: &[u8]) -> Call<'a> {
    Call::new(service, method, Format::MessagePack, Bytes::copy_from_slice(body))
}

#[track_caller]
fn sole_call<'s>(server: &'s mut Server, inbox: &mut BytesMut, out: &mut Outbox) -> (Call<'s>, Ticket) {
    match server.next_event(inbox, out) {
        Ok(Some(ServerEvent::Call(call, ticket))) => (call, ticket),
        other => panic!("expected a call, got {other:?}"),
    }
}

/// Returns a hand-written MessagePack request.
fn request(path: &[u8], method: &[u8], metadata: &[u8], payload: &[u8]) -> Vec<u8> {
    let blocks = [block(path), block(method), block(metadata), block(payload)].concat();
    let total = (blocks.len() as u32).to_be_bytes();
    [&[8, 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0], &total[..], &blocks].concat()
}

fn block(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn pair_block(key: &[u8], value: &[u8]) -> Vec<u8> {
    [block(key), block(value)].concat()
}

/// Returns an empty successful response to `frame`.
fn answer_to(frame: &[u8]) -> Vec<u8> {
    let (mut server, mut inbox, mut out) = (server(), BytesMut::from(frame), Outbox::new());
    let (_, ticket) = sole_call(&mut server, &mut inbox, &mut out);
    server.reply(ticket, Reply::message(Format::MessagePack, Bytes::new()), &mut out);
    out.take()
}

fn parse(bytes: &[u8]) -> Frame {
    let mut inbox = BytesMut::from(bytes);
    match frame::take(&mut inbox, bytes.len(), &Compressors::default()) {
        Ok(NextFrame::Frame(frame)) if inbox.is_empty() => frame,
        other => panic!("expected one frame, got {other:?}"),
    }
}

fn plain_payload(frame: &Frame) -> Bytes {
    match frame.compression {
        Compression::Gzip => gunzip(&frame.payload()),
        _ => frame.payload(),
    }
}

fn gunzip(bytes: &[u8]) -> Bytes {
    compress::decompress(Compression::Gzip, bytes, 1 << 20).expect("a gzip member").into()
}

fn pairs(frame: &Frame) -> BTreeMap<Vec<u8>, Bytes> {
    let pairs = frame.pairs().map(|pair| pair.expect("a pair"));
    pairs.map(|(key, value)| (key.to_vec(), value)).collect()
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Raw => "none",
        Format::Other(4) => "thrift",
        other => other.as_str(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn metadata_of(fields: &Value) -> BTreeMap<Vec<u8>, Bytes> {
    let metadata = fields["metadata"].as_object().expect("an object");
    metadata.iter().map(|(key, value)| (key.clone().into(), text(value).to_owned().into())).collect()
}

/// A captured frame.
#[derive(Debug, Clone)]
struct Vector {
    name: String,
    bytes: Bytes,
    fields: Value,
}

impl Vector {
    fn is(&self, key: &str, value: impl Into<Value>) -> bool {
        self.fields[key] == value.into()
    }
}

/// Returns all captured frames, including those of the transports that only wrap them.
fn vectors() -> Vec<Vector> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/rpcx");
    let mut vectors = Vec::new();
    for file in std::fs::read_dir(folder).expect("the folder of vectors") {
        let file = std::fs::read(file.expect("a file").path()).expect("readable");
        let items = match serde_json::from_slice(&file).expect("JSON") {
            Value::Array(items) => items,
            item => vec![item],
        };
        let frames = items.into_iter().filter(|item| item["fields"]["magic"] == 8);
        vectors.extend(frames.map(|item| Vector {
            name: text(&item["name"]).to_owned(),
            bytes: hex(text(&item["hex"])),
            fields: item["fields"].clone(),
        }));
    }
    vectors.sort_by(|a, b| a.name.cmp(&b.name));
    vectors
}

/// Returns every captured request with its response, if any.
fn conversations() -> Vec<(Vector, Option<Vector>)> {
    let vectors = vectors();
    let (requests, responses): (Vec<_>, Vec<_>) = vectors
        .into_iter()
        .filter(|v| !v.name.starts_with("rpcx_push_conn0_s2c_0"))
        .partition(|v| v.is("message_type", "request"));
    let answers = |request: &Vector, response: &Vector| {
        let case = |v: &Vector| v.name.split("_conn").next().map(str::to_owned);
        case(request) == case(response) && request.fields["seq"] == response.fields["seq"]
    };
    requests
        .into_iter()
        .map(|request| {
            let response = responses.iter().find(|response| answers(&request, response)).cloned();
            assert_eq!(response.is_none(), request.is("oneway", true), "{}", request.name);
            (request, response)
        })
        .collect()
}

/// Returns the reply from which a handler would produce this captured response.
fn reply_of(response: &Vector) -> Reply {
    let frame = parse(&response.bytes);
    let mut metadata = Metadata::new();
    let mut reply = Reply::message(frame.header.format(), plain_payload(&frame));
    for (key, value) in pairs(&frame) {
        let value = String::from_utf8(value.to_vec()).expect("a text");
        match &key[..] {
            b"__rpcx_error__" => reply.result = Err(Status::unknown(value)),
            _ => metadata.insert(String::from_utf8(key).expect("a text"), value),
        }
    }
    reply.head.metadata = metadata;
    reply
}

fn assert_call(call: &Call<'_>, request: &Vector) {
    let (name, fields) = (&request.name, &request.fields);
    assert_case(name, call.service, text(&fields["service_path"]));
    assert_case(name, call.method, text(&fields["service_method"]));
    assert_case(name, format_name(call.head.format), text(&fields["serialize"]));
    assert_case(name, Value::from(call.oneway), fields["oneway"].clone());
    assert_bytes(&call.body, hex(text(&fields["payload_hex"])));
    let mut metadata = metadata_of(fields);
    let credential = metadata.remove(&b"__AUTH"[..]);
    assert_case(name, &call.credential, &Credential::Call(credential));
    assert_case(name, call.timeout, None);
    let recorded: BTreeMap<Vec<u8>, Bytes> =
        call.head.metadata.iter().map(|(key, value)| (key.into(), value.clone())).collect();
    assert_case(name, recorded, metadata);
}

/// Asserts equal bytes, except for gzip's output and for the incomplete reply that Go sends along with an error.
fn assert_same_answer(written: &[u8], response: &Vector) {
    let (got, want) = (parse(written), parse(&response.bytes));
    assert_case(&response.name, got.header, want.header);
    assert_case(&response.name, got.names(), want.names());
    assert_case(&response.name, pairs(&got), pairs(&want));
    if got.header.flags.is_failure() {
        assert!(got.payload().is_empty());
    } else {
        assert_bytes(plain_payload(&got), plain_payload(&want));
    }
    let is_comparable = !want.header.flags.is_failure() || want.payload().is_empty();
    if want.compression == Compression::None && is_comparable {
        assert_bytes(written, &response.bytes);
    }
}

#[test]
fn go_panic_carries_its_stack_in_the_details() {
    let (_, response) = conversations()
        .into_iter()
        .find(|(request, _)| request.name.contains("rpcx_panic"))
        .expect("recorded");
    let (mut client, mut out) = (client(), Outbox::new());
    let mut inbox = BytesMut::from(&response.expect("it was answered").bytes[..]);
    let Ok(Some(ClientEvent::Reply(_, reply))) = client.next_event(&mut inbox, &mut out) else {
        panic!("expected a reply")
    };
    let status = reply.result.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(status.message(), "[service internal error]: oops, method: Panic, argv: &{A:7 B:8}");
    let details = status.details();
    let has = |part: &[u8]| details.windows(part.len()).any(|window| window == part);
    assert!(has(b"type.googleapis.com/google.rpc.DebugInfo") && has(b"goroutine 42 [running]:"));
    assert!(has(b"main.(*Arith).Panic("), "{}", details.escape_ascii());
}

#[test]
fn registered_compressors_are_used_by_both_sides() {
    let snappy = Compressors::default().with(2, Compression::SnappyFrames).expect("2 is free");
    let config = ServerConfig { compressors: snappy, ..<_>::default() };
    let client = || Client::new(ClientConfig { compressors: snappy, ..<_>::default() });
    let body = Bytes::from(vec![7; 4096]);
    let mut call = call("Arith", "Mul", &body);
    call.head.compression = Compression::SnappyFrames;
    let mut pair = Pair::new(client(), Server::new(Arc::new(config)));
    let answers = pair.call(CallId(1), &call, |recorded| {
        assert_eq!(recorded.head.compression, Compression::SnappyFrames);
        let plain = compress::decompress(Compression::SnappyFrames, &recorded.body, 1 << 20).expect("snappy");
        assert_eq!(plain, body);
        Reply::message(recorded.head.format, plain.into())
    });
    let (_, reply) = sole_reply(answers);
    assert_eq!(reply.head.compression, Compression::SnappyFrames);
    let sent = reply.result.expect("it went well");
    assert!(sent.len() < 1000 && sent.starts_with(b"\xff\x06\0\0sNaPpY"), "{}", sent.escape_ascii());

    // A client without the compressor rejects the call before sending it, and a server without it closes the
    // connection.
    let mut out = Outbox::new();
    let refused = super::Client::new(<_>::default()).send(CallId(1), call.clone(), &mut out).unwrap_err();
    assert!(refused.message().contains("register it"), "{refused}");
    assert!(out.is_empty());
    client().send(CallId(1), call, &mut out).expect("it is registered");
    let mut inbox = BytesMut::from(&out.take()[..]);
    let violation = server().next_event(&mut inbox, &mut out).unwrap_err();
    assert_eq!(violation.to_string(), "unsupported compressor 2");

    for (number, compression) in [
        (1, Compression::Snappy),
        (8, Compression::Snappy),
        (2, Compression::None),
        (2, Compression::Other(9)),
        (3, Compression::Gzip),
    ] {
        assert!(Compressors::default().with(number, compression).is_err(), "{number} {compression:?}");
    }
}

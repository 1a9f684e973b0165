//! Malformed and hostile input.

use polyrpc_core::session::SlowPeerGuard;
use polyrpc_core::testing::record_events;

use super::*;

const LIMITS: Limits =
    Limits { message: 1024, decompressed: 1024, header: 128, pace: SlowPeerGuard::DEFAULT };

#[test]
fn length_beyond_the_limit_closes_the_connection_at_once() {
    for (codec, bytes) in [
        (Codec::Gob, hex("fc7fffffff")),
        (Codec::MessagePack, hex("82a353657100dbffffffff")),
        (Codec::Protobuf, hex("8102")),
        (Codec::Protobuf, hex("ffffffffffffffffffff")),
        (Codec::Gencode, hex("8102")),
        (Codec::Colfer, hex("01ffffffff0f")),
        (Codec::Bson, hex("ffffffff")),
        (Codec::Bson, hex("81000000")),
        (Codec::Bson, hex("04000000")),
    ] {
        let recorded = record_events(server_within(codec, LIMITS), &[&bytes]);
        assert!(recorded.violation.is_some() && recorded.calls.is_empty(), "{codec:?} {bytes:02x?}");
    }
}

#[test]
fn body_beyond_the_limit_is_answered_and_ends_the_connection_if_it_cannot_be_skipped() {
    for (codec, bytes, ends) in [
        (Codec::MessagePack, hex("82a353657100ad536572766963654d6574686f64a3532e4d ddffffffff"), true),
        (Codec::Protobuf, hex("05 0a03532e4d ffffffffffffffffff01"), true),
        (Codec::Colfer, hex("0103532e4d 83ffffffff 7f"), true),
        (Codec::Gencode, hex("0c 03532e4d 0000000000000000 8110"), false),
    ] {
        let recorded = record_events(server_within(codec, LIMITS), &[&bytes]);
        assert_eq!(recorded.violation.is_some(), ends, "{codec:?}");
        let [call] = &recorded.calls[..] else { panic!("{codec:?}: {:?}", recorded.calls) };
        assert!(call.contains("the request is too large: "), "{codec:?}: {call}");
    }
}

#[test]
fn endless_json_object_is_limited() {
    let mut bytes = br#"{"method":""#.to_vec();
    bytes.resize(LIMITS.message, b'x');
    assert!(record_events(server_within(Codec::Json, LIMITS), &[&bytes]).violation.is_none());
    bytes.push(b'x');
    assert!(record_events(server_within(Codec::Json, LIMITS), &[&bytes]).violation.is_some());
}

#[test]
fn json_call_beyond_the_limit_is_answered_however_it_arrives_and_the_next_is_read() {
    let long = format!(r#"{{"method":"S.M","params":[{{"a":"{}"}}],"id":"x y"}}"#, "x".repeat(2000));
    let bytes = format!(r#"{long}{{"method":"S.M","params":[1],"id":2}}"#).into_bytes();
    for size in [1, 1024, 1025, bytes.len()] {
        let (mut server, mut out) = (server_within(Codec::Json, LIMITS), Outbox::new());
        let mut inbox = BytesMut::new();
        for piece in bytes.chunks(size) {
            inbox.extend_from_slice(piece);
            while let Some(event) = server.next_event(&mut inbox, &mut out).expect("it goes on") {
                let ServerEvent::Call(call, ticket) = event else { panic!("expected a call, got {event:?}") };
                assert_eq!((call.service, call.method), ("S", "M"));
                let result = call.malformed.clone().map_or_else(|| Ok(call.body.clone()), Err);
                let reply = Reply { result, ..Reply::message(call.head.format, Bytes::new()) };
                server.reply(ticket, reply, &mut out);
            }
            assert!(inbox.len() <= LIMITS.message && server.buffered() <= LIMITS.header + 2, "{size}");
        }
        let told = String::from_utf8(out.take()).expect("a text");
        let want = "{\"id\":\"x y\",\"result\":null,\"error\":\"the request is too large: \
                    message is too long: 1024 bytes are allowed\"}\n{\"id\":2,\"result\":1,\"error\":null}\n";
        assert_eq!(told, want, "{size}");
        assert_eq!(server.take_refusals().map(|refusals| refusals.too_large), Some(1), "{size}");
    }
}

#[test]
fn malformed_header_closes_the_connection() {
    for (codec, bytes) in [
        // A string in place of a struct, and a struct without any of the header's fields.
        (Codec::Gob, hex("080c000568656c6c6f")),
        (Codec::MessagePack, hex("07")),
        (Codec::MessagePack, hex("81a3536571a123")),
        (Codec::MessagePack, hex("c1")),
        (Codec::Protobuf, hex("020a05")),
        (Codec::Gencode, hex("0105")),
        (Codec::Colfer, hex("05")),
        (Codec::Bson, hex("0b000000 10 73657100 0102")),
    ] {
        let recorded = record_events(server_within(codec, LIMITS), &[&bytes]);
        assert!(recorded.calls.is_empty(), "{codec:?} {:?}", recorded.calls);
        assert!(recorded.violation.is_some(), "{codec:?} {bytes:02x?}");
    }
}

#[test]
fn name_that_is_not_utf8_matches_no_method() {
    let request = hex("06 0a04 ff2e4dfe 00");
    let recorded = record_events(server(Codec::Protobuf), &[&request]);
    assert!(recorded.calls[0].contains("method: \"\u{fffd}\""), "{:?}", recorded.calls);
}

#[test]
fn malformed_reply_of_a_handler_fails_its_call_only() {
    for (codec, junk) in [
        (Codec::Json, &b"{]"[..]),
        (Codec::Json, b"1}{"),
        (Codec::MessagePack, b"\x92\x01"),
        (Codec::MessagePack, b"\x01\x02"),
        (Codec::Bson, b"\x05\0\0\0"),
        (Codec::Gob, b"\x03\x04\0"),
    ] {
        let mut pair = pair(codec);
        let call = call(codec, "S", "M");
        let (_, reply) = sole_reply(
            pair.call(CallId(0), &call, |_| Reply::message(codec.format(), Bytes::from_static(junk))),
        );
        let status = reply.result.expect_err("a failure");
        assert!(status.message().starts_with("the body is not "), "{codec:?}: {status}");
        let reply =
            pair.call(CallId(0), &call, |recorded| Reply::message(codec.format(), recorded.body.clone()));
        assert_same(codec, &sole_reply(reply).1.result.expect("success"), &call.body);
        let (mut client, mut out) = (client(codec), Outbox::new());
        let broken = Call { body: Bytes::from_static(junk), ..call };
        assert!(client.send(CallId(0), broken, &mut out).is_err() && out.is_empty(), "{codec:?}");
    }
}

#[test]
fn malformed_body_fails_its_call_only() {
    let mut pair = pair(Codec::Gob);
    let call = call(Codec::Gob, "S", "M");
    for _ in 0..2 {
        let (_, reply) = sole_reply(
            pair.call(CallId(0), &call, |_| Reply::message(Format::Gob, Bytes::from_static(b"no gob"))),
        );
        let status = reply.result.expect_err("a failure");
        assert!(status.message().starts_with("the body is not gob"), "{status}");
    }
    let reply = pair.call(CallId(0), &call, |recorded| Reply::message(Format::Gob, recorded.body.clone()));
    assert_same(Codec::Gob, &sole_reply(reply).1.result.expect("success"), &call.body);
    let mut client = client(Codec::Gob);
    let mut out = Outbox::new();
    let broken = Call { body: Bytes::from_static(b"\xff"), ..call.clone() };
    assert!(client.send(CallId(0), broken, &mut out).is_err());
    assert!(out.is_empty());
    client.send(CallId(0), call, &mut out).expect("the protocol can express it");
    assert!(out.take().starts_with(b"\x2e\x7f\x03"), "the header's type is defined now");
}

#[test]
fn headers_and_type_definitions_count_as_buffered() {
    let (mut client, mut out) = (client(Codec::Gob), Outbox::new());
    client.send(CallId(0), call(Codec::Gob, "S", "M"), &mut out).expect("the protocol can express it");
    let (mut server, mut inbox) = (server(Codec::Gob), BytesMut::from(&out.take()[..]));
    assert_eq!(server.buffered(), 0);
    assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(_))));
    let types = server.buffered();
    assert!((50..4000).contains(&types), "{types} bytes for the types of a call");

    let (mut server, mut inbox) = (super::server(Codec::MessagePack), BytesMut::new());
    let name = "S.".to_owned() + &"m".repeat(200);
    inbox.extend_from_slice(b"\x82\xadServiceMethod\xd9\xca");
    inbox.extend_from_slice(name.as_bytes());
    inbox.extend_from_slice(b"\xa3Seq\x01");
    assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(None)));
    assert_eq!(server.buffered(), name.len());
}

#[test]
fn gob_types_use_a_bounded_multiple_of_their_definition_size() {
    use polyrpc_payload::gob;
    use polyrpc_payload::gob::Reader;

    // Structs of many fields with short names: the densest possible definitions.
    let mut inbox = BytesMut::new();
    for number in 0..4000_i32 {
        let mut fields = Vec::new();
        for _ in 0..15 {
            fields.extend_from_slice(b"\x01\x01f\x01\x04\0");
        }
        let mut message = Vec::new();
        gob_int(&mut message, -(65 + number));
        message.extend_from_slice(b"\x03\x01\x02");
        gob_int(&mut message, 65 + number);
        message.extend_from_slice(b"\0\x01\x0f");
        message.extend_from_slice(&fields);
        message.extend_from_slice(b"\0\0");
        inbox.extend_from_slice(&[message.len() as u8]);
        inbox.extend_from_slice(&message);
    }
    let mut reader = Reader::new(gob::Limits::default());
    let sent = inbox.len();
    let error = reader.next(&mut inbox).expect_err("there are too many");
    assert!(error.to_string().contains("definitions of types"), "{error}");
    assert!(reader.held() <= 16 * (256 << 10), "{} bytes held of {sent}", reader.held());
}

/// Appends an integer in gob's encoding, below 2^15.
fn gob_int(out: &mut Vec<u8>, value: i32) {
    let coded = if value < 0 { !value << 1 | 1 } else { value << 1 };
    match u8::try_from(coded).ok().filter(|small| *small < 128) {
        Some(small) => out.push(small),
        None => out.extend_from_slice(&[0xfe, (coded >> 8) as u8, coded as u8]),
    }
}

//! The sections of RFC 6455 in order, then sessions of a protocol over a WebSocket.

mod handshake;
mod session;

use bytes::{Bytes, BytesMut};
use polyrpc_core::testing::{assert_bytes, damage};

use super::frame::{Header, Mask, Opcode};
use super::{CloseCode, Config, Event, Kind, Receiver, Role};

/// Result of parsing some bytes: the messages, other events, how it ended.
#[derive(Debug, Default, PartialEq)]
struct ParsedBytes {
    messages: Vec<(Kind, Vec<u8>)>,
    /// An incomplete message.
    begun: Vec<u8>,
    others: Vec<Event>,
    failure: Option<CloseCode>,
}

fn receive(mut receiver: Receiver, chunks: &[&[u8]]) -> ParsedBytes {
    let (mut close_code, mut raw, mut plain) = (ParsedBytes::default(), BytesMut::new(), BytesMut::new());
    for chunk in chunks {
        raw.extend_from_slice(chunk);
        loop {
            match receiver.next(&mut raw, &mut plain) {
                Ok(None) => break,
                Ok(Some(Event::Data { kind, ended: true })) => {
                    close_code.messages.push((kind, plain.split().to_vec()));
                }
                Ok(Some(Event::Data { ended: false, .. })) => {}
                Ok(Some(other)) => close_code.others.push(other),
                Err(code) => close_code.failure = Some(code),
            }
        }
    }
    close_code.begun = plain.to_vec();
    close_code
}

/// Returns a client's result for a server's bytes, however they are split.
fn client_receives(bytes: &[u8]) -> ParsedBytes {
    let receiver = || Receiver::new(Role::Client(|| 0), Config::default());
    let whole = receive(receiver(), &[bytes]);
    let single: Vec<_> = bytes.chunks(1).collect();
    let cut = receive(receiver(), &single);
    // A malformed message is reported as soon as it is detected, so that fewer bytes of it may have been emitted.
    assert_eq!((&cut.messages, &cut.others, cut.failure), (&whole.messages, &whole.others, whole.failure));
    for at in 1..bytes.len().min(300) {
        let (a, b) = bytes.split_at(at);
        let cut = receive(receiver(), &[a, b]);
        assert_eq!(
            (&cut.messages, &cut.others, cut.failure),
            (&whole.messages, &whole.others, whole.failure)
        );
    }
    whole
}

fn failure(bytes: &[u8]) -> Option<CloseCode> {
    client_receives(bytes).failure
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = payload.len() as u64;
    Header { fin: false, opcode: Opcode::Continuation, mask: None, length }.write(&mut bytes);
    bytes[0] = first;
    [&bytes, payload].concat()
}

fn text(words: &str) -> (Kind, Vec<u8>) {
    (Kind::Text, words.as_bytes().to_vec())
}

#[test]
fn section_5_2_lengths_use_their_shortest_form() {
    for (length, header) in [
        (0, &b"\x82\x00"[..]),
        (125, b"\x82\x7d"),
        (126, b"\x82\x7e\x00\x7e"),
        (65_535, b"\x82\x7e\xff\xff"),
        (65_536, b"\x82\x7f\0\0\0\0\0\x01\0\0"),
    ] {
        let payload = vec![7; length];
        let bytes = frame(0x82, &payload);
        assert_bytes(&bytes[..header.len()], header);
        assert_eq!(
            receive(Receiver::new(Role::Client(|| 0), Config::default()), &[&bytes]).messages,
            [(Kind::Binary, payload)]
        );
    }
}

#[test]
fn section_5_2_longer_length_forms_are_protocol_errors() {
    assert_eq!(failure(b"\x82\x7e\x00\x7d"), Some(CloseCode::PROTOCOL_ERROR));
    assert_eq!(failure(b"\x82\x7f\0\0\0\0\0\0\xff\xff"), Some(CloseCode::PROTOCOL_ERROR));
    assert_eq!(failure(b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff"), Some(CloseCode::PROTOCOL_ERROR));
}

#[test]
fn section_5_2_reserved_bits_and_opcodes_are_protocol_errors() {
    for first in [0xc2, 0xa2, 0x92, 0x83, 0x84, 0x85, 0x86, 0x87, 0x8b, 0x8c, 0x8d, 0x8e, 0x8f] {
        assert_eq!(failure(&frame(first, b"x")), Some(CloseCode::PROTOCOL_ERROR), "{first:#x}");
    }
}

#[test]
fn section_5_3_payload_is_unmasked_for_any_split() {
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    let server = || Receiver::new(Role::Server, Config::default());
    for size in 1..=masked.len() {
        let chunks: Vec<_> = masked.chunks(size).collect();
        assert_eq!(receive(server(), &chunks).messages, [text("Hello")]);
    }
    let plain: Vec<u8> = (0..100).collect();
    for cut in 0..plain.len() {
        let mut whole = plain.clone();
        Mask([1, 2, 3, 4]).apply(&mut whole);
        let (mut mask, mut parts) = (Mask([1, 2, 3, 4]), plain.clone());
        let (a, b) = parts.split_at_mut(cut);
        mask.apply(a);
        mask.apply(b);
        assert_eq!(parts, whole);
    }
}

#[test]
fn section_5_1_only_client_frames_are_masked() {
    let server = Receiver::new(Role::Server, Config::default());
    assert_eq!(receive(server, &[b"\x81\x05Hello"]).failure, Some(CloseCode::PROTOCOL_ERROR));
    assert_eq!(failure(b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), Some(CloseCode::PROTOCOL_ERROR));
}

#[test]
fn section_5_4_control_frames_may_interleave_with_fragments() {
    let bytes = [&b"\x01\x03Hel"[..], b"\x89\x02hi", b"\x00\x00", b"\x8a\x00", b"\x80\x02lo"].concat();
    let close_code = client_receives(&bytes);
    assert_eq!(close_code.messages, [text("Hello")]);
    assert_eq!(close_code.others, [Event::Ping(Bytes::from_static(b"hi")), Event::Pong(Bytes::new())]);
}

#[test]
fn section_5_4_continuation_requires_a_started_message() {
    assert_eq!(failure(b"\x80\x01x"), Some(CloseCode::PROTOCOL_ERROR));
    assert_eq!(failure(b"\x00\x01x"), Some(CloseCode::PROTOCOL_ERROR));
    assert_eq!(failure(b"\x01\x01x\x81\x01y"), Some(CloseCode::PROTOCOL_ERROR));
    assert_eq!(failure(b"\x81\x01x\x80\x01y"), Some(CloseCode::PROTOCOL_ERROR));
}

#[test]
fn section_5_5_control_frames_are_short_and_unfragmented() {
    let longest = frame(0x89, &[7; 125]);
    assert_eq!(client_receives(&longest).others, [Event::Ping(Bytes::from(vec![7; 125]))]);
    for first in [0x88, 0x89, 0x8a] {
        assert_eq!(failure(&frame(first, &[0; 126])), Some(CloseCode::PROTOCOL_ERROR));
        assert_eq!(failure(&frame(first & !0x80, b"")), Some(CloseCode::PROTOCOL_ERROR));
    }
}

#[test]
fn section_5_5_1_close_can_carry_a_reason() {
    let closes = |payload: &[u8]| client_receives(&[&frame(0x88, payload)[..], b"\x81\x01x"].concat());
    assert_eq!(closes(b"").others, [Event::Close(None)]);
    assert_eq!(closes(b"\x03\xe8").others, [Event::Close(Some(CloseCode::NORMAL))]);
    assert_eq!(closes("\u{3}\u{0}".as_bytes()).failure, Some(CloseCode::PROTOCOL_ERROR));
    let going = closes(&[b"\x03\xe9", "größe".as_bytes()].concat());
    assert_eq!(going.others, [Event::Close(Some(CloseCode::GOING_AWAY))]);
    assert!(going.messages.is_empty(), "nothing follows it");
    assert_eq!(closes(b"\x03").failure, Some(CloseCode::PROTOCOL_ERROR));
    assert_eq!(closes(b"\x03\xe8\xff").failure, Some(CloseCode::INVALID_DATA));
}

#[test]
fn section_7_4_reserved_close_codes_are_protocol_errors() {
    let sent = |number: u16| client_receives(&frame(0x88, &number.to_be_bytes()));
    for number in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        assert_eq!(sent(number).others, [Event::Close(CloseCode::read(number))]);
    }
    for number in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        assert_eq!(sent(number).failure, Some(CloseCode::PROTOCOL_ERROR), "{number}");
    }
}

#[test]
fn section_8_1_text_is_checked_for_utf8_for_any_split() {
    let words = "κόσμε 𐐷 ok";
    assert_eq!(client_receives(&frame(0x81, words.as_bytes())).messages, [text(words)]);
    for cut in 0..words.len() {
        let (a, b) = words.as_bytes().split_at(cut);
        let bytes = [frame(0x01, a), frame(0x80, b)].concat();
        assert_eq!(client_receives(&bytes).messages, [text(words)], "{cut}");
    }
    for wrong in [
        &b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"[..],
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf",
        b"\xff",
        b"cut \xe2\x82",
    ] {
        assert_eq!(failure(&frame(0x81, wrong)), Some(CloseCode::INVALID_DATA), "{}", wrong.escape_ascii());
        let (a, b) = wrong.split_at(wrong.len() - 1);
        let bytes = [frame(0x01, a), frame(0x80, b)].concat();
        assert_eq!(failure(&bytes), Some(CloseCode::INVALID_DATA));
    }
    // The error is reported before the rest has arrived.
    assert_eq!(failure(b"\x01\x05\xf4\x90"), Some(CloseCode::INVALID_DATA));
    assert_eq!(client_receives(&frame(0x82, b"\xff")).messages, [(Kind::Binary, vec![0xff])]);
}

#[test]
fn section_10_4_message_length_is_limited_across_fragments() {
    let config = Config { message: 10, ..Config::default() };
    let close_code = |bytes: &[u8]| receive(Receiver::new(Role::Client(|| 0), config), &[bytes]);
    assert_eq!(close_code(&frame(0x82, &[0; 10])).messages.len(), 1);
    assert_eq!(close_code(&frame(0x82, &[0; 11])).failure, Some(CloseCode::TOO_BIG));
    // Reported from the header alone: none of the payload has arrived.
    assert_eq!(close_code(b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff").failure, Some(CloseCode::TOO_BIG));
    let parts = [frame(0x02, &[0; 6]), frame(0x80, &[0; 6])].concat();
    assert_eq!(close_code(&parts).failure, Some(CloseCode::TOO_BIG));
}

#[test]
fn text_frames_are_accepted_unchecked_in_byte_stream_mode() {
    let receiver = Receiver::new(Role::Client(|| 0), Config::BYTES);
    let close_code = receive(receiver, &[&frame(0x81, b"\x08\xff")]);
    assert_eq!(close_code.messages, [(Kind::Text, vec![8, 0xff])]);
}

#[test]
fn damaged_frames_never_panic() {
    let bytes = [&b"\x01\x03Hel"[..], b"\x89\x02hi", b"\x80\x02lo", b"\x82\x7e\x00\x7e", &[1; 126]].concat();
    damage(&bytes, |damaged| {
        receive(Receiver::new(Role::Client(|| 0), Config::default()), &[damaged]);
    });
}

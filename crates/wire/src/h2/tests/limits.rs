//! What a peer may do in which time, and how large things may be.

use std::time::Duration;

use super::*;
use crate::session::ViolationKind;

fn reset(stream: u32) -> Vec<u8> {
    frame_of(frame::RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

fn tick(spoken: &mut Spoken, millis: u64) -> Vec<u32> {
    let stalled = spoken.server.tick(Duration::from_millis(millis), &mut spoken.out);
    spoken.server.assert_sound();
    stalled
}

/// The text of the GOAWAY that was sent last.
fn reason(spoken: &mut Spoken) -> String {
    let last = spoken.sent().pop().expect("a frame");
    assert_eq!(last.kind, frame::GOAWAY);
    String::from_utf8(last.payload[8..].to_vec()).unwrap()
}

#[test]
fn streams_that_are_reset_at_a_moderate_rate_harm_nobody() {
    let mut spoken = spoken();
    for n in 0..10_000 {
        tick(&mut spoken, n * 20);
        let id = 2 * n as u32 + 1;
        spoken.hear(&request(id, true)).unwrap();
        spoken.server.headers(id, b"\x88", false, &mut spoken.out);
        spoken.hear(&reset(id)).unwrap();
        spoken.sent();
    }
}

#[test]
fn streams_that_are_reset_in_a_burst_end_the_connection() {
    let mut spoken = spoken();
    let flood = |n: u32| [request(2 * n + 1, true), reset(2 * n + 1)].concat();
    // A hundred thousand each second.
    let violation = (0..100_000)
        .find_map(|n| {
            tick(&mut spoken, u64::from(n / 100));
            spoken.hear(&flood(n)).err().map(|violation| (n, violation))
        })
        .expect("an end");
    assert!(violation.0 < 1020, "{violation:?}");
    assert_eq!(violation.1.kind(), ViolationKind::Flood);
    assert_eq!(reason(&mut spoken), "too many streams were reset");
}

#[test]
fn header_block_of_four_times_the_limit_ends_the_connection_with_a_text() {
    let mut spoken = Spoken::open(Config { header_list: 10_000, ..Config::default() });
    let first = frame_of(frame::HEADERS, 0, 1, &block(&[]));
    let more = frame_of(frame::CONTINUATION, 0, 1, &[0x80; 16_000]).repeat(3);
    let violation = spoken.hear(&[first, more].concat()).unwrap_err();
    assert_eq!(violation.kind(), ViolationKind::TooLarge);
    let text =
        "a header block of more than 40000 bytes, four times the limit of 10000 bytes for a header list";
    assert_eq!(reason(&mut spoken), text);
}

#[test]
fn frames_may_be_as_long_as_was_announced() {
    let config = Config { frame: 100_000, window: 1 << 20, ..Config::default() };
    let mut server: Connection = Connection::server(Arc::new(config.clone()));
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    server.next_event(&mut inbox, &mut out).unwrap();
    let said = out.take();
    assert!(said.windows(6).any(|setting| *setting == [0, 5, 0, 1, 0x86, 0xa0]), "{}", said.escape_ascii());
    let mut spoken = Spoken::open(config);
    let whole = [request(1, false), frame_of(frame::DATA, frame::END_STREAM, 1, &[0; 100_000])].concat();
    let events = spoken.hear(&whole).unwrap();
    assert!(matches!(&events[..], [Event::Whole { body, .. }] if body.len() == 100_000));
    let violation = spoken.hear(&[1, 0x86, 0xa1, 0, 0, 0, 0, 0, 1]).unwrap_err();
    assert_eq!(violation.kind(), ViolationKind::TooLarge);
    assert_eq!(reason(&mut spoken), "a frame of 100001 bytes exceeds the limit of 100000");
}

#[test]
fn stream_of_which_nothing_is_taken_is_reset() {
    let mut spoken = spoken();
    spoken.hear(&no_window()).unwrap();
    spoken.hear(&[request(1, true), request(3, true), request(5, true)].concat()).unwrap();
    for (id, length) in [(1, 100_000), (3, 60_000), (5, 100_000)] {
        spoken.server.data(id, b"", Bytes::from(vec![0; length]), true, &mut spoken.out);
    }
    assert!(spoken.server.wants_ticks());
    assert_eq!(tick(&mut spoken, 0), [0; 0]);
    assert_eq!(tick(&mut spoken, 20_000), [0; 0]);
    // A slow reader is left alone.
    spoken.hear(&frame_of(frame::WINDOW_UPDATE, 0, 5, &1_u32.to_be_bytes())).unwrap();
    spoken.sent();
    assert_eq!(tick(&mut spoken, 20_250), [0; 0]);
    assert_eq!(tick(&mut spoken, 30_000), [1]);
    let sent = spoken.sent();
    assert_eq!(
        (sent[0].kind, sent[0].stream, &sent[0].payload[..]),
        (frame::RST_STREAM, 1, &[0, 0, 0, 8][..])
    );
    assert_eq!(tick(&mut spoken, 50_250), [5]);
    assert!(spoken.server.owes(), "little waits on the third: its reader may be slow");
    assert!(!spoken.server.wants_ticks());
    assert_eq!(tick(&mut spoken, 5_000_000), [0; 0]);
}

#[test]
fn answer_to_a_ping_that_was_not_sent_is_ignored() {
    let mut spoken = spoken();
    let answer = frame_of(frame::PING, frame::ACK, 0, b"polyrpc?");
    assert_eq!(spoken.hear(&answer).unwrap(), []);
    spoken.server.ping(&mut spoken.out);
    assert_eq!(spoken.hear(&answer.repeat(2)).unwrap(), [Event::Pong]);
}

#[test]
fn server_names_the_last_stream_though_its_ping_is_not_answered() {
    let mut spoken = spoken();
    spoken.hear(&request(1, true)).unwrap();
    spoken.server.leave(&mut spoken.out);
    spoken.sent();
    assert!(spoken.server.wants_ticks());
    tick(&mut spoken, 0);
    tick(&mut spoken, 1900);
    assert_eq!(spoken.sent(), []);
    tick(&mut spoken, 2000);
    let last = spoken.sent().pop().unwrap();
    assert_eq!((last.kind, &last.payload[..4]), (frame::GOAWAY, &[0, 0, 0, 1][..]));
    assert!(!spoken.server.wants_ticks());
}

#[test]
fn answered_request_is_granted_nothing_more_though_its_answer_waits() {
    let mut spoken = spoken();
    spoken.hear(&no_window()).unwrap();
    spoken.hear(&request(1, false)).unwrap();
    spoken.server.headers(1, b"\x88", false, &mut spoken.out);
    spoken.server.data(1, b"", Bytes::from_static(b"refused"), true, &mut spoken.out);
    spoken.sent();
    for _ in 0..4 {
        assert_eq!(spoken.hear(&frame_of(frame::DATA, 0, 1, &[0; 16_384])).unwrap(), []);
    }
    assert!(spoken.sent().iter().all(|sent| (sent.kind, sent.stream) != (frame::WINDOW_UPDATE, 1)));
    spoken.hear(&frame_of(frame::WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes())).unwrap();
    assert_eq!(spoken.sent().pop().unwrap().payload, b"refused", "the answer was not lost");
    assert_eq!(spoken.reset_with(&frame_of(frame::DATA, 0, 1, &[0; 1])), ErrorCode::FLOW_CONTROL_ERROR);
}

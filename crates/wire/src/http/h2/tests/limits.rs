//! Limits of rates and sizes.

use std::time::Duration;

use polyrpc_core::session::ViolationKind;

use super::*;

fn reset(stream: u32) -> Vec<u8> {
    frame_of(frame::RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

fn tick(spoken: &mut RawServer, millis: u64) -> Vec<u32> {
    let stalled = spoken.server.tick(Duration::from_millis(millis), &mut spoken.out);
    spoken.server.assert_sound();
    stalled
}

/// Returns the debug data of the last GOAWAY sent.
fn reason(spoken: &mut RawServer) -> String {
    let last = spoken.sent().pop().expect("a frame");
    assert_eq!(last.kind, frame::GOAWAY);
    String::from_utf8(last.payload[8..].to_vec()).unwrap()
}

#[test]
fn moderate_rate_of_resets_is_tolerated() {
    let mut spoken = spoken();
    for n in 0..10_000 {
        tick(&mut spoken, n * 20);
        let id = 2 * n as u32 + 1;
        spoken.receive(&request(id, true)).unwrap();
        spoken.server.headers(id, b"\x88", false, &mut spoken.out);
        spoken.receive(&reset(id)).unwrap();
        spoken.sent();
    }
}

#[test]
fn data_in_flight_after_a_reset_is_ignored_and_more_of_it_closes_the_connection() {
    let config = Config { window: 65_536, connection_window: 1 << 20, ..Config::default() };
    let mut spoken = RawServer::open(config.clone());
    let data = |id, length: usize| frame_of(frame::DATA, 0, id, &vec![0; length]);
    // All streams are reset before the peer sees the first RST_STREAM, and all their windows are in flight.
    for n in 0..8 {
        spoken.receive(&request(2 * n + 1, false)).unwrap();
        spoken.server.reset(2 * n + 1, ErrorCode::CANCEL, &mut spoken.out);
    }
    for n in 0..8 {
        for _ in 0..4 {
            assert_eq!(spoken.receive(&data(2 * n + 1, 16_384)).unwrap(), []);
        }
        spoken.receive(&frame_of(frame::DATA, frame::END_STREAM, 2 * n + 1, b"")).unwrap();
        spoken.server.assert_sound();
    }
    // No well-behaved peer sends more than their windows: the rest is tolerated for a while.
    let sent = (0..2_000).find(|_| spoken.receive(&data(1, 1)).is_err()).expect("an end");
    assert!((1_000..2_000).contains(&sent), "{sent}");
    assert_eq!(reason(&mut spoken), "too many frames on closed streams");

    // Bodies of refused requests are in flight too.
    let mut spoken = RawServer::open(Config { streams: 1, ..config });
    spoken.receive(&request(1, false)).unwrap();
    for n in 1..8 {
        assert_eq!(spoken.reset_with(&request(2 * n + 1, false)), ErrorCode::REFUSED_STREAM);
        for _ in 0..4 {
            spoken.receive(&data(2 * n + 1, 16_384)).unwrap();
        }
    }
    spoken.receive(&data(3, 16_384)).unwrap_err();
    assert_eq!(reason(&mut spoken), "too many frames on closed streams");
}

#[test]
fn stream_with_many_small_pieces_has_no_room() {
    let mut spoken = spoken();
    spoken.receive(&no_window()).unwrap();
    spoken.receive(&request(1, true)).unwrap();
    let mut messages = 0_u32;
    while spoken.server.has_room(1) {
        spoken.server.data(1, b"12345", Bytes::from_static(b"x"), false, &mut spoken.out);
        messages += 1;
    }
    assert_eq!(messages, 256);
    let grown = frame_of(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 6]);
    assert_eq!(spoken.receive(&grown).unwrap(), [Event::Room { stream: 1 }]);
    assert!(spoken.server.has_room(1));
    spoken.server.assert_sound();
}

#[test]
fn burst_of_resets_closes_the_connection() {
    let mut spoken = spoken();
    let flood = |n: u32| [request(2 * n + 1, true), reset(2 * n + 1)].concat();
    // One hundred thousand per second.
    let violation = (0..100_000)
        .find_map(|n| {
            tick(&mut spoken, u64::from(n / 100));
            spoken.receive(&flood(n)).err().map(|violation| (n, violation))
        })
        .expect("an end");
    assert!(violation.0 < 1020, "{violation:?}");
    assert_eq!(violation.1.kind(), ViolationKind::Flood);
    assert_eq!(reason(&mut spoken), "too many streams were reset");
}

#[test]
fn header_block_of_four_times_the_limit_closes_the_connection_with_a_reason() {
    let mut spoken = RawServer::open(Config { header_list: 10_000, ..Config::default() });
    let first = frame_of(frame::HEADERS, 0, 1, &block(&[]));
    let more = frame_of(frame::CONTINUATION, 0, 1, &[0x80; 16_000]).repeat(3);
    let violation = spoken.receive(&[first, more].concat()).unwrap_err();
    assert_eq!(violation.kind(), ViolationKind::TooLarge);
    let text =
        "a header block of more than 40000 bytes, four times the limit of 10000 bytes for a header list";
    assert_eq!(reason(&mut spoken), text);
}

#[test]
fn header_list_above_the_limit_that_fills_the_table_again_and_again_closes_the_connection() {
    let mut spoken = RawServer::open(Config { header_list: 10_000, ..Config::default() });
    // A name of 4000 bytes is added, and then by its index: two bytes each.
    let name = [&[0x40, 0x7f, 0xa1, 0x1e][..], &[b'n'; 4000], &[0]].concat();
    let flood =
        frame_of(frame::HEADERS, frame::END_HEADERS, 1, &[&name[..], &[0x7e, 0].repeat(1000)].concat());
    let violation = spoken.receive(&flood).unwrap_err();
    assert_eq!(violation.kind(), ViolationKind::TooLarge);
    assert_eq!(
        reason(&mut spoken),
        "a header list above the limit of 10000 bytes that adds too much to the dynamic table"
    );
}

#[test]
fn frames_can_have_the_announced_length() {
    let config = Config { frame: 100_000, window: 1 << 20, ..Config::default() };
    let mut server: Connection = Connection::server(Arc::new(config.clone()));
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    server.next_event(&mut inbox, &mut out).unwrap();
    let sent = out.take();
    assert!(sent.windows(6).any(|setting| *setting == [0, 5, 0, 1, 0x86, 0xa0]), "{}", sent.escape_ascii());
    let mut spoken = RawServer::open(config);
    let whole = [request(1, false), frame_of(frame::DATA, frame::END_STREAM, 1, &[0; 100_000])].concat();
    let events = spoken.receive(&whole).unwrap();
    assert!(matches!(&events[..], [Event::Whole { body, .. }] if body.len() == 100_000));
    let violation = spoken.receive(&[1, 0x86, 0xa1, 0, 0, 0, 0, 0, 1]).unwrap_err();
    assert_eq!(violation.kind(), ViolationKind::TooLarge);
    assert_eq!(reason(&mut spoken), "a frame of 100001 bytes exceeds the limit of 100000");
}

#[test]
fn unread_finished_stream_is_reset() {
    let mut spoken = spoken();
    spoken.receive(&no_window()).unwrap();
    spoken.receive(&[request(1, true), request(3, true), request(5, true)].concat()).unwrap();
    for (id, length) in [(1, 100_000), (5, 100_000)] {
        spoken.server.data(id, b"", Bytes::from(vec![0; length]), true, &mut spoken.out);
    }
    // A stream that is not finished may be read as slowly as its reader likes.
    spoken.server.data(3, b"", Bytes::from(vec![0; 60_000]), false, &mut spoken.out);
    assert!(spoken.server.wants_ticks());
    assert_eq!(tick(&mut spoken, 0), [0; 0]);
    assert_eq!(tick(&mut spoken, 20_000), [0; 0]);
    // A slow reader is not reset.
    spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 5, &1_u32.to_be_bytes())).unwrap();
    spoken.sent();
    assert_eq!(tick(&mut spoken, 20_250), [0; 0]);
    assert_eq!(tick(&mut spoken, 30_000), [1]);
    let sent = spoken.sent();
    assert_eq!(
        (sent[0].kind, sent[0].stream, &sent[0].payload[..]),
        (frame::RST_STREAM, 1, &[0, 0, 0, 8][..])
    );
    assert_eq!(tick(&mut spoken, 50_250), [5]);
    assert!(spoken.server.has_queued_data(), "the third is not finished");
    assert!(!spoken.server.wants_ticks());
    assert_eq!(tick(&mut spoken, 5_000_000), [0; 0]);
}

#[test]
fn unread_short_response_is_reset_after_a_timeout() {
    let mut spoken = RawServer::open(Config { stalled: Duration::from_secs(7), ..Config::default() });
    spoken.receive(&no_window()).unwrap();
    spoken
        .receive(&[request(1, true), request(3, true), request(5, true), request(7, true)].concat())
        .unwrap();
    spoken.server.headers(1, b"\x88", false, &mut spoken.out);
    spoken.server.data(1, b"", Bytes::from_static(b"few"), false, &mut spoken.out);
    assert!(!spoken.server.wants_ticks(), "an answer that goes on has no clock");
    spoken.server.trailers(1, b"\x88", &mut spoken.out);
    assert!(spoken.server.wants_ticks());
    spoken.server.data(3, b"", Bytes::from_static(b"few"), true, &mut spoken.out);
    spoken.server.data(5, b"", Bytes::from_static(b"few"), false, &mut spoken.out);
    assert_eq!(tick(&mut spoken, 1_000), [0; 0]);
    spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 3, &1_u32.to_be_bytes())).unwrap();
    assert_eq!(tick(&mut spoken, 7_999), [0; 0]);
    assert_eq!(tick(&mut spoken, 8_000), [1]);
    assert_eq!(tick(&mut spoken, 14_999), [3]);
    assert_eq!(tick(&mut spoken, 1_000_000), [0; 0]);
    assert_eq!(spoken.server.ids(), [5, 7], "open streams are not reviewed");
    assert!(!spoken.server.wants_ticks());
    // A response that is read in time ends normally.
    spoken.server.data(7, b"", Bytes::from_static(b"few"), true, &mut spoken.out);
    spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 7, &3_u32.to_be_bytes())).unwrap();
    assert!(!spoken.server.wants_ticks());
    assert_eq!(tick(&mut spoken, 2_000_000), [0; 0]);
}

/// SETTINGS with this initial window size.
fn window(size: u32) -> Vec<u8> {
    let [a, b, c, d] = size.to_be_bytes();
    frame_of(frame::SETTINGS, 0, 0, &[0, 4, a, b, c, d])
}

/// Creates a connection without send windows, with a queued response on each of `streams` streams.
fn with_waiting(streams: u32) -> RawServer {
    let mut spoken = spoken();
    spoken.receive(&no_window()).unwrap();
    for id in (0..streams).map(|n| 2 * n + 1) {
        spoken.receive(&request(id, true)).unwrap();
        spoken.server.data(id, b"", Bytes::from(vec![0; 1_000]), true, &mut spoken.out);
    }
    spoken.sent();
    spoken
}

fn data_of(spoken: &mut RawServer) -> Vec<(u32, usize)> {
    let sent = spoken.sent();
    let data = sent.iter().filter(|sent| sent.kind == frame::DATA);
    data.map(|sent| (sent.stream, sent.payload.len())).collect()
}

#[test]
fn repeated_window_updates_are_used_once_per_batch() {
    let mut spoken = with_waiting(3);
    let grown: Vec<u8> = (1..=8).flat_map(window).collect();
    spoken.receive(&grown).unwrap();
    assert_eq!(data_of(&mut spoken), [(1, 8), (3, 8), (5, 8)]);
    spoken.server.assert_sound();
    // A window that shrinks again sends nothing.
    spoken.receive(&[window(9), window(8)].concat()).unwrap();
    assert_eq!(data_of(&mut spoken), []);
    spoken.receive(&window(1_000)).unwrap();
    assert_eq!(data_of(&mut spoken), [(1, 992), (3, 992), (5, 992)]);
    assert_eq!(spoken.server.streams(), 0);
}

#[test]
fn flushed_streams_count_as_frames_of_the_turn() {
    let mut spoken = with_waiting(500);
    let ping = frame_of(frame::PING, 0, 0, &[0; 8]);
    let events = spoken.hear_all(&window(1)).unwrap();
    assert_eq!(events, []);
    assert_eq!(data_of(&mut spoken).len(), 500);
    let events = spoken.hear_all(&ping).unwrap();
    assert_eq!(events, [Event::Pause], "others have their turn");
}

#[test]
fn peer_that_changes_its_windows_repeatedly_is_disconnected() {
    let mut spoken = with_waiting(10);
    // A few per second are harmless.
    let mut size = 0;
    for second in 0..1_000 {
        tick(&mut spoken, second * 1_000);
        for _ in 0..8 {
            size = if size > 50 { 0 } else { size + 1 };
            spoken.receive(&window(size)).unwrap();
        }
    }
    spoken.sent();
    let changes = (1..=1_000).find(|n| spoken.receive(&window(100 + n)).is_err()).expect("an end");
    assert!((120..=130).contains(&changes), "{changes}");
    let violation = spoken.sent().pop().expect("a GOAWAY");
    assert_eq!(violation.payload[4..8], ErrorCode::ENHANCE_YOUR_CALM.0.to_be_bytes());
    assert_eq!(&violation.payload[8..], b"too many changes of the windows");
}

#[test]
fn unsolicited_ping_ack_is_ignored() {
    let mut spoken = spoken();
    let answer = frame_of(frame::PING, frame::ACK, 0, b"polyrpc?");
    assert_eq!(spoken.receive(&answer).unwrap(), []);
    spoken.server.ping(&mut spoken.out);
    assert_eq!(spoken.receive(&answer.repeat(2)).unwrap(), [Event::Pong]);
}

#[test]
fn go_away_names_the_last_stream_without_a_ping_ack() {
    let mut spoken = spoken();
    spoken.receive(&request(1, true)).unwrap();
    spoken.server.start_graceful_shutdown(&mut spoken.out);
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
fn answered_request_is_granted_no_window_while_its_response_is_unsent() {
    let mut spoken = spoken();
    spoken.receive(&no_window()).unwrap();
    spoken.receive(&request(1, false)).unwrap();
    spoken.server.headers(1, b"\x88", false, &mut spoken.out);
    spoken.server.data(1, b"", Bytes::from_static(b"refused"), true, &mut spoken.out);
    spoken.sent();
    for _ in 0..4 {
        assert_eq!(spoken.receive(&frame_of(frame::DATA, 0, 1, &[0; 16_384])).unwrap(), []);
    }
    assert!(spoken.sent().iter().all(|sent| (sent.kind, sent.stream) != (frame::WINDOW_UPDATE, 1)));
    spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes())).unwrap();
    assert_eq!(spoken.sent().pop().unwrap().payload, b"refused", "the answer was not lost");
    assert_eq!(spoken.reset_with(&frame_of(frame::DATA, 0, 1, &[0; 1])), ErrorCode::FLOW_CONTROL_ERROR);
}

//! Large messages: long frames, and who has to wait for them.

use super::*;

/// A peer that accepts frames of 1 MiB, with these windows of its streams and of the connection.
fn generous(stream_window: u32, window: u32) -> Spoken {
    let mut spoken = spoken();
    let setting = |id: u16, value: u32| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let settings =
        [setting(settings::INITIAL_WINDOW_SIZE, stream_window), setting(settings::MAX_FRAME_SIZE, 1 << 20)];
    spoken.receive(&frame_of(frame::SETTINGS, 0, 0, &settings.concat())).unwrap();
    let more = window - settings::DEFAULT_WINDOW;
    spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes())).unwrap();
    spoken.sent();
    spoken
}

/// Returns the lengths of the DATA frames that were sent on a stream.
fn lengths(sent: &[Sent], stream: u32) -> Vec<usize> {
    let data = sent.iter().filter(|sent| (sent.kind, sent.stream) == (frame::DATA, stream));
    data.map(|sent| sent.payload.len()).collect()
}

fn respond(spoken: &mut Spoken, stream: u32, length: usize) -> Vec<usize> {
    spoken.receive(&request(stream, true)).unwrap();
    spoken.server.headers(stream, b"\x88", false, &mut spoken.out);
    spoken.server.data(stream, b"12345", Bytes::from(vec![7; length]), true, &mut spoken.out);
    spoken.server.assert_sound();
    lengths(&spoken.sent(), stream)
}

#[test]
fn large_message_is_one_frame_if_the_peer_accepts_that() {
    let mut spoken = generous(4 << 20, 4 << 20);
    assert_eq!(respond(&mut spoken, 1, 300_000), [300_005]);
    // The rest of a longer one follows its first MiB.
    assert_eq!(respond(&mut spoken, 3, 2 << 20), [5, 1 << 20, 1 << 20]);
}

#[test]
fn complete_response_has_one_long_data_frame() {
    let mut spoken = generous(4 << 20, 4 << 20);
    spoken.receive(&request(1, true)).unwrap();
    let body = Bytes::from(vec![7; 300_000]);
    let rest = spoken.server.answer(1, [b"\x88", b"\x88"], b"12345", body, &mut spoken.out);
    assert_eq!(rest, None);
    assert_eq!(lengths(&spoken.sent(), 1), [300_005]);
}

#[test]
fn frames_are_short_for_a_peer_that_has_not_announced_longer_ones() {
    let mut spoken = spoken();
    let lengths = respond(&mut spoken, 1, 50_000);
    assert_eq!(lengths.iter().sum::<usize>(), 50_005);
    assert!(lengths.iter().all(|length| *length <= settings::DEFAULT_FRAME), "{lengths:?}");
}

#[test]
fn frames_are_short_while_another_stream_waits_for_a_window() {
    let mut spoken = generous(400_000, 4 << 20);
    let waiting = respond(&mut spoken, 1, 1 << 20);
    assert_eq!(waiting.iter().sum::<usize>(), 400_000, "as far as the window allows");
    let lengths = respond(&mut spoken, 3, 300_000);
    assert_eq!(lengths.iter().sum::<usize>(), 300_005);
    assert!(lengths.iter().all(|length| *length <= settings::DEFAULT_FRAME), "{lengths:?}");
    spoken.receive(&frame_of(frame::RST_STREAM, 0, 1, &[0; 4])).unwrap();
    assert_eq!(respond(&mut spoken, 5, 300_000), [300_005], "nothing waits any longer");
}

#[test]
fn streams_take_turns_on_the_window_of_the_connection() {
    let mut spoken = generous(4 << 20, 100_000);
    for stream in [1, 3] {
        respond(&mut spoken, stream, 1 << 20);
    }
    let grant = |spoken: &mut Spoken, bytes: u32| {
        spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes())).unwrap();
        spoken.server.assert_sound();
        let sent = spoken.sent();
        [1, 3].map(|stream| lengths(&sent, stream).iter().sum::<usize>())
    };
    let turns: Vec<_> = (0..4).map(|_| grant(&mut spoken, 50_000)).collect();
    assert_eq!(turns, [[50_000, 0], [0, 50_000], [50_000, 0], [0, 50_000]]);
}

#[test]
fn large_request_is_one_piece_for_any_split() {
    let body: Vec<u8> = (0..70_000_u32).map(|n| (n % 251) as u8).collect();
    let bytes = [request(1, false), frame_of(frame::DATA, frame::END_STREAM, 1, &body)].concat();
    let cuts = (1..100).chain((100..bytes.len()).step_by(1009)).chain(bytes.len() - 10..bytes.len());
    for at in cuts {
        let mut spoken = spoken();
        let mut events = spoken.receive(&bytes[..at]).unwrap();
        if at > 100 {
            assert_eq!(spoken.server.wanted(), frame::HEADER + body.len(), "cut at {at}");
        }
        events.extend(spoken.receive(&bytes[at..]).unwrap());
        let piece = match events.pop() {
            Some(Event::Whole { body, .. } | Event::Data { bytes: body, end: true, .. }) => body,
            other => panic!("{other:?}"),
        };
        assert!(piece == body, "cut at {at}");
        spoken.server.assert_sound();
    }
}

#[test]
fn frame_above_the_announced_size_ends_the_connection_by_its_header() {
    let mut spoken = spoken();
    let mut bytes = request(1, false);
    frame::begin(&mut bytes, (1 << 20) + 1, frame::DATA, 0, 1);
    assert_eq!(spoken.ended_with(&bytes), ErrorCode::FRAME_SIZE_ERROR);
}

/// Returns the data of frames of these lengths, read in two reads: the first ends within the first frame.
fn received(lengths: &[usize]) -> Vec<Bytes> {
    let data = |length: &usize| frame_of(frame::DATA, 0, 1, &vec![7; *length]);
    let bytes: Vec<u8> = lengths.iter().flat_map(data).collect();
    let mut spoken = spoken();
    spoken.receive(&request(1, false)).unwrap();
    let (first, rest) = bytes.split_at(frame::HEADER + 20);
    let mut events = spoken.receive(first).unwrap();
    spoken.inbox.reserve(2 << 20);
    events.extend(spoken.receive(rest).unwrap());
    spoken.server.assert_sound();
    let data = events.into_iter().map(|event| match event {
        Event::Data { bytes, .. } => bytes,
        other => panic!("{other:?}"),
    });
    data.collect()
}

#[test]
fn short_data_does_not_keep_the_buffer_of_a_long_frame_in_memory() {
    const LONG: usize = 100_000;
    for lengths in [
        &[LONG, 10][..],
        &[10, LONG],
        &[LONG, 10, LONG, 10],
        &[LONG, LONG, 10, 10],
        &[LONG, 60_000, 10],
        &[2 * LONG, LONG, 10, 10, LONG],
        // More than a read behind the first one, and many.
        &[2 * LONG, 60_000, 60_000, 60_000, 10, 10],
        &[2 * LONG, 60_000, 10, 60_000, 60_000],
    ] {
        assert_eq!(received(lengths).iter().map(Bytes::len).collect::<Vec<_>>(), lengths);
        for at in (0..lengths.len()).filter(|at| lengths[*at] < LONG) {
            let piece = received(lengths).swap_remove(at);
            // Its only owner gets all of its memory.
            assert!(piece.is_unique());
            let room = BytesMut::from(piece).capacity();
            assert!(room <= 64 << 10, "{room} bytes at {at} of {lengths:?}");
        }
    }
}

#[test]
fn streams_that_nobody_reads_hold_at_most_twice_the_window_of_the_connection() {
    const WINDOW: usize = 4 << 20;
    let mut spoken = Spoken::open(Config { connection_window: WINDOW as u32, ..Config::default() });
    let mut received = 0;
    for stream in (1..100).step_by(2) {
        spoken.receive(&request(stream, false)).unwrap();
        match spoken.receive(&frame_of(frame::DATA, 0, stream, &[7; 1 << 20])) {
            Ok(events) => {
                let data = |event| match event {
                    Event::Data { bytes, .. } => bytes.len(),
                    other => panic!("{other:?}"),
                };
                received += events.into_iter().map(data).sum::<usize>();
            }
            Err(_) => {
                let last = spoken.sent().pop().expect("a frame");
                let code = ErrorCode(u32::from_be_bytes(last.payload[4..8].try_into().unwrap()));
                assert_eq!((last.kind, code), (frame::GOAWAY, ErrorCode::FLOW_CONTROL_ERROR));
                assert_eq!(received, 2 * WINDOW);
                return;
            }
        }
    }
    panic!("{received} bytes were taken");
}

/// Returns the header alone of a frame of this length.
fn announced(length: usize, kind: u8, stream: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::begin(&mut bytes, length, kind, 0, stream);
    bytes
}

#[test]
fn long_frame_of_a_short_type_ends_the_connection_by_its_header() {
    let kinds = [
        frame::PRIORITY,
        frame::RST_STREAM,
        frame::SETTINGS,
        frame::PUSH_PROMISE,
        frame::PING,
        frame::GOAWAY,
        frame::WINDOW_UPDATE,
    ];
    for kind in kinds {
        assert_eq!(spoken().ended_with(&announced(16_385, kind, 0)), ErrorCode::FRAME_SIZE_ERROR, "{kind}");
    }
}

#[test]
fn header_block_that_is_too_long_ends_the_connection_by_its_header() {
    let longest = Config::default().longest_block();
    let mut spoken = spoken();
    assert_eq!(spoken.receive(&announced(longest, frame::HEADERS, 1)).unwrap(), []);
    assert_eq!(spoken.server.wanted(), frame::HEADER + longest);

    let mut spoken = self::spoken();
    let code = spoken.ended_with(&announced(longest + 300, frame::HEADERS, 1));
    assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);

    let mut spoken = self::spoken();
    spoken.receive(&frame_of(frame::HEADERS, 0, 1, &vec![0x80; 200_000])).unwrap();
    let code = spoken.ended_with(&announced(longest - 100_000, frame::CONTINUATION, 1));
    assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn long_data_that_no_window_allows_ends_the_connection_by_its_header() {
    let mut spoken = spoken();
    assert_eq!(spoken.ended_with(&announced(1 << 20, frame::DATA, 1)), ErrorCode::PROTOCOL_ERROR, "idle");
    let mut spoken = Spoken::open(Config { connection_window: 100_000, ..Config::default() });
    spoken.receive(&request(1, false)).unwrap();
    assert_eq!(spoken.ended_with(&announced(100_001, frame::DATA, 1)), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn long_frame_of_an_unknown_type_is_ignored_without_being_buffered() {
    const UNKNOWN: u8 = 0xfa;
    let mut spoken = spoken();
    spoken.receive(&announced(1 << 20, UNKNOWN, 0)).unwrap();
    assert!(spoken.server.mid_message(), "its end has a time limit");
    for part in [1, 16_384, (1 << 20) - 16_385] {
        assert!(spoken.server.mid_message());
        spoken.receive(&vec![0xff; part]).unwrap();
        assert!(spoken.inbox.is_empty(), "{} bytes", spoken.inbox.len());
    }
    assert!(!spoken.server.mid_message());
    spoken.receive(&frame_of(frame::PING, 0, 0, b"12345678")).unwrap();
    assert!(spoken.sent().iter().any(|sent| sent.kind == frame::PING && sent.flags == frame::ACK));
}

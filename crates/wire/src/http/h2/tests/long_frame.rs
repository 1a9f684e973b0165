//! Large messages: when longer frames are announced, how long frames are read, and which streams wait for them.

use super::*;

/// A peer that accepts frames of 1 MiB, with these windows of its streams and of the connection.
fn generous(stream_window: u32, window: u32) -> RawServer {
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

/// Sends full frames of data on stream 1, and consumes them.
fn send_full_frames(spoken: &mut RawServer, count: usize) {
    spoken.receive(&request(1, false)).unwrap();
    for _ in 0..count {
        let data = frame_of(frame::DATA, 0, 1, &[7; settings::DEFAULT_FRAME]);
        assert_eq!(spoken.receive(&data).unwrap().len(), 1);
        spoken.server.record_consumed(1, settings::DEFAULT_FRAME, &mut spoken.out);
    }
    spoken.server.assert_sound();
}

/// A connection on which longer frames were announced, as its peer has sent two full ones on stream 1.
fn busy_with(config: Config) -> RawServer {
    let mut spoken = RawServer::open(config);
    send_full_frames(&mut spoken, 2);
    assert_eq!(settings_sent(&mut spoken).len(), 1);
    spoken
}

fn busy() -> RawServer {
    busy_with(Config::default())
}

/// Returns the payloads of the SETTINGS that were sent.
fn settings_sent(spoken: &mut RawServer) -> Vec<Vec<u8>> {
    let is_settings = |sent: &Sent| (sent.kind, sent.flags) == (frame::SETTINGS, 0);
    spoken.sent().into_iter().filter(is_settings).map(|sent| sent.payload).collect()
}

#[test]
fn longer_frames_and_wider_windows_are_announced_after_two_full_frames() {
    let mut spoken = spoken();
    send_full_frames(&mut spoken, 1);
    assert_eq!(settings_sent(&mut spoken), [b""; 0]);
    for _ in 0..3 {
        let data = frame_of(frame::DATA, 0, 1, &[7; settings::DEFAULT_FRAME]);
        spoken.receive(&data).unwrap();
        spoken.server.record_consumed(1, settings::DEFAULT_FRAME, &mut spoken.out);
    }
    let window = [0, 4, 0, 0x10, 0, 0];
    let frame = [0, 5, 0, 0x10, 0, 0];
    assert_eq!(settings_sent(&mut spoken), [[window, frame].concat()], "once");
}

#[test]
fn nothing_is_announced_for_small_bodies() {
    let mut spoken = spoken();
    for n in 0..1000 {
        let body = frame_of(frame::DATA, 0, 2 * n + 1, &[7; settings::DEFAULT_FRAME - 1]);
        let end = frame_of(frame::DATA, frame::END_STREAM, 2 * n + 1, b"end");
        spoken.receive(&[request(2 * n + 1, false), body, end].concat()).unwrap();
        spoken.server.headers(2 * n + 1, b"\x88", true, &mut spoken.out);
    }
    assert_eq!(settings_sent(&mut spoken), [b""; 0]);
    let long = frame_of(frame::DATA, 0, 2001, &[7; settings::DEFAULT_FRAME + 1]);
    assert_eq!(spoken.ended_with(&[request(2001, false), long].concat()), ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn nothing_is_announced_for_full_frames_that_are_not_consumed() {
    let mut spoken = spoken();
    let full = frame_of(frame::DATA, 0, 1, &[7; settings::DEFAULT_FRAME]);
    spoken.receive(&[request(1, false), full.repeat(3)].concat()).unwrap();
    spoken.receive(&[request(3, false), frame_of(frame::DATA, 0, 3, b"accepted")].concat()).unwrap();
    spoken.server.record_consumed(3, 8, &mut spoken.out);
    assert_eq!(settings_sent(&mut spoken), [b""; 0]);
    spoken.server.record_consumed(1, 1, &mut spoken.out);
    assert_eq!(settings_sent(&mut spoken).len(), 1);
    spoken.server.assert_sound();

    let mut spoken = self::spoken();
    spoken.receive(&[request(1, false), full.repeat(3)].concat()).unwrap();
    spoken.server.headers(1, b"\x88", true, &mut spoken.out);
    spoken.server.record_consumed(1, 3 * settings::DEFAULT_FRAME, &mut spoken.out);
    assert_eq!(settings_sent(&mut spoken), [b""; 0], "it was discarded");
}

#[test]
fn nothing_is_announced_if_the_configuration_has_no_longer_frames() {
    let config = Config { large_frame: settings::DEFAULT_FRAME as u32, ..Config::default() };
    let mut spoken = RawServer::open(config);
    send_full_frames(&mut spoken, 100);
    assert_eq!(settings_sent(&mut spoken), [b""; 0]);
}

#[test]
fn long_frame_is_accepted_before_its_announcement_is_acknowledged() {
    let mut spoken = busy();
    assert!(!spoken.server.acknowledged);
    let long = frame_of(frame::DATA, frame::END_STREAM, 1, &vec![7; 200_000]);
    let events = spoken.receive(&long).unwrap();
    assert!(matches!(&events[..], [Event::Data { bytes, end: true, .. }] if bytes.len() == 200_000));
}

#[test]
fn windows_of_open_streams_are_widened_by_the_announcement() {
    let mut spoken = spoken();
    send_full_frames(&mut spoken, 1);
    spoken.receive(&request(3, false)).unwrap();
    spoken.receive(&frame_of(frame::DATA, 0, 1, &[7; settings::DEFAULT_FRAME])).unwrap();
    spoken.server.record_consumed(1, settings::DEFAULT_FRAME, &mut spoken.out);
    assert_eq!(settings_sent(&mut spoken).len(), 1);
    let data = |length| frame_of(frame::DATA, 0, 3, &vec![7; length]);
    spoken.receive(&data(1 << 19)).unwrap();
    spoken.receive(&data(1 << 19)).unwrap();
    spoken.server.assert_sound();
    assert_eq!(spoken.reset_with(&data(1)), ErrorCode::FLOW_CONTROL_ERROR);
    spoken.server.assert_sound();
}

#[test]
fn wide_window_stays_below_the_limit_of_windows() {
    let mut spoken = busy_with(Config { max_window: 200_000, ..Config::default() });
    spoken.receive(&request(3, false)).unwrap();
    let data = |length| frame_of(frame::DATA, 0, 3, &vec![7; length]);
    spoken.receive(&data(200_000)).unwrap();
    assert_eq!(spoken.reset_with(&data(1)), ErrorCode::FLOW_CONTROL_ERROR);
}

/// A client, its inbox and its outbox.
struct Caller {
    client: Connection,
    inbox: BytesMut,
    out: Outbox,
}

impl Caller {
    /// Creates a client that a server has sent this number of full frames of data.
    fn after_full_frames(count: usize) -> Self {
        let client = Connection::client(Arc::default());
        let mut caller = Self { client, inbox: BytesMut::new(), out: Outbox::new() };
        assert_eq!(caller.open(), [0; 0]);
        let head = frame_of(frame::HEADERS, frame::END_HEADERS, 1, b"\x88");
        let data = frame_of(frame::DATA, 0, 1, &[7; settings::DEFAULT_FRAME]);
        let bytes = [frame_of(frame::SETTINGS, 0, 0, &[]), head, data.repeat(count)].concat();
        caller.inbox.extend_from_slice(&bytes);
        while caller.client.next_event(&mut caller.inbox, &mut caller.out).unwrap().is_some() {}
        caller.client.record_consumed(1, count * settings::DEFAULT_FRAME, &mut caller.out);
        caller.client.assert_sound();
        caller
    }

    /// Opens a stream. Returns by how much its window was widened, if it was.
    fn open(&mut self) -> Vec<u32> {
        self.client.send_settings(&mut self.out);
        self.out.take();
        let id = self.client.open(&block(&[]), false, &mut self.out);
        self.client.assert_sound();
        let sent = parse_frames(&self.out.take());
        assert_eq!((sent[0].kind, sent[0].stream), (frame::HEADERS, id));
        let updates = sent[1..].iter().map(|sent| {
            assert_eq!((sent.kind, sent.stream), (frame::WINDOW_UPDATE, id));
            u32::from_be_bytes(sent.payload[..].try_into().unwrap())
        });
        updates.collect()
    }
}

#[test]
fn client_announces_longer_frames_and_widens_the_windows_of_new_streams() {
    let mut few = Caller::after_full_frames(1);
    let sent = parse_frames(&few.out.take());
    assert!(sent.iter().all(|sent| sent.kind != frame::SETTINGS || sent.payload.is_empty()));
    assert_eq!(few.open(), [0; 0]);

    let mut caller = Caller::after_full_frames(2);
    let sent = parse_frames(&caller.out.take());
    let settings: Vec<_> =
        sent.iter().filter(|sent| sent.kind == frame::SETTINGS && sent.flags == 0).collect();
    assert_eq!(settings.iter().map(|sent| &sent.payload[..]).collect::<Vec<_>>(), [[0, 5, 0, 0x10, 0, 0]]);
    assert_eq!(caller.open(), [(1 << 20) - (64 << 10)]);
}

#[test]
fn client_widens_the_windows_of_some_streams_at_a_time() {
    let mut caller = Caller::after_full_frames(2);
    let widened = (0..100).filter(|_| !caller.open().is_empty()).count();
    assert!((16..=20).contains(&widened), "{widened}");
    caller.client.reset(3, ErrorCode::CANCEL, &mut caller.out);
    assert_eq!(caller.open().len(), 1, "there is room again");
}

#[test]
fn request_whose_window_is_widened_is_one_event() {
    let update = |increment: u32| frame_of(frame::WINDOW_UPDATE, 0, 1, &increment.to_be_bytes());
    let body = frame_of(frame::DATA, frame::END_STREAM, 1, b"body");
    let mut one = spoken();
    let events = one.receive(&[request(1, false), update(1000), body.clone()].concat()).unwrap();
    assert!(matches!(&events[..], [Event::Whole { stream: 1, body, .. }] if body == "body"), "{events:?}");
    one.server.data(1, b"", Bytes::from(vec![7; 70_000]), true, &mut one.out);
    assert_eq!(one.server.queued(), 70_000 - 65_535, "the connection's window is the narrower one");

    let mut other = spoken();
    let events = other.receive(&[request(1, false), update(0), body].concat()).unwrap();
    let [Event::Headers { stream: 1, .. }, Event::Reset { stream: 1, code, by_peer: false }] = events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(code, ErrorCode::PROTOCOL_ERROR);
}

/// Returns the lengths of the DATA frames that were sent on a stream.
fn lengths(sent: &[Sent], stream: u32) -> Vec<usize> {
    let data = sent.iter().filter(|sent| (sent.kind, sent.stream) == (frame::DATA, stream));
    data.map(|sent| sent.payload.len()).collect()
}

fn respond(spoken: &mut RawServer, stream: u32, length: usize) -> Vec<usize> {
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
    let grant = |spoken: &mut RawServer, bytes: u32| {
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
    let bytes = [request(3, false), frame_of(frame::DATA, frame::END_STREAM, 3, &body)].concat();
    let cuts = (1..100).chain((100..bytes.len()).step_by(1009)).chain(bytes.len() - 10..bytes.len());
    for at in cuts {
        let mut spoken = busy();
        let mut events = spoken.receive(&bytes[..at]).unwrap();
        if at > 100 {
            assert_eq!(spoken.server.bytes_needed(), frame::HEADER + body.len(), "cut at {at}");
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

/// Returns the data of all events, of which only the last ends the stream.
fn join_data(events: &[Event]) -> Vec<u8> {
    let mut joined = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let (bytes, end) = match event {
            Event::Data { stream: 3, bytes, end } => (bytes, *end),
            other => panic!("{other:?}"),
        };
        assert_eq!(end, at + 1 == events.len());
        joined.extend_from_slice(bytes);
    }
    joined
}

#[test]
fn long_frame_has_the_same_data_for_reads_of_any_length() {
    let body: Vec<u8> = (0..70_000_u32).map(|n| (n % 251) as u8).collect();
    let padded = [&[9][..], &body, &[0; 9]].concat();
    for (flags, payload) in [(0, &body), (frame::PADDED, &padded)] {
        let long = frame_of(frame::DATA, flags, 3, payload);
        let last = frame_of(frame::DATA, frame::END_STREAM, 3, b"end");
        for length in [1, 9, 1000, 4095, 4096, 16_384, 65_536, 69_999, 70_010, 100_000] {
            let mut spoken = busy();
            spoken.receive(&request(3, false)).unwrap();
            let mut events = Vec::new();
            for part in [&long[..], &last].concat().chunks(length) {
                events.extend(spoken.receive(part).unwrap());
                spoken.server.assert_sound();
            }
            assert!(join_data(&events) == [&body[..], b"end"].concat(), "reads of {length} bytes");
            let is_slow = length < 4096 && flags == 0;
            assert_eq!(events.len() > 2, is_slow, "{} events for reads of {length} bytes", events.len());
        }
    }
}

#[test]
fn slow_long_frame_is_reported_as_it_arrives() {
    let mut spoken = busy();
    spoken.receive(&request(3, false)).unwrap();
    let long = frame_of(frame::DATA, frame::END_STREAM, 3, &[7; 100_000]);
    let mut parts = long.chunks(2000);
    assert_eq!(spoken.receive(parts.next().unwrap()).unwrap(), []);
    assert_eq!(spoken.receive(b"").unwrap(), [], "nothing was read in between");
    assert_eq!(spoken.server.bytes_needed(), long.len());
    for part in parts {
        assert_eq!(spoken.receive(part).unwrap().len(), 1);
        assert!(spoken.inbox.is_empty());
        assert_eq!(spoken.server.bytes_needed(), 0, "the length of a read is as usual");
    }
    assert!(!spoken.server.is_reading_long_frame());
}

#[test]
fn rest_of_a_long_frame_is_discarded_after_its_stream_was_reset() {
    let mut spoken = busy();
    spoken.receive(&request(3, false)).unwrap();
    let long = frame_of(frame::DATA, frame::END_STREAM, 3, &[7; 100_000]);
    let (first, rest) = long.split_at(3000);
    spoken.receive(&first[..1500]).unwrap();
    assert_eq!(spoken.receive(&first[1500..]).unwrap().len(), 1);
    assert!(spoken.server.is_reading_long_frame());
    spoken.server.reset(3, ErrorCode::CANCEL, &mut spoken.out);
    assert_eq!(spoken.receive(rest).unwrap(), []);
    assert!(!spoken.server.is_reading_long_frame());
    spoken.server.assert_sound();
    assert_eq!(spoken.receive(&request(5, true)).unwrap().len(), 1);
}

#[test]
fn frame_above_the_announced_size_ends_the_connection_by_its_header() {
    let mut spoken = busy();
    let mut bytes = request(3, false);
    frame::begin(&mut bytes, (1 << 20) + 1, frame::DATA, 0, 3);
    assert_eq!(spoken.ended_with(&bytes), ErrorCode::FRAME_SIZE_ERROR);
}

/// Returns the data of frames of these lengths, read in two reads: the first ends within the first frame.
fn receive_data(lengths: &[usize]) -> Vec<Bytes> {
    let data = |length: &usize| frame_of(frame::DATA, 0, 3, &vec![7; *length]);
    let bytes: Vec<u8> = lengths.iter().flat_map(data).collect();
    let mut spoken = busy();
    spoken.receive(&request(3, false)).unwrap();
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
        assert_eq!(receive_data(lengths).iter().map(Bytes::len).collect::<Vec<_>>(), lengths);
        for at in (0..lengths.len()).filter(|at| lengths[*at] < LONG) {
            let piece = receive_data(lengths).swap_remove(at);
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
    let mut spoken = busy_with(Config { connection_window: WINDOW as u32, ..Config::default() });
    let mut received = 0;
    for stream in (3..100).step_by(2) {
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
fn header_of(length: usize, kind: u8, stream: u32) -> Vec<u8> {
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
        assert_eq!(busy().ended_with(&header_of(16_385, kind, 0)), ErrorCode::FRAME_SIZE_ERROR, "{kind}");
    }
}

#[test]
fn header_block_that_is_too_long_ends_the_connection_by_its_header() {
    let longest = Config::default().longest_block();
    let mut spoken = busy();
    assert_eq!(spoken.receive(&header_of(longest, frame::HEADERS, 3)).unwrap(), []);
    assert_eq!(spoken.server.bytes_needed(), frame::HEADER + longest);

    let mut spoken = busy();
    let code = spoken.ended_with(&header_of(longest + 300, frame::HEADERS, 3));
    assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);

    let mut spoken = busy();
    spoken.receive(&frame_of(frame::HEADERS, 0, 3, &vec![0x80; 200_000])).unwrap();
    let code = spoken.ended_with(&header_of(longest - 100_000, frame::CONTINUATION, 3));
    assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn long_data_that_no_window_allows_ends_the_connection_by_its_header() {
    let mut spoken = busy();
    assert_eq!(spoken.ended_with(&header_of(1 << 20, frame::DATA, 3)), ErrorCode::PROTOCOL_ERROR, "idle");
    let mut spoken = busy_with(Config { connection_window: 100_000, ..Config::default() });
    spoken.receive(&request(3, false)).unwrap();
    assert_eq!(spoken.ended_with(&header_of(100_001, frame::DATA, 3)), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn long_frame_of_an_unknown_type_is_ignored_without_being_buffered() {
    const UNKNOWN: u8 = 0xfa;
    let mut spoken = busy();
    spoken.receive(&header_of(1 << 20, UNKNOWN, 0)).unwrap();
    assert!(spoken.server.is_mid_message(), "its end has a time limit");
    for part in [1, 16_384, (1 << 20) - 16_385] {
        assert!(spoken.server.is_mid_message());
        spoken.receive(&vec![0xff; part]).unwrap();
        assert!(spoken.inbox.is_empty(), "{} bytes", spoken.inbox.len());
    }
    assert!(!spoken.server.is_mid_message());
    spoken.receive(&frame_of(frame::PING, 0, 0, b"12345678")).unwrap();
    assert!(spoken.sent().iter().any(|sent| sent.kind == frame::PING && sent.flags == frame::ACK));
}

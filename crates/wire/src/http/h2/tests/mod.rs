use std::sync::Arc;

use bytes::{Bytes, BytesMut};

mod limits;
mod long_frame;

use polyrpc_core::{Outbox, Violation};

use super::frame;
use super::frame::Header;
use super::hpack::{DecodeError, Decoder, Fields, encode_stateless};
use super::*;

/// A parsed frame of our output.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A server that is driven with raw frames.
struct RawServer {
    server: Connection,
    inbox: BytesMut,
    out: Outbox,
}

impl RawServer {
    /// Creates a connection whose preface and SETTINGS were exchanged.
    fn open(config: Config) -> Self {
        let mut spoken =
            Self { server: Connection::server(Arc::new(config)), inbox: BytesMut::new(), out: Outbox::new() };
        spoken.inbox.extend_from_slice(PREFACE);
        spoken.receive(&frame_of(frame::SETTINGS, 0, 0, &[])).unwrap();
        spoken.sent();
        spoken
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Violation> {
        self.hear_all(bytes).map(|mut events| {
            events.retain(|event| *event != Event::Pause);
            events
        })
    }

    /// Returns all events, `Pause` included.
    fn hear_all(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Violation> {
        self.inbox.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(event) = self.server.next_event(&mut self.inbox, &mut self.out)? {
            events.push(event);
        }
        Ok(events)
    }

    fn sent(&mut self) -> Vec<Sent> {
        parse_frames(&self.out.take())
    }

    /// Returns the error code of the GOAWAY that ended the connection.
    fn ended_with(&mut self, bytes: &[u8]) -> ErrorCode {
        self.receive(bytes).expect_err("the connection ends");
        let last = self.sent().pop().expect("the reason is reported");
        assert_eq!(last.kind, frame::GOAWAY);
        ErrorCode(u32::from_be_bytes(last.payload[4..8].try_into().unwrap()))
    }

    /// Returns the error code of the RST_STREAM that ended a stream.
    fn reset_with(&mut self, bytes: &[u8]) -> ErrorCode {
        self.receive(bytes).expect("the connection goes on");
        let reset = self.sent().into_iter().find(|sent| sent.kind == frame::RST_STREAM).expect("a reset");
        ErrorCode(u32::from_be_bytes(reset.payload[..].try_into().unwrap()))
    }
}

/// Parses frames that were sent.
fn parse_frames(mut bytes: &[u8]) -> Vec<Sent> {
    let mut sent = Vec::new();
    while let Some(header) = Header::read(bytes) {
        let (whole, behind) = bytes.split_at(frame::HEADER + header.length);
        sent.push(Sent {
            kind: header.kind,
            flags: header.flags,
            stream: header.stream,
            payload: whole[frame::HEADER..].to_vec(),
        });
        bytes = behind;
    }
    assert!(bytes.is_empty());
    sent
}

fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::begin(&mut bytes, payload.len(), kind, flags, stream);
    bytes.extend_from_slice(payload);
    bytes
}

fn block(more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let usual = [(":method", "POST"), (":scheme", "http"), (":path", "/a/b"), (":authority", "me")];
    let fields = usual.iter().chain(more).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    encode_stateless(fields, &mut block);
    block
}

fn request(stream: u32, end: bool) -> Vec<u8> {
    let flags = frame::END_HEADERS | if end { frame::END_STREAM } else { 0 };
    frame_of(frame::HEADERS, flags, stream, &block(&[]))
}

fn spoken() -> RawServer {
    RawServer::open(Config::default())
}

#[test]
fn complete_request_is_one_event() {
    let bytes = [request(1, false), frame_of(frame::DATA, frame::END_STREAM, 1, b"body")].concat();
    let events = spoken().receive(&bytes).unwrap();
    assert!(matches!(&events[..], [Event::Whole { stream: 1, body, .. }] if body == "body"), "{events:?}");
}

#[test]
fn any_split_of_the_frames_yields_the_same_events() {
    let bytes = [
        request(1, false),
        frame_of(frame::DATA, 0, 1, b"one"),
        frame_of(frame::PING, 0, 0, b"12345678"),
        frame_of(frame::DATA, frame::END_STREAM | frame::PADDED, 1, b"\x02two\0\0"),
        request(3, true),
    ]
    .concat();
    // A body may arrive in one event or in several; the content is the same.
    let summary = |events: Vec<Event>| {
        let (mut heads, mut data) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Headers { stream, .. } => heads.push(stream),
                Event::Whole { stream, body, .. } => {
                    heads.push(stream);
                    data.extend_from_slice(&body);
                }
                Event::Data { bytes, .. } => data.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        (heads, data)
    };
    let whole = summary(spoken().receive(&bytes).unwrap());
    assert_eq!(whole, (vec![1, 3], b"onetwo".to_vec()));
    for at in 1..bytes.len() {
        let mut spoken = spoken();
        let mut events = spoken.receive(&bytes[..at]).unwrap();
        events.extend(spoken.receive(&bytes[at..]).unwrap());
        assert_eq!(summary(events), whole, "cut at {at}");
        assert!(spoken.sent().iter().any(|sent| sent.kind == frame::PING && sent.flags == frame::ACK));
    }
}

#[test]
fn repeated_header_block_shares_its_field_list() {
    let mut spoken = spoken();
    let lists: Vec<_> = [1, 3]
        .into_iter()
        .map(|stream| match spoken.receive(&request(stream, true)).unwrap().pop() {
            Some(Event::Headers { fields, .. }) => fields,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(Arc::ptr_eq(&lists[0], &lists[1]));
}

#[test]
fn malformed_request_resets_its_stream_only() {
    let malformed: [&[(&str, &str)]; 8] = [
        &[("Upper", "case")],
        &[("connection", "close")],
        &[("te", "gzip")],
        &[(":status", "200")],
        &[("x", "y"), (":method", "GET")],
        &[("content-length", "1"), ("content-length", "2")],
        &[("x", "line\nbreak")],
        &[("", "no name")],
    ];
    for more in malformed {
        let mut spoken = spoken();
        let bytes = frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &block(more));
        assert_eq!(spoken.reset_with(&bytes), ErrorCode::PROTOCOL_ERROR, "{more:?}");
        assert_eq!(spoken.receive(&request(3, true)).unwrap().len(), 1, "the connection goes on");
        assert_eq!(spoken.server.streams(), 1);
    }
}

#[test]
fn malformed_priority_resets_an_open_stream_and_fails_the_connection_on_an_idle_one() {
    let wrong = |stream| frame_of(frame::PRIORITY, 0, stream, &[0, 0, 0, 3]);
    let bytes = [request(1, false), wrong(1)].concat();
    assert_eq!(spoken().reset_with(&bytes), ErrorCode::FRAME_SIZE_ERROR);
    assert_eq!(spoken().ended_with(&wrong(5)), ErrorCode::FRAME_SIZE_ERROR);
    let itself = frame_of(frame::PRIORITY, 0, 5, &[0, 0, 0, 5, 0]);
    assert_eq!(spoken().ended_with(&itself), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn floods_close_the_connection() {
    let calm = ErrorCode::ENHANCE_YOUR_CALM;
    let repeat = |frame: Vec<u8>| frame.repeat(100_000);
    assert_eq!(spoken().ended_with(&repeat(frame_of(frame::PING, 0, 0, &[0; 8]))), calm);
    assert_eq!(spoken().ended_with(&repeat(frame_of(frame::SETTINGS, 0, 0, &[]))), calm);
    assert_eq!(spoken().ended_with(&repeat(frame_of(frame::PRIORITY, 0, 1, &[0, 0, 0, 3, 0]))), calm);
    assert_eq!(spoken().ended_with(&repeat(frame_of(0x77, 0, 0, b"unknown"))), calm);
    let empty = [request(1, false), repeat(frame_of(frame::DATA, 0, 1, &[]))].concat();
    assert_eq!(spoken().ended_with(&empty), calm);
    let padded = [request(1, false), repeat(frame_of(frame::DATA, frame::PADDED, 1, &[1, 0]))].concat();
    assert_eq!(spoken().ended_with(&padded), calm);
    let first = frame_of(frame::HEADERS, 0, 1, &block(&[]));
    let endless = [first.clone(), repeat(frame_of(frame::CONTINUATION, 0, 1, &[]))].concat();
    assert_eq!(spoken().ended_with(&endless), calm);
    let long = [first, frame_of(frame::CONTINUATION, 0, 1, &[0x80; 16_000]).repeat(20)].concat();
    assert_eq!(spoken().ended_with(&long), calm);
}

#[test]
fn empty_data_frames_between_others_are_tolerated() {
    let mut spoken = spoken();
    spoken.receive(&request(1, false)).unwrap();
    let some = [
        frame_of(frame::DATA, 0, 1, &[]),
        frame_of(frame::DATA, frame::PADDED, 1, &[1, 0]),
        frame_of(frame::DATA, 0, 1, b"x"),
    ];
    for _ in 0..1000 {
        let events = spoken.receive(&some.concat()).unwrap();
        assert!(matches!(&events[..], [Event::Data { .. }]), "{events:?}");
    }
}

#[test]
fn padding_without_data_is_credited_to_the_window() {
    let config = Config { window: 1000, ..Config::default() };
    let mut spoken = RawServer::open(config);
    spoken.receive(&request(1, false)).unwrap();
    let padding = frame_of(frame::DATA, frame::PADDED, 1, &[&[99][..], &[0; 99]].concat());
    spoken.receive(&padding.repeat(5)).unwrap();
    let sent = spoken.sent();
    assert!(sent.iter().any(|sent| (sent.kind, sent.stream) == (frame::WINDOW_UPDATE, 1)), "{sent:?}");
}

#[test]
fn header_block_is_mid_message_until_its_last_frame() {
    let mut spoken = spoken();
    assert!(!spoken.server.is_mid_message());
    spoken.receive(&frame_of(frame::HEADERS, frame::END_STREAM, 1, &block(&[]))).unwrap();
    assert!(spoken.inbox.is_empty() && spoken.server.is_mid_message());
    spoken.receive(&frame_of(frame::CONTINUATION, frame::END_HEADERS, 1, &[])).unwrap();
    assert!(!spoken.server.is_mid_message());
}

#[test]
fn connection_is_mid_message_until_the_settings_arrive() {
    let mut server: Connection = Connection::server(Arc::default());
    let (mut inbox, mut out) = (BytesMut::from(PREFACE), Outbox::new());
    assert_eq!(server.next_event(&mut inbox, &mut out), Ok(None));
    assert!(inbox.is_empty() && server.is_mid_message());
    inbox.extend_from_slice(&frame_of(frame::SETTINGS, 0, 0, &[]));
    assert_eq!(server.next_event(&mut inbox, &mut out), Ok(None));
    assert!(!server.is_mid_message());
}

#[test]
fn provoked_resets_close_the_connection() {
    // MadeYouReset: the peer causes an error on each stream, so that we send the resets.
    let mut spoken = spoken();
    let bytes: Vec<u8> = (0..5000)
        .flat_map(|n| {
            [request(2 * n + 1, false), frame_of(frame::WINDOW_UPDATE, 0, 2 * n + 1, &[0; 4])].concat()
        })
        .collect();
    assert_eq!(spoken.ended_with(&bytes), ErrorCode::ENHANCE_YOUR_CALM);
    assert_eq!(spoken.server.streams(), 0);
}

#[test]
fn oversized_header_list_resets_its_stream_only() {
    let mut spoken = spoken();
    // A field of 4000 bytes, then only its index, 100 times.
    let mut bomb = block(&[]);
    super::hpack::Encoder::new().field(b"big", &[b'a'; 900], super::hpack::Indexing::Likely, &mut bomb);
    bomb.extend([0xbe; 100]);
    let bytes = frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &bomb);
    let events = spoken.receive(&bytes).unwrap();
    let [Event::Oversized { stream: 1, head: true, fields, size }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(*size > 90_000 && fields.get(b":path") == Some(b"/a/b"), "{size} {fields:?}");
    assert_eq!(spoken.sent(), [], "the layer above answers");
    assert_eq!(spoken.receive(&request(3, true)).unwrap().len(), 1);
    // The decoder still shares the state of the peer's table.
    let indexed = [&block(&[])[..], &[0xbe]].concat();
    let bytes = frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 5, &indexed);
    let events = spoken.receive(&bytes).unwrap();
    assert!(
        matches!(&events[..], [Event::Headers { fields, .. }] if fields.get(b"big") == Some(&[b'a'; 900])),
        "{events:?}"
    );
}

#[test]
fn data_beyond_the_window_is_a_flow_control_error() {
    let config = Config { window: 10, connection_window: 65_535, ..Config::default() };
    let mut spoken = RawServer::open(config);
    spoken.receive(&request(1, false)).unwrap();
    assert_eq!(spoken.reset_with(&frame_of(frame::DATA, 0, 1, &[0; 11])), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn data_of_a_malformed_stream_is_credited_to_the_connection_window() {
    // Each stream announces one byte and sends a thousand. The connection's window must not shrink by that.
    let config = Config { connection_window: 65_536, ..Config::default() };
    let mut spoken = RawServer::open(config);
    for n in 0..100 {
        let id = 2 * n + 1;
        let head = block(&[("content-length", "1")]);
        spoken.receive(&frame_of(frame::HEADERS, frame::END_HEADERS, id, &head)).unwrap();
        assert_eq!(spoken.reset_with(&frame_of(frame::DATA, 0, id, &[0; 1000])), ErrorCode::PROTOCOL_ERROR);
        spoken.server.assert_sound();
    }
}

#[test]
fn headers_precede_the_reset_of_a_malformed_request_for_any_split() {
    let head = frame_of(frame::HEADERS, frame::END_HEADERS, 1, &block(&[("content-length", "9")]));
    let bytes = [head, frame_of(frame::DATA, frame::END_STREAM, 1, b"body")].concat();
    let events = spoken().receive(&bytes).unwrap();
    assert!(matches!(&events[..], [Event::Headers { .. }, Event::Reset { stream: 1, .. }]), "{events:?}");
}

#[test]
fn ended_stream_leaves_the_queue_of_blocked_streams() {
    let config = Config { resets: u32::MAX, ..Config::default() };
    let mut spoken = RawServer::open(config);
    for n in 0..2000 {
        let id = 2 * n + 1;
        spoken.receive(&request(id, true)).unwrap();
        spoken.server.data(id, b"", Bytes::from_static(&[0; 50_000]), true, &mut spoken.out);
        spoken.receive(&frame_of(frame::RST_STREAM, 0, id, &[0; 4])).unwrap();
    }
    assert_eq!((spoken.server.streams(), spoken.server.blocked.len()), (0, 0));
}

#[test]
fn blocked_data_is_sent_when_the_window_opens() {
    let mut spoken = spoken();
    spoken.receive(&frame_of(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5])).unwrap();
    spoken.receive(&request(1, true)).unwrap();
    spoken.sent();
    spoken.server.data(1, b"", Bytes::from_static(b"0123456789"), false, &mut spoken.out);
    spoken.server.trailers(1, b"\x88", &mut spoken.out);
    let sent = spoken.sent();
    assert_eq!(sent.iter().map(|sent| &sent.payload[..]).collect::<Vec<_>>(), [b"01234"]);
    // A smaller initial window makes it negative: nothing is sent until it is positive again.
    spoken.receive(&frame_of(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 2])).unwrap();
    spoken.sent();
    spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 1, &3_u32.to_be_bytes())).unwrap();
    assert_eq!(spoken.sent(), []);
    spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes())).unwrap();
    let sent = spoken.sent();
    assert_eq!(sent[0].payload, b"56789");
    assert_eq!((sent[1].kind, sent[1].flags), (frame::HEADERS, frame::END_HEADERS | frame::END_STREAM));
    assert_eq!(spoken.server.streams(), 0);
}

#[test]
fn window_overflow_is_an_error() {
    let most = 0x7fff_ffff_u32.to_be_bytes();
    let mut one = spoken();
    assert_eq!(one.ended_with(&frame_of(frame::WINDOW_UPDATE, 0, 0, &most)), ErrorCode::FLOW_CONTROL_ERROR);
    let mut other = spoken();
    other.receive(&request(1, false)).unwrap();
    assert_eq!(other.reset_with(&frame_of(frame::WINDOW_UPDATE, 0, 1, &most)), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn window_grows_while_data_is_consumed_at_once() {
    let mut spoken = spoken();
    spoken.receive(&request(1, false)).unwrap();
    let mut granted = Vec::new();
    for _ in 0..2000 {
        spoken.receive(&frame_of(frame::DATA, 0, 1, &[0; 16_000])).unwrap();
        spoken.server.record_consumed(1, 16_000, &mut spoken.out);
        let updates = spoken.sent();
        let on_stream =
            updates.into_iter().filter(|sent| (sent.kind, sent.stream) == (frame::WINDOW_UPDATE, 1));
        granted.extend(on_stream.map(|sent| u32::from_be_bytes(sent.payload[..].try_into().unwrap())));
    }
    assert!(granted.len() > 5);
    assert!(granted.last() > granted.first());
    assert!(granted.iter().all(|granted| *granted <= 2 * Config::default().max_window));
}

#[test]
fn windows_of_all_streams_grow_no_more_than_those_of_a_few() {
    const STREAMS: u32 = 40;
    let mut spoken = spoken();
    let streams = || (0..STREAMS).map(|turn| 2 * turn + 1);
    for stream in streams() {
        spoken.receive(&request(stream, false)).unwrap();
        for _ in 0..300 {
            spoken.receive(&frame_of(frame::DATA, 0, stream, &[0; 16_000])).unwrap();
            spoken.server.record_consumed(stream, 16_000, &mut spoken.out);
        }
    }
    let most = 4 * Config::default().max_window as usize;
    let growth = spoken.server.growth;
    assert!((most / 2..=most).contains(&growth), "{growth}");
    spoken.server.assert_sound();
    for stream in streams() {
        spoken.server.reset(stream, ErrorCode::CANCEL, &mut spoken.out);
    }
    assert_eq!(spoken.server.growth, 0);
}

/// Decodes the header block of a stream as a strict peer: its table has shrunk to nothing, and it insists on a size
/// update.
fn strictly(sent: &[Sent], stream: u32) -> Result<Arc<Fields>, DecodeError> {
    let head =
        sent.iter().find(|sent| (sent.kind, sent.stream) == (frame::HEADERS, stream)).expect("a block");
    let mut decoder = Decoder::new(4096, usize::MAX);
    decoder.allow(0);
    decoder.decode(&head.payload)
}

/// SETTINGS that disable the peer's dynamic table.
fn no_table() -> Vec<u8> {
    frame_of(frame::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])
}

#[test]
fn first_header_block_after_a_smaller_table_announces_it() {
    let mut spoken = spoken();
    spoken.receive(&no_table()).unwrap();
    spoken.receive(&[request(1, true), request(3, true)].concat()).unwrap();
    // A block that is not written announces nothing.
    spoken.server.headers(5, b"\x88", false, &mut spoken.out);
    spoken.server.headers(1, b"\x88", false, &mut spoken.out);
    spoken.server.headers(3, b"\x88", false, &mut spoken.out);
    let sent = spoken.sent();
    assert_eq!(strictly(&sent, 1).unwrap().get(b":status"), Some(&b"200"[..]));
    assert_eq!(sent.last().unwrap().payload, b"\x88");
}

#[test]
fn trailers_after_a_smaller_table_announce_it() {
    // Immediately, and after waiting for the window.
    for waiting in [&b""[..], b"0123456789"] {
        let mut spoken = spoken();
        spoken.receive(&frame_of(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5])).unwrap();
        spoken.receive(&request(1, true)).unwrap();
        spoken.server.headers(1, b"\x88", false, &mut spoken.out);
        spoken.server.data(1, b"", Bytes::from_static(waiting), false, &mut spoken.out);
        spoken.receive(&no_table()).unwrap();
        spoken.sent();
        spoken.server.trailers(1, b"\x89", &mut spoken.out);
        spoken.receive(&frame_of(frame::WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes())).unwrap();
        assert_eq!(strictly(&spoken.sent(), 1).unwrap().get(b":status"), Some(&b"204"[..]));
    }
}

#[test]
fn first_header_block_of_an_upgraded_connection_announces_a_smaller_table() {
    let settings = Settings::read(&[0, 1, 0, 0, 0, 0]).unwrap();
    let mut spoken = RawServer {
        server: Connection::from_upgrade(Arc::default(), settings),
        inbox: BytesMut::new(),
        out: Outbox::new(),
    };
    spoken.server.send_settings(&mut spoken.out);
    spoken.server.headers(UPGRADED, b"\x88", true, &mut spoken.out);
    strictly(&spoken.sent(), UPGRADED).unwrap();
}

/// SETTINGS with an initial window of zero.
fn no_window() -> Vec<u8> {
    frame_of(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
}

#[test]
fn one_unsent_response_admits_requests_but_many_do_not() {
    let config = Config { unsent: 100, unsent_in_all: 1000, max_unsent: 10_000, ..Config::default() };
    let open = |spoken: &mut RawServer, id, length| {
        let taken = spoken.receive(&request(id, true)).unwrap().len() == 1;
        spoken.server.data(id, b"", Bytes::from(vec![0; length]), false, &mut spoken.out);
        taken
    };
    let mut few = RawServer::open(config.clone());
    few.receive(&no_window()).unwrap();
    assert!(open(&mut few, 1, 9_000), "nothing waits");
    assert!(open(&mut few, 3, 1_000), "one answer is long");
    assert!(!open(&mut few, 5, 0), "there is no more room");
    let mut many = RawServer::open(config);
    many.receive(&no_window()).unwrap();
    for n in 0..10 {
        assert!(open(&mut many, 2 * n + 1, 200), "{n}");
    }
    assert_eq!(many.reset_with(&request(21, true)), ErrorCode::REFUSED_STREAM);
}

#[test]
fn refused_streams_do_not_count_as_abuse_while_the_peer_reads() {
    let config = Config { unsent_in_all: 1000, max_unsent: 1000, ..Config::default() };
    let mut spoken = RawServer::open(config);
    spoken.receive(&no_window()).unwrap();
    spoken.receive(&request(1, true)).unwrap();
    spoken.server.data(1, b"", Bytes::from_static(&[0; 1100]), true, &mut spoken.out);
    let take = |most: u32| frame_of(frame::WINDOW_UPDATE, 0, 1, &most.to_be_bytes());
    for n in 1..5000 {
        assert_eq!(spoken.reset_with(&request(2 * n + 1, true)), ErrorCode::REFUSED_STREAM);
        if n % 1000 == 0 {
            spoken.receive(&take(1)).unwrap();
        }
    }
    spoken.receive(&take(1000)).unwrap();
    assert_eq!(spoken.receive(&request(10_001, true)).unwrap().len(), 1);
    spoken.server.data(10_001, b"", Bytes::from_static(&[0; 1000]), true, &mut spoken.out);
    let more: Vec<u8> = (5001..7000).flat_map(|n| request(2 * n + 1, true)).collect();
    assert_eq!(spoken.ended_with(&more), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn peer_that_exceeds_the_announced_stream_limit_is_disconnected() {
    let config = Config { streams: 200, ..Config::default() };
    let requests = |n: u32| (0..n).flat_map(|n| request(2 * n + 1, false)).collect::<Vec<_>>();
    let ack = frame_of(frame::SETTINGS, frame::ACK, 0, &[]);
    // The peer cannot know the limit yet.
    let mut early = RawServer::open(config.clone());
    early.receive(&requests(1700)).unwrap();
    assert_eq!(early.server.streams(), 200);
    let mut told = RawServer::open(config.clone());
    assert_eq!(told.ended_with(&[ack, requests(1300)].concat()), ErrorCode::ENHANCE_YOUR_CALM);
    // The peer ignores the limit.
    assert_eq!(RawServer::open(config).ended_with(&requests(5000)), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn client_ignores_responses_to_all_cancelled_calls() {
    let mut client: Connection = Connection::client(Arc::default());
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    for _ in 0..3000 {
        let id = client.open(&block(&[]), true, &mut out);
        client.reset(id, ErrorCode::CANCEL, &mut out);
    }
    inbox.extend_from_slice(&frame_of(frame::SETTINGS, 0, 0, &[]));
    inbox.extend_from_slice(&frame_of(frame::HEADERS, frame::END_HEADERS, 1, b"\x88"));
    inbox.extend_from_slice(&frame_of(frame::DATA, frame::END_STREAM, 1, b"late"));
    assert_eq!(client.next_event(&mut inbox, &mut out), Ok(None));
    // The client has never opened this stream.
    inbox.extend_from_slice(&frame_of(frame::DATA, frame::END_STREAM, 6001, b"wrong"));
    client.next_event(&mut inbox, &mut out).unwrap_err();
}

#[test]
fn server_that_enables_push_is_rejected() {
    let summary = |value| {
        let mut client: Connection = Connection::client(Arc::default());
        let mut inbox = BytesMut::from(&frame_of(frame::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, value])[..]);
        client.next_event(&mut inbox, &mut Outbox::new())
    };
    assert_eq!(summary(0), Ok(None));
    summary(1).unwrap_err();
    // A client may enable push.
    assert_eq!(spoken().receive(&frame_of(frame::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1])).unwrap(), []);
}

#[test]
fn request_after_the_last_stream_is_ignored_to_its_end() {
    let mut spoken = spoken();
    spoken.receive(&request(1, true)).unwrap();
    spoken.server.start_graceful_shutdown(&mut spoken.out);
    spoken.receive(&frame_of(frame::PING, frame::ACK, 0, b"polyrpc!")).unwrap();
    spoken.sent();
    let late = [
        request(3, false),
        request(5, false),
        frame_of(frame::DATA, 0, 3, b"body"),
        frame_of(frame::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]),
        frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 3, &[]),
        frame_of(frame::RST_STREAM, 0, 5, &[0; 4]),
    ];
    assert_eq!(spoken.receive(&late.concat()).unwrap(), []);
    spoken.server.assert_sound();
    // The final GOAWAY must not raise the last stream identifier announced before.
    spoken.receive(&frame_of(frame::PING, 0, 1, &[0; 8])).unwrap_err();
    let last = spoken.sent().pop().unwrap();
    assert_eq!((last.kind, &last.payload[..4]), (frame::GOAWAY, &[0, 0, 0, 1][..]));
}

#[test]
fn consuming_from_an_ended_stream_credits_no_other_stream() {
    let config = Config { window: 100_000, connection_window: 65_536, ..Config::default() };
    let mut spoken = RawServer::open(config);
    let fill = |spoken: &mut RawServer, id| {
        spoken.receive(&request(id, false)).unwrap();
        (0..6).for_each(|_| drop(spoken.receive(&frame_of(frame::DATA, 0, id, &[0; 10_000])).unwrap()));
    };
    fill(&mut spoken, 1);
    fill(&mut spoken, 3);
    spoken.receive(&frame_of(frame::RST_STREAM, 0, 1, &[0; 4])).unwrap();
    fill(&mut spoken, 5);
    let withheld = spoken.server.withheld;
    assert!(withheld > 0);
    spoken.sent();
    spoken.server.record_consumed(1, 60_000, &mut spoken.out);
    assert_eq!((spoken.server.withheld, spoken.sent()), (withheld, vec![]));
    spoken.server.assert_sound();
}

#[test]
fn random_frames_never_panic_or_amplify() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..3000 {
        let mut spoken = spoken();
        for _ in 0..20 {
            let length = (random() % 40) as usize;
            let payload: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            let bytes = match random() % 4 {
                0 => request(random() as u32 % 16, random() % 2 == 0),
                _ => frame_of((random() % 11) as u8, random() as u8, random() as u32 % 16, &payload),
            };
            let received = spoken.receive(&bytes);
            assert!(spoken.out.len() < 4096);
            spoken.out.take();
            if received.is_err() {
                break;
            }
        }
    }
}

#[test]
fn server_pauses_after_many_frames_and_resumes() {
    let mut spoken = spoken();
    spoken.receive(&request(1, false)).unwrap();
    let byte = frame_of(frame::DATA, 0, 1, b"x");
    let events = spoken.hear_all(&byte.repeat(300)).unwrap();
    let pauses: Vec<_> = (0..events.len()).filter(|&at| events[at] == Event::Pause).collect();
    assert_eq!((events.len(), pauses.len()), (302, 2));
    assert!(pauses[1] - pauses[0] == 129, "{pauses:?}");
}

#[test]
fn server_pauses_after_long_header_blocks() {
    let mut spoken = spoken();
    let long = block(&[("cookie", &"~".repeat(4200))]);
    let head = |n: u32| frame_of(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 2 * n + 1, &long);
    let events = spoken.hear_all(&(0..4).flat_map(head).collect::<Vec<_>>()).unwrap();
    assert_eq!(events.iter().filter(|event| **event == Event::Pause).count(), 3, "{events:?}");
}

//! Calls of captured connections, in bytes as they are on the wire.

use std::path::PathBuf;

use polyrpc_record::{Call, Entry, Reader};

use super::captured::CapturedCall;
use super::connections::Connections;
use super::file::Packet;
use super::segment::find_segment;
use super::{Options, Output};

const CLIENT: u16 = 50_000;
const SERVER: u16 = 8002;

/// Packets of one connection.
struct Capture {
    packets: Vec<Packet>,
    /// Sequence numbers of client and server.
    sequences: [u32; 2],
}

impl Capture {
    fn new() -> Self {
        // They soon wrap around.
        Self { packets: Vec::new(), sequences: [u32::MAX - 2, 7] }
    }

    fn open() -> Self {
        let mut capture = Self::new();
        capture.push(0, 0x02, b"");
        capture.push(1, 0x12, b"");
        capture.sequences = capture.sequences.map(|sequence| sequence.wrapping_add(1));
        capture
    }

    fn client(mut self, bytes: &[u8]) -> Self {
        bytes.chunks(9).for_each(|chunk| self.push(0, 0x10, chunk));
        self
    }

    fn server(mut self, bytes: &[u8]) -> Self {
        bytes.chunks(11).for_each(|chunk| self.push(1, 0x10, chunk));
        self
    }

    fn push(&mut self, side: usize, flags: u8, content: &[u8]) {
        let ports = if side == 0 { [CLIENT, SERVER] } else { [SERVER, CLIENT] };
        let mut tcp = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
        tcp.extend(self.sequences[side].to_be_bytes());
        tcp.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        tcp.extend(content);
        let length = (20 + tcp.len()) as u16;
        let mut ip =
            [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0x40, 0, 64, 6, 0, 0], &[127, 0, 0, 1].repeat(2)]
                .concat();
        ip.extend(tcp);
        self.sequences[side] = self.sequences[side].wrapping_add(content.len() as u32);
        let at = 1_000_000_000 + self.packets.len() as u64 * 1000;
        self.packets.push(Packet { at, link: 101, bytes: ip, is_cut: false });
    }

    /// Returns the calls, and the notes about what was not read.
    fn calls(&self) -> (Vec<Call>, Vec<String>) {
        calls(&self.packets)
    }
}

fn calls(packets: &[Packet]) -> (Vec<Call>, Vec<String>) {
    calls_within(&mut Connections::default(), packets)
}

/// The calls, with bounds on connections and memory.
fn calls_within(connections: &mut Connections, packets: &[Packet]) -> (Vec<Call>, Vec<String>) {
    let mut calls = Vec::new();
    for packet in packets {
        match find_segment(packet) {
            Ok(segment) => {
                calls.extend(connections.push(&segment, packet.at).into_iter().map(CapturedCall::into_call));
            }
            Err(why) => connections.skip(why),
        }
    }
    calls.extend(connections.finish().into_iter().map(CapturedCall::into_call));
    (calls, connections.notes())
}

const REQUEST: &[u8] = b"POST /demo.Users/Get HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"id\":7}";
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"name\":\"Ann\"}";

fn body(message: Option<&polyrpc_record::call::Message>) -> String {
    message.map_or_else(String::new, |message| String::from_utf8_lossy(&message.body).into_owned())
}

#[test]
fn call_and_answer_are_found_whatever_the_order_of_segments() {
    let mut capture = Capture::open().client(REQUEST).server(RESPONSE).client(REQUEST).server(RESPONSE);
    let (in_order, notes) = capture.calls();
    assert_eq!((in_order.len(), notes.len()), (2, 0), "{notes:?}");
    for call in &in_order {
        assert_eq!(
            (call.service.as_str(), call.method.as_str(), call.protocol.as_str()),
            ("demo.Users", "Get", "http")
        );
        assert_eq!(body(call.request.as_ref()), r#"{"id":7}"#);
        assert_eq!(body(call.outcome.as_ref().unwrap().response.as_ref()), r#"{"name":"Ann"}"#);
        assert!(call.took.as_micros() > 5 && call.peer.starts_with("127.0.0.1:50000 → "), "{call:?}");
    }
    // Neighbours are swapped, and everything is sent twice.
    let opening = 2;
    let swapped: Vec<_> = capture.packets.drain(opening..).collect();
    for pair in swapped.chunks(2) {
        for packet in pair.iter().rev().chain(pair) {
            let bytes = packet.bytes.clone();
            capture.packets.push(Packet { at: packet.at, link: packet.link, bytes, is_cut: false });
        }
    }
    let (calls, notes) = capture.calls();
    assert_eq!((calls.len(), notes.len()), (2, 0), "{notes:?}");
}

#[test]
fn connection_that_began_before_the_capture_is_read_from_its_next_request() {
    let capture = Capture::new().server(RESPONSE).client(REQUEST).server(RESPONSE);
    let (calls, _) = capture.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].outcome.is_some());
}

#[test]
fn unreadable_traffic_is_reported() {
    let tls = Capture::open().client(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").calls();
    assert!(tls.0.is_empty() && tls.1[0].contains("encrypted by TLS"), "{:?}", tls.1);
    let unknown = Capture::open().client(b"\0\x01\x02\x03 what is this").calls();
    assert!(unknown.1[0].contains("is not known"), "{:?}", unknown.1);
    let mut lost = Capture::open().client(REQUEST).server(RESPONSE);
    lost.packets.remove(4);
    lost.push(0, 0x11, b"");
    lost.push(1, 0x11, b"");
    let (calls, notes) = lost.calls();
    assert!(calls.is_empty() && notes[0].contains("packets are missing"), "{notes:?}");
    let unanswered = Capture::open().client(REQUEST).calls();
    assert!(unanswered.0.len() == 1 && unanswered.0[0].outcome.is_none() && unanswered.1.is_empty());
}

/// Nothing that is captured makes it panic.
#[test]
fn damaged_packets_do_not_panic() {
    let whole = Capture::open().client(REQUEST).server(RESPONSE);
    for at in 0..whole.packets.len() {
        for byte in 0..whole.packets[at].bytes.len() {
            let copy = |packet: &Packet| Packet {
                at: packet.at,
                link: 101,
                bytes: packet.bytes.clone(),
                is_cut: false,
            };
            let mut packets: Vec<_> = whole.packets.iter().map(copy).collect();
            packets[at].bytes[byte] ^= 0x81;
            calls(&packets);
        }
    }
}

/// A call of gRPC on this stream, the first of its connection.
fn grpc_request(stream: u32) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let frame = |kind: u8, flags: u8, stream: u32, content: &[u8]| {
        let head =
            [&(content.len() as u32).to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [head, content.to_vec()].concat()
    };
    // POST, http, a path, a content type, `te`.
    let fields = [
        vec![0x83, 0x86, 0x04],
        text("/demo.Users/Get"),
        vec![0x0f, 0x10],
        text("application/grpc"),
        vec![0x00],
        text("te"),
        text("trailers"),
    ];
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, b""),
        frame(1, 0x04, stream, &fields.concat()),
        frame(0, 0x01, stream, &[0, 0, 0, 0, 2, 8, 7]),
    ]
    .concat()
}

#[test]
fn stream_with_a_high_number_is_not_preceded_by_a_billion_others() {
    for near in [1, 2001] {
        let (calls, notes) = Capture::open().client(&grpc_request(near)).calls();
        assert_eq!((calls.len(), notes.len()), (1, 0), "{notes:?}");
        assert_eq!(calls[0].full_name(), "demo.Users/Get");
    }
    let (calls, notes) = Capture::open().client(&grpc_request(0x7fff_ffff)).calls();
    assert!(calls.is_empty() && notes[0].contains("opened before the capture"), "{notes:?}");
}

#[test]
fn calls_beyond_the_memory_are_counted() {
    let mut request = REQUEST.strip_suffix(b"8\r\n\r\n{\"id\":7}").unwrap().to_vec();
    request.extend(b"4000\r\n\r\n");
    request.extend([b' '; 4000]);
    let capture = Capture::open().client(&request).server(RESPONSE).client(REQUEST).server(RESPONSE);
    let (calls, notes) = calls_within(&mut Connections::new(10, 100), &capture.packets);
    assert!(calls.is_empty() && notes[0].starts_with("2 calls were not kept"), "{notes:?}");
    // The second request fits once the first is answered.
    let (calls, notes) = calls_within(&mut Connections::new(10, 3000), &capture.packets);
    assert!(notes[0].starts_with("1 request message was not kept") && notes.len() == 1, "{notes:?}");
    let [large, small] = &calls[..] else { panic!("{calls:?}") };
    assert!(!large.request.as_ref().unwrap().omitted.is_empty());
    assert_eq!(body(small.request.as_ref()), r#"{"id":7}"#);
    assert!(calls.iter().all(|call| call.outcome.is_some()));
}

#[test]
fn connection_that_is_idle_longest_makes_room() {
    let first = Capture::open().client(REQUEST);
    let mut second = Capture::open().client(REQUEST).server(RESPONSE);
    for packet in &mut second.packets {
        let ports = &mut packet.bytes[20..24];
        let at = if ports[..2] == CLIENT.to_be_bytes() { 0 } else { 2 };
        ports[at..at + 2].copy_from_slice(&(CLIENT + 1).to_be_bytes());
    }
    let packets: Vec<_> = first.packets.into_iter().chain(second.packets).collect();
    let (calls, notes) = calls_within(&mut Connections::new(1, 1 << 20), &packets);
    assert_eq!(calls.iter().map(|call| call.outcome.is_some()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(notes, ["1 connection was not read to its end: more than 1 were open"]);
}

#[test]
fn recording_is_complete_if_standard_output_is_closed() {
    let out = std::env::temp_dir().join(format!("polyrpc-dump-{}.rec", std::process::id()));
    // A process with this id may have left one.
    let _ = std::fs::remove_file(&out);
    let options = Options {
        file: PathBuf::from("-"),
        filter: Default::default(),
        described: Default::default(),
        out: Some(out.clone()),
        keep_credentials: false,
        json: false,
    };
    let mut output = Output::new(&options, |_| Ok(false)).unwrap();
    let capture = Capture::open().client(REQUEST).server(RESPONSE).client(REQUEST).server(RESPONSE);
    let mut connections = Connections::default();
    for packet in &capture.packets {
        for call in connections.push(&find_segment(packet).unwrap(), packet.at) {
            assert!(output.write_call(call).unwrap());
        }
    }
    output.finish().unwrap();
    let file = std::fs::File::open(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    let mut reader = Reader::new(std::io::BufReader::new(file)).unwrap();
    let mut calls = 0;
    while let Some(entry) = reader.next_entry().unwrap() {
        calls += u32::from(matches!(entry, Entry::Call(_)));
    }
    assert_eq!(calls, 2);
    assert!(matches!(reader.ending(), Some(polyrpc_record::RecordingEnd::Complete(_))));
}

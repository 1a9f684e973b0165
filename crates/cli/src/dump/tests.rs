//! Calls of captured connections, in bytes as they are on the wire.

use polyrpc_record::Call;

use super::connections::Connections;
use super::file::Packet;
use super::segment::segment;

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

    fn opened() -> Self {
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
    let mut connections = Connections::default();
    let mut calls = Vec::new();
    for packet in packets {
        match segment(packet) {
            Ok(segment) => calls.extend(connections.push(&segment, packet.at)),
            Err(why) => connections.skip(why),
        }
    }
    calls.extend(connections.finish());
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
    let mut capture = Capture::opened().client(REQUEST).server(RESPONSE).client(REQUEST).server(RESPONSE);
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
    // Neighbours change places, and everything is sent twice.
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
fn what_cannot_be_read_is_said() {
    let tls = Capture::opened().client(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").calls();
    assert!(tls.0.is_empty() && tls.1[0].contains("encrypted by TLS"), "{:?}", tls.1);
    let unknown = Capture::opened().client(b"\0\x01\x02\x03 what is this").calls();
    assert!(unknown.1[0].contains("is not known"), "{:?}", unknown.1);
    let mut lost = Capture::opened().client(REQUEST).server(RESPONSE);
    lost.packets.remove(4);
    lost.push(0, 0x11, b"");
    lost.push(1, 0x11, b"");
    let (calls, notes) = lost.calls();
    assert!(calls.is_empty() && notes[0].contains("packets are missing"), "{notes:?}");
    let unanswered = Capture::opened().client(REQUEST).calls();
    assert!(unanswered.0.len() == 1 && unanswered.0[0].outcome.is_none() && unanswered.1.is_empty());
}

/// Nothing that is captured makes it panic.
#[test]
fn damaged_packets_do_not_panic() {
    let whole = Capture::opened().client(REQUEST).server(RESPONSE);
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

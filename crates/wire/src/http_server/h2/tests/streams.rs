//! Streaming calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Both sides of a connection, with the bytes in transit between them.
pub(super) struct Both {
    pub(super) client: Client,
    pub(super) server: Server,
    pub(super) to_server: BytesMut,
    pub(super) to_client: BytesMut,
    pub(super) up: Outbox,
    pub(super) down: Outbox,
    pub(super) tickets: Vec<Ticket>,
}

impl Both {
    pub(super) fn new() -> Self {
        Self::with_methods(Methods::default())
    }

    /// Creates them with these methods that take one message.
    pub(super) fn with_methods(methods: Methods) -> Self {
        Self {
            client: client(),
            server: Server::new(ServerConfig { methods, ..ServerConfig::default() }.into()),
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
            up: Outbox::new(),
            down: Outbox::new(),
            tickets: Vec::new(),
        }
    }

    /// Returns the server's events as text.
    pub(super) fn recorded(&mut self) -> Vec<String> {
        self.to_server.extend_from_slice(&self.up.take());
        let mut recorded = Vec::new();
        while let Some(event) = self.server.next_event(&mut self.to_server, &mut self.down).unwrap() {
            recorded.push(match event {
                ServerEvent::Open(call, ticket, id) => {
                    let told = format!("open {} {}", id.0, call.method);
                    self.tickets.push(ticket);
                    told
                }
                ServerEvent::Message(id, message) => {
                    format!("message {} {}", id.0, message.body.escape_ascii())
                }
                ServerEvent::End(id) => format!("end {}", id.0),
                ServerEvent::Cancelled(id) => format!("cancelled {}", id.0),
                ServerEvent::Room(id) => format!("room {}", id.0),
                ServerEvent::Pause => continue,
                ServerEvent::Call(call, ticket) => {
                    let told = format!("call {}", call.method);
                    self.tickets.push(ticket);
                    told
                }
                ServerEvent::Foreign
                | ServerEvent::Connect
                | ServerEvent::Upgrade(_)
                | ServerEvent::WebSocket
                | ServerEvent::Head(..)
                | ServerEvent::Subscribe(_) => "foreign".to_owned(),
                ServerEvent::Alive => "alive".to_owned(),
            });
        }
        recorded
    }

    /// Returns the client's events as text.
    pub(super) fn answered(&mut self) -> Vec<String> {
        self.to_client.extend_from_slice(&self.down.take());
        let mut answered = Vec::new();
        while let Some(answer) = self.client.next_event(&mut self.to_client, &mut self.up).unwrap() {
            answered.push(match answer {
                ClientEvent::Head(id, _) => format!("head {}", id.0),
                ClientEvent::Message(id, message) => {
                    format!("message {} {}", id.0, message.body.escape_ascii())
                }
                ClientEvent::Reply(id, reply) => match reply.result {
                    Ok(_) => format!("done {}", id.0),
                    Err(status) => format!("failed {} {status}", id.0),
                },
                ClientEvent::Room(id) => format!("room {}", id.0),
                ClientEvent::GoAway => "go away".to_owned(),
                ClientEvent::TooManyHeartbeats => "too many heartbeats".to_owned(),
                other => format!("{other:?}"),
            });
        }
        answered
    }

    pub(super) fn open(&mut self, id: u64) {
        self.client.open(CallId(id), call(b""), &mut self.up).unwrap();
    }
}

#[test]
fn both_halves_proceed_independently() {
    let mut both = Both::new();
    both.open(7);
    assert_eq!(both.recorded(), ["open 1 Echo"]);
    both.client.send_message(CallId(7), Bytes::from_static(b"one"), &mut both.up);
    assert_eq!(both.recorded(), ["message 1 one"]);
    let ticket = both.tickets.pop().unwrap();
    both.server.send_message(StreamId(1), Bytes::from_static(b"1"), &mut both.down);
    assert_eq!(both.answered(), ["head 7", "message 7 1"]);
    both.client.send_message(CallId(7), Bytes::from_static(b"two"), &mut both.up);
    both.client.end(CallId(7), &mut both.up);
    assert_eq!(both.recorded(), ["message 1 two", "end 1"]);
    both.server.send_message(StreamId(1), Bytes::from_static(b"2"), &mut both.down);
    both.server.finish(ticket, Ok(()), Metadata::new(), &mut both.down);
    assert_eq!(both.answered(), ["message 7 2", "done 7"]);
}

#[test]
fn failure_in_the_middle_ends_both_halves() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    let ticket = both.tickets.pop().unwrap();
    both.server.send_message(StreamId(1), Bytes::from_static(b"x"), &mut both.down);
    both.server.finish(ticket, Err(Status::internal("no more")), Metadata::new(), &mut both.down);
    assert_eq!(both.answered(), ["head 1", "message 1 x", "failed 1 internal: no more"]);
    both.client.send_message(CallId(1), Bytes::from_static(b"late"), &mut both.up);
    assert_eq!(both.recorded(), Vec::<String>::new());
}

#[test]
fn malformed_message_ends_a_started_response_with_trailers() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    let ticket = both.tickets.pop().unwrap();
    both.server.send_message(StreamId(1), Bytes::from_static(b"x"), &mut both.down);
    // A DATA frame with a message of flag 7.
    both.up.extend_from_slice(b"\0\0\x05\0\0\0\0\0\x01\x07\0\0\0\0");
    assert_eq!(both.recorded(), ["cancelled 1"]);
    // A handler that has not noticed the failure yet continues to answer.
    both.server.send_message(StreamId(1), Bytes::from_static(b"y"), &mut both.down);
    both.server.finish(ticket, Ok(()), Metadata::new(), &mut both.down);
    assert_eq!(both.answered(), ["head 1", "message 1 x", "failed 1 internal: a message with the flag 7"]);
}

#[test]
fn malformed_message_ends_a_response_after_its_unsent_data() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    both.server.send_message(StreamId(1), Bytes::from(vec![0; 100_000]), &mut both.down);
    both.up.extend_from_slice(b"\0\0\x05\0\0\0\0\0\x01\x07\0\0\0\0");
    let (mut recorded, mut answered) = (both.recorded(), both.answered());
    while !recorded.is_empty() || !answered.is_empty() {
        if let Some(last) = answered.iter().find(|told| told.starts_with("failed")) {
            return assert_eq!(last, "failed 1 internal: a message with the flag 7");
        }
        both.client.record_consumed(CallId(1), 100_000, &mut both.up);
        (recorded, answered) = (both.recorded(), both.answered());
    }
    panic!("the call has not ended");
}

#[test]
fn cancelled_call_is_cancelled_on_the_server() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    both.client.cancel(CallId(1), &mut both.up);
    assert_eq!(both.recorded(), ["cancelled 1"]);
    let ticket = both.tickets.pop().unwrap();
    both.server.finish(ticket, Ok(()), Metadata::new(), &mut both.down);
    assert_eq!(both.answered(), Vec::<String>::new());
}

#[test]
fn unread_response_is_sent_up_to_the_window() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    let message = Bytes::from(vec![b'm'; 10_000]);
    let mut sent = 0;
    while both.client.has_room(CallId(1)) {
        both.client.send_message(CallId(1), message.clone(), &mut both.up);
        sent += 1;
    }
    let recorded = both.recorded().len();
    assert!(recorded < sent, "{recorded} of {sent} came");
    both.server.record_consumed(StreamId(1), recorded * 10_000, &mut both.down);
    let room = both.answered();
    let more = both.recorded().len();
    assert!(more > 0);
    assert_eq!(room, ["room 1"]);
}

#[test]
fn ten_thousand_streams_opened_and_reset_leave_nothing() {
    let mut both = Both::new();
    both.server = Server::new(
        ServerConfig {
            http: crate::http::h2::Config { resets: u32::MAX, ..Default::default() }.into(),
            ..ServerConfig::default()
        }
        .into(),
    );
    for n in 0..10_000 {
        both.open(n);
        both.recorded();
        both.client.cancel(CallId(n), &mut both.up);
        both.recorded();
        both.answered();
    }
    assert_eq!(both.server.streams(), 0);
    assert_eq!(both.client.streams(), 0);
}

#[test]
fn endless_resets_are_answered_with_enhance_your_calm() {
    let mut both = Both::new();
    let mut violated = false;
    for n in 0..10_000 {
        both.open(n);
        both.client.cancel(CallId(n), &mut both.up);
        both.to_server.extend_from_slice(&both.up.take());
        violated |= loop {
            match both.server.next_event(&mut both.to_server, &mut both.down) {
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        if violated {
            assert!(n < 2000);
            break;
        }
    }
    assert!(violated);
}

#[test]
fn draining_server_finishes_started_calls() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    both.server.drain(&mut both.down);
    assert_eq!(both.answered(), ["go away"]);
    assert!(!both.client.is_reusable());
    assert!(both.client.send(CallId(2), call(b""), &mut both.up).is_err());
    both.recorded();
    assert!(!both.server.is_finished());
    let ticket = both.tickets.pop().unwrap();
    both.server.finish(ticket, Ok(()), Metadata::new(), &mut both.down);
    assert_eq!(both.answered(), ["done 1"]);
    assert!(both.server.is_finished());
}

#[test]
fn heartbeats_are_sent_only_while_a_response_is_pending() {
    let mut both = Both::new();
    assert!(!both.client.heartbeat(&mut both.up));
    both.open(1);
    assert!(both.client.heartbeat(&mut both.up));
    both.recorded();
    assert_eq!(both.answered(), ["Alive"]);
}

#[test]
fn enhance_your_calm_reports_too_many_heartbeats() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    // GOAWAY with last stream 1 and ENHANCE_YOUR_CALM, as grpc-go sends it.
    both.down.buffer().extend_from_slice(b"\0\0\x16\x07\0\0\0\0\0\0\0\0\x01\0\0\0\x0btoo_many_pings");
    assert_eq!(both.answered(), ["too many heartbeats", "go away"]);
}

#[test]
fn long_stream_completes() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    let message = Bytes::from(vec![b'm'; 10_000]);
    let mut taken = 0;
    for _ in 0..20_000 {
        while both.server.has_room(StreamId(1)) {
            both.server.send_message(StreamId(1), message.clone(), &mut both.down);
        }
        both.to_client.extend_from_slice(&both.down.take());
        let before = taken;
        let mut bytes = 0;
        while let Some(answer) = both.client.next_event(&mut both.to_client, &mut both.up).unwrap() {
            if let ClientEvent::Message(_, message) = answer {
                taken += 1;
                bytes += message.body.len();
            }
        }
        // Many messages are acknowledged at once.
        both.client.record_consumed(CallId(1), bytes, &mut both.up);
        both.recorded();
        if taken >= 20_000 {
            return;
        }
        assert!(taken > before, "no progress at {taken}");
    }
}

/// h2load and grpc-go send the heads of all pending calls before the first body.
#[test]
fn unary_calls_are_complete_although_their_heads_arrived_first() {
    let mut both = Both::new();
    for id in [1, 2, 3, 4] {
        both.open(id);
    }
    for id in [2, 1] {
        both.client.send_message(CallId(id), Bytes::from_static(b"one"), &mut both.up);
        both.client.end(CallId(id), &mut both.up);
    }
    // Neither two messages nor none are a unary request.
    both.client.send_message(CallId(3), Bytes::from_static(b"one"), &mut both.up);
    both.client.send_message(CallId(3), Bytes::from_static(b"two"), &mut both.up);
    both.client.end(CallId(4), &mut both.up);
    let merged = merge_end(&both.up.take());
    both.to_server.extend_from_slice(&merged);
    let recorded = both.recorded();
    let want =
        ["call Echo", "call Echo", "open 5 Echo", "message 5 one", "message 5 two", "open 7 Echo", "end 7"];
    assert_eq!(recorded, want);
}

/// Merges a DATA frame and the empty frame that ends its stream into one frame.
fn merge_end(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut rest): (Vec<u8>, _) = (Vec::new(), &bytes[crate::http::h2::PREFACE.len()..]);
    out.extend_from_slice(crate::http::h2::PREFACE);
    let mut last_data: Option<usize> = None;
    while let Some((head, _)) = rest.split_first_chunk::<9>() {
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let frame = &rest[..9 + length];
        rest = &rest[9 + length..];
        let (is_data, stream) = (head[3] == 0, &head[5..]);
        match last_data {
            Some(at) if is_data && length == 0 && &out[at + 5..at + 9] == stream => out[at + 4] |= 1,
            _ => {
                last_data = is_data.then_some(out.len());
                out.extend_from_slice(frame);
            }
        }
    }
    out
}

#[test]
fn head_reset_in_the_same_batch_is_not_reported() {
    let mut both = Both::new();
    both.open(1);
    both.open(2);
    both.client.cancel(CallId(1), &mut both.up);
    assert_eq!(both.recorded(), ["open 3 Echo"]);
    assert_eq!(both.server.streams(), 1);
}

/// Creates both sides, with the methods of [`Both::open`] taking one message.
pub(super) fn with_unary_method() -> Both {
    let mut methods = Methods::default();
    methods.add("example.EchoService", "Echo");
    Both::with_methods(methods)
}

/// Knows one method that takes one message, unless the test changes that.
#[derive(Debug, Default)]
struct Changing(AtomicBool);

impl DynamicMethods for Changing {
    fn has_unary_request(&self, service: &str, method: &str, _: &Metadata) -> bool {
        (service, method) == ("example.EchoService", "Echo") && !self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn others_are_asked_for_each_call_whether_it_takes_one_message() {
    let (others, mut methods) = (Arc::new(Changing::default()), Methods::default());
    methods.set_dynamic(others.clone());
    let mut both = Both::with_methods(methods);
    both.open(1);
    assert_eq!(both.recorded(), [""; 0]);
    both.client.send_message(CallId(1), Bytes::from_static(b"all"), &mut both.up);
    both.client.end(CallId(1), &mut both.up);
    assert_eq!(both.recorded(), ["call Echo"]);
    // Though the head of the second call is known by now.
    others.0.store(true, Ordering::Relaxed);
    both.open(2);
    assert_eq!(both.recorded(), ["open 3 Echo"]);
}

#[test]
fn unary_call_is_reported_when_complete() {
    let mut both = with_unary_method();
    both.open(1);
    assert_eq!(both.recorded(), [""; 0]);
    assert!(both.server.needs_ticks());
    both.client.send_message(CallId(1), Bytes::from_static(b"all"), &mut both.up);
    assert_eq!(both.recorded(), [""; 0], "its end is a frame of its own");
    both.client.end(CallId(1), &mut both.up);
    assert_eq!(both.recorded(), ["call Echo"]);
    assert!(!both.server.needs_ticks());
    let ticket = both.tickets.pop().unwrap();
    both.server.reply(ticket, Reply::message(Format::Protobuf, Bytes::from_static(b"one")), &mut both.down);
    assert_eq!(both.answered(), ["head 1", "message 1 one", "done 1"]);
    assert_eq!(both.server.streams(), 0);
}

#[test]
fn unary_call_that_waits_too_long_is_reported_in_parts() {
    let mut both = with_unary_method();
    both.open(1);
    both.open(2);
    both.client.send_message(CallId(2), Bytes::from_static(b"all"), &mut both.up);
    both.recorded();
    both.server.tick(Duration::ZERO, &mut both.down);
    both.server.tick(Duration::from_secs(1), &mut both.down);
    assert_eq!(both.recorded(), ["open 1 Echo", "open 3 Echo", "message 3 all"]);
    both.open(3);
    assert_eq!(both.recorded(), [""; 0], "what comes later waits again");
    both.client.end(CallId(2), &mut both.up);
    both.client.end(CallId(3), &mut both.up);
    assert_eq!(both.recorded(), ["end 3", "open 5 Echo", "end 5"]);
}

#[test]
fn excess_messages_of_a_unary_call_are_all_reported() {
    let mut both = with_unary_method();
    both.open(1);
    both.recorded();
    both.client.send_message(CallId(1), Bytes::from_static(b"one"), &mut both.up);
    both.client.send_message(CallId(1), Bytes::from_static(b"two"), &mut both.up);
    assert_eq!(both.recorded(), ["open 1 Echo", "message 1 one", "message 1 two"]);
}

#[test]
fn call_cancelled_before_it_was_reported_is_dropped() {
    let mut both = with_unary_method();
    both.open(1);
    both.client.send_message(CallId(1), Bytes::from_static(b"all"), &mut both.up);
    both.recorded();
    both.client.cancel(CallId(1), &mut both.up);
    assert_eq!(both.recorded(), [""; 0]);
    assert!(!both.server.needs_ticks());
    both.server.tick(Duration::ZERO, &mut both.down);
    both.server.tick(Duration::from_secs(1), &mut both.down);
    assert_eq!((both.recorded(), both.server.streams()), (vec![], 0));
}

#[test]
fn buffered_unary_calls_do_not_close_the_window() {
    let mut both = with_unary_method();
    for n in 0..2000 {
        both.open(n);
        both.recorded();
        both.client.send_message(CallId(n), Bytes::from(vec![0; 10_000]), &mut both.up);
        both.recorded();
        both.client.end(CallId(n), &mut both.up);
        assert_eq!(both.recorded(), ["call Echo"]);
        let reply = Reply::message(Format::Protobuf, Bytes::new());
        both.server.reply(both.tickets.pop().unwrap(), reply, &mut both.down);
        both.answered();
    }
}

#[test]
fn short_message_in_several_frames_is_one_call() {
    for (length, recorded) in [(2000, vec!["call Echo"]), (20_000, vec!["open 1 Echo", "message 1", "end 1"])]
    {
        let mut both = with_unary_method();
        both.open(1);
        both.recorded();
        both.client.send_message(CallId(1), Bytes::from(vec![b'.'; length]), &mut both.up);
        both.client.end(CallId(1), &mut both.up);
        // The prefix of the message arrives in frames of one byte each, followed by the rest of the first frame.
        let (data, mut told) = (both.up.take(), Vec::new());
        for byte in &data[9..14] {
            both.to_server.extend_from_slice(&[0, 0, 1, 0, 0, 0, 0, 0, 1, *byte]);
            told.extend(both.recorded());
        }
        let rest = u32::from_be_bytes([0, data[0], data[1], data[2]]) - 5;
        both.to_server.extend_from_slice(&rest.to_be_bytes()[1..]);
        both.to_server.extend_from_slice(&data[3..9]);
        both.to_server.extend_from_slice(&data[14..]);
        told.extend(both.recorded());
        assert_eq!(told.len(), recorded.len());
        for (told, recorded) in told.iter().zip(recorded) {
            assert!(told.starts_with(recorded), "{told}");
        }
    }
}

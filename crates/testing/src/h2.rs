//! HTTP/2 below gRPC: both sides of a connection, and a user of it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::{Outbox, Violation};
use polyrpc_wire::http::h2::hpack::encode_stateless;
use polyrpc_wire::http::h2::{Config, Connection, ErrorCode, Event};

use super::frames::{GOAWAY, WINDOW_UPDATE};
use super::{Scenario, frames};

/// Frames for a [`Connection`]: of a client, or of a server with its preface.
///
/// # Panics
///
/// If the connection produces other events for another split of the same bytes, exceeds its limits, or sends what it
/// must not.
pub fn h2_frames(input: &[u8]) {
    let Some((scenario, bytes)) = Scenario::read(input) else { return };
    let whole = Driver::new(scenario).feed(&[bytes]);
    assert_same(&Driver::new(scenario).feed(&scenario.cut(bytes)), &whole);
    assert_same(&Driver::new(scenario).feed(&bytes.chunks(1).collect::<Vec<_>>()), &whole);
    match scenario.has(CLIENT) {
        true => frames::assert_client_sent(&whole.out, &frames::split(bytes).0),
        false => frames::assert_server_sent(&whole.out, &frames::split_client(bytes)),
    }
}

/// Our side is the client's.
const CLIENT: u8 = 1;
/// Messages are answered as soon as their head arrives.
const EARLY: u8 = 1 << 1;
/// Every third message is answered by a reset.
const RESETS: u8 = 1 << 2;
/// Received data is not consumed.
const IDLES: u8 = 1 << 3;
/// Sent data exceeds the initial windows.
const LONG: u8 = 1 << 4;
/// GOAWAY is sent at the second message.
const GOES_AWAY: u8 = 1 << 5;

/// Small limits, so that the inputs of a fuzzer reach them.
pub(super) fn config() -> Arc<Config> {
    Arc::new(Config {
        streams: 8,
        header_list: 512,
        frame: 16_384,
        large_frame: 16_384,
        window: 512,
        large_window: 512,
        max_window: 2048,
        connection_window: 65_536,
        unsent: 512,
        unsent_in_all: 100_000,
        max_unsent: 200_000,
        stalled: std::time::Duration::from_secs(30),
        resets: 16,
        resets_per_second: 100,
    })
}

/// The events for some bytes, in a form that does not depend on the split.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) events: Vec<String>,
    pub(super) out: Vec<u8>,
    pub(super) violation: Option<Violation>,
}

/// Asserts that the split of the bytes made only permitted differences.
pub(super) fn assert_same(cut: &Observed, whole: &Observed) {
    if ends_with_enhance_your_calm(whole) || ends_with_enhance_your_calm(cut) {
        // The number of frames per batch depends on the split.
        let both = cut.events.len().min(whole.events.len());
        return assert_eq!(cut.events[..both], whole.events[..both]);
    }
    assert_eq!(cut.events, whole.events);
    assert_eq!(cut.violation, whole.violation);
    assert_eq!(without_grants(&cut.out), without_grants(&whole.out));
}

pub(super) fn ends_with_enhance_your_calm(observed: &Observed) -> bool {
    let (sent_frames, _) = frames::split(&observed.out);
    let calm = ErrorCode::ENHANCE_YOUR_CALM.0.to_be_bytes();
    observed.violation.is_some()
        && sent_frames.last().is_some_and(|last| last.kind == GOAWAY && last.payload.get(4..8) == Some(&calm))
}

/// The connection's window is credited once the inbox is empty, which is sooner for single bytes.
fn without_grants(out: &[u8]) -> Vec<frames::Frame<'_>> {
    let out = out.strip_prefix(polyrpc_wire::http::h2::PREFACE).unwrap_or(out);
    let (sent_frames, _) = frames::split(out);
    sent_frames.into_iter().filter(|frame| (frame.kind, frame.stream) != (WINDOW_UPDATE, 0)).collect()
}

/// A connection and its user.
struct Driver {
    connection: Connection,
    scenario: Scenario,
    inbox: BytesMut,
    out: Outbox,
    observed: Observed,
    messages: u32,
}

impl Driver {
    fn new(scenario: Scenario) -> Self {
        let connection = match scenario.has(CLIENT) {
            true => Connection::client(config()),
            false => Connection::server(config()),
        };
        let (inbox, out, observed) = (BytesMut::new(), Outbox::new(), Observed::default());
        let mut spoken = Self { connection, scenario, inbox, out, observed, messages: 0 };
        if scenario.has(CLIENT) {
            spoken.connection.ping(&mut spoken.out);
            (0..4).for_each(|_| spoken.send_request());
        }
        spoken
    }

    fn feed(mut self, chunks: &[&[u8]]) -> Observed {
        self.pull();
        for chunk in chunks {
            self.inbox.extend_from_slice(chunk);
            self.pull();
            if self.observed.violation.is_some() {
                break;
            }
        }
        self.observed.out = self.out.take();
        self.observed
    }

    fn pull(&mut self) {
        loop {
            let found = self.connection.next_event(&mut self.inbox, &mut self.out);
            self.connection.assert_sound();
            match found {
                Ok(Some(event)) => self.handle(event),
                Ok(None) => return self.assert_bounded_input(),
                Err(violation) => return self.observed.violation = Some(violation),
            }
            self.connection.assert_sound();
        }
    }

    /// Asserts that a connection that waits for input buffers less than one frame, and needs at most one.
    fn assert_bounded_input(&self) {
        const FRAME: usize = 9 + 16_384;
        let (wanted, waiting) = (self.connection.bytes_needed(), self.inbox.len());
        assert!(wanted <= FRAME, "wants {wanted} bytes");
        assert!(
            waiting < FRAME && (wanted == 0 || wanted > waiting),
            "wants {wanted} bytes and has {waiting}"
        );
    }

    /// Nothing here may depend on how the bytes were split.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Headers { stream, end, .. } => {
                self.record(&event);
                self.handle_head(stream, end);
            }
            // A head with its data is equal to one whose data arrives later.
            Event::Whole { stream, fields, body } => {
                self.handle(Event::Headers { stream, fields, end: false });
                self.handle_data(stream, body, true);
            }
            Event::Data { stream, bytes, end } => self.handle_data(stream, bytes, end),
            Event::Trailers { stream, .. } => {
                self.record(&event);
                self.handle_end(stream);
            }
            _ => self.record(&event),
        }
    }

    fn handle_head(&mut self, stream: u32, end: bool) {
        if self.scenario.has(EARLY) {
            self.answer(stream);
        }
        if end {
            self.handle_end(stream);
        }
    }

    fn handle_data(&mut self, stream: u32, bytes: Bytes, end: bool) {
        let length = bytes.len();
        // After the response the rest is not reported, unless it had arrived already.
        if !self.scenario.has(EARLY) {
            self.record(&Event::Data { stream, bytes, end });
        }
        if !self.scenario.has(IDLES) {
            self.connection.record_consumed(stream, length, &mut self.out);
        }
        if end {
            self.handle_end(stream);
        }
    }

    fn handle_end(&mut self, stream: u32) {
        match self.scenario.has(CLIENT) {
            true => self.send_request(),
            false if !self.scenario.has(EARLY) => self.answer(stream),
            false => {}
        }
    }

    fn answer(&mut self, stream: u32) {
        self.messages += 1;
        if self.messages == 2 && self.scenario.has(GOES_AWAY) {
            self.connection.start_graceful_shutdown(&mut self.out);
        }
        if self.messages.is_multiple_of(3) && self.scenario.has(RESETS) {
            return self.connection.reset(stream, ErrorCode::CANCEL, &mut self.out);
        }
        if self.scenario.has(CLIENT) {
            return self.send(stream, true);
        }
        self.connection.headers(stream, b"\x88", false, &mut self.out);
        self.send(stream, false);
        let mut trailers = Vec::new();
        encode_stateless([(&b"trailer"[..], &b"value"[..])], &mut trailers);
        self.connection.trailers(stream, &trailers, &mut self.out);
    }

    fn send_request(&mut self) {
        if !self.connection.may_open() || self.messages == 32 {
            return;
        }
        self.messages += 1;
        let mut block = Vec::new();
        let encoder = self.connection.encoder();
        encoder.begin(&mut block);
        for (name, value) in [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "me")]
        {
            encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                polyrpc_wire::http::h2::hpack::Indexing::Likely,
                &mut block,
            );
        }
        let stream = self.connection.open(&block, false, &mut self.out);
        if !self.scenario.has(EARLY) {
            self.send(stream, true);
        }
    }

    fn send(&mut self, stream: u32, end: bool) {
        let length = if self.scenario.has(LONG) { 40_000 } else { 10 };
        self.connection.data(stream, b"five!", Bytes::from(vec![b'.'; length]), end, &mut self.out);
    }

    fn record(&mut self, event: &Event) {
        self.observed.events.push(format!("{event:?}"));
    }
}

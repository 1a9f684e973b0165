//! gRPC: complete sessions of both sides, with calls that are answered, cancelled and reset meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::session::server::{Housekeeping as _, KeepReason, Streaming as _, Ticket as _};
use polyrpc_core::session::{ClientEvent, ServerEvent, Verdict};
use polyrpc_core::testing::describe_call;
use polyrpc_core::{
    Call, CallId, Compression, Credential, Format, Head, Message, Metadata, Outbox, Reply, Status, StreamId,
};
use polyrpc_wire::grpc::{Client, ClientConfig};
use polyrpc_wire::http;
use polyrpc_wire::http_server::h2::{Methods, Server, ServerConfig, Ticket};

use super::frames::RST_STREAM;
use super::h2::{Observed, assert_same};
use super::{LIMITS, Scenario, assert_bounded_output, frames, h2};

/// Bytes for [`Server`].
///
/// # Panics
///
/// If the session violates its contract.
pub fn grpc_server(input: &[u8]) {
    let Some((scenario, bytes)) = Scenario::read(input) else { return };
    let whole = ServerConnection::new(scenario).feed(&[bytes]);
    assert_same_calls(&ServerConnection::new(scenario).feed(&scenario.cut(bytes)), &whole, scenario);
    assert_same_calls(
        &ServerConnection::new(scenario).feed(&bytes.chunks(1).collect::<Vec<_>>()),
        &whole,
        scenario,
    );
    frames::assert_server_sent(&whole.out, &frames::split_client(bytes));
}

/// Bytes for [`Client`].
///
/// # Panics
///
/// If the session violates its contract.
pub fn grpc_client(input: &[u8]) {
    let Some((scenario, bytes)) = Scenario::read(input) else { return };
    let whole = ClientConnection::new(scenario).feed(&[bytes]);
    assert_same(&ClientConnection::new(scenario).feed(&scenario.cut(bytes)), &whole);
    assert_same(&ClientConnection::new(scenario).feed(&bytes.chunks(1).collect::<Vec<_>>()), &whole);
    frames::assert_client_sent(&whole.out, &frames::split(bytes).0);
}

/// Asserts that each call has the same outcome. A server combines the head of a request with what else has arrived: how
/// the bytes were split may change the order of calls, and whether one
/// that was reset at once, or before the connection ended, is reported.
fn assert_same_calls(cut: &Observed, whole: &Observed, scenario: Scenario) {
    if cut.events == whole.events {
        return assert_same(cut, whole);
    }
    // The outcome of one call then depends on the others.
    let entangled = [REFUSES, DRAINS, HOLDS, LONG].into_iter().any(|habit| scenario.has(habit));
    if entangled || h2::ends_with_enhance_your_calm(cut) || h2::ends_with_enhance_your_calm(whole) {
        return;
    }
    let (cut_calls, whole_calls) = (by_stream(cut), by_stream(whole));
    let both = |stream: &&u32| cut_calls.contains_key(stream) && whole_calls.contains_key(stream);
    for stream in cut_calls.keys().filter(both) {
        assert_eq!(cut_calls[stream], whole_calls[stream]);
        assert_eq!(frames_on(cut, *stream), frames_on(whole, *stream));
    }
    for (stream, events) in cut_calls.iter().chain(&whole_calls) {
        if !both(&stream) {
            let given_up = events[1..].iter().all(|event| event.ends_with("cancelled"));
            assert!(given_up, "{events:?}");
        }
    }
    assert_eq!(cut.violation, whole.violation);
}

fn by_stream(observed: &Observed) -> BTreeMap<u32, Vec<&str>> {
    let mut calls: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for event in &observed.events {
        let id = event.strip_prefix("StreamId(").and_then(|rest| rest.split_once(')')?.0.parse().ok());
        calls.entry(id.unwrap_or_else(|| panic!("{event} is of no stream"))).or_default().push(event);
    }
    calls
}

fn frames_on(observed: &Observed, stream: u32) -> Vec<frames::Frame<'_>> {
    frames::split(&observed.out).0.into_iter().filter(|frame| frame.stream == stream).collect()
}

/// Every call fails.
const FAILS: u8 = 1;
/// The credential of the first call is rejected.
const REFUSES: u8 = 1 << 1;
/// The server starts draining at the second call.
const DRAINS: u8 = 1 << 2;
/// Responses start with the call and echo each message.
const STREAMS: u8 = 1 << 3;
/// Received data is not consumed.
const IDLES: u8 = 1 << 4;
/// Sent data exceeds the initial windows.
const LONG: u8 = 1 << 5;
/// Two calls stay unanswered before the newest is answered first, even if it was cancelled.
const HOLDS: u8 = 1 << 6;
/// Sent messages are compressed.
const COMPRESSES: u8 = 1 << 7;

/// Unary calls are buffered until complete. The order of calls then depends on how the bytes were split.
fn methods(scenario: &Scenario) -> Methods {
    let mut methods = Methods::default();
    if ![REFUSES, DRAINS, HOLDS].into_iter().any(|order| scenario.has(order)) {
        methods.add("example.EchoService", "Echo");
    }
    methods
}

/// An unanswered call.
struct PendingCall {
    ticket: Ticket,
    message: Bytes,
    ended: bool,
}

/// A server's connection, and the answering of its calls.
struct ServerConnection {
    session: Server,
    scenario: Scenario,
    inbox: BytesMut,
    out: Outbox,
    pending: BTreeMap<StreamId, PendingCall>,
    calls: u32,
    observed: Observed,
    fed: usize,
}

impl ServerConnection {
    fn new(scenario: Scenario) -> Self {
        Self {
            session: Server::new(Arc::new(ServerConfig {
                limits: LIMITS,
                http: h2::config(),
                gateway: Some(Arc::new(http::ServerConfig { limits: LIMITS, ..<_>::default() })),
                methods: methods(&scenario),
                ..<_>::default()
            })),
            scenario,
            inbox: BytesMut::new(),
            out: Outbox::new(),
            pending: BTreeMap::new(),
            calls: 0,
            observed: Observed::default(),
            fed: 0,
        }
    }

    fn feed(mut self, chunks: &[&[u8]]) -> Observed {
        self.pull();
        for chunk in chunks {
            self.inbox.extend_from_slice(chunk);
            self.fed += chunk.len();
            self.pull();
            if self.observed.violation.is_some() {
                break;
            }
        }
        self.tick(Duration::ZERO);
        self.tick(Duration::from_secs(1));
        // Incomplete messages never complete now. A clock that has just started needs two ticks.
        self.tick(Duration::from_secs(200));
        self.tick(Duration::from_secs(400));
        let is_held_up = self.scenario.has(IDLES) || self.observed.violation.is_some();
        assert!(is_held_up || !self.session.needs_ticks(), "every clock has run out");
        self.answer_all();
        self.observed.out.extend(self.out.take());
        self.reset_all();
        self.observed
    }

    /// Lets time pass, unless the connection has ended.
    fn tick(&mut self, now: Duration) {
        if self.observed.violation.is_none() {
            self.session.tick(now, &mut self.out);
            self.session.assert_sound();
            self.pull();
        }
    }

    fn pull(&mut self) {
        loop {
            match self.session.next_event(&mut self.inbox, &mut self.out) {
                Ok(None) => break,
                Err(violation) => {
                    self.observed.violation = Some(violation);
                    break;
                }
                // Whether a head is reported alone depends on how the bytes were split.
                Ok(Some(ServerEvent::Head(_, stream))) => {
                    self.session.apply_verdict(stream, Verdict::Accepted, &mut self.out);
                }
                Ok(Some(event)) => {
                    let found = Found::from_event(event);
                    self.handle(found);
                }
            }
            self.session.assert_sound();
            if !self.scenario.has(LONG) {
                assert_bounded_output(self.out.len(), self.fed);
            }
        }
        self.session.assert_sound();
    }

    /// Nothing here may depend on how the bytes were split.
    fn handle(&mut self, found: Found) {
        match found {
            Found::Open(description, head, ticket) => self.open(description, head, ticket),
            Found::Call(description, head, ticket, Ok(message)) if ticket.stream().is_none() => {
                self.record(description);
                self.session.reply(ticket, Reply::new(Ok(message.body), head), &mut self.out);
            }
            Found::Call(description, head, ticket, Ok(message)) => {
                let Some(stream) = ticket.stream() else { return };
                self.open(description, head, ticket);
                self.message(stream, message);
                self.end(stream);
            }
            Found::Call(description, head, ticket, Err(malformed)) => {
                let Some(stream) = ticket.stream() else { return };
                self.open(description, head, ticket);
                if let Some(PendingCall { ticket, .. }) = self.pending.remove(&stream) {
                    self.record(format!("{stream:?} cancelled"));
                    self.session.finish(ticket, Err(malformed), Metadata::new(), &mut self.out);
                }
            }
            Found::Message(stream, message) => {
                let length = message.body.len();
                self.message(stream, message);
                if !self.scenario.has(IDLES) {
                    self.session.record_consumed(stream, length, &mut self.out);
                }
            }
            Found::End(stream) => self.end(stream),
            Found::Cancelled(stream) => self.handle_cancel(stream),
            Found::Pause => {}
            Found::Room(stream) => {
                assert!(self.session.has_room(stream), "room was reported for {stream:?}");
                self.record(format!("{stream:?} has room"));
            }
        }
    }

    fn open(&mut self, description: String, head: Head, ticket: Ticket) {
        let Some(stream) = ticket.stream() else { return };
        self.record(format!("{stream:?} {description}"));
        self.calls += 1;
        if self.calls == 2 && self.scenario.has(DRAINS) {
            self.session.drain(&mut self.out);
        }
        if self.calls == 1 && self.scenario.has(REFUSES) {
            self.session.reject(ticket, Status::unauthenticated("not you"), &mut self.out);
            return;
        }
        if self.scenario.has(STREAMS) {
            self.session.start_response(stream, self.answer_head(&head), &mut self.out);
        }
        let before = self.pending.insert(stream, PendingCall { ticket, message: Bytes::new(), ended: false });
        assert!(before.is_none(), "{stream:?} was opened twice");
    }

    fn message(&mut self, stream: StreamId, message: Message) {
        let Some(pending) = self.pending.get_mut(&stream) else { return };
        assert!(!pending.ended, "a message after the end");
        pending.message = message.body.clone();
        self.record(format!("{stream:?} {message:?}"));
        if self.scenario.has(STREAMS) {
            self.session.send_message(stream, self.answer_body(message.body), &mut self.out);
        }
    }

    fn end(&mut self, stream: StreamId) {
        let Some(pending) = self.pending.get_mut(&stream) else { return };
        assert!(!pending.ended, "it ended twice");
        pending.ended = true;
        self.record(format!("{stream:?} ended"));
        let held = if self.scenario.has(HOLDS) { 2 } else { 0 };
        if self.pending.values().filter(|pending| pending.ended).count() > held {
            self.answer(stream);
        }
    }

    /// A delayed response may be sent without knowing that its call was cancelled.
    fn handle_cancel(&mut self, stream: StreamId) {
        if self.pending.contains_key(&stream) {
            self.record(format!("{stream:?} cancelled"));
        }
        match self.scenario.has(HOLDS) {
            true => self.answer(stream),
            false => drop(self.pending.remove(&stream)),
        }
    }

    fn answer(&mut self, stream: StreamId) {
        let Some(PendingCall { ticket, message, .. }) = self.pending.remove(&stream) else { return };
        let trailers: Metadata = [("trailer", "value")].into_iter().collect();
        let result = if self.scenario.has(FAILS) { Err(Status::internal("no")) } else { Ok(()) };
        if self.scenario.has(STREAMS) {
            return self.session.finish(ticket, result, trailers, &mut self.out);
        }
        let result = result.map(|()| self.answer_body(message));
        let head = self.answer_head(&Head::default());
        self.session.reply(ticket, Reply { trailers, ..Reply::new(result, head) }, &mut self.out);
    }

    fn answer_head(&self, head: &Head) -> Head {
        let compresses = self.scenario.has(COMPRESSES);
        let compression = if compresses { Compression::Gzip } else { Compression::None };
        Head { compression, metadata: head.metadata.clone(), ..Head::default() }
    }

    fn answer_body(&self, body: Bytes) -> Bytes {
        if self.scenario.has(LONG) { vec![b'.'; 40_000].into() } else { body }
    }

    fn answer_all(&mut self) {
        while let Some((&stream, _)) = self.pending.last_key_value() {
            self.answer(stream);
        }
        self.session.assert_sound();
    }

    /// Once every call is answered or reset, no state is left.
    fn reset_all(&mut self) {
        if self.observed.violation.is_some() || !self.inbox.is_empty() {
            return;
        }
        let observed = std::mem::take(&mut self.observed);
        for stream in self.session.ids() {
            self.inbox.extend(frames::frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        }
        self.pull();
        // A header block may be incomplete, or too much was reset.
        if self.observed.violation.is_none() {
            assert_eq!(self.session.ids(), [0; 0]);
            assert_ne!(self.session.keep_reason(), KeepReason::Room, "output is pending without a stream");
        }
        self.observed = observed;
    }

    fn record(&mut self, description: String) {
        self.observed.events.push(description);
    }
}

/// An owned event.
enum Found {
    Open(String, Head, Ticket),
    Call(String, Head, Ticket, Result<Message, Status>),
    Message(StreamId, Message),
    End(StreamId),
    Room(StreamId),
    Cancelled(StreamId),
    Pause,
}

impl Found {
    fn from_event(event: ServerEvent<'_, Ticket>) -> Self {
        match event {
            ServerEvent::Open(call, ticket, _) => Self::Open(describe_head(&call), call.head, ticket),
            ServerEvent::Call(call, ticket) => {
                let description = describe_head(&call);
                let message = Message { body: call.body, compression: call.head.compression };
                Self::Call(description, call.head, ticket, call.malformed.map_or(Ok(message), Err))
            }
            ServerEvent::Message(stream, message) => Self::Message(stream, message),
            ServerEvent::End(stream) => Self::End(stream),
            ServerEvent::Room(stream) => Self::Room(stream),
            ServerEvent::Cancelled(stream) => Self::Cancelled(stream),
            ServerEvent::Pause => Self::Pause,
            ServerEvent::Foreign
            | ServerEvent::Connect
            | ServerEvent::Upgrade(_)
            | ServerEvent::WebSocket => {
                panic!("the session stays HTTP/2")
            }
            ServerEvent::Head(..) => panic!("unexpected head"),
            ServerEvent::Alive => panic!("unexpected event"),
            ServerEvent::Subscribe(_) => panic!("gRPC has no topics"),
        }
    }
}

/// A call without its message.
fn describe_head(call: &Call<'_>) -> String {
    let mut call = Call { body: Bytes::new(), malformed: None, authenticated: false, ..call.clone() };
    call.head.compression = Compression::None;
    describe_call(&call)
}

/// Calls are opened as streams, and their messages follow.
const OPENS: u8 = 1;
/// Calls carry metadata, a credential and a timeout.
const WITH_METADATA: u8 = 1 << 1;
/// Every third call is cancelled at its first event.
const CANCELS: u8 = 1 << 2;
/// Every second call is unary if calls are opened as streams.
const MIXED: u8 = 1 << 3;
/// Calls use gRPC-Web.
const WEB: u8 = 1 << 4;

/// A client's connection, and its calls.
struct ClientConnection {
    session: Client,
    scenario: Scenario,
    inbox: BytesMut,
    out: Outbox,
    observed: Observed,
    waiting: BTreeSet<CallId>,
    calls: u64,
}

impl ClientConnection {
    fn new(scenario: Scenario) -> Self {
        let session = Client::new(ClientConfig {
            limits: LIMITS,
            http: h2::config(),
            authority: "me".into(),
            tls: false,
            web: scenario.has(WEB),
            framing: None,
            credential: None,
        });
        let (inbox, out, observed) = (BytesMut::new(), Outbox::new(), Observed::default());
        let mut asking = Self { session, scenario, inbox, out, observed, waiting: BTreeSet::new(), calls: 0 };
        asking.session.heartbeat(&mut asking.out);
        (0..4).for_each(|_| asking.call());
        asking
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
        self.cancel_all();
        self.observed.out = self.out.take();
        self.observed
    }

    fn pull(&mut self) {
        loop {
            match self.session.next_event(&mut self.inbox, &mut self.out) {
                Ok(None) => break,
                Ok(Some(answer)) => self.handle(answer),
                Err(violation) => {
                    self.observed.violation = Some(violation);
                    break;
                }
            }
            self.session.assert_sound();
        }
        self.session.assert_sound();
    }

    fn handle(&mut self, answer: ClientEvent) {
        self.observed.events.push(format!("{answer:?}"));
        match answer {
            ClientEvent::Reply(id, _) => {
                assert!(self.waiting.remove(&id), "{id:?} was answered twice");
                self.call();
            }
            ClientEvent::Head(id, _) => {
                self.assert_waits(id);
                self.session.send_message(id, self.body(), &mut self.out);
                self.session.end(id, &mut self.out);
            }
            ClientEvent::Message(id, message) => {
                self.assert_waits(id);
                if !self.scenario.has(IDLES) {
                    self.session.record_consumed(id, message.body.len(), &mut self.out);
                }
                if id.0.is_multiple_of(3) && self.scenario.has(CANCELS) {
                    self.session.cancel(id, &mut self.out);
                    self.waiting.remove(&id);
                }
            }
            ClientEvent::Room(id) => {
                self.assert_waits(id);
                assert!(self.session.has_room(id), "room was reported for {id:?}");
            }
            ClientEvent::Push(_) => panic!("gRPC pushes nothing"),
            ClientEvent::Alive | ClientEvent::TooManyHeartbeats | ClientEvent::GoAway => {}
        }
    }

    fn assert_waits(&self, id: CallId) {
        assert!(self.waiting.contains(&id), "event for {id:?} after its end");
    }

    fn call(&mut self) {
        if self.calls == 32 || !self.session.is_reusable() {
            return;
        }
        let id = CallId(self.calls);
        self.calls += 1;
        let mut call = Call::new("example.EchoService", "Echo", Format::Protobuf, Bytes::new());
        if self.scenario.has(COMPRESSES) {
            call.head.compression = Compression::Gzip;
        }
        if self.scenario.has(WITH_METADATA) {
            call.head.metadata.insert("key", "value");
            call.head.metadata.insert("key-bin", &[0, 1, 2][..]);
            call.credential = Credential::Call(Some(Bytes::from_static(b"it is me")));
            call.timeout = Some(Duration::from_millis(500));
        }
        let opens = self.scenario.has(OPENS) && !(self.scenario.has(MIXED) && id.0.is_multiple_of(2));
        // The server may accept no more calls.
        let sent = match opens {
            true => self.session.open(id, call, &mut self.out),
            false => self.session.send(id, Call { body: self.body(), ..call }, &mut self.out),
        };
        if sent.is_err() {
            return;
        }
        self.waiting.insert(id);
        if opens {
            self.session.send_message(id, self.body(), &mut self.out);
        }
    }

    fn body(&self) -> Bytes {
        let length = if self.scenario.has(LONG) { 40_000 } else { 100 };
        vec![b'.'; length].into()
    }

    /// Once all calls are cancelled, no state is left.
    fn cancel_all(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            self.session.cancel(id, &mut self.out);
        }
        self.session.assert_sound();
        assert_eq!(self.session.ids(), [0; 0]);
    }
}

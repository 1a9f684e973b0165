//! Client sessions, fed with arbitrary responses.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::session::{Client, ClientEvent};
use polyrpc_core::{Call, CallId, Compression, Credential, Format, Json, Message, Outbox, Violation};
use polyrpc_wire::connect::UnaryMethod;
use polyrpc_wire::{baidu_std, fb_rpc, grpc_web, http, net_rpc, rest_rpc, rpcx};

use super::server::version;
use super::{LIMITS, STREAMS, Scenario, assert_bounded_input, assert_bounded_output};

/// Bytes for [`baidu_std::Client`].
pub fn baidu_std_client(input: &[u8]) {
    let config = || baidu_std::ClientConfig {
        limits: LIMITS,
        deliver_timeout: true,
        streams: STREAMS,
        ..<_>::default()
    };
    assert_same_for_any_split(|_| baidu_std::Client::new(config()), input);
}

/// Bytes for [`rpcx::Client`].
pub fn rpcx_client(input: &[u8]) {
    let config = || rpcx::ClientConfig { limits: LIMITS, ..<_>::default() };
    assert_same_for_any_split(|_| rpcx::Client::new(config()), input);
}

/// Bytes for [`fb_rpc::Client`].
pub fn fb_rpc_client(input: &[u8]) {
    let config = || fb_rpc::ClientConfig { limits: LIMITS, ..<_>::default() };
    assert_same_for_any_split(|_| fb_rpc::Client::new(config()), input);
}

/// Bytes for [`http::Client`], optionally with JSON-RPC.
pub fn http_client(input: &[u8]) {
    let config = |json_rpc| http::ClientConfig { limits: LIMITS, json_rpc, ..<_>::default() };
    assert_same_for_any_split(|scenario| http::Client::new(config(scenario.has(JSON_RPC))), input);
}

/// Bytes for [`grpc_web::Client`].
pub fn grpc_web_client(input: &[u8]) {
    let config = || grpc_web::ClientConfig { limits: LIMITS, ..<_>::default() };
    assert_same_for_any_split(|_| grpc_web::Client::new(config()), input);
}

/// Bytes for [`grpc_web::Client`] with Connect; it has an open stream, or makes unary calls by POST or GET.
pub fn connect_client(input: &[u8]) {
    let new = |scenario: Scenario| {
        let method = if scenario.has(JSON_RPC) { UnaryMethod::Get } else { UnaryMethod::Post };
        let config =
            grpc_web::ClientConfig { limits: LIMITS, framing: Some(method.into()), ..<_>::default() };
        let mut client = grpc_web::Client::new(config);
        if scenario.has(OPENS) {
            let call = Call::new("example.EchoService", "Echo", Format::Protobuf, Bytes::new());
            let _ = client.open(CallId(1000), call, &mut Outbox::new());
        }
        client
    };
    match Scenario::read(input) {
        // If a stream ends in a malformed body, earlier messages are reported only if the body is split after them.
        Some((scenario, bytes)) if scenario.has(OPENS) => {
            let message = || (Format::Protobuf, Bytes::from_static(b"{}"));
            Connection::new(new(scenario), scenario, message()).feed(&[bytes]);
            Connection::new(new(scenario), scenario, message()).feed(&scenario.cut(bytes));
        }
        _ => assert_same_for_any_split(new, input),
    }
}

/// Bytes for [`rest_rpc::Client`] of the version chosen by the first byte. It has a subscription, if supported.
pub fn rest_rpc_client(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else { return };
    let config = rest_rpc::ClientConfig { limits: LIMITS, version: version(*choice) };
    let subscribed = |_| {
        let mut client = rest_rpc::Client::new(config.clone());
        let _ = client.subscribe(CallId(1000), "key", "", &mut Outbox::new());
        client
    };
    assert_same_for_any_split(subscribed, input);
}

/// Bytes for [`net_rpc::Client`], after one that selects the codec, and whether HTTP CONNECT comes first.
pub fn net_rpc_client(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else { return };
    let codec = net_rpc::Codec::ALL.into_iter().cycle().nth((choice & 0x7f).into()).unwrap_or_default();
    let connect = (choice & 0x80 != 0).then(|| net_rpc::CONNECT_PATH.to_owned());
    let config = net_rpc::ClientConfig { limits: LIMITS, codec, connect, ..<_>::default() };
    let message: &[u8] = match codec {
        net_rpc::Codec::Gob => b"\x03\x04\x00\x02",
        net_rpc::Codec::MessagePack => b"\x01",
        net_rpc::Codec::Bson => b"\x05\0\0\0\0",
        _ => b"{}",
    };
    assert_same_for_any_split_of(codec.format(), message, |_| net_rpc::Client::new(config.clone()), input);
}

/// Calls use JSON-RPC, if the protocol supports it.
const JSON_RPC: u8 = 1;
/// The messages are compressed.
const COMPRESSES: u8 = 1 << 1;
/// Calls carry metadata, a credential and a timeout.
const WITH_METADATA: u8 = 1 << 2;
/// Calls are oneway.
const ONEWAY: u8 = 1 << 3;
/// Calls are cancelled as soon as they are made.
const CANCELS: u8 = 1 << 4;

/// Each call has two attached streams that echo messages.
const OPENS: u8 = 1 << 5;

/// Asserts that a client produces the same events for the bytes of `input` unsplit and split.
fn assert_same_for_any_split<C: Client>(new: impl Fn(Scenario) -> C, input: &[u8]) {
    let Some((scenario, _)) = Scenario::read(input) else { return };
    let format = if scenario.has(JSON_RPC) { Format::Json(Json::Go) } else { Format::Protobuf };
    assert_same_for_any_split_of(format, b"{}", new, input);
}

/// Like [`assert_same_for_any_split`], for a client whose calls carry `message`.
fn assert_same_for_any_split_of<C: Client>(
    format: Format,
    message: &'static [u8],
    new: impl Fn(Scenario) -> C,
    input: &[u8],
) {
    let Some((scenario, bytes)) = Scenario::read(input) else { return };
    let message = (format, Bytes::from_static(message));
    let whole = Connection::new(new(scenario), scenario, message.clone()).feed(&[bytes]);
    let cut = Connection::new(new(scenario), scenario, message).feed(&scenario.cut(bytes));
    assert_eq!(cut, whole);
}

/// The events of a session for some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct ObservedEvents {
    answers: Vec<String>,
    out: Vec<u8>,
    violation: Option<Violation>,
}

struct Connection<C> {
    session: C,
    scenario: Scenario,
    message: (Format, Bytes),
    inbox: BytesMut,
    out: Outbox,
    observed: ObservedEvents,
    calls: u64,
    fed: usize,
}

impl<C: Client> Connection<C> {
    /// A connection with the maximum number of pending calls.
    fn new(session: C, scenario: Scenario, message: (Format, Bytes)) -> Self {
        let (inbox, out, observed) = (BytesMut::new(), Outbox::new(), ObservedEvents::default());
        let mut connection = Self { session, scenario, message, inbox, out, observed, calls: 0, fed: 0 };
        connection.session.heartbeat(&mut connection.out);
        for _ in 0..connection.session.concurrency().min(4) {
            connection.call();
        }
        connection
    }

    fn feed(mut self, chunks: &[&[u8]]) -> ObservedEvents {
        for chunk in chunks {
            self.inbox.extend_from_slice(chunk);
            self.fed += chunk.len();
            self.pull();
            if self.observed.violation.is_some() {
                break;
            }
        }
        if self.observed.violation.is_none()
            && let Some(last) = self.session.end_of_stream(&mut self.inbox)
        {
            self.record(&last);
        }
        self.observed.out = self.out.take();
        self.observed
    }

    fn pull(&mut self) {
        loop {
            match self.session.next_event(&mut self.inbox, &mut self.out) {
                Ok(Some(answer)) => {
                    self.record(&answer);
                    match answer {
                        ClientEvent::Reply(..) if self.session.is_reusable() => self.call(),
                        ClientEvent::Message(id, message) => self.echo(id, message),
                        _ => {}
                    }
                }
                Ok(None) => return assert_bounded_input(self.session.bytes_needed(), self.inbox.len()),
                Err(violation) => return self.observed.violation = Some(violation),
            }
            assert_bounded_output(self.out.len(), self.fed);
        }
    }

    fn echo(&mut self, id: CallId, message: Message) {
        let streaming = self.session.streaming().expect("messages are of opened calls");
        streaming.record_consumed(id, message.body.len(), &mut self.out);
        if streaming.has_room(id) && streaming.is_writable(id) {
            streaming.send_message(id, message.body, &mut self.out);
        }
    }

    fn record(&mut self, answer: &ClientEvent) {
        self.observed.answers.push(format!("{answer:?}"));
    }

    fn call(&mut self) {
        // As many as the allowance for unsolicited output covers.
        if self.calls == 32 {
            return;
        }
        let id = CallId(self.calls);
        self.calls += 1;
        let (format, message) = self.message.clone();
        let mut call = Call::new("example.EchoService", "Echo", format, message);
        call.oneway = self.scenario.has(ONEWAY);
        if self.scenario.has(COMPRESSES) {
            call.head.compression = Compression::Gzip;
        }
        if self.scenario.has(WITH_METADATA) {
            call.head.metadata.insert("key", "value");
            call.credential = Credential::Call(Some(Bytes::from_static(b"it is me")));
            call.timeout = Some(Duration::from_millis(500));
        }
        // JSON-RPC has no compression, and rejects it.
        let sent = match (self.scenario.has(OPENS), self.session.streaming()) {
            (true, Some(streaming)) => {
                let streams = [CallId(id.0 + 100), CallId(id.0 + 200)];
                streaming.send_with_streams(id, call, &streams, &Default::default(), &mut self.out)
            }
            (true, None) => return,
            (false, _) => self.session.send(id, call, &mut self.out),
        };
        if sent.is_ok() && self.scenario.has(CANCELS) {
            self.session.cancel(id, &mut self.out);
        }
    }
}

//! The servers' sessions, driven as a connection drives them.

use std::sync::Arc;

use bytes::BytesMut;
use polyrpc_core::session::server::{Streaming as _, Ticket as _};
use polyrpc_core::session::{Server, ServerEvent, Verdict};
use polyrpc_core::testing::{RecordedEvents, describe_call, describe_event};
use polyrpc_core::{Call, Detection, Message, Metadata, Outbox, Push, Reply, Status, StreamId};
use polyrpc_wire::Protocol;
use polyrpc_wire::rest_rpc::Version;
use polyrpc_wire::{baidu_std, fb_rpc, http, http_server, net_rpc, rest_rpc, rpcx, sniff};

use super::{LIMITS, STREAMS, Scenario, assert_bounded_input, assert_bounded_output};

/// Bytes for [`baidu_std::Server`].
pub fn baidu_std_server(input: &[u8]) {
    serve(baidu_std, Some(Protocol::BaiduStd), input);
}

/// Bytes for [`rpcx::Server`].
pub fn rpcx_server(input: &[u8]) {
    serve(rpcx, Some(Protocol::Rpcx), input);
}

/// Bytes for [`fb_rpc::Server`].
pub fn fb_rpc_server(input: &[u8]) {
    serve(fb_rpc, Some(Protocol::FbRpc), input);
}

/// Bytes for [`rest_rpc::Server`] of the version chosen by the first byte.
pub fn rest_rpc_server(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else { return };
    serve(|| rest_rpc(version(*choice)), None, input);
}

/// Bytes for [`net_rpc::Server`], after one that selects the configured codec; values beyond the codecs mean none.
pub fn net_rpc_server(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else { return };
    let codec = net_rpc::Codec::ALL.get(usize::from(choice) % (net_rpc::Codec::ALL.len() + 1)).copied();
    let own = codec.is_none().then_some(Protocol::NetRpc);
    serve(|| net_rpc(codec), own, input);
}

/// Bytes for [`http_server::h1::Server`]. After a `CONNECT`, it leaves to another protocol what may also be HTTP.
pub fn http_server(input: &[u8]) {
    serve(http, None, input);
}

/// A JSON-RPC body for [`http_server::h1::Server`].
pub fn json_rpc(input: &[u8]) {
    let Some((scenario, body)) = input.split_first_chunk::<2>() else { return };
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json-rpc\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    http_server(&[scenario, head.as_bytes(), body].concat());
}

/// A Connect body or query for [`http_server::h1::Server`], after a byte that selects the kind.
pub fn connect_server(input: &[u8]) {
    let Some((scenario, [choice, rest @ ..])) = input.split_first_chunk::<2>() else { return };
    let length = rest.len();
    let (head, body) = match choice % 4 {
        0 => (post("application/connect+proto", length), rest),
        1 => (post("application/json\r\nConnect-Protocol-Version: 1", length), rest),
        2 => (post("application/json\r\nAccept: application/x-ndjson", length), rest),
        _ => (get(rest), &[][..]),
    };
    serve(connect, None, &[scenario, &head[..], body].concat());
}

fn post(fields: &str, length: usize) -> Vec<u8> {
    let line = "POST /example.EchoService/Echo HTTP/1.1\r\nHost: a\r\nContent-Type: ";
    format!("{line}{fields}\r\nContent-Length: {length}\r\n\r\n").into()
}

fn get(query: &[u8]) -> Vec<u8> {
    let head = &b"GET /example.EchoService/Echo?connect=v1&"[..];
    [head, query, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat()
}

/// A server whose method has no side effects, so that a GET calls it.
fn connect() -> http_server::h1::Server {
    let mut config = http::ServerConfig { limits: LIMITS, ..<_>::default() };
    config.routes.declare_no_side_effects("example.EchoService", "Echo");
    http_server::h1::Server::new(Arc::new(config))
}

pub(super) fn baidu_std() -> baidu_std::Server {
    baidu_std::Server::new(Arc::new(baidu_std::ServerConfig {
        limits: LIMITS,
        streams: STREAMS,
        ..<_>::default()
    }))
}

pub(super) fn rpcx() -> rpcx::Server {
    rpcx::Server::new(Arc::new(rpcx::ServerConfig { limits: LIMITS, ..<_>::default() }))
}

pub(super) fn fb_rpc() -> fb_rpc::Server {
    fb_rpc::Server::new(Arc::new(fb_rpc::ServerConfig { limits: LIMITS, ..<_>::default() }))
}

pub(super) fn rest_rpc(version: Version) -> rest_rpc::Server {
    let mut functions = rest_rpc::Functions::default();
    functions.add("", "echo");
    let config = rest_rpc::ServerConfig { limits: LIMITS, functions };
    rest_rpc::Server::new(Arc::new(config), version)
}

/// One of all versions.
pub(super) fn version(choice: u8) -> Version {
    let all = Version::ALL;
    all.get(usize::from(choice) % all.len()).copied().unwrap_or_default()
}

pub(super) fn net_rpc(codec: Option<net_rpc::Codec>) -> net_rpc::Server {
    net_rpc::Server::new(Arc::new(net_rpc::ServerConfig { limits: LIMITS, codec }))
}

pub(super) fn grpc() -> http_server::h2::Server {
    http_server::h2::Server::new(Arc::new(http_server::h2::ServerConfig { limits: LIMITS, ..<_>::default() }))
}

pub(super) fn http() -> http_server::h1::Server {
    http_server::h1::Server::new(Arc::new(http::ServerConfig { limits: LIMITS, ..<_>::default() }))
}

/// Every call fails.
const FAILS: u8 = 1;
/// The credential of the first call is rejected.
const REFUSES: u8 = 1 << 1;
/// The server starts draining at the second call.
const DRAINS: u8 = 1 << 2;
/// A message is pushed at every fourth call.
const PUSHES: u8 = 1 << 3;
/// Offered streams are accepted, and their messages echoed.
const ACCEPTS: u8 = 1 << 7;
/// Number of calls that stay unanswered before the newest is answered first.
const HOLDS: u8 = 7 << 4;

/// Asserts that a server produces the same events for `input` unsplit and split, and that what it leaves to
/// another protocol is not of its `own`.
fn serve<S: Server>(new: impl Fn() -> S, own: Option<Protocol>, input: &[u8]) {
    let Some((scenario, bytes)) = Scenario::read(input) else { return };
    drive(&new, own, scenario, bytes);
}

/// Like `serve`, with the given scenario.
pub(super) fn drive<S: Server>(
    new: &impl Fn() -> S,
    own: Option<Protocol>,
    scenario: Scenario,
    bytes: &[u8],
) {
    let whole = Connection::new(new(), scenario).feed(&[bytes]);
    let cut = Connection::new(new(), scenario).feed(&scenario.cut(bytes));
    assert_eq!(cut, whole);
    if let (true, Some(own), Some(rest)) = (whole.0.foreign, own, bytes.get(whole.1..)) {
        assert_ne!(
            sniff::sniff(rest, &[own]),
            Detection::Is(own),
            "it would be given to the same session again"
        );
    }
}

/// The events of a session for some bytes.
pub(super) fn events<S: Server>(session: S, scenario: Scenario, bytes: &[u8]) -> RecordedEvents {
    Connection::new(session, scenario).feed(&[bytes]).0
}

/// The events of a session for some bytes, and the number of consumed bytes.
type ServerRun = (RecordedEvents, usize);

struct Connection<S: Server> {
    session: S,
    scenario: Scenario,
    inbox: BytesMut,
    out: Outbox,
    owed: Vec<(S::Ticket, Reply)>,
    /// Streams that were accepted.
    streams: Vec<S::Ticket>,
    observed: RecordedEvents,
    fed: usize,
    /// The server closes the connection.
    refused: bool,
}

impl<S: Server> Connection<S> {
    fn new(session: S, scenario: Scenario) -> Self {
        Self {
            session,
            scenario,
            inbox: BytesMut::new(),
            out: Outbox::new(),
            owed: Vec::new(),
            streams: Vec::new(),
            observed: RecordedEvents::default(),
            fed: 0,
            refused: false,
        }
    }

    fn feed(mut self, chunks: &[&[u8]]) -> ServerRun {
        for chunk in chunks {
            self.inbox.extend_from_slice(chunk);
            self.fed += chunk.len();
            self.pull();
            if self.is_over() {
                break;
            }
        }
        while !self.owed.is_empty() {
            self.answer_until(0);
            self.pull();
        }
        let taken = if self.is_violated() { 0 } else { self.fed - self.inbox.len() };
        self.observed.out = self.out.take();
        (self.observed, taken)
    }

    fn pull(&mut self) {
        while !self.is_over() {
            match self.session.next_event(&mut self.inbox, &mut self.out) {
                Ok(Some(ServerEvent::Call(call, ticket))) => {
                    let call = Call { authenticated: false, ..call };
                    self.observed.calls.push(describe_call(&call));
                    let reply = reply(&call, self.scenario);
                    self.handle(ticket, reply);
                }
                Ok(Some(ServerEvent::Open(call, ticket, stream))) => {
                    let call = Call { authenticated: false, ..call };
                    self.observed.calls.push(describe_event(&ServerEvent::Open(call, ticket, stream)));
                }
                Ok(Some(
                    ServerEvent::Foreign
                    | ServerEvent::Connect
                    | ServerEvent::Upgrade(_)
                    | ServerEvent::WebSocket,
                )) => self.observed.foreign = true,
                // Whether a head is reported before its body depends on how the bytes were split.
                Ok(Some(ServerEvent::Head(_, stream))) => {
                    self.refused |= self.session.apply_verdict(stream, Verdict::Accepted, &mut self.out);
                }
                Ok(Some(event)) => {
                    self.observed.calls.push(describe_event(&event));
                    match event {
                        ServerEvent::Message(stream, message) => self.echo(stream, message),
                        ServerEvent::End(stream) => self.end(stream),
                        _ => {}
                    }
                }
                Err(violation) => self.observed.violation = Some(violation),
                Ok(None) => {
                    // Delayed responses may block the session.
                    if self.owed.is_empty() {
                        assert_bounded_input(self.session.bytes_needed(), self.inbox.len());
                    }
                    break;
                }
            }
            assert_bounded_output(self.out.len(), self.fed);
        }
    }

    /// Nothing here may depend on how the bytes were split, only on earlier events of the session.
    fn handle(&mut self, ticket: S::Ticket, reply: Reply) {
        let number = self.observed.calls.len();
        if number == 1 && self.scenario.has(REFUSES) {
            self.refused = self.session.reject(ticket, Status::unauthenticated("not you"), &mut self.out);
        } else if self.scenario.has(ACCEPTS) && ticket.offered_streams().is_some() {
            self.accept(ticket, reply);
        } else {
            self.owed.push((ticket, reply));
        }
        if number == 2 && self.scenario.has(DRAINS) {
            self.session.drain(&mut self.out);
        }
        if number.is_multiple_of(4) && self.scenario.has(PUSHES) {
            // Most protocols cannot push.
            if let Some(pushing) = self.session.pushing() {
                let _ = pushing.push(push(), &mut self.out);
            }
        }
        self.answer_until(usize::from((self.scenario.bits & HOLDS) >> 4));
    }

    fn accept(&mut self, mut ticket: S::Ticket, reply: Reply) {
        if let Some(streaming) = self.session.streaming() {
            self.streams.extend(streaming.accept_streams(&mut ticket, &Default::default()));
        }
        self.session.reply(ticket, reply, &mut self.out);
    }

    fn echo(&mut self, stream: StreamId, message: Message) {
        let streaming = self.session.streaming().expect("messages are of streams");
        streaming.record_consumed(stream, message.body.len(), &mut self.out);
        if streaming.has_room(stream) {
            streaming.send_message(stream, message.body, &mut self.out);
        }
    }

    fn end(&mut self, stream: StreamId) {
        let Some(at) = self.streams.iter().position(|ticket| ticket.stream() == Some(stream)) else {
            return;
        };
        let ticket = self.streams.swap_remove(at);
        let streaming = self.session.streaming().expect("it is a stream");
        streaming.finish(ticket, Ok(()), Metadata::new(), &mut self.out);
    }

    fn answer_until(&mut self, held: usize) {
        while self.owed.len() > held {
            let Some((ticket, reply)) = self.owed.pop() else { break };
            self.session.reply(ticket, reply, &mut self.out);
        }
        assert_bounded_output(self.out.len(), self.fed);
    }

    fn is_violated(&self) -> bool {
        self.observed.violation.is_some()
    }

    fn is_over(&self) -> bool {
        self.refused || self.observed.foreign || self.is_violated()
    }
}

/// The response that echoes a call, or rejects it.
fn reply(call: &Call<'_>, scenario: Scenario) -> Reply {
    let result = match (&call.malformed, scenario.has(FAILS)) {
        (Some(malformed), _) => Err(malformed.clone()),
        (None, true) => Err(Status::internal("no").with_number(4321)),
        (None, false) => Ok(call.body.clone()),
    };
    Reply { attachment: call.attachment.clone(), ..Reply::new(result, call.head.clone()) }
}

fn push() -> Push {
    let metadata: Metadata = [("key", "value")].into_iter().collect();
    Push { service: "service".into(), method: "method".into(), metadata, body: "body".into() }
}

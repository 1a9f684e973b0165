//! Session state of both sides of a connection, for all codecs.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::server::Incomplete;
use polyrpc_core::session::{ClientEvent, NotFound, Refusals, ServerEvent};
use polyrpc_core::{
    Call, CallId, Compression, Credential, Detection, Format, Head, Limits, Outbox, Reply, Status, Violation,
    session,
};

use super::codec::Codec;
use super::credential::{SEPARATOR, SignedName, sign};
use super::frame::{Failure, FrameCodec, Outgoing, Request, Tag, frame_codec};
use super::http_handshake::HttpHandshake;
use super::pending_calls::PendingCalls;
use super::status;
use crate::failure_text::shorten;

/// The server's side of a connection.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// `None` until the codec was detected from the first bytes.
    state: Option<CodecState>,
    /// The name that the last event borrows.
    method: Bytes,
    draining: bool,
}

/// Settings shared by all connections of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Limits of a connection.
    pub limits: Limits,
    /// The codec; `None`: detected from the first bytes of a connection, which works for gob, JSON and MessagePack.
    pub codec: Option<Codec>,
}

#[derive(Debug)]
struct CodecState {
    codec: Codec,
    frame_codec: Box<dyn FrameCodec>,
}

impl CodecState {
    fn new(codec: Codec, limits: &Limits) -> Self {
        Self { codec, frame_codec: frame_codec(codec, limits) }
    }
}

impl Server {
    /// Creates the state of a newly accepted connection.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        let state = config.codec.map(|codec| CodecState::new(codec, &config.limits));
        Self { config, state, method: Bytes::new(), draining: false }
    }

    /// Detects the codec, if that was not done yet.
    fn listen(&mut self, inbox: &BytesMut) -> Detection<Codec> {
        if let Some(state) = &self.state {
            return Detection::Is(state.codec);
        }
        let detected = Codec::recognise(inbox);
        if let Detection::Is(codec) = detected {
            self.state = Some(CodecState::new(codec, &self.config.limits));
        }
        detected
    }

    fn next_request(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Result<Option<Request>, Violation> {
        let Some(state) = &mut self.state else { return Ok(None) };
        while let Some(request) = state.frame_codec.next_request(inbox)? {
            if !self.draining {
                return Ok(Some(request));
            }
            let SignedName { method, .. } = SignedName::read(request.name);
            fail(&mut *state.frame_codec, &Tag { method, id: request.id }, &status::shutting_down(), out);
        }
        Ok(None)
    }
}

impl session::Server for Server {
    type Ticket = Ticket;

    /// Go's `rpc.Client` fails every call after that with `connection is shut down`.
    const RECONNECTS: bool = false;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        // Released first: an idle connection keeps no message, and the inbox may reuse its memory.
        self.method = Bytes::new();
        let codec = match self.listen(inbox) {
            Detection::Is(codec) => codec,
            Detection::NeedMore => return Ok(None),
            Detection::Unknown => return Ok(Some(ServerEvent::Foreign)),
        };
        let Some(request) = self.next_request(inbox, out)? else { return Ok(None) };
        let Request { name, id, body, positional, malformed } = request;
        let SignedName { method, credential } = SignedName::read(name);
        self.method = method.clone();
        let ticket = Ticket { tag: Tag { method, id }, signed: credential.is_some() };
        let (service, method) = names(&self.method);
        let format = codec.format();
        let call = Call {
            head: Head { format, positional, ..Head::default() },
            credential: Credential::Call(credential),
            malformed,
            ..Call::new(service, method, format, body)
        };
        Ok(Some(ServerEvent::Call(call, ticket)))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        let Some(CodecState { codec, frame_codec }) = &mut self.state else { return };
        let written = match reply.result {
            Ok(_) if !codec.carries(reply.head.format) => Err(foreign_reply(*codec, reply.head.format)),
            Ok(body) => frame_codec.response(&ticket.tag, Ok(body), out),
            Err(status) => Err(status),
        };
        if let Err(status) = written {
            fail(&mut **frame_codec, &ticket.tag, &status, out);
        }
    }

    fn reject(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        let status = match ticket.signed {
            true => status,
            false => status::unsigned(&String::from_utf8_lossy(&ticket.tag.method)),
        };
        self.reply(ticket, Reply::failure(status), out);
        // rpcx v1.1 closes the connection without a response: `net/rpc` treats the header as malformed.
        true
    }

    fn bytes_needed(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.frame_codec.bytes_needed())
    }

    fn drain(&mut self, _out: &mut Outbox) {
        self.draining = true;
    }
}

impl session::server::Housekeeping for Server {
    fn incomplete(&self, inbox: &BytesMut) -> Option<Incomplete> {
        let is_mid_message =
            self.state.as_ref().map_or(!inbox.is_empty(), |state| state.frame_codec.is_mid_message(inbox));
        is_mid_message.then_some(Incomplete::Message)
    }

    fn take_refusals(&mut self) -> Option<Refusals> {
        self.state.as_mut()?.frame_codec.take_refusals()
    }

    fn buffered(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.frame_codec.held())
    }
}

/// Data needed to answer a call.
#[derive(Debug)]
pub struct Ticket {
    tag: Tag,
    /// The call has a credential.
    signed: bool,
}

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, call: &Call<'_>, missing: NotFound) -> Status {
        status::not_found(call, missing)
    }
}

/// Answers with a failure, which every codec can encode.
fn fail(frame_codec: &mut dyn FrameCodec, tag: &Tag, failure: &Status, out: &mut Outbox) {
    let text = shorten(status::write(failure));
    let _ = frame_codec.response(tag, Err(&text), out);
}

/// Returns service and method: the parts before and after the last dot. A name without a dot is a plain function's, and
/// so is one with nothing before its only dot, since no service has an empty name; a name that is not UTF-8 becomes one
/// that cannot exist.
fn names(name: &[u8]) -> (&str, &str) {
    let name = std::str::from_utf8(name).unwrap_or("\u{fffd}");
    name.rsplit_once('.').filter(|(service, _)| !service.is_empty()).unwrap_or(("", name))
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    frame_codec: Box<dyn FrameCodec>,
    handshake: HttpHandshake,
    outstanding: PendingCalls,
    /// Name of the last call sent, in a reused buffer.
    name: String,
    /// A one-way call was sent, or is buffered until the handshake is complete.
    sent_oneway: bool,
}

/// Settings of a client's connection.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Limits of a connection.
    pub limits: Limits,
    /// The codec.
    pub codec: Codec,
    /// Path of the `CONNECT` request that starts the connection, if it starts with HTTP:
    /// [`CONNECT_PATH`](super::CONNECT_PATH).
    pub connect: Option<String>,
    /// Credential sent with every call, unless the call has its own. Servers of Go's `net/rpc` do not support
    /// credentials; those of rpcx v1.1 do.
    pub credential: Option<Bytes>,
}

impl Client {
    /// Creates the state of a newly established connection.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            frame_codec: frame_codec(config.codec, &config.limits),
            handshake: HttpHandshake::new(config.connect.as_deref()),
            outstanding: PendingCalls::default(),
            name: String::new(),
            sent_oneway: false,
            config,
        }
    }

    /// Checks that another call may be buffered until the handshake is complete: a server that never answers would make
    /// the client hold every call that has timed out.
    fn check_capacity(&self) -> Result<(), Status> {
        match self.handshake.held() < MAX_WAITING {
            true => Ok(()),
            false => Err(Status::resource_exhausted("too much data waits for the response to CONNECT")),
        }
    }

    /// Builds the call's name, including the credential.
    fn write_name(&mut self, call: &Call<'_>) -> Result<(), Status> {
        self.name.clear();
        if !call.service.is_empty() {
            self.name.push_str(call.service);
            self.name.push('.');
        }
        self.name.push_str(call.method);
        match call.credential.bytes().or(self.config.credential.as_ref()) {
            Some(credential) => sign(&mut self.name, credential),
            None => Ok(()),
        }
    }

    fn reply(&self, result: Result<Bytes, Failure>) -> Reply {
        let head = Head { format: self.config.codec.format(), ..Head::default() };
        let status = |failure| match failure {
            Failure::Text(text) => status::read(&String::from_utf8_lossy(&text)),
            Failure::TooLong(status) => status,
        };
        Reply::new(result.map_err(status), head)
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        check(&call, self.config.codec)?;
        self.check_capacity()?;
        self.write_name(&call)?;
        let (number, positional) = (self.outstanding.next(), call.head.positional);
        let outgoing = Outgoing { name: &self.name, number, body: call.body, positional };
        self.frame_codec.request(outgoing, self.handshake.outbox(out))?;
        // Every call is answered; the response to a oneway call is dropped.
        self.outstanding.record_sent((!call.oneway).then_some(id));
        self.sent_oneway |= call.oneway;
        Ok(())
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        if !self.handshake.take(inbox, out, self.config.limits.header)? {
            return Ok(None);
        }
        while let Some(response) = self.frame_codec.next_response(inbox)? {
            let id = response.number.and_then(|number| self.outstanding.end(number));
            if let Some(id) = id {
                return Ok(Some(ClientEvent::Reply(id, self.reply(response.result))));
            }
        }
        Ok(None)
    }

    fn cancel(&mut self, id: CallId, _out: &mut Outbox) {
        self.outstanding.forget(id);
    }

    fn bytes_needed(&self) -> usize {
        self.frame_codec.bytes_needed()
    }

    /// No caller waits for a one-way call: without this, a connection that is to be closed would drop it. Other calls are
    /// awaited, or were given up.
    fn has_pending_output(&self) -> bool {
        self.sent_oneway && self.handshake.held() > 0
    }

    fn unsent(&self) -> usize {
        self.handshake.held()
    }

    fn is_reusable(&self) -> bool {
        !self.frame_codec.is_spent()
    }
}

/// Limit of buffered bytes while the response to `CONNECT` is awaited.
const MAX_WAITING: usize = 4 << 20;

/// Checks that the protocol can express everything the call requires.
fn check(call: &Call<'_>, codec: Codec) -> Result<(), Status> {
    let missing = if call.service.is_empty() && call.method.is_empty() {
        "net/rpc has no call without a name"
    } else if !call.attachment.is_empty() {
        "net/rpc has no attachments"
    } else if !call.head.metadata.is_empty() {
        "net/rpc has no metadata"
    } else if call.head.compression != Compression::None {
        "net/rpc has no compression"
    } else if [call.service, call.method].iter().any(|name| name.as_bytes().contains(&SEPARATOR)) {
        "a name of net/rpc has no unit separators"
    } else if !codec.carries(call.head.format) {
        return Err(foreign_call(codec, call.head.format));
    } else {
        return Ok(());
    };
    Err(Status::invalid_argument(missing))
}

#[cold]
fn foreign_call(codec: Codec, format: Format) -> Status {
    let (codec, format) = (codec.as_str(), format.as_str());
    Status::invalid_argument(format!(
        "this connection uses {codec}, which cannot carry a message in {format}"
    ))
}

#[cold]
fn foreign_reply(codec: Codec, format: Format) -> Status {
    let (codec, format) = (codec.as_str(), format.as_str());
    Status::internal(format!("the connection uses {codec}, which cannot carry a reply in {format}"))
}

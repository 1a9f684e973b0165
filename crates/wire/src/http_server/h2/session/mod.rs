//! Server session of a connection. [`web`] contains the differences of gRPC's web dialects, [`http`] the requests
//! other than gRPC.

mod clock;
mod exchange;
mod fallback_request;
mod head_cache;
mod held_requests;
mod http;
mod open_requests;
mod web;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::server::{BodyConversion, Incomplete, KeepReason, Streaming as _};
use polyrpc_core::session::{NotFound, RefusalCause, ServerEvent, UnreportedRefusals, Verdict};
use polyrpc_core::{
    Call, Carrier, Code, Compression, Credential, Format, Head, Limits, Message, Metadata, Outbox, Reply,
    Retry, Status, StreamId, Violation, session,
};

use self::clock::Clock;
use self::head_cache::HeadCache;
use self::held_requests::{HeldRequest, HeldRequests};
use self::http::Head as HttpHead;
use self::http::{Calls, PendingResponse};
use self::open_requests::OpenRequests;
use self::web::WebResponse;
use super::Methods;
use crate::grpc::dialect::Dialect;
use crate::grpc::frame::{self, ReceivedMessage};
use crate::grpc::framing::{Framing, ResponseBody};
use crate::grpc::incoming::{self, Next, compressed_without_name};
use crate::grpc::request::{AcceptedCompressions, InvalidRequest, Request, two_credentials};
use crate::grpc::{block, coding, status};
use crate::http::h2::hpack::Fields;
use crate::http::h2::{self, Connection, ErrorCode};
use crate::http::mapping::content_type::is_grpc;
use crate::http::{Cors, ServerConfig as HttpConfig};
use crate::http_server::{Upgrade, request};

/// Settings shared by all connections of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Limits of a call. [`Limits::message`] bounds each message as it arrives.
    pub limits: Limits,
    /// Limits of the HTTP/2 connection.
    pub http: Arc<h2::Config>,
    /// The origins of pages that may call by gRPC-Web.
    pub cors: Cors,
    /// Mapping of requests other than gRPC, as over HTTP/1, if they are supported.
    pub gateway: Option<Arc<HttpConfig>>,
    /// The methods that take one message. A call of another method is opened as soon as its head has arrived.
    pub methods: Methods,
    /// An accepted credential applies to later gRPC calls of the connection without one, as for brpc's client.
    pub trust_connection: bool,
}

/// Server session of a connection.
#[derive(Debug)]
pub struct Server {
    pub(super) config: Arc<ServerConfig>,
    pub(super) http: Connection<ResponseState>,
    recent: HeadCache,
    /// The head of the call emitted last, which borrows its names.
    current: Option<Arc<Request>>,
    /// Requests that have not been emitted yet.
    pub(super) parts: HeldRequests,
    /// Requests that are not complete.
    pub(super) open: OpenRequests,
    /// State of requests other than gRPC.
    http_calls: Calls,
    /// The stream whose messages are being emitted.
    taking: Option<u32>,
    /// Time of the first tick after a graceful shutdown was started.
    shutdown_started: Option<Duration>,
    /// Number of requests that timed out.
    timed_out: u64,
    unreported_refusals: UnreportedRefusals,
}

/// An incomplete request.
#[expect(
    clippy::large_enum_variant,
    reason = "gRPC is the usual case: a box would cost each request an allocation"
)]
#[derive(Debug)]
pub(super) enum Incoming {
    Messages(Messages),
    /// A request other than gRPC.
    Http(Box<http::Incoming>),
}

impl Incoming {
    /// Returns the number of buffered bytes that were not emitted.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Messages(incoming) => incoming.messages.held(),
            Self::Http(incoming) => incoming.held(),
        }
    }

    /// Whether one of its messages is incomplete. Between the messages of a stream, none is; before the only message of
    /// a call, it is.
    fn is_incomplete(&self) -> bool {
        match self {
            Self::Messages(Messages { messages, has_unary_request, .. }) => {
                !messages.has_ended() && (*has_unary_request || messages.held() > 0)
            }
            Self::Http(incoming) => incoming.is_incomplete(),
        }
    }

    fn clock(&mut self) -> Option<&mut Clock> {
        match self {
            Self::Messages(incoming) => Some(&mut incoming.clock),
            Self::Http(incoming) => incoming.clock(),
        }
    }
}

/// The messages of a request.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) messages: incoming::Incoming,
    /// Bytes of an incomplete message already credited to the peer.
    advanced: usize,
    /// The method takes one message.
    has_unary_request: bool,
    /// Timer of the next message.
    clock: Clock,
}

/// The call that a response belongs to.
#[derive(Debug)]
pub struct Ticket {
    stream: u32,
    /// Form of the response, if it is not that of gRPC or gRPC-Web. Boxed, since every call moves its ticket around,
    /// and most have none.
    form: Option<Box<Form>>,
}

/// Form of a response.
#[derive(Debug)]
enum Form {
    /// The call's dialect has a framing of its own.
    Framed(&'static dyn Framing),
    /// The request is not one of gRPC.
    Http(PendingResponse),
}

impl Ticket {
    fn new(stream: u32) -> Self {
        Self { stream, form: None }
    }

    /// Creates the ticket of a call in this dialect.
    fn of_call(stream: u32, dialect: Dialect) -> Self {
        Self { stream, form: dialect.framing().map(|framing| Box::new(Form::Framed(framing))) }
    }

    /// Creates the ticket of a request other than gRPC.
    fn of_http(stream: u32, response: PendingResponse) -> Self {
        Self { stream, form: Some(Box::new(Form::Http(response))) }
    }

    /// Returns what a response to a request other than gRPC needs.
    fn http(&self) -> Option<&PendingResponse> {
        match self.form.as_deref() {
            Some(Form::Http(response)) => Some(response),
            Some(Form::Framed(_)) | None => None,
        }
    }
}

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, call: &Call<'_>, missing: NotFound) -> Status {
        match self.form.as_deref() {
            None => status::not_found(call, missing),
            Some(Form::Framed(framing)) => framing.not_found(call, missing),
            Some(Form::Http(response)) => response.not_found(call, missing),
        }
    }

    /// A request that its method cannot decode is INTERNAL (`doc/statuscodes.md`); mapped HTTP requests have their own
    /// status.
    fn decode_failure(&self) -> fn(Status) -> Status {
        match self.form.as_deref() {
            None => incoming::decompression_failed,
            Some(Form::Framed(framing)) => framing.decode_failure(),
            Some(Form::Http(_)) => std::convert::identity,
        }
    }

    /// An empty gRPC message is valid in every format (brpc `policy/http_rpc_protocol.cpp`).
    fn may_be_empty(&self) -> bool {
        self.http().is_none_or(PendingResponse::may_be_empty)
    }

    fn body_conversion(&self) -> Option<BodyConversion> {
        self.http().and_then(PendingResponse::body_conversion)
    }

    fn carrier(&self) -> Carrier {
        self.http().map_or(Carrier::Grpc, PendingResponse::carrier)
    }

    fn stream(&self) -> Option<StreamId> {
        let is_stream = match self.form.as_deref() {
            None => true,
            Some(Form::Framed(framing)) => framing.response_body() != ResponseBody::Message,
            Some(Form::Http(response)) => response.is_exchange(),
        };
        is_stream.then(|| id(self.stream))
    }

    fn is_exchange(&self) -> bool {
        self.http().is_some_and(PendingResponse::is_exchange)
    }
}

impl Messages {
    /// Adds a piece. Returns how many of its bytes do not belong to a message.
    fn push(&mut self, piece: Bytes, end: bool) -> usize {
        self.clock.receive(piece.len());
        let overhead = self.messages.push(piece);
        if end {
            self.messages.end();
        }
        overhead
    }

    /// Returns the next part, and the number of bytes to credit to the peer for it.
    fn next(&mut self, limit: usize) -> Result<(Next, usize), Status> {
        let prefix = self.messages.prefix();
        let next = self.messages.next(limit)?;
        let returned = match &next {
            Next::Message(_) => {
                self.clock = Clock::default();
                self.credit(prefix)
            }
            Next::Wait => {
                // A message may be longer than the window.
                let held = self.messages.held();
                let more = held.saturating_sub(self.advanced);
                self.advanced += more;
                more
            }
            Next::End => 0,
        };
        Ok((next, returned))
    }

    /// Records consumed bytes: returns how many of them to credit to the peer, without those credited in advance.
    fn credit(&mut self, bytes: usize) -> usize {
        let advanced = self.advanced.min(bytes);
        self.advanced -= advanced;
        bytes - advanced
    }
}

/// Data for a response, and its state.
#[derive(Debug, Default)]
pub(super) struct ResponseState {
    format: Format,
    accepts: AcceptedCompressions,
    /// The compression of messages, once the head has been sent.
    begun: Option<Compression>,
    /// Additional data of responses in another dialect than gRPC's own.
    web: Option<Box<WebResponse>>,
}

impl Server {
    /// Creates the session of a new connection.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self {
            http: Connection::server(config.http.clone()),
            config,
            recent: HeadCache::default(),
            current: None,
            parts: HeldRequests::default(),
            open: OpenRequests::default(),
            http_calls: Calls::default(),
            taking: None,
            shutdown_started: None,
            timed_out: 0,
            unreported_refusals: UnreportedRefusals::default(),
        }
    }

    /// Creates the session of an HTTP/1 connection that was upgraded to HTTP/2, with the request that asked for it.
    pub fn from_upgrade(config: Arc<ServerConfig>, upgrade: Upgrade) -> Self {
        let Upgrade { settings, request, body } = upgrade;
        let incoming = http::Incoming::Whole(request, body);
        let http = Connection::from_upgrade(config.http.clone(), settings);
        let mut server = Self { http, taking: Some(h2::UPGRADED), ..Self::new(config) };
        server.open.insert(h2::UPGRADED, Incoming::Http(Box::new(incoming)));
        server
    }

    /// Returns the number of requests answered because their messages timed out.
    pub fn timeouts(&self) -> u64 {
        self.timed_out
    }

    /// Returns the number of bytes of responses that wait for others of their batch, recounted.
    pub(super) fn recount_batches(&self) -> usize {
        self.http_calls.recount()
    }

    /// Returns the number of cached header bytes beyond those that usual peers need.
    pub(super) fn remembered(&self) -> usize {
        (self.http.remembered() + self.recent.held()).saturating_sub(REMEMBERED)
    }

    /// Returns the number of bytes of cached heads: as counted, and recounted.
    pub(super) fn recount_heads(&self) -> [usize; 2] {
        [self.recent.held(), self.recent.recount()]
    }

    /// Returns the number of open streams.
    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.http.streams()
    }
}

impl session::Server for Server {
    type Ticket = Ticket;

    /// Measured with h2load and 64 concurrent calls: a seventh less CPU time than with 16.
    const WRITE_BATCH: usize = 32;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        loop {
            // Events borrow from the session, so the call is found first and the event created afterwards.
            let found = match self.taking {
                Some(stream) => self.take(stream, out),
                None => match self.http.next_event(inbox, out)? {
                    Some(event) => self.handle_event(event, out),
                    None => match self.parts.next() {
                        Some(part) => self.handle_held(part, Bytes::new(), false, out),
                        None => {
                            self.parts.detach_from_read();
                            // The head may be large; an idle connection need not keep it.
                            self.current = None;
                            return Ok(None);
                        }
                    },
                },
            };
            match found {
                CallEvent::Nothing => {}
                CallEvent::Head(head) => return Ok(Some(self.http_announced(*head))),
                CallEvent::Http(call) => return Ok(Some(self.http_call(*call))),
                CallEvent::Exchange(call) => return Ok(Some(self.exchange(*call))),
                CallEvent::Call(stream, request, body) => return Ok(Some(self.call(stream, request, body))),
                CallEvent::Open(stream, request) => return Ok(Some(self.open_event(stream, request))),
                CallEvent::Message(id, message) => return Ok(Some(ServerEvent::Message(id, message))),
                CallEvent::End(id) => return Ok(Some(ServerEvent::End(id))),
                CallEvent::Room(id) => return Ok(Some(ServerEvent::Room(id))),
                CallEvent::Pause => return Ok(Some(ServerEvent::Pause)),
                CallEvent::Alive => return Ok(Some(ServerEvent::Alive)),
                CallEvent::Cancelled(id) => return Ok(Some(ServerEvent::Cancelled(id))),
            }
        }
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        let stream = ticket.stream;
        let framing = match ticket.form.map(|form| *form) {
            None => None,
            Some(Form::Framed(framing)) => Some(framing),
            Some(Form::Http(response)) => return self.http_reply(stream, response, reply, out),
        };
        let Reply { result, head, trailers, .. } = reply;
        match result {
            Ok(message) => {
                let message = match is_plain(&head, &trailers) {
                    true => self.answer(stream, message, out),
                    false => Some(message),
                };
                let Some(message) = message else { return };
                self.start_response(id(stream), head, out);
                self.send_message(id(stream), message, out);
                self.finish(Ticket::new(stream), Ok(()), trailers, out);
            }
            Err(status) => {
                let is_text = framing.is_some_and(|framing| framing.response_body() == ResponseBody::Text);
                match is_text {
                    _ if head.metadata.is_empty() => {}
                    true => self.keep_metadata(stream, head.metadata),
                    false => self.start_response(id(stream), head, out),
                }
                self.finish(Ticket::new(stream), Err(status), trailers, out);
            }
        }
    }

    fn reject(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        match ticket.form.map(|form| *form) {
            Some(Form::Http(response)) => self.http_refuse(ticket.stream, response, status, out),
            Some(Form::Framed(_)) | None => {
                self.finish(Ticket::new(ticket.stream), Err(status), Metadata::new(), out);
            }
        }
        false
    }

    fn bytes_needed(&self) -> usize {
        self.http.bytes_needed()
    }

    fn apply_verdict(&mut self, stream: StreamId, verdict: Verdict, out: &mut Outbox) -> bool {
        self.http_apply_verdict(stream.0 as u32, verdict, out);
        false
    }

    fn drain(&mut self, out: &mut Outbox) {
        self.http.start_graceful_shutdown(out);
    }

    fn is_finished(&self) -> bool {
        self.http.is_shut_down()
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut impl session::server::Streaming<Ticket>> {
        Some(self)
    }
}

impl session::server::Streaming<Ticket> for Server {
    fn start_response(&mut self, stream: StreamId, head: Head, out: &mut Outbox) {
        let stream = stream.0 as u32;
        if self.http_calls.is_exchange(stream) {
            return self.pass_head(stream, &head.metadata, out);
        }
        let Some(answering) = self.http.data_of(stream).filter(|answering| answering.begun.is_none()) else {
            return;
        };
        let compression = answering.accepts.choose(head.compression);
        answering.begun = Some(compression);
        let format = answering.format;
        if let Some(web) = &mut answering.web {
            if web.keep(compression, &head.metadata) {
                return;
            }
            let block = web.head(format, compression, &head.metadata);
            return self.http.headers(stream, &block, false, out);
        }
        if compression == Compression::None && head.metadata.is_empty() && format == Format::Protobuf {
            return self.http.headers(stream, block::HEAD, false, out);
        }
        let block = block::head(format, compression, &head.metadata);
        self.http.headers(stream, &block, false, out);
    }

    fn send_message(&mut self, stream: StreamId, message: Bytes, out: &mut Outbox) {
        if self.http_calls.is_exchange(stream.0 as u32) {
            return self.send_piece(stream.0 as u32, message, out);
        }
        let begun = |http: &mut Connection<ResponseState>| http.data_of(stream.0 as u32)?.begun;
        let compression = begun(&mut self.http).or_else(|| {
            self.start_response(stream, Head::default(), out);
            begun(&mut self.http)
        });
        let Some(compression) = compression else { return };
        let stream = stream.0 as u32;
        if let Some(dialect) = self.web_dialect(stream) {
            return self.web_message(stream, dialect, compression, message, out);
        }
        let (compressed, body) = coding::compress_if_smaller(compression, message);
        self.http.data(stream, &frame::prefix(compressed, body.len()), body, false, out);
    }

    fn finish(&mut self, ticket: Ticket, result: Result<(), Status>, trailers: Metadata, out: &mut Outbox) {
        let stream = ticket.stream;
        let unread = self.open.remove(stream);
        if let Some(response) = ticket.http() {
            self.finish_exchange(stream, response, result, &trailers, out);
            if unread.is_some() {
                self.http_discard(stream, out);
            }
            return;
        }
        let Some(ResponseState { format, begun, web, .. }) = self.http.data_of(stream) else { return };
        let (format, begun) = (*format, *begun);
        match (begun, result) {
            (_, result) if web.is_some() => self.web_finish(stream, result.err().as_ref(), &trailers, out),
            (Some(_), Ok(())) if trailers.is_empty() => self.http.trailers(stream, block::OK, out),
            (Some(_), result) => {
                let block = block::trailers(result.as_ref().err(), &trailers);
                self.http.trailers(stream, &block, out);
            }
            // Trailers-Only: head and trailers in one block.
            (None, result) => self.trailers_only(stream, format, result.as_ref().err(), &trailers, out),
        }
    }

    fn has_room(&self, stream: StreamId) -> bool {
        self.http.has_room(stream.0 as u32)
    }

    fn record_consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Outbox) {
        self.credit(stream.0 as u32, bytes, out);
    }

    fn reset(&mut self, stream: StreamId, out: &mut Outbox) {
        let stream = stream.0 as u32;
        self.open.remove(stream);
        self.http_calls.forget(stream);
        self.http.reset(stream, ErrorCode::CANCEL, out);
    }
}

impl session::server::Housekeeping for Server {
    fn incomplete(&self, inbox: &BytesMut) -> Option<Incomplete> {
        (!inbox.is_empty() || self.http.is_mid_message()).then_some(Incomplete::Message)
    }

    fn buffered(&self) -> usize {
        self.open.held() + self.parts.held() + self.http.buffered() + self.remembered()
    }

    fn unsent(&self) -> usize {
        self.http.queued() + self.http_calls.held()
    }

    fn take_refusals(&mut self) -> Option<session::Refusals> {
        self.unreported_refusals.take()
    }

    fn tick(&mut self, now: Duration, out: &mut Outbox) -> bool {
        for stream in self.http.tick(now, out) {
            self.cancel(stream);
        }
        self.parts.tick(now, &self.config.limits.pace);
        if self.http.has_started_shutdown() {
            self.shutdown_started.get_or_insert(now);
        }
        self.open.has_incomplete() && self.apply_timeouts(now, out)
    }

    fn needs_ticks(&self) -> bool {
        !self.parts.is_empty() || self.open.has_incomplete() || self.http.wants_ticks()
    }

    fn ping(&mut self, out: &mut Outbox) -> bool {
        self.http.ping(out);
        true
    }

    /// The peer may open streams until the PING after the first GOAWAY is answered (RFC 9113, §6.8); streams that are
    /// open then are completed.
    fn keep_reason(&self) -> KeepReason {
        match () {
            () if self.http.has_queued_data() => KeepReason::Room,
            () if !self.http.is_shut_down() => KeepReason::Calls,
            () => KeepReason::Nothing,
        }
    }

    fn abort(&mut self, status: &Status, out: &mut Outbox) {
        let code = match status.code() {
            Code::ResourceExhausted => ErrorCode::ENHANCE_YOUR_CALM,
            Code::Internal => ErrorCode::INTERNAL_ERROR,
            _ => ErrorCode::NO_ERROR,
        };
        let text = status.message();
        let end = text.floor_char_boundary(LONGEST_REASON);
        self.http.abort(code, text.get(..end).unwrap_or_default(), out);
    }
}

/// Size of cached heads that is not accounted for: as much as the connection itself takes, and more than peers with
/// usual heads need. Such connections account for nothing while they wait.
const REMEMBERED: usize = 16 << 10;

/// Maximum length of the text that explains why a connection ends.
const LONGEST_REASON: usize = 1 << 10;

/// Maximum number of timed out requests to end at once: peers that open many at the same time let them time out
/// together.
const OVERDUE_AT_ONCE: usize = 16;

/// How long a request may remain incomplete when the server drains.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The meaning of a connection event for calls.
enum CallEvent {
    Nothing,
    Call(u32, Arc<Request>, ReceivedMessage),
    /// A call other than gRPC.
    Http(Box<(Call<'static>, Ticket)>),
    /// A request for the HTTP fallback.
    Exchange(Box<(Call<'static>, Ticket)>),
    Open(u32, Arc<Request>),
    Message(StreamId, Message),
    End(StreamId),
    Room(StreamId),
    Cancelled(StreamId),
    Pause,
    Alive,
    /// The head of a request other than gRPC.
    Head(Box<HttpHead>),
}

impl Server {
    fn handle_event(&mut self, event: h2::Event, out: &mut Outbox) -> CallEvent {
        match event {
            h2::Event::Whole { stream, fields, body } => match self.request(&fields) {
                Ok(request) => self.handle_whole_request(stream, request, body),
                Err(unfit) => self.handle_other(stream, &fields, unfit, body, true, out),
            },
            h2::Event::Headers { stream, fields, end } => match self.request(&fields) {
                Ok(request) if end => self.handle_whole_request(stream, request, Bytes::new()),
                Ok(request) => {
                    let has_unary_request = self.has_unary_request(&request);
                    self.parts.push(stream, request, has_unary_request);
                    CallEvent::Nothing
                }
                Err(unfit) => self.handle_other(stream, &fields, unfit, Bytes::new(), end, out),
            },
            h2::Event::Data { stream, bytes, end: false }
                if self.parts.add(stream, &bytes, self.config.limits.message) =>
            {
                CallEvent::Nothing
            }
            h2::Event::Data { stream, bytes, end } => match self.parts.take(stream) {
                Some(part) => self.handle_held(part, bytes, end, out),
                None => self.handle_data(stream, bytes, end, out),
            },
            h2::Event::Trailers { stream, .. } => match self.parts.take(stream) {
                Some(part) => self.handle_held(part, Bytes::new(), true, out),
                None => self.handle_data(stream, Bytes::new(), true, out),
            },
            h2::Event::Reset { stream, .. } => match self.parts.take(stream) {
                // The request has not been emitted.
                Some(_) => CallEvent::Nothing,
                None => {
                    self.open.remove(stream);
                    self.http_calls.forget(stream);
                    CallEvent::Cancelled(id(stream))
                }
            },
            h2::Event::Room { stream } => CallEvent::Room(id(stream)),
            h2::Event::Pause => CallEvent::Pause,
            h2::Event::Pong => CallEvent::Alive,
            h2::Event::Oversized { stream, head, fields, size } => {
                self.refuse_oversized(stream, head, &fields, size, out)
            }
            h2::Event::GoAway { .. } => CallEvent::Nothing,
        }
    }

    /// Parses a head, or returns its cached form.
    fn request(&mut self, fields: &Arc<Fields>) -> Result<Arc<Request>, InvalidRequest> {
        if let Some(known) = self.recent.find(fields) {
            return Ok(known.clone());
        }
        if request::has_too_many(fields, MAX_FIELDS) {
            return Err(InvalidRequest::Fields);
        }
        let mut request = match Request::read(fields.iter()) {
            Ok(request) => request,
            Err(unfit) => self.parse_framed_call(fields).ok_or(unfit)?,
        };
        request.has_unary_request |= self.config.methods.has(&request.service, &request.method);
        let request = Arc::new(request);
        self.recent.add(fields, &request);
        Ok(request)
    }

    /// Returns whether a call takes one message, as far as is known. What others know may change, so that it is not
    /// remembered with the head.
    fn has_unary_request(&self, request: &Request) -> bool {
        let Request { service, method, metadata, has_unary_request, .. } = request;
        *has_unary_request || self.config.methods.has_dynamic_unary_request(service, method, metadata)
    }

    /// Returns the call that a head describes in a dialect with a framing of its own.
    #[cold]
    fn parse_framed_call(&self, fields: &Fields) -> Option<Request> {
        request::parse_framed_call(fields, self.config.gateway.as_ref()?)
    }

    /// Handles a complete request, which is usually one message.
    fn handle_whole_request(&mut self, stream: u32, request: Arc<Request>, mut body: Bytes) -> CallEvent {
        match request.single_message(&mut body, self.config.limits.message) {
            Some(framed) => CallEvent::Call(stream, request, framed),
            None => {
                let state = (request.has_unary_request, Clock::default());
                self.open_streaming(stream, request, [body, Bytes::new()], true, state)
            }
        }
    }

    /// Handles a further piece of a held request, or the end of its holding time.
    fn handle_held(&mut self, part: HeldRequest, piece: Bytes, ended: bool, out: &mut Outbox) -> CallEvent {
        let has_unary_request = part.has_unary_request;
        let (stream, request, body, clock) = part.into_body();
        let length = body.len() + piece.len();
        let found = match ended {
            true if piece.is_empty() => self.handle_whole_request(stream, request, body),
            true if body.is_empty() => self.handle_whole_request(stream, request, piece),
            _ => self.open_streaming(stream, request, [body, piece], ended, (has_unary_request, clock)),
        };
        // Buffered bytes are credited when their message is consumed.
        let kept = self.open.get(stream).map_or(0, Incoming::held);
        self.http.record_consumed(stream, length.saturating_sub(kept), out);
        found
    }

    /// Opens a streaming request, with the part received so far.
    fn open_streaming(
        &mut self,
        stream: u32,
        request: Arc<Request>,
        pieces: [Bytes; 2],
        ended: bool,
        (has_unary_request, clock): (bool, Clock),
    ) -> CallEvent {
        let mut messages = incoming::Incoming::new(request.dialect, request.compression);
        for piece in pieces {
            messages.push(piece);
        }
        if ended {
            messages.end();
        }
        let incoming = Messages { messages, advanced: 0, has_unary_request, clock };
        self.open.insert(stream, Incoming::Messages(incoming));
        self.taking = Some(stream);
        CallEvent::Open(stream, request)
    }

    fn handle_data(&mut self, stream: u32, bytes: Bytes, end: bool, out: &mut Outbox) -> CallEvent {
        if let Some(Incoming::Http(_)) = self.open.get(stream) {
            return self.http_piece(stream, &bytes, end, out);
        }
        let length = bytes.len();
        let overhead = self.open.change(stream, |incoming| match incoming {
            Incoming::Messages(incoming) => incoming.push(bytes, end),
            Incoming::Http(_) => 0,
        });
        // Further input of an answered request is discarded.
        let released = overhead.unwrap_or(length);
        if released > 0 {
            self.http.record_consumed(stream, released, out);
        }
        if overhead.is_some() {
            self.taking = Some(stream);
        }
        CallEvent::Nothing
    }

    /// Emits the available parts of a request.
    fn take(&mut self, stream: u32, out: &mut Outbox) -> CallEvent {
        let limit = self.config.limits.message;
        let next = self.open.change(stream, |incoming| match incoming {
            Incoming::Messages(incoming) => Some(incoming.next(limit)),
            Incoming::Http(_) => None,
        });
        match next {
            None => self.http_entry(stream),
            Some(None) => self.http_upgraded(stream, out),
            Some(Some(Ok((Next::Message(message), returned)))) => {
                self.http.record_consumed(stream, returned, out);
                CallEvent::Message(id(stream), message)
            }
            Some(Some(Ok((Next::Wait, returned)))) => {
                self.taking = None;
                self.http.record_consumed(stream, returned, out);
                CallEvent::Nothing
            }
            Some(Some(Ok((Next::End, _)))) => {
                self.taking = None;
                self.open.remove(stream);
                CallEvent::End(id(stream))
            }
            Some(Some(Err(status))) => self.fail(stream, &status, out),
        }
    }

    /// Credits consumed bytes to the peer, without those credited in advance.
    fn credit(&mut self, stream: u32, bytes: usize, out: &mut Outbox) {
        let returned = self.open.change(stream, |incoming| match incoming {
            Incoming::Messages(incoming) => incoming.credit(bytes),
            Incoming::Http(_) => bytes,
        });
        self.http.record_consumed(stream, returned.unwrap_or(bytes), out);
    }

    fn call(
        &mut self,
        stream: u32,
        request: Arc<Request>,
        framed: ReceivedMessage,
    ) -> ServerEvent<'_, Ticket> {
        self.track_request(stream, &request);
        let compression = if framed.compressed { request.compression } else { Compression::None };
        let request = self.current.insert(request);
        let metadata = request.take_metadata();
        let request = &**request;
        let malformed = (framed.compressed && compression == Compression::None).then(compressed_without_name);
        let credential = credential(request, self.config.trust_connection);
        let malformed = malformed.or_else(|| request.refusal());
        let call =
            Call { body: framed.body, malformed, credential, ..request.call_with(metadata, compression) };
        ServerEvent::Call(call, Ticket::of_call(stream, request.dialect))
    }

    fn open_event(&mut self, stream: u32, request: Arc<Request>) -> ServerEvent<'_, Ticket> {
        self.track_request(stream, &request);
        let request = self.current.insert(request);
        let metadata = request.take_metadata();
        let request = &**request;
        let credential = credential(request, self.config.trust_connection);
        let malformed = request.refusal();
        let call = Call { malformed, credential, ..request.call_with(metadata, request.compression) };
        ServerEvent::Open(call, Ticket::of_call(stream, request.dialect), id(stream))
    }

    /// Sends the most common kind of response in one go. Otherwise returns the message and sends nothing.
    fn answer(&mut self, stream: u32, message: Bytes, out: &mut Outbox) -> Option<Bytes> {
        let is_usual = |answering: &&mut ResponseState| {
            answering.begun.is_none() && answering.web.is_none() && answering.format == Format::Protobuf
        };
        if self.http.data_of(stream).filter(is_usual).is_none() {
            return Some(message);
        }
        let blocks = [block::HEAD, block::OK];
        let rest = self.http.answer(stream, blocks, &frame::prefix(false, message.len()), message, out);
        if rest.is_none() {
            self.open.remove(stream);
        }
        rest
    }

    /// Stores with the stream what its response needs.
    fn track_request(&mut self, stream: u32, request: &Request) {
        let web = match request.dialect {
            Dialect::Native => None,
            Dialect::Web | Dialect::WebText | Dialect::Framed(_) => {
                Some(Box::new(WebResponse::new(request, &self.config.cors)))
            }
        };
        if let Some(answering) = self.http.data_of(stream) {
            *answering = ResponseState { format: request.format, accepts: request.accepts, begun: None, web };
        }
    }

    /// Answers a call whose request cannot be read to its end, and cancels its handler.
    #[cold]
    fn fail(&mut self, stream: u32, status: &Status, out: &mut Outbox) -> CallEvent {
        self.taking = None;
        if status.code() == Code::ResourceExhausted {
            self.unreported_refusals.record(RefusalCause::TooLarge);
        }
        self.finish(Ticket::new(stream), Err(status.clone()), Metadata::new(), out);
        CallEvent::Cancelled(id(stream))
    }

    /// Cancels the handler of a call whose stream was reset.
    #[cold]
    fn cancel(&mut self, stream: u32) {
        if self.taking == Some(stream) {
            self.taking = None;
        }
        self.open.remove(stream);
        self.http_calls.forget(stream);
        self.http.queue_event(h2::Event::Reset { stream, code: ErrorCode::CANCEL, by_peer: false });
    }

    /// Answers requests whose messages timed out, and those that are incomplete when the server has drained, some at a
    /// time. Returns whether there are more.
    #[cold]
    fn apply_timeouts(&mut self, now: Duration, out: &mut Outbox) -> bool {
        let (http, pace) = (&self.http, &self.config.limits.pace);
        let is_time_up = http.has_sent_final_go_away()
            && self.shutdown_started.is_some_and(|since| now.saturating_sub(since) >= LAST_WAIT);
        let is_delayed = http.is_reading_long_frame();
        let mut overdue = Vec::new();
        for (stream, incoming) in self.open.iter_mut().filter(|(_, incoming)| incoming.is_incomplete()) {
            let Some(clock) = incoming.clock() else { continue };
            if is_delayed {
                clock.delay();
            }
            match clock.tick(now, http.may_receive(stream), pace) {
                Some(late) => overdue.push((stream, TimeoutCause::Late(late.status()))),
                None if is_time_up && clock.age() >= LAST_WAIT => {
                    overdue.push((stream, TimeoutCause::ShuttingDown))
                }
                None => {}
            }
            if overdue.len() > OVERDUE_AT_ONCE {
                break;
            }
        }
        let has_more = overdue.len() > OVERDUE_AT_ONCE;
        for (stream, overdue) in overdue {
            self.timed_out += u64::from(matches!(overdue, TimeoutCause::Late(_)));
            self.give_up(stream, overdue, out);
        }
        has_more
    }

    /// Answers a request that has timed out, and ends its stream.
    #[cold]
    fn give_up(&mut self, stream: u32, overdue: TimeoutCause, out: &mut Outbox) {
        match self.open.remove(stream) {
            Some(Incoming::Messages(_)) => {
                let status = overdue.into_status();
                self.finish(Ticket::new(stream), Err(status), Metadata::new(), out);
                self.http.stop(stream, out);
                self.cancel(stream);
            }
            Some(Incoming::Http(incoming)) => {
                let is_announced = incoming.is_announced();
                self.http_time_out(stream, *incoming, overdue, out);
                self.http.stop(stream, out);
                if is_announced {
                    self.cancel(stream);
                }
            }
            None => {}
        }
    }

    /// Answers a request whose header list or trailers exceed the limit. Some of their fields are missing.
    #[cold]
    fn refuse_oversized(
        &mut self,
        stream: u32,
        head: bool,
        fields: &Fields,
        size: usize,
        out: &mut Outbox,
    ) -> CallEvent {
        let limit = self.config.http.header_list;
        let text = format!("the header list of {size} bytes exceeds the limit of {limit}");
        if !head {
            return self.refuse_oversized_trailers(stream, text, out);
        }
        self.unreported_refusals.record(RefusalCause::TooLarge);
        let is_grpc = match fields.get(b"content-type") {
            Some(content_type) => is_grpc(content_type),
            // The field may be among the missing ones.
            None => fields.get(b"te") == Some(b"trailers"),
        };
        if is_grpc {
            self.reject_call(stream, fields, &Status::resource_exhausted(text), out);
        } else if fields.get(b":method") == Some(b"HEAD") {
            self.http.headers(stream, &block::http(431, &[]), true, out);
        } else {
            self.answer_with_text(stream, 431, None, text, out);
        }
        CallEvent::Nothing
    }

    fn refuse_oversized_trailers(&mut self, stream: u32, text: String, out: &mut Outbox) -> CallEvent {
        if let Some(part) = self.parts.take(stream) {
            let (_, request, ..) = part.into_body();
            self.track_request(stream, &request);
            self.unreported_refusals.record(RefusalCause::TooLarge);
            let status = Status::resource_exhausted(text);
            self.finish(Ticket::new(stream), Err(status), Metadata::new(), out);
            return CallEvent::Nothing;
        }
        match self.open.get(stream) {
            Some(Incoming::Messages(_)) => self.fail(stream, &Status::resource_exhausted(text), out),
            Some(Incoming::Http(_)) if self.http_calls.is_exchange(stream) => {
                self.reset(id(stream), out);
                CallEvent::Cancelled(id(stream))
            }
            Some(Incoming::Http(_)) => {
                self.unreported_refusals.record(RefusalCause::TooLarge);
                self.open.remove(stream);
                self.answer_with_text(stream, 431, None, text, out);
                CallEvent::Cancelled(id(stream))
            }
            None => CallEvent::Nothing,
        }
    }

    /// Handles a request that is not a valid gRPC call.
    #[cold]
    fn handle_other(
        &mut self,
        stream: u32,
        fields: &Fields,
        unfit: InvalidRequest,
        body: Bytes,
        end: bool,
        out: &mut Outbox,
    ) -> CallEvent {
        if let Some(found) = self.pass_on(stream, fields, &body, end, out) {
            return found;
        }
        if self.answer_web_preflight(stream, fields, out) {
            return CallEvent::Nothing;
        }
        let is_grpc = fields.get(b"content-type").is_some_and(is_grpc);
        match self.config.gateway.clone() {
            _ if is_grpc => self.reject_request(stream, fields, unfit, out),
            Some(gateway) => {
                let request = request::from_h2(fields, gateway.limits.message);
                self.http_request(stream, &gateway, request, body, end, out)
            }
            None if unfit == InvalidRequest::Fields => {
                self.answer_with_text(stream, 431, None, too_many_fields().message().to_owned(), out);
                CallEvent::Nothing
            }
            None if fields.get(b":method") == Some(b"POST") => {
                self.reject_request(stream, fields, InvalidRequest::ContentType, out)
            }
            None => self.reject_request(stream, fields, InvalidRequest::Method, out),
        }
    }

    /// Answers a request other than gRPC with an HTTP status.
    fn reject_request(
        &mut self,
        stream: u32,
        fields: &Fields,
        unfit: InvalidRequest,
        out: &mut Outbox,
    ) -> CallEvent {
        match unfit {
            InvalidRequest::Method | InvalidRequest::ContentType | InvalidRequest::Encoding => {
                self.unreported_refusals.record(RefusalCause::Unsupported)
            }
            InvalidRequest::Path => self.unreported_refusals.record(RefusalCause::Unknown),
            InvalidRequest::Fields => self.unreported_refusals.record(RefusalCause::TooLarge),
            InvalidRequest::Timeout | InvalidRequest::Credentials => {}
        }
        match unfit {
            InvalidRequest::Method => {
                let allow = (&b"allow"[..], &b"POST"[..]);
                self.answer_with_text(stream, 405, Some(allow), "a method is called with POST\n", out);
            }
            InvalidRequest::ContentType => {
                let accept = (&b"accept"[..], &b"application/grpc"[..]);
                self.answer_with_text(
                    stream,
                    415,
                    Some(accept),
                    "expected content-type: application/grpc\n",
                    out,
                );
            }
            InvalidRequest::Fields => self.reject_call(stream, fields, &too_many_fields(), out),
            InvalidRequest::Path => {
                self.reject_call(stream, fields, &Status::unimplemented("malformed method name"), out)
            }
            InvalidRequest::Encoding => self.reject_call(stream, fields, &incoming::unknown_encoding(), out),
            InvalidRequest::Timeout => {
                self.reject_call(stream, fields, &Status::internal("malformed grpc-timeout"), out)
            }
            InvalidRequest::Credentials => self.reject_call(stream, fields, &two_credentials(), out),
        }
        CallEvent::Nothing
    }

    /// Answers with an HTTP status and text.
    fn answer_with_text(
        &mut self,
        stream: u32,
        status: u16,
        field: Option<(&[u8], &[u8])>,
        text: impl Into<Bytes>,
        out: &mut Outbox,
    ) {
        let content_type = (&b"content-type"[..], &b"text/plain"[..]);
        let fields: Vec<_> = [content_type].into_iter().chain(field).collect();
        self.http.headers(stream, &block::http(status, &fields), false, out);
        self.http.data(stream, &[], text.into(), true, out);
    }

    /// Answers a gRPC call with a malformed path or timeout.
    fn reject_call(&mut self, stream: u32, fields: &Fields, status: &Status, out: &mut Outbox) {
        if let Some(web) = WebResponse::from_fields(fields, &self.config.cors) {
            if let Some(answering) = self.http.data_of(stream) {
                answering.web = Some(Box::new(web));
            }
            return self.web_finish(stream, Some(status), &Metadata::new(), out);
        }
        self.trailers_only(stream, Format::Protobuf, Some(status), &Metadata::new(), out);
    }

    fn trailers_only(
        &mut self,
        stream: u32,
        format: Format,
        failure: Option<&Status>,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        let mut block = block::head(format, Compression::None, &Metadata::new());
        block.extend_from_slice(&block::trailers(failure, trailers));
        self.http.headers(stream, &block, true, out);
    }
}

/// Maximum number of fields in the head of a call: more than over HTTP/1, since callers send a hundred entries of
/// metadata and more.
pub const MAX_FIELDS: usize = 512;

/// The cost of a head is proportional to the number of its fields, and a short block may contain very many.
#[cold]
fn too_many_fields() -> Status {
    Status::resource_exhausted(format!("the head has more than {MAX_FIELDS} fields")).with_retry(Retry::Never)
}

/// Why a request is given up.
enum TimeoutCause {
    Late(Status),
    /// The server is draining.
    ShuttingDown,
}

impl TimeoutCause {
    fn into_status(self) -> Status {
        match self {
            Self::Late(status) => status,
            // A handler of messages may run already: not the text of a call that was not started.
            Self::ShuttingDown => Status::unavailable(
                "the server is shutting down and did not wait for the rest of the request",
            )
            .with_retry(Retry::IfIdempotent),
        }
    }
}

/// Returns the credential of a call.
fn credential(request: &Request, trust_connection: bool) -> Credential {
    let bytes = request.credential.clone();
    if trust_connection { Credential::Connection(bytes) } else { Credential::Call(bytes) }
}

/// Whether head and trailers are empty.
fn is_plain(head: &Head, trailers: &Metadata) -> bool {
    head.compression == Compression::None && head.metadata.is_empty() && trailers.is_empty()
}

fn id(stream: u32) -> StreamId {
    StreamId(stream.into())
}

//! Session state of both sides of a connection.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::digits::parse_canonical_decimal;
use polyrpc_core::session::server::Incomplete;
use polyrpc_core::session::{ClientEvent, NotFound, Refusals, ServerEvent, ViolationKind};
use polyrpc_core::{
    Call, CallId, Checksum, Compression, Credential, Format, Head, Limits, Metadata, Outbox, Reply, Status,
    Violation, session,
};

use super::directory::{ServiceDirectory, ServiceHash, service_id};
use super::frame::{self, Frame, Magic, NextFrame, OversizedFrame, Request, Response, Sizes};
use super::status;
use crate::brpc_status::{ELOGOFF, ENOMETHOD, EREQUEST, ERESPONSE, status as failure};
use crate::oversized::{Discarding, OversizedRequests, response_too_long};

/// Settings shared by all connections of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Limits of a connection. [`Limits::message`] bounds the bytes after a frame's header, like brpc's
    /// `max_body_size`.
    pub limits: Limits,
    /// Mapping of the numbers in requests.
    pub directory: Arc<ServiceDirectory>,
    /// The only accepted magic; otherwise each frame is answered with its own.
    pub only: Option<Magic>,
}

/// The server's side of a connection.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// Numbers of the last emitted call as text, if they are unknown.
    unknown: [String; 2],
    wanted: usize,
    draining: bool,
    oversized: OversizedRequests,
}

/// Data needed to answer a call.
#[derive(Debug)]
pub struct Ticket {
    correlation_id: u64,
    magic: Magic,
}

/// A complete request.
struct ParsedRequest {
    request: Request,
    body: Bytes,
    attachment: Bytes,
    /// Failure of a request whose sizes do not match its payload.
    malformed: Option<Status>,
    ticket: Ticket,
}

impl Server {
    /// Creates the state of a newly accepted connection.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self {
            config,
            unknown: Default::default(),
            wanted: 0,
            draining: false,
            oversized: OversizedRequests::default(),
        }
    }

    /// Parses a request from a frame. Returns `None` if the session has answered it without the application.
    fn open(&self, frame: Frame, out: &mut Outbox) -> Result<Option<ParsedRequest>, Violation> {
        let request = Request::read(&frame.meta).ok_or_else(truncated)?;
        let ticket = Ticket { correlation_id: request.correlation_id, magic: frame.magic };
        if self.draining {
            ticket.fail(ELOGOFF, out);
            return Ok(None);
        }
        let ((body, attachment), malformed) = match request.sizes.split_payload(frame.payload, frame.magic) {
            Some(divided) => (divided, None),
            None => (Default::default(), Some(malformed_request())),
        };
        Ok(Some(ParsedRequest { request, body, attachment, malformed, ticket }))
    }

    /// Rejects a request that exceeds the limit; the rest of its frame is discarded. Returns whether its meta has
    /// arrived.
    ///
    /// # Errors
    ///
    /// `violation`, if it is another one or the request cannot be answered.
    #[cold]
    fn reject_oversized(
        &mut self,
        inbox: &mut BytesMut,
        violation: Violation,
        out: &mut Outbox,
    ) -> Result<bool, Violation> {
        let oversized = match violation.kind() {
            ViolationKind::TooLarge => frame::take_oversized_request(inbox),
            _ => None,
        };
        match oversized {
            Some(OversizedFrame::Head { magic, meta, rest, .. }) => {
                self.oversized.reject(rest);
                let ticket = Ticket { correlation_id: meta.correlation_id, magic };
                ticket.fail(if self.draining { ELOGOFF } else { EREQUEST }, out);
                Ok(true)
            }
            Some(OversizedFrame::Partial(wanted)) => {
                self.wanted = wanted;
                Ok(false)
            }
            None => Err(violation),
        }
    }

    fn call(&mut self, opened: ParsedRequest) -> ServerEvent<'_, Ticket> {
        let ParsedRequest { request, body, attachment, malformed, ticket } = opened;
        let (service, method) = self.names(&request, ticket.magic);
        let head = Head { format: Format::FlatBuffers, ..Head::default() };
        let call = Call {
            service,
            method,
            body,
            attachment,
            head,
            timeout: None,
            oneway: false,
            credential: Credential::Connection(None),
            authenticated: false,
            malformed,
        };
        ServerEvent::Call(call, ticket)
    }

    /// Returns the called service and method; a number without a name is returned as text.
    fn names(&mut self, request: &Request, magic: Magic) -> (&str, &str) {
        let Self { config, unknown: [service, method], .. } = self;
        match config.directory.names(request.service, request.method, magic) {
            Some((service, Some(method))) => (service, method),
            Some((service, None)) => {
                *method = format!("#{}", request.method);
                (service, method)
            }
            None => {
                (*service, *method) = (format!("#{}", request.service), format!("#{}", request.method));
                (service, method)
            }
        }
    }
}

impl session::Server for Server {
    type Ticket = Ticket;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        loop {
            self.wanted = 0;
            if !self.oversized.discard(inbox) {
                return Ok(None);
            }
            match frame::take_frame(inbox, self.config.limits.message, self.config.only) {
                Ok(NextFrame::Whole(frame)) => {
                    if let Some(opened) = self.open(frame, out)? {
                        return Ok(Some(self.call(opened)));
                    }
                }
                Ok(NextFrame::Partial(wanted)) => {
                    self.wanted = wanted;
                    return Ok(None);
                }
                Ok(NextFrame::Foreign) => return Ok(Some(ServerEvent::Foreign)),
                Err(violation) => {
                    if !self.reject_oversized(inbox, violation, out)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        match reply.result {
            Ok(message) => ticket.succeed(message, reply.attachment, self.config.limits.message, out),
            Err(status) => ticket.fail(status::number(&status), out),
        }
    }

    /// The protocol cannot carry credentials: brpc's servers that require one accept no peer, and close the connection.
    fn reject(&mut self, _: Ticket, _: Status, _: &mut Outbox) -> bool {
        true
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }

    fn drain(&mut self, _out: &mut Outbox) {
        self.draining = true;
    }
}

impl session::server::Housekeeping for Server {
    fn incomplete(&self, inbox: &BytesMut) -> Option<Incomplete> {
        (!inbox.is_empty() || self.oversized.is_discarding()).then_some(Incomplete::Message)
    }

    fn take_refusals(&mut self) -> Option<Refusals> {
        self.oversized.take_refusals()
    }
}

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, call: &Call<'_>, _: NotFound) -> Status {
        failure(ENOMETHOD, format!("there is no method {}/{} by number", call.service, call.method))
    }

    fn decode_failure(&self) -> fn(Status) -> Status {
        decode_failure
    }
}

/// A malformed message has a number of its own; a missing number implies that the method's messages have another
/// format, so that it is not among the methods that brpc searches.
fn decode_failure(status: Status) -> Status {
    match status.number() {
        Some(_) => status,
        None => failure(ENOMETHOD, format!("not a FlatBuffers method: {}", status.message())),
    }
}

impl Ticket {
    fn succeed(self, message: Bytes, attachment: Bytes, limit: usize, out: &mut Outbox) {
        let sizes = Sizes::new(&message, &attachment, frame::RESPONSE, limit);
        // A peer treats a response without a message as no response.
        let Some(sizes) = sizes.filter(|sizes| sizes.message > 0) else {
            return self.fail(ERESPONSE, out);
        };
        let response = Response { error_code: 0, sizes, correlation_id: self.correlation_id };
        response.write(self.magic, out);
        out.body(message);
        if !attachment.is_empty() {
            out.body(attachment);
        }
    }

    #[cold]
    fn fail(self, error_code: i32, out: &mut Outbox) {
        let response = Response { error_code, sizes: Sizes::NONE, correlation_id: self.correlation_id };
        response.write(self.magic, out);
    }
}

/// Settings of a client's connection.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// Limits of the connection, counted as in [`ServerConfig::limits`].
    pub limits: Limits,
    /// Magic of the server's frames.
    pub magic: Magic,
    /// Hash by which the server numbers its services.
    pub hash: ServiceHash,
    /// Credential. The protocol cannot carry it: if it is set, every call fails locally.
    pub credential: Option<Bytes>,
}

/// The client's side of a connection.
///
/// A call names its service, or the service's number as `#2147483648`. It identifies its method by number: `#7`, or
/// `Echo#7` as generated stubs do, or `Echo#7,0`, where the second number is the method's index, which is used for
/// #3197: with [`Magic::Brpc`] or [`ServiceHash::TwoDots`].
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    wanted: usize,
    /// The rest of a response that exceeds the limit.
    discarding: Discarding,
    /// The server announced that it is stopping.
    logged_off: bool,
    /// The server answered a call successfully: it uses this dialect.
    understood: bool,
}

impl Client {
    /// Creates the state of a newly established connection.
    pub fn new(config: ClientConfig) -> Self {
        Self { config, wanted: 0, discarding: Discarding::default(), logged_off: false, understood: false }
    }

    fn handle_frame(&mut self, frame: Frame) -> Result<ClientEvent, Violation> {
        let response = Response::read(&frame.meta).ok_or_else(truncated)?;
        let outcome = match response.error_code {
            0 => {
                let parts = response.sizes.split_payload(frame.payload, frame.magic);
                parts.map(|(message, attachment)| (Ok(message), attachment))
            }
            _ if frame.magic == Magic::Frpc && !frame.payload.is_empty() => None,
            number => {
                self.logged_off |= number == ELOGOFF;
                Some((Err(self.server_failure(number)), Bytes::new()))
            }
        };
        self.understood |= response.error_code != ENOMETHOD;
        let (result, attachment) = outcome.unwrap_or_else(|| (Err(malformed_response()), Bytes::new()));
        let head = Head { format: Format::FlatBuffers, ..Head::default() };
        let reply = Reply { result, head, attachment, trailers: Metadata::new() };
        Ok(ClientEvent::Reply(CallId(response.correlation_id), reply))
    }

    /// Fails the call whose response exceeds the limit; the rest of the frame is discarded.
    ///
    /// # Errors
    ///
    /// `violation`, if it is another one or the call cannot be told.
    #[cold]
    fn fail_oversized(
        &mut self,
        inbox: &mut BytesMut,
        violation: Violation,
    ) -> Result<Option<ClientEvent>, Violation> {
        let oversized = match violation.kind() {
            ViolationKind::TooLarge => frame::take_oversized_response(inbox),
            _ => None,
        };
        match oversized {
            Some(OversizedFrame::Head { meta, body, rest, .. }) => {
                self.discarding.start(rest);
                self.understood = true;
                let failure = response_too_long(body, self.config.limits.message);
                let id = CallId(meta.correlation_id);
                Ok(Some(ClientEvent::Reply(id, Reply::failure(failure))))
            }
            Some(OversizedFrame::Partial(wanted)) => {
                self.wanted = wanted;
                Ok(None)
            }
            None => Err(violation),
        }
    }

    /// Returns the failure that the server reported. A method may be unknown because the server numbers methods
    /// differently.
    #[cold]
    fn server_failure(&self, number: i32) -> Status {
        let status = status::status(number);
        match self.other_dialects().filter(|_| number == ENOMETHOD) {
            Some(hint) => failure(number, format!("{}; {hint}", status.message())).into_remote(),
            None => status,
        }
    }

    /// Returns the dialects that the server may use instead, unless it has understood a call.
    #[cold]
    fn other_dialects(&self) -> Option<String> {
        let ClientConfig { magic, hash, .. } = self.config;
        let letters = String::from_utf8_lossy(magic.letters());
        let dots = match hash {
            ServiceHash::OneDot => "one dot",
            ServiceHash::TwoDots => "two dots",
        };
        (!self.understood).then(|| {
            format!(
                "the server may speak another dialect of fb_rpc than this client ({letters}, {dots}): set version=frpc in \
                 the URL for brpc#3559 (FRPC, one dot), version=frpc-two-dots for brpc#3197 (FRPC, two dots), or \
                 version=brpc-two-dots for brpc#3197 as of January 2026 (BRPC, two dots)"
            )
        })
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        if self.config.credential.is_some() || call.credential.bytes().is_some() {
            return Err(unsupported("fb_rpc carries no credential"));
        }
        check_supported(&call)?;
        let ClientConfig { magic, hash, .. } = self.config;
        let service = service_number(call.service, hash)?;
        let method = method_number(call.method, magic == Magic::Brpc || hash == ServiceHash::TwoDots)?;
        let sizes = Sizes::new(&call.body, &call.attachment, frame::REQUEST, self.config.limits.message)
            .ok_or_else(overlong)?;
        Request { service, method, sizes, correlation_id: id.0 }.write(magic, out);
        out.body(call.body);
        if !call.attachment.is_empty() {
            out.body(call.attachment);
        }
        Ok(())
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        _out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        self.wanted = 0;
        if !self.discarding.take(inbox) {
            return Ok(None);
        }
        let next = match frame::take_frame(inbox, self.config.limits.message, Some(self.config.magic)) {
            Ok(next) => next,
            Err(violation) => return self.fail_oversized(inbox, violation),
        };
        match next {
            NextFrame::Whole(frame) => self.handle_frame(frame).map(Some),
            NextFrame::Partial(wanted) => {
                self.wanted = wanted;
                Ok(None)
            }
            NextFrame::Foreign => Err(Violation::new("the server does not speak this fb_rpc")),
        }
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }

    fn failure_hint(&self) -> Option<String> {
        self.other_dialects()
    }

    /// As in baidu_std: not reusable after the server announced that it is stopping.
    fn is_reusable(&self) -> bool {
        !self.logged_off && !self.discarding.is_active()
    }
}

/// Checks that fb_rpc can express everything the call requires. Only the deadline, which the client enforces itself, is
/// left out.
fn check_supported(call: &Call<'_>) -> Result<(), Status> {
    if !matches!(call.head.format, Format::FlatBuffers | Format::Raw) {
        return Err(no_format(call.head.format));
    }
    if !call.head.metadata.is_empty() {
        return Err(unsupported("fb_rpc has no metadata"));
    }
    if call.head.compression != Compression::None {
        return Err(unsupported("fb_rpc cannot compress"));
    }
    if call.head.checksum != Checksum::None {
        return Err(unsupported("fb_rpc has no checksums"));
    }
    if call.body.is_empty() {
        return Err(unsupported("fb_rpc has no empty messages"));
    }
    Ok(())
}

fn service_number(service: &str, hash: ServiceHash) -> Result<u32, Status> {
    match service.strip_prefix('#') {
        Some(number) => parse_canonical_decimal(number).ok_or_else(|| {
            unsupported("expected a service's number below 2^32 behind `#`, without leading zeros")
        }),
        None => Ok(service_id(service, hash)),
    }
}

fn method_number(method: &str, by_index: bool) -> Result<i32, Status> {
    let (_, numbers) = method.rsplit_once('#').ok_or_else(|| unnumbered(method))?;
    let (id, index) = numbers.split_once(',').unwrap_or((numbers, numbers));
    let number = |text| parse_canonical_decimal(text).ok_or_else(|| unnumbered(method));
    let (id, index) = (number(id)?, number(index)?);
    Ok(if by_index { index } else { id })
}

#[cold]
fn unnumbered(method: &str) -> Status {
    unsupported(format!(
        "fb_rpc identifies methods by number, without leading zeros: `{}#7`; see the .fbs for the numbers",
        method.split('#').next().unwrap_or_default()
    ))
}

#[cold]
fn no_format(format: Format) -> Status {
    unsupported(format!("fb_rpc carries FlatBuffers, not {}", format.as_str()))
}

/// brpc's client reports with this number what it cannot send.
#[cold]
fn unsupported(text: impl Into<std::borrow::Cow<'static, str>>) -> Status {
    failure(EREQUEST, text)
}

/// The peer would close the connection, which other calls share.
#[cold]
fn overlong() -> Status {
    unsupported(
        "the message and its attachment exceed the limit, which is the peer's as well if it is brpc's",
    )
}

#[cold]
fn malformed_request() -> Status {
    failure(EREQUEST, "the length of the request does not match its header")
}

#[cold]
fn malformed_response() -> Status {
    failure(ERESPONSE, "the length of the response does not match its header")
}

#[cold]
fn truncated() -> Violation {
    Violation::new("a meta is shorter than its fields")
}

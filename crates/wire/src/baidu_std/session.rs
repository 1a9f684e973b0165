//! Both sides of a connection.

use std::borrow::Cow;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::body::{self, Body, Unsendable, Unusable};
use super::frame::{self, Cut, Frame, Kind};
use super::meta::{Malformed, Meta, Request, Response};
use super::status::{self, EINTERNAL, ELOGOFF, ENOMETHOD, ENOSERVICE, EREQUEST, ERESPONSE, ERPCAUTH};
use super::{metadata, stream};
use crate::session::{self, Answer, Event, Missing};
use crate::{
    Call, CallId, Credential, Fault, Format, Head, Limits, Metadata, Outbox, Reply, Status, Violation,
};

/// What all connections of a server have in common.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// What a connection accepts. As brpc's `max_body_size`, [`Limits::message`] bounds what follows a
    /// frame's header.
    pub limits: Limits,
    /// `ip:port` of the server, told in brackets before the text of every failure; empty leaves it out.
    pub address: String,
}

/// The server's side of a connection.
///
/// ```text
///            first request                drain
///   Expects ───────────────▶ Serves ─────────────────▶ Turns every request away
///   credential
/// ```
///
/// Streams are not accepted: a request that brings one is answered the way brpc answers it when the handler
/// does not accept, and a stream's frame is answered like one of an unknown stream.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// The frame of the call that was given out last: its names are borrowed from here. Let go at the next
    /// pull, so that an idle connection holds on to no buffer.
    meta: Bytes,
    wanted: usize,
    expects_credential: bool,
    draining: bool,
}

/// What an answer must carry.
#[derive(Debug)]
pub struct Ticket {
    correlation_id: i64,
    /// The client's id of the stream the request brought: the answer travels inside of it.
    stream: Option<i64>,
}

impl Ticket {
    fn of(meta: &Meta<'_>) -> Self {
        let stream = meta.stream_settings.as_ref().and_then(|settings| settings.stream_id);
        Self { correlation_id: meta.correlation_id, stream }
    }
}

impl Server {
    /// A connection that has just been accepted.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { config, meta: Bytes::new(), wanted: 0, expects_credential: true, draining: false }
    }
}

impl session::Server for Server {
    type Ticket = Ticket;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<Event<'_, Ticket>>, Violation> {
        self.meta = Bytes::new();
        self.wanted = 0;
        loop {
            match frame::cut(inbox, self.config.limits.message)? {
                Cut::Whole(frame) => match frame.kind {
                    Kind::Rpc if self.draining => self.turn_away(&frame, out)?,
                    Kind::Rpc => return self.call(frame).map(Some),
                    Kind::Stream => stream::answer_unknown(&frame, out),
                },
                Cut::Partial(wanted) => {
                    self.wanted = wanted;
                    return Ok(None);
                }
                Cut::Foreign => return Ok(Some(Event::Foreign)),
            }
        }
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        let Reply { result, head, attachment, .. } = reply;
        let body =
            result.and_then(|message| Body::encode(message, attachment, &head).map_err(unserializable));
        match body {
            Ok(body) => {
                let response = Some(Response { error_code: 0, error_text: None });
                let meta =
                    Meta { response, user_fields: metadata::user_fields(&head.metadata), ..body.meta() };
                write_response(&ticket, meta, body.len(), out);
                body.append(out);
            }
            Err(status) => self.fail(&ticket, &status, &head.metadata, out),
        }
    }

    /// A service without a dot is looked up by its short name, which is the only way to 1001
    /// (brpc `policy/baidu_rpc_protocol.cpp`, `ProcessRpcRequest`).
    fn unknown(call: &Call<'_>, missing: Missing) -> Status {
        match missing {
            Missing::Service if !call.service.contains('.') => {
                status::status(ENOSERVICE, format!("Fail to find service={}", call.service))
            }
            Missing::Service | Missing::Method => {
                status::status(ENOMETHOD, format!("Fail to find method={}/{}", call.service, call.method))
            }
        }
    }

    /// brpc's server answers in protobuf whatever the request was in, unless the handler chooses.
    fn reply_format(_: Format) -> Format {
        Format::Protobuf
    }

    /// The one failure whose text has no address before it and whose meta has no fields but two.
    fn refuse(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        let text = if status.message().is_empty() { "Fail to authenticate" } else { status.message() };
        let response = Some(Response { error_code: ERPCAUTH, error_text: Some(text.as_bytes()) });
        let meta = Meta { response, correlation_id: ticket.correlation_id, ..Meta::default() };
        write_frame(&meta, 0, out.buffer());
        true
    }

    fn wanted(&self) -> usize {
        self.wanted
    }

    fn drain(&mut self, _out: &mut Outbox) {
        self.draining = true;
    }
}

impl Server {
    fn call(&mut self, frame: Frame) -> Result<Event<'_, Ticket>, Violation> {
        self.meta = frame.meta;
        let meta = Meta::read(&self.meta).map_err(garbage)?;
        let (service, method) = names(&meta);
        let ((body, attachment), spoiled) = match body::split(frame.payload, &meta) {
            Ok(parts) => (parts, None),
            Err(reason) => (<_>::default(), Some(unusable_request(&reason))),
        };
        let head = Head { metadata: metadata::read(&meta, &self.meta), ..body::head(&meta) };
        let credential = meta.authentication_data.filter(|data| self.expects_credential && !data.is_empty());
        let credential = Credential::Connection(credential.map(|data| self.meta.slice_ref(data)));
        self.expects_credential = false;
        let (timeout, ticket) = (timeout(&meta), Ticket::of(&meta));
        let call =
            Call { service, method, body, attachment, head, timeout, oneway: false, credential, spoiled };
        Ok(Event::Call(call, ticket))
    }

    #[cold]
    fn turn_away(&self, frame: &Frame, out: &mut Outbox) -> Result<(), Violation> {
        let meta = Meta::read(&frame.meta).map_err(garbage)?;
        let stopping = status::status(ELOGOFF, "Server is stopping");
        self.fail(&Ticket::of(&meta), &stopping, &Metadata::new(), out);
        Ok(())
    }

    #[cold]
    fn fail(&self, ticket: &Ticket, status: &Status, metadata: &Metadata, out: &mut Outbox) {
        let text = self.error_text(status);
        let response = Response { error_code: status::number(status), error_text: Some(text.as_bytes()) };
        let user_fields = metadata::user_fields(metadata);
        let meta = Meta { response: Some(response), user_fields, ..body::empty_meta() };
        write_response(ticket, meta, 0, out);
    }

    /// `[ip:port][E1003]text`; the code is left out where the failure says no more than that it failed
    /// (brpc `Controller::SetFailed` without and with a code).
    fn error_text(&self, status: &Status) -> String {
        let mut text = String::new();
        if !self.config.address.is_empty() {
            text = format!("[{}]", self.config.address);
        }
        let number = status::number(status);
        if status.number().is_some() || number != EINTERNAL {
            text += &format!("[E{number}]");
        }
        text + status.message()
    }
}

/// What a client's connection is made with.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// What the connection accepts, counted as in [`ServerConfig::limits`].
    pub limits: Limits,
    /// What proves who calls; it travels with the first request.
    pub credential: Option<Bytes>,
    /// Whether the server is told how long the caller waits. brpc's own clients do not tell unless the flag
    /// `baidu_std_protocol_deliver_timeout_ms` says so.
    pub deliver_timeout: bool,
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    /// Gone once the first request was written.
    credential: Option<Bytes>,
    deliver_timeout: bool,
    wanted: usize,
    /// The server said that it is stopping.
    logged_off: bool,
}

impl Client {
    /// A connection that has just been made.
    pub fn new(config: ClientConfig) -> Self {
        let ClientConfig { limits, credential, deliver_timeout } = config;
        Self { limits, credential, deliver_timeout, wanted: 0, logged_off: false }
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        let body = Body::encode(call.body, call.attachment, &call.head).map_err(inexpressible)?;
        let mut request = Request {
            service_name: Some(call.service.as_bytes()),
            method_name: Some(call.method.as_bytes()),
            timeout_ms: call.timeout.filter(|_| self.deliver_timeout).map(timeout_ms),
            ..Request::default()
        };
        let user_fields = metadata::write(&call.head.metadata, &mut request);
        let meta = Meta {
            request: Some(request),
            correlation_id: id.0.cast_signed(),
            authentication_data: self.credential.as_deref(),
            user_fields,
            ..body.meta()
        };
        write_frame(&meta, body.len(), out.buffer());
        body.append(out);
        self.credential = None;
        Ok(())
    }

    fn next_event(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Result<Option<Answer>, Violation> {
        self.wanted = 0;
        loop {
            match frame::cut(inbox, self.limits.message)? {
                Cut::Whole(frame) => {
                    if let Some(answer) = self.answer(frame, out) {
                        return Ok(Some(answer));
                    }
                }
                Cut::Partial(wanted) => {
                    self.wanted = wanted;
                    return Ok(None);
                }
                Cut::Foreign => return Err(Violation::new("the server does not speak baidu_std")),
            }
        }
    }

    fn wanted(&self) -> usize {
        self.wanted
    }

    /// Not after a server said that it is stopping: brpc's clients keep such a connection for what is owed
    /// and choose another server for the rest.
    fn reusable(&self) -> bool {
        !self.logged_off
    }
}

impl Client {
    /// What a frame says; `None` if it is nothing a caller waits for.
    fn answer(&mut self, frame: Frame, out: &mut Outbox) -> Option<Answer> {
        let Frame { meta: bytes, payload, .. } = response(frame, out)?;
        // brpc drops what it cannot parse: the call ends by its timeout (`ProcessRpcResponse`).
        let meta = Meta::read(&bytes).ok()?;
        // No stream was asked for, so a stream of the server's has no other end.
        if let Some(stream) = Ticket::of(&meta).stream {
            stream::reset(stream, out);
        }
        let (result, attachment) = self.outcome(payload, &meta);
        let head = Head { metadata: metadata::read(&meta, &bytes), ..body::head(&meta) };
        let id = CallId(meta.correlation_id.cast_unsigned());
        Some(Answer::Reply(id, Reply { result, head, attachment, trailers: Metadata::new() }))
    }

    fn outcome(&mut self, payload: Bytes, meta: &Meta<'_>) -> (Result<Bytes, Status>, Bytes) {
        if let Some(response) = &meta.response
            && response.error_code != 0
        {
            self.logged_off |= response.error_code == ELOGOFF;
            return (Err(failure(response)), Bytes::new());
        }
        match body::split(payload, meta) {
            Ok((message, attachment)) => (Ok(message), attachment),
            Err(reason) => (Err(unusable_response(&reason)), Bytes::new()),
        }
    }
}

/// The response in a frame, which may be the data of a stream's frame; `None` if there is none.
fn response(frame: Frame, out: &mut Outbox) -> Option<Frame> {
    if frame.kind == Kind::Rpc {
        return Some(frame);
    }
    let response = stream::unwrap_response(&frame);
    if response.is_none() {
        stream::answer_unknown(&frame, out);
    }
    response
}

/// Appends the header and the meta; the payload, of which only the length is needed, follows.
fn write_frame(meta: &Meta<'_>, payload: usize, buffer: &mut Vec<u8>) {
    let start = frame::begin(buffer, Kind::Rpc);
    meta.write(buffer);
    let size = buffer.len() - start - frame::HEADER;
    frame::finish(buffer, start, size, payload);
}

/// Appends a response up to its payload. If the request brought a stream, the response travels inside of it.
fn write_response(ticket: &Ticket, meta: Meta<'_>, payload: usize, out: &mut Outbox) {
    let meta = Meta { correlation_id: ticket.correlation_id, ..meta };
    let write = |buffer: &mut Vec<u8>| write_frame(&meta, payload, buffer);
    match ticket.stream {
        None => write(out.buffer()),
        Some(id) => stream::wrap_response(id, payload, out.buffer(), write),
    }
}

/// The service and the method. Without a request there are none, and what is not UTF-8 names nothing: both
/// end as unknown.
fn names<'a>(meta: &Meta<'a>) -> (&'a str, &'a str) {
    let text = |name: Option<&'a [u8]>| str::from_utf8(name?).ok();
    let request = meta.request.as_ref();
    request.and_then(|request| text(request.service_name).zip(text(request.method_name))).unwrap_or_default()
}

fn timeout(meta: &Meta<'_>) -> Option<Duration> {
    let milliseconds = u64::try_from(meta.request.as_ref()?.timeout_ms?).ok()?;
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

/// At least 1: brpc sends, and believes, positive values only.
fn timeout_ms(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1)
}

#[cold]
fn garbage(_: Malformed) -> Violation {
    Violation::new("a meta that is not an RpcMeta")
}

#[cold]
fn unusable_request(reason: &Unusable) -> Status {
    let text = match reason {
        Unusable::Attachment { announced: ..0, .. } => "attachment_size is negative".into(),
        Unusable::Attachment { announced, size } => {
            Cow::from(format!("attachment_size={announced} is larger than request_size={size}"))
        }
        Unusable::Checksum { size } => {
            format!("Fail to verify the checksum, ChecksumType=crc32c, request_size={size}").into()
        }
    };
    status::status(EREQUEST, text)
}

/// A checksum that does not fit is an undecodable response, which brpc's client tells as 1003.
#[cold]
fn unusable_response(reason: &Unusable) -> Status {
    let status = match reason {
        Unusable::Attachment { announced, size } => status::status(
            ERESPONSE,
            format!("attachment_size={announced} does not fit into response_size={size}"),
        ),
        Unusable::Checksum { size } => status::status(
            EREQUEST,
            format!("Fail to verify the checksum, ChecksumType=crc32c, response_size={size}"),
        ),
    };
    status.with_fault(Fault::Peer)
}

#[cold]
fn unserializable(reason: Unsendable) -> Status {
    status::status(ERESPONSE, format!("Fail to serialize response: {reason}"))
}

#[cold]
fn inexpressible(reason: Unsendable) -> Status {
    status::status(EREQUEST, format!("Fail to serialize request: {reason}"))
}

#[cold]
fn failure(response: &Response<'_>) -> Status {
    let text = String::from_utf8_lossy(response.error_text.unwrap_or_default());
    status::status(response.error_code, text.into_owned())
}

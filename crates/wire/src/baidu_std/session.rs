//! Session state of both sides of a connection.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::str;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Server as _;
use polyrpc_core::session::server::Ticket as _;
use polyrpc_core::session::{
    ClientEvent, NotFound, OfferedStreams, ServerEvent, StreamOptions, ViolationKind,
};
use polyrpc_core::{
    Call, CallId, Carrier, Code, Compression, Credential, Fault, Format, Head, Json, Limits, Message,
    Metadata, Outbox, Reply, Status, StreamId, UnsupportedEntry, Violation, session,
};

use super::body::{Body, DecodeError, EncodeError};
use super::frame::{Frame, Kind, NextFrame, OversizedFrame};
use super::meta::{MAX_USER_FIELDS, MalformedMeta, Meta, Request, Response, StreamSettings};
use super::stream::{
    self, ClientStreams, FrameOutcome, PendingOffer, ServerStreamEvent, ServerStreams, StreamLimits,
};
use super::{body, frame, metadata};
use crate::brpc_status as status;
use crate::brpc_status::{EINTERNAL, ELOGOFF, ENOMETHOD, ENOSERVICE, EREQUEST, ERESPONSE, ERPCAUTH};
use crate::failure_text::shorten;
use crate::metadata_count::{self, TooManyEntries, too_many_in_response};
use crate::oversized::{Discarding, response_too_long};
use crate::timeout_millis::to_millis;

/// Settings shared by all connections of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Limits of a connection. Like brpc's `max_body_size`, [`Limits::message`] bounds the bytes after a frame's
    /// header.
    pub limits: Limits,
    /// `ip:port` of the server, written in brackets before the text of every failure; empty omits it.
    pub address: String,
    /// Limits of a connection's streams.
    pub streams: StreamLimits,
    /// Parses JSON as leniently as brpc ([`Json::BrpcLenient`](polyrpc_core::Json::BrpcLenient)).
    pub lenient_json: bool,
}

/// The server's side of a connection.
///
/// ```text
///            first request                drain
///   Expects ───────────────▶ Serves ─────────────────▶ Turns every request away
///   credential
/// ```
///
/// A request may offer streams, which are accepted before it is answered; from then on they are independent of the
/// call.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// Meta of the most recently emitted call: its names are borrowed from here. It is released at the next pull, so
    /// that an idle connection holds no buffer.
    meta: Bytes,
    wanted: usize,
    draining: bool,
    /// Created with the first offered stream: most connections never need it.
    streams: Option<Box<ServerStreams>>,
}

/// What is needed to answer a call or to end a stream.
#[derive(Debug)]
pub struct Ticket(PendingReply);

#[derive(Debug)]
enum PendingReply {
    Response {
        correlation_id: i64,
        /// The streams offered by the request: the response is wrapped in a frame of the first one.
        offering: Option<Box<PendingOffer>>,
    },
    /// A stream attached to a call that was accepted.
    Stream(u64),
}

impl Server {
    /// Creates the state of a newly accepted connection.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { config, meta: Bytes::new(), wanted: 0, draining: false, streams: None }
    }
}

impl session::Server for Server {
    type Ticket = Ticket;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        self.meta = Bytes::new();
        self.wanted = 0;
        loop {
            if let Some(found) = self.streams.as_mut().and_then(|streams| streams.next_event()) {
                return Ok(Some(event(found)));
            }
            match frame::take_frame(inbox, self.config.limits.message)? {
                NextFrame::Whole(frame) => match frame.kind {
                    Kind::Rpc if self.draining => self.reject_frame(&frame, out)?,
                    Kind::Rpc => return self.call(frame).map(Some),
                    Kind::Stream => self.take_stream(frame, out),
                },
                NextFrame::Partial(wanted) => {
                    self.wanted = wanted;
                    return Ok(None);
                }
                NextFrame::Foreign => return Ok(Some(ServerEvent::Foreign)),
            }
        }
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        match ticket.0 {
            PendingReply::Response { correlation_id, offering } => {
                let offering = offering.map(|offering| self.decline_unaccepted(*offering));
                self.respond(correlation_id, offering.as_ref(), reply, out);
            }
            PendingReply::Stream(id) => self.end_stream(id, reply.result.is_ok(), out),
        }
    }

    /// The only failure whose text has no address prefix and whose meta has only two fields.
    fn reject(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        let text = if status.message().is_empty() { "Fail to authenticate" } else { status.message() };
        let response = Some(Response { error_code: ERPCAUTH, error_text: Some(text.as_bytes()) });
        let correlation_id = match ticket.0 {
            PendingReply::Response { correlation_id, .. } => correlation_id,
            PendingReply::Stream(_) => return true,
        };
        let meta = Meta { response, correlation_id, ..Meta::default() };
        write_frame(&meta, 0, out.buffer());
        true
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }

    fn drain(&mut self, _out: &mut Outbox) {
        self.draining = true;
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut impl session::server::Streaming<Ticket>> {
        Some(self)
    }
}

impl session::server::Streaming<Ticket> for Server {
    fn accept_streams(&mut self, ticket: &mut Ticket, options: &StreamOptions) -> Vec<Ticket> {
        let (PendingReply::Response { offering: Some(offering), .. }, Some(streams)) =
            (&mut ticket.0, &mut self.streams)
        else {
            return Vec::new();
        };
        streams.accept(offering, options).into_iter().map(|id| Ticket(PendingReply::Stream(id))).collect()
    }

    /// The response of a streaming method is empty: it accepts the stream and states the encoding of the messages on
    /// it.
    fn start_response(&mut self, stream: StreamId, head: Head, out: &mut Outbox) {
        let begun = self.streams.as_mut().and_then(|streams| streams.start_response(stream.0));
        if let Some((correlation_id, offering)) = begun {
            let head = Head { compression: Compression::None, ..head };
            self.respond(correlation_id, Some(&offering), Reply::new(Ok(Bytes::new()), head), out);
        }
    }

    fn send_message(&mut self, stream: StreamId, message: Bytes, out: &mut Outbox) {
        self.start_response(stream, Head::default(), out);
        if let Some(streams) = &mut self.streams {
            streams.streams.send(stream.0, message, out);
        }
    }

    /// brpc does not transmit why a stream ends: a failed stream ends with `RST`, any other with `CLOSE`.
    fn finish(&mut self, ticket: Ticket, result: Result<(), Status>, trailers: Metadata, out: &mut Outbox) {
        match (ticket.stream(), result) {
            (Some(stream), Ok(())) => {
                self.start_response(stream, Head::default(), out);
                self.end_stream(stream.0, true, out);
            }
            (Some(stream), Err(_)) if self.has_begun(stream.0) => self.end_stream(stream.0, false, out),
            (_, result) => {
                let reply = Reply::new(result.map(|()| Bytes::new()), Head::default());
                self.reply(ticket, Reply { trailers, ..reply }, out);
            }
        }
    }

    fn has_room(&self, stream: StreamId) -> bool {
        self.streams.as_ref().is_none_or(|streams| streams.has_room(stream.0))
    }

    fn record_consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Outbox) {
        if let Some(streams) = &mut self.streams {
            streams.streams.record_consumed(stream.0, bytes, out);
        }
    }

    fn reset(&mut self, stream: StreamId, out: &mut Outbox) {
        self.end_stream(stream.0, false, out);
    }
}

impl session::server::Housekeeping for Server {
    /// Bytes of incomplete stream messages, and of the streams' state.
    fn buffered(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.held())
    }
}

impl session::server::Ticket for Ticket {
    /// A service without a dot is looked up by its short name, which is the only way to get 1001 (brpc
    /// `policy/baidu_rpc_protocol.cpp`, `ProcessRpcRequest`).
    fn not_found_failure(&self, call: &Call<'_>, missing: NotFound) -> Status {
        match missing {
            NotFound::Service if !call.service.contains('.') => {
                status::status(ENOSERVICE, format!("Fail to find service={}", call.service_or_function()))
            }
            NotFound::Service | NotFound::Method => {
                status::status(ENOMETHOD, format!("Fail to find method={}/{}", call.service, call.method))
            }
        }
    }

    fn decode_failure(&self) -> fn(Status) -> Status {
        decode_failure
    }

    fn carrier(&self) -> Carrier {
        Carrier::Map
    }

    /// brpc's server answers in protobuf whatever the request's format, unless the handler chooses another.
    fn reply_format(&self, _: Format) -> Format {
        Format::Protobuf
    }

    fn stream(&self) -> Option<StreamId> {
        match &self.0 {
            PendingReply::Response { offering, .. } => {
                let offering = offering.as_ref().filter(|offering| offering.count.is_some())?;
                Some(StreamId(offering.first))
            }
            PendingReply::Stream(id) => Some(StreamId(*id)),
        }
    }

    fn offered_streams(&self) -> Option<OfferedStreams> {
        let PendingReply::Response { offering: Some(offering), .. } = &self.0 else { return None };
        let streams = offering.count.map_or(0, NonZeroUsize::get);
        Some(OfferedStreams { first: StreamId(offering.first), streams, writable: offering.writable })
    }
}

/// A message that exceeds the limit when decompressed is an ordinary bad request. With the code of an exceeded limit,
/// brpc's client would retry it on the next server (`retry_policy.cpp`), and so on every server.
fn decode_failure(status: Status) -> Status {
    match status.code() {
        Code::ResourceExhausted => status::status(EREQUEST, status.message().to_owned()),
        _ => status,
    }
}

impl Server {
    fn call(&mut self, frame: Frame) -> Result<ServerEvent<'_, Ticket>, Violation> {
        self.meta = frame.meta;
        let meta = Meta::read(&self.meta).map_err(malformed_meta)?;
        let (service, method) = names(&meta);
        let ((body, attachment), malformed) = match body::split(frame.payload, &meta) {
            Ok(parts) => (parts, None),
            Err(reason) => (<_>::default(), Some(malformed_request(&reason))),
        };
        let mut head = Head { metadata: metadata::read(&meta, &self.meta), ..body::head(&meta) };
        if self.config.lenient_json && head.format == Format::Json(Json::Brpc) {
            head.format = Format::Json(Json::BrpcLenient);
        }
        let credential = meta.authentication_data.filter(|data| !data.is_empty());
        let credential = Credential::Connection(credential.map(|data| self.meta.slice_ref(data)));
        let (timeout, correlation_id) = (timeout(&meta), meta.correlation_id);
        let offering = meta.stream_settings.map(|settings| {
            let streams = self.streams.get_or_insert_with(|| streams(&self.config));
            Box::new(streams.offer(correlation_id, settings))
        });
        let ticket = Ticket(PendingReply::Response { correlation_id, offering });
        let call = Call {
            service,
            method,
            body,
            attachment,
            head,
            timeout,
            oneway: false,
            credential,
            authenticated: false,
            malformed,
        };
        Ok(ServerEvent::Call(call, ticket))
    }

    fn take_stream(&mut self, frame: Frame, out: &mut Outbox) {
        let handled = match &mut self.streams {
            Some(streams) => streams.streams.handle_frame(frame, out),
            None => FrameOutcome::without_streams(frame),
        };
        handled.answer(out);
    }

    /// Returns the streams offered by a call that is being answered: those that were not accepted are declined.
    fn decline_unaccepted(&mut self, offering: PendingOffer) -> PendingOffer {
        if let (None, Some(streams)) = (&offering.settings, &mut self.streams) {
            streams.decline(&offering);
        }
        offering
    }

    fn has_begun(&self, stream: u64) -> bool {
        self.streams.as_ref().is_some_and(|streams| streams.has_begun(stream))
    }

    fn end_stream(&mut self, stream: u64, is_success: bool, out: &mut Outbox) {
        if let Some(streams) = &mut self.streams {
            streams.finish(stream, is_success, out);
        }
    }

    /// Answers a call; if it offered streams, the response is wrapped in a frame of the first one.
    fn respond(
        &mut self,
        correlation_id: i64,
        offering: Option<&PendingOffer>,
        reply: Reply,
        out: &mut Outbox,
    ) {
        let Reply { result, head, attachment, .. } = reply;
        let body = result.and_then(|message| {
            metadata_count::check(head.metadata.len(), MAX_USER_FIELDS)
                .map_err(TooManyEntries::into_failure)?;
            Body::encode(message, attachment, &head).map_err(unserializable)
        });
        match body {
            Ok(body) => {
                let meta = Meta {
                    response: Some(Response { error_code: 0, error_text: None }),
                    correlation_id,
                    stream_settings: offering.and_then(|offering| offering.settings.clone()),
                    user_fields: metadata::user_fields(&head.metadata),
                    ..body.meta()
                };
                write_response(offering, &meta, body.len(), out);
                body.append(out);
            }
            Err(status) => {
                if let (Some(offering), Some(streams)) = (offering, &mut self.streams) {
                    streams.revoke(offering);
                }
                self.fail(correlation_id, offering, &status, &head.metadata, out);
            }
        }
    }

    #[cold]
    fn reject_frame(&self, frame: &Frame, out: &mut Outbox) -> Result<(), Violation> {
        let meta = Meta::read(&frame.meta).map_err(malformed_meta)?;
        let stopping = status::status(ELOGOFF, "Server is stopping");
        let offering = meta.stream_settings.as_ref().and_then(PendingOffer::none_of);
        self.fail(meta.correlation_id, offering.as_ref(), &stopping, &Metadata::new(), out);
        Ok(())
    }

    #[cold]
    fn fail(
        &self,
        correlation_id: i64,
        offering: Option<&PendingOffer>,
        status: &Status,
        metadata: &Metadata,
        out: &mut Outbox,
    ) {
        let text = self.error_text(status);
        let response =
            Some(Response { error_code: status::number(status), error_text: Some(text.as_bytes()) });
        let user_fields = match metadata_count::check(metadata.len(), MAX_USER_FIELDS) {
            Ok(()) => metadata::user_fields(metadata),
            // The failure is worth more than its metadata.
            Err(_) => Vec::new(),
        };
        let meta = Meta { response, correlation_id, user_fields, ..body::empty_meta() };
        write_response(offering.map(PendingOffer::to_declined).as_ref(), &meta, 0, out);
    }

    /// Formats `[ip:port][E1003]text`; the code is omitted if the failure has no specific one (brpc
    /// `Controller::SetFailed` without and with a code).
    fn error_text(&self, status: &Status) -> String {
        let mut text = String::new();
        if !self.config.address.is_empty() {
            text = format!("[{}]", self.config.address);
        }
        let number = status::number(status);
        if status.number().is_some() || number != EINTERNAL {
            text += &format!("[E{number}]");
        }
        text.push_str(&shorten(status.message()));
        text
    }
}

/// Settings of a client's connection.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// Limits of the connection, counted as in [`ServerConfig::limits`].
    pub limits: Limits,
    /// Credential of the caller; it is sent with the first request.
    pub credential: Option<Bytes>,
    /// Whether the server receives the call's timeout. brpc's own clients send it only if the flag
    /// `baidu_std_protocol_deliver_timeout_ms` is set.
    pub deliver_timeout: bool,
    /// Limits of the connection's streams.
    pub streams: StreamLimits,
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    /// `None` once the first request was written.
    credential: Option<Bytes>,
    deliver_timeout: bool,
    wanted: usize,
    /// The rest of a response that exceeds the limit.
    discarding: Discarding,
    /// The server announced that it is stopping.
    logged_off: bool,
    stream_limits: StreamLimits,
    /// Created with the first requested stream: most connections never need it.
    streams: Option<Box<ClientStreams>>,
}

impl Client {
    /// Creates the state of a newly established connection.
    pub fn new(config: ClientConfig) -> Self {
        let ClientConfig { limits, credential, deliver_timeout, streams: stream_limits } = config;
        Self {
            limits,
            credential,
            deliver_timeout,
            wanted: 0,
            discarding: Discarding::default(),
            logged_off: false,
            stream_limits,
            streams: None,
        }
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        self.request(id, call, out, |_| None)
    }

    fn cancel(&mut self, id: CallId, out: &mut Outbox) {
        if let Some(client_streams) = &mut self.streams {
            client_streams.cancel(id, out);
        }
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        self.wanted = 0;
        loop {
            if let Some(answer) = self.streams.as_mut().and_then(|client_streams| client_streams.next_event())
            {
                return Ok(Some(answer));
            }
            if !self.discarding.take(inbox) {
                return Ok(None);
            }
            let next = match frame::take_frame(inbox, self.limits.message) {
                Ok(next) => next,
                Err(violation) => return self.fail_oversized(inbox, violation, out),
            };
            match next {
                NextFrame::Whole(frame) => {
                    if let Some(answer) = self.handle_frame(frame, out) {
                        return Ok(Some(answer));
                    }
                }
                NextFrame::Partial(wanted) => {
                    self.wanted = wanted;
                    return Ok(None);
                }
                NextFrame::Foreign => return Err(Violation::new("the server does not speak baidu_std")),
            }
        }
    }

    fn buffered(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.streams.held())
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }

    /// Not reusable after the server announced that it is stopping: brpc's clients keep such a connection for pending
    /// responses and choose another server for new calls.
    fn is_reusable(&self) -> bool {
        !self.logged_off && !self.discarding.is_active()
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut dyn session::client::Streaming> {
        Some(self)
    }
}

impl session::client::Streaming for Client {
    fn send_with_streams(
        &mut self,
        id: CallId,
        call: Call<'_>,
        streams: &[CallId],
        options: &StreamOptions,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let (limits, message) = (&self.stream_limits, self.limits.message);
        let client_streams =
            self.streams.get_or_insert_with(|| Box::new(ClientStreams::new(limits.clone(), message)));
        if !client_streams.has_room_for(streams.len()) {
            return Err(Status::resource_exhausted("too many streams are open on this connection"));
        }
        self.request(id, call, out, |client| {
            Some(client.streams.as_mut()?.open_for_call(id, streams, options))
        })
    }

    fn send_message(&mut self, id: CallId, message: Bytes, out: &mut Outbox) {
        if let Some(client_streams) = &mut self.streams {
            client_streams.streams.send(id.0, message, out);
        }
    }

    fn close(&mut self, id: CallId, out: &mut Outbox) {
        if let Some(client_streams) = &mut self.streams {
            client_streams.streams.close(id.0, out);
        }
    }

    fn has_room(&mut self, id: CallId) -> bool {
        self.streams.as_ref().is_none_or(|client_streams| client_streams.streams.has_room(id.0))
    }

    fn is_writable(&mut self, id: CallId) -> bool {
        self.streams.as_ref().is_some_and(|client_streams| client_streams.streams.is_writable(id.0))
    }

    fn record_consumed(&mut self, id: CallId, bytes: usize, out: &mut Outbox) {
        if let Some(client_streams) = &mut self.streams {
            client_streams.streams.record_consumed(id.0, bytes, out);
        }
    }
}

impl Client {
    /// Appends a request; `streams` creates the requested streams, once nothing can fail any more.
    fn request(
        &mut self,
        id: CallId,
        call: Call<'_>,
        out: &mut Outbox,
        streams: impl FnOnce(&mut Self) -> Option<StreamSettings>,
    ) -> Result<(), Status> {
        Carrier::Map.check(&call.head.metadata).map_err(UnsupportedEntry::into_refusal)?;
        let body = Body::encode(call.body, call.attachment, &call.head).map_err(unsupported)?;
        let mut request = Request {
            service_name: Some(call.service.as_bytes()),
            method_name: Some(call.method.as_bytes()),
            timeout_ms: call.timeout.filter(|_| self.deliver_timeout).map(timeout_ms),
            ..Request::default()
        };
        let user_fields = metadata::write(&call.head.metadata, &mut request);
        metadata_count::check(user_fields.len(), MAX_USER_FIELDS).map_err(TooManyEntries::into_refusal)?;
        let stream_settings = streams(self);
        // A call's own credential overrides that of the connection, which only the first call carries.
        let credential = call.credential.bytes().or(self.credential.as_ref());
        let meta = Meta {
            request: Some(request),
            correlation_id: id.0.cast_signed(),
            authentication_data: credential.map(|bytes| &bytes[..]),
            stream_settings,
            user_fields,
            ..body.meta()
        };
        write_frame(&meta, body.len(), out.buffer());
        body.append(out);
        self.credential = None;
        Ok(())
    }

    /// Handles a frame; returns `None` if no caller waits for it.
    fn handle_frame(&mut self, frame: Frame, out: &mut Outbox) -> Option<ClientEvent> {
        let Frame { meta: bytes, payload, .. } = self.response(frame, out)?;
        // brpc drops a malformed response: the call ends by its timeout (`ProcessRpcResponse`).
        let meta = Meta::read_response(&bytes).ok()?;
        let (result, attachment) = self.outcome(payload, &meta);
        let id = CallId(meta.correlation_id.cast_unsigned());
        let result = self.finish_call(id, meta.stream_settings.as_ref(), result, out);
        let head = Head { metadata: metadata::read(&meta, &bytes), ..body::head(&meta) };
        Some(ClientEvent::Reply(id, Reply { result, head, attachment, trailers: Metadata::new() }))
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
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        let oversized = match violation.kind() {
            ViolationKind::TooLarge => frame::take_oversized(inbox, &self.limits),
            _ => None,
        };
        let (bytes, body, payload) = match oversized {
            Some(OversizedFrame::Head { meta, body, payload }) => (meta, body, payload),
            Some(OversizedFrame::Partial(wanted)) => {
                self.wanted = wanted;
                return Ok(None);
            }
            None => return Err(violation),
        };
        let meta = Meta::read_response(&bytes).map_err(|_| violation)?;
        self.discarding.start(payload);
        let id = CallId(meta.correlation_id.cast_unsigned());
        let failure = Err(response_too_long(body, self.limits.message));
        let result = self.finish_call(id, meta.stream_settings.as_ref(), failure, out);
        let head = Head { metadata: metadata::read(&meta, &bytes), ..body::head(&meta) };
        Ok(Some(ClientEvent::Reply(id, Reply::new(result, head))))
    }

    /// Returns the response in a frame, possibly wrapped in a stream's frame; `None` if there is none.
    fn response(&mut self, frame: Frame, out: &mut Outbox) -> Option<Frame> {
        if frame.kind == Kind::Rpc {
            return Some(frame);
        }
        let handled = match &mut self.streams {
            Some(client_streams) => client_streams.streams.handle_frame(frame, out),
            None => FrameOutcome::without_streams(frame),
        };
        handled.response(out)
    }

    fn finish_call(
        &mut self,
        id: CallId,
        settings: Option<&StreamSettings>,
        result: Result<Bytes, Status>,
        out: &mut Outbox,
    ) -> Result<Bytes, Status> {
        if let Some(client_streams) = &mut self.streams {
            return client_streams.finish_call(id.0, settings, result, out);
        }
        if let Some(settings) = settings {
            stream::reset_all(settings, out);
        }
        result
    }

    fn outcome(&mut self, payload: Bytes, meta: &Meta<'_>) -> (Result<Bytes, Status>, Bytes) {
        if let Some(response) = &meta.response
            && response.error_code != 0
        {
            self.logged_off |= response.error_code == ELOGOFF;
            return (Err(failure(response)), Bytes::new());
        }
        if meta.has_more_user_fields {
            return (Err(too_many_in_response(MAX_USER_FIELDS)), Bytes::new());
        }
        match body::split(payload, meta) {
            Ok((message, attachment)) => (Ok(message), attachment),
            Err(reason) => (Err(malformed_response(&reason)), Bytes::new()),
        }
    }
}

fn streams(config: &ServerConfig) -> Box<ServerStreams> {
    Box::new(ServerStreams::new(config.streams.clone(), config.limits.message))
}

fn event(found: ServerStreamEvent) -> ServerEvent<'static, Ticket> {
    match found {
        ServerStreamEvent::Message(id, body) => {
            ServerEvent::Message(StreamId(id), Message { body, compression: Compression::None })
        }
        ServerStreamEvent::End(id) => ServerEvent::End(StreamId(id)),
        ServerStreamEvent::Gone(id) => ServerEvent::Cancelled(StreamId(id)),
        ServerStreamEvent::Room(id) => ServerEvent::Room(StreamId(id)),
    }
}

/// Appends the header and the meta; the caller appends the payload, of which only the length is needed.
fn write_frame(meta: &Meta<'_>, payload: usize, buffer: &mut Vec<u8>) {
    let start = frame::start_frame(buffer, Kind::Rpc);
    meta.write(buffer);
    let size = buffer.len() - start - frame::HEADER;
    frame::finish(buffer, start, size, payload);
}

/// Appends a response up to its payload. If the request offered streams, it is wrapped in a frame of the first one.
fn write_response(offering: Option<&PendingOffer>, meta: &Meta<'_>, payload: usize, out: &mut Outbox) {
    let write = |buffer: &mut Vec<u8>| write_frame(meta, payload, buffer);
    match offering {
        None => write(out.buffer()),
        Some(offering) => {
            let from = offering.settings.as_ref().and_then(|settings| settings.stream_id);
            stream::wrap_response(offering.client, from, payload, out.buffer(), write);
        }
    }
}

/// Returns the service and the method. They are empty without a request or if they are not UTF-8: both cases end as
/// unknown.
fn names<'a>(meta: &Meta<'a>) -> (&'a str, &'a str) {
    let text = |name: Option<&'a [u8]>| str::from_utf8(name?).ok();
    let request = meta.request.as_ref();
    request.and_then(|request| text(request.service_name).zip(text(request.method_name))).unwrap_or_default()
}

fn timeout(meta: &Meta<'_>) -> Option<Duration> {
    let milliseconds = u64::try_from(meta.request.as_ref()?.timeout_ms?).ok()?;
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

/// At least 1: brpc sends, and accepts, only positive values.
fn timeout_ms(timeout: Duration) -> i32 {
    i32::try_from(to_millis(timeout)).unwrap_or(i32::MAX).max(1)
}

#[cold]
fn malformed_meta(_: MalformedMeta) -> Violation {
    Violation::new("a meta that is not an RpcMeta")
}

#[cold]
fn malformed_request(reason: &DecodeError) -> Status {
    let text = match reason {
        DecodeError::Attachment { announced: ..0, .. } => "attachment_size is negative".into(),
        DecodeError::Attachment { announced, size } => {
            Cow::from(format!("attachment_size={announced} is larger than request_size={size}"))
        }
        DecodeError::Checksum { size } => {
            format!("Fail to verify the checksum, ChecksumType=crc32c, request_size={size}").into()
        }
    };
    status::status(EREQUEST, text)
}

/// A checksum mismatch is an undecodable response, which brpc's client reports as 1003.
#[cold]
fn malformed_response(reason: &DecodeError) -> Status {
    let status = match reason {
        DecodeError::Attachment { announced, size } => status::status(
            ERESPONSE,
            format!("attachment_size={announced} does not fit into response_size={size}"),
        ),
        DecodeError::Checksum { size } => status::status(
            EREQUEST,
            format!("Fail to verify the checksum, ChecksumType=crc32c, response_size={size}"),
        ),
    };
    status.with_fault(Fault::Peer)
}

#[cold]
fn unserializable(reason: EncodeError) -> Status {
    status::status(ERESPONSE, format!("Fail to serialize response: {reason}"))
}

#[cold]
fn unsupported(reason: EncodeError) -> Status {
    status::status(EREQUEST, format!("Fail to serialize request: {reason}"))
}

#[cold]
fn failure(response: &Response<'_>) -> Status {
    let text = String::from_utf8_lossy(response.error_text.unwrap_or_default());
    status::status(response.error_code, text.into_owned()).into_remote()
}

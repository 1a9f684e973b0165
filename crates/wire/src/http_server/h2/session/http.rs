//! HTTP/2 requests other than gRPC: they are mapped to calls like those of HTTP/1.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::append::append;
use polyrpc_core::session::server::BodyConversion;
use polyrpc_core::session::{NotFound, RequestHead, ServerEvent, Verdict};
use polyrpc_core::{Call, Carrier, Credential, Outbox, Reply, Status};

use super::clock::Clock;
use super::fallback_request::{ActiveExchange, Pieces};
use super::{CallEvent, TimeoutCause};
use crate::grpc::request::InvalidRequest;
use crate::http::cors::expose;
use crate::http::h1::frame::Refusal;
use crate::http::h2::hpack::{Fields, Indexing, encode_stateless, stateless_field};
use crate::http::head::WriteHead;
use crate::http::mapping::answer::{self, Answer, ResponseForm};
use crate::http::mapping::rejection;
use crate::http::mapping::request::{Method, Request};
use crate::http::mapping::request_kind::{self, BatchCalls, Names, RequestKind, RequestPreview};
use crate::http::{ServerConfig, h2};
use crate::http_server::answer::write as write_answer;
use crate::http_server::h2::{Server, Ticket};
use crate::http_server::request::H1Request;
use crate::json_rpc;

/// State of requests that were emitted.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) names: Names,
    /// Unanswered batches, by stream.
    batches: Vec<(u32, json_rpc::Batch)>,
    /// Size of their responses in bytes.
    held: usize,
    /// The rest of the batch that is being emitted.
    entries: Option<RemainingBatch>,
    /// Requests for the HTTP fallback, by stream.
    pub(super) passing: BTreeMap<u32, ActiveExchange>,
}

/// The calls of a batch that were not emitted yet.
#[derive(Debug)]
struct RemainingBatch {
    entries: BatchCalls,
    responding: ResponseContext,
    /// The credential of its request was accepted.
    authenticated: bool,
}

impl Calls {
    /// Returns the number of bytes of responses that wait for others of their batch.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns the same number, recounted.
    pub(super) fn recount(&self) -> usize {
        self.batches.iter().map(|(_, batch)| batch.len()).sum()
    }

    /// Drops the state of this stream.
    pub(super) fn forget(&mut self, stream: u32) {
        self.passing.remove(&stream);
        self.batches.retain(|(known, _)| *known != stream);
        self.held = self.batches.iter().map(|(_, batch)| batch.len()).sum();
    }

    /// Adds a response to its batch; returns all of them with the last.
    fn add(&mut self, stream: u32, response: &[u8]) -> Option<Vec<u8>> {
        let at = self.batches.iter().position(|(known, _)| *known == stream)?;
        let (_, batch) = self.batches.get_mut(at)?;
        let before = batch.len();
        batch.add(response);
        self.held += batch.len() - before;
        let whole = batch.finish()?;
        self.batches.swap_remove(at);
        self.held = self.batches.iter().map(|(_, batch)| batch.len()).sum();
        Some(whole)
    }
}

/// An unfinished request.
#[derive(Debug)]
pub(in crate::http_server::h2) enum Incoming {
    /// Its body has not been received yet.
    Body(Body),
    /// It arrived over HTTP/1 and requested an upgrade to HTTP/2.
    Whole(H1Request, Bytes),
    /// It is for the HTTP fallback, and its body is streamed.
    Pieces(Pieces),
}

/// A request whose body or verdict is pending.
#[derive(Debug)]
pub(in crate::http_server::h2) struct Body {
    request: Request,
    /// The received part of the body. It grows with that, whatever length was announced.
    bytes: Vec<u8>,
    /// The head was accepted, so the body is wanted. Until then the peer may send no more than its first window.
    accepted: bool,
    ended: bool,
    clock: Clock,
}

/// What to do after a piece of a body.
enum Next {
    /// Reject it: it exceeds the limit.
    TooLarge,
    /// Wait for the verdict.
    Judge,
    /// Wait for more.
    Wait,
    /// Handle the complete body.
    Whole,
}

impl Body {
    fn new(request: Request) -> Self {
        let clock = Clock::default();
        Self { request, bytes: Vec::new(), accepted: false, ended: false, clock }
    }

    /// Adds a piece.
    fn push(&mut self, piece: &[u8], end: bool, limit: usize) -> Next {
        if piece.len() > limit.saturating_sub(self.bytes.len()) {
            return Next::TooLarge;
        }
        append(&mut self.bytes, piece);
        self.clock.receive(piece.len());
        self.ended |= end;
        match (self.accepted, self.ended) {
            (false, _) => Next::Judge,
            (true, false) => Next::Wait,
            (true, true) => Next::Whole,
        }
    }
}

impl Incoming {
    /// Returns the number of buffered bytes that were not emitted.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Body(body) => body.bytes.len(),
            Self::Whole(_, body) => body.len(),
            Self::Pieces(pieces) => pieces.held(),
        }
    }

    /// Whether more bytes are due. Before the verdict, none are due from a peer that waits for `100 Continue`.
    pub(super) fn is_incomplete(&self) -> bool {
        matches!(self, Self::Body(body) if !body.ended && (body.accepted || !body.request.expects))
    }

    /// Whether the verdict on its head is pending.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self, Self::Body(body) if !body.accepted)
    }

    pub(super) fn clock(&mut self) -> Option<&mut Clock> {
        match self {
            Self::Body(body) => Some(&mut body.clock),
            Self::Whole(..) | Self::Pieces(_) => None,
        }
    }
}

/// The head of a request, whose names are in [`Calls`].
pub(super) struct Head {
    stream: u32,
    named: bool,
    credential: Credential,
}

/// Form of the response to a call.
#[derive(Debug)]
pub(super) struct PendingResponse {
    form: ResponseReader,
    responding: ResponseContext,
}

impl PendingResponse {
    pub(super) fn may_be_empty(&self) -> bool {
        matches!(&self.form, ResponseReader::Response(form) if form.may_be_empty())
    }

    /// Returns the failure of a call to a service or method that does not exist.
    pub(super) fn not_found(&self, call: &Call<'_>, missing: NotFound) -> Status {
        match &self.form {
            ResponseReader::Response(form) => form.not_found(call, missing),
            ResponseReader::Exchange => answer::not_found(call, missing),
            ResponseReader::Entry(_) | ResponseReader::Nothing => answer::not_found_in_rpcx(call, missing),
        }
    }

    /// Returns the conversion of a long body to the message.
    pub(super) fn body_conversion(&self) -> Option<BodyConversion> {
        match &self.form {
            ResponseReader::Response(form) => form.body_conversion(),
            ResponseReader::Entry(_) | ResponseReader::Exchange | ResponseReader::Nothing => None,
        }
    }

    /// Returns how its response carries metadata.
    pub(super) fn carrier(&self) -> Carrier {
        match &self.form {
            ResponseReader::Response(form) => form.carrier(),
            ResponseReader::Entry(_) | ResponseReader::Exchange | ResponseReader::Nothing => Carrier::Any,
        }
    }

    pub(super) fn responding(&self) -> &ResponseContext {
        &self.responding
    }

    /// Whether the HTTP fallback answers.
    pub(super) fn is_exchange(&self) -> bool {
        matches!(self.form, ResponseReader::Exchange)
    }

    pub(super) fn from_exchange(responding: ResponseContext) -> Self {
        Self { form: ResponseReader::Exchange, responding }
    }
}

/// Destination and form of the response to a call.
#[derive(Debug)]
enum ResponseReader {
    Response(ResponseForm),
    /// One of several responses that are sent together.
    Entry(json_rpc::PendingResponse),
    /// Sent by the HTTP fallback.
    Exchange,
    /// The response is discarded.
    Nothing,
}

/// Data for every response to a request.
#[derive(Debug, Clone)]
pub(super) struct ResponseContext {
    config: Arc<ServerConfig>,
    /// The response consists of a head only.
    head_only: bool,
    /// A page of this origin may read it.
    origin: Option<Bytes>,
}

impl ResponseContext {
    pub(super) fn new(request: &Request, config: &Arc<ServerConfig>) -> Self {
        let origin = config.cors.origin(&request.metadata);
        Self { config: config.clone(), head_only: request.method == Method::Head, origin }
    }

    /// Removes the origin, for a response without CORS fields.
    pub(super) fn without_origin(self) -> Self {
        Self { origin: None, ..self }
    }
}

impl Server {
    /// Handles a new request, with the received part of its body.
    pub(super) fn http_request(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        request: Result<Request, Refusal>,
        body: Bytes,
        end: bool,
        out: &mut Outbox,
    ) -> CallEvent {
        match request {
            Err(refusal) => self.http_refusal(stream, config, refusal, out),
            Ok(_) if body.len() > config.limits.message => {
                self.http_refusal(stream, config, Refusal::too_large(), out)
            }
            Ok(request) if end && request.is_plain() && !request_kind::wants_credential(config, &request) => {
                self.http_whole(stream, config, request, body, false, out)
            }
            // Compressed requests get their verdict before they are decompressed, as do some others.
            Ok(request) => self.http_head(stream, config, request, body, end, out),
        }
    }

    /// Handles the head of a request whose body is pending: it needs a verdict.
    fn http_head(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        request: Request,
        body: Bytes,
        end: bool,
        out: &mut Outbox,
    ) -> CallEvent {
        let RequestPreview { named, credential, answer } =
            request_kind::peek(config, &request, &mut self.http_calls.names);
        if let Some(answer) = answer {
            let responding = ResponseContext::new(&request, config);
            return self.http_answer(stream, &responding, answer, out);
        }
        let mut announced = Body::new(request);
        announced.push(&body, end, config.limits.message);
        let incoming = Incoming::Body(announced);
        self.open.insert(stream, super::Incoming::Http(Box::new(incoming)));
        CallEvent::Head(Box::new(Head { stream, named, credential }))
    }

    /// Handles a piece of a request's body.
    pub(super) fn http_piece(
        &mut self,
        stream: u32,
        bytes: &Bytes,
        end: bool,
        out: &mut Outbox,
    ) -> CallEvent {
        if self.add_piece(stream, bytes, end) {
            return CallEvent::Nothing;
        }
        let Some(config) = self.config.gateway.clone() else { return CallEvent::Nothing };
        let limit = config.limits.message;
        let next = self.http_change(stream, |body| body.push(bytes, end, limit));
        match next.unwrap_or(Next::Judge) {
            Next::Judge => CallEvent::Nothing,
            Next::Wait => {
                self.http.record_consumed(stream, bytes.len(), out);
                CallEvent::Nothing
            }
            Next::Whole => {
                self.http.record_consumed(stream, bytes.len(), out);
                let Some(Incoming::Body(Body { request, bytes, .. })) = self.http_remove(stream) else {
                    return CallEvent::Nothing;
                };
                self.http_whole(stream, &config, request, bytes.into(), true, out)
            }
            Next::TooLarge => {
                let is_announced = self.http_remove(stream).is_some_and(|incoming| incoming.is_announced());
                self.http_refusal(stream, &config, Refusal::too_large(), out);
                self.http_discard(stream, out);
                if is_announced { CallEvent::Cancelled(super::id(stream)) } else { CallEvent::Nothing }
            }
        }
    }

    /// Changes the body of a request that is incomplete.
    fn http_change<R>(&mut self, stream: u32, change: impl FnOnce(&mut Body) -> R) -> Option<R> {
        let changed = self.open.change(stream, |incoming| match incoming {
            super::Incoming::Http(incoming) => match &mut **incoming {
                Incoming::Body(body) => Some(change(body)),
                Incoming::Whole(..) | Incoming::Pieces(_) => None,
            },
            super::Incoming::Messages(_) => None,
        });
        changed.flatten()
    }

    fn http_remove(&mut self, stream: u32) -> Option<Incoming> {
        match self.open.remove(stream)? {
            super::Incoming::Http(incoming) => Some(*incoming),
            super::Incoming::Messages(_) => None,
        }
    }

    /// Discards the received part and the rest of a request that was answered before its end.
    pub(super) fn http_discard(&mut self, stream: u32, out: &mut Outbox) {
        self.http.record_consumed(stream, usize::MAX, out);
        self.http.stop_if_window_half_full(stream, out);
    }

    /// Applies the verdict on the head of a request.
    pub(super) fn http_apply_verdict(&mut self, stream: u32, verdict: Verdict, out: &mut Outbox) {
        let Some(config) = self.config.gateway.clone() else { return };
        let is_announced = self.http_change(stream, |body| !body.accepted);
        if is_announced != Some(true) {
            // The request has ended in the meantime.
            return;
        }
        if verdict == Verdict::Accepted {
            return self.http_accept(stream, out);
        }
        let Some(Incoming::Body(Body { request, .. })) = self.http_remove(stream) else { return };
        if let Some(answer) = request_kind::refuse(&config, &request, verdict) {
            let responding = ResponseContext::new(&request, &config);
            self.http_answer(stream, &responding, answer, out);
        }
        self.http_discard(stream, out);
    }

    /// Starts to receive the body of an accepted request.
    fn http_accept(&mut self, stream: u32, out: &mut Outbox) {
        let accepted = self.http_change(stream, |body| {
            body.accepted = true;
            body.request.accepted = true;
            (body.bytes.len(), body.request.expects, body.ended)
        });
        let Some((held, expects, ended)) = accepted else { return };
        if ended {
            // The next event turns it into a call.
            self.http.queue_event(h2::Event::Data { stream, bytes: Bytes::new(), end: true });
        } else if expects && held == 0 {
            self.http.headers(stream, &Block::with_status("100").0, false, out);
        }
        self.http.record_consumed(stream, held, out);
    }

    /// Answers a request that has timed out.
    #[cold]
    pub(super) fn http_time_out(
        &mut self,
        stream: u32,
        incoming: Incoming,
        overdue: TimeoutCause,
        out: &mut Outbox,
    ) {
        let Some(config) = self.config.gateway.clone() else { return };
        let Incoming::Body(Body { request, .. }) = incoming else { return };
        let responding = ResponseContext::new(&request, &config);
        match overdue {
            TimeoutCause::Late(status) => {
                self.respond(stream, &responding, out, |config, head| {
                    answer::write_timeout(&status, config, head)
                });
            }
            TimeoutCause::ShuttingDown => {
                let verdict = Verdict::Refused(overdue.into_status());
                let answer = request_kind::refuse(&config, &request, verdict);
                answer.into_iter().for_each(|answer| {
                    self.http_answer(stream, &responding, answer, out);
                });
            }
        }
    }

    /// Returns the head of the request found last, with its names.
    pub(super) fn http_announced(&self, head: Head) -> ServerEvent<'_, Ticket> {
        let target = head.named.then(|| self.http_calls.names.parts());
        ServerEvent::Head(RequestHead { target, credential: head.credential }, super::id(head.stream))
    }

    /// Handles a complete request: answers it here, or turns it into a call.
    fn http_whole(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        request: Request,
        body: Bytes,
        authenticated: bool,
        out: &mut Outbox,
    ) -> CallEvent {
        let responding = ResponseContext::new(&request, config);
        match RequestKind::read(config, request, body, &mut self.http_calls.names) {
            RequestKind::Answer(answer) => self.http_answer(stream, &responding, answer, out),
            RequestKind::Call(call, form) => {
                call_event(stream, Call { authenticated, ..call }, ResponseReader::Response(form), responding)
            }
            RequestKind::Notify(call, answer) => {
                self.http_answer(stream, &responding, answer, out);
                call_event(stream, Call { authenticated, ..call }, ResponseReader::Nothing, responding)
            }
            RequestKind::Batch(entries, mut batch) => {
                match batch.finish() {
                    Some(response) => {
                        self.http_answer(stream, &responding, Answer::Json(response), out);
                    }
                    None => {
                        self.http_calls.held += batch.len();
                        self.http_calls.batches.push((stream, batch));
                    }
                }
                self.http_calls.entries = Some(RemainingBatch { entries, responding, authenticated });
                self.taking = Some(stream);
                CallEvent::Nothing
            }
        }
    }

    /// Emits the next call of a batch, if there is one.
    pub(super) fn http_entry(&mut self, stream: u32) -> CallEvent {
        let Calls { names, entries, .. } = &mut self.http_calls;
        if let Some(RemainingBatch { entries, responding, authenticated }) = entries
            && let Some((call, response_form)) = entries.next(names)
        {
            let call = Call { authenticated: *authenticated, ..call };
            return call_event(
                stream,
                call,
                response_form.map_or(ResponseReader::Nothing, ResponseReader::Entry),
                responding.clone(),
            );
        }
        *entries = None;
        self.taking = None;
        CallEvent::Nothing
    }

    /// Handles the request that asked for the upgrade to HTTP/2.
    pub(super) fn http_upgraded(&mut self, stream: u32, out: &mut Outbox) -> CallEvent {
        if let Some(found) = self.next_piece(stream) {
            return found;
        }
        self.taking = None;
        let Some(Incoming::Whole(mut request, body)) = self.http_remove(stream) else {
            return CallEvent::Nothing;
        };
        self.http.send_settings(out);
        match (request.grpc.take().map(|grpc| *grpc), self.config.gateway.clone()) {
            (Some(Ok(call)), _) => self.handle_whole_request(stream, Arc::new(call), body),
            (Some(Err(unfit)), _) => self.reject_request(stream, &as_fields(&request.inner), unfit, out),
            (None, Some(gateway)) => self.http_whole(stream, &gateway, request.inner, body, false, out),
            (None, None) => {
                self.reject_request(stream, &as_fields(&request.inner), InvalidRequest::ContentType, out)
            }
        }
    }

    /// Returns the event of the call found last, with its names.
    pub(super) fn http_call(&self, (call, ticket): (Call<'static>, Ticket)) -> ServerEvent<'_, Ticket> {
        let (service, method) = self.http_calls.names.parts();
        ServerEvent::Call(Call { service, method, ..call }, ticket)
    }

    pub(super) fn http_reply(
        &mut self,
        stream: u32,
        response_form: PendingResponse,
        reply: Reply,
        out: &mut Outbox,
    ) {
        let PendingResponse { form, responding } = response_form;
        match form {
            ResponseReader::Response(form) => {
                self.respond(stream, &responding, out, |config, head| form.answer(reply, config, head));
            }
            ResponseReader::Entry(response_form) => {
                if let Some(whole) = self.http_calls.add(stream, &response_form.answer(&reply)) {
                    self.http_answer(stream, &responding, Answer::Json(whole), out);
                }
            }
            ResponseReader::Exchange => self.reply_exchange(stream, &responding, reply, out),
            ResponseReader::Nothing => {}
        }
    }

    pub(super) fn http_refuse(
        &mut self,
        stream: u32,
        response_form: PendingResponse,
        status: Status,
        out: &mut Outbox,
    ) {
        let PendingResponse { form, responding } = response_form;
        match form {
            ResponseReader::Response(form) => {
                self.respond(stream, &responding, out, |config, head| form.refuse(status, config, head));
            }
            form => {
                self.http_reply(stream, PendingResponse { form, responding }, Reply::failure(status), out);
            }
        }
    }

    pub(super) fn http_answer(
        &mut self,
        stream: u32,
        responding: &ResponseContext,
        answer: Answer,
        out: &mut Outbox,
    ) -> CallEvent {
        let answer = match answer {
            // The page may not call, so the options are not disclosed to it.
            Answer::Options(Some(_)) if responding.origin.is_none() => Answer::Options(None),
            answer => answer,
        };
        if let Some(cause) = rejection::cause(&answer) {
            self.unreported_refusals.record(cause);
        }
        self.respond(stream, responding, out, |config, head| write_answer(answer, config, head));
        CallEvent::Nothing
    }

    fn http_refusal(
        &mut self,
        stream: u32,
        config: &Arc<ServerConfig>,
        refusal: Refusal,
        out: &mut Outbox,
    ) -> CallEvent {
        let responding = ResponseContext { config: config.clone(), head_only: false, origin: None };
        self.http_answer(stream, &responding, Answer::Failed(refusal.status, refusal.reason), out)
    }

    /// Sends the response with the head that `write` writes and the body that it returns.
    pub(super) fn respond(
        &mut self,
        stream: u32,
        responding: &ResponseContext,
        out: &mut Outbox,
        write: impl FnOnce(&ServerConfig, &mut Block) -> Bytes,
    ) {
        let mut head = Block(Vec::with_capacity(128));
        let body = write(&responding.config, &mut head);
        if let Some(origin) = &responding.origin {
            expose(origin, |name, value| head.field(name, value));
        }
        let bare = responding.head_only || body.is_empty();
        self.http.headers(stream, &head.0, bare, out);
        if !bare {
            self.http.data(stream, &[], body, true, out);
        }
    }
}

fn call_event(
    stream: u32,
    call: Call<'static>,
    form: ResponseReader,
    responding: ResponseContext,
) -> CallEvent {
    CallEvent::Http(Box::new((call, Ticket::of_http(stream, PendingResponse { form, responding }))))
}

/// Fields of a malformed request that determine the form of its response.
fn as_fields(request: &Request) -> Fields {
    let content_type = request.content_type.iter().map(|value| (&b"content-type"[..], &value[..]));
    let origin = request.metadata.all("origin").map(|value| (&b"origin"[..], &value[..]));
    content_type.chain(origin).collect()
}

/// A header block that does not use the dynamic table.
pub(super) struct Block(pub(super) Vec<u8>);

impl Block {
    pub(super) fn with_status(status: &str) -> Self {
        let mut block = Vec::new();
        encode_stateless([(&b":status"[..], status.as_bytes())], &mut block);
        Self(block)
    }
}

impl WriteHead for Block {
    fn begin(&mut self, status: u16, length: Option<usize>) {
        encode_stateless([(&b":status"[..], status.to_string().as_bytes())], &mut self.0);
        if let Some(length) = length {
            self.field("content-length", length.to_string().as_bytes());
        }
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        let name = name.to_ascii_lowercase();
        stateless_field(name.as_bytes(), value.trim_ascii(), Indexing::Unlikely, &mut self.0);
    }
}

//! Server session of a connection: requests in, responses out. [`request_kind`](crate::http::mapping::request_kind) determines the
//! kind of a request; [`web`] contains the differences of web dialects.

mod exchange;
mod remaining_body;
mod streamed_body;
mod web;

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::session::server::{BodyConversion, Incomplete};
use polyrpc_core::session::{Handover, NotFound, RequestHead, ServerEvent, UnreportedRefusals, Verdict};
use polyrpc_core::{
    Call, Carrier, Credential, Detection, Head, Message, Metadata, Outbox, Reply, Status, StreamId,
    Violation, session,
};

use self::exchange::{ActiveExchange, DeferredRequest, Pieces};
use self::streamed_body::StreamedBody;
use self::web::WebCall;
use super::response_queue::{Exchange, ResponseQueue};
use crate::grpc::dialect::Dialect;
use crate::grpc::framing::ResponseBody;
use crate::grpc::incoming::decompression_failed;
use crate::http::h1::chunked::Chunked;
use crate::http::h1::frame::{self, BodyLength, Refusal};
use crate::http::h1::recognise;
use crate::http::mapping::answer::{self, Answer};
use crate::http::mapping::config::ServerConfig;
use crate::http::mapping::request::Method;
use crate::http::mapping::request_kind::{self, BatchCalls, Names, RPCX_PATH, RequestKind};
use crate::http::mapping::{browser, rejection};
use crate::http_server::answer::write as write_answer;
use crate::http_server::request::H1Request;
use crate::http_server::{Upgrade, upgrade};
use crate::{json_rpc, net_rpc};

/// Server session of a connection.
///
/// ```text
/// Head ──▶ Body ──▶ Head          a request, with its body received or pending
///            ├────▶ Entries ──▶ Head    a JSON-RPC batch, emitted call by call
///            ├────▶ Messages ──▶ Head   a call of gRPC-Web that is not one message
///            ├────▶ Opening ──▶ Pieces ──▶ Head   a request for the HTTP fallback
///            └────▶ Skip ──▶ Head       a request that was rejected before its body arrived
/// ```
///
/// If the body has not been received yet, the head is emitted first ([`ServerEvent::Head`]), and the body is read once
/// the request was [accepted](session::Server::apply_verdict).
///
/// Requests may be answered in any order; responses are sent in the order of the requests. Every call that is not
/// one-way must be answered or its connection ended, since later responses wait for its own.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    reading: Reading,
    order: ResponseQueue,
    batches: Vec<(u64, json_rpc::Batch)>,
    names: Names,
    /// The streamed exchange, if there is one; no other response is written meanwhile.
    live: Option<Box<StreamingExchange>>,
    /// The next request waits for a response.
    held: bool,
    /// Number of bytes of the inbox already searched for the end of a head.
    scanned: usize,
    /// Number of calls emitted but not answered.
    unanswered: u32,
    draining: bool,
    /// The next response is the connection's last.
    retiring: bool,
    unreported_refusals: UnreportedRefusals,
}

/// An exchange with streamed bodies.
#[derive(Debug)]
enum StreamingExchange {
    /// A call in a web dialect of gRPC.
    Web(WebCall),
    /// A request for the HTTP fallback.
    Passing(ActiveExchange),
}

impl StreamingExchange {
    fn as_web(live: &Option<Box<Self>>) -> Option<&WebCall> {
        match live.as_deref() {
            Some(Self::Web(web)) => Some(web),
            _ => None,
        }
    }

    fn as_web_mut(live: &mut Option<Box<Self>>) -> Option<&mut WebCall> {
        match live.as_deref_mut() {
            Some(Self::Web(web)) => Some(web),
            _ => None,
        }
    }

    fn take_web(live: &mut Option<Box<Self>>) -> Option<WebCall> {
        match *live.take()? {
            Self::Web(web) => Some(web),
            other @ Self::Passing(_) => {
                *live = Some(Box::new(other));
                None
            }
        }
    }

    fn as_active(live: &Option<Box<Self>>) -> Option<&ActiveExchange> {
        match live.as_deref() {
            Some(Self::Passing(passing)) => Some(passing),
            _ => None,
        }
    }

    fn as_active_mut(live: &mut Option<Box<Self>>) -> Option<&mut ActiveExchange> {
        match live.as_deref_mut() {
            Some(Self::Passing(passing)) => Some(passing),
            _ => None,
        }
    }

    fn take_active(live: &mut Option<Box<Self>>) -> Option<ActiveExchange> {
        match *live.take()? {
            Self::Passing(passing) => Some(passing),
            other @ Self::Web(_) => {
                *live = Some(Box::new(other));
                None
            }
        }
    }
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Maximum number of unanswered requests of a connection. If a client pipelines more, reading continues when the first
/// ones are answered: [`next_event`](session::Server::next_event) should be called after a reply.
const MAX_UNANSWERED: u32 = 64;

/// The part that is read next.
#[derive(Debug)]
enum Reading {
    Head,
    Body(Box<Partial>),
    Entries(Box<(Exchange, BatchCalls)>),
    Messages(Box<StreamedBody>),
    /// A request for the HTTP fallback, which waits for the earlier responses.
    Opening(Box<DeferredRequest>),
    /// The body of a request for the HTTP fallback.
    Pieces(Box<Pieces>),
    /// Remaining bytes of a request that has already been answered.
    Skip(usize),
}

/// A request whose body has not been received yet.
#[derive(Debug)]
struct Partial {
    request: H1Request,
    chunked: Chunked,
    decision: BodyDecision,
    /// Length of the head in bytes.
    head: usize,
}

/// Whether a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyDecision {
    /// The head has not been emitted.
    No,
    /// The verdict is pending.
    Requested,
    Accepted,
}

/// Maximum length of an unwanted body that is skipped; the connection is closed before a longer one.
const SKIPPED: usize = 64 << 10;

/// Result of one step of reading.
enum Step {
    /// More bytes, or a reply, are needed.
    Wait,
    /// A head that needs a verdict; if it names a call, the names are in the session.
    Head {
        stream: StreamId,
        named: bool,
        credential: Credential,
    },
    /// Something was read; there may be more.
    Next,
    /// A call; its names are in the session.
    Call(Call<'static>, Ticket),
    /// A streaming call; its names are in the session.
    Open(Call<'static>, Ticket),
    Message(StreamId, Message),
    End(StreamId),
    Cancelled(StreamId),
    Upgrade(Box<Upgrade>),
    WebSocket,
    Connect,
    Foreign,
}

/// The call that a reply belongs to, and the form of the reply.
#[derive(Debug)]
pub struct Ticket {
    exchange: Exchange,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Http(answer::ResponseForm),
    /// Answered by the HTTP fallback.
    Exchange,
    /// One of several JSON-RPC responses that are sent together.
    Entry(json_rpc::PendingResponse),
    /// The response is discarded.
    Nothing,
    Web(Dialect),
}

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, call: &Call<'_>, missing: NotFound) -> Status {
        match &self.form {
            Form::Web(dialect) => dialect.not_found(call, missing),
            Form::Http(form) => form.not_found(call, missing),
            Form::Exchange => answer::not_found(call, missing),
            Form::Entry(_) | Form::Nothing => answer::not_found_in_rpcx(call, missing),
        }
    }

    /// A call of gRPC-Web is answered as in gRPC.
    fn decode_failure(&self) -> fn(Status) -> Status {
        match self.form {
            Form::Web(dialect) => match dialect.framing() {
                None => decompression_failed,
                Some(framing) => framing.decode_failure(),
            },
            Form::Http(_) | Form::Entry(_) | Form::Exchange | Form::Nothing => std::convert::identity,
        }
    }

    fn may_be_empty(&self) -> bool {
        matches!(&self.form, Form::Http(form) if form.may_be_empty())
    }

    fn body_conversion(&self) -> Option<BodyConversion> {
        match &self.form {
            Form::Http(form) => form.body_conversion(),
            Form::Web(_) | Form::Exchange | Form::Entry(_) | Form::Nothing => None,
        }
    }

    fn carrier(&self) -> Carrier {
        match &self.form {
            Form::Web(_) => Carrier::Grpc,
            Form::Http(form) => form.carrier(),
            Form::Exchange | Form::Entry(_) | Form::Nothing => Carrier::Any,
        }
    }

    fn stream(&self) -> Option<StreamId> {
        let is_stream = match self.form {
            Form::Web(dialect) => dialect.response_body() != ResponseBody::Message,
            Form::Exchange => true,
            Form::Http(_) | Form::Entry(_) | Form::Nothing => false,
        };
        is_stream.then(|| web::id(&self.exchange))
    }

    fn is_exchange(&self) -> bool {
        matches!(self.form, Form::Exchange)
    }
}

impl Server {
    /// Creates the session of a new connection.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self {
            config,
            reading: Reading::Head,
            order: ResponseQueue::default(),
            batches: Vec::new(),
            names: Names::default(),
            live: None,
            held: false,
            scanned: 0,
            unanswered: 0,
            draining: false,
            retiring: false,
            unreported_refusals: UnreportedRefusals::default(),
        }
    }

    fn advance(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Step {
        self.held = false;
        loop {
            let busy = self.is_full() || self.live.is_some();
            let step = match &mut self.reading {
                Reading::Messages(_) => self.next_message(inbox, out),
                Reading::Pieces(_) => self.next_piece(inbox, out),
                _ if busy => self.wait_for_reply(),
                Reading::Head if self.order.is_closing() => {
                    inbox.clear();
                    Step::Wait
                }
                Reading::Head => self.read_head(inbox, out),
                Reading::Body(_) => self.read_body(inbox, out),
                Reading::Entries(..) => self.next_entry(),
                Reading::Opening(_) => self.open_exchange(out),
                Reading::Skip(_) => self.skip(inbox),
            };
            if !matches!(step, Step::Next) {
                return step;
            }
        }
    }

    /// Stops reading until a reply.
    fn wait_for_reply(&mut self) -> Step {
        self.held = true;
        Step::Wait
    }

    fn is_full(&self) -> bool {
        self.unanswered >= MAX_UNANSWERED || self.order.pending() >= u64::from(MAX_UNANSWERED)
    }

    fn read_head(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Step {
        skip_blank_lines(inbox);
        if matches!(inbox[..], [] | [b'\r']) {
            return Step::Wait;
        }
        match recognise(inbox) {
            Detection::NeedMore => return Step::Wait,
            Detection::Unknown if self.config.switches => return Step::Foreign,
            Detection::Unknown => {
                return self.give_up(Refusal::malformed("this is not an HTTP/1 request"), out);
            }
            Detection::Is(_) => {}
        }
        let limits = &self.config.limits;
        let end = match frame::head_end(inbox, &mut self.scanned) {
            Some(end) if end <= limits.header => end,
            None if inbox.len() <= limits.header => return Step::Wait,
            _ => return self.give_up(Refusal::long_head(), out),
        };
        // What follows the response to CONNECT is not HTTP, so all earlier responses must have been sent.
        if inbox.starts_with(b"CONNECT ") && self.order.pending() > 0 {
            return self.wait_for_reply();
        }
        self.scanned = 0;
        let head = inbox.split_to(end).freeze();
        // A body for the HTTP fallback may have any length.
        let limit = if self.config.own.is_some() { usize::MAX } else { limits.message };
        let request =
            H1Request::parse(&head, limit).map(|request| request.without_disallowed_call(&self.config));
        match request {
            Ok(request) if self.config.own.is_some() => self.handle_or_hand_out(request, &head, inbox, out),
            Ok(request) => self.take(request, end, inbox, out),
            Err(refusal) => self.give_up(refusal, out),
        }
    }

    /// Handles a request that may be for the HTTP fallback.
    #[cold]
    fn handle_or_hand_out(
        &mut self,
        request: H1Request,
        head: &Bytes,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Step {
        let is_call = request.inner.method == Method::Connect || request.grpc.is_some();
        if !is_call && request_kind::is_for_others(&self.config, &request.inner) {
            self.reading = Reading::Opening(Box::new(DeferredRequest::new(request, head)));
            return Step::Next;
        }
        let room = self.config.limits.message.saturating_sub(head.len());
        match request.body_length {
            BodyLength::Fixed(length) if length > room && request.grpc.is_none() => {
                self.give_up(Refusal::too_large(), out)
            }
            _ => self.take(request, head.len(), inbox, out),
        }
    }

    /// Handles a request whose head was parsed; its body may already be in the inbox.
    fn take(&mut self, request: H1Request, head: usize, inbox: &mut BytesMut, out: &mut Outbox) -> Step {
        if request.inner.method == Method::Connect {
            return self.connect(&request, out);
        }
        let length = match request.body_length {
            // Compressed requests get their verdict before they are decompressed, as do some others.
            BodyLength::Fixed(length)
                if inbox.len() >= length
                    && !request.inner.expects
                    && !request.must_be_last()
                    && request.inner.is_plain()
                    && !request_kind::wants_credential(&self.config, &request.inner) =>
            {
                length
            }
            _ => {
                let (chunked, decision) = (Chunked::default(), BodyDecision::No);
                self.reading = Reading::Body(Box::new(Partial { request, chunked, decision, head }));
                return Step::Next;
            }
        };
        let body = inbox.split_to(length).freeze();
        self.handle_complete_request(request, body, out)
    }

    fn read_body(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Step {
        let limits = &self.config.limits;
        let Reading::Body(partial) = &mut self.reading else { return Step::Next };
        if partial.request.must_be_last() && self.order.pending() > 0 {
            return self.wait_for_reply();
        }
        if partial.decision == BodyDecision::Requested {
            return self.wait_for_reply();
        }
        if partial.decision == BodyDecision::No
            && request_kind::wants_credential(&self.config, &partial.request.inner)
        {
            return self.emit_head(out);
        }
        let max_body = partial.request.max_body(limits.message);
        let is_long = match partial.request.body_length {
            BodyLength::Fixed(length) => length > max_body,
            BodyLength::Chunked | BodyLength::UntilClose => false,
        };
        if is_long && partial.decision == BodyDecision::Accepted {
            return self.begin_piecewise(out);
        }
        let body = match partial.request.body_length {
            BodyLength::Fixed(length) if inbox.len() >= length => Ok(Some(inbox.split_to(length).freeze())),
            BodyLength::Fixed(_) | BodyLength::UntilClose => Ok(None),
            // Its messages are checked once the body exceeds the limit of one message.
            BodyLength::Chunked if partial.request.uses_web_dialect() => {
                let read = partial.chunked.read(inbox, usize::MAX, limits.header);
                if partial.chunked.held() > max_body && partial.decision == BodyDecision::Accepted {
                    return self.begin_piecewise(out);
                }
                read
            }
            BodyLength::Chunked => partial.chunked.read(inbox, max_body, limits.header),
        };
        match body {
            Ok(None) if partial.decision == BodyDecision::No => self.emit_head(out),
            Ok(None) => Step::Wait,
            Err(refusal) => self.give_up(refusal, out),
            Ok(Some(body)) => match std::mem::replace(&mut self.reading, Reading::Head) {
                Reading::Body(partial) => self.handle_complete_request(partial.request, body, out),
                other => {
                    self.reading = other;
                    Step::Next
                }
            },
        }
    }

    /// Emits the head of a request whose body has not been received, unless it is answered here.
    #[cold]
    fn emit_head(&mut self, out: &mut Outbox) -> Step {
        let Reading::Body(partial) = &mut self.reading else { return Step::Next };
        let request = &partial.request;
        if self.draining {
            return self.decline(Answer::GoingAway, out);
        }
        // The latter is native gRPC, which continues in HTTP/2.
        if request.uses_web_dialect() || request.grpc.is_some() && request.upgrade.is_some() {
            return self.start_web_call(out);
        }
        let peeked = request_kind::peek(&self.config, &request.inner, &mut self.names);
        if let Some(answer) = peeked.answer {
            return self.decline(answer, out);
        }
        self.await_verdict(peeked.named, peeked.credential)
    }

    /// Waits for the verdict on the request whose head was parsed.
    fn await_verdict(&mut self, named: bool, credential: Credential) -> Step {
        let Reading::Body(partial) = &mut self.reading else { return Step::Next };
        partial.decision = BodyDecision::Requested;
        Step::Head { stream: StreamId(self.order.upcoming()), named, credential }
    }

    /// Answers a request without reading its pending body. If that is short, the connection continues after it.
    #[cold]
    fn decline(&mut self, answer: Answer, out: &mut Outbox) -> Step {
        let Some(partial) = self.abandon_partial() else { return Step::Next };
        let origin = self.config.cors.origin(&partial.request.inner.metadata);
        let answer = match answer {
            Answer::Options(Some(_)) if origin.is_none() => Answer::Options(None),
            answer => answer,
        };
        let exchange =
            self.order.open(partial.request.http10, partial.request.inner.method == Method::Head, origin);
        self.close_or_skip(&partial.request);
        self.respond(exchange, answer, out)
    }

    /// Returns the request whose body is pending, and stops reading it.
    fn abandon_partial(&mut self) -> Option<Box<Partial>> {
        match std::mem::replace(&mut self.reading, Reading::Head) {
            Reading::Body(partial) => Some(partial),
            other => {
                self.reading = other;
                None
            }
        }
    }

    /// Decides what follows a rejected request: its body is skipped if it is short and certain to arrive.
    fn close_or_skip(&mut self, request: &H1Request) {
        match request.body_length {
            BodyLength::Fixed(length)
                if length <= SKIPPED && request.keep && !request.inner.expects && !self.draining =>
            {
                self.reading = Reading::Skip(length);
            }
            _ => self.order.close(),
        }
    }

    fn skip(&mut self, inbox: &mut BytesMut) -> Step {
        let Reading::Skip(left) = &mut self.reading else { return Step::Next };
        let here = inbox.len().min(*left);
        inbox.advance(here);
        *left -= here;
        if *left > 0 {
            return Step::Wait;
        }
        self.reading = Reading::Head;
        Step::Next
    }

    /// Answers `Expect: 100-continue` of an accepted request once no earlier response is pending, since responses keep
    /// their order.
    fn send_continue(&mut self, out: &mut Outbox) {
        if let Reading::Body(partial) = &mut self.reading
            && partial.request.inner.expects
            && partial.decision == BodyDecision::Accepted
            && self.order.pending() == 0
        {
            out.extend_from_slice(CONTINUE);
            partial.request.inner.expects = false;
        }
    }

    /// Answers `CONNECT`: after `/_rpcx_` the connection carries rpcx frames (rpcx `server/server.go`), after
    /// `/_goRPC_` Go's `net/rpc`. Their clients expect exactly these lines.
    fn connect(&mut self, request: &H1Request, out: &mut Outbox) -> Step {
        out.extend_from_slice(match request.inner.path.as_str() {
            _ if self.draining => return self.give_up(Refusal::no_proxy(), out),
            RPCX_PATH => b"HTTP/1.0 200 Connected to rpcx\n\n",
            net_rpc::CONNECT_PATH => net_rpc::CONNECTED,
            _ => return self.give_up(Refusal::no_proxy(), out),
        });
        Step::Connect
    }

    /// Answers a request whose end cannot be determined, so that nothing more can be read.
    #[cold]
    fn give_up(&mut self, refusal: Refusal, out: &mut Outbox) -> Step {
        let exchange = self.order.open(false, false, None);
        self.reading = Reading::Head;
        self.order.close();
        self.respond(exchange, Answer::Failed(refusal.status, refusal.reason), out)
    }

    /// Handles a complete request: answers it here, or turns it into a call.
    fn handle_complete_request(&mut self, mut request: H1Request, body: Bytes, out: &mut Outbox) -> Step {
        if request.inner.expects && self.order.pending() == 0 {
            // The body arrived before it was invited.
            out.extend_from_slice(CONTINUE);
        }
        // What follows is not HTTP/1, so all earlier responses must have been sent; the upgrade is optional.
        if let Some(settings) = request.upgrade.take()
            && self.config.h2c
            && !self.draining
            && self.order.pending() == 0
        {
            out.extend_from_slice(upgrade::SWITCHING);
            request.inner.h2 = true;
            return Step::Upgrade(Box::new(Upgrade { settings: *settings, request, body }));
        }
        if request.asks_for_websocket() && !self.draining {
            return self.open_websocket(request, out);
        }
        let origin = self.config.cors.origin(&request.inner.metadata);
        let is_foreign = origin.is_none();
        let exchange = self.order.open(request.http10, request.inner.method == Method::Head, origin);
        if !request.keep || self.draining || self.retiring {
            self.order.close();
        }
        if self.draining {
            return self.respond(exchange, Answer::GoingAway, out);
        }
        if request.uses_web_dialect() {
            return self.begin_web(exchange, request, body, out);
        }
        match RequestKind::read(&self.config, request.inner, body, &mut self.names) {
            RequestKind::Answer(Answer::Options(Some(_))) if is_foreign => {
                self.respond(exchange, Answer::Options(None), out)
            }
            RequestKind::Answer(answer) => self.respond(exchange, answer, out),
            RequestKind::Call(call, form) => self.call(call, Ticket { exchange, form: Form::Http(form) }),
            RequestKind::Notify(call, answer) => {
                self.respond(exchange.clone(), answer, out);
                self.call(call, Ticket { exchange, form: Form::Nothing })
            }
            RequestKind::Batch(entries, mut batch) => {
                match batch.finish() {
                    Some(response) => {
                        self.respond(exchange.clone(), Answer::Json(response), out);
                    }
                    None => {
                        self.order.update_held(0, batch.len());
                        self.batches.push((exchange.number(), batch));
                    }
                }
                self.reading = Reading::Entries(Box::new((exchange, entries)));
                Step::Next
            }
        }
    }

    /// Answers a WebSocket request; the connection continues in any protocol within the WebSocket. No other response is
    /// pending.
    fn open_websocket(&mut self, request: H1Request, out: &mut Outbox) -> Step {
        let fields = &request.inner.metadata;
        let origin = fields.bytes("origin").filter(|_| self.config.cors.origin(fields).is_none());
        let granted = request
            .websocket
            .as_ref()
            .map(|upgrade_request| upgrade_request.grant(origin.map(|origin| &origin[..])));
        let answer = match (granted, browser::wrong_host(&self.config, &request.inner)) {
            (Some(Ok(answer)), None) => {
                out.extend_from_slice(answer.as_bytes());
                return Step::WebSocket;
            }
            (Some(Err(unfit)), _) => Answer::NoWebSocket(unfit),
            (_, Some(answer)) => answer,
            (None, None) => return Step::Next,
        };
        let exchange = self.order.open(request.http10, false, None);
        if !request.keep {
            self.order.close();
        }
        self.respond(exchange, answer, out)
    }

    /// Emits the next call of a batch.
    fn next_entry(&mut self) -> Step {
        let Reading::Entries(batch) = &mut self.reading else { return Step::Next };
        let (exchange, entries) = &mut **batch;
        let Some((call, response_entry)) = entries.next(&mut self.names) else {
            self.reading = Reading::Head;
            return Step::Next;
        };
        let ticket =
            Ticket { exchange: exchange.clone(), form: response_entry.map_or(Form::Nothing, Form::Entry) };
        self.call(call, ticket)
    }

    fn call(&mut self, call: Call<'static>, ticket: Ticket) -> Step {
        if !call.oneway {
            self.unanswered += 1;
        }
        Step::Call(call, ticket)
    }

    /// Answers a request that is not a call.
    fn respond(&mut self, exchange: Exchange, answer: Answer, out: &mut Outbox) -> Step {
        if let Some(cause) = rejection::cause(&answer) {
            self.unreported_refusals.record(cause);
        }
        let config = &self.config;
        self.order.respond(exchange, out, |head| write_answer(answer, config, head));
        Step::Next
    }

    /// Adds a response to its batch, which is answered with the last of them.
    fn answer_entry(&mut self, exchange: Exchange, response: &[u8], out: &mut Outbox) {
        let Some(at) = self.batches.iter().position(|(number, _)| *number == exchange.number()) else {
            return;
        };
        let Some((_, batch)) = self.batches.get_mut(at) else { return };
        let before = batch.len();
        batch.add(response);
        self.order.update_held(before, batch.len());
        if let Some(whole) = batch.finish() {
            // A closing bracket has been appended.
            self.order.update_held(whole.len().saturating_sub(1), 0);
            self.batches.swap_remove(at);
            self.respond(exchange, Answer::Json(whole), out);
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
        Ok(match self.advance(inbox, out) {
            Step::Wait | Step::Next => None,
            Step::Head { stream, named, credential } => {
                let target = named.then(|| self.names.parts());
                Some(ServerEvent::Head(RequestHead { target, credential }, stream))
            }
            Step::Foreign => Some(ServerEvent::Foreign),
            Step::Connect => Some(ServerEvent::Connect),
            Step::Upgrade(upgrade) => Some(ServerEvent::Upgrade(Handover::new(*upgrade))),
            Step::WebSocket => Some(ServerEvent::WebSocket),
            Step::Call(call, ticket) => {
                let (service, method) = self.names.parts();
                Some(ServerEvent::Call(Call { service, method, ..call }, ticket))
            }
            Step::Open(call, ticket) => {
                let (service, method) = self.names.parts();
                let id = web::id(&ticket.exchange);
                Some(ServerEvent::Open(Call { service, method, ..call }, ticket, id))
            }
            Step::Message(id, message) => Some(ServerEvent::Message(id, message)),
            Step::End(id) => Some(ServerEvent::End(id)),
            Step::Cancelled(id) => Some(ServerEvent::Cancelled(id)),
        })
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        let Ticket { exchange, form } = ticket;
        let config = &self.config;
        match form {
            Form::Nothing => return,
            Form::Web(dialect) => return self.reply_web(exchange, dialect, reply, out),
            Form::Exchange => return self.reply_exchange(&exchange, reply, out),
            Form::Http(form) => {
                self.order.respond(exchange, out, |head| form.answer(reply, config, head));
            }
            Form::Entry(response_entry) => self.answer_entry(exchange, &response_entry.answer(&reply), out),
        }
        self.unanswered = self.unanswered.saturating_sub(1);
        self.send_continue(out);
    }

    fn apply_verdict(&mut self, stream: StreamId, verdict: Verdict, out: &mut Outbox) -> bool {
        let number = self.order.upcoming();
        let partial = match &mut self.reading {
            Reading::Body(partial) if partial.decision == BodyDecision::Requested && stream.0 == number => {
                partial
            }
            _ => return false,
        };
        if verdict == Verdict::Accepted {
            partial.decision = BodyDecision::Accepted;
            partial.request.inner.accepted = true;
            self.send_continue(out);
            return false;
        }
        if partial.request.uses_web_dialect() {
            self.refuse_web(verdict, out);
        } else if let Some(answer) = request_kind::refuse(&self.config, &partial.request.inner, verdict) {
            self.decline(answer, out);
        }
        self.order.is_closing()
    }

    fn blocks_input(&self) -> bool {
        self.held
    }

    fn reject(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        let Ticket { exchange, form } = ticket;
        let Form::Http(form) = form else {
            self.reply(Ticket { exchange, form }, Reply::failure(status), out);
            return false;
        };
        self.unanswered = self.unanswered.saturating_sub(1);
        // brpc closes the connection, since its clients send one credential per connection.
        let closes = self.config.trust_connection && matches!(form, answer::ResponseForm::Mapped(_));
        if closes {
            self.order.close();
        }
        let config = &self.config;
        self.order.respond(exchange, out, |head| form.refuse(status, config, head));
        if !closes {
            self.send_continue(out);
        }
        closes
    }

    fn bytes_needed(&self) -> usize {
        match &self.reading {
            // No memory is reserved for a body that may be rejected.
            Reading::Body(partial) => match partial.request.body_length {
                BodyLength::Fixed(length) if partial.decision == BodyDecision::Accepted => {
                    length.min(partial.request.max_body(self.config.limits.message))
                }
                _ => 0,
            },
            Reading::Head
            | Reading::Entries(..)
            | Reading::Messages(_)
            | Reading::Opening(_)
            | Reading::Pieces(_)
            | Reading::Skip(_) => 0,
        }
    }

    fn drain(&mut self, _out: &mut Outbox) {
        self.draining = true;
        // The newest response announces that it is the last, unless a further request is being received: that one is
        // read to its end and rejected.
        if self.order.pending() > 0 && !matches!(self.reading, Reading::Body(_)) {
            self.order.close();
        }
    }

    fn is_finished(&self) -> bool {
        self.order.is_closing() && self.live.is_none() && matches!(self.reading, Reading::Head)
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut impl session::server::Streaming<Ticket>> {
        Some(self)
    }
}

impl session::server::Streaming<Ticket> for Server {
    fn start_response(&mut self, stream: StreamId, head: Head, out: &mut Outbox) {
        if self.answers(stream) {
            self.begin_answer(&head, out);
        } else if self.passes(stream) {
            self.start_exchange_response(&head.metadata, out);
        }
    }

    fn send_message(&mut self, stream: StreamId, message: Bytes, out: &mut Outbox) {
        if self.answers(stream) {
            self.answer_message(message, out);
        } else if self.passes(stream) {
            self.send_piece(message, out);
        }
    }

    fn finish(&mut self, ticket: Ticket, result: Result<(), Status>, trailers: Metadata, out: &mut Outbox) {
        if self.answers(web::id(&ticket.exchange)) {
            self.end_answer(result.err().as_ref(), &trailers, out);
        } else if self.passes(web::id(&ticket.exchange)) {
            self.finish_exchange(result, &trailers, out);
        }
    }

    fn record_consumed(&mut self, stream: StreamId, bytes: usize, _: &mut Outbox) {
        if self.answers(stream)
            && let Reading::Messages(messages) = &mut self.reading
        {
            messages.record_consumed(bytes);
        }
        if self.passes(stream)
            && let Reading::Pieces(pieces) = &mut self.reading
        {
            pieces.record_consumed(bytes);
        }
    }
}

impl session::server::Housekeeping for Server {
    fn incomplete(&self, inbox: &BytesMut) -> Option<Incomplete> {
        let is_incomplete = match &self.reading {
            _ if self.held => false,
            Reading::Head => {
                let awaits_head = !inbox.is_empty() && !self.is_full() && !self.order.is_closing();
                return awaits_head.then_some(Incomplete::Head);
            }
            Reading::Body(_) | Reading::Skip(_) => true,
            Reading::Messages(messages) => messages.is_inside(),
            // The HTTP fallback decides how long a body may pause.
            Reading::Pieces(pieces) => pieces.is_unwanted(),
            Reading::Entries(..) | Reading::Opening(_) => false,
        };
        is_incomplete.then_some(Incomplete::Message)
    }

    fn buffered(&self) -> usize {
        match &self.reading {
            Reading::Head | Reading::Skip(_) => 0,
            Reading::Body(partial) => partial.head + partial.chunked.held(),
            Reading::Entries(batch) => batch.1.held(),
            Reading::Messages(messages) => messages.held(),
            Reading::Opening(opening) => opening.held(),
            Reading::Pieces(pieces) => pieces.held(),
        }
    }

    fn unsent(&self) -> usize {
        self.order.held()
    }

    fn take_refusals(&mut self) -> Option<session::Refusals> {
        self.unreported_refusals.take()
    }

    fn announce_close(&mut self) {
        self.retiring = true;
    }

    fn abort(&mut self, status: &Status, out: &mut Outbox) {
        // A response that is being written must not be interrupted by another.
        if self.live.is_some() || self.order.is_closing() {
            return;
        }
        // Only the oldest request can be answered now: the one being read, if no other response is pending.
        if self.order.pending() == 0 && matches!(self.reading, Reading::Body(_)) {
            let status = status.clone();
            let request = match self.abandon_partial() {
                Some(partial) => partial.request,
                None => return,
            };
            let exchange = self.order.open(request.http10, request.inner.method == Method::Head, None);
            self.order.close();
            if let Some(answer) = request_kind::refuse(&self.config, &request.inner, Verdict::Refused(status))
            {
                self.respond(exchange, answer, out);
            }
        }
    }
}

/// Empty lines before a request are ignored (RFC 9112 §2.2): old clients append a line end to a body.
fn skip_blank_lines(inbox: &mut BytesMut) {
    loop {
        match inbox[..] {
            [b'\r', b'\n', ..] => inbox.advance(2),
            [b'\n', ..] => inbox.advance(1),
            _ => return,
        }
    }
}

//! Requests for the HTTP fallback: one at a time, with streamed bodies in both directions.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use polyrpc_core::{
    Call, Compression, Credential, Format, Head, Message, Metadata, Outbox, Reply, Status, StreamId,
};

use super::remaining_body::RemainingBody;
use super::web::id;
use super::{CONTINUE, Form, Reading, SKIPPED, Step, StreamingExchange};
use crate::http::field;
use crate::http::h1::chunked::{self, Chunked};
use crate::http::h1::frame;
use crate::http::head::WriteHead;
use crate::http::mapping::answer::Answer;
use crate::http::mapping::exchange::{self, Response};
use crate::http::mapping::request::{Method, Request};
use crate::http::mapping::{browser, brpc, request_kind};
use crate::http_server::h1::response_queue::Exchange;
use crate::http_server::h1::{Server, Ticket};
use crate::http_server::request::H1Request;

/// A request that waits until no other response is pending.
#[derive(Debug)]
pub(super) struct DeferredRequest {
    request: H1Request,
    metadata: Metadata,
}

impl DeferredRequest {
    pub(super) fn new(request: H1Request, head: &Bytes) -> Self {
        let metadata = fields_of(head, &request.inner);
        Self { request, metadata }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn held(&self) -> usize {
        self.metadata.footprint()
    }
}

/// Returns all fields of a head that has been parsed successfully.
fn fields_of(head: &Bytes, request: &Request) -> Metadata {
    let mut slots = [const { MaybeUninit::uninit() }; frame::MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let _ =
        httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, head, &mut slots);
    let fields = parsed.headers.iter();
    let fields = fields.map(|field| (field.name.to_ascii_lowercase(), Bytes::copy_from_slice(field.value)));
    exchange::request(request.method.as_str(), request.target(), request.host.clone(), fields.collect())
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct ActiveExchange {
    exchange: Exchange,
    head_only: bool,
    /// `None` until the head of the response has been sent.
    body: Option<Body>,
}

/// How the body of a response is framed.
#[derive(Debug)]
enum Body {
    Nothing,
    /// Number of missing bytes.
    Length(u64),
    Chunks,
    UntilClose,
}

/// The body of a request, received in pieces.
#[derive(Debug)]
pub(super) struct Pieces {
    rest: RemainingBody,
    /// Bytes that were emitted but not consumed.
    unconsumed: usize,
    /// The peer waits for `100 Continue`.
    expects: bool,
    /// Number of bytes discarded so far, if the rest is not wanted.
    discarded: Option<usize>,
}

/// Maximum number of unconsumed bytes of a body.
const MAX_UNCONSUMED: usize = 64 << 10;

impl Pieces {
    /// Returns the number of buffered bytes.
    pub(super) fn held(&self) -> usize {
        match &self.rest {
            RemainingBody::Chunks(chunked) => chunked.held(),
            RemainingBody::Nothing | RemainingBody::Bytes(_) => 0,
        }
    }

    /// Records consumed bytes.
    pub(super) fn record_consumed(&mut self, bytes: usize) {
        self.unconsumed = self.unconsumed.saturating_sub(bytes);
    }

    /// Whether further bytes are discarded.
    pub(super) fn is_unwanted(&self) -> bool {
        self.discarded.is_some()
    }

    /// Whether the remaining body is too long to discard.
    fn is_long(&self) -> bool {
        match &self.rest {
            RemainingBody::Nothing => false,
            RemainingBody::Bytes(left) => *left > SKIPPED || self.expects,
            RemainingBody::Chunks(_) => true,
        }
    }
}

impl Server {
    /// Emits a request for the HTTP fallback.
    pub(super) fn open_exchange(&mut self, out: &mut Outbox) -> Step {
        if self.order.pending() > 0 {
            return self.wait_for_reply();
        }
        let opening = match std::mem::replace(&mut self.reading, Reading::Head) {
            Reading::Opening(opening) => *opening,
            other => {
                self.reading = other;
                return Step::Next;
            }
        };
        let DeferredRequest { request, metadata } = opening;
        let head_only = request.inner.method == Method::Head;
        let exchange = self.order.open(request.http10, head_only, None);
        let refusal = match () {
            () if self.draining => Some(Answer::GoingAway),
            () if request.websocket.is_some() => Some(NO_WEBSOCKET),
            () => browser::wrong_host(&self.config, &request.inner),
        };
        if let Some(answer) = refusal {
            self.close_or_skip(&request);
            return self.respond(exchange, answer, out);
        }
        if !request.keep || self.retiring {
            self.order.close();
        }
        let rest = RemainingBody::new(request.body_length, Chunked::default());
        let pieces = Pieces { rest, unconsumed: 0, expects: request.inner.expects, discarded: None };
        self.reading = Reading::Pieces(Box::new(pieces));
        let passing = ActiveExchange { exchange: exchange.clone(), head_only, body: None };
        self.live = Some(Box::new(StreamingExchange::Passing(passing)));
        self.unanswered += 1;
        self.names.set("", request.inner.path.as_str());
        let call = Call {
            head: Head { format: Format::Raw, metadata, plain_http: true, ..Head::default() },
            credential: Credential::Call(request.inner.authorization),
            ..Call::new("", "", Format::Raw, Bytes::new())
        };
        Step::Open(call, Ticket { exchange, form: Form::Exchange })
    }

    /// Emits the next piece of a body.
    pub(super) fn next_piece(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Step {
        let Reading::Pieces(pieces) = &mut self.reading else { return Step::Next };
        let Some(id) = StreamingExchange::as_active(&self.live).map(|passing| id(&passing.exchange)) else {
            return self.discard_pieces(inbox);
        };
        loop {
            if pieces.rest.is_nothing() {
                self.reading = Reading::Head;
                return Step::End(id);
            }
            if pieces.unconsumed > MAX_UNCONSUMED {
                return self.wait_for_reply();
            }
            match pieces.rest.pull(inbox, self.config.limits.header) {
                Ok(Some(piece)) if piece.is_empty() => {}
                Ok(Some(body)) => {
                    pieces.expects = false;
                    pieces.unconsumed += body.len();
                    return Step::Message(id, Message { body, compression: Compression::None });
                }
                Ok(None) => {
                    if std::mem::take(&mut pieces.expects) {
                        out.extend_from_slice(CONTINUE);
                    }
                    return Step::Wait;
                }
                Err(_) => return self.abort_exchange(id),
            }
        }
    }

    /// Discards the rest of an unwanted body if it is short.
    fn discard_pieces(&mut self, inbox: &mut BytesMut) -> Step {
        let Reading::Pieces(pieces) = &mut self.reading else { return Step::Next };
        let is_over = self.order.is_closing() || pieces.rest.is_nothing();
        let discarded_bytes = pieces.discarded.get_or_insert(0);
        if is_over {
            self.reading = Reading::Head;
            return Step::Next;
        }
        match pieces.rest.pull(inbox, self.config.limits.header) {
            Ok(Some(piece)) if *discarded_bytes + piece.len() <= SKIPPED => {
                *discarded_bytes += piece.len();
                Step::Next
            }
            Ok(None) => Step::Wait,
            Ok(Some(_)) | Err(_) => {
                self.reading = Reading::Head;
                self.order.close();
                Step::Next
            }
        }
    }

    /// Handles a body whose end cannot be determined: nothing more can be read, and the handler is cancelled.
    #[cold]
    fn abort_exchange(&mut self, id: StreamId) -> Step {
        self.reading = Reading::Head;
        self.live = None;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.order.end();
        self.order.close();
        Step::Cancelled(id)
    }

    /// Whether this request is the one that is being answered.
    pub(super) fn passes(&self, stream: StreamId) -> bool {
        StreamingExchange::as_active(&self.live).is_some_and(|passing| id(&passing.exchange) == stream)
    }

    /// Writes the head of the response if that has not happened yet.
    pub(super) fn start_exchange_response(&mut self, fields: &Metadata, out: &mut Outbox) {
        let Some(passing) =
            StreamingExchange::as_active_mut(&mut self.live).filter(|passing| passing.body.is_none())
        else {
            return;
        };
        let response = Response::read(fields);
        let body = match response.length {
            _ if response.is_bare(passing.head_only) => Body::Nothing,
            Some(length) => Body::Length(length),
            None if passing.exchange.takes_chunks() => Body::Chunks,
            None => {
                self.order.close();
                Body::UntilClose
            }
        };
        let head = out.buffer();
        head.begin(response.status, None);
        for (name, value) in response.fields() {
            field::field(head, name, value);
        }
        if matches!(body, Body::Chunks) {
            field::field(head, "transfer-encoding", b"chunked");
        }
        passing.body = Some(body);
        self.order.start_streamed(&passing.exchange, out);
    }

    /// Sends a piece of the response's body. Bytes beyond the length in its head are dropped.
    pub(super) fn send_piece(&mut self, mut piece: Bytes, out: &mut Outbox) {
        let Some(ActiveExchange { body: Some(body), .. }) = StreamingExchange::as_active_mut(&mut self.live)
        else {
            return;
        };
        match body {
            Body::Nothing => {}
            Body::Length(left) => {
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
                out.body(piece);
            }
            Body::Chunks => chunked::write(&[], piece, out),
            Body::UntilClose => out.body(piece),
        }
    }

    /// Ends the response. If it is incomplete, the connection is closed to signal that.
    pub(super) fn finish_exchange(
        &mut self,
        result: Result<(), Status>,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        if StreamingExchange::as_active(&self.live).is_some_and(|passing| passing.body.is_none()) {
            match result {
                Ok(()) => self.start_exchange_response(&NOTHING.into_iter().collect(), out),
                Err(status) => return self.fail_exchange_response(&status, &Metadata::new(), out),
            }
        }
        let Some(passing) = StreamingExchange::take_active(&mut self.live) else { return };
        let is_whole = match passing.body {
            Some(Body::Length(left)) => left == 0,
            _ => result.is_ok(),
        };
        match passing.body {
            Some(Body::Chunks) if is_whole => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in exchange::end_to_end_fields(trailers) {
                    field::field(out.buffer(), name, value);
                }
                out.extend_from_slice(b"\r\n");
            }
            _ if !is_whole => self.order.close(),
            _ => {}
        }
        self.unanswered = self.unanswered.saturating_sub(1);
        self.order.end();
        if matches!(&self.reading, Reading::Pieces(pieces) if pieces.is_long()) {
            self.order.close();
        }
    }

    /// Answers a request that the HTTP fallback did not answer.
    pub(super) fn reply_exchange(&mut self, exchange: &Exchange, reply: Reply, out: &mut Outbox) {
        if !self.passes(id(exchange)) {
            return;
        }
        match reply.result {
            Ok(_) => self.finish_exchange(Ok(()), &reply.trailers, out),
            Err(status) => self.fail_exchange_response(&status, &reply.head.metadata, out),
        }
    }

    #[cold]
    fn fail_exchange_response(&mut self, status: &Status, metadata: &Metadata, out: &mut Outbox) {
        let Some(passing) = StreamingExchange::take_active(&mut self.live) else { return };
        self.unanswered = self.unanswered.saturating_sub(1);
        if matches!(&self.reading, Reading::Pieces(pieces) if pieces.is_long()) {
            self.order.close();
        }
        let config = &self.config;
        self.order.respond(passing.exchange, out, |head| brpc::failure(status, metadata, config, head));
    }
}

/// Head of an empty response.
const NOTHING: [(&str, &str); 2] = [(":status", "200"), ("content-length", "0")];

/// The response to a WebSocket request for the HTTP fallback, which cannot open one.
pub(super) const NO_WEBSOCKET: Answer = Answer::Failed(501, request_kind::NO_WEBSOCKET);

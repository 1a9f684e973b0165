//! Calls in web dialects of gRPC over HTTP/1: one at a time, each with a response that is sent message by message.

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::server::Streaming as _;
use polyrpc_core::session::{RefusalCause, Verdict};
use polyrpc_core::{Call, Code, Compression, Format, Head, Metadata, Outbox, Reply, Status, StreamId};

use super::streamed_body::{NextMessage, StreamedBody};
use super::{Form, Partial, Reading, Step, StreamingExchange};
use crate::grpc::dialect::Dialect;
use crate::grpc::framing::{ResponseBody, WholeResponse};
use crate::grpc::incoming::{compressed_without_name, unknown_encoding};
use crate::grpc::request::{AcceptedCompressions, InvalidRequest, Request as GrpcRequest, two_credentials};
use crate::grpc_web;
use crate::http::field;
use crate::http::h1::chunked;
use crate::http::mapping::answer::Answer;
use crate::http::mapping::browser;
use crate::http_server::h1::response_queue::Exchange;
use crate::http_server::h1::{Server, Ticket};
use crate::http_server::request::H1Request;

/// A call in a web dialect that is being answered.
#[derive(Debug)]
pub(super) struct WebCall {
    exchange: Exchange,
    dialect: Dialect,
    format: Format,
    accepts: AcceptedCompressions,
    /// The compression of messages, once the head has been sent.
    begun: Option<Compression>,
    /// The buffered response, if it is sent as a whole.
    whole: WholeResponse,
}

impl WebCall {
    fn new(exchange: Exchange, dialect: Dialect, format: Format, accepts: AcceptedCompressions) -> Self {
        Self { exchange, dialect, format, accepts, begun: None, whole: WholeResponse::default() }
    }

    /// Whether the response is sent as a whole if it ends like this.
    fn is_whole(&self, failure: Option<&Status>) -> bool {
        self.dialect.is_whole(self.begun.is_some(), failure)
    }
}

impl Server {
    /// Emits the head of a gRPC-Web call whose body has not been received.
    #[cold]
    pub(super) fn start_web_call(&mut self, out: &mut Outbox) -> Step {
        let Reading::Body(partial) = &self.reading else { return Step::Next };
        if let Some(answer) = browser::refusal(&self.config, &partial.request.inner) {
            return self.decline(answer, out);
        }
        match partial.request.grpc.as_deref() {
            Some(Ok(request)) => {
                self.names.set(&request.service, &request.method);
                let credential = request.call(Bytes::new(), Compression::None).credential;
                self.await_verdict(true, credential)
            }
            _ => self.start_rejected(None, out),
        }
    }

    /// Answers a rejected gRPC-Web call without reading its body.
    #[cold]
    pub(super) fn refuse_web(&mut self, verdict: Verdict, out: &mut Outbox) {
        let (service, method) = self.names.parts();
        let failure = match verdict {
            Verdict::Accepted => return,
            Verdict::Unauthenticated(status) | Verdict::Refused(status) => status,
            Verdict::Missing(missing) => {
                let call = Call::new(service, method, Format::Protobuf, Bytes::new());
                let dialect = match &self.reading {
                    Reading::Body(partial) => partial.request.dialect(),
                    _ => Dialect::default(),
                };
                dialect.not_found(&call, missing)
            }
        };
        self.start_rejected(Some(&failure), out);
    }

    /// Answers a gRPC-Web call whose body has not been received: with this failure, or with that of its head.
    fn start_rejected(&mut self, failure: Option<&Status>, out: &mut Outbox) -> Step {
        let Some(partial) = self.abandon_partial() else { return Step::Next };
        let request = partial.request;
        let origin = self.config.cors.origin(&request.inner.metadata);
        let exchange = self.order.open(request.http10, false, origin);
        self.close_or_skip(&request);
        let dialect = request.dialect();
        let (Some(failure), Some(Ok(request))) = (failure, request.grpc.as_deref()) else {
            return self.begin_web(exchange, request, Bytes::new(), out);
        };
        let (format, accepts) = (request.format, request.accepts);
        self.live = Some(Box::new(StreamingExchange::Web(WebCall::new(exchange, dialect, format, accepts))));
        self.unanswered += 1;
        self.end_answer(Some(failure), &Metadata::new(), out);
        Step::Next
    }

    /// Handles a complete gRPC-Web call.
    pub(super) fn begin_web(
        &mut self,
        exchange: Exchange,
        request: H1Request,
        body: Bytes,
        out: &mut Outbox,
    ) -> Step {
        if let Some(answer) = browser::refusal(&self.config, &request.inner) {
            return self.respond(exchange, answer, out);
        }
        let authenticated = request.inner.accepted;
        let dialect = request.dialect();
        let exchange_of = exchange.clone();
        let web = |format, accepts| WebCall::new(exchange_of, dialect, format, accepts);
        let failure = match request.grpc.map_or(Err(InvalidRequest::ContentType), |grpc| *grpc) {
            Ok(request) => {
                self.live = Some(Box::new(StreamingExchange::Web(web(request.format, request.accepts))));
                let ticket = Ticket { exchange, form: Form::Web(dialect) };
                return self.call_web(request, body, authenticated, ticket);
            }
            Err(InvalidRequest::Method | InvalidRequest::ContentType) => {
                return self.respond(
                    exchange,
                    // A gRPC-Web client does not parse JSON; over HTTP/2 the response is text too.
                    Answer::Text(415, "expected content-type: application/grpc-web\n"),
                    out,
                );
            }
            Err(InvalidRequest::Path) => {
                self.unreported_refusals.record(RefusalCause::Unknown);
                Status::unimplemented("malformed method name")
            }
            Err(InvalidRequest::Encoding) => {
                self.unreported_refusals.record(RefusalCause::Unsupported);
                unknown_encoding()
            }
            Err(InvalidRequest::Fields) => {
                self.unreported_refusals.record(RefusalCause::TooLarge);
                Status::resource_exhausted("too many fields")
            }
            Err(InvalidRequest::Timeout) => Status::internal("malformed grpc-timeout"),
            Err(InvalidRequest::Credentials) => two_credentials(),
        };
        self.live =
            Some(Box::new(StreamingExchange::Web(web(Format::Protobuf, AcceptedCompressions::default()))));
        self.end_answer(Some(&failure), &Metadata::new(), out);
        Step::Next
    }

    /// Emits a call: in one event if its body is one message, which is the usual case, otherwise message by message.
    fn call_web(
        &mut self,
        request: GrpcRequest,
        mut body: Bytes,
        authenticated: bool,
        ticket: Ticket,
    ) -> Step {
        self.unanswered += 1;
        self.names.set(&request.service, &request.method);
        if let Some(framed) = request.single_message(&mut body, self.config.limits.message) {
            let compression = if framed.compressed { request.compression } else { Compression::None };
            let malformed =
                (framed.compressed && compression == Compression::None).then(compressed_without_name);
            let call = to_unnamed_call(&request, framed.body, compression);
            let malformed = malformed.or_else(|| request.refusal());
            return Step::Call(Call { malformed, authenticated, ..call }, ticket);
        }
        let messages = StreamedBody::from_whole(request.dialect, request.compression, body);
        self.reading = Reading::Messages(Box::new(messages));
        let call = to_unnamed_call(&request, Bytes::new(), request.compression);
        Step::Open(Call { authenticated, ..call }, ticket)
    }

    /// Emits the next message of a request.
    pub(super) fn next_message(&mut self, inbox: &mut BytesMut, out: &mut Outbox) -> Step {
        let Reading::Messages(messages) = &mut self.reading else { return Step::Next };
        // The call may have been answered before its messages were consumed.
        let id = StreamingExchange::as_web(&self.live).map(|web| id(&web.exchange));
        if id.is_none() {
            messages.discard_rest();
        }
        let limits = &self.config.limits;
        match (messages.next(inbox, limits.message, limits.header), id) {
            (NextMessage::Message(message), Some(id)) => Step::Message(id, message),
            (NextMessage::End, Some(id)) => {
                self.reading = Reading::Head;
                Step::End(id)
            }
            (NextMessage::Failed(status), Some(id)) => {
                messages.discard_rest();
                if status.code() == Code::ResourceExhausted {
                    self.unreported_refusals.record(RefusalCause::TooLarge);
                }
                self.end_answer(Some(&status), &Metadata::new(), out);
                Step::Cancelled(id)
            }
            (NextMessage::Wait, _) => Step::Wait,
            (NextMessage::Full, _) => self.wait_for_reply(),
            (NextMessage::Lost, _) => {
                self.reading = Reading::Head;
                self.order.close();
                Step::Next
            }
            (
                NextMessage::Message(_) | NextMessage::End | NextMessage::Failed(_) | NextMessage::Discarded,
                _,
            ) => {
                self.reading = Reading::Head;
                Step::Next
            }
        }
    }

    /// Emits a call whose body exceeds the buffer limit: its messages follow as they arrive.
    #[cold]
    pub(super) fn begin_piecewise(&mut self, out: &mut Outbox) -> Step {
        let Some(partial) = self.abandon_partial() else { return Step::Next };
        let Partial { request, chunked, .. } = *partial;
        if request.inner.expects && self.order.pending() == 0 {
            out.extend_from_slice(super::CONTINUE);
        }
        let origin = self.config.cors.origin(&request.inner.metadata);
        let exchange = self.order.open(request.http10, false, origin);
        if !request.keep || self.draining {
            self.order.close();
        }
        let (dialect, body_length, authenticated) =
            (request.dialect(), request.body_length, request.inner.accepted);
        let Some(Ok(request)) = request.grpc.as_deref() else {
            self.order.close();
            return self.begin_web(exchange, request, Bytes::new(), out);
        };
        let (format, accepts) = (request.format, request.accepts);
        let ticket = Ticket { exchange: exchange.clone(), form: Form::Web(dialect) };
        self.live = Some(Box::new(StreamingExchange::Web(WebCall::new(exchange, dialect, format, accepts))));
        self.unanswered += 1;
        self.names.set(&request.service, &request.method);
        let messages = StreamedBody::from_partial(dialect, request.compression, body_length, chunked);
        self.reading = Reading::Messages(Box::new(messages));
        let call = to_unnamed_call(request, Bytes::new(), request.compression);
        Step::Open(Call { authenticated, ..call }, ticket)
    }

    /// Whether this call is the one being answered: it may have been rejected since it was emitted.
    pub(super) fn answers(&self, stream: StreamId) -> bool {
        StreamingExchange::as_web(&self.live).is_some_and(|web| id(&web.exchange) == stream)
    }

    pub(super) fn reply_web(&mut self, exchange: Exchange, dialect: Dialect, reply: Reply, out: &mut Outbox) {
        let Reply { result, head, trailers, .. } = reply;
        let id = id(&exchange);
        if result.is_ok() || dialect.response_body() != ResponseBody::Text {
            self.start_response(id, head, out);
        } else if self.answers(id)
            && let Some(web) = StreamingExchange::as_web_mut(&mut self.live)
        {
            // The failure is sent as a whole, in a response that has not begun.
            web.whole.start(Compression::None, head.metadata);
        }
        let result = result.map(|message| self.send_message(id, message, out));
        self.finish(Ticket { exchange, form: Form::Web(dialect) }, result, trailers, out);
    }

    /// Writes the head of the response if that has not happened yet.
    pub(super) fn begin_answer(&mut self, head: &Head, out: &mut Outbox) {
        let Some(web) = StreamingExchange::as_web_mut(&mut self.live).filter(|web| web.begun.is_none())
        else {
            return;
        };
        let compression = web.accepts.choose(head.compression);
        web.begun = Some(compression);
        if web.is_whole(None) {
            return web.whole.start(compression, head.metadata.clone());
        }
        if !web.exchange.takes_chunks() {
            // The end of the connection delimits the body.
            self.order.close();
        }
        let text = out.buffer();
        text.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        grpc_web::head(web.dialect, web.format, compression, &head.metadata, |name, value| {
            for part in [name, b": ", value, b"\r\n"] {
                text.extend_from_slice(part);
            }
        });
        if web.exchange.takes_chunks() {
            field::field(text, "transfer-encoding", b"chunked");
        }
        self.order.start_streamed(&web.exchange, out);
    }

    pub(super) fn answer_message(&mut self, message: Bytes, out: &mut Outbox) {
        self.begin_answer(&Head::default(), out);
        let Some(web) = StreamingExchange::as_web_mut(&mut self.live) else { return };
        if web.is_whole(None) {
            return web.whole.add(message);
        }
        let WebCall { exchange, dialect, begun, .. } = web;
        let chunks = exchange.takes_chunks();
        grpc_web::message(*dialect, begun.unwrap_or_default(), message, |prefix, body| {
            write(chunks, prefix, body, out);
        });
    }

    /// Writes the result of the call.
    pub(super) fn end_answer(&mut self, failure: Option<&Status>, trailers: &Metadata, out: &mut Outbox) {
        if StreamingExchange::as_web(&self.live).is_some_and(|web| web.is_whole(failure)) {
            return self.finish_unary_response(failure, trailers, out);
        }
        self.begin_answer(&Head::default(), out);
        let Some(WebCall { exchange, dialect, .. }) = StreamingExchange::take_web(&mut self.live) else {
            return;
        };
        let chunks = exchange.takes_chunks();
        grpc_web::trailers(dialect, failure, trailers, |prefix, body| write(chunks, prefix, body, out));
        if chunks {
            out.extend_from_slice(chunked::END);
        }
        self.unanswered = self.unanswered.saturating_sub(1);
        self.order.end();
    }

    /// Writes a response that is sent as a whole.
    fn finish_unary_response(&mut self, failure: Option<&Status>, trailers: &Metadata, out: &mut Outbox) {
        let Some(WebCall { exchange, dialect, format, whole, .. }) =
            StreamingExchange::take_web(&mut self.live)
        else {
            return;
        };
        let Some(framing) = dialect.framing() else { return };
        self.unanswered = self.unanswered.saturating_sub(1);
        self.order.respond(exchange, out, |head| framing.whole(whole, format, failure, trailers, head));
    }
}

/// Identifier of the stream; there is one at a time.
pub(super) fn id(exchange: &Exchange) -> StreamId {
    StreamId(exchange.number())
}

/// Returns the call that a request describes; its names are in the session.
fn to_unnamed_call(request: &GrpcRequest, body: Bytes, compression: Compression) -> Call<'static> {
    Call { service: "", method: "", ..request.call(body, compression) }
}

fn write(chunks: bool, prefix: &[u8], body: Bytes, out: &mut Outbox) {
    if chunks {
        chunked::write(prefix, body, out);
    } else {
        out.extend_from_slice(prefix);
        out.body(body);
    }
}

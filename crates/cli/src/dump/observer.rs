//! Reads both directions of a connection by the sessions of its protocol.
//!
//! A server's session reads what the client sent. Its own answers go nowhere, except that those of protocols with
//! numbers of calls tell the number: a client's session reads them. Another client's session reads what the server
//! sent. In protocols without such numbers it makes the same calls in the same order, so that its calls get the
//! numbers, or the positions, of the captured ones.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use polyrpc::{Bytes, Compression, Format, Metadata, Status};
use polyrpc_core::session::server::{Streaming as _, Ticket as _};
use polyrpc_core::session::{Client, ClientEvent, Server, ServerEvent, Verdict};
use polyrpc_core::{Call as Request, CallId, Head, Message as Part, Outbox, Reply, StreamId};
use polyrpc_record::Call;
use polyrpc_record::call::{Failure, Field, Message, Outcome, Reason, Side, StreamEvent};
use polyrpc_wire::Protocol;

use bytes::BytesMut;

use super::captured::{Budget, CapturedCall, Omission, Reservation};

/// Reads a connection.
pub(super) trait Observe {
    /// Reads what the client sent, at a time.
    fn read_requests(&mut self, inbox: &mut BytesMut, at: u64) -> Result<Continuation, String>;

    /// Reads what the server sent; returns the calls that ended.
    fn read_responses(&mut self, inbox: &mut BytesMut, at: u64) -> Result<Vec<CapturedCall>, String>;

    /// Notes that the server closed its side, which ends an answer without a length.
    fn on_server_end(&mut self, inbox: &mut BytesMut, at: u64) -> Vec<CapturedCall>;

    /// Returns the calls that ended without an answer, such as those that expect none.
    fn take_ended(&mut self) -> Vec<CapturedCall>;

    /// Returns the calls whose end was not seen.
    fn take_unfinished(&mut self) -> Vec<CapturedCall>;
}

/// How a connection continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Continuation {
    Same,
    /// In another protocol, whose bytes are next.
    Other,
    /// In one that is not read.
    Unread(&'static str),
}

/// How answers find their calls.
pub(super) enum Matching {
    /// By call id, which is read from our own answers.
    Numbers(Box<dyn Client>),
    /// By the order of calls: the client session makes the same calls.
    CallOrder,
}

pub(super) struct Observer<S: Server> {
    protocol: Protocol,
    server: S,
    client: Box<dyn Client>,
    matching: Matching,
    calls: HashMap<CallId, Open>,
    streams: HashMap<StreamId, (CallId, Option<S::Ticket>)>,
    ended: Vec<CapturedCall>,
    /// Number of the next call, where calls have none of their own.
    next: u64,
    /// Streams of HTTP/2 that the client's session has opened.
    opened: u64,
    /// Those of them that the capture does not have.
    skipped: u64,
    budget: Rc<Budget>,
    out: Outbox,
    /// The last request's head says that it is a stream of Connect, whose messages may have arrived as one call; `None`
    /// in other protocols.
    connect_streams: Option<bool>,
}

/// A request as it arrived.
struct ReceivedRequest {
    call: Call,
    format: Format,
    compression: Compression,
}

/// A call whose end was not seen yet.
struct Open {
    call: Call,
    /// Format of the messages.
    format: Format,
    head: Option<Head>,
    /// Compression of the request.
    compression: Compression,
    /// Compression of each event.
    events: Vec<Compression>,
    /// Bytes of messages that are kept.
    kept: usize,
    memory: Reservation,
    /// Its answer is not in the format that the session reads.
    is_foreign: bool,
}

/// An event of the server's session, without what it borrows.
enum Step<T> {
    Head(StreamId),
    Call(Box<ReceivedRequest>, T),
    Open(Box<ReceivedRequest>, T, StreamId),
    Message(StreamId, Part),
    End(StreamId),
    Cancelled(StreamId),
    Continue(Continuation),
    Nothing,
}

impl<S: Server> Observer<S> {
    pub(super) fn new(
        protocol: Protocol,
        server: S,
        client: Box<dyn Client>,
        matching: Matching,
        budget: &Rc<Budget>,
    ) -> Self {
        Self {
            protocol,
            server,
            client,
            matching,
            calls: HashMap::new(),
            streams: HashMap::new(),
            ended: Vec::new(),
            next: 0,
            opened: 0,
            skipped: 0,
            budget: Rc::clone(budget),
            out: Outbox::default(),
            connect_streams: None,
        }
    }

    /// The same for a connection of Connect over HTTP/1.1.
    pub(super) fn with_connect_protocol(self) -> Self {
        Self { connect_streams: Some(false), ..self }
    }

    /// Unary calls and streams of Connect are answered in different forms, which only the head of the request
    /// determines.
    fn detect_connect_stream(&mut self, inbox: &[u8]) {
        let Some(streams) = &mut self.connect_streams else { return };
        if ![&b"POST "[..], b"GET "].iter().any(|method| inbox.starts_with(method)) {
            return;
        }
        let start = &inbox[..inbox.len().min(MAX_HEAD)];
        if let Some(end) = start.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&start[..end]).to_ascii_lowercase();
            *streams = head.contains("content-type: application/connect+");
        }
    }

    fn next_step(&mut self, inbox: &mut BytesMut, at: u64) -> Result<Option<Step<S::Ticket>>, String> {
        let protocol = self.protocol;
        let event =
            self.server.next_event(inbox, &mut self.out).map_err(|violation| violation.to_string())?;
        Ok(event.map(|event| match event {
            ServerEvent::Head(_, stream) => Step::Head(stream),
            ServerEvent::Call(request, ticket) => {
                Step::Call(Box::new(record_request(request, protocol, at)), ticket)
            }
            ServerEvent::Open(request, ticket, stream) => {
                Step::Open(Box::new(record_request(request, protocol, at)), ticket, stream)
            }
            ServerEvent::Message(stream, part) => Step::Message(stream, part),
            ServerEvent::End(stream) => Step::End(stream),
            ServerEvent::Cancelled(stream) => Step::Cancelled(stream),
            ServerEvent::Foreign | ServerEvent::Connect => Step::Continue(Continuation::Other),
            ServerEvent::Upgrade(_) => Step::Continue(Continuation::Unread("it is upgraded to HTTP/2")),
            ServerEvent::WebSocket => Step::Continue(Continuation::Unread("it continues as a WebSocket")),
            ServerEvent::Room(_) | ServerEvent::Alive | ServerEvent::Pause | ServerEvent::Subscribe(_) => {
                Step::Nothing
            }
        }))
    }

    /// Records a call, and answers it, so that the session continues.
    fn on_call(&mut self, mut arrived: ReceivedRequest, ticket: S::Ticket) -> Result<(), String> {
        let oneway = arrived.call.oneway;
        let streams = self.connect_streams == Some(true);
        let mirrored = self.mirror_call(&arrived, ticket.stream(), streams)?;
        if let (true, Some(id), Some(streaming)) = (streams, mirrored, self.client.streaming()) {
            streaming.end(id, &mut self.out);
        }
        // Its responses are messages.
        arrived.call.server_streams |= streams;
        let answered = self.answer(ticket);
        match mirrored.or(answered) {
            Some(id) if !oneway => self.begin(id, arrived),
            _ => {
                let open = Open::new(arrived, false, self.budget.reservation());
                self.ended.push(open.into_captured_call());
            }
        }
        Ok(())
    }

    /// Makes the same call in the client session, which reads the answers. Returns its id, if the protocol has none.
    fn mirror_call(
        &mut self,
        arrived: &ReceivedRequest,
        stream: Option<StreamId>,
        is_streamed: bool,
    ) -> Result<Option<CallId>, String> {
        let Matching::CallOrder = self.matching else { return Ok(None) };
        if arrived.call.oneway && self.protocol != Protocol::NetRpc {
            return Ok(None);
        }
        if self.protocol == Protocol::Grpc
            && let Some(stream) = stream
        {
            self.skip_streams(stream)?;
        }
        let (call, format) = (&arrived.call, self.format_of(arrived.format));
        // A call with names that the session cannot write gets placeholder names: answers are matched by their order,
        // so none may be left out.
        let names = [[call.service.as_str(), call.method.as_str()], UNNAMED];
        let id = self.send_mirrored(&names, format, is_streamed);
        Ok(Some(id))
    }

    /// Streams of HTTP/2 have odd numbers. The session that reads the answers uses all of them, so it opens those that
    /// the capture does not have.
    fn skip_streams(&mut self, before: StreamId) -> Result<(), String> {
        let missing = before.0.saturating_sub(1).div_ceil(2).saturating_sub(self.opened);
        self.skipped += missing;
        if self.skipped > MAX_SKIPPED {
            return Err("streams were opened before the capture".to_owned());
        }
        for _ in 0..missing {
            let skipped = self.send_mirrored(&[UNNAMED], Format::Protobuf, true);
            self.client.cancel(skipped, &mut self.out);
            self.out.take();
        }
        Ok(())
    }

    fn format_of(&self, format: Format) -> Format {
        if format == Format::Raw && self.protocol == Protocol::Grpc { Format::Protobuf } else { format }
    }

    /// Starts a call in the client session, with the first of `names` that can be encoded.
    fn send_mirrored(&mut self, names: &[[&str; 2]], format: Format, is_streamed: bool) -> CallId {
        let id = self.next_id();
        self.opened += 1;
        for [service, method] in names {
            let request = Request::new(service, method, format, Bytes::new());
            let result = if is_streamed && let Some(streaming) = self.client.streaming() {
                streaming.open(id, request, &mut self.out)
            } else {
                self.client.send(id, request, &mut self.out)
            };
            if result.is_ok() {
                break;
            }
        }
        self.out.take();
        id
    }

    fn next_id(&mut self) -> CallId {
        self.next += 1;
        CallId(self.next - 1)
    }

    /// Answers a call, and reads the answer's number.
    fn answer(&mut self, ticket: S::Ticket) -> Option<CallId> {
        self.out.take();
        self.server.reply(ticket, Reply::failure(Status::internal("observed")), &mut self.out);
        let mut answer = BytesMut::from(&self.out.take()[..]);
        let Matching::Numbers(reader) = &mut self.matching else { return None };
        let mut unused = Outbox::default();
        match reader.next_event(&mut answer, &mut unused) {
            Ok(Some(ClientEvent::Reply(id, _))) => Some(id),
            _ => None,
        }
    }

    /// Whether an answer is not of the kind that the session reads: plain HTTP within HTTP/2.
    fn is_foreign(&self, call: &Call) -> bool {
        self.protocol == Protocol::Grpc && call.protocol != Protocol::Grpc.as_str()
    }

    fn begin(&mut self, id: CallId, mut arrived: ReceivedRequest) {
        let mut memory = self.budget.reservation();
        if self.calls.len() >= MAX_CALLS || !memory.add(size_without_body(&arrived.call)) {
            self.budget.note(Omission::Call);
            return;
        }
        if let Some(request) = &mut arrived.call.request
            && !memory.add(request.body.len())
        {
            self.budget.note(Omission::Body);
            request.omit("calls without an answer took too much memory");
        }
        let is_foreign = self.is_foreign(&arrived.call);
        let before = self.calls.insert(id, Open::new(arrived, is_foreign, memory));
        self.ended.extend(before.map(Open::into_captured_call));
    }

    fn on_open(
        &mut self,
        mut arrived: ReceivedRequest,
        ticket: S::Ticket,
        stream: StreamId,
    ) -> Result<(), String> {
        let call = &mut arrived.call;
        call.request = None;
        (call.client_streams, call.server_streams) = (true, true);
        let Some(id) = self.mirror_call(&arrived, Some(stream), true)? else { return Ok(()) };
        self.streams.insert(stream, (id, Some(ticket)));
        self.begin(id, arrived);
        Ok(())
    }

    fn on_message(&mut self, stream: StreamId, part: Part, at: u64) {
        if let Some(streaming) = self.server.streaming() {
            streaming.record_consumed(stream, part.body.len(), &mut self.out);
        }
        if let Some(open) = self.streams.get(&stream).and_then(|(id, _)| self.calls.get_mut(id)) {
            open.add_event(at, false, Some(part));
        }
    }

    fn on_end(&mut self, stream: StreamId, at: u64) {
        let Some((id, ticket)) = self.streams.get_mut(&stream) else { return };
        if let Some(open) = self.calls.get_mut(&*id) {
            open.add_event(at, false, None);
        }
        if let Some(streaming) = self.client.streaming() {
            streaming.end(*id, &mut self.out);
        }
        // The session keeps the stream until it is answered.
        if let (Some(ticket), Some(streaming)) = (ticket.take(), self.server.streaming()) {
            streaming.finish(ticket, Ok(()), Metadata::new(), &mut self.out);
        }
        self.streams.remove(&stream);
    }

    fn on_cancel(&mut self, stream: StreamId, at: u64) {
        let Some((id, _)) = self.streams.remove(&stream) else { return };
        self.client.cancel(id, &mut self.out);
        if let Some(open) = self.calls.remove(&id) {
            let failure = Some(Failure::from(&Status::cancelled("the client gave the call up")));
            self.ended.push(open.finish(at, Outcome { failure, ..Outcome::default() }, Compression::None));
        }
    }

    fn on_reply(&mut self, id: CallId, reply: Reply, at: u64) -> Option<CapturedCall> {
        let open = self.calls.remove(&id)?;
        if open.is_foreign {
            return Some(open.finish_unread(at));
        }
        let head = reply.head;
        let started = open.head.as_ref();
        let metadata = started.map_or(&head.metadata, |started| &started.metadata);
        let format = started.map_or(head.format, |started| started.format);
        let mut outcome = Outcome {
            metadata: Field::list(metadata),
            trailers: Field::list(&reply.trailers),
            attachment: reply.attachment,
            ..Outcome::default()
        };
        match reply.result {
            Ok(body) if !open.call.server_streams => {
                outcome.response =
                    Some(Message { positional: head.positional, ..Message::new(format, body) });
            }
            Ok(_) => {}
            Err(status) => outcome.failure = Some(Failure::from(&status)),
        }
        Some(open.finish(at, outcome, head.compression))
    }
}

impl<S: Server> Observe for Observer<S> {
    fn read_requests(&mut self, inbox: &mut BytesMut, at: u64) -> Result<Continuation, String> {
        loop {
            self.detect_connect_stream(inbox);
            let Some(step) = self.next_step(inbox, at)? else { break };
            match step {
                Step::Head(stream) => {
                    self.server.apply_verdict(stream, Verdict::Accepted, &mut self.out);
                }
                Step::Call(arrived, ticket) => self.on_call(*arrived, ticket)?,
                Step::Open(arrived, ticket, stream) => self.on_open(*arrived, ticket, stream)?,
                Step::Message(stream, part) => self.on_message(stream, part, at),
                Step::End(stream) => self.on_end(stream, at),
                Step::Cancelled(stream) => self.on_cancel(stream, at),
                Step::Continue(continuation) => return Ok(continuation),
                Step::Nothing => {}
            }
            self.out.take();
        }
        self.out.take();
        Ok(Continuation::Same)
    }

    fn read_responses(&mut self, inbox: &mut BytesMut, at: u64) -> Result<Vec<CapturedCall>, String> {
        let mut ended = Vec::new();
        loop {
            let event =
                self.client.next_event(inbox, &mut self.out).map_err(|violation| violation.to_string())?;
            self.out.take();
            match event {
                None => return Ok(ended),
                Some(ClientEvent::Reply(id, reply)) => ended.extend(self.on_reply(id, reply, at)),
                Some(ClientEvent::Head(id, head)) => {
                    if let Some(open) = self.calls.get_mut(&id) {
                        open.head = Some(head);
                    }
                }
                Some(ClientEvent::Message(id, part)) => {
                    if let Some(streaming) = self.client.streaming() {
                        streaming.record_consumed(id, part.body.len(), &mut self.out);
                    }
                    if let Some(open) = self.calls.get_mut(&id) {
                        open.add_event(at, true, Some(part));
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn on_server_end(&mut self, inbox: &mut BytesMut, at: u64) -> Vec<CapturedCall> {
        match self.client.end_of_stream(inbox) {
            Some(ClientEvent::Reply(id, reply)) => self.on_reply(id, reply, at).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn take_ended(&mut self) -> Vec<CapturedCall> {
        std::mem::take(&mut self.ended)
    }

    fn take_unfinished(&mut self) -> Vec<CapturedCall> {
        let calls: BTreeMap<(u64, CallId), Open> =
            self.calls.drain().map(|(id, open)| ((open.call.arrival, id), open)).collect();
        calls.into_values().map(Open::into_captured_call).collect()
    }
}

impl Open {
    fn new(arrived: ReceivedRequest, is_foreign: bool, memory: Reservation) -> Self {
        let ReceivedRequest { call, format, compression } = arrived;
        Self { call, format, head: None, compression, events: Vec::new(), kept: 0, memory, is_foreign }
    }

    /// Notes a message of a stream, or its end.
    fn add_event(&mut self, at: u64, from_server: bool, part: Option<Part>) {
        let (end, compression) =
            (part.is_none(), part.as_ref().map_or(Compression::None, |part| part.compression));
        let message = part.map(|part| part.body).unwrap_or_default();
        let kept = self.kept.saturating_add(message.len());
        if self.events.len() >= MAX_EVENTS || kept > MAX_KEPT || !self.memory.add(PER_EVENT + message.len()) {
            if !end {
                self.memory.note(Omission::Event);
            }
            return;
        }
        self.kept = kept;
        let at = Duration::from_nanos(at.saturating_sub(self.call.arrival));
        self.events.push(compression);
        self.call.events.push(StreamEvent { at, from_server, message, end });
    }

    /// Shows a call with one message each way as unary: in gRPC only a schema distinguishes it from a stream.
    fn finish(mut self, at: u64, mut outcome: Outcome, mut compression: Compression) -> CapturedCall {
        let format = self.head.as_ref().map_or(self.format, |head| head.format);
        let call = &mut self.call;
        call.took = Duration::from_nanos(at.saturating_sub(call.arrival));
        let messages = call.events.iter().zip(&self.events).filter(|(event, _)| !event.end);
        let (sent, received): (Vec<_>, Vec<_>) = messages.partition(|(event, _)| !event.from_server);
        if let ([(request, packed)], [] | [_]) = (&sent[..], &received[..])
            && call.client_streams
            && (outcome.failure.is_some() || received.len() == 1)
        {
            self.compression = **packed;
            call.request = Some(Message::new(self.format, request.message.clone()));
            if let Some((response, packed)) = received.first() {
                compression = **packed;
                outcome.response = Some(Message::new(format, response.message.clone()));
            }
            (call.client_streams, call.server_streams) = (false, false);
            call.events.clear();
            self.events.clear();
        }
        call.outcome = Some(outcome);
        CapturedCall { response: compression, ..self.into_captured_call() }
    }

    /// Ends a call whose answer is of another kind than the session reads: how it ended is not known.
    fn finish_unread(mut self, at: u64) -> CapturedCall {
        self.call.took = Duration::from_nanos(at.saturating_sub(self.call.arrival).max(1));
        self.into_captured_call()
    }

    /// The call as far as it was seen.
    fn into_captured_call(self) -> CapturedCall {
        let Self { call, compression, events, memory, .. } = self;
        CapturedCall { call, request: compression, response: Compression::None, events, memory }
    }
}

/// The call as it is recorded.
fn record_request(request: Request<'_>, protocol: Protocol, at: u64) -> ReceivedRequest {
    let Request { service, method, body, attachment, head, timeout, oneway, .. } = request;
    let protocol = if head.plain_http { Protocol::Http } else { protocol };
    let call = Call {
        arrival: at,
        side: Side::Capture,
        protocol: protocol.as_str().to_owned(),
        service: service.to_owned(),
        method: method.to_owned(),
        timeout,
        request: Some(Message { positional: head.positional, ..Message::new(head.format, body) }),
        metadata: Field::list(&head.metadata),
        attachment,
        oneway,
        reason: Reason::Sampled,
        ..Call::default()
    };
    ReceivedRequest { call, format: head.format, compression: head.compression }
}

/// Bytes of a call without those of its request message.
fn size_without_body(call: &Call) -> usize {
    let metadata = call.metadata.iter().map(|field| PER_FIELD + field.name.len() + field.value.len());
    PER_CALL + call.service.len() + call.method.len() + call.attachment.len() + metadata.sum::<usize>()
}

/// The name of a call that no server gets.
const UNNAMED: [&str; 2] = ["service", "method"];

/// Maximum number of streams of a connection that are not in the capture.
const MAX_SKIPPED: u64 = 10_000;

/// Maximum length of a request's head.
const MAX_HEAD: usize = 64 << 10;

/// Maximum number of calls of a connection without an end.
const MAX_CALLS: usize = 100_000;

/// Maximum number of messages of a stream that are kept, and of their bytes.
const MAX_EVENTS: usize = 10_000;
const MAX_KEPT: usize = 64 << 20;

/// Bytes of a call, of a field of metadata and of an event, without their texts.
const PER_CALL: usize = 1024;
const PER_FIELD: usize = 96;
const PER_EVENT: usize = 96;

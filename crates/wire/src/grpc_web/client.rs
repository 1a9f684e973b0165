//! Client session of an HTTP/1.1 connection with calls of gRPC-Web, or of a dialect with a framing of its own: one at a
//! time, with streamed messages in both directions.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::digits::put_decimal;
use polyrpc_core::session::ClientEvent;
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::{
    Call, CallId, Carrier, Compression, Fault, Format, Limits, Outbox, Status, UnsupportedEntry, Violation,
    session,
};

use crate::grpc::dialect::Dialect;
use crate::grpc::outgoing::{Outgoing, ResponseEnd, not_one};
use crate::grpc::request_writer::{ClientFraming, RequestBody};
use crate::grpc::{self, coding, frame as grpc_frame, metadata, timeout};
use crate::http::field;
use crate::http::h1::chunked::{self, Chunked};
use crate::http::h1::frame::{self, BodyLength, Lengths, Refusal};
use crate::http::h2::hpack::Fields;
use crate::http::head::WriteHead;
use crate::http::path::check_name;

/// Settings of a gRPC-Web client.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// Limits of the connection; those of messages apply to each message, not to their sum.
    pub limits: Limits,
    /// The `Host` field: `host:port`.
    pub authority: String,
    /// Credential of calls without one of their own, sent in `Authorization`.
    pub credential: Option<Bytes>,
    /// Calls use this framing instead.
    pub framing: Option<ClientFraming>,
}

/// Client session of gRPC-Web over HTTP/1.1.
///
/// A connection has one call at a time. After a call that was abandoned before its end, it accepts no more calls.
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    /// The call in flight.
    call: Option<Outgoing>,
    /// The request is incomplete.
    sending: bool,
    reading: Reading,
    scanned: usize,
    /// Bytes of messages that were emitted but not consumed.
    unconsumed: usize,
    /// The response is not awaited.
    oneway: bool,
    ending: bool,
}

/// The part that is read next.
#[derive(Debug)]
enum Reading {
    Head,
    Body(RemainingBody),
    /// The response is complete.
    Over,
}

/// The rest of a body.
#[derive(Debug)]
enum RemainingBody {
    Bytes(usize),
    Chunks(Box<Chunked>),
    UntilClose,
}

impl Client {
    /// Creates the session of a new connection.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self {
            config: config.into(),
            call: None,
            sending: false,
            reading: Reading::Head,
            scanned: 0,
            unconsumed: 0,
            oneway: false,
            ending: false,
        }
    }

    /// Writes the head of a request, whose body has `length` bytes or is chunked.
    fn begin(&self, call: &Call<'_>, length: Option<usize>, out: &mut Outbox) -> Result<(), Status> {
        check_name(call.service)?;
        check_name(call.method)?;
        let credential = self.credential(call)?;
        let head = out.buffer();
        for part in ["POST /", call.service, "/", call.method, " HTTP/1.1\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        head.lenient_field("host", self.config.authority.as_bytes());
        field::field(head, "content-type", &Dialect::Web.content_type(call.head.format));
        match length {
            Some(length) => {
                head.extend_from_slice(b"content-length: ");
                put_decimal(head, length as u64);
                head.extend_from_slice(b"\r\n");
            }
            None => field::field(head, "transfer-encoding", b"chunked"),
        }
        field::field(head, "x-grpc-web", b"1");
        field::field(head, "user-agent", grpc::USER_AGENT);
        field::field(head, "grpc-accept-encoding", coding::ACCEPTED);
        let sends = coding::to_message_coding(call.head.compression);
        if let Some(name) = coding::name(sends).filter(|_| sends != Compression::None) {
            field::field(head, "grpc-encoding", name);
        }
        if let Some(time) = call.timeout {
            let mut text = Vec::with_capacity(9);
            timeout::write(time, &mut text);
            field::field(head, "grpc-timeout", &text);
        }
        if let Some(credential) = credential {
            field::field(head, "authorization", &credential);
        }
        metadata::write(&call.head.metadata, |name, value| {
            for part in [name, b": ", value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        });
        head.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Returns the credential of a call.
    fn credential(&self, call: &Call<'_>) -> Result<Option<Bytes>, Status> {
        let credential = call.credential.bytes().or(self.config.credential.as_ref());
        if !credential.is_none_or(|credential| field::is_field_value(credential)) {
            return Err(Status::invalid_argument("the credential cannot be an HTTP header"));
        }
        Ok(credential.cloned())
    }

    /// Checks whether a call can be sent, and returns the compression of its messages.
    fn check(&self, call: &Call<'_>) -> Result<Compression, Status> {
        if self.ending || self.call.is_some() {
            return Err(Status::unavailable("the connection takes no more calls"));
        }
        if !call.attachment.is_empty() {
            return Err(Status::unimplemented("gRPC-Web has no attachments"));
        }
        Carrier::Grpc.check(&call.head.metadata).map_err(UnsupportedEntry::into_refusal)?;
        let sends = coding::to_message_coding(call.head.compression);
        match coding::name(sends) {
            Some(_) => Ok(sends),
            None => Err(Status::unimplemented(format!("gRPC has no name for {}", sends.as_str()))),
        }
    }

    /// Writes a request in another framing: all of it if the call is unary, otherwise its head.
    fn send_framed(
        &mut self,
        id: CallId,
        call: &Call<'_>,
        framing: ClientFraming,
        is_stream: bool,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let sends = self.check(call)?;
        let request = framing.writer().request(call, is_stream, sends)?;
        let credential = self.credential(call)?;
        let head = out.buffer();
        for part in [request.method, " ", &request.target, " HTTP/1.1\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        head.lenient_field("host", self.config.authority.as_bytes());
        match &request.body {
            RequestBody::Messages => field::field(head, "transfer-encoding", b"chunked"),
            RequestBody::Message(body) => {
                head.extend_from_slice(b"content-length: ");
                put_decimal(head, body.len() as u64);
                head.extend_from_slice(b"\r\n");
            }
            RequestBody::None => {}
        }
        let mut write = |name: &[u8], value: &[u8]| {
            for part in [name, b": ", value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        };
        framing.writer().fields(&request, call, &mut |name, value, _| write(name, value));
        write(b"user-agent", grpc::USER_AGENT);
        if let Some(credential) = credential {
            write(b"authorization", &credential);
        }
        metadata::write(&call.head.metadata, write);
        head.extend_from_slice(b"\r\n");
        if let RequestBody::Message(body) = request.body {
            out.body(body);
        }
        let dialect = (Dialect::Framed(request.framing), self.config.limits.message);
        self.record_sent(id, is_stream, (call.head.format, sends), dialect);
        Ok(())
    }

    fn record_sent(
        &mut self,
        id: CallId,
        streamed: bool,
        written: (Format, Compression),
        (dialect, limit): (Dialect, usize),
    ) {
        self.call = Some(Outgoing::new(id, streamed, written, dialect, limit));
        (self.sending, self.unconsumed) = (streamed, 0);
    }

    /// Returns the call with this id while its request is incomplete.
    fn open_call(&self, id: CallId) -> Option<&Outgoing> {
        self.call.as_ref().filter(|call| call.id == id && self.sending)
    }

    /// Parses heads from `inbox` up to the first final one.
    fn read_head(&mut self, inbox: &mut BytesMut) -> Result<Step, Violation> {
        loop {
            if inbox.is_empty() {
                return Ok(Step::Wait);
            }
            let Some(call) = &mut self.call else {
                return Err(Violation::new("a response came that no call waits for"));
            };
            let limit = self.config.limits.header;
            let end = match frame::head_end(inbox, &mut self.scanned) {
                Some(end) if end <= limit => end,
                None if inbox.len() <= limit => return Ok(Step::Wait),
                _ => return Err(Refusal::long_head().into()),
            };
            self.scanned = 0;
            let head = Head::parse(&inbox.split_to(end).freeze())?;
            if head.is_interim {
                continue;
            }
            self.ending |= !head.keep;
            self.reading = Reading::Body(match head.body_length {
                BodyLength::Fixed(length) => RemainingBody::Bytes(length),
                BodyLength::Chunked => RemainingBody::Chunks(Box::default()),
                BodyLength::UntilClose => RemainingBody::UntilClose,
            });
            return Ok(match call.read_head(&head.fields, false) {
                Ok(()) if call.streamed => Step::Answer(ClientEvent::Head(call.id, call.head.clone())),
                Ok(()) => Step::Next,
                Err(status) => {
                    call.end = Some(ResponseEnd::failed(status));
                    self.end()
                }
            });
        }
    }

    /// Takes the received part of a body from `inbox`, and its messages.
    fn read_body(&mut self, inbox: &mut BytesMut) -> Result<Step, Violation> {
        match self.take() {
            Step::Wait => {}
            step => return Ok(step),
        }
        let Reading::Body(rest) = &mut self.reading else { return Ok(self.end()) };
        let (piece, over) = rest.pull(inbox, self.config.limits.header)?;
        let Some(call) = &mut self.call else { return Ok(Step::Wait) };
        if piece.is_empty() && !over {
            return Ok(Step::Wait);
        }
        call.push(piece);
        if call.end.is_some() {
            return Ok(self.end());
        }
        if over {
            call.body_ended();
            self.reading = Reading::Over;
        }
        Ok(Step::Next)
    }

    /// Returns the next received message.
    fn take(&mut self) -> Step {
        let limit = self.config.limits.message;
        let Some(call) = &mut self.call else { return Step::Wait };
        while call.begun {
            let failed = match call.next(limit) {
                Ok(Some(message)) if call.streamed => {
                    self.unconsumed += message.body.len();
                    return Step::Answer(ClientEvent::Message(call.id, message));
                }
                Ok(Some(message)) => match call.message.replace(message) {
                    None => continue,
                    Some(_) => not_one("more than one message in a unary response"),
                },
                Ok(None) => break,
                Err(status) => status,
            };
            call.begun = false;
            call.end = Some(ResponseEnd::failed(failed.with_fault(Fault::Peer)));
            return self.end();
        }
        Step::Wait
    }

    /// Ends the call: its response is not read any further.
    fn end(&mut self) -> Step {
        // The rest of a body, or of the request, would precede the next call.
        self.ending |= self.sending || !matches!(self.reading, Reading::Over);
        self.reading = Reading::Head;
        (self.sending, self.unconsumed) = (false, 0);
        match self.call.take().and_then(Outgoing::into_answer) {
            Some((id, reply)) => Step::Answer(ClientEvent::Reply(id, reply)),
            None => Step::Next,
        }
    }
}

/// Result of a step.
enum Step {
    Answer(ClientEvent),
    /// Another step may succeed immediately.
    Next,
    /// More bytes are needed.
    Wait,
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        if let Some(framing) = self.config.framing {
            self.send_framed(id, &call, framing, false, out)?;
            self.oneway = call.oneway;
            self.ending |= call.oneway;
            return Ok(());
        }
        let sends = self.check(&call)?;
        let (compressed, body) = coding::compress_if_smaller(sends, call.body.clone());
        let prefix = grpc_frame::prefix(compressed, body.len());
        self.begin(&call, Some(prefix.len() + body.len()), out)?;
        out.extend_from_slice(&prefix);
        out.body(body);
        self.record_sent(id, false, (call.head.format, sends), (Dialect::Web, self.config.limits.header));
        // The next call could not be distinguished from this one: it needs another connection.
        self.oneway = call.oneway;
        self.ending |= call.oneway;
        Ok(())
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        _out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        loop {
            if self.blocks_input() {
                return Ok(None);
            }
            if self.ending && self.call.is_none() {
                // Discards the rest of an abandoned response.
                inbox.clear();
                return Ok(None);
            }
            let step = match self.reading {
                Reading::Head => self.read_head(inbox)?,
                Reading::Body(_) | Reading::Over => self.read_body(inbox)?,
            };
            match step {
                Step::Answer(answer) => return Ok(Some(answer)),
                Step::Next => {}
                Step::Wait => return Ok(None),
            }
        }
    }

    /// The rest of its response would precede the next one: the connection accepts no more calls.
    fn cancel(&mut self, id: CallId, _out: &mut Outbox) {
        if self.call.take_if(|call| call.id == id).is_some() {
            self.ending = true;
            (self.sending, self.unconsumed) = (false, 0);
        }
    }

    fn buffered(&self) -> usize {
        self.call.as_ref().map_or(0, |call| call.held())
    }

    fn bytes_needed(&self) -> usize {
        0
    }

    fn has_pending_output(&self) -> bool {
        self.oneway && self.call.is_some()
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn is_reusable(&self) -> bool {
        !self.ending
    }

    fn end_of_stream(&mut self, _inbox: &mut BytesMut) -> Option<ClientEvent> {
        self.ending = true;
        let Reading::Body(RemainingBody::UntilClose) = self.reading else { return None };
        self.call.as_mut()?.body_ended();
        match self.end() {
            Step::Answer(answer) => Some(answer),
            Step::Next | Step::Wait => None,
        }
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut dyn session::client::Streaming> {
        Some(self)
    }
}

impl session::client::Streaming for Client {
    fn open(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        if let Some(framing) = self.config.framing {
            return self.send_framed(id, &call, framing, true, out);
        }
        let sends = self.check(&call)?;
        self.begin(&call, None, out)?;
        self.record_sent(id, true, (call.head.format, sends), (Dialect::Web, self.config.limits.header));
        Ok(())
    }

    fn send_message(&mut self, id: CallId, message: Bytes, out: &mut Outbox) {
        let Some(call) = self.open_call(id) else { return };
        let (compressed, body) = coding::compress_if_smaller(call.sends, message);
        chunked::write(&grpc_frame::prefix(compressed, body.len()), body, out);
    }

    fn end(&mut self, id: CallId, out: &mut Outbox) {
        if self.open_call(id).is_some() {
            self.sending = false;
            out.extend_from_slice(chunked::END);
        }
    }

    fn half_closes(&mut self) -> bool {
        true
    }

    fn record_consumed(&mut self, _id: CallId, bytes: usize, _out: &mut Outbox) {
        self.unconsumed = self.unconsumed.saturating_sub(bytes);
    }

    fn blocks_input(&mut self) -> bool {
        self.unconsumed > self.config.limits.message
    }
}

impl RemainingBody {
    /// Returns the part of the body in `inbox`, and whether it is complete. Chunk framing may add `overhead` bytes.
    fn pull(&mut self, inbox: &mut BytesMut, overhead: usize) -> Result<(Bytes, bool), Refusal> {
        match self {
            Self::Bytes(left) => {
                let here = (*left).min(inbox.len());
                *left -= here;
                Ok((inbox.split_to(here).freeze(), *left == 0))
            }
            Self::Chunks(chunked) => match chunked.read(inbox, usize::MAX, overhead)? {
                Some(last) => Ok((last, true)),
                None => Ok((chunked.take(), false)),
            },
            Self::UntilClose => Ok((inbox.split().freeze(), false)),
        }
    }
}

/// Head of a response.
struct Head {
    /// Whether another response to the same request follows.
    is_interim: bool,
    keep: bool,
    body_length: BodyLength,
    /// In HTTP/2's form: including the status, with names in lower case.
    fields: Fields,
}

impl Head {
    fn parse(head: &Bytes) -> Result<Self, Refusal> {
        frame::parse_response(head, |line, headers| {
            let mut read = Self {
                is_interim: line.is_interim(),
                keep: !line.http10,
                body_length: BodyLength::Fixed(0),
                fields: Fields::default(),
            };
            read.fields.push(b":status", line.status.to_string().as_bytes());
            let mut lengths = Lengths::default();
            for header in headers {
                read.take(&header.name.to_ascii_lowercase(), header.value, &mut lengths)?;
            }
            read.body_length = lengths.body_length_of_response(&line, usize::MAX)?;
            read.keep &= read.body_length != BodyLength::UntilClose;
            Ok(read)
        })
    }

    fn take(&mut self, name: &str, value: &[u8], lengths: &mut Lengths) -> Result<(), Refusal> {
        match name {
            "content-length" => lengths.content_length(value)?,
            "transfer-encoding" => lengths.transfer_encoding(value)?,
            "connection" => {
                for option in field::list(value) {
                    self.keep &= !option.eq_ignore_ascii_case(b"close");
                }
            }
            _ => {}
        }
        self.fields.push(name.as_bytes(), value);
        Ok(())
    }
}

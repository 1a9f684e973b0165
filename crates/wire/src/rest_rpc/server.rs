//! The server's side of a connection.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::server::Incomplete;
use polyrpc_core::session::{NotFound, Refusals, ServerEvent, ViolationKind};
use polyrpc_core::{Call, Format, Head, Limits, Outbox, Push, Reply, Status, Topic, Violation, session};
use polyrpc_payload::msgpack::Writer;

use super::frame::{Header, Kind, MAX_BODY, NextFrame};
use super::functions::{FunctionIndex, FunctionTarget, Functions, number};
use super::version::Version;
use super::{body, frame, status};
use crate::failure_text::shorten;
use crate::oversized::{OversizedRequests, request_too_large};

/// The server's side of a connection.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    version: Version,
    /// Name borrowed by the last event if the called function is unknown: its name, or `#` and its number.
    name: String,
    wanted: usize,
    /// A call is being answered; the next one is not parsed before it is.
    answering: bool,
    heartbeats: u64,
    draining: bool,
    oversized: OversizedRequests,
}

/// Settings shared by all connections of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Limits of a connection. Up to v0.20 a body must also be below 10 MiB.
    pub limits: Limits,
    /// Functions that can be called.
    pub functions: Functions,
}

impl Server {
    /// Creates the state of a newly accepted connection.
    pub fn new(config: Arc<ServerConfig>, version: Version) -> Self {
        Self {
            config,
            version,
            name: String::new(),
            wanted: 0,
            answering: false,
            heartbeats: 0,
            draining: false,
            oversized: OversizedRequests::default(),
        }
    }

    /// Handles a frame. Returns `None` if the session has answered it without the application.
    fn handle_frame(&mut self, header: Header, body: BytesMut, out: &mut Outbox) -> Option<FrameRequest> {
        match header.kind {
            Kind::Call => self.call(header, body, out),
            Kind::Topic => self.topic(header, &body).map(FrameRequest::Subscription),
            Kind::Heartbeat => {
                self.heartbeats += 1;
                None
            }
            // Since v0.21, every type other than a topic is a call (rest_rpc `rpc_connection.hpp`). Before that the
            // peer reads the body and ignores it (`connection.h`, `read_body`).
            Kind::Other(_) => match self.version {
                Version::V0_21(_) => self.call(header, body, out),
                _ => None,
            },
        }
    }

    /// Returns the topic of a subscription. A malformed one is ignored: the peer only logs it (rest_rpc `connection.h`,
    /// `read_body`).
    fn topic(&self, header: Header, body: &[u8]) -> Option<Topic> {
        match self.version {
            Version::V0_21(_) => Some(Topic::Id(header.function)),
            _ => body::parse_topic(body).map(Topic::Name),
        }
    }

    fn call(&self, header: Header, body: BytesMut, out: &mut Outbox) -> Option<FrameRequest> {
        let (called, arguments) = if self.version.calls_by_name() {
            // If the body is not a list, both the name and the arguments are empty, and the arguments are not a list
            // either.
            let (name, arguments) = body::cut_name(body).unwrap_or_default();
            (CalledFunction::Name(name), arguments)
        } else {
            (CalledFunction::Number(header.function), body.freeze())
        };
        let index = self.index_of(&called);
        let ticket = Ticket { id: header.id, called };
        if self.draining {
            self.answer(&ticket, Reply::failure(status::shutting_down()), out);
            return None;
        }
        // The peer parses the whole call before it looks up the name (rest_rpc `router.h`, `route`). A known function
        // parses its arguments itself.
        if index.is_none() && matches!(ticket.called, CalledFunction::Name(_)) && !body::is_list(&arguments) {
            self.answer(&ticket, Reply::failure(status::argument_mismatch()), out);
            return None;
        }
        Some(FrameRequest::Call { index, arguments, ticket })
    }

    /// Rejects a call that exceeds the limit; the rest of its frame is discarded.
    ///
    /// # Errors
    ///
    /// `violation`, if it is another one or the frame is no call.
    #[cold]
    fn reject_oversized(
        &mut self,
        inbox: &mut BytesMut,
        violation: Violation,
        out: &mut Outbox,
    ) -> Result<(), Violation> {
        let oversized = match violation.kind() {
            ViolationKind::TooLarge => frame::take_oversized(inbox, self.version),
            _ => None,
        };
        let Some(header) = oversized.filter(|header| header.kind == Kind::Call) else {
            return Err(violation);
        };
        self.oversized.reject(header.length);
        let ticket = Ticket { id: header.id, called: CalledFunction::Number(header.function) };
        self.answer(&ticket, Reply::failure(request_too_large(&violation)), out);
        Ok(())
    }

    fn index_of(&self, called: &CalledFunction) -> Option<FunctionIndex> {
        let functions = &self.config.functions;
        match called {
            CalledFunction::Name(name) => {
                std::str::from_utf8(name).ok().and_then(|name| functions.find_by_name(name))
            }
            CalledFunction::Number(number) => functions.find_by_number(*number),
        }
    }

    /// Returns service and method of a call. An unknown function has no service, and the name or number it was called
    /// by as its method.
    fn target(&self, index: Option<FunctionIndex>) -> (&str, &str) {
        match index.and_then(|index| self.config.functions.at(index)) {
            Some(FunctionTarget { service, method }) => (service, method),
            None => ("", self.name.as_str()),
        }
    }

    fn head(&self, arguments: &[u8]) -> Head {
        let format = match self.version {
            Version::V0_21(_) => Format::RestRpc,
            _ if body::is_by_name(arguments) => Format::MessagePack,
            _ => Format::MessagePackArray,
        };
        Head { format, positional: true, ..Head::default() }
    }

    fn answer(&self, ticket: &Ticket, reply: Reply, out: &mut Outbox) {
        match (self.version, reply.result) {
            (Version::V0_21(_), Ok(value)) => self.send_coded(Kind::Call, 0, 0, value, out),
            (Version::V0_21(_), Err(failure)) => {
                let (code, text) = status::to_code_and_text(&failure);
                let text = Bytes::copy_from_slice(shorten(&text).as_bytes());
                self.send_coded(Kind::Call, 0, code, text, out);
            }
            (_, Ok(value)) => self.succeed(ticket, value, reply.head.format, out),
            (_, Err(failure)) => self.fail(ticket, &failure, out),
        }
    }

    /// `[0, value]`, or `[0]` if there is no value.
    fn succeed(&self, ticket: &Ticket, value: Bytes, format: Format, out: &mut Outbox) {
        if value.is_empty() || format == Format::MessagePack && value[..] == *NIL {
            self.write_header(Kind::Call, ticket.id, 2, out);
            return out.extend_from_slice(&[0x91, 0]);
        }
        // A value in any other format is sent to the peer as a text.
        let is_text = !matches!(format, Format::MessagePack | Format::MessagePackArray);
        let length = 2 + value.len() + if is_text { body::text_head(value.len()) } else { 0 };
        if length >= MAX_BODY {
            let name = match &ticket.called {
                CalledFunction::Name(name) => String::from_utf8_lossy(name),
                CalledFunction::Number(_) => "".into(),
            };
            return self.fail(ticket, &status::too_long(&name), out);
        }
        self.write_header(Kind::Call, ticket.id, length, out);
        out.extend_from_slice(&[0x92, 0]);
        if is_text {
            Writer::new(out.buffer()).str_head(value.len());
        }
        out.body(value);
    }

    /// `[1, text]`.
    #[cold]
    fn fail(&self, ticket: &Ticket, failure: &Status, out: &mut Outbox) {
        let text = shorten(status::text(failure));
        self.write_header(Kind::Call, ticket.id, 2 + body::text_head(text.len()) + text.len(), out);
        out.extend_from_slice(&[0x92, 1]);
        Writer::new(out.buffer()).str(&text);
    }

    /// Sends a code and a value, since v0.21.
    fn send_coded(&self, kind: Kind, function: u32, code: u8, value: Bytes, out: &mut Outbox) {
        let header = Header { kind, length: 1 + value.len(), id: 0, function };
        let buffer = out.buffer();
        self.version.write(header, buffer);
        buffer.push(code);
        out.body(value);
    }

    fn write_header(&self, kind: Kind, id: u64, length: usize, out: &mut Outbox) {
        self.version.write(Header { kind, length, id, function: 0 }, out.buffer());
    }
}

/// Request in a frame that is passed to the handlers.
enum FrameRequest {
    /// A call of the function at this index, if it is known.
    Call {
        index: Option<FunctionIndex>,
        arguments: Bytes,
        ticket: Ticket,
    },
    Subscription(Topic),
}

impl session::Server for Server {
    type Ticket = Ticket;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        // An idle connection holds no buffers.
        self.name = String::new();
        let received = loop {
            if self.answering {
                return Ok(None);
            }
            self.wanted = 0;
            if !self.oversized.discard(inbox) {
                return Ok(None);
            }
            match frame::take(inbox, self.version, self.config.limits.message) {
                Ok(NextFrame::Frame(header, body)) => {
                    if let Some(received) = self.handle_frame(header, body, out) {
                        break received;
                    }
                }
                Ok(NextFrame::Short { wanted }) => {
                    self.wanted = wanted;
                    return Ok(None);
                }
                Err(violation) => self.reject_oversized(inbox, violation, out)?,
            }
        };
        Ok(Some(match received {
            FrameRequest::Subscription(topic) => ServerEvent::Subscribe(topic),
            FrameRequest::Call { index, arguments, ticket } => {
                self.answering = self.version.is_one_at_a_time();
                if index.is_none() {
                    self.name = ticket.called.text();
                }
                let (service, method) = self.target(index);
                let head = self.head(&arguments);
                let call = Call { head, ..Call::new(service, method, Format::Raw, arguments) };
                ServerEvent::Call(call, ticket)
            }
        }))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        self.answering = false;
        self.answer(&ticket, reply, out);
    }

    /// The protocol has no credentials: a server that requires one cannot be called.
    fn reject(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        self.reply(ticket, Reply::failure(status), out);
        true
    }

    fn blocks_input(&self) -> bool {
        self.answering
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }

    fn drain(&mut self, _out: &mut Outbox) {
        self.draining = true;
    }

    fn pushing(&mut self) -> Option<&mut dyn session::server::Pushing> {
        Some(self)
    }
}

impl session::server::Pushing for Server {
    /// Publishes a message: the topic is the push's service.
    fn push(&mut self, push: Push, out: &mut Outbox) -> Result<(), Status> {
        self.publish(push.service.as_bytes(), push.body, out)
    }

    fn publish(&mut self, topic: &[u8], data: Bytes, out: &mut Outbox) -> Result<(), Status> {
        match self.version {
            Version::V0_04 => Err(Status::unimplemented("rest_rpc has topics since v0.05")),
            Version::V0_21(_) => {
                self.send_coded(Kind::Topic, number(topic), 0, data, out);
                Ok(())
            }
            _ => {
                let heads = 2 + body::text_head(topic.len()) + body::text_head(data.len());
                let length = heads + topic.len() + data.len();
                if length >= MAX_BODY {
                    return Err(status::too_long(&String::from_utf8_lossy(topic)));
                }
                self.write_header(Kind::Topic, 0, length, out);
                out.extend_from_slice(&[0x93, 0]);
                let mut writer = Writer::new(out.buffer());
                writer.raw_str(topic);
                writer.str_head(data.len());
                out.body(data);
                Ok(())
            }
        }
    }
}

impl session::server::Housekeeping for Server {
    fn incomplete(&self, inbox: &BytesMut) -> Option<Incomplete> {
        (!inbox.is_empty() || self.oversized.is_discarding()).then_some(Incomplete::Message)
    }

    fn take_refusals(&mut self) -> Option<Refusals> {
        self.oversized.take_refusals()
    }

    fn heartbeats(&self) -> u64 {
        self.heartbeats
    }
}

/// Data needed to answer a call.
#[derive(Debug)]
pub struct Ticket {
    id: u64,
    called: CalledFunction,
}

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, call: &Call<'_>, _: NotFound) -> Status {
        match &self.called {
            CalledFunction::Number(number) => status::not_found(number),
            CalledFunction::Name(_) => status::not_found(&call.method),
        }
    }

    fn decode_failure(&self) -> fn(Status) -> Status {
        status::unreadable
    }
}

/// How a call identified its function.
#[derive(Debug)]
enum CalledFunction {
    /// By name, up to the version of December 2022.
    Name(Bytes),
    /// By number.
    Number(u32),
}

impl CalledFunction {
    /// Returns the client's spelling: the name, or `#` and the number.
    #[cold]
    fn text(&self) -> String {
        match self {
            Self::Name(name) => std::str::from_utf8(name).unwrap_or("\u{fffd}").to_owned(),
            Self::Number(number) => format!("#{number}"),
        }
    }
}

/// MessagePack's `nil`.
const NIL: &[u8] = &[0xc0];

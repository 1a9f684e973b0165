//! The client's side of a connection.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use polyrpc_core::digits::parse_canonical_decimal;
use polyrpc_core::session::{ClientEvent, ViolationKind};
use polyrpc_core::{
    Call, CallId, Compression, Format, Head, Limits, Message, Metadata, Outbox, Push, Reply, Status,
    Violation, session,
};
use polyrpc_payload::msgpack::Writer;

use super::frame::{Header, Kind, MAX_BODY, NextFrame};
use super::functions::{function_name, number};
use super::version::Version;
use super::{body, frame, status};
use crate::oversized::{Discarding, response_too_long};

/// The client's side of a connection.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    wanted: usize,
    /// The rest of a response that exceeds the limit.
    discarding: Discarding,
    /// Calls in order: since v0.21 responses carry no number and arrive in the order of the calls.
    calls_in_order: VecDeque<CallId>,
    topics: Vec<TopicSubscription>,
    /// Further events of a frame that caused several.
    ready: VecDeque<ClientEvent>,
    /// Responses still to come would be misattributed: the connection must not be reused.
    spent: bool,
}

/// Settings of a client's connection.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Limits of a connection. Up to v0.20 a body must also be below 10 MiB.
    pub limits: Limits,
    /// Protocol version of the server.
    pub version: Version,
}

/// A topic that was announced to the server.
#[derive(Debug)]
struct TopicSubscription {
    name: String,
    /// Subscribers that wait for messages of this topic.
    by: Vec<Subscriber>,
}

#[derive(Debug)]
struct Subscriber {
    id: CallId,
    /// Bytes and messages that were delivered and not consumed.
    bytes: usize,
    messages: usize,
}

impl Client {
    /// Creates the state of a newly established connection.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config,
            wanted: 0,
            discarding: Discarding::default(),
            calls_in_order: VecDeque::new(),
            topics: Vec::new(),
            ready: VecDeque::new(),
            spent: false,
        }
    }

    fn is_msgpack_coded(&self) -> bool {
        matches!(self.config.version, Version::V0_21(_))
    }

    /// Sends a call since v0.21: its body is the codec's encoding of the arguments.
    fn send_coded(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        let function = number_of(&function_name(call.service, call.method))?;
        let header = Header { kind: Kind::Call, length: call.body.len(), id: 0, function };
        self.config.version.write(header, out.buffer());
        out.body(call.body);
        self.calls_in_order.push_back(id);
        Ok(())
    }

    /// Sends a call up to v0.20: a list of arguments, possibly preceded by the function's name.
    fn send_list(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        if !matches!(call.head.format, Format::MessagePack | Format::MessagePackArray) {
            return Err(no_format(call.head.format));
        }
        let name = function_name(call.service, call.method);
        let (count, arguments) = match call.head.positional {
            true => body::parse_arguments(&call.body).ok_or_else(no_list)?,
            false => (1, call.body),
        };
        let version = self.config.version;
        let mut head = Vec::with_capacity(HEAD + name.len());
        let mut writer = Writer::new(&mut head);
        let mut function = 0;
        if version.calls_by_name() {
            writer.array(count + 1);
            writer.str(&name);
        } else {
            writer.array(count);
            function = number_of(&name)?;
        }
        let length = head.len() + arguments.len();
        if length >= MAX_BODY {
            return Err(too_long());
        }
        let header = Header { kind: Kind::Call, length, id: to_wire(id), function };
        version.write(header, out.buffer());
        out.extend_from_slice(&head);
        out.body(arguments);
        Ok(())
    }

    /// Announces a topic to the server, unless it was announced already.
    fn send_subscription(&mut self, key: &str, token: &str, out: &mut Outbox) -> Result<(), Status> {
        let version = self.config.version;
        let mut names = Vec::new();
        let function = match version {
            Version::V0_04 => return Err(Status::unimplemented("rest_rpc has topics since v0.05")),
            Version::V0_21(_) if !self.topics.is_empty() => return Err(one_topic()),
            Version::V0_21(_) => number([key, token].concat()),
            _ => {
                let mut writer = Writer::new(&mut names);
                writer.array(2);
                writer.str(key);
                writer.str(token);
                if version.calls_by_name() { 0 } else { number(key) }
            }
        };
        if names.len() >= MAX_BODY {
            return Err(too_long());
        }
        let header = Header { kind: Kind::Topic, length: names.len(), id: 0, function };
        version.write(header, out.buffer());
        out.extend_from_slice(&names);
        Ok(())
    }

    fn handle_frame(&mut self, header: Header, body: Bytes) -> Result<ClientEvent, Violation> {
        match (header.kind, self.is_msgpack_coded()) {
            (Kind::Heartbeat, _) => Err(Violation::new("a response without a body")),
            (Kind::Other(number), _) => {
                Err(Violation::new(format!("a message of the unknown type {number}")))
            }
            (Kind::Call, false) => {
                reply_of(&body).map(|reply| ClientEvent::Reply(from_wire(header.id), reply))
            }
            (Kind::Call, true) => {
                let id = self
                    .calls_in_order
                    .pop_front()
                    .ok_or_else(|| Violation::new("a response to an unknown call"))?;
                Ok(ClientEvent::Reply(id, Reply::new(split_code(&body)?, head(Format::RestRpc))))
            }
            (Kind::Topic, false) => {
                let (topic, data) = body::parse_published(&body)
                    .ok_or_else(|| Violation::new("a published message that names no topic"))?;
                let subscribed = self.topics.iter().position(|known| known.name.as_bytes() == topic);
                let name = |data| push_event(&String::from_utf8_lossy(&topic), data);
                Ok(self.deliver(subscribed, data).unwrap_or_else(name))
            }
            (Kind::Topic, true) => {
                let data =
                    split_code(&body)?.map_err(|_| Violation::new("a published message that failed"))?;
                let subscribed = self.topics.iter().position(|known| number(&known.name) == header.function);
                let name = |data| push_event(&header.function.to_string(), data);
                Ok(self.deliver(subscribed, data).unwrap_or_else(name))
            }
        }
    }

    /// Fails the call whose response exceeds the limit; the rest of the frame is discarded.
    ///
    /// # Errors
    ///
    /// `violation`, if it is another one or the frame is no response.
    #[cold]
    fn fail_oversized(
        &mut self,
        inbox: &mut BytesMut,
        violation: Violation,
    ) -> Result<ClientEvent, Violation> {
        let version = self.config.version;
        let oversized = match violation.kind() {
            ViolationKind::TooLarge => frame::take_oversized(inbox, version),
            _ => None,
        };
        let Some(header) = oversized.filter(|header| header.kind == Kind::Call) else {
            return Err(violation);
        };
        let id = match self.is_msgpack_coded() {
            false => from_wire(header.id),
            true => self.calls_in_order.pop_front().ok_or(violation)?,
        };
        self.discarding.start(header.length);
        let failure = response_too_long(version.header() + header.length, self.config.limits.message);
        Ok(ClientEvent::Reply(id, Reply::failure(failure)))
    }

    /// Delivers a published message to its subscribers; returns it if there are none.
    fn deliver(&mut self, subscribed: Option<usize>, data: Bytes) -> Result<ClientEvent, Bytes> {
        let Some(topic) = subscribed.and_then(|at| self.topics.get_mut(at)) else { return Err(data) };
        topic.by.retain_mut(|subscriber| {
            let answer = subscriber.take(data.clone());
            let goes_on = matches!(answer, ClientEvent::Message(..));
            self.ready.push_back(answer);
            goes_on
        });
        self.ready.pop_front().ok_or(data)
    }
}

/// Returns the number of a function: derived from its name, unless the name is a number like `#887912700`. Other digits
/// behind `#` are an error, so that a function has one number only.
fn number_of(name: &str) -> Result<u32, Status> {
    let is_number = |digits: &&str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    match name.strip_prefix('#').filter(is_number) {
        Some(digits) => parse_canonical_decimal(digits).ok_or_else(|| malformed_number(name)),
        None => Ok(number(name)),
    }
}

impl Subscriber {
    fn take(&mut self, body: Bytes) -> ClientEvent {
        self.bytes += body.len();
        self.messages += 1;
        if self.bytes > MAX_UNDELIVERED_BYTES || self.messages > MAX_UNDELIVERED_MESSAGES {
            return ClientEvent::Reply(self.id, Reply::failure(confirmation_timed_out()));
        }
        ClientEvent::Message(self.id, Message { body, compression: Compression::None })
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        check_expressible(&call)?;
        match self.is_msgpack_coded() {
            true => self.send_coded(id, call, out),
            false => self.send_list(id, call, out),
        }
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        _out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        if let Some(answer) = self.ready.pop_front() {
            return Ok(Some(answer));
        }
        self.wanted = 0;
        if !self.discarding.take(inbox) {
            return Ok(None);
        }
        let next = match frame::take(inbox, self.config.version, self.config.limits.message) {
            Ok(next) => next,
            Err(violation) => return self.fail_oversized(inbox, violation).map(Some),
        };
        match next {
            NextFrame::Frame(header, body) => self.handle_frame(header, body.freeze()).map(Some),
            NextFrame::Short { wanted } => {
                self.wanted = wanted;
                Ok(None)
            }
        }
    }

    /// Up to v0.20 a subscription cannot be cancelled: later messages are discarded. If calls are answered one at a
    /// time, the next call would wait for this one; since v0.21 its response could not be distinguished from this one's
    /// either, and the peer's client closes the connection too (rest_rpc `rest_rpc_client.hpp`).
    fn cancel(&mut self, id: CallId, _out: &mut Outbox) {
        for topic in &mut self.topics {
            topic.by.retain(|subscriber| subscriber.id != id);
        }
        self.spent = self.config.version.is_one_at_a_time();
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }

    fn concurrency(&self) -> usize {
        if self.config.version.is_one_at_a_time() { 1 } else { usize::MAX }
    }

    fn is_reusable(&self) -> bool {
        !self.spent && !self.discarding.is_active()
    }

    /// A heartbeat has no response; it keeps the server from closing an idle connection (rest_rpc `rpc_server.h`, 15
    /// s).
    fn heartbeat(&mut self, out: &mut Outbox) -> bool {
        if !self.is_msgpack_coded() {
            let header = Header { kind: Kind::Heartbeat, length: 0, id: 0, function: 0 };
            self.config.version.write(header, out.buffer());
        }
        false
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut dyn session::client::Streaming> {
        Some(self)
    }
}

impl session::client::Streaming for Client {
    fn subscribe(&mut self, id: CallId, key: &str, token: &str, out: &mut Outbox) -> Result<(), Status> {
        let name = [key, token].concat();
        let subscriber = Subscriber { id, bytes: 0, messages: 0 };
        if let Some(known) = self.topics.iter_mut().find(|known| known.name == name) {
            known.by.push(subscriber);
            return Ok(());
        }
        self.send_subscription(key, token, out)?;
        self.topics.push(TopicSubscription { name, by: vec![subscriber] });
        Ok(())
    }

    fn record_consumed(&mut self, id: CallId, bytes: usize, _out: &mut Outbox) {
        let mut subscribers = self.topics.iter_mut().flat_map(|topic| &mut topic.by);
        if let Some(subscriber) = subscribers.find(|subscriber| subscriber.id == id) {
            subscriber.bytes = subscriber.bytes.saturating_sub(bytes);
            subscriber.messages = 0;
        }
    }
}

fn reply_of(answer: &Bytes) -> Result<Reply, Violation> {
    let answer = body::parse_answer(answer).ok_or_else(|| Violation::new("an empty response"))?;
    Ok(Reply::new(answer.map_err(status::from_text), head(Format::MessagePackArray)))
}

/// Splits a body into a code and the rest.
fn split_code(body: &Bytes) -> Result<Result<Bytes, Status>, Violation> {
    match body.first() {
        None => Err(Violation::new("a response without a code")),
        Some(0) => Ok(Ok(body.slice(1..))),
        Some(&code) => Ok(Err(status::from_code(code, &String::from_utf8_lossy(&body.slice(1..))))),
    }
}

fn head(format: Format) -> Head {
    Head { format, ..Head::default() }
}

fn push_event(topic: &str, body: Bytes) -> ClientEvent {
    ClientEvent::Push(Push {
        service: topic.to_owned(),
        method: String::new(),
        metadata: Metadata::new(),
        body,
    })
}

/// Calls are numbered from 1 on the wire: 0 is the heartbeat.
fn to_wire(id: CallId) -> u64 {
    id.0.wrapping_add(1)
}

fn from_wire(id: u64) -> CallId {
    CallId(id.wrapping_sub(1))
}

/// Checks that rest_rpc can express everything the call requires.
fn check_expressible(call: &Call<'_>) -> Result<(), Status> {
    let url_options = [
        ("attachments", call.attachment.is_empty()),
        ("compression", call.head.compression == Compression::None),
        ("metadata", call.head.metadata.is_empty()),
        ("credentials", call.credential.bytes().is_none()),
    ];
    match url_options.iter().find(|(_, absent)| !absent) {
        None => Ok(()),
        Some((what, _)) => Err(Status::invalid_argument(format!("rest_rpc has no {what}"))),
    }
}

#[cold]
fn no_format(format: Format) -> Status {
    Status::invalid_argument(format!("rest_rpc cannot carry a message in {} up to v0.20", format.as_str()))
}

#[cold]
fn malformed_number(name: &str) -> Status {
    Status::invalid_argument(format!(
        "`{name}` is not the number of a function: expected one below 2^32 behind `#`, without leading zeros"
    ))
}

#[cold]
fn no_list() -> Status {
    Status::invalid_argument("the arguments are not a MessagePack list")
}

#[cold]
fn too_long() -> Status {
    Status::invalid_argument("a rest_rpc message is smaller than 10 MiB up to v0.20")
}

#[cold]
fn one_topic() -> Status {
    Status::failed_precondition("a connection has one topic since v0.21")
}

#[cold]
fn confirmation_timed_out() -> Status {
    Status::resource_exhausted("messages are published faster than they are read")
}

/// Maximum number of bytes before the arguments, apart from the name.
const HEAD: usize = 10;

/// Limit of undelivered bytes of one subscriber: the protocol has no flow control to slow a publisher down.
const MAX_UNDELIVERED_BYTES: usize = 32 << 20;

/// The same limit for messages; empty ones are only counted together with others.
const MAX_UNDELIVERED_MESSAGES: usize = 1 << 20;

//! The entries of a recording: calls, schemas and losses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use polyrpc_core::{Code, Format, Metadata, Status};
use sha2::{Digest, Sha256};

use crate::encoding::{Fields, Raw, read};
use crate::format_name;

/// One entry of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A call.
    Call(Box<Call>),
    /// Declarations, stored before the first call that refers to them.
    Schema(Schema),
    /// Calls that should have been recorded and were not.
    Loss(Loss),
}

/// A recorded call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Call {
    /// When the request was complete, in nanoseconds since 1970 (UTC).
    pub arrival: u64,
    /// Where the call was observed.
    pub side: Side,
    /// The protocol that carried it: `grpc`, `rpcx`, `baidu_std`.
    pub protocol: String,
    /// The service; empty for a plain function.
    pub service: String,
    /// The method, or the function's name.
    pub method: String,
    /// The other end of the connection; empty if it is unknown.
    pub peer: String,
    /// Number of the connection within the recording; 0 if it is unknown.
    pub connection: u64,
    /// The caller's timeout.
    pub timeout: Option<Duration>,
    /// The request message; `None` if the caller streams messages.
    pub request: Option<Message>,
    /// Metadata, user fields or headers of the request.
    pub metadata: Vec<Field>,
    /// Attachment of the request.
    pub attachment: Bytes,
    /// The caller expected no response.
    pub oneway: bool,
    /// The caller sends any number of messages.
    pub client_streams: bool,
    /// The server sends any number of messages.
    pub server_streams: bool,
    /// Time between arrival and the start of the call.
    pub queued: Duration,
    /// Time from the start of the call to its end.
    pub took: Duration,
    /// Its outcome; `None` if that is unknown.
    pub outcome: Option<Outcome>,
    /// Messages of streams, in the order of observation. Layers do not see them.
    pub events: Vec<StreamEvent>,
    /// Number of omitted messages of streams, after those of `events`.
    pub events_left_out: u64,
    /// Number of calls that this one stands for; 0 counts as 1.
    pub weight: f64,
    /// Why it was recorded.
    pub reason: Reason,
    /// The schema that declares the method, by its [hash](Schema::hash); `None` if none does.
    pub schema: Option<[u8; 32]>,
}

/// Where a call was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// Unknown.
    #[default]
    Unknown,
    /// By a layer of the client.
    Client,
    /// By a layer of the server.
    Server,
    /// In packets between both.
    Capture,
    /// By another program, whose recording was imported.
    Import,
}

impl Side {
    /// Returns its name: `client`, `server`, `capture`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Client => "client",
            Self::Server => "server",
            Self::Capture => "capture",
            Self::Import => "import",
        }
    }
}

/// Why a call was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// Unknown.
    #[default]
    Unknown,
    /// It belongs to the share of calls that is recorded.
    Sampled,
    /// It failed.
    Failed,
    /// It took long.
    Slow,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Its format; `None` if the name in the recording is unknown to this version.
    pub format: Option<Format>,
    /// The encoded message, not compressed.
    pub body: Bytes,
    /// It is a list of positional arguments.
    pub positional: bool,
    /// Why the body was not kept; empty if it was.
    pub omitted: String,
    /// Length before fields were dropped or the body was omitted; 0 if it is the same.
    pub length: u64,
}

impl Message {
    /// Creates a message with this body.
    pub fn new(format: Format, body: Bytes) -> Self {
        Self { format: Some(format), body, ..Self::default() }
    }

    /// Removes the body, and records why.
    pub fn omit(&mut self, why: impl Into<String>) {
        self.length = self.length.max(self.body.len() as u64);
        self.body = Bytes::new();
        self.omitted = why.into();
    }
}

/// An entry of metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The value; empty if it was removed.
    pub value: Bytes,
    /// The value was removed, because it is a credential or by a rule.
    pub removed: bool,
}

impl Field {
    /// Lists metadata.
    pub fn list(metadata: &Metadata) -> Vec<Self> {
        let fields = metadata.iter();
        fields
            .map(|(name, value)| Self { name: name.to_owned(), value: value.clone(), removed: false })
            .collect()
    }

    /// Returns metadata with the values that were kept.
    pub fn metadata(fields: &[Self]) -> Metadata {
        let mut metadata = Metadata::new();
        for field in fields.iter().filter(|field| !field.removed) {
            metadata.append(field.name.clone(), field.value.clone());
        }
        metadata
    }
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The response message; `None` after a failure and for streams.
    pub response: Option<Message>,
    /// Why it failed; `None` if it succeeded.
    pub failure: Option<Failure>,
    /// Metadata before the response.
    pub metadata: Vec<Field>,
    /// Metadata after it.
    pub trailers: Vec<Field>,
    /// Attachment of the response.
    pub attachment: Bytes,
    /// The connection was closed instead of a response.
    pub closed: bool,
}

/// Status of a failed call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// gRPC's name of the code: `not found`.
    pub code: String,
    /// The text.
    pub message: String,
    /// brpc's number, if there was one.
    pub number: Option<i32>,
    /// gRPC's details.
    pub details: Bytes,
}

impl Failure {
    /// Returns the status; an unknown code becomes [`Code::Unknown`].
    pub fn status(&self) -> Status {
        let code = Code::ALL.into_iter().find(|code| code.as_str() == self.code).unwrap_or(Code::Unknown);
        let status = Status::new(code, self.message.clone()).with_details(self.details.clone());
        match self.number {
            None => status,
            Some(number) => status.with_number(number),
        }
    }
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Self {
        Self {
            code: status.code().as_str().to_owned(),
            message: status.message().to_owned(),
            number: status.number(),
            details: status.details().clone(),
        }
    }
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamEvent {
    /// Time since the arrival of the call.
    pub at: Duration,
    /// Whether the server sent it.
    pub from_server: bool,
    /// The message.
    pub message: Bytes,
    /// Whether the sender ended its direction.
    pub end: bool,
}

/// Declarations of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// SHA-256 of the set.
    pub hash: [u8; 32],
    /// A serialized `FileDescriptorSet` with all imports.
    pub descriptor_set: Bytes,
}

impl Schema {
    /// Creates a schema of a serialized `FileDescriptorSet`.
    pub fn new(descriptor_set: impl Into<Bytes>) -> Self {
        let descriptor_set = descriptor_set.into();
        Self { hash: Sha256::digest(&descriptor_set).into(), descriptor_set }
    }
}

/// Calls that should have been recorded and were not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loss {
    /// When the loss was noticed, in nanoseconds since 1970.
    pub at: u64,
    /// Calls for which the queue had no room.
    pub queue_full: u64,
    /// Calls above the limit for their method.
    pub method_limit: u64,
    /// Calls that could not be written, or for which there was no space.
    pub not_written: u64,
}

impl Loss {
    /// Returns the number of lost calls.
    pub fn calls(&self) -> u64 {
        self.queue_full.saturating_add(self.method_limit).saturating_add(self.not_written)
    }

    /// Adds the counts of another loss.
    pub fn add(&mut self, other: &Self) {
        self.at = self.at.max(other.at);
        self.queue_full = self.queue_full.saturating_add(other.queue_full);
        self.method_limit = self.method_limit.saturating_add(other.method_limit);
        self.not_written = self.not_written.saturating_add(other.not_written);
    }
}

impl Call {
    /// Returns `Service/Method`, or the function's name.
    pub fn full_name(&self) -> String {
        match self.service.as_str() {
            "" => self.method.clone(),
            service => format!("{service}/{}", self.method),
        }
    }

    /// Returns why it failed, if it failed and the reason is known.
    pub fn failure(&self) -> Option<&Failure> {
        self.outcome.as_ref()?.failure.as_ref()
    }

    /// Whether it has one message each way.
    pub fn is_unary(&self) -> bool {
        !self.client_streams && !self.server_streams
    }

    /// Returns the time of its arrival.
    pub fn arrival_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.arrival)
    }
}

/// Returns a time in nanoseconds since 1970; 0 for times before.
pub fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Entry {
    /// Appends the message `Entry`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Fields(out);
        match self {
            Self::Call(call) => out.message(1, |out| call.encode(out)),
            Self::Schema(schema) => out.message(2, |out| {
                out.bytes(1, &schema.hash).bytes(2, &schema.descriptor_set);
            }),
            Self::Loss(loss) => out.message(3, |out| loss.encode(out)),
        };
    }

    /// Reads the message `Entry`. `Some(None)` is a kind of entry that is unknown to this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Option<Self>> {
        let mut entry = None;
        read(bytes, |field, value| {
            match field {
                1 => entry = Some(Self::Call(Box::new(Call::decode(value.bytes()?)?))),
                2 => entry = Some(Self::Schema(Schema::decode(value.bytes()?)?)),
                3 => entry = Some(Self::Loss(Loss::decode(value.bytes()?)?)),
                _ => {}
            }
            Some(())
        })?;
        Some(entry)
    }
}

impl Call {
    fn encode(&self, out: &mut Fields<'_>) {
        out.fixed64(1, self.arrival).number(2, self.side as u64).text(3, &self.protocol);
        out.text(4, &self.service).text(5, &self.method).text(6, &self.peer).number(7, self.connection);
        if let Some(timeout) = self.timeout {
            out.number_or_zero(8, nanos(timeout));
        }
        if let Some(request) = &self.request {
            out.message(9, |out| request.encode(out));
        }
        put_fields(out, 10, &self.metadata);
        out.bytes(11, &self.attachment).flag(12, self.oneway);
        out.flag(13, self.client_streams).flag(14, self.server_streams);
        out.number(15, nanos(self.queued)).number(16, nanos(self.took));
        if let Some(outcome) = &self.outcome {
            out.message(17, |out| outcome.encode(out));
        }
        for event in &self.events {
            out.message(18, |out| {
                out.number(1, nanos(event.at)).flag(2, event.from_server);
                out.bytes(3, &event.message).flag(4, event.end);
            });
        }
        out.fixed64(19, self.weight.to_bits()).number(20, self.reason as u64);
        if let Some(schema) = &self.schema {
            out.bytes(21, schema);
        }
        out.number(22, self.events_left_out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut call = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => call.arrival = value.number()?,
                2 => call.side = side(value.number()?),
                3 => call.protocol = value.text()?,
                4 => call.service = value.text()?,
                5 => call.method = value.text()?,
                6 => call.peer = value.text()?,
                7 => call.connection = value.number()?,
                8 => call.timeout = Some(Duration::from_nanos(value.number()?)),
                9 => call.request = Some(Message::decode(value.bytes()?)?),
                10 => call.metadata.push(Field::decode(value.bytes()?)?),
                11 => call.attachment = copy_bytes(value)?,
                12 => call.oneway = value.number()? != 0,
                13 => call.client_streams = value.number()? != 0,
                14 => call.server_streams = value.number()? != 0,
                15 => call.queued = Duration::from_nanos(value.number()?),
                16 => call.took = Duration::from_nanos(value.number()?),
                17 => call.outcome = Some(Outcome::decode(value.bytes()?)?),
                18 => call.events.push(StreamEvent::decode(value.bytes()?)?),
                19 => call.weight = f64::from_bits(value.number()?),
                20 => call.reason = reason(value.number()?),
                21 => call.schema = value.bytes()?.try_into().ok(),
                22 => call.events_left_out = value.number()?,
                _ => {}
            }
            Some(())
        })?;
        Some(call)
    }
}

fn side(number: u64) -> Side {
    match number {
        1 => Side::Client,
        2 => Side::Server,
        3 => Side::Capture,
        4 => Side::Import,
        _ => Side::Unknown,
    }
}

fn reason(number: u64) -> Reason {
    match number {
        1 => Reason::Sampled,
        2 => Reason::Failed,
        3 => Reason::Slow,
        _ => Reason::Unknown,
    }
}

fn copy_bytes(value: Raw<'_>) -> Option<Bytes> {
    value.bytes().map(Bytes::copy_from_slice)
}

fn put_fields(out: &mut Fields<'_>, number: u32, fields: &[Field]) {
    for field in fields {
        out.message(number, |out| {
            out.text(1, &field.name).bytes(2, &field.value).flag(3, field.removed);
        });
    }
}

impl Message {
    fn encode(&self, out: &mut Fields<'_>) {
        if let Some(format) = self.format {
            out.text(1, &format_name::name(format));
        }
        out.bytes(2, &self.body).flag(3, self.positional).text(4, &self.omitted).number(5, self.length);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut message = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => message.format = format_name::parse(&value.text()?),
                2 => message.body = copy_bytes(value)?,
                3 => message.positional = value.number()? != 0,
                4 => message.omitted = value.text()?,
                5 => message.length = value.number()?,
                _ => {}
            }
            Some(())
        })?;
        Some(message)
    }
}

impl Field {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut entry = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => entry.name = value.text()?,
                2 => entry.value = copy_bytes(value)?,
                3 => entry.removed = value.number()? != 0,
                _ => {}
            }
            Some(())
        })?;
        Some(entry)
    }
}

impl Outcome {
    fn encode(&self, out: &mut Fields<'_>) {
        if let Some(response) = &self.response {
            out.message(1, |out| response.encode(out));
        }
        if let Some(failure) = &self.failure {
            out.message(2, |out| failure.encode(out));
        }
        put_fields(out, 3, &self.metadata);
        put_fields(out, 4, &self.trailers);
        out.bytes(5, &self.attachment).flag(6, self.closed);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut outcome = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => outcome.response = Some(Message::decode(value.bytes()?)?),
                2 => outcome.failure = Some(Failure::decode(value.bytes()?)?),
                3 => outcome.metadata.push(Field::decode(value.bytes()?)?),
                4 => outcome.trailers.push(Field::decode(value.bytes()?)?),
                5 => outcome.attachment = copy_bytes(value)?,
                6 => outcome.closed = value.number()? != 0,
                _ => {}
            }
            Some(())
        })?;
        Some(outcome)
    }
}

impl Failure {
    fn encode(&self, out: &mut Fields<'_>) {
        out.text(1, &self.code).text(2, &self.message);
        if let Some(number) = self.number {
            // Negative numbers are extended to 64 bits, as protobuf does.
            out.number_or_zero(3, i64::from(number) as u64);
        }
        out.bytes(4, &self.details);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut failure = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => failure.code = value.text()?,
                2 => failure.message = value.text()?,
                3 => failure.number = Some(value.number()? as i32),
                4 => failure.details = copy_bytes(value)?,
                _ => {}
            }
            Some(())
        })?;
        Some(failure)
    }
}

impl StreamEvent {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut event = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => event.at = Duration::from_nanos(value.number()?),
                2 => event.from_server = value.number()? != 0,
                3 => event.message = copy_bytes(value)?,
                4 => event.end = value.number()? != 0,
                _ => {}
            }
            Some(())
        })?;
        Some(event)
    }
}

impl Schema {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut schema = Self { hash: [0; 32], descriptor_set: Bytes::new() };
        read(bytes, |field, value| {
            match field {
                1 => schema.hash = value.bytes()?.try_into().ok()?,
                2 => schema.descriptor_set = copy_bytes(value)?,
                _ => {}
            }
            Some(())
        })?;
        Some(schema)
    }
}

impl Loss {
    pub(crate) fn encode(&self, out: &mut Fields<'_>) {
        out.fixed64(1, self.at).number(2, self.queue_full);
        out.number(3, self.method_limit).number(4, self.not_written);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut loss = Self::default();
        read(bytes, |field, value| {
            match field {
                1 => loss.at = value.number()?,
                2 => loss.queue_full = value.number()?,
                3 => loss.method_limit = value.number()?,
                4 => loss.not_written = value.number()?,
                _ => {}
            }
            Some(())
        })?;
        Some(loss)
    }
}

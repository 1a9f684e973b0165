//! Session state of both sides of an rpcx connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::server::Incomplete;
use polyrpc_core::session::{ClientEvent, NotFound, Refusals, ServerEvent, ViolationKind};
use polyrpc_core::{
    Call, CallId, Carrier, Compression, Credential, Format, Head, Limits, Metadata, Outbox, Push, Reply,
    Status, UnsupportedEntry, Violation, session,
};
use polyrpc_payload::compress;

use super::compressors::Compressors;
use super::frame::{
    Flags, Frame, FrameTooLong, Header, MAX_METADATA, MetadataError, Names, NextFrame, Writer,
};
use super::{frame, status};
use crate::failure_text::shorten;
use crate::metadata_count::{self, TooManyEntries, too_many_in_response};
use crate::oversized::{Discarding, OversizedRequests, request_too_large, response_too_long};
use crate::timeout_millis::to_millis;

/// The server's side of a connection.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// Frame whose names are borrowed by the last event.
    frame: Option<Frame>,
    wanted: usize,
    /// Number of pushed messages.
    pushed: u64,
    heartbeats: u64,
    draining: bool,
    oversized: OversizedRequests,
}

/// Settings shared by all connections of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Limits of a connection.
    pub limits: Limits,
    /// Mapping of compressor numbers.
    pub compressors: Compressors,
}

impl Server {
    /// Creates the state of a newly accepted connection.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self {
            config,
            frame: None,
            wanted: 0,
            pushed: 0,
            heartbeats: 0,
            draining: false,
            oversized: OversizedRequests::default(),
        }
    }

    /// Answers the frame if it needs no application, such as a heartbeat. Returns whether it did.
    fn try_answer(&mut self, frame: &Frame, out: &mut Outbox) -> Result<bool, Violation> {
        let header = frame.header;
        if header.flags.has(Flags::HEARTBEAT) {
            // The metadata of a heartbeat are not used, but a frame with malformed metadata is malformed (rpcx
            // `protocol/message.go`, `decodeMetadata`).
            frame.pairs().try_for_each(|pair| pair.map(drop))?;
            self.heartbeats += 1;
            // The content is sent back unchanged (rpcx `server/server_conn.go`, `processOneRequest`).
            frame.echo(header.with_flags(header.flags.with(Flags::RESPONSE)), out);
            return Ok(true);
        }
        if self.draining {
            let refusal = Reply::failure(status::shutting_down());
            Ticket::new(frame).answer(refusal, &self.config.compressors, out);
        }
        Ok(self.draining)
    }

    /// Rejects a request that exceeds the limit; the rest of its frame is discarded. Its names may not have arrived, so
    /// that the response has none: clients find its call by `seq`.
    ///
    /// # Errors
    ///
    /// `violation`, if it is another one or the frame is no request.
    #[cold]
    fn reject_oversized(
        &mut self,
        inbox: &mut BytesMut,
        violation: Violation,
        out: &mut Outbox,
    ) -> Result<(), Violation> {
        let oversized = match violation.kind() {
            ViolationKind::TooLarge => frame::take_oversized(inbox),
            _ => None,
        };
        let is_request = |flags: Flags| !flags.has(Flags::RESPONSE) && !flags.has(Flags::HEARTBEAT);
        let Some((header, rest)) = oversized.filter(|(header, _)| is_request(header.flags)) else {
            return Err(violation);
        };
        self.oversized.reject(rest);
        let refusal = Reply::failure(request_too_large(&violation));
        Ticket { header, names: Names::none() }.answer(refusal, &self.config.compressors, out);
        Ok(())
    }
}

impl session::Server for Server {
    type Ticket = Ticket;

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent<'_, Ticket>>, Violation> {
        // Released first: an idle connection keeps no frame, and the inbox may reuse its memory.
        self.frame = None;
        let frame = loop {
            self.wanted = 0;
            if !self.oversized.discard(inbox) {
                return Ok(None);
            }
            match frame::take(inbox, self.config.limits.message, &self.config.compressors) {
                Ok(NextFrame::Frame(frame)) if self.try_answer(&frame, out)? => {}
                Ok(NextFrame::Frame(frame)) => break frame,
                Ok(NextFrame::Short { wanted }) => {
                    self.wanted = wanted;
                    return Ok(None);
                }
                Ok(NextFrame::Foreign) => return Ok(Some(ServerEvent::Foreign)),
                Err(violation) => self.reject_oversized(inbox, violation, out)?,
            }
        };
        let frame = self.frame.insert(frame);
        Ok(Some(ServerEvent::Call(call_of(frame)?, Ticket::new(frame))))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply, out: &mut Outbox) {
        ticket.answer(reply, &self.config.compressors, out);
    }

    fn reject(&mut self, ticket: Ticket, status: Status, out: &mut Outbox) -> bool {
        ticket.answer(Reply::failure(status), &self.config.compressors, out);
        // rpcx `server/server_conn.go`, `serveConn`: "auth failed, closed the connection".
        true
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
    fn push(&mut self, push: Push, out: &mut Outbox) -> Result<(), Status> {
        metadata_count::check(push.metadata.len(), MAX_METADATA).map_err(TooManyEntries::into_refusal)?;
        self.pushed += 1;
        let header = Header::new(Flags::REQUEST.with(Flags::ONEWAY), RAW, self.pushed);
        let mut frame = Writer::new(out, header, &push.service, &push.method);
        frame.pairs(&push.metadata, |_| false);
        frame.finish(push.body).map_err(overlong)
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
    /// Header of the request, which a response copies (rpcx `Message.Clone`).
    header: Header,
    /// Path and method, as the request encoded them.
    names: Names,
}

impl session::server::Ticket for Ticket {
    fn not_found_failure(&self, call: &Call<'_>, missing: NotFound) -> Status {
        status::not_found(call, missing)
    }

    /// rpcx decompresses a message while reading it (`protocol/message.go`, `Decode`), so that a message it cannot
    /// decompress is malformed.
    #[cold]
    fn decompression_failure(&self, status: Status) -> Result<Status, Violation> {
        Err(Violation::new(format!("a message cannot be decompressed: {}", status.message())))
    }

    fn carrier(&self) -> Carrier {
        Carrier::Map
    }
}

impl Ticket {
    fn new(frame: &Frame) -> Self {
        Self { header: frame.header, names: frame.names() }
    }

    fn answer(self, reply: Reply, compressors: &Compressors, out: &mut Outbox) {
        if self.header.flags.has(Flags::ONEWAY) {
            return;
        }
        let metadata = &reply.head.metadata;
        match reply.result {
            Ok(body) => match check_entries(metadata, 0, |key| key == ERROR) {
                Ok(()) => self.succeed(body, &reply.head, compressors, out),
                Err(too_many) => self.fail(&too_many.into_failure(), &Metadata::new(), out),
            },
            Err(status) => match check_entries(metadata, 1, |key| key == ERROR) {
                Ok(()) => self.fail(&status, metadata, out),
                // The failure is worth more than its metadata.
                Err(_) => self.fail(&status, &Metadata::new(), out),
            },
        }
    }

    /// rpcx's clients decode a response by the format in its header (`client/client.go`, `input`), so that a handler
    /// may choose one. If rpcx has no number for it, the response has the request's number.
    fn succeed(self, body: Bytes, head: &Head, compressors: &Compressors, out: &mut Outbox) {
        let serialize = frame::serialize(head.format).filter(|_| head.format != self.header.format());
        let header = serialize.map_or(self.header, |serialize| self.header.with_serialize(serialize));
        let number = self.header.flags.compressor();
        let compression = compressors.get(number).unwrap_or_default();
        let (flags, body) =
            compress_if_smaller((compression, number), self.header.flags.for_response(), body);
        let mut frame = Writer::answering(out, header.with_flags(flags), self.names.as_bytes());
        frame.pairs(&head.metadata, |key| key == ERROR);
        if let Err(FrameTooLong) = frame.finish(body) {
            self.fail(&overlong(FrameTooLong), &Metadata::new(), out);
        }
    }

    #[cold]
    fn fail(self, status: &Status, metadata: &Metadata, out: &mut Outbox) {
        if let Err(FrameTooLong) = self.write_failure(status, metadata, out) {
            // The failure is worth more than 4 GiB of metadata. Names alone are not as long.
            let _ = self.write_failure(status, &Metadata::new(), out);
        }
    }

    fn write_failure(
        &self,
        status: &Status,
        metadata: &Metadata,
        out: &mut Outbox,
    ) -> Result<(), FrameTooLong> {
        let flags = self.header.flags.for_response().with(Flags::ERROR);
        let mut frame = Writer::answering(out, self.header.with_flags(flags), self.names.as_bytes());
        let method = frame::method_of(self.names.as_bytes()).unwrap_or_default();
        frame.pair(ERROR, shorten(&status::write(status, method)).as_bytes());
        frame.pairs(metadata, |key| key == ERROR);
        frame.finish(Bytes::new())
    }
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    wanted: usize,
    /// The rest of a response that exceeds the limit.
    discarding: Discarding,
    /// Number of heartbeats sent.
    heartbeats: u64,
}

/// Settings of a client's connection.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Limits of a connection.
    pub limits: Limits,
    /// Credential sent with every call, unless the call has its own.
    pub credential: Option<Bytes>,
    /// Mapping of compressor numbers.
    pub compressors: Compressors,
}

impl Client {
    /// Creates the state of a newly established connection.
    pub fn new(config: ClientConfig) -> Self {
        Self { config, wanted: 0, discarding: Discarding::default(), heartbeats: 0 }
    }

    fn handle_frame(&self, frame: &Frame) -> Result<ClientEvent, Violation> {
        let flags = frame.header.flags;
        if flags.has(Flags::HEARTBEAT) {
            return Ok(ClientEvent::Alive);
        }
        // A oneway request from a server: no other requests are sent in this direction (rpcx `client/client.go`,
        // `input`).
        if flags.has(Flags::ONEWAY) && !flags.has(Flags::RESPONSE) {
            return push_of(frame, &self.config.limits).map(ClientEvent::Push);
        }
        Ok(ClientEvent::Reply(CallId(frame.header.seq), reply_of(frame)?))
    }
}

impl Client {
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
        let oversized = match violation.kind() {
            ViolationKind::TooLarge => frame::take_oversized(inbox),
            _ => None,
        };
        let is_response = |flags: Flags| flags.has(Flags::RESPONSE) && !flags.has(Flags::HEARTBEAT);
        let Some((header, rest)) = oversized.filter(|(header, _)| is_response(header.flags)) else {
            // No call's response, but a push: what waits may be retried.
            return Err(violation.with_kind(ViolationKind::Malformed));
        };
        self.discarding.start(rest);
        let failure = response_too_long(frame::HEADER + rest, self.config.limits.message);
        Ok(ClientEvent::Reply(CallId(header.seq), Reply::failure(failure)))
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        let (flags, serialize, compressor) = express(&call, &self.config.compressors)?;
        Carrier::Map.check(&call.head.metadata).map_err(UnsupportedEntry::into_refusal)?;
        let credential = call.credential.bytes().or(self.config.credential.as_ref());
        let timeout = call.timeout;
        let is_replaced = |key: &str| match key {
            AUTH => credential.is_some(),
            TIMEOUT => timeout.is_some(),
            _ => false,
        };
        let own = usize::from(credential.is_some()) + usize::from(timeout.is_some());
        check_entries(&call.head.metadata, own, is_replaced).map_err(TooManyEntries::into_refusal)?;
        let (flags, body) = compress_if_smaller((call.head.compression, compressor), flags, call.body);
        let mut frame = Writer::new(out, Header::new(flags, serialize, id.0), call.service, call.method);
        if let Some(credential) = credential {
            frame.pair(AUTH, credential);
        }
        if let Some(timeout) = timeout {
            frame.pair_shown(TIMEOUT, millis(timeout));
        }
        frame.pairs(&call.head.metadata, is_replaced);
        frame.finish(body).map_err(overlong)
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        _out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        self.wanted = 0;
        if !self.discarding.take(inbox) {
            return Ok(None);
        }
        let next = match frame::take(inbox, self.config.limits.message, &self.config.compressors) {
            Ok(next) => next,
            Err(violation) => return self.fail_oversized(inbox, violation).map(Some),
        };
        match next {
            NextFrame::Frame(frame) => self.handle_frame(&frame).map(Some),
            NextFrame::Short { wanted } => {
                self.wanted = wanted;
                Ok(None)
            }
            NextFrame::Foreign => Err(Violation::new("the response is not rpcx")),
        }
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }

    fn is_reusable(&self) -> bool {
        !self.discarding.is_active()
    }

    /// Heartbeat sequence numbers count down from the largest number while [`CallId`]s count up from 0. If they ever
    /// meet, nothing is confused: the response to a heartbeat is identified by its flag, not by its sequence number.
    fn heartbeat(&mut self, out: &mut Outbox) -> bool {
        self.heartbeats += 1;
        let header = Header::new(Flags::HEARTBEAT, MESSAGE_PACK, !self.heartbeats);
        // rpcx sends its clock as a MessagePack int64 and compares the echo; a counter serves as well.
        let mut count = [0xd3; 9];
        count[1..].copy_from_slice(&self.heartbeats.to_be_bytes());
        Writer::new(out, header, "", "").finish(Bytes::copy_from_slice(&count)).is_ok()
    }
}

/// Returns the call in a frame.
fn call_of(frame: &Frame) -> Result<Call<'_>, Violation> {
    let (mut metadata, mut credential, mut timeout, mut malformed) = (Metadata::new(), None, None, None);
    for pair in frame.pairs() {
        let (key, value) = pair?;
        match key {
            key if key == AUTH.as_bytes() => {
                // Go's server uses the last one; a proxy may have checked the other.
                if credential.replace(value).is_some() {
                    malformed = Some(two_credentials());
                }
            }
            key if key == TIMEOUT.as_bytes() => timeout = parse_timeout(&value),
            key => metadata.append(text(key), value),
        }
    }
    metadata.dedup_keep_last();
    Ok(Call {
        service: name(frame.path()),
        method: name(frame.method()),
        body: frame.payload(),
        attachment: Bytes::new(),
        head: head_of(frame, metadata),
        timeout,
        oneway: frame.header.flags.has(Flags::ONEWAY),
        credential: Credential::Call(credential.filter(|_| malformed.is_none())),
        authenticated: false,
        malformed,
    })
}

/// Returns the reply in a frame. The payload of a failed call is the handler's incomplete reply, which is not used.
fn reply_of(frame: &Frame) -> Result<Reply, Violation> {
    let mut metadata = match metadata_of(frame) {
        // The frame is well-formed: other calls of the connection are not affected.
        Err(MetadataError::TooManyPairs) => return Ok(Reply::failure(too_many_in_response(MAX_METADATA))),
        metadata => metadata?,
    };
    let result = match frame.header.flags.is_failure() {
        false => Ok(frame.payload()),
        true => {
            let error_text = metadata.remove(ERROR).unwrap_or_default();
            Err(status::read(&text(&error_text)))
        }
    };
    Ok(Reply::new(result, head_of(frame, metadata)))
}

/// Returns the pushed message in a frame.
fn push_of(frame: &Frame, limits: &Limits) -> Result<Push, Violation> {
    let body = match frame.compression {
        Compression::None => frame.payload(),
        // No rpcx server compresses what it pushes, but its client would decompress it.
        compression => compress::decompress(compression, &frame.payload(), limits.decompressed)
            .map_err(|error| Violation::new(format!("a pushed message cannot be decompressed: {error}")))?
            .into(),
    };
    Ok(Push {
        service: text(frame.path()),
        method: text(frame.method()),
        metadata: metadata_of(frame)?,
        body,
    })
}

fn metadata_of(frame: &Frame) -> Result<Metadata, MetadataError> {
    let mut metadata = Metadata::new();
    for pair in frame.pairs() {
        let (key, value) = pair?;
        metadata.append(text(key), value);
    }
    metadata.dedup_keep_last();
    Ok(metadata)
}

/// Checks that a frame has no more entries than its receiver accepts: `own` ones, and those of `metadata` whose key is not
/// `taken` by the protocol itself.
#[inline]
fn check_entries(
    metadata: &Metadata,
    own: usize,
    taken: impl Fn(&str) -> bool,
) -> Result<(), TooManyEntries> {
    match own + metadata.len() {
        ..=MAX_METADATA => Ok(()),
        _ => {
            let others = metadata.iter().filter(|(key, _)| !taken(key)).count();
            metadata_count::check(own + others, MAX_METADATA)
        }
    }
}

fn head_of(frame: &Frame, metadata: Metadata) -> Head {
    Head { format: frame.header.format(), compression: frame.compression, metadata, ..Head::default() }
}

/// Converts a name to text. rpcx's names are bytes: one that is not UTF-8 becomes a name that cannot exist, so that the
/// call is answered like any other call to an unknown method.
fn name(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("\u{fffd}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the flags of a call, its serialize number and its compressor's number, if rpcx can express everything the
/// call requires.
fn express(call: &Call<'_>, compressors: &Compressors) -> Result<(Flags, u8, u8), Status> {
    if call.service.is_empty() && call.method.is_empty() {
        return Err(missing_name());
    }
    if !call.attachment.is_empty() {
        return Err(Status::invalid_argument("rpcx has no attachments"));
    }
    let compression = call.head.compression;
    let compressor = compressors.number(compression).ok_or_else(|| no_compression(compression))?;
    let serialize = frame::serialize(call.head.format).ok_or_else(|| no_format(call.head.format))?;
    Ok((if call.oneway { Flags::ONEWAY } else { Flags::REQUEST }, serialize, compressor))
}

/// Compresses a body if it is large enough, and sets the flags accordingly. A body that cannot be compressed is sent
/// uncompressed (rpcx `Message.EncodeSlicePointer`).
fn compress_if_smaller(
    (compression, number): (Compression, u8),
    flags: Flags,
    body: Bytes,
) -> (Flags, Bytes) {
    if compression == Compression::None || body.len() <= WORTH_COMPRESSING {
        return (flags, body);
    }
    match compress::compress(compression, &body) {
        Ok(compressed) => (flags.with_compressor(number), compressed.into()),
        Err(_) => (flags, body),
    }
}

/// At least 1: for a handler in Go, 0 would mean that no time is left.
fn millis(timeout: Duration) -> u64 {
    u64::try_from(to_millis(timeout)).map_or(LONGEST_MILLIS, |millis| millis.clamp(1, LONGEST_MILLIS))
}

/// Parses milliseconds in decimal; a malformed number is ignored (rpcx `parseServerTimeout`), and so is one beyond Go's
/// `time.Duration`. A call with no time left is still answered, as by rpcx's server: a Go client truncates its
/// remaining time to milliseconds.
fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let millis: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (1..=LONGEST_MILLIS).contains(&millis).then(|| Duration::from_millis(millis))
}

#[cold]
fn two_credentials() -> Status {
    Status::unauthenticated("there are two credentials: the metadata has __AUTH twice")
}

#[cold]
fn missing_name() -> Status {
    Status::invalid_argument("a call without any name is a heartbeat in rpcx")
}

#[cold]
fn no_compression(compression: Compression) -> Status {
    Status::invalid_argument(format!(
        "rpcx cannot carry a message in {}: register it as a compressor of both sides",
        compression.as_str()
    ))
}

#[cold]
fn no_format(format: Format) -> Status {
    Status::invalid_argument(format!("rpcx cannot carry a message in {}", format.as_str()))
}

#[cold]
fn overlong(_: FrameTooLong) -> Status {
    Status::resource_exhausted("an rpcx frame holds no more than 4 GiB")
}

/// Reserved metadata keys (rpcx `share/share.go`, `protocol/message.go`).
const ERROR: &str = "__rpcx_error__";
const AUTH: &str = "__AUTH";
const TIMEOUT: &str = "__ServerTimeout";

/// Serialize numbers of the frames that the session itself sends.
const RAW: u8 = 0;
const MESSAGE_PACK: u8 = 3;

/// Only longer bodies are compressed (rpcx `sendResponse`, client `send`).
const WORTH_COMPRESSING: usize = 1024;

/// Longest duration of Go's `time.Duration`, which counts nanoseconds in 63 bits.
const LONGEST_MILLIS: u64 = i64::MAX as u64 / 1_000_000;

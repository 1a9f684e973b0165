use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::ClientEvent;
use polyrpc_core::{
    Call, CallId, Carrier, Compression, Credential, Fault, Format, Limits, Outbox, Retry, Scope, Status,
    UnsupportedEntry, Violation, session,
};

use super::dialect::Dialect;
use super::outgoing::{Outgoing, ResponseEnd, not_one};
use super::request_writer::{ClientFraming, RequestBody};
use super::{block, coding, frame, metadata, status, timeout};
use crate::http::h2::hpack::{Fields, Indexing};
use crate::http::h2::{self, Connection, ErrorCode};
use crate::http::path::check_http2_names;

/// Settings of a client's connection.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Limits of a call, counted as in [`ServerConfig::limits`](crate::http_server::h2::ServerConfig::limits).
    pub limits: Limits,
    /// Limits of the HTTP/2 connection.
    pub http: Arc<h2::Config>,
    /// The server's authority, as in the URL.
    pub authority: String,
    /// The connection uses TLS.
    pub tls: bool,
    /// Calls use gRPC-Web.
    pub web: bool,
    /// Calls use this framing instead.
    pub framing: Option<ClientFraming>,
    /// Credential of the caller, sent as `authorization` if the call has none of its own.
    pub credential: Option<Bytes>,
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(super) http: Connection,
    pub(super) calls: BTreeMap<u32, Outgoing>,
    pub(super) streams: HashMap<CallId, u32>,
    /// Start of the last request's header block, reused by the next request to the same method.
    usual: HeaderBlockCache,
    /// Number of one-way calls that occupy a stream: no caller waits for them, but the server counts them.
    oneway: usize,
    /// Calls with results that were not emitted yet.
    pub(super) found: VecDeque<u32>,
    /// Bytes of all calls' messages that were not emitted.
    pub(super) held: usize,
    go_away_received: bool,
    go_away_reported: bool,
}

/// Cached start of a header block, with the values it depends on.
#[derive(Debug, Default)]
struct HeaderBlockCache {
    generation: u64,
    service: String,
    method: String,
    format: Format,
    compression: Compression,
    block: Vec<u8>,
}

impl ClientConfig {
    fn dialect(&self) -> Dialect {
        if self.web { Dialect::Web } else { Dialect::Native }
    }
}

impl Client {
    /// Creates a new connection.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            http: Connection::client(config.http.clone()),
            config,
            calls: BTreeMap::new(),
            streams: HashMap::new(),
            oneway: 0,
            usual: HeaderBlockCache::default(),
            found: VecDeque::new(),
            held: 0,
            go_away_received: false,
            go_away_reported: false,
        }
    }

    /// Number of open streams.
    #[cfg(test)]
    pub(crate) fn streams(&self) -> usize {
        self.http.streams()
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        if let Some(framing) = self.config.framing {
            return self.request_framed(id, &call, framing, false, out);
        }
        let message = call.body.clone();
        let stream = self.request(id, &call, false, out)?;
        self.write_message(stream, message, true, out);
        Ok(())
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        loop {
            while let Some(&stream) = self.found.front() {
                if let Some(answer) = self.take(stream, out) {
                    return Ok(Some(answer));
                }
                self.found.pop_front();
            }
            if self.go_away_received && !self.go_away_reported {
                self.go_away_reported = true;
                return Ok(Some(ClientEvent::GoAway));
            }
            let Some(event) = self.http.next_event(inbox, out)? else { return Ok(None) };
            if let Some(answer) = self.handle_event(event, out) {
                return Ok(Some(answer));
            }
        }
    }

    fn cancel(&mut self, id: CallId, out: &mut Outbox) {
        let streamed = self.streams.remove(&id);
        let found = || self.calls.iter().find(|(_, call)| call.id == id).map(|(stream, _)| *stream);
        if let Some(stream) = streamed.or_else(found) {
            self.remove(stream);
            self.http.reset(stream, ErrorCode::CANCEL, out);
        }
    }

    fn buffered(&self) -> usize {
        self.held + self.http.buffered()
    }

    fn unsent(&self) -> usize {
        self.http.queued()
    }

    fn bytes_needed(&self) -> usize {
        self.http.bytes_needed()
    }

    fn concurrency(&self) -> usize {
        self.http.concurrency().saturating_sub(self.oneway)
    }

    fn is_reusable(&self) -> bool {
        !self.go_away_received && self.http.may_be_used()
    }

    /// Servers treat pings of an idle client as an attack (gRPC's proposal A8): the next call detects a dead
    /// connection.
    fn heartbeat(&mut self, out: &mut Outbox) -> bool {
        let waits = !self.calls.is_empty();
        if waits {
            self.http.ping(out);
        }
        waits
    }

    #[inline]
    fn streaming(&mut self) -> Option<&mut dyn session::client::Streaming> {
        Some(self)
    }
}

impl session::client::Streaming for Client {
    fn open(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        match self.config.framing {
            Some(framing) => self.request_framed(id, &call, framing, true, out),
            None => self.request(id, &call, true, out).map(drop),
        }
    }

    fn send_message(&mut self, id: CallId, message: Bytes, out: &mut Outbox) {
        if let Some(&stream) = self.streams.get(&id) {
            self.write_message(stream, message, false, out);
        }
    }

    fn end(&mut self, id: CallId, out: &mut Outbox) {
        if let Some(&stream) = self.streams.get(&id) {
            self.http.data(stream, &[], Bytes::new(), true, out);
        }
    }

    fn half_closes(&mut self) -> bool {
        true
    }

    fn has_room(&mut self, id: CallId) -> bool {
        self.streams.get(&id).is_none_or(|stream| self.http.has_room(*stream))
    }

    fn record_consumed(&mut self, id: CallId, bytes: usize, out: &mut Outbox) {
        if let Some(&stream) = self.streams.get(&id) {
            self.credit(stream, bytes, out);
        }
    }
}

impl Client {
    /// Sends the headers of a request.
    fn request(
        &mut self,
        id: CallId,
        call: &Call<'_>,
        streamed: bool,
        out: &mut Outbox,
    ) -> Result<u32, Status> {
        let sends = self.check(call)?;
        let block = self.block(call, sends);
        let stream = self.http.open(&block, false, out);
        let limit = self.config.limits.header;
        let dialect = self.config.dialect();
        self.record(stream, call, Outgoing::new(id, streamed, (call.head.format, sends), dialect, limit));
        if streamed {
            self.streams.insert(id, stream);
        }
        Ok(stream)
    }

    fn record(&mut self, stream: u32, call: &Call<'_>, mut outgoing: Outgoing) {
        outgoing.oneway = call.oneway;
        self.oneway += usize::from(call.oneway);
        self.calls.insert(stream, outgoing);
    }

    /// Takes a call that has ended out of the books.
    fn remove(&mut self, stream: u32) -> Option<Outgoing> {
        let call = self.calls.remove(&stream)?;
        self.oneway -= usize::from(call.oneway);
        self.held -= call.counted;
        Some(call)
    }

    /// Checks whether a call can be sent, and returns the compression of its messages.
    fn check(&self, call: &Call<'_>) -> Result<Compression, Status> {
        if self.go_away_received || !self.http.may_open() {
            return Err(refused("the connection takes no more calls"));
        }
        if !call.attachment.is_empty() {
            return Err(Status::unimplemented("gRPC has no attachments"));
        }
        let sends = coding::to_message_coding(call.head.compression);
        if coding::name(sends).is_none() {
            return Err(Status::unimplemented(format!("gRPC has no name for {}", sends.as_str())));
        }
        Carrier::Grpc.check(&call.head.metadata).map_err(UnsupportedEntry::into_refusal)?;
        self.check_path(call)?;
        self.check_size(call, sends)?;
        Ok(sends)
    }

    /// Sends a request in another framing: all of it if the call is unary, otherwise its head.
    #[cold]
    fn request_framed(
        &mut self,
        id: CallId,
        call: &Call<'_>,
        framing: ClientFraming,
        is_stream: bool,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let sends = self.check(call)?;
        let request = framing.writer().request(call, is_stream, sends)?;
        let has_body = !matches!(request.body, RequestBody::None);
        let encoder = self.http.encoder();
        let mut block = Vec::with_capacity(256);
        encoder.begin(&mut block);
        let target = if has_body { Indexing::Likely } else { Indexing::Unlikely };
        let scheme: &[u8] = if self.config.tls { b"https" } else { b"http" };
        encoder.field(b":method", request.method.as_bytes(), Indexing::Likely, &mut block);
        encoder.field(b":scheme", scheme, Indexing::Likely, &mut block);
        encoder.field(b":path", request.target.as_bytes(), target, &mut block);
        encoder.field(b":authority", self.config.authority.as_bytes(), Indexing::Likely, &mut block);
        encoder.field(b"user-agent", USER_AGENT, Indexing::Likely, &mut block);
        framing.writer().fields(&request, call, &mut |name, value, indexing| {
            encoder.field(name, value, indexing, &mut block);
        });
        if let Some(credential) = credential(&call.credential, &self.config.credential) {
            encoder.field(b"authorization", credential, Indexing::Never, &mut block);
        }
        metadata::write(&call.head.metadata, |name, value| {
            encoder.field(name, value, indexing(name), &mut block);
        });
        let stream = self.http.open(&block, !has_body, out);
        let (written, limit) = ((call.head.format, sends), self.config.limits.message);
        let dialect = Dialect::Framed(request.framing);
        self.record(stream, call, Outgoing::new(id, is_stream, written, dialect, limit));
        if is_stream {
            self.streams.insert(id, stream);
        }
        if let RequestBody::Message(body) = request.body {
            self.http.data(stream, &[], body, true, out);
        }
        Ok(())
    }

    /// Checks that no server or proxy takes the path for another one. The path of the previous call was checked.
    fn check_path(&self, call: &Call<'_>) -> Result<(), Status> {
        if self.usual.method == call.method && self.usual.service == call.service {
            return Ok(());
        }
        check_http2_names(call.service, call.method)
    }

    /// Checks that the server accepts a header list as long as that of this call.
    fn check_size(&self, call: &Call<'_>, sends: Compression) -> Result<(), Status> {
        let limit = self.http.largest_list();
        // An upper bound: more than the fields that every call has, and what base64 may add to the others.
        let of_metadata = |(name, value): (&str, &Bytes)| name.len() + value.len() / 2 * 3 + 64;
        let credential = credential(&call.credential, &self.config.credential).map_or(0, <[u8]>::len);
        let names = call.service.len() + call.method.len() + self.config.authority.len();
        let most = 1024 + names + credential + call.head.metadata.iter().map(of_metadata).sum::<usize>();
        if most <= limit {
            return Ok(());
        }
        match self.size(call, sends) {
            size if size <= limit => Ok(()),
            size => Err(head_too_large(size, limit)),
        }
    }

    /// Returns the size of a call's header list, counted like the server's limit.
    #[cold]
    fn size(&self, call: &Call<'_>, sends: Compression) -> usize {
        let mut size = 0;
        let mut add = |name: &[u8], value: &[u8]| size += name.len() + value.len() + 32;
        constant_fields(&self.config, call, sends, &mut add);
        if call.timeout.is_some() {
            add(b"grpc-timeout", b"99999999n");
        }
        if let Some(credential) = credential(&call.credential, &self.config.credential) {
            add(b"authorization", credential);
        }
        metadata::write(&call.head.metadata, add);
        size
    }

    /// Returns the header block of a call. The fields common to all calls of a method are encoded once and reused until
    /// the dynamic table changes.
    fn block(&mut self, call: &Call<'_>, compression: Compression) -> Vec<u8> {
        let encoder = self.http.encoder();
        let mut block = Vec::with_capacity(self.usual.block.len() + 32);
        encoder.begin(&mut block);
        if !block.is_empty() || !self.usual.is_of(call, compression, encoder.generation()) {
            let start = block.len();
            let before = encoder.generation();
            constant_fields(&self.config, call, compression, &mut |name, value| {
                encoder.field(name, value, Indexing::Likely, &mut block);
            });
            if encoder.generation() == before {
                self.usual.update(call, compression, before, &block[start..]);
            }
        } else {
            block.extend_from_slice(&self.usual.block);
        }
        if let Some(time) = call.timeout {
            let mut text = Vec::with_capacity(9);
            timeout::write(time, &mut text);
            encoder.field(b"grpc-timeout", &text, Indexing::Unlikely, &mut block);
        }
        if let Some(credential) = credential(&call.credential, &self.config.credential) {
            encoder.field(b"authorization", credential, Indexing::Never, &mut block);
        }
        metadata::write(&call.head.metadata, |name, value| {
            encoder.field(name, value, indexing(name), &mut block);
        });
        block
    }

    fn write_message(&mut self, stream: u32, message: Bytes, end: bool, out: &mut Outbox) {
        let Some(call) = self.calls.get(&stream) else { return };
        let (compressed, body) = coding::compress_if_smaller(call.sends, message);
        self.http.data(stream, &frame::prefix(compressed, body.len()), body, end, out);
    }

    fn handle_event(&mut self, event: h2::Event, out: &mut Outbox) -> Option<ClientEvent> {
        match event {
            h2::Event::Headers { stream, fields, end } => self.head(stream, &fields, end),
            h2::Event::Whole { .. } => None,
            h2::Event::Data { stream, bytes, end } => {
                let Some(call) = self.calls.get_mut(&stream) else {
                    self.http.record_consumed(stream, bytes.len(), out);
                    return None;
                };
                call.push(bytes);
                if end {
                    call.body_ended();
                }
                self.found.push_back(stream);
                None
            }
            h2::Event::Trailers { stream, fields } => {
                let call = self.calls.get_mut(&stream)?;
                call.trailers(&fields);
                self.found.push_back(stream);
                None
            }
            h2::Event::Reset { stream, code, by_peer } => {
                let call = self.calls.get_mut(&stream)?;
                // A reset with NO_ERROR follows a complete response.
                if code != ErrorCode::NO_ERROR || call.end.is_none() {
                    let status = if by_peer { status::from_reset(code.0) } else { connection_broken() };
                    call.end = Some(ResponseEnd::failed(status));
                }
                self.found.push_back(stream);
                None
            }
            h2::Event::Room { stream } => {
                let call = self.calls.get(&stream).filter(|call| call.streamed)?;
                Some(ClientEvent::Room(call.id))
            }
            h2::Event::Pong => Some(ClientEvent::Alive),
            h2::Event::Pause => None,
            h2::Event::Oversized { stream, size, .. } => {
                let limit = self.config.http.header_list;
                let call = self.calls.get_mut(&stream)?;
                call.begun = false;
                call.end = Some(ResponseEnd::failed(oversized(size, limit)));
                self.found.push_back(stream);
                None
            }
            h2::Event::GoAway { last, code, reason } => {
                self.go_away_received = true;
                self.fail_unprocessed(last);
                // Servers send ENHANCE_YOUR_CALM for other reasons too (gRPC's proposal A8 defines the text).
                let too_many = code == ErrorCode::ENHANCE_YOUR_CALM && reason == TOO_MANY_PINGS;
                too_many.then_some(ClientEvent::TooManyHeartbeats)
            }
        }
    }

    /// Fails the calls that the server has not processed and never will.
    fn fail_unprocessed(&mut self, last: u32) {
        for (stream, call) in self.calls.range_mut(last.saturating_add(1)..) {
            call.end =
                Some(ResponseEnd::failed(refused("the server went away before it looked at the call")));
            self.found.push_back(*stream);
        }
    }

    /// Handles response headers; alone, they are the whole response (Trailers-Only).
    fn head(&mut self, stream: u32, fields: &Arc<Fields>, end: bool) -> Option<ClientEvent> {
        let call = self.calls.get_mut(&stream)?;
        let begun = call.read_head(fields, end);
        if end && call.is_framed() {
            match begun {
                Ok(()) => call.body_ended(),
                Err(status) => call.end = Some(ResponseEnd::failed(status)),
            }
            self.found.push_back(stream);
            return None;
        }
        if end {
            let fallback = match &begun {
                Err(status) => ResponseEnd::failed(status.clone()),
                Ok(()) => ResponseEnd::without_status(),
            };
            call.end = Some(ResponseEnd::read(fields).unwrap_or(fallback));
            self.found.push_back(stream);
            return None;
        }
        match begun {
            Ok(()) if call.streamed => Some(ClientEvent::Head(call.id, call.head.clone())),
            Ok(()) => None,
            Err(status) => {
                call.end = Some(ResponseEnd::failed(status));
                self.found.push_back(stream);
                None
            }
        }
    }

    /// Emits the next event of a response.
    fn take(&mut self, stream: u32, out: &mut Outbox) -> Option<ClientEvent> {
        let mut call = self.calls.get_mut(&stream)?;
        let limit = self.config.limits.message;
        while call.begun {
            let message = match call.next(limit) {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(status) => return self.fail(stream, status, out),
            };
            if call.streamed {
                let id = call.id;
                self.credit(stream, frame::PREFIX, out);
                return Some(ClientEvent::Message(id, message));
            }
            let bytes = call.prefix() + message.body.len();
            if call.message.replace(message).is_some() {
                return self.fail(stream, not_one("more than one message in a unary response"), out);
            }
            self.credit(stream, bytes, out);
            call = self.calls.get_mut(&stream)?;
        }
        if call.end.is_none() {
            let held = call.held();
            // The whole message of a unary response waits for its end.
            let whole = held + call.message.as_ref().map_or(0, |message| message.body.len());
            self.held = self.held + whole - std::mem::replace(&mut call.counted, whole);
            let more = held.saturating_sub(call.advanced);
            call.advanced = call.advanced.max(held);
            self.http.record_consumed(stream, more, out);
            return None;
        }
        self.finish(stream, out)
    }

    /// Reports consumed bytes; some of them may have been credited to the peer in advance.
    fn credit(&mut self, stream: u32, bytes: usize, out: &mut Outbox) {
        let advanced = self.calls.get_mut(&stream).map_or(0, |call| {
            let advanced = call.advanced.min(bytes);
            call.advanced -= advanced;
            advanced
        });
        self.http.record_consumed(stream, bytes - advanced, out);
    }

    /// Finishes the call.
    fn finish(&mut self, stream: u32, out: &mut Outbox) -> Option<ClientEvent> {
        let call = self.remove(stream)?;
        if call.streamed {
            self.streams.remove(&call.id);
        }
        if self.http.is_open(stream) {
            // One side has not sent END_STREAM yet: cancel the rest.
            self.http.reset(stream, ErrorCode::CANCEL, out);
        }
        call.into_answer().map(|(id, reply)| ClientEvent::Reply(id, reply))
    }

    #[cold]
    fn fail(&mut self, stream: u32, status: Status, out: &mut Outbox) -> Option<ClientEvent> {
        let call = self.calls.get_mut(&stream)?;
        call.begun = false;
        call.end = Some(ResponseEnd::failed(status.with_fault(Fault::Peer)));
        self.finish(stream, out)
    }
}

impl HeaderBlockCache {
    fn is_of(&self, call: &Call<'_>, compression: Compression, generation: u64) -> bool {
        self.generation == generation
            && self.method == call.method
            && self.service == call.service
            && self.format == call.head.format
            && self.compression == compression
            && !self.block.is_empty()
    }

    fn update(&mut self, call: &Call<'_>, compression: Compression, generation: u64, block: &[u8]) {
        self.generation = generation;
        call.service.clone_into(&mut self.service);
        call.method.clone_into(&mut self.method);
        self.format = call.head.format;
        self.compression = compression;
        block.clone_into(&mut self.block);
    }
}

/// Debug data of a server's GOAWAY to a client that pings too often.
const TOO_MANY_PINGS: &[u8] = b"too_many_pings";

pub(crate) const USER_AGENT: &[u8] = concat!("polyrpc/", env!("CARGO_PKG_VERSION")).as_bytes();

/// Encodes the fields common to all calls of a method.
fn constant_fields(
    config: &ClientConfig,
    call: &Call<'_>,
    compression: Compression,
    add: &mut impl FnMut(&[u8], &[u8]),
) {
    let path = ["/", call.service, "/", call.method].concat();
    let scheme: &[u8] = if config.tls { b"https" } else { b"http" };
    add(b":method", b"POST");
    add(b":scheme", scheme);
    add(b":path", path.as_bytes());
    add(b":authority", config.authority.as_bytes());
    if config.web {
        add(b"content-type", &Dialect::Web.content_type(call.head.format));
        add(b"x-grpc-web", b"1");
    } else {
        add(b"te", b"trailers");
        add(b"content-type", block::content_type(call.head.format));
    }
    add(b"grpc-accept-encoding", coding::ACCEPTED);
    add(b"user-agent", USER_AGENT);
    if let Some(name) = coding::name(compression).filter(|_| compression != Compression::None) {
        add(b"grpc-encoding", name);
    }
}

/// Credentials must not be indexed, whatever their source.
fn indexing(name: &[u8]) -> Indexing {
    match name {
        b"authorization" | b"cookie" => Indexing::Never,
        _ => Indexing::Likely,
    }
}

fn credential<'a>(call: &'a Credential, usual: &'a Option<Bytes>) -> Option<&'a [u8]> {
    call.bytes().or(usual.as_ref()).map(|bytes| &bytes[..])
}

/// Returns the failure of a call that the server did not process: it may be retried elsewhere, whether or not it is
/// idempotent.
#[cold]
fn refused(why: &'static str) -> Status {
    Status::unavailable(why).with_scope(Scope::Connection).with_retry(Retry::Elsewhere)
}

/// Returns the failure of a call whose header list exceeds the server's limit.
#[cold]
fn head_too_large(size: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "the call's header list of {size} bytes exceeds the server's limit of {limit}"
    ))
    .with_fault(Fault::Caller)
    .with_retry(Retry::Never)
}

/// Returns the failure of a call whose response headers or trailers exceed our limit.
#[cold]
fn oversized(size: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "the response's header list of {size} bytes exceeds the limit of {limit}"
    ))
    .with_fault(Fault::Us)
    .with_retry(Retry::Never)
}

#[cold]
fn connection_broken() -> Status {
    Status::internal("the server violated HTTP/2 on this stream").with_fault(Fault::Peer)
}

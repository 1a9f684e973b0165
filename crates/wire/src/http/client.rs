//! The client's side of a connection.

use super::field;
use super::mapping::content_type;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::digits::put_decimal;
use polyrpc_core::session::ClientEvent;
use polyrpc_core::{
    Call, CallId, Carrier, Compression, Format, Head, Json, Limits, Metadata, Outbox, Reply, Retry, Scope,
    Status, UnsupportedEntry, Violation, session,
};
use polyrpc_payload::compress;

use super::TLS_EXPECTED;
use super::h1::chunked::Chunked;
use super::h1::frame::{self, BodyLength, Lengths, Refusal};
use super::head::{WriteHead, metadata_fields};
use super::mapping::{brpc, failure, gateway, query, status, text};
use super::path::check_name;
use crate::json_rpc;
use crate::timeout_millis::to_millis;

/// Settings of a client's connection.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// Limits of a connection.
    pub limits: Limits,
    /// The server's authority for the `Host` field: `host:port`.
    pub authority: String,
    /// Credential for the `Authorization` field of calls without one of their own.
    pub credential: Option<Bytes>,
    /// Calls are JSON-RPC 2.0 objects posted to `/`, as rpcx understands them, instead of brpc's
    /// `POST /Service/Method`.
    pub json_rpc: bool,
}

/// The client's side of a connection.
///
/// Responses arrive in the order of the calls, so that a call waits for all before it; [`concurrency`] returns one.
///
/// [`concurrency`]: session::Client::concurrency
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    /// Pending calls, oldest first.
    waiting: VecDeque<CallId>,
    reading: Reading,
    scanned: usize,
    ending: bool,
}

/// The part that is read next.
#[derive(Debug)]
enum Reading {
    Head,
    Body(Box<Partial>),
}

/// A response whose body is incomplete.
#[derive(Debug)]
struct Partial {
    response: Response,
    chunked: Chunked,
}

impl Client {
    /// Creates the state of a new connection.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self {
            config: config.into(),
            waiting: VecDeque::new(),
            reading: Reading::Head,
            scanned: 0,
            ending: false,
        }
    }

    /// Writes a call in brpc's mapping.
    fn send_mapped(&self, call: &Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        let content_type = content_type::content_type(call.head.format)
            .ok_or_else(|| Status::unimplemented("HTTP has no content type for this format"))?;
        let coding = match call.head.compression {
            Compression::None => None,
            Compression::Gzip => Some("gzip"),
            Compression::Zlib => Some("deflate"),
            other => {
                let text = format!("HTTP has no content coding for {}", other.as_str());
                return Err(Status::unimplemented(text));
            }
        };
        check_name(call.service)?;
        check_name(call.method)?;
        Carrier::HttpRequest.check(&call.head.metadata).map_err(UnsupportedEntry::into_refusal)?;
        let credential = self.credential(call)?;
        let body = match coding {
            None => call.body.clone(),
            Some(_) => compress::compress(call.head.compression, &call.body)
                .map_err(|error| Status::internal(error.to_string()))?
                .into(),
        };

        let head = out.buffer();
        head.extend_from_slice(b"POST /");
        if !call.service.is_empty() {
            head.extend_from_slice(call.service.as_bytes());
            head.push(b'/');
        }
        head.extend_from_slice(call.method.as_bytes());
        self.write_common(head, content_type, body.len(), credential);
        field::field(head, "Accept-Encoding", b"gzip");
        if let Some(coding) = coding {
            field::field(head, "Content-Encoding", coding.as_bytes());
        }
        if let Some(timeout) = call.timeout {
            field::field(head, "connect-timeout-ms", milliseconds(timeout).to_string().as_bytes());
        }
        metadata_fields(head, &call.head.metadata);
        head.extend_from_slice(b"\r\n");
        out.body(body);
        Ok(())
    }

    /// Writes a call as JSON-RPC, with its metadata in the form that rpcx reads.
    fn send_json_rpc(&self, id: CallId, call: &Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        if !matches!(call.head.format, Format::Json(_)) {
            return Err(Status::unimplemented("JSON-RPC carries nothing but JSON"));
        }
        if call.head.compression != Compression::None {
            return Err(Status::unimplemented("JSON-RPC has no compression"));
        }
        Carrier::Map.check(&call.head.metadata).map_err(UnsupportedEntry::into_refusal)?;
        let credential = self.credential(call)?;
        let mut metadata = Cow::Borrowed(&call.head.metadata);
        if let Some(timeout) = call.timeout {
            metadata.to_mut().insert(gateway::SERVER_TIMEOUT, milliseconds(timeout).to_string());
        }
        let mut body = Vec::with_capacity(call.body.len() + 64);
        let answered = (!call.oneway).then_some(id.0);
        json_rpc::write_request(&mut body, call.service, call.method, &call.body, answered);

        let head = out.buffer();
        head.extend_from_slice(b"POST /");
        self.write_common(head, content_type::JSON, body.len(), credential);
        field::field(head, "X-JSONRPC-2.0", b"true");
        if !metadata.is_empty() {
            gateway::meta_field(&metadata, head);
        }
        head.extend_from_slice(b"\r\n");
        out.body(body.into());
        Ok(())
    }

    /// Writes the fields common to all requests.
    fn write_common(
        &self,
        head: &mut Vec<u8>,
        content_type: &str,
        length: usize,
        credential: Option<&Bytes>,
    ) {
        head.extend_from_slice(b" HTTP/1.1\r\n");
        head.lenient_field("Host", self.config.authority.as_bytes());
        head.extend_from_slice(b"Content-Length: ");
        put_decimal(head, length as u64);
        head.extend_from_slice(b"\r\n");
        field::field(head, "Content-Type", content_type.as_bytes());
        if let Some(credential) = credential {
            field::field(head, "Authorization", credential);
        }
    }

    fn credential<'c>(&'c self, call: &'c Call<'_>) -> Result<Option<&'c Bytes>, Status> {
        let credential = call.credential.bytes().or(self.config.credential.as_ref());
        match credential.is_none_or(|credential| field::is_field_value(credential)) {
            true => Ok(credential),
            false => Err(Status::invalid_argument("the credential cannot be an HTTP header")),
        }
    }

    /// Reads heads from `inbox` up to the first one that is not interim; its body may be complete already.
    fn read_head(&mut self, inbox: &mut BytesMut) -> Result<Option<ClientEvent>, Violation> {
        loop {
            if inbox.is_empty() {
                return Ok(None);
            }
            if self.waiting.is_empty() {
                return Err(Violation::new("a response came that no call waits for"));
            }
            let limits = &self.config.limits;
            let end = match frame::head_end(inbox, &mut self.scanned) {
                Some(end) if end <= limits.header => end,
                None if inbox.len() <= limits.header => return Ok(None),
                _ => return Err(Refusal::long_head().into()),
            };
            self.scanned = 0;
            let head = inbox.split_to(end).freeze();
            let response = Response::parse(&head, limits.message)?;
            if response.is_interim {
                continue;
            }
            self.ending |= !response.keep;
            return match response.body_length {
                BodyLength::Fixed(length) if inbox.len() >= length => {
                    let body = inbox.split_to(length).freeze();
                    self.finish(response, body)
                }
                _ => {
                    self.reading = Reading::Body(Box::new(Partial { response, chunked: Chunked::default() }));
                    self.read_body(inbox)
                }
            };
        }
    }

    fn read_body(&mut self, inbox: &mut BytesMut) -> Result<Option<ClientEvent>, Violation> {
        let limits = &self.config.limits;
        let Reading::Body(partial) = &mut self.reading else { return Ok(None) };
        let body = match partial.response.body_length {
            BodyLength::Fixed(length) if inbox.len() >= length => Some(inbox.split_to(length).freeze()),
            BodyLength::Fixed(_) => None,
            BodyLength::Chunked => {
                let read = partial.chunked.read(inbox, limits.message, limits.header);
                read.map_err(|refusal| refused(refusal, None, limits.message))?
            }
            BodyLength::UntilClose if inbox.len() > limits.message => {
                return Err(refused(Refusal::too_large(), None, limits.message));
            }
            BodyLength::UntilClose => None,
        };
        match body {
            Some(body) => self.finish_partial(body),
            None => Ok(None),
        }
    }

    fn finish_partial(&mut self, body: Bytes) -> Result<Option<ClientEvent>, Violation> {
        match std::mem::replace(&mut self.reading, Reading::Head) {
            Reading::Body(partial) => self.finish(partial.response, body),
            Reading::Head => Ok(None),
        }
    }

    /// Handles a complete response.
    fn finish(&mut self, response: Response, body: Bytes) -> Result<Option<ClientEvent>, Violation> {
        let Some(id) = self.waiting.pop_front() else { return Ok(None) };
        let reply = match self.config.json_rpc {
            true => response.into_json_rpc_reply(body, id)?,
            false => response.into_reply(body),
        };
        Ok(Some(ClientEvent::Reply(id, reply)))
    }
}

impl session::Client for Client {
    fn send(&mut self, id: CallId, call: Call<'_>, out: &mut Outbox) -> Result<(), Status> {
        if !call.attachment.is_empty() {
            return Err(Status::unimplemented("HTTP cannot carry an attachment in addition to the message"));
        }
        match self.config.json_rpc {
            true => self.send_json_rpc(id, &call, out)?,
            false => self.send_mapped(&call, out)?,
        }
        self.waiting.push_back(id);
        Ok(())
    }

    fn next_event(
        &mut self,
        inbox: &mut BytesMut,
        _out: &mut Outbox,
    ) -> Result<Option<ClientEvent>, Violation> {
        match self.reading {
            Reading::Head => self.read_head(inbox),
            Reading::Body(_) => self.read_body(inbox),
        }
    }

    /// A further call would wait behind a response that is no longer needed, so that the connection accepts no more
    /// calls.
    fn cancel(&mut self, id: CallId, _out: &mut Outbox) {
        self.ending |= self.waiting.contains(&id);
    }

    fn buffered(&self) -> usize {
        match &self.reading {
            Reading::Body(partial) => partial.chunked.held(),
            Reading::Head => 0,
        }
    }

    fn bytes_needed(&self) -> usize {
        match &self.reading {
            Reading::Body(partial) => match partial.response.body_length {
                BodyLength::Fixed(length) => length,
                BodyLength::Chunked | BodyLength::UntilClose => 0,
            },
            Reading::Head => 0,
        }
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn is_reusable(&self) -> bool {
        !self.ending
    }

    fn end_of_stream(&mut self, inbox: &mut BytesMut) -> Option<ClientEvent> {
        self.ending = true;
        match &self.reading {
            Reading::Body(partial) if partial.response.body_length == BodyLength::UntilClose => {
                let body = inbox.split().freeze();
                self.finish_partial(body).unwrap_or_default()
            }
            _ => None,
        }
    }
}

/// Returns the violation of a response: one that exceeds `limit` names its length, if that was announced.
#[cold]
fn refused(refusal: Refusal, announced: Option<u64>, limit: usize) -> Violation {
    match (refusal.status, announced) {
        (413, Some(length)) => {
            Violation::message_too_large(usize::try_from(length).unwrap_or(usize::MAX), limit)
        }
        (413, None) => Violation::too_large(format!("message is too long: {limit} bytes are allowed")),
        _ => refusal.into(),
    }
}

/// A response without its body.
#[derive(Debug)]
struct Response {
    status: u16,
    reason: Bytes,
    /// Another response to the same request follows.
    is_interim: bool,
    keep: bool,
    body_length: BodyLength,
    content_type: Option<Bytes>,
    content_encoding: Option<Bytes>,
    error_code: Option<i32>,
    /// Failure text of rpcx's gateway.
    rpcx_error: Option<Bytes>,
    metadata: Metadata,
    /// Fields that `Connection` names, which are for this hop only (RFC 9110 §7.6.1).
    hop_by_hop: Vec<String>,
}

impl Response {
    /// Parses a complete head; the message is limited to `limit` bytes.
    fn parse(head: &Bytes, limit: usize) -> Result<Self, Violation> {
        let mut announced = None;
        let parsed = frame::parse_response(head, |line, headers| {
            let mut response = Self {
                status: line.status,
                reason: head.slice_ref(line.reason.as_bytes()),
                is_interim: line.is_interim(),
                keep: !line.http10,
                body_length: BodyLength::Fixed(0),
                content_type: None,
                content_encoding: None,
                error_code: None,
                rpcx_error: None,
                metadata: Metadata::new(),
                hop_by_hop: Vec::new(),
            };
            let mut lengths = Lengths::default();
            for header in headers {
                response.take(header.name, head.slice_ref(header.value), &mut lengths)?;
            }
            announced = lengths.announced_length();
            response.remove_hop_by_hop();
            response.body_length =
                lengths.body_length_of_response(&line, limit.saturating_sub(head.len()))?;
            response.keep &= response.body_length != BodyLength::UntilClose;
            Ok(response)
        });
        parsed.map_err(|refusal| refused(refusal, announced, limit))
    }

    /// Removes the fields that `Connection` names. Sorted, since a peer chooses how many there are.
    fn remove_hop_by_hop(&mut self) {
        if self.hop_by_hop.is_empty() {
            return;
        }
        let mut names = std::mem::take(&mut self.hop_by_hop);
        names.sort_unstable();
        self.metadata.retain(|name, _| names.binary_search_by(|known| known.as_str().cmp(name)).is_err());
    }

    fn take(&mut self, name: &str, value: Bytes, lengths: &mut Lengths) -> Result<(), Refusal> {
        let mut buffer = [0; 32];
        let Some(lower) = field::lower_case(name, &mut buffer) else {
            let lower = name.to_ascii_lowercase();
            if field::is_metadata(&lower) {
                field::add_metadata(&mut self.metadata, &lower, value);
            }
            return Ok(());
        };
        match lower {
            "content-length" => lengths.content_length(&value)?,
            "transfer-encoding" => lengths.transfer_encoding(&value)?,
            "connection" => self.connection(&value),
            "content-type" => self.content_type = Some(value),
            "content-encoding" => field::join_values(&mut self.content_encoding, value),
            brpc::ERROR_CODE => {
                self.error_code = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            }
            "x-rpcx-errormessage" if !value.is_empty() => self.rpcx_error = Some(value),
            // Malformed metadata are no reason to fail a call that was answered.
            "x-rpcx-meta" => _ = query::decode(&value, None, &mut self.metadata),
            other if field::is_metadata(other) => field::add_metadata(&mut self.metadata, other, value),
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in field::list(value) {
            match () {
                () if option.eq_ignore_ascii_case(b"close") => self.keep = false,
                () if option.eq_ignore_ascii_case(b"keep-alive") => self.keep = true,
                () => self.hop_by_hop.push(String::from_utf8_lossy(option).to_ascii_lowercase()),
            }
        }
    }

    fn into_reply(self, body: Bytes) -> Reply {
        let format =
            self.content_type.as_deref().and_then(content_type::format_of).unwrap_or(content_type::DEFAULT);
        let compression = match self.content_encoding.as_deref() {
            None => Some(Compression::None),
            Some(coding) => text::coding_of(coding),
        };
        let result = match compression {
            _ if !self.is_success() => Err(self.failure(&body)),
            Some(Compression::None) if self.is_no_message(&body) => Err(self.no_message(&body)),
            Some(_) => Ok(body),
            None => Err(Status::unimplemented("the content-encoding of the response is not supported")),
        };
        let compression = compression.unwrap_or_default();
        Reply::new(result, Head { format, compression, metadata: self.metadata, ..Head::default() })
    }

    /// Parses a JSON-RPC response. A failure before the call (unknown path, too large) is plain HTTP.
    fn into_json_rpc_reply(self, body: Bytes, id: CallId) -> Result<Reply, Violation> {
        let result = match json_rpc::read_response(&body, id.0) {
            Ok(result) => result,
            Err(_) if !self.is_success() => Err(self.failure(&body)),
            // The response to a notification.
            Err(_) if body.is_empty() => Ok(Bytes::new()),
            Err(reason) => return Err(Violation::new(reason)),
        };
        let head = Head { format: Format::Json(Json::Go), metadata: self.metadata, ..Head::default() };
        Ok(Reply::new(result, head))
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the failure in a response: the text of its body, or the reason phrase if there is no text.
    #[cold]
    fn failure(&self, body: &[u8]) -> Status {
        // All of these servers end the connection. Others may repeat a caller's words in the text of a failed call, which
        // must not count as a failure of the server.
        if self.status == 400 && !self.keep && self.error_code.is_none() && expects_tls(body) {
            return tls_expected();
        }
        if let Some(json_failure) = self.json_failure(body) {
            return json_failure.into_remote();
        }
        let text = match self.content_encoding {
            None => body.get(..MAX_TEXT).unwrap_or(body).trim_ascii_end(),
            Some(_) => b"",
        };
        let text = match (text, &self.rpcx_error) {
            ([], Some(json_failure)) => String::from_utf8_lossy(json_failure).into_owned(),
            ([], None) => format!("HTTP {} {}", self.status, String::from_utf8_lossy(&self.reason)),
            (text, _) => String::from_utf8_lossy(text).into_owned(),
        };
        status::read(self.status, self.error_code, text).into_remote()
    }
}

impl Response {
    /// Whether a successful response contains no message of a method: rpcx's gateway reports failures in this way, and
    /// any other server answers with a page.
    fn is_no_message(&self, body: &[u8]) -> bool {
        let is_json = |body: &[u8]| matches!(body.first(), Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9'));
        let is_word = |body: &[u8]| matches!(body, b"null" | b"true" | b"false");
        let body = body.trim_ascii();
        match self.content_type.as_deref().map(|named| (content_type::format_of(named), named)) {
            _ if self.rpcx_error.is_some() => true,
            // This status has no body.
            _ if self.status == 204 => false,
            None | Some((Some(Format::Json(_)), _)) => body.is_empty(),
            Some((None, named)) if is_text(named) => !is_json(body) && !is_word(body),
            Some(_) => false,
        }
    }

    /// Returns the failure for a response without a message.
    #[cold]
    fn no_message(&self, body: &[u8]) -> Status {
        if let Some(text) = &self.rpcx_error {
            return Status::unknown(format!(
                "{}, as reported by rpcx's gateway in HTTP {}: it is not called by `POST /Service/Method`",
                String::from_utf8_lossy(text),
                self.status
            ))
            .into_remote();
        }
        let content_type =
            self.content_type.as_deref().map_or_else(|| "none".into(), String::from_utf8_lossy);
        let begin = String::from_utf8_lossy(body.get(..BEGIN).unwrap_or(body));
        Status::unknown(format!(
            "HTTP {} {} came without a message: Content-Type {content_type}, {}",
            self.status,
            String::from_utf8_lossy(&self.reason),
            match &*begin {
                "" => "an empty body".to_owned(),
                begin => format!("a body that begins with {begin:?}"),
            }
        ))
    }

    /// Parses the failure in a JSON body.
    #[cold]
    fn json_failure(&self, body: &[u8]) -> Option<Status> {
        let content_type = self.content_type.as_deref()?;
        if self.content_encoding.is_some()
            || !matches!(content_type::format_of(content_type), Some(Format::Json(_)))
        {
            return None;
        }
        let json_failure = failure::read(body)?;
        // The HTTP status determines more precisely whether to retry.
        let read = status::read(self.status, self.error_code, json_failure.message().to_owned());
        let json_failure = if read.code() == json_failure.code() {
            json_failure.with_retry(read.retry())
        } else {
            json_failure
        };
        Some(match self.error_code {
            Some(number) => json_failure.with_number(number),
            None => json_failure,
        })
    }
}

/// Whether a text answers a request without TLS on a port with TLS: as our servers, nginx, Go and Apache do.
fn expects_tls(body: &[u8]) -> bool {
    let begin = body.get(..MAX_TEXT).unwrap_or(body);
    let says = |words: &&[u8]| begin.windows(words.len()).any(|part| part == *words);
    [
        &b"This port expects TLS"[..],
        b"The plain HTTP request was sent to HTTPS port",
        b"Client sent an HTTP request to an HTTPS server",
        b"speaking plain HTTP to an SSL-enabled server port",
    ]
    .iter()
    .any(says)
}

#[cold]
fn tls_expected() -> Status {
    Status::unavailable(TLS_EXPECTED).with_scope(Scope::Connection).with_retry(Retry::Never)
}

fn is_text(content_type: &[u8]) -> bool {
    content_type.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"text/"))
}

/// How much of a body that is not a message is shown.
const BEGIN: usize = 200;

/// How much of a failed call's body becomes the text of the failure: as much as brpc shows.
const MAX_TEXT: usize = 2048;

/// Returns milliseconds as they can be sent.
fn milliseconds(timeout: Duration) -> u128 {
    to_millis(timeout).min(MAX_TIMEOUT_MS)
}

/// Longest timeout that can be expressed: ten digits.
const MAX_TIMEOUT_MS: u128 = 9_999_999_999;

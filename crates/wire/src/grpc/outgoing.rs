//! A pending call and the state of its response, independent of the transport.

use bytes::Bytes;
use polyrpc_core::{
    CallId, Compression, Fault, Format, Head, Message, Metadata, ReceivedMetadata, Reply, Status,
};
use polyrpc_payload::compress;

use super::dialect::Dialect;
use super::frame::{Assembler, MalformedFrame, PREFIX};
use super::framing::{BodyContent, ResponseDecoder};
use super::incoming::malformed_frame;
use super::{block, coding, metadata, request, status, trailers};
use crate::http::h2::hpack::Fields;

/// A call whose response is not complete yet.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: CallId,
    /// A streaming call: messages are sent and received one by one.
    pub(crate) streamed: bool,
    /// The caller does not wait for the response.
    pub(crate) oneway: bool,
    /// Format of the messages we send.
    format: Format,
    /// Their compression.
    pub(crate) sends: Compression,
    pub(crate) head: Head,
    /// Compression of the response's messages; `None` if it is not supported.
    compression: Option<Compression>,
    /// Valid gRPC response headers were received.
    pub(crate) begun: bool,
    pub(crate) assembler: Assembler,
    /// Message of a unary response.
    pub(crate) message: Option<Message>,
    /// Bytes credited to the peer before they were consumed.
    pub(crate) advanced: usize,
    /// Bytes that the connection counts as held for it.
    pub(crate) counted: usize,
    pub(crate) end: Option<ResponseEnd>,
    /// State that gRPC's own responses do not have.
    dialect: Option<Box<DialectState>>,
}

/// State of a response in another dialect than gRPC's own.
#[derive(Debug)]
enum DialectState {
    Web(WebResponse),
    Framed(Box<dyn ResponseDecoder>),
}

/// Additional state of a gRPC-Web response.
#[derive(Debug)]
struct WebResponse {
    /// Limit in bytes of the trailers.
    limit: usize,
    /// Outcome in the trailers frame after the messages.
    end_message: Option<ResponseEnd>,
    /// Outcome in the headers, which counts if nothing follows (Trailers-Only).
    alone: Option<ResponseEnd>,
    /// Something followed the headers.
    came: bool,
    /// The response is complete.
    ended: bool,
}

/// How a response ended.
#[derive(Debug)]
pub(crate) struct ResponseEnd {
    pub(crate) result: Result<(), Status>,
    pub(crate) trailers: Metadata,
}

impl Outgoing {
    /// Creates the state of a call that is about to be sent. Trailers in the body of its response may have `limit`
    /// bytes.
    pub(crate) fn new(
        id: CallId,
        streamed: bool,
        (format, sends): (Format, Compression),
        dialect: Dialect,
        limit: usize,
    ) -> Self {
        let state = match dialect {
            Dialect::Native => None,
            Dialect::Web | Dialect::WebText => Some(DialectState::Web(WebResponse::new(limit))),
            Dialect::Framed(framing) => Some(DialectState::Framed(framing.response_decoder(format, limit))),
        };
        Self {
            id,
            streamed,
            oneway: false,
            format,
            sends,
            head: Head::default(),
            compression: Some(Compression::None),
            begun: false,
            assembler: Assembler::default(),
            message: None,
            advanced: 0,
            counted: 0,
            end: None,
            dialect: state.map(Box::new),
        }
    }

    /// Reads the response headers. They contain the outcome only if nothing follows (Trailers-Only).
    pub(crate) fn read_head(&mut self, fields: &Fields, end: bool) -> Result<(), Status> {
        if let Some(decoder) = framed_decoder(&mut self.dialect) {
            match decoder.read_head(fields, &mut self.head)? {
                BodyContent::Messages(compression) => (self.compression, self.begun) = (compression, true),
                BodyContent::Failure => {}
            }
            return Ok(());
        }
        let (mut http, mut format) = (0, None);
        let mut is_over = false;
        let mut received = ReceivedMetadata::default();
        let dialect = if self.dialect.is_some() { Dialect::Web } else { Dialect::Native };
        for (name, value) in fields.iter() {
            match name {
                b":status" => {
                    http = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
                }
                b"content-type" => {
                    format =
                        request::kind(value).filter(|(named, _)| *named == dialect).map(|(_, format)| format);
                }
                b"grpc-encoding" => self.compression = coding::read(value),
                b"grpc-status" => is_over = true,
                _ => field(name, value, &mut received),
            }
        }
        self.head.metadata = received.into_metadata();
        if let Some(web) = web_response(&mut self.dialect)
            && is_over
        {
            web.alone = ResponseEnd::read(fields);
        }
        match (http, format) {
            (200, Some(format)) if format != self.format && !is_same(format, self.format) => {
                Err(other_format(self.format, format))
            }
            (200, Some(format)) => {
                (self.head.format, self.begun) = (format, true);
                Ok(())
            }
            _ if is_over && end => Ok(()),
            (200, None) => Err(not_grpc()),
            (http, _) => Err(status::from_http(http)),
        }
    }

    /// Adds a piece of the response body.
    pub(crate) fn push(&mut self, piece: Bytes) {
        match self.dialect.as_deref_mut().filter(|_| !piece.is_empty()) {
            None => {}
            Some(DialectState::Framed(decoder)) => match decoder.take(&piece) {
                Ok(true) => return,
                Ok(false) => {}
                Err(status) => {
                    self.begun = false;
                    self.end = Some(ResponseEnd::failed(status));
                    return;
                }
            },
            Some(DialectState::Web(web)) => {
                web.came = true;
                if web.end_message.take().is_some() {
                    self.end = Some(ResponseEnd::failed(behind_trailers()));
                    return;
                }
            }
        }
        self.assembler.push(piece);
    }

    /// Marks the end of the response body.
    pub(crate) fn body_ended(&mut self) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(match self.dialect.as_deref_mut() {
            None => ResponseEnd::without_status(),
            Some(DialectState::Web(web)) => {
                web.ended = true;
                ResponseEnd::without_status()
            }
            Some(DialectState::Framed(decoder)) => {
                let (result, trailers) = decoder.body_ended();
                ResponseEnd { result, trailers }
            }
        });
    }

    /// Handles HTTP trailers, which follow the whole response.
    pub(crate) fn trailers(&mut self, fields: &Fields) {
        match self.is_framed() {
            true => self.body_ended(),
            false => self.end = Some(ResponseEnd::read(fields).unwrap_or_else(ResponseEnd::without_status)),
        }
    }

    /// Whether the call's dialect has a framing of its own.
    pub(crate) fn is_framed(&self) -> bool {
        matches!(self.dialect.as_deref(), Some(DialectState::Framed(_)))
    }

    /// Returns the decoder of a body that is one message without a prefix.
    fn bare(&self) -> Option<&dyn ResponseDecoder> {
        match self.dialect.as_deref() {
            Some(DialectState::Framed(decoder)) if decoder.is_bare() => Some(&**decoder),
            _ => None,
        }
    }

    /// Bytes of messages that were not taken.
    pub(crate) fn held(&self) -> usize {
        self.assembler.held() + self.bare().map_or(0, |decoder| decoder.held())
    }

    /// Bytes before each message.
    pub(crate) fn prefix(&self) -> usize {
        if self.bare().is_some() { 0 } else { PREFIX }
    }

    /// Returns the next message of the response.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<Message>, Status> {
        if let Some(decoder) = framed_decoder(&mut self.dialect).filter(|decoder| decoder.is_bare()) {
            return Ok(decoder.message());
        }
        let framed = match self.assembler.next(limit) {
            Ok(Some(framed)) => framed,
            Ok(None) => return Ok(None),
            Err(malformed) => return self.no_message(malformed).map(|()| None),
        };
        let compression = match (framed.compressed, self.compression) {
            (false, _) => Compression::None,
            (true, Some(Compression::None)) => {
                return Err(Status::internal("a compressed message without a grpc-encoding"));
            }
            (true, Some(compression)) => compression,
            (true, None) => return Err(unknown_encoding()),
        };
        Ok(Some(Message { body: framed.body, compression }))
    }

    /// Handles a frame that is not a message: it may contain the result of the call.
    #[cold]
    fn no_message(&mut self, malformed: MalformedFrame) -> Result<(), Status> {
        match self.is_framed() {
            true => self.end_of_stream(malformed),
            false => self.trailers_frame(malformed),
        }
    }

    /// Reads the trailers of gRPC-Web.
    fn trailers_frame(&mut self, malformed: MalformedFrame) -> Result<(), Status> {
        let (Some(web), MalformedFrame::Flag(flag @ (TRAILERS | COMPRESSED_TRAILERS))) =
            (web_response(&mut self.dialect), malformed)
        else {
            return Err(malformed_frame(malformed));
        };
        let Some(frame) = self.assembler.frame(web.limit).map_err(malformed_frame)? else { return Ok(()) };
        let text = match (flag, self.compression) {
            (TRAILERS, _) => frame,
            (_, Some(compression)) => compress::decompress(compression, &frame, web.limit)
                .map_err(|error| Status::internal(format!("the trailers: {error}")))?
                .into(),
            (_, None) => return Err(unknown_encoding()),
        };
        if !self.assembler.is_empty() {
            return Err(behind_trailers());
        }
        web.end_message =
            Some(ResponseEnd::read(&trailers::fields(&text)).unwrap_or_else(ResponseEnd::without_status));
        self.begun = false;
        Ok(())
    }

    /// Reads the last message of a stream, in a dialect with a framing of its own.
    fn end_of_stream(&mut self, malformed: MalformedFrame) -> Result<(), Status> {
        let (Some(decoder), MalformedFrame::Flag(flag)) = (framed_decoder(&mut self.dialect), malformed)
        else {
            return Err(malformed_frame(malformed));
        };
        if !decoder.is_end(flag) {
            return Err(malformed_frame(malformed));
        }
        let Some(text) = self.assembler.frame(decoder.limit()).map_err(malformed_frame)? else {
            return Ok(());
        };
        decoder.read_end(flag, &text, self.compression)?;
        if !self.assembler.is_empty() {
            decoder.check_end()?;
        }
        self.begun = false;
        Ok(())
    }

    /// Returns the outcome of the call; `None` if it has not ended.
    pub(crate) fn into_answer(self) -> Option<(CallId, Reply)> {
        let end = self.end?;
        let ResponseEnd { result, trailers } = match self.dialect.map(|state| *state) {
            None => end,
            Some(DialectState::Web(web)) => web.end(end),
            Some(DialectState::Framed(decoder)) => {
                let (result, trailers) = decoder.finish((end.result, end.trailers));
                ResponseEnd { result, trailers }
            }
        };
        let mut head = self.head;
        let result = match (result, self.message) {
            (Err(status), _) => Err(status),
            (Ok(()), _) if !self.assembler.is_empty() => Err(truncated()),
            (Ok(()), None) if self.streamed => Ok(Bytes::new()),
            (Ok(()), None) => Err(not_one("a unary response without a message")),
            (Ok(()), Some(message)) => {
                head.compression = message.compression;
                Ok(message.body)
            }
        };
        Some((self.id, Reply { trailers, ..Reply::new(result, head) }))
    }
}

fn framed_decoder(state: &mut Option<Box<DialectState>>) -> Option<&mut dyn ResponseDecoder> {
    match state.as_deref_mut() {
        Some(DialectState::Framed(decoder)) => Some(&mut **decoder),
        Some(DialectState::Web(_)) | None => None,
    }
}

fn web_response(state: &mut Option<Box<DialectState>>) -> Option<&mut WebResponse> {
    match state.as_deref_mut() {
        Some(DialectState::Web(web)) => Some(web),
        Some(DialectState::Framed(_)) | None => None,
    }
}

impl WebResponse {
    fn new(limit: usize) -> Self {
        Self { limit, end_message: None, alone: None, came: false, ended: false }
    }

    /// Returns how a response ended whose connection reports `end`: by the trailers frame, or by the headers alone.
    fn end(self, end: ResponseEnd) -> ResponseEnd {
        match (self.ended, self.end_message, self.alone) {
            (true, Some(end_message), _) => end_message,
            (true, None, Some(alone)) if !self.came => alone,
            _ => end,
        }
    }
}

impl ResponseEnd {
    /// Parses the outcome; `None` if the fields do not contain one.
    pub(crate) fn read(fields: &Fields) -> Option<Self> {
        let number = fields.get(b"grpc-status")?;
        let mut trailers = ReceivedMetadata::default();
        let (mut message, mut details) = (None, Bytes::new());
        for (name, value) in fields.iter() {
            match name {
                b"grpc-message" => message = Some(value),
                b"grpc-status-details-bin" => details = metadata::decode(value).unwrap_or_default(),
                _ => field(name, value, &mut trailers),
            }
        }
        Some(Self { result: status::read(number, message, details), trailers: trailers.into_metadata() })
    }

    /// Creates the end of a response that failed with `status`.
    pub(crate) fn failed(status: Status) -> Self {
        Self { result: Err(status), trailers: Metadata::new() }
    }

    pub(crate) fn without_status() -> Self {
        Self::failed(no_trailers())
    }
}

/// Flags of a trailers frame.
const TRAILERS: u8 = 0x80;
const COMPRESSED_TRAILERS: u8 = 0x81;

/// Adds a field to the user's metadata.
fn field(name: &[u8], value: &[u8], metadata: &mut ReceivedMetadata) {
    if let Ok(name) = std::str::from_utf8(name)
        && !metadata::is_reserved(name)
    {
        metadata::read(name, value, metadata);
    }
}

/// Returns the failure of a response whose number of messages does not match its method (`doc/statuscodes.md`,
/// "Response cardinality violation").
#[cold]
pub(crate) fn not_one(what: &'static str) -> Status {
    Status::unimplemented(what).with_fault(Fault::Peer)
}

/// Whether two formats share a content type.
#[cold]
fn is_same(one: Format, other: Format) -> bool {
    block::content_type(one) == block::content_type(other)
}

#[cold]
fn other_format(request_format: Format, reply_format: Format) -> Status {
    let name = |format| String::from_utf8_lossy(block::content_type(format));
    let text = format!("the call is {} and its response {}", name(request_format), name(reply_format));
    Status::internal(text).with_fault(Fault::Peer)
}

#[cold]
fn not_grpc() -> Status {
    Status::unknown("the response's content-type is not that of gRPC").with_fault(Fault::Peer)
}

#[cold]
fn unknown_encoding() -> Status {
    Status::internal("the response's grpc-encoding is not supported")
}

#[cold]
fn behind_trailers() -> Status {
    Status::internal("the response continues after its trailers").with_fault(Fault::Peer)
}

#[cold]
fn no_trailers() -> Status {
    Status::internal("the response ended without a grpc-status").with_fault(Fault::Peer)
}

#[cold]
fn truncated() -> Status {
    Status::internal("the response ended inside a message").with_fault(Fault::Peer)
}

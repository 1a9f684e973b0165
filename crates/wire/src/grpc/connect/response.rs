//! Decoding of the response to a call, for every version of HTTP.

use bytes::Bytes;
use polyrpc_core::append::append;
use polyrpc_core::{
    Code, Compression, Fault, Format, Head, Message, Metadata, ReceivedMetadata, Retry, Status,
};
use polyrpc_payload::compress;

use super::kind::{self, Kind};
use super::{frame, status};
use crate::grpc::framing::{BodyContent, CallResult, ResponseDecoder};
use crate::grpc::{coding, metadata};
use crate::http::h2::hpack::Fields;

/// State of a response.
#[derive(Debug)]
pub(crate) struct Response {
    kind: Kind,
    format: Format,
    /// Maximum size of a body that is one message, and of the last message of a stream.
    limit: usize,
    http: u16,
    /// The body is a failure.
    is_failure: bool,
    compression: Option<Compression>,
    /// Received part of a body that is one message or a failure.
    body: Vec<u8>,
    /// Trailers received in the head.
    trailers: Metadata,
    /// Content of the last message of a stream.
    end_message: Option<CallResult>,
    /// The response has been received completely.
    ended: bool,
}

impl Response {
    pub(crate) fn new(kind: Kind, format: Format, limit: usize) -> Self {
        Self {
            kind,
            format,
            limit,
            http: 0,
            is_failure: false,
            compression: Some(Compression::None),
            body: Vec::new(),
            trailers: Metadata::new(),
            end_message: None,
            ended: false,
        }
    }

    /// Stores a field of the user, which may be a trailer.
    fn field(
        &self,
        name: &[u8],
        value: &[u8],
        metadata: &mut ReceivedMetadata,
        trailers: &mut ReceivedMetadata,
    ) {
        let Ok(name) = std::str::from_utf8(name) else { return };
        if metadata::is_reserved(name) {
            return;
        }
        match name.strip_prefix("trailer-").filter(|_| self.kind == Kind::Unary) {
            Some(name) => metadata::read(name, value, trailers),
            None => metadata::read(name, value, metadata),
        }
    }

    #[cold]
    fn failure(&self) -> Status {
        let plain = match self.compression {
            Some(Compression::None) => None,
            Some(compression) => compress::decompress(compression, &self.body, self.limit).ok(),
            None => return status::bare(self.http),
        };
        let text = plain.as_deref().unwrap_or(&self.body);
        let fallback = status::from_http(self.http);
        serde_json::from_slice(text)
            .ok()
            .and_then(|error| status::read(&error, fallback))
            .unwrap_or_else(|| status::bare(self.http))
    }
}

impl ResponseDecoder for Response {
    fn is_bare(&self) -> bool {
        self.kind == Kind::Unary
    }

    fn read_head(&mut self, fields: &Fields, head: &mut Head) -> Result<BodyContent, Status> {
        let mut content_type = &b""[..];
        let (mut metadata, mut trailers) = (ReceivedMetadata::default(), ReceivedMetadata::default());
        let encoding: &[u8] = match self.kind {
            Kind::Unary => b"content-encoding",
            _ => b"connect-content-encoding",
        };
        for (name, value) in fields.iter() {
            match name {
                b":status" => {
                    self.http =
                        std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                }
                b"content-type" => content_type = value,
                name if name == encoding => self.compression = coding::read(value),
                b"content-encoding" | b"accept-post" | b"vary" | b"date" => {}
                name if name.starts_with(b"connect-") => {}
                name => self.field(name, value, &mut metadata, &mut trailers),
            }
        }
        (head.metadata, self.trailers) = (metadata.into_metadata(), trailers.into_metadata());
        let named = kind::from_content_type(content_type);
        match (self.http, named) {
            (200, Some((kind, format))) if kind == self.kind && is_same(format, self.format) => {
                head.format = format;
                match (self.kind, self.compression) {
                    (Kind::Unary, None) => Err(unknown_compression()),
                    (_, compression) => Ok(BodyContent::Messages(compression)),
                }
            }
            (200, _) => Err(other_type(self.kind, content_type)),
            (_, Some((Kind::Unary, Format::Json(_)))) if self.kind == Kind::Unary => {
                self.is_failure = true;
                Ok(BodyContent::Failure)
            }
            (http, _) => Err(status::bare(http)),
        }
    }

    fn take(&mut self, piece: &[u8]) -> Result<bool, Status> {
        if !self.is_bare() {
            return self.check_end().map(|()| false);
        }
        if piece.len() > self.limit.saturating_sub(self.body.len()) {
            return Err(too_large(self.limit));
        }
        append(&mut self.body, piece);
        Ok(true)
    }

    fn body_ended(&mut self) -> CallResult {
        self.ended = true;
        let trailers = std::mem::take(&mut self.trailers);
        match self.kind {
            Kind::Unary if self.is_failure => (Err(self.failure()), trailers),
            Kind::Unary => (Ok(()), trailers),
            // The buffered last messages are not decoded yet.
            _ => (Err(without_end()), Metadata::new()),
        }
    }

    fn message(&mut self) -> Option<Message> {
        if !self.ended || self.is_failure {
            return None;
        }
        self.ended = false;
        let body = Bytes::from(std::mem::take(&mut self.body));
        let compression = self.compression.filter(|_| !body.is_empty()).unwrap_or_default();
        Some(Message { body, compression })
    }

    fn is_end(&self, flag: u8) -> bool {
        matches!(flag, frame::END | frame::COMPRESSED_END)
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn read_end(&mut self, flag: u8, text: &Bytes, compression: Option<Compression>) -> Result<(), Status> {
        let plain = match (flag, compression) {
            (frame::END, _) => None,
            (_, Some(Compression::None)) => {
                return Err(Status::internal("a compressed message without a declared encoding"));
            }
            (_, Some(compression)) => Some(
                compress::decompress(compression, text, self.limit)
                    .map_err(|error| Status::internal(format!("the end of the stream: {error}")))?,
            ),
            (_, None) => return Err(unknown_compression()),
        };
        let (result, trailers) = frame::read_end(plain.as_deref().unwrap_or(text))
            .ok_or_else(|| Status::internal("the end of the stream is malformed").with_fault(Fault::Peer))?;
        self.end_message = Some((result, trailers));
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), Status> {
        match self.end_message.take() {
            None => Ok(()),
            Some(_) => Err(Status::internal("the response continues after its end").with_fault(Fault::Peer)),
        }
    }

    fn held(&self) -> usize {
        self.body.len()
    }

    fn finish(self: Box<Self>, end: CallResult) -> CallResult {
        match (self.ended, self.end_message) {
            (true, Some(end_message)) => end_message,
            _ => end,
        }
    }
}

/// Whether two formats have the same name.
fn is_same(one: Format, other: Format) -> bool {
    one == other || kind::name(one) == kind::name(other)
}

/// Status of a response whose content type differs from the request's: INTERNAL if it looks like one of Connect.
#[cold]
fn other_type(kind: Kind, content_type: &[u8]) -> Status {
    let start: &[u8] = if kind == Kind::Stream { kind::STREAM } else { b"application/" };
    let code = if content_type.starts_with(start) { Code::Internal } else { Code::Unknown };
    let content_type = String::from_utf8_lossy(content_type);
    Status::new(code, format!("the response has the content type {content_type:?}, which was not requested"))
        .with_fault(Fault::Peer)
}

#[cold]
fn too_large(limit: usize) -> Status {
    Status::resource_exhausted(format!("the response exceeds the limit of {limit} bytes"))
        .with_fault(Fault::Peer)
        .with_retry(Retry::Never)
}

#[cold]
fn unknown_compression() -> Status {
    Status::internal("the compression of the response is not supported").with_fault(Fault::Peer)
}

#[cold]
fn without_end() -> Status {
    Status::internal("the response ended without the message that ends a stream").with_fault(Fault::Peer)
}

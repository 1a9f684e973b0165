//! The head of a request: method and kind of the call.

use bytes::Bytes;
use polyrpc_core::{Compression, Format, Json, ReceivedMetadata, Status};

use super::kind::{self, Kind};
use super::query::{self, unknown_compression};
use crate::grpc::coding;
use crate::grpc::dialect::Dialect;
use crate::grpc::framing::Framing as _;
use crate::grpc::request::{Request, RequestExtra, field, two_credentials};
use crate::grpc::request_reader::{Hint, RequestReader};
use crate::http::h2::hpack::Fields;
use crate::http::mapping::text::milliseconds;

/// Reads the requests of calls, of every kind.
pub(crate) struct Reader;

impl RequestReader for Reader {
    fn hint(&self, name: &str, value: &[u8]) -> Hint {
        match name {
            "content-type" if value.starts_with(kind::STREAM) => Hint::Certain,
            "content-type" if kind::is_stream(value) => Hint::Possible,
            "connect-protocol-version" => Hint::Certain,
            "accept" if value.len() >= kind::SHORTEST && kind::from_accept(value).is_some() => Hint::Possible,
            _ => Hint::None,
        }
    }

    fn is_call(&self, query: &str) -> bool {
        query::is_call(query.as_bytes())
    }

    fn read(&self, head: &Fields) -> Option<Request> {
        read(head)
    }

    fn accepted_types(&self) -> &'static str {
        kind::ACCEPTED_POST
    }
}

#[cold]
fn read(head: &Fields) -> Option<Request> {
    let Shape { kind, format, path, compression, message, refusal } = Shape::read(head.iter())?;
    let mut request = Request::bare(Dialect::Framed(kind.framing()), format);
    request.name(path).ok()?;
    (request.compression, request.has_unary_request) = (compression, kind.has_bare_request());
    let mut extra = RequestExtra { message, refusal };
    let mut metadata = ReceivedMetadata::default();
    for (name, value) in head.iter() {
        if let Err(status) = read_field(&mut request, kind, (name, value), &mut metadata) {
            extra.refusal.get_or_insert(status);
        }
    }
    request.metadata = metadata.into_metadata();
    if extra.message.is_some() || extra.refusal.is_some() {
        request.extra = Some(Box::new(extra));
    }
    Some(request)
}

/// Applies one field.
fn read_field(
    request: &mut Request,
    kind: Kind,
    (name, value): (&[u8], &[u8]),
    metadata: &mut ReceivedMetadata,
) -> Result<(), Status> {
    let (encoding, accepts): (&[u8], &[u8]) = match kind {
        Kind::Stream => (b"connect-content-encoding", b"connect-accept-encoding"),
        Kind::Unary | Kind::Lines | Kind::Events => (b"content-encoding", b"accept-encoding"),
    };
    match name {
        b"connect-protocol-version" if value != b"1" => {
            return Err(Status::invalid_argument("the Connect-Protocol-Version is not 1"));
        }
        b"connect-timeout-ms" => {
            let wrong =
                || Status::invalid_argument("the Connect-Timeout-Ms is not a number of up to ten digits");
            request.timeout = Some(milliseconds(value).ok_or_else(wrong)?);
        }
        b"authorization" => {
            if request.credential.replace(Bytes::copy_from_slice(value)).is_some() {
                return Err(two_credentials());
            }
            field(name, value, metadata);
        }
        name if name == encoding => {
            request.compression = coding::read(value).ok_or_else(|| unknown_compression(value))?;
        }
        name if name == accepts && !kind.is_text() => request.accepts.add(value),
        b"content-encoding" | b"accept-encoding" => {}
        name if name.starts_with(b"connect-") => {}
        name => field(name, value, metadata),
    }
    Ok(())
}

/// Kind of call that a head describes.
struct Shape<'f> {
    kind: Kind,
    format: Format,
    path: &'f [u8],
    compression: Compression,
    message: Option<Bytes>,
    refusal: Option<Status>,
}

impl<'f> Shape<'f> {
    fn read(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Option<Self> {
        let (mut method, mut target, mut content_type) = (&b""[..], &b""[..], None);
        let (mut versioned, mut wanted) = (false, None);
        for (name, value) in fields {
            match name {
                b":method" => method = value,
                b":path" => target = value,
                b"content-type" => content_type = Some(value),
                b"connect-protocol-version" => versioned = true,
                b"accept" => wanted = wanted.or_else(|| kind::from_accept(value)),
                _ => {}
            }
        }
        let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let (path, query) = target.split_at(end);
        match method {
            b"POST" => Self::from_post(path, content_type?, versioned, wanted),
            b"GET" => Self::from_get(path, query.get(1..)?, wanted),
            _ => None,
        }
    }

    /// A body that is one message is a call by brpc's mapping, unless the head contains the protocol version or accepts
    /// a response of many messages.
    fn from_post(path: &'f [u8], content_type: &[u8], versioned: bool, wanted: Option<Kind>) -> Option<Self> {
        let (kind, format) = match (kind::from_content_type(content_type)?, wanted) {
            ((Kind::Unary, Format::Json(_)), Some(wanted)) => (wanted, Format::Json(Json::Proto3)),
            ((Kind::Unary, _), _) if !versioned => return None,
            (named, _) => named,
        };
        Some(Self { kind, format, path, compression: Compression::None, message: None, refusal: None })
    }

    fn from_get(path: &'f [u8], query: &[u8], wanted: Option<Kind>) -> Option<Self> {
        if !query::is_call(query) {
            return None;
        }
        let kind = wanted.unwrap_or(Kind::Unary);
        let shape = |format, compression, message, refusal| Self {
            kind,
            format,
            path,
            compression,
            message: Some(message),
            refusal,
        };
        Some(match query::read(query) {
            Err(status) => shape(Format::Json(Json::Proto3), Compression::None, Bytes::new(), Some(status)),
            Ok(query::Query { format, compression, message }) => {
                let refusal = (kind.is_text() && !matches!(format, Format::Json(_)))
                    .then(|| Status::invalid_argument("messages in lines and events are JSON"));
                shape(format, compression, message, refusal)
            }
        })
    }
}

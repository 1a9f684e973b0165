//! brpc's mapping of calls to HTTP: `POST /Service/Method` (brpc `policy/http_rpc_protocol.cpp`).

use std::sync::Arc;

use bytes::Bytes;

use polyrpc_core::session::Missing;
use polyrpc_core::{Call, Compression, Format, Json, Metadata, Reply, Status};
use polyrpc_payload::compress;

use super::accept::Accepted;
use super::asked::Answer;
use super::head::WriteHead;
use super::request::{Method, Request};
use super::session::{Offers, ServerConfig};
use super::{accept, frame, status};

/// The metadata key for what a path holds behind the method: brpc's `unresolved_path`.
pub(super) const UNRESOLVED_PATH: &str = "x-bd-unresolved-path";

/// A path told apart: its components, the empty ones ignored.
pub(super) struct Path<'a> {
    pub(super) service: &'a str,
    pub(super) method: &'a str,
    rest: Option<String>,
}

impl<'a> Path<'a> {
    pub(super) fn parse(path: &'a str) -> Self {
        let mut components = path.split('/').filter(|component| !component.is_empty());
        let (service, method) =
            (components.next().unwrap_or_default(), components.next().unwrap_or_default());
        let rest = components.next().map(|first| {
            components.fold(first.to_owned(), |mut rest, component| {
                rest.push('/');
                rest.push_str(component);
                rest
            })
        });
        Self { service, method, rest }
    }

    /// The failure of a call to it, if no method has it.
    #[cold]
    pub(super) fn unknown(&self) -> Status {
        let mut call = Call::new(self.service, self.method, DEFAULT, Bytes::new());
        if let Some(rest) = &self.rest {
            call.head.metadata.insert(UNRESOLVED_PATH, rest.clone());
        }
        unknown(&call, Missing::Service)
    }

    /// Notes in `metadata` what is behind the method.
    pub(super) fn note_rest(self, metadata: &mut Metadata) {
        if let Some(rest) = self.rest {
            metadata.insert(UNRESOLVED_PATH, rest);
        }
    }
}

/// The failure of a call to what does not exist. brpc tells a missing service like a missing method.
#[cold]
pub(super) fn unknown(call: &Call<'_>, missing: Missing) -> Status {
    let text = match missing {
        Missing::Method if call.method.is_empty() => {
            format!("Missing method name for service={}", call.service)
        }
        _ => {
            let rest = call.head.metadata.get(UNRESOLVED_PATH);
            let parts = [call.service, call.method, rest.unwrap_or_default()];
            let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            format!("Fail to find method on `/{path}'")
        }
    };
    Status::unimplemented(text).with_number(status::ENOMETHOD)
}

/// Checks what the head of a request says before it is a call, and tells how its message is written and compressed.
///
/// # Errors
///
/// The answer to a request that calls nothing.
pub(super) fn check(
    config: &ServerConfig,
    request: &Request,
    path: &Path<'_>,
) -> Result<(Format, Compression), Answer> {
    let compression = request.compression().ok_or(Answer::UnsupportedCoding)?;
    let content_type = request.content_type.as_deref();
    let format = content_type.map_or(Some(DEFAULT), format_of);
    match format {
        _ if config.lenient => {
            lenient_format(content_type, format).ok_or_else(|| Answer::unsupported_type(content_type))
        }
        _ if request.method != Method::Post => match calls_without_effects(config, request.method, path) {
            true => Ok(format.unwrap_or(DEFAULT)),
            false => Err(calls_nothing(config, path, content_type)),
        },
        // A page may send a body without a type, as it may send plain text.
        _ if content_type.is_none() && request.from_page => Err(Answer::unsupported_type(content_type)),
        Some(format) => Ok(format),
        None => Err(Answer::unsupported_type(content_type)),
    }
    .and_then(|format| Ok((dialect(config, request, format)?, compression)))
}

/// The format, in the dialect of JSON that the request wants or, if it does not say, that the listener has.
///
/// What is read is the same in all of them but the lenient one, so that the call is in the dialect of its answer.
fn dialect(config: &ServerConfig, request: &Request, format: Format) -> Result<Format, Answer> {
    match format {
        Format::Json(named) => Ok(Format::Json(match wanted(request)? {
            Some((Json::Brpc, _)) if config.json() == Json::BrpcLenient => Json::BrpcLenient,
            Some((dialect, _)) => dialect,
            None if named == Json::Brpc => config.json(),
            None => named,
        })),
        format => Ok(format),
    }
}

/// The dialect of JSON that a request wants to be answered in, and its content type.
///
/// # Errors
///
/// The answer to a request that wants what there is not.
pub(super) fn wanted(request: &Request) -> Result<Option<(Json, &'static str)>, Answer> {
    match accept::dialect(request.metadata.bytes("accept").map(|value| &value[..])) {
        Accepted::Any => Ok(None),
        Accepted::Dialect(dialect, content_type) => Ok(Some((dialect, content_type))),
        Accepted::Unknown => Err(Answer::Failed(406, "the dialects of JSON are brpc, proto3 and go\n")),
    }
}

/// The answer to another method of HTTP than those that call.
#[cold]
fn calls_nothing(config: &ServerConfig, path: &Path<'_>, content_type: Option<&[u8]>) -> Answer {
    let offers = |methods: &Arc<dyn Offers>| methods.offers(path.service, path.method);
    match config.methods.as_ref().is_none_or(offers) {
        true => Answer::other_verb("POST".to_owned(), content_type),
        false => Answer::no_method(path, content_type),
    }
}

/// Whether a GET may call: browsers send it for any link.
fn calls_without_effects(config: &ServerConfig, method: Method, path: &Path<'_>) -> bool {
    matches!(method, Method::Get | Method::Head)
        && config.routes.has_no_side_effects(path.service, path.method)
}

/// brpc takes what it does not know for JSON. Images are none, whatever brpc would make of them.
fn lenient_format(content_type: Option<&[u8]>, format: Option<Format>) -> Option<Format> {
    match content_type {
        Some(content_type) if is_no_message(content_type) => None,
        _ => Some(format.unwrap_or(DEFAULT)),
    }
}

/// What answering a call takes.
#[derive(Debug)]
pub(crate) struct Ticket {
    format: Format,
    /// The `Content-Type` of a response in that format: what the request asked for, or its own, unless that is none of a
    /// message.
    content_type: Option<Bytes>,
    accepts_gzip: bool,
}

impl Ticket {
    pub(super) fn new(request: &Request, format: Format, config: &ServerConfig) -> Self {
        // A form is no answer, though brpc gives it back.
        let repeats = |own: &Bytes| format_of(own).is_some() || config.json() == Json::BrpcLenient;
        let own = || request.content_type.clone().filter(repeats).map(without_charset);
        let wanted = match format {
            Format::Json(_) => wanted(request).ok().flatten(),
            _ => None,
        };
        let content_type = wanted.map(|(_, named)| Bytes::from_static(named.as_bytes())).or_else(own);
        Self { format, content_type, accepts_gzip: request.accepts_gzip }
    }

    /// Writes the head of the response and returns its body.
    pub(super) fn answer(self, mut reply: Reply, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match reply.result {
            Err(status) => failure(&status, &reply.head.metadata, config, head),
            Ok(_) if !reply.attachment.is_empty() => {
                // brpc: an attachment is the whole body; its type is what the handler says, or nothing.
                let content_type = reply.head.metadata.remove(CONTENT_TYPE);
                let body = reply.attachment;
                self.message(
                    body,
                    content_type.as_deref(),
                    reply.head.compression,
                    &reply.head.metadata,
                    head,
                )
            }
            Ok(body) => {
                let own = reply.head.metadata.remove(CONTENT_TYPE);
                let content_type = match (&own, &self.content_type) {
                    (Some(own), _) => own,
                    (None, Some(theirs)) if self.format == reply.head.format => &theirs[..],
                    (None, _) => content_type(reply.head.format).unwrap_or(OCTETS).as_bytes(),
                };
                self.message(body, Some(content_type), reply.head.compression, &reply.head.metadata, head)
            }
        }
    }

    fn message(
        &self,
        body: Bytes,
        content_type: Option<&[u8]>,
        wanted: Compression,
        metadata: &Metadata,
        head: &mut impl WriteHead,
    ) -> Bytes {
        let gzip = wanted == Compression::Gzip && self.accepts_gzip && body.len() >= GZIP_FROM;
        let zipped = if gzip { compress::compress(Compression::Gzip, &body).ok() } else { None };
        let coding = zipped.is_some();
        let body = zipped.map_or(body, Bytes::from);
        head.begin(200, Some(body.len()));
        if let Some(content_type) = content_type {
            head.lenient_field("Content-Type", content_type);
        }
        if coding {
            head.field("Content-Encoding", b"gzip");
        }
        frame::metadata_fields(head, metadata);
        body
    }
}

/// Writes the head of a failed call's response and returns its body: JSON, or brpc's `[address][E1002]text`.
#[cold]
pub(crate) fn failure(
    status: &Status,
    metadata: &Metadata,
    config: &ServerConfig,
    head: &mut impl WriteHead,
) -> Bytes {
    let (http, number) = status::write(status);
    let body = match config.json() {
        Json::BrpcLenient => {
            let body = format!("[{}][E{number}]{}", config.address, status.message());
            head.begin(http, Some(body.len()));
            head.field("Content-Type", b"text/plain");
            body.into()
        }
        _ => super::failure::write(http, status, head),
    };
    head.field(ERROR_CODE, number.to_string().as_bytes());
    status::fields(http, status, head);
    if !metadata.is_empty() {
        let mut metadata = metadata.clone();
        metadata.remove(ERROR_CODE);
        frame::metadata_fields(head, &metadata);
    }
    body
}

/// The failure of a refused credential, in brpc's words where it has none.
#[cold]
pub(super) fn named(status: Status) -> Status {
    match status.message() {
        "" => {
            let named = Status::new(status.code(), NOT_AUTHENTICATED);
            status.number().into_iter().fold(named, Status::with_number)
        }
        _ => status,
    }
}

const NOT_AUTHENTICATED: &str = "Fail to authenticate";

/// Writes the head of the response to the first request of a connection whose credential was refused, and
/// returns its body. brpc answers it with another status than a handler's `ERPCAUTH`, without the address
/// and without a type.
#[cold]
pub(super) fn refuse(status: &Status, head: &mut impl WriteHead) -> Bytes {
    let body = match status.message() {
        "" | NOT_AUTHENTICATED => format!("[{}]{NOT_AUTHENTICATED}", status::ERPCAUTH),
        reason => format!("[{}]{NOT_AUTHENTICATED}: {reason}", status::ERPCAUTH),
    };
    head.begin(403, Some(body.len()));
    body.into()
}

/// Whether a body of this `Content-Type` cannot be a message, whatever brpc would make of it.
fn is_no_message(content_type: &[u8]) -> bool {
    [&b"image/"[..], b"audio/", b"video/", b"font/"]
        .iter()
        .any(|kind| content_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)))
}

/// A `Content-Type` as an answer has it: it may say that its text is UTF-8, as it is, and no more.
fn without_charset(content_type: Bytes) -> Bytes {
    let mut parts = content_type.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let essence = parts.next().unwrap_or_default();
    let is_true = |parameter: &[u8]| {
        [&b"charset=utf-8"[..], b"charset=\"utf-8\"", b""]
            .iter()
            .any(|known| parameter.eq_ignore_ascii_case(known))
    };
    if parts.all(is_true) { content_type } else { content_type.slice_ref(essence) }
}

/// How a body of this `Content-Type` is written, if it is one that is known. Parameters are ignored. MessagePack and
/// plain bytes are ours, the others brpc's.
pub(super) fn format_of(content_type: &[u8]) -> Option<Format> {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let known = FORMATS.iter().find(|(name, _)| essence.eq_ignore_ascii_case(name.as_bytes()));
    known.map(|(_, format)| *format)
}

/// The `Content-Type` of a format, if it has one.
pub(super) fn content_type(format: Format) -> Option<&'static str> {
    match format {
        Format::Json(Json::Proto3) => Some(PROTO_JSON),
        Format::Json(_) => Some(JSON),
        _ => FORMATS.iter().find(|(_, known)| *known == format).map(|(name, _)| *name),
    }
}

/// The first name of each format is the one that is written.
const FORMATS: [(&str, Format); 10] = [
    (JSON, Format::Json(Json::Brpc)),
    ("application/proto", Format::Protobuf),
    ("application/x-protobuf", Format::Protobuf),
    ("application/protobuf", Format::Protobuf),
    (PROTO_JSON, Format::Json(Json::Proto3)),
    ("application/proto-text", Format::ProtoText),
    ("application/msgpack", Format::MessagePack),
    ("application/x-msgpack", Format::MessagePack),
    ("application/x-flatbuffers", Format::FlatBuffers),
    (OCTETS, Format::Raw),
];

/// The types of [`FORMATS`], for a client that used another.
pub(super) const ACCEPTED_TYPES: &str = "application/json, application/proto, application/x-protobuf, \
    application/protobuf, application/proto-json, application/proto-text, application/msgpack, \
    application/x-msgpack, application/x-flatbuffers, application/octet-stream";

/// How a body without a type is written.
pub(super) const DEFAULT: Format = Format::Json(Json::Brpc);

/// The `Content-Type` of JSON.
pub(super) const JSON: &str = "application/json";
/// The `Content-Type` of canonical JSON, as brpc calls it.
pub(super) const PROTO_JSON: &str = "application/proto-json";
/// The `Content-Type` of bytes that mean nothing to the framework.
pub(super) const OCTETS: &str = "application/octet-stream";
/// The field that holds brpc's number of a failure.
pub(super) const ERROR_CODE: &str = "x-bd-error-code";
/// The only `content-*` field a handler may set, by metadata of this key.
const CONTENT_TYPE: &str = "content-type";

/// From this size on a body is worth compressing: brpc's `http_body_compress_threshold`.
const GZIP_FROM: usize = 512;

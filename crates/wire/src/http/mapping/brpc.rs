//! brpc's mapping of calls to HTTP: `POST /Service/Method` (brpc `policy/http_rpc_protocol.cpp`).

use bytes::Bytes;
use polyrpc_core::session::NotFound;
use polyrpc_core::{Call, Compression, Format, Json, Metadata, Reply, Status};
use polyrpc_payload::compress;

use super::accept::{AcceptPreference, parse_accept};
use super::config::ServerConfig;
use super::content_type::{DEFAULT, OCTETS, content_type, format_of};
use super::request::Request;
use super::{failure, status};
use crate::http::head::{WriteHead, metadata_fields};

/// Metadata key for the part of a path after the method: brpc's `unresolved_path`.
pub(crate) const UNRESOLVED_PATH: &str = "x-bd-unresolved-path";

/// A path split into components; empty ones are ignored.
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

    /// Whether another server or proxy could take this path for another one: it would resolve dots, or decode a
    /// separator. Nothing is decoded here.
    pub(super) fn is_ambiguous(&self) -> bool {
        [self.service, self.method].into_iter().any(is_normalized_by_proxies)
            || self.rest.as_deref().is_some_and(has_dot_segments)
    }

    /// Returns the failure of a call to this path if no method matches it.
    #[cold]
    pub(super) fn not_found(&self) -> Status {
        let mut call = Call::new(self.service, self.method, DEFAULT, Bytes::new());
        if let Some(rest) = &self.rest {
            call.head.metadata.insert(UNRESOLVED_PATH, rest.clone());
        }
        not_found(&call, NotFound::Service)
    }

    /// Stores the part after the method in `metadata`.
    pub(super) fn record_unresolved_path(self, metadata: &mut Metadata) {
        if let Some(rest) = self.rest {
            metadata.insert(UNRESOLVED_PATH, rest);
        }
    }
}

/// Whether the part of a path after the method has `.` or `..` as a decoded component. Other encoded separators are
/// allowed there, since that part does not select a method.
fn has_dot_segments(rest: &str) -> bool {
    let has_dots =
        |path: &str| path.split(['/', '\\']).any(|part| matches!(part.split(';').next(), Some("." | "..")));
    if !rest.contains('%') {
        return has_dots(rest);
    }
    let lower = rest.to_ascii_lowercase();
    has_dots(&lower.replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\"))
}

/// Whether a proxy that normalizes paths would resolve or split this path component.
fn is_normalized_by_proxies(component: &str) -> bool {
    let bytes = component.as_bytes();
    if matches!(component, "." | "..") || component.starts_with(".;") || component.starts_with("..;") {
        return true;
    }
    bytes.contains(&b'\\') || bytes.contains(&b'%') && bytes.windows(3).any(is_encoded_separator)
}

/// Whether these are an encoded dot, slash, backslash or zero byte.
#[cold]
fn is_encoded_separator(bytes: &[u8]) -> bool {
    [b"%2e", b"%2f", b"%5c", b"%00"].iter().any(|encoded| bytes.eq_ignore_ascii_case(*encoded))
}

/// Returns the failure of a call to an unknown service or method. brpc reports a missing service like a missing method.
#[cold]
pub(super) fn not_found(call: &Call<'_>, missing: NotFound) -> Status {
    let text = match missing {
        NotFound::Method if call.method.is_empty() => {
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

/// Data needed to answer a call.
#[derive(Debug)]
pub(crate) struct Ticket {
    format: Format,
    /// `Content-Type` of a response in that format: the requested one, or the request's own, unless it is not one of a
    /// message.
    content_type: Option<Bytes>,
    accepts_gzip: bool,
}

impl Ticket {
    pub(super) fn new(request: &Request, format: Format, config: &ServerConfig) -> Self {
        // A form is not a valid response, although brpc echoes its type.
        let repeats = |own: &Bytes| format_of(own).is_some() || config.json() == Json::BrpcLenient;
        let own = || request.content_type.clone().filter(repeats).map(without_charset);
        let named = match format {
            Format::Json(_) => match parse_accept(request) {
                AcceptPreference::Dialect(_, named) => Some(Bytes::from_static(named.as_bytes())),
                AcceptPreference::Any | AcceptPreference::Unknown => None,
            },
            _ => None,
        };
        let content_type = named.or_else(own);
        Self { format, content_type, accepts_gzip: request.accepts_gzip }
    }

    /// Writes the head of the response and returns its body.
    pub(super) fn answer(self, mut reply: Reply, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match reply.result {
            Err(status) => failure(&status, &reply.head.metadata, config, head),
            Ok(_) if !reply.attachment.is_empty() => {
                // brpc: an attachment is the whole body; its type is set by the handler, or absent.
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
        metadata_fields(head, metadata);
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
        _ => failure::write(http, status, head),
    };
    head.field(ERROR_CODE, number.to_string().as_bytes());
    status::fields(http, status, head);
    if !metadata.is_empty() {
        let mut metadata = metadata.clone();
        metadata.remove(ERROR_CODE);
        metadata_fields(head, &metadata);
    }
    body
}

/// Returns the failure of a rejected credential, with brpc's text if it has none.
#[cold]
pub(super) fn with_default_text(status: Status) -> Status {
    match status.message() {
        "" => {
            let named = Status::new(status.code(), NOT_AUTHENTICATED);
            status.number().into_iter().fold(named, Status::with_number)
        }
        _ => status,
    }
}

const NOT_AUTHENTICATED: &str = "Fail to authenticate";

/// Writes the head of the response to the first request of a connection whose credential was rejected, and returns its
/// body. brpc answers it with another status than a handler's `ERPCAUTH`, without the address and without a content
/// type.
#[cold]
pub(super) fn refuse(status: &Status, head: &mut impl WriteHead) -> Bytes {
    let body = match status.message() {
        "" | NOT_AUTHENTICATED => format!("[{}]{NOT_AUTHENTICATED}", status::ERPCAUTH),
        reason => format!("[{}]{NOT_AUTHENTICATED}: {reason}", status::ERPCAUTH),
    };
    head.begin(403, Some(body.len()));
    body.into()
}

/// Returns a `Content-Type` for a response: its parameters are dropped, unless they only state UTF-8.
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

/// Field with brpc's error number.
pub(crate) const ERROR_CODE: &str = "x-bd-error-code";
/// Metadata key of the only `content-*` field that a handler may set.
const CONTENT_TYPE: &str = "content-type";

/// Minimum size of a compressed body: brpc's `http_body_compress_threshold`.
const GZIP_FROM: usize = 512;

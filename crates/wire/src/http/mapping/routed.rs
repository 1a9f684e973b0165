//! Calls by the verbs and paths that a `.proto` declares (`google.api.http`), in canonical JSON.

use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::{Code, Compression, Format, Json, Reply, Retry, Status};
use polyrpc_payload::compress;

use super::asked::Answer;
use super::config::ServerConfig;
use super::request::{Method, Request};
use super::{brpc, content_type, failure, status};
use crate::http::head::{WriteHead, metadata_fields};
use crate::http::rule::Route;

/// What answering a call takes.
#[derive(Debug)]
pub(crate) struct Ticket(pub(super) Arc<Route>);

impl Ticket {
    /// Writes the head of the response and returns its body.
    pub(super) fn answer(self, reply: Reply, head: &mut impl WriteHead) -> Bytes {
        match reply.result {
            Ok(message) => {
                let body = self.0.response(message);
                head.begin(200, Some(body.len()));
                head.field("Content-Type", content_type::JSON.as_bytes());
                metadata_fields(head, &reply.head.metadata);
                body
            }
            Err(status) => {
                let body = failure(&status, head);
                metadata_fields(head, &reply.head.metadata);
                body
            }
        }
    }
}

/// Checks what the head of a request says before it is a call, and tells how its body is compressed, and in which JSON
/// it is answered: the canonical one, of which the rules speak, unless it asks for another.
///
/// # Errors
///
/// The answer to a request that calls nothing.
pub(super) fn check(config: &ServerConfig, request: &Request) -> Result<(Compression, Json), Answer> {
    let compression = request.compression().ok_or(Answer::UnsupportedCoding)?;
    // A page sends a POST of plain text to any server; the other verbs with a body only after it has asked.
    let is_json = match request.content_type.as_deref() {
        Some(content_type) => matches!(content_type::format_of(content_type), Some(Format::Json(_))),
        None => !request.from_page,
    };
    match is_json || request.method != Method::Post || config.lenient {
        true => Ok((compression, brpc::wanted(request)?.map_or(Json::Proto3, |(dialect, _)| dialect))),
        false => Err(Answer::unsupported_type(request.content_type.as_deref())),
    }
}

/// A body with its compression undone.
///
/// # Errors
///
/// Why it cannot be read.
pub(super) fn plain(compression: Compression, body: Bytes, limit: usize) -> Result<Bytes, Status> {
    if compression == Compression::None {
        return Ok(body);
    }
    let plain = compress::decompress(compression, &body, limit);
    plain.map(Bytes::from).map_err(|error| match error {
        compress::Error::TooLarge { .. } => {
            Status::resource_exhausted(error.to_string()).with_retry(Retry::Never)
        }
        _ => Status::invalid_argument(error.to_string()),
    })
}

/// Writes the head of a failed call's response and returns its body: a `google.rpc.Status` as JSON.
#[cold]
pub(super) fn failure(status: &Status, head: &mut impl WriteHead) -> Bytes {
    let http = http(status);
    let body = failure::write(http, status, head);
    status::fields(http, status, head);
    body
}

/// The HTTP status of a failure, as `google/rpc/code.proto` of googleapis has it for its code, but for a message that is
/// too large whoever reads it.
fn http(failure: &Status) -> u16 {
    match failure.code() {
        _ if status::is_too_large(failure) => 413,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
    }
}

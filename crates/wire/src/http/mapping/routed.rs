//! Calls by the HTTP methods and paths that a `.proto` declares (`google.api.http`), in canonical JSON.

use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::{Code, Compression, Reply, Retry, Status};
use polyrpc_payload::compress;

use super::{content_type, failure, status};
use crate::http::head::{WriteHead, metadata_fields};
use crate::http::rule::Route;

/// Data needed to answer a call.
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

/// Decompresses a body.
///
/// # Errors
///
/// If the body cannot be decompressed.
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

/// Returns the HTTP status of a failure, as defined for its code in `google/rpc/code.proto` of googleapis, except for a
/// message that exceeds a limit of either side.
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

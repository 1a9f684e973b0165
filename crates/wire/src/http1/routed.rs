//! Calls by the verbs and paths that a `.proto` declares (`google.api.http`), in canonical JSON.

use std::sync::Arc;

use bytes::Bytes;

use crate::http_rule::Route;
use crate::payload::compress;
use crate::{Code, Compression, Reply, Status};

use super::head::WriteHead;
use super::{frame, mapping};

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
                head.field("Content-Type", mapping::JSON.as_bytes());
                frame::metadata_fields(head, &reply.head.metadata);
                body
            }
            Err(status) => {
                let body = failure(&status, head);
                frame::metadata_fields(head, &reply.head.metadata);
                body
            }
        }
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
    plain.map(Bytes::from).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Writes the head of a failed call's response and returns its body: a `google.rpc.Status` as JSON.
#[cold]
pub(super) fn failure(status: &Status, head: &mut impl WriteHead) -> Bytes {
    let message = serde_json::Value::from(status.message());
    let body = format!(r#"{{"code":{},"message":{message},"details":[]}}"#, status.code() as u8);
    head.begin(http(status.code()), Some(body.len()));
    head.field("Content-Type", mapping::JSON.as_bytes());
    body.into()
}

/// The HTTP status of a code, as `google/rpc/code.proto` of googleapis has it.
fn http(code: Code) -> u16 {
    match code {
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

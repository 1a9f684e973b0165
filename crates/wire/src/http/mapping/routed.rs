//! Calls by the HTTP methods and paths that a `.proto` declares (`google.api.http`), in ProtoJSON.

use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::session::server::{BodyConversion, MAX_CONVERTED_IN_PLACE};
use polyrpc_core::{Code, Compression, Format, Json, Reply, Retry, Status};
use polyrpc_payload::compress;

use super::{content_type, failure, status};
use crate::http::head::{WriteHead, metadata_fields};
use crate::http::rule::{MatchedRoute, RequestMappingError, Route};

/// Data needed to answer a call.
#[derive(Debug)]
pub(crate) struct Ticket {
    route: Arc<Route>,
    /// The request, if its body is not part of the message yet.
    unmapped: Option<Arc<RoutedRequest>>,
}

/// A request without its body.
#[derive(Debug)]
struct RoutedRequest {
    /// Values of the variables in the path.
    values: Vec<String>,
    query: String,
}

/// Returns the body of a call, with its compression: the message, or the body as it was received if it is long. The
/// ticket converts a long one.
///
/// # Errors
///
/// If the request cannot be mapped to a message.
pub(super) fn read(
    found: MatchedRoute<'_>,
    query: &str,
    (compression, body): (Compression, Bytes),
    limit: usize,
) -> Result<(Bytes, Compression, Ticket), Status> {
    match plain(compression, body, limit)? {
        Plain::Short(body) => {
            let message = found.message(query, &body).map_err(unfit)?;
            Ok((message, Compression::None, Ticket::without_body(found.route().clone())))
        }
        Plain::Long(body) => {
            let (route, values) = found.into_parts();
            let unmapped = RoutedRequest { values, query: query.to_owned() };
            Ok((body, compression, Ticket { route, unmapped: Some(Arc::new(unmapped)) }))
        }
    }
}

#[cold]
fn unfit(error: RequestMappingError) -> Status {
    Status::invalid_argument(error.to_string())
}

impl Ticket {
    /// Creates the ticket of a request whose body is not read.
    pub(super) fn without_body(route: Arc<Route>) -> Self {
        Self { route, unmapped: None }
    }

    /// Returns the conversion of a long body to the message.
    pub(super) fn body_conversion(&self) -> Option<BodyConversion> {
        let (route, request) = (self.route.clone(), self.unmapped.clone()?);
        Some(Box::new(move |body: Bytes| {
            route.message(&request.values, &request.query, &body).map_err(unfit)
        }))
    }

    /// Writes the head of the response and returns its body.
    pub(super) fn answer(self, reply: Reply, head: &mut impl WriteHead) -> Bytes {
        match reply.result {
            Ok(message) => {
                let dialect = match reply.head.format {
                    Format::Json(dialect) => dialect,
                    _ => Json::Proto3,
                };
                let body = self.route.response_in(dialect, message);
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

/// A decompressed body.
enum Plain {
    Short(Bytes),
    /// The body as it was received: it is long, or decompresses to a long one.
    Long(Bytes),
}

/// Decompresses a short body.
///
/// # Errors
///
/// If the body cannot be decompressed.
fn plain(compression: Compression, body: Bytes, limit: usize) -> Result<Plain, Status> {
    if body.len() > MAX_CONVERTED_IN_PLACE {
        return Ok(Plain::Long(body));
    }
    if compression == Compression::None {
        return Ok(Plain::Short(body));
    }
    match compress::decompress(compression, &body, limit.min(MAX_CONVERTED_IN_PLACE)) {
        Ok(plain) => Ok(Plain::Short(plain.into())),
        Err(compress::Error::TooLarge { .. }) if limit > MAX_CONVERTED_IN_PLACE => Ok(Plain::Long(body)),
        Err(error @ compress::Error::TooLarge { .. }) => {
            Err(Status::resource_exhausted(error.to_string()).with_retry(Retry::Never))
        }
        Err(error) => Err(Status::invalid_argument(error.to_string())),
    }
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

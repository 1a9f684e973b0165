//! Failures as JSON: name of the code, message and details; the code determines the HTTP status of a unary response.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD_NO_PAD};
use polyrpc_core::session::NotFound;
use polyrpc_core::status::texts;
use polyrpc_core::{Call, Code, Fault, Status};
use serde_json::{Map, Value, json};

use crate::brpc_status::ENOMETHOD;
use crate::grpc;

/// Every code with its name and HTTP status ("Error Codes").
const CODES: [(Code, &str, u16); 16] = [
    (Code::Cancelled, "canceled", 499),
    (Code::Unknown, "unknown", 500),
    (Code::InvalidArgument, "invalid_argument", 400),
    (Code::DeadlineExceeded, "deadline_exceeded", 504),
    (Code::NotFound, "not_found", 404),
    (Code::AlreadyExists, "already_exists", 409),
    (Code::PermissionDenied, "permission_denied", 403),
    (Code::ResourceExhausted, "resource_exhausted", 429),
    (Code::FailedPrecondition, "failed_precondition", 400),
    (Code::Aborted, "aborted", 409),
    (Code::OutOfRange, "out_of_range", 400),
    (Code::Unimplemented, "unimplemented", 501),
    (Code::Internal, "internal", 500),
    (Code::Unavailable, "unavailable", 503),
    (Code::DataLoss, "data_loss", 500),
    (Code::Unauthenticated, "unauthenticated", 401),
];

/// Returns the HTTP status of a unary response with this failure.
pub(crate) fn http(failure: &Status) -> u16 {
    if is_not_found(failure) {
        return 404;
    }
    CODES.iter().find(|(code, ..)| *code == failure.code()).map_or(500, |(_, _, http)| *http)
}

/// Returns the failure of a call to a path without a service or method.
#[cold]
pub(crate) fn not_found(call: &Call<'_>, missing: NotFound) -> Status {
    grpc::status::not_found(call, missing).with_number(ENOMETHOD)
}

/// Whether the path is unknown: a method that exists but is not implemented has another HTTP status.
fn is_not_found(failure: &Status) -> bool {
    failure.code() == Code::Unimplemented && failure.number() == Some(ENOMETHOD)
}

/// Encodes a failure as JSON.
#[cold]
pub(crate) fn write(failure: &Status) -> Value {
    let name = CODES.iter().find(|(code, ..)| *code == failure.code()).map_or("unknown", |(_, name, _)| name);
    let mut error = Map::new();
    error.insert("code".to_owned(), name.into());
    if !failure.message().is_empty() {
        error.insert("message".to_owned(), failure.message().into());
    }
    let details: Vec<_> = failure
        .typed_details()
        .iter()
        .map(|detail| json!({ "type": detail.type_name(), "value": STANDARD_NO_PAD.encode(&detail.value) }))
        .collect();
    if !details.is_empty() {
        error.insert("details".to_owned(), details.into());
    }
    Value::Object(error)
}

/// Decodes a failure from JSON. Missing and unknown parts are taken from `fallback`; `None` if it is not a failure.
#[cold]
pub(crate) fn read(error: &Value, fallback: Code) -> Option<Status> {
    let error = error.as_object()?;
    let (code, message) = (error.get("code"), error.get("message"));
    let known =
        code.and_then(Value::as_str).and_then(|name| CODES.iter().find(|(_, known, _)| *known == name));
    let code = known.map_or(fallback, |(code, ..)| *code);
    let message = message.and_then(Value::as_str).unwrap_or_default().to_owned();
    let status = texts::from_peer(code, message);
    let details = error.get("details").and_then(Value::as_array);
    Some(
        details
            .into_iter()
            .flatten()
            .filter_map(detail)
            .fold(status, |status, (name, value)| status.with_detail(&format!("{TYPES}{name}"), &value)),
    )
}

/// Returns type and value of one detail.
fn detail(detail: &Value) -> Option<(&str, Vec<u8>)> {
    let value = LENIENT.decode(detail.get("value")?.as_str()?).ok()?;
    Some((detail.get("type")?.as_str()?, value))
}

/// Returns the code for an HTTP status if the body contains no failure ("HTTP to Error Code").
pub(crate) fn from_http(http: u16) -> Code {
    match http {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// Returns the failure of a response with this HTTP status and no failure in its body.
#[cold]
pub(crate) fn bare(http: u16) -> Status {
    let text = format!("the server answered with HTTP status {http} and no error of Connect");
    texts::failure(from_http(http), text).with_fault(Fault::Peer)
}

/// Prefix of a type's name in its URL.
const TYPES: &str = "type.googleapis.com/";

/// Base64, padded or not.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

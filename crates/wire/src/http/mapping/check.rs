//! Checks of a request's head before it becomes a call.

use std::sync::Arc;

use polyrpc_core::{Compression, Format, Json};

use super::accept::{self, AcceptPreference};
use super::answer::Answer;
use super::brpc::Path;
use super::config::{MethodCatalog, ServerConfig};
use super::content_type::{DEFAULT, format_of, is_no_message};
use super::request::{Method, Request};

/// Checks the head of a request, and returns format and compression of its message.
///
/// # Errors
///
/// The response to a request that is not a call.
pub(super) fn mapped(
    config: &ServerConfig,
    request: &Request,
    path: &Path<'_>,
) -> Result<(Format, Compression), Answer> {
    if path.is_ambiguous() {
        return Err(AMBIGUOUS_PATH);
    }
    let compression = request.compression().ok_or(Answer::UnsupportedCoding)?;
    let content_type = request.content_type.as_deref();
    let format = content_type.map_or(Some(DEFAULT), format_of);
    match format {
        _ if config.lenient => {
            lenient_format(content_type, format).ok_or_else(|| Answer::unsupported_type(request))
        }
        _ if request.method != Method::Post => match is_safe_call(config, request.method, path) {
            true => Ok(format.unwrap_or(DEFAULT)),
            false => Err(method_not_allowed(config, path, request)),
        },
        // A page may send a body without a type, just as it may send plain text.
        _ if content_type.is_none() && request.from_page => Err(Answer::unsupported_type(request)),
        Some(format) => Ok(format),
        None => Err(Answer::unsupported_type(request)),
    }
    .and_then(|format| Ok((dialect(config, request, format)?, compression)))
}

const AMBIGUOUS_PATH: Answer = Answer::Failed(
    400,
    "the path names no method: it has `.` or `..` as a component, a backslash, or an encoded dot, slash or backslash\n",
);

/// Checks the head of a request, and returns the compression of its body and the JSON dialect of the response: the
/// canonical one, which the rules define, unless the request selects another.
///
/// # Errors
///
/// The response to a request that is not a call.
pub(super) fn routed(config: &ServerConfig, request: &Request) -> Result<(Compression, Json), Answer> {
    let compression = request.compression().ok_or(Answer::UnsupportedCoding)?;
    // A page may send a POST of plain text to any server; other HTTP methods with a body only after a preflight.
    let is_json = match request.content_type.as_deref() {
        Some(content_type) => matches!(format_of(content_type), Some(Format::Json(_))),
        None => !request.from_page,
    };
    match is_json || request.method != Method::Post || config.lenient {
        true => Ok((compression, parse_json_dialect(request)?.map_or(Json::Proto3, |(dialect, _)| dialect))),
        false => Err(Answer::unsupported_type(request)),
    }
}

/// Returns the format, in the JSON dialect that the request selects or, by default, that of the listener.
///
/// All dialects but the lenient one accept the same input, so that the call has the dialect of its response.
fn dialect(config: &ServerConfig, request: &Request, format: Format) -> Result<Format, Answer> {
    match format {
        Format::Json(named) => Ok(Format::Json(match parse_json_dialect(request)? {
            Some((Json::Brpc, _)) if config.json() == Json::BrpcLenient => Json::BrpcLenient,
            Some((dialect, _)) => dialect,
            None if named == Json::Brpc => config.json(),
            None => named,
        })),
        format => Ok(format),
    }
}

/// Returns the JSON dialect that a request selects for the response, and its content type.
///
/// # Errors
///
/// The response to a request that selects an unknown dialect.
fn parse_json_dialect(request: &Request) -> Result<Option<(Json, &'static str)>, Answer> {
    match accept::parse_accept(request) {
        AcceptPreference::Any => Ok(None),
        AcceptPreference::Dialect(dialect, content_type) => Ok(Some((dialect, content_type))),
        AcceptPreference::Unknown => {
            Err(Answer::Failed(406, "the dialects of JSON are brpc, proto3 and go\n"))
        }
    }
}

/// Returns the response to a request whose HTTP method cannot call a method.
#[cold]
fn method_not_allowed(config: &ServerConfig, path: &Path<'_>, request: &Request) -> Answer {
    let offers = |methods: &Arc<dyn MethodCatalog>| methods.offers(path.service, path.method);
    match config.methods.as_ref().is_none_or(offers) {
        true => Answer::other_verb("POST".to_owned(), request),
        false => Answer::no_method(path, request),
    }
}

/// Whether a GET may call this path: only if the method has no side effects, since browsers send a GET for any link.
fn is_safe_call(config: &ServerConfig, method: Method, path: &Path<'_>) -> bool {
    matches!(method, Method::Get | Method::Head)
        && config.routes.has_no_side_effects(path.service, path.method)
}

/// brpc treats unknown types as JSON. Images are never messages, whatever brpc would do with them.
fn lenient_format(content_type: Option<&[u8]>, format: Option<Format>) -> Option<Format> {
    match content_type {
        Some(content_type) if is_no_message(content_type) => None,
        _ => Some(format.unwrap_or(DEFAULT)),
    }
}

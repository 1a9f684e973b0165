//! Whether a request may be a call, by its head.

use std::sync::Arc;

use polyrpc_core::{Compression, Format, Json};

use super::accept::{self, AcceptPreference};
use super::answer::Answer;
use super::brpc::Path;
use super::config::{MethodCatalog, ServerConfig};
use super::content_type::{DEFAULT, format_of, is_no_message};
use super::request::{Method, Request};

/// Checks what the head of a request says before it is a call, and tells how its message is written and compressed.
///
/// # Errors
///
/// The answer to a request that calls nothing.
pub(super) fn mapped(
    config: &ServerConfig,
    request: &Request,
    path: &Path<'_>,
) -> Result<(Format, Compression), Answer> {
    let compression = request.compression().ok_or(Answer::UnsupportedCoding)?;
    let content_type = request.content_type.as_deref();
    let format = content_type.map_or(Some(DEFAULT), format_of);
    match format {
        _ if config.lenient => {
            lenient_format(content_type, format).ok_or_else(|| Answer::unsupported_type(request))
        }
        _ if request.method != Method::Post => match calls_without_effects(config, request.method, path) {
            true => Ok(format.unwrap_or(DEFAULT)),
            false => Err(calls_nothing(config, path, request)),
        },
        // A page may send a body without a type, as it may send plain text.
        _ if content_type.is_none() && request.from_page => Err(Answer::unsupported_type(request)),
        Some(format) => Ok(format),
        None => Err(Answer::unsupported_type(request)),
    }
    .and_then(|format| Ok((dialect(config, request, format)?, compression)))
}

/// Checks what the head of a request says before it is a call, and tells how its body is compressed, and in which JSON
/// it is answered: the canonical one, of which the rules speak, unless it asks for another.
///
/// # Errors
///
/// The answer to a request that calls nothing.
pub(super) fn routed(config: &ServerConfig, request: &Request) -> Result<(Compression, Json), Answer> {
    let compression = request.compression().ok_or(Answer::UnsupportedCoding)?;
    // A page sends a POST of plain text to any server; the other verbs with a body only after it has asked.
    let is_json = match request.content_type.as_deref() {
        Some(content_type) => matches!(format_of(content_type), Some(Format::Json(_))),
        None => !request.from_page,
    };
    match is_json || request.method != Method::Post || config.lenient {
        true => Ok((compression, wanted(request)?.map_or(Json::Proto3, |(dialect, _)| dialect))),
        false => Err(Answer::unsupported_type(request)),
    }
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
fn wanted(request: &Request) -> Result<Option<(Json, &'static str)>, Answer> {
    match accept::wanted(request) {
        AcceptPreference::Any => Ok(None),
        AcceptPreference::Dialect(dialect, content_type) => Ok(Some((dialect, content_type))),
        AcceptPreference::Unknown => {
            Err(Answer::Failed(406, "the dialects of JSON are brpc, proto3 and go\n"))
        }
    }
}

/// The answer to another method of HTTP than those that call.
#[cold]
fn calls_nothing(config: &ServerConfig, path: &Path<'_>, request: &Request) -> Answer {
    let offers = |methods: &Arc<dyn MethodCatalog>| methods.offers(path.service, path.method);
    match config.methods.as_ref().is_none_or(offers) {
        true => Answer::other_verb("POST".to_owned(), request),
        false => Answer::no_method(path, request),
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

//! Streamable HTTP.

mod fields;
mod origin;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::join_all;
use polyrpc::Metadata;
use polyrpc::client::CallOptions;
use polyrpc::fallback::{HttpRequest, HttpResponse};
use polyrpc::server::Connector;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::origin::Origin;
use crate::json_rpc::{
    Error, HEADER_MISMATCH, INVALID_REQUEST, Id, METHOD_NOT_FOUND, Message, PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION, success,
};
use crate::protocol::{Exchange, Params};
use crate::settings::Settings;
use crate::tool::Tools;
use crate::version::Version;

/// State for answering requests.
pub(crate) struct Endpoint {
    pub(crate) settings: Settings,
    /// Requests whose bodies are complete.
    requests: Semaphore,
    /// Bytes of the bodies that are being received.
    receiving: Semaphore,
}

/// Time in which a body must be complete: a megabyte at 1 Mbit/s, or one that is smaller over a worse network.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

impl Endpoint {
    pub(crate) fn new(settings: Settings) -> Self {
        let bytes = settings.max_requests.saturating_mul(settings.max_request).min(Semaphore::MAX_PERMITS);
        let requests = Semaphore::new(settings.max_requests);
        Self { settings, requests, receiving: Semaphore::new(bytes) }
    }
}

/// The answer to a request for the endpoint. `running` is what the endpoint offers; `None` before it is started.
pub(crate) async fn answer(
    endpoint: &Endpoint,
    running: Option<(Arc<Tools>, Connector)>,
    mut request: HttpRequest,
) -> HttpResponse {
    let origin = match Origin::check(&request, &endpoint.settings.origins) {
        Ok(origin) => origin,
        Err(text) => return refusal(403, text),
    };
    let mut response = match request.method.as_str() {
        _ if !is_at(&request.target, &endpoint.settings.path) => {
            refusal(404, "there is nothing at this path")
        }
        "POST" => post(endpoint, running, &mut request).await,
        "OPTIONS" => HttpResponse::new(204, ""),
        // There is no stream to listen to, and no session to end.
        _ => refusal(405, "messages are sent by POST"),
    };
    if response.status == 405 || request.method == "OPTIONS" {
        response.headers.append("allow", "POST, OPTIONS");
    }
    origin.allow(&mut response.headers);
    response
}

/// Whether a target is the path of the endpoint, with any query.
fn is_at(target: &str, path: &str) -> bool {
    let found = target.split('?').next().unwrap_or_default();
    found.trim_matches('/') == path
}

async fn post(
    endpoint: &Endpoint,
    running: Option<(Arc<Tools>, Connector)>,
    request: &mut HttpRequest,
) -> HttpResponse {
    if let Err((status, text)) = fields::check(&request.headers) {
        return refusal(status, text);
    }
    let Some((tools, connector)) = running else { return refusal(503, "the server is starting") };
    let body = match timeout(BODY_TIMEOUT, read(endpoint, request)).await {
        Ok(Ok(body)) => body,
        Ok(Err(response)) => return response,
        Err(_) => return refusal(408, "the body was not complete in time"),
    };
    // Not earlier: a client that sends no body would hold the permit of one that does.
    let Ok(_permit) = endpoint.requests.try_acquire() else { return busy() };
    let Ok(text) = std::str::from_utf8(&body.bytes) else {
        return failure(400, None, &Error::new(PARSE_ERROR, "the message is not UTF-8"));
    };
    let options = CallOptions {
        credential: fields::credential(&request.headers),
        metadata: fields::metadata(request),
        timeout: Some(endpoint.settings.timeout),
        ..CallOptions::default()
    };
    // The request itself cannot be shared between threads.
    let sent = std::mem::take(&mut request.headers);
    let exchange = |version| Exchange {
        settings: &endpoint.settings,
        tools: &tools,
        connector: &connector,
        version,
        options: &options,
    };
    match text.trim_start().starts_with('[') {
        true => answer_batch(endpoint, text, &sent, exchange).await,
        false => answer_single(text, &sent, exchange).await,
    }
}

/// A body, which counts as being received until it is dropped.
struct Body<'e> {
    bytes: BytesMut,
    _permits: Option<SemaphorePermit<'e>>,
}

async fn read<'e>(endpoint: &'e Endpoint, request: &mut HttpRequest) -> Result<Body<'e>, HttpResponse> {
    let mut bytes = BytesMut::new();
    let mut permits: Option<SemaphorePermit<'_>> = None;
    while let Some(piece) =
        request.body.message().await.map_err(|_| refusal(400, "the body is incomplete"))?
    {
        if bytes.len() + piece.len() > endpoint.settings.max_request {
            return Err(refusal(413, "the message is too long"));
        }
        let count = u32::try_from(piece.len()).map_err(|_| refusal(413, "the message is too long"))?;
        let more = endpoint.receiving.try_acquire_many(count).map_err(|_| busy())?;
        match &mut permits {
            Some(permits) => permits.merge(more),
            None => permits = Some(more),
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Body { bytes, _permits: permits })
}

fn busy() -> HttpResponse {
    let mut response = refusal(503, "too many requests at a time");
    response.headers.append("retry-after", "1");
    response
}

async fn answer_single<'e>(
    text: &str,
    sent: &Metadata,
    exchange: impl Fn(Version) -> Exchange<'e>,
) -> HttpResponse {
    let (id, method, params) = match Message::parse(text) {
        Ok(Message::Request { id, method, params }) => (id, method, params),
        // Notifications and responses need no action: the server has no open request.
        Ok(Message::Notification | Message::Answer) => return accepted(),
        Err((id, error)) => return failure(400, id.as_ref(), &error),
    };
    let params = match Params::parse(params) {
        Ok(params) => params,
        Err(error) => return failure(400, Some(&id), &error),
    };
    let version = match version(sent, &method, &params) {
        Ok(version) => version,
        Err(error) => return failure(400, Some(&id), &error),
    };
    match exchange(version).answer(&method, params).await {
        Ok(result) => document(200, &success(&id, result)),
        // In the newest revision the body distinguishes a missing method from a missing endpoint.
        Err(error) if error.code == METHOD_NOT_FOUND && !version.has_handshake() => {
            failure(404, Some(&id), &error)
        }
        Err(error) => failure(200, Some(&id), &error),
    }
}

/// The revision of a request: that of its own members, of its field, or the oldest, which had no field.
fn version(sent: &Metadata, method: &str, params: &Params<'_>) -> Result<Version, Error> {
    let field = sent.get(fields::VERSION);
    let own = params.meta.as_ref().and_then(|meta| meta.protocol_version.as_deref());
    let named = match (own, field) {
        (Some(own), Some(field)) if own != field => {
            return Err(mismatch("the field MCP-Protocol-Version differs from the message"));
        }
        (Some(_), None) if method != "initialize" => {
            return Err(mismatch("the field MCP-Protocol-Version is missing"));
        }
        (own, field) => own.or(field),
    };
    let version = match named {
        None => return Ok(Version::V2025March),
        Some(_) if method == "initialize" => return Ok(Version::NEWEST_WITH_HANDSHAKE),
        Some(name) => Version::from_name(name).ok_or_else(|| {
            let data = json!({ "supported": Version::ALL.map(Version::as_str), "requested": name });
            Error::new(UNSUPPORTED_PROTOCOL_VERSION, "the revision of the protocol is not supported")
                .with_data(data)
        })?,
    };
    if !version.has_handshake() {
        if own.is_none() {
            return Err(mismatch("the message does not name its revision in `_meta`"));
        }
        fields::check_mirrored(sent, method, params.name.as_deref()).map_err(mismatch)?;
    }
    Ok(version)
}

#[cold]
fn mismatch(text: impl Into<String>) -> Error {
    Error::new(HEADER_MISMATCH, text)
}

/// A batch of messages, which only the oldest revision has.
async fn answer_batch<'e>(
    endpoint: &Endpoint,
    text: &str,
    sent: &Metadata,
    exchange: impl Fn(Version) -> Exchange<'e>,
) -> HttpResponse {
    let invalid = |text: &str| failure(400, None, &Error::new(INVALID_REQUEST, text));
    let field = sent.get(fields::VERSION);
    let version = field.map_or(Some(Version::V2025March), Version::from_name);
    let Some(version) = version.filter(|version| version.has_batches()) else {
        return invalid("this revision of the protocol has no batches");
    };
    let messages: Vec<&RawValue> = match serde_json::from_str(text) {
        Ok(messages) => messages,
        Err(error) => return failure(400, None, &Error::new(PARSE_ERROR, error.to_string())),
    };
    match messages.len() {
        0 => return invalid("the batch is empty"),
        count if count > endpoint.settings.max_batch => return invalid("the batch has too many messages"),
        _ => {}
    }
    let exchange = exchange(version);
    let answers = join_all(messages.iter().map(|message| answer_member(message.get(), &exchange))).await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    match answers.is_empty() {
        true => accepted(),
        false => document(200, &answers.into()),
    }
}

/// The answer to a message of a batch, if it gets one.
async fn answer_member(text: &str, exchange: &Exchange<'_>) -> Option<Value> {
    let (id, method, params) = match Message::parse(text) {
        Ok(Message::Request { id, method, params }) => (id, method, params),
        Ok(Message::Notification | Message::Answer) => return None,
        Err((id, error)) => return Some(error.answer(id.as_ref())),
    };
    let answered = match (method.as_str(), Params::parse(params)) {
        ("initialize", Ok(_)) => Err(Error::new(INVALID_REQUEST, "`initialize` cannot be part of a batch")),
        (method, Ok(params)) => exchange.answer(method, params).await,
        (_, Err(error)) => Err(error),
    };
    Some(match answered {
        Ok(result) => success(&id, result),
        Err(error) => error.answer(Some(&id)),
    })
}

/// A message without an answer.
fn accepted() -> HttpResponse {
    let mut response = HttpResponse::new(202, "");
    response.headers.append("content-length", "0");
    response
}

fn failure(status: u16, id: Option<&Id>, error: &Error) -> HttpResponse {
    document(status, &error.answer(id))
}

/// A request that is rejected before its message is read.
#[cold]
fn refusal(status: u16, text: &str) -> HttpResponse {
    failure(status, None, &Error::new(INVALID_REQUEST, text))
}

fn document(status: u16, document: &Value) -> HttpResponse {
    let text = document.to_string();
    let length = text.len().to_string();
    let mut response = HttpResponse::new(status, text);
    response.headers.append("content-type", "application/json");
    response.headers.append("content-length", length);
    response.headers.append("cache-control", "no-store");
    response
}

//! Classification of a complete request: one call, several, or a response without a call. It is the same over HTTP/1
//! and HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::session::Verdict;
use polyrpc_core::{Call, Compression, Credential, Format, Head, Json, Metadata, Status};

use super::answer::{Answer, RejectedRequest, ResponseForm};
use super::brpc::{self, Path};
use super::config::ServerConfig;
use super::request::{Method, Request};
use super::{browser, check, content_type, gateway, health, routed};
use crate::http::rule::{Lookup, MatchedRoute};
use crate::json_rpc::{self, Incoming};
use crate::net_rpc;

/// Kind of a request. The names of its call are stored separately.
pub(crate) enum RequestKind {
    /// A response that calls no method.
    Answer(Answer),
    /// A call.
    Call(Call<'static>, ResponseForm),
    /// A call whose result is not sent: this is the response.
    Notify(Call<'static>, Answer),
    /// Several calls, answered together.
    Batch(BatchCalls, json_rpc::Batch),
}

impl RequestKind {
    /// Classifies a complete request; if it is a call, `names` is set to its names.
    pub(crate) fn read(config: &ServerConfig, request: Request, body: Bytes, names: &mut Names) -> Self {
        match RequestClass::classify(config, &request, Some(&body)) {
            RequestClass::Answer(answer) => Self::Answer(without_names(config, &request, answer)),
            RequestClass::JsonRpc => json_rpc_calls(request, &body, names),
            RequestClass::Gateway => gateway_call(request, body, names),
            RequestClass::Routed(found) => routed_call(config, found, request, body, names),
            RequestClass::Mapped => mapped_call(config, request, body, names),
        }
    }
}

/// Class of a request.
enum RequestClass<'c> {
    /// It calls no method.
    Answer(Answer),
    JsonRpc,
    Gateway,
    Routed(MatchedRoute<'c>),
    Mapped,
}

impl<'c> RequestClass<'c> {
    /// Classifies a request. Without its body, it is assumed to be JSON-RPC if that is possible.
    fn classify(config: &'c ServerConfig, request: &Request, body: Option<&[u8]>) -> Self {
        let kind = Self::classify_by_head(config, request, body);
        let guarded = !matches!(&kind, Self::Answer(answer) if answer.is_harmless());
        match guarded.then(|| browser::refusal(config, request)).flatten() {
            Some(answer) => Self::Answer(answer),
            None => match (kind, request.wrong_timeout) {
                (Self::Answer(answer), _) => Self::Answer(answer),
                // brpc ignores a malformed field.
                (_, Some(wrong)) if !config.lenient => Self::Answer(Answer::Failed(400, wrong)),
                (kind, _) => kind,
            },
        }
    }

    fn classify_by_head(config: &'c ServerConfig, request: &Request, body: Option<&[u8]>) -> Self {
        match (request.method, request.path.as_str()) {
            (Method::Options, _) => Self::Answer(Answer::Options(request.preflight())),
            (_, RPCX_PATH | net_rpc::CONNECT_PATH) => Self::Answer(Answer::MustConnect),
            _ if is_json_rpc(request, body) => Self::JsonRpc,
            _ if is_gateway_request(request) => Self::Gateway,
            (_, path) if config.routes.matches_path(path) => {
                match config.routes.find(request.method.as_str(), path) {
                    Lookup::Found(found) => Self::Routed(found),
                    Lookup::OtherVerbs(verbs) => Self::Answer(Answer::other_verb(verbs.join(", "), request)),
                    Lookup::Nothing => Self::Mapped,
                }
            }
            (Method::Get | Method::Head, "/" | "") => Self::Answer(Answer::Text(200, INDEX)),
            (Method::Get | Method::Head, "/version") => Self::Answer(Answer::Version),
            (Method::Get | Method::Head, net_rpc::PAGE_PATH) if !config.debug_page.is_empty() => {
                Self::Answer(Answer::DebugPage)
            }
            (Method::Get | Method::Head, _) => {
                health::answer(config, request).map_or(Self::Mapped, Self::Answer)
            }
            _ => Self::Mapped,
        }
    }
}

/// Whether a request needs a credential although it is not a call, since its response reveals which methods exist.
#[inline]
pub(crate) fn wants_credential(config: &ServerConfig, request: &Request) -> bool {
    config.guarded && !request.accepted && answer_reveals_names(config, request)
}

#[cold]
fn answer_reveals_names(config: &ServerConfig, request: &Request) -> bool {
    let path = request.path.as_str();
    if request.method == Method::Post && !config.routes.matches_path(path) {
        return false;
    }
    match RequestClass::classify(config, request, None) {
        RequestClass::Answer(answer) => answer.reveals_names(),
        RequestClass::Mapped => {
            check::mapped(config, request, &Path::parse(path)).is_err_and(|answer| answer.reveals_names())
        }
        RequestClass::JsonRpc | RequestClass::Gateway | RequestClass::Routed(_) => false,
    }
}

/// Whether a response requires a credential.
fn hides_names(config: &ServerConfig, request: &Request, answer: &Answer) -> bool {
    config.guarded && !request.accepted && answer.reveals_names()
}

/// Returns the response, or in its place the rejection of a call: drivers check such a request, which must not bypass
/// them.
fn without_names(config: &ServerConfig, request: &Request, answer: Answer) -> Answer {
    if !hides_names(config, request, &answer) {
        return answer;
    }
    let form = ResponseForm::Mapped(brpc::Ticket::new(request, content_type::DEFAULT, config));
    let status = Status::unauthenticated("");
    Answer::Refused(Box::new(RejectedRequest { form, status, unauthenticated: true }))
}

/// Whether a request is passed to the external handler: it is neither a call of the server's own methods nor one of its
/// own pages.
pub(crate) fn is_for_others(config: &ServerConfig, request: &Request) -> bool {
    let Some(own) = &config.own else { return false };
    if config.passes_every_request {
        return request.path.as_str() != "*";
    }
    if is_json_rpc(request, None) || is_gateway_request(request) {
        return false;
    }
    let path = request.path.as_str();
    let is_shown = matches!(request.method, Method::Get | Method::Head);
    match path {
        "*" | RPCX_PATH | net_rpc::CONNECT_PATH => false,
        "/version" if is_shown => false,
        net_rpc::PAGE_PATH if is_shown && !config.debug_page.is_empty() => false,
        _ if is_shown && health::answer(config, request).is_some() => false,
        path if config.routes.matches_path(path)
            && !is_unknown(config.routes.find(request.method.as_str(), path)) =>
        {
            false
        }
        path => {
            let path = Path::parse(path);
            !own.offers(path.service, path.method)
        }
    }
}

fn is_unknown(lookup: Lookup<'_>) -> bool {
    matches!(lookup, Lookup::Nothing)
}

/// The information of a request before its body was received.
pub(crate) struct RequestPreview {
    /// The names of the call are set. In JSON-RPC they are in the body.
    pub(crate) named: bool,
    /// Credential of the request's calls.
    pub(crate) credential: Credential,
    /// The response, if it does not depend on the body; no check is needed then.
    pub(crate) answer: Option<Answer>,
}

impl RequestPreview {
    fn late_failure(answer: Answer) -> Self {
        Self { named: false, credential: Credential::Call(None), answer: Some(answer) }
    }
}

/// Parses the head of a request without its body; if it names a call, `names` is set to its names.
#[cold]
pub(crate) fn peek(config: &ServerConfig, request: &Request, names: &mut Names) -> RequestPreview {
    let unnamed =
        || RequestPreview { named: false, credential: mapped_credential(config, request), answer: None };
    let (named, credential) = match RequestClass::classify(config, request, None) {
        RequestClass::Answer(answer) if hides_names(config, request, &answer) => return unnamed(),
        RequestClass::Answer(answer) => return RequestPreview::late_failure(answer),
        RequestClass::JsonRpc if request.compression() != Some(Compression::None) => {
            return RequestPreview::late_failure(Answer::UnsupportedCoding);
        }
        RequestClass::JsonRpc => match meta_of(request) {
            Ok(reserved) => (false, request.authorization.clone().or(reserved.credential)),
            Err(answer) => return RequestPreview::late_failure(answer),
        },
        RequestClass::Gateway => match gateway_names(request, names) {
            Ok(reserved) => (true, request.authorization.clone().or(reserved.credential)),
            Err(answer) => return RequestPreview::late_failure(answer),
        },
        RequestClass::Routed(found) => {
            if let Err(answer) = check::routed(config, request) {
                return RequestPreview::late_failure(answer);
            }
            names.set(found.route().service(), found.route().method());
            (true, request.authorization.clone())
        }
        RequestClass::Mapped => {
            let path = Path::parse(request.path.as_str());
            match check::mapped(config, request, &path) {
                Err(answer) if hides_names(config, request, &answer) => return unnamed(),
                Err(answer) => return RequestPreview::late_failure(answer),
                Ok(_) => {}
            }
            names.set(path.service, path.method);
            return RequestPreview {
                named: true,
                credential: mapped_credential(config, request),
                answer: None,
            };
        }
    };
    RequestPreview { named, credential: Credential::Call(credential), answer: None }
}

/// Returns the response to a request whose head was checked, unless it was accepted.
#[cold]
pub(crate) fn refuse(config: &ServerConfig, request: &Request, verdict: Verdict) -> Option<Answer> {
    let form = match RequestClass::classify(config, request, None) {
        RequestClass::Answer(answer) if !(config.guarded && answer.reveals_names()) => return Some(answer),
        RequestClass::Answer(_) => {
            ResponseForm::Mapped(brpc::Ticket::new(request, content_type::DEFAULT, config))
        }
        RequestClass::JsonRpc => ResponseForm::JsonRpc(json_rpc::PendingResponse::without_id()),
        RequestClass::Gateway => ResponseForm::Gateway(gateway_fields(request)),
        RequestClass::Routed(found) => {
            ResponseForm::Routed(routed::Ticket::without_body(found.route().clone()))
        }
        RequestClass::Mapped => {
            let format = request.content_type.as_deref().and_then(content_type::format_of);
            ResponseForm::Mapped(brpc::Ticket::new(request, format.unwrap_or(content_type::DEFAULT), config))
        }
    };
    let refused = match verdict {
        Verdict::Accepted => return None,
        Verdict::Unauthenticated(status) => RejectedRequest { form, status, unauthenticated: true },
        Verdict::Refused(status) => RejectedRequest { form, status, unauthenticated: false },
        Verdict::Missing(missing) => {
            let mut names = Names::default();
            peek(config, request, &mut names);
            let (service, method) = names.parts();
            let mut call = Call::new(service, method, Format::default(), Bytes::new());
            Path::parse(request.path.as_str()).record_unresolved_path(&mut call.head.metadata);
            let status = form.not_found(&call, missing);
            RejectedRequest { form, status, unauthenticated: false }
        }
    };
    Some(Answer::Refused(Box::new(refused)))
}

/// brpc's mapping: the path contains service and method.
fn mapped_call(config: &ServerConfig, mut request: Request, body: Bytes, names: &mut Names) -> RequestKind {
    let path = Path::parse(request.path.as_str());
    let (format, compression) = match check::mapped(config, &request, &path) {
        Ok(understood) => understood,
        Err(answer) => return RequestKind::Answer(without_names(config, &request, answer)),
    };
    names.set(path.service, path.method);
    path.record_unresolved_path(&mut request.metadata);
    let ticket = brpc::Ticket::new(&request, format, config);
    let call = Call {
        timeout: request.timeout,
        credential: mapped_credential(config, &request),
        authenticated: request.accepted,
        head: Head { format, compression, metadata: request.metadata, plain_http: true, ..Head::default() },
        ..Call::new("", "", format, body)
    };
    RequestKind::Call(call, ResponseForm::Mapped(ticket))
}

/// Proxies send requests of many callers on one connection, so that each request must have its credential, unless the
/// listener is for brpc's clients only. Within HTTP/2 even these must.
fn mapped_credential(config: &ServerConfig, request: &Request) -> Credential {
    let credential = request.authorization.clone();
    match config.trust_connection && !request.h2 {
        true => Credential::Connection(credential),
        false => Credential::Call(credential),
    }
}

/// HTTP method and path match a rule declared in a `.proto`.
fn routed_call(
    config: &ServerConfig,
    found: MatchedRoute<'_>,
    request: Request,
    body: Bytes,
    names: &mut Names,
) -> RequestKind {
    let (compression, dialect) = match check::routed(config, &request) {
        Ok(understood) => understood,
        Err(answer) => return RequestKind::Answer(answer),
    };
    names.set(found.route().service(), found.route().method());
    let limit = config.limits.decompressed;
    let (message, compression, ticket) =
        match routed::read(found, request.query.as_str(), (compression, body), limit) {
            Ok(read) => read,
            Err(status) => return RequestKind::Answer(Answer::Unfit(status)),
        };
    let format = Format::Json(dialect);
    let call = Call {
        timeout: request.timeout,
        credential: Credential::Call(request.authorization),
        authenticated: request.accepted,
        head: Head { format, compression, metadata: request.metadata, plain_http: true, ..Head::default() },
        ..Call::new("", "", format, message)
    };
    RequestKind::Call(call, ResponseForm::Routed(ticket))
}

/// rpcx's gateway: header fields contain service and method.
fn gateway_call(request: Request, body: Bytes, names: &mut Names) -> RequestKind {
    let coding = request.compression();
    let mut fields = request.gateway.unwrap_or_default();
    let mut metadata = request.metadata;
    fields.default_service_path(&request.path);
    let reserved = fields.read_meta(&mut metadata);
    let (described, reserved) = match (fields.describe(), reserved) {
        (Ok(described), Ok(reserved)) => (described, reserved),
        (Err(wrong), _) | (_, Err(wrong)) => return RequestKind::Answer(Answer::Unreadable(fields, wrong)),
    };
    let Some(compression) = gateway_compression(described.compression, coding) else {
        return RequestKind::Answer(Answer::UnsupportedCoding);
    };
    names.set(described.service, described.method);
    let call = Call {
        timeout: reserved.timeout.or(request.timeout),
        credential: Credential::Call(request.authorization.or(reserved.credential)),
        authenticated: request.accepted,
        head: Head { format: described.format, compression, metadata, plain_http: true, ..Head::default() },
        ..Call::new("", "", described.format, body)
    };
    RequestKind::Call(call, ResponseForm::Gateway(fields))
}

/// Returns the compression of the message. rpcx-gateway treats `Content-Encoding: gzip` as the compress type.
fn gateway_compression(declared: Compression, coding: Option<Compression>) -> Option<Compression> {
    match declared {
        Compression::None => coding,
        declared => Some(declared),
    }
}

fn gateway_fields(request: &Request) -> Box<gateway::Fields> {
    let mut fields = request.gateway.clone().unwrap_or_default();
    fields.default_service_path(&request.path);
    fields
}

/// Sets the names from the head of a gateway request; returns the reserved metadata, or the response if the request is
/// malformed.
fn gateway_names(request: &Request, names: &mut Names) -> Result<gateway::ReservedMetadata, Answer> {
    let fields = gateway_fields(request);
    let reserved = fields.read_meta(&mut Metadata::new());
    let (described, reserved) = match (fields.describe(), reserved) {
        (Ok(described), Ok(reserved)) => (described, reserved),
        (Err(wrong), _) | (_, Err(wrong)) => return Err(Answer::Unreadable(fields, wrong)),
    };
    if gateway_compression(described.compression, request.compression()).is_none() {
        return Err(Answer::UnsupportedCoding);
    }
    names.set(described.service, described.method);
    Ok(reserved)
}

/// Returns the reserved entries of `X-RPCX-Meta` in a JSON-RPC request.
fn meta_of(request: &Request) -> Result<gateway::ReservedMetadata, Answer> {
    let reserved = request.gateway.as_ref().map(|fields| fields.read_meta(&mut Metadata::new()));
    reserved.transpose().map(Option::unwrap_or_default).map_err(|_| WRONG_META)
}

fn json_rpc_calls(request: Request, body: &Bytes, names: &mut Names) -> RequestKind {
    if request.compression() != Some(Compression::None) {
        return RequestKind::Answer(Answer::UnsupportedCoding);
    }
    let mut metadata = request.metadata;
    let reserved = request.gateway.map(|fields| fields.read_meta(&mut metadata)).transpose();
    let Ok(reserved) = reserved.map(Option::unwrap_or_default) else {
        return RequestKind::Answer(WRONG_META);
    };
    let common = BatchContext {
        metadata,
        timeout: reserved.timeout.or(request.timeout),
        credential: request.authorization.or(reserved.credential),
        authenticated: request.accepted,
    };
    match json_rpc::read(body) {
        Incoming::Refused(response) => RequestKind::Answer(Answer::Json(response)),
        Incoming::One(request) => {
            let pending = json_rpc::PendingResponse::new(&request);
            let call = common.call(request, names);
            match pending {
                Some(pending) => RequestKind::Call(call, ResponseForm::JsonRpc(pending)),
                None => RequestKind::Notify(call, Answer::Json(Vec::new())),
            }
        }
        Incoming::Many(requests, refused) => {
            let missing = requests.iter().filter(|request| request.id.is_some()).count();
            let batch = json_rpc::Batch::new(&refused, missing);
            RequestKind::Batch(
                BatchCalls { requests: requests.into_iter(), message: body.len(), common },
                batch,
            )
        }
    }
}

/// Calls of a JSON-RPC batch that were not emitted yet.
#[derive(Debug)]
pub(crate) struct BatchCalls {
    requests: std::vec::IntoIter<json_rpc::Request>,
    /// Length of the message that contained them, which is at least what they hold.
    message: usize,
    common: BatchContext,
}

impl BatchCalls {
    /// Returns the number of bytes held while calls are left.
    pub(crate) fn held(&self) -> usize {
        self.message
    }

    /// Returns the next call, and its pending response unless it is a notification.
    pub(crate) fn next(
        &mut self,
        names: &mut Names,
    ) -> Option<(Call<'static>, Option<json_rpc::PendingResponse>)> {
        let request = self.requests.next()?;
        let pending = json_rpc::PendingResponse::new(&request);
        Some((self.common.clone().call(request, names), pending))
    }
}

/// Data common to all calls of one JSON-RPC message.
#[derive(Debug, Clone)]
struct BatchContext {
    metadata: Metadata,
    timeout: Option<Duration>,
    credential: Option<Bytes>,
    authenticated: bool,
}

impl BatchContext {
    fn call(self, request: json_rpc::Request, names: &mut Names) -> Call<'static> {
        let (service, method) = request.names();
        names.set(service, method);
        let format = Format::Json(Json::Go);
        Call {
            timeout: self.timeout,
            oneway: request.id.is_none(),
            credential: Credential::Call(self.credential),
            authenticated: self.authenticated,
            head: Head {
                format,
                positional: request.positional,
                metadata: self.metadata,
                plain_http: true,
                ..Head::default()
            },
            ..Call::new("", "", format, request.params)
        }
    }
}

/// Names of the last emitted call, in a reused buffer.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    /// Boundary between service and method.
    split: usize,
}

impl Names {
    /// A larger buffer is released.
    const KEEP: usize = 4 << 10;

    pub(crate) fn set(&mut self, service: &str, method: &str) {
        if self.text.capacity() > Self::KEEP {
            self.text = String::new();
        }
        self.text.clear();
        self.text.push_str(service);
        self.text.push_str(method);
        self.split = service.len();
    }

    pub(crate) fn parts(&self) -> (&str, &str) {
        self.text.split_at_checked(self.split).unwrap_or_default()
    }
}

/// Whether a request is JSON-RPC: it is marked as such, or it is JSON sent to a path without another meaning. Without
/// its body this is only a possibility.
fn is_json_rpc(request: &Request, body: Option<&[u8]>) -> bool {
    if request.method != Method::Post {
        return false;
    }
    let content_type = request.content_type.as_deref().unwrap_or_default();
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is = |name: &str| essence.eq_ignore_ascii_case(name.as_bytes());
    request.json_rpc
        || is("application/json-rpc")
        || is("application/jsonrequest")
        || is(content_type::JSON)
            && matches!(request.path.as_str(), "/" | "/jsonrpc")
            && body.is_none_or(json_rpc::announces)
}

/// Whether a request is for rpcx's gateway. Like rpcx it accepts GET and PUT, and any content type: a page cannot send
/// the fields that name the call to another origin without a preflight.
fn is_gateway_request(request: &Request) -> bool {
    matches!(request.method, Method::Post | Method::Get | Method::Put)
        && request.gateway.as_ref().is_some_and(|fields| fields.describes_call())
}

/// Response to a WebSocket handshake that is not for this server's own protocol.
pub(crate) const NO_WEBSOCKET: &str = "a WebSocket is opened here for rpcx only, at /_rpcx_\n";

const WRONG_META: Answer = Answer::Failed(400, "wrong X-RPCX-Meta");

/// Path to which rpcx's clients connect (rpcx `share/share.go`).
pub(crate) const RPCX_PATH: &str = "/_rpcx_";

const INDEX: &str = "\
POST /Service/Method   calls a method; the body is JSON, or the format of Content-Type
POST /jsonrpc          calls by JSON-RPC 2.0
GET  /health           whether the server takes calls; /health/Service: whether the service does
GET  /readyz           whether the server takes calls; ?service=Service: whether the service does
GET  /livez            whether the server runs
GET  /version          which version runs
";

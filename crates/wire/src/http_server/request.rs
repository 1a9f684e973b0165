//! Parsing of a request's head: message framing, call, metadata.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::Metadata;

use super::upgrade::UpgradeFields;
use crate::grpc::FRAMED;
use crate::grpc::dialect::Dialect;
use crate::grpc::request_reader::Hint;
use crate::grpc::{request as grpc, timeout};
use crate::http::h1::frame::{self, BodyLength, Lengths, Refusal};
use crate::http::mapping::content_type::is_grpc;
use crate::http::mapping::request::{Method, Request};
use crate::http::mapping::request_kind::{self, RPCX_PATH};
use crate::http::mapping::text::{Text, milliseconds};
use crate::http::mapping::{browser, brpc, gateway};
use crate::http::websocket::handshake as websocket;
use crate::http::{ServerConfig, field, h2};

/// An HTTP/1 request without its body, with data for its connection.
#[derive(Debug)]
pub(super) struct H1Request {
    pub(super) inner: Request,
    pub(super) http10: bool,
    /// Whether the connection stays open after the exchange.
    pub(super) keep: bool,
    pub(super) body_length: BodyLength,
    /// The gRPC call, if the content type is gRPC's.
    pub(super) grpc: Option<Box<Result<grpc::Request, grpc::InvalidRequest>>>,
    /// The settings of a peer that requests an upgrade to HTTP/2.
    pub(super) upgrade: Option<Box<h2::Settings>>,
    /// The fields of a peer that requests an upgrade to WebSocket.
    pub(super) websocket: Option<Box<websocket::HandshakeFields>>,
}

impl H1Request {
    /// Parses a complete head; the message may have `limit` bytes.
    pub(super) fn parse(head: &Bytes, limit: usize) -> Result<Self, Refusal> {
        let mut slots = [const { MaybeUninit::uninit() }; frame::MAX_FIELDS];
        let mut parsed = httparse::Request::new(&mut []);
        let whole = httparse::ParserConfig::default().parse_request_with_uninit_headers(
            &mut parsed,
            head,
            &mut slots,
        );
        let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Refusal::malformed("the request line is malformed"));
        };
        match whole {
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::long_head()),
            _ => return Err(Refusal::malformed("a header field is malformed")),
        }

        let http10 = version == 0;
        let mut fields = Fields::default();
        for header in parsed.headers.iter() {
            fields.take(header.name, head.slice_ref(header.value))?;
        }
        // Also if the target has an authority, which takes precedence over the field (RFC 9112 §3.2, §3.2.2).
        if fields.host.is_none() && !http10 {
            return Err(Refusal::malformed("the Host is missing"));
        }
        if let Some(authority) = authority_of(target) {
            if !field::is_host(authority.as_bytes()) {
                return Err(Refusal::malformed("the authority of the target is malformed"));
            }
            fields.host = Some(head.slice_ref(authority.as_bytes()));
        }
        let is_grpc = fields.content_type.as_deref().is_some_and(is_grpc);
        let method = method_of(method)?;
        let content_type = fields.content_type.as_deref();
        let grpc = match () {
            () if is_grpc => Some(Box::new(read_grpc(method.as_str(), target, parsed.headers))),
            () if fields.hint > Hint::None || method == Method::Get && is_framed_call(query_of(target)) => {
                read_framed(method.as_str(), target, parsed.headers).map(|call| Box::new(Ok(call)))
            }
            () => None,
        };
        let is_framed = grpc.is_some() && !is_grpc;
        let room = match content_type.and_then(grpc::kind) {
            // Each message has a limit of its own, and messages are read one by one.
            Some((dialect, _)) if dialect != Dialect::Native => usize::MAX,
            _ if is_framed => usize::MAX,
            _ if is_grpc => web_body(limit),
            _ => limit.saturating_sub(head.len()),
        };
        let body_length = fields.lengths.body_length(http10, room)?.unwrap_or(BodyLength::Fixed(0));
        let path = Text(head.slice_ref(path_of(target).as_bytes()));
        let query = Text(head.slice_ref(query_of(target).as_bytes()));
        let expects = fields.expects && !http10 && body_length != BodyLength::Fixed(0);
        Ok(Self {
            http10,
            keep: if http10 { fields.keep_alive && !fields.close } else { !fields.close },
            body_length,
            grpc,
            upgrade: fields.upgrade_request.parse_settings(&fields.hop_by_hop).filter(|_| !http10),
            websocket: fields.websocket().filter(|_| !http10),
            inner: Request { query, expects, ..fields.into_request(method, path) },
        })
    }

    /// Whether it is a call in a web dialect of gRPC; a gRPC-Web call may be invalid.
    pub(crate) fn uses_web_dialect(&self) -> bool {
        let named =
            |content_type: &Bytes| content_type.trim_ascii_start().starts_with(b"application/grpc-web");
        self.grpc.is_some()
            && (self.is_framed()
                || self.inner.method == Method::Post && self.inner.content_type.as_ref().is_some_and(named))
    }

    /// Whether it is a call in a dialect with a framing of its own.
    fn is_framed(&self) -> bool {
        matches!(self.grpc.as_deref(), Some(Ok(call)) if call.dialect.framing().is_some())
    }

    /// Drops a call in a dialect, so that the request is handled as plain HTTP, if the server does not allow the call.
    pub(super) fn without_disallowed_call(mut self, config: &ServerConfig) -> Self {
        if let Some(Ok(call)) = self.grpc.as_deref()
            && call.dialect.framing().is_some()
            && !is_allowed(config, &self.inner, call)
        {
            self.grpc = None;
        }
        self
    }

    /// Whether it requests a WebSocket at rpcx's path, where that is supported.
    pub(super) fn asks_for_websocket(&self) -> bool {
        self.websocket.is_some()
            && self.inner.method == Method::Get
            && self.inner.path.as_str() == RPCX_PATH
            && self.body_length == BodyLength::Fixed(0)
    }

    /// Whether its response may only follow all earlier responses.
    pub(super) fn must_be_last(&self) -> bool {
        self.uses_web_dialect() || self.asks_for_websocket()
    }

    /// Returns the maximum length of a body that is read as a whole, with messages of at most `limit` bytes. Longer
    /// gRPC-Web bodies are read message by message.
    pub(super) fn max_body(&self, limit: usize) -> usize {
        if self.uses_web_dialect() { web_body(limit) } else { limit }
    }

    /// Returns the dialect of gRPC in the head.
    pub(super) fn dialect(&self) -> Dialect {
        if let Some(Ok(call)) = self.grpc.as_deref() {
            return call.dialect;
        }
        self.inner
            .content_type
            .as_deref()
            .and_then(grpc::kind)
            .map(|(dialect, _)| dialect)
            .unwrap_or_default()
    }
}

/// Initial state of an HTTP/2 session after an upgrade: the request that asked for it is its first.
#[derive(Debug)]
pub struct Upgrade {
    pub(super) settings: h2::Settings,
    pub(super) request: H1Request,
    pub(super) body: Bytes,
}

/// Returns the call that an HTTP/2 head describes in a dialect with a framing of its own, if it may be made in that.
#[cold]
pub(super) fn parse_framed_call(list: &h2::hpack::Fields, config: &ServerConfig) -> Option<grpc::Request> {
    let call = FRAMED.iter().find_map(|framed| framed.reader.read(list))?;
    let request = from_h2(list, usize::MAX).ok()?;
    is_allowed(config, &request, &call).then_some(call)
}

/// Whether the request with this head may make the call: a GET only calls methods without side effects, pages of
/// another origin are rejected, and so are requests that other handlers answer.
#[cold]
fn is_allowed(config: &ServerConfig, head: &Request, call: &grpc::Request) -> bool {
    let is_safe =
        head.method == Method::Post || config.routes.has_no_side_effects(&call.service, &call.method);
    is_safe && browser::refusal(config, head).is_none() && !request_kind::is_for_others(config, head)
}

/// Parses the head of an HTTP/2 request; the message may have `limit` bytes.
pub(super) fn from_h2(list: &h2::hpack::Fields, limit: usize) -> Result<Request, Refusal> {
    if has_too_many(list, frame::MAX_FIELDS) {
        return Err(Refusal::long_head());
    }
    let text = |name: &[u8]| {
        let value = list.get(name).unwrap_or_default();
        std::str::from_utf8(value).map_err(|_| Refusal::malformed("the request is not UTF-8"))
    };
    let (method, target) = (method_of(text(b":method")?)?, text(b":path")?);
    if method == Method::Connect {
        return Err(Refusal::no_proxy());
    }
    let mut fields = Fields::default();
    for (name, value) in list.iter().filter(|(name, _)| !name.starts_with(b":")) {
        let name = std::str::from_utf8(name).unwrap_or_default();
        fields.take(name, Bytes::copy_from_slice(value))?;
    }
    if let Some(authority) = list.get(b":authority").filter(|authority| !authority.is_empty()) {
        match &fields.host {
            Some(host) if !host.eq_ignore_ascii_case(authority) => {
                return Err(Refusal::malformed("the :authority and the Host differ"));
            }
            Some(_) => {}
            None => fields.set_host(Bytes::copy_from_slice(authority))?,
        }
    }
    fields.lengths.body_length(false, limit)?;
    let expects = fields.expects;
    let path = Text(Bytes::copy_from_slice(path_of(target).as_bytes()));
    let query = Text(Bytes::copy_from_slice(query_of(target).as_bytes()));
    Ok(Request { query, expects, h2: true, ..fields.into_request(method, path) })
}

/// Whether an HTTP/2 header list has more than `max` fields, not counting pseudo-header fields.
pub(super) fn has_too_many(list: &h2::hpack::Fields, max: usize) -> bool {
    list.len() > max && list.iter().filter(|(name, _)| !name.starts_with(b":")).count() > max
}

fn method_of(text: &str) -> Result<Method, Refusal> {
    Method::parse(text).ok_or(Refusal { status: 501, reason: "this HTTP method is not supported" })
}

/// Parses a head as gRPC does, with field names in lower case.
#[cold]
fn read_grpc(
    method: &str,
    target: &str,
    headers: &[httparse::Header<'_>],
) -> Result<grpc::Request, grpc::InvalidRequest> {
    let names: Vec<String> = headers.iter().map(|header| header.name.to_ascii_lowercase()).collect();
    let line = [(":method", method), (":path", path_of(target))]
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let fields = names.iter().zip(headers).map(|(name, header)| (name.as_bytes(), header.value));
    grpc::Request::read(line.into_iter().chain(fields))
}

/// Whether the query of a GET is that of a call in a dialect with a framing of its own.
fn is_framed_call(query: &str) -> bool {
    !query.is_empty() && FRAMED.iter().any(|framed| framed.reader.is_call(query))
}

/// Parses a head as the dialects with a framing of their own do, if it is a call in one of them.
#[cold]
fn read_framed(method: &str, target: &str, headers: &[httparse::Header<'_>]) -> Option<grpc::Request> {
    let path = match query_of(target) {
        "" => path_of(target).to_owned(),
        query => [path_of(target), query].join("?"),
    };
    let mut head = h2::hpack::Fields::with_room(0);
    head.push(b":method", method.as_bytes());
    head.push(b":path", path.as_bytes());
    for header in headers {
        let mut buffer = [0; 32];
        match field::lower_case(header.name, &mut buffer) {
            Some(name) => head.push(name.as_bytes(), header.value),
            None => head.push(header.name.to_ascii_lowercase().as_bytes(), header.value),
        }
    }
    FRAMED.iter().find_map(|framed| framed.reader.read(&head))
}

/// Returns the path of a request target, which may be an absolute URL (RFC 9112 §3.2.2). A part of `target`, or empty.
fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("")
        }
        _ => target,
    };
    path.find(['?', '#']).and_then(|end| path.get(..end)).unwrap_or(path)
}

/// Returns the authority of a request target that is an absolute URL. A part of `target`.
fn authority_of(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return None;
    }
    let (scheme, rest) = target.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    (!scheme.contains('/')).then_some(authority)
}

/// Returns the maximum length of a gRPC-Web body that is read as a whole, with messages of at most `limit` bytes:
/// base64 is longer by a third, and frames and small messages may accompany a large one.
fn web_body(limit: usize) -> usize {
    const BESIDE: usize = 4 << 10;
    limit.saturating_add(limit / 3 + BESIDE)
}

/// Returns the query of a request target. A part of `target`, or empty.
fn query_of(target: &str) -> &str {
    let target = target.split_once('#').map_or(target, |(target, _)| target);
    match target.split_once('?') {
        Some((_, query)) => query,
        // A part of the target even if it is empty, so that it can be shared.
        None => &target[target.len()..],
    }
}

/// State after the fields parsed so far.
#[derive(Default)]
struct Fields {
    lengths: Lengths,
    host: Option<Bytes>,
    from_page: bool,
    close: bool,
    keep_alive: bool,
    expects: bool,
    content_type: Option<Bytes>,
    content_encoding: Option<Bytes>,
    accepts_gzip: bool,
    authorization: Option<Bytes>,
    connect_timeout: Option<Duration>,
    grpc_timeout: Option<Duration>,
    wrong_timeout: Option<&'static str>,
    json_rpc: bool,
    gateway: Option<Box<gateway::Fields>>,
    metadata: Metadata,
    /// Fields listed in `Connection`, which are hop-by-hop.
    hop_by_hop: Vec<String>,
    /// The strongest hint at a dialect of gRPC among the fields.
    hint: Hint,
    upgrade_request: UpgradeFields,
    websocket: Option<Box<websocket::HandshakeFields>>,
}

impl Fields {
    fn take(&mut self, name: &str, value: Bytes) -> Result<(), Refusal> {
        let mut buffer = [0; 32];
        let Some(lower) = field::lower_case(name, &mut buffer) else {
            let lower = name.to_ascii_lowercase();
            if field::is_metadata(&lower) {
                field::push_metadata(&mut self.metadata, &lower, value);
            }
            return Ok(());
        };
        match lower {
            "content-length" => self.lengths.content_length(&value)?,
            "transfer-encoding" => self.lengths.transfer_encoding(&value)?,
            "connection" => self.connection(&value),
            "host" => self.set_host(value)?,
            "expect" => self.expects = value.eq_ignore_ascii_case(b"100-continue"),
            "content-type" => {
                self.take_hint(lower, &value);
                self.content_type = Some(value);
            }
            "content-encoding" => field::join_values(&mut self.content_encoding, value),
            "accept-encoding" => self.accepts_gzip |= accepts_gzip(&value),
            "authorization" => self.set_authorization(value)?,
            "connect-timeout-ms" => {
                self.connect_timeout = milliseconds(&value);
                if self.connect_timeout.is_none() {
                    self.wrong_timeout = Some("the Connect-Timeout-Ms is not a number of up to ten digits\n");
                }
            }
            "grpc-timeout" => {
                self.grpc_timeout = timeout::read(&value);
                if self.grpc_timeout.is_none() {
                    self.wrong_timeout =
                        Some("the grpc-timeout is not a number of up to eight digits and a unit\n");
                }
            }
            "x-jsonrpc-2.0" => self.json_rpc = value.eq_ignore_ascii_case(b"true"),
            "upgrade" => self.upgrade(&value),
            "http2-settings" => self.upgrade_request.settings(value),
            "sec-websocket-key" => self.websocket.get_or_insert_default().key(value),
            "sec-websocket-protocol" => {
                let upgrade_request = self.websocket.get_or_insert_default();
                field::list(&value).for_each(|name| upgrade_request.protocol(value.slice_ref(name)));
            }
            "sec-websocket-version" => self.websocket.get_or_insert_default().version(value),
            "origin" | "sec-fetch-site" => {
                self.from_page = true;
                field::push_metadata(&mut self.metadata, lower, value);
            }
            // Only this side sets the unresolved part of the path.
            brpc::UNRESOLVED_PATH => {}
            other => match other.strip_prefix("x-rpcx-") {
                Some(name) => self.gateway.get_or_insert_default().take(name, value),
                None if field::is_metadata(other) => {
                    self.take_hint(other, &value);
                    field::push_metadata(&mut self.metadata, other, value);
                }
                None => {}
            },
        }
        Ok(())
    }

    fn take_hint(&mut self, name: &str, value: &[u8]) {
        for framed in FRAMED {
            self.hint = self.hint.max(framed.reader.hint(name, value));
        }
    }

    /// Returns the request that the fields describe, without a query.
    fn into_request(mut self, method: Method, path: Text) -> Request {
        for name in self.hop_by_hop.drain(..) {
            self.metadata.remove(&name);
        }
        field::join_repeated(&mut self.metadata);
        Request {
            method,
            path,
            query: Text(Bytes::new()),
            expects: false,
            h2: false,
            host: self.host.unwrap_or_default(),
            from_page: self.from_page,
            accepted: false,
            content_type: self.content_type,
            content_encoding: self.content_encoding,
            accepts_gzip: self.accepts_gzip,
            authorization: self.authorization,
            timeout: self.connect_timeout.or(self.grpc_timeout),
            wrong_timeout: self.wrong_timeout,
            uses_framed_dialect: self.hint == Hint::Certain,
            json_rpc: self.json_rpc,
            gateway: self.gateway,
            metadata: self.metadata,
        }
    }

    /// Stores `Host`, which must be unique (RFC 9112 §3.2).
    fn set_host(&mut self, value: Bytes) -> Result<(), Refusal> {
        if !field::is_host(&value) {
            return Err(Refusal::malformed("the Host is malformed"));
        }
        match self.host.replace(value) {
            None => Ok(()),
            Some(_) => Err(Refusal::malformed("there are two Hosts")),
        }
    }

    /// Stores `Authorization`, which is no list and so must be unique (RFC 9110 §5.3): a proxy may have checked the
    /// other one.
    fn set_authorization(&mut self, value: Bytes) -> Result<(), Refusal> {
        match self.authorization.replace(value) {
            None => Ok(()),
            Some(_) => Err(Refusal::malformed("there are two Authorizations")),
        }
    }

    fn upgrade(&mut self, value: &[u8]) {
        self.upgrade_request.upgrade(field::list(value));
        if field::list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket")) {
            self.websocket.get_or_insert_default().name();
        }
    }

    /// Returns the handshake fields, if the request is a WebSocket handshake.
    fn websocket(&mut self) -> Option<Box<websocket::HandshakeFields>> {
        let mut upgrade_request =
            self.websocket.take().filter(|upgrade_request| upgrade_request.is_websocket())?;
        upgrade_request.host.clone_from(&self.host);
        upgrade_request.agreed = self.hop_by_hop.iter().any(|option| option == "upgrade");
        Some(upgrade_request)
    }

    fn connection(&mut self, value: &[u8]) {
        for option in field::list(value) {
            match () {
                () if option.eq_ignore_ascii_case(b"close") => self.close = true,
                () if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                () => self.hop_by_hop.push(String::from_utf8_lossy(option).to_ascii_lowercase()),
            }
        }
    }
}

/// Whether an `Accept-Encoding` accepts gzip.
fn accepts_gzip(value: &[u8]) -> bool {
    field::list(value).any(|element| {
        let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let named = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip"));
        named && !parts.any(is_zero_weight)
    })
}

/// Whether a parameter excludes its element: a weight of zero, with up to three decimals (RFC 9110 §12.4.2).
fn is_zero_weight(parameter: &[u8]) -> bool {
    let Some((name, value)) = parameter.split_at_checked(2) else { return false };
    name.eq_ignore_ascii_case(b"q=") && matches!(value, b"0" | b"0." | b"0.0" | b"0.00" | b"0.000")
}

//! A request's head, told apart: what frames the message, what describes the call, what is metadata.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Compression, Metadata};

use crate::grpc::request as grpc;
use crate::grpc::timeout;
use crate::grpc_web::{Dialect, Preflight};
use crate::h2;
use crate::websocket::handshake as websocket;

use super::asked::RPCX_PATH;
use super::frame::{Framing, Lengths, Refusal};
use super::upgrade::Wish;
use super::{frame, gateway, mapping};

/// A request without its body. Values are slices of the head, shared with the bytes it arrived in.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The target's path, without authority and query.
    pub(crate) path: Text,
    /// What stands behind the path's question mark.
    pub(super) query: Text,
    pub(super) http10: bool,
    /// Whether the connection outlives the exchange.
    pub(super) keep: bool,
    /// The peer waits for `100 Continue` before it sends the body.
    pub(crate) expects: bool,
    pub(super) framing: Framing,
    /// It came by HTTP/2, or goes on in it.
    pub(super) h2: bool,
    /// What `Host` or `:authority` says, or the target; empty if nothing does.
    pub(crate) host: Bytes,
    /// It says where it comes from in a way that only browsers do (`Origin`, `Sec-Fetch-Site`).
    pub(super) from_page: bool,
    /// Its head was judged: its calls are authenticated.
    pub(crate) accepted: bool,
    pub(crate) content_type: Option<Bytes>,
    content_encoding: Option<Bytes>,
    pub(super) accepts_gzip: bool,
    pub(crate) authorization: Option<Bytes>,
    /// How long the caller still waits.
    pub(super) timeout: Option<Duration>,
    /// The field that says so says no time.
    pub(super) wrong_timeout: Option<&'static str>,
    /// `X-JSONRPC-2.0: true`.
    pub(super) json_rpc: bool,
    /// The `X-RPCX-*` fields, if there are any.
    pub(super) gateway: Option<Box<gateway::Fields>>,
    pub(crate) metadata: Metadata,
    /// The call of gRPC, if the content type says that it is one.
    pub(crate) grpc: Option<Box<Result<grpc::Request, grpc::Unfit>>>,
    /// The peer would go on in HTTP/2, where its settings are these.
    pub(super) upgrade: Option<Box<h2::Settings>>,
    /// The peer would go on in WebSocket.
    pub(super) websocket: Option<Box<websocket::Wish>>,
}

impl Request {
    /// Reads a whole head; the message may have `limit` bytes.
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
        match authority_of(target) {
            // What stands in the target goes before the field (RFC 9112 §3.2.2).
            Some(authority) => fields.host = Some(head.slice_ref(authority.as_bytes())),
            None if fields.host.is_none() && !http10 => {
                return Err(Refusal::malformed("the Host is missing"));
            }
            None => {}
        }
        let is_grpc = fields.content_type.as_deref().is_some_and(grpc::is_meant);
        let room = match fields.content_type.as_deref().and_then(grpc::kind) {
            // Each of its messages has a limit, and they are read one by one.
            Some((dialect, _)) if dialect != Dialect::Native => usize::MAX,
            _ if is_grpc => web_body(limit),
            _ => limit.saturating_sub(head.len()),
        };
        let framing = fields.lengths.framing(http10, room)?.unwrap_or(Framing::Length(0));
        let path = Text(head.slice_ref(path_of(target).as_bytes()));
        let query = Text(head.slice_ref(query_of(target).as_bytes()));
        Ok(Self {
            query,
            http10,
            keep: if http10 { fields.keep_alive && !fields.close } else { !fields.close },
            expects: fields.expects && !http10 && framing != Framing::Length(0),
            framing,
            grpc: is_grpc.then(|| Box::new(read_grpc(method, target, parsed.headers))),
            upgrade: fields.wish.granted(&fields.hop_by_hop).filter(|_| !http10),
            websocket: fields.websocket().filter(|_| !http10),
            ..Self::new(Method::parse(method)?, path, fields)
        })
    }

    /// Reads the head of a request that came by HTTP/2; the message may have `limit` bytes.
    pub(crate) fn of_h2(list: &h2::hpack::Fields, limit: usize) -> Result<Self, Refusal> {
        if frame::has_too_many(list, frame::MAX_FIELDS) {
            return Err(Refusal::long_head());
        }
        let text = |name: &[u8]| {
            let value = list.get(name).unwrap_or_default();
            std::str::from_utf8(value).map_err(|_| Refusal::malformed("the request is not UTF-8"))
        };
        let (method, target) = (Method::parse(text(b":method")?)?, text(b":path")?);
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
        fields.lengths.framing(false, limit)?;
        let expects = fields.expects;
        let path = Text(Bytes::copy_from_slice(path_of(target).as_bytes()));
        let query = Text(Bytes::copy_from_slice(query_of(target).as_bytes()));
        Ok(Self { query, expects, h2: true, ..Self::new(method, path, fields) })
    }

    /// A request without a body, on a connection that goes on.
    fn new(method: Method, path: Text, mut fields: Fields) -> Self {
        for name in fields.hop_by_hop.drain(..) {
            fields.metadata.remove(&name);
        }
        frame::join_repeated(&mut fields.metadata);
        Self {
            method,
            path,
            query: Text(Bytes::new()),
            http10: false,
            keep: true,
            expects: false,
            framing: Framing::Length(0),
            h2: false,
            host: fields.host.unwrap_or_default(),
            from_page: fields.from_page,
            accepted: false,
            content_type: fields.content_type,
            content_encoding: fields.content_encoding,
            accepts_gzip: fields.accepts_gzip,
            authorization: fields.authorization,
            timeout: fields.connect_timeout.or(fields.grpc_timeout),
            wrong_timeout: fields.wrong_timeout,
            json_rpc: fields.json_rpc,
            gateway: fields.gateway,
            metadata: fields.metadata,
            grpc: None,
            upgrade: None,
            websocket: None,
        }
    }

    /// Whether it is a call of gRPC-Web, readable or not.
    pub(crate) fn is_web(&self) -> bool {
        let named =
            |content_type: &Bytes| content_type.trim_ascii_start().starts_with(b"application/grpc-web");
        self.grpc.is_some() && self.method == Method::Post && self.content_type.as_ref().is_some_and(named)
    }

    /// The path with the query, as they came.
    pub(crate) fn target(&self) -> Bytes {
        match (self.path.as_str(), self.query.as_str()) {
            ("", "") => Bytes::from_static(b"/"),
            (_, "") => self.path.0.clone(),
            (path, query) => format!("{}?{query}", if path.is_empty() { "/" } else { path }).into(),
        }
    }

    /// Whether it would go on in WebSocket, at the path where that is understood: that of rpcx.
    pub(super) fn asks_for_websocket(&self) -> bool {
        self.websocket.is_some()
            && self.method == Method::Get
            && self.path.as_str() == RPCX_PATH
            && self.framing == Framing::Length(0)
    }

    /// Whether what answers it may leave only behind everything that is owed before.
    pub(super) fn comes_last(&self) -> bool {
        self.is_web() || self.asks_for_websocket()
    }

    /// How long its body may be to be read as a whole, of which each message may have `limit` bytes. That of gRPC-Web is
    /// read message by message if it is longer.
    pub(super) fn most(&self, limit: usize) -> usize {
        if self.is_web() { web_body(limit) } else { limit }
    }

    /// The dialect of gRPC that the content type tells.
    pub(super) fn dialect(&self) -> Dialect {
        self.content_type.as_deref().and_then(grpc::kind).map(|(dialect, _)| dialect).unwrap_or_default()
    }

    /// What a browser asks by it, if that is whether a page may call.
    pub(crate) fn preflight(&self) -> Option<Preflight> {
        Preflight::read(&self.metadata).filter(|_| self.method == Method::Options)
    }

    /// Whether the body is not compressed.
    pub(crate) fn is_plain(&self) -> bool {
        self.compression() == Some(Compression::None)
    }

    /// How the body is compressed; `None` if in a way that is not understood.
    pub(super) fn compression(&self) -> Option<Compression> {
        match self.content_encoding.as_deref() {
            None => Some(Compression::None),
            Some(coding) => coding_of(coding),
        }
    }
}

/// Reads a head as gRPC does, whose fields have their names in lower case.
#[cold]
fn read_grpc(
    method: &str,
    target: &str,
    headers: &[httparse::Header<'_>],
) -> Result<grpc::Request, grpc::Unfit> {
    let names: Vec<String> = headers.iter().map(|header| header.name.to_ascii_lowercase()).collect();
    let line = [(":method", method), (":path", path_of(target))]
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let fields = names.iter().zip(headers).map(|(name, header)| (name.as_bytes(), header.value));
    grpc::Request::read(line.into_iter().chain(fields))
}

/// The compression a `Content-Encoding` names.
pub(super) fn coding_of(value: &[u8]) -> Option<Compression> {
    match () {
        () if value.is_empty() || value.eq_ignore_ascii_case(b"identity") => Some(Compression::None),
        () if value.eq_ignore_ascii_case(b"gzip") || value.eq_ignore_ascii_case(b"x-gzip") => {
            Some(Compression::Gzip)
        }
        () if value.eq_ignore_ascii_case(b"deflate") => Some(Compression::Zlib),
        () => None,
    }
}

/// The methods that are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Head,
    Delete,
    Options,
    Patch,
    Connect,
}

impl Method {
    /// The method as it is spelled.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Head => "HEAD",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Connect => "CONNECT",
        }
    }

    fn parse(text: &str) -> Result<Self, Refusal> {
        Ok(match text {
            "GET" => Self::Get,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "HEAD" => Self::Head,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            "CONNECT" => Self::Connect,
            _ => return Err(Refusal::malformed("the method is unknown")),
        })
    }
}

/// Shared text: a slice of a head that is known to be UTF-8.
#[derive(Debug, Clone)]
pub(crate) struct Text(Bytes);

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text without `prefix`, or all of it.
    pub(super) fn without(&self, prefix: &str) -> Bytes {
        let rest = self.as_str().strip_prefix(prefix).unwrap_or(self.as_str());
        self.0.slice_ref(rest.as_bytes())
    }
}

/// The path of a request target, which may name a whole URL (RFC 9112 §3.2.2). A part of `target`, or empty.
fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("")
        }
        _ => target,
    };
    path.find(['?', '#']).and_then(|end| path.get(..end)).unwrap_or(path)
}

/// The authority of a request target that names a whole URL. A part of `target`.
fn authority_of(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return None;
    }
    let (scheme, rest) = target.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    (!scheme.contains('/')).then_some(authority)
}

/// How long a body of gRPC-Web may be to be read as a whole, whose messages may have `limit` bytes each: text in base64 is
/// longer by a third, and frames and small messages stand beside a large one.
fn web_body(limit: usize) -> usize {
    const BESIDE: usize = 4 << 10;
    limit.saturating_add(limit / 3 + BESIDE)
}

/// The query of a request target. A part of `target`, or empty.
fn query_of(target: &str) -> &str {
    let target = target.split_once('#').map_or(target, |(target, _)| target);
    match target.split_once('?') {
        Some((_, query)) => query,
        // A part of the target even if it is empty, so that it can be shared.
        None => &target[target.len()..],
    }
}

/// What the fields said so far.
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
    /// Fields that `Connection` names: they are for this hop only.
    hop_by_hop: Vec<String>,
    wish: Wish,
    websocket: Option<Box<websocket::Wish>>,
}

impl Fields {
    fn take(&mut self, name: &str, value: Bytes) -> Result<(), Refusal> {
        let mut buffer = [0; 32];
        let Some(lower) = frame::lower_case(name, &mut buffer) else {
            let lower = name.to_ascii_lowercase();
            if frame::is_metadata(&lower) {
                frame::push_metadata(&mut self.metadata, &lower, value);
            }
            return Ok(());
        };
        match lower {
            "content-length" => self.lengths.content_length(&value)?,
            "transfer-encoding" => self.lengths.transfer_encoding(&value)?,
            "connection" => self.connection(&value),
            "host" => self.set_host(value)?,
            "expect" => self.expects = value.eq_ignore_ascii_case(b"100-continue"),
            "content-type" => self.content_type = Some(value),
            "content-encoding" => self.content_encoding = Some(value),
            "accept-encoding" => self.accepts_gzip |= accepts_gzip(&value),
            "authorization" => self.authorization = Some(value),
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
            "http2-settings" => self.wish.settings(value),
            "sec-websocket-key" => self.websocket.get_or_insert_default().key(value),
            "sec-websocket-protocol" => {
                let wish = self.websocket.get_or_insert_default();
                frame::list(&value).for_each(|name| wish.protocol(value.slice_ref(name)));
            }
            "sec-websocket-version" => self.websocket.get_or_insert_default().version(value),
            "origin" | "sec-fetch-site" => {
                self.from_page = true;
                frame::push_metadata(&mut self.metadata, lower, value);
            }
            // Only this side may say what was left of the path.
            mapping::UNRESOLVED_PATH => {}
            other => match other.strip_prefix("x-rpcx-") {
                Some(name) => self.gateway.get_or_insert_default().take(name, value),
                None if frame::is_metadata(other) => frame::push_metadata(&mut self.metadata, other, value),
                None => {}
            },
        }
        Ok(())
    }

    /// Takes a `Host`, of which there is one (RFC 9112 §3.2).
    fn set_host(&mut self, value: Bytes) -> Result<(), Refusal> {
        if !frame::is_host(&value) {
            return Err(Refusal::malformed("the Host is malformed"));
        }
        match self.host.replace(value) {
            None => Ok(()),
            Some(_) => Err(Refusal::malformed("there are two Hosts")),
        }
    }

    fn upgrade(&mut self, value: &[u8]) {
        self.wish.upgrade(frame::list(value));
        if frame::list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket")) {
            self.websocket.get_or_insert_default().name();
        }
    }

    /// What is asked for, if it is a WebSocket.
    fn websocket(&mut self) -> Option<Box<websocket::Wish>> {
        let mut wish = self.websocket.take().filter(|wish| wish.is_meant())?;
        wish.host.clone_from(&self.host);
        wish.agreed = self.hop_by_hop.iter().any(|option| option == "upgrade");
        Some(wish)
    }

    fn connection(&mut self, value: &[u8]) {
        for option in frame::list(value) {
            match () {
                () if option.eq_ignore_ascii_case(b"close") => self.close = true,
                () if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                () => self.hop_by_hop.push(String::from_utf8_lossy(option).to_ascii_lowercase()),
            }
        }
    }
}

/// Whether an `Accept-Encoding` takes gzip.
fn accepts_gzip(value: &[u8]) -> bool {
    frame::list(value).any(|element| {
        let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let named = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip"));
        named && !parts.any(|weight| matches!(weight, b"q=0" | b"q=0.0" | b"q=0.00" | b"q=0.000"))
    })
}

/// A timeout in milliseconds, as the Connect protocol writes it; `None` if it is malformed.
pub(super) fn milliseconds(value: &[u8]) -> Option<Duration> {
    digits(value).map(Duration::from_millis)
}

/// A number of up to ten digits.
fn digits(value: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(value).ok().filter(|text| text.len() <= 10)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

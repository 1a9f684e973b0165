//! The request of a client, for every version of HTTP.

use bytes::Bytes;
use polyrpc_core::protocol::Parameters;
use polyrpc_core::{Call, Compression, Fault, Format, Metadata, Retry, Status};
use polyrpc_payload::compress;

use super::query;
use crate::grpc::coding;
use crate::grpc::framing::Framing as _;
use crate::http::connect_kind::Kind;
use crate::http::path::check_name;

/// HTTP method of a client's unary calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnaryMethod {
    /// POST.
    #[default]
    Post,
    /// GET, which servers accept for methods declared free of side effects. Messages that make the query too long are
    /// sent by POST.
    Get,
}

impl UnaryMethod {
    /// Returns the method that the parameters of a URL select.
    pub fn selected_by(parameters: &Parameters) -> Self {
        if parameters.has("http_method", "get") { Self::Get } else { Self::Post }
    }
}

/// Head of a request, and its body if that is one message.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// Path with query.
    pub(crate) target: String,
    pub(crate) body: Bytes,
    format: Format,
    /// Compression of the body, or of each message sent.
    compression: Compression,
    is_get: bool,
}

impl Request {
    /// Creates the request of a call, whose messages use this compression.
    ///
    /// # Errors
    ///
    /// If the call cannot be expressed in the protocol.
    pub(crate) fn new(
        call: &Call<'_>,
        kind: Kind,
        method: UnaryMethod,
        compression: Compression,
    ) -> Result<Self, Status> {
        check_name(call.service)?;
        check_name(call.method)?;
        check_metadata(&call.head.metadata)?;
        let body = match (kind, compression) {
            (Kind::Unary, Compression::None) => call.body.clone(),
            (Kind::Unary, _) => compress::compress(compression, &call.body)
                .map_err(|error| Status::internal(error.to_string()).with_fault(Fault::Us))?
                .into(),
            _ => Bytes::new(),
        };
        let format = call.head.format;
        let target = ["/", call.service, "/", call.method].concat();
        let request = Self { kind, target, body, format, compression, is_get: false };
        // Base64 is longer by a third.
        let may_get =
            kind == Kind::Unary && method == UnaryMethod::Get && request.body.len() <= LONGEST_QUERY / 4 * 3;
        Ok(if may_get { request.by_get() } else { request })
    }

    fn by_get(self) -> Self {
        let query = query::write(self.format, self.compression, &self.body);
        Self { target: [&self.target[..], &query].join("?"), body: Bytes::new(), is_get: true, ..self }
    }

    /// Returns the HTTP method.
    pub(crate) fn method(&self) -> &'static str {
        if self.is_get { "GET" } else { "POST" }
    }

    /// Whether the request has a body.
    pub(crate) fn has_body(&self) -> bool {
        !self.is_get
    }

    /// Passes the fields of the head to `add`, without metadata, credential and the client's name.
    pub(crate) fn fields(&self, call: &Call<'_>, mut add: impl FnMut(&[u8], &[u8])) {
        if !self.is_get {
            add(b"content-type", &self.kind.content_type(self.format));
            add(b"connect-protocol-version", b"1");
        }
        let (accepts, encoding): (&[u8], &[u8]) = match self.kind {
            Kind::Stream => (b"connect-accept-encoding", b"connect-content-encoding"),
            _ => (b"accept-encoding", b"content-encoding"),
        };
        add(accepts, coding::ACCEPTED);
        let name = coding::name(self.compression).filter(|_| self.compression != Compression::None);
        if let Some(name) = name.filter(|_| !self.is_get) {
            add(encoding, name);
        }
        if let Some(time) = call.timeout {
            // Rounded up: the server must not give up before the caller does.
            let millis = time.as_nanos().div_ceil(1_000_000).min(LONGEST_TIMEOUT);
            add(b"connect-timeout-ms", millis.to_string().as_bytes());
        }
    }
}

/// Rejects metadata with names reserved by the protocol.
fn check_metadata(metadata: &Metadata) -> Result<(), Status> {
    let is_own = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.starts_with("connect-") || name.starts_with("trailer-") || name == "accept-encoding"
    };
    match metadata.iter().find(|(name, _)| is_own(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Status::invalid_argument(format!("the name {name:?} belongs to Connect"))
            .with_fault(Fault::Caller)
            .with_retry(Retry::Never)),
    }
}

/// Maximum number of message bytes in the query of a GET. Proxies accept heads of 8 KiB.
const LONGEST_QUERY: usize = 4 << 10;

/// Longest timeout: the specification allows ten digits.
const LONGEST_TIMEOUT: u128 = 9_999_999_999;

//! Head of an HTTP request, for all HTTP versions.

use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Compression, Metadata};

use super::gateway;
use super::text::{Text, coding_of};
use crate::http::cors::Preflight;

/// A request without its body. Values are slices of the head, shared with the bytes it arrived in.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path of the target, without authority and query.
    pub(crate) path: Text,
    /// Query of the target, after the question mark.
    pub(crate) query: Text,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects: bool,
    /// The request arrived over HTTP/2, or upgrades to it.
    pub(crate) h2: bool,
    /// Value of `Host` or `:authority`, or the target's authority; empty if there is none.
    pub(crate) host: Bytes,
    /// It has a field that only browsers send (`Origin`, `Sec-Fetch-Site`).
    pub(crate) from_page: bool,
    /// Its head was checked and accepted: its calls are authenticated.
    pub(crate) accepted: bool,
    pub(crate) content_type: Option<Bytes>,
    pub(crate) content_encoding: Option<Bytes>,
    pub(crate) accepts_gzip: bool,
    pub(crate) authorization: Option<Bytes>,
    /// Remaining timeout of the caller.
    pub(crate) timeout: Option<Duration>,
    /// Why the timeout field is malformed.
    pub(crate) wrong_timeout: Option<&'static str>,
    /// Its client uses a dialect of gRPC with a framing of its own.
    pub(crate) uses_framed_dialect: bool,
    /// `X-JSONRPC-2.0: true`.
    pub(crate) json_rpc: bool,
    /// The `X-RPCX-*` fields, if there are any.
    pub(crate) gateway: Option<Box<gateway::Fields>>,
    pub(crate) metadata: Metadata,
}

impl Request {
    /// Returns the path with the query, as received.
    pub(crate) fn target(&self) -> Bytes {
        match (self.path.as_str(), self.query.as_str()) {
            ("", "") => Bytes::from_static(b"/"),
            (_, "") => self.path.0.clone(),
            (path, query) => format!("{}?{query}", if path.is_empty() { "/" } else { path }).into(),
        }
    }

    /// Returns the CORS preflight in the request, if it is one.
    pub(crate) fn preflight(&self) -> Option<Preflight> {
        Preflight::read(&self.metadata).filter(|_| self.method == Method::Options)
    }

    /// Whether the body is not compressed.
    pub(crate) fn is_plain(&self) -> bool {
        self.compression() == Some(Compression::None)
    }

    /// Returns the compression of the body; `None` if it is not supported.
    pub(crate) fn compression(&self) -> Option<Compression> {
        match self.content_encoding.as_deref() {
            None => Some(Compression::None),
            Some(coding) => coding_of(coding),
        }
    }
}

/// The recognised HTTP methods.
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
    /// Returns the name of the method.
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

    /// Returns the method with this name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "GET" => Self::Get,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "HEAD" => Self::Head,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            "CONNECT" => Self::Connect,
            _ => return None,
        })
    }
}

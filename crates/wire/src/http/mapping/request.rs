//! What a request of HTTP says before its body, whichever version it came by.

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
    /// The target's path, without authority and query.
    pub(crate) path: Text,
    /// What stands behind the path's question mark.
    pub(crate) query: Text,
    /// The peer waits for `100 Continue` before it sends the body.
    pub(crate) expects: bool,
    /// It came by HTTP/2, or goes on in it.
    pub(crate) h2: bool,
    /// What `Host` or `:authority` says, or the target; empty if nothing does.
    pub(crate) host: Bytes,
    /// It says where it comes from in a way that only browsers do (`Origin`, `Sec-Fetch-Site`).
    pub(crate) from_page: bool,
    /// Its head was judged: its calls are authenticated.
    pub(crate) accepted: bool,
    pub(crate) content_type: Option<Bytes>,
    pub(crate) content_encoding: Option<Bytes>,
    pub(crate) accepts_gzip: bool,
    pub(crate) authorization: Option<Bytes>,
    /// How long the caller still waits.
    pub(crate) timeout: Option<Duration>,
    /// The field that says so says no time.
    pub(crate) wrong_timeout: Option<&'static str>,
    /// `X-JSONRPC-2.0: true`.
    pub(crate) json_rpc: bool,
    /// The `X-RPCX-*` fields, if there are any.
    pub(crate) gateway: Option<Box<gateway::Fields>>,
    pub(crate) metadata: Metadata,
}

impl Request {
    /// The path with the query, as they came.
    pub(crate) fn target(&self) -> Bytes {
        match (self.path.as_str(), self.query.as_str()) {
            ("", "") => Bytes::from_static(b"/"),
            (_, "") => self.path.0.clone(),
            (path, query) => format!("{}?{query}", if path.is_empty() { "/" } else { path }).into(),
        }
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
    pub(crate) fn compression(&self) -> Option<Compression> {
        match self.content_encoding.as_deref() {
            None => Some(Compression::None),
            Some(coding) => coding_of(coding),
        }
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

    /// The method of this spelling.
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

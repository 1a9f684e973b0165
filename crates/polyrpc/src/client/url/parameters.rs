//! The query of a URL: parameters of the transport, and those that the protocol declares.

use polyrpc_core::Descriptor;
use polyrpc_core::protocol::{Dialect, Parameter, Parameters};

/// Returns the parameters that URLs of a protocol may have: those of the transport, `transport` and `http_path`, then
/// [those of the protocol](Descriptor::parameters).
///
/// ```
/// use polyrpc::Protocol;
/// use polyrpc::client::url_parameters;
///
/// let parameters = url_parameters(Protocol::BaiduStd.descriptor());
/// assert_eq!(parameters[0].to_string(), "transport=tcp|unix|ws|kcp|quic");
/// ```
pub fn url_parameters(descriptor: &Descriptor) -> Vec<Parameter> {
    let transports = if descriptor.connect.is_some() { WITH_CONNECT } else { WITHOUT_CONNECT };
    let transport =
        Parameter::new("transport", transports, "transport of the protocol; an empty host implies unix");
    [transport, HTTP_PATH].into_iter().chain(descriptor.parameters.iter().copied()).collect()
}

const WITHOUT_CONNECT: &[&str] = &["tcp", "unix", "ws", "kcp", "quic"];
const WITH_CONNECT: &[&str] = &["tcp", "unix", "ws", "kcp", "quic", "http-connect"];

const HTTP_PATH: Parameter = Parameter::new(
    "http_path",
    &[],
    "path and query of the HTTP request that opens a WebSocket or a CONNECT tunnel",
);

/// Transport of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Unix,
    Ws,
    Kcp,
    Quic,
    HttpConnect,
}

impl Transport {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "tcp" => Self::Tcp,
            "unix" => Self::Unix,
            "ws" => Self::Ws,
            "kcp" => Self::Kcp,
            "quic" => Self::Quic,
            "http-connect" => Self::HttpConnect,
            _ => return None,
        })
    }

    /// Whether a connection starts with an HTTP request, which has a path.
    pub(super) fn starts_with_http(self) -> bool {
        matches!(self, Self::Ws | Self::HttpConnect)
    }
}

/// Settings selected by the query of a URL.
#[derive(Debug)]
pub(super) struct Selection {
    /// `None` if the URL has no such parameter.
    pub(super) transport: Option<Transport>,
    pub(super) http_path: Option<String>,
    pub(super) dialect: Dialect,
}

impl Selection {
    pub(super) fn parse(query: &str, descriptor: &Descriptor, scheme: &'static str) -> Result<Self, String> {
        let mut parameters = Parameters::parse(query, scheme, &url_parameters(descriptor))?;
        let transport = parameters.remove("transport").and_then(|name| Transport::from_name(&name));
        let http_path = parameters.remove("http_path");
        if let Some(path) = &http_path {
            check_path(path)?;
        }
        let dialect = descriptor.select_dialect(scheme, parameters)?;
        Ok(Self { transport, http_path, dialect })
    }
}

/// Rejects a path that a request line cannot contain.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    match path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err("the path of an HTTP request must start with `/` and must not contain blanks or \
                      non-ASCII bytes"
            .to_owned()),
    }
}

/// Splits the query of a registry's URL into the parameters of transport and protocol, and those of the registry.
///
/// The parameters of the registry are passed on as written.
pub(super) fn split_query(query: &str, descriptor: &Descriptor) -> (String, String) {
    let declared = url_parameters(descriptor);
    let is_ours = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        declared.iter().any(|known| known.name == name)
    };
    let (ours, theirs): (Vec<_>, Vec<_>) =
        query.split('&').filter(|pair| !pair.is_empty()).partition(is_ours);
    (ours.join("&"), theirs.join("&"))
}

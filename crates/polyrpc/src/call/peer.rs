use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

/// Who called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP, from this address.
    Tcp(SocketAddr),
    /// Over UDP, from this address: by KCP, or below QUIC's TLS.
    Udp(SocketAddr),
    /// Over a Unix socket.
    Unix,
    /// From this process.
    InProcess,
    /// Over TLS, by one of the ways above.
    Tls(Arc<TlsInfo>),
}

impl Peer {
    /// The caller's end of the connection, where that has an address.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) | Self::Udp(address) => Some(*address),
            Self::Unix | Self::InProcess => None,
            Self::Tls(secured) => secured.below.address(),
        }
    }

    /// What TLS knows of the caller; `None` in clear text.
    pub fn tls(&self) -> Option<&TlsInfo> {
        match self {
            Self::Tls(secured) => Some(secured),
            Self::Tcp(_) | Self::Udp(_) | Self::Unix | Self::InProcess => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) | Self::Udp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
            Self::InProcess => f.write_str("in-process"),
            Self::Tls(secured) => secured.below.fmt(f),
        }
    }
}

/// What TLS knows of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    below: Peer,
    version: &'static str,
    alpn: Option<String>,
    certificates: Vec<Bytes>,
    names: Vec<String>,
}

impl TlsInfo {
    #[cfg(feature = "tls")]
    pub(crate) fn new(
        below: Peer,
        version: &'static str,
        alpn: Option<String>,
        certificates: Vec<Bytes>,
        names: Vec<String>,
    ) -> Self {
        Self { below, version, alpn, certificates, names }
    }

    /// By what TLS goes: where the caller's end of the connection is.
    pub fn underlying(&self) -> &Peer {
        &self.below
    }

    /// `TLS 1.2` or `TLS 1.3`.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// The protocol that was settled on in the handshake (ALPN), if one was: `h2`, `http/1.1`.
    pub fn alpn(&self) -> Option<&str> {
        self.alpn.as_deref()
    }

    /// The caller's certificate and those behind it, in DER; empty if it has shown none. They have been verified.
    pub fn certificates(&self) -> &[Bytes] {
        &self.certificates
    }

    /// The names that the caller's certificate is for: of hosts, and URIs such as `spiffe://…`.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

/// The caller's end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// Over TCP, from this address.
    Tcp(SocketAddr),
    /// Over UDP, from this address: by KCP, or below QUIC's TLS.
    Udp(SocketAddr),
    /// Over a Unix socket.
    Unix,
    /// From this process.
    InProcess,
    /// Over TLS, on top of one of the above.
    Tls(Arc<TlsInfo>),
}

impl Peer {
    /// Returns the caller's address, if its end has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) | Self::Udp(address) => Some(*address),
            Self::Unix | Self::InProcess => None,
            Self::Tls(secured) => secured.below.address(),
        }
    }

    /// Returns the TLS facts of the caller; `None` in clear text.
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

/// TLS facts of a caller.
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

    /// Returns the peer below TLS: the caller's end of the connection.
    pub fn underlying(&self) -> &Peer {
        &self.below
    }

    /// `TLS 1.2` or `TLS 1.3`.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Returns the protocol that was negotiated in the handshake (ALPN), if any: `h2`, `http/1.1`.
    pub fn alpn(&self) -> Option<&str> {
        self.alpn.as_deref()
    }

    /// Returns the caller's certificate and its chain, in DER; empty if it has sent none. They have been verified.
    pub fn certificates(&self) -> &[Bytes] {
        &self.certificates
    }

    /// Returns the names that the caller's certificate is for: of hosts, and URIs such as `spiffe://…`.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

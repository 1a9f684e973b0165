use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use polyrpc_core::Status;
use polyrpc_core::digits::parse_decimal;

use super::Attributes;

/// Server of a service, as stored in a registry: `tcp@127.0.0.1:8972`, with its attributes.
///
/// Two instances denote the same server if network and address are equal; the attributes may change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instance {
    /// Network by which the server is reached.
    pub network: Network,
    /// Host and port, or the path of a Unix socket.
    pub address: String,
    /// Attributes of the server.
    pub attributes: Attributes,
}

impl Instance {
    /// Creates a server at this address, without attributes: `host:port`, or the path of a Unix socket.
    pub fn new(network: Network, address: impl Into<String>) -> Self {
        Self { network, address: address.into(), attributes: Attributes::default() }
    }

    /// Creates a TCP server at `host:port`, without attributes.
    pub fn tcp(address: impl Into<String>) -> Self {
        Self::new(Network::Tcp, address)
    }

    /// Returns the instance with these attributes.
    #[must_use]
    pub fn with(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.network, self.address)
    }
}

impl FromStr for Instance {
    type Err = Status;

    /// Parses rpcx's `network@address`; the default network is TCP.
    fn from_str(text: &str) -> Result<Self, Status> {
        let wrong = |why: &str| Status::invalid_argument(format!("`{text}` is not an instance: {why}"));
        let (network, address) = match text.split_once('@') {
            Some((network, address)) => (network.parse()?, address),
            None => (Network::Tcp, text),
        };
        let port = address.rsplit_once(':').map(|(host, port)| (host, parse_decimal::<u16>(port)));
        match (network, port) {
            (Network::Unix, _) if !address.is_empty() => {}
            (Network::Unix, _) => return Err(wrong("expected the path of a socket")),
            (_, Some((host, Some(1..)))) if is_host(host) => {}
            _ => return Err(wrong("expected network@host:port")),
        }
        Ok(Self { network, address: address.to_owned(), attributes: Attributes::default() })
    }
}

/// Whether it may be a host name or an IP address; IPv6 in brackets, as a port follows.
fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').map(|inner| inner.strip_suffix(']')) {
        Some(inner) => inner
            .and_then(|inner| inner.split('%').next())
            .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()),
        None => {
            let is_part = |part: &str| {
                !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
            };
            host.strip_suffix('.').unwrap_or(host).split('.').all(is_part)
        }
    }
}

/// Network of an instance, by rpcx's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Network {
    /// `tcp`
    #[default]
    Tcp,
    /// `unix`
    Unix,
    /// `http`: through HTTP's `CONNECT`.
    Http,
    /// `ws`: over WebSocket.
    Ws,
    /// `wss`: over WebSocket over TLS.
    Wss,
    /// `kcp`
    Kcp,
    /// `quic`
    Quic,
}

impl Network {
    /// All networks.
    pub const ALL: [Self; 7] =
        [Self::Tcp, Self::Unix, Self::Http, Self::Ws, Self::Wss, Self::Kcp, Self::Quic];

    /// Returns its name in registries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Http => "http",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Kcp => "kcp",
            Self::Quic => "quic",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Network {
    type Err = Status;

    fn from_str(text: &str) -> Result<Self, Status> {
        match text {
            // Go's names of variants of TCP.
            "tcp4" | "tcp6" | "reuseport" | "iouring" => Ok(Self::Tcp),
            other => Self::ALL
                .into_iter()
                .find(|network| network.as_str() == other)
                .ok_or_else(|| Status::invalid_argument(format!("the network `{text}` is unknown"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_written_as_by_rpcx() {
        for text in ["tcp@127.0.0.1:8972", "unix@/run/echo.sock", "quic@[::1]:1", "wss@h:443", "http@h:80"] {
            assert_eq!(text.parse::<Instance>().unwrap().to_string(), text);
        }
        assert_eq!("h:1".parse::<Instance>().unwrap().to_string(), "tcp@h:1");
        for network in ["tcp4", "tcp6", "reuseport", "iouring"] {
            let instance: Instance = format!("{network}@[::1]:1").parse().unwrap();
            assert_eq!(instance.to_string(), "tcp@[::1]:1");
        }
    }

    #[test]
    fn invalid_instance_error_names_the_cause() {
        for (text, why) in [
            ("", "expected network@host:port"),
            ("tcp@h", "expected network@host:port"),
            ("tcp@:1", "expected network@host:port"),
            ("tcp@h:0", "expected network@host:port"),
            ("tcp@h:65536", "expected network@host:port"),
            ("tcp@h:+1", "expected network@host:port"),
            ("not an address:1", "expected network@host:port"),
            ("a..b:1", "expected network@host:port"),
            ("h:x:1", "expected network@host:port"),
            ("[::x]:1", "expected network@host:port"),
            ("h\n:1", "expected network@host:port"),
            ("unix@", "expected the path of a socket"),
            ("rdma@h:1", "the network `rdma` is unknown"),
        ] {
            let error = text.parse::<Instance>().unwrap_err();
            assert!(error.message().contains(why), "{text}: {error}");
        }
    }
}

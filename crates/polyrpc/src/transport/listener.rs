use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
#[cfg(feature = "kcp")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "kcp")]
use polyrpc_kcp::Settings;

use tokio::net::{TcpListener, lookup_host};

use super::socket::{SERVER_KEEPALIVE_TIME, keep_alive, limit_unacknowledged};
use super::unix::UnixSocket;
use super::{Address, Stream};
use crate::call::Peer;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
    #[cfg(feature = "kcp")]
    Kcp(super::kcp::Listener),
    #[cfg(feature = "quic")]
    Quic(super::quic::Listener),
}

/// See [`Listener::delivery`].
pub(crate) type DeliveryFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Configuration of a transport, where it is not the default.
#[derive(Debug, Default)]
pub(crate) struct TransportConfig {
    /// How long a peer of TCP may acknowledge nothing of the data that waits for it. `None`: the system's limit.
    pub(crate) unacknowledged: Option<Duration>,
    #[cfg(feature = "kcp")]
    pub(crate) kcp: Option<super::kcp::Config>,
    #[cfg(feature = "quic")]
    pub(crate) quic: Option<super::quic::Config>,
    /// Required by QUIC.
    #[cfg(feature = "quic")]
    pub(crate) tls: Option<super::tls::Server>,
    /// Counts failed QUIC handshakes.
    #[cfg(feature = "quic")]
    pub(crate) on_failed_handshake: Option<super::quic::OnFailedHandshake>,
}

impl TransportConfig {
    /// Returns the address with the configured transport, if the address names none.
    ///
    /// # Errors
    ///
    /// If a configuration is for another transport than the address: it would have no effect, and a listener that was
    /// meant to be encrypted would not be.
    pub(crate) fn resolve(&self, address: Address) -> io::Result<Address> {
        #[cfg(feature = "kcp")]
        let has_kcp = self.kcp.is_some();
        #[cfg(not(feature = "kcp"))]
        let has_kcp = false;
        #[cfg(feature = "quic")]
        let has_quic = self.quic.is_some();
        #[cfg(not(feature = "quic"))]
        let has_quic = false;
        let why = match (has_kcp, has_quic, address) {
            (false, false, address) => return Ok(address),
            (true, false, Address::Tcp(authority) | Address::Kcp(authority)) => {
                return Ok(Address::Kcp(authority));
            }
            (false, true, Address::Tcp(authority) | Address::Quic(authority)) => {
                return Ok(Address::Quic(authority));
            }
            (true, true, _) => {
                "a listener uses KCP or QUIC: it has both Listen::kcp and Listen::quic".to_owned()
            }
            (true, false, address) => {
                format!("Listen::kcp needs host:port or kcp://host:port, not {address}")
            }
            (false, true, address) => {
                format!("Listen::quic needs host:port or quic://host:port, not {address}")
            }
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

impl Listener {
    /// Binds the listener.
    pub(crate) async fn bind(address: &Address, listening: TransportConfig) -> io::Result<Self> {
        match address {
            #[cfg(feature = "kcp")]
            Address::Kcp(address) => {
                let settings = Settings::new(listening.kcp.unwrap_or_default());
                let settings =
                    settings.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                super::kcp::Listener::bind(address, Arc::new(settings)).await.map(Self::Kcp)
            }
            #[cfg(not(feature = "kcp"))]
            Address::Kcp(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without KCP"))
            }
            #[cfg(feature = "quic")]
            Address::Quic(address) => {
                let tls = listening.tls.ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidInput, "QUIC needs TLS: Listen::tls")
                })?;
                let (config, on_failed) = (listening.quic.unwrap_or_default(), listening.on_failed_handshake);
                super::quic::Listener::bind(address, config, tls, on_failed).await.map(Self::Quic)
            }
            #[cfg(not(feature = "quic"))]
            Address::Quic(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without QUIC"))
            }
            Address::Tcp(address) => bind_tcp(address, listening.unacknowledged).await.map(Self::Tcp),
            Address::Unix(path) => UnixSocket::bind(path).await.map(Self::Unix),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::tcp(stream)?, Peer::Tcp(peer)))
            }
            Self::Unix(socket) => Ok((Stream::Unix(socket.accept().await?), Peer::Unix)),
            #[cfg(feature = "kcp")]
            Self::Kcp(listener) => listener.accept().await.map(|(stream, peer)| (stream, Peer::Udp(peer))),
            #[cfg(feature = "quic")]
            Self::Quic(listener) => listener.accept().await,
        }
    }

    /// Returns a future that resolves when the listener was dropped, its connections have ended, and their peers have
    /// received all written data. `None`: the system delivers it, even after the end of this process.
    pub(crate) fn delivery(&self) -> Option<DeliveryFuture> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => None,
            #[cfg(feature = "kcp")]
            Self::Kcp(listener) => Some(Box::pin(listener.delivery())),
            #[cfg(feature = "quic")]
            Self::Quic(listener) => Some(Box::pin(listener.delivery())),
        }
    }

    /// Returns its address, with the port that was actually assigned.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Unix(socket) => Ok(Address::Unix(socket.path().to_owned())),
            #[cfg(feature = "kcp")]
            Self::Kcp(listener) => Ok(Address::Kcp(listener.local_addr()?.to_string())),
            #[cfg(feature = "quic")]
            Self::Quic(listener) => Ok(Address::Quic(listener.local_addr().to_string())),
        }
    }
}

async fn bind_tcp(address: &str, unacknowledged: Option<Duration>) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await? {
        match listen(address, unacknowledged) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Opens a listening socket with a backlog that survives a reconnect storm; the kernel caps it at `somaxconn`.
fn listen(address: SocketAddr, unacknowledged: Option<Duration>) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit both from here, at no cost (Linux `net/ipv4/tcp_minisocks.c`).
    keep_alive(&socket, SERVER_KEEPALIVE_TIME)?;
    if let Some(time) = unacknowledged {
        limit_unacknowledged(&socket, time)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

const BACKLOG: u32 = 4096;

#[cfg(test)]
mod tests {
    use rustix::net::sockopt;

    use super::super::Socket;
    use super::*;

    #[tokio::test]
    async fn tcp_keepalive_is_enabled() {
        let listener =
            Listener::bind(&"127.0.0.1:0".parse().unwrap(), TransportConfig::default()).await.unwrap();
        let dialled = Socket::connect(&listener.address().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        for (socket, seconds) in [(dialled, 60), (accepted.into_socket().unwrap(), 180)] {
            let Socket::Tcp(stream) = socket else { panic!("it is TCP") };
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&stream).unwrap().as_secs(), seconds);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn accepted_sockets_limit_the_time_without_an_acknowledgement() {
        let config = TransportConfig { unacknowledged: Some(Duration::from_secs(32)), ..Default::default() };
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), config).await.unwrap();
        let _dialled = Socket::connect(&listener.address().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let Some(Socket::Tcp(stream)) = accepted.into_socket() else { panic!("it is TCP") };
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 32_000);
    }
}

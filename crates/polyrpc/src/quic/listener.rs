use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};
use rustls::pki_types::CertificateDer;
use tokio::net::lookup_host;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Config;
use super::stream::Stream;
use crate::runtime::Owned;
use crate::service::Peer;
use crate::{net, tls};

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    accepted: Mutex<mpsc::Receiver<(net::Stream, Peer)>>,
    /// Makes connections of what comes, and ends with the listener. The socket stays for as long as connections do.
    _accepting: Owned<()>,
}

impl Listener {
    pub(crate) async fn bind(address: &str, config: Config, tls: tls::Server) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in lookup_host(address).await? {
            match std::net::UdpSocket::bind(address) {
                Ok(socket) => return Self::over(socket, config, tls),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn over(socket: std::net::UdpSocket, config: Config, tls: tls::Server) -> io::Result<Self> {
        let admission = Admission { config, tls };
        let server = Some(admission.server()?);
        let endpoint = Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))?;
        let address = endpoint.local_addr()?;
        let (sender, accepted) = mpsc::channel(BACKLOG);
        let accepting = Owned::from(tokio::spawn(accept(endpoint, admission, sender)));
        Ok(Self { address, accepted: Mutex::new(accepted), _accepting: accepting })
    }

    pub(crate) async fn accept(&self) -> io::Result<(net::Stream, Peer)> {
        let accepted =
            poll_fn(|cx| self.accepted.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(cx));
        accepted.await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// What clients are let in by.
#[derive(Debug)]
struct Admission {
    config: Config,
    tls: tls::Server,
}

impl Admission {
    /// Anew for each connection: certificates may have been reloaded.
    fn server(&self) -> io::Result<ServerConfig> {
        let mut crypto = self.tls.config(&[]);
        crypto.alpn_protocols = self.config.alpn();
        let crypto = QuicServerConfig::try_from(crypto).map_err(io::Error::other)?;
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(self.config.serving());
        Ok(server)
    }
}

/// Takes what comes, each in a task of its own until it has its stream.
async fn accept(endpoint: Endpoint, admission: Admission, accepted: mpsc::Sender<(net::Stream, Peer)>) {
    let mut opening = JoinSet::new();
    while let Some(incoming) = endpoint.accept().await {
        while opening.try_join_next().is_some() {}
        if opening.len() >= OPENING {
            incoming.refuse();
        } else if opening.len() >= UNPROVEN && incoming.may_retry() && !incoming.remote_address_validated() {
            // Too many: whoever wants in shows first that he is where he says.
            let _ = incoming.retry();
        } else if let Ok(server) = admission.server() {
            opening.spawn(open(incoming, server, accepted.clone()));
        }
    }
}

async fn open(incoming: Incoming, server: ServerConfig, accepted: mpsc::Sender<(net::Stream, Peer)>) {
    let Ok(connecting) = incoming.accept_with(Arc::new(server)) else { return };
    let Ok(Ok(connection)) = timeout(HANDSHAKE, connecting).await else { return };
    // A client that has nothing to say yet has not opened it as far as can be seen; it says that it is still there.
    let Ok((send, receive)) = connection.accept_bi().await else { return };
    let peer = peer(&connection);
    // Nobody listens any more: it is closed.
    let _ = accepted.send((Stream::over(connection, send, receive), peer)).await;
}

fn peer(connection: &Connection) -> Peer {
    let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    let alpn = data.and_then(|data| data.protocol);
    let identity =
        connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'_>>>().ok());
    let shown = identity.iter().flat_map(|shown| shown.iter());
    let certificates = shown.map(|certificate| Bytes::copy_from_slice(certificate)).collect();
    tls::peer(Peer::Udp(connection.remote_address()), "TLS 1.3", alpn.as_deref(), certificates)
}

/// How many connections may wait to be accepted.
const BACKLOG: usize = 128;
/// How many may be without a stream.
const OPENING: usize = 4096;
/// How many of these may be from an address that has not shown to be theirs.
const UNPROVEN: usize = 256;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

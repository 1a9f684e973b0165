use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{Connection, ConnectionError, Endpoint, Incoming, ServerConfig, TokioRuntime};
use rustls::pki_types::CertificateDer;
use tokio::net::lookup_host;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Config;
use super::identity::endpoint_config;
use super::kept_connections::KeptConnections;
use super::stream::Stream;
use crate::call::Peer;
use crate::runtime::AbortOnDrop;
use crate::transport::{self, tls};

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    endpoint: Endpoint,
    accepted: Mutex<mpsc::Receiver<(transport::Stream, Peer)>>,
    /// Accepts connections, and ends with the listener. The socket stays open for as long as connections do.
    _accepting: AbortOnDrop<()>,
}

/// Callback for each failed handshake, with the client that started it. An error of the kind `TimedOut` is a handshake
/// that was not finished in time.
#[derive(Clone)]
pub(crate) struct OnFailedHandshake(Arc<dyn Fn(&io::Error, &Peer) + Send + Sync>);

impl OnFailedHandshake {
    pub(crate) fn new(call: impl Fn(&io::Error, &Peer) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }
}

impl fmt::Debug for OnFailedHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFailedHandshake")
    }
}

impl Listener {
    pub(crate) async fn bind(
        address: &str,
        config: Config,
        tls: tls::Server,
        on_failed: Option<OnFailedHandshake>,
    ) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in lookup_host(address).await? {
            match std::net::UdpSocket::bind(address) {
                Ok(socket) => return Self::from_socket(socket, AdmissionPolicy { config, tls, on_failed }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn from_socket(socket: std::net::UdpSocket, admission: AdmissionPolicy) -> io::Result<Self> {
        let server = Some(admission.server(0)?);
        let config = endpoint_config(admission.tls.secret()?.secret_der(), socket.local_addr()?.ip());
        let endpoint = Endpoint::new(config, server, socket, Arc::new(TokioRuntime))?;
        let address = endpoint.local_addr()?;
        let (sender, accepted) = mpsc::channel(BACKLOG);
        let accepting = AbortOnDrop::from(tokio::spawn(accept(endpoint.clone(), admission, sender)));
        Ok(Self { address, endpoint, accepted: Mutex::new(accepted), _accepting: accepting })
    }

    /// Waits until all connections have ended and their peers were notified.
    pub(crate) fn delivery(&self) -> impl Future<Output = ()> + Send + use<> {
        let endpoint = self.endpoint.clone();
        async move { endpoint.wait_idle().await }
    }

    pub(crate) async fn accept(&self) -> io::Result<(transport::Stream, Peer)> {
        let accepted =
            poll_fn(|cx| self.accepted.lock().unwrap_or_else(PoisonError::into_inner).poll_recv(cx));
        accepted.await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    /// Rejects further connections for as long as others keep the socket open: their clients would wait for an answer.
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let endpoint = self.endpoint.clone();
        let refuse = async move {
            tokio::select! {
                () = endpoint.wait_idle() => {}
                () = refuse_all(&endpoint) => {}
            }
        };
        runtime.spawn(refuse);
    }
}

async fn refuse_all(endpoint: &Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        incoming.refuse();
    }
}

/// Requirements for clients.
#[derive(Debug)]
struct AdmissionPolicy {
    config: Config,
    tls: tls::Server,
    on_failed: Option<OnFailedHandshake>,
}

impl AdmissionPolicy {
    /// Returns a fresh configuration for each connection: certificates may have been reloaded, and `connections` others
    /// are open.
    fn server(&self, connections: usize) -> io::Result<ServerConfig> {
        let mut crypto = self.tls.config(&[]);
        crypto.alpn_protocols = self.config.alpn();
        let crypto = QuicServerConfig::try_from(crypto).map_err(io::Error::other)?;
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(self.config.server_transport(connections));
        server
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(MAX_INCOMING_BYTES)
            .incoming_buffer_size_total(MAX_TOTAL_INCOMING_BYTES);
        Ok(server)
    }

    #[cold]
    fn report_failure(&self, error: &io::Error, address: SocketAddr) {
        if let Some(OnFailedHandshake(call)) = &self.on_failed {
            call(error, &Peer::Udp(address));
        }
    }
}

/// Accepts connections, each in a task of its own until it has its stream.
async fn accept(
    endpoint: Endpoint,
    admission: AdmissionPolicy,
    accepted: mpsc::Sender<(transport::Stream, Peer)>,
) {
    let mut handshakes = Handshakes::default();
    let entry = AcceptQueue {
        streamless: Arc::new(KeptConnections::streamless()),
        ended: Arc::new(KeptConnections::ended()),
        accepted,
        open_stream_timeout: admission.config.open_stream_timeout,
    };
    // Connections after their handshake are bounded by `streamless` and by the server.
    let mut waiting = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                None => return,
                Some(incoming) => handshakes.begin(incoming, &admission, endpoint.open_connections()),
            },
            Some(ended) = handshakes.next() => match ended {
                Ok(connection) => drop(waiting.spawn(entry.clone().enter(connection))),
                Err((error, address)) => admission.report_failure(&error, address),
            },
            Some(_) = waiting.join_next() => {}
        }
    }
}

/// Handshakes in progress.
#[derive(Default)]
struct Handshakes {
    tasks: JoinSet<(SocketAddr, io::Result<Connection>)>,
    by_network: HashMap<IpAddr, usize>,
}

impl Handshakes {
    fn begin(&mut self, incoming: Incoming, admission: &AdmissionPolicy, connections: usize) {
        let network = network(incoming.remote_address());
        let own = self.by_network.get(&network).copied().unwrap_or_default();
        if self.tasks.len() >= MAX_HANDSHAKES || own >= MAX_HANDSHAKES_PER_NETWORK {
            incoming.refuse();
        } else if self.tasks.len() >= RETRY_THRESHOLD
            && incoming.may_retry()
            && !incoming.remote_address_validated()
        {
            // Too many: the client must validate its address first.
            let _ = incoming.retry();
        } else if let Ok(server) = admission.server(connections) {
            *self.by_network.entry(network).or_default() += 1;
            let client = incoming.remote_address();
            self.tasks.spawn(async move { (client, connect(incoming, server).await) });
        }
    }

    /// Returns the next finished handshake, with its connection or with the error and the client's address; `None` if
    /// there are none.
    async fn next(&mut self) -> Option<Result<Connection, (io::Error, SocketAddr)>> {
        let (client, connection) = loop {
            if let Ok(ended) = self.tasks.join_next().await? {
                break ended;
            }
        };
        let network = network(client);
        if let Some(own) = self.by_network.get_mut(&network) {
            *own -= 1;
            if *own == 0 {
                self.by_network.remove(&network);
            }
        }
        Some(connection.map_err(|error| (error, client)))
    }
}

/// Returns the address of a peer, or the first one of its /64 network, all of whose addresses it may have.
fn network(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

async fn connect(incoming: Incoming, server: ServerConfig) -> io::Result<Connection> {
    let connecting = incoming.accept_with(Arc::new(server)).map_err(failure)?;
    let connected = timeout(HANDSHAKE_TIMEOUT, connecting).await;
    connected.unwrap_or(Err(ConnectionError::TimedOut)).map_err(failure)
}

/// TLS errors of either side are `InvalidData`, as over TCP.
fn failure(error: ConnectionError) -> io::Error {
    match error {
        ConnectionError::TransportError(_) | ConnectionError::ConnectionClosed(_) => {
            io::Error::new(io::ErrorKind::InvalidData, error)
        }
        error => error.into(),
    }
}

/// Queue of connections that have finished their handshake.
#[derive(Clone)]
struct AcceptQueue {
    streamless: Arc<KeptConnections>,
    ended: Arc<KeptConnections>,
    accepted: mpsc::Sender<(transport::Stream, Peer)>,
    open_stream_timeout: Duration,
}

impl AcceptQueue {
    /// Waits until the client has opened its stream. The server cannot see a stream on which the client has sent
    /// nothing; such a client sends keepalives.
    async fn enter(self, connection: Connection) {
        self.streamless.enter(connection.clone());
        let opened = timeout(self.open_stream_timeout, connection.accept_bi()).await;
        self.streamless.leave(&connection);
        match opened {
            Ok(Ok((send, receive))) => {
                let peer = peer(&connection);
                // If the listener is gone, it is closed.
                let stream = Stream::new_server(connection, send, receive, self.ended);
                let _ = self.accepted.send((stream, peer)).await;
            }
            Ok(Err(_)) => {}
            Err(_) => self.streamless.close(&connection),
        }
    }
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

/// Maximum number of connections that wait to be accepted.
const BACKLOG: usize = 128;
/// Maximum number of simultaneous handshakes.
const MAX_HANDSHAKES: usize = 4096;
/// Maximum number of simultaneous handshakes of one address, or /64 network of IPv6.
const MAX_HANDSHAKES_PER_NETWORK: usize = 1024;
/// Maximum number of connections whose first datagram was received but not handled yet.
const MAX_INCOMING: usize = 1024;
/// Maximum number of bytes buffered for one connection that is not handled yet.
const MAX_INCOMING_BYTES: u64 = 64 << 10;
/// Maximum number of bytes buffered for all connections that are not handled yet.
const MAX_TOTAL_INCOMING_BYTES: u64 = 8 << 20;
/// Number of simultaneous handshakes from which clients must validate their address first (Retry).
const RETRY_THRESHOLD: usize = 256;
/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

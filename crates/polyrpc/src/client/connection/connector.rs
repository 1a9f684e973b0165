use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::session::Client as Session;
use polyrpc_core::{Protocol, Retry, Scope, Status};
use polyrpc_wire::http::websocket;
use polyrpc_wire::{baidu_std, fb_rpc, grpc, grpc_web, http, net_rpc, rest_rpc, rpcx};

use super::any_connection::AnyConnection;
use super::connect_gate::{ConnectGate, UnconfirmedConnection};
use super::keepalive::Keepalive;
use super::{Connection, ConnectionListeners, PushHandler};
use crate::client::hook::{HookedConnection, Hooks};
use crate::client::url::{Http, Url};
use crate::cores::Cores;
use crate::runtime::AbortOnDrop;
use crate::transport::{Stream, TransportConnector, connect_behind_http, tls};

/// Makes connections to one server.
///
/// After a failure the next attempt waits, longer each time, so that a server that comes back is not met by
/// a storm; calls in between fail at once with the reason of the last failure. [`ConnectBackoff`] says when.
///
/// [`ConnectBackoff`]: super::connect_backoff::ConnectBackoff
pub(in crate::client) struct Connector {
    pub(in crate::client) url: Url,
    pub(in crate::client) dialing: TransportConnector,
    pub(in crate::client) tls: Option<tls::Connector>,
    pub(in crate::client) sessions: SessionFactory,
    pub(in crate::client) connect_timeout: Duration,
    pub(in crate::client) gate: Arc<ConnectGate>,
    pub(in crate::client) cores: Option<Cores>,
    pub(in crate::client) keepalive: Option<Keepalive>,
    pub(in crate::client) on_push: Option<PushHandler>,
    pub(in crate::client) hooks: Hooks,
}

impl Connector {
    /// Connects, unless it is too early after a failure.
    pub(in crate::client) async fn dial(&self) -> Result<Arc<dyn AnyConnection>, Status> {
        let begun = self.gate.wait_turn().await?;
        let connected = tokio::time::timeout(self.connect_timeout, self.connect(begun)).await;
        let result = match connected {
            Ok(Ok(link)) => self.admit(link),
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        };
        self.gate.dialled(begun, result.as_ref().err());
        if result.is_ok() {
            let (server, took) = (&self.url.address, begun.elapsed());
            tracing::debug!(target: "polyrpc::client", %server, ?took, "a connection was made");
        }
        if let Err(failure) = &result {
            self.hooks.connect_failed(&self.url.address, failure);
        }
        result
    }

    /// Lets the hooks judge a connection that was made.
    fn admit(&self, link: Arc<dyn AnyConnection>) -> Result<Arc<dyn AnyConnection>, Status> {
        match self.hooks.connected(&self.url.address) {
            Ok(()) => Ok(link),
            Err(status) => {
                link.close();
                Err(status.with_scope(Scope::Connection).with_retry(Retry::Elsewhere))
            }
        }
    }

    fn listeners(&self, begun: Instant) -> ConnectionListeners {
        ConnectionListeners {
            push: self.on_push.clone(),
            watched: HookedConnection::new(&self.hooks, &self.url.address),
            probation: Some(UnconfirmedConnection::new(self.gate.clone(), begun)),
        }
    }

    async fn connect(&self, begun: Instant) -> io::Result<Arc<dyn AnyConnection>> {
        let Some(cores) = &self.cores else {
            let stream = connect(&self.url, &self.dialing, self.tls.as_ref()).await?;
            return Ok(self.sessions.start(stream, self.keepalive.clone(), self.listeners(begun)));
        };
        // The socket must be watched by the runtime that is to read from it.
        let (url, tls, sessions) = (self.url.clone(), self.tls.clone(), self.sessions.clone());
        let dialing = self.dialing.clone();
        let (keepalive, ears) = (self.keepalive.clone(), self.listeners(begun));
        let connecting = cores.next().spawn(async move {
            let stream = connect(&url, &dialing, tls.as_ref()).await?;
            Ok(sessions.start(stream, keepalive, ears))
        });
        AbortOnDrop::from(connecting).await.map_err(io::Error::other)?
    }

    /// A connection that no call takes, and what would speak on it if that may speak first: a session over a WebSocket
    /// has to be let in before. That it cannot be made is not held against the server.
    pub(in crate::client) async fn apart(&self) -> io::Result<(Stream, Option<Box<dyn Session + Send>>)> {
        let stream = connect(&self.url, &self.dialing, self.tls.as_ref()).await?;
        let session = self.url.websocket.is_none().then(|| self.sessions.clone().session());
        Ok((stream, session))
    }

    /// When it is not too early any more.
    pub(in crate::client) fn next_attempt(&self) -> Instant {
        self.gate.next_attempt()
    }

    #[cold]
    fn unreachable(&self, error: io::Error) -> Status {
        Status::unavailable(format!("cannot connect to {}: {error}", self.url.address))
            .with_scope(Scope::Connection)
            .with_retry(Retry::Elsewhere)
            .with_source(error)
    }
}

/// Connects, lets the connection settle, and does the handshakes there are to be done: that of TLS, and rpcx's `CONNECT`.
/// That of net/rpc is its session's.
async fn connect(
    url: &Url,
    dialing: &TransportConnector,
    tls: Option<&tls::Connector>,
) -> io::Result<Stream> {
    let stream = dialing.connect(&url.address).await?;
    let stream = match tls {
        None => stream,
        Some(connector) => Stream::Tls(Box::new(tls::Stream::connect(stream, connector).await?)),
    };
    if let Some(pause) = url.settle_time() {
        tokio::time::sleep(pause).await;
    }
    match &url.connect {
        Some(path) if url.protocol == Protocol::Rpcx => connect_behind_http(stream, path).await,
        _ => Ok(stream),
    }
}

/// Makes a session for each new connection.
#[derive(Debug, Clone)]
pub(in crate::client) enum SessionFactory {
    BaiduStd(baidu_std::ClientConfig),
    Rpcx(rpcx::ClientConfig),
    FbRpc(fb_rpc::ClientConfig),
    Grpc(grpc::ClientConfig),
    Http(http::ClientConfig),
    /// gRPC-Web over HTTP/1.1.
    GrpcWeb(grpc_web::ClientConfig),
    RestRpc(rest_rpc::ClientConfig),
    /// Any of the others, within a WebSocket.
    WebSocket(websocket::ClientConfig, Box<Self>),
    NetRpc(net_rpc::ClientConfig),
    /// A protocol made up for tests.
    #[cfg(test)]
    Lines,
}

impl SessionFactory {
    pub(in crate::client) fn new(
        url: &Url,
        limits: polyrpc_core::Limits,
        credential: Option<bytes::Bytes>,
        compressors: rpcx::Compressors,
    ) -> Self {
        let plain = |limits| Self::plain(url, limits, credential, compressors);
        let Some(path) = &url.websocket else { return plain(limits) };
        let config = websocket::ClientConfig {
            limits: limits.clone(),
            authority: url.authority(),
            path: path.clone(),
            random,
        };
        Self::WebSocket(config, Box::new(plain(limits)))
    }

    fn plain(
        url: &Url,
        limits: polyrpc_core::Limits,
        credential: Option<bytes::Bytes>,
        compressors: rpcx::Compressors,
    ) -> Self {
        match url.protocol {
            Protocol::BaiduStd => {
                let deliver_timeout = true;
                Self::BaiduStd(baidu_std::ClientConfig {
                    limits,
                    credential,
                    deliver_timeout,
                    streams: Default::default(),
                })
            }
            Protocol::Rpcx => Self::Rpcx(rpcx::ClientConfig { limits, credential, compressors }),
            Protocol::FbRpc => {
                let (magic, hash) = url.fb_rpc;
                Self::FbRpc(fb_rpc::ClientConfig { limits, magic, hash, credential })
            }
            Protocol::Grpc if url.web == Some(Http::One) => {
                Self::GrpcWeb(grpc_web::ClientConfig { limits, authority: url.authority(), credential })
            }
            Protocol::Grpc => Self::Grpc(grpc::ClientConfig {
                limits,
                http: Default::default(),
                authority: url.authority(),
                tls: url.tls,
                web: url.web.is_some(),
                credential,
            }),
            Protocol::Http => {
                let authority = url.authority();
                Self::Http(http::ClientConfig { limits, authority, credential, json_rpc: url.json_rpc })
            }
            Protocol::RestRpc => Self::RestRpc(rest_rpc::ClientConfig { limits, generation: url.generation }),
            Protocol::NetRpc => Self::NetRpc(net_rpc::ClientConfig {
                limits,
                codec: url.codec,
                connect: url.connect.clone(),
                credential,
            }),
        }
    }

    pub(in crate::client) fn start(
        &self,
        stream: Stream,
        keepalive: Option<Keepalive>,
        ears: ConnectionListeners,
    ) -> Arc<dyn AnyConnection> {
        match self.clone() {
            Self::BaiduStd(config) => {
                Connection::start(stream, baidu_std::Client::new(config), keepalive, ears)
            }
            Self::Rpcx(config) => Connection::start(stream, rpcx::Client::new(config), keepalive, ears),
            Self::FbRpc(config) => Connection::start(stream, fb_rpc::Client::new(config), keepalive, ears),
            Self::Grpc(config) => Connection::start(stream, grpc::Client::new(config), keepalive, ears),
            Self::Http(config) => Connection::start(stream, http::Client::new(config), keepalive, ears),
            Self::GrpcWeb(config) => {
                Connection::start(stream, grpc_web::Client::new(config), keepalive, ears)
            }
            Self::RestRpc(config) => {
                Connection::start(stream, rest_rpc::Client::new(config), keepalive, ears)
            }
            Self::WebSocket(config, carried) => {
                let session = websocket::Client::new(config, carried.session());
                Connection::start(stream, session, keepalive, ears)
            }
            Self::NetRpc(config) => Connection::start(stream, net_rpc::Client::new(config), keepalive, ears),
            #[cfg(test)]
            Self::Lines => Connection::start(stream, crate::client::tests::Lines::default(), keepalive, ears),
        }
    }

    /// A session with its protocol type-erased.
    pub(in crate::client) fn session(self) -> Box<dyn Session + Send> {
        match self {
            Self::BaiduStd(config) => Box::new(baidu_std::Client::new(config)),
            Self::Rpcx(config) => Box::new(rpcx::Client::new(config)),
            Self::Grpc(config) => Box::new(grpc::Client::new(config)),
            Self::Http(config) => Box::new(http::Client::new(config)),
            Self::GrpcWeb(config) => Box::new(grpc_web::Client::new(config)),
            Self::RestRpc(config) => Box::new(rest_rpc::Client::new(config)),
            Self::NetRpc(config) => Box::new(net_rpc::Client::new(config)),
            Self::FbRpc(config) => Box::new(fb_rpc::Client::new(config)),
            Self::WebSocket(config, carried) => Box::new(websocket::Client::new(config, carried.session())),
            #[cfg(test)]
            Self::Lines => Box::new(crate::client::tests::Lines::default()),
        }
    }
}

/// What masks the messages of a WebSocket. They are not a page's, which might foresee the masks to its profit; so where
/// the system gives nothing better, the keys of the standard hasher will do.
fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| RandomState::new().build_hasher().finish())
}

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::session::Client as Session;
use polyrpc_core::{Retry, Scope, Status};

use super::any_connection::AnyConnection;
use super::connect_gate::{ConnectGate, UnconfirmedConnection};
use super::keepalive::Keepalive;
use super::server_calls::ServerCalls;
use super::sessions::SessionFactory;
use super::{ConnectionListeners, PushHandler};
use crate::client::hook::{HookedConnection, Hooks};
use crate::client::url::Url;
use crate::cores::Cores;
use crate::memory_budget::MemoryBudget;
use crate::runtime::AbortOnDrop;
use crate::transport::{Stream, TransportConnector, connect_behind_http, tls};

/// Connects to one server.
///
/// After a failure the next attempt is delayed, longer each time, so that a recovering server is not overloaded; calls
/// in between fail immediately with the reason of the last failure. [`ConnectBackoff`] computes the delay.
///
/// [`ConnectBackoff`]: super::connect_backoff::ConnectBackoff
pub(in crate::client) struct Connector {
    pub(in crate::client) url: Url,
    pub(in crate::client) transport: TransportConnector,
    pub(in crate::client) tls: Option<tls::Connector>,
    pub(in crate::client) sessions: Arc<dyn SessionFactory>,
    pub(in crate::client) connect_timeout: Duration,
    pub(in crate::client) gate: Arc<ConnectGate>,
    pub(in crate::client) cores: Option<Cores>,
    pub(in crate::client) keepalive: Option<Keepalive>,
    pub(in crate::client) on_push: Option<PushHandler>,
    pub(in crate::client) hooks: Hooks,
    pub(in crate::client) memory: Option<MemoryBudget>,
    pub(in crate::client) calls: Arc<ServerCalls>,
}

impl Connector {
    /// Connects, unless the backoff after a failure has not elapsed.
    pub(in crate::client) async fn connect(&self) -> Result<Arc<dyn AnyConnection>, Status> {
        let begun = self.gate.wait_turn().await?;
        let connected = tokio::time::timeout(self.connect_timeout, self.establish(begun)).await;
        let result = match connected {
            Ok(Ok(connection)) => self.admit(connection),
            Ok(Err(error)) => Err(self.unreachable(error)),
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        };
        self.gate.record_connect(begun, result.as_ref().err());
        if let Ok(connection) = &result {
            self.calls.add_connection(connection);
            let (server, took) = (&self.url.address, begun.elapsed());
            tracing::debug!(target: "polyrpc::client", %server, ?took, "connection established");
        }
        if let Err(failure) = &result {
            self.calls.count_connect_error();
            self.hooks.on_connect_error(&self.url.address, failure);
        }
        result
    }

    /// Passes a new connection to the hooks, which may reject it.
    fn admit(&self, connection: Arc<dyn AnyConnection>) -> Result<Arc<dyn AnyConnection>, Status> {
        match self.hooks.on_connect(&self.url.address) {
            Ok(()) => Ok(connection),
            Err(status) => {
                connection.close();
                Err(status.with_scope(Scope::Connection).with_retry(Retry::Elsewhere))
            }
        }
    }

    fn listeners(&self, begun: Instant) -> ConnectionListeners {
        ConnectionListeners {
            push: self.on_push.clone(),
            watched: HookedConnection::new(&self.hooks, &self.url.address),
            account: self.memory.as_ref().map(MemoryBudget::account),
            calls: Some(self.calls.clone()),
            unconfirmed: Some(UnconfirmedConnection::new(self.gate.clone(), begun)),
        }
    }

    async fn establish(&self, begun: Instant) -> io::Result<Arc<dyn AnyConnection>> {
        let Some(cores) = &self.cores else {
            let stream = open_stream(&self.url, &self.transport, self.tls.as_ref()).await?;
            return Ok(self.sessions.start(stream, self.keepalive.clone(), self.listeners(begun)));
        };
        // The socket must be registered with the runtime that reads from it.
        let (url, tls, sessions) = (self.url.clone(), self.tls.clone(), self.sessions.clone());
        let transport = self.transport.clone();
        let (keepalive, listeners) = (self.keepalive.clone(), self.listeners(begun));
        let connecting = cores.next().spawn(async move {
            let stream = open_stream(&url, &transport, tls.as_ref()).await?;
            Ok(sessions.start(stream, keepalive, listeners))
        });
        AbortOnDrop::from(connecting).await.map_err(io::Error::other)?
    }

    /// Returns a connection that is not used for calls, and the session that may send on it first: `None` for a
    /// WebSocket, which needs its handshake before. Failures do not affect the backoff.
    pub(in crate::client) async fn connect_detached(
        &self,
    ) -> io::Result<(Stream, Option<Box<dyn Session + Send>>)> {
        let stream = open_stream(&self.url, &self.transport, self.tls.as_ref()).await?;
        let session = self.url.websocket.is_none().then(|| self.sessions.session());
        Ok((stream, session))
    }

    /// Returns when the backoff allows the next attempt.
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

/// Connects, lets the connection settle, and does the handshakes that the URL requires: TLS, and rpcx's `CONNECT`. The
/// handshake of net/rpc is done by its session.
async fn open_stream(
    url: &Url,
    transport: &TransportConnector,
    tls: Option<&tls::Connector>,
) -> io::Result<Stream> {
    let stream = transport.connect(&url.address).await?;
    let stream = match tls {
        None => stream,
        Some(connector) => Stream::Tls(Box::new(tls::Stream::connect(stream, connector).await?)),
    };
    if let Some(pause) = url.settle_time() {
        tokio::time::sleep(pause).await;
    }
    match url.connect_before_session() {
        Some(path) => connect_behind_http(stream, path).await,
        None => Ok(stream),
    }
}

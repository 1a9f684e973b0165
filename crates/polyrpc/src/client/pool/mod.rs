//! Connection pool of one server: open connections with the calls that wait for a slot on them ([`open_connections`],
//! [`slot_queue`]), and pending connects ([`pending_connects`]).

mod open_connections;
mod pending_connects;
mod slot_queue;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use polyrpc_core::session::Client as Session;
use polyrpc_core::{Retry, Scope, Status};
use tokio::time::sleep_until;

use self::open_connections::{OpenConnections, QueueEntry};
use self::pending_connects::PendingConnects;
use self::slot_queue::Grant;
use crate::client::connection::any_connection::AnyConnection;
use crate::client::connection::call_counts::CallCounts;
use crate::client::connection::call_slot::CallSlot;
use crate::client::connection::connector::Connector;
use crate::discovery::Instance;
use crate::transport::{Address, Stream};

/// How calls share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConnectionMode {
    /// All calls share one connection and are multiplexed on it. If a server limits the calls per connection
    /// (HTTP/2), further connections are made, up to [a bound](super::Builder::max_shared_connections). A
    /// protocol without correlation ids (HTTP/1, rest_rpc up to v0.04 and since v0.21) uses a pool instead,
    /// since one slow call would hold up the rest.
    #[default]
    Shared,
    /// Every call has a connection to itself, which returns to the pool afterwards.
    Pooled,
    /// Every call makes a connection and closes it.
    Short,
}

/// Connection pool of one server.
pub(super) struct Pool {
    connector: Option<Arc<Connector>>,
    mode: ConnectionMode,
    connections: Arc<OpenConnections>,
    /// Connections that are being established.
    pending: PendingConnects,
    limits: PoolLimits,
    /// Whether the server is no longer listed: no connection is made or kept.
    retired: AtomicBool,
}

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolLimits {
    /// Maximum number of idle exclusive connections.
    pub(super) idle: usize,
    /// Maximum number of shared connections.
    pub(super) shared: usize,
}

impl Pool {
    pub(super) fn new(connector: Connector, mode: ConnectionMode, limits: PoolLimits) -> Self {
        let mode = match (mode, connector.url.dialect.one_at_a_time) {
            (ConnectionMode::Shared, true) => ConnectionMode::Pooled,
            (mode, _) => mode,
        };
        Self {
            connector: Some(connector.into()),
            mode,
            connections: OpenConnections::new(Vec::new(), limits.shared),
            // Calls that share connections make one at a time.
            pending: PendingConnects::new(if mode == ConnectionMode::Shared { 1 } else { limits.idle }),
            limits,
            retired: AtomicBool::new(false),
        }
    }

    /// Creates a pool of one connection that cannot be replaced.
    pub(super) fn from_connection(connection: Arc<dyn AnyConnection>) -> Self {
        Self {
            connector: None,
            mode: ConnectionMode::Shared,
            connections: OpenConnections::new(vec![connection], 1),
            pending: PendingConnects::new(0),
            limits: PoolLimits { idle: 1, shared: 1 },
            retired: AtomicBool::new(false),
        }
    }

    /// Returns a connection for one call, if one is open.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<PooledConnection> {
        match self.mode {
            ConnectionMode::Shared => {
                self.connections.try_share().map(|slot| PooledConnection::new(slot, OnRelease::Nowhere))
            }
            ConnectionMode::Pooled => self
                .pop_idle()
                .map(|connection| PooledConnection::new_exclusive(connection, OnRelease::Pool(self.clone()))),
            ConnectionMode::Short => None,
        }
    }

    /// Returns a connection for one call, and establishes one if needed. Calls that share connections wait in order of
    /// arrival if all are full.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the call from the queue: the next call gets its slot, and a later one its connect.
    pub(super) async fn acquire(self: &Arc<Self>) -> Result<PooledConnection, Status> {
        match self.mode {
            ConnectionMode::Shared => Ok(PooledConnection::new(self.share().await?, OnRelease::Nowhere)),
            ConnectionMode::Pooled => {
                Ok(PooledConnection::new_exclusive(self.connect().await?, OnRelease::Pool(self.clone())))
            }
            ConnectionMode::Short => {
                Ok(PooledConnection::new_exclusive(self.connect_new().await?, OnRelease::Close))
            }
        }
    }

    /// Establishes a new connection regardless of the open ones. It is closed afterwards unless it
    /// [replaces](Self::replace_connections) the others.
    pub(super) async fn acquire_new(&self) -> Result<PooledConnection, Status> {
        Ok(PooledConnection::new_exclusive(self.connect_new().await?, OnRelease::Close))
    }

    /// Replaces all other connections by this one; those close when their last call has ended.
    pub(super) fn replace_connections(&self, connection: PooledConnection) {
        if self.mode == ConnectionMode::Short {
            return;
        }
        let mut connections = self.connections.lock();
        if self.is_retired() {
            return;
        }
        self.pending.clear();
        connections.drain(..).for_each(|connection| connection.close());
        connections.push(connection.into_connection());
        drop(connections);
        self.connections.hand_out_slots();
    }

    /// Establishes a connection that takes no calls. Also returns a session for it if the client may send first.
    ///
    /// # Errors
    ///
    /// If it cannot be established.
    pub(super) async fn connect_detached(&self) -> io::Result<(Stream, Option<Box<dyn Session + Send>>)> {
        match &self.connector {
            Some(connector) => connector.connect_detached().await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Name of the server, as HTTP's authority.
    pub(super) fn authority(&self) -> String {
        self.connector.as_ref().map(|connector| connector.url.authority()).unwrap_or_default()
    }

    /// Address of the server, if connections can be made.
    pub(super) fn address(&self) -> Option<&Address> {
        self.connector.as_ref().map(|connector| &connector.url.address)
    }

    /// Returns the server, the counts of the calls to it, and whether it takes calls now; `None` if there is only one
    /// connection, which cannot be replaced.
    pub(super) fn connection_info(&self) -> Option<(Instance, CallCounts, bool)> {
        let connector = self.connector.as_ref()?;
        let is_available = !self.is_retired() && connector.gate.refusal().is_none();
        Some((connector.url.instance(), connector.calls.counts(), is_available))
    }

    /// Returns when the next connection may be attempted; `None` if never.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.connector.as_ref().map(|connector| connector.next_attempt())
    }

    /// Makes no more connections; open ones close when their last call has ended.
    pub(super) fn retire(&self) {
        let mut connections = self.connections.lock();
        self.retired.store(true, Ordering::Relaxed);
        self.pending.close();
        connections.drain(..).for_each(|connection| connection.close());
        drop(connections);
        // Calls that wait fail now.
        self.connections.hand_out_slots();
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Waits for a slot on a shared connection. The first call that waits establishes one if there may be another.
    async fn share(&self) -> Result<CallSlot, Status> {
        let mut entry = QueueEntry::new(&self.connections);
        match poll_fn(|cx| entry.poll_grant(cx)).await {
            Grant::Slot(slot) => Ok(slot),
            Grant::Connect => {
                // Boxed, so that calls which only wait do not pay for its size. It ends before the next call connects.
                let connecting = Box::pin(self.connect_shared());
                match select(poll_fn(|cx| entry.poll_slot(cx)), connecting).await {
                    Either::Left((slot, _)) => Ok(slot),
                    Either::Right((connected, _)) => connected,
                }
            }
        }
    }

    /// Establishes a shared connection. Tries again if that fails, as long as others are open.
    async fn connect_shared(&self) -> Result<CallSlot, Status> {
        loop {
            match self.connect().await {
                Ok(connection) => return self.add_shared(connection),
                Err(status) if self.connections.is_empty() => return Err(status),
                Err(_) => {}
            }
            // The open connections suffice until then.
            let soon = tokio::time::Instant::now() + RECONNECT_PAUSE;
            let next = self.next_attempt().map_or(soon, |next| soon.max(next.into()));
            let mut pause = pin!(sleep_until(next));
            poll_fn(|cx| match self.connections.is_empty() {
                true => Poll::Ready(()),
                false => pause.as_mut().poll(cx),
            })
            .await;
        }
    }

    /// Adds a new connection, and returns a slot on it. Calls that wait get others when the caller leaves the queue.
    fn add_shared(&self, connection: Arc<dyn AnyConnection>) -> Result<CallSlot, Status> {
        // Before others see it: the caller is the first that waits. If the connection takes no call, submitting it
        // finds out.
        let slot = match connection.reserve(1, Waker::noop()) {
            Some(1) => CallSlot::from_reserved(connection.clone()),
            _ => CallSlot::new(connection.clone()),
        };
        let mut connections = self.connections.lock();
        if self.is_retired() {
            connection.close();
            return Err(pool_retired());
        }
        connections.push(connection);
        Ok(slot)
    }

    fn pop_idle(&self) -> Option<Arc<dyn AnyConnection>> {
        loop {
            let connection = self.connections.lock().pop()?;
            if connection.is_available() {
                return Some(connection);
            }
            connection.close();
        }
    }

    /// Returns a new connection without any calls. If no caller waits for it any longer, the next call gets it.
    async fn connect(&self) -> Result<Arc<dyn AnyConnection>, Status> {
        self.pending.connect(self.connector()?).await
    }

    async fn connect_new(&self) -> Result<Arc<dyn AnyConnection>, Status> {
        self.connector()?.connect().await
    }

    fn connector(&self) -> Result<&Arc<Connector>, Status> {
        match &self.connector {
            Some(_) if self.is_retired() => Err(pool_retired()),
            Some(connector) => Ok(connector),
            None => Err(Status::unavailable("the connection is closed")),
        }
    }

    fn release(&self, connection: Arc<dyn AnyConnection>) {
        let mut connections = self.connections.lock();
        if connection.is_available() && connections.len() < self.limits.idle && !self.is_retired() {
            connections.push(connection);
        } else {
            connection.close();
        }
    }
}

/// Least time between attempts to connect while other connections are open.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

#[cold]
fn pool_retired() -> Status {
    Status::unavailable("the server is no longer in the set")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

impl Drop for Pool {
    fn drop(&mut self) {
        for connection in self.connections.lock().drain(..) {
            connection.close();
        }
    }
}

/// Connection lent to one call.
pub(super) struct PooledConnection {
    pub(super) slot: CallSlot,
    on_release: OnRelease,
}

impl PooledConnection {
    fn new(slot: CallSlot, on_release: OnRelease) -> Self {
        Self { slot, on_release }
    }

    /// A connection of this call alone.
    fn new_exclusive(connection: Arc<dyn AnyConnection>, on_release: OnRelease) -> Self {
        Self::new(CallSlot::new(connection), on_release)
    }

    /// Takes the connection without returning it to the pool.
    fn into_connection(mut self) -> Arc<dyn AnyConnection> {
        self.on_release = OnRelease::Nowhere;
        self.slot.connection().clone()
    }
}

/// Use of a connection after its call.
enum OnRelease {
    Nowhere,
    Pool(Arc<Pool>),
    Close,
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        match &self.on_release {
            OnRelease::Nowhere => {}
            OnRelease::Pool(pool) => pool.release(self.slot.connection().clone()),
            OnRelease::Close => self.slot.close(),
        }
    }
}

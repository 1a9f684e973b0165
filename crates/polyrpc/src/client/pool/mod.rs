//! Connection pool of one server: open connections and pending connects ([`pending_connects`]).

mod pending_connects;

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Instant;

use polyrpc_core::session::Client as Session;
use polyrpc_core::{Retry, Scope, Status};

use self::pending_connects::PendingConnects;
use crate::client::connection::any_connection::{AnyConnection, Readiness};
use crate::client::connection::call_counts::CallCounts;
use crate::client::connection::call_slot::CallSlot;
use crate::client::connection::connector::Connector;
use crate::contention::{Mutex, MutexGuard};
use crate::discovery::Instance;
use crate::transport::{Address, Stream};

/// How calls share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConnectionMode {
    /// All calls share one connection and are multiplexed on it. If a server limits the calls per connection (HTTP/2),
    /// further connections are made, up to [a bound](super::Builder::connections). A protocol without correlation ids
    /// (HTTP/1, rest_rpc since v0.21) uses a pool instead, since one slow call would hold up the rest.
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
    connections: Mutex<Vec<Arc<dyn AnyConnection>>>,
    /// Connections that are being established.
    pending: PendingConnects,
    /// Held while a shared connection is established or waited for, so that only one is made and calls wait in order.
    turn: tokio::sync::Mutex<()>,
    /// Number of calls that wait for their turn. No other call may overtake them.
    queued: AtomicUsize,
    bounds: PoolLimits,
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
    pub(super) fn new(connector: Connector, mode: ConnectionMode, bounds: PoolLimits) -> Self {
        let mode = match (mode, connector.url.dialect.one_at_a_time) {
            (ConnectionMode::Shared, true) => ConnectionMode::Pooled,
            (mode, _) => mode,
        };
        Self {
            connector: Some(connector.into()),
            mode,
            connections: Mutex::default(),
            // Calls that share connections make one at a time.
            pending: PendingConnects::new(if mode == ConnectionMode::Shared { 1 } else { bounds.idle }),
            turn: tokio::sync::Mutex::default(),
            queued: AtomicUsize::new(0),
            bounds,
            retired: AtomicBool::new(false),
        }
    }

    /// Creates a pool of one connection that cannot be replaced.
    pub(super) fn fixed(link: Arc<dyn AnyConnection>) -> Self {
        Self {
            connector: None,
            mode: ConnectionMode::Shared,
            connections: Mutex::new(vec![link]),
            pending: PendingConnects::new(0),
            turn: tokio::sync::Mutex::default(),
            queued: AtomicUsize::new(0),
            bounds: PoolLimits { idle: 1, shared: 1 },
            retired: AtomicBool::new(false),
        }
    }

    /// Returns a connection for one call, if one is open.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<PooledConnection> {
        match self.mode {
            ConnectionMode::Shared if self.queued.load(Ordering::Relaxed) > 0 => None,
            ConnectionMode::Shared => {
                self.shared().map(|link| PooledConnection::new(link, OnRelease::Nowhere))
            }
            ConnectionMode::Pooled => {
                self.pop_idle().map(|link| PooledConnection::new(link, OnRelease::Pool(self.clone())))
            }
            ConnectionMode::Short => None,
        }
    }

    /// Returns a connection for one call, and establishes one if needed.
    pub(super) async fn acquire(self: &Arc<Self>) -> Result<PooledConnection, Status> {
        match self.mode {
            ConnectionMode::Shared => Ok(PooledConnection::new(self.share().await?, OnRelease::Nowhere)),
            ConnectionMode::Pooled => {
                Ok(PooledConnection::new(self.connect().await?, OnRelease::Pool(self.clone())))
            }
            ConnectionMode::Short => Ok(PooledConnection::new(self.dial().await?, OnRelease::Close)),
        }
    }

    /// Establishes a new connection regardless of the open ones. It is closed afterwards unless it
    /// [replaces](Self::replace_connections) the others.
    pub(super) async fn acquire_new(&self) -> Result<PooledConnection, Status> {
        Ok(PooledConnection::new(self.dial().await?, OnRelease::Close))
    }

    /// Replaces all other connections by this one; those close when their last call has ended.
    pub(super) fn replace_connections(&self, connection: PooledConnection) {
        if self.mode == ConnectionMode::Short {
            return;
        }
        let mut links = self.lock();
        if self.is_retired() {
            return;
        }
        self.pending.clear();
        links.drain(..).for_each(|link| link.close());
        links.push(connection.into_connection());
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
    pub(super) fn facts(&self) -> Option<(Instance, CallCounts, bool)> {
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
        let mut links = self.lock();
        self.retired.store(true, Ordering::Relaxed);
        self.pending.close();
        links.drain(..).for_each(|link| link.close());
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    fn shared(&self) -> Option<Arc<dyn AnyConnection>> {
        let mut links = self.lock();
        if let Some(link) = links.first().filter(|link| link.available()) {
            return Some(link.clone());
        }
        links.retain(|link| {
            let is_ending = link.readiness() == Readiness::Ending;
            if is_ending {
                // It closes when its last call has ended.
                link.close();
            }
            !is_ending
        });
        links.iter().find(|link| link.available()).cloned()
    }

    /// Establishes a shared connection, unless another caller has just done so, or waits for capacity on the open ones.
    async fn share(&self) -> Result<Arc<dyn AnyConnection>, Status> {
        let _queued = QueueTicket::new(&self.queued);
        let _turn = self.turn.lock().await;
        loop {
            if let Some(link) = self.shared() {
                return Ok(link);
            }
            let full = self.lock().clone();
            if full.len() < self.bounds.shared {
                match self.connect().await {
                    Ok(link) => {
                        let mut links = self.lock();
                        if self.is_retired() {
                            link.close();
                            return Err(pool_retired());
                        }
                        links.push(link.clone());
                        return Ok(link);
                    }
                    Err(status) if full.is_empty() => return Err(status),
                    // The open connections suffice.
                    Err(_) => {}
                }
            }
            wait_for_capacity(&full).await;
        }
    }

    fn pop_idle(&self) -> Option<Arc<dyn AnyConnection>> {
        loop {
            let link = self.lock().pop()?;
            if link.available() {
                return Some(link);
            }
            link.close();
        }
    }

    /// Returns a new connection without any calls. If no caller waits for it any longer, the next call gets it.
    async fn connect(&self) -> Result<Arc<dyn AnyConnection>, Status> {
        self.pending.connect(self.connector()?).await
    }

    async fn dial(&self) -> Result<Arc<dyn AnyConnection>, Status> {
        self.connector()?.dial().await
    }

    fn connector(&self) -> Result<&Arc<Connector>, Status> {
        match &self.connector {
            Some(_) if self.is_retired() => Err(pool_retired()),
            Some(connector) => Ok(connector),
            None => Err(Status::unavailable("the connection is closed")),
        }
    }

    fn release(&self, link: Arc<dyn AnyConnection>) {
        let mut links = self.lock();
        if link.available() && links.len() < self.bounds.idle && !self.is_retired() {
            links.push(link);
        } else {
            link.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn AnyConnection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cold]
fn pool_retired() -> Status {
    Status::unavailable("the server is no longer in the set")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

/// Waits until one of the connections can take a call, or none ever will.
async fn wait_for_capacity(links: &[Arc<dyn AnyConnection>]) {
    poll_fn(|cx| match links.iter().any(|link| link.poll_capacity(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Registration of a call that waits for its turn.
struct QueueTicket<'p>(&'p AtomicUsize);

impl<'p> QueueTicket<'p> {
    fn new(queued: &'p AtomicUsize) -> Self {
        queued.fetch_add(1, Ordering::Relaxed);
        Self(queued)
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for link in self.lock().drain(..) {
            link.close();
        }
    }
}

/// Connection lent to one call.
pub(super) struct PooledConnection {
    pub(super) slot: CallSlot,
    on_release: OnRelease,
}

impl PooledConnection {
    fn new(link: Arc<dyn AnyConnection>, back: OnRelease) -> Self {
        Self { slot: CallSlot::new(link), on_release: back }
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

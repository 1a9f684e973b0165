//! Resource usage of a server's peers, and its limits. Servers and clients with the same [`MemoryBudget`] count their
//! bytes together.
//!
//! There are three levels: a connection, the peer address that it comes from, and the server. A [`SharedUsage`] is the
//! usage of one level, a [`Quota`] its limit, an [`Account`] a connection's access to all three.
//!
//! Calls and streams are rejected at a level's quota. The last quarter of a quota is shared: a connection takes from it
//! only up to an equal share, so that the first ones leave something for the others.
//!
//! Bytes are bounded by what is left: a connection may hold as much as its level has free ("dynamic thresholds",
//! Choudhury and Hahne 1998). A single one may use half of an idle server; *n* greedy ones leave an *n+1*-th part free.
//! A connection that holds no more than [`FLOOR`] is never blocked: once all is used, the connection that holds most is
//! closed.

mod expected;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use polyrpc_core::{Retry, Status};

pub(crate) use self::expected::ResponseRoom;

use self::expected::ExpectedResponses;
use crate::contention::{Mutex, MutexGuard};

/// Bytes that several servers and clients of a process may hold together: messages that are incomplete, wait for a
/// handler, for their call or for a peer that reads slowly. Clones are the same budget.
///
/// For a server it replaces [`Limits::memory`](crate::server::Limits::memory), with the behaviour that is described
/// there; a peer address counts once for all of them, and of several servers, those at which the address that holds most
/// is connected close its connections. A client's connection that holds more than the free part of the budget is not read
/// until its replies and messages are consumed, or until others have released theirs; flow control then slows down the
/// server at the other end.
///
/// A proxy gives it to its listeners and to the clients of its upstreams:
///
/// ```
/// use polyrpc::fallback::RawRequest;
/// use polyrpc::{Client, MemoryBudget, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polyrpc::Result<()> {
/// let budget = MemoryBudget::new(64 << 20);
/// let backend = Client::builder("grpc://127.0.0.1:8001").memory_budget(&budget).build()?;
/// let proxy = Server::new().memory_budget(&budget).fallback(move |call: RawRequest| {
///     let backend = backend.clone();
///     async move { call.forward(&backend).await }
/// });
/// assert_eq!(budget.held(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    bytes: usize,
    held: Arc<HeldBytes>,
}

impl MemoryBudget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, held: Arc::default() }
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the approximate number of bytes held: connections report theirs in steps of 4 KiB.
    pub fn held(&self) -> usize {
        self.held.bytes.load(Relaxed)
    }

    /// Creates the usage of a server.
    pub(crate) fn server_usage(&self) -> SharedUsage {
        let usage = self.client_usage();
        usage.held.servers().push(Arc::downgrade(&usage.pressure));
        usage
    }

    /// Creates the usage of a client's connection, none of which is closed for want of memory.
    fn client_usage(&self) -> SharedUsage {
        SharedUsage { held: self.held.clone(), ..SharedUsage::default() }
    }

    /// Creates the account of a client's connection.
    pub(crate) fn account(&self) -> Account {
        let server = Quota { bytes: self.bytes, ..Quota::NONE };
        let quotas = Quotas { server, peer: Quota::NONE, connection: Quota::NONE };
        Account::new(Arc::new(quotas), Arc::new(self.client_usage()), Arc::default())
    }
}

/// Limits of one level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    /// Bytes held.
    pub(crate) bytes: usize,
    /// Calls with a pending handler.
    pub(crate) calls: usize,
    /// Open streams.
    pub(crate) streams: usize,
}

impl Quota {
    /// No limit.
    pub(crate) const NONE: Self = Self { bytes: usize::MAX, calls: usize::MAX, streams: usize::MAX };
}

/// Returns the status of a call that is rejected since a byte budget is used up. If the protocol carries details, it
/// contains when to retry.
#[cold]
pub(crate) fn exhausted() -> Status {
    const TEXT: &str = "the server's memory budget for this peer is used up; try again later";
    Status::resource_exhausted(TEXT).with_details(try_again_later(TEXT)).with_retry(Retry::Elsewhere)
}

/// The same for a call whose reply has no room: its handler has run.
#[cold]
pub(crate) fn no_room_for_reply() -> Status {
    const TEXT: &str = "the server's memory budget for this peer has no room for the reply; try again later";
    Status::resource_exhausted(TEXT).with_details(try_again_later(TEXT)).with_retry(Retry::IfIdempotent)
}

/// A `google.rpc.Status` with a `google.rpc.RetryInfo` of one second.
fn try_again_later(text: &str) -> Vec<u8> {
    const TYPE: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
    // retry_delay (1) { seconds (1): 1 }
    const ONE_SECOND: &[u8] = &[0x0a, 0x02, 0x08, 0x01];
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let any = [field(1, TYPE), field(2, ONE_SECOND)].concat();
    // code (1): RESOURCE_EXHAUSTED, message (2), details (3). All lengths are below 128.
    [vec![0x08, 0x08], field(2, text.as_bytes()), field(3, &any)].concat()
}

/// Limits of all levels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quotas {
    pub(crate) server: Quota,
    pub(crate) peer: Quota,
    pub(crate) connection: Quota,
}

/// The level at which a quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaLevel {
    Server,
    Peer,
    Connection,
}

/// Error of a counted quota that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaExceeded {
    pub(crate) level: QuotaLevel,
    pub(crate) quota: usize,
}

/// Bytes that a connection may hold regardless of others: a few small calls.
pub(crate) const FLOOR: usize = 64 << 10;

/// Step in which a connection reports the bytes that it holds, so that small calls touch no shared counter.
const REPORT_STEP_BYTES: usize = 4 << 10;

/// Minimum size of a release in bulk, in bytes: glibc keeps what is smaller for the next message anyway.
const MIN_BULK_RELEASE_BYTES: usize = 1 << 20;

/// Bytes from which a connection's task marks its thread's arena: many connections that each hold less than
/// [`MIN_BULK_RELEASE_BYTES`] fill an arena too.
const MARK_THRESHOLD_BYTES: usize = 64 << 10;

/// Bytes that connections hold.
#[derive(Debug, Default)]
struct HeldBytes {
    bytes: AtomicUsize,
    /// Bytes that are reserved for responses, which may be held soon.
    expected: AtomicUsize,
    /// Bytes that connections have released [in bulk](MIN_BULK_RELEASE_BYTES).
    released: AtomicUsize,
    /// How many times free memory was returned to the system.
    trims: AtomicUsize,
    /// The connection that may continue though it holds more than its share, so that not all wait for each other; 0 if
    /// none.
    exempt: AtomicU64,
    /// The servers that share the budget, if it is shared.
    servers: Mutex<Vec<Weak<Pressure>>>,
    /// What connections of each peer address hold at all these servers. An address is forgotten with its last
    /// connection, at the servers' next [`forget_peers`](SharedUsage::forget_peers).
    peers: Mutex<HashMap<IpAddr, Weak<Self>>>,
}

impl HeldBytes {
    fn servers(&self) -> MutexGuard<'_, Vec<Weak<Pressure>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<IpAddr, Weak<Self>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server reports to others that share its budget while memory is short, so that they close no connections of
/// theirs for those of its peers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PressureReport {
    /// Bytes of the peer that holds most.
    pub(crate) largest: usize,
    /// Address of this peer. What it holds at all servers together is its number of bytes at each of them.
    pub(crate) address: Option<IpAddr>,
    /// Bytes of this peer's largest connection.
    pub(crate) connection: usize,
    /// Bytes of all connections that are not about to close.
    pub(crate) held: usize,
    /// Bytes of connections that are about to close.
    pub(crate) closing: usize,
}

impl PressureReport {
    /// Adds the report of another server.
    fn add(self, other: Self) -> Self {
        let is_same = self.address == other.address && self.address.is_some();
        let most = if other.largest > self.largest { other } else { self };
        let connection = if is_same { self.connection.max(other.connection) } else { most.connection };
        let (held, closing) = (self.held + other.held, self.closing + other.closing);
        Self { connection, held, closing, ..most }
    }
}

/// The last report of a server.
type Pressure = Mutex<PressureReport>;

fn last_report(pressure: &Pressure) -> MutexGuard<'_, PressureReport> {
    pressure.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Usage of all connections of a server, or of one peer address.
#[derive(Debug, Default)]
pub(crate) struct SharedUsage {
    /// Possibly shared with other servers and clients: see [`MemoryBudget`].
    held: Arc<HeldBytes>,
    /// Its own report to the servers with the same budget.
    pressure: Arc<Pressure>,
    calls: ResourceUsage,
    streams: ResourceUsage,
    connections: AtomicUsize,
}

impl SharedUsage {
    /// Returns whether this connection may exceed its share: one at a time may.
    fn allows_overdraft(&self, id: u64) -> bool {
        match self.held.exempt.compare_exchange(0, id, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(exempt) => exempt == id,
        }
    }

    /// Returns the bytes that all its connections hold, and others that share its budget.
    pub(crate) fn bytes(&self) -> usize {
        self.held.bytes.load(Relaxed)
    }

    /// Reports to the other servers that share the budget. Returns the largest and the sums of their reports; `None` if
    /// there are none.
    pub(crate) fn exchange_pressure(&self, report: PressureReport) -> Option<PressureReport> {
        self.report_pressure(report);
        let mut servers = self.held.servers();
        servers.retain(|server| server.strong_count() > 0);
        let others = servers.iter().filter_map(Weak::upgrade);
        let others = others.filter(|server| !Arc::ptr_eq(server, &self.pressure));
        others.map(|server| *last_report(&server)).reduce(PressureReport::add)
    }

    /// Reports to the other servers that share the budget. A server that no longer watches its connections must report
    /// that nothing is held: others would wait for it to close some.
    pub(crate) fn report_pressure(&self, report: PressureReport) {
        *last_report(&self.pressure) = report;
    }

    /// Creates the usage of a peer address; `None`: of peers without one. Servers that share the budget count what it
    /// holds together, since it would hold the quota of a peer at each of them otherwise.
    pub(crate) fn usage_of_peer(&self, address: Option<IpAddr>) -> Self {
        let Some(address) = address.filter(|_| !self.held.servers().is_empty()) else {
            return Self::default();
        };
        let mut peers = self.held.peers();
        let known = peers.get(&address).and_then(Weak::upgrade);
        let held = known.unwrap_or_else(|| {
            let held = Arc::default();
            peers.insert(address, Arc::downgrade(&held));
            held
        });
        let usage = Self { held, ..Self::default() };
        let mut servers = usage.held.servers();
        servers.retain(|server| server.strong_count() > 0);
        servers.push(Arc::downgrade(&usage.pressure));
        drop(servers);
        usage
    }

    /// Forgets the addresses that no server of the budget knows any more.
    pub(crate) fn forget_peers(&self) {
        self.held.peers().retain(|_, held| held.strong_count() > 0);
    }

    /// Returns how many bytes connections have released in bulk since the server started. It wraps around.
    pub(crate) fn released(&self) -> usize {
        self.held.released.load(Relaxed)
    }

    /// Returns the number of times that any server of the budget returned free memory to the system.
    pub(crate) fn trims(&self) -> usize {
        self.held.trims.load(Relaxed)
    }

    /// Counts one return of free memory to the system. Returns the new count.
    pub(crate) fn record_trim(&self) -> usize {
        self.held.trims.fetch_add(1, Relaxed) + 1
    }

    /// Returns the number of calls with a pending handler.
    pub(crate) fn calls(&self) -> usize {
        self.calls.used.load(Relaxed)
    }

    /// Returns the number of open streams.
    pub(crate) fn streams(&self) -> usize {
        self.streams.used.load(Relaxed)
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

/// Usage of a counted resource, and the number of connections that use it.
#[derive(Debug, Default)]
struct ResourceUsage {
    used: AtomicUsize,
    holders: AtomicUsize,
}

/// Number of calls up to which a connection counts as having few.
const FEW_CALLS: usize = 16;

impl ResourceUsage {
    /// Returns whether a connection that has `own` may take one more.
    #[inline]
    fn admits(&self, own: usize, quota: usize) -> bool {
        self.has_room(quota) || self.admits_from_reserve(own, self.used.load(Relaxed), quota)
    }

    /// Returns whether less than three quarters are used.
    #[inline]
    fn has_room(&self, quota: usize) -> bool {
        self.used.load(Relaxed) < quota - quota / 4
    }

    /// Checks the reserve. The last sixteenth is for connections that have few, half of it for those that have none:
    /// shares that are equal when they are taken may use up all if the first ones had more.
    #[cold]
    fn admits_from_reserve(&self, own: usize, used: usize, quota: usize) -> bool {
        let holders = self.holders.load(Relaxed) + usize::from(own == 0);
        let open = match own {
            _ if holders <= 1 => quota,
            0 => quota,
            own if own < FEW_CALLS => quota - quota / 32,
            own if own < quota / (holders + 1) => quota - quota / 16,
            _ => 0,
        };
        used < open
    }

    /// Counts one more for a connection that has `own`.
    fn add(&self, own: usize) {
        self.used.fetch_add(1, Relaxed);
        if own == 0 {
            self.holders.fetch_add(1, Relaxed);
        }
    }

    /// Counts `n` fewer for a connection that keeps `rest`.
    fn remove(&self, n: usize, rest: usize) {
        self.used.fetch_sub(n, Relaxed);
        if rest == 0 {
            self.holders.fetch_sub(1, Relaxed);
        }
    }
}

/// Mark of a closed account among its charged bytes: either the charge sees it, or the closing side sees the charge.
const CLOSED_FLAG: usize = 1 << (usize::BITS - 1);

/// Usage of one connection, at all levels; released on drop.
///
/// Written by one task; others only read.
#[derive(Debug)]
pub(crate) struct Account {
    quotas: Arc<Quotas>,
    server: Arc<SharedUsage>,
    peer: Arc<SharedUsage>,
    /// Its number in this process, by which it is favoured.
    id: u64,
    /// Bytes held, as its task last reported them.
    bytes: AtomicUsize,
    /// Bytes that were charged since, by any task; and [`CLOSED_FLAG`] once it is closed: it then holds nothing, even if its
    /// account is still referenced.
    charged: AtomicUsize,
    /// Of these, bytes held outside of the connection's own task.
    aside: AtomicUsize,
    calls: AtomicUsize,
    streams: AtomicUsize,
    expected: OnceLock<Box<ExpectedResponses>>,
}

impl Account {
    /// Creates the account of a connection that was just opened.
    pub(crate) fn new(quotas: Arc<Quotas>, server: Arc<SharedUsage>, peer: Arc<SharedUsage>) -> Self {
        static ACCOUNTS: AtomicU64 = AtomicU64::new(0);
        let id = ACCOUNTS.fetch_add(1, Relaxed) + 1;
        server.connections.fetch_add(1, Relaxed);
        peer.connections.fetch_add(1, Relaxed);
        let [bytes, charged, aside, calls, streams] = Default::default();
        let expected = OnceLock::new();
        Self { quotas, server, peer, id, bytes, charged, aside, calls, streams, expected }
    }

    /// Returns the usage of all connections of the same peer address.
    pub(crate) fn peer(&self) -> &Arc<SharedUsage> {
        &self.peer
    }

    /// Returns the number of calls with a pending handler.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    /// Returns the number of open streams.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Relaxed)
    }

    /// Returns the bytes held, as last reported.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) + self.charged()
    }

    /// Checks that one more call may be pending.
    ///
    /// # Errors
    ///
    /// The level whose quota is used up.
    #[inline]
    pub(crate) fn admits_call(&self) -> Result<(), QuotaExceeded> {
        let quota = |quota: &Quota| quota.calls;
        self.admits(self.calls(), quota, |pool| &pool.calls)
    }

    /// Returns whether so few calls are pending that one more is admitted without a full check.
    #[inline]
    pub(crate) fn has_room_for_call(&self) -> bool {
        let Quotas { server, peer, connection } = &*self.quotas;
        let (server, peer) = (self.server.calls.has_room(server.calls), self.peer.calls.has_room(peer.calls));
        self.calls() < connection.calls && server && peer
    }

    /// Counts one more pending call.
    pub(crate) fn add_call(&self) {
        let own = self.calls.fetch_add(1, Relaxed);
        self.server.calls.add(own);
        self.peer.calls.add(own);
    }

    /// Counts the end of a pending call.
    pub(crate) fn remove_call(&self) {
        let rest = self.calls.fetch_sub(1, Relaxed) - 1;
        self.server.calls.remove(1, rest);
        self.peer.calls.remove(1, rest);
    }

    /// Checks that one more stream may be open.
    ///
    /// # Errors
    ///
    /// The level whose quota is used up.
    pub(crate) fn admits_stream(&self) -> Result<(), QuotaExceeded> {
        let quota = |quota: &Quota| quota.streams;
        self.admits(self.streams(), quota, |pool| &pool.streams)
    }

    fn admits(
        &self,
        own: usize,
        quota: impl Fn(&Quota) -> usize,
        share: impl Fn(&SharedUsage) -> &ResourceUsage,
    ) -> Result<(), QuotaExceeded> {
        let Quotas { server, peer, connection } = &*self.quotas;
        let full = |level, quota| Err(QuotaExceeded { level, quota });
        match () {
            () if own >= quota(connection) => full(QuotaLevel::Connection, quota(connection)),
            () if !share(&self.server).admits(own, quota(server)) => full(QuotaLevel::Server, quota(server)),
            () if !share(&self.peer).admits(own, quota(peer)) => full(QuotaLevel::Peer, quota(peer)),
            () => Ok(()),
        }
    }

    /// Counts one more open stream.
    pub(crate) fn add_stream(&self) {
        let own = self.streams.fetch_add(1, Relaxed);
        self.server.streams.add(own);
        self.peer.streams.add(own);
    }

    /// Counts the end of a stream.
    pub(crate) fn remove_stream(&self) {
        let rest = self.streams.fetch_sub(1, Relaxed) - 1;
        self.server.streams.remove(1, rest);
        self.peer.streams.remove(1, rest);
    }

    /// Counts bytes that are kept for the connection outside of its task: by a pending handler, in a queue of a stream.
    pub(crate) fn keep(&self, bytes: usize) {
        self.aside.fetch_add(bytes, Relaxed);
    }

    /// Releases bytes that were [kept](Self::keep).
    pub(crate) fn release(&self, bytes: usize) {
        self.aside.fetch_sub(bytes, Relaxed);
    }

    /// Returns the bytes that are [kept](Self::keep).
    pub(crate) fn kept(&self) -> usize {
        self.aside.load(Relaxed)
    }

    /// Reports the bytes that the connection holds now, in addition to those [kept](Self::keep) outside of its task.
    pub(crate) fn report_held(&self, bytes: usize) {
        let bytes = bytes + self.aside.load(Relaxed);
        let (known, charged) = (self.bytes.load(Relaxed), self.charged());
        if charged > 0 || known / REPORT_STEP_BYTES != bytes / REPORT_STEP_BYTES {
            self.change(bytes);
        }
    }

    /// Reports at once that the connection holds this many bytes more, which the next
    /// [`report_held`](Self::report_held) includes. May be called by any task.
    pub(crate) fn charge(&self, bytes: usize) {
        if self.is_closed() {
            return;
        }
        // First, so that no other task subtracts bytes that were not counted yet.
        self.server.held.bytes.fetch_add(bytes, Relaxed);
        self.peer.held.bytes.fetch_add(bytes, Relaxed);
        if self.charged.fetch_add(bytes, Release) & CLOSED_FLAG != 0 {
            self.charged.fetch_sub(bytes, Relaxed);
            self.server.held.bytes.fetch_sub(bytes, Relaxed);
            self.peer.held.bytes.fetch_sub(bytes, Relaxed);
        }
    }

    fn charged(&self) -> usize {
        self.charged.load(Relaxed) & !CLOSED_FLAG
    }

    fn is_closed(&self) -> bool {
        self.charged.load(Relaxed) & CLOSED_FLAG != 0
    }

    /// Must be called only by the connection's task, or at its end.
    fn change(&self, bytes: usize) {
        let charged = self.charged.fetch_and(CLOSED_FLAG, Acquire) & !CLOSED_FLAG;
        self.take_back(charged, bytes);
    }

    /// Replaces the bytes that the connection last reported, and these charged ones, by this many held bytes.
    fn take_back(&self, charged: usize, bytes: usize) {
        let known = charged + self.bytes.swap(bytes, Relaxed);
        if known.saturating_sub(bytes) >= MIN_BULK_RELEASE_BYTES {
            self.server.held.released.fetch_add(known - bytes, Relaxed);
        }
        // Also for a release: memory may have been returned to the system since the bytes were allocated.
        if bytes.max(known) >= MARK_THRESHOLD_BYTES && bytes != known {
            polyrpc_heap::mark_arena();
        }
        for pool in [&self.server, &self.peer] {
            match bytes >= known {
                true => pool.held.bytes.fetch_add(bytes - known, Relaxed),
                false => pool.held.bytes.fetch_sub(known - bytes, Relaxed),
            };
            if bytes <= FLOOR {
                // Waiting connections may continue.
                let _ = pool.held.exempt.compare_exchange(self.id, 0, Relaxed, Relaxed);
            }
        }
    }

    /// Closes the account. Parts of the connection may live on in handlers; they no longer count as the peer's.
    pub(crate) fn close(&self) {
        if self.is_closed() {
            return;
        }
        // At once: later charges do not count.
        let charged = self.charged.swap(CLOSED_FLAG, Acquire);
        if charged & CLOSED_FLAG == 0 {
            self.take_back(charged, 0);
            self.server.connections.fetch_sub(1, Relaxed);
            self.peer.connections.fetch_sub(1, Relaxed);
        }
    }

    /// Returns how many more bytes the connection may hold.
    pub(crate) fn remaining(&self) -> usize {
        let Quotas { server, peer, connection } = *self.quotas;
        let own = connection.bytes.saturating_sub(self.bytes());
        own.min(server.bytes.saturating_sub(self.server.bytes()))
            .min(peer.bytes.saturating_sub(self.peer.bytes()))
    }

    /// Returns how many more bytes it may hold without holding more than what it leaves free.
    pub(crate) fn remaining_share(&self) -> usize {
        let Quotas { server, peer, .. } = *self.quotas;
        let own = self.bytes();
        let share =
            |pool: &SharedUsage, quota: usize| quota.saturating_sub(pool.bytes()).saturating_sub(own) / 2;
        self.remaining().min(share(&self.server, server.bytes)).min(share(&self.peer, peer.bytes))
    }

    /// Returns the level at which the connection holds more than its share of the free bytes; it must not accept
    /// anything new.
    pub(crate) fn exceeded_share(&self) -> Option<QuotaLevel> {
        let own = self.bytes();
        if own <= FLOOR {
            return None;
        }
        let Quotas { server, peer, connection } = *self.quotas;
        let exceeds = |pool: &SharedUsage, quota: usize| {
            let free = quota.saturating_sub(pool.bytes());
            own > free && !(free > quota / 16 && pool.allows_overdraft(self.id))
        };
        match () {
            () if own >= connection.bytes => Some(QuotaLevel::Connection),
            () if exceeds(&self.server, server.bytes) => Some(QuotaLevel::Server),
            () if exceeds(&self.peer, peer.bytes) => Some(QuotaLevel::Peer),
            () => None,
        }
    }

    /// Whether the connection must not accept anything new.
    pub(crate) fn is_over_share(&self) -> bool {
        self.bytes() > FLOOR && self.exceeded_share().is_some()
    }

    /// Whether the connection holds more than the free part of the server's budget, so that it would wait even if no
    /// other did.
    pub(crate) fn exceeds_free(&self) -> bool {
        let (own, quota) = (self.bytes(), self.quotas.server.bytes);
        own > FLOOR && own > quota.saturating_sub(self.server.bytes())
    }

    /// Returns whether the connection alone exceeds its quota.
    pub(crate) fn exceeds_quota(&self) -> bool {
        self.bytes() > self.quotas.connection.bytes
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close();
        let (calls, streams) = (*self.calls.get_mut(), *self.streams.get_mut());
        for pool in [&self.server, &self.peer] {
            if calls > 0 {
                pool.calls.remove(calls, 0);
            }
            if streams > 0 {
                pool.streams.remove(streams, 0);
            }
        }
    }
}

/// Bytes that are reserved for a connection for as long as this lives.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    account: Arc<Account>,
    bytes: usize,
}

impl ReservedBytes {
    pub(crate) fn new(account: Arc<Account>, bytes: usize) -> Self {
        account.keep(bytes);
        Self { account, bytes }
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

/// Bytes of a buffer that grows while a blocking thread fills it: they count before the buffer has them. When this is
/// dropped, they count until the connection reports again.
#[derive(Debug)]
pub(crate) struct GrowingReservation<'a> {
    account: &'a Account,
    bytes: usize,
}

impl<'a> GrowingReservation<'a> {
    pub(crate) fn new(account: &'a Account) -> Self {
        Self { account, bytes: 0 }
    }

    /// Reserves up to this many bytes more. Returns how many: all of them, if that many are free.
    pub(crate) fn grow(&mut self, bytes: usize) -> usize {
        // One at a time, so that two buffers do not get the same bytes.
        static GROWING: Mutex<()> = Mutex::new(());
        let _growing = GROWING.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = bytes.min(self.account.remaining());
        self.account.charge(granted);
        // The connection's reports in the meantime include it.
        self.account.keep(granted);
        self.bytes += granted;
        granted
    }
}

impl Drop for GrowingReservation<'_> {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(n: usize) -> Quota {
        Quota { bytes: n << 20, calls: n, streams: n }
    }

    fn accounts(n: usize, quotas: Quotas) -> (Arc<SharedUsage>, Vec<Account>) {
        let (quotas, server, peer) =
            (Arc::new(quotas), Arc::new(SharedUsage::default()), Arc::new(SharedUsage::default()));
        let account = |_| Account::new(quotas.clone(), server.clone(), peer.clone());
        (server.clone(), (0..n).map(account).collect())
    }

    fn fill(account: &Account) -> usize {
        while account.admits_call().is_ok() {
            account.add_call();
        }
        account.calls()
    }

    #[test]
    fn single_connection_can_use_the_whole_quota() {
        let (server, accounts) =
            accounts(1, Quotas { server: quota(4), peer: Quota::NONE, connection: Quota::NONE });
        assert_eq!(fill(&accounts[0]), 4);
        assert_eq!(accounts[0].admits_call(), Err(QuotaExceeded { level: QuotaLevel::Server, quota: 4 }));
        accounts[0].remove_call();
        assert_eq!(accounts[0].admits_call(), Ok(()));
        assert_eq!(server.calls(), 3);
    }

    #[test]
    fn greedy_connections_leave_room_for_a_later_one() {
        let quotas = Quotas { server: quota(1000), peer: Quota::NONE, connection: Quota::NONE };
        let (server, accounts) = accounts(65, quotas);
        let (late, greedy) = accounts.split_last().unwrap();
        let mut grew = true;
        while grew {
            grew = false;
            for account in greedy.iter().filter(|account| account.admits_call().is_ok()) {
                account.add_call();
                grew = true;
            }
        }
        assert!(server.calls() < 1000, "{}", server.calls());
        assert_eq!(late.admits_call(), Ok(()));
    }

    #[test]
    fn successive_greedy_connections_leave_room_for_small_ones() {
        let quotas = Quotas { server: quota(49_152), peer: Quota::NONE, connection: quota(1_024) };
        let (_, accounts) = accounts(64 + 100, quotas);
        let (greedy, others) = accounts.split_at(64);
        greedy.iter().for_each(|account| {
            fill(account);
        });
        for account in others {
            assert_eq!(account.admits_call(), Ok(()));
            account.add_call();
        }
    }

    #[test]
    fn greedy_holders_of_bytes_leave_some_free() {
        let quotas = Quotas { server: quota(64), peer: Quota::NONE, connection: Quota::NONE };
        let (server, accounts) = accounts(32, quotas);
        let mut grew = true;
        while grew {
            grew = false;
            for account in accounts.iter().filter(|account| account.exceeded_share().is_none()) {
                account.charge(256 << 10);
                grew = true;
            }
        }
        assert!(server.bytes() < 64 << 20, "{}", server.bytes());
        accounts[0].report_held(0);
        assert_eq!(accounts[0].exceeded_share(), None);
        drop(accounts);
        assert_eq!((server.bytes(), server.connections()), (0, 0));
    }

    #[test]
    fn shares_of_successive_holders_leave_some_free() {
        let quotas = Quotas { server: quota(64), peer: Quota::NONE, connection: quota(60) };
        let (server, accounts) = accounts(3, quotas);
        for account in &accounts {
            account.charge(account.remaining_share());
            assert!(account.remaining_share() <= 1);
        }
        assert_eq!(server.bytes(), (32 + 16 + 8) << 20);
        assert_eq!(accounts[2].remaining(), 8 << 20, "for a connection without unread replies");
    }

    #[test]
    fn one_of_two_large_messages_completes() {
        let quotas = Quotas { server: quota(64), peer: Quota::NONE, connection: Quota::NONE };
        let (_, accounts) = accounts(2, quotas);
        let mut whole = 0;
        for _ in 0..1000 {
            for account in accounts.iter().filter(|account| account.exceeded_share().is_none()) {
                account.charge(256 << 10);
                if account.bytes() >= 24 << 20 {
                    whole += 1;
                    account.report_held(0);
                }
            }
        }
        assert!(whole > 8, "{whole} messages of 24 MiB came through 64 MiB");
    }

    #[test]
    fn closed_account_holds_nothing() {
        let quotas = Quotas { server: quota(64), peer: Quota::NONE, connection: Quota::NONE };
        let (server, accounts) = accounts(1, quotas);
        accounts[0].charge(1 << 20);
        accounts[0].keep(1 << 20);
        accounts[0].report_held(1 << 20);
        assert_eq!((server.bytes(), server.connections()), (2 << 20, 1));
        accounts[0].close();
        assert_eq!((server.bytes(), server.connections()), (0, 0));
        accounts[0].charge(1 << 20);
        accounts[0].release(1 << 20);
        drop(accounts);
        assert_eq!((server.bytes(), server.connections()), (0, 0));
    }

    #[test]
    fn servers_and_clients_share_a_budget() {
        let budget = MemoryBudget::new(64 << 20);
        let quotas = Quotas { server: quota(64), peer: Quota::NONE, connection: Quota::NONE };
        let of_server =
            || Account::new(Arc::new(quotas), Arc::new(budget.server_usage()), Arc::<SharedUsage>::default());
        let (one, other, client) = (of_server(), of_server(), budget.account());
        one.report_held(20 << 20);
        client.report_held(24 << 20);
        assert_eq!(budget.held(), 44 << 20);
        assert_eq!((other.remaining(), other.exceeded_share()), (20 << 20, None));
        assert!(client.exceeds_free() && !one.exceeds_free(), "24 MiB are more than the 20 that are free");
        assert!(!client.is_over_share(), "one may go on beyond its share");
        assert!(!budget.account().exceeds_free(), "who holds nothing is never kept waiting");
        other.report_held(21 << 20);
        assert!(other.is_over_share(), "another one may not");
        drop((one, other));
        assert_eq!(budget.held(), 24 << 20);
        drop(client);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn servers_of_a_budget_know_what_the_largest_peers_of_the_others_hold() {
        let budget = MemoryBudget::new(64 << 20);
        let (one, other) = (budget.server_usage(), budget.server_usage());
        let _client = budget.account();
        let report = |largest, held, closing| PressureReport { largest, held, closing, ..Default::default() };
        let none = PressureReport::default();
        assert_eq!(SharedUsage::default().exchange_pressure(report(1, 1, 1)), None, "of a budget of its own");
        assert_eq!(one.exchange_pressure(report(20, 21, 7)), Some(none));
        assert_eq!(other.exchange_pressure(report(3, 5, 2)), Some(report(20, 21, 7)));
        let third = budget.server_usage();
        assert_eq!(third.exchange_pressure(none), Some(report(20, 26, 9)));
        one.report_pressure(none);
        assert_eq!(third.exchange_pressure(none), Some(report(3, 5, 2)), "one has stopped");
        let report = |last: u8, largest, connection| PressureReport {
            largest,
            connection,
            address: Some(IpAddr::from([10, 0, 0, last])),
            ..none
        };
        one.report_pressure(report(1, 30, 5));
        other.report_pressure(report(1, 29, 9));
        assert_eq!(third.exchange_pressure(none), Some(report(1, 30, 9)), "one address at two servers");
        other.report_pressure(report(2, 29, 9));
        assert_eq!(third.exchange_pressure(none), Some(report(1, 30, 5)));
        drop((one, other));
        assert_eq!(third.exchange_pressure(none), None);
    }

    #[test]
    fn peer_address_counts_once_for_all_servers_of_a_budget() {
        let budget = MemoryBudget::new(64 << 20);
        let quotas = Arc::new(Quotas { server: quota(64), peer: quota(32), connection: Quota::NONE });
        let servers = [budget.server_usage(), budget.server_usage()].map(Arc::new);
        let address = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let account = |server: &Arc<SharedUsage>, address| {
            Account::new(quotas.clone(), server.clone(), Arc::new(server.usage_of_peer(address)))
        };
        let [one, other] = servers.each_ref().map(|server| account(server, address(1)));
        one.report_held(30 << 20);
        assert_eq!((other.peer().bytes(), other.peer().connections()), (30 << 20, 1));
        assert_eq!(other.remaining(), 2 << 20);
        let stranger = account(&servers[1], address(2));
        assert_eq!((stranger.peer().bytes(), stranger.remaining()), (0, 32 << 20));
        let local = servers.each_ref().map(|server| account(server, None));
        local[0].report_held(1 << 20);
        assert_eq!(local[1].peer().bytes(), 0);
        drop((one, other));
        servers[0].forget_peers();
        assert_eq!(servers[1].held.peers().len(), 1, "only one address is left");
        assert_eq!(account(&servers[1], address(1)).peer().bytes(), 0);
    }

    #[test]
    fn connection_is_limited_by_its_own_quota() {
        let quotas = Quotas { server: quota(64), peer: Quota::NONE, connection: quota(1) };
        let (_, accounts) = accounts(1, quotas);
        accounts[0].charge(1 << 20);
        assert_eq!(
            (accounts[0].exceeded_share(), accounts[0].remaining()),
            (Some(QuotaLevel::Connection), 0)
        );
        assert!(!accounts[0].exceeds_quota());
        accounts[0].charge(1);
        assert!(accounts[0].exceeds_quota());
    }

    #[test]
    fn growing_reservation_counts_before_and_after_reports() {
        let quotas = Quotas { server: quota(64), peer: Quota::NONE, connection: quota(48) };
        let (server, accounts) = accounts(2, quotas);
        let (one, other) = (&accounts[0], &accounts[1]);
        let mut reserved = GrowingReservation::new(one);
        assert_eq!(reserved.grow(32 << 20), 32 << 20);
        one.report_held(1 << 20);
        assert_eq!(
            (one.bytes(), server.bytes()),
            (33 << 20, 33 << 20),
            "it is a part of what the task reports"
        );
        assert_eq!(reserved.grow(32 << 20), 15 << 20, "up to the connection's quota");
        assert_eq!(reserved.grow(1), 0);
        assert_eq!(GrowingReservation::new(other).grow(32 << 20), 16 << 20, "up to the server's budget");
        drop(reserved);
        for account in [one, other] {
            account.report_held(0);
        }
        assert_eq!(server.bytes(), 0);
    }

    #[test]
    fn memory_of_a_connection_is_released_when_it_ends() {
        let quotas = Quotas { server: quota(64), peer: quota(64), connection: quota(64) };
        let (server, accounts) = accounts(2, quotas);
        accounts[0].add_call();
        accounts[0].add_stream();
        accounts[1].add_call();
        accounts[1].remove_call();
        assert_eq!((server.calls(), server.streams(), server.connections()), (1, 1, 2));
        drop(accounts);
        assert_eq!((server.calls(), server.streams(), server.connections()), (0, 0, 0));
        assert_eq!(server.calls.holders.load(Relaxed), 0);
    }
}

//! The server's open connections: the state of each that is visible outside its task, and the watch that closes slow
//! connections.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use polyrpc_core::session::Refusals;
use polyrpc_core::{Metadata, Push, Status};
use polyrpc_wire::Protocol;
use slab::Slab;
use tokio::sync::Notify;

use super::failed_credentials::FailedCredentials;
use super::heap::Heap;
use super::hook_chain::HookChain;
use super::incidents::{Closing, IncidentCounters, Refusal};
use super::limits::Limits;
use super::tick::{TICK, ticks};
use super::turn_queue::{TakeTurns, Turn, TurnQueue};
use crate::call::{Calls, Connection, Countable, Peer, ResourceUsage, ServerInfo, Totals};
use crate::codec::bytes_decompressed_on_blocking_pool;
use crate::contention::{Mutex, MutexGuard};
use crate::memory_budget::{
    Account, FLOOR, MemoryBudget, PressureReport, Quota, QuotaExceeded, QuotaLevel, Quotas, ResponseRoom,
    SharedUsage,
};
use crate::rate_limited::EventLimiter;
use crate::transport::{Evictable, EvictionClass, Stream};

impl Countable for ConnectionRegistry {
    fn totals(&self) -> Totals {
        let entries = self.lock();
        let open = || entries.open.iter().map(|(_, entry)| entry);
        let (received, sent) = self.closed_bytes.read();
        let (received, sent) = open().fold((received, sent), |(received, sent), entry| {
            let (more, out) = entry.bytes.read();
            (received + more, sent + out)
        });
        Totals {
            connections: entries.open.len(),
            accepted: self.accepted_connections.load(Ordering::Relaxed),
            received,
            sent,
            pushes: open().map(|entry| entry.queued_pushes()).sum(),
            used: self.usage(),
            rejections: self.incidents.rejections(),
            closed_connections: self.incidents.closed_connections(),
            unknown_fields: self.incidents.unknown_fields(),
        }
    }
}

/// All open connections of a server.
#[derive(Debug)]
pub(super) struct ConnectionRegistry {
    entries: Mutex<RegistryState>,
    limits: Arc<Limits>,
    quotas: Arc<Quotas>,
    /// Usage counters that all connections share.
    pool: Arc<SharedUsage>,
    pub(super) incidents: Arc<IncidentCounters>,
    /// The time in ticks since the server started. Connections take their timestamps from it, so that no connection
    /// reads a clock for its timeouts.
    tick: AtomicU32,
    /// The calls of closed connections.
    closed_calls: CallCounters,
    /// The bytes of closed connections.
    closed_bytes: ByteCounters,
    /// Calls whose deadline had passed before they were started.
    expired: AtomicU64,
    /// The number of connections accepted so far.
    accepted_connections: AtomicU64,
    hooks: HookChain,
    /// Protocols that connections may use.
    protocols: Vec<Protocol>,
    /// Notified when the last connection closes.
    emptied: Notify,
    /// Connections that yielded and wait until others have been polled.
    turns: Arc<TurnQueue<ConnectionHandle>>,
}

#[derive(Debug, Default)]
struct RegistryState {
    open: Slab<Arc<ConnectionHandle>>,
    /// Usage of the connections of each peer address, and its failed authentications.
    peers: HashMap<PeerKey, Arc<PeerRecord>>,
    /// The server is about to shut down.
    is_retiring: bool,
    eviction: Eviction,
    /// Evicted connections that have not been told to close yet.
    evicted: VecDeque<Arc<ConnectionHandle>>,
    /// Number of consecutive ticks in which the memory budget was nearly used up.
    pressure_ticks: u32,
    /// Number of consecutive ticks in which the memory budget was used up.
    exhausted_ticks: u32,
}

impl RegistryState {
    /// Closes some of the evicted connections.
    fn close_evicted(&mut self, max: usize) {
        let max = max.min(self.evicted.len());
        self.evicted.drain(..max).for_each(|connection| connection.close(Closing::MadeRoom));
    }
}

/// State of the eviction of connections.
#[derive(Debug, Default)]
struct Eviction {
    /// Number of evicted connections that are still open. The atomics are written under the lock of the registry.
    closing: AtomicUsize,
    /// The tick, plus one, in which fewer connections could be evicted than needed: eviction is not tried again in it.
    failed_at: AtomicU32,
}

impl Eviction {
    /// Returns whether connections must be evicted, since `open` of at most `limit` are open.
    fn is_due(&self, open: usize, limit: usize, now: u32) -> bool {
        let staying = open.saturating_sub(self.closing.load(Ordering::Relaxed));
        staying >= limit - limit / 16 && self.failed_at.load(Ordering::Relaxed) != now + 1
    }

    /// Records that a connection was evicted.
    fn record_evicted(&self) {
        self.closing.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that fewer connections could be evicted than needed.
    fn record_failed(&self, now: u32) {
        self.failed_at.store(now + 1, Ordering::Relaxed);
    }

    /// Records that an evicted connection has closed.
    fn record_closed(&self) {
        let closing = self.closing.load(Ordering::Relaxed);
        self.closing.store(closing.saturating_sub(1), Ordering::Relaxed);
    }
}

/// The state of a peer address.
#[derive(Debug, Default)]
pub(super) struct PeerRecord {
    pool: Arc<SharedUsage>,
    eviction: Eviction,
    pub(super) failures: FailedCredentials,
    /// For how many ticks its memory budget has been nearly used up.
    pressure_ticks: AtomicU32,
}

impl PeerRecord {
    fn new(pool: SharedUsage) -> Self {
        Self { pool: Arc::new(pool), ..Self::default() }
    }
}

/// Key by which connections are attributed to the same peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PeerKey {
    V4(Ipv4Addr),
    /// The /64 network of a host, which owns all addresses in it.
    V6([u8; 8]),
    /// A process on this machine, over a Unix socket or in-process.
    Local,
}

impl PeerKey {
    fn from_peer(peer: &Peer) -> Self {
        match peer.address().map(|address| address.ip().to_canonical()) {
            Some(IpAddr::V4(address)) => Self::V4(address),
            Some(IpAddr::V6(address)) => match address.octets() {
                [network @ .., _, _, _, _, _, _, _, _] => Self::V6(network),
            },
            None => Self::Local,
        }
    }

    /// Returns the address, or the first one of the network.
    fn address(self) -> Option<IpAddr> {
        match self {
            Self::V4(address) => Some(address.into()),
            Self::V6([a, b, c, d, e, f, g, h]) => {
                Some(IpAddr::from([a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0]))
            }
            Self::Local => None,
        }
    }
}

/// One open connection, seen from outside its task.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    id: u64,
    peer: Peer,
    /// Its usage of the server's resources.
    pub(super) account: Arc<Account>,
    pub(super) incidents: Arc<IncidentCounters>,
    pub(super) record: Arc<PeerRecord>,
    /// Its peer has shown a valid credential, or needs none.
    proven: AtomicBool,
    /// The number of delayed rejections, since its peer guesses credentials.
    pub(super) delayed_rejections: AtomicUsize,
    /// The tick at which it is woken to check its clocks.
    wake_tick: AtomicU32,
    /// The tick since which nothing is in flight; `u32::MAX` while something is.
    idle_since: AtomicU32,
    /// The tick since which nothing was received or sent.
    inactive_since: AtomicU32,
    /// The tick at which it was opened.
    opened_at: u32,
    /// Its protocol, once detected.
    protocol: AtomicU8,
    calls: CallCounters,
    bytes: ByteCounters,
    /// Its current phase.
    phase: AtomicU8,
    /// The tick since which it is in this phase.
    since: AtomicU32,
    /// The command that it has received.
    command: AtomicU8,
    /// It is closed to make room for others, or will be.
    evicted: AtomicBool,
    waker: AtomicWaker,
    /// Others have been polled since it yielded.
    has_turn: AtomicBool,
    turns: Arc<TurnQueue<Self>>,
    turn: AtomicU8,
    /// It is woken at each tick, since its session runs a timeout.
    wants_ticks: AtomicBool,
    has_pushes: AtomicBool,
    pushes: Mutex<PushQueue>,
}

/// Messages that wait to be pushed.
#[derive(Debug, Default)]
struct PushQueue {
    queue: VecDeque<ServerPush>,
    bytes: usize,
}

/// A message that no call requested.
#[derive(Debug)]
pub(super) enum ServerPush {
    Push(Push),
    /// A message of a topic.
    Published(Bytes, Bytes),
}

impl ServerPush {
    /// Returns the number of bytes that it holds.
    fn len(&self) -> usize {
        match self {
            Self::Push(push) => push.body.len() + push.service.len() + push.method.len(),
            Self::Published(topic, data) => topic.len() + data.len(),
        }
    }

    /// Returns the view of it that hooks receive.
    pub(super) fn as_push(&self) -> Cow<'_, Push> {
        match self {
            Self::Push(push) => Cow::Borrowed(push),
            Self::Published(topic, data) => Cow::Owned(Push {
                service: String::from_utf8_lossy(topic).into_owned(),
                method: String::new(),
                metadata: Metadata::new(),
                body: data.clone(),
            }),
        }
    }
}

/// The phase of a connection: what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionPhase {
    /// Waits for the peer's first byte.
    Silent,
    /// Waits for the peer's next message, or for the peer to read.
    Idle,
    /// Waits for the rest of a message.
    MidMessage,
    /// Waits for handlers.
    Busy,
    /// Waits for the peer to close.
    Closing,
}

/// A command to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(super) enum ConnectionCommand {
    /// Keep serving.
    Serve,
    /// Keep serving, and announce in responses that the connection will be closed (HTTP/1.1).
    AnnounceClose,
    /// Finish calls in flight, accept no new ones, close.
    Drain,
    /// Close now.
    Close,
}

impl ConnectionRegistry {
    pub(super) fn new(
        hooks: HookChain,
        limits: Arc<Limits>,
        incidents: Arc<IncidentCounters>,
        protocols: Vec<Protocol>,
        budget: Option<&MemoryBudget>,
    ) -> Self {
        Self {
            entries: Mutex::default(),
            quotas: Arc::new(quotas(&limits)),
            limits,
            pool: Arc::new(budget.map(MemoryBudget::server_usage).unwrap_or_default()),
            incidents,
            tick: AtomicU32::new(0),
            closed_calls: CallCounters::default(),
            closed_bytes: ByteCounters::default(),
            expired: AtomicU64::new(0),
            accepted_connections: AtomicU64::new(0),
            hooks,
            protocols,
            emptied: Notify::new(),
            turns: Arc::default(),
        }
    }

    /// Returns the usage counters that all connections share.
    #[cfg(test)]
    pub(super) fn pool(&self) -> &Arc<SharedUsage> {
        &self.pool
    }

    /// Registers a connection, unless there are too many already or a hook rejects it.
    pub(super) fn try_register(self: &Arc<Self>, peer: Peer) -> Option<ConnectionGuard> {
        let mut registration = self.register(peer)?;
        if !self.hooks.is_empty() {
            let (accepted, result) =
                self.hooks.on_accept(&registration.connection.facts(self.tick(), &self.protocols));
            registration.accepted = accepted;
            result.ok()?;
        }
        Some(registration)
    }

    fn register(self: &Arc<Self>, peer: Peer) -> Option<ConnectionGuard> {
        let mut entries = self.lock();
        let limit = self.limits.connections;
        if entries.eviction.is_due(entries.open.len(), limit, self.tick()) {
            self.evict_idle(&mut entries);
        }
        entries.close_evicted(EVICTED_PER_CONNECTION);
        if entries.open.len() >= limit {
            self.incidents.record_refusal(Refusal::Connections, &peer);
            return None;
        }
        let key = PeerKey::from_peer(&peer);
        if entries.peers.len() > entries.open.len() + MAX_REMEMBERED_PEERS {
            // A flood from a network with millions of addresses, within the seconds until they are forgotten anyway.
            entries.peers.retain(|_, record| Arc::strong_count(record) > 1);
            self.pool.forget_peers();
        }
        let record = || Arc::new(PeerRecord::new(self.pool.usage_of_peer(key.address())));
        let record = entries.peers.entry(key).or_insert_with(record).clone();
        if key != PeerKey::Local && !self.has_room_for_peer(&mut entries, &record) {
            self.incidents.record_refusal(Refusal::PeerConnections, &peer);
            return None;
        }
        let quotas = match key {
            PeerKey::Local => Quotas { peer: Quota::NONE, ..*self.quotas }.into(),
            PeerKey::V4(_) | PeerKey::V6(_) => self.quotas.clone(),
        };
        let id = self.accepted_connections.fetch_add(1, Ordering::Relaxed) + 1;
        let account = Arc::new(Account::new(quotas, self.pool.clone(), record.pool.clone()));
        let entry = Arc::new(ConnectionHandle {
            id,
            peer,
            account,
            incidents: self.incidents.clone(),
            record,
            proven: AtomicBool::new(true),
            delayed_rejections: AtomicUsize::new(0),
            wake_tick: AtomicU32::new(u32::MAX),
            idle_since: AtomicU32::new(u32::MAX),
            inactive_since: AtomicU32::new(self.tick()),
            opened_at: self.tick(),
            protocol: AtomicU8::new(UNKNOWN_PROTOCOL),
            calls: CallCounters::default(),
            bytes: ByteCounters::default(),
            phase: AtomicU8::new(ConnectionPhase::Silent as u8),
            since: AtomicU32::new(self.tick()),
            command: AtomicU8::new(if entries.is_retiring {
                ConnectionCommand::AnnounceClose
            } else {
                ConnectionCommand::Serve
            } as u8),
            evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            has_turn: AtomicBool::new(false),
            turns: self.turns.clone(),
            turn: AtomicU8::new(Turn::None as u8),
            wants_ticks: AtomicBool::new(false),
            has_pushes: AtomicBool::new(false),
            pushes: Mutex::default(),
        });
        let key = entries.open.insert(entry.clone());
        Some(ConnectionGuard { connection: entry, open: self.clone(), key, accepted: 0 })
    }

    /// Reports that accepting a connection failed since the process has no descriptor or no memory for it.
    #[cold]
    pub(super) fn record_accept_failure(&self, error: &io::Error) {
        if let Some(suppressed) = ACCEPT_ERRORS.allow() {
            tracing::error!(%error, suppressed, "cannot accept connections");
        }
        let mut entries = self.lock();
        if entries.eviction.closing.load(Ordering::Relaxed) == 0 {
            self.evict_idle(&mut entries);
        }
        entries.close_evicted(WAKE_BATCH);
    }

    /// Sends every connection a command.
    pub(super) fn send_command_to_all(&self, command: ConnectionCommand) {
        self.lock().open.iter().for_each(|(_, entry)| entry.send_command(command));
    }

    /// Sends one connection a command. Returns whether it is open.
    pub(super) fn send_command_to(&self, id: u64, command: ConnectionCommand) -> bool {
        self.find(id).inspect(|entry| entry.send_command(command)).is_some()
    }

    /// Records that the peer of one connection has shown a valid credential.
    pub(super) fn prove(&self, id: u64) {
        if let Some(entry) = self.find(id) {
            entry.prove();
        }
    }

    fn find(&self, id: u64) -> Option<Arc<ConnectionHandle>> {
        self.lock().open.iter().map(|(_, entry)| entry).find(|entry| entry.id == id).cloned()
    }

    /// Notifies every connection, including future ones, that the server is about to shut down.
    pub(super) fn retire(&self) {
        let mut entries = self.lock();
        entries.is_retiring = true;
        entries.open.iter().for_each(|(_, entry)| entry.send_command(ConnectionCommand::AnnounceClose));
    }

    /// Returns the number of open connections.
    pub(super) fn len(&self) -> usize {
        self.lock().open.len()
    }

    /// Returns the counters of all connections, and a list of them.
    pub(super) fn facts(&self) -> ServerInfo {
        let (now, entries) = (self.tick(), self.lock());
        let connections: Vec<_> =
            entries.open.iter().map(|(_, entry)| entry.facts(now, &self.protocols)).collect();
        ServerInfo { connections, ..self.sum_counters(&entries) }
    }

    /// Returns the counters of all connections.
    pub(super) fn summary(&self) -> ServerInfo {
        self.sum_counters(&self.lock())
    }

    fn sum_counters(&self, entries: &RegistryState) -> ServerInfo {
        let mut calls = self.closed_calls.read();
        entries.open.iter().for_each(|(_, entry)| calls.add(entry.calls.read()));
        let connections = Vec::new();
        let ResourceUsage { memory, calls: pending_calls, streams: open_streams } = self.usage();
        let (rejections, closed_connections) =
            (self.incidents.rejections(), self.incidents.closed_connections());
        let unknown_fields = self.incidents.unknown_fields();
        let expired = self.expired.load(Ordering::Relaxed);
        ServerInfo {
            calls,
            expired,
            connections,
            held_bytes: memory,
            pending_calls,
            open_streams,
            rejections,
            closed_connections,
            unknown_fields,
        }
    }

    fn usage(&self) -> ResourceUsage {
        ResourceUsage { memory: self.pool.bytes(), calls: self.pool.calls(), streams: self.pool.streams() }
    }

    /// Returns the number of calls started and of connections opened since the server started.
    pub(super) fn totals(&self) -> (u64, u64) {
        let entries = self.lock();
        let open: u64 = entries.open.iter().map(|(_, entry)| entry.calls.read().started).sum();
        (self.closed_calls.read().started + open, self.accepted_connections.load(Ordering::Relaxed))
    }

    /// Waits until no connection is open.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Closes connections that are too slow, wakes those whose clocks are due, and enforces the memory budget. Runs for
    /// as long as it is polled.
    pub(super) async fn watch(&self) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let phase_timeouts = PhaseTimeouts::new(&self.limits);
        let (mut heap, mut trims) = (Heap::default(), self.pool.trims());
        let _reports = WithdrawReports(self);
        loop {
            interval.tick().await;
            let now = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
            self.wake_due(now, &phase_timeouts).await;
            let mut entries = self.lock();
            self.close_largest(&mut entries);
            let held = self.pool.bytes() + entries.open.len() * CONNECTION_OVERHEAD_BYTES;
            let (made, released) = (bytes_decompressed_on_blocking_pool(), self.pool.released());
            if trims != self.pool.trims() {
                trims = self.pool.trims();
                heap.on_trimmed_elsewhere(held, made, released, now);
            } else if heap.should_trim(held, made, released, now) {
                trims = self.pool.record_trim();
                tokio::task::spawn_blocking(polyrpc_heap::trim);
            }
            if now.is_multiple_of(PEER_CLEANUP_TICKS) {
                entries
                    .peers
                    .retain(|_, record| Arc::strong_count(record) > 1 || record.failures.are_recent(now));
                self.pool.forget_peers();
            }
        }
    }

    /// Closes or wakes the connections that are due, a few at a time.
    ///
    /// Thousands of connections that were opened together are due in the same tick, and closing one takes tens of
    /// microseconds: woken at once, they would delay every other connection by more than 100 ms.
    async fn wake_due(&self, now: u32, phase_timeouts: &PhaseTimeouts) {
        let (evicted, due): (_, Vec<_>) = {
            let mut entries = self.lock();
            let evicted = std::mem::take(&mut entries.evicted);
            let open = entries.open.iter().map(|(_, entry)| entry);
            (evicted, open.filter(|entry| entry.is_due(now, phase_timeouts)).cloned().collect())
        };
        for (index, connection) in evicted.iter().enumerate() {
            yield_between_groups(index).await;
            connection.close(Closing::MadeRoom);
        }
        for (index, connection) in due.iter().enumerate() {
            yield_between_groups(index).await;
            connection.check_timeouts(now, phase_timeouts);
        }
    }

    /// Closes the largest connection of each address whose budget has been nearly used up for a while: otherwise its
    /// connections might wait for each other. If the address is connected to several servers that share a budget, the
    /// one with the largest connection closes it.
    fn close_largest_per_peer(&self, entries: &RegistryState) {
        let high = self.limits.memory_per_peer - self.limits.memory_per_peer / 8;
        for (key, record) in &entries.peers {
            let before = record.pressure_ticks.load(Ordering::Relaxed);
            if *key == PeerKey::Local || record.pool.bytes() <= high {
                if before > 0 {
                    record.pressure_ticks.store(0, Ordering::Relaxed);
                    record.pool.report_pressure(PressureReport::default());
                }
                continue;
            }
            let own = |entry: &&Arc<ConnectionHandle>| Arc::ptr_eq(&entry.record, record);
            let holders = entries.open.iter().map(|(_, entry)| entry).filter(own);
            let largest = holders.map(|entry| (entry.account.bytes(), entry)).max_by_key(|(bytes, _)| *bytes);
            let connection = largest.map_or(0, |(bytes, _)| bytes);
            let others =
                record.pool.exchange_pressure(PressureReport { connection, ..PressureReport::default() });
            let is_due = before + 1 >= MAX_PRESSURE_TICKS;
            record.pressure_ticks.store(if is_due { 1 } else { before + 1 }, Ordering::Relaxed);
            if let Some((bytes, largest)) = largest
                && is_due
                && bytes > 0
                && bytes >= others.map_or(0, |others| others.connection)
            {
                largest.close(Closing::LargestHolder);
            }
        }
    }

    /// Closes the largest connections if the memory budget is used up, or has been nearly used up for a while. Of several
    /// servers that share the budget, the ones at which the address that holds most is connected close them.
    fn close_largest(&self, entries: &mut RegistryState) {
        self.close_largest_per_peer(entries);
        if self.pool.bytes() <= self.limits.memory / 2 {
            self.pool.report_pressure(PressureReport::default());
            (entries.pressure_ticks, entries.exhausted_ticks) = (0, 0);
            return;
        }
        let (closing, mut holders): (Vec<_>, Vec<_>) = entries
            .open
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| entry.account.bytes() > 0)
            .partition(|entry| entry.command() == ConnectionCommand::Close);
        let bytes_of = |entries: &[&Arc<ConnectionHandle>]| -> usize {
            entries.iter().map(|entry| entry.account.bytes()).sum()
        };
        let largest = holders.iter().max_by_key(|entry| (entry.held_by_peer(), entry.account.bytes()));
        let mut report = PressureReport {
            largest: largest.map_or(0, |entry| entry.held_by_peer()),
            address: largest.and_then(|entry| PeerKey::from_peer(&entry.peer).address()),
            connection: largest.map_or(0, |entry| entry.account.bytes()),
            held: bytes_of(&holders),
            // Their memory counts as released.
            closing: bytes_of(&closing),
        };
        let elsewhere = self.pool.exchange_pressure(report);
        let others = elsewhere.unwrap_or_default();
        let used = self.pool.bytes().saturating_sub(report.closing + others.closing);
        let high = self.limits.memory - self.limits.memory / 8;
        entries.pressure_ticks = if used > high { entries.pressure_ticks + 1 } else { 0 };
        entries.exhausted_ticks = if used > self.limits.memory { entries.exhausted_ticks + 1 } else { 0 };
        // What other servers report may be a tick old: peers of theirs may have taken most of it since.
        let patience = if elsewhere.is_some() { 2 } else { 1 };
        let mut excess = match () {
            () if entries.exhausted_ticks >= patience => used - high,
            // One at a time: the others may make progress once it is closed.
            () if entries.pressure_ticks >= MAX_PRESSURE_TICKS => {
                entries.pressure_ticks = 0;
                1
            }
            () => return,
        };
        // The largest connections first, grouped by the address that holds most.
        // Connections change these numbers meanwhile, which an order must not depend on.
        holders.sort_by_cached_key(|entry| std::cmp::Reverse((entry.held_by_peer(), entry.account.bytes())));
        // Clients with the same budget hold most of it: to close those that hold little would release nothing.
        let min_held = if report.held + others.held < used / 2 { FLOOR + 1 } else { 0 };
        for entry in holders {
            if excess == 0 || entry.held_by_peer() < min_held || !entry.holds_more_than(&others) {
                break;
            }
            let bytes = entry.account.bytes();
            excess = excess.saturating_sub(bytes);
            report.closing += bytes;
            entry.close(Closing::LargestHolder);
        }
        // The next server of the same address need not close as much again.
        self.pool.report_pressure(report);
    }

    /// Withdraws this server's pressure reports: other servers of the budget would wait for it to close connections.
    fn withdraw_reports(&self) {
        let entries = self.lock();
        let records = entries.peers.values().map(|record| &record.pool);
        records.chain([&self.pool]).for_each(|pool| pool.report_pressure(PressureReport::default()));
    }

    /// Evicts connections of a peer address that is close to its limit. Returns whether it may open one more.
    fn has_room_for_peer(&self, entries: &mut RegistryState, record: &Arc<PeerRecord>) -> bool {
        let (limit, now) = (self.limits.connections_per_peer, self.tick());
        if record.eviction.is_due(record.pool.connections(), limit, now) {
            let target = (limit / 16).max(1);
            if self.evict(entries, target, |entry| Arc::ptr_eq(&entry.record, record)) < target {
                record.eviction.record_failed(now);
            }
        }
        record.pool.connections() < limit
    }

    /// Evicts connections of any address, to make room for others.
    fn evict_idle(&self, entries: &mut RegistryState) {
        let target = (self.limits.connections / 16).max(1);
        if self.evict(entries, target, |_| true) < target {
            entries.eviction.record_failed(self.tick());
        }
    }

    /// Evicts up to `room` connections of the most dispensable class among those for which `is_candidate` returns
    /// `true`. Returns the number of evicted connections.
    ///
    /// They are closed gradually: closing one takes tens of microseconds, and hundreds at once would delay every other
    /// connection. Until then they serve calls as before.
    fn evict(
        &self,
        entries: &mut RegistryState,
        room: usize,
        is_candidate: impl Fn(&ConnectionHandle) -> bool,
    ) -> usize {
        let open = entries.open.iter().map(|(_, entry)| entry);
        let open = open.filter(|entry| {
            entry.command() < ConnectionCommand::Close && !entry.is_evicted() && is_candidate(entry)
        });
        let (mut lowest, mut chosen) = (EvictionClass::Stuck, Vec::new());
        for entry in open {
            let (class, since) = self.eviction(entry);
            if class < lowest {
                chosen.clear();
                lowest = class;
            }
            if class == lowest {
                chosen.push((since, entry));
            }
        }
        match lowest {
            EvictionClass::Unproven => chosen.sort_by_key(|(_, entry)| entry.id),
            EvictionClass::Late => chosen.sort_by_key(|(since, _)| *since),
            // Of the address with most connections first, and within an address those that have waited longest.
            _ => chosen.sort_by_cached_key(|(since, entry)| {
                (std::cmp::Reverse(entry.account.peer().connections()), *since)
            }),
        }
        chosen.truncate(room);
        for (index, (_, entry)) in chosen.iter().enumerate() {
            entry.evicted.store(true, Ordering::Relaxed);
            entries.eviction.record_evicted();
            entry.record.eviction.record_evicted();
            match index < EVICTED_PER_CONNECTION {
                // Others may wait in the queue, but the new connection needs room among these.
                true => entry.close(Closing::MadeRoom),
                false => entries.evicted.push_back((*entry).clone()),
            }
        }
        chosen.len()
    }

    /// Returns what a connection does, and the tick since which it does.
    fn eviction(&self, entry: &ConnectionHandle) -> (EvictionClass, u32) {
        let now = self.tick();
        let (idle, still, phase) = (entry.idle_since(), entry.inactive_since(), entry.phase_since());
        let for_ticks = |since: u32, ticks| now.saturating_sub(since) >= ticks;
        match entry.phase() {
            ConnectionPhase::Silent => (EvictionClass::Unproven, entry.opened_at),
            // However active it is.
            _ if !entry.proven.load(Ordering::Relaxed) => (EvictionClass::Unproven, entry.opened_at),
            _ if for_ticks(idle, IDLE_EVICTION_TICKS) => (EvictionClass::Idle, idle),
            // To send a byte now and then must not keep others out.
            ConnectionPhase::MidMessage
                if !entry.has_calls() && for_ticks(phase, PhaseTimeouts::new(&self.limits).header / 2) =>
            {
                (EvictionClass::Late, phase)
            }
            // Well-behaved peers may wait in silence too, so these are the last resort; connections with calls in
            // flight come last.
            ConnectionPhase::Busy if !entry.has_calls() && for_ticks(still, IDLE_EVICTION_TICKS) => {
                (EvictionClass::Still, still)
            }
            ConnectionPhase::Busy if for_ticks(still, STUCK_EVICTION_TICKS) => (EvictionClass::Stuck, still),
            _ if entry.has_calls() => (EvictionClass::Calling, still),
            _ => (EvictionClass::Active, still),
        }
    }

    pub(super) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose transport has a limit of its own on their number.
#[derive(Debug)]
struct EvictableConnection {
    connection: Arc<ConnectionHandle>,
    open: Arc<ConnectionRegistry>,
}

impl Evictable for EvictableConnection {
    fn eviction(&self) -> (EvictionClass, u32) {
        self.open.eviction(&self.connection)
    }

    fn evict(&self) {
        self.connection.close(Closing::MadeRoom);
    }
}

/// Withdraws a server's reports at the end of its watch.
struct WithdrawReports<'a>(&'a ConnectionRegistry);

impl Drop for WithdrawReports<'_> {
    fn drop(&mut self) {
        self.0.withdraw_reports();
    }
}

static ACCEPT_ERRORS: EventLimiter = EventLimiter::new(10, Duration::from_secs(10));

/// Number of peer addresses without connections that a server remembers, for their failed credentials. If there are more,
/// it forgets them all.
pub const MAX_REMEMBERED_PEERS: usize = 65_536;

/// Approximate memory of a connection that holds nothing, in bytes.
const CONNECTION_OVERHEAD_BYTES: usize = 16 << 10;
/// Number of connections that are woken before others are polled: together they take about a millisecond.
const WAKE_BATCH: usize = 32;
/// Yields before each group of connections but the first, so that the runtime polls its sockets.
async fn yield_between_groups(index: usize) {
    if index > 0 && index.is_multiple_of(WAKE_BATCH) {
        tokio::task::yield_now().await;
    }
}

/// Number of evicted connections that are closed for each new one: more than one, so that there is room again before the
/// limit is reached.
const EVICTED_PER_CONNECTION: usize = 2;

/// How long a closing connection waits for the peer to close, in ticks: 2 s.
const CLOSING_TIMEOUT_TICKS: u32 = 8;

/// Number of ticks that a connection must be idle before it may be evicted: 5 s.
const IDLE_EVICTION_TICKS: u32 = 20;
/// Number of ticks without traffic after which a connection with calls in flight may be evicted: 30 s.
const STUCK_EVICTION_TICKS: u32 = 120;
/// Number of ticks for which the memory budget may be nearly used up before the largest connection is closed: 2 s.
const MAX_PRESSURE_TICKS: u32 = 8;
/// Interval, in ticks, in which records of peers without connections are removed: 4 s.
const PEER_CLEANUP_TICKS: u32 = 16;

/// The timeout of each phase, in ticks.
struct PhaseTimeouts {
    silent: u32,
    header: u32,
    idle: u32,
}

impl PhaseTimeouts {
    fn new(limits: &Limits) -> Self {
        Self {
            silent: ticks(limits.first_byte_timeout),
            header: ticks(limits.header_timeout),
            idle: limits.idle_timeout.map_or(u32::MAX, ticks),
        }
    }
}

fn quotas(limits: &Limits) -> Quotas {
    Quotas {
        server: Quota { bytes: limits.memory, calls: limits.in_flight, streams: limits.streams },
        peer: Quota {
            bytes: limits.memory_per_peer,
            calls: limits.in_flight_per_peer,
            streams: limits.streams_per_peer,
        },
        connection: Quota {
            bytes: limits.memory_per_connection,
            calls: limits.in_flight_per_connection,
            streams: limits.streams_per_connection,
        },
    }
}

/// [`Calls`] with one writing task and any number of readers.
#[derive(Debug, Default)]
struct CallCounters {
    started: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl CallCounters {
    fn write(&self, calls: Calls) {
        self.started.store(calls.started, Ordering::Relaxed);
        self.succeeded.store(calls.succeeded, Ordering::Relaxed);
        self.failed.store(calls.failed, Ordering::Relaxed);
    }

    fn read(&self) -> Calls {
        Calls {
            started: self.started.load(Ordering::Relaxed),
            succeeded: self.succeeded.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}

/// Bytes received and sent, with one writing task and any number of readers.
#[derive(Debug, Default)]
struct ByteCounters {
    received: AtomicU64,
    sent: AtomicU64,
}

impl ByteCounters {
    #[inline]
    fn write(&self, (received, sent): (u64, u64)) {
        self.received.store(received, Ordering::Relaxed);
        self.sent.store(sent, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }
}

/// Marker for an unknown protocol; no protocol has this index.
const UNKNOWN_PROTOCOL: u8 = u8::MAX;

impl ConnectionHandle {
    /// Records the counters of its calls.
    pub(super) fn record_calls(&self, calls: Calls) {
        self.calls.write(calls);
    }

    /// Records how many bytes were received and sent in total.
    #[inline]
    pub(super) fn record_bytes(&self, received: u64, sent: u64) {
        self.bytes.write((received, sent));
    }

    /// Returns the bytes of previous sessions, including those read to detect the protocol.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.bytes.read()
    }

    fn queued_pushes(&self) -> usize {
        match self.has_pushes() {
            true => self.pushes.lock().unwrap_or_else(PoisonError::into_inner).queue.len(),
            false => 0,
        }
    }

    /// Returns the calls of previous sessions.
    pub(super) fn calls(&self) -> Calls {
        self.calls.read()
    }

    /// Marks the connection as unauthenticated: it is evicted before others until it is [proven](Self::prove).
    pub(super) fn expect_credential(&self) {
        self.proven.store(false, Ordering::Relaxed);
    }

    /// Records that its peer has shown a valid credential.
    #[inline]
    pub(super) fn prove(&self) {
        if !self.proven.load(Ordering::Relaxed) {
            self.proven.store(true, Ordering::Relaxed);
        }
    }

    /// Returns its id.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the tick at which it was opened.
    pub(super) fn opened_at(&self) -> u32 {
        self.opened_at
    }

    fn facts(&self, now: u32, protocols: &[Protocol]) -> Connection {
        let index = self.protocol.load(Ordering::Relaxed);
        let (received, sent) = self.bytes.read();
        let idle_since = self.idle_since();
        Connection {
            id: self.id,
            peer: self.peer.clone(),
            protocol: protocols.get(usize::from(index)).copied(),
            age: TICK * now.saturating_sub(self.opened_at),
            calls: self.calls.read(),
            received,
            sent,
            buffered_bytes: self.account.bytes(),
            idle: (idle_since != u32::MAX).then(|| TICK * now.saturating_sub(idle_since)),
        }
    }

    /// Sets the waker to wake when a command or a message to push arrives.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Admits one more pending call, if the limits allow it.
    ///
    /// # Errors
    ///
    /// The rejection to send.
    #[inline]
    pub(super) fn admit_call(&self) -> Result<(), Status> {
        self.account.admits_call().map_err(|full| self.refuse_call(full))
    }

    /// Admits one more open stream, if the limits allow it.
    ///
    /// # Errors
    ///
    /// The rejection to send.
    pub(super) fn admit_stream(&self) -> Result<(), Status> {
        self.account.admits_stream().map_err(|full| self.refuse_stream(full))
    }

    /// Uses brpc's wording (`src/brpc/policy/baidu_rpc_protocol.cpp`), which its clients know.
    #[cold]
    fn refuse_call(&self, QuotaExceeded { level, quota }: QuotaExceeded) -> Status {
        let (cause, whose) = match level {
            QuotaLevel::Server => (Refusal::Calls, ""),
            QuotaLevel::Peer => (Refusal::PeerCalls, " for one peer"),
            QuotaLevel::Connection => (Refusal::ConnectionCalls, ""),
        };
        self.incidents.record_refusal(cause, &self.peer);
        Status::resource_exhausted(format!("Reached server's max_concurrency={quota}{whose}"))
    }

    #[cold]
    fn refuse_stream(&self, QuotaExceeded { level, quota }: QuotaExceeded) -> Status {
        let (cause, whose) = match level {
            QuotaLevel::Server => (Refusal::Streams, "the server"),
            QuotaLevel::Peer => (Refusal::PeerStreams, "one peer"),
            QuotaLevel::Connection => (Refusal::ConnectionStreams, "one connection"),
        };
        self.incidents.record_refusal(cause, &self.peer);
        Status::resource_exhausted(format!("too many open streams: the limit is {quota} for {whose}"))
    }

    /// Counts a rejection.
    #[cold]
    pub(super) fn record_refusal(&self, cause: Refusal) {
        self.incidents.record_refusal(cause, &self.peer);
    }

    /// Counts the rejections of its session.
    #[cold]
    pub(super) fn record_session_refusals(&self, refusals: Refusals) {
        self.incidents.record_session_refusals(refusals, &self.peer);
    }

    /// Counts a failed TLS handshake.
    #[cold]
    pub(super) fn record_handshake_failure(&self, error: &io::Error) {
        self.incidents.record_handshake_failure(error, &self.peer);
    }

    /// Counts a connection whose first bytes match no protocol allowed here.
    #[cold]
    pub(super) fn record_unknown_protocol(&self, start: &[u8]) {
        self.incidents.record_unknown_protocol(start, &self.peer);
    }

    /// Counts a call to an unknown service or method.
    #[cold]
    pub(super) fn record_unknown_method(&self, service: &str, method: &str) {
        self.incidents.record_unknown_method(service, method, &self.peer);
    }

    /// Tells it to close at once, and counts the reason.
    #[cold]
    pub(super) fn close(&self, cause: Closing) {
        if self.command() != ConnectionCommand::Close {
            self.record_closing(cause);
            self.send_command(ConnectionCommand::Close);
        }
    }

    /// Counts the reason for which it is closed.
    #[cold]
    pub(super) fn record_closing(&self, cause: Closing) {
        self.incidents.record_closing(cause, &self.peer);
    }

    /// Records since when nothing is in flight; `None` while something is.
    pub(super) fn set_idle_since(&self, since: Option<u32>) {
        self.idle_since.store(since.unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Records when something was last received or sent.
    pub(super) fn record_activity(&self, at: u32) {
        self.inactive_since.store(at, Ordering::Relaxed);
    }

    /// Returns the bytes that its peer holds: all connections of its address together. Processes on this machine are
    /// independent peers without an address.
    fn held_by_peer(&self) -> usize {
        match PeerKey::from_peer(&self.peer) {
            PeerKey::Local => self.account.bytes(),
            PeerKey::V4(_) | PeerKey::V6(_) => self.account.peer().bytes(),
        }
    }

    /// Returns whether its peer holds at least as much as the largest one at other servers; if it is the same peer,
    /// whether this is its largest connection.
    fn holds_more_than(&self, others: &PressureReport) -> bool {
        let address = PeerKey::from_peer(&self.peer).address();
        match address.is_some() && address == others.address {
            true => self.account.bytes() >= others.connection,
            false => self.held_by_peer() >= others.largest,
        }
    }

    fn phase_since(&self) -> u32 {
        self.since.load(Ordering::Relaxed)
    }

    fn inactive_since(&self) -> u32 {
        self.inactive_since.load(Ordering::Relaxed)
    }

    /// Returns whether its handlers are running or wait for its messages.
    fn has_calls(&self) -> bool {
        self.account.calls() + self.account.streams() > 0
    }

    fn idle_since(&self) -> u32 {
        self.idle_since.load(Ordering::Relaxed)
    }

    /// Schedules its wake-up at this tick, and not before, to check its clocks.
    pub(super) fn wake_at(&self, tick: u32) {
        self.wake_tick.store(tick, Ordering::Relaxed);
    }

    /// Returns whether [`check_timeouts`](Self::check_timeouts) would close or wake the connection.
    fn is_due(&self, now: u32, phase_timeouts: &PhaseTimeouts) -> bool {
        self.needs_waking(now) || self.timeout_cause(now, phase_timeouts).is_some()
    }

    /// Closes the connection if its phase has timed out, and wakes it if its own timers are due.
    fn check_timeouts(&self, now: u32, phase_timeouts: &PhaseTimeouts) {
        if let Some(cause) = self.timeout_cause(now, phase_timeouts) {
            match self.phase() {
                // Its peer has already been notified.
                ConnectionPhase::Closing => self.send_command(ConnectionCommand::Close),
                _ => self.close(cause),
            }
        }
        if self.needs_waking(now) {
            self.waker.wake();
        }
    }

    /// Whether one of its timeouts, or its session, is due.
    fn needs_waking(&self, now: u32) -> bool {
        now >= self.wake_tick.load(Ordering::Relaxed) || self.wants_ticks.load(Ordering::Relaxed)
    }

    /// Returns the cause for closing it if it has been in its phase for too long.
    fn timeout_cause(&self, now: u32, phase_timeouts: &PhaseTimeouts) -> Option<Closing> {
        let (allowed, cause) = match self.phase() {
            ConnectionPhase::Silent => (phase_timeouts.silent, Closing::FirstByte),
            ConnectionPhase::MidMessage => (phase_timeouts.header, Closing::Head),
            ConnectionPhase::Closing => (CLOSING_TIMEOUT_TICKS, Closing::Write),
            ConnectionPhase::Idle => (phase_timeouts.idle, Closing::Idle),
            // Its own clocks cover this phase.
            ConnectionPhase::Busy => return None,
        };
        let since = self.since.load(Ordering::Relaxed);
        (now.saturating_sub(since) > allowed).then_some(cause)
    }

    pub(super) fn send_command(&self, command: ConnectionCommand) {
        if self.command.fetch_max(command as u8, Ordering::AcqRel) < command as u8 {
            self.waker.wake();
        }
    }

    fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the command that the connection has received.
    pub(super) fn command(&self) -> ConnectionCommand {
        match self.command.load(Ordering::Acquire) {
            command if command == ConnectionCommand::Close as u8 => ConnectionCommand::Close,
            command if command == ConnectionCommand::Drain as u8 => ConnectionCommand::Drain,
            command if command == ConnectionCommand::AnnounceClose as u8 => ConnectionCommand::AnnounceClose,
            _ => ConnectionCommand::Serve,
        }
    }

    /// Returns whether the connection was woken for its turn.
    pub(super) fn take_turn(&self) -> bool {
        self.has_turn.swap(false, Ordering::AcqRel)
    }

    /// Returns the queue in which the server's connections wait for their turns.
    pub(super) fn turns(&self) -> &TurnQueue<Self> {
        &self.turns
    }

    /// Sets whether the connection is woken at each tick.
    pub(super) fn set_wants_ticks(&self, wants: bool) {
        self.wants_ticks.store(wants, Ordering::Relaxed);
    }

    /// Records that the connection is in this phase since `tick`.
    pub(super) fn set_phase(&self, phase: ConnectionPhase, tick: u32) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.since.store(tick, Ordering::Relaxed);
    }

    pub(super) fn phase(&self) -> ConnectionPhase {
        match self.phase.load(Ordering::Relaxed) {
            phase if phase == ConnectionPhase::MidMessage as u8 => ConnectionPhase::MidMessage,
            phase if phase == ConnectionPhase::Busy as u8 => ConnectionPhase::Busy,
            phase if phase == ConnectionPhase::Closing as u8 => ConnectionPhase::Closing,
            phase if phase == ConnectionPhase::Silent as u8 => ConnectionPhase::Silent,
            _ => ConnectionPhase::Idle,
        }
    }

    /// Queues a message that no call requested.
    pub(super) fn push(&self, push: ServerPush) -> Result<(), Status> {
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        let length = push.len();
        let crowded = pushes.queue.len() >= MAX_QUEUED_PUSHES
            || pushes.bytes.saturating_add(length) > MAX_QUEUED_PUSH_BYTES;
        if crowded && !pushes.queue.is_empty() {
            drop(pushes);
            self.record_refusal(Refusal::Pushes);
            return Err(Status::resource_exhausted("the client does not read pushed messages"));
        }
        pushes.queue.push_back(push);
        pushes.bytes += length;
        self.account.keep(length);
        self.has_pushes.store(true, Ordering::Release);
        drop(pushes);
        self.waker.wake();
        Ok(())
    }

    /// Returns whether messages wait to be pushed.
    pub(super) fn has_pushes(&self) -> bool {
        self.has_pushes.load(Ordering::Acquire)
    }

    /// Takes the messages to push.
    pub(super) fn take_pushes(&self) -> VecDeque<ServerPush> {
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_pushes.store(false, Ordering::Release);
        let PushQueue { queue, bytes } = std::mem::take(&mut *pushes);
        self.account.release(bytes);
        queue
    }
}

impl TakeTurns for ConnectionHandle {
    fn turn(&self) -> Turn {
        match self.turn.load(Ordering::Relaxed) {
            turn if turn == Turn::Waiting as u8 => Turn::Waiting,
            turn if turn == Turn::Granted as u8 => Turn::Granted,
            _ => Turn::None,
        }
    }

    fn set_turn(&self, turn: Turn) {
        self.turn.store(turn as u8, Ordering::Relaxed);
    }

    /// Wakes it once the runtime has polled the system for the events of the others. It may be polled earlier, since
    /// its handlers wake it too.
    fn wake_for_turn(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    }
}

/// Wakes it for its turn.
impl Wake for ConnectionHandle {
    fn wake(self: Arc<Self>) {
        self.has_turn.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Maximum number of messages that may wait to be pushed to one client.
const MAX_QUEUED_PUSHES: usize = 1024;

/// Maximum number of bytes that may wait to be pushed to one client, unless it is a single message.
const MAX_QUEUED_PUSH_BYTES: usize = 4 << 20;

/// A connection's registration in the registry; removed on drop.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    pub(super) connection: Arc<ConnectionHandle>,
    open: Arc<ConnectionRegistry>,
    key: usize,
    /// The number of hooks that have accepted it.
    accepted: usize,
}

impl ConnectionGuard {
    /// Registers the connection with a transport that limits its number of connections, so that it can evict this one.
    pub(super) fn register_with(&self, stream: &Stream) {
        if let Stream::Carried(carried) = stream {
            let (connection, open) = (self.connection.clone(), self.open.clone());
            carried.set_connection(Arc::new(EvictableConnection { connection, open }));
        }
    }

    pub(super) fn tick(&self) -> u32 {
        self.open.tick()
    }

    /// Records the connection's protocol.
    pub(super) fn record_protocol(&self, protocol: Protocol) {
        let index = self.open.protocols.iter().position(|known| *known == protocol);
        let index = index.and_then(|index| u8::try_from(index).ok()).unwrap_or(UNKNOWN_PROTOCOL);
        self.connection.protocol.store(index, Ordering::Relaxed);
    }

    /// Returns a clock that may outlive the connection.
    pub(super) fn clock(&self) -> TickClock {
        TickClock(self.open.clone())
    }

    /// Returns the server's limits.
    pub(super) fn limits(&self) -> &Limits {
        &self.open.limits
    }

    /// Returns the memory reservations for responses to the connection.
    pub(super) fn response_room(&self) -> ResponseRoom {
        ResponseRoom::new(self.connection.account.clone(), self.limits().write_timeout)
    }

    #[cold]
    fn notify_closed(&self) {
        let facts = self.connection.facts(self.open.tick(), &self.open.protocols);
        let (received, sent) = self.connection.bytes();
        tracing::debug!(
            target: "polyrpc::server",
            connection = facts.id,
            peer = %facts.peer,
            protocol = facts.protocol.map(|protocol| protocol.as_str()),
            calls = facts.calls.started,
            failed = facts.calls.failed,
            received,
            sent,
            "a connection ended"
        );
    }

    /// Counts a call whose deadline had passed before it was started.
    pub(super) fn record_expired_call(&self) {
        self.open.expired.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads the time in ticks.
pub(super) struct TickClock(Arc<ConnectionRegistry>);

impl TickClock {
    pub(super) fn tick(&self) -> u32 {
        self.0.tick()
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if self.accepted > 0 {
            self.open
                .hooks
                .on_close(self.accepted, &self.connection.facts(self.open.tick(), &self.open.protocols));
        }
        if tracing::enabled!(target: "polyrpc::server", tracing::Level::DEBUG) {
            self.notify_closed();
        }
        drop(self.connection.take_pushes());
        self.connection.turns.leave(&self.connection);
        self.connection.account.close();
        let mut entries = self.open.lock();
        entries.open.remove(self.key);
        if self.connection.is_evicted() {
            entries.eviction.record_closed();
            self.connection.record.eviction.record_closed();
        }
        let mut closed_calls = self.open.closed_calls.read();
        closed_calls.add(self.connection.calls.read().with_in_flight_failed());
        self.open.closed_calls.write(closed_calls);
        let ((received, sent), (more, out)) = (self.open.closed_bytes.read(), self.connection.bytes.read());
        self.open.closed_bytes.write((received + more, sent + out));
        if entries.open.is_empty() {
            self.open.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn evicted_connections_are_closed_a_few_at_a_time() {
        let limits = Arc::new(Limits { connections: 1_600, ..Limits::default() });
        let (hooks, incidents) = Default::default();
        let registry = Arc::new(ConnectionRegistry::new(hooks, limits.clone(), incidents, Vec::new(), None));
        let wakes = Arc::<WakeCounter>::default();
        let open = || {
            let registration = registry.try_register(Peer::InProcess).expect("there is room");
            registration.connection.set_waker(&wakes.clone().into());
            registration
        };
        let woken = || wakes.0.load(Ordering::Relaxed);
        let mut connections: Vec<_> = (0..1_500).map(|_| open()).collect();
        assert_eq!(woken(), 0);

        // A sixteenth of them is evicted.
        connections.push(open());
        let evicted = connections.iter().filter(|open| open.connection.is_evicted()).count();
        assert_eq!(evicted, 100);
        // Two of them for each of the two steps: eviction, and the new connection.
        assert_eq!(woken(), 2 * EVICTED_PER_CONNECTION);
        connections.push(open());
        assert_eq!(woken(), 3 * EVICTED_PER_CONNECTION);
        let serving = connections.iter().filter(|open| {
            open.connection.is_evicted() && open.connection.command() == ConnectionCommand::Serve
        });
        assert_eq!(serving.count(), evicted - woken(), "the others serve until then");

        // No new connection comes.
        registry.wake_due(1, &PhaseTimeouts::new(&limits)).await;
        assert_eq!(woken(), evicted);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_of_a_server_are_withdrawn_at_the_end_of_its_watch() {
        let budget = MemoryBudget::new(8 << 20);
        let limits = Arc::new(Limits { memory: 8 << 20, ..Limits::default() });
        let registry = || {
            let (hooks, incidents) = Default::default();
            Arc::new(ConnectionRegistry::new(hooks, limits.clone(), incidents, Vec::new(), Some(&budget)))
        };
        let (one, other) = (registry(), registry());
        let registration = one.try_register(Peer::InProcess).expect("there is room");
        registration.connection.account.report_held(5 << 20);
        let none = PressureReport::default();
        let mut watch = Box::pin(one.watch());
        let watched = tokio::time::timeout(TICK / 2, &mut watch).await;
        assert!(watched.is_err(), "it watches until it is dropped");
        let report = other.pool.exchange_pressure(none).expect("there are two servers");
        assert_eq!((report.largest, report.connection, report.held), (5 << 20, 5 << 20, 5 << 20));
        drop(watch);
        // Its connections may live on in handlers.
        assert_eq!(other.pool.exchange_pressure(none), Some(none));
    }
}

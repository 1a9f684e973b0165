//! The connections a server has open: what is known of each from outside its task, and the watch that ends
//! those that are too slow.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::call::{Calls, Connection, Countable, Peer, ResourceUsage, ServerInfo, Totals};
use crate::codec::made_aside;
use crate::memory_budget::{Account, Quota, QuotaExceeded, QuotaLevel, Quotas, SharedUsage};
use crate::rate_limited::EventLimiter;

impl Countable for ConnectionRegistry {
    fn totals(&self) -> Totals {
        let entries = self.lock();
        let open = || entries.open.iter().map(|(_, entry)| entry);
        let (received, sent) = self.past_bytes.read();
        let (received, sent) = open().fold((received, sent), |(received, sent), entry| {
            let (more, out) = entry.bytes.read();
            (received + more, sent + out)
        });
        Totals {
            connections: entries.open.len(),
            accepted: self.entered.load(Ordering::Relaxed),
            received,
            sent,
            pushes: open().map(|entry| entry.queued_pushes()).sum(),
            used: self.used(),
            refusals: self.incidents.refusals(),
            closings: self.incidents.closings(),
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
    /// What all connections use together.
    pool: Arc<SharedUsage>,
    pub(super) incidents: Arc<IncidentCounters>,
    /// The time in ticks since the server began. Connections stamp themselves with it, so that no
    /// connection reads a clock for its time-outs.
    tick: AtomicU32,
    /// The calls of connections that have closed.
    past: CallCounters,
    /// The bytes of connections that have closed.
    past_bytes: ByteCounters,
    /// Calls whose deadline had passed when they were taken up.
    expired: AtomicU64,
    /// How many connections there were.
    entered: AtomicU64,
    hooks: HookChain,
    /// What connections may speak.
    protocols: Vec<Protocol>,
    /// Told when the last connection closes.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct RegistryState {
    open: Slab<Arc<ConnectionHandle>>,
    /// What the connections of each peer address use, and how often it failed to prove who it is.
    peers: HashMap<PeerKey, Arc<PeerRecord>>,
    /// The server will go away soon.
    retires: bool,
    /// When room was last made for new connections, in ticks.
    made_room: u32,
    /// For how many ticks the memory budget has been nearly used up.
    pressed: u32,
}

/// What is known of a peer address.
#[derive(Debug, Default)]
pub(super) struct PeerRecord {
    pool: Arc<SharedUsage>,
    pub(super) failures: FailedCredentials,
    /// For how many ticks its memory budget has been nearly used up.
    pressed: AtomicU32,
}

/// By what connections are told to be of the same peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PeerKey {
    V4(Ipv4Addr),
    /// The network of a host, which has all addresses in it.
    V6([u8; 8]),
    /// A process on this machine, by a Unix socket or from within.
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
}

/// One open connection, seen from outside its task.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    id: u64,
    peer: Peer,
    /// What it uses of the server.
    pub(super) account: Arc<Account>,
    pub(super) incidents: Arc<IncidentCounters>,
    pub(super) record: Arc<PeerRecord>,
    /// How many refusals are held back, since its peer guesses credentials.
    pub(super) delayed_rejections: AtomicUsize,
    /// The tick at which it is woken to look at its clocks.
    alarm: AtomicU32,
    /// Since when nothing is under way, in ticks; `u32::MAX` while something is.
    idle_since: AtomicU32,
    /// Since when nothing came or left, in ticks.
    still_since: AtomicU32,
    /// When it was opened, in ticks.
    opened: u32,
    /// What it speaks, once it is known.
    protocol: AtomicU8,
    calls: CallCounters,
    bytes: ByteCounters,
    /// What it waits for.
    phase: AtomicU8,
    /// Since when, in ticks.
    since: AtomicU32,
    /// What it is told to do.
    command: AtomicU8,
    waker: AtomicWaker,
    /// Others have had their turn.
    yielded: AtomicBool,
    /// It is woken at each tick, since a time-out runs in its session.
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

/// A message that no call asked for.
#[derive(Debug)]
pub(super) enum ServerPush {
    Push(Push),
    /// Under the name of a topic.
    Published(Bytes, Bytes),
}

impl ServerPush {
    /// Bytes that it holds.
    fn len(&self) -> usize {
        match self {
            Self::Push(push) => push.body.len() + push.service.len() + push.method.len(),
            Self::Published(topic, data) => topic.len() + data.len(),
        }
    }

    /// What hooks get to see.
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

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionPhase {
    /// For the peer's first byte.
    Silent,
    /// For the peer's next message, or for the peer to read.
    Idle,
    /// For the rest of a message.
    MidMessage,
    /// For handlers.
    Busy,
    /// For the peer to close.
    Closing,
}

/// What a connection is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(super) enum ConnectionCommand {
    /// Go on.
    Serve,
    /// Go on, and tell the peer to leave where an answer can say so.
    GoAway,
    /// Finish what was begun, take on nothing new, close.
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
    ) -> Self {
        Self {
            entries: Mutex::default(),
            quotas: Arc::new(quotas(&limits)),
            limits,
            pool: Arc::default(),
            incidents,
            tick: AtomicU32::new(0),
            past: CallCounters::default(),
            past_bytes: ByteCounters::default(),
            expired: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            hooks,
            protocols,
            emptied: Notify::new(),
        }
    }

    /// What all connections use together.
    #[cfg(test)]
    pub(super) fn pool(&self) -> &Arc<SharedUsage> {
        &self.pool
    }

    /// Enters a connection, unless there are too many already or a hook objects.
    pub(super) fn try_register(self: &Arc<Self>, peer: Peer) -> Option<ConnectionGuard> {
        let mut registration = self.register(peer)?;
        if !self.hooks.is_empty() {
            let (accepted, result) =
                self.hooks.accepted(&registration.connection.facts(self.tick(), &self.protocols));
            registration.accepted = accepted;
            result.ok()?;
        }
        Some(registration)
    }

    fn register(self: &Arc<Self>, peer: Peer) -> Option<ConnectionGuard> {
        let mut entries = self.lock();
        let limit = self.limits.connections;
        if entries.open.len() >= limit - limit / 16 {
            self.evict_idle(&mut entries);
        }
        if entries.open.len() >= limit {
            self.incidents.refused(Refusal::Connections, &peer);
            return None;
        }
        let key = PeerKey::from_peer(&peer);
        let record = entries.peers.entry(key).or_default().clone();
        if key != PeerKey::Local && record.pool.connections() >= self.limits.connections_per_peer {
            self.incidents.refused(Refusal::PeerConnections, &peer);
            return None;
        }
        let quotas = match key {
            PeerKey::Local => Quotas { peer: Quota::NONE, ..*self.quotas }.into(),
            PeerKey::V4(_) | PeerKey::V6(_) => self.quotas.clone(),
        };
        let id = self.entered.fetch_add(1, Ordering::Relaxed) + 1;
        let account = Arc::new(Account::new(id, quotas, self.pool.clone(), record.pool.clone()));
        let entry = Arc::new(ConnectionHandle {
            id,
            peer,
            account,
            incidents: self.incidents.clone(),
            record,
            delayed_rejections: AtomicUsize::new(0),
            alarm: AtomicU32::new(u32::MAX),
            idle_since: AtomicU32::new(u32::MAX),
            still_since: AtomicU32::new(self.tick()),
            opened: self.tick(),
            protocol: AtomicU8::new(UNTOLD),
            calls: CallCounters::default(),
            bytes: ByteCounters::default(),
            phase: AtomicU8::new(ConnectionPhase::Silent as u8),
            since: AtomicU32::new(self.tick()),
            command: AtomicU8::new(if entries.retires {
                ConnectionCommand::GoAway
            } else {
                ConnectionCommand::Serve
            } as u8),
            waker: AtomicWaker::new(),
            yielded: AtomicBool::new(false),
            wants_ticks: AtomicBool::new(false),
            has_pushes: AtomicBool::new(false),
            pushes: Mutex::default(),
        });
        let key = entries.open.insert(entry.clone());
        Some(ConnectionGuard { connection: entry, open: self.clone(), key, accepted: 0 })
    }

    /// Accepting a connection failed: the process has no descriptor, or no memory, for it.
    #[cold]
    pub(super) fn refuses_connections(&self, error: &io::Error) {
        if let Some(suppressed) = ACCEPTING.allow() {
            tracing::error!(%error, suppressed, "cannot accept connections");
        }
        self.evict_idle(&mut self.lock());
    }

    /// Tells every connection what to do.
    pub(super) fn order(&self, order: ConnectionCommand) {
        self.lock().open.iter().for_each(|(_, entry)| entry.send_command(order));
    }

    /// Tells every connection, and those to come, that the server will go away soon.
    pub(super) fn retire(&self) {
        let mut entries = self.lock();
        entries.retires = true;
        entries.open.iter().for_each(|(_, entry)| entry.send_command(ConnectionCommand::GoAway));
    }

    /// How many connections are open.
    pub(super) fn len(&self) -> usize {
        self.lock().open.len()
    }

    /// What is known of all connections.
    pub(super) fn facts(&self) -> ServerInfo {
        let (now, entries) = (self.tick(), self.lock());
        let connections: Vec<_> =
            entries.open.iter().map(|(_, entry)| entry.facts(now, &self.protocols)).collect();
        let mut calls = self.past.read();
        connections.iter().for_each(|connection| calls.add(connection.calls));
        let used = self.used();
        let (refusals, closings) = (self.incidents.refusals(), self.incidents.closings());
        let unknown_fields = self.incidents.unknown_fields();
        let expired = self.expired.load(Ordering::Relaxed);
        ServerInfo { calls, expired, connections, used, refusals, closings, unknown_fields }
    }

    fn used(&self) -> ResourceUsage {
        ResourceUsage { memory: self.pool.bytes(), calls: self.pool.calls(), streams: self.pool.streams() }
    }

    /// How many calls have begun, and how many connections were opened, since the server began.
    pub(super) fn totals(&self) -> (u64, u64) {
        let entries = self.lock();
        let open: u64 = entries.open.iter().map(|(_, entry)| entry.calls.read().started).sum();
        (self.past.read().started + open, self.entered.load(Ordering::Relaxed))
    }

    /// Waits until no connection is open.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Ends connections that are too slow, wakes those whose clocks are due, and keeps the memory budget, for as long as
    /// it is polled.
    pub(super) async fn watch(&self) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let patience = PhaseTimeouts::new(&self.limits);
        let mut heap = Heap::default();
        loop {
            interval.tick().await;
            let now = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
            let mut entries = self.lock();
            entries.open.iter().for_each(|(_, entry)| entry.watch(now, &patience));
            self.shed_largest(&mut entries);
            if heap.should_trim(self.pool.bytes() + entries.open.len() * CONNECTION, made_aside(), now) {
                tokio::task::spawn_blocking(polyrpc_heap::trim);
            }
            if now.is_multiple_of(FORGET) {
                entries
                    .peers
                    .retain(|_, record| Arc::strong_count(record) > 1 || record.failures.are_recent(now));
            }
        }
    }

    /// Closes the largest holder of each address that has nearly used up its budget for a while: else its connections might
    /// wait for each other.
    fn shed_largest_per_peer(&self, entries: &RegistryState) {
        let high = self.limits.memory_per_peer - self.limits.memory_per_peer / 8;
        for (key, record) in &entries.peers {
            let pressed = *key != PeerKey::Local && record.pool.bytes() > high;
            let ticks = if pressed { record.pressed.load(Ordering::Relaxed) + 1 } else { 0 };
            record.pressed.store(if ticks >= PRESSED { 0 } else { ticks }, Ordering::Relaxed);
            if ticks >= PRESSED {
                let own = |entry: &&Arc<ConnectionHandle>| Arc::ptr_eq(&entry.record, record);
                let holders = entries.open.iter().map(|(_, entry)| entry).filter(own);
                if let Some(largest) = holders.max_by_key(|entry| entry.account.bytes()) {
                    largest.close(Closing::LargestHolder);
                }
            }
        }
    }

    /// Closes the largest holders where the memory budget is used up, or has nearly been for a while.
    fn shed_largest(&self, entries: &mut RegistryState) {
        self.shed_largest_per_peer(entries);
        // What is about to be closed is as good as given back.
        let closing = entries.open.iter().filter(|(_, entry)| entry.ordered() == ConnectionCommand::Close);
        let closing: usize = match self.pool.bytes() > self.limits.memory / 2 {
            true => closing.map(|(_, entry)| entry.account.bytes()).sum(),
            false => 0,
        };
        let used = self.pool.bytes().saturating_sub(closing);
        let high = self.limits.memory - self.limits.memory / 8;
        entries.pressed = if used > high { entries.pressed + 1 } else { 0 };
        let mut excess = match () {
            () if used > self.limits.memory => used - high,
            // One at a time: the others may get on when it has gone.
            () if entries.pressed >= PRESSED => {
                entries.pressed = 0;
                1
            }
            () => return,
        };
        let mut holders: Vec<_> = entries
            .open
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| entry.account.bytes() > 0 && entry.ordered() != ConnectionCommand::Close)
            .collect();
        // Of the address that holds most, whoever holds most.
        holders.sort_by_key(|entry| std::cmp::Reverse((entry.account.peer().bytes(), entry.account.bytes())));
        for entry in holders {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(entry.account.bytes());
            entry.close(Closing::LargestHolder);
        }
    }

    /// Closes connections that have sent nothing, or else that do nothing, or else on which nothing moves, so that others
    /// find room.
    fn evict_idle(&self, entries: &mut RegistryState) {
        let now = self.tick();
        if entries.made_room == now && now > 0 {
            return;
        }
        entries.made_room = now;
        let open = || {
            let entries = entries.open.iter().map(|(_, entry)| entry);
            entries.filter(|entry| entry.ordered() < ConnectionCommand::Drain)
        };
        let room = (self.limits.connections / 16).max(1);
        let close = |entries: Vec<&Arc<ConnectionHandle>>| {
            entries.into_iter().take(room).for_each(|entry| entry.close(Closing::MadeRoom));
        };
        let mut silent: Vec<_> = open().filter(|entry| entry.phase() == ConnectionPhase::Silent).collect();
        if !silent.is_empty() {
            silent.sort_by_key(|entry| entry.id);
            return close(silent);
        }
        let idle: Vec<_> = open().filter(|entry| now.saturating_sub(entry.idle_since()) >= IDLE).collect();
        if !idle.is_empty() {
            return close(largest_peer_first(idle, ConnectionHandle::idle_since));
        }
        // Honest peers may wait in silence too, so it is the last resort; calls that are under way come at its end.
        let still = |entry: &&Arc<ConnectionHandle>, ticks| {
            entry.phase() == ConnectionPhase::Busy && now.saturating_sub(entry.still_since()) >= ticks
        };
        let mut stuck: Vec<_> = open().filter(|entry| !entry.has_calls() && still(entry, IDLE)).collect();
        if stuck.is_empty() {
            stuck = open().filter(|entry| still(entry, STUCK)).collect();
        }
        close(largest_peer_first(stuck, ConnectionHandle::still_since));
    }

    pub(super) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of the address that has most connections first, and of these whoever has waited for longest.
fn largest_peer_first(
    mut entries: Vec<&Arc<ConnectionHandle>>,
    since: fn(&ConnectionHandle) -> u32,
) -> Vec<&Arc<ConnectionHandle>> {
    entries.sort_by_key(|entry| (std::cmp::Reverse(entry.account.peer().connections()), since(entry)));
    entries
}

static ACCEPTING: EventLimiter = EventLimiter::new(10, Duration::from_secs(10));

/// About as many bytes as a connection takes that holds nothing.
const CONNECTION: usize = 16 << 10;
/// How long a connection that said goodbye waits for the peer to do so, in ticks: 2 s.
const CLOSING: u32 = 8;

/// For how many ticks a connection must have done nothing to be closed so that others find room: 5 s.
const IDLE: u32 = 20;
/// The same for one with calls under way, on which nothing comes or leaves: 30 s.
const STUCK: u32 = 120;
/// For how many ticks the budget may be nearly used up: 2 s.
const PRESSED: u32 = 8;
/// After how many ticks peers are forgotten that have no connections: 4 s.
const FORGET: u32 = 16;

/// How long each phase may take, in ticks.
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

/// [`Calls`] that one task writes and any may read.
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

/// Bytes that came and were sent, which one task writes and any may read.
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

/// No protocol's place in the list of them.
const UNTOLD: u8 = u8::MAX;

impl ConnectionHandle {
    /// Notes what has become of its calls.
    pub(super) fn record_calls(&self, calls: Calls) {
        self.calls.write(calls);
    }

    /// Notes how many bytes came and were sent in all.
    #[inline]
    pub(super) fn record_bytes(&self, received: u64, sent: u64) {
        self.bytes.write((received, sent));
    }

    /// The bytes of the sessions before, and those that told the protocol.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.bytes.read()
    }

    fn queued_pushes(&self) -> usize {
        match self.has_pushes() {
            true => self.pushes.lock().unwrap_or_else(PoisonError::into_inner).queue.len(),
            false => 0,
        }
    }

    /// The calls of the sessions before.
    pub(super) fn calls(&self) -> Calls {
        self.calls.read()
    }

    /// Its number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// When it was opened, in ticks.
    pub(super) fn opened(&self) -> u32 {
        self.opened
    }

    fn facts(&self, now: u32, protocols: &[Protocol]) -> Connection {
        let told = self.protocol.load(Ordering::Relaxed);
        Connection {
            id: self.id,
            peer: self.peer.clone(),
            protocol: protocols.get(usize::from(told)).copied(),
            age: TICK * now.saturating_sub(self.opened),
            calls: self.calls.read(),
        }
    }

    /// Whom to wake when an order or a message to push comes.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Whether one more call of it may wait for its handler.
    ///
    /// # Errors
    ///
    /// Why not.
    #[inline]
    pub(super) fn admit_call(&self) -> Result<(), Status> {
        self.account.admits_call().map_err(|full| self.refuse_call(full))
    }

    /// Whether one more stream of it may be open.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(super) fn admit_stream(&self) -> Result<(), Status> {
        self.account.admits_stream().map_err(|full| self.refuse_stream(full))
    }

    /// brpc's words (`src/brpc/policy/baidu_rpc_protocol.cpp`), which its clients know.
    #[cold]
    fn refuse_call(&self, QuotaExceeded { level, quota }: QuotaExceeded) -> Status {
        let (cause, whose) = match level {
            QuotaLevel::Server => (Refusal::Calls, ""),
            QuotaLevel::Peer => (Refusal::PeerCalls, " for one peer"),
            QuotaLevel::Connection => (Refusal::ConnectionCalls, ""),
        };
        self.incidents.refused(cause, &self.peer);
        Status::resource_exhausted(format!("Reached server's max_concurrency={quota}{whose}"))
    }

    #[cold]
    fn refuse_stream(&self, QuotaExceeded { level, quota }: QuotaExceeded) -> Status {
        let (cause, whose) = match level {
            QuotaLevel::Server => (Refusal::Streams, "the server"),
            QuotaLevel::Peer => (Refusal::PeerStreams, "one peer"),
            QuotaLevel::Connection => (Refusal::ConnectionStreams, "one connection"),
        };
        self.incidents.refused(cause, &self.peer);
        Status::resource_exhausted(format!("reached the limit of {quota} open streams for {whose}"))
    }

    /// Counts a refusal.
    #[cold]
    pub(super) fn refused(&self, cause: Refusal) {
        self.incidents.refused(cause, &self.peer);
    }

    /// Counts what its session has refused.
    #[cold]
    pub(super) fn refused_by_session(&self, refusals: Refusals) {
        self.incidents.refused_by_session(refusals, &self.peer);
    }

    /// Counts a TLS handshake that has failed.
    #[cold]
    pub(super) fn refused_handshake(&self, error: &io::Error) {
        self.incidents.refused_handshake(error, &self.peer);
    }

    /// Counts that it begins as no protocol does which is allowed here.
    #[cold]
    pub(super) fn closed_unknown(&self, start: &[u8]) {
        self.incidents.closed_unknown(start, &self.peer);
    }

    /// Counts a call to what there is not.
    #[cold]
    pub(super) fn refused_unknown(&self, service: &str, method: &str) {
        self.incidents.unknown(service, method, &self.peer);
    }

    /// Tells it to close at once, and counts why.
    #[cold]
    pub(super) fn close(&self, cause: Closing) {
        if self.ordered() != ConnectionCommand::Close {
            self.closed(cause);
            self.send_command(ConnectionCommand::Close);
        }
    }

    /// Counts why it is closed.
    #[cold]
    pub(super) fn closed(&self, cause: Closing) {
        self.incidents.closed(cause, &self.peer);
    }

    /// Notes since when nothing is under way; `None` while something is.
    pub(super) fn idles(&self, since: Option<u32>) {
        self.idle_since.store(since.unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Notes when something last came or left.
    pub(super) fn moved(&self, at: u32) {
        self.still_since.store(at, Ordering::Relaxed);
    }

    fn still_since(&self) -> u32 {
        self.still_since.load(Ordering::Relaxed)
    }

    /// Whether handlers are at work for it, or wait for what it sends.
    fn has_calls(&self) -> bool {
        self.account.calls() + self.account.streams() > 0
    }

    fn idle_since(&self) -> u32 {
        self.idle_since.load(Ordering::Relaxed)
    }

    /// Has it woken at this tick, and not before, to look at its clocks.
    pub(super) fn wake_at(&self, tick: u32) {
        self.alarm.store(tick, Ordering::Relaxed);
    }

    /// Closes or wakes it if that is due.
    fn watch(&self, now: u32, patience: &PhaseTimeouts) {
        let allowed = match self.phase() {
            ConnectionPhase::Silent => Some((patience.silent, Closing::FirstByte)),
            ConnectionPhase::MidMessage => Some((patience.header, Closing::Head)),
            ConnectionPhase::Closing => Some((CLOSING, Closing::Write)),
            ConnectionPhase::Idle => Some((patience.idle, Closing::Idle)),
            // Its own clocks judge it.
            ConnectionPhase::Busy => None,
        };
        let since = self.since.load(Ordering::Relaxed);
        if let Some((_, cause)) = allowed.filter(|(allowed, _)| now.saturating_sub(since) > *allowed) {
            match self.phase() {
                // Its peer was told already.
                ConnectionPhase::Closing => self.send_command(ConnectionCommand::Close),
                _ => self.close(cause),
            }
        }
        let due = now >= self.alarm.load(Ordering::Relaxed);
        if due || self.wants_ticks.load(Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    pub(super) fn send_command(&self, order: ConnectionCommand) {
        if self.command.fetch_max(order as u8, Ordering::AcqRel) < order as u8 {
            self.waker.wake();
        }
    }

    /// What the connection is told to do.
    pub(super) fn ordered(&self) -> ConnectionCommand {
        match self.command.load(Ordering::Acquire) {
            order if order == ConnectionCommand::Close as u8 => ConnectionCommand::Close,
            order if order == ConnectionCommand::Drain as u8 => ConnectionCommand::Drain,
            order if order == ConnectionCommand::GoAway as u8 => ConnectionCommand::GoAway,
            _ => ConnectionCommand::Serve,
        }
    }

    /// Lets others have their turn: the connection is woken when the runtime has asked the system for what these wait
    /// for. It may be polled before, since its handlers wake it as well.
    pub(super) fn yield_now(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    }

    /// Whether others have had the turn that was [passed](Self::yield_now) to them.
    pub(super) fn has_yielded(&self) -> bool {
        self.yielded.swap(false, Ordering::AcqRel)
    }

    /// Notes whether the connection is to be woken at each tick.
    pub(super) fn wants_ticks(&self, wants: bool) {
        self.wants_ticks.store(wants, Ordering::Relaxed);
    }

    /// Notes that from `tick` on the connection waits for this.
    pub(super) fn waits(&self, phase: ConnectionPhase, tick: u32) {
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

    /// Queues a message that no call asked for.
    pub(super) fn push(&self, push: ServerPush) -> Result<(), Status> {
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        let length = push.len();
        let crowded = pushes.queue.len() >= PUSHES || pushes.bytes.saturating_add(length) > PUSHED;
        if crowded && !pushes.queue.is_empty() {
            drop(pushes);
            self.refused(Refusal::Pushes);
            return Err(Status::resource_exhausted("the client does not read what is pushed"));
        }
        pushes.queue.push_back(push);
        pushes.bytes += length;
        self.account.keep(length);
        self.has_pushes.store(true, Ordering::Release);
        drop(pushes);
        self.waker.wake();
        Ok(())
    }

    /// Whether something is to be pushed.
    pub(super) fn has_pushes(&self) -> bool {
        self.has_pushes.load(Ordering::Acquire)
    }

    /// Takes what is to be pushed.
    pub(super) fn take_pushes(&self) -> VecDeque<ServerPush> {
        match self.has_pushes() {
            false => VecDeque::new(),
            true => {
                let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
                self.has_pushes.store(false, Ordering::Release);
                let PushQueue { queue, bytes } = std::mem::take(&mut *pushes);
                self.account.release(bytes);
                queue
            }
        }
    }
}

/// Woken when others have had their turn.
impl Wake for ConnectionHandle {
    fn wake(self: Arc<Self>) {
        self.yielded.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// How many messages may wait to be pushed to one client.
const PUSHES: usize = 1024;

/// How many bytes of messages may wait to be pushed to one client, if it is more than one message.
const PUSHED: usize = 4 << 20;

/// A connection's place among the open ones; given up when dropped.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    pub(super) connection: Arc<ConnectionHandle>,
    open: Arc<ConnectionRegistry>,
    key: usize,
    /// How many hooks have accepted it.
    accepted: usize,
}

impl ConnectionGuard {
    pub(super) fn tick(&self) -> u32 {
        self.open.tick()
    }

    /// Notes what the connection speaks.
    pub(super) fn speaks(&self, protocol: Protocol) {
        let place = self.open.protocols.iter().position(|known| *known == protocol);
        let place = place.and_then(|place| u8::try_from(place).ok()).unwrap_or(UNTOLD);
        self.connection.protocol.store(place, Ordering::Relaxed);
    }

    /// What tells the time for longer than the connection is open.
    pub(super) fn clock(&self) -> TickClock {
        TickClock(self.open.clone())
    }

    /// What the server may be made to hold and to wait for.
    pub(super) fn limits(&self) -> &Limits {
        &self.open.limits
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

    /// Counts a call that was taken up too late.
    pub(super) fn expired(&self) {
        self.open.expired.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells the time in ticks.
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
                .closed(self.accepted, &self.connection.facts(self.open.tick(), &self.open.protocols));
        }
        if tracing::enabled!(target: "polyrpc::server", tracing::Level::DEBUG) {
            self.notify_closed();
        }
        drop(self.connection.take_pushes());
        self.connection.account.close();
        let mut entries = self.open.lock();
        entries.open.remove(self.key);
        let mut past = self.open.past.read();
        past.add(self.connection.calls.read().with_in_flight_failed());
        self.open.past.write(past);
        let ((received, sent), (more, out)) = (self.open.past_bytes.read(), self.connection.bytes.read());
        self.open.past_bytes.write((received + more, sent + out));
        if entries.open.is_empty() {
            self.open.emptied.notify_waiters();
        }
    }
}

//! The connections a server has open: what is known of each from outside its task, and the watch that ends
//! those that are too slow.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use polyrpc_wire::{Metadata, Protocol, Push, Status};
use slab::Slab;
use tokio::sync::Notify;

use super::hooks::Hooks;
use super::limits::Limits;
use crate::introspection::{self, Calls, Facts};
use crate::service::Peer;

/// All open connections of a server.
#[derive(Debug)]
pub(super) struct Open {
    entries: Mutex<Slab<Arc<Entry>>>,
    /// The time in ticks since the server began. Connections stamp themselves with it, so that no
    /// connection reads a clock for its time-outs.
    tick: AtomicU32,
    /// The calls of connections that have closed.
    past: Counters,
    /// Calls whose deadline had passed when they were taken up.
    expired: AtomicU64,
    /// How many connections there were.
    entered: AtomicU64,
    hooks: Hooks,
    /// Told when the last connection closes.
    emptied: Notify,
}

/// One open connection, seen from outside its task.
#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    peer: Peer,
    /// When it was opened, in ticks.
    opened: u32,
    /// What it speaks, once it is known.
    protocol: AtomicU8,
    calls: Counters,
    /// What it waits for.
    phase: AtomicU8,
    /// Since when, in ticks.
    since: AtomicU32,
    /// What it is told to do.
    order: AtomicU8,
    waker: AtomicWaker,
    /// Others have had their turn.
    goes_on: AtomicBool,
    /// It is woken at each tick, since a time-out runs in its session.
    wants_ticks: AtomicBool,
    has_pushes: AtomicBool,
    pushes: Mutex<VecDeque<Unasked>>,
}

/// A message that no call asked for.
#[derive(Debug)]
pub(super) enum Unasked {
    Push(Push),
    /// Under the name of a topic.
    Published(Bytes, Bytes),
}

impl Unasked {
    /// What hooks get to see.
    pub(super) fn shown(&self) -> Cow<'_, Push> {
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
pub(super) enum Phase {
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
pub(super) enum Order {
    /// Go on.
    Serve,
    /// Finish what was begun, take on nothing new, close.
    Drain,
    /// Close now.
    Close,
}

impl Open {
    pub(super) fn new(hooks: Hooks) -> Self {
        Self {
            entries: Mutex::default(),
            tick: AtomicU32::new(0),
            past: Counters::default(),
            expired: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            hooks,
            emptied: Notify::new(),
        }
    }

    /// Enters a connection, unless there are `limit` already or a hook objects.
    pub(super) fn enter(self: &Arc<Self>, peer: Peer, limit: usize) -> Option<Registration> {
        let mut registration = self.register(peer, limit)?;
        if !self.hooks.is_empty() {
            let (accepted, result) = self.hooks.accepted(&registration.entry.facts(self.tick()));
            registration.accepted = accepted;
            result.ok()?;
        }
        Some(registration)
    }

    fn register(self: &Arc<Self>, peer: Peer, limit: usize) -> Option<Registration> {
        let mut entries = self.lock();
        if entries.len() >= limit {
            return None;
        }
        let entry = Arc::new(Entry {
            id: self.entered.fetch_add(1, Ordering::Relaxed) + 1,
            peer,
            opened: self.tick(),
            protocol: AtomicU8::new(UNTOLD),
            calls: Counters::default(),
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU32::new(self.tick()),
            order: AtomicU8::new(Order::Serve as u8),
            waker: AtomicWaker::new(),
            goes_on: AtomicBool::new(false),
            wants_ticks: AtomicBool::new(false),
            has_pushes: AtomicBool::new(false),
            pushes: Mutex::default(),
        });
        let key = entries.insert(entry.clone());
        Some(Registration { entry, open: self.clone(), key, accepted: 0 })
    }

    /// Tells every connection what to do.
    pub(super) fn order(&self, order: Order) {
        self.lock().iter().for_each(|(_, entry)| entry.tell(order));
    }

    /// How many connections are open.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// What is known of all connections.
    pub(super) fn facts(&self) -> Facts {
        let (now, entries) = (self.tick(), self.lock());
        let connections: Vec<_> = entries.iter().map(|(_, entry)| entry.facts(now)).collect();
        let mut calls = self.past.read();
        connections.iter().for_each(|connection| calls.add(connection.calls));
        Facts { calls, expired: self.expired.load(Ordering::Relaxed), connections }
    }

    /// How many calls have begun, and how many connections were opened, since the server began.
    pub(super) fn totals(&self) -> (u64, u64) {
        let entries = self.lock();
        let open: u64 = entries.iter().map(|(_, entry)| entry.calls.read().started).sum();
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

    /// Ends connections that are too slow and wakes those that keep something back, for as long as it is polled.
    pub(super) async fn watch(&self, limits: &Limits) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let header = ticks(limits.header_timeout);
        let idle = limits.idle_timeout.map_or(u32::MAX, ticks);
        loop {
            interval.tick().await;
            let now = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
            for (_, entry) in self.lock().iter() {
                let allowed = match entry.phase.load(Ordering::Relaxed) {
                    phase if phase == Phase::MidMessage as u8 => header,
                    phase if phase == Phase::Closing as u8 => CLOSING,
                    phase if phase == Phase::Idle as u8 => idle,
                    _ => u32::MAX,
                };
                if now.saturating_sub(entry.since.load(Ordering::Relaxed)) > allowed {
                    entry.tell(Order::Close);
                }
                if entry.wants_ticks.load(Ordering::Relaxed) {
                    entry.waker.wake();
                }
            }
        }
    }

    pub(super) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often slow connections are looked for.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// How long a connection that said good-bye waits for the peer to do so, in ticks: 2 s.
const CLOSING: u32 = 8;

fn ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

/// [`Calls`] that one task writes and any may read.
#[derive(Debug, Default)]
struct Counters {
    started: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
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

/// No protocol's number.
const UNTOLD: u8 = u8::MAX;

impl Entry {
    /// Notes what the connection speaks.
    pub(super) fn speaks(&self, protocol: Protocol) {
        self.protocol.store(protocol as u8, Ordering::Relaxed);
    }

    /// Notes what has become of its calls.
    pub(super) fn note(&self, calls: Calls) {
        self.calls.write(calls);
    }

    /// The calls of the sessions before.
    pub(super) fn calls(&self) -> Calls {
        self.calls.read()
    }

    /// Its number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn facts(&self, now: u32) -> introspection::Connection {
        let told = self.protocol.load(Ordering::Relaxed);
        introspection::Connection {
            id: self.id,
            peer: self.peer.clone(),
            protocol: Protocol::ALL.into_iter().find(|&protocol| protocol as u8 == told),
            age: TICK * now.saturating_sub(self.opened),
            calls: self.calls.read(),
        }
    }

    /// Whom to wake when an order or a message to push comes.
    pub(super) fn wakes(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn tell(&self, order: Order) {
        if self.order.fetch_max(order as u8, Ordering::AcqRel) < order as u8 {
            self.waker.wake();
        }
    }

    /// What the connection is told to do.
    pub(super) fn ordered(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            order if order == Order::Close as u8 => Order::Close,
            order if order == Order::Drain as u8 => Order::Drain,
            _ => Order::Serve,
        }
    }

    /// Lets others have their turn: the connection is woken when the runtime has asked the system for what these wait
    /// for. It may be polled before, since its handlers wake it as well.
    pub(super) fn pass(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    }

    /// Whether others have had the turn that was [passed](Self::pass) to them.
    pub(super) fn may_go_on(&self) -> bool {
        self.goes_on.swap(false, Ordering::AcqRel)
    }

    /// Notes whether the connection is to be woken at each tick.
    pub(super) fn wants_ticks(&self, wants: bool) {
        self.wants_ticks.store(wants, Ordering::Relaxed);
    }

    /// Notes that from `tick` on the connection waits for this.
    pub(super) fn waits(&self, phase: Phase, tick: u32) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.since.store(tick, Ordering::Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::MidMessage as u8 => Phase::MidMessage,
            phase if phase == Phase::Busy as u8 => Phase::Busy,
            phase if phase == Phase::Closing as u8 => Phase::Closing,
            _ => Phase::Idle,
        }
    }

    /// Queues a message that no call asked for.
    pub(super) fn push(&self, push: Unasked) -> Result<(), Status> {
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        if pushes.len() >= PUSHES {
            return Err(Status::resource_exhausted("the client does not read what is pushed"));
        }
        pushes.push_back(push);
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
    pub(super) fn take_pushes(&self) -> VecDeque<Unasked> {
        match self.has_pushes() {
            false => VecDeque::new(),
            true => {
                let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
                self.has_pushes.store(false, Ordering::Release);
                std::mem::take(&mut *pushes)
            }
        }
    }
}

/// Woken when others have had their turn.
impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.goes_on.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// How many messages may wait to be pushed to one client.
const PUSHES: usize = 1024;

/// A connection's place among the open ones; given up when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) entry: Arc<Entry>,
    open: Arc<Open>,
    key: usize,
    /// How many hooks have accepted it.
    accepted: usize,
}

impl Registration {
    pub(super) fn tick(&self) -> u32 {
        self.open.tick()
    }

    /// Counts a call that was taken up too late.
    pub(super) fn expired(&self) {
        self.open.expired.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.accepted > 0 {
            self.open.hooks.closed(self.accepted, &self.entry.facts(self.open.tick()));
        }
        let mut entries = self.open.lock();
        entries.remove(self.key);
        let mut past = self.open.past.read();
        past.add(self.entry.calls.read().cut_off());
        self.open.past.write(past);
        if entries.is_empty() {
            self.open.emptied.notify_waiters();
        }
    }
}

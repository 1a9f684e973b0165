//! Counters of one method, without a lock on a call's path.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Status};
use polyrpc_wire::Protocol;

use super::histogram::{Counts, Histogram};
use crate::layer::Side;
use crate::layers::CallStart;

/// Key of the calls that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) side: Side,
    pub(super) service: Box<str>,
    pub(super) method: Box<str>,
    pub(super) protocol: &'static str,
}

impl Key {
    fn from_call(call: &CallStart<'_>) -> Self {
        Self {
            side: call.side,
            service: call.service.into(),
            method: call.method.into(),
            protocol: call.protocol.as_str(),
        }
    }

    fn is_of(&self, call: &CallStart<'_>) -> bool {
        *self.method == *call.method
            && *self.service == *call.service
            && self.side == call.side
            && self.protocol == call.protocol.as_str()
    }
}

/// Table of all series. Its size is fixed and entries are only added, so that a lookup takes no lock, and a peer that
/// invents names cannot make it grow.
#[derive(Debug)]
pub(super) struct Table {
    slots: Box<[OnceLock<Series>]>,
    used: AtomicUsize,
    max_series: usize,
    /// How many of the series have names that callers may have invented.
    undeclared: AtomicUsize,
    declared: RwLock<DeclaredMethods>,
    /// Calls for which there was no room, by side.
    others: [Series; 2],
    hasher: foldhash::fast::RandomState,
}

/// Methods that a fallback answers, by service.
#[derive(Debug, Default)]
struct DeclaredMethods {
    services: HashMap<Box<str>, HashSet<Box<str>>>,
    count: usize,
}

/// One of this many series may have a name that a caller invented.
const UNDECLARED_SHARE: usize = 4;

/// Maximum length in bytes of the service and the method name of an undeclared method together; longer ones are
/// counted as `other`.
const MAX_UNDECLARED_NAME_LEN: usize = 256;

/// Position of a series in the table.
#[derive(Debug, Clone, Copy)]
pub(super) enum SeriesIndex {
    Slot(usize),
    Other(Side),
}

/// Numbers of the series that count all others together.
const OTHER_CLIENT: u32 = u32::MAX;
const OTHER_SERVER: u32 = u32::MAX - 1;

impl SeriesIndex {
    /// Returns a number from which [`from_number`](Self::from_number) restores it. Tables have less than 2³¹ slots.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Slot(slot) => u32::try_from(slot).unwrap_or(u32::MAX),
            Self::Other(Side::Client) => OTHER_CLIENT,
            Self::Other(Side::Server) => OTHER_SERVER,
        }
    }

    pub(super) fn from_number(number: u32) -> Self {
        match number {
            OTHER_CLIENT => Self::Other(Side::Client),
            OTHER_SERVER => Self::Other(Side::Server),
            slot => Self::Slot(slot as usize),
        }
    }
}

impl Table {
    /// Creates a table with room for `max_series` series.
    pub(super) fn new(max_series: usize) -> Self {
        // A third of it stays empty, so that lookups are short.
        let slots = (max_series + max_series / 2 + 1).next_power_of_two();
        let other = |side| {
            let (service, method) = ("".into(), "other".into());
            Series::new(Key { side, service, method, protocol: "any" }, None)
        };
        Self {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            max_series,
            undeclared: AtomicUsize::new(0),
            declared: RwLock::default(),
            others: [other(Side::Client), other(Side::Server)],
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Returns the position of a call's series; adds it if needed.
    pub(super) fn find(&self, call: &CallStart<'_>) -> SeriesIndex {
        let mask = self.slots.len() - 1;
        let mut index = self.hash(call) & mask;
        // It terminates, since there are always empty slots.
        while let Some(slot) = self.slots.get(index) {
            let known = match slot.get() {
                Some(known) => known,
                None if self.used.load(Ordering::Relaxed) >= self.max_series => break,
                None if !call.declared && !self.has_room_for_undeclared(call) => break,
                None => slot.get_or_init(|| {
                    self.used.fetch_add(1, Ordering::Relaxed);
                    if !call.declared && !self.is_declared(call) {
                        self.undeclared.fetch_add(1, Ordering::Relaxed);
                    }
                    Series::new(Key::from_call(call), Some(call.protocol))
                }),
            };
            if known.key.is_of(call) {
                return SeriesIndex::Slot(index);
            }
            index = (index + 1) & mask;
        }
        SeriesIndex::Other(call.side)
    }

    /// Declares methods, as many as there is room for.
    pub(super) fn declare<'n>(&self, methods: impl IntoIterator<Item = (&'n str, &'n str)>) {
        let mut declared = self.declared.write().unwrap_or_else(PoisonError::into_inner);
        for (service, method) in methods {
            if declared.count >= self.max_series {
                return;
            }
            let is_new = declared.services.entry(service.into()).or_default().insert(method.into());
            declared.count += usize::from(is_new);
        }
    }

    fn is_declared(&self, call: &CallStart<'_>) -> bool {
        let declared = self.declared.read().unwrap_or_else(PoisonError::into_inner);
        declared.services.get(call.service).is_some_and(|methods| methods.contains(call.method))
    }

    /// Whether a method without a series gets one although a caller may have invented its name.
    #[cold]
    fn has_room_for_undeclared(&self, call: &CallStart<'_>) -> bool {
        let has_room = self.undeclared.load(Ordering::Relaxed) < self.max_series / UNDECLARED_SHARE
            && call.service.len() + call.method.len() <= MAX_UNDECLARED_NAME_LEN;
        has_room || self.is_declared(call)
    }

    pub(super) fn at(&self, index: SeriesIndex) -> &Series {
        let known = match index {
            SeriesIndex::Slot(slot) => self.slots.get(slot).and_then(OnceLock::get),
            SeriesIndex::Other(_) => None,
        };
        let [client, server] = &self.others;
        known.unwrap_or(match index {
            SeriesIndex::Other(Side::Server) => server,
            SeriesIndex::Other(Side::Client) | SeriesIndex::Slot(_) => client,
        })
    }

    /// Returns every series with a call, sorted by name.
    pub(super) fn all(&self) -> Vec<&Series> {
        let known = self.slots.iter().filter_map(OnceLock::get);
        let mut all: Vec<_> = known.chain(&self.others).filter(|series| series.is_used()).collect();
        all.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        all
    }

    fn hash(&self, call: &CallStart<'_>) -> usize {
        self.hasher.hash_one((call.side, call.protocol.as_str(), call.service, call.method)) as usize
    }
}

/// Calls of one method, by one protocol, on one side.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) key: Key,
    /// `None` for calls of several protocols.
    pub(super) protocol: Option<Protocol>,
    /// Threads count in separate shards, to avoid contention on cache lines; a shard is created when a thread first needs
    /// it.
    shards: Box<[OnceLock<Box<Shard>>]>,
    window: Mutex<Window>,
}

/// Counters of the threads that share this shard.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    started: AtomicU64,
    failed: [AtomicU64; CODES],
    /// Durations of the successful calls.
    nanos: AtomicU64,
    took: Histogram,
}

const CODES: usize = Code::ALL.len();

impl Shard {
    fn new() -> Self {
        Self {
            started: AtomicU64::new(0),
            failed: [const { AtomicU64::new(0) }; CODES],
            nanos: AtomicU64::new(0),
            took: Histogram::default(),
        }
    }
}

impl Series {
    fn new(key: Key, protocol: Option<Protocol>) -> Self {
        let shards = (0..shard_count()).map(|_| OnceLock::new()).collect();
        Self { key, protocol, shards, window: Mutex::default() }
    }

    pub(super) fn record_start(&self) {
        self.shard(|shard| shard.started.fetch_add(1, Ordering::Relaxed));
    }

    pub(super) fn record_end(&self, took: Duration, failure: Option<&Status>) {
        self.shard(|shard| match failure {
            None => {
                let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                shard.nanos.fetch_add(nanos, Ordering::Relaxed);
                shard.took.record(took.as_secs_f64());
            }
            Some(status) => {
                let index = (status.code() as usize).wrapping_sub(1);
                if let Some(failed) = shard.failed.get(index) {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }

    /// Returns the counts so far.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        // Finished calls first: calls that start and finish meanwhile must not be counted as finished but not as
        // started.
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            totals.took.add(&shard.took);
            totals.nanos += shard.nanos.load(Ordering::Relaxed);
            for (sum, failed) in totals.failed.iter_mut().zip(&shard.failed) {
                *sum += failed.load(Ordering::Relaxed);
            }
        }
        let started = self.shards.iter().filter_map(OnceLock::get);
        totals.started = started.map(|shard| shard.started.load(Ordering::Relaxed)).sum();
        totals
    }

    /// Returns the recent counts, and the time that they cover.
    pub(super) fn recent_totals(&self, totals: &Totals, now: Instant) -> (Totals, Duration) {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).recent_totals(totals, now)
    }

    fn is_used(&self) -> bool {
        self.shards.iter().any(|shard| shard.get().is_some())
    }

    fn shard<T>(&self, count: impl FnOnce(&Shard) -> T) {
        let shard = SHARD.with(|shard| *shard) & (self.shards.len() - 1);
        if let Some(shard) = self.shards.get(shard) {
            count(shard.get_or_init(|| Box::new(Shard::new())));
        }
    }
}

thread_local! {
    /// Number of this thread, in the order in which threads first counted.
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns the number of threads that can run at a time, up to a bound: a power of two.
fn shard_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.next_power_of_two().min(MAX_SHARDS)
    })
}

const MAX_SHARDS: usize = 16;

/// Counts up to a time, or between two times.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) started: u64,
    /// In the order of [`Code::ALL`].
    pub(super) failed: [u64; CODES],
    pub(super) nanos: u64,
    pub(super) took: Counts,
}

impl Totals {
    pub(super) fn successes(&self) -> u64 {
        self.took.total()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.successes()).saturating_sub(self.failures())
    }

    /// Returns the average duration of the successful calls.
    pub(super) fn average(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.successes()).unwrap_or(0))
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.started += other.started;
        self.failed.iter_mut().zip(&other.failed).for_each(|(sum, more)| *sum += more);
        self.nanos = self.nanos.wrapping_add(other.nanos);
        self.took.merge(&other.took);
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut failed = self.failed;
        failed.iter_mut().zip(&earlier.failed).for_each(|(now, then)| *now = now.saturating_sub(*then));
        Self {
            started: self.started.saturating_sub(earlier.started),
            failed,
            nanos: self.nanos.wrapping_sub(earlier.nanos),
            took: self.took.since(&earlier.took),
        }
    }
}

/// The counts at the last times they were read, to compute what happened in between. No background task runs for it.
#[derive(Debug, Default)]
struct Window {
    older: Option<(Instant, Totals)>,
    newer: Option<(Instant, Totals)>,
}

/// The minimum time that "recent" covers: brpc's `bvar_dump_interval`.
pub(super) const RECENT_WINDOW: Duration = Duration::from_secs(10);

impl Window {
    fn recent_totals(&mut self, totals: &Totals, now: Instant) -> (Totals, Duration) {
        let is_old = |(then, _): &(Instant, Totals)| now.saturating_duration_since(*then) >= RECENT_WINDOW;
        if self.newer.as_ref().is_none_or(is_old) {
            self.older = self.newer.replace((now, totals.clone()));
        }
        match &self.older {
            Some((then, earlier)) => (totals.since(earlier), now.saturating_duration_since(*then)),
            None => (totals.clone(), RECENT_WINDOW),
        }
    }
}

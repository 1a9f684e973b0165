//! What is counted of one method, without a lock on the way of a call.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use polyrpc_core::{Code, Status};

use super::histogram::{Counts, Histogram};
use crate::layers::{CallStart, Side};

/// Of what calls are counted together.
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

/// All series there are: a table of a fixed size that is only added to, so that looking one up takes no lock, and whoever
/// makes names up cannot make it grow.
#[derive(Debug)]
pub(super) struct Table {
    slots: Box<[OnceLock<Series>]>,
    used: AtomicUsize,
    most: usize,
    /// Calls for which there was no room, by side.
    others: [Series; 2],
    hasher: foldhash::fast::RandomState,
}

/// Where a series stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum SeriesIndex {
    Slot(usize),
    Other(Side),
}

impl Table {
    /// A table with room for `most` series.
    pub(super) fn new(most: usize) -> Self {
        // A third of it stays empty, so that what is looked for is found soon.
        let slots = (most + most / 2 + 1).next_power_of_two();
        let other = |side| {
            let (service, method) = ("".into(), "other".into());
            Series::new(Key { side, service, method, protocol: "any" })
        };
        Self {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            most,
            others: [other(Side::Client), other(Side::Server)],
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Where the series of a call stands; it is made if need be.
    pub(super) fn find(&self, call: &CallStart<'_>) -> SeriesIndex {
        let mask = self.slots.len() - 1;
        let mut place = self.hash(call) & mask;
        // It ends, since there are always empty slots.
        while let Some(slot) = self.slots.get(place) {
            let known = match slot.get() {
                Some(known) => known,
                None if self.used.load(Ordering::Relaxed) >= self.most => break,
                None => slot.get_or_init(|| {
                    self.used.fetch_add(1, Ordering::Relaxed);
                    Series::new(Key::from_call(call))
                }),
            };
            if known.key.is_of(call) {
                return SeriesIndex::Slot(place);
            }
            place = (place + 1) & mask;
        }
        SeriesIndex::Other(call.side)
    }

    pub(super) fn at(&self, place: SeriesIndex) -> &Series {
        let known = match place {
            SeriesIndex::Slot(slot) => self.slots.get(slot).and_then(OnceLock::get),
            SeriesIndex::Other(_) => None,
        };
        let [client, server] = &self.others;
        known.unwrap_or(match place {
            SeriesIndex::Other(Side::Server) => server,
            SeriesIndex::Other(Side::Client) | SeriesIndex::Slot(_) => client,
        })
    }

    /// Every series on which there was a call, in the order of their names.
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

/// The calls of one method, by one protocol, seen from one side.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) key: Key,
    /// Counted apart by threads, which would otherwise wait for each other's caches; made when a thread first needs its own.
    lanes: Box<[OnceLock<Box<Lane>>]>,
    window: Mutex<Window>,
}

/// What some of the threads have counted.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    started: AtomicU64,
    failed: [AtomicU64; CODES],
    /// Of those that succeeded.
    nanos: AtomicU64,
    took: Histogram,
}

const CODES: usize = Code::ALL.len();

impl Lane {
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
    fn new(key: Key) -> Self {
        let lanes = (0..lanes()).map(|_| OnceLock::new()).collect();
        Self { key, lanes, window: Mutex::default() }
    }

    pub(super) fn record_start(&self) {
        self.lane(|lane| lane.started.fetch_add(1, Ordering::Relaxed));
    }

    pub(super) fn record_end(&self, took: Duration, failure: Option<&Status>) {
        self.lane(|lane| match failure {
            None => {
                let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                lane.nanos.fetch_add(nanos, Ordering::Relaxed);
                lane.took.record(took.as_secs_f64());
            }
            Some(status) => {
                let place = (status.code() as usize).wrapping_sub(1);
                if let Some(failed) = lane.failed.get(place) {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }

    /// What was counted so far.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        // First what has ended: calls that begin and end meanwhile cannot have ended more often than begun then.
        for lane in self.lanes.iter().filter_map(OnceLock::get) {
            totals.took.add(&lane.took);
            totals.nanos += lane.nanos.load(Ordering::Relaxed);
            for (sum, failed) in totals.failed.iter_mut().zip(&lane.failed) {
                *sum += failed.load(Ordering::Relaxed);
            }
        }
        let started = self.lanes.iter().filter_map(OnceLock::get);
        totals.started = started.map(|lane| lane.started.load(Ordering::Relaxed)).sum();
        totals
    }

    /// What was counted lately, and in how long.
    pub(super) fn recent(&self, totals: &Totals, now: Instant) -> (Totals, Duration) {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).recent(totals, now)
    }

    fn is_used(&self) -> bool {
        self.lanes.iter().any(|lane| lane.get().is_some())
    }

    fn lane<T>(&self, count: impl FnOnce(&Lane) -> T) {
        let lane = LANE.with(|lane| *lane) & (self.lanes.len() - 1);
        if let Some(lane) = self.lanes.get(lane) {
            count(lane.get_or_init(|| Box::new(Lane::new())));
        }
    }
}

thread_local! {
    /// The number of this thread, in the order in which they first counted.
    static LANE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// As many as threads can run at a time, up to a bound: a power of two.
fn lanes() -> usize {
    static LANES: OnceLock<usize> = OnceLock::new();
    *LANES.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.next_power_of_two().min(MOST_LANES)
    })
}

const MOST_LANES: usize = 16;

/// What was counted up to a time, or between two times.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) started: u64,
    /// In the order of [`Code::ALL`].
    pub(super) failed: [u64; CODES],
    pub(super) nanos: u64,
    pub(super) took: Counts,
}

impl Totals {
    pub(super) fn succeeded(&self) -> u64 {
        self.took.total()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded()).saturating_sub(self.failures())
    }

    /// How long those that succeeded took, on the average.
    pub(super) fn average(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.succeeded()).unwrap_or(0))
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.started += other.started;
        self.failed.iter_mut().zip(&other.failed).for_each(|(sum, more)| *sum += more);
        self.nanos = self.nanos.wrapping_add(other.nanos);
        self.took.merge(&other.took);
    }

    fn since(&self, earlier: &Self) -> Self {
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

/// How it stood at the last times somebody asked, so that he can be told what happened in between. Nothing runs beside
/// the calls for it.
#[derive(Debug, Default)]
struct Window {
    older: Option<(Instant, Totals)>,
    newer: Option<(Instant, Totals)>,
}

/// What counts as lately, at least: brpc's `bvar_dump_interval`.
pub(super) const LATELY: Duration = Duration::from_secs(10);

impl Window {
    fn recent(&mut self, totals: &Totals, now: Instant) -> (Totals, Duration) {
        let is_old = |(then, _): &(Instant, Totals)| now.saturating_duration_since(*then) >= LATELY;
        if self.newer.as_ref().is_none_or(is_old) {
            self.older = self.newer.replace((now, totals.clone()));
        }
        match &self.older {
            Some((then, earlier)) => (totals.since(earlier), now.saturating_duration_since(*then)),
            None => (totals.clone(), LATELY),
        }
    }
}

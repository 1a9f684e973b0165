use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use polyrpc::layers::{CallEnd, CallStart, CallTracer};
use polyrpc::propagation::{self, CallTrace, Trace, TraceParent};

use super::record::Record;
use super::settings::{RpczSettings, rpcz_settings};
use super::span::{Failure, Span};
use super::store::{Store, sort_latest_first};
use crate::tap::{self, Facts, TapCall};

/// Returns the collector of the process.
pub(crate) fn collector() -> &'static Arc<Collector> {
    static COLLECTOR: LazyLock<Arc<Collector>> = LazyLock::new(|| {
        Arc::new(Collector {
            settings: rpcz_settings(),
            consoles: AtomicUsize::new(0),
            interval: AtomicU32::new(1),
            chosen: AtomicU64::new(0),
            propagated: AtomicU64::new(0),
            notable: AtomicU64::new(0),
            second: Mutex::new(None),
            names: Mutex::default(),
            store: Mutex::default(),
        })
    });
    &COLLECTOR
}

/// Samples calls to record, and keeps their spans.
#[derive(Debug)]
pub(crate) struct Collector {
    settings: &'static RpczSettings,
    /// Number of consoles; without one, nothing is recorded.
    consoles: AtomicUsize,
    /// One of this many calls on a thread is sampled.
    interval: AtomicU32,
    /// Number of calls recorded in this second: sampled here, or part of a trace that other processes record.
    chosen: AtomicU64,
    propagated: AtomicU64,
    /// Number of kept calls that turned out to be slow or to fail.
    notable: AtomicU64,
    second: Mutex<Option<Instant>>,
    names: Mutex<MethodNames>,
    store: Mutex<Store>,
}

/// Maximum number of calls per second that are recorded because their callers record them.
const MAX_PROPAGATED_PER_SECOND: u64 = 4_000;

/// Maximum number of slow and failed calls per second that are kept without having been sampled.
const MAX_NOTABLE_PER_SECOND: u64 = 1_000;

/// Names of methods, which their spans share.
#[derive(Debug, Default)]
struct MethodNames {
    known: HashSet<Arc<str>>,
    /// How many of them are of undeclared methods.
    undeclared: usize,
}

/// Maximum number of names that are kept; methods are fewer, unless peers invent them.
const MAX_NAMES: usize = 10_000;

/// Maximum number of names of undeclared methods, which peers may invent, and maximum length of one in bytes.
const MAX_UNDECLARED_NAMES: usize = MAX_NAMES / 4;
const MAX_UNDECLARED_LEN: usize = 256;

/// Maximum number of calls between two that may be chosen: at a million calls a second, each thread looks a thousand
/// times.
const MAX_INTERVAL: u32 = 999;

thread_local! {
    /// How many calls of this thread pass until the next is chosen.
    static COUNTDOWN: Cell<u32> = const { Cell::new(0) };
}

/// Calls are recorded while this exists.
#[derive(Debug)]
pub(crate) struct CollectorGuard;

impl CollectorGuard {
    pub(crate) fn new() -> Self {
        collector().consoles.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for CollectorGuard {
    fn drop(&mut self) {
        collector().consoles.fetch_sub(1, Ordering::Relaxed);
    }
}

impl MethodNames {
    /// Returns the shared name of a method; `other` for one that is not kept.
    fn get(&mut self, name: String, is_declared: bool) -> Arc<str> {
        static OTHER: LazyLock<Arc<str>> = LazyLock::new(|| "other".into());
        if !is_declared && name.len() > MAX_UNDECLARED_LEN {
            return OTHER.clone();
        }
        if let Some(known) = self.known.get(&*name) {
            return known.clone();
        }
        let has_room = self.known.len() < MAX_NAMES;
        if !has_room || !is_declared && self.undeclared >= MAX_UNDECLARED_NAMES {
            return OTHER.clone();
        }
        self.undeclared += usize::from(!is_declared);
        let name: Arc<str> = name.into();
        self.known.insert(name.clone());
        name
    }
}

impl Collector {
    #[inline]
    fn is_on(&self) -> bool {
        self.consoles.load(Ordering::Relaxed) > 0 && self.settings.enabled.get()
    }

    /// Adapts to the number of calls; called about once a second.
    pub(crate) fn tick(&self, now: Instant) {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        // Several consoles call it.
        if second.is_some_and(|last| now.saturating_duration_since(last) < Duration::from_millis(700)) {
            return;
        }
        *second = Some(now);
        let wanted = self.settings.samples.get();
        let chosen = self.chosen.swap(0, Ordering::Relaxed);
        self.interval
            .store(next_interval(self.interval.load(Ordering::Relaxed), chosen, wanted), Ordering::Relaxed);
        self.propagated.store(0, Ordering::Relaxed);
        self.notable.store(0, Ordering::Relaxed);
        self.store().tick();
    }

    /// Returns every span, the latest first.
    pub(crate) fn spans(&self) -> Vec<Arc<Span>> {
        // Calls that end meanwhile wait for the lock: only the pointers are copied under it.
        let all = self.store().all();
        sort_latest_first(all)
    }

    /// Keeps a span that was recorded.
    fn add_span(&self, span: Span) {
        let is_notable = span.failure.is_some() || span.took >= self.settings.slow.get();
        self.store().add(span, is_notable);
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this call is sampled.
    fn should_sample(&self) -> bool {
        // A countdown that began in a second with more calls is shortened.
        let longest = self.interval.load(Ordering::Relaxed).saturating_sub(1).min(MAX_INTERVAL);
        COUNTDOWN.with(|left| match left.get().min(longest) {
            0 => self.try_sample(left, longest),
            more => {
                left.set(more - 1);
                false
            }
        })
    }

    /// Restarts the countdown. Returns whether the limit of this second still allows to sample the call.
    #[cold]
    fn try_sample(&self, left: &Cell<u32>, longest: u32) -> bool {
        let max = 2 * self.settings.samples.get();
        if max == 0 {
            // Calls are sampled from the moment on that the setting is changed.
            left.set(0);
            return false;
        }
        left.set(longest);
        self.chosen.fetch_add(1, Ordering::Relaxed) < max
    }

    #[cold]
    fn record(&self, call: &CallStart<'_>) -> Arc<dyn CallTrace> {
        let scope = propagation::current();
        let current = scope.trace();
        let parent = current.and_then(|trace| trace.parent);
        let own = parent.map_or_else(|| TraceParent::root(false), TraceParent::child);
        let trace = current.map_or_else(|| Trace::new(own), |trace| trace.with_parent(own)).recorded();
        let span = self.span(call, own, parent);
        Arc::new(Record::new(trace, span, |span| {
            if tap::is_open() {
                offer_span(&span);
            }
            collector().add_span(span);
        }))
    }

    /// Returns a span with the facts known at its start.
    fn span(&self, call: &CallStart<'_>, own: TraceParent, parent: Option<TraceParent>) -> Span {
        let log_id = call.metadata.and_then(|metadata| metadata.get("log-id")).and_then(|id| id.parse().ok());
        let now = Instant::now();
        Span {
            trace: own.trace_id(),
            id: own.span_id(),
            parent: parent.map(|parent| parent.span_id()),
            side: call.side,
            protocol: call.protocol.as_str(),
            name: self.name(call),
            peer: call.peer.map_or_else(Box::default, |peer| peer.to_string().into()),
            log_id: log_id.unwrap_or(0),
            began: SystemTime::now(),
            queued: call.arrived.map(|arrived| now.saturating_duration_since(arrived)),
            took: Duration::ZERO,
            request: call.request_bytes,
            reply: 0,
            failure: None,
            events: Vec::new(),
        }
    }

    /// Returns the name of a method, which its spans share.
    fn name(&self, call: &CallStart<'_>) -> Arc<str> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).get(call.full_name(), call.declared)
    }

    #[cold]
    fn keep(&self, call: &CallStart<'_>, end: &CallEnd<'_>) {
        if self.notable.fetch_add(1, Ordering::Relaxed) >= MAX_NOTABLE_PER_SECOND {
            return;
        }
        let current = propagation::current();
        let parent = current.trace().and_then(|trace| trace.parent);
        let own = parent.map_or_else(|| TraceParent::root(false), TraceParent::child);
        let CallEnd { duration: took, failure, reply_bytes: reply, .. } = *end;
        let span = self.span(call, own, parent);
        // It began before the time that a span has at its start.
        let began = span.began.checked_sub(took).unwrap_or(span.began);
        let queued = span.queued.map(|since| since.saturating_sub(took));
        let failure = failure.map(Failure::from_status);
        self.add_span(Span { began, queued, took, reply, failure, ..span });
    }
}

impl CallTracer for Collector {
    fn start(&self, call: &CallStart<'_>) -> Option<Arc<dyn CallTrace>> {
        if !self.is_on() {
            return None;
        }
        let is_followed = propagation::is_recorded()
            && self.propagated.fetch_add(1, Ordering::Relaxed) < MAX_PROPAGATED_PER_SECOND;
        (is_followed || self.should_sample()).then(|| self.record(call))
    }

    fn end_unrecorded(&self, call: &CallStart<'_>, end: &CallEnd<'_>) {
        if tap::is_open() {
            offer(call, end);
        }
        if (end.failure.is_some() || end.duration >= self.settings.slow.get()) && self.is_on() {
            self.keep(call, end);
        }
    }
}

/// Offers a call that was recorded to the taps.
#[cold]
fn offer_span(span: &Span) {
    let facts = Facts {
        side: span.side,
        protocol: span.protocol,
        took: span.took,
        failure: span.failure.as_ref().map(|failure| (failure.code, failure.number)),
        sizes: (span.request, span.reply),
    };
    tap::offer(&facts, || TapCall {
        facts,
        name: (&*span.name).into(),
        peer: span.peer.clone(),
        ended: span.end(),
        message: span.failure.as_ref().map_or_else(Box::default, |failure| failure.message.clone()),
    });
}

/// Offers a call that was not recorded to the taps.
#[cold]
fn offer(call: &CallStart<'_>, end: &CallEnd<'_>) {
    let facts = Facts {
        side: call.side,
        protocol: call.protocol.as_str(),
        took: end.duration,
        failure: end.failure.map(|status| (status.code(), status.number())),
        sizes: (call.request_bytes, end.reply_bytes),
    };
    tap::offer(&facts, || TapCall {
        facts,
        name: call.full_name().into(),
        peer: call.peer.map_or_else(Box::default, |peer| peer.to_string().into()),
        ended: SystemTime::now(),
        message: end.failure.map_or_else(Box::default, |status| Failure::from_status(status).message),
    });
}

/// Returns the sampling interval in calls, after a second in which this many were recorded.
fn next_interval(interval: u32, chosen: u64, wanted: u64) -> u32 {
    // If no samples are wanted, the calls sampled before that say nothing about the interval.
    let calls = if wanted == 0 { 0 } else { u64::from(interval).saturating_mul(chosen) };
    let fitting = u32::try_from(calls.div_ceil(wanted.max(1))).unwrap_or(u32::MAX);
    // It falls slowly, so that a pause is not followed by a flood.
    fitting.max(interval / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAMES, MAX_UNDECLARED_NAMES, MethodNames, next_interval};

    #[test]
    fn invented_names_are_short_and_leave_room_for_declared_ones() {
        let mut names = MethodNames::default();
        let mut get = |name: &str, is_declared| names.get(name.to_owned(), is_declared);
        let long = "x".repeat(257);
        assert_eq!(&*get(&long, false), "other");
        assert_eq!(&*get(&long, true), long);
        for n in 0..MAX_NAMES {
            let name = get(&n.to_string(), false);
            assert_eq!(&*name == "other", n >= MAX_UNDECLARED_NAMES, "{n}");
        }
        assert_eq!(&*get("declared", true), "declared");
    }

    #[test]
    fn rate_approaches_what_is_wanted() {
        for calls in [10_u64, 1_000, 50_000, 2_000_000] {
            let mut interval = 1;
            let mut chosen = 0;
            for _ in 0..20 {
                chosen = (calls / u64::from(interval)).min(2_000);
                interval = next_interval(interval, chosen, 1_000);
            }
            assert!(chosen <= 1_000 && chosen * 2 >= calls.min(1_000), "{calls}: {chosen}");
        }
        assert_eq!(next_interval(1_000, 0, 1_000), 250);
    }

    #[test]
    fn sampling_that_is_turned_off_lengthens_no_interval() {
        assert_eq!(next_interval(1, 6, 0), 1);
        assert_eq!(next_interval(100, 6, 0), 25);
    }
}

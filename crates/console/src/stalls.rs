//! Handlers that block the thread of their connection: a poll that does not return in time is counted for its method.
//!
//! A thread that polls a handler sets a mark, which costs a few stores and reads no clock. A watchdog checks the marks,
//! and counts a poll that it still finds after the limit.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use polyrpc::layers::{Metrics, RunningCall, RunningPoll, current_polls};

use crate::settings::Setting;
use crate::vars::{Counter, Family};

/// The stalls of a console's process so far.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The running polls, and when each was first observed.
    seen: HashMap<RunningPoll, SeenPoll>,
    methods: BTreeMap<String, StallCounts>,
}

#[derive(Debug)]
struct SeenPoll {
    since: Instant,
    /// The method, once it is counted.
    method: Option<String>,
}

/// Counts of the stalls of a method.
#[derive(Debug, Clone)]
pub(crate) struct StallCounts {
    pub(crate) count: u64,
    pub(crate) longest: Duration,
    pub(crate) last: SystemTime,
    /// The thread of the last one.
    pub(crate) thread: String,
}

/// Maximum number of methods.
const MAX_METHODS: usize = 1_000;

/// Returns the duration from which a poll counts as a stall; zero turns the check off.
fn threshold() -> Duration {
    static THRESHOLD: LazyLock<Setting<Duration>> = LazyLock::new(|| {
        Setting::define(
            "stall_second",
            Duration::from_millis(20),
            "Time after which a handler that blocks the thread of its connection is counted; 0 for never",
        )
        .validate(|&bound| bound.is_zero() || (MIN_STALL..=MAX_STALL).contains(&bound))
        .register()
    });
    THRESHOLD.get()
}

const MIN_STALL: Duration = Duration::from_millis(2);
const MAX_STALL: Duration = Duration::from_secs(60);

/// The counter of `/vars`.
fn counter() -> &'static Family<Counter, 1> {
    static COUNTER: LazyLock<Family<Counter, 1>> = LazyLock::new(|| Family::new("rpc_stalls", ["method"]));
    &COUNTER
}

impl Stalls {
    /// Checks the running polls. Returns the time until the next check.
    pub(crate) fn check(&self, now: Instant, metrics: impl FnOnce() -> Vec<Metrics>) -> Duration {
        let threshold = threshold();
        let mut state = self.state();
        let State { seen, methods } = &mut *state;
        if threshold.is_zero() {
            seen.clear();
            return Duration::from_secs(1);
        }
        let current = current_polls();
        seen.retain(|poll, _| current.contains(poll));
        for poll in &current {
            seen.entry(*poll).or_insert(SeenPoll { since: now, method: None });
        }
        let is_late = |seen: &SeenPoll| now.saturating_duration_since(seen.since) >= threshold;
        if seen.values().any(is_late) {
            let metrics = metrics();
            for (poll, seen) in seen.iter_mut().filter(|(_, seen)| is_late(seen)) {
                record_stall(methods, poll, seen, now, &metrics);
            }
        }
        (threshold / 2).min(Duration::from_secs(1))
    }

    /// Returns the stalls of each method.
    pub(crate) fn methods(&self) -> BTreeMap<String, StallCounts> {
        self.state().methods.clone()
    }

    /// Returns when a poll was first observed.
    pub(crate) fn first_seen(&self, poll: &RunningPoll) -> Option<Instant> {
        Some(self.state().seen.get(poll)?.since)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records a late poll: it is counted once, and its duration grows.
fn record_stall(
    methods: &mut BTreeMap<String, StallCounts>,
    poll: &RunningPoll,
    seen: &mut SeenPoll,
    now: Instant,
    metrics: &[Metrics],
) {
    let is_new = seen.method.is_none();
    if is_new {
        let call = metrics.iter().find_map(|metrics| metrics.call_of_poll(poll));
        let name = call.as_ref().map_or_else(|| "other".to_owned(), name);
        let known = methods.contains_key(&name) || methods.len() < MAX_METHODS;
        seen.method = Some(if known { name } else { "other".to_owned() });
    }
    let Some(method) = &seen.method else { return };
    let stalled = methods.entry(method.clone()).or_insert_with(|| StallCounts {
        count: 0,
        longest: Duration::ZERO,
        last: SystemTime::now(),
        thread: String::new(),
    });
    stalled.longest = stalled.longest.max(now.saturating_duration_since(seen.since));
    if is_new {
        stalled.count += 1;
        stalled.last = SystemTime::now();
        stalled.thread = poll.thread_name();
        counter().with([method]).add(1);
        if stalled.count.is_power_of_two() {
            let (thread, count) = (stalled.thread.as_str(), stalled.count);
            tracing::warn!(method, thread, count, "a handler blocks the thread of its connection");
        }
    }
}

/// Returns the service and the method of a call.
pub(crate) fn name(call: &RunningCall) -> String {
    match call.service.as_str() {
        "" => call.method.clone(),
        service => format!("{service}/{}", call.method),
    }
}

//! A caller per combination, and the outcomes of its calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::{Caller, Combination};

/// Pause between the calls of a combination.
const PAUSE: Duration = Duration::from_millis(50);
/// Interval of the timer that measures how late timers are.
const TIMER: Duration = Duration::from_millis(5);

/// Outcomes of the calls.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) calls: usize,
    pub(super) failed: usize,
    /// The first failure.
    pub(super) failure: Option<String>,
    pub(super) median: Duration,
    /// By how much the latest call exceeded its deadline, and its combination.
    pub(super) late: Duration,
    pub(super) latest: String,
    /// By how much timers of this process are late on this machine.
    pub(super) timers_late: Duration,
    /// The combination that was waited for last.
    pub(super) last_to_answer: String,
}

#[derive(Debug, Default)]
struct Record {
    latencies: Vec<Duration>,
    outcomes: Outcomes,
    /// Answered calls of each combination that began after the last reset.
    answered: BTreeMap<String, usize>,
    reset: Option<Instant>,
}

/// Callers of all combinations, until they are stopped.
pub(super) struct Callers {
    record: Arc<Mutex<Record>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Callers {
    pub(super) fn start(clients: &[(Combination, Caller)], deadline: Duration) -> Self {
        let (record, stop) = (Arc::<Mutex<Record>>::default(), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for (combination, caller) in clients {
            lock(&record).answered.insert(combination.name(), 0);
            tasks.spawn(call(combination.name(), caller.clone(), deadline, record.clone(), stop.clone()));
        }
        tasks.spawn(measure_timers(record.clone(), stop.clone()));
        Self { record, stop, tasks }
    }

    /// Waits until every combination has answered a call that began after this one; `None` if that takes longer than
    /// `max`.
    pub(super) async fn wait_for_every_way(&mut self, max: Duration) -> Option<()> {
        let begun = Instant::now();
        {
            let mut record = lock(&self.record);
            record.reset = Some(begun);
            record.answered.values_mut().for_each(|answered| *answered = 0);
        }
        while begun.elapsed() < max {
            sleep(Duration::from_millis(5)).await;
            let mut record = lock(&self.record);
            let missing = record.answered.iter().find(|(_, answered)| **answered == 0);
            match missing.map(|(combination, _)| combination.clone()) {
                None => return Some(()),
                Some(combination) => record.outcomes.last_to_answer = combination,
            }
        }
        None
    }

    /// Stops, waits for the calls in flight, and returns all outcomes.
    pub(super) async fn stop(mut self) -> Outcomes {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no caller panics");
        }
        let mut record = std::mem::take(&mut *lock(&self.record));
        record.latencies.sort_unstable();
        let median = record.latencies.get(record.latencies.len() / 2).copied();
        Outcomes { median: median.unwrap_or_default(), ..record.outcomes }
    }
}

/// Ids of calls: no two are the same.
static NEXT: AtomicU64 = AtomicU64::new(1);

async fn call(
    combination: String,
    caller: Caller,
    deadline: Duration,
    record: Arc<Mutex<Record>>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let ended = caller.call_once(NEXT.fetch_add(1, Ordering::Relaxed)).await;
        lock(&record).record_end(&combination, begun, deadline, ended);
        sleep(PAUSE).await;
    }
}

impl Record {
    fn record_end(
        &mut self,
        combination: &str,
        begun: Instant,
        deadline: Duration,
        ended: Result<(), String>,
    ) {
        let took = begun.elapsed();
        let late = took.saturating_sub(deadline);
        if late > self.outcomes.late {
            (self.outcomes.late, self.outcomes.latest) = (late, combination.to_owned());
        }
        self.outcomes.calls += 1;
        match ended {
            Ok(()) => {
                self.latencies.push(took);
                if self.reset.is_none_or(|reset| begun >= reset) {
                    *self.answered.entry(combination.to_owned()).or_default() += 1;
                }
            }
            Err(error) => {
                self.outcomes.failed += 1;
                self.outcomes.failure.get_or_insert_with(|| format!("{combination}: {error}"));
            }
        }
    }
}

/// A busy machine delays the end of every call: that is not the client's fault.
async fn measure_timers(record: Arc<Mutex<Record>>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        sleep(TIMER).await;
        let late = begun.elapsed().saturating_sub(TIMER);
        let mut record = lock(&record);
        record.outcomes.timers_late = record.outcomes.timers_late.max(late);
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

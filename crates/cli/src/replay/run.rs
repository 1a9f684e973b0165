//! Sends the calls when they are due, whether or not earlier ones were answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyrpc::payload::schema::Message;
use polyrpc_record::Call;
use polyrpc_record::call::Outcome as RecordedOutcome;
use polyrpc_record::compare::Rules;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::options::Options;
use super::plan::Plan;
use super::report::Outcome;
use super::target::{Target, schemas};
use crate::failure::Failure;
use crate::recording::answer::Answer;

/// What the tasks of a replay share.
struct Shared {
    target: Target,
    rules: Rules,
    compares: bool,
    outputs: HashMap<String, Message>,
    results: Mutex<Outcome>,
    stopped: AtomicBool,
    stop: Notify,
    limits: Limits,
    permits: Semaphore,
}

struct Limits {
    failures: Option<u64>,
    p99: Option<Duration>,
}

/// Sends every call, unless the replay is stopped before.
///
/// # Errors
///
/// If a rule is invalid.
pub(super) async fn run(options: &Options, plan: &Plan, target: Target) -> Result<Outcome, Failure> {
    let in_flight = options.in_flight.unwrap_or(if options.max { 64 } else { 10_000 }).max(1);
    let schemas = schemas(options, plan)?;
    let mut outputs = HashMap::new();
    for call in &plan.calls {
        let name = call.full_name();
        if !outputs.contains_key(&name)
            && let Some(types) = schemas.method(&name, false).proto
        {
            outputs.insert(name, types.output);
        }
    }
    let shared = Arc::new(Shared {
        target,
        rules: options.rules.rules()?,
        compares: !options.no_compare,
        outputs,
        results: Mutex::new(Outcome::new(plan)),
        stopped: AtomicBool::new(false),
        stop: Notify::new(),
        limits: Limits { failures: options.stop_failures, p99: options.stop_p99 },
        permits: Semaphore::new(in_flight),
    });
    let start = Instant::now();
    let sending = async {
        match options.ordered {
            true => replay_by_connection(&shared, plan, start).await,
            false => replay_by_time(&shared, plan, start, options.max).await,
        }
    };
    let limit = async {
        match options.stop_after {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = sending => {}
        () = limit => shared.stop("the time is over"),
        () = shared.stop.notified() => {}
    }
    let mut results = shared.results.lock().unwrap_or_else(PoisonError::into_inner);
    results.lasted = start.elapsed();
    Ok(results.clone())
}

async fn replay_by_time(shared: &Arc<Shared>, plan: &Plan, start: Instant, max: bool) {
    let mut calls = JoinSet::new();
    for (call, due) in plan.calls.iter().zip(&plan.due) {
        let due = start + *due;
        tokio::time::sleep_until(due).await;
        let Ok(permit) = shared.permits.acquire().await else { return };
        permit.forget();
        // Without a plan a call is due when there is room for it.
        let due = if max { Instant::now() } else { due };
        let (shared, call) = (shared.clone(), call.clone());
        calls.spawn(async move {
            shared.call(&call, due).await;
            shared.permits.add_permits(1);
        });
        while calls.try_join_next().is_some() {}
    }
    while calls.join_next().await.is_some() {}
}

async fn replay_by_connection(shared: &Arc<Shared>, plan: &Plan, start: Instant) {
    let mut connections: BTreeMap<u64, Vec<(Call, Duration)>> = BTreeMap::new();
    for (call, due) in plan.calls.iter().zip(&plan.due) {
        connections.entry(call.connection).or_default().push((call.clone(), *due));
    }
    let mut tasks = JoinSet::new();
    for calls in connections.into_values() {
        let shared = shared.clone();
        tasks.spawn(async move {
            for (call, due) in calls {
                tokio::time::sleep_until(start + due).await;
                let Ok(_permit) = shared.permits.acquire().await else { return };
                shared.call(&call, start + due).await;
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

impl Shared {
    async fn call(&self, call: &Call, due: Instant) {
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let answer = self.target.send(call).await;
        let latency = due.elapsed();
        let name = call.full_name();
        let found = match (&call.outcome, self.compares) {
            (Some(recorded), true) if !call.oneway => {
                let declared = self.outputs.get(&name);
                let recorded = Answer::from_outcome(recorded, declared);
                Some(recorded.differences(&self.rules, &Answer::from_response(&answer, declared)))
            }
            _ => None,
        };
        let expected =
            call.outcome.as_ref().is_some_and(|recorded: &RecordedOutcome| recorded.failure.is_some());
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.add(&name, latency, answer.as_ref().err(), found);
        results.unexpected += u64::from(answer.is_err() && !expected);
        let failures = results.unexpected;
        let p99 = self
            .limits
            .p99
            .filter(|_| results.sent.is_multiple_of(100))
            .map(|most| (most, results.quantile(0.99)));
        drop(results);
        if self.limits.failures.is_some_and(|most| failures >= most) {
            self.stop("too many calls failed");
        }
        if p99.is_some_and(|(most, p99)| p99 > most) {
            self.stop("the 99th percentile of the latency is above the limit");
        }
    }

    fn stop(&self, reason: &'static str) {
        if !self.stopped.swap(true, Ordering::Relaxed) {
            self.results.lock().unwrap_or_else(PoisonError::into_inner).stopped = Some(reason);
        }
        self.stop.notify_one();
    }
}

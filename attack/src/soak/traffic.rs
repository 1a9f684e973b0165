//! The good clients: calls over every combination at a constant rate, and new clients with a call each. Every failure counts.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::instances;
use super::latencies::Latencies;
use super::misbehaviour::Rng;
use super::registry::FlappingRegistry;
use crate::cluster::{Addresses, Caller, Combination, combinations};

/// Interval between calls of a combination.
const PERIOD: Duration = Duration::from_millis(200);
/// Interval between new clients, of all combinations in turn.
const CHURN: Duration = Duration::from_millis(10);
/// Deadline of a call, retries included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// New clients at a time; more are not created until some have ended.
const MAX_NEW: usize = 64;

/// Calls of one combination.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Calls {
    pub(crate) made: u64,
    pub(crate) failed: u64,
    pub(crate) slowest_ms: f64,
    pub(crate) p99_ms: f64,
    #[serde(skip)]
    pub(super) latencies: Latencies,
}

/// A call that failed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) at_s: f64,
    pub(crate) combination: String,
    pub(crate) error: String,
}

/// All calls of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Ledger {
    pub(crate) combinations: BTreeMap<String, Calls>,
    pub(crate) failed: u64,
    /// The first failures.
    pub(crate) failures: Vec<Failure>,
    /// Clients that were created for one call.
    pub(crate) clients: u64,
}

/// Failures that are kept with their text.
const MAX_FAILURES: usize = 100;

/// The good clients, until they are stopped.
pub(crate) struct Traffic {
    ledger: Arc<Mutex<Ledger>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Traffic {
    /// Starts calling.
    ///
    /// # Errors
    ///
    /// If a client cannot be built.
    pub(crate) fn start(addresses: &[Addresses], authority: &str, seed: u64) -> io::Result<Self> {
        let record = Record { ledger: Arc::default(), begun: Instant::now() };
        let stop = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        let mut rng = Rng::new(seed);
        for (n, combination) in combinations().into_iter().enumerate() {
            let registry = FlappingRegistry::new(instances(addresses, combination), rng.next());
            let caller = combination
                .caller(combination.builder(registry, authority), TIMEOUT)
                .map_err(io::Error::other)?;
            // Not all at the same time.
            let delay = PERIOD * n as u32 / combinations().len() as u32;
            tasks.spawn(call_steadily(
                combination,
                caller,
                delay,
                rng.next(),
                record.clone(),
                stop.subscribe(),
            ));
        }
        let (addresses, authority) = (addresses.to_owned(), authority.to_owned());
        tasks.spawn(create_clients(addresses, authority, rng.next(), record.clone(), stop.subscribe()));
        Ok(Self { ledger: record.ledger, stop, tasks })
    }

    /// Stops calling, waits for the last answers, and returns all calls.
    pub(crate) async fn stop(&mut self) -> Ledger {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        let mut ledger = lock(&self.ledger).clone();
        for calls in ledger.combinations.values_mut() {
            calls.p99_ms = calls.latencies.p99_ms();
        }
        ledger
    }
}

#[derive(Clone)]
struct Record {
    ledger: Arc<Mutex<Ledger>>,
    begun: Instant,
}

impl Record {
    fn record_end(&self, combination: Combination, began: Instant, ended: Result<(), String>) {
        let took = began.elapsed();
        let mut ledger = lock(&self.ledger);
        let name = combination.name();
        let calls = ledger.combinations.entry(name.clone()).or_default();
        calls.made += 1;
        calls.latencies.add(took);
        calls.slowest_ms = calls.slowest_ms.max(took.as_secs_f64() * 1e3);
        if let Err(error) = ended {
            calls.failed += 1;
            ledger.failed += 1;
            if ledger.failures.len() < MAX_FAILURES {
                let at_s = self.begun.elapsed().as_secs_f64();
                ledger.failures.push(Failure { at_s, combination: name, error });
            }
        }
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call each period; most are small, some of a hundred kilobytes.
async fn call_steadily(
    combination: Combination,
    caller: Caller,
    delay: Duration,
    seed: u64,
    record: Record,
    mut stop: watch::Receiver<bool>,
) {
    tokio::time::sleep(delay).await;
    let mut rng = Rng::new(seed);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stop.borrow() {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.changed() => break,
        }
        // fb_rpc has no empty messages.
        let length = if rng.below(50) == 0 { 100_000 } else { 1 + rng.below(200) as usize };
        let began = Instant::now();
        let ended = caller.echo(&"x".repeat(length)).await;
        record.record_end(combination, began, ended);
    }
}

/// A new client for each call, with connections of its own.
async fn create_clients(
    addresses: Vec<Addresses>,
    authority: String,
    seed: u64,
    record: Record,
    mut stop: watch::Receiver<bool>,
) {
    let mut rng = Rng::new(seed);
    let mut ticks = interval(CHURN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut calls = JoinSet::new();
    for combination in combinations().into_iter().cycle() {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stop.changed() => break,
        }
        while calls.len() >= MAX_NEW {
            calls.join_next().await;
        }
        while calls.try_join_next().is_some() {}
        let registry = FlappingRegistry::new(instances(&addresses, combination), rng.next());
        let caller = combination.caller(combination.builder(registry, &authority), TIMEOUT);
        lock(&record.ledger).clients += 1;
        let record = record.clone();
        calls.spawn(async move {
            let began = Instant::now();
            let ended = match caller {
                Ok(caller) => caller.echo("from a new client").await,
                Err(error) => Err(error.to_string()),
            };
            record.record_end(combination, began, ended);
        });
    }
    while calls.join_next().await.is_some() {}
}

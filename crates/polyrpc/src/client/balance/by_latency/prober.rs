use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::{LatencyPicker, Probe, weight};
use crate::client::balance::Candidate;
use crate::discovery::Instance;

/// What the task that probes and the sets of servers have in common.
pub(super) struct LatencyProber {
    probe: Box<dyn Probe>,
    interval: Duration,
    current: Mutex<ProbedSet>,
    changed: Notify,
}

/// The set that calls are made to.
#[derive(Default)]
struct ProbedSet {
    candidates: Vec<Candidate>,
    measured: Box<[Arc<ServerLatency>]>,
    turns: Weak<LatencyPicker>,
}

/// What is known of one server.
#[derive(Default)]
pub(super) struct ServerLatency(Mutex<Option<Measurement>>);

#[derive(Clone, Copy)]
struct Measurement {
    weight: u32,
    at: Instant,
}

impl ServerLatency {
    /// What the server weighs, if that is known.
    pub(super) fn weight(&self) -> Option<u32> {
        self.last().map(|last| last.weight)
    }

    fn last(&self) -> Option<Measurement> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, measurement: Measurement) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(measurement);
    }
}

impl LatencyProber {
    pub(super) fn new(probe: Box<dyn Probe>, interval: Duration) -> Self {
        Self { probe, interval, current: Mutex::default(), changed: Notify::new() }
    }

    /// Measures these servers from now on, for these turns.
    pub(super) fn go_on_with(
        &self,
        candidates: &[Candidate],
        measured: Box<[Arc<ServerLatency>]>,
        turns: &Arc<LatencyPicker>,
    ) {
        let turns = Arc::downgrade(turns);
        let current = ProbedSet { candidates: candidates.to_vec(), measured, turns };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
        self.changed.notify_one();
    }

    /// Measures whatever is due, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let due = self.due();
            if due.is_empty() {
                self.wait().await;
            } else {
                join_all(due.iter().map(|(candidate, measured)| self.measure(candidate, measured))).await;
                self.follow();
            }
        }
    }

    /// Some servers that were never measured, or not for long.
    fn due(&self) -> Vec<(Candidate, Arc<ServerLatency>)> {
        let now = Instant::now();
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due =
            |measured: &ServerLatency| measured.last().is_none_or(|last| last.at + self.interval <= now);
        let servers = current.candidates.iter().zip(&current.measured);
        let due = servers.filter(|(_, measured)| is_due(measured)).take(AT_A_TIME);
        due.map(|(candidate, measured)| (candidate.clone(), measured.clone())).collect()
    }

    /// Waits until a server is due, or others are there.
    async fn wait(&self) {
        let due = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let lasts = current.measured.iter().filter_map(|measured| measured.last());
            lasts.map(|last| last.at + self.interval).min()
        };
        let changed = self.changed.notified();
        match due {
            Some(due) => tokio::select! {
                () = sleep_until(due) => {}
                () = changed => {}
            },
            None => changed.await,
        }
    }

    async fn measure(&self, candidate: &Candidate, measured: &ServerLatency) {
        let latency = self.mean(candidate.instance()).await;
        measured.set(Measurement { weight: weight(latency), at: Instant::now() });
    }

    /// The mean of what three probes measure, of those that succeed in time.
    async fn mean(&self, instance: &Instance) -> Option<Duration> {
        let (mut sum, mut count) = (Duration::ZERO, 0);
        let probes = async {
            for _ in 0..PROBES {
                if let Some(latency) = self.probe.measure(instance).await {
                    sum = sum.saturating_add(latency);
                    count += 1;
                }
            }
        };
        // What has been measured until then counts.
        let _ = timeout(IN_TIME, probes).await;
        sum.checked_div(count)
    }

    /// Lets the turns follow what has been measured.
    fn follow(&self) {
        let (turns, measured) = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            (current.turns.clone(), current.measured.clone())
        };
        if let Some(turns) = turns.upgrade() {
            turns.follow(&measured);
        }
    }
}

/// As rpcx does (`client/ping_utils.go`).
const PROBES: u32 = 3;
const IN_TIME: Duration = Duration::from_secs(3);

/// How many servers are probed at a time.
const AT_A_TIME: usize = 64;

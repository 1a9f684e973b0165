use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::{LatencyPicker, Probe, weight};
use crate::client::balance::Candidate;
use crate::discovery::Instance;

/// State shared by the probing task and the pickers.
pub(super) struct LatencyProber {
    probe: Box<dyn Probe>,
    interval: Duration,
    current: Mutex<ProbedSet>,
    changed: Notify,
}

/// Set of servers that calls currently go to.
#[derive(Default)]
struct ProbedSet {
    candidates: Vec<Candidate>,
    measured: Box<[Arc<ServerLatency>]>,
    picker: Weak<LatencyPicker>,
}

/// Measurements of one server.
#[derive(Default)]
pub(super) struct ServerLatency(Mutex<Option<Measurement>>);

#[derive(Clone, Copy)]
struct Measurement {
    weight: u32,
    at: Instant,
}

impl ServerLatency {
    /// Returns the server's weight if it has been measured.
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

    /// Probes these servers from now on, instead of the previous ones, and updates this picker with their latencies.
    pub(super) fn set_probed_servers(
        &self,
        candidates: &[Candidate],
        measured: Box<[Arc<ServerLatency>]>,
        picker: &Arc<LatencyPicker>,
    ) {
        let picker = Arc::downgrade(picker);
        let current = ProbedSet { candidates: candidates.to_vec(), measured, picker };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
        self.changed.notify_one();
    }

    /// Runs the probing loop; never returns.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let due = self.due();
            if due.is_empty() {
                self.wait().await;
            } else {
                join_all(due.iter().map(|(candidate, measured)| self.measure(candidate, measured))).await;
                self.update_picker();
            }
        }
    }

    /// Returns some servers that were never measured or whose measurement is too old.
    fn due(&self) -> Vec<(Candidate, Arc<ServerLatency>)> {
        let now = Instant::now();
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due =
            |measured: &ServerLatency| measured.last().is_none_or(|last| last.at + self.interval <= now);
        let servers = current.candidates.iter().zip(&current.measured);
        let due = servers.filter(|(_, measured)| is_due(measured)).take(MAX_CONCURRENT_PROBES);
        due.map(|(candidate, measured)| (candidate.clone(), measured.clone())).collect()
    }

    /// Waits until a server is due or the set of servers changes.
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

    /// Returns the mean of the probes that succeed in time, out of three.
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
        // On timeout, the probes that are done still count.
        let _ = timeout(PROBE_TIMEOUT, probes).await;
        sum.checked_div(count)
    }

    /// Updates the picker with the measured latencies.
    fn update_picker(&self) {
        let (picker, measured) = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            (current.picker.clone(), current.measured.clone())
        };
        if let Some(picker) = picker.upgrade() {
            picker.rebuild_if_changed(&measured);
        }
    }
}

/// As in rpcx (`client/ping_utils.go`).
const PROBES: u32 = 3;
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Number of servers that are probed concurrently.
const MAX_CONCURRENT_PROBES: usize = 64;

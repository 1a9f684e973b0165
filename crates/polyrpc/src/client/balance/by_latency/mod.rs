mod probe;
mod prober;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub(super) use self::probe::{CustomProbe, Probe, TcpConnectProbe};

use self::prober::{LatencyProber, ServerLatency};
use super::candidate_state::CandidateState;
use super::picker_cache::PickerCache;
use super::smooth::SmoothPicker;
use super::weights::Weights;
use super::{Candidate, LoadBalancer, PickContext, Picker};

/// See [`Policy::by_latency`](super::Policy::by_latency).
pub(crate) struct ByLatency {
    prober: Arc<LatencyProber>,
    state: CandidateState<ServerLatency>,
    last: PickerCache<LatencyPicker>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ByLatency {
    /// Measures by connecting, each server every 30 s.
    pub(crate) fn new() -> Self {
        Self::with_probe(TcpConnectProbe, Duration::from_secs(30))
    }

    /// Measures with this probe, each server at this interval, which is at least one second.
    pub(crate) fn with_probe(probe: impl Probe, interval: Duration) -> Self {
        let prober = LatencyProber::new(Box::new(probe), interval.max(Duration::from_secs(1)));
        Self {
            prober: Arc::new(prober),
            state: CandidateState::default(),
            last: PickerCache::default(),
            task: Mutex::default(),
        }
    }

    /// Starts the probing task, unless it runs already or there is no runtime.
    fn start_probing(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = Handle::try_current()
        {
            *task = Some(runtime.spawn(self.prober.clone().run()));
        }
    }
}

impl Default for ByLatency {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ByLatency {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl fmt::Debug for ByLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByLatency").field("state", &self.state).finish_non_exhaustive()
    }
}

impl LoadBalancer for ByLatency {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let measured = self.state.get_or_insert(candidates, |_| ServerLatency::default());
        let picker = self.last.get_or_build(candidates, |_| true, || LatencyPicker::new(&measured));
        picker.rebuild_if_changed(&measured);
        self.prober.set_probed_servers(candidates, measured, &picker);
        self.start_probing();
        Box::new(picker)
    }
}

/// Picker for the servers of one set; rebuilt when latencies have changed.
struct LatencyPicker(RwLock<CachedPicker>);

struct CachedPicker {
    weights: Vec<u32>,
    picker: SmoothPicker,
}

impl LatencyPicker {
    fn new(measured: &[Arc<ServerLatency>]) -> Self {
        Self(RwLock::new(CachedPicker::new(weights(measured))))
    }

    /// Rebuilds the picker if the measured weights have changed.
    fn rebuild_if_changed(&self, measured: &[Arc<ServerLatency>]) {
        let weights = weights(measured);
        let is_same = self.0.read().unwrap_or_else(PoisonError::into_inner).weights == weights;
        if !is_same {
            let made = CachedPicker::new(weights);
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = made;
        }
    }
}

impl CachedPicker {
    fn new(weights: Vec<u32>) -> Self {
        Self { picker: SmoothPicker::new(Weights::new(weights.iter().copied())), weights }
    }
}

impl Picker for LatencyPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).picker.pick(context)
    }
}

fn weights(measured: &[Arc<ServerLatency>]) -> Vec<u32> {
    let weights: Vec<_> = measured.iter().map(|measured| measured.weight().unwrap_or(MIN_WEIGHT)).collect();
    if weights.iter().all(|&weight| weight == 0) { vec![MIN_WEIGHT; weights.len()] } else { weights }
}

/// Lowest weight that gets calls.
const MIN_WEIGHT: u32 = 1;

/// rpcx's table (`client/ping_utils.go`).
fn weight(latency: Option<Duration>) -> u32 {
    match latency.map(|latency| latency.as_millis()) {
        Some(..=10) => 191,
        Some(millis @ ..=200) => 201 - millis as u32,
        Some(..1000) => MIN_WEIGHT,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Instant;

    use futures_util::future::BoxFuture;
    use tokio::sync::watch;

    use super::*;
    use crate::client::balance::tests::{candidates, context, shares};
    use crate::discovery::Instance;

    #[test]
    fn weights_equal_those_of_rpcx() {
        let millis = |millis| weight(Some(Duration::from_millis(millis)));
        let weights = [0, 10, 11, 200, 201, 999, 1000, 5000].map(millis);
        assert_eq!(weights, [191, 191, 190, 1, 1, 1, 0, 0]);
        assert_eq!(weight(None), 0);
    }

    /// Probe that returns fixed latencies and reports the number of probes.
    struct FixedProbe {
        latencies: HashMap<String, Option<Duration>>,
        probes: watch::Sender<usize>,
    }

    impl Probe for FixedProbe {
        fn measure<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<Duration>> {
            self.probes.send_modify(|probes| *probes += 1);
            Box::pin(std::future::ready(self.latencies.get(&instance.address).copied().flatten()))
        }
    }

    fn fixed_probe(candidates: &[Candidate], millis: &[Option<u64>]) -> (FixedProbe, watch::Receiver<usize>) {
        let latency = |(candidate, millis): (&Candidate, &Option<u64>)| {
            (candidate.instance().address.clone(), millis.map(Duration::from_millis))
        };
        let (probes, probed) = watch::channel(0);
        (FixedProbe { latencies: candidates.iter().zip(millis).map(latency).collect(), probes }, probed)
    }

    #[tokio::test(start_paused = true)]
    async fn servers_receive_calls_by_latency() {
        let candidates = candidates(3);
        let (probe, mut probed) = fixed_probe(&candidates, &[Some(1), Some(191), None]);
        let balance = ByLatency::with_probe(probe, Duration::from_secs(60));
        let pick = balance.picker(&candidates);
        // No server has been measured yet.
        assert_eq!(shares(&*pick, &candidates, 300), [100, 100, 100]);
        probed.wait_for(|&probes| probes == 9).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shares(&*pick, &candidates, 201), [191, 10, 0]);
        // Measurements are kept for the next set and are not repeated early.
        let fewer = [candidates[1].clone(), candidates[2].clone()];
        assert_eq!(shares(&*balance.picker(&fewer), &fewer, 10), [10, 0]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(*probed.borrow(), 9);
        probed.wait_for(|&probes| probes == 15).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn failed_probes_do_not_change_the_weights() {
        let candidates = candidates(2);
        let (probe, mut probed) = fixed_probe(&candidates, &[None, None]);
        let balance = ByLatency::with_probe(probe, Duration::from_secs(60));
        let pick = balance.picker(&candidates);
        probed.wait_for(|&probes| probes == 6).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(shares(&*pick, &candidates, 10), [5, 5]);
    }

    #[tokio::test]
    async fn probe_task_ends_with_the_balancer() {
        let candidates = candidates(1);
        let (probe, mut probed) = fixed_probe(&candidates, &[Some(1)]);
        let balance = ByLatency::with_probe(probe, Duration::from_secs(1));
        let _pick = balance.picker(&candidates);
        probed.wait_for(|&probes| probes == 3).await.unwrap();
        drop(balance);
        // The probe, and with it the sender of the count, is dropped with the task.
        assert!(probed.wait_for(|_| false).await.is_err());
    }

    #[test]
    fn round_robin_continues_across_equal_sets() {
        let candidates = candidates(3);
        let balance = ByLatency::new();
        let picks = [(); 6].map(|()| balance.picker(&candidates).pick(&context(&candidates)).unwrap());
        assert_eq!(picks, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn without_a_runtime_servers_have_equal_weight() {
        let candidates = candidates(2);
        let pick = ByLatency::new().picker(&candidates);
        let context = PickContext { now: Instant::now(), ..context(&candidates) };
        assert!(pick.pick(&context).is_some());
        assert_eq!(shares(&*pick, &candidates, 10), [5, 5]);
    }
}

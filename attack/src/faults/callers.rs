//! Callers that call without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cluster::Caller;

/// Number of concurrent callers.
const CALLERS: usize = 64;

/// 64 callers of one client, until they are stopped.
pub(crate) struct Callers {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    tasks: JoinSet<CallResults>,
}

/// Results of the calls so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallResults {
    pub(crate) calls: usize,
    pub(crate) failures: Vec<String>,
    pub(crate) slowest: Duration,
}

impl CallResults {
    pub(crate) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.failures.extend(other.failures);
        self.slowest = self.slowest.max(other.slowest);
    }
}

impl Callers {
    pub(crate) fn start(caller: &Caller) -> Self {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..CALLERS {
            tasks.spawn(call(caller.clone(), stop.clone(), made.clone()));
        }
        Self { stop, made, tasks }
    }

    /// Waits until this many more calls have ended, which each call does by its deadline.
    pub(crate) async fn wait_for(&self, calls: usize) {
        let want = self.made.load(Ordering::Relaxed) + calls;
        while self.made.load(Ordering::Relaxed) < want {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for the calls in flight, and returns all calls.
    pub(crate) async fn stop(mut self) -> CallResults {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = CallResults::default();
        while let Some(made) = self.tasks.join_next().await {
            all.add(made.expect("no caller panics"));
        }
        all
    }
}

async fn call(caller: Caller, stop: Arc<AtomicBool>, made: Arc<AtomicUsize>) -> CallResults {
    let mut own = CallResults::default();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        own.failures.extend(caller.echo("a call under a fault").await.err());
        own.calls += 1;
        own.slowest = own.slowest.max(begun.elapsed());
        made.fetch_add(1, Ordering::Relaxed);
    }
    own
}

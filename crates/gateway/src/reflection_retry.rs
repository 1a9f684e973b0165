//! Repeats the reflection of upstreams that did not describe themselves at the start.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use polyrpc::MemoryBudget;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::config::Config;
use crate::documents::Documents;
use crate::plan::{Counters, Plan};
use crate::recording;

/// A task that repeats the reflection until all upstreams have answered. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ReflectionRetry(AbortHandle);

impl Drop for ReflectionRetry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Parts of the gateway that its plans share.
pub(crate) struct PlanResources {
    pub(crate) threads: usize,
    pub(crate) memory: MemoryBudget,
    pub(crate) counters: Arc<Counters>,
}

impl ReflectionRetry {
    /// `names`: the upstreams. Their descriptions become parts of the plan, and of the documents.
    pub(crate) fn start(
        plan: Arc<ArcSwap<Plan>>,
        config: Config,
        names: Vec<String>,
        resources: PlanResources,
        documents: Vec<Documents>,
    ) -> Self {
        Self(tokio::spawn(run(plan, config, names, resources, documents)).abort_handle())
    }
}

async fn run(
    plan: Arc<ArcSwap<Plan>>,
    config: Config,
    mut names: Vec<String>,
    resources: PlanResources,
    documents: Vec<Documents>,
) {
    let mut pause = INITIAL_PAUSE;
    while !names.is_empty() {
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
        let current = plan.load_full();
        let answered = current.retry_reflection(&names).await;
        if answered.is_empty() {
            continue;
        }
        let PlanResources { threads, memory, counters } = &resources;
        let mut next = match Plan::new(&config, (*threads, memory), Some(&current), counters) {
            Ok(next) => next,
            // A file has changed since; the process that changed it loads it again.
            Err(problems) => {
                tracing::warn!(target: "polyrpc_gateway", %problems, "descriptions of upstreams are not used");
                continue;
            }
        };
        names.retain(|name| !answered.iter().any(|(known, _)| known == name));
        next.add_descriptions(current.descriptions.iter().cloned().chain(answered).collect());
        next.recorder = current.recorder.clone();
        let next = Arc::new(next);
        let before = plan.compare_and_swap(&current, next.clone());
        if !Arc::ptr_eq(&before, &current) {
            // Another configuration was loaded.
            return;
        }
        tracing::warn!(target: "polyrpc_gateway", missing = ?names, "an upstream described itself");
        use_descriptions(&next, &documents);
    }
}

fn use_descriptions(plan: &Plan, documents: &[Documents]) {
    if let Some(Err(problem)) =
        plan.recorder.as_ref().map(|recorder| recorder.set_schemas(recording::sets(&plan.schemas)))
    {
        tracing::warn!(target: "polyrpc_gateway", %problem, "recordings lack descriptions");
    }
    for documents in documents {
        if let Err(problem) = documents.offer(plan) {
            tracing::warn!(target: "polyrpc_gateway", %problem, "methods are described as before");
        }
    }
}

/// Pause before the first repetition; each further one is twice as long.
const INITIAL_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(60);

//! Copies a route's calls to another upstream, and compares its answers with those that callers received.
//!
//! Callers never wait for a copy. It is sent after the caller's answer, on a separate thread and connections, and only
//! within limits: calls beyond these are counted instead of copied.

mod budget;
mod comparison;
mod copy;
mod counts;
mod pause;

pub(crate) use self::copy::{CallCopy, Leg};
pub(crate) use self::counts::Counts;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use polyrpc::Metadata;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::budget::{Budget, LimitReached, Permit};
use self::copy::Job;
use self::pause::Pause;
use crate::compare::{Findings, Rules, Samples};
use crate::config::{Mirror as Spec, SampleForm, Upstream as UpstreamSpec};
use crate::hash::mix;
use crate::upstream::Upstream;

/// Copies calls, and collects the results of the comparison.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) spec: Spec,
    /// The upstream that gets the copies.
    pub(crate) candidate: Arc<Upstream>,
    /// Second primaries, by the upstream that answered the caller.
    second: Vec<(String, Arc<Upstream>)>,
    /// The settings of the upstreams that copies go to.
    upstream_specs: Vec<UpstreamSpec>,
    budget: Budget,
    calls: AtomicU64,
    shared: Arc<Shared>,
    /// Queue of jobs; the thread that takes them starts with the first job.
    jobs: OnceLock<Option<mpsc::Sender<Job>>>,
}

/// State shared with the thread that compares.
#[derive(Debug)]
struct Shared {
    rules: Rules,
    samples: Samples,
    counts: Counts,
    pause: Pause,
    findings: Mutex<Findings>,
}

impl Shared {
    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mirror {
    /// `primaries` are the upstreams that answer the route's callers; `all` are those of the file.
    ///
    /// # Errors
    ///
    /// If an upstream cannot be used.
    pub(crate) fn new(
        spec: &Spec,
        primaries: &[&str],
        all: &[Arc<Upstream>],
        counts: Counts,
    ) -> Result<Self, String> {
        let mut upstream_specs = Vec::new();
        let mut own = |name: &str| {
            let known = all.iter().find(|known| known.spec.name == name);
            let known = known.ok_or_else(|| format!("there is no upstream `{name}`"))?;
            upstream_specs.push(known.spec.clone());
            Upstream::for_copies(&known.spec, spec.timeout.0, spec.bytes.0).map(Arc::new)
        };
        let second: Result<_, String> = match &spec.noise {
            Some(name) => {
                let second = own(name)?;
                Ok(primaries.iter().map(|primary| ((*primary).to_owned(), second.clone())).collect())
            }
            None => primaries.iter().map(|primary| Ok(((*primary).to_owned(), own(primary)?))).collect(),
        };
        let shared = Shared {
            rules: Rules::new(spec.rule.clone()),
            samples: match spec.samples {
                SampleForm::Redacted => Samples::redacted(),
                SampleForm::Plain => Samples::plain(),
            },
            counts,
            pause: Pause::default(),
            findings: Mutex::default(),
        };
        Ok(Self {
            candidate: own(&spec.to)?,
            second: second?,
            upstream_specs,
            budget: Budget::new(spec.concurrent, spec.bytes.0, spec.rate),
            calls: AtomicU64::new(0),
            shared: Arc::new(shared),
            jobs: OnceLock::new(),
            spec: spec.clone(),
        })
    }

    /// Returns the settings of the upstreams that copies go to.
    pub(crate) fn upstream_specs(&self) -> &[UpstreamSpec] {
        &self.upstream_specs
    }

    /// Decides whether to copy a call of a safe method.
    pub(crate) fn selects(&self, metadata: &Metadata) -> bool {
        metadata.bytes(MARK).is_none() && self.should_sample()
    }

    /// Samples a share of the calls.
    fn should_sample(&self) -> bool {
        let share = self.spec.share.0;
        // 53 bits of a number between 0 and 1.
        share >= 1.0 || {
            let number = mix(self.calls.fetch_add(1, Ordering::Relaxed)) >> 11;
            (number as f64 / (1_u64 << 53) as f64) < share
        }
    }

    /// Returns the second primary for calls that this upstream answered.
    pub(crate) fn second(&self, primary: &str) -> Option<&Arc<Upstream>> {
        self.second.iter().find(|(name, _)| name == primary).map(|(_, second)| second)
    }

    /// Admits a copy of a request with this many bytes, unless a limit is reached.
    pub(crate) fn admit(self: &Arc<Self>, bytes: usize) -> Option<CopyPermit> {
        let counts = &self.shared.counts;
        if self.shared.pause.is_paused(Instant::now()) {
            counts.paused.add();
            return None;
        }
        match self.budget.take(bytes, Instant::now()) {
            Ok(permit) => Some(CopyPermit { mirror: self.clone(), permit: Some(permit) }),
            Err(LimitReached) => {
                counts.dropped.add();
                None
            }
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Whether copying is paused because the upstream fails.
    pub(crate) fn is_paused(&self) -> bool {
        self.shared.pause.is_paused(Instant::now())
    }

    /// Reads the findings.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Findings) -> T) -> T {
        read(&self.shared.findings())
    }

    fn submit(&self, job: Job) {
        let sender = self.jobs.get_or_init(|| start(self.spec.concurrent));
        // There is a slot for each copy that the budget admits.
        let sent = sender.as_ref().is_some_and(|sender| sender.try_send(job).is_ok());
        if !sent {
            self.shared.counts.dropped.add();
        }
    }
}

/// Permit for a copy within all limits. If it is not used, because the caller went away or the call could not be retried,
/// the copy counts as dropped.
#[derive(Debug)]
pub(crate) struct CopyPermit {
    mirror: Arc<Mirror>,
    /// `None` once the copy is made or counted.
    permit: Option<Permit>,
}

impl CopyPermit {
    /// Returns the share of the budget for a copy with this many further bytes, unless a limit is reached.
    fn take(mut self, bytes: usize) -> Option<Permit> {
        self.permit.as_mut()?.grow(bytes).ok()?;
        self.permit.take()
    }

    /// Counts a call that cannot be sent to the other upstream.
    pub(crate) fn record_untranslatable(mut self) {
        self.permit = None;
        self.mirror.shared.counts.untranslatable.add();
    }
}

impl Drop for CopyPermit {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.mirror.shared.counts.dropped.add();
        }
    }
}

/// Starts the thread that makes copies. It runs until the sender is dropped; then copies in flight are abandoned.
fn start(capacity: usize) -> Option<mpsc::Sender<Job>> {
    let (sender, mut jobs) = mpsc::channel::<Job>(capacity.max(1));
    let run = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(target: "polyrpc_gateway", %error, "no calls are copied"),
        };
        runtime.block_on(async move {
            let mut under_way = JoinSet::new();
            while let Some(job) = jobs.recv().await {
                while under_way.try_join_next().is_some() {}
                under_way.spawn(job.run());
            }
        });
    };
    let started = std::thread::Builder::new().name("polyrpc-mirror".into()).spawn(run);
    started
        .inspect_err(|error| tracing::error!(target: "polyrpc_gateway", %error, "no calls are copied"))
        .ok()?;
    Some(sender)
}

/// Metadata key that marks a call as a copy.
const MARK: &str = "polyrpc-mirrored";

use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use polyrpc_core::Status;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

use super::endpoint::{Endpoint, ProbeOutcome};
use super::filter::{FilteredInstances, filter_instances};
use super::health::HealthCheck;
use super::registry_health::RegistryHealth;
use super::snapshot::Snapshot;
use super::warnings::Warnings;
use super::{ResolverUpdate, Shared};
use crate::client::Result;
use crate::client::balance::Candidate;
use crate::discovery::{Instance, Sets};

/// The task behind a channel: it makes a snapshot of every set that the registry tells, and tries in the background
/// whether servers that could not be reached can be again.
pub(super) struct ResolverTask {
    shared: Arc<Shared>,
    /// `None` once nothing can change any more.
    sets: Option<Sets>,
    /// The newest set, while it is too early to make a snapshot of it.
    heard: Option<Vec<Instance>>,
    /// When the next snapshot may be made.
    next: Instant,
    trust: RegistryHealth<Snapshot>,
    warnings: Warnings,
    trials: FuturesUnordered<BoxFuture<'static, ()>>,
    /// How many servers may be tried at once.
    permits: Arc<Semaphore>,
}

/// At most twenty snapshots a second, however often a registry changes its mind.
const PAUSE: Duration = Duration::from_millis(50);

/// How many connections are tried at once, where many servers are gone.
const TRIALS: usize = 32;

impl ResolverTask {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            sets: None,
            heard: None,
            next: Instant::now(),
            trust: RegistryHealth::default(),
            warnings: Warnings::default(),
            trials: FuturesUnordered::new(),
            permits: Arc::new(Semaphore::new(TRIALS)),
            shared,
        }
    }

    /// Goes on until it is dropped.
    pub(super) async fn run(mut self) {
        self.sets = Some(self.shared.discover.watch());
        self.take_over();
        let doubts = self.shared.common.suspects.clone();
        if self.shared.settings.health.always {
            self.trials.push(look_after(self.shared.clone()).boxed());
        }
        loop {
            tokio::select! {
                set = next(&mut self.sets) => self.handle_update(set).await,
                () = sleep_until(self.next), if self.heard.is_some() => self.renew(),
                () = self.trust.wait_until_settled(), if self.heard.is_none() => self.reapply_pending_set(),
                () = doubts.wait() => {
                    doubts.take().into_iter().for_each(|endpoint| self.spawn_probe(endpoint));
                    self.reapply_pending_set();
                }
                Some(()) = self.trials.next() => {}
            }
        }
    }

    /// Goes on where another left off whose runtime has ended.
    fn take_over(&mut self) {
        let Some(snapshot) = self.shared.current.load_full() else { return };
        for (endpoint, _) in snapshot.servers().filter(|(endpoint, _)| endpoint.is_suspect()) {
            self.spawn_probe(Arc::downgrade(endpoint));
        }
    }

    async fn handle_update(&mut self, set: Option<Result<Vec<Instance>>>) {
        match set {
            Some(Ok(set)) => {
                self.warnings.of_answer(&self.shared.name, set.len());
                if set.is_empty() {
                    self.shake();
                }
                self.heard = Some(set);
            }
            Some(Err(error)) => self.handle_error(error.into_status()),
            None => {
                self.sets = None;
                if self.heard.is_none() && self.shared.current.load().is_none() {
                    self.publish(ResolverUpdate::Over);
                }
            }
        }
        // A registry that never stops talking must not keep this thread.
        tokio::task::yield_now().await;
    }

    /// The registry has told what is wrong. Who has no server hears of it by his calls.
    fn handle_error(&mut self, status: Status) {
        if self.heard.is_some() || self.shared.current.load().is_some() {
            self.warnings.of_registry(&self.shared.name, &status);
        }
        self.shake();
        self.publish(ResolverUpdate::Trouble(status));
    }

    /// What the registry says next is not all that there is.
    fn shake(&mut self) {
        if !self.shared.settings.believes_empty_sets {
            self.trust.degrade(self.shared.current.load_full());
        }
    }

    /// Has the last set heard again, if it was not quite believed: by now it may be, or more of it.
    fn reapply_pending_set(&mut self) {
        if self.heard.is_none() {
            self.heard = self.trust.pending_set();
        }
    }

    fn publish(&self, news: ResolverUpdate) {
        self.shared.news.send_replace(news);
    }

    /// Makes a snapshot of the newest set, unless that is nothing new or nothing to go by.
    fn renew(&mut self) {
        let Some(heard) = self.heard.take() else { return };
        self.next = Instant::now() + PAUSE;
        let current = self.shared.current.load_full();
        let missing = current.as_ref().map(|current| self.trust.reconcile(&heard, current));
        let mut sifted = filter_instances(heard, self.shared.settings.group.as_deref());
        sifted.keep(missing.unwrap_or_default());
        if !current.as_ref().is_some_and(|current| is_same(current, &sifted.instances)) {
            self.replace(current.as_deref(), sifted);
        }
        self.publish(ResolverUpdate::Set);
    }

    fn replace(&mut self, current: Option<&Snapshot>, sifted: FilteredInstances) {
        let servers = self.servers(current, sifted.instances);
        let is_believed = sifted.excluded || self.shared.settings.believes_empty_sets;
        if servers.is_empty() && !is_believed && current.is_some() {
            // More likely the registry has lost its data than all servers went at once.
            self.shake();
            return;
        }
        let snapshot = Snapshot::new(servers, |candidates| self.shared.settings.balance.picker(candidates));
        if let Some(current) = current {
            let gone = current.servers().filter(|(endpoint, _)| snapshot.place(endpoint).is_none());
            let gone: Vec<_> = gone.map(|(endpoint, _)| endpoint.clone()).collect();
            self.shared.current.store(Some(Arc::new(snapshot)));
            gone.iter().for_each(|endpoint| endpoint.retire());
        } else {
            self.shared.current.store(Some(Arc::new(snapshot)));
        }
    }

    /// The servers of a set. Those that were there stay what they are.
    fn servers(
        &mut self,
        current: Option<&Snapshot>,
        instances: Vec<Instance>,
    ) -> Vec<(Arc<Endpoint>, Candidate)> {
        let mut known = current.into_iter().flat_map(Snapshot::servers).peekable();
        let mut unusable = Vec::new();
        let mut servers = Vec::with_capacity(instances.len());
        for instance in instances {
            // Both are in the order of their keys.
            let key = (instance.network, &*instance.address);
            while known.next_if(|(endpoint, _)| endpoint.key() < key).is_some() {}
            match known.next_if(|(endpoint, _)| endpoint.key() == key) {
                Some((endpoint, candidate)) if candidate.instance().attributes == instance.attributes => {
                    servers.push((endpoint.clone(), candidate.clone()));
                }
                Some((endpoint, candidate)) => {
                    servers.push((endpoint.clone(), candidate.renewed(instance.attributes)));
                }
                None => match self.add_endpoint(&instance) {
                    Ok(server) => servers.push(server),
                    Err(status) => unusable.push((instance, status)),
                },
            }
        }
        self.warnings.of_unusable(&self.shared.name, &unusable);
        servers
    }

    /// A server that was not there.
    fn add_endpoint(&self, instance: &Instance) -> Result<(Arc<Endpoint>, Candidate), Status> {
        let pool = self.shared.factory.pool(instance)?;
        let candidate = Candidate::new(instance.clone());
        let endpoint = Endpoint::new(instance, pool, candidate.load().clone(), &self.shared.common);
        Ok((endpoint, candidate))
    }

    /// Has a server tried until it can be reached or is not listed any more.
    fn spawn_probe(&self, endpoint: Weak<Endpoint>) {
        let health = self.shared.settings.health.clone();
        self.trials.push(probe_until_healthy(endpoint, health, self.permits.clone()).boxed());
    }
}

impl Drop for ResolverTask {
    fn drop(&mut self) {
        // Either the channel has ended, or the runtime: then the next call starts another.
        self.shared.kept.store(false, Ordering::Relaxed);
    }
}

/// The next set; there is none behind the last.
async fn next(sets: &mut Option<Sets>) -> Option<Result<Vec<Instance>>> {
    match sets {
        Some(sets) => sets.next().await,
        None => pending().await,
    }
}

/// Whether a set says what is known already.
fn is_same(current: &Snapshot, instances: &[Instance]) -> bool {
    current.len() == instances.len()
        && current.candidates().iter().zip(instances).all(|(known, new)| known.instance() == new)
}

async fn probe_until_healthy(endpoint: Weak<Endpoint>, health: HealthCheck, permits: Arc<Semaphore>) {
    loop {
        // Not held while nothing is done: a server that is not listed any more is let go of.
        let Some(next) = endpoint.upgrade().map(|endpoint| endpoint.next_attempt()) else { return };
        sleep_until(next.into()).await;
        // The semaphore is never closed.
        let Ok(permit) = permits.acquire().await else { return };
        let Some(endpoint) = endpoint.upgrade() else { return };
        let trial = endpoint.probe(&health).await;
        drop((endpoint, permit));
        match trial {
            ProbeOutcome::Done => return,
            ProbeOutcome::RetryAfter(pause) => sleep(pause).await,
        }
    }
}

/// Asks all servers that are thought to be well, again and again.
async fn look_after(shared: Arc<Shared>) {
    let health = &shared.settings.health;
    loop {
        sleep(health.every).await;
        let Some(snapshot) = shared.current.load_full() else { continue };
        let endpoints: Vec<_> = snapshot.servers().map(|(endpoint, _)| Arc::downgrade(endpoint)).collect();
        drop(snapshot);
        let checks =
            stream::iter(endpoints).for_each_concurrent(TRIALS, move |endpoint: Weak<Endpoint>| async move {
                if let Some(endpoint) = endpoint.upgrade() {
                    endpoint.check_in_background(health).await;
                }
            });
        checks.await;
    }
}

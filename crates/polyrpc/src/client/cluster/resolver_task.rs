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
use crate::discovery::{Instance, InstanceStream};

/// Background task of a channel: builds a snapshot from every set of the registry, and probes unreachable servers until
/// they are reachable again.
pub(super) struct ResolverTask {
    shared: Arc<Shared>,
    /// `None` once nothing can change any more.
    sets: Option<InstanceStream>,
    /// Newest set, while it is too early to build a snapshot of it.
    new_set: Option<Vec<Instance>>,
    /// Earliest time of the next snapshot.
    next: Instant,
    trust: RegistryHealth<Snapshot>,
    warnings: Warnings,
    trials: FuturesUnordered<BoxFuture<'static, ()>>,
    /// Limits the number of concurrent probes.
    permits: Arc<Semaphore>,
}

/// At most twenty snapshots a second, however often a registry changes its sets.
const PAUSE: Duration = Duration::from_millis(50);

/// Number of concurrent probes if many servers are gone.
const MAX_CONCURRENT_PROBES: usize = 32;

impl ResolverTask {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            sets: None,
            new_set: None,
            next: Instant::now(),
            trust: RegistryHealth::default(),
            warnings: Warnings::default(),
            trials: FuturesUnordered::new(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_PROBES)),
            shared,
        }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        self.sets = Some(self.shared.discover.watch());
        self.take_over();
        let suspects = self.shared.common.suspects.clone();
        if self.shared.settings.health.always {
            self.trials.push(check_health_periodically(self.shared.clone()).boxed());
        }
        loop {
            tokio::select! {
                set = next(&mut self.sets) => self.handle_update(set).await,
                () = sleep_until(self.next), if self.new_set.is_some() => self.renew(),
                () = self.trust.wait_until_settled(), if self.new_set.is_none() => self.reapply_pending_set(),
                () = suspects.wait() => {
                    suspects.take().into_iter().for_each(|endpoint| self.spawn_probe(endpoint));
                    self.reapply_pending_set();
                }
                Some(()) = self.trials.next() => {}
            }
        }
    }

    /// Takes over the state of a task whose runtime has ended.
    fn take_over(&mut self) {
        let Some(snapshot) = self.shared.current.load_full() else { return };
        for (endpoint, _) in snapshot.servers().filter(|(endpoint, _)| endpoint.is_suspect()) {
            self.spawn_probe(Arc::downgrade(endpoint));
        }
    }

    async fn handle_update(&mut self, set: Option<Result<Vec<Instance>>>) {
        match set {
            Some(Ok(set)) => {
                self.warnings.log_recovery(&self.shared.name, set.len());
                if set.is_empty() {
                    self.degrade_registry();
                }
                self.new_set = Some(set);
            }
            Some(Err(error)) => self.handle_error(error.into_status()),
            None => {
                self.sets = None;
                if self.new_set.is_none() && self.shared.current.load().is_none() {
                    self.publish(ResolverUpdate::Closed);
                }
            }
        }
        // A registry that sends updates without a pause must not block this thread.
        tokio::task::yield_now().await;
    }

    /// Handles an error of the registry. If there are no servers yet, calls report it.
    fn handle_error(&mut self, status: Status) {
        if self.new_set.is_some() || self.shared.current.load().is_some() {
            self.warnings.warn_registry(&self.shared.name, &status);
        }
        self.degrade_registry();
        self.publish(ResolverUpdate::Failed(status));
    }

    /// Marks the next sets of the registry as possibly incomplete.
    fn degrade_registry(&mut self) {
        if !self.shared.settings.accepts_empty_sets {
            self.trust.degrade(self.shared.current.load_full());
        }
    }

    /// Applies the last set again if it was in doubt.
    fn reapply_pending_set(&mut self) {
        if self.new_set.is_none() {
            self.new_set = self.trust.pending_set();
        }
    }

    fn publish(&self, update: ResolverUpdate) {
        self.shared.updates.send_replace(update);
    }

    /// Builds a snapshot of the newest set, unless nothing has changed or the set is not trusted.
    fn renew(&mut self) {
        let Some(new_set) = self.new_set.take() else { return };
        self.next = Instant::now() + PAUSE;
        let current = self.shared.current.load_full();
        let missing = current.as_ref().map(|current| self.trust.reconcile(&new_set, current));
        let mut filtered = filter_instances(new_set, self.shared.settings.group.as_deref());
        filtered.keep(missing.unwrap_or_default());
        if !current.as_ref().is_some_and(|current| is_same(current, &filtered.instances)) {
            self.replace(current.as_deref(), filtered);
        }
        self.publish(ResolverUpdate::Set);
    }

    fn replace(&mut self, current: Option<&Snapshot>, filtered: FilteredInstances) {
        let servers = self.servers(current, filtered.instances);
        let is_believed = filtered.excluded || self.shared.settings.accepts_empty_sets;
        if servers.is_empty() && !is_believed && current.is_some() {
            // It is more likely that the registry has lost its data than that all servers left at once.
            self.degrade_registry();
            return;
        }
        let snapshot = Snapshot::new(servers, |candidates| self.shared.settings.balance.picker(candidates));
        if let Some(current) = current {
            let gone = current.servers().filter(|(endpoint, _)| snapshot.index_of(endpoint).is_none());
            let gone: Vec<_> = gone.map(|(endpoint, _)| endpoint.clone()).collect();
            self.shared.current.store(Some(Arc::new(snapshot)));
            gone.iter().for_each(|endpoint| endpoint.retire());
        } else {
            self.shared.current.store(Some(Arc::new(snapshot)));
        }
    }

    /// Returns the servers of a set. Known servers keep their state.
    fn servers(
        &mut self,
        current: Option<&Snapshot>,
        instances: Vec<Instance>,
    ) -> Vec<(Arc<Endpoint>, Candidate)> {
        let mut known = current.into_iter().flat_map(Snapshot::servers).peekable();
        let mut unusable = Vec::new();
        let mut servers = Vec::with_capacity(instances.len());
        for instance in instances {
            // Both are sorted by key.
            let key = (instance.network, &*instance.address);
            while known.next_if(|(endpoint, _)| endpoint.key() < key).is_some() {}
            match known.next_if(|(endpoint, _)| endpoint.key() == key) {
                Some((endpoint, candidate)) if candidate.instance().attributes == instance.attributes => {
                    servers.push((endpoint.clone(), candidate.clone()));
                }
                Some((endpoint, candidate)) => {
                    servers.push((endpoint.clone(), candidate.with_attributes(instance.attributes)));
                }
                None => match self.add_endpoint(&instance) {
                    Ok(server) => servers.push(server),
                    Err(status) => unusable.push((instance, status)),
                },
            }
        }
        self.warnings.warn_unusable(&self.shared.name, &unusable);
        servers
    }

    /// Creates a server that was not known before.
    fn add_endpoint(&self, instance: &Instance) -> Result<(Arc<Endpoint>, Candidate), Status> {
        let pool = self.shared.factory.pool(instance)?;
        let candidate = Candidate::new(instance.clone());
        let endpoint = Endpoint::new(instance, pool, candidate.load().clone(), &self.shared.common);
        Ok((endpoint, candidate))
    }

    /// Spawns a task that probes a server until it is reachable or no longer listed.
    fn spawn_probe(&self, endpoint: Weak<Endpoint>) {
        let health = self.shared.settings.health.clone();
        self.trials.push(probe_until_healthy(endpoint, health, self.permits.clone()).boxed());
    }
}

impl Drop for ResolverTask {
    fn drop(&mut self) {
        // Either the channel or the runtime has ended; in the latter case the next call starts another task.
        self.shared.is_maintained.store(false, Ordering::Relaxed);
    }
}

/// Returns the next set; waits forever after the last one.
async fn next(sets: &mut Option<InstanceStream>) -> Option<Result<Vec<Instance>>> {
    match sets {
        Some(sets) => sets.next().await,
        None => pending().await,
    }
}

/// Whether a set equals the current one.
fn is_same(current: &Snapshot, instances: &[Instance]) -> bool {
    current.len() == instances.len()
        && current.candidates().iter().zip(instances).all(|(known, new)| known.instance() == new)
}

async fn probe_until_healthy(endpoint: Weak<Endpoint>, health: HealthCheck, permits: Arc<Semaphore>) {
    loop {
        // Not held during the wait, so that a server that is no longer listed is dropped.
        let Some(next) = endpoint.upgrade().map(|endpoint| endpoint.next_attempt()) else { return };
        sleep_until(next.into()).await;
        // The semaphore is never closed.
        let Ok(permit) = permits.acquire().await else { return };
        let Some(endpoint) = endpoint.upgrade() else { return };
        let trial = endpoint.probe(&health).await;
        drop((endpoint, permit));
        match trial {
            ProbeOutcome::Stop => return,
            ProbeOutcome::RetryAfter(pause) => sleep(pause).await,
        }
    }
}

/// Periodically checks all servers that are considered healthy.
async fn check_health_periodically(shared: Arc<Shared>) {
    let health = &shared.settings.health;
    loop {
        sleep(health.interval).await;
        let Some(snapshot) = shared.current.load_full() else { continue };
        let endpoints: Vec<_> = snapshot.servers().map(|(endpoint, _)| Arc::downgrade(endpoint)).collect();
        drop(snapshot);
        let checks = stream::iter(endpoints).for_each_concurrent(
            MAX_CONCURRENT_PROBES,
            move |endpoint: Weak<Endpoint>| async move {
                if let Some(endpoint) = endpoint.upgrade() {
                    endpoint.check_in_background(health).await;
                }
            },
        );
        checks.await;
    }
}

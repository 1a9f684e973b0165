//! Servers of all partitions, as listed by a registry.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use futures_util::{StreamExt, stream};
use polyrpc_core::{Retry, Scope, Status};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout_at};

use super::assignment::{Parser, PartitionAssignment, PartitionIndex};
use crate::Client;
use crate::client::call_defaults::CallDefaults;
use crate::client::cluster::{FIRST_RESOLUTION_TIMEOUT, RegistryHealth, ResolverUpdate, may_call};
use crate::client::{Builder, Result};
use crate::discovery::{Discover, Instance, InstanceStream};

/// Creates the clients of the partitions, all with the same configuration.
pub(super) type Template = dyn Fn() -> Result<Builder> + Send + Sync;

/// Servers of all partitions. There is no task: the callers that wait for updates watch the registry, one at a time.
pub(super) struct Partitions {
    template: Box<Template>,
    parse: Box<Parser>,
    discover: Box<dyn Discover>,
    group: Option<String>,
    accepts_empty_sets: bool,
    registry_watch: Mutex<RegistryWatch>,
    /// Newest set.
    latest: ArcSwapOption<PartitionAssignment>,
    updates: watch::Sender<ResolverUpdate>,
}

/// State of watching the registry.
#[derive(Default)]
struct RegistryWatch {
    /// Updates of the registry; `None` before the first request.
    sets: Option<InstanceStream>,
    /// Instances of the newest set.
    current: Option<Arc<Vec<Instance>>>,
    trust: RegistryHealth<Vec<Instance>>,
}

impl Partitions {
    /// Creates the partitions of the servers that the template's clients would find. Also returns the defaults of those
    /// clients.
    ///
    /// # Errors
    ///
    /// If the template creates no client, or a client of a single server.
    pub(super) fn new(template: Box<Template>, parse: Box<Parser>) -> Result<(Arc<Self>, CallDefaults)> {
        let mut builder = template()?;
        let (url, discover) = builder.resolve_url()?;
        let discover = discover.ok_or_else(|| {
            Status::invalid_argument("partitions need discovery, but this client has a single server")
        })?;
        let defaults = builder.defaults(&url);
        let channel_config = builder.channel_config();
        let partitions = Self {
            parse,
            discover,
            group: channel_config.group.take(),
            accepts_empty_sets: channel_config.accepts_empty_sets,
            template,
            registry_watch: Mutex::default(),
            latest: ArcSwapOption::empty(),
            updates: watch::Sender::default(),
        };
        Ok((Arc::new(partitions), defaults))
    }

    /// Creates a client of the servers that hold this partition.
    pub(super) fn client(self: &Arc<Self>, partition: PartitionIndex) -> Result<Client> {
        let mut builder = (self.template)()?;
        let (url, _) = builder.resolve_url()?;
        // A partition without servers is intended if the others have some: sets that are entirely empty are filtered
        // out before.
        builder.channel_config().accepts_empty_sets = true;
        builder.build_with_discovery(
            url,
            Some(Box::new(PartitionDiscovery { partitions: self.clone(), partition })),
        )
    }

    /// Returns the newest set, if one is known.
    pub(super) fn latest(&self) -> Option<Arc<PartitionAssignment>> {
        self.latest.load_full()
    }

    /// Returns the capacity of each complete partitioning, counting the servers that may be called.
    pub(super) fn capacities(&self, assignment: &PartitionAssignment) -> BTreeMap<usize, u32> {
        assignment.capacities(|instance| self.counts(instance))
    }

    /// Waits for an update that `seen` has not seen, and watches the registry meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next(&self, seen: &mut SeenVersion) {
        tokio::select! {
            biased;
            // The sender is in `self`: it cannot be gone.
            _ = seen.0.changed() => {}
            () = self.next_update() => {
                seen.0.borrow_and_update();
            }
        }
    }

    /// Returns a version that has seen no update.
    pub(super) fn seen_version(&self) -> SeenVersion {
        SeenVersion(self.updates.subscribe())
    }

    /// Waits for a set in which `find` succeeds.
    pub(super) async fn find<T>(
        &self,
        deadline: Option<Instant>,
        find: impl Fn(&Arc<PartitionAssignment>) -> Option<T>,
    ) -> Result<T, Status> {
        let latest = deadline.unwrap_or_else(|| Instant::now() + FIRST_RESOLUTION_TIMEOUT);
        let mut seen = self.seen_version();
        loop {
            // Checked before the set is read: there may be a last one.
            let is_closed = matches!(*seen.0.borrow(), ResolverUpdate::Closed);
            if let Some(found) = self.latest().and_then(|set| find(&set)) {
                return Ok(found);
            }
            if is_closed || timeout_at(latest, self.next(&mut seen)).await.is_err() {
                return Err(self.incomplete());
            }
        }
    }

    /// Waits for the next update of the registry and applies it.
    async fn next_update(&self) {
        let mut registry_watch = self.registry_watch.lock().await;
        let update = loop {
            let RegistryWatch { sets, trust, .. } = &mut *registry_watch;
            let sets = sets.get_or_insert_with(|| self.discover.watch());
            let next = tokio::select! {
                set = sets.next() => set,
                // By now the last set may be trusted.
                () = trust.wait_until_settled() => trust.pending_set().map(Ok),
            };
            match next {
                Some(Ok(set)) => {
                    if let Some(assignment) = self.renew(&mut registry_watch, set) {
                        self.latest.store(Some(Arc::new(assignment)));
                        break ResolverUpdate::Set;
                    }
                }
                Some(Err(error)) => {
                    self.degrade_registry(&mut registry_watch);
                    break ResolverUpdate::Failed(error.into_status());
                }
                None => {
                    registry_watch.sets = Some(stream::once(pending()).boxed());
                    break ResolverUpdate::Closed;
                }
            }
        };
        self.updates.send_replace(update);
    }

    /// Returns the assignment of this set, as far as it is trusted: entirely, in part, or not at all.
    fn renew(
        &self,
        registry_watch: &mut RegistryWatch,
        mut set: Vec<Instance>,
    ) -> Option<PartitionAssignment> {
        if set.is_empty() && !self.accepts_empty_sets && registry_watch.current.is_some() {
            // It is more likely that the registry has lost its data than that all servers left at once.
            self.degrade_registry(registry_watch);
            return None;
        }
        if let Some(current) = &registry_watch.current {
            set.extend(registry_watch.trust.reconcile(&set, current));
        }
        registry_watch.current = Some(Arc::new(set.clone()));
        Some(PartitionAssignment::new(set, &*self.parse))
    }

    /// Marks the next sets of the registry as possibly incomplete.
    fn degrade_registry(&self, registry_watch: &mut RegistryWatch) {
        if !self.accepts_empty_sets {
            registry_watch.trust.degrade(registry_watch.current.clone());
        }
    }

    /// Whether clients of the template would call the instance.
    fn counts(&self, instance: &Instance) -> bool {
        may_call(instance, self.group.as_deref())
    }

    #[cold]
    fn incomplete(&self) -> Status {
        let why = match &*self.updates.borrow() {
            ResolverUpdate::Pending => "the registry has not answered in time".to_owned(),
            ResolverUpdate::Set | ResolverUpdate::Closed => "some partitions have no server".to_owned(),
            ResolverUpdate::Failed(status) => status.to_string(),
        };
        Status::unavailable(format!("no partitioning is complete: {why}"))
            .with_scope(Scope::Connection)
            .with_retry(Retry::Elsewhere)
    }
}

/// Last update that a caller has seen.
pub(super) struct SeenVersion(watch::Receiver<ResolverUpdate>);

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions").field("news", &*self.updates.borrow()).finish_non_exhaustive()
    }
}

/// Discovery of the servers that hold one partition.
struct PartitionDiscovery {
    partitions: Arc<Partitions>,
    partition: PartitionIndex,
}

impl Discover for PartitionDiscovery {
    fn watch(&self) -> InstanceStream {
        let seen = self.partitions.seen_version();
        let update = seen.0.borrow().clone();
        let watch = PartitionWatch {
            partitions: self.partitions.clone(),
            partition: self.partition,
            seen,
            update,
            known: None,
        };
        stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }).boxed()
    }
}

struct PartitionWatch {
    partitions: Arc<Partitions>,
    partition: PartitionIndex,
    seen: SeenVersion,
    /// Last update that was received and not returned yet.
    update: ResolverUpdate,
    /// Set whose servers were returned last.
    known: Option<Arc<PartitionAssignment>>,
}

impl PartitionWatch {
    async fn next(&mut self) -> Option<Result<Vec<Instance>>> {
        loop {
            // Checked first, since later updates may replace it.
            if let Some(holders) = self.updated_holders() {
                return Some(Ok(holders));
            }
            match std::mem::take(&mut self.update) {
                ResolverUpdate::Failed(status) => return Some(Err(status.into())),
                ResolverUpdate::Closed => return None,
                ResolverUpdate::Pending | ResolverUpdate::Set => {}
            }
            self.partitions.next(&mut self.seen).await;
            self.update = self.seen.0.borrow().clone();
        }
    }

    fn updated_holders(&mut self) -> Option<Vec<Instance>> {
        let latest = self.partitions.latest()?;
        if self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &latest)) {
            return None;
        }
        let holders = latest.holders(self.partition);
        self.known = Some(latest);
        Some(holders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::List;
    use crate::discovery::testing::next_text;

    fn partitions(list: &List) -> Arc<Partitions> {
        let list = list.clone();
        let template = move || Ok(Client::builder("rpcx://parts").discover(list.clone()));
        Partitions::new(Box::new(template), Box::new(|tag| tag.parse().ok())).unwrap().0
    }

    #[tokio::test]
    async fn all_partitions_share_one_registry_watch() {
        let list: List = "a:1 0/2,b:1 1/2,c:1 tag=0/2&tag=1/2".parse().unwrap();
        let partitions = partitions(&list);
        let holders = |index| PartitionDiscovery {
            partitions: partitions.clone(),
            partition: PartitionIndex { index, count: 2 },
        };
        let (mut first, mut second) = (holders(0).watch(), holders(1).watch());
        assert_eq!(next_text(&mut first).await, "tcp@a:1?tag=0%2F2 tcp@c:1?tag=0%2F2&tag=1%2F2");
        assert_eq!(next_text(&mut second).await, "tcp@b:1?tag=1%2F2 tcp@c:1?tag=0%2F2&tag=1%2F2");
        list.update(["d:1".parse::<Instance>().unwrap().with("tag=0/2".parse().unwrap())]);
        assert_eq!(next_text(&mut second).await, "");
        assert_eq!(next_text(&mut first).await, "tcp@d:1?tag=0%2F2");
    }

    #[tokio::test(start_paused = true)]
    async fn empty_set_of_a_registry_is_ignored() {
        let list: List = "a:1 0/1".parse().unwrap();
        let partitions = partitions(&list);
        let mut sets =
            PartitionDiscovery { partitions, partition: PartitionIndex { index: 0, count: 1 } }.watch();
        assert_eq!(next_text(&mut sets).await, "tcp@a:1?tag=0%2F1");
        list.update([]);
        assert!(futures_util::FutureExt::now_or_never(sets.next()).is_none());
        list.update(["b:1".parse::<Instance>().unwrap().with("tag=0/1".parse().unwrap())]);
        assert_eq!(next_text(&mut sets).await, "tcp@a:1?tag=0%2F1 tcp@b:1?tag=0%2F1");
        assert_eq!(next_text(&mut sets).await, "tcp@b:1?tag=0%2F1");
    }

    #[tokio::test(start_paused = true)]
    async fn instance_missing_after_an_outage_keeps_its_partition_for_a_while() {
        let list: List = "a:1 0/2,b:1 1/2".parse().unwrap();
        let partitions = partitions(&list);
        let holders = |index| PartitionDiscovery {
            partitions: partitions.clone(),
            partition: PartitionIndex { index, count: 2 },
        };
        let (mut first, mut second) = (holders(0).watch(), holders(1).watch());
        assert_eq!(next_text(&mut first).await, "tcp@a:1?tag=0%2F2");
        assert_eq!(next_text(&mut second).await, "tcp@b:1?tag=1%2F2");
        list.update([]);
        assert!(futures_util::FutureExt::now_or_never(first.next()).is_none());
        // The registry has lost its data; one server has registered again.
        let start = Instant::now();
        list.update(["b:1".parse::<Instance>().unwrap().with("tag=1/2".parse().unwrap())]);
        assert_eq!(next_text(&mut first).await, "tcp@a:1?tag=0%2F2");
        assert_eq!(partitions.capacities(&partitions.latest().unwrap()).len(), 1, "every part has a server");
        assert_eq!(next_text(&mut first).await, "");
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[tokio::test]
    async fn set_is_yielded_even_if_the_registry_fails_right_after_it() {
        let discover = || {
            let sets = [
                Ok(vec!["a:1".parse::<Instance>().unwrap().with("tag=0/1".parse().unwrap())]),
                Err(Status::unavailable("gone").into()),
            ];
            stream::iter(sets).boxed()
        };
        let template = move || Ok(Client::builder("rpcx://parts").discover(StaticSet(discover)));
        let parse = |tag: &str| tag.parse().ok();
        let (partitions, _) = Partitions::new(Box::new(template), Box::new(parse)).unwrap();
        let holders = || PartitionDiscovery {
            partitions: partitions.clone(),
            partition: PartitionIndex { index: 0, count: 1 },
        };
        let (mut listener, mut other) = (holders().watch(), holders().watch());
        assert_eq!(next_text(&mut listener).await, "tcp@a:1?tag=0%2F1");
        assert_eq!(next_text(&mut listener).await, "gone");
        assert_eq!(next_text(&mut other).await, "tcp@a:1?tag=0%2F1");
        assert_eq!(next_text(&mut other).await, "gone");
        assert_eq!(next_text(&mut listener).await, "the end");
        assert_eq!(next_text(&mut holders().watch()).await, "tcp@a:1?tag=0%2F1");
        assert_eq!(next_text(&mut other).await, "the end");
    }

    /// Registry with fixed answers.
    struct StaticSet<F>(F);

    impl<F: Fn() -> InstanceStream + Send + Sync + 'static> Discover for StaticSet<F> {
        fn watch(&self) -> InstanceStream {
            (self.0)()
        }
    }
}

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use polyrpc_wire::Status;
use tokio::time::Instant;

use super::Combo;
use super::holdings::{Holdings, Portion};
use super::partition::{Common, Plan};
use super::partitions::Partitions;
use super::selective::{Choosable, Selective};
use super::sub::{Merge, Part, Place};
use crate::client::balance::WeightedRandom;
use crate::client::exchange::Defaults;
use crate::client::layer::Outgoing;
use crate::client::request::Response;
use crate::client::{Builder, EndpointFacts};
use crate::codec::Body;
use crate::discovery::Attributes;
use crate::{Client, Result, task};

/// Asks the servers that each hold a part, while the number of parts changes: brpc's `DynamicPartitionChannel`.
///
/// As a [`Partition`](super::Partition), but tags may say several numbers of parts at the same time (`0/3`, `0/4`), as
/// they do while servers move from one partitioning to another. Each call goes to one partitioning of which every part
/// is held, and to another if the failure says that it may be sent again. Each gets calls in proportion to its capacity:
/// what its weakest part can take, counted by the weights of the servers. As long as none is complete, calls wait. Those of
/// more than 1000 parts are left out.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::DynamicPartition;
///
/// # fn main() -> polyrpc::Result<()> {
/// let url = "baidu-std+list://10.0.0.1:8000 0/1,10.0.0.2:8000 0/2,10.0.0.3:8000 1/2";
/// let client = DynamicPartition::builder(|| Ok(Client::builder(url))).fail_limit(1).build()?;
/// # Ok(())
/// # }
/// ```
pub struct DynamicPartition {
    partitions: Arc<Partitions>,
    common: Common,
    defaults: Arc<Defaults>,
    /// A client for each complete partitioning, under the number of its parts.
    selective: Selective,
    /// The set that they were made for.
    known: ArcSwapOption<Holdings>,
    /// Those clients, held while they are changed.
    clients: Mutex<BTreeMap<usize, Choosable>>,
}

impl DynamicPartition {
    /// A combination to be; `template` makes the client of each part, but for its servers, which are taken from what one
    /// such client would find. That client must find its servers.
    pub fn builder(
        template: impl Fn() -> Result<Builder> + Send + Sync + 'static,
    ) -> DynamicPartitionBuilder {
        DynamicPartitionBuilder { plan: Plan::new(template) }
    }

    async fn exchange(&self, mut call: Outgoing<'_>) -> Result<Response<Body>, Status> {
        if !self.is_current() || self.is_incomplete() {
            let timeout = task::current().bound(call.options.timeout)?;
            let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            self.partitions.find(deadline, |set| self.renew(set)).await??;
            // They may have been waited for.
            call.options.timeout =
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
        self.selective.exchange(call).await
    }

    fn is_current(&self) -> bool {
        let (latest, known) = (self.partitions.latest(), self.known.load());
        match (&latest, &*known) {
            (Some(latest), Some(known)) => Arc::ptr_eq(latest, known),
            _ => false,
        }
    }

    fn is_incomplete(&self) -> bool {
        self.selective.is_empty()
    }

    /// Has a client for each partitioning that is complete in this set; `None` if there is none.
    fn renew(&self, set: &Arc<Holdings>) -> Option<Result<(), Status>> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Another call may have been faster.
        if !self.known.load().as_ref().is_some_and(|known| Arc::ptr_eq(known, set)) {
            match self.clients_for(set, &clients) {
                Ok(renewed) => *clients = renewed,
                Err(error) => return Some(Err(error.into_status())),
            }
            self.selective.replace(clients.values().cloned().collect());
            self.known.store(Some(set.clone()));
        }
        (!clients.is_empty()).then_some(Ok(()))
    }

    /// The clients for a set. Those that are known stay what they are.
    fn clients_for(
        &self,
        set: &Holdings,
        known: &BTreeMap<usize, Choosable>,
    ) -> Result<BTreeMap<usize, Choosable>> {
        let capacities = self.partitions.capacities(set).into_iter();
        let clients = capacities.map(|(of, capacity)| {
            let weight = Attributes::default().with("weight", capacity.to_string());
            match known.get(&of) {
                Some(known) => Ok((of, known.renewed(weight))),
                None => Ok((of, Choosable::new(of.to_string(), self.client(of)?, weight))),
            }
        });
        clients.collect()
    }

    fn client(&self, of: usize) -> Result<Client> {
        Ok(Client::of(self.common.parallel(&self.partitions, of)?, (*self.defaults).clone()))
    }
}

impl Combo for DynamicPartition {
    fn call<'a>(&'a self, call: Outgoing<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(self.exchange(call))
    }

    fn endpoints(&self) -> Vec<EndpointFacts> {
        self.selective.endpoints()
    }
}

impl fmt::Debug for DynamicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicPartition")
            .field("partitions", &self.partitions)
            .field("selective", &self.selective)
            .finish_non_exhaustive()
    }
}

/// A [`DynamicPartition`] to be.
#[derive(Debug)]
#[must_use]
pub struct DynamicPartitionBuilder {
    plan: Plan,
}

impl DynamicPartitionBuilder {
    /// What a tag says: brpc's `PartitionParser`. `None`: nothing about parts. Default: `N/M`.
    pub fn parse(mut self, parse: impl Fn(&str) -> Option<Portion> + Send + Sync + 'static) -> Self {
        self.plan.parse = Box::new(parse);
        self
    }

    /// What the servers of a part are asked, as [`Sub::map`](super::Sub::map).
    pub fn map(
        mut self,
        map: impl for<'a> Fn(Outgoing<'a>, Place) -> Part<'a> + Send + Sync + 'static,
    ) -> Self {
        self.plan.common.map = Some(Arc::new(map));
        self
    }

    /// What becomes of a part's answer, as [`Sub::merge`](super::Sub::merge).
    pub fn merge(
        mut self,
        merge: impl Fn(&mut Option<Response<Body>>, Response<Body>, Place) -> Merge + Send + Sync + 'static,
    ) -> Self {
        self.plan.common.merge = Some(Arc::new(merge));
        self
    }

    /// So many failures end the call, as [`ParallelBuilder::fail_limit`](super::ParallelBuilder::fail_limit).
    pub fn fail_limit(mut self, failures: usize) -> Self {
        self.plan.common.bounds.fail = Some(failures);
        self
    }

    /// So many successes end the call, as [`ParallelBuilder::success_limit`](super::ParallelBuilder::success_limit).
    pub fn success_limit(mut self, successes: usize) -> Self {
        self.plan.common.bounds.success = Some(successes);
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    ///
    /// When the template makes no client that finds its servers.
    pub fn build(self) -> Result<Client> {
        let Plan { template, parse, common } = self.plan;
        let (partitions, defaults) = Partitions::new(template, parse)?;
        let dynamic = DynamicPartition {
            partitions,
            common,
            selective: Selective::empty(WeightedRandom, defaults.clone().into()),
            defaults: defaults.clone().into(),
            known: ArcSwapOption::empty(),
            clients: Mutex::default(),
        };
        Ok(Client::of(dynamic, defaults))
    }
}

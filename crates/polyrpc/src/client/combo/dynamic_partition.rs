use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use polyrpc_core::Status;

use super::Combo;
use super::assignment::PartitionAssignment;
use super::common::Common;
use super::partitions::Partitions;
use super::selective::{SelectableClient, Selective};
use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::balance::WeightedRandom;
use crate::client::call_defaults::{CallDefaults, deadline};
use crate::client::{EndpointInfo, Result};
use crate::codec::Body;
use crate::discovery::Attributes;

/// The calls of a [`Partition::dynamic`](super::Partition::dynamic).
pub(super) struct DynamicPartition {
    partitions: Arc<Partitions>,
    common: Common,
    defaults: Arc<CallDefaults>,
    /// One client per complete partitioning, named by the number of its partitions.
    selective: Selective,
    /// Set that the clients were created for.
    known: ArcSwapOption<PartitionAssignment>,
    /// The same clients, locked while they are changed.
    clients: Mutex<BTreeMap<usize, SelectableClient>>,
}

impl DynamicPartition {
    pub(super) fn client(partitions: Arc<Partitions>, common: Common, defaults: CallDefaults) -> Client {
        let dynamic = Self {
            partitions,
            common,
            selective: Selective::empty(WeightedRandom, defaults.clone().into()),
            defaults: defaults.clone().into(),
            known: ArcSwapOption::empty(),
            clients: Mutex::default(),
        };
        Client::from_combo(dynamic, defaults)
    }

    async fn call(&self, mut call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        if !self.is_current() || self.is_incomplete() {
            let deadline = deadline(call.options.timeout)?;
            self.partitions.find(deadline, |set| self.renew(set)).await??;
            // The call may have waited for them.
            call.set_deadline(deadline);
        }
        self.selective.call(call).await
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

    /// Creates a client for each complete partitioning of this set; `None` if there is none.
    fn renew(&self, set: &Arc<PartitionAssignment>) -> Option<Result<(), Status>> {
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

    /// Returns the clients for a set. Known clients are kept.
    fn clients_for(
        &self,
        set: &PartitionAssignment,
        known: &BTreeMap<usize, SelectableClient>,
    ) -> Result<BTreeMap<usize, SelectableClient>> {
        let capacities = self.partitions.capacities(set).into_iter();
        let clients = capacities.map(|(of, capacity)| {
            let weight = Attributes::default().with("weight", capacity.to_string());
            match known.get(&of) {
                Some(known) => Ok((of, known.with_attributes(weight))),
                None => Ok((of, SelectableClient::new(of.to_string(), self.client_of(of)?, weight))),
            }
        });
        clients.collect()
    }

    fn client_of(&self, of: usize) -> Result<Client> {
        Ok(Client::from_combo(self.common.parallel(&self.partitions, of)?, (*self.defaults).clone()))
    }
}

impl Combo for DynamicPartition {
    fn call<'a>(&'a self, call: OutgoingCall<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(self.call(call))
    }

    fn endpoints(&self) -> Vec<EndpointInfo> {
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

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use polyrpc_core::Status;

use super::Combo;
use super::assignment::PartitionIndex;
use super::gather::{CompletionBounds, PartOutcome, gather};
use super::sub::SubChannel;
use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::{EndpointInfo, Result};
use crate::codec::Body;

/// Client that calls several clients concurrently and merges their replies into one: brpc's `ParallelChannel`.
///
/// Each client gets the same request, or the result of its [`map`](SubChannel::map). Replies are
/// [merged](SubChannel::merge) as they arrive. The call succeeds unless all parts fail;
/// [`fail_limit`](Self::fail_limit) and [`success_limit`](Self::success_limit) change that. When the result is decided,
/// the other parts are cancelled. Parts without a reply in time have failed. It retries nothing itself; the clients use
/// their own settings.
///
/// It fails as brpc mostly does: with the code of the failures if they share it, otherwise with `ETOOMANYFAILS` (1005).
#[derive(Debug, Default)]
#[must_use]
pub struct Parallel {
    subs: Vec<SubChannel>,
    bounds: CompletionBounds,
    timeout: Option<Option<Duration>>,
}

impl Parallel {
    /// Creates a builder without clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a client. A client that is added twice is called twice.
    pub fn sub_channel(mut self, sub: impl Into<SubChannel>) -> Self {
        self.subs.push(sub.into());
        self
    }

    /// Sets the number of failures that end the call. At least one; default: the number of clients called.
    pub fn fail_limit(mut self, failures: usize) -> Self {
        self.bounds.fail = Some(failures);
        self
    }

    /// Sets the number of successes that end the call, if no [`fail_limit`](Self::fail_limit) is set. At least one;
    /// default: the number of clients called.
    pub fn success_limit(mut self, successes: usize) -> Self {
        self.bounds.success = Some(successes);
        self
    }

    /// Sets the timeout of calls without their own. Default: that of the first client. If it is `None`, each client
    /// uses its own.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// If there are no clients.
    pub fn build(self) -> Result<Client> {
        let Some(first) = self.subs.first() else {
            return Err(Status::invalid_argument("a parallel client needs at least one sub-channel").into());
        };
        let mut defaults = (*first.client.defaults).clone();
        defaults.timeout = self.timeout.unwrap_or(defaults.timeout);
        Ok(Client::from_combo(ParallelCombo::new(self.subs, self.bounds), defaults))
    }
}

/// The calls of a [`Parallel`].
#[derive(Debug)]
pub(super) struct ParallelCombo {
    subs: Arc<[SubChannel]>,
    bounds: CompletionBounds,
}

impl ParallelCombo {
    pub(super) fn new(subs: impl Into<Arc<[SubChannel]>>, bounds: CompletionBounds) -> Self {
        Self { subs: subs.into(), bounds }
    }

    /// Returns the request for each client.
    fn parts<'a>(
        &'a self,
        call: &OutgoingCall<'a>,
    ) -> Result<Vec<(PartitionIndex, &'a SubChannel, OutgoingCall<'a>)>, Status> {
        let mut parts = Vec::with_capacity(self.subs.len());
        for (index, sub) in self.subs.iter().enumerate() {
            let partition = PartitionIndex { index, count: self.subs.len() };
            let part = (sub.map)(call.clone(), partition)?;
            parts.extend(part.map(|part| (partition, sub, part)));
        }
        match parts.is_empty() {
            // brpc's ECANCELED.
            true => Err(Status::cancelled("every sub-channel was skipped")),
            false => Ok(parts),
        }
    }

    async fn call(&self, call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        let parts = self.parts(&call)?.into_iter().map(|(partition, sub, part)| async move {
            PartOutcome { of: (partition, sub), result: Some(sub.client.call_outgoing(part).await) }
        });
        let merge = |whole: &mut _, part, &(partition, sub): &(PartitionIndex, &SubChannel)| {
            (sub.merge)(whole, part, partition)
        };
        gather(parts, self.bounds, merge, |(partition, _)| format!("client {}", partition.index)).await
    }
}

impl Combo for ParallelCombo {
    fn call<'a>(&'a self, call: OutgoingCall<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(self.call(call))
    }

    fn endpoints(&self) -> Vec<EndpointInfo> {
        self.subs.iter().flat_map(|sub| sub.client.endpoints()).collect()
    }
}

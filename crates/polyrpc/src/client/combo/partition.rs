use std::fmt;
use std::sync::Arc;

use polyrpc_core::Status;

use super::assignment::{Parser, PartitionIndex};
use super::common::Common;
use super::dynamic_partition::DynamicPartition;
use super::partitions::{Partitions, Template};
use super::sub::Merge;
use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::{Builder, Result};
use crate::codec::Body;

/// Client of servers that each hold a partition: brpc's `PartitionChannel`.
///
/// One registry lists the servers of all partitions. A tag gives the partition of a server and the number of
/// partitions, usually `N/M`. Each partition has a client of the servers that hold it, and each call goes to all of
/// these as by a [`Parallel`](super::Parallel). Servers whose tags give another number of partitions, or none, get no calls; a server
/// with several tags holds several partitions. [`dynamic`](Self::dynamic) corresponds to a `DynamicPartitionChannel`.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::Partition;
///
/// # fn main() -> polyrpc::Result<()> {
/// let url = "baidu-std+list://10.0.0.1:8000 0/2,10.0.0.2:8000 1/2";
/// let client = Partition::new(2, || Ok(Client::builder(url))).fail_limit(1).build()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Partition {
    /// Number of partitions, if it is fixed.
    parts: Option<usize>,
    template: Box<Template>,
    parse: Box<Parser>,
    common: Common,
}

impl Partition {
    /// Creates a builder with this number of partitions. `template` creates the client of each partition; that client must use
    /// discovery, whose servers are split among the partitions.
    pub fn new(parts: usize, template: impl Fn() -> Result<Builder> + Send + Sync + 'static) -> Self {
        Self::with_parts(Some(parts), template)
    }

    /// Creates a builder with a changing number of partitions: brpc's `DynamicPartitionChannel`.
    ///
    /// Tags may name several numbers of partitions at the same time (`0/3`, `0/4`), as they do while servers move from
    /// one partitioning to another. Each call goes to one complete partitioning, and to another if the failure allows a
    /// retry. Each partitioning gets calls in proportion to its capacity: that of its weakest partition, which is the
    /// sum of its servers' weights. As long as none is complete, calls wait. Partitionings of more than 1000 partitions
    /// are ignored.
    ///
    /// ```
    /// use polyrpc::Client;
    /// use polyrpc::client::combo::Partition;
    ///
    /// # fn main() -> polyrpc::Result<()> {
    /// let url = "baidu-std+list://10.0.0.1:8000 0/1,10.0.0.2:8000 0/2,10.0.0.3:8000 1/2";
    /// let client = Partition::dynamic(|| Ok(Client::builder(url))).fail_limit(1).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dynamic(template: impl Fn() -> Result<Builder> + Send + Sync + 'static) -> Self {
        Self::with_parts(None, template)
    }

    fn with_parts(
        parts: Option<usize>,
        template: impl Fn() -> Result<Builder> + Send + Sync + 'static,
    ) -> Self {
        Self {
            parts,
            template: Box::new(template),
            parse: Box::new(|tag| tag.parse().ok()),
            common: Common::default(),
        }
    }

    /// Sets the parser of tags: brpc's `PartitionParser`. `None`: the tag names no partition. Default: `N/M`.
    pub fn parse(mut self, parse: impl Fn(&str) -> Option<PartitionIndex> + Send + Sync + 'static) -> Self {
        self.parse = Box::new(parse);
        self
    }

    /// Maps the request for each partition, as [`SubChannel::map`](super::SubChannel::map).
    pub fn map(
        mut self,
        map: impl for<'a> Fn(OutgoingCall<'a>, PartitionIndex) -> Result<Option<OutgoingCall<'a>>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.common.map = Some(Arc::new(map));
        self
    }

    /// Merges a partition's reply, as [`SubChannel::merge`](super::SubChannel::merge).
    pub fn merge(
        mut self,
        merge: impl Fn(&mut Option<Response<Body>>, Response<Body>, PartitionIndex) -> Merge
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.common.merge = Some(Arc::new(merge));
        self
    }

    /// Sets the number of failures that end the call, as [`Parallel::fail_limit`](super::Parallel::fail_limit).
    pub fn fail_limit(mut self, failures: usize) -> Self {
        self.common.bounds.fail = Some(failures);
        self
    }

    /// Sets the number of successes that end the call, as [`Parallel::success_limit`](super::Parallel::success_limit).
    pub fn success_limit(mut self, successes: usize) -> Self {
        self.common.bounds.success = Some(successes);
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// If there are no partitions, or the template creates no client with discovery.
    pub fn build(self) -> Result<Client> {
        let Self { parts, template, parse, common } = self;
        if parts == Some(0) {
            return Err(Status::invalid_argument("a partition client needs at least one partition").into());
        }
        let (partitions, defaults) = Partitions::new(template, parse)?;
        Ok(match parts {
            Some(parts) => Client::from_combo(common.parallel(&partitions, parts)?, defaults),
            None => DynamicPartition::client(partitions, common, defaults),
        })
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("parts", &self.parts)
            .field("common", &self.common)
            .finish_non_exhaustive()
    }
}

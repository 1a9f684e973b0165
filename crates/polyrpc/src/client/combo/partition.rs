use std::fmt;
use std::sync::Arc;

use polyrpc_core::Status;

use super::assignment::{Parser, Portion};
use super::common::Common;
use super::dynamic_partition::DynamicPartition;
use super::partitions::{Partitions, Template};
use super::sub::{Merge, Part, PartIndex};
use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::{Builder, Result};
use crate::codec::Body;

/// Asks the servers that each hold a part: brpc's `PartitionChannel`.
///
/// One registry tells the servers of all parts; a tag says which part a server holds and of how many, usually `N/M`.
/// For each part there is a client of the servers that hold it, and each call goes to all of these as by a
/// [`Parallel`]. Servers with tags of another number of parts, or none, get no calls; one with several tags holds
/// several parts.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::Partition;
///
/// # fn main() -> polyrpc::Result<()> {
/// let url = "baidu-std+list://10.0.0.1:8000 0/2,10.0.0.2:8000 1/2";
/// let client = Partition::builder(2, || Ok(Client::builder(url))).fail_limit(1).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Partition {}

impl Partition {
    /// A combination of so many parts to be; `template` makes the client of each, but for its servers, which are taken
    /// from what one such client would find. That client must find its servers.
    pub fn builder(
        parts: usize,
        template: impl Fn() -> Result<Builder> + Send + Sync + 'static,
    ) -> PartitionBuilder {
        PartitionBuilder::new(Some(parts), template)
    }
}

impl DynamicPartition {
    /// A combination to be; `template` makes the client of each part, but for its servers, which are taken from what one
    /// such client would find. That client must find its servers.
    pub fn builder(template: impl Fn() -> Result<Builder> + Send + Sync + 'static) -> PartitionBuilder {
        PartitionBuilder::new(None, template)
    }
}

/// A [`Partition`] to be, or a [`DynamicPartition`].
#[must_use]
pub struct PartitionBuilder {
    /// How many there are, unless that changes.
    parts: Option<usize>,
    template: Box<Template>,
    parse: Box<Parser>,
    common: Common,
}

impl PartitionBuilder {
    fn new(parts: Option<usize>, template: impl Fn() -> Result<Builder> + Send + Sync + 'static) -> Self {
        Self {
            parts,
            template: Box::new(template),
            parse: Box::new(|tag| tag.parse().ok()),
            common: Common::default(),
        }
    }

    /// What a tag says: brpc's `PartitionParser`. `None`: nothing about parts. Default: `N/M`.
    pub fn parse(mut self, parse: impl Fn(&str) -> Option<Portion> + Send + Sync + 'static) -> Self {
        self.parse = Box::new(parse);
        self
    }

    /// What the servers of a part are asked, as [`Sub::map`].
    pub fn map(
        mut self,
        map: impl for<'a> Fn(OutgoingCall<'a>, PartIndex) -> Part<'a> + Send + Sync + 'static,
    ) -> Self {
        self.common.map = Some(Arc::new(map));
        self
    }

    /// What becomes of a part's answer, as [`Sub::merge`].
    pub fn merge(
        mut self,
        merge: impl Fn(&mut Option<Response<Body>>, Response<Body>, PartIndex) -> Merge + Send + Sync + 'static,
    ) -> Self {
        self.common.merge = Some(Arc::new(merge));
        self
    }

    /// So many failures end the call, as [`ParallelBuilder::fail_limit`](super::ParallelBuilder::fail_limit).
    pub fn fail_limit(mut self, failures: usize) -> Self {
        self.common.bounds.fail = Some(failures);
        self
    }

    /// So many successes end the call, as [`ParallelBuilder::success_limit`](super::ParallelBuilder::success_limit).
    pub fn success_limit(mut self, successes: usize) -> Self {
        self.common.bounds.success = Some(successes);
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    ///
    /// When there are no parts, or the template makes no client that finds its servers.
    pub fn build(self) -> Result<Client> {
        let Self { parts, template, parse, common } = self;
        if parts == Some(0) {
            return Err(Status::invalid_argument("a partition needs parts").into());
        }
        let (partitions, defaults) = Partitions::new(template, parse)?;
        Ok(match parts {
            Some(parts) => Client::of(common.parallel(&partitions, parts)?, defaults),
            None => DynamicPartition::client(partitions, common, defaults),
        })
    }
}

impl fmt::Debug for PartitionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionBuilder")
            .field("parts", &self.parts)
            .field("common", &self.common)
            .finish_non_exhaustive()
    }
}

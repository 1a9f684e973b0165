//! Clients that are made of clients: brpc's combo channels, for every protocol. Each is a [`Client`] again, so that
//! stubs call it and combinations may be combined.
//!
//! [`Parallel`] asks all its clients at once and puts their answers together; `sub` says what each is asked, `gather`
//! when the call has ended and how. [`Selective`] asks one of its clients, and another if that fails. [`Partition`] asks
//! the servers that each hold a part: `holdings` tells them apart by their tags, `partitions` has them from a registry.
//! [`DynamicPartition`] does so while the number of parts changes.
//!
//! A call is encoded once, as the first of the clients has it: they should speak the same protocol. How long the call
//! waits replaces what the clients within would wait by themselves. Calls with several messages in a direction have one
//! server, and are refused.

mod sub;

mod gather;

mod parallel;

mod selective;

mod assignment;

mod partitions;

mod common;
mod partition;

mod dynamic_partition;

use std::fmt;

use futures_util::future::BoxFuture;
use polyrpc_core::Status;

pub use self::assignment::Portion;
pub use self::dynamic_partition::DynamicPartition;
pub use self::parallel::{Parallel, ParallelBuilder};
pub use self::partition::{Partition, PartitionBuilder};
pub use self::selective::{Selective, SelectiveBuilder};
pub use self::sub::{Merge, Part, PartIndex, SubChannel, fold};

pub(super) use self::gather::{CompletionBounds, PartOutcome, gather};
pub(super) use self::sub::keep_first;

use super::call_defaults::CallDefaults;
use super::{Client, Transport};
use crate::call::{OutgoingCall, Response};
use crate::client::EndpointInfo;
use crate::codec::Body;

/// Makes calls by other clients.
pub(super) trait Combo: fmt::Debug + Send + Sync + 'static {
    /// Makes a call, which says itself how long it waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels whatever is under way.
    fn call<'a>(&'a self, call: OutgoingCall<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>>;

    /// The servers there are, as far as is known.
    fn endpoints(&self) -> Vec<EndpointInfo>;
}

impl Client {
    /// A client whose calls a combination makes, encoded as these defaults say.
    pub(super) fn of(combo: impl Combo, defaults: CallDefaults) -> Self {
        Self {
            transport: Transport::Combo(std::sync::Arc::new(combo)),
            defaults: defaults.into(),
            layers: Default::default(),
        }
    }

    /// Makes a call that was encoded already.
    async fn call_outgoing(&self, call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        let OutgoingCall { service, method, body, options, .. } = call;
        self.call_encoded(service, method, body, options).await
    }
}

//! Clients composed of clients: brpc's combo channels, for every protocol. Each is a [`Client`] itself, so that stubs
//! can call it and combinations can be nested.
//!
//! [`Parallel`] calls all its clients concurrently and merges their replies; `sub` defines the request to each client,
//! `gather` the completion. [`Selective`] calls one of its clients, and another one if that fails. [`Partition`] calls
//! the servers of all partitions: `assignment` groups them by their tags, `partitions` reads them from a registry.
//! [`Partition::dynamic`] does so while the number of partitions changes.
//!
//! A call is encoded once, in the format of the first client: all clients should use the same protocol. The timeout of
//! the call replaces those of the inner clients. Streaming calls need a single server, and are rejected.

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

pub use self::assignment::PartitionIndex;
pub use self::parallel::Parallel;
pub use self::partition::Partition;
pub use self::selective::{Selective, SelectiveBuilder};
pub use self::sub::{Merge, SubChannel, fold};

pub(super) use self::gather::{CompletionBounds, PartOutcome, gather};
pub(super) use self::sub::keep_first;

use super::call_defaults::CallDefaults;
use super::{Backend, Client};
use crate::call::{OutgoingCall, Response};
use crate::client::EndpointInfo;
use crate::codec::Body;

/// Makes calls through other clients.
pub(super) trait Combo: fmt::Debug + Send + Sync + 'static {
    /// Makes a call with its own timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels all attempts in flight.
    fn call<'a>(&'a self, call: OutgoingCall<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>>;

    /// State of the known servers.
    fn endpoints(&self) -> Vec<EndpointInfo>;
}

impl Client {
    /// Creates a client whose calls are made by a combination and encoded with these defaults.
    pub(super) fn from_combo(combo: impl Combo, defaults: CallDefaults) -> Self {
        Self {
            backend: Backend::Combo(std::sync::Arc::new(combo)),
            defaults: defaults.into(),
            layers: Default::default(),
        }
    }

    /// Makes a call that is encoded already.
    async fn call_outgoing(&self, call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        let OutgoingCall { service, method, body, options, .. } = call;
        self.call_encoded(service, method, body, options).await
    }
}

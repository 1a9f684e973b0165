//! Service discovery and registration: resolvers for clients ([`Discover`]), and registries for servers ([`Registrar`]).
//! An [`Instance`] has the attributes of rpcx's entries.
//!
//! This module contains the resolvers that need no registry server: [`List`] and [`host_list()`] are given the
//! servers, [`file()`] and [`remote_file`] read them from a file, [`Dns`] and [`Mdns`] resolve a name, [`InProcess`] is
//! a registry for tests. Results can be [filtered](Discover::filtered), [merged](Discover::merged) and [cached in a
//! file](Discover::cached). [`open`] creates the resolver that a URL names. Registries such as etcd are in the crate
//! `polyrpc-discovery`, whose `install()` makes them available in URLs.

mod attributes;
mod instance;

mod redacted;
mod schemes;

mod line;
mod list;

mod polled;

mod file;
mod host_list;
mod remote;

#[cfg(feature = "dns")]
mod dns;

#[cfg(feature = "mdns")]
mod mdns;

mod in_process;

mod cached;
mod filtered;
mod merged;

#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

pub use self::attributes::Attributes;
#[cfg(feature = "dns")]
pub use self::dns::Dns;
pub use self::file::{file, remote_file};
pub use self::host_list::host_list;
pub use self::in_process::InProcess;
pub use self::instance::{Instance, Network};
pub use self::list::List;
#[cfg(feature = "mdns")]
pub use self::mdns::Mdns;
pub use self::redacted::redacted;
pub(crate) use self::schemes::how_to_add;
pub use self::schemes::{install, open, open_registry};

pub(crate) use self::polled::jitter;

use self::cached::Cached;
use self::filtered::Filtered;
use self::merged::Merged;
use crate::error::ClientResult as Result;

/// Stream of the sets of instances of one service: each item is the complete set at that time.
///
/// The first item is returned as soon as it is available. An error means that the registry is unreachable or holds
/// malformed data: the previous set stays valid, and the stream retries with a growing backoff. The stream ends when
/// the set can no longer change.
pub type InstanceStream = BoxStream<'static, Result<Vec<Instance>>>;

/// Discovery of the instances of one service.
pub trait Discover: Send + Sync + 'static {
    /// Watches the instances. Its tasks and connections end when the returned stream is dropped.
    fn watch(&self) -> InstanceStream;

    /// Keeps the instances that `keep` accepts: rpcx's `SetFilter`. `keep` must not block.
    ///
    /// If it accepts none, all instances are reported as inactive instead of an empty set, which a client would take
    /// for lost data of the registry, keeping the previous servers.
    ///
    /// ```
    /// # use polyrpc::discovery::{Discover, List};
    /// let list: List = "10.0.0.1:8000 zone=a,10.0.0.2:8000 zone=b".parse()?;
    /// let near = list.filtered(|instance| instance.attributes.value("zone") == Some("a"));
    /// # Ok::<(), polyrpc::Status>(())
    /// ```
    fn filtered(self, keep: impl Fn(&Instance) -> bool + Send + Sync + 'static) -> impl Discover
    where
        Self: Sized,
    {
        Filtered::new(self, keep)
    }

    /// Adds the instances of another discovery, such as a second registry during a migration, or a static list as a
    /// fallback.
    ///
    /// If both find the same address, the attributes are those of the first one. A discovery that fails keeps its
    /// previous result. The first set is returned as soon as one discovery has a result.
    fn merged(self, other: impl Discover) -> impl Discover
    where
        Self: Sized,
    {
        Merged::new(self, other)
    }

    /// Caches the result in this file, as a fallback: rpcx's cached discovery, in its format. A program that starts
    /// while the registry is down, or has lost its data, starts with the servers from the file.
    ///
    /// The file need not exist yet; rpcx's is `.cache/discovery.json`. Each service needs a file of its own. The file
    /// is used if there is no result within `initial_timeout` (3 s suit most programs), or if the result has at most
    /// `min_servers` servers (usually 0) and fewer than the file.
    ///
    /// ```
    /// # use polyrpc::discovery::{Discover, List};
    /// use std::time::Duration;
    ///
    /// let list: List = "10.0.0.1:8000,10.0.0.2:8000".parse()?;
    /// let cached = list.cached("/var/cache/orders/servers.json", Duration::from_secs(3), 0);
    /// # Ok::<(), polyrpc::Status>(())
    /// ```
    fn cached(self, path: impl Into<PathBuf>, initial_timeout: Duration, min_servers: usize) -> impl Discover
    where
        Self: Sized,
    {
        Cached::new(self, path.into(), initial_timeout, min_servers)
    }
}

impl<D: Discover + ?Sized> Discover for Box<D> {
    fn watch(&self) -> InstanceStream {
        (**self).watch()
    }
}

/// Server side of a registry: publishes instances and withdraws them.
pub trait Registrar: Send + Sync + 'static {
    /// Publishes an instance, or renews its entry; its attributes may have changed. It is called repeatedly while the
    /// server runs, at least twice within `ttl`, and must restore an entry that the registry has lost in between.
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>>;

    /// Withdraws an instance. Succeeds if it is not registered.
    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>>;

    /// Returns the registry's current attributes of a published instance: others may have changed them (rpcx-ui writes
    /// `state=inactive`), and a server keeps such changes. `None` if it is not registered, or the registry does not
    /// allow others to change it.
    fn current_attributes<'a>(
        &'a self,
        _entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        Box::pin(ready(Ok(None)))
    }
}

impl<R: Registrar + ?Sized> Registrar for Box<R> {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        (**self).publish(entry)
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        (**self).withdraw(entry)
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        (**self).current_attributes(entry)
    }
}

impl<R: Registrar + ?Sized> Registrar for Arc<R> {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        (**self).publish(entry)
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        (**self).withdraw(entry)
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        (**self).current_attributes(entry)
    }
}

/// Entry that a server publishes in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advertisement {
    /// Service name.
    pub service: String,
    /// Address and attributes.
    pub instance: Instance,
    /// Time to live of the entry if it is not renewed.
    pub ttl: Duration,
}

impl Advertisement {
    /// Creates the entry of an instance of `service`.
    pub fn new(service: impl Into<String>, instance: Instance, ttl: Duration) -> Self {
        Self { service: service.into(), instance, ttl }
    }
}

impl fmt::Display for Advertisement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.instance)
    }
}

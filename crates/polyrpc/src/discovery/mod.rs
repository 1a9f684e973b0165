//! Where servers are found, and how they make themselves known: what a registry must do for a client
//! ([`Discover`]) and for a server ([`Registrar`]), in rpcx's words for what is kept there ([`Instance`]).
//!
//! Here are the ways that need no registry: [`List`] and [`Names`] are told the servers, [`File`] and [`RemoteFile`]
//! read them, [`Dns`] and [`Mdns`] ask for them, [`InProcess`] is a registry for tests. [`Cached`], [`Filtered`] and
//! [`Merged`] are made of others. [`open`] finds the one that a URL names. Real registries are in the crate
//! `polyrpc-discovery`.

mod attributes;
mod instance;

mod open;
mod redacted;

mod line;
mod list;

mod polled;

mod file;
mod names;
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
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

pub use self::attributes::Attributes;
pub use self::cached::Cached;
#[cfg(feature = "dns")]
pub use self::dns::Dns;
pub use self::file::File;
pub use self::filtered::Filtered;
pub use self::in_process::InProcess;
pub use self::instance::{Instance, Network};
pub use self::list::List;
#[cfg(feature = "mdns")]
pub use self::mdns::Mdns;
pub use self::merged::Merged;
pub use self::names::Names;
pub use self::open::{open, open_registry};
pub use self::redacted::redacted;
pub use self::remote::RemoteFile;

pub(crate) use self::polled::jittered;

use crate::error::ClientResult as Result;

/// The sets of instances of one service, one after another: each item is all there are at that time.
///
/// The first comes as soon as it is known. An error says that the registry cannot be asked at the moment, or holds
/// nothing that can be read: what was found before stays true, and the stream goes on, by itself and with growing
/// pauses. It ends when nothing can change any more.
pub type Sets = BoxStream<'static, Result<Vec<Instance>>>;

/// Finds the instances of one service.
pub trait Discover: Send + Sync + 'static {
    /// Watches them, in tasks or connections that end when what is returned is dropped.
    fn watch(&self) -> Sets;
}

impl<D: Discover + ?Sized> Discover for Box<D> {
    fn watch(&self) -> Sets {
        (**self).watch()
    }
}

/// Where servers make their services known.
pub trait Registrar: Send + Sync + 'static {
    /// Enters an instance, or enters it anew with what has changed. It is called again and again while the server
    /// lives, at least twice within `ttl`, and must put right whatever the registry has lost in between.
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>>;

    /// Takes an instance out. What is not there is no error.
    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>>;

    /// What the registry says now of an instance that was entered: others may have changed it (rpcx-ui writes
    /// `state=inactive`), and a server keeps what they say. `None` if it is not there, or the registry has no way for others
    /// to say anything.
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

/// What a server enters into a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// The service, by its name.
    pub service: String,
    /// Where it is to be found, and what is to be known of it.
    pub instance: Instance,
    /// For how long it may be believed when it is not entered anew.
    pub ttl: Duration,
}

impl fmt::Display for Advertisement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.instance)
    }
}

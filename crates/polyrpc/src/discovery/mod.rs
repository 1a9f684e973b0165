//! Where servers are found, and how they make themselves known: what a registry must do for a client
//! ([`Discover`]) and for a server ([`Register`]), in rpcx's words for what is kept there ([`Instance`]).

mod attributes;
mod instance;
mod list;
mod open;

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

pub use self::attributes::Attributes;
pub use self::instance::{Instance, Network};
pub use self::list::List;
pub use self::open::open;

use crate::Result;

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
pub trait Register: Send + Sync + 'static {
    /// Enters an instance, or enters it anew with what has changed. It is called again and again while the server
    /// lives, at least twice within `ttl`, and must put right whatever the registry has lost in between.
    fn publish<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<()>>;

    /// Takes an instance out. What is not there is no error.
    fn withdraw<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<()>>;
}

/// What a server enters into a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The service, by its name.
    pub service: String,
    /// Where it is to be found, and what is to be known of it.
    pub instance: Instance,
    /// For how long it may be believed when it is not entered anew.
    pub ttl: Duration,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.instance)
    }
}

#![doc = include_str!("README.md")]

mod directory;
mod frame;
mod session;
pub mod status;

#[cfg(test)]
mod tests;

pub use directory::{Directory, SameNumber, service_id};
pub use frame::Dialect;
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};

use crate::sniff::{Guess, Protocol, by_magic};

/// Whether a connection that begins with `start` speaks this protocol, in either dialect.
pub fn recognise(start: &[u8]) -> Guess {
    match by_magic(Protocol::FbRpc, Dialect::Pr3559.magic(), start) {
        Guess::Unknown => by_magic(Protocol::FbRpc, Dialect::Pr3197.magic(), start),
        known => known,
    }
}

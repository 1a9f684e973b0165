#![doc = include_str!("README.md")]

mod directory;
mod frame;
mod session;
pub mod status;

#[cfg(test)]
mod tests;

pub use directory::{NumberCollision, ServiceDirectory, ServiceHash, service_id};
pub use frame::Magic;
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};

use polyrpc_core::protocol::by_magic;
use polyrpc_core::{Detected, Protocol};

/// Whether a connection that begins with `start` speaks this protocol, with either magic.
pub fn recognise(start: &[u8]) -> Detected {
    match by_magic(Protocol::FbRpc, Magic::Frpc.letters(), start) {
        Detected::Unknown => by_magic(Protocol::FbRpc, Magic::Brpc.letters(), start),
        known => known,
    }
}

#![doc = include_str!("README.md")]

mod body;
mod frame;
mod meta;
mod metadata;
mod session;
mod stream;

#[cfg(test)]
mod tests;

pub use meta::MAX_USER_FIELDS;
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};
pub use stream::StreamLimits;

use polyrpc_core::protocol::by_magic;
use polyrpc_core::{Detected, Protocol};

/// Whether a connection that begins with `start` speaks this protocol. A stream's frame counts too: both
/// kinds share their connections.
pub fn recognise(start: &[u8]) -> Detected {
    match by_magic(Protocol::BaiduStd, frame::Kind::Rpc.magic(), start) {
        Detected::Unknown => by_magic(Protocol::BaiduStd, frame::Kind::Stream.magic(), start),
        known => known,
    }
}

//! rpcx: the protocol of the Go framework of the same name, both sides.
#![doc = include_str!("README.md")]

mod compressors;
mod frame;
mod panic;
mod session;
mod status;

#[cfg(test)]
mod tests;

pub use compressors::Compressors;
pub use frame::{MAX_METADATA, THRIFT};
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};
pub use status::no_codec;

use polyrpc_core::protocol::by_magic;
use polyrpc_core::{Detected, Protocol, Status};

/// The failure that a text of rpcx tells of, which JSON-RPC has too.
#[cold]
pub(crate) fn failure(text: &str) -> Status {
    status::read(text)
}

/// Whether a connection that begins with `start` speaks this protocol.
pub fn recognise(start: &[u8]) -> Detected {
    by_magic(Protocol::Rpcx, &[frame::MAGIC], start)
}

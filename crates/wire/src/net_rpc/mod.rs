//! Go's `net/rpc` and what was built on it: `net/rpc/jsonrpc` and the rpcx of 2016, both sides.
#![doc = include_str!("README.md")]

mod codec;
mod frame;
mod session;

mod credential;
mod greeting;
mod page;
mod pending_calls;
mod status;

#[cfg(test)]
mod tests;

pub use codec::Codec;
pub use greeting::CONNECT_PATH;
pub use page::page;
pub use session::{Client, ClientConfig, Server, ServerConfig, Ticket};

pub(crate) use greeting::CONNECTED;
pub(crate) use page::PAGE_PATH;

use polyrpc_core::{Detected, Protocol};

/// Whether a connection that begins with `start` speaks this protocol, in one of the codecs that can be told by it:
/// gob, JSON or MessagePack.
pub fn recognise(start: &[u8]) -> Detected {
    match Codec::recognise(start) {
        codec::DetectedCodec::Is(_) => Detected::Is(Protocol::NetRpc),
        codec::DetectedCodec::NeedMore => Detected::NeedMore,
        codec::DetectedCodec::Unknown => Detected::Unknown,
    }
}

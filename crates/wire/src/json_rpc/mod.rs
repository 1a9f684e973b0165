//! JSON-RPC 2.0: the objects inside a message, independent of the transport.
#![doc = include_str!("README.md")]

mod frame;
mod session;
mod status;
pub(crate) mod text;

#[cfg(test)]
mod tests;

pub(crate) use frame::{Incoming, Request, announces, read, read_response, write_request};
pub(crate) use session::{Batch, PendingResponse};

/// Maximum length of an id in bytes, also in net/rpc: it is kept until its call is answered, and does not count as memory
/// of the call.
pub(crate) const MAX_ID_LEN: usize = 256;

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

//! gRPC over HTTP/2 (`doc/PROTOCOL-HTTP2.md` of grpc/grpc), on the state machine of [`h2`](crate::h2).
//!
//! A request's head is read by `request.rs`, its messages by `incoming.rs`, an answer's head is written by `block.rs`;
//! messages are framed by `frame.rs`; what came of an answer is put together by `outgoing.rs`. `methods.rs` tells which calls are worth waiting for until they are whole.
//! `metadata.rs`, `timeout.rs` and `coding.rs` know the single headers, `status.rs` how failures travel; `audit.rs` what
//! must always hold.

mod audit;
mod block;
mod client;
pub(crate) mod coding;
pub(crate) mod frame;
pub(crate) mod incoming;
pub(crate) mod metadata;
mod methods;
pub(crate) mod outgoing;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod timeout;

use polyrpc_core::protocol::by_magic;
use polyrpc_core::{Guess, Protocol};

pub(crate) use client::USER_AGENT;
pub use client::{Client, ClientConfig};
pub use incoming::corrupt;
pub use methods::Methods;
pub use server::{MAX_FIELDS, Server, ServerConfig, Ticket};

/// Recognises the fixed bytes that every client of HTTP/2 begins with.
pub(crate) fn recognise(start: &[u8]) -> Guess {
    by_magic(Protocol::Grpc, crate::h2::PREFACE, start)
}

#[cfg(test)]
mod tests;

//! gRPC, whatever HTTP carries it, and its client over HTTP/2 (`doc/PROTOCOL-HTTP2.md` of grpc/grpc). The server is
//! [`http_server`](crate::http_server).
//!
//! A request's head is read by `request.rs`, its messages by `incoming.rs`, an answer's head is written by `block.rs`;
//! messages are framed by `frame.rs`; what came of an answer is put together by `outgoing.rs`. `metadata.rs`, `timeout.rs` and
//! `coding.rs` know the single headers, `status.rs` how failures travel. `dialect.rs` tells gRPC-Web from gRPC, which has
//! text in `base64.rs` and `trailers.rs` behind its messages. `audit.rs` says what must always hold.

pub(crate) mod coding;
pub(crate) mod metadata;
pub(crate) mod status;
pub(crate) mod timeout;

pub(crate) mod base64;
pub(crate) mod dialect;
pub(crate) mod frame;
pub(crate) mod trailers;

pub(crate) mod block;
pub(crate) mod incoming;
pub(crate) mod outgoing;
pub(crate) mod request;

mod client;

pub(crate) mod audit;

pub(crate) use client::USER_AGENT;
pub use client::{Client, ClientConfig};
pub use incoming::decompression_failed;

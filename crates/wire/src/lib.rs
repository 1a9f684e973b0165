//! The protocols of PolyRPC as pure state machines.
//!
//! Bytes and time go in, events and bytes come out. Nothing here knows a socket, a task, a lock or a
//! clock, so every protocol can be tested without one, and driven by any runtime or none.
//!
//! In the order in which a request meets them:
//!
//! 1. [`sniff`] tells from the first bytes of a connection which protocol it speaks.
//! 2. A [`session::Server`] turns the bytes of one connection into [`Call`]s; its twin
//!    [`session::Client`] turns calls into bytes and bytes into [`Reply`]s.
//! 3. A [`Call`] is the same whatever protocol it came by; so is a [`Reply`].
//! 4. [`Status`] is the one model of failure; each protocol folder holds its table in `status.rs`.
//! 5. [`Outbox`] collects what leaves: small chunks copied together, large ones shared.
//! 6. [`payload`] holds what is inside a message: formats, schemas, compression.
//!
//! Each protocol is a folder with the same file names: `frame.rs` (the bytes), `session.rs` (the state
//! machine, both sides), `status.rs` (its codes), `tests.rs`, `README.md`. Learn one, read all.

pub mod session;

mod call;
mod carrier;
mod digits;
mod outbox;
pub mod sniff;
mod status;

pub mod baidu_std;
pub mod fb_rpc;
pub mod grpc;
pub mod grpc_web;
pub mod h2;
pub mod http1;
pub mod http_rule;
pub mod json_rpc;
pub mod net_rpc;
pub mod rest_rpc;
pub mod rpcx;
pub mod websocket;

pub mod payload;

#[cfg(feature = "kcp")]
pub mod kcp;

#[doc(hidden)]
pub mod testing;

pub use call::{Call, CallId, Checksum, Credential, Head, Message, Metadata, Push, Reply, StreamId, Topic};
pub use carrier::{Carrier, Misfit};
pub use outbox::Outbox;
pub use payload::{Compression, Format};
pub use session::{Limits, Violation};
pub use sniff::{Guess, Protocol};
pub use status::{Code, Detail, Fault, Retry, Scope, Status};

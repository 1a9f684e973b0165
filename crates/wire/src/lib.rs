//! The protocols of PolyRPC as pure state machines.
//!
//! Bytes and time go in, events and bytes come out. No socket, task, lock or clock is used here, so every protocol can
//! be tested without one, and driven by any runtime or none.
//!
//! In the order of a request:
//!
//! 1. [`sniff`] detects from the first bytes of a connection which [`Protocol`] it uses: the descriptor of each defines
//!    its first bytes and its capabilities.
//! 2. A [`session::Server`](polyrpc_core::session::Server) turns the bytes of one connection into
//!    [`Call`](polyrpc_core::Call)s; its counterpart [`session::Client`](polyrpc_core::session::Client) turns calls
//!    into bytes and bytes into [`Reply`](polyrpc_core::Reply)s.
//! 3. [`Status`](polyrpc_core::Status) models every failure; the table of each protocol is in its `status.rs`.
//!
//! Shared types are in `polyrpc-core`; message formats are in `polyrpc-payload`.
//!
//! Each protocol is a folder with the same file names: `frame.rs` (the bytes), `session.rs` (the state machine, both
//! sides), `status.rs` (its codes), `tests`, `README.md`.
//!
//! Protocols over HTTP are layered: [`http`] contains the basics of HTTP, and calls as plain HTTP; [`grpc`] with
//! [Connect](grpc::connect), and [`grpc_web`] build on it; [`http_server`] answers all of them on one connection.

pub mod protocol;
pub mod sniff;

pub mod http_server;

pub mod grpc;
pub mod grpc_web;
pub mod http;

pub mod baidu_std;
pub mod fb_rpc;
pub mod json_rpc;
mod kept_part;
pub mod net_rpc;
pub mod rest_rpc;
pub mod rpcx;

pub mod brpc_status;

mod failure_text;
mod metadata_count;
mod oversized;
mod timeout_millis;

pub use grpc::connect;
pub use protocol::Protocol;

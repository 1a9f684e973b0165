//! The protocols of PolyRPC as pure state machines.
//!
//! Bytes and time go in, events and bytes come out. Nothing here knows a socket, a task, a lock or a
//! clock, so every protocol can be tested without one, and driven by any runtime or none.
//!
//! In the order in which a request meets them:
//!
//! 1. [`sniff`] tells from the first bytes of a connection which [`Protocol`] it speaks: each has a descriptor, which says
//!    what it begins with and what it can carry.
//! 2. A [`session::Server`](polyrpc_core::session::Server) turns the bytes of one connection into
//!    [`Call`](polyrpc_core::Call)s; its twin [`session::Client`](polyrpc_core::session::Client) turns calls into bytes
//!    and bytes into [`Reply`](polyrpc_core::Reply)s.
//! 3. [`Status`](polyrpc_core::Status) is the one model of failure; each protocol folder holds its table in `status.rs`.
//!
//! What they share is in `polyrpc-core`; what is inside a message in `polyrpc-payload`.
//!
//! Each protocol is a folder with the same file names: `frame.rs` (the bytes), `session.rs` (the state
//! machine, both sides), `status.rs` (its codes), `tests.rs`, `README.md`. Learn one, read all.
//!
//! What travels by HTTP is in layers: [`http`] is what HTTP is made of, and calls as plain HTTP; [`grpc`] with
//! [Connect](grpc::connect), and [`grpc_web`] stand on it; [`http_server`] answers all of them on one connection.

pub mod protocol;
pub mod sniff;

pub mod http_server;

pub mod grpc;
pub mod grpc_web;
pub mod http;

pub mod baidu_std;
pub mod fb_rpc;
pub mod json_rpc;
pub mod net_rpc;
pub mod rest_rpc;
pub mod rpcx;

pub mod brpc_status;

pub use grpc::connect;
pub use protocol::Protocol;

//! Tests of the public API in one program, since linking takes most of the time of a small one. Tests that set up
//! their whole process (allocator, logger, signals, limits) are programs of their own.

mod client;
mod common;
mod layers;
mod protocols;
mod rich;
mod server;
mod values;

#[cfg(feature = "tls")]
#[path = "../src/transport/tls/tests/authority.rs"]
mod authority;

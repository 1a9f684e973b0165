#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.

// What everything else is built on: errors, locks, threads, budgets.
#[cfg(feature = "prost")]
mod details;
mod error;

pub mod contention;

mod cores;
mod memory_budget;
mod rate_limited;
mod runtime;
pub mod signal;

// A call, on either side: its messages, its context, the layers around it, and the methods that answer it.
pub mod codec;

mod call;

pub mod layer;

mod running;

pub mod service;

// Connections, what a server tells about itself, and where servers are found.
mod transport;

pub mod introspection;

pub mod discovery;

// The client, ready-made layers, and the server.
pub mod client;

pub mod layers;

pub mod transfer;

pub mod server;

pub mod fallback;

// How to add a protocol, and what generated code names.
pub mod protocol;

pub mod protobuf;

pub use call::streaming::Streaming;
pub use call::{Context, propagation};
pub use client::Client;
pub use cores::{Cores, CoresBuilder};
#[cfg(feature = "prost")]
pub use details::Details;
pub use error::{Error, Failure, Result};
pub use memory_budget::MemoryBudget;
pub use server::Server;
pub use transport::Address;
#[cfg(feature = "kcp")]
pub use transport::kcp;
#[cfg(feature = "quic")]
pub use transport::quic;
#[cfg(feature = "tls")]
pub use transport::tls;

pub use polyrpc_core::{
    Checksum, Code, Compression, Detail, Fault, Format, Json, Metadata, Push, Retry, Scope, Status,
};
pub use polyrpc_macros::service;
pub use polyrpc_wire::Protocol;

/// Shared byte buffer, cheap to clone: for messages, attachments and metadata.
pub use bytes::Bytes;

/// Payload formats: gob's own types, schemas of protobuf messages, transcoding.
pub use polyrpc_payload as payload;

/// FlatBuffers support for generated code.
pub use polyrpc_payload::flatbuffers;

/// Types that are specific to rest_rpc: its versions and their byte order.
pub mod rest_rpc {
    pub use polyrpc_wire::rest_rpc::{ByteOrder, UnknownVersion, Version};
}

/// Types that are specific to rpcx.
pub mod rpcx {
    pub use polyrpc_wire::rpcx::Compressors;
}

/// Types that are specific to Go's `net/rpc`.
pub mod net_rpc {
    pub use polyrpc_wire::net_rpc::Codec;
}

/// Streams of messages: their sending half, and options of brpc's streams.
pub mod streaming {
    pub use crate::call::streaming::{Sender, StreamOptions};
}

/// Client without a runtime, for plain threads.
pub mod blocking {
    pub use crate::client::blocking::Client;
}

/// Includes the code that `polyrpc_build` generated for a package in `build.rs`.
///
/// ```ignore
/// mod example {
///     polyrpc::include_proto!("example");
/// }
/// ```
///
/// Files without a package are included as `"_"`.
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Items that generated code refers to. Not part of the public API.
#[doc(hidden)]
pub mod generated {
    pub use buffa;
    #[cfg(feature = "descriptor")]
    pub use buffa_descriptor;
    pub use buffa_types;
    pub use polyrpc_payload::schema::Pool;
}

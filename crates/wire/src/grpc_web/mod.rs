//! gRPC-Web: gRPC for clients that cannot read HTTP trailers, such as browsers (`doc/PROTOCOL-WEB.md` of grpc/grpc).
#![doc = include_str!("README.md")]

mod answer;
mod client;

pub use client::{Client, ClientConfig};

pub(crate) use answer::{head, message, trailers};

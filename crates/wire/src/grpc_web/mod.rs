//! gRPC-Web: gRPC for those who see no trailers of HTTP, which is what browsers are (`doc/PROTOCOL-WEB.md` of
//! grpc/grpc).
#![doc = include_str!("README.md")]

mod answer;
mod client;

pub use client::{Client, ClientConfig};

pub(crate) use answer::{head, message, trailers};

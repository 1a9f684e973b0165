//! HTTP: what all that travels by it is made of, and calls as plain HTTP.
#![doc = include_str!("README.md")]

pub(crate) mod field;
pub(crate) mod head;

pub(crate) mod cors;

pub(crate) mod h1;
pub mod h2;
pub mod websocket;

pub(crate) mod mapping;
pub mod rule;

pub(crate) mod client;

pub use client::{Client, ClientConfig};
pub use cors::Cors;
pub use h1::frame::MAX_FIELDS;
pub use mapping::{Health, Hosts, MethodCatalog, Probes, ServerConfig};

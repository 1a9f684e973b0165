//! WebSocket as a byte transport (RFC 6455).
#![doc = include_str!("README.md")]

pub(crate) mod handshake;

mod session;

mod client;
mod frame;
mod status;
mod utf8;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientConfig};
pub use session::{Config, Endpoint, Event, Kind, Random, Receiver, Role};
pub use status::CloseCode;

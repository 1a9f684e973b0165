//! KCP, a reliable stream over UDP, as implemented by `kcp-go` and used by rpcx: with encryption, a checksum and error
//! correction.
//!
#![doc = include_str!("README.md")]

mod config;

mod session;
mod settings;

mod crypt;
mod error;
mod packet;
mod tea;

mod fec;

mod arq;
mod segment;
mod time;
mod validation;

#[cfg(test)]
mod tests;

pub use crate::config::{Config, Shards, Tuning};
pub use crate::crypt::{Algorithm, Cipher, derive_key};
pub use crate::error::ConfigError;
pub use crate::session::{EndReason, Session};
pub use crate::settings::{OpenedDatagram, Settings};
pub use crate::time::Millis;

/// Maximum length of a datagram (`sess.go: mtuLimit`).
pub const MAX_DATAGRAM: usize = 1500;

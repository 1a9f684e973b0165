//! HTTP/1.x as a carrier of calls (RFC 9110, RFC 9112).
#![doc = include_str!("README.md")]

mod session;

pub(crate) mod asked;
pub(crate) mod browser;

mod accept;
mod chunked;
mod client;
pub(crate) mod exchange;
mod failure;
pub(crate) mod frame;
mod gateway;
pub(crate) mod head;
mod health;
pub(crate) mod mapping;
mod order;
mod query;
pub(crate) mod refused;
pub(crate) mod request;
mod routed;
mod status;
mod upgrade;
mod web_client;

#[cfg(test)]
mod tests;

pub use browser::Hosts;
pub use client::{Client, ClientConfig};
pub use frame::MAX_FIELDS;
pub use health::{Health, Probes};
pub use session::{Offers, Server, ServerConfig, Ticket};
pub use upgrade::Upgrade;
pub use web_client::{WebClient, WebClientConfig};

use polyrpc_core::protocol::by_magic;
use polyrpc_core::{Guess, Protocol};

/// Whether a connection that begins with `start` speaks this protocol.
///
/// HTTP/2's `PRI * HTTP/2.0` is none of these methods, so it is not taken for HTTP/1.
pub fn recognise(start: &[u8]) -> Guess {
    let mut undecided = false;
    for method in METHODS {
        match by_magic(Protocol::Http, method, start) {
            Guess::Unknown => {}
            Guess::NeedMore => undecided = true,
            is @ Guess::Is(_) => return is,
        }
    }
    if undecided { Guess::NeedMore } else { Guess::Unknown }
}

const METHODS: [&[u8]; 8] =
    [b"POST ", b"GET ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT "];

//! TLS for every protocol over a stream: one port accepts clear text and TLS, and distinguishes them by the first
//! bytes.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use polyrpc::server::Listen;
//! use polyrpc::tls::{self, Identity};
//!
//! let tls = tls::Server::new(Identity::new("server.pem", "server.key"))?;
//! let server = polyrpc::Server::new().bind(Listen::on("0.0.0.0:8443").tls(tls.clone())).await?.start();
//!
//! let tls = tls::Client::new().ca("ca.pem");
//! let client = polyrpc::Client::builder("rpcx+tls://localhost:8443").tls(tls).build()?;
//! # Ok(())
//! # }
//! ```
//!
//! TLS 1.2 and 1.3 by [rustls](https://docs.rs/rustls); early data (0-RTT), which could be replayed, is not accepted.
//!
//! Modules: `server` and `client` are the user's settings, `current` holds the files that a client read last, `named`
//! verifies certificates, `session` is one connection without its socket, `stream` and `halves` add the socket,
//! `blocking` does so for the client without a runtime.

mod expiry;
mod identity;
mod pem;
mod report;

mod client;
mod named;
mod server;

mod acceptor;
mod connector;
mod current;
mod last_error;
mod watch;

mod outgoing;
mod session;

mod blocking;
mod carrier;
mod halves;
mod plaintext;
mod stream;

mod failure;

use std::sync::{Arc, OnceLock};

use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use rustls::crypto::{CryptoProvider, ring};

pub use self::client::Client;
pub use self::identity::Identity;
pub use self::pem::Pem;
pub use self::server::{Builder, Server};

pub(crate) use self::acceptor::Acceptor;
pub(crate) use self::blocking::{Blocking, Socket};
pub(crate) use self::carrier::{Carrier, CarrierSink};
pub(crate) use self::connector::Connector;
#[cfg(feature = "quic")]
pub(crate) use self::current::Current;
pub(crate) use self::halves::{ReadHalf, WriteHalf};
pub(crate) use self::stream::Stream;
#[cfg(feature = "quic")]
pub(crate) use self::stream::peer;

/// Returns the connector of a client, with default settings if there are none.
pub(crate) fn connector(
    settings: Option<&Client>,
    protocol: Protocol,
    host: &str,
) -> Result<Connector, Status> {
    match settings {
        Some(settings) => settings.connector(protocol, host),
        None => Client::new().connector(protocol, host),
    }
}

/// Target of `tracing` events.
const TARGET: &str = "polyrpc::tls";

/// Returns the implementation of cryptography.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(ring::default_provider())).clone()
}

#[cfg(test)]
mod tests;

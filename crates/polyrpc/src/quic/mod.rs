//! QUIC (RFC 9000), as rpcx speaks it by `quic-go`: a connection has one stream in both directions, which the client
//! opens; any protocol runs inside.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use polyrpc::server::Listen;
//! use polyrpc::tls::{self, Identity};
//!
//! let tls = tls::Server::new(Identity::new("server.pem", "server.key"))?;
//! let server = polyrpc::Server::new().bind(Listen::on("quic://0.0.0.0:8974").tls(tls)).await?.start();
//!
//! let tls = tls::Client::new().ca("ca.pem");
//! let client = polyrpc::Client::builder("rpcx+quic://localhost:8974").tls(tls).build()?;
//! # Ok(())
//! # }
//! ```
//!
//! By [quinn](https://docs.rs/quinn). There is no QUIC without TLS 1.3: a server needs a certificate, and a client
//! checks it, where rpcx's takes any unless it is told otherwise. Within: `listener` and `connector` are the two ends'
//! sockets, `stream` what the rest of the crate sees.

mod connector;
mod listener;

mod stream;

use std::sync::Arc;
use std::time::Duration;

use quinn::{TransportConfig, VarInt};

pub(crate) use self::connector::Connector;
pub(crate) use self::listener::Listener;

/// How QUIC is set up, beside its TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The names of protocols to offer in the handshake (ALPN), the best first; the other side must have one of them.
    /// `rpcx`, as rpcx has it unless its TLS is told otherwise.
    pub alpn: Vec<String>,
    /// For how long nothing may come from the peer. 30 s.
    pub idle: Duration,
    /// How often a client says that it is still there. 10 s.
    pub keepalive: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            alpn: vec!["rpcx".to_owned()],
            idle: Duration::from_secs(30),
            keepalive: Some(Duration::from_secs(10)),
        }
    }
}

impl Config {
    fn alpn(&self) -> Vec<Vec<u8>> {
        self.alpn.iter().map(|name| name.clone().into()).collect()
    }

    /// One stream in both directions, and nothing else, is all there is.
    fn transport(&self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let idle = VarInt::try_from(self.idle.as_millis().min(u128::from(u32::MAX)) as u64);
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .max_idle_timeout(idle.ok().map(Into::into))
            .datagram_receive_buffer_size(None);
        transport
    }

    fn serving(&self) -> Arc<TransportConfig> {
        Arc::new(self.transport())
    }

    fn calling(&self) -> Arc<TransportConfig> {
        let mut transport = self.transport();
        transport.keep_alive_interval(self.keepalive);
        Arc::new(transport)
    }
}

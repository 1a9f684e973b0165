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
//! sockets, `streamless` the connections that wait for their stream, `stream` what the rest of the crate sees.

mod connector;
mod listener;

mod stream;
mod streamless;

use std::sync::Arc;
use std::time::Duration;

use quinn::{TransportConfig, VarInt};

pub(crate) use self::connector::Connector;
pub(crate) use self::listener::{Listener, OnFailedHandshake};

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
    /// Bytes that the peer may send before they are read, and that are kept until the peer has acknowledged them: a
    /// connection holds at most twice as many. 1 MiB, enough for 80 Mbit/s over 100 ms.
    pub window: u32,
    /// How long a client may take to open its stream once it is connected; then the server closes the connection.
    /// 2 minutes.
    pub stream_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            alpn: vec!["rpcx".to_owned()],
            idle: Duration::from_secs(30),
            keepalive: Some(Duration::from_secs(10)),
            window: 1 << 20,
            stream_timeout: Duration::from_secs(120),
        }
    }
}

impl Config {
    fn alpn(&self) -> Vec<Vec<u8>> {
        self.alpn.iter().map(|name| name.clone().into()).collect()
    }

    /// One stream in both directions, and nothing else, is all there is. Without these windows quinn would keep 10 MB of
    /// what was not acknowledged.
    fn transport(&self) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let idle = VarInt::try_from(self.idle.as_millis().min(u128::from(u32::MAX)) as u64);
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .max_idle_timeout(idle.ok().map(Into::into))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(VarInt::from_u32(self.window.min(LARGEST_WINDOW)))
            .receive_window(VarInt::from_u32(self.window.min(LARGEST_WINDOW)))
            .send_window(self.window.into());
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

/// The largest number that every build of a [`VarInt`] holds.
const LARGEST_WINDOW: u32 = 1 << 30;

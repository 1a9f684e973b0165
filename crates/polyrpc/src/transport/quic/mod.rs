//! QUIC (RFC 9000), as rpcx uses it through `quic-go`: a connection has one bidirectional stream, which the client
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
//! let client = polyrpc::Client::builder("rpcx://localhost:8974?transport=quic").tls(tls).build()?;
//! # Ok(())
//! # }
//! ```
//!
//! Implemented with [quinn](https://docs.rs/quinn). There is no QUIC without TLS 1.3: a server needs a certificate, and
//! a client verifies it, while rpcx's accepts any by default. Modules: `listener` and `connector` are the two ends'
//! sockets, `kept_connections` those without calls, `stream` the interface to the rest of the crate,
//! `answers` ends connections to servers that do not answer, `identity` lets a restarted server notify clients that
//! their connections are gone.

mod connector;
mod listener;

mod answers;
mod identity;
mod kept_connections;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use quinn::{TransportConfig, VarInt};

pub(crate) use self::connector::Connector;
pub(crate) use self::listener::{Listener, OnFailedHandshake};

/// Configuration of QUIC, except for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Protocol names to offer in the handshake (ALPN), in order of preference; the other side must support one of
    /// them. Default: `rpcx`, which is also rpcx's default.
    pub alpn: Vec<String>,
    /// How long nothing may be received from the peer. Default: 30 s.
    pub idle_timeout: Duration,
    /// Interval of a client's keepalives. Default: 10 s.
    pub keepalive: Option<Duration>,
    /// How long a server may leave a client's packets unacknowledged; then the connection ends, and the calls
    /// in flight fail (TCP's `TCP_USER_TIMEOUT`). Default: 5 s.
    pub ack_timeout: Duration,
    /// Flow-control window: bytes that the peer may send before they are read, and that are buffered until the peer has
    /// acknowledged them, so a connection holds at most twice as many. They do not count in a server's memory budget:
    /// a connection that is accepted while there are many has a smaller window ([`MAX_WINDOWS`]). Default: 1 MiB, enough
    /// for 80 Mbit/s over 100 ms.
    pub window: u32,
    /// How long a client may take to open its stream once it is connected; then the server closes the connection.
    /// Default: 2 minutes.
    pub open_stream_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            alpn: vec!["rpcx".to_owned()],
            idle_timeout: Duration::from_secs(30),
            keepalive: Some(Duration::from_secs(10)),
            ack_timeout: Duration::from_secs(5),
            window: 1 << 20,
            open_stream_timeout: Duration::from_secs(120),
        }
    }
}

impl Config {
    fn alpn(&self) -> Vec<Vec<u8>> {
        self.alpn.iter().map(|name| name.clone().into()).collect()
    }

    /// Returns the transport parameters: one bidirectional stream, and nothing else. Without these windows quinn would
    /// buffer 10 MB of unacknowledged data.
    fn transport(&self, window: u32) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let idle = VarInt::try_from(self.idle_timeout.as_millis().min(u128::from(u32::MAX)) as u64);
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .max_idle_timeout(idle.ok().map(Into::into))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(VarInt::from_u32(window.min(MAX_WINDOW)))
            .receive_window(VarInt::from_u32(window.min(MAX_WINDOW)))
            .send_window(window.into());
        transport
    }

    /// Returns the parameters of a connection that is accepted while `connections` others are open.
    fn server_transport(&self, connections: usize) -> Arc<TransportConfig> {
        Arc::new(self.transport(self.window_share(connections)))
    }

    /// Returns the window of such a connection: an equal part of [`MAX_WINDOWS`], but at least [`MIN_WINDOW`].
    fn window_share(&self, connections: usize) -> u32 {
        let part = u32::try_from(MAX_WINDOWS / (connections + 1)).unwrap_or(u32::MAX);
        self.window.min(part.max(MIN_WINDOW))
    }

    fn client_transport(&self) -> Arc<TransportConfig> {
        let mut transport = self.transport(self.window);
        transport.keep_alive_interval(self.keepalive);
        Arc::new(transport)
    }
}

/// Windows of the connections of a listener, in bytes, up to which each gets [`Config::window`]. One that is accepted
/// while there are *n* others gets at most an (*n* + 1)-th part of it, and at least 64 KiB: what these windows hold is in
/// quinn's buffers, which cannot be counted.
pub const MAX_WINDOWS: usize = 128 << 20;

/// The smallest window, in bytes. As much may be held by any connection, whatever others hold.
const MIN_WINDOW: u32 = 64 << 10;

/// The largest number that every build of a [`VarInt`] holds.
const MAX_WINDOW: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_with_the_number_of_connections() {
        let config = Config::default();
        let window = |connections| config.window_share(connections);
        assert_eq!([window(0), window(127), window(255)], [1 << 20, 1 << 20, 1 << 19]);
        assert_eq!([window(2_047), window(100_000), window(usize::MAX - 1)], [MIN_WINDOW; 3]);
        let held: usize = (0..4_096).map(|connections| window(connections) as usize).sum();
        assert!(held < 5 * MAX_WINDOWS, "{held}");
        assert_eq!(Config { window: 1_000, ..config }.window_share(100_000), 1_000, "as configured");
    }
}

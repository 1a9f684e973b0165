use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::{fmt, io};

use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use tokio::net::lookup_host;

use super::Config;
use super::answers::AnswerWatch;
use super::stream::Stream;
use crate::transport::{self, tls};

/// Connector of a client's QUIC connections.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    tls: Arc<tls::Current>,
    /// The name that the server's certificate must be valid for.
    name: String,
}

impl Connector {
    pub(crate) fn new(
        config: &Config,
        tls: Option<&tls::Client>,
        protocol: Protocol,
        host: &str,
    ) -> Result<Self, Status> {
        let usual = tls::Client::new();
        let tls = tls.unwrap_or(&usual);
        let name = tls.name(host).to_owned();
        let connector = Self { config: config.clone(), tls: Arc::new(tls.current(protocol)?), name };
        connector.client()?;
        Ok(connector)
    }

    /// Returns the configuration, from the files as they were last read.
    fn client(&self) -> Result<ClientConfig, Status> {
        let mut crypto = rustls::ClientConfig::clone(&self.tls.config());
        crypto.alpn_protocols = self.config.alpn();
        let crypto = QuicClientConfig::try_from(crypto)
            .map_err(|error| Status::internal(format!("QUIC cannot be used: {error}")))?;
        let mut client = ClientConfig::new(Arc::new(crypto));
        client.transport_config(self.config.client_transport());
        Ok(client)
    }

    /// Connects.
    pub(crate) async fn connect(&self, authority: &str) -> io::Result<transport::Stream> {
        self.tls.refresh_if_due().await;
        let client = self.client().map_err(io::Error::other)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for peer in lookup_host(authority).await? {
            match self.connect_to(peer, client.clone()).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, peer: SocketAddr, client: ClientConfig) -> io::Result<transport::Stream> {
        let any = match peer {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        // One socket per connection, as in quic-go: a connection's runtime is the one in which it was created.
        let endpoint = Endpoint::client(any)?;
        let connecting = endpoint.connect_with(client, peer, &self.name).map_err(io::Error::other)?;
        let connection = connecting.await?;
        let (send, receive) = connection.open_bi().await?;
        let answers = AnswerWatch::start(connection.clone(), self.config.window, self.config.ack_timeout);
        Ok(Stream::new_client(connection, send, receive, answers))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("name", &self.name).finish_non_exhaustive()
    }
}

//! Connections with a builder's configuration, to one server or to any server of a channel.

use std::sync::Arc;

use polyrpc_core::Status;
#[cfg(feature = "tls")]
use polyrpc_wire::Protocol;

use super::Builder;
use super::connection::connector::Connector;
use super::connection::{Backoff, ConnectGate, Keepalive};
use super::pool::Pool;
use super::url::Url;
use crate::cores::Cores;
use crate::discovery::Instance;

/// Factory of a channel's connections, which differ only in their address.
pub(super) struct Factory {
    builder: Builder,
    /// Protocol, dialect and transport.
    url: Url,
    /// TLS of the connections that begin with the protocol itself, and of those that begin with HTTP/1.1, which have
    /// another name in ALPN.
    #[cfg(feature = "tls")]
    tls: [std::sync::OnceLock<crate::transport::tls::Connector>; 2],
}

impl Factory {
    pub(super) fn new(builder: Builder, url: Url) -> Self {
        Self {
            builder,
            url,
            #[cfg(feature = "tls")]
            tls: Default::default(),
        }
    }

    pub(super) fn cores(&self) -> Option<Cores> {
        self.builder.cores.clone()
    }

    /// Creates the pool of one server, without any connection yet.
    pub(super) fn pool(&self, instance: &Instance) -> Result<Pool, Status> {
        let url = self.url.at(instance)?;
        let tls = self.connector(&url)?;
        self.builder.pool(url, tls)
    }

    /// Creates the TLS configuration: files are read once for each name in ALPN, however many servers there are.
    #[cfg(feature = "tls")]
    fn connector(&self, url: &Url) -> Result<Option<crate::transport::tls::Connector>, Status> {
        let [own, http] = &self.tls;
        let known = if url.begins_with() == Protocol::Http { http } else { own };
        if let (true, Some(connector)) = (url.tls, known.get()) {
            return connector.to(self.builder.tls.as_ref(), url.host()).map(Some);
        }
        let connector = self.builder.connector(url)?;
        if let Some(connector) = &connector {
            known.get_or_init(|| connector.clone());
        }
        Ok(connector)
    }

    #[cfg(not(feature = "tls"))]
    fn connector(&self, url: &Url) -> Result<Option<crate::transport::tls::Connector>, Status> {
        self.builder.connector(url)
    }
}

impl Builder {
    /// Creates the pool of the server at `url`.
    pub(super) fn pool(
        &self,
        url: Url,
        tls: Option<crate::transport::tls::Connector>,
    ) -> Result<Pool, Status> {
        let backoff = self.connect_backoff.clone().unwrap_or_else(Backoff::single_server);
        let connector = Connector {
            sessions: self.sessions(&url)?,
            transport: self.transport_connector(&url)?,
            tls,
            keepalive: self
                .keepalive
                .or_else(|| url.protocol.descriptor().keepalive)
                .map(Keepalive::with_interval),
            gate: Arc::new(ConnectGate::new(url.address.clone(), backoff)),
            url,
            connect_timeout: self.connect_timeout,
            cores: self.cores.clone(),
            on_push: self.on_push.clone(),
            hooks: self.hooks.clone(),
            memory: self.memory.clone(),
            calls: Arc::default(),
        };
        Ok(Pool::new(connector, self.kind, self.pool_limits))
    }
}

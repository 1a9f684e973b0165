use std::sync::Arc;
use std::{fmt, io};

use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use rustls::pki_types::ServerName;

use super::Client;
use super::client::name;
use super::current::Current;
use super::session::Session;

impl Client {
    /// Returns the connector for this protocol and host.
    pub(crate) fn connector(&self, protocol: Protocol, host: &str) -> Result<Connector, Status> {
        let name = name(self.name(host))?;
        Ok(Connector { current: Arc::new(Current::new(self.clone(), protocol)?), name })
    }

    /// Returns the TLS configuration for this protocol, with the files read for the first time.
    #[cfg(feature = "quic")]
    pub(crate) fn current(&self, protocol: Protocol) -> Result<Current, Status> {
        Current::new(self.clone(), protocol)
    }
}

/// TLS connector of a client.
#[derive(Clone)]
pub(crate) struct Connector {
    current: Arc<Current>,
    name: ServerName<'static>,
}

impl Connector {
    /// Returns the connector for another host.
    pub(crate) fn to(&self, settings: Option<&Client>, host: &str) -> Result<Self, Status> {
        let host = settings.map_or(host, |settings| settings.name(host));
        Ok(Self { current: self.current.clone(), name: name(host)? })
    }

    /// Creates a session, with the files as they were last read.
    pub(super) fn session(&self) -> io::Result<Session> {
        Session::client(self.current.config(), self.name.clone())
    }

    pub(super) fn current(&self) -> &Arc<Current> {
        &self.current
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("name", &self.name).finish_non_exhaustive()
    }
}

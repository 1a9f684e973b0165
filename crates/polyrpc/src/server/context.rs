//! A listening socket with what its connections speak.

use std::io;
use std::sync::Arc;

use polyrpc_wire::Protocol;
use polyrpc_wire::net_rpc::Codec;

use super::built_in::Setup;
use super::listener_context::{ListenerContext, ListenerOptions, ListenerProtocols};
use super::sessions::SessionFactory;

/// What the connections of one listening socket share, and what makes their sessions.
pub(super) struct ListenerContext {
    pub(super) port: ListenerContext,
    codec: Option<Codec>,
    sessions: Vec<(Protocol, Arc<dyn SessionFactory>)>,
}

impl ListenerContext {
    /// # Errors
    ///
    /// If the listener is to speak a protocol that the server was not given.
    pub(super) fn new(
        port: ListenerContext,
        spoken: &ListenerProtocols,
        options: &ListenerOptions,
    ) -> io::Result<Self> {
        let setup = Setup::new(&port, spoken, options);
        let sessions = port.allowed.iter().map(|&protocol| {
            let sessions = port.server.sessions(protocol).or_else(|| setup.sessions(protocol));
            sessions.map(|sessions| (protocol, sessions)).ok_or_else(|| unknown(protocol))
        });
        let sessions = sessions.collect::<io::Result<_>>()?;
        Ok(Self { port, codec: spoken.codec(), sessions })
    }

    /// The codec of net/rpc that is spoken without being told by the first bytes.
    pub(super) fn codec(&self) -> Option<Codec> {
        self.codec
    }

    /// What makes the sessions of a protocol that is spoken here.
    pub(super) fn sessions(&self, protocol: Protocol) -> Option<&dyn SessionFactory> {
        self.sessions.iter().find(|(known, _)| *known == protocol).map(|(_, sessions)| &**sessions)
    }
}

#[cold]
fn unknown(protocol: Protocol) -> io::Error {
    let text = format!("the server has no protocol `{}`: add it by Server::protocol", protocol.as_str());
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

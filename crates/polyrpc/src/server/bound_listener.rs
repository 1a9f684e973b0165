//! A listening socket and the protocols of its connections.

use std::io;
use std::sync::Arc;

use polyrpc_wire::Protocol;
use polyrpc_wire::net_rpc::Codec;

use super::built_in::Setup;
use super::listener_context::{ListenerContext, ListenerOptions, ListenerProtocols};
use super::sessions::SessionFactory;

/// A listening socket: shared state of its connections, and the factories of their sessions.
pub(super) struct BoundListener {
    pub(super) context: ListenerContext,
    codec: Option<Codec>,
    sessions: Vec<(Protocol, Arc<dyn SessionFactory>)>,
}

impl BoundListener {
    /// # Errors
    ///
    /// If the listener is restricted to a protocol that the server does not have.
    pub(super) fn new(
        context: ListenerContext,
        protocols: &ListenerProtocols,
        options: &ListenerOptions,
    ) -> io::Result<Self> {
        let setup = Setup::new(&context, protocols, options);
        let sessions = context.allowed.iter().map(|&protocol| {
            let sessions = context.server.sessions(protocol).or_else(|| setup.sessions(protocol));
            sessions.map(|sessions| (protocol, sessions)).ok_or_else(|| unknown(protocol))
        });
        let sessions = sessions.collect::<io::Result<_>>()?;
        Ok(Self { context, codec: protocols.codec(), sessions })
    }

    /// Returns the codec of net/rpc that connections use without detection.
    pub(super) fn codec(&self) -> Option<Codec> {
        self.codec
    }

    /// Returns the session factory of a protocol.
    pub(super) fn sessions(&self, protocol: Protocol) -> Option<&dyn SessionFactory> {
        self.sessions.iter().find(|(known, _)| *known == protocol).map(|(_, sessions)| &**sessions)
    }
}

#[cold]
fn unknown(protocol: Protocol) -> io::Error {
    let text = format!("the server has no protocol `{}`: add it by Server::protocol", protocol.as_str());
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

use std::io;
use std::sync::Arc;

use polyrpc_wire::Protocol;

use super::session::Session;
use super::{Server, watch};

/// TLS configuration of a listening socket.
pub(crate) struct Acceptor {
    server: Server,
    protocols: Vec<Protocol>,
}

impl Acceptor {
    pub(crate) fn new(server: Server, protocols: &[Protocol]) -> Self {
        Self { server, protocols: protocols.to_vec() }
    }

    /// Returns whether a connection with these first bytes uses TLS; `None` if they are too few to decide.
    pub(crate) fn recognise(&self, start: &[u8]) -> Option<bool> {
        let agreed = start.iter().zip(HANDSHAKE).take_while(|(byte, known)| **byte == *known).count();
        match agreed {
            n if n == HANDSHAKE.len() => Some(true),
            n if n == start.len() => None,
            _ => Some(false),
        }
    }

    /// Returns whether clear text is rejected.
    pub(crate) fn is_required(&self) -> bool {
        self.server.is_required()
    }

    /// Returns the protocol that was negotiated in the handshake.
    pub(crate) fn protocol(&self, name: &[u8]) -> Option<Protocol> {
        self.protocols.iter().copied().find(|protocol| protocol.descriptor().alpn().as_bytes() == name)
    }

    /// Reloads the files whenever they change, for as long as it is polled.
    pub(crate) fn watch(&self) -> impl Future<Output = ()> + 'static + use<> {
        let server = self.server.clone();
        async move {
            if let Some(every) = server.watch_interval() {
                watch::watch(server, every).await;
            }
        }
    }

    pub(super) fn session(&self) -> io::Result<Session> {
        Session::server(Arc::new(self.server.config(&self.protocols)))
    }
}

/// The first bytes of every TLS connection: a handshake record, version 3.x (RFC 8446, section 5.1).
const HANDSHAKE: [u8; 2] = [0x16, 0x03];

use std::io;
use std::sync::Arc;

use polyrpc_wire::Protocol;

use super::session::Session;
use super::{Server, watch};

/// What a listening socket does about TLS.
pub(crate) struct Acceptor {
    server: Server,
    protocols: Vec<Protocol>,
}

impl Acceptor {
    pub(crate) fn new(server: Server, protocols: &[Protocol]) -> Self {
        Self { server, protocols: protocols.to_vec() }
    }

    /// Whether a connection that begins so speaks TLS; `None` if that cannot be told yet.
    pub(crate) fn recognise(&self, start: &[u8]) -> Option<bool> {
        let agreed = start.iter().zip(HANDSHAKE).take_while(|(byte, known)| **byte == *known).count();
        match agreed {
            n if n == HANDSHAKE.len() => Some(true),
            n if n == start.len() => None,
            _ => Some(false),
        }
    }

    /// Whether clear text is refused.
    pub(crate) fn required(&self) -> bool {
        self.server.is_required()
    }

    /// The protocol that the handshake has settled on.
    pub(crate) fn protocol(&self, name: &[u8]) -> Option<Protocol> {
        self.protocols.iter().copied().find(|protocol| protocol.descriptor().alpn().as_bytes() == name)
    }

    /// Reads the files anew whenever they change, for as long as it is polled.
    pub(crate) fn watch(&self) -> impl Future<Output = ()> + 'static + use<> {
        let server = self.server.clone();
        async move {
            if let Some(every) = server.watched() {
                watch::watch(server, every).await;
            }
        }
    }

    pub(super) fn session(&self) -> io::Result<Session> {
        Session::server(Arc::new(self.server.config(&self.protocols)))
    }
}

/// How every connection with TLS begins: a record of the handshake, version 3.x (RFC 8446, section 5.1).
const HANDSHAKE: [u8; 2] = [0x16, 0x03];

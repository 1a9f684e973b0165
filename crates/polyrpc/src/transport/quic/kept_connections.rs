use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quinn::{Connection, VarInt};

/// Connections that a listener keeps for a while although they carry no calls, the oldest first.
///
/// If there are too many, the oldest is closed, so that they neither keep other clients out nor hold more memory.
#[derive(Debug)]
pub(super) struct KeptConnections {
    kept: Mutex<VecDeque<Connection>>,
    max: usize,
    /// Reason that the peer of a closed connection receives.
    reason: &'static [u8],
}

impl KeptConnections {
    /// Connections whose client has not opened its stream. One that has nothing to send yet cannot be distinguished from
    /// one that never will.
    pub(super) fn streamless() -> Self {
        Self::new(MAX_STREAMLESS, b"no stream was opened")
    }

    /// Connections that have ended here, while their peers have not acknowledged everything.
    pub(super) fn ended() -> Self {
        Self::new(MAX_ENDED, b"")
    }

    fn new(max: usize, reason: &'static [u8]) -> Self {
        Self { kept: Mutex::default(), max, reason }
    }

    /// Adds a connection.
    pub(super) fn enter(&self, connection: Connection) {
        let mut kept = self.lock();
        kept.push_back(connection);
        let oldest = if kept.len() > self.max { kept.pop_front() } else { None };
        drop(kept);
        if let Some(oldest) = oldest {
            self.close(&oldest);
        }
    }

    /// Removes a connection, if it is there.
    pub(super) fn leave(&self, connection: &Connection) {
        self.lock().retain(|kept| kept.stable_id() != connection.stable_id());
    }

    /// Closes a connection.
    pub(super) fn close(&self, connection: &Connection) {
        connection.close(VarInt::from_u32(0), self.reason);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Connection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of connections without a stream.
const MAX_STREAMLESS: usize = 1024;
/// Maximum number of connections that have ended.
const MAX_ENDED: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polyrpc_wire::Protocol;
    use quinn::crypto::rustls::QuicClientConfig;
    use quinn::{ClientConfig, Endpoint};
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;
    use crate::transport::quic::{Config, Listener};
    use crate::transport::tls::{Client, Identity, Pem, Server};

    #[tokio::test]
    async fn oldest_connection_is_closed_if_there_are_too_many() {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let identity = Identity::new(Pem::bytes(cert.pem()), Pem::bytes(signing_key.serialize_pem()));
        let tls = Server::new(identity).unwrap();
        let listener = Listener::bind("127.0.0.1:0", Config::default(), tls, None).await.unwrap();
        let mut crypto = Client::new().ca(Pem::bytes(cert.pem())).config(Protocol::Rpcx).unwrap();
        crypto.alpn_protocols = vec![b"rpcx".to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(crypto).unwrap()));
        let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut connections = Vec::new();
        for _ in 0..4 {
            let connecting = endpoint.connect_with(config.clone(), listener.local_addr(), "localhost");
            connections.push(connecting.unwrap().await.unwrap());
        }
        let kept = KeptConnections::new(2, b"too many");
        connections.iter().take(2).for_each(|connection| kept.enter(connection.clone()));
        kept.leave(&connections[1]);
        kept.enter(connections[2].clone());
        assert!(connections.iter().all(|connection| connection.close_reason().is_none()));
        kept.enter(connections[3].clone());
        let closed: Vec<_> =
            connections.iter().map(|connection| connection.close_reason().is_some()).collect();
        assert_eq!(closed, [true, false, false, false]);
    }
}

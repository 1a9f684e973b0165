use std::io;
#[cfg(feature = "kcp")]
use std::sync::Arc;

#[cfg(feature = "kcp")]
use polyrpc_kcp::Settings;

use super::{Address, Socket, Stream};

/// Connector of a client's transport.
#[derive(Debug, Clone, Default)]
pub(crate) enum TransportConnector {
    /// A plain socket.
    #[default]
    Socket,
    #[cfg(feature = "kcp")]
    Kcp(Arc<Settings>),
    #[cfg(feature = "quic")]
    Quic(super::quic::Connector),
}

impl TransportConnector {
    /// Connects.
    pub(crate) async fn connect(&self, address: &Address) -> io::Result<Stream> {
        match (self, address) {
            (Self::Socket, address) => Socket::connect(address).await.map(Stream::from),
            #[cfg(feature = "kcp")]
            (Self::Kcp(settings), address) => {
                super::kcp::connect(address.host_and_port().unwrap_or_default(), settings.clone()).await
            }
            #[cfg(feature = "quic")]
            (Self::Quic(connector), address) => {
                connector.connect(address.host_and_port().unwrap_or_default()).await
            }
        }
    }
}

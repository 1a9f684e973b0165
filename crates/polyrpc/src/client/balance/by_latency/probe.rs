use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::discovery::{Instance, Network};

/// Measures the network latency to a server.
pub(crate) trait Probe: Send + Sync + 'static {
    /// Returns the round-trip time; `None` if it cannot be measured. The future may be dropped before it completes.
    fn measure<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<Duration>>;
}

/// Time in which TCP connects: one round trip, without any privilege.
///
/// A server that is reached by UDP need not accept TCP: a refused connection took one round trip as well. A server
/// behind a Unix socket is local.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TcpConnectProbe;

impl Probe for TcpConnectProbe {
    fn measure<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(async move {
            if instance.network == Network::Unix {
                return Some(Duration::ZERO);
            }
            // Name resolution is not part of the latency.
            let address = tokio::net::lookup_host(&instance.address).await.ok()?.next()?;
            let before = Instant::now();
            let connected = TcpStream::connect(address).await;
            is_reachable(&connected.map(drop), instance.network).then(|| before.elapsed())
        })
    }
}

/// A probe of the application.
pub(crate) struct CustomProbe<P>(pub(crate) P);

impl<P, F> Probe for CustomProbe<P>
where
    P: Fn(Instance) -> F + Send + Sync + 'static,
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    fn measure<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Option<Duration>> {
        Box::pin((self.0)(instance.clone()))
    }
}

fn is_reachable(connected: &io::Result<()>, network: Network) -> bool {
    match connected {
        Ok(()) => true,
        Err(error) => {
            matches!(network, Network::Kcp | Network::Quic)
                && error.kind() == io::ErrorKind::ConnectionRefused
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn accepting_server_is_measured_and_refusing_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = Instance::tcp(listener.local_addr().unwrap().to_string());
        assert!(TcpConnectProbe.measure(&there).await.is_some());
        drop(listener);
        assert_eq!(TcpConnectProbe.measure(&there).await, None);
        let by_udp = Instance { network: Network::Quic, ..there };
        assert!(TcpConnectProbe.measure(&by_udp).await.is_some());
    }
}

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// TLS over a connected socket.
pub(super) async fn handshake(
    stream: TcpStream,
    host: &str,
    tls: &polyrpc::tls::Client,
) -> io::Result<TlsStream<TcpStream>> {
    let (config, name) = tls.prepare(host).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

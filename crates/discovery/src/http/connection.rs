use std::fmt;
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Origin;

/// Connection for one request after another. It is closed when this is dropped.
pub(super) struct HttpConnection {
    /// Index of the server among those of the registry.
    pub(super) index: usize,
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl HttpConnection {
    #[cfg(feature = "tls")]
    pub(super) async fn connect(
        index: usize,
        origin: &Origin,
        tls: &polyrpc::tls::Client,
    ) -> io::Result<Self> {
        let stream = dial(origin).await?;
        match origin.tls {
            true => Self::handshake(index, super::tls::handshake(stream, &origin.host, tls).await?).await,
            false => Self::handshake(index, stream).await,
        }
    }

    #[cfg(not(feature = "tls"))]
    pub(super) async fn connect(index: usize, origin: &Origin) -> io::Result<Self> {
        Self::handshake(index, dial(origin).await?).await
    }

    async fn handshake(
        index: usize,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> io::Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let driver = tokio::spawn(async move {
            // Callers get the failure from the sender.
            let _ = connection.await;
        });
        Ok(Self { index, sender, driver })
    }

    /// Whether it can be reused, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(super) async fn send(&mut self, request: Request<Bytes>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request.map(Full::new)).await
    }
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for HttpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConnection").field("index", &self.index).finish_non_exhaustive()
    }
}

async fn dial(origin: &Origin) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((origin.host.as_str(), origin.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::{TcpListener, UnixListener, lookup_host};

use super::{Address, Stream};
use crate::service::Peer;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Begins to listen. A Unix socket that nobody answers any more is replaced.
    pub(crate) async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => bind_tcp(address).await.map(Self::Tcp),
            Address::Unix(path) => {
                let is_stale = |error: &io::Error| {
                    error.kind() == io::ErrorKind::AddrInUse
                        && std::os::unix::net::UnixStream::connect(path).is_err()
                };
                let listener = match UnixListener::bind(path) {
                    Err(error) if is_stale(&error) => {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)?
                    }
                    bound => bound?,
                };
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::tcp(stream)?, Peer::Tcp(peer)))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), Peer::Unix))
            }
        }
    }

    /// Where it listens, with the port that was really given.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Unix(_, path) => Ok(Address::Unix(path.clone())),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn bind_tcp(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await? {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A listening socket with a backlog that survives a reconnect storm; the kernel cuts it to `somaxconn`.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

const BACKLOG: u32 = 4096;

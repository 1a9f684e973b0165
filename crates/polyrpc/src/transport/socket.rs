use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{Shutdown, sockopt};
use tokio::io::ReadBuf;
use tokio::net::{TcpStream, UnixStream};

use super::Address;

/// A connected socket, without any layer above it.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects.
    pub(crate) async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address.as_str()).await?;
                stream.set_nodelay(true)?;
                keep_alive(&stream, CLIENT_KEEPALIVE_TIME)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
            // Those need their own configuration to connect.
            Address::Kcp(_) | Address::Quic(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Reads what has arrived, for one task at a time; 0 at the end of the stream.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let read = match self {
                Self::Tcp(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read_buf(buffer)
                }
                Self::Unix(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read_buf(buffer)
                }
            };
            if !is_not_yet(&read) {
                return Poll::Ready(read);
            }
        }
    }

    /// Writes what the socket accepts, for one task at a time.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let written = match self {
                Self::Tcp(stream) => {
                    ready!(stream.poll_write_ready(cx))?;
                    stream.try_write(bytes)
                }
                Self::Unix(stream) => {
                    ready!(stream.poll_write_ready(cx))?;
                    stream.try_write(bytes)
                }
            };
            if !is_not_yet(&written) {
                return Poll::Ready(written);
            }
        }
    }

    /// Shuts down the write side.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        let ended = match self {
            Self::Tcp(stream) => rustix::net::shutdown(stream, Shutdown::Write),
            Self::Unix(stream) => rustix::net::shutdown(stream, Shutdown::Write),
        };
        match ended {
            // The peer has already disconnected.
            Err(rustix::io::Errno::NOTCONN) => Ok(()),
            ended => Ok(ended?),
        }
    }

    /// Makes the peer see an error instead of the end of the stream, once it is closed.
    pub(crate) fn reset(&self) {
        if let Self::Tcp(stream) = self {
            // If that fails, the peer sees an end.
            let _ = stream.set_zero_linger();
        }
    }
}

/// Returns whether the socket was reported ready but was not.
fn is_not_yet(result: &io::Result<usize>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Enables TCP keepalive after this time of silence: a peer that lost its power or its network sends nothing, and a
/// caller that only waits would never notice.
pub(crate) fn keep_alive(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    Ok(sockopt::set_tcp_keepidle(&socket, silence)?)
}

/// Ends a TCP connection whose peer acknowledges nothing of the data that waits for it for this long, or keeps its window
/// closed (`TCP_USER_TIMEOUT`; Linux `net/ipv4/tcp_timer.c`). Only Linux has it.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables, reason = "the option does not exist"))]
pub(crate) fn limit_unacknowledged(socket: impl AsFd, time: Duration) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // 0 is the system's default.
    sockopt::set_tcp_user_timeout(socket, u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1))?;
    Ok(())
}

/// rpcx `client/client.go`, `DefaultOption`
pub(crate) const CLIENT_KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// rpcx `server/server.go`, `NewServer`
pub(crate) const SERVER_KEEPALIVE_TIME: Duration = Duration::from_secs(180);

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use polyrpc_core::Outbox;
use rustix::net::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use super::{DatagramSink, DatagramSource, DatagramStream, Socket, Source, tls};

/// A connected socket, or a stream over one.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
    Carried(Box<dyn DatagramStream>),
}

/// TLS over one of the others.
pub(crate) type TlsStream = tls::Stream<Stream>;

impl Stream {
    /// Creates a TCP stream without Nagle's algorithm: a batch of responses leaves in one write, so waiting for more
    /// would only meet the peer's delayed acknowledgement, 40 ms per call.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Detaches the socket from the current runtime.
    pub(crate) fn detach(self) -> io::Result<DetachedStream> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(DetachedStream::Tcp),
            Self::Unix(stream) => stream.into_std().map(DetachedStream::Unix),
            // A socket is moved right after it was accepted, before its protocol is known.
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Carried(stream) => Ok(DetachedStream::Carried(stream)),
        }
    }

    /// Returns the socket if there is no layer above it.
    pub(crate) fn into_socket(self) -> Option<Socket> {
        match self {
            Self::Tcp(stream) => Some(Socket::Tcp(stream)),
            Self::Unix(stream) => Some(Socket::Unix(stream)),
            Self::Tls(_) | Self::Carried(_) => None,
        }
    }

    /// Splits the socket into a read half and a write half that any task may use.
    pub(crate) fn split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Self::Unix(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
            Self::Tls(stream) => {
                let (read, write) = stream.split();
                (ReadHalf::Tls(Box::new(read)), WriteHalf::Tls(Box::new(write)))
            }
            Self::Carried(stream) => {
                let (read, write) = stream.split();
                (ReadHalf::Carried(read), WriteHalf::Carried(write))
            }
        }
    }

    /// Discards unsent data when it is closed, and makes the peer see an error, over TCP.
    pub(crate) fn reset(&self) {
        match self {
            Self::Tcp(stream) => {
                // If that fails, the peer sees an end.
                let _ = stream.set_zero_linger();
            }
            Self::Tls(stream) => stream.break_off(),
            Self::Unix(_) | Self::Carried(_) => {}
        }
    }

    /// Returns the bytes that it buffers between the socket and its user.
    #[inline]
    pub(crate) fn buffered_bytes(&self) -> usize {
        match self {
            Self::Tcp(_) | Self::Unix(_) => 0,
            Self::Tls(stream) => stream.buffered_bytes(),
            Self::Carried(stream) => stream.buffered_bytes(),
        }
    }

    /// Writes until `out` is empty or the socket accepts no more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> Poll<io::Result<()>> {
        if let Self::Tls(stream) = self {
            return stream.poll_flush(cx, out);
        }
        while !out.is_empty() {
            let written = match out.as_single_slice() {
                Some(bytes) => ready!(self.poll_write(cx, bytes))?,
                None => {
                    let mut slices = [IoSlice::new(&[]); VECTORED];
                    let filled = out.slices(&mut slices);
                    ready!(self.poll_write_vectored(cx, &slices[..filled]))?
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            out.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Shuts down the write side.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => stream.poll_shutdown(cx),
            Self::Carried(stream) => stream.poll_shutdown(cx),
        }
    }

    /// Returns this end's address, over TCP.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok().map(to_canonical),
            Self::Unix(_) | Self::Tls(_) | Self::Carried(_) => None,
        }
    }

    /// Writes once.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
            Self::Carried(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
        }
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
            Self::Carried(stream) => stream.poll_write(cx, slices),
        }
    }
}

impl Source for Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => pin!(stream.read_buf(&mut inbox.limit(MAX_READ_BYTES))).poll(cx),
            Self::Unix(stream) => pin!(stream.read_buf(&mut inbox.limit(MAX_READ_BYTES))).poll(cx),
            Self::Tls(stream) => stream.poll_read(cx, inbox),
            Self::Carried(stream) => stream.poll_read(cx, inbox),
        }
    }
}

/// Maximum size of one read. Copying more, into fresh memory, would keep the other connections of the thread waiting.
pub(super) const MAX_READ_BYTES: usize = 256 << 10;

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        match socket {
            Socket::Tcp(stream) => Self::Tcp(stream),
            Socket::Unix(stream) => Self::Unix(stream),
        }
    }
}

/// Returns an IPv4 address as such, not mapped to IPv6 as a dual-stack socket reports it.
fn to_canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// A socket that is moved between two runtimes.
#[derive(Debug)]
pub(crate) enum DetachedStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    /// Its socket is not moved.
    Carried(Box<dyn DatagramStream>),
}

impl DetachedStream {
    /// Attaches the socket to the current runtime.
    pub(crate) fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
            Self::Carried(stream) => Ok(Stream::Carried(stream)),
        }
    }
}

/// The read half of a socket, used by its own task.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(Box<tls::ReadHalf<Self>>),
    Carried(Box<dyn DatagramSource>),
}

impl Source for ReadHalf {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => pin!(stream.read_buf(&mut inbox.limit(MAX_READ_BYTES))).poll(cx),
            Self::Unix(stream) => pin!(stream.read_buf(&mut inbox.limit(MAX_READ_BYTES))).poll(cx),
            Self::Tls(stream) => stream.poll_read(cx, inbox),
            Self::Carried(stream) => stream.poll_read(cx, inbox),
        }
    }
}

/// The write half of a socket, which any task may use. Dropping it shuts down the write side.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(Box<tls::WriteHalf<Self>>),
    Carried(Box<dyn DatagramSink>),
}

impl WriteHalf {
    /// Writes what the socket accepts without waiting; the rest stays in `out`.
    pub(crate) fn try_flush(&self, out: &mut Outbox) -> io::Result<()> {
        if let Self::Tls(half) = self {
            return half.try_flush(out);
        }
        while !out.is_empty() {
            let written = match out.as_single_slice() {
                Some(bytes) => self.try_write(bytes),
                None => {
                    let mut slices = [IoSlice::new(&[]); VECTORED];
                    let filled = out.slices(&mut slices);
                    self.try_write_vectored(&slices[..filled])
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => out.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes once without waiting.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Carried(half) => half.try_write(&[IoSlice::new(bytes)]),
        }
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(slices),
            Self::Unix(stream) => stream.try_write_vectored(slices),
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Carried(half) => half.try_write(slices),
        }
    }

    /// Closes the connection in both directions, even if this half is still shared.
    pub(crate) fn close(&self) {
        // An error means that it is already closed.
        let _ = match self {
            Self::Tcp(stream) => rustix::net::shutdown(stream.as_ref(), Shutdown::Both),
            Self::Unix(stream) => rustix::net::shutdown(stream.as_ref(), Shutdown::Both),
            Self::Tls(half) => return half.close(),
            Self::Carried(half) => return half.close(),
        };
    }

    /// Waits until the socket accepts more.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.as_ref().poll_write_ready(cx),
            Self::Unix(stream) => stream.as_ref().poll_write_ready(cx),
            Self::Tls(half) => half.poll_writable(cx),
            Self::Carried(half) => half.poll_writable(cx),
        }
    }
}

#[cfg(feature = "tls")]
impl tls::Carrier for Stream {
    type Read = ReadHalf;
    type Write = WriteHalf;

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write(cx, bytes)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shutdown(cx)
    }

    fn reset(&self) {
        self.reset();
    }

    fn buffered_bytes(&self) -> usize {
        self.buffered_bytes()
    }

    fn split(self) -> (ReadHalf, WriteHalf) {
        self.split()
    }
}

#[cfg(feature = "tls")]
impl tls::CarrierSink for WriteHalf {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writable(cx)
    }

    fn close(&self) {
        self.close();
    }
}

/// Maximum number of pieces of one vectored write: beyond this the kernel's own work per call is small against the
/// bytes moved, since every piece but the last is at least [`Outbox::SHARE`] long or a run of small ones.
const VECTORED: usize = 16;

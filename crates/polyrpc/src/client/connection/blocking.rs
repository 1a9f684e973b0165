//! Connections without a runtime: the caller's thread reads and writes.

use std::io;
use std::io::{IoSlice, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as Session;
use polyrpc_core::session::ClientEvent;
use polyrpc_core::{Call, CallId, Outbox, Reply, Retry, Scope, Status};
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags};

use super::{PushHandler, broken_protocol, closed, explains_close};
use crate::transport::tls::{self, Socket as _};
use crate::transport::{Address, CLIENT_KEEPALIVE_TIME, keep_alive};

/// A connection with its protocol type-erased.
pub(in crate::client) trait AnyConnection: Send {
    fn call(
        &mut self,
        call: Call<'_>,
        now: Instant,
        deadline: Option<Instant>,
        on_push: Option<&PushHandler>,
    ) -> Result<Option<Reply>, Status>;

    /// Whether the connection can take another call.
    fn is_reusable(&self) -> bool;

    /// Whether the connection is still open, as far as can be detected.
    fn is_usable(&self, now: Instant) -> bool;
}

pub(in crate::client) struct Connection<S> {
    socket: Socket,
    session: S,
    inbox: BytesMut,
    out: Outbox,
    /// Buffer for the next read.
    scratch: Vec<u8>,
    next: u64,
    used: Instant,
    /// The current timeout of the socket.
    socket_timeout: Option<Duration>,
    /// Reason why nothing can be written any more. Data that the server sent before it closed is still read: a reply, or
    /// the reason for the close.
    unwritable: Option<io::Error>,
}

impl<S: Session + Send> Connection<S> {
    pub(in crate::client) fn new(socket: Socket, session: S) -> Self {
        Self {
            socket,
            session,
            inbox: BytesMut::new(),
            out: Outbox::new(),
            scratch: Vec::with_capacity(READ_BUFFER_SIZE),
            next: 0,
            used: Instant::now(),
            socket_timeout: None,
            unwritable: None,
        }
    }

    /// Writes the outbox, or drops it if the server has closed the connection.
    fn send(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if self.unwritable.is_none() {
            match self.write(deadline) {
                Err(error) if is_closed_by_peer(&error) => self.unwritable = Some(error),
                written => return written,
            }
        }
        self.out = Outbox::new();
        Ok(())
    }

    fn write(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            match self.socket.write(&mut self.out) {
                Ok(()) => {}
                // Interrupted by a signal; nothing was written.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.out.is_empty() {
                return Ok(());
            }
            self.limit_read_timeout(deadline)?;
        }
    }

    /// Reads once; returns 0 at the end of the stream. A long message is read into a buffer of its size.
    fn receive(&mut self, deadline: Option<Instant>) -> io::Result<usize> {
        let missing = self.session.bytes_needed().saturating_sub(self.inbox.len());
        if missing > READ_BUFFER_SIZE {
            return self.receive_long(missing, deadline);
        }
        let n = self.socket.receive(&mut self.scratch)?;
        self.inbox.extend_from_slice(&self.scratch);
        self.scratch.clear();
        Ok(n)
    }

    fn receive_long(&mut self, missing: usize, deadline: Option<Instant>) -> io::Result<usize> {
        let mut long =
            Vec::with_capacity(self.inbox.len() + missing.min(MAX_INITIAL_CAPACITY) + TRAILING_CAPACITY);
        long.extend_from_slice(&self.inbox);
        let whole = self.inbox.len() + missing;
        while long.len() < whole {
            if long.len() == long.capacity() {
                long.reserve((whole - long.len()).min(long.len()) + TRAILING_CAPACITY);
            }
            if self.socket.receive(&mut long)? == 0 {
                return Ok(0);
            }
            self.limit_read_timeout(deadline)?;
        }
        let received = long.len() - self.inbox.len();
        // No copy: the bytes have no other owner.
        self.inbox = BytesMut::from(Bytes::from(long));
        Ok(received)
    }

    /// Ensures that reads do not wait much beyond the deadline. The timeout of the socket is only changed if it differs
    /// much, since a change costs a system call.
    fn limit_read_timeout(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(deadline) = deadline else { return self.set_socket_timeout(None) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.socket_timeout {
            Some(socket_timeout)
                if left <= socket_timeout && socket_timeout - left <= socket_timeout / 16 =>
            {
                Ok(())
            }
            _ => self.set_socket_timeout(Some(left)),
        }
    }

    fn set_socket_timeout(&mut self, socket_timeout: Option<Duration>) -> io::Result<()> {
        if self.socket_timeout != socket_timeout {
            self.socket.set_timeout(socket_timeout)?;
            self.socket_timeout = socket_timeout;
        }
        Ok(())
    }

    fn wait(
        &mut self,
        id: CallId,
        deadline: Option<Instant>,
        on_push: Option<&PushHandler>,
    ) -> Result<Reply, Status> {
        // The socket's timeout was set for the first read, which usually returns the whole reply.
        let mut has_timeout = true;
        loop {
            match self.session.next_event(&mut self.inbox, &mut self.out) {
                Ok(Some(ClientEvent::Reply(replied, reply))) if replied == id => return Ok(reply),
                Ok(Some(ClientEvent::Push(push))) => {
                    if let Some(on_push) = on_push {
                        on_push(push);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    // Replies of the session itself (HTTP/2's acknowledgements and window updates).
                    if !self.out.is_empty() {
                        self.send(deadline).map_err(broken)?;
                    }
                    if !std::mem::take(&mut has_timeout) {
                        self.limit_read_timeout(deadline).map_err(broken)?;
                    }
                    if self.receive(deadline).map_err(broken)? == 0 {
                        return self.last(id);
                    }
                }
                Err(violation) => {
                    return Err(broken_protocol(&violation, &self.session, &self.inbox, true));
                }
            }
        }
    }

    fn last(&mut self, id: CallId) -> Result<Reply, Status> {
        match self.session.end_of_stream(&mut self.inbox) {
            Some(ClientEvent::Reply(replied, reply)) if replied == id => Ok(reply),
            _ => Err(match self.unwritable.take() {
                Some(error) if !explains_close(&self.session, &self.inbox) => broken(error),
                _ => closed(&self.session, &self.inbox),
            }),
        }
    }
}

impl<S: Session + Send> AnyConnection for Connection<S> {
    fn call(
        &mut self,
        call: Call<'_>,
        now: Instant,
        deadline: Option<Instant>,
        on_push: Option<&PushHandler>,
    ) -> Result<Option<Reply>, Status> {
        let id = CallId(self.next);
        self.next += 1;
        let (timeout, oneway) = (call.timeout, call.oneway);
        self.session.send(id, call, &mut self.out)?;
        // Most calls of a client have the same timeout, so the socket rarely needs a system call.
        self.set_socket_timeout(timeout).map_err(broken)?;
        self.send(deadline).map_err(broken)?;
        self.used = now;
        if oneway {
            return self.unwritable.take().map_or(Ok(None), |error| Err(broken(error)));
        }
        self.wait(id, deadline, on_push).map(Some)
    }

    fn is_reusable(&self) -> bool {
        self.unwritable.is_none() && self.session.is_reusable()
    }

    fn is_usable(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) < RECENT_USE || self.socket.is_silent()
    }
}

/// Buffer size of a read, unless a long message is known to follow.
const READ_BUFFER_SIZE: usize = 16 << 10;
/// Initial buffer size for a long message; it doubles as the bytes arrive.
const MAX_INITIAL_CAPACITY: usize = 1 << 20;
/// Extra capacity behind a long message, so that the data after it (such as trailers) arrives in the same read.
const TRAILING_CAPACITY: usize = 512;
/// A connection used this recently is assumed to be alive; checking costs a system call.
const RECENT_USE: Duration = Duration::from_secs(1);

fn is_closed_by_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cold]
fn broken(error: io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Status::deadline_exceeded("no reply in time").with_source(error)
        }
        _ => Status::unavailable(format!("the connection broke: {error}"))
            .with_scope(Scope::Connection)
            .with_retry(Retry::IfIdempotent)
            .with_source(error),
    }
}

/// Socket, with TLS if configured.
pub(in crate::client) struct Socket {
    raw: RawSocket,
    tls: Option<Box<tls::Blocking>>,
}

impl Socket {
    pub(in crate::client) fn connect(
        address: &Address,
        tls: Option<&tls::Connector>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let began = Instant::now();
        let mut raw = RawSocket::connect(address, timeout)?;
        let Some(connector) = tls else { return Ok(Self { raw, tls: None }) };
        let tls =
            tls::Blocking::connect(connector, &mut raw, |raw| match timeout.checked_sub(began.elapsed()) {
                Some(left) if !left.is_zero() => raw.set_timeout(Some(left)),
                _ => Err(io::ErrorKind::TimedOut.into()),
            });
        let tls = tls.map_err(|error| match error.kind() {
            // This is how a socket reports that its timeout has expired.
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        raw.set_timeout(None)?;
        Ok(Self { raw, tls: Some(Box::new(tls)) })
    }

    /// Writes once from `out`.
    fn write(&mut self, out: &mut Outbox) -> io::Result<()> {
        match &mut self.tls {
            None => self.raw.write_out(out),
            Some(tls) => tls.write(&mut self.raw, out),
        }
    }

    /// Appends received bytes to `into`, up to its capacity.
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match &mut self.tls {
            None => self.raw.receive(into),
            Some(tls) => tls.receive(&mut self.raw, into),
        }
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.raw.set_timeout(timeout)
    }

    /// Whether nothing has arrived from the peer since the last reply, not even the end of the stream.
    fn is_silent(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_empty()) && self.raw.is_silent()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(|bytes| self.raw.try_send(bytes));
        }
    }
}

enum RawSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl RawSocket {
    fn connect(address: &Address, timeout: Duration) -> io::Result<Self> {
        let address = match address {
            Address::Tcp(address) => address,
            Address::Unix(path) => return UnixStream::connect(path).map(Self::Unix),
            Address::Kcp(_) | Address::Quic(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let began = Instant::now();
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    keep_alive(&stream, CLIENT_KEEPALIVE_TIME)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn write_out(&mut self, out: &mut Outbox) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); 4];
        let written = match out.as_single_slice() {
            Some(bytes) => self.write(bytes)?,
            None => {
                let filled = out.slices(&mut slices);
                self.write_vectored(&slices[..filled])?
            }
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        out.advance(written);
        Ok(())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
        }
    }

    /// Sends as much as possible without blocking.
    fn try_send(&self, bytes: &[u8]) {
        let flags = SendFlags::DONTWAIT | NO_SIGNAL;
        // Best effort: the connection is about to be dropped.
        let _ = match self {
            Self::Tcp(stream) => rustix::net::send(stream, bytes, flags),
            Self::Unix(stream) => rustix::net::send(stream, bytes, flags),
        };
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        // The system takes zero as no timeout.
        let timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => {
                stream.set_write_timeout(timeout)?;
                stream.set_read_timeout(timeout)
            }
            Self::Unix(stream) => {
                stream.set_write_timeout(timeout)?;
                stream.set_read_timeout(timeout)
            }
        }
    }

    /// Whether nothing has arrived from the peer since the last reply, not even the end of the stream.
    fn is_silent(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = match self {
            Self::Tcp(stream) => rustix::net::recv(stream, &mut byte, flags),
            Self::Unix(stream) => rustix::net::recv(stream, &mut byte, flags),
        };
        matches!(seen, Err(rustix::io::Errno::AGAIN))
    }
}

impl tls::Socket for RawSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let received = match self {
                Self::Tcp(stream) => rustix::net::recv(stream, spare_capacity(into), RecvFlags::empty()),
                Self::Unix(stream) => rustix::net::recv(stream, spare_capacity(into), RecvFlags::empty()),
            };
            match received {
                Ok((n, _)) => return Ok(n),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
/// A closed connection is an error, not a signal. On Apple's systems std sets that on every socket.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

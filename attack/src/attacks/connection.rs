//! One connection of an attacker.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::raw::h2::Answers;

/// One connection of an attacker: sends arbitrary bytes, and notices when the server closes it.
#[derive(Debug)]
pub(crate) struct RawConnection {
    socket: TcpStream,
    /// Start of the server's time limit.
    since: Instant,
    /// Time at which the release was observed.
    released: Option<Instant>,
    /// Whether it reads what the server sends.
    reads: bool,
    /// Number of HTTP/2 streams that it has opened; once the server has ended them all, it holds nothing.
    streams: usize,
    pub(crate) answers: Answers,
    /// The first bytes received, up to [`MAX_RECEIVED`].
    pub(crate) received: Vec<u8>,
    closed: bool,
    sent: Arc<AtomicU64>,
}

/// How long a server may read nothing before a connection stops sending.
const STALL: Duration = Duration::from_millis(700);
/// Maximum number of received bytes that are kept.
const MAX_RECEIVED: usize = 64 << 10;
const CHUNK: usize = 64 << 10;
/// Size of the socket's receive buffer (`SO_RCVBUF`).
const RECEIVE_BUFFER_SIZE: u32 = 16 << 10;

impl RawConnection {
    pub(super) async fn connect(
        address: &str,
        from: Option<SocketAddr>,
        sent: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let address = address.parse().map_err(io::Error::other)?;
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = from {
            socket.bind(from)?;
        }
        // Unread bytes soon wait at the server, not in this system's buffers.
        socket.set_recv_buffer_size(RECEIVE_BUFFER_SIZE)?;
        let socket = socket.connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            since: Instant::now(),
            released: None,
            reads: true,
            streams: 0,
            answers: Answers::default(),
            received: Vec::new(),
            closed: false,
            sent,
        })
    }

    /// Stops reading from the connection.
    pub(crate) fn without_reading(mut self) -> Self {
        self.reads = false;
        self
    }

    /// Parses the server's responses as HTTP/2 frames, although only the end of the connection counts.
    pub(crate) fn expect_frames(&mut self) {
        self.streams = usize::MAX;
    }

    /// Sets the number of HTTP/2 streams after whose end the connection counts as released.
    pub(crate) fn with_streams(mut self, streams: usize) -> Self {
        self.streams = streams;
        self
    }

    /// Sends bytes as long as the server reads them. Returns whether it read them all.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() && !self.closed {
            match self.socket.try_write(rest) {
                Ok(written) => {
                    self.sent.fetch_add(written as u64, Ordering::Relaxed);
                    rest = &rest[written..];
                    // Yields to others.
                    tokio::task::yield_now().await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait_until_writable().await {
                        return false;
                    }
                }
                Err(_) => self.closed = true,
            }
        }
        rest.is_empty()
    }

    /// Sends `bytes` bytes of `x` as long as the server reads them. Returns whether it read them all.
    pub(crate) async fn send_filler(&mut self, mut bytes: usize) -> bool {
        let chunk = [b'x'; CHUNK];
        while bytes > 0 {
            let length = bytes.min(CHUNK);
            if !self.send(&chunk[..length]).await {
                return false;
            }
            bytes -= length;
        }
        true
    }

    async fn wait_until_writable(&mut self) -> bool {
        let until = Instant::now() + STALL;
        let interest = if self.reads { Interest::WRITABLE | Interest::READABLE } else { Interest::WRITABLE };
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Ok(Ok(ready)) = timeout(left, self.socket.ready(interest)).await else { return false };
            if ready.is_readable() && self.reads {
                self.read();
            }
            if ready.is_writable() {
                return true;
            }
        }
        false
    }

    /// Reads what is available.
    fn read(&mut self) {
        let mut buffer = [0; CHUNK];
        while !self.closed {
            match self.socket.try_read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(read) => self.take(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = MAX_RECEIVED.saturating_sub(self.received.len()).min(bytes.len());
        self.received.extend_from_slice(&bytes[..room]);
        if self.streams > 0 {
            self.answers.take(bytes);
        }
    }

    /// Whether the server has ended the connection, or all its streams. `established` has the ports of this side whose
    /// connections the server has not closed: the end of an unread connection cannot be seen from here, since it is
    /// behind unread data.
    pub(super) fn is_released(&mut self, established: Option<&HashSet<u16>>) -> bool {
        if self.reads {
            self.read();
        } else if !self.closed {
            self.closed = self.is_closed_by_peer()
                || established.is_some_and(|established| !established.contains(&self.port()));
        }
        let is_released =
            self.closed || (self.streams > 0 && self.answers.ended + self.answers.resets >= self.streams);
        if is_released {
            self.released.get_or_insert_with(Instant::now);
        }
        is_released
    }

    /// Whether the server has closed it, without reading.
    fn is_closed_by_peer(&self) -> bool {
        let end = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut sockets = [PollFd::new(&self.socket, end)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut sockets, Some(&at_once)).is_ok() && sockets[0].revents().intersects(end)
    }

    /// Returns the local port.
    pub(super) fn port(&self) -> u16 {
        self.socket.local_addr().map(|address| address.port()).unwrap_or_default()
    }

    pub(super) fn is_not_reading(&self) -> bool {
        !self.reads
    }

    /// Starts the server's time limit: everything was sent. Otherwise it starts with the connection.
    pub(super) fn start_time_limit(&mut self) {
        (self.since, self.released) = (Instant::now(), None);
    }

    /// Time from the start of the server's time limit until the connection was released, or until now.
    pub(super) fn age(&self) -> Duration {
        self.released.unwrap_or_else(Instant::now).saturating_duration_since(self.since)
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.is_released(None);
        self.closed
    }

    /// Waits at most `wait_limit` until the server sends something. Returns whether anything has been received.
    pub(crate) async fn wait_for_response(&mut self, wait_limit: Duration) -> bool {
        let until = Instant::now() + wait_limit;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if !matches!(timeout(left, self.socket.readable()).await, Ok(Ok(()))) {
                break;
            }
            self.read();
            if self.closed || !self.received.is_empty() {
                break;
            }
        }
        !self.received.is_empty()
    }

    /// Sends bytes and returns the server's response, up to a pause or the end of the connection.
    pub(crate) async fn send_and_receive(&mut self, bytes: &[u8]) -> Vec<u8> {
        const QUIET: Duration = Duration::from_millis(400);
        self.received.clear();
        self.send(bytes).await;
        while !self.closed {
            let Ok(Ok(_)) = timeout(QUIET, self.socket.readable()).await else { break };
            self.read();
        }
        self.received.clone()
    }
}

use std::io;
use std::mem;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use polyrpc_core::Outbox;
use polyrpc_wire::http::websocket::{CloseCode, Endpoint, Role};

use super::{Inbox, Source, Stream};

/// The server's side of a WebSocket whose messages carry a byte stream: one write is one message.
#[derive(Debug)]
pub(crate) struct Tunnel {
    socket: Stream,
    endpoint: Endpoint,
    /// Bytes received but not unwrapped yet.
    raw: Inbox,
    /// Whole frames that are being sent.
    sending: Outbox,
    /// Bytes received so far.
    received: u64,
    /// Bytes received since [`take_recent`](Self::take_recent).
    recent: usize,
    /// The end of the input was reported, or input is no longer needed: further input is discarded.
    ended: bool,
}

impl Tunnel {
    /// Creates a tunnel over a WebSocket after its handshake, whose first bytes are in `raw`.
    pub(crate) fn new(socket: Stream, raw: Inbox) -> Self {
        let endpoint = Endpoint::new(Role::Server);
        Self { socket, endpoint, raw, sending: Outbox::new(), received: 0, recent: 0, ended: false }
    }

    /// Returns the bytes that it buffers: received but not unwrapped, and framed but not written.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.raw.buffered_bytes()
            + self.raw.consumed_bytes()
            + self.sending.len()
            + self.socket.buffered_bytes()
    }

    /// Resets its socket.
    pub(crate) fn reset(&self) {
        self.socket.reset();
    }

    /// Returns the bytes that were framed but not written.
    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.sending.len()
    }

    /// Returns the bytes received so far, including frame headers and pings.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.received
    }

    /// Returns the bytes received since the last time, including frame headers and pings.
    pub(crate) fn take_recent(&mut self) -> usize {
        mem::take(&mut self.recent)
    }

    /// Writes pending frames, then the content of `out`, from which nothing more is taken while a message is being
    /// sent.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_flush(cx, &mut self.sending))?;
            self.endpoint.answer(self.sending.buffer());
            if !out.is_empty() {
                self.endpoint.write_header(out.len(), self.sending.buffer());
                out.append_to(&mut self.sending);
            }
            if self.sending.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Closes the WebSocket and shuts down the socket's write side.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended = true;
        self.endpoint.close(CloseCode::NORMAL, self.sending.buffer());
        ready!(self.socket.poll_flush(cx, &mut self.sending))?;
        self.socket.poll_shutdown(cx)
    }

    /// Answers pings. What the socket does not accept now is sent with the next flush.
    fn answer(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.sending.is_empty() {
            self.endpoint.answer(self.sending.buffer());
        }
        match self.socket.poll_flush(cx, &mut self.sending) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }
}

impl Source for Tunnel {
    /// Appends the payload of messages. The end of the messages, in whatever way, is the end of the stream; later input
    /// is ignored.
    ///
    /// A peer may send pings without end. After each read of frames without payload it returns `Pending`, and wakes the
    /// task, so that the connection counts them, and others are polled.
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        let mut has_filled = false;
        while !self.ended {
            let start = inbox.len();
            self.endpoint.receive(&mut self.raw.bytes, inbox);
            if inbox.len() > start {
                return Poll::Ready(Ok(inbox.len() - start));
            }
            if !self.endpoint.is_open() {
                self.ended = true;
                return Poll::Ready(Ok(0));
            }
            self.answer(cx)?;
            if has_filled {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.raw.poll_fill(&mut self.socket, cx, 0)? {
                Poll::Ready(0) => return Poll::Ready(Ok(0)),
                Poll::Ready(n) => {
                    self.received += n as u64;
                    self.recent += n;
                    has_filled = true;
                }
                Poll::Pending => {
                    self.raw.release_spare();
                    return Poll::Pending;
                }
            }
        }
        self.raw.bytes.clear();
        self.raw.poll_fill(&mut self.socket, cx, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A client's ping, without payload.
    const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];

    #[cfg(unix)]
    #[tokio::test]
    async fn pings_without_end_are_read_piece_by_piece() {
        let (socket, mut peer) = tokio::net::UnixStream::pair().unwrap();
        let pings = PING.repeat(20_000);
        peer.write_all(&pings).await.unwrap();
        let mut tunnel = Tunnel::new(Stream::Unix(socket), Inbox::default());
        let mut inbox = BytesMut::new();
        let mut pieces = Vec::new();
        while pieces.iter().sum::<usize>() < pings.len() {
            let flag = Arc::new(Flag::default());
            let waker = Waker::from(flag.clone());
            assert!(tunnel.poll_read(&mut Context::from_waker(&waker), &mut inbox).is_pending());
            match tunnel.take_recent() {
                // The runtime has not reported yet that the socket is readable.
                0 => tokio::task::yield_now().await,
                piece => {
                    assert!(flag.0.load(Ordering::Relaxed), "more may be waiting");
                    pieces.push(piece);
                }
            }
        }
        assert!(pieces.len() > 1, "{pieces:?}");
        assert_eq!(tunnel.bytes_received(), pings.len() as u64);
        assert!(inbox.is_empty());
    }
}

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::Socket;

/// Connection that carries only bytes, in both directions.
///
/// [`shutdown`](tokio::io::AsyncWriteExt::shutdown) ends one direction, dropping it both.
#[derive(Debug)]
pub struct ByteStream {
    socket: Arc<Socket>,
    /// Bytes that were received together with the token.
    early: Bytes,
    moved: Arc<TransferredBytes>,
}

impl ByteStream {
    /// Creates a stream; the bytes that pass through the socket are counted.
    pub(crate) fn new(socket: Arc<Socket>, early: Bytes, moved: Arc<TransferredBytes>) -> Self {
        Self { socket, early, moved }
    }
}

/// Number of bytes that a connection has carried.
#[derive(Debug, Default)]
pub(crate) struct TransferredBytes {
    received: AtomicU64,
    sent: AtomicU64,
}

impl TransferredBytes {
    /// Starts with this number of received bytes.
    pub(crate) fn starting_at(received: usize) -> Self {
        Self { received: AtomicU64::new(received as u64), sent: AtomicU64::new(0) }
    }

    /// Returns the received and the sent bytes.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }

    fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            let received = ready!(self.socket.poll_receive(cx, buffer))?;
            self.moved.add_received(received);
            return Poll::Ready(Ok(()));
        }
        let n = self.early.len().min(buffer.remaining());
        buffer.put_slice(self.early.get(..n).unwrap_or_default());
        self.early.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.socket.poll_send(cx, bytes))?;
        self.moved.add_sent(sent);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown_write())
    }
}

/// Reads and discards everything up to the end.
pub(crate) fn poll_drain(socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        let mut room = [0; 4096];
        if ready!(socket.poll_receive(cx, &mut ReadBuf::new(&mut room)))? == 0 {
            return Poll::Ready(Ok(()));
        }
    }
}

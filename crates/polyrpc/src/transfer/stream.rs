use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::Socket;

/// A connection that carries nothing but bytes, both ways.
///
/// It ends in one direction with [`shutdown`](tokio::io::AsyncWriteExt::shutdown) and in both when it is dropped.
#[derive(Debug)]
pub struct ByteStream {
    socket: Arc<Socket>,
    /// What came together with the token.
    early: Bytes,
}

impl ByteStream {
    pub(crate) fn new(socket: Arc<Socket>, early: Bytes) -> Self {
        Self { socket, early }
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return self.socket.poll_receive(cx, buffer).map_ok(drop);
        }
        let n = self.early.len().min(buffer.remaining());
        buffer.put_slice(self.early.get(..n).unwrap_or_default());
        self.early.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_send(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.end())
    }
}

/// Reads what still comes and throws it away, to the end.
pub(crate) fn poll_drain(socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        let mut room = [0; 4096];
        if ready!(socket.poll_receive(cx, &mut ReadBuf::new(&mut room)))? == 0 {
            return Poll::Ready(Ok(()));
        }
    }
}

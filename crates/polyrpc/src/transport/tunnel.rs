use std::io;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use polyrpc_core::Outbox;
use polyrpc_wire::http::websocket::{CloseCode, Endpoint, Role};

use super::{Inbox, Source, Stream};

/// The server's side of a WebSocket whose messages carry a stream of bytes: one write is one message.
#[derive(Debug)]
pub(crate) struct Tunnel {
    socket: Stream,
    endpoint: Endpoint,
    /// What came and was not unwrapped yet.
    raw: Inbox,
    /// Whole frames on their way.
    sending: Outbox,
    /// Bytes received so far.
    received: u64,
    /// The end of what came was told, or nothing more is wanted: what still comes is thrown away.
    ended: bool,
}

impl Tunnel {
    /// A WebSocket behind its handshake, of whose bytes the first are in `raw`.
    pub(crate) fn new(socket: Stream, raw: Inbox) -> Self {
        let endpoint = Endpoint::new(Role::Server);
        Self { socket, endpoint, raw, sending: Outbox::new(), received: 0, ended: false }
    }

    /// Bytes that it keeps: received and not unwrapped, on their way and not written.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.raw.buffered_bytes() + self.sending.len() + self.socket.buffered_bytes()
    }

    /// As of its socket.
    pub(crate) fn reset(&self) {
        self.socket.reset();
    }

    /// Bytes that were taken to be written, and were not.
    pub(crate) fn unwritten(&self) -> usize {
        self.sending.len()
    }

    /// Bytes received so far, frames and pings among them.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Writes what is owed, then what is in `out`, of which it takes no more while a message is on its way.
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

    /// Says that it is over, to the peer of the WebSocket and to that of the socket.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended = true;
        self.endpoint.close(CloseCode::NORMAL, self.sending.buffer());
        ready!(self.socket.poll_flush(cx, &mut self.sending))?;
        self.socket.poll_shutdown(cx)
    }

    /// Answers pings. What the socket does not take now leaves with the next flush.
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
    /// Appends what the messages carry. Their end, in whatever way, is the end of the stream; only then comes what is
    /// not looked at any more.
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
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
            match self.raw.poll_fill(&mut self.socket, cx, 0)? {
                Poll::Ready(0) => return Poll::Ready(Ok(0)),
                Poll::Ready(n) => self.received += n as u64,
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

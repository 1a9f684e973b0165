use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use polyrpc_core::Outbox;

use super::tunnel::Tunnel;
use super::{Inbox, Source, Stream};

/// What a server speaks over: a socket, or a WebSocket over one.
#[derive(Debug)]
pub(crate) enum Transport {
    Socket(Stream),
    WebSocket(Box<Tunnel>),
}

impl Transport {
    /// Goes on within a WebSocket, of whose bytes the first are in the inbox. `None`: it was one already.
    pub(crate) fn into_websocket(self, inbox: &mut Inbox) -> Option<Self> {
        match self {
            Self::Socket(socket) => {
                Some(Self::WebSocket(Box::new(Tunnel::new(socket, std::mem::take(inbox)))))
            }
            Self::WebSocket(_) => None,
        }
    }

    /// Bytes that it keeps between the socket and the inbox, and between the outbox and the socket. What the system keeps
    /// Throws away what was not sent yet, and lets the peer see that something went wrong, once it is closed.
    pub(crate) fn reset(&self) {
        match self {
            Self::Socket(stream) => stream.reset(),
            Self::WebSocket(tunnel) => tunnel.reset(),
        }
    }

    /// Bytes that a WebSocket has taken to be written, and were not.
    pub(crate) fn unwritten(&self) -> usize {
        match self {
            Self::Socket(_) => 0,
            Self::WebSocket(tunnel) => tunnel.unwritten(),
        }
    }

    /// Bytes that a WebSocket has received, its own frames among them.
    pub(crate) fn received_beside(&self) -> u64 {
        match self {
            Self::Socket(_) => 0,
            Self::WebSocket(tunnel) => tunnel.received(),
        }
    }

    /// is not counted, nor what QUIC does, whose windows bound it.
    #[inline]
    pub(crate) fn buffered_bytes(&self) -> usize {
        match self {
            Self::Socket(stream) => stream.buffered_bytes(),
            Self::WebSocket(tunnel) => tunnel.buffered_bytes(),
        }
    }

    /// Writes until `out` is empty or the socket takes no more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_flush(cx, out),
            Self::WebSocket(tunnel) => tunnel.poll_flush(cx, out),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_shutdown(cx),
            Self::WebSocket(tunnel) => tunnel.poll_shutdown(cx),
        }
    }

    /// Whether the peer hears of the end. If not, it may go on for ever with what has ended here.
    pub(crate) fn signals_close(&self) -> bool {
        match self {
            Self::Socket(Stream::Carried(carried)) => carried.signals_close(),
            // TLS and WebSocket have words for it, whatever carries them.
            Self::Socket(_) | Self::WebSocket(_) => true,
        }
    }
}

impl Source for Transport {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(stream) => stream.poll_read(cx, inbox),
            Self::WebSocket(tunnel) => tunnel.poll_read(cx, inbox),
        }
    }
}

//! Byte stream of a server's session, which may be upgraded to a WebSocket.

use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;
use polyrpc_core::Outbox;

use super::tunnel::Tunnel;
use super::{Inbox, Source, Stream};

/// Stream of a server's session: a socket, or a WebSocket over it.
#[derive(Debug)]
pub(crate) enum UpgradableStream {
    Socket(Stream),
    WebSocket(Box<Tunnel>),
}

impl UpgradableStream {
    /// Upgrades a socket to a WebSocket, whose first bytes are in the inbox. Returns `None` if it is one already.
    pub(crate) fn into_websocket(self, inbox: &mut Inbox) -> Option<Self> {
        match self {
            Self::Socket(socket) => Some(Self::WebSocket(Box::new(Tunnel::new(socket, inbox.take())))),
            Self::WebSocket(_) => None,
        }
    }

    /// Turns the close that follows into a reset: unsent data is discarded, and the peer sees an error where the
    /// transport allows it.
    pub(crate) fn reset(&self) {
        match self {
            Self::Socket(stream) => stream.reset(),
            Self::WebSocket(tunnel) => tunnel.reset(),
        }
    }

    /// Returns the number of bytes that a WebSocket has framed but not written.
    pub(crate) fn unwritten_bytes(&self) -> usize {
        match self {
            Self::Socket(_) => 0,
            Self::WebSocket(tunnel) => tunnel.unwritten_bytes(),
        }
    }

    /// Returns the number of bytes that a WebSocket has received, including frame headers and pings. Zero for a socket,
    /// whose bytes the connection counts itself.
    pub(crate) fn websocket_bytes_received(&self) -> u64 {
        match self {
            Self::Socket(_) => 0,
            Self::WebSocket(tunnel) => tunnel.bytes_received(),
        }
    }

    /// Returns the number of bytes that a WebSocket has received since the last time, including frame headers and pings;
    /// zero for a socket.
    #[inline]
    pub(crate) fn take_websocket_bytes(&mut self) -> usize {
        match self {
            Self::Socket(_) => 0,
            Self::WebSocket(tunnel) => tunnel.take_recent(),
        }
    }

    /// Returns the number of bytes that it buffers between the socket and the inbox, and between the outbox and the
    /// socket. The buffers of the system are not counted, nor those of QUIC, which its windows limit.
    #[inline]
    pub(crate) fn buffered_bytes(&self) -> usize {
        match self {
            Self::Socket(stream) => stream.buffered_bytes(),
            Self::WebSocket(tunnel) => tunnel.buffered_bytes(),
        }
    }

    /// Writes until `out` is empty or the socket accepts no more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_flush(cx, out),
            Self::WebSocket(tunnel) => tunnel.poll_flush(cx, out),
        }
    }

    /// Shuts down the write side.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_shutdown(cx),
            Self::WebSocket(tunnel) => tunnel.poll_shutdown(cx),
        }
    }

    /// Whether the peer is notified of a close. If not, it may keep using a connection that is closed here.
    pub(crate) fn signals_close(&self) -> bool {
        match self {
            Self::Socket(Stream::Carried(carried)) => carried.signals_close(),
            // TLS and WebSocket have a close message, whatever the transport below.
            Self::Socket(_) | Self::WebSocket(_) => true,
        }
    }
}

impl Source for UpgradableStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(stream) => stream.poll_read(cx, inbox),
            Self::WebSocket(tunnel) => tunnel.poll_read(cx, inbox),
        }
    }
}

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::Outbox;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::plaintext::poll_plaintext;
use super::session::Session;
use super::{Acceptor, Carrier, Connector, ReadHalf, WriteHalf, failure, halves};
use crate::call::{Peer, TlsInfo};
use crate::transport::{Inbox, Source};

/// A TLS stream over another stream.
pub(crate) struct Stream<S> {
    inner: S,
    session: Session,
    /// Records that have not been decrypted yet.
    incoming: Inbox,
    /// Bytes of the handshake so far.
    received: usize,
}

impl<S: Carrier> Stream<S> {
    /// Connects the client's end, including the handshake.
    pub(crate) async fn connect(inner: S, connector: &Connector) -> io::Result<Self> {
        connector.current().refresh_if_due().await;
        let mut stream = Self::new(inner, connector.session()?, Inbox::default());
        // A server sends nothing unasked: after its handshake messages there are only TLS's own.
        let mut plain = BytesMut::new();
        poll_fn(|cx| stream.poll_handshake(cx, &mut plain)).await?;
        Ok(stream)
    }

    /// Creates the server's end, before the handshake. Bytes that were already read are taken out of `start`.
    pub(crate) fn accept(inner: S, acceptor: &Acceptor, start: &mut Inbox) -> io::Result<Self> {
        Ok(Self::new(inner, acceptor.session()?, start.take()))
    }

    fn new(inner: S, session: Session, incoming: Inbox) -> Self {
        let received = incoming.bytes.len();
        Self { inner, session, incoming, received }
    }

    /// Drives the handshake until it is done. Plaintext that follows it is appended to `plain`.
    pub(crate) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
        plain: &mut BytesMut,
    ) -> Poll<io::Result<()>> {
        loop {
            let opened = self.session.open(&mut self.incoming.bytes, plain, 1);
            self.incoming.bytes.advance(opened.as_ref().map_or(0, |opened| opened.discard));
            if let Err(error) = opened {
                // Sends the alert if possible; an error changes nothing.
                let _ = self.poll_write_own(cx);
                return Poll::Ready(Err(error));
            }
            ready!(self.poll_write_own(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.session.peer_closed() {
                return Poll::Ready(Err(failure::cut_off(self.received)));
            }
            if self.received > HANDSHAKE {
                return Poll::Ready(Err(failure::too_long()));
            }
            match self.incoming.poll_fill(&mut self.inner, cx, 0) {
                Poll::Pending => {
                    self.incoming.release_spare();
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(failure::cut_off(self.received))),
                Poll::Ready(Ok(bytes)) => self.received += bytes,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Poll::Ready(Err(failure::cut_off(self.received)));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Closes a connection whose handshake has failed: sends the alert, and discards what the peer still sends, since
    /// closing with unread bytes would destroy the alert on its way.
    pub(crate) fn poll_close_failed_handshake(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if ready!(self.poll_write_own(cx)).is_err() || ready!(self.inner.poll_shutdown(cx)).is_err() {
            return Poll::Ready(());
        }
        loop {
            self.incoming.bytes.clear();
            match self.incoming.poll_fill(&mut self.inner, cx, 0) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    self.incoming.release_spare();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Resets the stream below.
    pub(crate) fn break_off(&self) {
        self.inner.reset();
    }

    /// Returns an upper limit of the bytes that an unfinished handshake holds: all that were received, and those that are
    /// not written.
    pub(crate) fn handshake_bytes(&self) -> usize {
        self.received + self.session.outgoing().len()
    }

    /// Returns the bytes of records that are not decrypted, or not written.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let incoming = self.incoming.buffered_bytes() + self.incoming.consumed_bytes();
        incoming + self.session.outgoing().len() + self.inner.buffered_bytes()
    }

    /// Returns the protocol that was negotiated in the handshake, if any.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.session.alpn()
    }

    /// Returns the authenticated peer, after the handshake.
    pub(crate) fn peer(&self, below: Peer) -> Peer {
        peer(below, self.session.version(), self.alpn(), self.session.certificates())
    }

    /// Writes until `out` is empty or the socket accepts no more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> Poll<io::Result<()>> {
        while self.session.seal(out)? {
            let written = ready!(self.inner.poll_write(cx, self.session.outgoing()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.session.advance(written, out);
        }
        // The rest waits for a complete message of the peer, not for the socket, which would never become ready for it.
        if out.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Shuts down the write side.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.close();
        ready!(self.poll_write_own(cx))?;
        self.inner.poll_shutdown(cx)
    }

    /// Splits it into a read half and a write half that any task may use.
    pub(crate) fn split(self) -> (ReadHalf<S::Read>, WriteHalf<S::Write>) {
        let (read, write) = self.inner.split();
        halves::split(read, write, self.session, self.incoming)
    }

    /// Writes TLS's own messages.
    fn poll_write_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.has_pending_records() {
            let written = ready!(self.inner.poll_write(cx, self.session.outgoing()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.session.advance_own(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Carrier> Source for Stream<S> {
    fn poll_read(&mut self, cx: &mut Context<'_>, plain: &mut BytesMut) -> Poll<io::Result<usize>> {
        let session = &mut self.session;
        let read = poll_plaintext(&mut self.inner, &mut self.incoming, plain, cx, |incoming, plain, room| {
            Ok((session.open(incoming, plain, room)?, session.peer_closed()))
        });
        if self.session.has_pending_records() {
            // The write is not awaited: unsent bytes go out with the next write.
            let _ = self.poll_write_own(cx);
        }
        match read {
            // Every request has an explicit end, so requests before a truncation are complete and are answered. A
            // client must be notified: a reply of HTTP/1.0 may extend to the end of the connection.
            Poll::Ready(Err(error))
                if error.kind() == io::ErrorKind::UnexpectedEof && self.session.is_server() =>
            {
                Poll::Ready(Ok(0))
            }
            read => read,
        }
    }
}

/// Returns the peer with its TLS facts.
pub(crate) fn peer(
    below: Peer,
    version: &'static str,
    alpn: Option<&[u8]>,
    certificates: Vec<Bytes>,
) -> Peer {
    let alpn = alpn.map(|name| String::from_utf8_lossy(name).into_owned());
    let names = certificates.first().map(|certificate| names(certificate)).unwrap_or_default();
    Peer::Tls(Arc::new(TlsInfo::new(below, version, alpn, certificates, names)))
}

/// Returns the names that a certificate is valid for: of hosts, and URIs.
fn names(certificate: &[u8]) -> Vec<String> {
    let der = CertificateDer::from(certificate);
    let Ok(certificate) = EndEntityCert::try_from(&der) else { return Vec::new() };
    certificate.valid_dns_names().chain(certificate.valid_uri_names()).map(str::to_owned).collect()
}

impl<S: std::fmt::Debug> std::fmt::Debug for Stream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.inner).finish()
    }
}

/// Size of a handshake beyond which nothing more is read: two messages of the maximum size that TLS allows, for long
/// certificate chains.
const HANDSHAKE: usize = 128 << 10;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, mem};

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::Outbox;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::plain::poll_plain;
use super::session::Session;
use super::{Acceptor, Carrier, Connector, ReadHalf, WriteHalf, failure, halves};
use crate::call::{Peer, TlsInfo};
use crate::transport::{Inbox, Source};

/// A stream within TLS within another stream.
pub(crate) struct Stream<S> {
    inner: S,
    session: Session,
    /// Records that have not been decrypted yet.
    incoming: Inbox,
    /// Bytes of the handshake so far.
    received: usize,
}

impl<S: Carrier> Stream<S> {
    /// The client's end, ready to be used.
    pub(crate) async fn connect(inner: S, connector: &Connector) -> io::Result<Self> {
        connector.current().refresh_if_due().await;
        let mut stream = Self::new(inner, connector.session()?, Inbox::default());
        // A server speaks when it was asked: nothing comes behind its part of the handshake but TLS's own messages.
        let mut plain = BytesMut::new();
        poll_fn(|cx| stream.poll_handshake(cx, &mut plain)).await?;
        Ok(stream)
    }

    /// The server's end, whose handshake is to be done. What was read already is taken out of `start`.
    pub(crate) fn accept(inner: S, acceptor: &Acceptor, start: &mut Inbox) -> io::Result<Self> {
        Ok(Self::new(inner, acceptor.session()?, mem::take(start)))
    }

    fn new(inner: S, session: Session, incoming: Inbox) -> Self {
        let received = incoming.bytes.len();
        Self { inner, session, incoming, received }
    }

    /// Goes on with the handshake until it is done. What comes right behind it is appended to `plain`.
    pub(crate) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
        plain: &mut BytesMut,
    ) -> Poll<io::Result<()>> {
        loop {
            let opened = self.session.open(&mut self.incoming.bytes, plain, 1);
            self.incoming.bytes.advance(opened.as_ref().map_or(0, |opened| opened.discard));
            if let Err(error) = opened {
                // That the peer is told what was wrong with it is the best that can be done now.
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
            match ready!(self.incoming.poll_fill(&mut self.inner, cx, 0)) {
                Ok(0) => return Poll::Ready(Err(failure::cut_off(self.received))),
                Ok(bytes) => self.received += bytes,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Poll::Ready(Err(failure::cut_off(self.received)));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Ends a connection whose handshake has failed: what was wrong is said, and what the peer still sends is thrown
    /// away, since closing with unread bytes would destroy that on its way.
    pub(crate) fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

    /// As of what it goes by.
    pub(crate) fn break_off(&self) {
        self.inner.reset();
    }

    /// Bytes of records that are not decrypted, or not written.
    pub(crate) fn held(&self) -> usize {
        self.incoming.buffered_bytes() + self.session.outgoing().len() + self.inner.held()
    }

    /// The protocol that was settled on in the handshake, if one was.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.session.alpn()
    }

    /// Who the peer is, now that it has shown it.
    pub(crate) fn peer(&self, below: Peer) -> Peer {
        peer(below, self.session.version(), self.alpn(), self.session.certificates())
    }

    /// Writes until `out` is empty or the socket takes no more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> Poll<io::Result<()>> {
        while self.session.seal(out)? {
            let written = ready!(self.inner.poll_write(cx, self.session.outgoing()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.session.advance(written, out);
        }
        // What is left waits for the rest of a message of the peer's. To wait for the socket would not end.
        if out.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.close();
        ready!(self.poll_write_own(cx))?;
        self.inner.poll_shutdown(cx)
    }

    /// Parts it into a half to read from and a half that any task may write to.
    pub(crate) fn split(self) -> (ReadHalf<S::Read>, WriteHalf<S::Write>) {
        let (read, write) = self.inner.split();
        halves::split(read, write, self.session, self.incoming)
    }

    /// Writes what TLS itself has to say.
    fn poll_write_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.owes() {
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
        let read = poll_plain(&mut self.inner, &mut self.incoming, plain, cx, |incoming, plain, room| {
            Ok((session.open(incoming, plain, room)?, session.peer_closed()))
        });
        if self.session.owes() {
            // Nothing waits for it: what does not leave now leaves with what is written next.
            let _ = self.poll_write_own(cx);
        }
        match read {
            // Every request tells itself where it ends, so what came before a cut is whole and is answered. A client
            // must know: a reply of HTTP/1.0 may go on to the end of the connection.
            Poll::Ready(Err(error))
                if error.kind() == io::ErrorKind::UnexpectedEof && self.session.is_server() =>
            {
                Poll::Ready(Ok(0))
            }
            read => read,
        }
    }
}

/// A caller of whom TLS knows this.
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

/// The names that a certificate is for: of hosts, and URIs.
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

/// How many bytes a handshake may take: two messages as long as TLS lets any be, such as long chains of certificates
/// are.
const HANDSHAKE: usize = 128 << 10;

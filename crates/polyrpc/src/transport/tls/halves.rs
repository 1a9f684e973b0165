use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::{fmt, io};

use bytes::BytesMut;
use polyrpc_core::Outbox;

use super::CarrierSink;
use super::plaintext::poll_plaintext;
use super::session::Session;
use crate::contention::{Mutex, MutexGuard};
use crate::transport::{Inbox, Source};

/// Splits a stream. Both halves need the session, each for a moment: to decrypt what was read, to encrypt and write
/// what is to be sent.
pub(super) fn split<R, W>(
    read: R,
    write: W,
    session: Session,
    incoming: Inbox,
) -> (ReadHalf<R>, WriteHalf<W>) {
    let session = Arc::new(Mutex::new(session));
    (ReadHalf { inner: read, session: session.clone(), incoming }, WriteHalf { inner: write, session })
}

/// The read half, used by its own task.
pub(crate) struct ReadHalf<R> {
    inner: R,
    session: Arc<Mutex<Session>>,
    incoming: Inbox,
}

impl<R: Source> Source for ReadHalf<R> {
    fn poll_read(&mut self, cx: &mut Context<'_>, plain: &mut BytesMut) -> Poll<io::Result<usize>> {
        let session = &self.session;
        poll_plaintext(&mut self.inner, &mut self.incoming, plain, cx, |incoming, plain, room| {
            let mut session = lock(session);
            Ok((session.open(incoming, plain, room)?, session.peer_closed()))
        })
    }
}

/// The write half, which any task may use.
pub(crate) struct WriteHalf<W> {
    inner: W,
    session: Arc<Mutex<Session>>,
}

impl<W: CarrierSink> WriteHalf<W> {
    pub(crate) fn try_flush(&self, out: &mut Outbox) -> io::Result<()> {
        let mut session = lock(&self.session);
        while session.seal(out)? {
            match self.inner.try_write(session.outgoing()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => session.advance(written, out),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if lock(&self.session).outgoing().is_empty() {
            // The rest waits for a complete message of the peer, not for the socket.
            return Poll::Pending;
        }
        self.inner.poll_writable(cx)
    }

    pub(crate) fn close(&self) {
        let mut session = lock(&self.session);
        session.close();
        while !session.outgoing().is_empty() {
            // What the socket does not accept now is lost with the connection.
            match self.inner.try_write(session.outgoing()) {
                Ok(written @ 1..) => session.advance_own(written),
                _ => break,
            }
        }
        self.inner.close();
    }
}

fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: fmt::Debug> fmt::Debug for ReadHalf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.inner).finish()
    }
}

impl<W: fmt::Debug> fmt::Debug for WriteHalf<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.inner).finish()
    }
}

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use polyrpc_core::{Detection, Outbox};
use polyrpc_wire::Protocol;
use polyrpc_wire::sniff::sniff;

use super::connections::{ConnectionCommand, ConnectionGuard, ConnectionPhase};
use super::incidents::Refusal;
use crate::call::Peer;
use crate::transport::{Inbox, Stream, TlsStream, tls};

/// A connection before its first message.
pub(super) struct AcceptedConnection {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
    /// The protocol that was negotiated in the TLS handshake; the client must keep to it.
    pub(super) record_protocol: Option<Protocol>,
}

/// Distinguishes TLS from clear text by the first bytes and does the handshake, if there is one. `None`: the connection
/// has ended, or is not allowed here.
///
/// The timeout of the handshake is that of a message.
pub(super) async fn accept_tls(
    mut stream: Stream,
    inbox: &mut Inbox,
    peer: Peer,
    acceptor: &tls::Acceptor,
    registration: &ConnectionGuard,
) -> Option<AcceptedConnection> {
    if !poll_fn(|cx| poll_recognise(&mut stream, inbox, acceptor, registration, cx)).await? {
        // A connection within the process cannot be eavesdropped.
        if acceptor.is_required() && !matches!(peer, Peer::InProcess) {
            registration.connection.record_refusal(Refusal::ClearText);
            refuse(stream, inbox, registration).await;
            return None;
        }
        return Some(AcceptedConnection { stream, peer, record_protocol: None });
    }
    let stream = accept(stream, inbox, acceptor, registration).await?;
    let record_protocol = stream.alpn().and_then(|name| acceptor.protocol(name));
    let peer = stream.peer(peer);
    // If a part of the first message has arrived, it is handled next.
    registration.connection.set_phase(ConnectionPhase::Silent, registration.tick());
    Some(AcceptedConnection { stream: Stream::Tls(stream), peer, record_protocol })
}

/// Reads until the bytes show whether the peer uses TLS.
fn poll_recognise(
    stream: &mut Stream,
    inbox: &mut Inbox,
    acceptor: &tls::Acceptor,
    registration: &ConnectionGuard,
    cx: &mut Context<'_>,
) -> Poll<Option<bool>> {
    registration.connection.set_waker(cx.waker());
    loop {
        if is_over(registration) {
            return Poll::Ready(None);
        }
        if !inbox.bytes.is_empty() {
            registration.connection.set_phase(ConnectionPhase::MidMessage, registration.tick());
            if let Some(speaks_tls) = acceptor.recognise(&inbox.bytes) {
                return Poll::Ready(Some(speaks_tls));
            }
        }
        match inbox.poll_fill(stream, cx, 0) {
            Poll::Ready(Ok(1..)) => {}
            Poll::Ready(_) => return Poll::Ready(None),
            Poll::Pending => {
                inbox.release_spare();
                return Poll::Pending;
            }
        }
    }
}

/// Notifies a peer that sent clear text that only TLS is accepted here. Its further input is discarded, since closing
/// with unread bytes would destroy the notification on its way.
#[cold]
async fn refuse(mut stream: Stream, inbox: &mut Inbox, registration: &ConnectionGuard) {
    let mut out = Outbox::new();
    out.extend_from_slice(refusal(&inbox.bytes));
    registration.connection.set_phase(ConnectionPhase::Closing, registration.tick());
    poll_fn(|cx| {
        registration.connection.set_waker(cx.waker());
        if is_over(registration) || ready!(stream.poll_flush(cx, &mut out)).is_err() {
            return Poll::Ready(());
        }
        if ready!(stream.poll_shutdown(cx)).is_err() {
            return Poll::Ready(());
        }
        loop {
            inbox.bytes.clear();
            match inbox.poll_fill(&mut stream, cx, 0) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    inbox.release_spare();
                    return Poll::Pending;
                }
            }
        }
    })
    .await;
}

/// Returns a rejection that the peer understands, by its first bytes: HTTP of any version receives an HTTP/1 response,
/// as nginx sends it; others receive a TLS alert, which our clients recognize.
fn refusal(start: &[u8]) -> &'static [u8] {
    match sniff(start, &[Protocol::Http, Protocol::Grpc]) {
        Detection::Unknown => &UNEXPECTED_MESSAGE,
        Detection::Is(_) | Detection::NeedMore => TLS_EXPECTED,
    }
}

/// A TLS alert: fatal, `unexpected_message` (RFC 8446, section 6).
const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 1, 0, 2, 2, 10];

const TLS_EXPECTED: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 57\r\n\
    Connection: close\r\n\r\n\
    This port expects TLS: call it by https:// or grpcs:// .\n";

/// Does the handshake. Bytes that follow it are then in the inbox.
async fn accept(
    stream: Stream,
    inbox: &mut Inbox,
    acceptor: &tls::Acceptor,
    registration: &ConnectionGuard,
) -> Option<Box<TlsStream>> {
    let mut accepted = Box::new(tls::Stream::accept(stream, acceptor, inbox).ok()?);
    let handshake = poll_fn(|cx| {
        registration.connection.set_waker(cx.waker());
        match is_over(registration) {
            true => Poll::Ready(None),
            false => {
                let handshake = accepted.poll_handshake(cx, &mut inbox.bytes).map(Some);
                let held = if handshake.is_pending() { accepted.handshake_bytes() } else { 0 };
                registration.connection.account.report_held(held);
                handshake
            }
        }
    });
    match handshake.await? {
        Ok(()) => return Some(accepted),
        Err(error) => registration.connection.record_handshake_failure(&error),
    }
    registration.connection.set_phase(ConnectionPhase::Closing, registration.tick());
    poll_fn(|cx| {
        registration.connection.set_waker(cx.waker());
        match is_over(registration) {
            true => Poll::Ready(()),
            false => accepted.poll_close_failed_handshake(cx),
        }
    })
    .await;
    None
}

fn is_over(registration: &ConnectionGuard) -> bool {
    registration.connection.command() >= ConnectionCommand::Drain
}

//! Connections that bring no calls but bytes, behind the token that a call gave out ([`crate::transfer`]).

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::open::{Order, Phase, Registration};
use crate::transfer::{self, ByteStream, Moved, Start, Work, poll_drain};
use crate::transport::{Inbox, Socket, Transport};

/// Lets what waited for the connection have it, until that has ended or the server is told to close.
///
/// A server that drains lets it go on; one that does nothing is ended as any idle connection.
pub(super) async fn carry(start: Start, transport: Transport, mut inbox: Inbox, registration: Registration) {
    // Within a WebSocket or TLS there are only calls: rpcx's clients go to a port, in clear text.
    let Transport::Socket(stream) = transport else { return };
    let Some(socket) = stream.into_socket() else { return };
    let moved = Arc::new(Moved::from(inbox.bytes.len()));
    let early = inbox.bytes.split_off(transfer::LENGTH.min(inbox.bytes.len())).freeze();
    inbox.rest();
    let socket = Arc::new(socket);
    let stream = ByteStream::new(socket.clone(), early, moved.clone());
    let Ok(mut work) = catch_unwind(AssertUnwindSafe(|| start(stream))) else { return socket.break_off() };
    let note = || {
        let (received, sent) = moved.read();
        registration.entry.note_bytes(received, sent);
    };
    let done = poll_fn(|cx| {
        let done = poll_work(&mut work, &registration, cx);
        note();
        done
    });
    let done = done.await;
    drop(work);
    match done {
        Some(Ok(())) => end(&socket, &registration).await,
        Some(Err(_)) | None => socket.break_off(),
    }
}

/// `None`: the connection was ended, or its handler panicked.
fn poll_work(
    work: &mut Work,
    registration: &Registration,
    cx: &mut Context<'_>,
) -> Poll<Option<polyrpc::Result<()>>> {
    let entry = &registration.entry;
    entry.wakes(cx.waker());
    if entry.ordered() == Order::Close {
        return Poll::Ready(None);
    }
    // It is polled because something has happened.
    entry.waits(Phase::Idle, registration.tick());
    match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    }
}

/// Says that all was sent. What the peer still sends is thrown away, since closing with unread bytes would destroy the
/// last that is on its way to it.
async fn end(socket: &Socket, registration: &Registration) {
    if socket.end().is_err() {
        return;
    }
    let entry = &registration.entry;
    entry.waits(Phase::Closing, registration.tick());
    poll_fn(|cx| {
        entry.wakes(cx.waker());
        match entry.ordered() {
            Order::Close => Poll::Ready(()),
            Order::Serve | Order::Retire | Order::Drain => poll_drain(socket, cx).map(drop),
        }
    })
    .await;
}

//! Connections that carry raw bytes instead of calls, opened with the token that a call issued ([`crate::transfer`]).

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::connections::{ConnectionCommand, ConnectionGuard, ConnectionPhase};
use crate::transfer::{self, ByteStream, Start, TransferredBytes, Work, poll_drain};
use crate::transport::{Inbox, Socket, UpgradableStream};

/// Passes the connection to the transfer that waits for it, until that has ended or the server commands it to close.
///
/// A draining server lets the transfer continue; an inactive connection is closed like any idle one.
pub(super) async fn serve(
    start: Start,
    transport: UpgradableStream,
    mut inbox: Inbox,
    registration: ConnectionGuard,
) {
    // An authenticated call has issued its token.
    registration.connection.prove();
    // Only calls run within a WebSocket or TLS: rpcx's clients connect to a port, in clear text.
    let UpgradableStream::Socket(stream) = transport else { return };
    let Some(socket) = stream.into_socket() else { return };
    let moved = Arc::new(TransferredBytes::starting_at(inbox.bytes.len()));
    let early = inbox.bytes.split_off(transfer::LENGTH.min(inbox.bytes.len())).freeze();
    inbox.release_spare();
    let socket = Arc::new(socket);
    let stream = ByteStream::new(socket.clone(), early, moved.clone());
    let Ok(mut work) = catch_unwind(AssertUnwindSafe(|| start(stream))) else { return socket.reset() };
    let note = || {
        let (received, sent) = moved.read();
        registration.connection.record_bytes(received, sent);
    };
    let done = poll_fn(|cx| {
        let done = poll_work(&mut work, &registration, cx);
        note();
        done
    });
    let done = done.await;
    drop(work);
    match done {
        Some(Ok(())) => finish(&socket, &registration).await,
        Some(Err(_)) | None => socket.reset(),
    }
}

/// `None`: the connection was closed, or its handler panicked.
fn poll_work(
    work: &mut Work,
    registration: &ConnectionGuard,
    cx: &mut Context<'_>,
) -> Poll<Option<crate::Result<()>>> {
    let entry = &registration.connection;
    entry.set_waker(cx.waker());
    if entry.command() == ConnectionCommand::Close {
        return Poll::Ready(None);
    }
    // A poll means that something has happened.
    entry.set_phase(ConnectionPhase::Idle, registration.tick());
    match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    }
}

/// Shuts down the write side. Further input of the peer is discarded, since closing with unread bytes would destroy the
/// last bytes on their way to it.
async fn finish(socket: &Socket, registration: &ConnectionGuard) {
    if socket.shutdown_write().is_err() {
        return;
    }
    let entry = &registration.connection;
    entry.set_phase(ConnectionPhase::Closing, registration.tick());
    poll_fn(|cx| {
        entry.set_waker(cx.waker());
        match entry.command() {
            ConnectionCommand::Close => Poll::Ready(()),
            ConnectionCommand::Serve | ConnectionCommand::AnnounceClose | ConnectionCommand::Drain => {
                poll_drain(socket, cx).map(drop)
            }
        }
    })
    .await;
}

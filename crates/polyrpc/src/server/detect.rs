use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::{io, slice};

use polyrpc_core::Detection;
use polyrpc_wire::{Protocol, sniff};

use super::accept_tls::{self, AcceptedConnection};
use super::bound_listener::BoundListener;
use super::connection::{ConnectionParts, SessionEnd};
use super::connections::{ConnectionCommand, ConnectionGuard, ConnectionPhase, ServerPush};
use super::listener_context::ListenerContext;
use super::{data_connection, proxy_header};
use crate::call::{ConnectionFacts, Peer, PushQueue};
use crate::transfer::{Start, TokenMatch};
use crate::transport::{Inbox, ReadSize, Stream, UpgradableStream};

/// Serves one connection from its first byte to its last.
///
/// The first bytes determine the protocol, unless the TLS handshake did; everything below is generic over it. A
/// connection may continue in another protocol if it requests that (`CONNECT`, WebSocket, an upgrade) or if the
/// listener allows it, hence the loop.
pub(super) async fn serve(
    mut stream: Stream,
    mut peer: Peer,
    bound: Arc<BoundListener>,
    registration: ConnectionGuard,
) {
    let listener = &bound.context;
    // Must be read before TLS wraps the stream.
    let local = stream.local();
    let mut inbox = Inbox::counting_pinned_buffers();
    if let Some(proxies) = &listener.proxies
        && proxies.includes(&peer)
    {
        match proxy_header::read(&mut stream, &mut inbox, &peer, &registration).await {
            Some(origin) => peer = origin,
            None => return,
        }
    }
    let opening = match &listener.tls {
        Some(acceptor) if peer.tls().is_none() => {
            accept_tls::accept_tls(stream, &mut inbox, peer, acceptor, &registration).await
        }
        // Clear text, or encrypted below the stream.
        _ => Some(AcceptedConnection { stream, peer, record_protocol: None }),
    };
    let Some(AcceptedConnection { stream, peer, record_protocol }) = opening else { return };
    let mut transport = UpgradableStream::Socket(stream);
    let mut allowed = record_protocol.as_ref().map_or(&listener.allowed[..], |record_protocol| {
        allowed_after_alpn(record_protocol, &listener.allowed)
    });
    let narrowed = record_protocol.is_some();
    // If the ALPN name allows two protocols, the first bytes decide.
    let mut settled = listener.fixed_protocol.or_else(|| record_protocol.filter(|_| allowed.len() == 1));
    let mut end = SessionEnd::Foreign;
    let mut last_protocol = None;
    loop {
        let handover = match end {
            SessionEnd::Closed => return,
            SessionEnd::Foreign => match last_protocol {
                None => None,
                Some(protocol) if !narrowed && listener.family.contains(&protocol) => {
                    allowed = &listener.family;
                    None
                }
                // Bytes that do not conform to the protocol end the connection, even if another protocol would accept
                // them.
                Some(_) => return close_gracefully(transport, inbox, &registration).await,
            },
            SessionEnd::Connect => {
                // ALPN negotiated HTTP, not the protocol inside of it.
                allowed = &listener.allowed;
                None
            }
            SessionEnd::Upgrade(handover) => Some(handover),
            SessionEnd::WebSocket => match transport.into_websocket(&mut inbox) {
                Some(websocket) => {
                    transport = websocket;
                    // As after `CONNECT`.
                    allowed = &listener.allowed;
                    None
                }
                None => return,
            },
        };
        let protocol = match (&handover, settled.take()) {
            (Some(_), _) => Protocol::Grpc,
            (None, Some(protocol)) => protocol,
            (None, None) => {
                match detect(&mut transport, &mut inbox, listener, allowed, &registration).await {
                    Some(ConnectionPurpose::Calls(protocol)) => protocol,
                    Some(ConnectionPurpose::Data(start)) => {
                        return data_connection::serve(start, transport, inbox, registration).await;
                    }
                    None if last_protocol.is_none()
                        && !matches!(transport, UpgradableStream::WebSocket(_)) =>
                    {
                        return;
                    }
                    None => return close_gracefully(transport, inbox, &registration).await,
                }
            }
        };
        let Some(sessions) = bound.sessions(protocol) else { return };
        let parts = ConnectionParts {
            stream: &mut transport,
            inbox: &mut inbox,
            registration: &registration,
            listener,
            facts: facts(protocol, peer.clone(), local, &registration, listener.server.exposes_errors),
        };
        let mut driver = sessions.start(parts, handover);
        end = poll_fn(|cx| driver.poll_serve(cx)).await;
        drop(driver);
        last_protocol = Some(protocol);
    }
}

/// Returns the allowed protocols after ALPN has negotiated one.
fn allowed_after_alpn<'a>(settled: &'a Protocol, allowed: &'a [Protocol]) -> &'a [Protocol] {
    match settled {
        // Go's client of rpcx over QUIC writes this name into its TLS settings (`client/connection_quic.go`), so its
        // connections with `CONNECT` and WebSocket arrive with it too.
        Protocol::Rpcx if allowed.contains(&Protocol::Http) => &[Protocol::Rpcx, Protocol::Http],
        settled => slice::from_ref(settled),
    }
}

/// Purpose of a connection.
enum ConnectionPurpose {
    Calls(Protocol),
    /// Raw bytes, behind a token.
    Data(Start),
}

/// Reads until the purpose of the connection is known. Returns `None` if it ended before, or if its protocol is not
/// allowed here.
async fn detect(
    stream: &mut UpgradableStream,
    inbox: &mut Inbox,
    listener: &ListenerContext,
    allowed: &[Protocol],
    registration: &ConnectionGuard,
) -> Option<ConnectionPurpose> {
    let mut started = false;
    poll_fn(|cx| poll_detect(stream, inbox, listener, allowed, registration, &mut started, cx)).await
}

fn poll_detect(
    stream: &mut UpgradableStream,
    inbox: &mut Inbox,
    listener: &ListenerContext,
    allowed: &[Protocol],
    registration: &ConnectionGuard,
    started: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<ConnectionPurpose>> {
    registration.connection.set_waker(cx.waker());
    loop {
        if registration.connection.command() >= ConnectionCommand::Drain {
            return Poll::Ready(None);
        }
        match listener.server.data.as_ref().map_or(TokenMatch::No, |data| data.recognise(&inbox.bytes)) {
            TokenMatch::Token(start) => return Poll::Ready(start.map(ConnectionPurpose::Data)),
            TokenMatch::NeedMore => {}
            TokenMatch::No => match sniff::sniff(&inbox.bytes, allowed) {
                Detection::Is(protocol) => return Poll::Ready(Some(ConnectionPurpose::Calls(protocol))),
                Detection::Unknown => {
                    registration.connection.record_unknown_protocol(&inbox.bytes);
                    return Poll::Ready(None);
                }
                Detection::NeedMore => {}
            },
        }
        if !*started && !inbox.bytes.is_empty() {
            *started = true;
            registration.connection.set_phase(ConnectionPhase::MidMessage, registration.tick());
        }
        match inbox.poll_fill_up_to(ReadSize::Brief, stream, cx, 0) {
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
            Poll::Ready(Ok(n)) => {
                let (received, sent) = registration.connection.bytes();
                registration.connection.record_bytes(received + n as u64, sent);
            }
            Poll::Pending => {
                inbox.release_spare();
                return Poll::Pending;
            }
        }
    }
}

/// Closes a connection that violates its protocol, with a close frame if it is a WebSocket.
async fn close_gracefully(mut transport: UpgradableStream, mut inbox: Inbox, registration: &ConnectionGuard) {
    let entry = &registration.connection;
    entry.set_phase(ConnectionPhase::Closing, registration.tick());
    let (mut is_shut_down, mut discard_budget) = (false, MAX_LINGER_BYTES);
    poll_fn(|cx| {
        entry.set_waker(cx.waker());
        if entry.command() == ConnectionCommand::Close {
            return Poll::Ready(Ok(()));
        }
        if !is_shut_down {
            ready!(transport.poll_shutdown(cx))?;
            is_shut_down = true;
        }
        // Closing with unread bytes would discard the last reply in transit.
        inbox.bytes.clear();
        loop {
            let n = ready!(inbox.poll_fill(&mut transport, cx, 0))?;
            inbox.bytes.clear();
            discard_budget = discard_budget.saturating_sub(n);
            if n == 0 || discard_budget == 0 {
                break;
            }
        }
        Poll::Ready(io::Result::Ok(()))
    })
    .await
    .unwrap_or_default();
}

/// Maximum number of bytes to discard from a peer before its connection is closed.
const MAX_LINGER_BYTES: usize = 64 << 10;

fn facts(
    protocol: Protocol,
    peer: Peer,
    local: Option<SocketAddr>,
    registration: &ConnectionGuard,
    exposes_errors: bool,
) -> Arc<ConnectionFacts> {
    let entry = registration.connection.clone();
    registration.record_protocol(protocol);
    let pushes = protocol.descriptor().capabilities.push;
    let queue: Option<PushQueue> =
        pushes.then(|| Box::new(move |push| entry.push(ServerPush::Push(push))) as PushQueue);
    let facts = ConnectionFacts::new(protocol, peer, queue)
        .with_id(registration.connection.id())
        .with_local_address(local);
    let facts = facts.with_exposed_errors(exposes_errors);
    let facts = facts.with_response_room(registration.response_room());
    Arc::new(facts.with_unknown_fields(registration.connection.incidents.unknown_fields.clone()))
}

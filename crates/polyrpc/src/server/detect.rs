use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use polyrpc_wire::{Guess, Protocol, baidu_std, grpc, http1, net_rpc, rpcx, sniff};

use super::connection::{Connection, End};
use super::open::{Order, Phase, Registration};
use super::port::Port;
use crate::net::{Inbox, Stream};
use crate::service::{ConnectionFacts, Peer, PushQueue};

/// Serves one connection from its first byte to its last.
///
/// The first bytes pick the protocol; from there on everything is generic over it. The peers allow a
/// connection to go on in another protocol between two messages, hence the loop.
pub(super) async fn serve(mut stream: Stream, peer: Peer, port: Arc<Port>, registration: Registration) {
    let mut inbox = Inbox::default();
    let mut end = End::Foreign;
    loop {
        let upgrade = match end {
            End::Closed => return,
            End::Foreign => None,
            End::Upgrade(upgrade) => Some(upgrade),
        };
        let protocol = match (&upgrade, port.spoken) {
            (Some(_), _) => Protocol::Grpc,
            (None, Some(spoken)) => spoken,
            (None, None) => match detect(&mut stream, &mut inbox, &port, &registration).await {
                Some(protocol) => protocol,
                None => return,
            },
        };
        let facts = facts(protocol, peer, &registration);
        let (stream, inbox, registration, port) = (&mut stream, &mut inbox, &registration, &*port);
        end = match protocol {
            Protocol::BaiduStd => {
                let session = baidu_std::Server::new(port.baidu_std.clone());
                Connection::new(stream, inbox, registration, port, facts, session).run().await
            }
            Protocol::Rpcx => {
                let session = rpcx::Server::new(port.rpcx.clone());
                Connection::new(stream, inbox, registration, port, facts, session).run().await
            }
            Protocol::Grpc => {
                let session = match upgrade {
                    None => grpc::Server::new(port.grpc.clone()),
                    Some(upgrade) => grpc::Server::upgraded(port.grpc.clone(), *upgrade),
                };
                Connection::new(stream, inbox, registration, port, facts, session).run().await
            }
            Protocol::Http => {
                let session = http1::Server::new(port.http.clone());
                Connection::new(stream, inbox, registration, port, facts, session).run().await
            }
            Protocol::NetRpc => {
                let session = net_rpc::Server::new(port.net_rpc.clone());
                Connection::new(stream, inbox, registration, port, facts, session).run().await
            }
        };
    }
}

/// Waits for enough bytes to tell the protocol. `None`: the connection ended first, or speaks none that is
/// allowed here.
async fn detect(
    stream: &mut Stream,
    inbox: &mut Inbox,
    port: &Port,
    registration: &Registration,
) -> Option<Protocol> {
    let mut started = false;
    poll_fn(|cx| poll_detect(stream, inbox, port, registration, &mut started, cx)).await
}

fn poll_detect(
    stream: &mut Stream,
    inbox: &mut Inbox,
    port: &Port,
    registration: &Registration,
    started: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<Protocol>> {
    registration.entry.wakes(cx.waker());
    loop {
        if registration.entry.ordered() != Order::Serve {
            return Poll::Ready(None);
        }
        match sniff::sniff(&inbox.bytes, &port.allowed) {
            Guess::Is(protocol) => return Poll::Ready(Some(protocol)),
            Guess::Unknown => return Poll::Ready(None),
            Guess::NeedMore => {}
        }
        if !*started && !inbox.bytes.is_empty() {
            *started = true;
            registration.entry.waits(Phase::MidMessage, registration.tick());
        }
        match inbox.poll_fill(stream, cx, 0) {
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
            Poll::Ready(Ok(_)) => {}
            Poll::Pending => {
                inbox.rest();
                return Poll::Pending;
            }
        }
    }
}

fn facts(protocol: Protocol, peer: Peer, registration: &Registration) -> Arc<ConnectionFacts> {
    let entry = registration.entry.clone();
    entry.speaks(protocol);
    let queue: Option<PushQueue> =
        (protocol == Protocol::Rpcx).then(|| Box::new(move |push| entry.push(push)) as PushQueue);
    Arc::new(ConnectionFacts::new(protocol, peer, queue))
}

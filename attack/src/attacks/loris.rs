//! Deliberately slow peers: heads, handshakes and messages that stall, or arrive a byte at a time.

use std::io;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::connection::RawConnection;
use super::{Attack, AttackContext, End, Form, Outcome, attack};
use crate::raw::frames;
use crate::raw::h2::{self, DATA, Frames, HEADERS, grpc_head};

pub(super) const ATTACKS: [Attack; 7] = [
    attack(
        "heads_that_stop",
        "kin",
        "20 connections per protocol, the beginning of a head, then silence",
        End::Within(|limits| limits.header_timeout * 2),
        |context| Box::pin(stop(context, heads())),
    ),
    attack(
        "heads_in_drops",
        "kin",
        "20 connections per protocol, heads and messages a byte every 100 ms",
        End::Within(|limits| limits.header_timeout * 2),
        |context| Box::pin(drip(context, halves().into_iter().filter(|half| !is_http2(half)).collect())),
    ),
    // HTTP/2 has three parts that can be incomplete: the preface with SETTINGS, a header block, a message.
    attack(
        "http2_in_drops",
        "kin",
        "20 connections, preface, head and message of HTTP/2 a byte every 100 ms",
        End::Within(|limits| limits.header_timeout * 3),
        |context| Box::pin(drip(context, halves().into_iter().filter(|half| is_http2(half)).collect())),
    ),
    attack(
        "messages_that_stop",
        "kin",
        "20 connections per protocol, a whole head and half a message, then silence",
        End::Within(|limits| limits.header_timeout * 2),
        |context| Box::pin(stop(context, halves())),
    ),
    attack(
        "tls_handshakes_that_stop",
        "kin",
        "200 connections to the TLS listener, the beginning of a ClientHello, then silence",
        End::Within(|limits| limits.header_timeout * 2),
        |context| Box::pin(tls(context)),
    ),
    attack(
        "silent_connections",
        "kin",
        "1,000 connections that send nothing",
        End::Within(|limits| limits.first_byte_timeout),
        |context| Box::pin(silence(context)),
    ),
    attack(
        "idle_connections",
        "kin",
        "as many connections as there may be, silent, then more",
        End::Held("connections, first_byte_timeout"),
        |context| Box::pin(crowd(context)),
    )
    .with_form(Form::FullOnly),
];

const EACH: usize = 20;

/// Incomplete heads.
fn heads() -> Vec<Vec<u8>> {
    let mut http2 = Frames::begin();
    http2.frame(HEADERS, 0, 1, &grpc_head("/Bare/Echo", &[]));
    vec![
        b"PRPC\0\0".to_vec(),
        frames::baidu_std_head("Bare", "Echo", 1, 0, 10)[..20].to_vec(),
        frames::rpcx_head("Bare", "Echo", 1, false, 10)[..20].to_vec(),
        b"POST /Bare/Echo HTTP/1.1\r\nHost: local".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM".to_vec(),
        http2.bytes,
        frames::rest_rpc_head(1, 10)[..10].to_vec(),
        b"{\"method\":\"Plain.Ec".to_vec(),
        frames::WEBSOCKET[..60].to_vec(),
    ]
}

/// Complete heads, with half of a message.
fn halves() -> Vec<Vec<u8>> {
    let half = [b'x'; 500];
    let mut http2 = Frames::begin();
    http2.head(1, &grpc_head("/Bare/Echo", &[]));
    http2.frame(DATA, 0, 1, &h2::grpc_message(0, &[b'x'; 1_000])[..505]);
    vec![
        [frames::baidu_std_head("Bare", "Echo", 1, 0, 1_000), half.to_vec()].concat(),
        [frames::rpcx_head("Bare", "Echo", 1, false, 1_000), half.to_vec()].concat(),
        [frames::http("/Bare/Echo", "", 1_000), half.to_vec()].concat(),
        http2.bytes,
        [frames::rest_rpc_head(1, 1_000), vec![0x91, 0xda, 0x03, 0xe0], half.to_vec()].concat(),
        [&b"{\"method\":\"Plain.Echo\",\"params\":[\""[..], &half].concat(),
        [frames::WEBSOCKET.to_vec(), frames::websocket_head(0x82, 1_000), half.to_vec()].concat(),
    ]
}

fn is_http2(beginning: &[u8]) -> bool {
    beginning.starts_with(b"PRI")
}

async fn stop(context: AttackContext, beginnings: Vec<Vec<u8>>) -> io::Result<Outcome> {
    let mut connections = Vec::new();
    for beginning in &beginnings {
        // HTTP/2 may end only the stream.
        let streams = usize::from(is_http2(beginning));
        let opened = context.connect_and_send(EACH, beginning).await?;
        connections.extend(opened.into_iter().map(|connection| connection.with_streams(streams)));
    }
    Ok(context.hold(connections).await)
}

async fn drip(context: AttackContext, halves: Vec<Vec<u8>>) -> io::Result<Outcome> {
    let all: Vec<_> = halves.into_iter().map(|half| half.repeat(4)).collect();
    let mut connections = Vec::new();
    for bytes in &all {
        for connection in context.connect_many(EACH).await? {
            connections.push((connection, bytes));
        }
    }
    let (begun, wait_limit) = (Instant::now(), context.wait_limit());
    let mut at = 0;
    while begun.elapsed() < wait_limit
        && !connections.iter_mut().all(|(connection, _)| connection.is_closed())
    {
        let drops = connections.iter_mut().map(async |(connection, bytes)| match bytes.get(at) {
            Some(byte) => connection.send(&[*byte]).await,
            None => true,
        });
        join_all(drops).await;
        at += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(context
        .hold_for(Duration::ZERO, connections.into_iter().map(|(connection, _)| connection).collect())
        .await)
}

async fn tls(context: AttackContext) -> io::Result<Outcome> {
    // A record that announces 512 bytes, a ClientHello that announces 508.
    let hello = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[7; 100]].concat();
    let mut connections = Vec::new();
    for _ in 0..200 {
        let mut connection = context.connect_to(&context.target.tls).await?;
        connection.send(&hello).await;
        connections.push(connection);
    }
    Ok(context.hold(connections).await)
}

async fn silence(context: AttackContext) -> io::Result<Outcome> {
    let connections = context.connect_many(1_000).await?;
    Ok(context.hold(connections).await)
}

/// New connections of well-behaved clients must still be accepted.
async fn crowd(context: AttackContext) -> io::Result<Outcome> {
    let connections: Vec<RawConnection> = context.connect_many(25_000).await?;
    Ok(context.hold(connections).await)
}

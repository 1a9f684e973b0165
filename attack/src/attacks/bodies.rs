//! Bodies that never end.

use std::io;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::connection::RawConnection;
use super::{Attack, AttackContext, End, Outcome, attack};
use crate::raw::frames;
use crate::raw::h2::{self, DATA, FRAME, Frames, grpc_head, json_head};

pub(super) const ATTACKS: [Attack; 6] = [
    attack(
        "http2_bodies_without_end",
        "3",
        "HTTP/2 JSON: 40 streams × 50 MiB that never end, to a method that does not exist",
        End::Within(|limits| limits.header_timeout * 2),
        |context| Box::pin(bodies(context, json_head("/No/Such", &[]), Vec::new())),
    ),
    attack(
        "grpc_bodies_without_end",
        "3",
        "gRPC: 40 streams × 50 MiB that never end, to a method that exists",
        End::Within(|limits| limits.message_timeout),
        // A message that announces 60 MiB.
        |context| Box::pin(bodies(context, grpc_head("/Bare/Echo", &[]), vec![0, 3, 0xc0, 0, 0])),
    ),
    attack(
        "slow_message",
        "5",
        "61 MiB of a message at once, then 1.2 kB every 7 s (1 kB every 700 ms in the short form)",
        End::Within(|limits| limits.header_timeout * 3),
        |context| Box::pin(slow_message(context)),
    ),
    attack(
        "almost_whole_messages",
        "kin",
        "200 connections of four protocols, messages of 64 MiB of which the end never comes",
        End::Within(|limits| limits.header_timeout * 3),
        |context| Box::pin(almost_complete(context)),
    ),
    attack(
        "chunks_without_end",
        "kin",
        "HTTP/1.1 bodies in chunks that never end, as fast as the server takes them",
        End::Within(|limits| limits.header_timeout * 3),
        |context| Box::pin(chunks(context)),
    ),
    attack(
        "pieces_behind_whole_calls",
        "kin",
        "many connections, each with 60 KiB of whole calls and then 1 KiB of a message that does not go on",
        End::Within(|limits| limits.header_timeout * 3),
        |context| Box::pin(pieces(context)),
    ),
];

const STREAMS: usize = 40;

/// Four connections with ten streams each, a frame on each stream in turn.
async fn bodies(context: AttackContext, head: Vec<u8>, beginning: Vec<u8>) -> io::Result<Outcome> {
    const CONNECTIONS: usize = 4;
    let streams = STREAMS / CONNECTIONS;
    let mut frames = Frames::begin();
    for index in 0..streams {
        frames.head(h2::stream(index), &head);
        if !beginning.is_empty() {
            frames.frame(DATA, 0, h2::stream(index), &beginning);
        }
    }
    let connections = context.connect_and_send(CONNECTIONS, &frames.bytes).await?;
    let mut connections: Vec<_> =
        connections.into_iter().map(|connection| connection.with_streams(streams)).collect();
    let mut round = Frames::default();
    (0..streams).for_each(|index| round.frame(DATA, 0, h2::stream(index), &[b'x'; FRAME]));
    let rounds = (50 << 20) / FRAME;
    join_all(connections.iter_mut().map(async |connection| {
        for _ in 0..rounds {
            if !connection.send(&round.bytes).await {
                break;
            }
        }
    }))
    .await;
    Ok(context.hold(connections).await)
}

/// Just within the message limit.
const LARGE: usize = 61 << 20;

async fn slow_message(context: AttackContext) -> io::Result<Outcome> {
    let pause = context.pick(Duration::from_secs(7), Duration::from_millis(700));
    let drop = [b'x'; 1_200];
    let mut connections = context.connect_many(4).await?;
    for connection in &mut connections {
        // One after another: the time limit of a message starts with its first byte.
        connection.start_time_limit();
        connection.send(&frames::rpcx_head("Bare", "Echo", 1, false, LARGE + (1 << 20))).await;
        connection.send_filler(LARGE).await;
    }
    let begun = Instant::now();
    let wait_limit = context.wait_limit();
    while begun.elapsed() < wait_limit && count_open(&mut connections) > 0 {
        tokio::time::sleep(pause).await;
        join_all(connections.iter_mut().map(|connection| connection.send(&drop))).await;
    }
    Ok(context.hold_for(Duration::ZERO, connections).await)
}

/// Counts the open connections. Checks all of them, so that each records when it was closed.
fn count_open(connections: &mut [RawConnection]) -> usize {
    connections.iter_mut().map(|connection| usize::from(!connection.is_closed())).sum()
}

/// All of them announce 64 MiB. The total number of bytes sent is limited, since this machine's memory is.
async fn almost_complete(context: AttackContext) -> io::Result<Outcome> {
    const ANNOUNCED: usize = (64 << 20) - 1_024;
    let (count, each) = context.pick((200, 8 << 20), (80, 8 << 20));
    let heads = [
        frames::baidu_std_head("Bare", "Echo", 1, 0, ANNOUNCED),
        frames::rpcx_head("Bare", "Echo", 1, false, ANNOUNCED),
        frames::http("/Bare/Echo", "", ANNOUNCED),
        frames::rest_rpc_head(1, (10 << 20) - 1_024),
    ];
    let mut connections = context.connect_many(count).await?;
    for (connection, head) in connections.iter_mut().zip(heads.iter().cycle()) {
        connection.send(head).await;
    }
    join_all(connections.iter_mut().map(|connection| connection.send_filler(each))).await;
    Ok(context.hold(connections).await)
}

async fn chunks(context: AttackContext) -> io::Result<Outcome> {
    let mut chunk = b"4000\r\n".to_vec();
    chunk.extend([b'1'; 0x4000]);
    chunk.extend(b"\r\n");
    let head = "POST /Bare/Echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let mut connections = context.connect_and_send(context.pick(20, 8), head.as_bytes()).await?;
    // Larger than the message limit.
    let chunks = (70 << 20) / chunk.len();
    join_all(connections.iter_mut().map(async |connection| {
        for _ in 0..chunks {
            if !connection.send(&chunk).await {
                break;
            }
        }
    }))
    .await;
    Ok(context.hold(connections).await)
}

async fn pieces(context: AttackContext) -> io::Result<Outcome> {
    let call = frames::rpcx("Bare", "Echo", 1, &[b'x'; 1_000]);
    let mut bytes = call.repeat(60);
    bytes.extend(frames::rpcx_head("Bare", "Echo", 2, false, 64 << 10));
    bytes.extend([b'x'; 1_000]);
    let mut connections = context.connect_many(context.pick(5_000, 1_000)).await?;
    for connection in &mut connections {
        connection.send(&bytes).await;
    }
    Ok(context.hold(connections).await)
}

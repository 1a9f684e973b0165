//! Calls whose handlers block, and responses that are not read.

use std::io;
use std::time::Duration;

use super::connection::RawConnection;
use super::{Attack, AttackContext, End, Form, Outcome, attack};
use crate::raw::frames::{self, BLOB_MD5, WAIT_MD5};
use crate::raw::h2::{self, Frames, grpc_head};

pub(super) const ATTACKS: [Attack; 9] = [
    attack(
        "calls_that_wait",
        "kin",
        "65,536 whole gRPC calls of a handler that waits, on 64 connections",
        End::Held("in_flight, in_flight_per_peer, in_flight_per_connection"),
        |context| Box::pin(wait_in_calls(context)),
    ),
    attack(
        "calls_that_wait_everywhere",
        "kin",
        "whole calls of a handler that waits, by baidu_std, rpcx, HTTP/1.1, rest_rpc and net_rpc",
        End::Held("in_flight, in_flight_per_peer, in_flight_per_connection"),
        |context| Box::pin(wait_everywhere(context)),
    ),
    attack(
        "answers_unread",
        "kin",
        "answers of 1 MiB asked for by every protocol, 8 connections × 200 calls, and not read",
        End::Within(|limits| limits.write_timeout),
        |context| Box::pin(leave_blobs_unread(context)),
    ),
    attack(
        "windows_of_zero",
        "kin",
        "64 HTTP/2 connections × 100 answers of 1 MiB for which there is never a window",
        End::Within(|limits| limits.write_timeout),
        |context| Box::pin(no_windows(context)),
    ),
    attack(
        "streams_unread",
        "kin",
        "16 HTTP/2 connections × 100 endless streams that are not read",
        End::Within(|limits| limits.write_timeout),
        |context| Box::pin(endless_streams(context)),
    ),
    attack(
        "brpc_streams_unread",
        "kin",
        "16 baidu_std connections × 100 endless streams beside calls, never read",
        End::Within(|limits| limits.write_timeout),
        |context| Box::pin(brpc_streams(context)),
    ),
    attack(
        "pushes_unread",
        "kin",
        "64 subscriptions of rest_rpc to a busy topic, never read",
        End::Within(|limits| limits.write_timeout),
        |context| Box::pin(pushes(context)),
    )
    .with_form(Form::FullOnly),
    attack(
        "subscriptions",
        "kin",
        "200,000 subscriptions of rest_rpc to topics that nobody publishes",
        End::Held("memory"),
        |context| Box::pin(subscriptions(context)),
    ),
    attack(
        "http_pipeline_unread",
        "kin",
        "16 HTTP/1.1 connections × 5,000 pipelined calls of 2 kB, never read",
        End::Within(|limits| limits.write_timeout),
        |context| Box::pin(pipeline(context)),
    ),
];

async fn wait_in_calls(context: AttackContext) -> io::Result<Outcome> {
    const STREAMS: usize = 1_024;
    let head = grpc_head("/Bare/Wait", &[]);
    let mut frames = Frames::begin();
    (0..STREAMS).for_each(|index| frames.call(h2::stream(index), &head, b"x"));
    let connections = context.connect_and_send(64, &frames.bytes).await?;
    Ok(context.hold(connections).await)
}

async fn wait_everywhere(context: AttackContext) -> io::Result<Outcome> {
    let many = |call: &dyn Fn(u64) -> Vec<u8>| (1..=4_096).flat_map(call).collect::<Vec<_>>();
    let http = [frames::http("/Bare/Wait", "", 1), b"1".to_vec()].concat();
    let mut connections = Vec::new();
    for bytes in [
        many(&|id| frames::baidu_std("Bare", "Wait", id, 0, b"x")),
        many(&|id| frames::rpcx("Bare", "Wait", id, b"x")),
        many(&|id| frames::rest_rpc(WAIT_MD5, id, "x")),
        many(&|id| frames::net_rpc("Bare.Wait", id, "x")),
        many(&|_| http.clone()),
    ] {
        connections.extend(context.connect_and_send(4, &bytes).await?);
    }
    Ok(context.hold(connections).await)
}

/// Calls of `blob` over every protocol: the number that a connection sends before it reads.
fn blobs() -> Vec<Vec<u8>> {
    const CALLS: u64 = 200;
    let many = |call: &dyn Fn(u64) -> Vec<u8>| (1..=CALLS).flat_map(call).collect::<Vec<_>>();
    let http = [frames::http("/Bare/Blob", "", 1), b"1".to_vec()].concat();
    let head = grpc_head("/Bare/Blob", &[]);
    let mut http2 = Frames::begin();
    (0..CALLS as usize).for_each(|index| http2.call(h2::stream(index), &head, b"x"));
    let call = frames::rpcx("Bare", "Blob", 1, b"x");
    vec![
        many(&|id| frames::baidu_std("Bare", "Blob", id, 0, b"x")),
        many(&|id| frames::rpcx("Bare", "Blob", id, b"x")),
        many(&|id| frames::rest_rpc(BLOB_MD5, id, "x")),
        many(&|id| frames::net_rpc("blob", id, "x")),
        many(&|_| http.clone()),
        http2.bytes,
        [frames::WEBSOCKET.to_vec(), frames::websocket(0x82, &call).repeat(CALLS as usize)].concat(),
    ]
}

async fn leave_blobs_unread(context: AttackContext) -> io::Result<Outcome> {
    let mut connections = Vec::new();
    for calls in blobs() {
        connections.extend(connect_and_send_without_reading(&context, context.pick(8, 3), &calls).await?);
    }
    Ok(context.hold(connections).await)
}

/// Connections that send this and read nothing.
async fn connect_and_send_without_reading(
    context: &AttackContext,
    count: usize,
    bytes: &[u8],
) -> io::Result<Vec<RawConnection>> {
    let mut connections: Vec<_> =
        context.connect_many(count).await?.into_iter().map(RawConnection::without_reading).collect();
    for connection in &mut connections {
        connection.send(bytes).await;
    }
    Ok(connections)
}

async fn no_windows(context: AttackContext) -> io::Result<Outcome> {
    const STREAMS: usize = 100;
    let head = grpc_head("/Bare/Blob", &[]);
    let mut frames = Frames::begin_without_windows();
    (0..STREAMS).for_each(|index| frames.call(h2::stream(index), &head, b"x"));
    let connections = context.connect_and_send(64, &frames.bytes).await?;
    Ok(context
        .hold(connections.into_iter().map(|connection| connection.with_streams(STREAMS)).collect())
        .await)
}

async fn endless_streams(context: AttackContext) -> io::Result<Outcome> {
    let head = grpc_head("/Bare/Pour", &[]);
    let mut frames = Frames::begin();
    (0..100).for_each(|index| frames.call(h2::stream(index), &head, b"x"));
    let connections = connect_and_send_without_reading(&context, 16, &frames.bytes).await?;
    Ok(context.hold(connections).await)
}

async fn brpc_streams(context: AttackContext) -> io::Result<Outcome> {
    let calls: Vec<u8> =
        (1..=100).flat_map(|id| frames::baidu_std_stream("Bare", "Pour", id, b"x")).collect();
    let connections = connect_and_send_without_reading(&context, 16, &calls).await?;
    Ok(context.hold(connections).await)
}

async fn pushes(context: AttackContext) -> io::Result<Outcome> {
    let connections =
        connect_and_send_without_reading(&context, 64, &frames::rest_rpc_subscription("news")).await?;
    // Until then the system's buffers absorb what is published.
    tokio::time::sleep(Duration::from_secs(7)).await;
    Ok(context.hold(connections).await)
}

async fn subscriptions(context: AttackContext) -> io::Result<Outcome> {
    const CONNECTIONS: usize = 20;
    let mut connections = context.connect_many(CONNECTIONS).await?;
    for (n, connection) in connections.iter_mut().enumerate() {
        let topics = (0..10_000).map(|topic| format!("topic {n} {topic}"));
        let bytes: Vec<u8> = topics.flat_map(|topic| frames::rest_rpc_subscription(&topic)).collect();
        connection.send(&bytes).await;
    }
    Ok(context.hold(connections).await)
}

async fn pipeline(context: AttackContext) -> io::Result<Outcome> {
    let body = format!("\"{}\"", "x".repeat(2_000));
    let call = [frames::http("/Bare/Echo", "", body.len()), body.into_bytes()].concat();
    let connections = connect_and_send_without_reading(&context, 16, &call.repeat(5_000)).await?;
    Ok(context.hold(connections).await)
}

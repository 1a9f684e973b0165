//! Calls whose handlers block, and responses that are not read.

use std::io;
use std::time::Duration;

use super::line::Line;
use super::{Attack, End, Form, Outcome, Siege, attack};
use crate::raw::frames::{self, BLOB_MD5, WAIT_MD5};
use crate::raw::h2::{self, Frames, grpc_head};

pub(super) const ATTACKS: [Attack; 9] = [
    attack(
        "calls_that_wait",
        "kin",
        "65,536 whole gRPC calls of a handler that waits, on 64 connections",
        End::Held("in_flight, in_flight_per_peer, in_flight_per_connection"),
        |siege| Box::pin(wait_in_calls(siege)),
    ),
    attack(
        "calls_that_wait_everywhere",
        "kin",
        "whole calls of a handler that waits, by baidu_std, rpcx, HTTP/1.1, rest_rpc and net_rpc",
        End::Held("in_flight, in_flight_per_peer, in_flight_per_connection"),
        |siege| Box::pin(wait_everywhere(siege)),
    ),
    attack(
        "answers_unread",
        "kin",
        "answers of 1 MiB asked for by every protocol, 8 connections × 200 calls, and not read",
        End::Within(|limits| limits.write_timeout),
        |siege| Box::pin(leave_blobs_unread(siege)),
    ),
    attack(
        "windows_of_zero",
        "kin",
        "64 HTTP/2 connections × 100 answers of 1 MiB for which there is never a window",
        End::Within(|limits| limits.write_timeout),
        |siege| Box::pin(no_windows(siege)),
    ),
    attack(
        "streams_unread",
        "kin",
        "16 HTTP/2 connections × 100 endless streams that are not read",
        End::Within(|limits| limits.write_timeout),
        |siege| Box::pin(endless_streams(siege)),
    ),
    attack(
        "brpc_streams_unread",
        "kin",
        "16 baidu_std connections × 100 endless streams beside calls, never read",
        End::Within(|limits| limits.write_timeout),
        |siege| Box::pin(brpc_streams(siege)),
    ),
    attack(
        "pushes_unread",
        "kin",
        "64 subscriptions of rest_rpc to a busy topic, never read",
        End::Within(|limits| limits.write_timeout),
        |siege| Box::pin(pushes(siege)),
    )
    .with_form(Form::FullOnly),
    attack(
        "subscriptions",
        "kin",
        "200,000 subscriptions of rest_rpc to topics that nobody publishes",
        End::Held("memory"),
        |siege| Box::pin(subscriptions(siege)),
    ),
    attack(
        "http_pipeline_unread",
        "kin",
        "16 HTTP/1.1 connections × 5,000 pipelined calls of 2 kB, never read",
        End::Within(|limits| limits.write_timeout),
        |siege| Box::pin(pipeline(siege)),
    ),
];

async fn wait_in_calls(siege: Siege) -> io::Result<Outcome> {
    const STREAMS: usize = 1_024;
    let head = grpc_head("/Bare/Wait", &[]);
    let mut frames = Frames::begin();
    (0..STREAMS).for_each(|turn| frames.call(h2::stream(turn), &head, b"x"));
    let lines = siege.raid(64, &frames.bytes).await?;
    Ok(siege.hold(lines).await)
}

async fn wait_everywhere(siege: Siege) -> io::Result<Outcome> {
    let many = |call: &dyn Fn(u64) -> Vec<u8>| (1..=4_096).flat_map(call).collect::<Vec<_>>();
    let http = [frames::http("/Bare/Wait", "", 1), b"1".to_vec()].concat();
    let mut lines = Vec::new();
    for bytes in [
        many(&|id| frames::baidu_std("Bare", "Wait", id, 0, b"x")),
        many(&|id| frames::rpcx("Bare", "Wait", id, b"x")),
        many(&|id| frames::rest_rpc(WAIT_MD5, id, "x")),
        many(&|id| frames::net_rpc("Bare.Wait", id, "x")),
        many(&|_| http.clone()),
    ] {
        lines.extend(siege.raid(4, &bytes).await?);
    }
    Ok(siege.hold(lines).await)
}

/// Calls of `blob` over every protocol: the number that a connection sends before it reads.
fn blobs() -> Vec<Vec<u8>> {
    const CALLS: u64 = 200;
    let many = |call: &dyn Fn(u64) -> Vec<u8>| (1..=CALLS).flat_map(call).collect::<Vec<_>>();
    let http = [frames::http("/Bare/Blob", "", 1), b"1".to_vec()].concat();
    let head = grpc_head("/Bare/Blob", &[]);
    let mut http2 = Frames::begin();
    (0..CALLS as usize).for_each(|turn| http2.call(h2::stream(turn), &head, b"x"));
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

async fn leave_blobs_unread(siege: Siege) -> io::Result<Outcome> {
    let mut lines = Vec::new();
    for calls in blobs() {
        lines.extend(raid_without_reading(&siege, siege.pick(8, 3), &calls).await?);
    }
    Ok(siege.hold(lines).await)
}

/// Connections that send this and read nothing.
async fn raid_without_reading(siege: &Siege, count: usize, bytes: &[u8]) -> io::Result<Vec<Line>> {
    let mut lines: Vec<_> = siege.lines(count).await?.into_iter().map(Line::without_reading).collect();
    for line in &mut lines {
        line.send(bytes).await;
    }
    Ok(lines)
}

async fn no_windows(siege: Siege) -> io::Result<Outcome> {
    const STREAMS: usize = 100;
    let head = grpc_head("/Bare/Blob", &[]);
    let mut frames = Frames::begin_without_windows();
    (0..STREAMS).for_each(|turn| frames.call(h2::stream(turn), &head, b"x"));
    let lines = siege.raid(64, &frames.bytes).await?;
    Ok(siege.hold(lines.into_iter().map(|line| line.with_streams(STREAMS)).collect()).await)
}

async fn endless_streams(siege: Siege) -> io::Result<Outcome> {
    let head = grpc_head("/Bare/Pour", &[]);
    let mut frames = Frames::begin();
    (0..100).for_each(|turn| frames.call(h2::stream(turn), &head, b"x"));
    let lines = raid_without_reading(&siege, 16, &frames.bytes).await?;
    Ok(siege.hold(lines).await)
}

async fn brpc_streams(siege: Siege) -> io::Result<Outcome> {
    let calls: Vec<u8> =
        (1..=100).flat_map(|id| frames::baidu_std_stream("Bare", "Pour", id, b"x")).collect();
    let lines = raid_without_reading(&siege, 16, &calls).await?;
    Ok(siege.hold(lines).await)
}

async fn pushes(siege: Siege) -> io::Result<Outcome> {
    let lines = raid_without_reading(&siege, 64, &frames::rest_rpc_subscription("news")).await?;
    // Until then the system's buffers absorb what is published.
    tokio::time::sleep(Duration::from_secs(7)).await;
    Ok(siege.hold(lines).await)
}

async fn subscriptions(siege: Siege) -> io::Result<Outcome> {
    const CONNECTIONS: usize = 20;
    let mut lines = siege.lines(CONNECTIONS).await?;
    for (n, line) in lines.iter_mut().enumerate() {
        let topics = (0..10_000).map(|topic| format!("topic {n} {topic}"));
        let bytes: Vec<u8> = topics.flat_map(|topic| frames::rest_rpc_subscription(&topic)).collect();
        line.send(&bytes).await;
    }
    Ok(siege.hold(lines).await)
}

async fn pipeline(siege: Siege) -> io::Result<Outcome> {
    let body = format!("\"{}\"", "x".repeat(2_000));
    let call = [frames::http("/Bare/Echo", "", body.len()), body.into_bytes()].concat();
    let lines = raid_without_reading(&siege, 16, &call.repeat(5_000)).await?;
    Ok(siege.hold(lines).await)
}

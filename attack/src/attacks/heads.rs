//! Calls that start and never complete.

use super::{Attack, End, Form, Outcome, Siege, attack};
use crate::raw::h2::{self, Frames, grpc_head, grpc_message};

pub(super) const ATTACKS: [Attack; 4] = [
    attack(
        "heads_without_body",
        "1",
        "64 HTTP/2 connections × 1,024 gRPC heads without a body, then silence",
        End::Within(|limits| limits.message_timeout),
        |siege| Box::pin(heads_without_body(siege)),
    ),
    attack(
        "heads_without_body_elsewhere",
        "1",
        "the same from 127.0.0.2",
        End::Within(|limits| limits.message_timeout),
        |siege| Box::pin(heads_without_body(siege.with_other_address())),
    )
    .with_form(Form::FullOnly),
    attack(
        "watches",
        "1",
        "64 HTTP/2 connections × 1,024 Health/Watch",
        End::Held("streams and stream_idle_timeout"),
        |siege| Box::pin(watches(siege)),
    ),
    attack(
        "half_a_message",
        "4",
        "half a gRPC message on each of 200 connections, then silence",
        End::Within(|limits| limits.header_timeout * 2),
        |siege| Box::pin(half_a_message(siege)),
    ),
];

const CONNECTIONS: usize = 64;
const STREAMS: usize = 1_024;

async fn heads_without_body(siege: Siege) -> std::io::Result<Outcome> {
    let head = grpc_head("/Bare/Echo", &[]);
    let mut frames = Frames::begin();
    (0..STREAMS).for_each(|turn| frames.head(h2::stream(turn), &head));
    let lines = siege.raid(CONNECTIONS, &frames.bytes).await?;
    Ok(siege.hold(lines.into_iter().map(|line| line.with_streams(STREAMS)).collect()).await)
}

async fn watches(siege: Siege) -> std::io::Result<Outcome> {
    let head = grpc_head("/grpc.health.v1.Health/Watch", &[]);
    let mut frames = Frames::begin();
    (0..STREAMS).for_each(|turn| frames.call(h2::stream(turn), &head, b""));
    let lines = siege.raid(CONNECTIONS, &frames.bytes).await?;
    Ok(siege.hold(lines).await)
}

async fn half_a_message(siege: Siege) -> std::io::Result<Outcome> {
    let mut frames = Frames::begin();
    frames.head(1, &grpc_head("/Bare/Echo", &[]));
    frames.frame(h2::DATA, 0, 1, &grpc_message(0, &[b'x'; 2_000])[..1_000]);
    let lines = siege.raid(200, &frames.bytes).await?;
    Ok(siege.hold(lines.into_iter().map(|line| line.with_streams(1)).collect()).await)
}

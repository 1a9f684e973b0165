//! Calls that start and never complete.

use super::{Attack, AttackContext, End, Form, Outcome, attack};
use crate::raw::h2::{self, Frames, grpc_head, grpc_message};

pub(super) const ATTACKS: [Attack; 4] = [
    attack(
        "heads_without_body",
        "1",
        "64 HTTP/2 connections × 1,024 gRPC heads without a body, then silence",
        End::Within(|limits| limits.message_timeout),
        |context| Box::pin(heads_without_body(context)),
    ),
    attack(
        "heads_without_body_elsewhere",
        "1",
        "the same from 127.0.0.2",
        End::Within(|limits| limits.message_timeout),
        |context| Box::pin(heads_without_body(context.with_other_address())),
    )
    .with_form(Form::FullOnly),
    attack(
        "watches",
        "1",
        "64 HTTP/2 connections × 1,024 Health/Watch",
        End::Held("streams and stream_idle_timeout"),
        |context| Box::pin(watches(context)),
    ),
    attack(
        "half_a_message",
        "4",
        "half a gRPC message on each of 200 connections, then silence",
        End::Within(|limits| limits.header_timeout * 2),
        |context| Box::pin(half_a_message(context)),
    ),
];

const CONNECTIONS: usize = 64;
const STREAMS: usize = 1_024;

async fn heads_without_body(context: AttackContext) -> std::io::Result<Outcome> {
    let head = grpc_head("/Bare/Echo", &[]);
    let mut frames = Frames::begin();
    (0..STREAMS).for_each(|index| frames.head(h2::stream(index), &head));
    let connections = context.connect_and_send(CONNECTIONS, &frames.bytes).await?;
    Ok(context
        .hold(connections.into_iter().map(|connection| connection.with_streams(STREAMS)).collect())
        .await)
}

async fn watches(context: AttackContext) -> std::io::Result<Outcome> {
    let head = grpc_head("/grpc.health.v1.Health/Watch", &[]);
    let mut frames = Frames::begin();
    (0..STREAMS).for_each(|index| frames.call(h2::stream(index), &head, b""));
    let connections = context.connect_and_send(CONNECTIONS, &frames.bytes).await?;
    Ok(context.hold(connections).await)
}

async fn half_a_message(context: AttackContext) -> std::io::Result<Outcome> {
    let mut frames = Frames::begin();
    frames.head(1, &grpc_head("/Bare/Echo", &[]));
    frames.frame(h2::DATA, 0, 1, &grpc_message(0, &[b'x'; 2_000])[..1_000]);
    let connections = context.connect_and_send(200, &frames.bytes).await?;
    Ok(context.hold(connections.into_iter().map(|connection| connection.with_streams(1)).collect()).await)
}

//! Bodies that never end.

use std::io;

use futures_util::future::join_all;

use super::{Attack, End, Outcome, Siege, attack};
use crate::raw::h2::{self, DATA, FRAME, Frames, grpc_head, json_head};

pub(super) const ATTACKS: [Attack; 2] = [
    attack(
        "http2_bodies_without_end",
        "3",
        "HTTP/2 JSON: 40 streams × 50 MiB that never end, to a method that does not exist",
        End::Within(|limits| limits.header_timeout * 2),
        |siege| Box::pin(bodies(siege, json_head("/No/Such", &[]), Vec::new())),
    ),
    attack(
        "grpc_bodies_without_end",
        "3",
        "gRPC: 40 streams × 50 MiB that never end, to a method that exists",
        End::Within(|limits| limits.message_timeout),
        // A message that says it has 60 MiB.
        |siege| Box::pin(bodies(siege, grpc_head("/Bare/Echo", &[]), vec![0, 3, 0xc0, 0, 0])),
    ),
];

const STREAMS: usize = 40;

/// Four connections with ten streams each, a frame on each stream in turn.
async fn bodies(siege: Siege, head: Vec<u8>, beginning: Vec<u8>) -> io::Result<Outcome> {
    const CONNECTIONS: usize = 4;
    let streams = STREAMS / CONNECTIONS;
    let mut frames = Frames::begin();
    for turn in 0..streams {
        frames.head(h2::stream(turn), &head);
        if !beginning.is_empty() {
            frames.frame(DATA, 0, h2::stream(turn), &beginning);
        }
    }
    let lines = siege.raid(CONNECTIONS, &frames.bytes).await?;
    let mut lines: Vec<_> = lines.into_iter().map(|line| line.with_streams(streams)).collect();
    let mut round = Frames::default();
    (0..streams).for_each(|turn| round.frame(DATA, 0, h2::stream(turn), &[b'x'; FRAME]));
    let rounds = (50 << 20) / FRAME;
    join_all(lines.iter_mut().map(async |line| {
        for _ in 0..rounds {
            if !line.send(&round.bytes).await {
                break;
            }
        }
    }))
    .await;
    Ok(siege.hold(lines).await)
}

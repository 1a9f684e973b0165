//! Attacks during a shutdown of the server.

use std::io;

use super::{Attack, End, Form, Outcome, Siege, attack};
use crate::raw::h2::{self, Frames, grpc_head, grpc_message};

pub(super) const ATTACKS: [Attack; 1] = [attack(
    "shutdown_with_open_heads",
    "16",
    "gRPC heads without bodies and halves of messages when SIGTERM comes: exit within 3 s",
    End::Brief,
    |siege| Box::pin(open_heads(siege)),
)
.with_form(Form::Terminated)];

async fn open_heads(siege: Siege) -> io::Result<Outcome> {
    const STREAMS: usize = 100;
    let head = grpc_head("/Bare/Echo", &[]);
    let mut heads = Frames::begin();
    (0..STREAMS).for_each(|turn| heads.head(h2::stream(turn), &head));
    let mut halves = Frames::begin();
    halves.head(1, &head);
    halves.frame(h2::DATA, 0, 1, &grpc_message(0, &[b'x'; 2_000])[..1_000]);
    let mut lines = siege.raid(10, &heads.bytes).await?;
    lines.extend(siege.raid(10, &halves.bytes).await?);
    let connections = lines.len();
    siege.keep(lines);
    Ok(Outcome { connections, ..Outcome::default() })
}

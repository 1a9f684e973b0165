//! Attacks during a shutdown of the server.

use std::io;

use super::{Attack, AttackContext, End, Form, Outcome, attack};
use crate::raw::h2::{self, Frames, grpc_head, grpc_message};

pub(super) const ATTACKS: [Attack; 1] = [attack(
    "shutdown_with_open_heads",
    "16",
    "gRPC heads without bodies and halves of messages when SIGTERM comes: exit within 3 s",
    End::Brief,
    |context| Box::pin(open_heads(context)),
)
.with_form(Form::Terminated)];

async fn open_heads(context: AttackContext) -> io::Result<Outcome> {
    const STREAMS: usize = 100;
    let head = grpc_head("/Bare/Echo", &[]);
    let mut heads = Frames::begin();
    (0..STREAMS).for_each(|index| heads.head(h2::stream(index), &head));
    let mut halves = Frames::begin();
    halves.head(1, &head);
    halves.frame(h2::DATA, 0, 1, &grpc_message(0, &[b'x'; 2_000])[..1_000]);
    let mut connections = context.connect_and_send(10, &heads.bytes).await?;
    connections.extend(context.connect_and_send(10, &halves.bytes).await?);
    let count = connections.len();
    context.keep_open(connections);
    Ok(Outcome { connections: count, ..Outcome::default() })
}

//! A few bytes that decompress to many.

use std::io;

use polyrpc::Compression;
use polyrpc::payload::compress;

use super::connection::RawConnection;
use super::{Attack, AttackContext, End, Form, Outcome, attack};
use crate::raw::frames;
use crate::raw::h2::{Frames, grpc_head, grpc_message};

pub(super) const ATTACKS: [Attack; 4] = [
    attack(
        "zstd_bombs_unread",
        "2",
        "32 gRPC connections, 2 KB of zstd each that are 63 MiB, echoed, replies not read",
        End::Held("memory and write_timeout"),
        |context| Box::pin(grpc_bombs(context)),
    ),
    attack(
        "gzip_bombs_unread_baidu_std",
        "2",
        "32 baidu_std connections, gzip that is 63 MiB, echoed, replies not read",
        End::Held("memory and write_timeout"),
        |context| Box::pin(baidu_std_bombs(context, Compression::Gzip, 2)),
    ),
    attack(
        "snappy_bombs_unread_baidu_std",
        "2",
        "32 baidu_std connections, snappy that is 63 MiB, echoed, replies not read",
        End::Held("memory and write_timeout"),
        |context| Box::pin(baidu_std_bombs(context, Compression::Snappy, 1)),
    )
    .with_form(Form::FullOnly),
    attack(
        "gzip_bombs_unread_http",
        "2",
        "32 HTTP/1.1 connections, gzip that is 63 MiB, echoed, replies not read",
        End::Held("memory and write_timeout"),
        |context| Box::pin(http_bombs(context)),
    ),
];

const CONNECTIONS: usize = 32;
/// Bytes that a bomb decompresses to: just within the default limit.
const SIZE: usize = 63 << 20;

async fn grpc_bombs(context: AttackContext) -> io::Result<Outcome> {
    let bomb = bomb(Compression::Zstd, b'x', SIZE)?;
    let mut frames = Frames::begin();
    frames.head(
        1,
        &grpc_head("/Bare/Echo", &[("grpc-encoding", "zstd"), ("grpc-accept-encoding", "identity")]),
    );
    frames.body(1, &grpc_message(1, &bomb));
    send_without_reading(context, &frames.bytes).await
}

async fn baidu_std_bombs(
    context: AttackContext,
    compression: Compression,
    number: u64,
) -> io::Result<Outcome> {
    let bomb = bomb(compression, b'x', SIZE)?;
    send_without_reading(context, &frames::baidu_std("Bare", "Echo", 1, number, &bomb)).await
}

async fn http_bombs(context: AttackContext) -> io::Result<Outcome> {
    let bomb = bomb(Compression::Gzip, b'1', SIZE)?;
    let head = frames::http("/Bare/Echo", "Content-Encoding: gzip\r\n", bomb.len());
    send_without_reading(context, &[head, bomb].concat()).await
}

async fn send_without_reading(context: AttackContext, bytes: &[u8]) -> io::Result<Outcome> {
    let mut connections: Vec<_> =
        context.connect_many(CONNECTIONS).await?.into_iter().map(RawConnection::without_reading).collect();
    for connection in &mut connections {
        connection.send(bytes).await;
    }
    Ok(context.hold(connections).await)
}

/// The same byte, repeated and compressed.
pub(super) fn bomb(compression: Compression, byte: u8, size: usize) -> io::Result<Vec<u8>> {
    let packed = compress::compress(compression, &vec![byte; size]);
    packed.map_err(|error| io::Error::other(format!("{error:?}")))
}

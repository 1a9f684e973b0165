//! JSON and MessagePack that are small on the wire, and large in memory or nested deeply.

use std::io;

use futures_util::future::join_all;
use polyrpc::Compression;
use polyrpc::payload::compress;

use super::{Attack, AttackContext, End, Outcome, attack};
use crate::raw::frames;

pub(super) const ATTACKS: [Attack; 4] = [
    attack(
        "json_rpc_batch",
        "kin",
        "4 JSON-RPC batches of tiny entries (16 MiB each, 4 MiB in the short form), answers not read",
        End::Held("memory and write_timeout"),
        |context| Box::pin(batch(context)),
    ),
    attack(
        "deep_json",
        "kin",
        "JSON of a million brackets, in every protocol that carries JSON",
        End::Brief,
        |context| Box::pin(deep(context)),
    ),
    attack(
        "deep_message_pack",
        "kin",
        "MessagePack nested 1,000 and a million deep, in every protocol that carries MessagePack",
        End::Brief,
        |context| Box::pin(deep_message_pack(context)),
    ),
    attack(
        "large_json_of_many_keys",
        "kin",
        "JSON of millions of unknown members for a protobuf method: 4 connections with 60 MiB that are 60 KB of gzip, \
         2 with 16 MiB as it is",
        End::Held("long messages are decoded two at a time, on blocking threads"),
        |context| Box::pin(many_keys(context)),
    ),
];

async fn batch(context: AttackContext) -> io::Result<Outcome> {
    let entries = context.pick(16 << 20, 4 << 20) / 2;
    let body = format!("[{}1]", "1,".repeat(entries));
    let request = [frames::http("/", "", body.len()), body.into_bytes()].concat();
    let mut connections = Vec::new();
    for connection in context.connect_many(4).await? {
        let mut connection = connection.without_reading();
        connection.send(&request).await;
        connections.push(connection);
    }
    Ok(context.hold(connections).await)
}

async fn deep(context: AttackContext) -> io::Result<Outcome> {
    let deep = "[".repeat(1_000_000);
    let net_rpc = format!("{{\"method\":\"Plain.Echo\",\"params\":[{deep}");
    let requests = [
        [frames::http("/Plain/Echo", "", deep.len()), deep.clone().into_bytes()].concat(),
        [frames::http("/", "", deep.len()), deep.clone().into_bytes()].concat(),
        net_rpc.into_bytes(),
    ];
    send_each(&context, &requests).await
}

async fn deep_message_pack(context: AttackContext) -> io::Result<Outcome> {
    let mut requests = Vec::new();
    for depth in [1_000, 1_000_000] {
        // One argument; two of them, of which the number is wrong; a map, which may also be an enum.
        for level in [&b"\x91"[..], b"\x81\xa1a"] {
            let deep = [level.repeat(depth), b"\x01".to_vec()].concat();
            let two = [b"\x92", &deep[..], b"\x01"].concat();
            for body in [deep, two] {
                requests.push([frames::rest_rpc_head(1, body.len()), body.clone()].concat());
                requests.push(frames::rpcx_message_pack("Plain", "Echo", 1, &body));
                let head = frames::http_with("/Plain/Echo", "application/msgpack", "", body.len());
                requests.push([head, body].concat());
            }
        }
    }
    send_each(&context, &requests).await
}

async fn many_keys(context: AttackContext) -> io::Result<Outcome> {
    let json = |length: usize| {
        let members = b"\"a\":0,".repeat(length / 6);
        [b"{", &members[..], b"\"service\":\"\"}"].concat()
    };
    let zipped = compress::compress(Compression::Gzip, &json(context.pick(60 << 20, 20 << 20)));
    let zipped = zipped.map_err(|error| io::Error::other(format!("{error:?}")))?;
    let plain = json(context.pick(16 << 20, 4 << 20));
    let request = |fields: &str, body: &[u8]| {
        [&frames::http("/grpc.health.v1.Health/Check", fields, body.len())[..], body].concat()
    };
    let mut connections =
        context.connect_and_send(4, &request("Content-Encoding: gzip\r\n", &zipped)).await?;
    connections.extend(context.connect_and_send(2, &request("", &plain)).await?);
    Ok(context.hold(connections).await)
}

/// Asks each request at least once, on 12 connections or more.
async fn send_each(context: &AttackContext, requests: &[Vec<u8>]) -> io::Result<Outcome> {
    let connections = requests.len().max(12);
    let asked = join_all(requests.iter().cycle().take(connections).map(async |request| {
        context.connect().await?.send_and_receive(request).await;
        Ok::<_, io::Error>(())
    }))
    .await;
    asked.into_iter().collect::<io::Result<Vec<_>>>()?;
    Ok(Outcome { connections, ..Outcome::default() })
}

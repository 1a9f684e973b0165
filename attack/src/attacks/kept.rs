//! Memory that pending calls and connections keep beside the messages that count.

use std::io;

use super::{Attack, AttackContext, End, Outcome, attack};
use crate::raw::frames;

pub(super) const ATTACKS: [Attack; 4] = [
    attack(
        "long_names",
        "kin",
        "rpcx calls with a wrong credential to services whose names have 1 MiB, 16 on each connection",
        End::Held("header limits the names"),
        |context| Box::pin(long_names(context)),
    ),
    attack(
        "unused_members",
        "kin",
        "JSON-RPC in chunks: calls that wait, with 3 bytes of params and 1 MiB of another member",
        End::Held("a call keeps its params, not its message"),
        |context| Box::pin(unused_members(context)),
    ),
    attack(
        "invalid_utf8",
        "kin",
        "net/rpc with JSON: calls that wait, each with 60 kB that are not UTF-8",
        End::Held("a call keeps its params, not its message"),
        |context| Box::pin(invalid_utf8(context)),
    ),
    attack(
        "rest_behind_large_messages",
        "kin",
        "net/rpc with JSON: on each connection one message of 40 MiB, then 5 kB of another that does not go on",
        End::Within(|limits| limits.header_timeout * 3),
        |context| Box::pin(rest_behind_large(context)),
    ),
];

async fn long_names(context: AttackContext) -> io::Result<Outcome> {
    // Rejections are delayed from the eleventh wrong credential on.
    for n in 0..12 {
        let mut connection = context.connect_to(&context.target.guarded).await?;
        connection.send_and_receive(&frames::rpcx_with("wrong", "Bare", "Secret", n, b"x")).await;
    }
    let name = "x".repeat(1 << 20);
    let mut connections = Vec::new();
    for _ in 0..context.pick(32, 12) {
        let mut connection = context.connect_to(&context.target.guarded).await?.without_reading();
        for id in 0..16 {
            connection.send(&frames::rpcx_with("wrong", &name, "Secret", id, b"x")).await;
        }
        connections.push(connection);
    }
    Ok(context.hold(connections).await)
}

async fn unused_members(context: AttackContext) -> io::Result<Outcome> {
    let pad = "x".repeat(1 << 20);
    let body =
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"Bare.Wait\",\"params\":[1],\"id\":1,\"pad\":\"{pad}\"}}");
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    send_calls(context, request.as_bytes(), (8, 60)).await
}

async fn invalid_utf8(context: AttackContext) -> io::Result<Outcome> {
    let request =
        [&b"{\"method\":\"Bare.Wait\",\"params\":[1],\"id\":1,\"x\":\""[..], &[0xff; 60_000], b"\"}"]
            .concat();
    send_calls(context, &request, (4, 600)).await
}

/// Sends a call repeatedly on several connections.
async fn send_calls(
    context: AttackContext,
    request: &[u8],
    (connections, calls): (usize, usize),
) -> io::Result<Outcome> {
    let mut connections = context.connect_many(connections).await?;
    for connection in &mut connections {
        for _ in 0..calls {
            connection.send(request).await;
        }
    }
    Ok(context.hold(connections).await)
}

async fn rest_behind_large(context: AttackContext) -> io::Result<Outcome> {
    let message = |length: usize| {
        let pad = "x".repeat(length);
        format!("{{\"method\":\"No.Such\",\"params\":[1],\"id\":1,\"pad\":\"{pad}\"}}")
    };
    let mut bytes = message(40 << 20);
    bytes.push_str(&message(1 << 20)[..5_000]);
    let mut connections = context.connect_many(context.pick(24, 10)).await?;
    for connection in &mut connections {
        // One after another: the messages fit into the budget as long as they arrive.
        connection.start_time_limit();
        connection.send(bytes.as_bytes()).await;
        connection.wait_for_response(context.wait_limit()).await;
    }
    Ok(context.hold(connections).await)
}

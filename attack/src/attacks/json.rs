//! JSON that is small on the wire and large in memory.

use std::io;

use futures_util::future::join_all;

use super::{Attack, End, Outcome, Siege, attack};
use crate::raw::frames;

pub(super) const ATTACKS: [Attack; 2] = [
    attack(
        "json_rpc_batch",
        "kin",
        "4 JSON-RPC batches of tiny entries (16 MiB each, 4 MiB in the short form), answers not read",
        End::Held("memory and write_timeout"),
        |siege| Box::pin(batch(siege)),
    ),
    attack(
        "deep_json",
        "kin",
        "JSON of a million brackets, in every protocol that carries JSON",
        End::Brief,
        |siege| Box::pin(deep(siege)),
    ),
];

async fn batch(siege: Siege) -> io::Result<Outcome> {
    let entries = siege.pick(16 << 20, 4 << 20) / 2;
    let body = format!("[{}1]", "1,".repeat(entries));
    let request = [frames::http("/", "", body.len()), body.into_bytes()].concat();
    let mut lines = Vec::new();
    for line in siege.lines(4).await? {
        let mut line = line.not_reading();
        line.send(&request).await;
        lines.push(line);
    }
    Ok(siege.hold(lines).await)
}

async fn deep(siege: Siege) -> io::Result<Outcome> {
    let deep = "[".repeat(1_000_000);
    let net_rpc = format!("{{\"method\":\"Plain.Echo\",\"params\":[{deep}");
    let requests = [
        [frames::http("/Plain/Echo", "", deep.len()), deep.clone().into_bytes()].concat(),
        [frames::http("/", "", deep.len()), deep.clone().into_bytes()].concat(),
        net_rpc.into_bytes(),
    ];
    let asked = join_all(requests.iter().cycle().take(12).map(async |request| {
        siege.line().await?.ask(request).await;
        Ok::<_, io::Error>(())
    }))
    .await;
    asked.into_iter().collect::<io::Result<Vec<_>>>()?;
    Ok(Outcome { connections: 12, ..Outcome::default() })
}

//! One protocol after another on the same connection, in one segment.

use std::io;

use futures_util::future::join_all;

use super::{Attack, AttackContext, End, Outcome, attack};
use crate::raw::frames::{self, ECHO_MD5};
use crate::raw::h2::{Frames, json_head};

pub(super) const ATTACKS: [Attack; 1] = [attack(
    "glued_protocols",
    "19",
    "a call of baidu_std, rpcx or HTTP/1.1 with a call of another protocol right behind it",
    End::Brief,
    |context| Box::pin(glue(context)),
)];

/// Content of the second call's response if it was understood.
const MARKER: &str = "glued-marker";

async fn glue(context: AttackContext) -> io::Result<Outcome> {
    let http = [frames::http("/Bare/Echo", "", 3), b"\"x\"".to_vec()].concat();
    let firsts = [
        ("baidu_std", frames::baidu_std("Bare", "Echo", 1, 0, b"x")),
        ("rpcx", frames::rpcx("Bare", "Echo", 1, b"x")),
        ("HTTP/1.1", http.clone()),
    ];
    let seconds = seconds();
    let pairs = firsts.iter().flat_map(|first| seconds.iter().map(move |second| (first, second)));
    let pairs = pairs.filter(|(first, second)| !may_share(first.0, second.0));
    let tried = join_all(pairs.map(async |((first, bytes), (second, glued, marker))| {
        let received = context.connect().await?.send_and_receive(&[&bytes[..], glued].concat()).await;
        // The second call must be valid on its own for the check to be meaningful.
        let alone = context.connect().await?.send_and_receive(glued).await;
        let has_marker = |received: &[u8]| String::from_utf8_lossy(received).contains(marker);
        Ok::<_, io::Error>((*first, *second, has_marker(&received), has_marker(&alone)))
    }))
    .await;
    let mut outcome = Outcome::default();
    for tried in tried {
        let (first, second, is_answered, is_answered_alone) = tried?;
        outcome.connections += 1;
        outcome = outcome
            .check(!is_answered, format!("{second} behind {first} is answered"))
            .check(is_answered_alone, format!("{second} alone is not answered: the test is wrong"));
    }
    Ok(outcome)
}

/// Whether one may follow the other: brpc's family shares connections, and `CONNECT` is part of HTTP/1.1.
fn may_share(first: &str, second: &str) -> bool {
    first == second
        || (first == "baidu_std" && ["HTTP/1.1", "HTTP/2"].contains(&second))
        || (first == "HTTP/1.1" && ["baidu_std", "CONNECT"].contains(&second))
}

/// Calls of every protocol, and the content of their responses.
fn seconds() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let json = format!("\"{MARKER}\"");
    let mut http2 = Frames::begin();
    http2.head(1, &json_head("/Plain/Echo", &[]));
    http2.body(1, json.as_bytes());
    vec![
        ("baidu_std", frames::baidu_std("Bare", "Echo", 1, 0, MARKER.as_bytes()), MARKER),
        ("rpcx", frames::rpcx("Bare", "Echo", 1, MARKER.as_bytes()), MARKER),
        ("HTTP/1.1", [frames::http("/Bare/Echo", "", json.len()), json.into_bytes()].concat(), MARKER),
        ("HTTP/2", http2.bytes, MARKER),
        ("net_rpc JSON", frames::net_rpc("Plain.Echo", 1, MARKER), MARKER),
        ("net_rpc gob", frames::gob("Plain.Echo", MARKER), MARKER),
        ("rest_rpc MessagePack", frames::rest_rpc(ECHO_MD5, 1, MARKER), MARKER),
        ("rest_rpc struct_pack", frames::struct_pack(ECHO_MD5, MARKER), MARKER),
        ("CONNECT", b"CONNECT /_goRPC_ HTTP/1.0\r\n\r\n".to_vec(), "Connected"),
    ]
}

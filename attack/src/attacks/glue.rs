//! One protocol behind another on the same connection, in one segment.

use std::io;

use super::{Attack, End, Outcome, Siege, attack};
use crate::raw::frames::{self, ECHO_MD5};
use crate::raw::h2::{Frames, json_head};

pub(super) const ATTACKS: [Attack; 1] = [attack(
    "glued_protocols",
    "19",
    "a call of baidu_std, rpcx or HTTP/1.1 with a call of another protocol right behind it",
    End::Brief,
    |siege| Box::pin(glue(siege)),
)];

/// What the second call's answer contains if it was understood.
const MARKER: &str = "glued-marker";

async fn glue(siege: Siege) -> io::Result<Outcome> {
    let http = [frames::http("/Bare/Echo", "", 3), b"\"x\"".to_vec()].concat();
    let firsts = [
        ("baidu_std", frames::baidu_std("Bare", "Echo", 1, 0, b"x")),
        ("rpcx", frames::rpcx("Bare", "Echo", 1, b"x")),
        ("HTTP/1.1", http.clone()),
    ];
    let mut outcome = Outcome::default();
    for (first, bytes) in &firsts {
        for (second, glued, marker) in seconds() {
            // brpc's own family may share a connection, and HTTP goes over to HTTP/2 by an upgrade only.
            if second == *first || (*first == "baidu_std" && ["HTTP/1.1", "HTTP/2"].contains(&second)) {
                continue;
            }
            if *first == "HTTP/1.1" && ["baidu_std", "CONNECT"].contains(&second) {
                continue;
            }
            let mut line = siege.line().await?;
            let heard = line.ask(&[&bytes[..], &glued].concat()).await;
            let understood = String::from_utf8_lossy(&heard).contains(marker);
            outcome.connections += 1;
            outcome = outcome.check(!understood, format!("{second} behind {first} is answered"));
            // That the second is a good call by itself is what makes the first claim worth something.
            let alone = siege.line().await?.ask(&glued).await;
            if !String::from_utf8_lossy(&alone).contains(marker) {
                outcome = outcome.check(false, format!("{second} alone is not answered: the test is wrong"));
            }
        }
    }
    Ok(outcome)
}

/// Calls of every protocol, and what their answers contain.
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

//! Hostile bytes: they are answered in the protocol's own way or close their connection, without affecting others.

mod common;
// Here, since tests of bombs occupy the threads for long messages.
#[path = "server/long_messages.rs"]
mod long_messages;

use common::{
    PROTOCOLS, ProbeClient, Prober, Socket, Wire, baidu_frame, client, json_call, rpcx_frame, serve, soon,
};
use polyrpc::Protocol;
use polyrpc::server::ServerHandle;
use tokio::sync::RwLock;

/// Sends hostile bytes and disconnects, while another connection calls. Returns the bytes received until the end.
async fn attack(server: &ServerHandle, bytes: &[u8], good: &ProbeClient) -> Vec<u8> {
    let mut socket = Socket::connect(server).await;
    socket.offer(bytes).await;
    assert_eq!(soon(good.echo("meanwhile".into())).await.expect("others are served"), "meanwhile");
    socket.hang_up().await;
    socket.rest().await
}

/// Held by the test that measures the memory of the process, and shared by those that use more than a few KiB.
static MEMORY: RwLock<()> = RwLock::const_new(());

const LIES: [u32; 5] = [0, 1, (1 << 31) - 1, 1 << 31, u32::MAX];

#[tokio::test]
async fn forged_length_affects_only_its_connection() {
    let _alone = MEMORY.write().await;
    let server = serve(Prober::default().server()).await;
    let goods = PROTOCOLS.map(|protocol| ProbeClient::new(client(protocol, &server)));
    for good in &goods {
        good.echo("warm".into()).await.unwrap();
    }
    #[cfg(target_os = "linux")]
    let (exact, before) = (common::forget_peak(), common::memory().0);

    let baidu = baidu_frame("Probe", "Echo", 1, 0, b"\"text\"");
    let rpcx = rpcx_frame("Probe", "Echo", 1, false, b"\"text\"");
    // Every position, whether or not it holds a length.
    for good in &goods {
        for frame in [&baidu, &rpcx] {
            for at in (0..frame.len() - 3).step_by(if frame[0] == b'P' { 4 } else { 1 }) {
                for lie in LIES {
                    let mut bytes = frame.clone();
                    bytes[at..at + 4].copy_from_slice(&lie.to_be_bytes());
                    attack(&server, &bytes, good).await;
                }
            }
        }
        for length in
            ["0", "1", "2147483647", "2147483648", "4294967295", "18446744073709551616", "-1", "1e3", ""]
        {
            for field in
                [format!("Content-Length: {length}"), format!("Transfer-Encoding: chunked\r\n\r\n{length}")]
            {
                let request = format!("POST /Probe/Echo HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n\"text\"");
                let answer = attack(&server, request.as_bytes(), good).await;
                assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", answer.escape_ascii());
            }
        }
        for chunk in ["7fffffff", "80000000", "ffffffff", "ffffffffffffffff", "10000000000000000", "-1", "g"]
        {
            let request = format!(
                "POST /Probe/Echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}\r\n\"text\""
            );
            attack(&server, request.as_bytes(), good).await;
        }
    }

    #[cfg(target_os = "linux")]
    {
        // If the system cannot reset the peak, only memory still held is measured.
        let (now, peak) = common::memory();
        let more = (if exact { peak } else { now }).saturating_sub(before);
        assert!(more < 8 << 10, "{more} KiB more");
    }
    for good in &goods {
        assert_eq!(good.echo("after".into()).await.unwrap(), "after");
    }
}

#[tokio::test]
async fn undecompressable_rpcx_message_closes_the_connection_after_pending_replies() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let mut wire = Wire::connect(Protocol::Rpcx, &server).await;
    let calls = [
        wire.encode(1, &json_call("Probe", "Wait", "\"owed\"")),
        rpcx_frame("Probe", "Echo", 2, true, b"\0"),
        wire.encode(3, &json_call("Probe", "Echo", "\"late\"")),
    ];
    wire.socket.send(&calls.concat()).await;
    prober.gate.came(1).await;
    prober.gate.open();
    let (id, reply) = wire.reply().await.unwrap();
    assert_eq!((id, &reply.result.unwrap()[..]), (1, &b"\"owed\""[..]));
    assert!(wire.reply().await.is_none());
    assert_eq!(prober.ran(), 1);
}

#[tokio::test]
async fn truncated_message_ends_with_its_connection() {
    let server = serve(Prober::default().server()).await;
    let good = ProbeClient::new(client(Protocol::Rpcx, &server));
    let http = b"POST /Probe/Echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n\"text\"".to_vec();
    for message in [
        baidu_frame("Probe", "Echo", 1, 0, b"\"text\""),
        rpcx_frame("Probe", "Echo", 1, false, b"\"text\""),
        http,
    ] {
        for end in 0..message.len() {
            let answer = attack(&server, &message[..end], &good).await;
            assert!(answer.is_empty(), "cut at {end}: {}", answer.escape_ascii());
        }
        let answer = attack(&server, &message, &good).await;
        assert!(!answer.is_empty(), "a complete request is answered before the close");
        // Complete calls are answered although the next one is truncated.
        let mut more = message.clone();
        more.extend(&message[..message.len() / 2]);
        assert_eq!(attack(&server, &more, &good).await, answer);
    }
}

#[tokio::test]
async fn garbage_closes_its_connection() {
    let server = serve(Prober::default().server()).await;
    let good = ProbeClient::new(client(Protocol::BaiduStd, &server));
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as u8
    };
    for n in 0..200 {
        let mut bytes: Vec<u8> = (0..1 + n * 3).map(|_| random()).collect();
        // Half of them start like a known protocol.
        let start: &[u8] = [&b"PRPC"[..], b"\x08\0\0\x10", b"POST ", b"GET /", b"STRM", b"", b"", b""][n % 8];
        bytes.splice(0..start.len().min(bytes.len()), start.iter().copied());
        attack(&server, &bytes, &good).await;
    }
    assert_eq!(good.echo("after".into()).await.unwrap(), "after");
}

#[tokio::test]
async fn peer_that_keeps_sending_after_rejection_is_disconnected() {
    let server = serve(Prober::default().server()).await;
    // A meta longer than its body, followed by endless bytes.
    let mut bytes = baidu_frame("Probe", "Echo", 1, 0, b"\"text\"");
    bytes[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut socket = Socket::connect(&server).await;
    socket.send(&bytes).await;
    soon(async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(50));
        loop {
            pace.tick().await;
            if tokio::io::AsyncWriteExt::write_all(&mut socket.stream, b"more").await.is_err() {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn malformed_call_is_answered_and_its_connection_stays_open() {
    let _shared = MEMORY.read().await;
    let server = serve(Prober::default().server()).await;
    for protocol in common::ADORNED {
        let mut wire = common::Wire::connect(protocol, &server).await;
        for (n, body) in
            ["", "{", "\u{0}", "[[[[[[[[", "\"unended", "nul", "{\"a\":1}", "99999999999999999999"]
                .iter()
                .enumerate()
        {
            let n = n as u64;
            wire.send(2 * n, &common::json_call("Probe", "Echo", body)).await;
            let (id, reply) = wire.reply().await.unwrap_or_else(|| panic!("{protocol:?} {body}"));
            assert_eq!(id, 2 * n);
            assert!(reply.result.is_err(), "{protocol:?} {body}");
            wire.send(2 * n + 1, &common::json_call("Probe", "Echo", "\"good\"")).await;
            assert_eq!(wire.reply().await.unwrap().1.result.unwrap(), "\"good\"", "{protocol:?}");
        }
        // Nested deeper than any stack.
        let deep = "[".repeat(1_000_000);
        wire.send(100, &common::json_call("Probe", "Echo", &deep)).await;
        assert!(wire.reply().await.expect("an answer").1.result.is_err(), "{protocol:?}");
        wire.send(101, &common::json_call("Probe", "Echo", "\"good\"")).await;
        assert_eq!(wire.reply().await.unwrap().1.result.unwrap(), "\"good\"", "{protocol:?}");
    }
}

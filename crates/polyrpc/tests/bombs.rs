//! Decompression bombs: a few bytes that decompress to many.
//!
//! In a test binary of its own, since it measures the memory of the whole process.
#![cfg(target_os = "linux")]

mod common;

use bytes::Bytes;
use common::{Prober, Socket, Wire, baidu_frame, forget_peak, json_call, memory, rpcx_frame, serve};
use polyrpc::payload::compress;
use polyrpc::server::Limits;
use polyrpc::{Code, Compression, Protocol, Retry};

/// Limit of the decompressed size.
const LIMIT: usize = 4 << 20;
/// Decompressed size of the bomb.
const BOMB: usize = 64 << 20;
/// Memory allowed beyond the decompressed size.
const ROOM: usize = 1 << 20;

const COMPRESSIONS: [Compression; 6] = [
    Compression::Gzip,
    Compression::Zlib,
    Compression::Snappy,
    Compression::SnappyFrames,
    Compression::Lz4,
    Compression::Zstd,
];

fn bomb(compression: Compression) -> Bytes {
    compress::compress(compression, &vec![0; BOMB]).expect("it can be compressed").into()
}

/// Peak memory of `run` beyond the memory before it.
async fn growth(run: impl Future<Output = ()>) -> Option<usize> {
    let exact = forget_peak();
    let (before, _) = memory();
    run.await;
    let (after, peak) = memory();
    // If the system cannot reset the peak, only memory still held is measured.
    Some((if exact { peak } else { after }).saturating_sub(before) * 1024)
}

fn assert_bounded(growth: Option<usize>, case: &str) {
    let growth = growth.expect("it was measured");
    assert!(growth <= LIMIT + ROOM, "{case}: {} KiB more", growth >> 10);
}

#[tokio::test]
async fn decompression_bomb_is_rejected_within_the_memory_limit() {
    // The code that decompresses is read from the disk at its first use, and is no memory of the bomb.
    for compression in COMPRESSIONS {
        let small = compress::compress(compression, &[0; 100]).expect("it can be compressed");
        compress::decompress(compression, &small, LIMIT).expect("it is small");
    }

    // Each compression alone, without a server.
    for compression in COMPRESSIONS {
        let bomb = bomb(compression);
        let growth = growth(async {
            let error = compress::decompress(compression, &bomb, LIMIT).unwrap_err();
            assert_eq!(error.to_string(), format!("decompressed size exceeds the limit of {LIMIT} bytes"));
        })
        .await;
        assert_bounded(growth, compression.as_str());
    }

    // Through a server, in every way in which a protocol can carry one.
    let server =
        serve(Prober::default().server().limits(Limits { decompressed: LIMIT, ..Limits::default() })).await;
    for (protocol, compression) in [
        (Protocol::BaiduStd, Compression::Gzip),
        (Protocol::BaiduStd, Compression::Zlib),
        (Protocol::BaiduStd, Compression::Snappy),
        (Protocol::Rpcx, Compression::Gzip),
        (Protocol::Grpc, Compression::Gzip),
        (Protocol::Grpc, Compression::Zlib),
        (Protocol::Grpc, Compression::SnappyFrames),
        (Protocol::Grpc, Compression::Zstd),
        (Protocol::Http, Compression::Gzip),
        (Protocol::Http, Compression::Zlib),
    ] {
        let case = format!("{protocol:?} {compression:?}");
        let made = (protocol != Protocol::Grpc).then(|| request(protocol, compression, &bomb(compression)));
        let mut wire = Wire::new(Socket::connect(&server).await, protocol);
        // The session must know the calls whose replies it reads; its output is not sent.
        let first = wire.encode(1, &json_call("Probe", "Echo", "\"before\""));
        wire.socket.send(&first).await;
        assert!(wire.reply().await.expect(&case).1.result.is_ok(), "{case}");
        let request = match made {
            Some(request) => {
                wire.encode(2, &json_call("Probe", "Echo", "\"bomb\""));
                request
            }
            // The compressed part is that which its own client compresses.
            None => {
                let mut call = json_call("Probe", "Echo", "");
                (call.body, call.head.compression) = (vec![0; 16 * LIMIT].into(), compression);
                wire.encode(2, &call)
            }
        };
        let growth = growth(async {
            wire.socket.send(&request).await;
            let reply = wire.reply().await;
            // As in rpcx.
            if protocol == Protocol::Rpcx {
                return assert!(reply.is_none(), "{case}: {reply:?}");
            }
            let status = reply.expect(&case).1.result.unwrap_err();
            assert!(status.message().contains("exceeds the limit"), "{case}: {status}");
            match protocol {
                // On a limit's error number, brpc's client would retry the bomb on the next server.
                Protocol::BaiduStd => assert_eq!(status.number(), Some(1003), "{case}"),
                Protocol::Grpc => assert_eq!(status.code(), Code::ResourceExhausted, "{case}"),
                // 413: a proxy does not retry it on the next server.
                Protocol::Http => {
                    assert_eq!(
                        (status.code(), status.retry()),
                        (Code::ResourceExhausted, Retry::Never),
                        "{case}"
                    );
                }
                _ => {}
            }
        })
        .await;
        assert_bounded(growth, &case);
        if protocol == Protocol::Rpcx {
            continue;
        }
        wire.send(3, &json_call("Probe", "Echo", "\"after\"")).await;
        assert_eq!(wire.reply().await.expect(&case).1.result.unwrap(), "\"after\"", "{case}");
    }

    // Sixteen concurrently.
    let request = request(Protocol::BaiduStd, Compression::Gzip, &bomb(Compression::Gzip));
    let mut wires = Vec::new();
    for _ in 0..16 {
        let mut wire = Wire::connect(Protocol::BaiduStd, &server).await;
        wire.encode(2, &json_call("Probe", "Echo", "\"bomb\""));
        wires.push(wire);
    }
    let growth = growth(async {
        for wire in &mut wires {
            wire.socket.send(&request).await;
        }
        for wire in &mut wires {
            wire.reply().await.expect("an answer").1.result.unwrap_err();
        }
    })
    .await
    .expect("it was measured");
    assert!(growth <= 16 * (LIMIT + (256 << 10)), "sixteen at once: {} KiB more", growth >> 10);
}

fn request(protocol: Protocol, compression: Compression, bomb: &[u8]) -> Vec<u8> {
    match protocol {
        Protocol::BaiduStd => {
            let number = match compression {
                Compression::Snappy => 1,
                Compression::Gzip => 2,
                _ => 3,
            };
            baidu_frame("Probe", "Echo", 2, number, bomb)
        }
        Protocol::Grpc => unreachable!("its own client makes them"),
        Protocol::FbRpc | Protocol::RestRpc | Protocol::NetRpc => unreachable!("it has no compression"),
        Protocol::Rpcx => rpcx_frame("Probe", "Echo", 2, true, bomb),
        Protocol::Http => {
            let coding = if compression == Compression::Gzip { "gzip" } else { "deflate" };
            let head = format!(
                "POST /Probe/Echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                 Content-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            );
            [head.as_bytes(), bomb].concat()
        }
        other => unreachable!("{other:?} is not asked"),
    }
}

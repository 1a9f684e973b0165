//! Announced data costs nothing before it arrives: neither forged lengths nor endless nesting
//! make a session or a reader allocate memory.
//!
//! A counting allocator would need `unsafe`. Instead the same error is repeated many times, everything
//! is kept, and the kernel reports the peak memory of the process.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::sync::Arc;
use std::{env, fs};

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::{Client, Server, ServerEvent};
use polyrpc_core::testing::hex;
use polyrpc_core::{Call, CallId, Compression, Format, Json, Limits, Outbox};
use polyrpc_payload::compress::{compress, decompress};
use polyrpc_payload::transcode::to_protobuf;
use polyrpc_payload::{gob, msgpack, schema};
use polyrpc_testing::RICH;
use polyrpc_wire::{baidu_std, http, http_server, rpcx};
use serde::de::IgnoredAny;

/// The forged lengths.
const LIES: [u32; 5] = [0, 1, (1 << 31) - 1, 1 << 31, u32::MAX];

#[test]
fn forged_lengths_allocate_nothing_in_a_baidu_std_session() {
    alone("forged_lengths_allocate_nothing_in_a_baidu_std_session", || {
        for frame in LIES.into_iter().flat_map(baidu_std_frames) {
            server(MANY, baidu_std_server, &frame);
            client(MANY, baidu_std_client, &frame);
        }
    });
}

#[test]
fn forged_lengths_allocate_nothing_in_an_rpcx_session() {
    alone("forged_lengths_allocate_nothing_in_an_rpcx_session", || {
        for frame in LIES.into_iter().flat_map(rpcx_frames) {
            server(MANY, rpcx_server, &frame);
            client(MANY, rpcx_client, &frame);
        }
    });
}

#[test]
fn forged_lengths_allocate_nothing_in_an_http_session() {
    alone("forged_lengths_allocate_nothing_in_an_http_session", || {
        for fields in LIES.into_iter().flat_map(http_fields) {
            server(MANY, http_server, format!("POST /Echo/Echo HTTP/1.1\r\nHost: a\r\n{fields}").as_bytes());
            client(MANY, http_client, format!("HTTP/1.1 200 OK\r\n{fields}").as_bytes());
        }
    });
}

#[test]
fn endless_nesting_allocates_nothing_in_a_session() {
    alone("endless_nesting_allocates_nothing_in_a_session", || {
        let frame = prpc(&b"\x0b".repeat(DEEP), b"");
        server(FEW, baidu_std_server, &frame);
        client(FEW, baidu_std_client, &frame);
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"{"params":["#, "]}")] {
            let open = open.repeat(DEEP);
            for body in [open.clone(), format!("{open}1{}", close.repeat(DEEP))] {
                let length = format!("Content-Length: {}\r\n\r\n", body.len());
                let request = "POST /jsonrpc HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\n";
                server(FEW, http_server, [request, &length, &body].concat().as_bytes());
                client(FEW, json_rpc_client, ["HTTP/1.1 200 OK\r\n", &length, &body].concat().as_bytes());
            }
        }
    });
}

#[test]
fn forged_lengths_allocate_nothing_in_decompression() {
    alone("forged_lengths_allocate_nothing_in_decompression", || {
        let text = b"the same again and the same again";
        // Decoder states, of which zstd's is large, are kept by the thread that first needs them.
        for compression in [Compression::Gzip, Compression::Zlib, Compression::Zstd] {
            let bytes = compress(compression, text).expect("a build with all of them");
            decompress(compression, &bytes, text.len()).expect("what was compressed");
        }
        for lie in LIES {
            for (compression, mut bytes) in [
                (Compression::Snappy, [varint(lie.into()), text.to_vec()].concat()),
                (Compression::Lz4, [varint(lie.into()), text.to_vec()].concat()),
                // The content length with and without a window size, and the window size itself.
                (Compression::Zstd, [&hex("28b52ffd a0")[..], &lie.to_le_bytes(), text].concat()),
                (Compression::Zstd, [&hex("28b52ffd 80 00")[..], &lie.to_le_bytes(), text].concat()),
                (Compression::Zstd, [&hex("28b52ffd 00")[..], &lie.to_le_bytes(), text].concat()),
                (Compression::Gzip, compress(Compression::Gzip, text).expect("gzip")),
                (Compression::Zlib, [&hex("789c")[..], &lie.to_le_bytes(), text].concat()),
            ] {
                if compression == Compression::Gzip {
                    let length = bytes.len() - 4;
                    bytes.splice(length.., lie.to_le_bytes());
                }
                for limits in [Limits::default(), NO_LIMITS] {
                    let run = |kept: &mut Option<_>| {
                        *kept = Some(decompress(compression, &bytes, limits.decompressed));
                    };
                    assert_frugal(&format!("{compression:?} of {lie}"), MANY, || None, run);
                }
            }
        }
    });
}

#[test]
fn forged_lengths_and_nesting_allocate_nothing_in_messagepack() {
    alone("forged_lengths_and_nesting_allocate_nothing_in_messagepack", || {
        for lie in LIES {
            for marker in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
                let bytes = [&[marker][..], &lie.to_be_bytes(), b"\x01\x02\x03"].concat();
                let run = |kept: &mut Option<_>| *kept = Some(msgpack::Reader::new(&bytes).skip());
                assert_frugal(&format!("{marker:x} of {lie}"), MANY, || None, run);
            }
        }
        for marker in [0x91, 0x81, 0xdd] {
            let deep = [marker].repeat(DEEP);
            let run = |kept: &mut Option<_>| *kept = Some(msgpack::Reader::new(&deep).skip());
            assert_frugal(&format!("{marker:x} in each other"), FEW, || None, run);
        }
    });
}

#[test]
fn forged_lengths_and_nesting_allocate_nothing_in_gob() {
    alone("forged_lengths_and_nesting_allocate_nothing_in_gob", || {
        let read = |what: &str, times, stream: &[u8]| {
            for message in [gob::Limits::default().message, usize::MAX] {
                let limits = gob::Limits { message, ..gob::Limits::default() };
                let new = || (gob::Reader::new(limits.clone()), BytesMut::from(stream), None);
                assert_frugal(what, times, new, |(reader, inbox, kept)| {
                    while let Ok(Some(value)) = reader.next(inbox) {
                        *kept = Some((value.decode::<Vec<Vec<u64>>>(), value.decode::<IgnoredAny>()));
                    }
                });
            }
        };
        // A list of lists of numbers, and a struct of too many fields.
        const LISTS: &str = "0c7f020102ff800001ff820000 0cff81020102ff820001060000";
        for lie in LIES {
            let lie = [&[0xfc][..], &lie.to_be_bytes()].concat();
            for before in ["", "080c00", "09ff8000", "0bff80000101", "0fff83030102ff840001"] {
                let known = if before.is_empty() { Bytes::new() } else { hex(LISTS) };
                read(
                    &format!("a count of {lie:?}"),
                    MANY,
                    &[&known[..], &hex(before), &lie, b"\x01"].concat(),
                );
            }
        }
        let mut deep = hex("0c7f020102ff800001ff800000 fd0f4243 ff8000").to_vec();
        deep.resize(deep.len() + DEEP, 1);
        read("lists in each other", FEW, &deep);
    });
}

#[test]
fn forged_lengths_and_nesting_allocate_nothing_in_messages() {
    alone("forged_lengths_and_nesting_allocate_nothing_in_messages", || {
        let pool = schema::Pool::decode(RICH).expect("a good set");
        let rich = pool.message("rich.Rich").expect("one of them");
        let read = |what: &str, times, format, bytes: &[u8]| {
            let run = |kept: &mut Option<_>| *kept = Some(to_protobuf(&rich, format, bytes));
            assert_frugal(what, times, || None, run);
        };
        for lie in LIES {
            let lie = lie.to_be_bytes();
            for before in
                ["df", "81 a7725f696e743332 dd", "81 a76d5f696e743634 df", "81 a7725f6279746573 91 c6"]
            {
                read(before, MANY, Format::MessagePack, &[&hex(before)[..], &lie, b"\x01\x02"].concat());
            }
        }
        for (format, level) in [
            (Format::Json(Json::Brpc), r#"{"child":"#),
            (Format::Json(Json::Proto3), r#"{"children":["#),
            (Format::Json(Json::Go), r#"{"unknown":["#),
            (Format::Json(Json::Proto3), "["),
            (Format::ProtoText, "child {"),
        ] {
            read(level, FEW, format, level.repeat(DEEP).as_bytes());
        }
        read("structs in each other", FEW, Format::MessagePack, &b"\x81\xa5child".repeat(DEEP));
        read("lists in each other", FEW, Format::MessagePack, &b"\x81\xa1x\x91".repeat(DEEP));
    });
}

#[test]
fn forged_lengths_and_nesting_allocate_nothing_in_descriptors() {
    alone("forged_lengths_and_nesting_allocate_nothing_in_descriptors", || {
        let read = |what: &str, times, set: &[u8]| {
            let run = |kept: &mut Option<_>| *kept = Some(schema::Pool::decode(set));
            assert_frugal(what, times, || None, run);
        };
        for lie in LIES {
            read("a file of a length that lies", MANY, &[&[0x0a][..], &varint(lie.into()), b"\x0a"].concat());
        }
        read("groups in each other", FEW, &b"\x0b".repeat(DEEP));
        // DescriptorProto.nested_type = 3, in FileDescriptorProto.message_type = 4
        let file = field(0x22, &nested(0x1a, DEEP));
        read("messages in each other", FEW, &field(0x0a, &file));
    });
}

// ---------------------------------------------------------------------------------------------- frames

/// Frames with one forged length; the lengths around it are correct.
fn baidu_std_frames(lie: u32) -> Vec<Vec<u8>> {
    let header =
        |body: u32, meta: u32| [b"PRPC", &body.to_be_bytes()[..], &meta.to_be_bytes(), b"meta"].concat();
    let mut frames = vec![header(lie, 0), header(lie, lie), header(4, lie), header(u32::MAX, lie)];
    frames.extend(frames.clone().into_iter().map(|frame| [b"STRM", &frame[4..]].concat()));
    // request, its service_name, response, its error_text, chunk_info, authentication_data, stream_settings,
    // a user field, its key, checksum_value
    for before in ["0a", "0a7f0a", "12", "127f12", "32", "3a", "42", "4a", "4a7f0a", "62"] {
        frames.push(prpc(&[&hex(before)[..], &varint(lie.into())].concat(), b"body"));
    }
    // attachment_size
    frames.push(prpc(&[&[0x28][..], &varint(lie.into())].concat(), b"body"));
    frames
}

fn prpc(meta: &[u8], payload: &[u8]) -> Vec<u8> {
    let size = |n: usize| (n as u32).to_be_bytes();
    [b"PRPC", &size(meta.len() + payload.len())[..], &size(meta.len()), meta, payload].concat()
}

/// Frames with one forged length; the lengths around it are correct.
fn rpcx_frames(lie: u32) -> Vec<Vec<u8>> {
    let total = 5 * 4 + 4 + 5 * 4;
    let lengths = [total, 4, 4, 16, 4, 4, 4];
    let frame = |lengths: [u32; 7]| {
        let [total, path, method, metadata, key, value, payload] = lengths.map(u32::to_be_bytes);
        let blocks: [&[u8]; 12] = [
            &path, b"path", &method, b"call", &metadata, &key, b"name", &value, b"word", &payload, b"load",
            b"",
        ];
        let header = hex("08 00 00 10 0000000000000001");
        [&[&header[..], &total][..], &blocks].concat().concat()
    };
    let lying = |at: usize| frame(std::array::from_fn(|i| if i == at { lie } else { lengths[i] }));
    (0..lengths.len()).map(lying).collect()
}

/// The rest of a message with a forged length.
fn http_fields(lie: u32) -> [String; 5] {
    [
        format!("Content-Length: {lie}\r\n\r\nbody"),
        format!("Content-Length: {lie}{lie}\r\n\r\nbody"),
        format!("Transfer-Encoding: chunked\r\n\r\n{lie:x}\r\nbody"),
        format!("Transfer-Encoding: chunked\r\n\r\n{lie:x}{lie:x}\r\nbody"),
        format!("Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n{lie:x}\r\nbody"),
    ]
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag][..], &varint(bytes.len() as u64), bytes].concat()
}

/// Nested messages, built from the inside out, and so from the end.
fn nested(tag: u8, depth: usize) -> Vec<u8> {
    let mut backwards = Vec::new();
    for _ in 0..depth {
        let length = varint(backwards.len() as u64);
        backwards.extend(length.iter().rev());
        backwards.push(tag);
    }
    backwards.reverse();
    backwards
}

// ------------------------------------------------------------------------------------------- measuring

/// Number of repetitions of an error. Their total cost must be distinguishable from noise.
const MANY: usize = 1000;
/// The same for large inputs.
const FEW: usize = 8;
/// A nesting depth far beyond the limits.
const DEEP: usize = 1_000_000;

/// Allowed cost of one error.
const COST: usize = 64 << 10;
/// Runs a test in a child process, since the whole process is measured. There glibc takes everything large
/// from the kernel and returns it at once, so that temporary use can be distinguished from what an
/// earlier use left behind (mallopt(3), `M_MMAP_THRESHOLD`).
fn alone(test: &str, run: impl FnOnce()) {
    const THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";
    if env::var_os(THRESHOLD).is_some() {
        return run();
    }
    let mut itself = Command::new(env::current_exe().expect("this test has a file"));
    let output = itself.args(["--exact", test, "--test-threads=1"]).env(THRESHOLD, "65536").output();
    let output = output.expect("this test can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Feeds `bytes` this many `times` to sessions with default limits, and to sessions without limits.
fn server<S: Server>(times: usize, new: impl Fn(Limits) -> S, bytes: &[u8]) {
    for limits in [Limits::default(), NO_LIMITS] {
        let prepare = || (new(limits.clone()), BytesMut::from(bytes), Outbox::new());
        assert_frugal(&shown(bytes), times, prepare, |(session, inbox, out)| {
            while let Ok(Some(ServerEvent::Call(..))) = session.next_event(inbox, out) {}
        });
    }
}

/// The same for sessions that wait for a response.
fn client<C: Client>(times: usize, new: impl Fn(Limits) -> C, bytes: &[u8]) {
    for limits in [Limits::default(), NO_LIMITS] {
        let prepare = || {
            let (mut session, mut out) = (new(limits.clone()), Outbox::new());
            let call = Call::new("Echo", "Echo", Format::Json(Json::Go), Bytes::new());
            session.send(CallId(1), call, &mut out).expect("every protocol has JSON");
            (session, BytesMut::from(bytes), out)
        };
        assert_frugal(&shown(bytes), times, prepare, |(session, inbox, out)| {
            while let Ok(Some(_)) = session.next_event(inbox, out) {}
        });
    }
}

fn baidu_std_server(limits: Limits) -> baidu_std::Server {
    baidu_std::Server::new(Arc::new(baidu_std::ServerConfig { limits, ..<_>::default() }))
}

fn baidu_std_client(limits: Limits) -> baidu_std::Client {
    baidu_std::Client::new(baidu_std::ClientConfig { limits, ..<_>::default() })
}

fn rpcx_server(limits: Limits) -> rpcx::Server {
    rpcx::Server::new(Arc::new(rpcx::ServerConfig { limits, ..<_>::default() }))
}

fn rpcx_client(limits: Limits) -> rpcx::Client {
    rpcx::Client::new(rpcx::ClientConfig { limits, ..<_>::default() })
}

fn http_server(limits: Limits) -> http_server::h1::Server {
    http_server::h1::Server::new(Arc::new(http::ServerConfig { limits, ..<_>::default() }))
}

fn http_client(limits: Limits) -> http::Client {
    http::Client::new(http::ClientConfig { limits, ..<_>::default() })
}

fn json_rpc_client(limits: Limits) -> http::Client {
    http::Client::new(http::ClientConfig { limits, json_rpc: true, ..<_>::default() })
}

const NO_LIMITS: Limits = Limits {
    message: usize::MAX,
    decompressed: usize::MAX,
    header: usize::MAX,
    pace: polyrpc_core::session::SlowPeerGuard::DEFAULT,
};

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(100)].escape_ascii().to_string()
}

/// Asserts that repeating something `times` on prepared inputs, and keeping all results, costs no more
/// than that many errors may.
#[track_caller]
fn assert_frugal<T>(what: &str, times: usize, prepare: impl Fn() -> T, run: impl Fn(&mut T)) {
    // The stack keeps what the deepest call has used: without optimization more than a frugal error may cost.
    run(&mut prepare());
    let mut all: Vec<T> = (0..times).map(|_| prepare()).collect();
    let before = Memory::peak_from_now_on();
    all.iter_mut().for_each(run);
    let after = Memory::peak();
    let resident = after.resident.saturating_sub(before.resident);
    let addresses = after.addresses.saturating_sub(before.addresses);
    drop(all);
    assert!(resident <= times * COST, "{what}: {resident} more bytes of memory for {times} errors");
    assert!(addresses <= times * COST, "{what}: {addresses} more addresses for {times} errors");
}

/// Peak memory of this process.
#[derive(Debug)]
struct Memory {
    resident: usize,
    addresses: usize,
}

impl Memory {
    fn peak() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("Linux");
        Self { resident: kibibytes(&status, "VmHWM:"), addresses: kibibytes(&status, "VmPeak:") }
    }

    /// The same, after resetting the peak of the resident memory. If that is not allowed, an earlier
    /// peak hides a later, lower one, and the test detects less (proc(5), `clear_refs`).
    fn peak_from_now_on() -> Self {
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self::peak()
    }
}

fn kibibytes(status: &str, name: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the kernel");
    line.trim().trim_end_matches("kB").trim_end().parse::<usize>().expect("a number") << 10
}

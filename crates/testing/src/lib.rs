//! Fuzz targets: a function for every session and every format.
//!
//! Each panics if the code under test violates its contract. They are here rather than in `fuzz/`, so
//! that `cargo test` replays its corpus (`tests/corpus.rs`) without a nightly compiler.

mod client;
mod dump;
mod flatbuffers;
mod frames;
mod gob;
mod grpc;
mod h2;
mod kcp;
mod payload;
mod recording;
mod sequences;
mod server;
mod sniff;
mod struct_pack;
mod transcode;
mod websocket;

pub use self::client::{
    baidu_std_client, connect_client, fb_rpc_client, grpc_web_client, http_client, net_rpc_client,
    rest_rpc_client, rpcx_client,
};
pub use self::dump::dump;
pub use self::flatbuffers::{flatbuffers, whole_flatbuffers};
pub use self::gob::gob;
pub use self::grpc::{grpc_client, grpc_server};
pub use self::h2::h2_frames;
pub use self::kcp::kcp;
pub use self::payload::{compress, msgpack, schema};
pub use self::recording::{recording, rpc_dump};
pub use self::sequences::damaged_sequences;
pub use self::server::{
    baidu_std_server, connect_server, fb_rpc_server, http_server, json_rpc, net_rpc_server, rest_rpc_server,
    rpcx_server,
};
pub use self::sniff::sniff;
pub use self::struct_pack::{struct_pack, struct_pack_types};
pub use self::transcode::{
    RICH, transcode_brpc, transcode_go, transcode_msgpack, transcode_proto3, transcode_protobuf,
    transcode_text,
};
pub use self::websocket::websocket;

use polyrpc_core::Limits;
use polyrpc_wire::baidu_std;

/// A fuzzed function.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 38] = [
    ("baidu_std_client", baidu_std_client),
    ("baidu_std_server", baidu_std_server),
    ("compress", compress),
    ("connect_client", connect_client),
    ("connect_server", connect_server),
    ("damaged_sequences", damaged_sequences),
    ("dump", dump),
    ("fb_rpc_client", fb_rpc_client),
    ("fb_rpc_server", fb_rpc_server),
    ("flatbuffers", flatbuffers),
    ("gob", gob),
    ("grpc_client", grpc_client),
    ("grpc_server", grpc_server),
    ("grpc_web_client", grpc_web_client),
    ("h2_frames", h2_frames),
    ("http_client", http_client),
    ("http_server", http_server),
    ("json_rpc", json_rpc),
    ("msgpack", msgpack),
    ("net_rpc_client", net_rpc_client),
    ("net_rpc_server", net_rpc_server),
    ("recording", recording),
    ("rest_rpc_client", rest_rpc_client),
    ("rest_rpc_server", rest_rpc_server),
    ("rpc_dump", rpc_dump),
    ("rpcx_client", rpcx_client),
    ("rpcx_server", rpcx_server),
    ("schema", schema),
    ("sniff", sniff),
    ("struct_pack", struct_pack),
    ("struct_pack_types", struct_pack_types),
    ("transcode_brpc", transcode_brpc),
    ("transcode_go", transcode_go),
    ("transcode_msgpack", transcode_msgpack),
    ("transcode_proto3", transcode_proto3),
    ("transcode_protobuf", transcode_protobuf),
    ("transcode_text", transcode_text),
    ("websocket", websocket),
];

/// Limits of a fuzzed connection: small, so that the inputs of a fuzzer reach them.
const LIMITS: Limits = Limits {
    message: 2048,
    decompressed: 4096,
    header: 512,
    pace: polyrpc_core::session::SlowPeerGuard::DEFAULT,
};

/// Limits of the streams of a fuzzed connection.
const STREAMS: baidu_std::StreamLimits =
    baidu_std::StreamLimits { streams: 8, unread: 512, unread_in_all: 1024, unconsumed_in_all: Some(256) };

/// The maximum of a waiting session's inbox: a message with its framing. The longest
/// line of a chunked HTTP body (4 KiB) is the one limit that cannot be set.
const MAX_WAITING: usize = 4 << 10;

/// Maximum number of output bytes per input byte. The worst case is a JSON-RPC batch of one-digit entries:
/// each takes two bytes and is rejected in a hundred.
const MAX_AMPLIFICATION: usize = 64;

/// Output independent of the input: a client's requests, a server's pushes.
const MAX_UNSOLICITED: usize = 16 << 10;

/// How a session is driven, selected by the first two bytes of an input.
///
/// The first is the seed of the split into chunks, the bits of the second select what happens meanwhile.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    seed: u8,
    bits: u8,
}

impl Scenario {
    fn read(input: &[u8]) -> Option<(Self, &[u8])> {
        let (&[seed, bits], rest) = input.split_first_chunk()?;
        Some((Self { seed, bits }, rest))
    }

    fn has(self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    /// Splits `bytes` into chunks of up to 32 bytes; the seed 0 yields single bytes.
    fn cut(self, bytes: &[u8]) -> Vec<&[u8]> {
        let (mut rest, mut state) = (bytes, u32::from(self.seed));
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            state = state.wrapping_mul(1_664_525);
            let length = 1 + (state >> 27) as usize;
            let (chunk, after) = rest.split_at(length.min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        chunks
    }
}

/// Asserts the invariants of a session that waits for more bytes: it needs no more than its limit
/// allows, more than it has, and does not accumulate more.
fn assert_bounded_input(wanted: usize, waiting: usize) {
    const LARGEST_HEADER: usize = 32;
    assert!(wanted <= LIMITS.message + LARGEST_HEADER, "wants {wanted} bytes");
    assert!(wanted == 0 || wanted > waiting, "wants {wanted} bytes and has {waiting}");
    assert!(waiting <= MAX_WAITING, "{waiting} bytes wait");
}

/// Asserts that the output is within what `taken` input bytes may cause.
fn assert_bounded_output(out: usize, taken: usize) {
    let max = MAX_AMPLIFICATION * taken + MAX_UNSOLICITED;
    assert!(out <= max, "{out} bytes went out for {taken} that came in");
}

//! Seeds of the fuzzer: the captured vectors, after the bytes that select how they are fed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, iter};

use polyrpc_core::testing::hex;
use polyrpc_core::{Compression, Format, Json};
use polyrpc_payload::compress::compress;
use polyrpc_payload::msgpack::Writer;
use polyrpc_payload::schema::Pool;
use polyrpc_payload::struct_pack::{Form, Plan, U16String, VarI64};
use polyrpc_payload::transcode::{from_protobuf, to_protobuf};
use serde_json::{Value, json};

mod dump;
mod hpack;
mod http2;
mod kcp;
mod recording;
mod streams;
mod websocket;

type Seeds = Vec<(String, Vec<u8>)>;

/// The seeds of every target.
pub(crate) fn all() -> Vec<(&'static str, Seeds)> {
    vec![
        (
            "baidu_std_server",
            [conversations("baidu_std", &BAIDU_STD, Side::Server), streams::served()].concat(),
        ),
        (
            "baidu_std_client",
            [conversations("baidu_std", &BAIDU_STD, Side::Client), streams::asked()].concat(),
        ),
        ("rpcx_server", conversations("rpcx", &RPCX, Side::Server)),
        ("rpcx_client", conversations("rpcx", &RPCX, Side::Client)),
        ("fb_rpc_server", fb_rpc("request")),
        ("fb_rpc_client", fb_rpc("response")),
        ("flatbuffers", flatbuffers()),
        ("rest_rpc_server", rest_rpc(Side::Server)),
        ("rest_rpc_client", rest_rpc(Side::Client)),
        ("net_rpc_server", net_rpc(Side::Server)),
        ("net_rpc_client", net_rpc(Side::Client)),
        ("grpc_server", http2::grpc_requests()),
        ("grpc_client", http2::grpc_responses()),
        ("grpc_web_client", grpc_web_responses()),
        ("connect_client", connect_responses()),
        ("connect_server", connect_requests()),
        ("damaged_sequences", damaged_sequences()),
        ("dump", dump::captures()),
        ("h2_frames", http2::frames()),
        ("hpack", hpack::conversations()),
        ("http_server", http_requests()),
        ("http_client", http_responses()),
        ("json_rpc", json_rpc()),
        ("kcp", kcp::conversations()),
        ("sniff", sniff()),
        ("compress", compressed()),
        ("schema", descriptors()),
        ("gob", gob()),
        ("recording", recording::recordings()),
        ("rpc_dump", recording::dumps()),
        ("msgpack", msgpack()),
        ("struct_pack", struct_pack()),
        ("struct_pack_types", struct_pack_types()),
        ("transcode_brpc", messages(Format::Json(Json::Brpc))),
        ("transcode_go", messages(Format::Json(Json::Go))),
        ("transcode_msgpack", messages(Format::MessagePack)),
        ("transcode_proto3", messages(Format::Json(Json::Proto3))),
        ("transcode_protobuf", messages(Format::Protobuf)),
        ("transcode_text", messages(Format::ProtoText)),
        ("websocket", websocket::frames()),
    ]
}

/// Frames of one direction, fed whole.
fn fb_rpc(direction: &str) -> Seeds {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../vectors/fb_rpc/derived.json"].iter().collect();
    let text = fs::read_to_string(path).expect("the vectors");
    let vectors: Value = serde_json::from_str(&text).expect("JSON");
    let vectors = vectors["vectors"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = vectors.iter().map(|vector| (text(&vector["name"]), hex(&text(&vector["hex"]))));
    named
        .filter(|(name, _)| name.contains(direction))
        .map(|(name, frame)| (name, [&[0, 0], &frame[..]].concat()))
        .collect()
}

fn flatbuffers() -> Seeds {
    let whole = polyrpc_testing::whole_flatbuffers();
    whole.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}

const BAIDU_STD: [&str; 16] = [
    "attachment",
    "auth_ok",
    "close_connection",
    "content_json",
    "crc32c",
    "empty_message",
    "failed_controller_code",
    "gzip",
    "log_id_timeout",
    "plain",
    "request_id",
    "rpcz_trace",
    "snappy_attachment",
    "stream",
    "stream_not_accepted",
    "two_calls_one_connection",
];

const RPCX: [&str; 14] = [
    "auth_ok",
    "error",
    "function",
    "gzip",
    "heartbeat",
    "json",
    "meta",
    "msgpack",
    "nomethod",
    "oneway",
    "protobuf",
    "push",
    "raw",
    "two_calls",
];

/// Each with the number of its codec.
const NET_RPC: [(&str, u8); 13] = [
    ("gob_mul", 0),
    ("gob_error", 0),
    ("gob_nomethod", 0),
    ("json_mul", 1),
    ("json_error", 1),
    ("json_nomethod", 1),
    ("old_msgpack_mul", 2),
    ("old_msgpack_echo", 2),
    ("old_msgpack_error", 2),
    ("old_protobuf_mul", 3),
    ("old_protobuf_error", 3),
    ("old_gencode_mul", 4),
    ("old_gencode_error", 4),
];

const GATEWAY: [&str; 8] = [
    "gateway_ok",
    "gateway_path",
    "gateway_error",
    "http",
    "jsonrpc2_ok",
    "jsonrpc2_error",
    "jsonrpc2_notify",
    "jsonrpc2_parse",
];

/// The side that receives the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

impl Side {
    fn receives(self, direction: &str) -> bool {
        match self {
            Self::Server => matches!(direction, "client_to_server" | "client->server"),
            Self::Client => matches!(direction, "server_to_client" | "server->client"),
        }
    }
}

fn conversations(folder: &str, names: &[&str], side: Side) -> Seeds {
    let seeds = names.iter().map(|name| ((*name).to_owned(), conversation(folder, name, side)));
    // The capture may contain no responses.
    behind_manners(seeds.filter(|(_, bytes)| !bytes.is_empty()))
}

/// A byte for the codec precedes the manners; a server also without one, a client also after HTTP CONNECT.
fn net_rpc(side: Side) -> Seeds {
    let captured = NET_RPC.iter().map(|(name, codec)| (*name, *codec, conversation("netrpc", name, side)));
    let written: [(&str, u8, &[u8]); 4] = [
        ("colfer", 5, b"\x01\x09Arith.Mul\x03\x05\x7f\x00\x07\x01\x08\x7f\x00\x01\x02\x04boom\x7f"),
        ("bson", 6, b"\x30\0\0\0\x02servicemethod\0\x04\0\0\0S.M\0\x12seq\0\x01\0\0\0\0\0\0\0\0\x05\0\0\0\0"),
        ("json_odd", 1, b" {\"id\":[],\"PARAMS\":[1,{}],\"method\":\"\\u0061\"}{\"id\":0,\"error\":7}"),
        ("msgpack_odd", 2, b"\x93\xa3S.M\x00\xa0\xde\x00\x01\xd4\x01\x02\xcb\0\0\0\0\0\0\0\0\x80\xc0"),
    ];
    let all = captured.chain(written.map(|(name, codec, bytes)| (name, codec, bytes.to_vec())));
    let mut seeds = Seeds::new();
    for (name, codec, bytes) in all.filter(|(.., bytes)| !bytes.is_empty()) {
        let manners = match side {
            Side::Server => [codec, 7],
            Side::Client => [codec, codec | 0x80],
        };
        let greeted = [&b"HTTP/1.0 200 Connected to Go RPC\n\n"[..], &bytes].concat();
        let second = if side == Side::Client { &greeted } else { &bytes };
        for (at, (choice, bytes)) in [(manners[0], &bytes), (manners[1], second)].into_iter().enumerate() {
            seeds.push((format!("{name}_{at}"), [&[choice, 7, 0x20][..], bytes].concat()));
        }
    }
    seeds
}

/// All that one side of a captured connection received.
fn conversation(folder: &str, name: &str, side: Side) -> Vec<u8> {
    let file: Value = serde_json::from_slice(&vector(&format!("{folder}/{name}.json"))).expect("JSON");
    let list = [&file, &file["frames"], &file["vectors"]].into_iter().find_map(Value::as_array);
    // A file of one frame is not a list.
    let frames = list.map_or_else(|| std::slice::from_ref(&file), Vec::as_slice);
    let received = frames.iter().filter(|frame| side.receives(text(&frame["direction"])));
    received.flat_map(|frame| hex(text(&frame["hex"]))).collect()
}

/// After the byte that selects the version.
fn rest_rpc(side: Side) -> Seeds {
    let choices = [("w1", 0), ("w2", 1), ("w5", 4), ("w6", 5), ("w6r", 5), ("w6be", 6)];
    let names = REST_RPC.iter().flat_map(|(version, names)| {
        let choice = choices.iter().find(|(name, _)| name == version).map_or(0, |(_, choice)| *choice);
        names.iter().map(move |name| (choice, format!("{version}_{name}")))
    });
    let (choices, names): (Vec<u8>, Vec<String>) = names.unzip();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let seeds = behind(
        &[0x00, 0x10, 0x01, 0x20, 0x02, 0x08, 0x04, 0x34],
        names.iter().map(|name| ((*name).to_owned(), conversation("rest_rpc", name, side))),
    );
    let seeds = seeds.into_iter().zip(choices).filter(|((_, bytes), _)| bytes.len() > 2);
    seeds.map(|((name, bytes), choice)| (name, [&[choice], &bytes[..]].concat())).collect()
}

const REST_RPC: [(&str, &[&str]); 6] = [
    ("w1", &["add", "badargs", "echo", "throws", "unknown", "void"]),
    ("w2", &["add", "struct", "subscribe", "subscribe_token", "throws", "void"]),
    (
        "w5",
        &["add", "badargs", "callback", "heartbeat", "publish", "subscribe", "subscribe_token", "unknown"],
    ),
    ("w6", &["add", "echo", "struct", "subscribe", "throws", "unknown", "void"]),
    ("w6r", &["inc", "struct", "zero"]),
    ("w6be", &["add", "subscribe"]),
];

fn http_requests() -> Seeds {
    let mut seeds: Vec<_> = ["http_json", "http_proto"]
        .iter()
        .map(|name| ((*name).to_owned(), conversation("http", name, Side::Server)))
        .chain(GATEWAY.iter().map(|name| ((*name).to_owned(), conversation("rpcx", name, Side::Server))))
        .collect();
    let written: [(&str, &[u8]); 7] = [
        ("pipelined", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n\r\nPOST /EchoService/Echo HTTP/1.1\r\nHost: a\r\n\
            Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"message\":\"hi\"}HEAD /a/b/c/d HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("chunked", b"POST /EchoService/Echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
            5;a=b\r\n{\"mes\r\nB\r\nsage\":\"hi\"}\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("expects", b"POST /EchoService/Echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"),
        ("http10", b"GET /EchoService/Echo HTTP/1.0\r\nConnection: keep-alive, x-gone\r\nX-Gone: 1\r\n\r\n\
            GET /version HTTP/1.0\r\n\r\n"),
        ("smuggled", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET"),
        ("absolute", b"GET http://host/EchoService/Echo?a=b HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\
            connect-timeout-ms: 100\r\ngrpc-timeout: 1S\r\nAuthorization: me\r\n\r\n"),
        ("batch", b"POST /jsonrpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-RPCX-Meta: a=1&b=%20\r\n\
            Content-Length: 76\r\n\r\n[{\"jsonrpc\":\"2.0\",\"method\":\"a.b\",\"id\":1},1,{\"jsonrpc\":\"2.0\",\"method\":\"c\"}]  "),
    ];
    seeds.extend(written.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())));
    behind_manners(seeds)
}

fn grpc_web_responses() -> Seeds {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc-web+proto\r\n";
    let written: [(&str, &[u8]); 6] = [
        ("answered", b"content-length: 28\r\n\r\n\0\0\0\0\x02{}\x80\0\0\0\x10grpc-status: 0\r\n"),
        ("failed", b"content-length: 21\r\n\r\n\x80\0\0\0\x10Grpc-Status: 9\r\n"),
        ("chunked", b"transfer-encoding: chunked\r\n\r\n7\r\n\0\0\0\0\x02{}\r\n15\r\n\x80\0\0\0\x10grpc-status: 0\r\n\r\n0\r\n\r\n"),
        ("trailers_only", b"grpc-status: 8\r\ngrpc-message: no%20more\r\ncontent-length: 0\r\n\r\n"),
        ("behind_trailers", b"content-length: 22\r\n\r\n\x80\0\0\0\x10grpc-status: 0\r\n\0"),
        ("until_close", b"connection: close\r\n\r\n\0\0\0\0\x02{}\x80\0\0\0\x10grpc-status: 0\r\n"),
    ];
    behind_manners(written.map(|(name, bytes)| (name.to_owned(), [OK, bytes].concat())))
}

fn connect_responses() -> Seeds {
    let written: [(&str, &[u8]); 6] = [
        ("answered", b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ntrailer-a: 1\r\ncontent-length: 2\r\n\r\n{}"),
        ("failed", b"HTTP/1.1 409 Conflict\r\ncontent-type: application/json\r\ncontent-length: 68\r\n\r\n\
            {\"code\":\"aborted\",\"message\":\"m\",\"details\":[{\"type\":\"a\",\"value\":\"\"}]}"),
        ("streamed", b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\ncontent-length: 14\r\n\r\n\
            \0\0\0\0\x02{}\x02\0\0\0\x02{}"),
        ("stream_failed", b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\nconnection: close\r\n\r\n\
            \x02\0\0\0\x31{\"error\":{\"code\":\"internal\"},\"metadata\":{\"a\":[]}}"),
        ("chunked", b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\ntransfer-encoding: chunked\r\n\r\n\
            9\r\n\0\0\0\0\x02{}\x02\0\r\n5\r\n\0\0\x02{}\r\n0\r\n\r\n"),
        ("page", b"HTTP/1.1 503 Busy\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\nbusy"),
    ];
    behind_manners(written.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())))
}

fn connect_requests() -> Seeds {
    let written: [(&str, &[u8]); 7] = [
        ("stream", b"\0\0\0\0\0\x02{}\0\0\0\0\0"),
        ("stream_malformed", b"\0\x02\0\0\0\x02{}"),
        ("stream_cut", b"\0\0\0\0\0\x09{}"),
        ("unary", b"\x01{\"message\":\"hi\"}"),
        ("lines", b"\x02{\"message\":\"hi\"}"),
        ("query", b"\x03encoding=json&message=%7B%7D"),
        ("query_base64", b"\x03base64=1&compression=gzip&encoding=proto&message=e30"),
    ];
    behind_manners(written.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())))
}

fn http_responses() -> Seeds {
    let plain = ["post_json", "post_json_failed", "get_nosuch", "auth_missing"];
    let mut seeds: Vec<_> =
        plain.iter().map(|name| ((*name).to_owned(), vector(&format!("http/{name}.txt")))).collect();
    seeds.push(("http_proto".to_owned(), conversation("http", "http_proto", Side::Client)));
    seeds.push(("gateway_ok".to_owned(), conversation("rpcx", "gateway_ok", Side::Client)));
    let written: [(&str, &[u8]); 4] = [
        (
            "interim",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}\
            HTTP/1.1 204 No Content\r\n\r\n",
        ),
        ("chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        ("until_close", b"HTTP/1.0 200 OK\r\nContent-Type: application/proto\r\n\r\nanything"),
        (
            "failed",
            b"HTTP/1.1 503 Go Away\r\nx-bd-error-code: 2001\r\nContent-Encoding: gzip\r\n\
            Content-Length: 4\r\n\r\nbusy",
        ),
    ];
    seeds.extend(written.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())));
    let mut seeds = behind_manners(seeds);
    // For a JSON-RPC client.
    seeds.push((
        "jsonrpc2_error".to_owned(),
        [&[7, 1][..], &conversation("rpcx", "jsonrpc2_error", Side::Client)].concat(),
    ));
    seeds.push((
        "jsonrpc2_ok".to_owned(),
        [
            &b"\x07\x01HTTP/1.1 200 OK\r\nContent-Length: 36\r\n\r\n"[..],
            br#"{"jsonrpc":"2.0","result":{},"id":0}"#,
        ]
        .concat(),
    ));
    seeds
}

fn json_rpc() -> Seeds {
    let seeds: [(&str, &str); 9] = [
        ("call", r#"{"jsonrpc":"2.0","method":"Arith.Mul","params":{"A":7,"B":8},"id":1}"#),
        ("positional", r#" {"id":"a\"]b","params":[1,"two",{"three":[]}],"method":"add","jsonrpc":"2.0"} "#),
        ("notification", r#"{"jsonrpc":"2.0","method":"Arith.Mul"}"#),
        (
            "batch",
            r#"[{"jsonrpc":"2.0","method":"a","id":null},{"jsonrpc":"2.0","method":"b.c.d"},7,{"jsonrpc":"2.0","method":"e","params":null,"id":-1.5e3}]"#,
        ),
        ("empty_batch", "[ ]"),
        ("escaped", r#"{"\u006asonrpc":"2.0","meth\u006fd":"\ud83d\ude00\n","id":"\\"}"#),
        ("lone_surrogate", r#"{"jsonrpc":"2.0","\ud800":1,"method":"a","id":1}"#),
        ("wrong_version", r#"{"jsonrpc":"1.0","method":"a","id":[]}"#),
        ("unclosed", r#"{"jsonrpc":"2.0","method":"a""#),
    ];
    let mut seeds: Vec<_> = seeds.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
    seeds.push(("deep".to_owned(), [b"[".repeat(200), b"]".repeat(200)].concat()));
    behind_manners(seeds)
}

/// Puts two bytes before every seed: the split, and what happens meanwhile. All kinds occur.
fn behind_manners(seeds: impl IntoIterator<Item = (String, Vec<u8>)>) -> Seeds {
    behind(&[0x00, 0x10, 0x01, 0x20, 0x02, 0x08, 0x04, 0x34], seeds)
}

/// Puts two bytes before every seed, the second from `bits` in turn.
fn behind(bits: &[u8], seeds: impl IntoIterator<Item = (String, Vec<u8>)>) -> Seeds {
    let cuts = iter::successors(Some(0), |cut: &u8| Some(cut.wrapping_add(7)));
    let manners = cuts.zip(bits.iter().cycle());
    let seeds = seeds.into_iter().zip(manners);
    seeds.map(|((name, bytes), (cut, bits))| (name, [&[cut, *bits][..], &bytes].concat())).collect()
}

fn sniff() -> Seeds {
    let starts: [(&str, &[u8]); 17] = [
        ("call", b"PRPC\0\0\0\0"),
        ("stream", b"STRM\0\0\0\0"),
        ("rpcx", b"\x08\0\0\x30\0\0\0\0"),
        ("fb_rpc", b"FRPC\0\0\0\x34"),
        ("fb_rpc_first", b"BRPC\0\0\0\x34"),
        ("post", b"POST /a "),
        ("put", b"PUT /a/b"),
        ("options", b"OPTIONS *"),
        ("connect", b"CONNECT /_rpcx_ HTTP/1.0\n\n"),
        ("http2", b"PRI * HTTP/2.0\r\n\r\n"),
        ("gob", b"\x30\xfe\x01\x01\x03\x01\x01\x07Request"),
        ("json", b" \r\n{\"method\""),
        ("msgpack", b"\x82\xa3Seq\0"),
        ("rest_rpc_v0.20", b"'\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0\xfc\x78\xec\x34\x92\x07\x08"),
        ("rest_rpc_heartbeat", b"'\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'"),
        ("rest_rpc_v0.21", b"'\0\0\0\xd8\x1e\xb1\xcb\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0hello"),
        ("junk", b"\0\x01\x02\x03\x04\x05\x06\x07"),
    ];
    starts.map(|(name, start)| (name.to_owned(), [&[0x3f], start].concat())).into()
}

/// Each kind of damage in a sequence of each protocol.
fn damaged_sequences() -> Seeds {
    let protocols = ["baidu_std", "rpcx", "fb_rpc", "rest_rpc", "net_rpc", "http", "json_rpc"];
    let damages = [("overwritten", 0), ("flipped", 1), ("inserted", 2), ("removed", 3)];
    let mut seeds = Seeds::new();
    for (choice, protocol) in (0u8..).zip(protocols) {
        for (name, kind) in damages {
            // In single bytes, four calls unanswered at most; five calls of 0 to 200 bytes.
            let bytes = vec![choice, 0, 4 << 4, 2, 0, 7, 200, 64, 30, kind, 0, 19, 3, kind, 1, 2, 200];
            seeds.push((format!("{protocol}_{name}"), bytes));
        }
    }
    seeds
}

fn compressed() -> Seeds {
    let text = b"the same again and the same again and the same again and then the end".repeat(3);
    let kinds = [
        Compression::None,
        Compression::Gzip,
        Compression::Zlib,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    let mut seeds = Seeds::new();
    for (choice, kind) in (0u8..).zip(kinds) {
        let bytes = compress(kind, &text).expect("a build with all of them");
        seeds.push((kind.as_str().to_owned(), [&[choice, 0, 1], &bytes[..]].concat()));
        seeds.push((format!("{}_past_the_limit", kind.as_str()), [&[choice, 16, 0], &bytes[..]].concat()));
    }
    let two = [
        compress(Compression::Gzip, b"one").expect("gzip"),
        compress(Compression::Gzip, b"two").expect("gzip"),
    ];
    seeds.push(("gzip_two_members".to_owned(), [&[1, 0, 1], &two.concat()[..]].concat()));
    seeds
}

fn descriptors() -> Seeds {
    let sources = [
        (
            "proto2",
            r#"syntax = "proto2"; package a.b; message M { required int32 x = 1 [default = -1]; optional group G = 2 { repeated M m = 1; } extensions 100 to 200; oneof o { string s = 3; E e = 4; } } enum E { A = 5; B = -1; } extend M { optional bytes y = 100; }"#,
        ),
        (
            "proto3",
            r#"syntax = "proto3"; message M { map<string, M> m = 1; repeated sint64 many = 2; optional double _Z045_d = 3; Inner inner = 4; message Inner { enum E { Z = 0; } E e = 1; fixed32 f = 2; } }"#,
        ),
        (
            "service",
            r#"syntax = "proto3"; package p; service S { rpc A(Q) returns (R); rpc B(stream Q) returns (stream R); } message Q { string message = 1; } message R { bytes message = 1 [json_name = "else"]; }"#,
        ),
    ];
    sources.map(|(name, source)| (name.to_owned(), compile(source))).into()
}

/// `rich.proto` of the transcoder's tests with its imports, for its targets.
pub(crate) fn rich() -> Vec<u8> {
    compile(include_str!("../../../../payload/src/transcode/tests/rich.proto"))
}

fn compile(source: &str) -> Vec<u8> {
    use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

    struct Source(String);
    impl FileResolver for Source {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            match name {
                "test.proto" => File::from_source(name, &self.0),
                _ => Err(protox::Error::file_not_found(name)),
            }
        }
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(GoogleFileResolver::new());
    resolver.add(Source(source.to_owned()));
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("test.proto").expect("a good source");
    compiler.encode_file_descriptor_set()
}

/// Messages of `rich.proto` after the byte that selects the type.
fn messages(format: Format) -> Seeds {
    let pool = Pool::decode(&rich()).expect("a good set");
    let (text, json) = (Format::ProtoText, Format::Json(Json::Proto3));
    let messages = [
        (
            "scalars",
            2,
            text,
            r#"f_double: -1.5 f_float: 0.1 f_int32: -1 f_int64: -9223372036854775808 f_uint32: 4294967295
            f_uint64: 18446744073709551615 f_sint32: -3 f_sint64: 4 f_fixed32: 5 f_fixed64: 6 f_sfixed32: -7
            f_sfixed64: -8 f_bool: true f_string: "a\303\251\n\"" f_bytes: "\377\000" f_color: BLUE"#,
        ),
        (
            "extremes",
            2,
            text,
            "f_double: 1.7976931348623157e308 f_float: 1e-45 f_int32: -2147483648 f_color: 77",
        ),
        (
            "tree",
            0,
            text,
            r#"child { asked: 1 children { } children { c_string: "x" } } asked_string: "" far: 1 custom: 2"#,
        ),
        (
            "lists",
            0,
            text,
            r#"r_double: [1, 2.5] r_float: 3 r_int32: [-1, 0] r_sint64: 1 r_fixed64: 2 r_bool: [true, false]
            r_string: ["a", ""] r_bytes: "b" r_color: [RED, BLUE] r_unpacked: [1, 2]"#,
        ),
        (
            "maps",
            0,
            text,
            r#"m_string { key: "k" value: 1 } m_int64 { key: -1 value: "v" } m_bool { key: true value: RED }
            m_message { key: 7 value { asked: 2 } } c_message { f_sint32: -7 }"#,
        ),
        ("empty", 0, text, ""),
        (
            "well_known",
            1,
            json,
            r#"{"any":{"@type":"a/google.protobuf.Duration","value":"1.000000001s"},"duration":"-3s","empty":{},
            "mask":"a.b,cD","struct":{"a":[1,null,{}]},"time":"2023-11-14T22:13:20.5Z","int64":"5","values":[true],"null":null}"#,
        ),
        (
            "wrapped",
            1,
            json,
            r#"{"any":{"@type":"a/rich.Scalars","fInt32":1},"value":[{"a":"b"},-0.5],"string":"s","bytes":"AA==",
            "double":1.5,"bool":true,"byName":{"x":null},"times":["0001-01-01T00:00:00Z"]}"#,
        ),
    ];
    // Implementations without well-known types write them field by field.
    let names = ["rich.Rich", "rich.WellKnown", "rich.Scalars"];
    let seeds = messages.map(|(name, choice, from, source)| {
        let message = pool.message(names[choice]).expect("one of them");
        let protobuf = to_protobuf(&message, from, source.as_bytes());
        let protobuf = protobuf.unwrap_or_else(|error| panic!("{name}: {error}"));
        let bytes =
            from_protobuf(&message, format, &protobuf).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name.to_owned(), [&[choice as u8], &bytes[..]].concat())
    });
    seeds.into()
}

/// Output of Go, and invalid values.
fn gob() -> Seeds {
    let file: Value = serde_json::from_slice(&vector("netrpc/gob_values.json")).expect("JSON");
    let all = file.as_array().expect("a list").iter();
    let mut seeds: Seeds =
        all.map(|value| (text(&value["name"]).to_owned(), hex(text(&value["hex"])).to_vec())).collect();
    seeds.retain(|(name, _)| GOB.contains(&&**name));
    for (name, side) in [("gob_mul", Side::Server), ("gob_error", Side::Client)] {
        seeds.push((name.to_owned(), conversation("netrpc", name, side)));
    }
    let written = [
        ("lying_length", "f8 7fffffffffffffff"),
        ("lying_count", "0b7f020102ff80000104000007ff8000fdffffff"),
        ("in_itself", "0c 7f 0201 02ff8000 01ff8000 00 00 09 ff8000 01 01 01 01 01 00"),
        ("defined_twice", "0b7f020102ff800001040000 0b7f020102ff800001040000"),
        ("of_nothing", "03 ff8800 02 7f 00"),
    ];
    seeds.extend(written.map(|(name, bytes)| (name.to_owned(), hex(bytes).to_vec())));
    seeds.push((
        "json".to_owned(),
        br#"{"A":[1,"x",{"k":[null,18446744073709551615]}],"B":{"C":[[1],[2.5]]}}"#.to_vec(),
    ));
    behind_manners(seeds)
}

const GOB: [&str; 9] = [
    "gob_int_-129",
    "gob_complex",
    "gob_bytes",
    "gob_array_int",
    "gob_map",
    "gob_struct_P_twice",
    "gob_all",
    "gob_recursive",
    "gob_interface_split",
];

fn msgpack() -> Seeds {
    let mut every = Vec::new();
    let mut writer = Writer::new(&mut every);
    writer.array(9);
    writer.nil();
    writer.bool(true);
    writer.map(2);
    writer.str("A");
    writer.unsigned(300);
    writer.str("a key longer than thirty-one bytes is");
    writer.signed(-70000);
    writer.f32(1.5);
    writer.f64(-0.0);
    writer.bin(b"bytes");
    writer.ext(-1, &[0; 12]);
    writer.ext(5, &[0; 16]);
    writer.unsigned(u64::MAX);
    let written: [(&str, &[u8]); 4] = [
        ("every_kind", &every),
        ("go_struct", &hex("82a14107a14208")),
        ("lying_array", b"\xdd\xff\xff\xff\xff\x01"),
        ("lying_text", b"\xdb\x7f\xff\xff\xffab"),
    ];
    let mut seeds: Seeds = written.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).into();
    seeds.push(("deep".to_owned(), [&[0x91; 300][..], &[0xc0]].concat()));
    seeds
}

fn struct_pack() -> Seeds {
    type Value =
        (i32, Option<Vec<String>>, BTreeMap<u8, f64>, Result<[u16; 2], (char, bool)>, U16String, VarI64);
    let plan = Plan::for_type::<Value>().expect("a type");
    let full = |text: &str| -> Value {
        let (list, map) = (vec![text.to_owned(), "b".to_owned()], BTreeMap::from([(1, 0.5), (2, f64::NAN)]));
        (-1, Some(list), map, Err(('ß', true)), U16String("𝄞".to_owned()), VarI64(-300))
    };
    let empty: Value = (0, None, BTreeMap::new(), Ok([1, 2]), U16String::default(), VarI64(0));
    let values = [("empty", empty), ("full", full("a")), ("wide", full(&"a".repeat(300)))];
    let mut seeds = Seeds::new();
    for (name, value) in values {
        let bare = plan.encode(&value, Form::Bare).expect("a value");
        // The value is preceded by the code, and for the wide one already by the meta information.
        let meta = if bare[0] & 1 == 1 { &[][..] } else { &[0] };
        seeds.push((name.to_owned(), [meta, &bare[4..]].concat()));
        let literal = plan.encode(&value, Form::Literal).expect("a value");
        seeds.push((format!("{name}_with_literal"), literal[4..].to_vec()));
    }
    seeds
}

fn struct_pack_types() -> Seeds {
    let mut seeds = Seeds::new();
    let captured: Vec<Value> =
        serde_json::from_slice(&vector("rest_rpc/struct_pack_values.json")).expect("a list");
    for (at, captured) in captured.iter().enumerate() {
        let literal = hex(text(&captured["fields"]["type_literal_hex"]));
        seeds.push((format!("literal_{at}"), literal.to_vec()));
    }
    for (name, ty, value) in [
        ("mixed", "struct<int, vector<int>, map<string, int>, optional<int>, array<short, 2>>", {
            json!([7, [1, 2, 3], { "k": 5 }, 9, [3, 4]])
        }),
        ("image", "tuple<struct<int8, monostate, struct<int16, double>>, map<int, double>>", {
            json!([[1, null, [2, 0.5]], [[1, 2.5]]])
        }),
        ("packed", "packed<1, 1, int8, int64>#300", json!([1, 2])),
        ("tree", "variant<tuple<^0, ^0>, struct<string, vector<^1>>, expected<void, bool>>", {
            let leaf = json!({ "index": 2, "value": { "index": 1, "value": true } });
            json!({ "index": 0, "value": [leaf, { "index": 1, "value": ["x", [leaf]] }] })
        }),
        ("fast", "tuple<fast_int32, string, fast_uint64>", json!([-1, "a", u64::MAX])),
        ("variable", "vector<tuple<var_int32, var_uint64>>", json!([[-65, 300]])),
        ("characters", "tuple<char, char16, char32, u16string, u32string>", json!([1, 2, "x", "ß", "𝄞"])),
        (
            "bytes",
            "tuple<string, int128, uint128>",
            json!([[255], "-170141183460469231731687303715884105728", 1]),
        ),
        ("nothing", "set<tuple<monostate>>", json!([[null], [null]])),
    ] {
        let plan = ty.parse().and_then(Plan::new).expect(ty);
        let bytes = plan.encode_json(&value, Form::Literal).expect(ty);
        seeds.push((name.to_owned(), bytes));
    }
    seeds.push(("deep".to_owned(), vec![0x84; 300]));
    seeds
}

fn vector(path: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "vectors", path].iter().collect();
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

//! Seeds for HTTP/2: conversations captured from real peers, each frame type, and each known flood.

use polyrpc_wire::http::h2::PREFACE;
use polyrpc_wire::http::h2::hpack::encode_stateless;

use super::{Seeds, Side, behind, behind_manners, conversation};

/// brpc's gRPC server, called by `curl`.
const GRPC: [&str; 3] = ["grpc_ok", "grpc_failed_54321", "grpc_unknown_method"];

/// For both sides of a connection.
pub(super) fn frames() -> Seeds {
    let servers = conversations(Side::Server).into_iter().chain(requests()).chain(floods()).chain(others());
    let clients = conversations(Side::Client).into_iter().chain(responses());
    let servers = behind(&[0x00, 0x02, 0x10, 0x04, 0x28, 0x18], servers);
    let clients = behind(&[0x01, 0x11, 0x09, 0x03, 0x05, 0x19], clients);
    let named = |side: &'static str| move |(name, bytes)| (format!("{side}_{name}"), bytes);
    servers.into_iter().map(named("server")).chain(clients.into_iter().map(named("client"))).collect()
}

/// For a gRPC server.
pub(super) fn grpc_requests() -> Seeds {
    behind_manners(conversations(Side::Server).into_iter().chain(requests()).chain(floods()).chain(others()))
}

/// For a gRPC client.
pub(super) fn grpc_responses() -> Seeds {
    behind_manners(conversations(Side::Client).into_iter().chain(responses()))
}

fn conversations(side: Side) -> Seeds {
    GRPC.iter().map(|name| ((*name).to_owned(), conversation("http", name, side))).collect()
}

/// Valid and invalid frames of a client.
fn requests() -> Seeds {
    let (one, two) = (message(0, b"one"), message(0, b"two"));
    let whole = |stream| [headers(stream, false, &call(&[])), data(stream, true, &one)].concat();
    let adorned = [
        (&b"grpc-timeout"[..], &b"5S"[..]),
        (b"grpc-encoding", b"gzip"),
        (b"grpc-accept-encoding", b"identity,gzip,deflate"),
        (b"authorization", b"me"),
        (b"key-bin", b"AAEC"),
    ];
    let open = headers(1, false, &call(&[]));
    let seeds: Vec<(&str, Vec<u8>)> = vec![
        ("unary", [whole(1), whole(3)].concat()),
        ("adorned", [headers(1, false, &call(&adorned)), data(1, true, &message(1, GZIPPED))].concat()),
        ("stream", [open.clone(), data(1, false, &one), data(1, false, &two), data(1, true, b"")].concat()),
        ("cut_messages", [open.clone(), data(1, false, &one[..4]), data(1, true, &one[4..])].concat()),
        ("cut_short", [open.clone(), data(1, true, &one[..4])].concat()),
        ("bad_flag", [open.clone(), data(1, false, &one), data(1, false, &message(7, b"x"))].concat()),
        ("compressed_without_name", [open.clone(), data(1, true, &message(1, b"x"))].concat()),
        ("too_long", [open.clone(), data(1, false, &[0, 0xff, 0xff, 0xff, 0xff])].concat()),
        (
            "trailers",
            [open.clone(), data(1, false, &one), headers(1, true, &fields(&[(b"a", b"b")]))].concat(),
        ),
        ("trailers_with_a_method", [open.clone(), headers(1, true, &call(&[]))].concat()),
        (
            "content_length",
            [headers(1, false, &call(&[(b"content-length", b"9")])), data(1, true, &one)].concat(),
        ),
        ("another_method", headers(1, true, &request(b"GET", b"/a/b", &[]))),
        (
            "another_content_type",
            headers(1, true, &request(b"POST", b"/a/b", &[(b"content-type", b"text/plain")])),
        ),
        ("no_path", headers(1, true, &request(b"POST", b"a", &[(b"content-type", b"application/grpc")]))),
        ("no_timeout", headers(1, true, &call(&[(b"grpc-timeout", b"soon")]))),
        ("connection_field", headers(1, true, &call(&[(b"connection", b"close")]))),
        ("json", [headers(1, false, &json()), data(1, true, &one)].concat()),
        (
            "padded",
            [
                frame(1, 0x0c, 1, &[&[2][..], &call(&[]), &[0, 0]].concat()),
                frame(0, 0x09, 1, &[&[3][..], &one, &[0; 3]].concat()),
            ]
            .concat(),
        ),
        ("too_much_padding", frame(1, 0x0c, 1, &[255, 0])),
        ("prioritised", frame(1, 0x25, 1, &[&[0, 0, 0, 3, 7][..], &call(&[])].concat())),
        ("continued", {
            let block = call(&[]);
            let (a, b) = block.split_at(9);
            [frame(1, 1, 1, a), frame(9, 0, 1, b""), frame(9, 4, 1, b)].concat()
        }),
        ("interrupted", [frame(1, 1, 1, &call(&[])), frame(6, 0, 0, &[0; 8])].concat()),
        ("continues_nothing", frame(9, 4, 1, b"")),
        ("priority", [frame(2, 0, 3, &[0, 0, 0, 1, 9]), frame(2, 0, 1, &[0, 0, 0, 1, 9])].concat()),
        ("reset", [open.clone(), frame(3, 0, 1, &[0, 0, 0, 8])].concat()),
        (
            "settings",
            [
                frame(4, 1, 0, b""),
                frame(4, 0, 0, &[0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 9, 0, 5, 0, 0, 0x40, 0, 0, 99, 0, 0, 0, 1]),
                whole(1),
                frame(4, 0, 0, &[0, 4, 0, 0, 0, 3]),
                frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]),
            ]
            .concat(),
        ),
        ("push_promise", [open.clone(), frame(5, 4, 1, &[0, 0, 0, 2])].concat()),
        (
            "ping",
            [frame(6, 0, 0, b"12345678"), frame(6, 1, 0, b"polyrpc!"), frame(6, 1, 0, b"polyrpc?")].concat(),
        ),
        ("goaway", [frame(7, 0, 0, &[0; 8]), whole(1)].concat()),
        (
            "window_update",
            [
                frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]),
                whole(1),
                frame(8, 0, 1, &[0, 0, 0, 9]),
                frame(8, 0, 0, &[0, 1, 0, 0]),
                frame(8, 0, 1, &[0, 1, 0, 0]),
            ]
            .concat(),
        ),
        ("window_past_its_bound", [open, frame(8, 0, 1, &[0x7f, 0xff, 0xff, 0xff])].concat()),
        ("unknown", frame(0x77, 0xff, 1, b"anything")),
        ("data_on_an_idle_stream", data(1, true, b"")),
        ("data_on_a_closed_stream", [whole(1), data(1, true, b"")].concat()),
        ("even", headers(2, true, &call(&[]))),
    ];
    seeds.into_iter().map(|(name, frames)| (name.to_owned(), greeted(&frames))).collect()
}

/// Valid and invalid frames of a server for a client with calls on the streams 1 to 7.
/// Requests that are not gRPC, or of its other dialects.
fn others() -> Seeds {
    let one = message(0, b"one");
    [
        ("web", [headers(1, false, &typed(b"application/grpc-web")), data(1, true, &one)].concat()),
        (
            "web_text",
            [
                headers(1, false, &typed(b"application/grpc-web-text")),
                data(1, false, b"AAAA"),
                data(1, true, b"AA==A29uZQ=="),
            ]
            .concat(),
        ),
        (
            "http_json",
            [
                headers(1, false, &typed(b"application/json")),
                data(1, false, b"{\"message\""),
                data(1, true, b":\"hi\"}"),
            ]
            .concat(),
        ),
        ("http_get", headers(1, true, &request(b"GET", b"/health", &[]))),
        ("http_batch", [headers(1, false, &typed(b"application/json-rpc")), data(1, true, BATCH)].concat()),
    ]
    .map(|(name, frames)| (name.to_owned(), greeted(&frames)))
    .into()
}

fn responses() -> Seeds {
    let typed = (&b"content-type"[..], &b"application/grpc"[..]);
    let head = |stream| headers(stream, false, &fields(&[(b":status", b"200"), typed]));
    let ok = |stream| headers(stream, true, &fields(&[(b"grpc-status", b"0"), (b"key", b"value")]));
    let one = message(0, b"one");
    let failed = [
        (&b":status"[..], &b"200"[..]),
        typed,
        (b"grpc-status", b"5"),
        (b"grpc-message", b"not%20here"),
        (b"grpc-status-details-bin", b"AAEC"),
    ];
    let seeds: Vec<(&str, Vec<u8>)> = vec![
        ("unary", [head(1), data(1, false, &one), ok(1), head(3), data(3, false, &one), ok(3)].concat()),
        (
            "stream",
            [head(1), data(1, false, &[&one[..], &one].concat()), data(1, false, &one), ok(1)].concat(),
        ),
        ("trailers_only", headers(1, true, &fields(&failed))),
        ("interim", [headers(1, false, &fields(&[(b":status", b"103")])), head(1), ok(1)].concat()),
        ("http", headers(1, true, &fields(&[(b":status", b"503")]))),
        ("html", [headers(1, false, &fields(&[(b":status", b"404")])), data(1, true, b"<html>")].concat()),
        ("no_trailers", [head(1), data(1, true, &one)].concat()),
        ("gzip", {
            let fields = fields(&[(b":status", b"200"), typed, (b"grpc-encoding", b"gzip")]);
            [headers(1, false, &fields), data(1, false, &message(1, GZIPPED)), ok(1)].concat()
        }),
        ("cut_short", [head(1), data(1, false, &one[..6]), ok(1)].concat()),
        ("too_long", [head(1), data(1, false, &[0, 0xff, 0xff, 0xff, 0xff])].concat()),
        ("refused", [frame(3, 0, 1, &[0, 0, 0, 7]), head(3), frame(3, 0, 3, &[0; 4])].concat()),
        ("goaway", [frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), head(1), ok(1)].concat()),
        ("pong", frame(6, 1, 0, b"polyrpc?")),
        ("settings", {
            let streams = [0, 3, 0, 0, 0, 1, 0, 1, 0, 0, 0, 64, 0, 4, 0, 0, 0, 1];
            [frame(4, 0, 0, &streams), frame(8, 0, 1, &[0, 0, 0, 99]), head(1), ok(1)].concat()
        }),
        ("push_promise", frame(5, 4, 1, &[0, 0, 0, 2])),
        ("content_length", {
            let fields = fields(&[(b":status", b"200"), (b"content-length", b"2"), typed]);
            [headers(1, false, &fields), data(1, false, &one)].concat()
        }),
        ("data_before_the_head", data(1, false, &one)),
        ("two_heads", [head(1), head(1)].concat()),
        ("idle", head(99)),
    ];
    let greeting = frame(4, 0, 0, b"");
    seeds.into_iter().map(|(name, frames)| (name.to_owned(), [&greeting[..], &frames].concat())).collect()
}

/// Known attacks on servers, scaled to the limits of the fuzzed connections.
fn floods() -> Seeds {
    let open = |stream| headers(stream, false, PLAIN);
    let each =
        |count: u32, of: &dyn Fn(u32) -> Vec<u8>| (0..count).flat_map(|n| of(2 * n + 1)).collect::<Vec<u8>>();
    let bomb = {
        let mut block = [PLAIN, &[0x40, 1, b'x', 100], &[b'y'; 100]].concat();
        block.extend([0xbe; 1000]);
        headers(1, true, &block)
    };
    let seeds: Vec<(&str, Vec<u8>)> = vec![
        ("ping_flood", frame(6, 0, 0, &[0; 8]).repeat(220)),
        ("settings_flood", frame(4, 0, 0, b"").repeat(220)),
        ("priority_flood", frame(2, 0, 1, &[0, 0, 0, 3, 0]).repeat(220)),
        ("unknown_flood", frame(0x77, 0, 0, b"").repeat(220)),
        // CVE-2019-9518
        ("empty_data_flood", [open(1), data(1, false, b"").repeat(120)].concat()),
        // CVE-2024-27316 and its like
        ("continuation_flood", [frame(1, 0, 1, PLAIN), frame(9, 0, 1, b"").repeat(40)].concat()),
        ("long_continuation", [frame(1, 0, 1, PLAIN), frame(9, 0, 1, &[0x82; 600]).repeat(5)].concat()),
        // CVE-2023-44487
        ("rapid_reset", each(40, &|stream| [open(stream), frame(3, 0, stream, &[0, 0, 0, 8])].concat())),
        // CVE-2025-8671
        ("made_you_reset", each(40, &|stream| [open(stream), frame(8, 0, stream, &[0; 4])].concat())),
        ("too_many_streams", each(40, &|stream| open(stream))),
        // CVE-2016-6581
        ("hpack_bomb", bomb),
        // CVE-2019-9511, CVE-2019-9517
        (
            "nothing_is_read",
            [frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]), each(8, &|stream| headers(stream, true, PLAIN))].concat(),
        ),
        ("windows_open_by_bytes", {
            let byte = |stream| frame(8, 0, stream, &[0, 0, 0, 1]);
            [frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]), headers(1, true, PLAIN), byte(1).repeat(100)].concat()
        }),
        ("table_flips", {
            let sizes = [[0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 16, 0]].concat();
            frame(4, 0, 0, &sizes).repeat(50)
        }),
    ];
    seeds.into_iter().map(|(name, frames)| (name.to_owned(), greeted(&frames))).collect()
}

/// `POST / http me`, in the shortest form.
const PLAIN: &[u8] = b"\x83\x86\x84\x41\x02me";

/// "hello", compressed with gzip.
const GZIPPED: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xcb\x48\xcd\xc9\xc9\x07\0\x86\xa6\x10\x36\x05\0\0\0";

fn greeted(frames: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(4, 0, 0, b""), frames].concat()
}

fn call(more: &[(&[u8], &[u8])]) -> Vec<u8> {
    let typed = [(&b"te"[..], &b"trailers"[..]), (b"content-type", b"application/grpc")];
    request(b"POST", b"/example.EchoService/Echo", &[&typed, more].concat())
}

const BATCH: &[u8] = br#"[{"jsonrpc":"2.0","method":"A.b","params":[1],"id":1},
    {"jsonrpc":"2.0","method":"A.c"},{"jsonrpc":"2.0","method":"A.d","params":[2],"id":2},1]"#;

fn typed(content_type: &[u8]) -> Vec<u8> {
    request(b"POST", b"/example.EchoService/Echo", &[(b"content-type", content_type)])
}

fn json() -> Vec<u8> {
    request(b"POST", b"/example.EchoService/Echo", &[(b"content-type", b"application/grpc+json")])
}

fn request(method: &[u8], path: &[u8], more: &[(&[u8], &[u8])]) -> Vec<u8> {
    let usual = [(&b":method"[..], method), (b":scheme", b"http"), (b":path", path), (b":authority", b"me")];
    fields(&[&usual, more].concat())
}

fn fields(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    encode_stateless(fields.iter().copied(), &mut block);
    block
}

fn message(flag: u8, body: &[u8]) -> Vec<u8> {
    [&[flag], &(body.len() as u32).to_be_bytes()[..], body].concat()
}

fn headers(stream: u32, end: bool, block: &[u8]) -> Vec<u8> {
    frame(1, 0x4 | u8::from(end), stream, block)
}

fn data(stream: u32, end: bool, bytes: &[u8]) -> Vec<u8> {
    frame(0, end.into(), stream, bytes)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

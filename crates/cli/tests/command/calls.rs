//! The built command, as users run it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::local::Local;
use crate::running::{Ran, Server, TempDir, polyrpc};
use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::net_rpc::Codec;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Status};
use polyrpc_cli::proto::example::EchoServiceServer;
use polyrpc_cli::services;
use serde_json::{Value, json};

#[test]
fn demo_calls_every_protocol_and_exits_with_0() {
    let ran = polyrpc(["demo"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for row in
        ["baidu_std", "rpcx", "gRPC-Web", "Connect", "HTTP ", "HTTP, rpcx gateway", "HTTP, JSON-RPC 2.0"]
    {
        assert!(ran.stdout.contains(row), "no {row} in\n{}", ran.stdout);
    }
    for payload in ["protobuf", "json", "msgpack"] {
        assert!(ran.stdout.contains(payload), "no {payload} in\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains('\x1b'), "colour without a terminal");
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 100), "too wide:\n{}", ran.stdout);
}

#[test]
fn demo_keeps_serving_if_asked_and_prints_commands_to_try() {
    let server = Server::start(["demo", "--keep"], "polyrpc bench");
    let url = |scheme: &str| format!("{scheme}://{}", server.address());
    for output in [url("curl http"), url("rpcx"), format!("tcp@{}", server.address())] {
        assert!(server.output().contains(&output), "no {output} in\n{}", server.output());
    }
    let ran = polyrpc(["call", &url("rpcx"), "add", "[1,2]"]);
    assert_eq!((ran.stdout.as_str(), ran.code), ("3\n", 0), "{ran:?}");
    // The pages have counted the demo's own calls too.
    let pages =
        server.output().lines().find(|line| line.starts_with("http://")).expect("the address of the pages");
    let authority = pages.trim_start_matches("http://").trim_end_matches('/');
    let ran = polyrpc(["call", &format!("http://{authority}"), "add", "[1,2]"]);
    assert_ne!(ran.code, 0, "the pages' address serves a method: {ran:?}");
    let mut pages = TcpStream::connect(authority).unwrap();
    let (_, port) = server.address().rsplit_once(':').unwrap();
    let request = format!("GET /vars/rpc_server_{port}_add_count HTTP/1.0\r\nHost: localhost\r\n\r\n");
    pages.write_all(request.as_bytes()).unwrap();
    let mut shown = String::new();
    pages.read_to_string(&mut shown).unwrap();
    let count: u64 = shown.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(count > 100, "{shown}");
    assert!(server.stop().success());
}

#[test]
fn every_protocol_carries_every_format_it_supports() {
    let server = Server::serve([]);
    let answers = [
        ("baidu-std", "protobuf", ECHO),
        ("baidu-std", "json", ECHO),
        ("baidu-std", "text", ECHO),
        ("rpcx", "protobuf", ECHO),
        ("rpcx", "json", ECHO),
        ("rpcx", "msgpack", ECHO),
        ("http", "protobuf", ECHO),
        ("http", "json", ECHO),
        ("http", "msgpack", ECHO),
        ("http", "text", ECHO),
        ("http?dialect=json-rpc", "json", ECHO),
    ];
    for (scheme, format, target) in answers {
        let message = r#"{"message":"héllo"}"#;
        let ran = polyrpc(["call", &server.url(scheme), target, message, "--format", format]);
        assert_eq!(ran.json(), serde_json::json!({"message": "héllo"}), "{scheme} {format}");
    }
    let server = Local::serve(polyrpc::Server::new().service(crate::local::raw("Echo", "Raw")));
    let ran = polyrpc(["call", &server.url("rpcx"), "Echo/Raw", "raw bytes", "--format", "raw"]);
    // A program gets the bytes of the reply, and nothing else.
    assert_eq!(ran.stdout, "raw bytes", "{ran:?}");
}

#[test]
fn every_demo_service_answers_over_every_protocol() {
    let server = Server::serve([]);
    for scheme in SCHEMES {
        for (target, message, reply) in [
            ("PBArith/Mul", r#"{"A":7,"B":8}"#, r#"{"C":56}"#),
            ("PBArith/Add", r#"{"A":7,"B":8}"#, r#"{"C":15}"#),
            ("PBArith/Div", r#"{"A":56,"B":8}"#, r#"{"C":7}"#),
            ("helloworld.Greeter/SayHello", r#"{"name":"you"}"#, r#"{"message":"Hello you"}"#),
            (
                "pb.Hello/Say",
                r#"{"field1":"","field2":1,"field3":3}"#,
                r#"{"field1":"OK","field2":100,"field3":3}"#,
            ),
            ("echo", r#""hi""#, r#""hi""#),
            ("add", "[1,2]", "3"),
        ] {
            let ran = polyrpc(["call", &server.url(scheme), target, message]);
            let reply: Value = serde_json::from_str(reply).unwrap();
            assert_eq!(ran.json(), reply, "{scheme} {target}");
        }
    }
}

#[test]
fn serve_reports_invalid_options() {
    for (arguments, code, why) in [
        (&["--listen", "quic://127.0.0.1:0"][..], 1, "--tls-cert"),
        (&["--listen", "127.0.0.1:99999"], 1, "a port is at most 65535"),
        (&["--listen", "grpc://127.0.0.1:0"], 1, "expected host:port, unix:/path"),
        (&["--listen", ":8002"], 1, "it names no host"),
        (&["--cores", "0"], 2, "expected a number above 0"),
        (&["--listen", "127.0.0.1:0", "--kcp-cipher", "none"], 1, "no listener speaks it"),
        (&["--listen", "127.0.0.1:0", "--protocols", "rpcx", "--mcp", "add"], 1, "--mcp needs HTTP"),
        (&["--listen", "127.0.0.1:0", "--protocols", "rpcx", "--pages"], 1, "--pages needs HTTP"),
        (&["--max-connections", "0"], 2, "expected at least 1"),
        (
            &["--register", "etcd://127.0.0.1:1/base", "--advertise", "not an address"],
            2,
            "expected host, host:port",
        ),
        (
            &["--register", "etcd://127.0.0.1:1/base", "--attributes", "weight=abc&%zz"],
            2,
            "is not name=value",
        ),
    ] {
        let ran = polyrpc(["serve"].iter().chain(arguments));
        assert!(ran.code == code && ran.stderr.contains(why), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn timeout_without_a_unit_is_seconds() {
    let server = Server::serve(["--lame-duck", "1"]);
    let ran = polyrpc(["call", &server.url("rpcx"), "echo", r#""hi""#, "--timeout", "5"]);
    assert_eq!(ran.json(), "hi");
}

#[test]
fn arith_computes_in_64_bits_and_pbarith_in_32_bits() {
    let server = Server::serve([]);
    let args = r#"{"A":100000,"B":100000}"#;
    for scheme in SCHEMES {
        let ran = polyrpc(["call", &server.url(scheme), "Arith/Mul", args]);
        let product = match scheme {
            // Protobuf is printed as its JSON, in which 64-bit integers are strings.
            "baidu-std" | "grpc" => Value::from("10000000000"),
            _ => Value::from(10_000_000_000_u64),
        };
        assert_eq!(ran.json()["C"], product, "{scheme}");
        let ran = polyrpc(["call", &server.url(scheme), "PBArith/Mul", args]);
        assert_eq!(ran.json()["C"], 1_410_065_408, "{scheme}");
    }
}

#[test]
fn go_net_rpc_is_answered_in_every_codec() {
    let server = services::server()
        .alias_method("math/times", "Arith/Mul")
        .function("Shapes/Length", |text: String| async move { text.len() });
    let server = Local::serve(server);
    for scheme in [
        "net-rpc",
        "net-rpc?transport=http-connect",
        "net-rpc?codec=json",
        "net-rpc?transport=http-connect&codec=msgpack",
        "net-rpc?codec=msgpack",
    ] {
        for (target, message, reply) in [
            ("Arith/Mul", r#"{"A":7,"B":8}"#, r#"{"C":56}"#),
            ("math/times", r#"{"A":7,"B":8}"#, r#"{"C":56}"#),
            ("echo", r#""hi""#, r#""hi""#),
            ("add", "[1,2]", "3"),
            ("Shapes/Length", r#""four""#, "4"),
        ] {
            let ran = polyrpc(["call", &server.url(scheme), target, message]);
            assert_eq!(
                ran.json(),
                serde_json::from_str::<Value>(reply).unwrap(),
                "{scheme} {target} {ran:?}"
            );
        }
    }
    let arith = || polyrpc::Server::new().service(crate::local::raw("Arith", "Mul"));
    let old = Local::listen(arith(), |listen| listen.net_rpc(Codec::Protobuf));
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/arith.proto");
    let old = |target| {
        polyrpc(["call", &old.url("net-rpc?codec=protobuf"), target, r#"{"A":7}"#, "--proto", proto])
    };
    assert_ne!(old("PBArith/Mul").code, 0, "it has another service");
    // Its argument and its reply have the same type.
    assert_eq!(old("Arith/Mul").json(), json!({"C": "7"}));
    let gencode = Local::listen(arith(), |listen| listen.net_rpc(Codec::Gencode));
    let ran = polyrpc(["call", &gencode.url("net-rpc?codec=gencode"), "Arith/Mul", "AAAABBBB"]);
    assert_eq!((ran.stdout.as_str(), ran.code), ("AAAABBBB", 0), "{ran:?}");
}

#[test]
fn proto_file_describes_the_called_method() {
    let server = Server::serve([]);
    for scheme in SCHEMES {
        let ran = polyrpc([
            "call",
            &server.url(scheme),
            "pb.Hello/Say",
            r#"{"field2":1,"field3":3,"field1":"","field22":"5000000000"}"#,
            "--proto",
            concat!(env!("CARGO_MANIFEST_DIR"), "/proto/benchmark.proto"),
        ]);
        // 64-bit integers are strings in protobuf's JSON, for every JSON dialect of the protocol.
        assert_eq!(ran.json()["field22"], "5000000000", "{scheme}: {ran:?}");
    }
}

#[test]
fn verbose_call_prints_metadata_and_sizes() {
    let server = Local::serve(polyrpc::Server::new().service(crate::local::arith()));
    let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Meta", r#"{"A":7,"B":8}"#, "-H", "k1=v1", "-v"]);
    assert_eq!(ran.json()["C"], 56);
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(
        (lines[..2].to_vec(), lines[3]),
        (vec!["> Arith/Meta: 7 bytes of msgpack", "> k1: v1"], "< echo: v1")
    );
    let ended = format!("< ok: 4 bytes of msgpack from {} in ", server.address());
    assert!(lines[2].starts_with(&ended) && lines.len() == 4, "{ran:?}");

    let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Push", r#"{"A":7,"B":8}"#, "-v"]);
    assert!(ran.stderr.contains("\n< pushed push_path/push_method: abcde\n<   pk: pv\n"), "{ran:?}");

    let server = Server::serve([]);
    let dir = TempDir::new();
    fs::write(dir.path().join("attachment"), b"beside\0it").unwrap();
    let attachment = dir.path().join("attachment").display().to_string();
    let ran = polyrpc([
        "call",
        &server.url("baidu-std"),
        ECHO,
        r#"{"message":"hi"}"#,
        "-v",
        "--attachment",
        &attachment,
    ]);
    assert!(ran.stderr.contains("\n< attachment of 9 bytes:\n00000000  62 65 73"), "{ran:?}");

    let echo = ["call", &server.url("baidu-std"), ECHO, r#"{"message":"hi"}"#, "--attachment", &attachment];
    let ran = polyrpc(echo);
    assert!(ran.code == 0 && ran.stderr == "attachment of 9 bytes\n", "{ran:?}");
    let saved = dir.path().join("saved");
    let ran = polyrpc(echo.iter().chain(&["--save-attachment", saved.to_str().unwrap(), "--json"]));
    assert!(ran.code == 0 && ran.stderr == "{\"attachment_bytes\":9}\n", "{ran:?}");
    assert_eq!(fs::read(saved).unwrap(), b"beside\0it");
}

#[test]
fn call_that_a_protocol_cannot_express_fails_before_it_is_sent() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    fs::write(dir.path().join("attachment"), b"it").unwrap();
    let attachment = dir.path().join("attachment").display().to_string();
    for (scheme, target, more, what) in [
        ("rest-rpc", "add", &["--auth", "token"][..], "credentials"),
        ("rest-rpc?version=0.20", "add", &["--auth", "token"], "credentials"),
        ("rest-rpc", "add", &["-H", "k: v"], "metadata"),
        ("fb-rpc", "S/M", &["-H", "k: v"], "metadata"),
        ("fb-rpc", "S/M#0", &["--auth", "token", "--format", "raw"], "credential"),
        ("grpc", "Arith/Mul", &["-H", "content-length: 1"], "content-length"),
        ("grpc", "Arith/Mul", &["-H", "A b: c"], "nothing was sent"),
        ("grpc", "Arith/Mul", &["--attachment", &attachment], "attachment"),
        ("rpcx", "grpc.health.v1.Health/Watch", &["--format", "json"], "streams"),
    ] {
        let argument = if target == "add" { "[1,2]" } else { "{}" };
        let ran = polyrpc(["call", &server.url(scheme), target, argument, "-v"].iter().chain(more));
        assert_eq!((ran.stdout.as_str(), ran.code), ("", 1), "{scheme} {more:?}: {ran:?}");
        assert!(ran.stderr.contains(what), "{scheme} {more:?}: {ran:?}");
        // The server has not answered, and the format is not to blame.
        assert!(!ran.stderr.contains("< ") && !ran.stderr.contains(".proto"), "{scheme} {more:?}: {ran:?}");
    }
}

#[test]
fn options_that_contradict_each_other_or_have_no_effect_are_refused() {
    let nowhere = crate::running::free_address();
    let at = |scheme: &str| format!("{scheme}://{nowhere}");
    for (url, more, code, what) in [
        (at("http"), &["--auth", "t", "-H", "Authorization: o"][..], 1, "--auth and -H both set"),
        (at("grpc"), &["--auth", "t", "-H", "authorization: o"], 1, "--auth and -H both set"),
        (at("grpc"), &["--kcp-cipher", "none"], 1, "--kcp-cipher is for calls over KCP"),
        (at("rpcx"), &["--balance", "rr"], 1, "--balance chooses among several servers"),
        (at("rpcx"), &["--save-attachment", "unwritten"], 1, "rpcx has no attachments"),
        (at("grpc"), &["--schema", "a.fbs", "--format", "json"], 1, "--format would have no effect"),
        (at("fb-rpc"), &["--schema", "a.fbs", "--types", "int -> int"], 1, "--types would have no effect"),
        ("grpc://a:1,b:2".to_owned(), &[], 1, "grpc+list://a:1,b:2"),
        ("grpc://:8852".to_owned(), &[], 1, "`:8852` names no host"),
        ("grpc://h:99999".to_owned(), &[], 1, "a port is at most 65535"),
        (at("rpcx"), &["--timeout", "-1"], 2, "is not a duration"),
    ] {
        let ran = polyrpc(["call", &url, "Arith/Mul", "{}"].iter().chain(more));
        assert_eq!((ran.stdout.as_str(), ran.code), ("", code), "{url} {more:?}: {ran:?}");
        assert!(
            ran.stderr.contains(what) && !ran.stderr.contains("cannot connect"),
            "{url} {more:?}: {ran:?}"
        );
    }
}

#[test]
fn repeated_header_is_refused_by_a_protocol_that_has_one_value_for_a_key() {
    let server = Server::serve([]);
    let repeated = ["-H", "tenant: a", "-H", "tenant: b"];
    let call = |scheme: &str| polyrpc(["call", &server.url(scheme), "add", "[1,2]"].iter().chain(&repeated));
    let refused = call("rpcx");
    assert!(refused.code == 1 && refused.stderr.contains("tenant"), "{refused:?}");
    assert_eq!(call("http").stdout, "3\n");
}

#[test]
fn message_of_an_undeclared_flatbuffers_method_is_refused_with_the_option_to_declare_it() {
    let server = Server::serve([]);
    let ran = polyrpc(["call", &server.url("fb-rpc"), "test.BenchmarkService/Test", "{}"]);
    assert!(ran.code != 0 && ran.stderr.contains("--schema FILE"), "{ran:?}");
}

#[test]
fn get_of_a_method_with_side_effects_is_refused() {
    let server = Server::serve([]);
    let url = server.url("connect?http_version=2&http_method=get");
    let ran = polyrpc(["call", &url, "helloworld.Greeter/SayHello", r#"{"name":"Joe"}"#]);
    assert!(ran.code == 1 && ran.stderr.contains("not declared free of side effects"), "{ran:?}");
}

#[test]
fn proto_file_is_found_in_an_included_directory() {
    let dir = TempDir::new();
    fs::write(
        dir.path().join("q.proto"),
        "syntax = \"proto3\"; package q; service Q { rpc A(B) returns (B); } message B {}",
    )
    .unwrap();
    let folder = dir.path().display().to_string();
    let list = |folder: &str| polyrpc(["list", "grpc://127.0.0.1:1", "--proto", "q.proto", "-I", folder]);
    let found = list(&folder);
    assert!(found.code == 0 && found.stdout.contains("q.Q"), "{found:?}");
    let missing = list("no/such/folder");
    assert!(missing.code == 1 && missing.stderr.contains("no directory no/such/folder"), "{missing:?}");
}

#[test]
fn control_characters_of_a_server_do_not_reach_the_terminal() {
    let service = ServiceBuilder::new("S")
        .method::<Raw, Bytes, Bytes, _, _>("Fail", |cx: Context, _| async {
            (cx, Err(Status::internal("\u{1b}]0;title\u{7}\u{9b}1m").into()))
        });
    let server = Local::serve(polyrpc::Server::new().service(service));
    for scheme in ["http", "rpcx", "grpc", "baidu-std"] {
        for more in [&[][..], &["-v"], &["--json"]] {
            let ran = polyrpc(["call", &server.url(scheme), "S/Fail", "{}"].iter().chain(more));
            let is_unsafe = |c: char| c.is_control() && c != '\n';
            assert!(ran.code > 1 && !ran.stderr.contains(is_unsafe), "{scheme} {more:?}: {ran:?}");
            assert!(ran.stderr.contains("\\u001b]0;title\\u0007\\u009b1m"), "{scheme} {more:?}: {ran:?}");
        }
    }
}

#[test]
fn declared_text_of_rest_rpc_comes_back_as_text() {
    let server = Server::serve([]);
    for text in ["\"\"", "\"123\"", "\"a\\u0000b\"", "\"null\""] {
        let ran = polyrpc(["call", &server.url("rest-rpc"), "echo", text, "--types", "string -> string"]);
        assert_eq!((ran.stdout.trim_end(), ran.code), (text, 0), "{ran:?}");
    }
}

#[test]
fn failure_of_rest_rpc_names_the_function() {
    let server = Server::serve([]);
    for scheme in ["rest-rpc", "rest-rpc?version=0.20"] {
        let ran = polyrpc(["call", &server.url(scheme), "ad", "[1,2]"]);
        assert!(ran.code > 64 && ran.stderr.contains("`ad`"), "{scheme}: {ran:?}");
    }
    let ran = polyrpc(["call", &server.url("rest-rpc"), "Arith/Mul", r#"{"A":7,"B":8}"#]);
    assert!(ran.code == 1 && ran.stderr.contains("?version=0.20"), "{ran:?}");
    let ran = polyrpc(["call", &server.url("rest-rpc?version=0.20"), "Arith/Mul", r#"{"A":7,"B":8}"#]);
    assert_eq!(ran.json()["C"], 56, "{ran:?}");
}

#[test]
fn message_above_the_usual_limit_is_named_as_the_cause() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    let file = dir.path().join("large.json");
    fs::write(&file, format!("\"{}\"", "x".repeat(70 << 20))).unwrap();
    let ran = polyrpc(["call", &server.url("rpcx"), "echo", &format!("@{}", file.display())]);
    assert!(ran.code > 64 && ran.stderr.contains("bytes where 67108864 are allowed"), "{}", ran.stderr);
}

#[test]
fn name_that_occurs_twice_is_an_error_in_every_format() {
    let server = Server::serve([]);
    for scheme in ["rpcx", "http", "net-rpc", "grpc", "baidu-std", "http?dialect=json-rpc"] {
        let ran = polyrpc(["call", &server.url(scheme), "Arith/Mul", r#"{"A":1,"A":2,"B":3}"#]);
        assert!(ran.code == 1 && ran.stderr.contains("the name `A` occurs twice"), "{scheme}: {ran:?}");
    }
}

#[test]
fn reply_that_nothing_describes_is_shown_with_the_reason() {
    let server = Server::serve([]);
    // The server's reflection refuses this header.
    let call = ["call", &server.url("baidu-std"), "Arith/Mul", r#"{"A":7,"B":8}"#, "-H", "é: ü"];
    let ran = polyrpc(call);
    assert!(ran.code == 0 && ran.stderr.contains("hint: nothing describes the method (the query"), "{ran:?}");
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/arith.proto");
    assert_eq!(polyrpc(call.iter().chain(&["--proto", proto])).stderr, "");
}

#[test]
fn messages_are_compressed_if_asked() {
    let server =
        Local::serve(polyrpc::Server::new().service(EchoServiceServer::new(crate::local::Echo)).reflection());
    for (scheme, compression) in [
        ("baidu-std", "gzip"),
        ("baidu-std", "zlib"),
        ("baidu-std", "snappy"),
        ("rpcx", "gzip"),
        ("http", "gzip"),
    ] {
        let long = format!(r#"{{"message":"{compression} {}"}}"#, "abcdefgh".repeat(1000));
        let ran = polyrpc(["call", &server.url(scheme), ECHO, &long, "--compress", compression]);
        assert_eq!(ran.json().to_string(), long, "{scheme} {compression}");
    }
}

#[test]
fn message_is_read_from_standard_input_as_in_grpcurl() {
    let server = Server::serve([]);
    for name in ["@", "@-", "-"] {
        let ran =
            crate::running::polyrpc_with_input(["call", &server.url("rpcx"), "add", "-d", name], "[1,2]");
        assert_eq!(ran.stdout, "3\n", "{name}: {ran:?}");
    }
}

#[test]
fn message_is_read_from_a_file_and_a_oneway_call_returns() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    let file = dir.path().join("request.json");
    fs::write(&file, r#"{"A": 7, "B": 8}"#).unwrap();
    let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Mul", &format!("@{}", file.display())]);
    assert_eq!(ran.stdout, "{\n  \"C\": 56\n}\n", "{ran:?}");
    let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Mul", r#"{"A":7,"B":8}"#, "--oneway"]);
    assert_eq!((ran.stdout.as_str(), ran.code), ("", 0), "{ran:?}");
}

#[test]
fn failed_call_prints_the_cause_and_exits_with_its_code() {
    let server = Server::serve([]);
    let fails = |scheme: &str, target: &str, message: &str, stderr: &str, code: i32| {
        let ran = polyrpc(["call", &server.url(scheme), target, message]);
        let first = ran.stderr.split_inclusive('\n').next().unwrap_or_default();
        assert_eq!((first, ran.stdout.as_str(), ran.code), (stderr, "", code), "{scheme} {target}");
    };
    let args = r#"{"A":7,"B":0}"#;
    fails("rpcx", "Arith/Error", args, "error: unknown: boom\n", 66);
    fails("rpcx", "Arith/Div", args, "error: unknown: divide by zero\n", 66);
    fails("rpcx", "Arith/Nope", args, "error: unimplemented: rpcx: can't find method Nope\n", 76);
    fails("rpcx", "Nope/Mul", args, "error: unimplemented: rpcx: can't find service Nope\n", 76);
    let address = server.address();
    let text = format!("error: invalid argument (1003): [{address}][E1003]divide by zero\n");
    fails("baidu-std", "Arith/Div", args, &text, 67);
    let text = format!("error: unimplemented (1002): [{address}][E1002]Fail to find method=Arith/Nope\n");
    fails("baidu-std", "Arith/Nope", "{}", "error: there is no method `Nope` in Arith\n", 1);
    let ran = polyrpc(["call", &server.url("baidu-std"), "Arith/Nope", "{}", "--no-reflection"]);
    assert_eq!(ran.stderr.lines().next(), Some(text.trim_end()), "{ran:?}");
    let text = "error: unimplemented (1002): Fail to find method on `/Arith/Nope'\n";
    fails("http", "Arith/Nope", "{}", text, 76);
    fails(
        "http?dialect=json-rpc",
        "Arith/Nope",
        "{}",
        "error: unimplemented: rpcx: can't find method Nope\n",
        76,
    );
}

#[test]
fn custom_error_number_is_printed() {
    let server = failing();
    let ran = polyrpc(["call", &server.url("baidu-std"), ECHO, r#"{"message":"fail-code"}"#]);
    let address = server.address();
    assert_eq!(ran.stderr, format!("error: unknown (54321): [{address}][E54321]custom error\n"));
    assert_eq!(ran.code, 66);
}

#[test]
fn server_survives_a_panic_if_stderr_is_closed() {
    let server = Server::serve_without_reader([]);
    for _ in 0..2 {
        let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Panic", r#"{"A":7,"B":8}"#]);
        assert!(ran.stderr.contains("[service internal error]"), "{ran:?}");
        let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Mul", r#"{"A":7,"B":8}"#]);
        assert_eq!(ran.json(), serde_json::json!({"C": 56}));
    }
    assert!(server.stop().success());
}

#[cfg(target_os = "linux")]
#[test]
fn no_call_fails_if_the_log_is_on_a_full_disk() {
    let server = Server::serve_on_full_disk(["--log", "trace"]);
    for _ in 0..20 {
        let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Mul", r#"{"A":7,"B":8}"#]);
        assert_eq!(ran.json(), serde_json::json!({"C": 56}), "{ran:?}");
        let ran = polyrpc(["call", &server.url("rpcx"), "Arith/Panic", r#"{"A":7,"B":8}"#]);
        assert!(ran.stderr.contains("[service internal error]"), "{ran:?}");
    }
    assert!(server.stop().success());
}

#[test]
fn command_exits_quietly_if_stdout_is_closed() {
    let server = Server::serve([]);
    let url = server.url("rpcx");
    for arguments in [
        &["call", &url, "Arith/Meta", r#"{"A":7,"B":8}"#, "-v", "-H", "k1=v1"][..],
        &["bench", &url, "Arith/Mul", r#"{"A":7,"B":8}"#, "-n", "10", "-c", "1"],
        &["call", &url, "Arith/Nope", "{}"],
        &["list", &server.url("grpc")],
        &["completions", "bash"],
        &["man"],
        &["call", "--help"],
        &["demo"],
    ] {
        let status = crate::running::run_without_reader(arguments);
        // A panic exits with 101, an abort without a code.
        assert!(matches!(status.code(), Some(0 | 1 | 76)), "{arguments:?}: {status}");
    }
}

#[test]
fn invalid_message_is_rejected_before_it_is_sent() {
    let nowhere = "baidu-std://127.0.0.1:1";
    let fails = |arguments: &[&str], stderr: &str| {
        let ran = polyrpc(["call"].iter().chain(arguments));
        assert_eq!((ran.stderr.as_str(), ran.code), (stderr, 1), "{arguments:?}");
    };
    fails(
        &["ftp://h:1", "x"],
        "error: invalid argument: invalid URL `ftp://h:1`: unknown protocol `ftp`: expected baidu-std, rpcx, fb-rpc, grpc, grpc-web, connect, http, rest-rpc, net-rpc\n",
    );
    fails(
        &["rpcx+kcp://h:1", "x"],
        "error: invalid argument: invalid URL `rpcx+kcp://h:1`: `+kcp` is neither `+tls` nor a registry: expected consul, dlist, dns, etcd, file, kubernetes, list, mdns, nacos, redis, remotefile or zookeeper\n",
    );
    fails(
        &["rpcx://h:1", "echo", "hello"],
        "error: the argument is not JSON: line 1, column 1: expected value\nhint: a string needs quotes in JSON: '\"hello\"'\n",
    );
    fails(
        &[nowhere, "Unknown/Method", r#"{"a":1}"#, "--format", "protobuf"],
        "error: nothing describes the method's messages in protobuf\n\
         hint: name its .proto with --proto FILE or --descriptor-set FILE, or send another --format\n",
    );
    fails(&[nowhere, "a.B/C", "--proto", "no.proto"], "error: there is no file no.proto\n");
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/example.proto");
    let text = format!("error: there is no service `a.B` in {proto}\nhint: it has example.EchoService\n");
    fails(&[nowhere, "a.B/C", "--proto", proto], &text);
    fails(
        &[nowhere, "example.EchoService/Nope", "--proto", proto],
        "error: there is no method `Nope` in example.EchoService\nhint: it has Echo\n",
    );
}

#[test]
fn refused_connection_prints_a_hint() {
    let address = crate::running::free_address();
    for scheme in SCHEMES {
        let ran = polyrpc(["call", &crate::running::url_of(scheme, &address), ECHO, r#"{"message":"hi"}"#]);
        let text = format!(
            "error: unavailable: cannot connect to {address}: Connection refused (os error 111)\n\
             hint: nothing listens there; `polyrpc serve --listen {address}` would\n"
        );
        assert_eq!((ran.stderr, ran.code), (text, 78), "{scheme}");
    }
    let several = format!("rpcx+list://{address},{}", crate::running::free_address());
    let ran = polyrpc(["call", &several, ECHO, "{}"]);
    assert!(ran.stderr.contains("Connection refused") && !ran.stderr.contains("hint:"), "{}", ran.stderr);
}

#[test]
fn listener_with_an_authenticator_accepts_only_its_credential() {
    let only_accepting = |credential: &'static [u8], rejection: &'static str| {
        Local::listen(services::server(), move |listen| {
            listen.authenticate(move |sent, _| match sent == Some(credential) {
                true => Ok(()),
                false => Err(Status::unauthenticated(rejection)),
            })
        })
    };
    let call =
        |url: String, token: &str| polyrpc(["call", &url, ECHO, r#"{"message":"hi"}"#, "--auth", token]);

    // Without a custom text, each protocol uses its default one.
    let server = only_accepting(b"secret-token", "");
    for scheme in SCHEMES {
        let ran = call(server.url(scheme), "secret-token");
        assert_eq!(ran.json()["message"], "hi", "{scheme}");
        let ran = call(server.url(scheme), "wrong");
        assert!(ran.code > 64, "{scheme}: {ran:?}");
    }
    let ran = call(server.url("baidu-std"), "wrong");
    assert_eq!(ran.stderr, "error: unauthenticated (1004): Fail to authenticate\n");
    let server = only_accepting(b"bearer tGzv3JOkF0XG5Qx2TlKWIA", "invalid token");
    let ran = call(server.url("rpcx"), "bearer tGzv3JOkF0XG5Qx2TlKWIA");
    assert_eq!(ran.json()["message"], "hi");
    let ran = call(server.url("rpcx"), "bearer wrong");
    assert!(ran.stderr.contains("invalid token") && ran.code > 64, "{ran:?}");
}

#[test]
fn serve_restricts_protocols_and_listens_on_unix_sockets() {
    let dir = TempDir::new();
    let socket = dir.path().join("socket").display().to_string();
    let server = Server::start(
        [
            "serve",
            "--cores",
            "1",
            "--protocols",
            "rpcx",
            "--listen",
            "127.0.0.1:0",
            "--listen",
            &format!("unix:{socket}"),
        ],
        "ready",
    );
    let call = |url: &str| polyrpc(["call", url, "add", "[1,2]"]);
    assert_eq!(call(&server.url("rpcx")).stdout, "3\n");
    assert_eq!(call(&format!("rpcx://{socket}")).stdout, "3\n");
    assert_eq!(call(&server.url("baidu-std")).code, 78);
    assert!(server.stop().success());
    let ran = polyrpc(["serve", "--protocols", "corba"]);
    assert!(
        ran.stderr.contains(
            "there is no protocol `corba`; there are baidu_std, rpcx, fb_rpc, grpc, http, rest_rpc, net_rpc"
        ),
        "{ran:?}"
    );
}

#[test]
fn bench_measures_every_protocol_and_writes_json() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    let file = dir.path().join("figures.json").display().to_string();
    for scheme in SCHEMES {
        let url = server.url(scheme);
        let load = ["--duration", "200ms", "--warmup", "50ms", "--size", "100", "--callers", "2"];
        let measure = |_| {
            let ran = polyrpc(["bench", &url, ECHO, "--json", &file].iter().chain(&load));
            assert_eq!(ran.stderr, "", "{scheme}: {ran:?}");
            let figures: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            let calls = figures["counts"]["succeeded"].as_f64().unwrap();
            // In a closed loop the latencies add up to the time of all callers.
            let mean = figures["latency"]["response"]["mean_ns"].as_f64().unwrap_or_default();
            (ran, figures, calls, mean * calls / 1e9)
        };
        // A stall of the machine at an end of the window lasts longer than the window, or has no call within it.
        let is_undisturbed = |calls: f64, calling: f64| calls > 10.0 && (0.3..0.6).contains(&calling);
        let measured = (0..20).map(measure).find(|(.., calls, calling)| is_undisturbed(*calls, *calling));
        let (ran, figures, ..) = measured.unwrap_or_else(|| {
            panic!("{scheme}: the calls never took 0.4 s: {}", fs::read_to_string(&file).unwrap())
        });
        assert_eq!(ran.code, 0, "{scheme}: {ran:?}");
        for word in ["calls/s", "p50", "CPU/call", "machine", "polyrpc bench", "█"] {
            assert!(ran.stdout.contains(word), "no {word} in\n{}", ran.stdout);
        }
        assert_eq!(figures["counts"]["failed"], 0, "{figures}");
        assert_eq!(
            (&figures["schema"], &figures["errors"]),
            (&"polyrpc.bench/1".into(), &Value::Null),
            "{scheme}"
        );
        assert_eq!(figures["load"]["callers"], 2);
        assert_eq!(figures["resources"]["server"]["pid"], server.id());
        let response = &figures["latency"]["response"];
        let at = |name: &str| response[name].as_f64().unwrap();
        assert!(
            1e3 < at("min_ns") && at("min_ns") <= at("mean_ns") && at("mean_ns") <= at("max_ns"),
            "{figures}"
        );
    }
}

#[test]
fn bench_makes_exactly_the_requested_number_of_calls() {
    let server = Server::serve([]);
    let greet = ["bench", &server.url("grpc"), "helloworld.Greeter/SayHello", r#"{"name":"Joe"}"#];
    let counted = ["-n", "2003", "-c", "10", "--connections", "5", "--warmup", "50ms"];
    let ran = polyrpc(greet.iter().chain(&counted));
    assert!(ran.stdout.contains("(2,003 calls)"), "{ran:?}");
    assert!(ran.stdout.contains("50 % in ") && ran.stdout.ends_with("[ok] 2,003\n"), "{ran:?}");
    let ran = polyrpc(greet.iter().chain(&["-n", "3", "-c", "4"]));
    assert_eq!(ran.stderr, "error: there are fewer calls than the 4 callers\n");
}

#[test]
fn bench_supports_every_connection_mode() {
    let server = Server::serve([]);
    let url = server.url("rpcx");
    for (more, clients) in [
        (&["--callers", "4", "--connections", "2"][..], "2 connections, 4 callers"),
        (&["--callers", "3", "--connection-mode", "pooled"], "3 connections, 3 callers"),
        (&["--connection-mode", "short"], "a connection for each call, 1 caller"),
        (&["--blocking", "--callers", "2"], "2 connections, 2 blocking callers"),
    ] {
        let more: Vec<_> = ["--size", "10", "--json", "-"].iter().chain(more).copied().collect();
        let figures = bench(&url, &more).json();
        assert_eq!(figures["load"]["description"], format!("unary, {clients}"));
        assert!(figures["counts"]["succeeded"].as_u64().unwrap() > 0, "{figures}");
    }
    let ran = bench(&url, &["--size", "10", "--connections", "2", "--connection-mode", "pooled"]);
    assert_eq!(
        ran.stderr,
        "error: --connections is for calls that share connections; here every caller has its own\n\
         hint: set the number with --callers\n"
    );
}

#[test]
fn bench_counts_failed_calls() {
    let server = failing();
    let ran = bench(&server.url("baidu-std"), &[r#"{"message":"fail-code"}"#, "--json", "-"]);
    let figures = ran.json_of_failure();
    assert_eq!((&figures["counts"]["succeeded"], ran.code), (&0.into(), 1));
    assert_eq!(figures["errors"][0]["error"], "unknown (54321)");
    assert_eq!(figures["errors"][0]["count"], figures["counts"]["failed"]);
    let ran = bench(&server.url("baidu-std"), &[r#"{"message":"fail-code"}"#]);
    assert!(ran.stdout.contains(", for example: ") && ran.stdout.contains("custom error"), "{ran:?}");

    let ran = polyrpc(["bench", &format!("rpcx://{}", crate::running::free_address()), "add", "[1,2]"]);
    assert!(ran.stderr.starts_with("error: unavailable: cannot connect to"), "{ran:?}");
    assert_eq!(ran.code, 1);
}

#[test]
fn generate_writes_the_checked_in_files() {
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/src/proto");
    let dir = TempDir::new();
    let fresh = dir.path().display().to_string();
    let files = ["example.proto", "arith.proto", "helloworld.proto", "benchmark.proto"];
    let generate = |out: &str, more: &[&str]| {
        polyrpc(["generate", "-I", proto, "--out", out].iter().chain(&files).chain(more))
    };
    assert_eq!(generate(ours, &["--check"]).code, 0);
    let ran = generate(&fresh, &["--check"]);
    assert_eq!((ran.stdout.lines().count(), ran.code), (5, 1), "{ran:?}");
    let ran = generate(&fresh, &[]);
    assert_eq!((ran.stdout.lines().count(), ran.code), (5, 0), "{ran:?}");
    let text = |dir: &str| fs::read_to_string(format!("{dir}/example.rs")).unwrap();
    assert_eq!(text(&fresh), text(ours));
}

/// A server whose `Echo` fails with a number of its own if the request says so.
fn failing() -> Local {
    Local::serve(polyrpc::Server::new().service(EchoServiceServer::new(crate::local::Echo)).reflection())
}

/// Measures some calls: in a short time there might be none on a busy machine.
fn bench(url: &str, more: &[&str]) -> Ran {
    let arguments = ["bench", url, ECHO, "-n", "300", "--warmup", "50ms"];
    polyrpc(arguments.iter().chain(more))
}

const ECHO: &str = "example.EchoService/Echo";
const SCHEMES: [&str; 5] = ["baidu-std", "rpcx", "http", "http?dialect=json-rpc", "grpc"];

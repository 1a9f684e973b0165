//! Runs every example as a user does, and checks its output.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polyrpc::Format;
use polyrpc::blocking;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;

#[test]
fn hello_function() {
    let output = run(env!("CARGO_BIN_EXE_hello_function"), &[]);
    for protocol in ["baidu-std", "rpcx", "grpc", "http"] {
        assert!(output.contains(&format!("{protocol}: hello, 1 + 2 = 3\n")), "{output}");
    }
    assert!(output.ends_with("1 / 0: division by zero\n"), "{output}");
}

#[test]
fn arith() {
    let server = Served::start(env!("CARGO_BIN_EXE_arith_server"));
    for (protocol, parameters) in
        [("baidu-std", ""), ("rpcx", ""), ("http", ""), ("http", "?dialect=json-rpc")]
    {
        let url = format!("{protocol}://{}{parameters}", server.address);
        let output = run(env!("CARGO_BIN_EXE_arith_client"), &[&url]);
        assert!(output.starts_with("7 * 8 = 56\n56 / 8 = 7\n1 / 0: "), "{output}");
        assert!(output.ends_with("divide by zero\n"), "{output}");
    }
}

#[test]
fn echo_proto() {
    let output = run(env!("CARGO_BIN_EXE_echo_proto"), &[]);
    assert_eq!(output, "baidu_std: hello\nattachment: bytes beside it\nHTTP and JSON: 你好\n");
}

#[test]
fn messages() {
    let output = run(env!("CARGO_BIN_EXE_messages"), &[]);
    assert_eq!(output, include_str!("../messages/output.txt"));
}

#[test]
fn flatbuffers() {
    let output = run(env!("CARGO_BIN_EXE_flatbuffers"), &[]);
    assert_eq!(
        output,
        "fb-rpc: 4: hello\nfb-rpc?version=brpc-two-dots: 4: hello\ngrpc: 4: hello\nattachment: bytes beside it\n"
    );
}

#[test]
fn recorded_server() {
    let output = run(env!("CARGO_BIN_EXE_recorded_server"), &[]);
    assert_eq!(output, "refused: true\nthe password is in the recording: false\nrecorded calls: 1\n");
}

#[test]
fn blocking_client() {
    let output = run(env!("CARGO_BIN_EXE_blocking_client"), &[]);
    assert_eq!(output, "1 + 2 = 3\n0 + 0 = 0\n1 + 1 = 2\n2 + 2 = 4\n3 + 3 = 6\n");
}

#[test]
fn rpcx_codec() {
    let output = run(env!("CARGO_BIN_EXE_rpcx_codec"), &[]);
    assert_eq!(output, "Other(7), SnappyFrames\n2800 bytes\nJson(Brpc), None\njson json \n");
}

#[test]
fn custom_protocol() {
    let output = run(env!("CARGO_BIN_EXE_custom_protocol"), &[]);
    assert_eq!(output, "lines: 1 + 2 = 3\ninvalid argument: 3 is odd\nrpcx: 1 + 2 = 3\n");
}

#[test]
fn errors_and_layers() {
    let output = run(env!("CARGO_BIN_EXE_errors_and_layers"), &[]);
    let lines = [
        "ann is 34",
        "joe: no user joe",
        "bob: internal error",
        "other tenant: who are you?",
        "nobody: Some(ConnectionRefused)",
    ];
    assert_eq!(output.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn several_servers() {
    let output = run(env!("CARGO_BIN_EXE_several_servers"), &[]);
    // A server gets none of thirty random calls in one of 60,000 runs.
    assert!(output.starts_with("random: 3 of 3 servers"), "{output}");
    assert!(output.contains("in turn: {\"first\": 10, \"second\": 10, \"third\": 10}\n"), "{output}");
    assert!(output.ends_with("after the first has died: 30 calls were answered\n"), "{output}");
}

#[test]
fn many_at_once() {
    let output = run(env!("CARGO_BIN_EXE_many_at_once"), &[]);
    assert_eq!(
        output,
        "all have reloaded\na word with c: cat\nwords of each: [1, 1, 2]\nwords of all: 4\n\
         one of [\"near\", \"far\"] has reloaded\n"
    );
}

#[test]
fn registry() {
    let output = run(env!("CARGO_BIN_EXE_registry"), &[]);
    assert_eq!(output, "7 * 8 = 56\nfound: weight 5\n");
}

#[test]
fn authorization() {
    let output = run(env!("CARGO_BIN_EXE_authorization"), &[]);
    for protocol in ["rpcx", "baidu-std", "grpc", "http"] {
        let want = format!("{protocol}: 56, by its alias 56; rejected without a token: true\n");
        assert!(output.contains(&want), "{output}");
    }
}

#[test]
fn net_rpc() {
    let output = run(env!("CARGO_BIN_EXE_net_rpc"), &[]);
    for scheme in ["net-rpc", "net-rpc?transport=http-connect", "net-rpc?codec=json"] {
        let want =
            format!("{scheme}\nArith: 7*8=56\nArith: 17/8=2 and 1 left\narith error: divide by zero\n");
        assert!(output.contains(&want), "{output}");
    }
}

#[test]
fn grpc_streaming() {
    let output = run(env!("CARGO_BIN_EXE_grpc_streaming"), &[]);
    let want = "counted 1\ncounted 2\ncounted 3\nsum 5050\nsquare Some(9)\nsquare Some(16)\n";
    assert_eq!(output, want);
}

#[test]
fn forward_everything() {
    let output = run(env!("CARGO_BIN_EXE_forward_everything"), &[]);
    for protocol in ["baidu-std", "rpcx", "grpc", "http", "rest-rpc", "net-rpc"] {
        assert!(output.contains(&format!("{protocol}: 3\n")), "{output}");
    }
    assert!(output.ends_with("grpc, a stream: 2\ngrpc, a stream: 4\ngrpc, a stream: 6\n"), "{output}");
}

#[test]
fn rpc_in_axum() {
    let output = run(env!("CARGO_BIN_EXE_rpc_in_axum"), &[]);
    assert_eq!(output, "grpc: hello, joe\nhttp: hello, joe\n");
}

#[test]
fn axum_on_the_port() {
    let output = run(env!("CARGO_BIN_EXE_axum_on_the_port"), &[]);
    let calls = ["baidu-std", "rpcx", "http", "rest-rpc"].map(|protocol| format!("{protocol}: hello, joe\n"));
    assert_eq!(output, calls.concat() + "GET /: a page of axum\n");
}

#[test]
fn brpc_streaming() {
    let output = run(env!("CARGO_BIN_EXE_brpc_streaming"), &[]);
    assert_eq!(output, "hello to you\nyou said one\nyou said two\n");
}

#[test]
fn rest_rpc() {
    let output = run(env!("CARGO_BIN_EXE_rest_rpc"), &[]);
    let each = "1 + 2 = 3, Person { id: 1, name: \"tom\", age: 21 }\n1 / 0: division by zero\nnews: rest_rpc in Rust\n";
    assert_eq!(output, each.repeat(3));
}

/// The heavy calls would take minutes each.
#[test]
fn greeter() {
    let server = Served::start_with(env!("CARGO_BIN_EXE_greeter"), &["--heavy", "100000000000"]);
    let client = blocking::Client::new(&format!("grpc://{}", server.address)).unwrap();
    let _heavy: Vec<_> = (0..4).map(|_| begin(&server.address, "SayHello")).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        let reply =
            client.call_raw("helloworld.Greeter/SayHelloAgain", joe(), CallOptions::default()).unwrap();
        assert_eq!(&reply.message.bytes[..], b"\n\x09Hello Joe");
    }
}

/// A call in the background.
fn begin(address: &str, method: &str) -> std::thread::JoinHandle<()> {
    let (url, target) = (format!("grpc://{address}"), format!("helloworld.Greeter/{method}"));
    std::thread::spawn(move || {
        let client = blocking::Client::new(&url).unwrap();
        // It fails when the server is killed.
        let _ = client.call_raw(&target, joe(), CallOptions::default());
    })
}

fn joe() -> Body {
    Body::new(Format::Protobuf, &b"\n\x03Joe"[..])
}

#[test]
fn http_annotations() {
    let output = run(env!("CARGO_BIN_EXE_http_annotations"), &[]);
    let want = [
        r#"HTTP/1.1 200 OK: {"name":"books/1","title":"Snow Country","pages":312}"#,
        r#"HTTP/1.1 200 OK: {"name":"books/2","title":"Kokoro"}"#,
        r#"HTTP/1.1 404 Not Found: {"code":5,"message":"there is no books/9","details":[]}"#,
        "gRPC: Snow Country\n",
    ];
    assert_eq!(output, want.join("\n"));
}

#[test]
fn rpcx_push() {
    let output = run(env!("CARGO_BIN_EXE_rpcx_push"), &[]);
    assert_eq!(output, "News/weather 1: news 1\nNews/weather 2: news 2\nNews/weather 3: news 3\n");
}

#[test]
fn rpcx_transfer() {
    let output = run(env!("CARGO_BIN_EXE_rpcx_transfer"), &[]);
    let want = "Ann wants its lines measured\nthey have 3 and 5\nkept a.txt, 11 bytes\nfetched: the content\n\
                b.txt: unknown: no such file\n";
    assert_eq!(output, want);
}

#[test]
fn tls() {
    let output = run(env!("CARGO_BIN_EXE_tls"), &[]);
    let known = ["baidu-std+tls", "rpcx+tls", "grpcs", "https"];
    let mut want: Vec<_> = known.map(|url| format!("{url}: the door knows ann.example\n")).into();
    want.push("rpcx: the door knows an anonymous caller\n".to_owned());
    assert_eq!(output, want.concat());
}

#[test]
fn tools_for_agents() {
    let output = run(env!("CARGO_BIN_EXE_tools_for_agents"), &[]);
    assert_eq!(output, "Shop/Price is a tool: Shop_Price\n");
}

#[test]
fn console() {
    let output = run(env!("CARGO_BIN_EXE_console"), &[]);
    for part in [
        "there may be 100 orders\n",
        "add (int64, int64) returns (int64)\ncount: 4\n",
        "orders : 1\npayment_count : 1\n",
        "orders_limit (R) | 100 | Maximum number of orders that are open | examples/console.rs\n",
    ] {
        assert!(output.contains(part), "no {part} in\n{output}");
    }
}

#[test]
fn graceful_shutdown() {
    let output = run(env!("CARGO_BIN_EXE_graceful_shutdown"), &[]);
    let want = "stopped\nthe call that was accepted: done\na call that came too late: unavailable\n";
    assert_eq!(output, want);
}

#[test]
fn thread_per_core() {
    let output = run(env!("CARGO_BIN_EXE_thread_per_core"), &[]);
    assert_eq!(output, "connections were served by {\"polyrpc-0\", \"polyrpc-1\"}\n");
}

#[test]
fn mock_in_tests() {
    assert_eq!(run(env!("CARGO_BIN_EXE_mock_in_tests"), &[]), "你好，Li\n");
}

/// Runs a program to its end; returns its output.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the program prints text")
}

/// A server program; killed when dropped.
struct Served {
    process: Child,
    address: String,
}

impl Served {
    fn start(program: &str) -> Self {
        Self::start_with(program, &[])
    }

    fn start_with(program: &str, arguments: &[&str]) -> Self {
        let process = Command::new(program).arg("127.0.0.1:0").args(arguments).stdout(Stdio::piped()).spawn();
        let mut served = Self { process: process.expect("the program starts"), address: String::new() };
        let stdout = served.process.stdout.as_mut().expect("its output is a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the program prints text");
        let address = line.trim_end().strip_prefix("listening on ").expect("the program prints its address");
        served.address = address.to_owned();
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! Tests of `polyrpc dump`: real calls of every protocol, whose bytes are written as packets of a pcap file.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::running::{Server, TempDir, polyrpc, until_the_timeout, url_of};

/// Passes connections on to a server, and notes what passes.
struct Relay {
    address: String,
    /// Number of the connection, its side (0: the client), and the bytes.
    passed: Arc<Mutex<Vec<(u16, usize, Vec<u8>)>>>,
}

impl Relay {
    fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let passed = Arc::<Mutex<Vec<_>>>::default();
        let (server, noted) = (server.to_owned(), passed.clone());
        thread::spawn(move || {
            for (number, client) in (1..).zip(listener.incoming()) {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for (side, (from, to)) in [(client, server), back].into_iter().enumerate() {
                    let noted = noted.clone();
                    thread::spawn(move || {
                        pass(from, to, |bytes| noted.lock().unwrap().push((number, side, bytes)))
                    });
                }
            }
        });
        Self { address, passed }
    }

    /// A pcap file of Ethernet frames, in the order in which the bytes passed.
    fn pcap(&self) -> Vec<u8> {
        let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 16, 1].map(u32::to_le_bytes).concat();
        let mut sequences = std::collections::HashMap::new();
        let mut second = 1_700_000_000_u32;
        for (number, side, bytes) in &*self.passed.lock().unwrap() {
            for chunk in bytes.chunks(1400) {
                let sequence = sequences.entry((*number, *side)).or_insert(1_u32);
                let frame = frame(*number, *side, *sequence, chunk);
                *sequence += chunk.len() as u32;
                second += 1;
                let length = frame.len() as u32;
                file.extend([second, 0, length, length].map(u32::to_le_bytes).concat());
                file.extend(frame);
            }
        }
        file
    }
}

/// Notes bytes before the other end can answer them.
fn pass(mut from: TcpStream, mut to: TcpStream, note: impl Fn(Vec<u8>)) {
    let mut buffer = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        note(buffer[..length].to_vec());
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn frame(connection: u16, side: usize, sequence: u32, content: &[u8]) -> Vec<u8> {
    let mut ports = [40_000 + connection, 8002];
    if side == 1 {
        ports.reverse();
    }
    let length = (40 + content.len()) as u16;
    let mut frame =
        [&[0; 12][..], &[8, 0], &[0x45, 0], &length.to_be_bytes(), &[0, 0, 0x40, 0, 64, 6, 0, 0]].concat();
    frame.extend([127, 0, 0, 1].repeat(2));
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
    frame.extend(content);
    frame
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn calls_of_every_protocol_are_found_in_packets_and_replayed() {
    let folder = TempDir::new();
    let server = Server::serve([]);
    let relay = Relay::start(server.address());
    let greeter = ["helloworld.Greeter/SayHello", r#"{"name":"Ann"}"#];
    let echo = ["example.EchoService/Echo", r#"{"message":"hi"}"#];
    let arith = ["Arith/Mul", r#"{"A":7,"B":8}"#];
    let benchmark = concat!(env!("CARGO_MANIFEST_DIR"), "/fbs/benchmark.fbs");
    for (scheme, [target, argument], code) in [
        ("baidu-std", echo, 0),
        ("rpcx", arith, 0),
        ("rpcx", ["Arith/Div", r#"{"A":1,"B":0}"#], 66),
        ("grpc", greeter, 0),
        ("grpc-web", greeter, 0),
        ("connect", greeter, 0),
        ("http", greeter, 0),
        ("net-rpc", arith, 0),
        ("rest-rpc?version=0.20", ["add", "[1,2]"], 0),
        ("rest-rpc?version=0.21", ["echo", r#""hello""#], 0),
        ("fb-rpc", ["test.BenchmarkService/Test", r#"{"opcode":1,"request_id":2,"message":"hi"}"#], 0),
    ] {
        let schema = if scheme == "fb-rpc" { &["--schema", benchmark][..] } else { &[] };
        let url = url_of(scheme, &relay.address);
        let ran = polyrpc(["call", &url, target, argument].iter().chain(schema));
        assert_eq!(ran.code, code, "{scheme} {target}: {ran:?}");
    }
    let (file, out) = (path(&folder, "calls.pcap"), path(&folder, "calls.rec"));
    fs::write(&file, relay.pcap()).unwrap();
    let proto = |name: &str| format!("{}/proto/{name}.proto", env!("CARGO_MANIFEST_DIR"));
    let (example, helloworld) = (proto("example"), proto("helloworld"));
    let dump = polyrpc(["dump", &file, "--json", "--out", &out, "--proto", &example, "--proto", &helloworld]);
    assert_eq!(dump.code, 0, "{dump:?}");
    let calls: Vec<Value> = dump.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let calls_of = |protocol: &str| -> Vec<&Value> {
        calls.iter().filter(|call| call["protocol"] == protocol).collect()
    };
    let found = |protocol: &str, method: &str| -> Vec<&Value> {
        calls_of(protocol).into_iter().filter(|call| call["method"] == method).collect()
    };
    for (protocol, method, count, request, response) in [
        ("baidu_std", echo[0], 1, json!({ "message": "hi" }), json!({ "message": "hi" })),
        ("rpcx", arith[0], 1, json!({ "A": 7, "B": 8 }), json!({ "C": 56 })),
        ("grpc", greeter[0], 1, json!({ "name": "Ann" }), json!({ "message": "Hello Ann" })),
        // gRPC-Web, Connect and JSON.
        ("http", greeter[0], 3, json!({ "name": "Ann" }), json!({ "message": "Hello Ann" })),
        ("net_rpc", arith[0], 1, json!({ "A": 7, "B": 8 }), json!({ "C": 56 })),
    ] {
        let found = found(protocol, method);
        assert_eq!(found.len(), count, "{protocol}: {dump:?}");
        for call in found {
            assert_eq!((&call["request"], &call["response"]), (&request, &response), "{call:#}");
            assert!(call["failure"].is_null() && call["took_ns"].as_u64() > Some(0), "{call:#}");
        }
    }
    // Callers of rest_rpc and fb_rpc send numbers, of which packets have no names.
    let [add, echo] = &calls_of("rest_rpc")[..] else { panic!("{dump:?}") };
    assert_eq!((&add["request"], &add["response"]), (&json!([1, 2]), &json!(3)), "{add:#}");
    let [benchmark] = &calls_of("fb_rpc")[..] else { panic!("{dump:?}") };
    for call in [add, echo, benchmark] {
        assert!(call["method"].as_str().unwrap().contains('#'), "{call:#}");
        assert!(call["failure"].is_null() && !call["response"].is_null(), "{call:#}");
    }
    let failed = found("rpcx", "Arith/Div");
    assert!(failed[0]["failure"]["message"].as_str().unwrap().contains("divide by zero"), "{failed:?}");
    // Another server gets the same calls, and answers alike.
    let other = Server::serve([]);
    let replay = polyrpc([
        "replay",
        &out,
        "--to",
        &other.url("rpcx"),
        "--method",
        "Arith/Mul",
        "--protocol",
        "rpcx",
        "--unsafe",
    ]);
    assert_eq!(replay.code, 0, "{replay:?}");
    let filtered = polyrpc(["dump", &file, "--failed"]);
    assert!(
        filtered.stdout.contains("divide by zero") && !filtered.stdout.contains("SayHello"),
        "{filtered:?}"
    );
}

#[test]
fn messages_of_a_stream_are_shown_with_their_times() {
    let folder = TempDir::new();
    let server = Server::serve([]);
    let relay = Relay::start(server.address());
    let url = format!("grpc://{}", relay.address);
    let watch = ["call", &url, "grpc.health.v1.Health/Watch", "{}", "--timeout"];
    let ran = until_the_timeout(|seconds| polyrpc(watch.iter().chain(&[seconds])));
    assert!(ran.stdout.contains("SERVING"), "{ran:?}");
    let file = path(&folder, "calls.pcap");
    fs::write(&file, relay.pcap()).unwrap();
    let dump = polyrpc(["dump", &file, "--method", "grpc.health.v1.Health/Watch"]);
    assert!(dump.code == 0 && dump.stdout.contains("grpc.health.v1.Health/Watch"), "{dump:?}");
    assert!(dump.stdout.lines().any(|line| line.starts_with("  < ")), "{dump:?}");
}

#[cfg(unix)]
#[test]
fn recording_is_complete_after_an_interrupt() {
    let folder = TempDir::new();
    let server = Server::serve([]);
    let relay = Relay::start(server.address());
    let url = format!("rpcx://{}", relay.address);
    assert_eq!(polyrpc(["call", &url, "Arith/Mul", r#"{"A":7,"B":8}"#]).code, 0);
    let out = path(&folder, "calls.rec");
    let mut dump = Command::new(env!("CARGO_BIN_EXE_polyrpc"))
        .args(["dump", "-", "--out", &out])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The next packet never comes, or only its beginning.
    let mut input = dump.stdin.take().unwrap();
    input.write_all(&relay.pcap()).unwrap();
    input.write_all(&[0; 5]).unwrap();
    let mut shown = String::new();
    let mut output = BufReader::new(dump.stdout.take().unwrap());
    output.read_line(&mut shown).unwrap();
    assert!(shown.contains("Arith/Mul"), "{shown}");
    let interrupted = Command::new("kill").args(["-INT", &dump.id().to_string()]).status().unwrap();
    assert!(interrupted.success() && dump.wait().unwrap().success());
    let list = polyrpc(["recording", "list", &out]);
    assert!(list.code == 0 && list.stdout.contains("Arith/Mul") && list.stderr.is_empty(), "{list:?}");
    drop(input);
}

#[test]
fn file_without_packets_is_refused_in_words() {
    let folder = TempDir::new();
    let file = path(&folder, "calls.pcap");
    fs::write(&file, "GET / HTTP/1.1\r\n\r\n").unwrap();
    let dump = polyrpc(["dump", &file]);
    assert!(dump.code == 1 && dump.stderr.contains("neither a pcap nor a pcapng file"), "{dump:?}");
}

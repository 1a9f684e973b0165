//! Tests of `polyrpc serve --record`, `recording`, `replay` and `dump`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::running::{Ran, Server, TempDir, polyrpc};
use polyrpc::blocking;
use serde_json::{Value, json};

/// A recording of some calls of the demo's services, over several protocols.
fn recorded(folder: &TempDir) -> String {
    let file = path(folder, "calls.rec");
    let server = Server::serve(["--record", &file]);
    for (scheme, target, argument, code) in [
        ("rpcx", "Arith/Mul", r#"{"A":7,"B":8}"#, 0),
        ("rpcx", "Arith/Div", r#"{"A":1,"B":0}"#, 66),
        ("grpc", "helloworld.Greeter/SayHello", r#"{"name":"Ann"}"#, 0),
        ("baidu-std", "example.EchoService/Echo", r#"{"message":"hi"}"#, 0),
        ("http", "helloworld.Greeter/SayHello", r#"{"name":"Bob"}"#, 0),
    ] {
        let ran = polyrpc(["call", &server.url(scheme), target, argument]);
        assert_eq!(ran.code, code, "{scheme} {target}: {ran:?}");
    }
    assert!(server.stop().success());
    file
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// The methods in the output of `recording list`, with their counts.
fn listed(ran: &Ran) -> Vec<(String, String)> {
    let lines = ran.stdout.lines().skip(1).map(str::split_whitespace);
    lines.map(|mut words| (words.next().unwrap().to_owned(), words.last().unwrap().to_owned())).collect()
}

#[test]
fn recorded_calls_are_listed_and_shown_with_their_messages() {
    let folder = TempDir::new();
    let file = recorded(&folder);
    let list = polyrpc(["recording", "list", &file]);
    assert_eq!(list.code, 0, "{list:?}");
    let methods = listed(&list);
    for (calls, method) in [("1", "Arith/Mul"), ("1", "example.EchoService/Echo"), ("1", "Arith/Div")] {
        assert!(methods.contains(&(calls.to_owned(), method.to_owned())), "{list:?}");
    }
    let show = polyrpc(["recording", "show", &file, "--json"]);
    let calls: Vec<Value> = show.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(calls.len(), 5, "{show:?}");
    let call = |method: &str| calls.iter().find(|call| call["method"] == method).unwrap();
    assert_eq!(call("Arith/Mul")["response"], json!({ "C": 56 }));
    assert_eq!(call("helloworld.Greeter/SayHello")["request"], json!({ "name": "Ann" }));
    assert_eq!(call("example.EchoService/Echo")["response"]["message"], "hi");
    assert!(call("Arith/Div")["failure"]["message"].as_str().unwrap().contains("divide by zero"));
    let failed = polyrpc(["recording", "show", &file, "--failed"]);
    assert!(failed.stdout.contains("Arith/Div") && !failed.stdout.contains("Arith/Mul"), "{failed:?}");
    let dotted = polyrpc(["recording", "show", &file, "--method", "Arith.Mul"]);
    assert!(dotted.code == 0 && dotted.stdout.contains("Arith/Mul"), "{dotted:?}");
    let none = polyrpc(["recording", "show", &file, "--method", "nope"]);
    assert!(none.code == 1 && none.stderr.contains("no call matches"), "{none:?}");
    let one = polyrpc(["recording", "show", &file, "--method", "*Greeter/*", "--limit", "1"]);
    assert!(one.stdout.contains(r#"> {"name":"Ann"}"#) && !one.stdout.contains("Bob"), "{one:?}");
}

#[test]
fn replay_to_the_same_service_over_any_protocol_finds_no_difference() {
    let folder = TempDir::new();
    let file = recorded(&folder);
    let server = Server::serve([]);
    let replayed = |scheme: &str, method: &str, more: &[&str]| {
        let url = server.url(scheme);
        let arguments = ["replay", &file, "--to", &url, "--method", method, "--unsafe"];
        polyrpc(arguments.iter().chain(more))
    };
    for (scheme, method, more) in [
        ("rpcx", "Arith/*", &["--max"][..]),
        ("rpcx", "*", &["--speed", "50"]),
        ("grpc", "*Greeter/SayHello", &["--rate", "100"]),
        ("baidu-std", "*Greeter/SayHello", &["--ordered", "--speed", "50"]),
        ("http", "*Greeter/SayHello", &["--max", "--json"]),
        ("net-rpc", "Arith/Mul", &["--max"]),
    ] {
        let ran = replayed(scheme, method, more);
        assert_eq!(ran.code, 0, "{scheme} {method}: {ran:?}");
    }
    let ran = replayed("rpcx", "Arith/*", &["--max", "--json"]);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&result["sent"], &result["compared"], &result["different"]),
        (&json!(2), &json!(2), &json!(0))
    );
    assert_eq!(result["failed"], 1);
}

#[test]
fn replay_names_the_field_that_differs() {
    let folder = TempDir::new();
    let file = recorded(&folder);
    // The rewrite of the service has a bug.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async {
        let server = polyrpc::Server::new().fallback(|mut call: polyrpc::fallback::RawRequest| async move {
            let _ = call.body().await?;
            // {"C": 57}
            Ok(polyrpc::fallback::RawResponse::message(&b"\x81\xa1C\x39"[..]))
        });
        server.bind("127.0.0.1:0").await.unwrap().start()
    });
    let url = format!("rpcx://{}", server.address());
    let replay = |more: &[&str]| {
        polyrpc(
            ["replay", &file, "--to", &url, "--method", "Arith/Mul", "--unsafe", "--max"].iter().chain(more),
        )
    };
    let ran = replay(&[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("1 × Arith/Mul C, as in: C: 56 became 57"), "{ran:?}");
    assert_eq!(replay(&["--ignore", "C"]).code, 0);
    assert_eq!(replay(&["--tolerance", "C=1"]).code, 0);
    assert_eq!(replay(&["--regex", "C=^5[0-9]$"]).code, 0);
    assert_eq!(replay(&["--no-compare"]).code, 0);
    assert_eq!(replay(&["--regex", "C=("]).code, 2);
}

#[test]
fn diff_of_recordings_names_fields_and_calls_of_one_side() {
    let folder = TempDir::new();
    let (left, right) = (path(&folder, "left.rec"), path(&folder, "right.rec"));
    for (file, names) in [(&left, &["Ann", "Bob"][..]), (&right, &["Ann", "Eve", "Ann"])] {
        let server = Server::serve(["--record", file]);
        for name in names {
            let argument = json!({ "name": name }).to_string();
            let ran = polyrpc(["call", &server.url("grpc"), "helloworld.Greeter/SayHello", &argument]);
            assert_eq!(ran.code, 0, "{ran:?}");
        }
        assert!(server.stop().success());
    }
    let ran = polyrpc(["diff", &left, &left]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "2 answers compared: 2 equal, 0 different\n"), "{ran:?}");
    let ran = polyrpc(["diff", &left, &right]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.starts_with("1 answer compared: 1 equal"), "{ran:?}");
    assert!(ran.stdout.contains("1 call only in") && ran.stdout.contains("2 calls only in"), "{ran:?}");
    assert_eq!(polyrpc(["diff", &left, &path(&folder, "missing.rec")]).code, 2);
    let ran = polyrpc(["diff", &left, &left, "--method", "nope"]);
    assert!(ran.code == 2 && ran.stderr.contains("nothing to compare"), "{ran:?}");
    for command in [&["diff", &left, &left][..], &["recording", "show", &left]] {
        let ran = polyrpc(command.iter().chain(&["--protocol", "nope"]));
        assert!(ran.code == 2 && ran.stderr.contains("there is no protocol `nope`"), "{ran:?}");
    }
}

#[test]
fn replay_that_cannot_be_made_exits_with_2() {
    let folder = TempDir::new();
    let file = recorded(&folder);
    let server = Server::serve([]);
    let url = server.url("rpcx");
    let ran = polyrpc(["replay", &file, "--to", &url]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("may have side effects: Arith/Div, Arith/Mul"), "{ran:?}");
    assert!(ran.stderr.contains("--safe"), "{ran:?}");
    let ran = polyrpc(["replay", &file, "--to", &url, "--method", "Nope/*", "--unsafe"]);
    assert!(ran.code == 2 && ran.stderr.contains("there is no call"), "{ran:?}");
    let ran = polyrpc(["replay", &path(&folder, "missing.rec"), "--to", &url]);
    assert_eq!(ran.code, 2, "{ran:?}");
    // FlatBuffers need a .fbs.
    let ran = polyrpc(["replay", &file, "--to", &server.url("fb-rpc"), "--method", "Arith/Mul", "--unsafe"]);
    assert!(ran.code == 2 && ran.stderr.contains("without a .fbs"), "{ran:?}");
}

#[test]
fn replay_stops_when_too_many_calls_fail() {
    let folder = TempDir::new();
    let file = recorded(&folder);
    let unused = format!("rpcx://{}", crate::running::free_address());
    let ran = polyrpc([
        "replay",
        &file,
        "--to",
        &unused,
        "--method",
        "Arith/Mul",
        "--unsafe",
        "--stop-failures",
        "1",
        "--max",
    ]);
    // There was no answer that could differ.
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stdout.contains("stopped: too many calls failed"), "{ran:?}");
}

#[test]
fn calls_that_the_protocol_cannot_carry_are_left_out_of_a_replay() {
    let folder = TempDir::new();
    let file = path(&folder, "calls.rec");
    let server = Server::serve(["--record", &file]);
    let of_function = ("rest-rpc?version=0.20", "add", "[1,2]");
    for (scheme, target, argument) in [of_function, ("rpcx", "Arith/Mul", r#"{"A":7,"B":8}"#)] {
        let ran = polyrpc(["call", &server.url(scheme), target, argument]);
        assert_eq!(ran.code, 0, "{scheme} {target}: {ran:?}");
    }
    assert!(server.stop().success());
    let server = Server::serve([]);
    let replay = ["replay", &file, "--to", &server.url("rpcx"), "--unsafe", "--max"];
    let ran = polyrpc(replay);
    assert!(ran.code == 0 && ran.stdout.contains("1 of 1 call sent"), "{ran:?}");
    assert!(ran.stdout.contains("left out of the recording: 1 call"), "{ran:?}");
    let reason = "add: msgpack-array cannot become msgpack";
    assert!(ran.stderr.contains(&format!("warning: 1 call left out: {reason}")), "{ran:?}");
    let ran = polyrpc(replay.iter().chain(&["--method", "add"]));
    assert!(ran.code == 2 && ran.stderr.contains(&format!("error: {reason}")), "{ran:?}");
}

#[test]
fn mock_answers_as_recorded_over_every_protocol() {
    let folder = TempDir::new();
    let file = recorded(&folder);
    let mock = Server::start(["replay", &file, "--serve", "--listen", "127.0.0.1:0"], "ready");
    let rpcx = polyrpc(["call", &mock.url("rpcx"), "Arith/Mul", r#"{"B":8,"A":7}"#]);
    assert_eq!((rpcx.code, rpcx.values()), (0, vec![json!({ "C": 56 })]), "{rpcx:?}");
    let http = polyrpc(["call", &mock.url("http"), "helloworld.Greeter/SayHello", r#"{"name":"Ann"}"#]);
    assert!(http.code == 0 && http.stdout.contains("Ann"), "{http:?}");
    let failed = polyrpc(["call", &mock.url("rpcx"), "Arith/Div", r#"{"A":1,"B":0}"#]);
    assert!(failed.stderr.contains("divide by zero"), "{failed:?}");
    let unknown = polyrpc(["call", &mock.url("rpcx"), "Arith/Mul", r#"{"A":7,"B":9}"#]);
    assert!(unknown.stderr.contains("no recorded call of Arith/Mul has this request"), "{unknown:?}");
    // Options of sending.
    for option in [&["--rate", "5"][..], &["--ordered"], &["--in-flight", "3"], &["--stop-after", "1"]] {
        let ran = polyrpc(["replay", &file, "--serve"].iter().chain(option));
        assert!(ran.code == 2 && ran.stderr.contains("cannot be used with"), "{ran:?}");
    }
}

#[test]
fn mock_answers_functions_over_http_and_rest_rpc() {
    let folder = TempDir::new();
    let file = path(&folder, "calls.rec");
    let schemes = ["http", "rpcx", "rest-rpc", "rest-rpc?version=0.20"];
    let calls = |server: &Server| {
        for scheme in schemes {
            let ran = polyrpc(["call", &server.url(scheme), "add", "[1,2]"]);
            assert_eq!((ran.code, ran.stdout.trim()), (0, "3"), "{scheme}: {ran:?}");
        }
    };
    let server = Server::serve(["--record", &file]);
    calls(&server);
    assert!(server.stop().success());
    calls(&Server::start(["replay", &file, "--serve", "--listen", "127.0.0.1:0"], "ready"));
}

#[test]
fn calls_of_protobuf_survive_the_way_through_a_file_of_brpc() {
    let folder = TempDir::new();
    let file = recorded(&folder);
    let (dump, back) = (path(&folder, "requests.dump"), path(&folder, "back.rec"));
    let ran = polyrpc(["recording", "export", &file, "--to", "brpc", "--out", &dump]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "exported 2 calls\n"), "{ran:?}");
    assert!(ran.stderr.contains("3 calls were left out"), "{ran:?}");
    assert!(fs::read(&dump).unwrap().starts_with(b"PRPC"));
    let ran = polyrpc(["recording", "export", &file, "--to", "brpc", "--out", &dump]);
    assert!(ran.code == 1 && ran.stderr.contains("cannot create"), "{ran:?}");
    let ran = polyrpc(["recording", "import", &dump, "--from", "brpc", "--out", &back]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "imported 2 calls\n"), "{ran:?}");
    // The file describes no messages and has no times.
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/helloworld.proto");
    let show = ["recording", "show", &back, "--proto", proto, "--method", "helloworld.Greeter/SayHello"];
    let shown = polyrpc(show);
    assert!(shown.code == 0 && shown.stdout.starts_with("- ") && shown.stdout.contains("Ann"), "{shown:?}");
    let call: Value = serde_json::from_str(&polyrpc(show.iter().chain(&["--json"])).stdout).unwrap();
    assert_eq!((&call["time"], &call["request"]), (&Value::Null, &json!({ "name": "Ann" })));
    let server = Server::serve([]);
    // The file has requests only.
    let replay = ["replay", &back, "--to", &server.url("baidu-std"), "--unsafe", "--max"];
    let ran = polyrpc(replay);
    assert!(ran.code == 2 && ran.stderr.contains("nothing was compared"), "{ran:?}");
    let ran = polyrpc(replay.iter().chain(&["--no-compare"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let (foreign, none) = (path(&folder, "foreign.json"), path(&folder, "none.rec"));
    fs::write(&foreign, "{}").unwrap();
    let ran = polyrpc(["recording", "import", &foreign, "--from", "brpc", "--out", &none]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "imported 0 calls\n"), "{ran:?}");
    assert!(!Path::new(&none).exists(), "{ran:?}");
    let nowhere = path(&folder, "nowhere");
    let ran = polyrpc(["recording", "import", &nowhere, "--from", "brpc", "--out", &none]);
    assert!(ran.code == 1 && ran.stderr.contains("nowhere") && !Path::new(&none).exists(), "{ran:?}");
    let none = path(&folder, "none.dump");
    let ran = polyrpc(["recording", "export", &file, "--to", "brpc", "--out", &none, "--method", "nope"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "exported 0 calls\n"), "{ran:?}");
    assert!(!Path::new(&none).exists(), "{ran:?}");
    let ran = polyrpc(["recording", "show", &dump]);
    assert!(ran.code == 1 && ran.stderr.contains("--from brpc"), "{ran:?}");
}

#[test]
fn file_that_is_no_recording_is_not_recorded_to() {
    let folder = TempDir::new();
    let file = path(&folder, "notes.txt");
    fs::write(&file, "my notes").unwrap();
    let ran = polyrpc(["serve", "--listen", "127.0.0.1:0", "--record", &file]);
    assert!(ran.code == 1 && ran.stderr.contains("is no recording"), "{ran:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "my notes");
}

#[test]
fn recording_of_a_killed_server_is_readable_to_its_last_whole_block() {
    let folder = TempDir::new();
    let file = path(&folder, "calls.rec");
    let server = Server::serve(["--record", &file]);
    let client = blocking::Client::new(&server.url("rpcx")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The magic, and at least one block.
    while fs::metadata(&file).unwrap().len() < 2000 {
        assert!(Instant::now() < deadline, "nothing is written");
        let text: String = client.call("echo", &"some text").unwrap();
        assert_eq!(text, "some text");
    }
    let killed = Command::new("kill").args(["-KILL", &server.id().to_string()]).status().unwrap();
    assert!(killed.success());
    drop(server);
    let whole = fs::read(&file).unwrap();
    let ran = polyrpc(["recording", "show", &file, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("the recording"), "{}", ran.stderr);
    let calls = ran.stdout.lines().count();
    assert!(calls > 0);
    // Whatever is cut off, the rest is readable.
    let cut = path(&folder, "cut.rec");
    for length in [8, 9, whole.len() / 2, whole.len() - 1] {
        fs::write(&cut, &whole[..length]).unwrap();
        let ran = polyrpc(["recording", "list", &cut]);
        assert_eq!(ran.code, 0, "{length}: {ran:?}");
    }
}

#[test]
fn full_disk_stops_the_recording_and_no_call() {
    let folder = TempDir::new();
    let file = path(&folder, "calls.rec");
    // A limit of the shell's files stands for the disk: 64 blocks of 1 KiB or of 512 bytes.
    let script = format!(
        "trap '' XFSZ; ulimit -f 64; exec '{}' serve --listen 127.0.0.1:0 --record '{file}'",
        env!("CARGO_BIN_EXE_polyrpc")
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| line.unwrap().strip_prefix("listening main ").map(str::to_owned));
    let url = format!("rpcx://{}", address.unwrap());
    let client = blocking::Client::new(&url).unwrap();
    // Text that does not compress well, and more of it than the disk has room for.
    let mut state = 1u64;
    for _ in 0..200 {
        let text: String = (0..4000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'!' + (state >> 33) as u8 % 90)
            })
            .collect();
        let back: String = client.call("echo", &text).unwrap();
        assert_eq!(back, text);
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("the recording cannot be written"), "{stderr}");
    // Every file has whole blocks, perhaps no calls.
    for entry in fs::read_dir(folder.path()).unwrap() {
        let ran = polyrpc(["recording", "show", entry.unwrap().path().to_str().unwrap(), "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(!ran.stderr.contains("torn"), "{}", ran.stderr);
    }
}

#[test]
fn removed_fields_are_not_in_the_file() {
    let folder = TempDir::new();
    let file = path(&folder, "calls.rec");
    let server = Server::serve(["--record", &file, "--record-drop", "message"]);
    let ran = polyrpc(["call", &server.url("grpc"), "example.EchoService/Echo", r#"{"message":"hunter2"}"#]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(server.stop().success());
    let whole = fs::read(&file).unwrap();
    assert!(!whole.windows(7).any(|part| part == b"hunter2"));
    let ran = polyrpc(["recording", "show", &file]);
    assert!(ran.stdout.contains("> {}") && !ran.stdout.contains("hunter2"), "{ran:?}");
}

#[test]
fn rule_that_removes_nothing_is_refused_or_reported() {
    let folder = TempDir::new();
    let file = path(&folder, "calls.rec");
    for wrong in ["$.message", "/message", "]["] {
        let ran = polyrpc(["serve", "--record", &file, "--record-drop", wrong]);
        assert!(ran.code == 2 && ran.stderr.contains("is not a path"), "{ran:?}");
    }
    // It might be a field, and only the calls show that it is not.
    let log = folder.path().join("log");
    let drops = ["--record", &file, "--record-drop", "EchoRequest.message", "--record-drop", "message"];
    let server = Server::serve_with_log(&log, drops);
    let ran = polyrpc(["call", &server.url("grpc"), "example.EchoService/Echo", r#"{"message":"hi"}"#]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(server.stop().success());
    let log = fs::read_to_string(log).unwrap();
    let warning = "warning: no recorded message has a field `EchoRequest.message`";
    assert!(log.contains(warning) && log.matches("warning").count() == 1, "{log}");
}

/// Runs the commands of the guide in their order.
#[test]
fn commands_of_the_guide_work() {
    let guide: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../docs/guides/recording-and-replaying.md"].iter().collect();
    let guide = fs::read_to_string(guide).unwrap();
    let folder = TempDir::new();
    let mut server: Option<Server> = None;
    let mut count = 0;
    for block in guide.split("```sh\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            let words = words(line, folder.path(), server.as_ref().map(Server::address));
            match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["kill", "%1"] => assert!(server.take().unwrap().stop().success(), "{line}"),
                ["polyrpc", started @ .., "&"] => {
                    let started = started.iter().chain(&["--listen", "127.0.0.1:0"]);
                    server = Some(Server::start(started, "ready"));
                }
                ["polyrpc", arguments @ ..] => {
                    let ran = polyrpc(arguments);
                    assert_eq!(ran.code, 0, "{line}: {ran:?}");
                    count += 1;
                }
                _ => panic!("{line}"),
            }
        }
    }
    assert!(count >= 10, "{count} commands");
}

/// Splits a line as a shell does, with files in the folder and the server's address.
fn words(line: &str, folder: &Path, address: Option<&str>) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        match n % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    for word in &mut words {
        if word.ends_with(".rec") || word.ends_with(".dump") {
            *word = folder.join(&*word).to_str().unwrap().to_owned();
        }
        if let Some(address) = address {
            *word = word.replace("127.0.0.1:8002", address);
        }
    }
    words
}

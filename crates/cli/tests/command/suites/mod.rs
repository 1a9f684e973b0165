//! `polyrpc bench suite`, with small suites whose peers are this command, or scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use polyrpc_bench_report::model::{Document, Outcome, Suite};

use crate::running::{Ran, TempDir, polyrpc};

/// Two rounds of two pairs, and a document that says that B is twice as fast as A.
const SUITE: &str = r#"
[suite]
title = "A and B"
document = "a test"
defects = ["it is invented"]

[settings]
contract = "CONTRACT"
rounds = 2
window_s = 0.1
warmup_s = 0.02

[[pair]]
id = "a"
name = "A"
client = "polyrpc"
server = "other"

[[pair]]
id = "b"
name = "B"
client = "polyrpc"
server = "polyrpc"
protocol = "grpc"
reference = "a"

[[pair]]
id = "c"
name = "C"
client = "absent"
server = "absent"

[[pair]]
id = "floor"
name = "floor"
client = "floor"
server = "floor"

[[case]]
id = "few"
name = "2 callers"
callers = 2
connections = 1
size = 100

[[table]]
id = "rates"
title = "Rates"
measure = "rate"
case = "few"
columns = [{ name = "A", pair = "a" }, { name = "B", pair = "b" }, { name = "C", pair = "c" }]
rows = [{ name = "2 callers", published = [[900, 1000], 2000, ""] }]

[[table.ratio]]
name = "B / A"
of = { pair = "b" }
to = { pair = "a" }

[[chart]]
id = "rates"
title = "rates"
measure = "rate"
pairs = ["a", "b", "c"]
cases = ["few"]

[peer.other]
description = "another server"
start = "{polyrpc} bench peer serve --listen 127.0.0.1:{port}"
ready = "line:listening"
url = "rpcx://127.0.0.1:{port}"

[peer.absent]
description = "a server that is nowhere"
hint = "it is nowhere"
"#;

fn suite(contract: &str) -> String {
    SUITE.replace("CONTRACT", contract).replace(
        "url = \"rpcx://127.0.0.1:{port}\"",
        if contract == "say581" {
            "url = \"grpc://127.0.0.1:{port}\""
        } else {
            "url = \"baidu-std://127.0.0.1:{port}\""
        },
    )
}

/// Writes the suite, runs it, and returns what it stored.
fn measure(directory: &Path, text: &str, more: &[&str]) -> (Ran, Suite) {
    let file = directory.join("small.toml");
    fs::write(&file, text).unwrap();
    let json = directory.join("small.json");
    let (file, stored) = (file.display().to_string(), json.display().to_string());
    let ran = polyrpc(["bench", "suite", &file, "--json", &stored].iter().chain(more));
    let text = fs::read_to_string(&json).unwrap_or_default();
    let Ok(Document::Suite(suite)) = Document::read(&text) else { panic!("{ran:?}\n{text}") };
    (ran, *suite)
}

/// Asserts that nothing failed, and that the exit code says what the windows say: a busy machine may make short ones
/// contradict themselves, which the report and the code must show.
fn assert_measured(ran: &Ran, suite: &Suite) {
    for cell in &suite.cells {
        assert!(cell.failure.is_none() && !cell.is_wrong, "{cell:?}\n{ran:?}");
    }
    assert_eq!(ran.code, if has_noise(ran, suite) { 3 } else { 0 }, "{ran:?}");
}

/// Whether a window is invalid because this machine is busy, so that its few calls contradict each other or there are none;
/// the report must say so, and there is no other reason.
fn has_noise(ran: &Ran, suite: &Suite) -> bool {
    let mut has_any = false;
    for cell in &suite.cells {
        let Some(reason) = cell.windows.iter().find_map(|window| window.invalid.as_deref()) else { continue };
        let is_noise = reason.starts_with("by Little's law")
            || ["generator is saturated", "figures are inconsistent", "no call succeeded"]
                .iter()
                .any(|end| reason.ends_with(end));
        let said = ran.stdout.contains(&format!("INVALID: {}, {}: {reason}", cell.pair, cell.case));
        assert!(is_noise && said, "{cell:?}\n{ran:?}");
        has_any = true;
    }
    has_any
}

/// A program of a peer.
fn script(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn suite_measures_every_pair_in_every_round_and_keeps_missing_rows() {
    let directory = TempDir::new();
    for contract in ["echo", "say581", "hello", "fields"] {
        let page = directory.path().join("out.html");
        let (ran, suite) =
            measure(directory.path(), &suite(contract), &["--html", &page.display().to_string()]);
        assert_measured(&ran, &suite);
        for pair in ["a", "b", "floor"] {
            let cell = suite.cell(pair, "few").unwrap();
            assert_eq!(cell.windows.len(), 2, "{contract} {pair}: {ran:?}");
            assert!(cell.windows.iter().any(|window| window.rate > 0.0), "{contract} {pair}: {cell:?}");
            for window in &cell.windows {
                // Without a call it is invalid.
                let has_calls = window.rate > 0.0 || window.invalid.is_some();
                assert!(has_calls && window.failed == 0, "{contract} {pair}: {window:?}");
                assert!(
                    window.client_rss_bytes.unwrap() > 0 && window.server_rss_bytes.unwrap() > 0,
                    "{window:?}"
                );
            }
            let calls: u64 = cell.windows.iter().map(|window| window.succeeded).sum();
            assert_eq!(cell.latency.as_ref().unwrap().count(), calls, "{contract} {pair}");
        }
        assert_eq!(suite.control("few").unwrap().pair, "a");
        // A result is for other machines, too.
        let here = [env!("CARGO_BIN_EXE_polyrpc"), std::env::temp_dir().to_str().unwrap()].map(str::to_owned);
        for command in suite.cells.iter().flat_map(|cell| &cell.commands) {
            assert!(here.iter().all(|path| !command.contains(path)), "{command}");
            assert!(command.starts_with("polyrpc bench "), "{command}");
        }
        assert_eq!(suite.why_missing("c", "few").unwrap(), "absent: it is nowhere");
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains("data-table=\"rates\"") && page.contains("it is nowhere"), "{contract}");
        assert!(ran.stdout.contains("published 900 – 1,000"), "{ran:?}");
        // Two rounds name no winner.
        assert!(ran.stdout.contains("too few rounds for a judgement"), "{ran:?}");
    }
}

#[test]
fn stored_suite_is_shown_again() {
    let directory = TempDir::new();
    let (ran, _) = measure(directory.path(), &suite("echo"), &["--rounds", "1"]);
    let stored = directory.path().join("small.json").display().to_string();
    let again = polyrpc(["bench", "report", &stored]);
    assert_eq!((again.stdout, again.code), (ran.stdout, ran.code));
    let csv = directory.path().join("small.csv").display().to_string();
    assert_eq!(polyrpc(["bench", "report", &stored, "--csv", &csv]).code, ran.code);
    // A head, and a window of each pair and of the control.
    assert_eq!(fs::read_to_string(csv).unwrap().lines().count(), 1 + 4);
}

#[test]
fn peer_of_another_directory_is_described_there_and_built_once() {
    let directory = TempDir::new();
    let peer = directory.path().join("mine");
    fs::create_dir(&peer).unwrap();
    script(&peer, "make", "echo built >> log");
    script(&peer, "server", "exec \"$1\" bench peer serve --listen 127.0.0.1:\"$2\"");
    fs::write(
        peer.join("peer.toml"),
        "[peer.absent]\ndescription = \"mine\"\nbuild = \"./make\"\nstart = \"./server {polyrpc} {port}\"\n\
         client = \"{polyrpc} bench peer floor-call {load}\"\nready = \"tcp\"\nurl = \"grpc://127.0.0.1:{port}\"\n\
         contracts = [\"echo\", \"hello\"]\n",
    )
    .unwrap();
    let given = format!("absent={}", peer.display());
    // Its own client speaks another protocol; ours calls it.
    let ours = suite("echo").replacen("client = \"absent\"", "client = \"polyrpc\"", 1);
    // The suite's file describes the peer too; what the user gives comes first.
    let (ran, measured) = measure(directory.path(), &ours, &["--peer-dir", &given]);
    assert_measured(&ran, &measured);
    assert_eq!(measured.cell("c", "few").unwrap().windows.len(), 2, "{ran:?}");
    assert_eq!(fs::read_to_string(peer.join("log")).unwrap(), "built\n");
    let (_, lacking) = measure(directory.path(), &suite("say581"), &["--peer-dir", &given]);
    assert!(lacking.cell("c", "few").unwrap().windows.is_empty());
    script(&peer, "make", "echo no compiler >&2; exit 1");
    let (ran, missing) = measure(directory.path(), &ours, &["--peer-dir", &given]);
    assert_measured(&ran, &missing);
    let reason = missing.why_missing("c", "few").unwrap();
    assert_eq!(reason, "absent: `./make` failed: no compiler");
}

/// rpcx's own client and server in Go, given as a directory: {own, ours} × {own, ours}.
#[test]
fn peer_in_go_takes_its_rows_when_its_directory_is_given() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers/bin/go-peer");
    if !built.exists() {
        assert!(std::env::var_os("POLYRPC_WANTS_GO_PEER").is_none(), "bench/peers/bin/go-peer is not built");
        eprintln!("SKIPPED: `bench/peers/build go-peer` builds the peer of this test");
        return;
    }
    let directory = TempDir::new();
    let mine = directory.path().join("mine");
    fs::create_dir(&mine).unwrap();
    std::os::unix::fs::symlink(built.canonicalize().unwrap(), mine.join("rpcx")).unwrap();
    fs::write(
        mine.join("peer.toml"),
        "[peer.absent]\ndescription = \"rpcx\"\nstart = \"./rpcx serve rpcx --listen 127.0.0.1:{port}\"\n\
         client = \"./rpcx call rpcx {load}\"\nready = \"line:listening\"\nurl = \"rpcx://127.0.0.1:{port}\"\n\
         contracts = [\"echo\", \"say581\"]\n",
    )
    .unwrap();
    let pairs = suite("say581").replacen(
        "[[pair]]\nid = \"floor\"",
        "[[pair]]\nid = \"ours-own\"\nname = \"D\"\nclient = \"polyrpc\"\nserver = \"absent\"\nformat = \"protobuf\"\n\n\
         [[pair]]\nid = \"own-ours\"\nname = \"E\"\nclient = \"absent\"\nserver = \"polyrpc\"\nprotocol = \"rpcx\"\n\
         format = \"protobuf\"\n\n[[pair]]\nid = \"floor\"",
        1,
    );
    // Checks of its server are in protobuf too.
    let pairs = pairs.replacen("client = \"absent\"", "format = \"protobuf\"\nclient = \"absent\"", 1);
    let given = format!("absent={}", mine.display());
    let (ran, suite) = measure(directory.path(), &pairs, &["--peer-dir", &given]);
    assert_measured(&ran, &suite);
    for pair in ["c", "ours-own", "own-ours"] {
        let cell = suite.cell(pair, "few").unwrap();
        assert_eq!(cell.windows.len(), 2, "{pair}: {ran:?}");
        assert!(cell.windows.iter().any(|window| window.succeeded > 0), "{pair}: {cell:?}");
        assert!(cell.windows.iter().all(|window| window.failed == 0), "{pair}: {cell:?}");
    }
    assert_eq!(suite.peers.iter().find(|peer| peer.name == "absent").unwrap().missing, None);
}

#[test]
fn server_that_answers_wrongly_is_invalid() {
    let directory = TempDir::new();
    let wrong =
        suite("hello").replace("url = \"baidu-std://127.0.0.1:{port}\"", "url = \"http://127.0.0.1:{port}\"");
    let peer = directory.path().join("liar");
    fs::create_dir(&peer).unwrap();
    fs::write(peer.join("liar.py"), LIAR).unwrap();
    let wrong = wrong.replace(
        "start = \"{polyrpc} bench peer serve --listen 127.0.0.1:{port}\"",
        &format!("dir = \"{}\"\nstart = \"python3 liar.py {{port}}\"", peer.display()),
    );
    let (ran, suite) = measure(directory.path(), &wrong, &[]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let cell = suite.cell("a", "few").unwrap();
    assert!(cell.is_wrong && cell.failure.as_ref().unwrap().contains("answers wrongly"), "{cell:?}");
    assert!(ran.stdout.contains("answers wrongly"), "{ran:?}");
    // The others were measured.
    assert_eq!(suite.cell("b", "few").unwrap().windows.len(), 2);
}

/// Says goodbye instead of hello.
const LIAR: &str = r#"
import http.server, json, sys
class Liar(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"message": "Goodbye"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Liar)
print("listening", flush=True)
server.serve_forever()
"#;

/// A suite whose pair C is frames without RPC, sent by a script that gets this command and the arguments of a client.
fn with_client(directory: &Path, text: &str) -> String {
    let peer = directory.join("client");
    fs::create_dir(&peer).unwrap();
    script(&peer, "client", &format!("polyrpc=$1; shift; {text}"));
    suite("echo").replace(
        "hint = \"it is nowhere\"",
        &format!(
            "dir = \"{}\"\nclient = \"./client {{polyrpc}} {{load}}\"\nready = \"line:listening\"\n\
             start = \"{{polyrpc}} bench peer floor-serve --listen 127.0.0.1:{{port}}\"\nurl = \"floor://127.0.0.1:{{port}}\"",
            peer.display()
        ),
    )
}

#[test]
fn client_whose_figures_contradict_each_other_is_invalid() {
    let directory = TempDir::new();
    // It says that its calls took a hundred times as long as they did.
    let liar =
        "\"$polyrpc\" bench peer floor-call \"$@\" | sed -u 's/\"window_s\":[0-9.]*/\"window_s\":10.0/'";
    let (ran, suite) = measure(directory.path(), &with_client(directory.path(), liar), &[]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let cell = suite.cell("c", "few").unwrap();
    assert_eq!((cell.windows.len(), &cell.failure), (2, &None), "{ran:?}");
    // Of two callers: a busy machine may stretch their last calls, or leave a window without any.
    let callers = |reason: &str| -> Option<f64> {
        let (callers, rest) = reason.strip_prefix("by Little's law ")?.split_once(' ')?;
        rest.starts_with("callers were in a call, not 2").then(|| callers.parse().unwrap())
    };
    let reasons: Vec<_> =
        cell.windows.iter().map(|window| window.invalid.as_deref().unwrap_or_default()).collect();
    assert!(reasons.iter().any(|reason| callers(reason).is_some_and(|callers| callers < 1.0)), "{cell:?}");
    assert!(
        reasons.iter().all(|reason| callers(reason).is_some() || *reason == "no call succeeded"),
        "{cell:?}"
    );
    let said = format!("INVALID: c, few: {}", reasons[0]);
    assert!(ran.stdout.contains(&said), "{said}: {ran:?}");
}

#[test]
fn client_that_fails_is_reported_and_sets_the_exit_code() {
    let directory = TempDir::new();
    let failing = with_client(directory.path(), "echo it has no licence >&2; exit 4");
    let (ran, suite) = measure(directory.path(), &failing, &[]);
    assert_eq!(ran.code, if has_noise(&ran, &suite) { 3 } else { 1 }, "{ran:?}");
    let failure = suite.cell("c", "few").unwrap().failure.as_deref();
    assert_eq!(failure, Some("the client exited with code 4: it has no licence"), "{ran:?}");
    assert_eq!(suite.cell("b", "few").unwrap().windows.len(), 2, "the others were measured: {ran:?}");
}

#[test]
fn server_that_is_killed_fails_its_cell_only() {
    let directory = TempDir::new();
    let peer = directory.path().join("mortal");
    fs::create_dir(&peer).unwrap();
    // Killed while it is measured, from the ninth start on: the first round has two, and is repeated at most three
    // times. Its connections are closed a moment before the process ends.
    script(
        &peer,
        "server",
        "echo >> starts\nexec 3<&0\n\"$1\" bench peer serve --listen 127.0.0.1:\"$2\" <&3 &\n\
         [ $(wc -l < starts) -gt 8 ] && { sleep 0.3; kill -9 $!; sleep 0.5; kill -9 $$; }\nwait",
    );
    let mortal = suite("echo")
        .replace("window_s = 0.1", "window_s = 0.6")
        .replace("rounds = 2", "rounds = 6")
        .replace(
            "start = \"{polyrpc} bench peer serve --listen 127.0.0.1:{port}\"",
            &format!("dir = \"{}\"\nstart = \"./server {{polyrpc}} {{port}}\"", peer.display()),
        );
    let (ran, suite) = measure(directory.path(), &mortal, &[]);
    assert_eq!(ran.code, if has_noise(&ran, &suite) { 3 } else { 1 }, "{ran:?}");
    let cells: Vec<_> = suite.cells.iter().filter(|cell| cell.pair == "a").collect();
    let failures: Vec<_> = cells.iter().filter_map(|cell| cell.failure.as_deref()).collect();
    // sh writes a line for the background process that it saw die.
    let is_killed = |failure: &&str| failure.starts_with("the server was killed by signal 9");
    assert!(!failures.is_empty() && failures.iter().all(is_killed), "{failures:?}");
    for cell in cells {
        assert!((1..6).contains(&cell.windows.len()), "what was measured before is kept: {cell:?}");
    }
    assert_eq!(suite.cell("b", "few").unwrap().windows.len(), 6);
}

#[test]
fn full_disk_is_reported_after_the_results() {
    let directory = TempDir::new();
    let file = directory.path().join("small.toml");
    fs::write(&file, suite("echo")).unwrap();
    let ran =
        polyrpc(["bench", "suite", &file.display().to_string(), "--rounds", "1", "--json", "/dev/full"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("error: cannot write /dev/full: No space left on device"), "{ran:?}");
    assert!(ran.stdout.contains("Every pair of client and server"), "{ran:?}");
}

#[test]
fn results_of_one_suite_go_to_standard_output_if_that_is_asked_for() {
    let directory = TempDir::new();
    let file = directory.path().join("small.toml");
    fs::write(&file, suite("echo")).unwrap();
    let ran = polyrpc(["bench", "suite", &file.display().to_string(), "--rounds", "1", "--json", "-"]);
    let Ok(Document::Suite(suite)) = Document::read(&ran.stdout) else { panic!("{ran:?}") };
    assert_eq!(suite.cell("b", "few").unwrap().windows.len(), 1, "{ran:?}");
    let several = polyrpc(["bench", "suite", "all", "--json", "-"]);
    assert!(several.code == 1 && several.stderr.contains("--json - is for one suite"), "{several:?}");
}

#[test]
fn interrupted_suite_keeps_what_it_measured() {
    let directory = TempDir::new();
    let file = directory.path().join("small.toml");
    fs::write(&file, suite("echo").replace("rounds = 2", "rounds = 200")).unwrap();
    let json = directory.path().join("small.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrpc"));
    command.args(["bench", "suite"]).arg(&file).arg("--json").arg(&json);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It prints a line after each round.
    let errors = child.stderr.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(errors));
    let begun = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("round 1 of 200")));
    assert!(begun.is_some(), "it measured no round");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(60);
    thread::spawn(move || lines.for_each(drop));
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it did not end");
        thread::sleep(Duration::from_millis(20));
    }
    let code = child.wait().unwrap().code();
    let Ok(Document::Suite(suite)) = Document::read(&fs::read_to_string(json).unwrap()) else { panic!() };
    assert_eq!(suite.verdict.outcome, Outcome::Interrupted);
    let is_invalid =
        suite.cells.iter().any(|cell| cell.windows.iter().any(|window| window.invalid.is_some()));
    assert_eq!(code, Some(if is_invalid { 3 } else { 0 }), "{:?}", suite.verdict);
    assert!(!suite.cell("b", "few").unwrap().windows.is_empty());
}

#[test]
fn mistakes_in_a_suite_are_reported_before_the_measurement() {
    let directory = TempDir::new();
    let file = directory.path().join("small.toml");
    for (from, to, said) in [
        ("id = \"few\"", "id = \"many\"", "there is no case \"few\""),
        ("of = { pair = \"b\" }", "of = { line = \"b\" }", "unknown field `line`"),
        ("published = [[900, 1000], 2000, \"\"]", "published = [1, 2]", "2 figures for 3 columns"),
        ("connections = 1", "connections = 3", "2 callers cannot use 3 connections"),
        ("ready = \"line:listening\"", "ready = \"soon\"", "ready is tcp, line:TEXT"),
        ("contract = \"CONTRACT\"", "contract = \"sing\"", "unknown variant `sing`"),
    ] {
        fs::write(&file, SUITE.replace(from, to).replace("CONTRACT", "echo")).unwrap();
        let ran = polyrpc(["bench", "suite", &file.display().to_string()]);
        assert!(ran.code == 1 && ran.stderr.contains(said), "{said}: {ran:?}");
    }
    let ran = polyrpc(["bench", "suite", "nothing"]);
    assert!(ran.stderr.contains("the suites are rest_rpc-brpc, brpc-grpc, rpcx-grpc"), "{ran:?}");
    let ran = polyrpc(["bench", "suite", "rpcx-grpc", "--case", "7"]);
    assert!(ran.stderr.contains("its cases are 1, 100, 500"), "{ran:?}");
}

#[test]
fn suites_that_come_with_the_command_are_listed() {
    let ran = polyrpc(["bench", "suite", "--list"]);
    for name in ["rest_rpc-brpc", "brpc-grpc", "rpcx-grpc", "flatbuffers", "grpc-connections"] {
        assert!(ran.code == 0 && ran.stdout.contains(name), "{ran:?}");
    }
}

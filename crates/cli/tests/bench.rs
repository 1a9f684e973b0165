//! `polyrpc bench`, as users run it.

mod running;

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use running::{Ran, Server, TempDir, polyrpc};
use serde_json::Value;

const ADD: [&str; 4] = ["add", "[1,2]", "--warmup", "50ms"];

fn bench(url: &str, more: &[&str]) -> Ran {
    polyrpc(["bench", url].iter().chain(&ADD).chain(more))
}

/// Starts the command, and disturbs it or its server meanwhile.
fn bench_while(url: &str, more: &[&str], meanwhile: impl FnOnce(u32)) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrpc"));
    command.arg("bench").arg(url).args(ADD).args(more);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It prints nothing before its report, so there is nothing to wait for.
    thread::sleep(Duration::from_millis(700));
    meanwhile(child.id());
    child.wait_with_output().unwrap().into()
}

#[test]
fn bench_measures_discovered_servers_and_udp_transports() {
    let server = Server::serve(["--listen", "kcp://127.0.0.1:0"]);
    let kcp = server.output().lines().find_map(|line| line.strip_prefix("listening main kcp://")).unwrap();
    let address = server.address();
    let dir = TempDir::new();
    let file = dir.path().join("servers");
    fs::write(&file, format!("{address}\n")).unwrap();
    for (url, callers) in [
        (format!("rpcx+list://{address},{address}"), "1"),
        (format!("grpc+list://127.0.0.1:1,{address}"), "3"),
        (format!("baidu-std+file://{}", file.display()), "2"),
        (format!("rpcx://{kcp}?transport=kcp"), "2"),
    ] {
        let ran = bench(&url, &["-n", "200", "--callers", callers, "--json", "-"]);
        let figures = ran.json();
        assert_eq!((&figures["calls"], ran.stderr.as_str()), (&200.into(), ""), "{url}: {figures}");
    }
    let ran = bench(&format!("rpcx://{kcp}?transport=kcp"), &["-n", "20", "--json", "-"]);
    assert_eq!(ran.json()["cpu_us_per_call"]["server_pid"], server.id(), "{ran:?}");
}

#[test]
fn interrupted_bench_reports_what_it_measured() {
    let server = Server::serve([]);
    let interrupt = |id: u32| {
        assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    };
    for more in [&["--duration", "60m"][..], &["-n", "100000000"], &["--blocking", "--duration", "60m"]] {
        let ran = bench_while(&server.url("rpcx"), &[more, &["--json", "-"]].concat(), interrupt);
        let figures = ran.json();
        assert_eq!(figures["interrupted"], true);
        assert!(figures["calls"].as_u64().unwrap() > 0, "{figures}");
        let seconds = figures["duration_s"].as_f64().unwrap();
        assert!((0.01..30.0).contains(&seconds), "{figures}");
    }
    let ran = bench_while(&server.url("grpc"), &["--duration", "60m"], interrupt);
    assert!(ran.stdout.contains("after 50.0 ms, interrupted\n") && ran.code == 0, "{ran:?}");
}

#[test]
fn server_that_exits_is_reported_and_fails_the_bench() {
    for scheme in ["rpcx", "grpc", "http"] {
        let server = Server::serve([]);
        let url = server.url(scheme);
        let ran = bench_while(&url, &["--duration", "1500ms"], |_| drop(server));
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stderr.starts_with("error: the server went away: ") && ran.stderr.contains("unavailable"),
            "{ran:?}"
        );
        assert!(ran.stdout.contains("calls/s"), "the results so far are printed: {ran:?}");
    }
}

#[test]
fn percentile_is_reported_only_with_enough_calls() {
    let server = Server::serve([]);
    let ran = bench(&server.url("rpcx"), &["-n", "50"]);
    assert!(ran.stdout.contains("p90 ") && !ran.stdout.contains("p99"), "{ran:?}");
    assert!(ran.stdout.contains("  95 % in ") && !ran.stdout.contains("99 % in"), "{ran:?}");
    let figures = bench(&server.url("rpcx"), &["-n", "50", "--json", "-"]).json();
    assert!(figures["latency_us"]["p95"].is_f64() && figures["latency_us"]["p99"].is_null(), "{figures}");

    let none = polyrpc(["bench", &server.url("rpcx"), "Arith/Error", "{}", "-n", "5", "--json", "-"]);
    let figures = none.json_of_failure();
    let latencies = figures["latency_us"].as_object().unwrap();
    assert!(latencies.values().all(Value::is_null) && none.code == 1, "{figures}");
    let none = polyrpc(["bench", &server.url("rpcx"), "Arith/Error", "{}", "-n", "5"]);
    assert!(none.stdout.contains("latency   none\n"), "{none:?}");
}

#[test]
fn unwritable_output_is_reported_before_any_call() {
    let dir = TempDir::new();
    let nowhere = dir.path().join("nowhere/figures.json").display().to_string();
    // Nothing listens there: the call would fail with another message.
    let ran = bench("rpcx://127.0.0.1:1", &["--json", &nowhere]);
    assert!(ran.stderr.starts_with(&format!("error: cannot write {nowhere}: ")) && ran.code == 1, "{ran:?}");

    let server = Server::serve([]);
    let file = dir.path().join("figures.json");
    fs::write(&file, "of the last time, and longer than what comes now: ".repeat(100)).unwrap();
    let path = file.display().to_string();
    assert_eq!(bench("rpcx://127.0.0.1:1", &["--json", &path]).code, 1);
    assert!(fs::read_to_string(&file).unwrap().starts_with("of the last time"), "nothing replaces it yet");
    assert_eq!(bench(&server.url("rpcx"), &["-n", "20", "--json", &path]).code, 0);
    let mut text = String::new();
    fs::File::open(&file).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["calls"], 20);
}

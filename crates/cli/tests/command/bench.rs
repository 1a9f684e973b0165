//! `polyrpc bench`, as users run it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::running::{Ran, Server, TempDir, polyrpc};
use serde_json::Value;

const ADD: [&str; 4] = ["add", "[1,2]", "--warmup", "50ms"];

fn bench(url: &str, more: &[&str]) -> Ran {
    polyrpc(["bench", url].iter().chain(&ADD).chain(more))
}

/// Starts the command, and disturbs it or its server when it has reported a second with calls.
fn bench_while(url: &str, more: &[&str], meanwhile: impl FnOnce(u32)) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrpc"));
    command.arg("bench").arg(url).args(ADD).arg("--live").args(more);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("1 s  "), "{said}");
    // On a busy machine there may be none in the first.
    while said.lines().all(|line| line.contains("  0/s  ")) {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    meanwhile(child.id());
    stderr.read_to_string(&mut said).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    Ran { stderr: said, ..ran }
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
        assert_eq!(
            (&figures["counts"]["succeeded"], ran.stderr.as_str()),
            (&200.into(), ""),
            "{url}: {figures}"
        );
    }
    let ran = bench(&format!("rpcx://{kcp}?transport=kcp"), &["-n", "20", "--json", "-"]);
    assert_eq!(ran.json()["resources"]["server"]["pid"], server.id(), "{ran:?}");
}

/// Calls at planned times may also be late, on a busy machine.
fn assert_outcome(figures: &Value, expected: &str) {
    let outcome = figures["verdict"]["outcome"].as_str().unwrap();
    let is_late = figures["load"]["loop"] == "open" && outcome == "generator_saturated";
    assert!(outcome == expected || is_late, "{figures}");
}

#[test]
fn interrupted_bench_reports_what_it_measured() {
    let server = Server::serve([]);
    let interrupt = |id: u32| {
        assert!(Command::new("kill").args(["-INT", &id.to_string()]).status().unwrap().success());
    };
    let open = ["--rate", "100", "--duration", "60m"];
    let closed = [&["--duration", "60m"][..], &["-n", "100000000"], &["--blocking", "--duration", "60m"]];
    for more in closed.into_iter().chain([&open[..]]) {
        let ran = bench_while(&server.url("rpcx"), &[more, &["--json", "-"]].concat(), interrupt);
        let figures = ran.json_of_failure();
        assert_outcome(&figures, "interrupted");
        assert_eq!(ran.code, if figures["verdict"]["outcome"] == "interrupted" { 0 } else { 3 }, "{ran:?}");
        assert!(figures["counts"]["succeeded"].as_u64().unwrap() > 0, "{figures}");
        assert!(!figures["series"].as_array().unwrap().is_empty(), "{figures}");
        let seconds = figures["duration_s"].as_f64().unwrap();
        assert!((0.01..30.0).contains(&seconds), "{figures}");
    }
    let ran = bench_while(&server.url("grpc"), &["--duration", "60m"], interrupt);
    assert!(ran.stdout.contains("after 50.0 ms, interrupted\n") && ran.code == 0, "{ran:?}");
}

#[test]
fn server_that_exits_is_reported_and_fails_the_bench() {
    let lose = |scheme: &str, more: &[&str]| {
        let server = Server::serve([]);
        let url = server.url(scheme);
        let ran = bench_while(&url, &[&["--duration", "8s", "--json", "-"], more].concat(), |_| drop(server));
        assert_eq!(ran.code, 1, "{ran:?}");
        let said = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        assert!(said.contains("the server went away: ") && said.contains("unavailable"), "{ran:?}");
        let figures = ran.json_of_failure();
        assert!(figures["counts"]["succeeded"].as_u64().unwrap() > 0, "what was measured is kept: {figures}");
        assert_outcome(&figures, "server_lost");
        assert!(figures["verdict"]["reasons"].to_string().contains("the server went away"), "{figures}");
    };
    thread::scope(|scope| {
        for (scheme, more) in
            [("rpcx", &[][..]), ("grpc", &[]), ("http", &[]), ("baidu-std", &["--rate", "100"])]
        {
            scope.spawn(move || lose(scheme, more));
        }
    });
}

#[test]
fn percentile_is_reported_only_with_enough_calls() {
    let server = Server::serve([]);
    let ran = bench(&server.url("rpcx"), &["-n", "50"]);
    assert!(ran.stdout.contains("p90 ") && !ran.stdout.contains("p99"), "{ran:?}");
    assert!(ran.stdout.contains("  95 % in ") && !ran.stdout.contains("99 % in"), "{ran:?}");
    let figures = bench(&server.url("rpcx"), &["-n", "50", "--json", "-"]).json();
    let quantiles = figures["latency"]["response"]["quantiles_ns"].as_array().unwrap();
    // The stored ones have ten samples beyond them.
    assert_eq!(quantiles.len(), 2, "{figures}");

    let none = polyrpc(["bench", &server.url("rpcx"), "Arith/Error", "{}", "-n", "5", "--json", "-"]);
    let figures = none.json_of_failure();
    let response = &figures["latency"]["response"];
    assert!(response["count"] == 0 && response["min_ns"].is_null() && none.code == 1, "{figures}");
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
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["counts"]["succeeded"], 20);
}

/// Runs an open loop. On a busy machine it may be invalid, which its exit code must show.
fn open_loop(url: &str, more: &[&str]) -> (Ran, Value) {
    let ran = bench(url, &[more, &["--json", "-"]].concat());
    let figures = ran.json_of_failure();
    let is_invalid = figures["verdict"]["outcome"] == "generator_saturated";
    assert_eq!(ran.code == 3, is_invalid, "{ran:?}");
    (ran, figures)
}

#[test]
fn open_loop_makes_every_planned_call_and_reports_the_lag() {
    let server = Server::serve([]);
    for (scheme, planned, more) in [
        ("rpcx", 500, &["--rate", "1k", "--duration", "500ms"][..]),
        ("grpc", 500, &["--rate", "1k", "-n", "500", "--arrivals", "poisson"]),
        ("baidu-std", 500, &["--rate", "1k", "-n", "500", "--connections", "4", "--threads", "2"]),
        ("http", 500, &["--rps", "1k", "--total", "500", "--max-in-flight", "50"]),
        ("rpcx", 450, &["--stages", "0:500,200ms:1k,500ms:1k"]),
    ] {
        let (_, figures) = open_loop(&server.url(scheme), more);
        let counts = &figures["counts"];
        assert!(counts["planned"].as_u64().unwrap().abs_diff(planned) <= 1, "{scheme}: {figures}");
        assert_eq!(
            (&counts["succeeded"], &figures["load"]["loop"]),
            (&counts["planned"], &"open".into()),
            "{figures}"
        );
        let mean = |times: &str| figures["latency"][times]["mean_ns"].as_f64().unwrap();
        assert!(mean("lag") > 0.0 && mean("service") <= mean("response") * 1.01, "{figures}");
        let series = figures["series"].as_array().unwrap();
        let ended: u64 = series.iter().map(|second| second["succeeded"].as_u64().unwrap()).sum();
        assert_eq!(ended, counts["succeeded"], "{figures}");
    }
}

#[test]
fn rate_of_an_open_loop_is_that_of_the_planned_time() {
    let server = Server::serve([]);
    // The second and last call is planned, and probably answered, after half of the time.
    let more = ["--rate", "2", "--duration", "1s", "--require", "rate>=3"];
    let (ran, figures) = open_loop(&server.url("rpcx"), &more);
    let rate = figures["calls_per_second"].as_f64().unwrap();
    assert!((0.0..=2.01).contains(&rate) && figures["duration_s"].as_f64().unwrap() >= 0.999, "{figures}");
    assert_ne!(ran.code, 0, "{ran:?}");
}

#[test]
fn results_have_no_credentials() {
    let (server, dir) = (Server::serve([]), TempDir::new());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (json, html) = (file("results.json"), file("results.html"));
    let secrets = ["--auth", "SECRET-1", "-H", "x-api-key: SECRET-2", "--header=session-token=SECRET-3"];
    let files = ["-n", "2", "--json", &json, "--html", &html];
    let ran = bench(&server.url("rpcx"), &[&secrets[..], &files[..]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let written = [&json, &html].map(|name| fs::read_to_string(name).unwrap());
    for text in [&ran.stdout, &written[0], &written[1]] {
        assert!(text.contains("--auth …") && !text.contains("SECRET"), "{text}");
    }
}

#[test]
fn stream_without_an_answer_ends_at_the_timeout() {
    let server = Server::serve([]);
    let limits = ["--timeout", "200ms", "-n", "1", "--warmup", "0s", "--json", "-"];
    for (scheme, more) in [("baidu-std", &[][..]), ("grpc", &[]), ("baidu-std", &["--stream", "server"])] {
        let watch = ["bench", &server.url(scheme), "grpc.health.v1.Health/Watch", "{}"];
        let ran = polyrpc(watch.iter().chain(&limits).chain(more));
        let figures = ran.json_of_failure();
        assert!(figures["counts"]["failed"] == 1 && ran.code != 0, "{scheme}: {ran:?}");
        let error = figures["errors"][0]["error"].as_str().unwrap();
        assert!(error.starts_with("deadline exceeded"), "{scheme}: {ran:?}");
    }
}

#[test]
fn stream_that_contradicts_the_description_is_refused() {
    let server = Server::serve([]);
    for (target, stream, hint) in [
        ("helloworld.Greeter/SayHello", "bidi", "leave out --stream"),
        ("grpc.health.v1.Health/Watch", "client", "expected --stream server"),
    ] {
        let ran = polyrpc(["bench", &server.url("grpc"), target, "{}", "--stream", stream]);
        assert!(ran.code == 1 && ran.stderr.contains(hint), "{ran:?}");
    }
}

#[test]
fn failed_query_of_the_description_is_reported_and_ends_at_the_timeout() {
    // Accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("grpc://{}", silent.local_addr().unwrap());
    let limits = ["-n", "1", "--timeout", "100ms", "--warmup", "0s"];
    let ran = polyrpc(["bench", &url, "a.B/C", "{}"].iter().chain(&limits));
    assert!(ran.code != 0 && ran.stderr.contains("the query of the method's description failed"), "{ran:?}");
}

#[test]
fn unmet_condition_is_shown_and_sets_the_exit_code() {
    let server = Server::serve([]);
    let url = server.url("rpcx");
    let met = bench(&url, &["-n", "200", "--require", "p50<1m,errors<1%,rate>1"]);
    assert!(met.code == 0 && met.stdout.contains("p50<1m met: "), "{met:?}");
    let unmet = bench(&url, &["-n", "200", "--require", "p50<1m,service.p50<1us"]);
    assert!(unmet.code == 1 && unmet.stdout.contains("service.p50<1us NOT MET: "), "{unmet:?}");
    let wrong = bench(&url, &["--require", "p50=1m"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("is not a condition"), "{wrong:?}");
}

#[test]
fn mix_and_feed_send_the_messages_of_their_files() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let mix = file(
        "mix.jsonl",
        "{\"method\":\"Arith/Mul\",\"weight\":9,\"message\":{\"A\":7,\"B\":8}}\n\n\
         {\"method\":\"Arith/Error\",\"template\":\"{\\\"A\\\":{{seq}}}\"}\n",
    );
    let ran = polyrpc(["bench", &server.url("rpcx"), "--mix", &mix, "-n", "1000", "--json", "-"]);
    let figures = ran.json();
    let methods = figures["latency"]["methods"].as_array().unwrap();
    let count = |method: usize| methods[method]["latency"]["count"].as_u64().unwrap();
    assert_eq!((&methods[0]["name"], count(1)), (&"Arith/Mul".into(), 0), "{figures}");
    let multiplied = count(0);
    assert!((850..950).contains(&multiplied), "{figures}");
    assert_eq!(figures["counts"]["failed"], 1_000 - multiplied, "{figures}");

    let users = file("users.csv", "name\nJoe\n\"Ann, B.\"\n");
    let greet = |message: &str, more: &[&str]| {
        let (url, method) = (server.url("grpc"), "helloworld.Greeter/SayHello");
        polyrpc(["bench", &url, method, message, "-n", "10"].iter().chain(more))
    };
    assert_eq!(greet(r#"{"name":"{{name}}"}"#, &["--feed", &users]).code, 0);
    assert_eq!(greet(r#"{"name":"{{uuid}}"}"#, &[]).code, 0);
    let mistakes = [
        (
            r#"{"name":"{{nam}}"}"#,
            format!("{users}:random"),
            "the records have no field `nam`; there are name",
        ),
        (r#"{"name":"Joe"}"#, users.clone(), "the message has none"),
        (r#"{"nam":"{{name}}"}"#, users, "error: message 1: "),
    ];
    for (message, feed, reason) in mistakes {
        let ran = greet(message, &["--feed", &feed]);
        assert!(ran.code == 1 && ran.stderr.contains(reason), "{ran:?}");
    }
}

#[test]
fn seconds_are_written_as_csv_and_printed_live() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    let path = dir.path().join("seconds.csv").display().to_string();
    let ran = bench(&server.url("rpcx"), &["--duration", "1200ms", "--csv", &path, "--live"]);
    assert!(ran.code == 0 && ran.stderr.contains("   1 s  ") && ran.stderr.contains("/s  p50 "), "{ran:?}");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("start_s,length_s,sent,succeeded,failed,in_flight,"), "{text}");
    assert!(lines.next().unwrap().starts_with("0.000,1.000,"), "{text}");
    assert!(lines.next().unwrap().starts_with("1.000,0.2"), "{text}");
}

#[test]
fn highest_rate_is_searched_and_reported_as_an_interval() {
    let server = Server::serve([]);
    let search = ["--rate", "100", "--find-max", "--duration", "50ms"];
    // No server meets it.
    let never = bench(&server.url("rpcx"), &[&search[..], &["--slo", "max<1ns"]].concat());
    assert!(never.code != 0 && never.stdout.contains("below 2/s"), "{never:?}");
    let wrong = bench(&server.url("rpcx"), &search);
    assert!(wrong.code == 2 && wrong.stderr.contains("--slo"), "{wrong:?}");
    // Each trial would have seconds of its own.
    let live = bench(&server.url("rpcx"), &[&search[..], &["--slo", "p99<1ns", "--live"]].concat());
    assert!(live.code == 1 && live.stderr.contains("--live is for one run"), "{live:?}");
    // A condition that is not judged must not look as if it were met.
    for unused in [
        &["--slo", "p99<1ns", "-n", "3"][..],
        &["--slo", "p99<1ns", "--callers", "4"],
        &["--slo", "p99<1ns", "--require", "p99<1s"],
        &["--slo", "p99<1ns", "--stages", "0:1k,1s:1k"],
        &["--slo", "p99<1ns", "--blocking"],
        &["--slo", "p99<1ns"],
        &["--limits", "p99<0.0001x"],
    ] {
        // Without the --duration of `bench`, which conflicts with -n.
        let wrong = polyrpc(["bench", &server.url("rpcx"), "add", "[1,2]"].iter().chain(unused));
        assert!(wrong.code == 2 && wrong.stdout.is_empty(), "{unused:?}: {wrong:?}");
    }
}

#[test]
fn streams_attached_to_a_call_are_measured() {
    let server = Server::serve([]);
    let echo = ["bench", &server.url("baidu-std"), "example.EchoService/Echo", "--size", "10"];
    let ran = polyrpc(echo.iter().chain(&["--stream", "bidi", "--streams", "3", "-n", "60", "--json", "-"]));
    assert_eq!(ran.json()["counts"]["succeeded"], 60, "{ran:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn ten_thousand_callers_add_less_than_44_mb() {
    let server = Server::serve([]);
    let memory = |callers: &str| {
        // All wait for their first reply at once, on a busy machine for long.
        let load = ["-c", callers, "-n", "20000", "--timeout", "5m", "--json", "-"];
        let ran = bench(&server.url("baidu-std"), &load);
        let figures = ran.json();
        assert_eq!(figures["counts"]["succeeded"], 20_000);
        figures["resources"]["client"]["max_rss_bytes"].as_u64().unwrap()
    };
    // The program itself takes 40 MB if it is built without optimization, as tests are.
    let (one, many) = (memory("1"), memory("10000"));
    assert!(many - one < 44 << 20, "{} bytes", many - one);
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_is_reported_and_the_figures_are_printed_nevertheless() {
    let server = Server::serve([]);
    for option in ["--json", "--html", "--csv", "--hdr"] {
        let ran = bench(&server.url("rpcx"), &["-n", "200", option, "/dev/full"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.starts_with("error: cannot write /dev/full: No space left on device"), "{ran:?}");
        assert!(ran.stdout.contains("calls/s"), "what was measured is kept: {ran:?}");
    }
    // The other files are written.
    let dir = TempDir::new();
    let csv = dir.path().join("seconds.csv").display().to_string();
    let ran = bench(
        &server.url("rpcx"),
        &["-n", "200", "--json", "/dev/full", "--csv", &csv, "--hdr", "/dev/full"],
    );
    assert!(ran.code == 1 && fs::read_to_string(&csv).unwrap().lines().count() > 1, "{ran:?}");
}

#[test]
fn wrong_replies_are_failed_calls() {
    let server = Server::serve([]);
    let expect = |message: &str, expected: &str, more: &[&str]| {
        let call = ["bench", &server.url("rpcx"), "Arith/Mul", message, "--expect", expected, "-n", "100"];
        polyrpc(call.iter().chain(more))
    };
    let right = expect(r#"{"A":7,"B":8}"#, r#"{"C":56}"#, &["--json", "-"]);
    assert_eq!(right.json()["counts"]["succeeded"], 100, "{right:?}");
    let wrong = expect(r#"{"A":7,"B":8}"#, r#"{"C":57}"#, &[]);
    assert!(wrong.code == 1 && wrong.stderr.contains("got another reply than --expect: "), "{wrong:?}");
    let many = expect(r#"{"A":{{seq}},"B":8}"#, r#"{"C":57}"#, &[]);
    assert!(many.code == 1 && many.stderr.contains("one message"), "{many:?}");

    // A peer that is right about its first call.
    for blocking in [&[][..], &["--blocking"]] {
        let url = format!("http://{}", answer_every_other_call_wrongly());
        let more = [&["-n", "50", "--warmup", "0s", "--expect", "3", "--json", "-"], blocking].concat();
        let ran = polyrpc(["bench", &url, "add", "[1,2]"].iter().chain(&more));
        let figures = ran.json_of_failure();
        let counts = &figures["counts"];
        assert_eq!((&counts["succeeded"], &counts["failed"]), (&25.into(), &25.into()), "{figures}");
        assert_eq!(figures["errors"][0]["error"], "wrong reply", "{figures}");
        assert_eq!(figures["latency"]["response"]["count"], 25, "their times are kept apart: {figures}");
        let said = "error: 25 of 50 calls got another reply than --expect";
        assert!(ran.code == 1 && ran.stderr.contains(said), "{ran:?}");
    }
}

#[test]
fn wrong_replies_fail_a_search_and_a_comparison() {
    let url = format!("http://{}", answer_every_other_call_wrongly());
    let expect = ["add", "[1,2]", "--warmup", "0s", "--expect", "3"];
    let what = "calls got another reply than --expect";

    // The condition is met at low rates although half of the calls fail.
    let search = ["--rate", "100", "--find-max", "--slo", "rate<150", "--duration", "200ms"];
    let ran = polyrpc(["bench", &url].iter().chain(&expect).chain(&search));
    assert!(ran.stdout.contains("/s ("), "the result is printed: {ran:?}");
    // On a busy machine every trial may be invalid.
    assert!(ran.code == 1 && ran.stderr.contains(what) || ran.code == 3, "{ran:?}");

    let server = Server::serve([]);
    let right = server.url("http");
    // A search makes any number of calls: the next server's first reply must be right.
    let url = format!("http://{}", answer_every_other_call_wrongly());
    let rounds = ["--rounds", "6", "-n", "20"];
    let ran = polyrpc(["bench", "ab", &right, &url].iter().chain(&expect).chain(&rounds));
    assert!(ran.stdout.contains("B / A"), "the result is printed: {ran:?}");
    let said = format!("error: {url}: 120 of 240 {what}");
    assert!(ran.code == 1 && ran.stderr.contains(&said), "{ran:?}");
}

/// An HTTP server that says that 1 + 2 is 3, then 4, then 3 again.
fn answer_every_other_call_wrongly() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_wrong = Arc::new(AtomicBool::new(false));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let is_wrong = is_wrong.clone();
            thread::spawn(move || {
                let mut request = BufReader::new(&stream);
                let mut line = String::new();
                while request.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    let length =
                        line.to_ascii_lowercase().strip_prefix("content-length:").map(|it| it.trim().parse());
                    line.clear();
                    let Some(Ok(length)) = length else { continue };
                    while request.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                        line.clear();
                    }
                    line.clear();
                    let mut body = vec![0; length];
                    request.read_exact(&mut body).unwrap();
                    let sum = if is_wrong.fetch_not(Ordering::Relaxed) { 4 } else { 3 };
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1";
                    (&stream).write_all(format!("{head}\r\n\r\n{sum}").as_bytes()).unwrap();
                }
            });
        }
    });
    address
}

#[test]
fn peer_of_another_protocol_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                // What the call sent is of no interest.
                let _ = (&stream).read(&mut [0; 1024]);
                let _ = (&stream).write_all(b"SSH-2.0-OpenSSH_9.2 and more than a frame's header\r\n");
            });
        }
    });
    for scheme in ["rpcx", "baidu-std", "grpc", "http"] {
        let ran = bench(&format!("{scheme}://{address}"), &["-n", "20", "--timeout", "5s"]);
        assert!(ran.code != 0 && ran.stderr.starts_with("error: "), "{scheme}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{scheme}: {ran:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn anchors_fail_a_tool_that_omits_and_keep_the_rows_of_missing_ones() {
    let dir = TempDir::new();
    // What ghz said of a server that stalled, where 900 ms were right.
    let omits = dir.path().join("ghz");
    let said = r#"{"total":8000000000,"average":300000,"statusCodeDistribution":{"OK":7990},"latencyDistribution":
        [{"percentage":50,"latency":160000},{"percentage":90,"latency":210000},{"percentage":95,"latency":250000},
        {"percentage":99,"latency":3990000}]}"#;
    fs::write(&omits, format!("#!/bin/sh\n/bin/cat <<'END'\n{said}\nEND\n")).unwrap();
    fs::set_permissions(&omits, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrpc"));
    let path = format!("ghz={}", omits.display());
    command.args([
        "bench",
        "anchors",
        "--tools",
        "ghz,wrk,oha,clock-at-send",
        "--path",
        &path,
        "--duration",
        "1s",
        "--rate",
        "20k",
    ]);
    // Nothing else is installed.
    let ran = Ran::from(command.env("PATH", dir.path().join("empty")).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    let row = |name: &str| {
        let rows = ran.stdout.lines().find(|line| line.starts_with(&format!("| {name} |")));
        rows.unwrap_or_else(|| panic!("{name}: {ran:?}")).to_owned()
    };
    assert!(row("ghz").contains("| 210 µs | 250 µs | 3.99 ms |"), "{}", row("ghz"));
    assert!(row("ghz").contains("FAILED: p90, p95, p99, mean"), "{}", row("ghz"));
    assert!(row("wrk").contains("not installed: Debian's wrk"), "{}", row("wrk"));
    assert!(row("oha").contains("not installed: cargo install oha"), "{}", row("oha"));
    assert!(row("clock-at-send").contains("not given by --path"), "{}", row("clock-at-send"));
    assert!(ran.stdout.contains("The server was stopped 4 times in 8.00 s"), "{ran:?}");
}

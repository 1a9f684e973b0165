//! `polyrpc bench --html`, `bench report` and `bench ab`, as users run them.

use std::fs;

use crate::running::{Ran, Server, TempDir, polyrpc};
use serde_json::Value;

fn bench(url: &str, more: &[&str]) -> Ran {
    polyrpc(["bench", url, "add", "[1,2]", "--warmup", "20ms"].iter().chain(more))
}

#[test]
fn results_are_written_in_every_form_and_shown_again() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let [json, html, csv, hdr] = ["run.json", "run.html", "run.csv", "run.hlog"].map(file);
    let outputs = ["--json", &json, "--html", &html, "--csv", &csv, "--hdr", &hdr];
    let ran = bench(&server.url("rpcx"), &[&outputs[..], &["--duration", "2200ms"]].concat());
    assert_eq!((ran.stderr.as_str(), ran.code), ("", 0), "{ran:?}");
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == 3, "{page:.300}");
    assert!(fs::read_to_string(&csv).unwrap().lines().count() >= 3);
    assert!(fs::read_to_string(&hdr).unwrap().contains("\nTag=response,0.000,2."));

    let shown = polyrpc(["bench", "report", &json]);
    assert!(
        shown.code == 0 && shown.stdout.contains("closed loop, unary, 1 connection, 1 caller"),
        "{shown:?}"
    );
    let both = file("both.html");
    let shown = polyrpc(["bench", "report", &json, &json, "--html", &both]);
    assert_eq!((shown.stdout.as_str(), shown.stderr.as_str(), shown.code), ("", "", 0));
    assert!(fs::read_to_string(&both).unwrap().contains("id=overview"));
    let two = polyrpc(["bench", "report", &json, &json, "--csv", &csv]);
    assert!(two.code == 1 && two.stderr.contains("--csv takes one result"), "{two:?}");
}

#[test]
fn baseline_sets_limits_and_the_exit_code() {
    let server = Server::serve([]);
    let dir = TempDir::new();
    let json = dir.path().join("before.json").display().to_string();
    let url = server.url("rpcx");
    assert_eq!(bench(&url, &["-n", "2000", "--json", &json]).code, 0);
    // Limits that no machine misses or meets, however noisy it is.
    let met = bench(&url, &["-n", "2000", "--baseline", &json, "--limits", "p50<1000x,rate>0.001x"]);
    assert!(met.code == 0 && met.stdout.contains("p50 < 1000 × baseline met: "), "{met:?}");
    let unmet = bench(&url, &["-n", "2000", "--baseline", &json, "--limits", "p50<0.001x"]);
    assert!(unmet.code == 1 && unmet.stdout.contains("p50 < 0.001 × baseline NOT MET: "), "{unmet:?}");
    let stored = polyrpc(["bench", "report", &json, "--baseline", &json, "--limits", "p50<0.9x"]);
    assert!(stored.code == 1 && stored.stdout.contains("NOT MET"), "{stored:?}");

    let wrong = bench(&url, &["--limits", "p50<5"]);
    assert!(
        wrong.code == 2 && wrong.stderr.contains("invalid threshold \"p50<5\": expected a time"),
        "{wrong:?}"
    );
    let other = dir.path().join("other.json");
    fs::write(&other, r#"{"schema": "polyrpc.bench/7", "kind": "run"}"#).unwrap();
    let other = polyrpc(["bench", "report", &other.display().to_string()]);
    assert!(other.code == 1 && other.stderr.contains("it is of version 7 of the format"), "{other:?}");
}

#[test]
fn two_servers_are_compared_in_interleaved_rounds() {
    let (fast, slow) = (Server::serve([]), Server::serve([]));
    let dir = TempDir::new();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let [json, html, csv] = ["ab.json", "ab.html", "ab.csv"].map(file);
    let (a, b) = (fast.url("rpcx"), slow.url("rpcx"));
    // On a busy machine a window of a short time might have no call, or too few for a median.
    let load = ["add", "[1,2]", "--rounds", "6", "-n", "60", "--warmup", "20ms"];
    let outputs = ["--json", &json, "--html", &html, "--csv", &csv];
    let ran = polyrpc(["bench", "ab", &a, &b].iter().chain(&load).chain(&outputs));
    // Whether one of two equal servers is called worse by chance depends on the machine.
    assert!(ran.code <= 1 && ran.stderr.contains("round 6 of 6"), "{ran:?}");
    let stored: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(stored["a"]["target"]["url"], a);
    assert_eq!(stored["b"]["target"]["url"], b);
    let figures = stored["figures"].as_array().unwrap();
    let names: Vec<_> = figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["rate", "p50"]), "{names:?}");
    assert!(figures.iter().all(|figure| figure["rounds"].as_array().unwrap().len() <= 6), "{stored}");
    let is_worse = figures.iter().any(|figure| {
        let finding = &figure["comparison"]["finding"];
        finding == if figure["better"] == "higher" { "lower" } else { "higher" }
    });
    assert_eq!(ran.code, i32::from(is_worse), "{ran:?}");
    assert!(fs::read_to_string(&html).unwrap().contains("Ratio of B to A in each round"));
    let rows = "figure,unit,round,subject,window,value\r\nrate,calls/s,1,A,1,";
    assert!(fs::read_to_string(&csv).unwrap().starts_with(rows));
    assert_eq!(polyrpc(["bench", "report", &json]).code, ran.code);
}

#[test]
fn slower_server_is_found_to_be_worse() {
    let server = Server::serve([]);
    let load = |a: &str, b: &str| {
        let load = ["--rounds", "6", "--duration", "150ms", "--warmup", "20ms", "--json", "-"];
        polyrpc(["bench", "ab", a, b, "add", "[1,2]"].iter().chain(&load))
    };
    // HTTP/1 with JSON, one call at a time on a connection, takes about twice as long as baidu_std here.
    let ran = load(&server.url("baidu-std"), &server.url("http"));
    let figures = ran.json_of_failure();
    let rate = &figures["figures"][0];
    let finding = &rate["comparison"]["finding"];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let excess = |probe: &Value| number(&probe["p95_ns"]) / number(&probe["median_ns"]) - 1.0;
    let probes = figures["probes"].as_array().unwrap();
    let is_noisy = probes.iter().any(|probe| excess(probe) > 0.05 || number(&probe["steal"]) > 0.05)
        // A window of this short time has no call.
        || figures["verdict"]["outcome"] == "inconsistent";
    assert_eq!(rate["name"], "rate", "{figures}");
    // On a noisy machine no winner need be named, and never the slower one.
    assert_ne!(finding, "higher", "{rate}");
    assert!(ran.code == 1 && finding == "lower" || is_noisy, "{ran:?}");
}

#[test]
fn options_for_one_server_are_rejected_for_two() {
    for option in [&["--live"][..], &["--hdr", "x"], &["--require", "p50<1s"], &["--server-pid", "1"]] {
        let ran = polyrpc(
            ["bench", "ab", "rpcx://127.0.0.1:1", "rpcx://127.0.0.1:2", "add", "[1,2]"].iter().chain(option),
        );
        assert!(ran.code == 1 && ran.stderr.contains(&format!("{} is for one server", option[0])), "{ran:?}");
    }
    let few = polyrpc(["bench", "ab", "rpcx://127.0.0.1:1", "rpcx://127.0.0.1:2", "add", "--rounds", "5"]);
    assert!(few.code == 2 && few.stderr.contains("6..=200"), "{few:?}");
}

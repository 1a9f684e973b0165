//! Pages in a real browser: `browser/check.mjs` opens them in Chromium. It leaves screenshots in the target folder.
//!
//! It needs Node, Chromium, and what `npm ci` installs in `crates/console/tests/browser`; without them it is skipped, or fails if
//! `POLYRPC_WANTS_BROWSER` is set. If `POLYRPC_WRITES_PICTURES` is set, it writes the picture of the guide.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{NASTY, documents};
use polyrpc_bench_report::model::Document;
use polyrpc_bench_report::report::html;

/// The results of the documents, if all of them are stored.
fn stored_suites() -> Option<Vec<(String, Document)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance");
    let names = ["rest_rpc-brpc", "brpc-grpc", "rpcx-grpc", "flatbuffers", "grpc-connections"];
    let read = |name: &str| {
        let text = fs::read_to_string(folder.join(format!("{name}.json"))).ok()?;
        Some((name.to_owned(), Document::read(&text).unwrap()))
    };
    names.into_iter().map(read).collect()
}

#[test]
fn pages_work_in_chromium() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let packages = crates.join("console/tests/browser");
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    let lacks = match (has_node, Path::new(&chromium).exists(), packages.join("node_modules").exists()) {
        (false, ..) => Some("node"),
        (_, false, _) => Some("chromium"),
        (_, _, false) => Some("the packages of `npm ci` in crates/console/tests/browser"),
        _ => None,
    };
    if let Some(lacks) = lacks {
        assert!(std::env::var_os("POLYRPC_WANTS_BROWSER").is_none(), "the browser tests lack {lacks}");
        eprintln!("SKIPPED: the browser tests lack {lacks}");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-report");
    fs::create_dir_all(&folder).unwrap();
    let [run, versus, suite] = documents();
    let named = |name: &str| (name.to_owned(), run.clone());
    let mut pages = vec![
        ("run", html(&format!("A run {NASTY}"), &[named("grpc://127.0.0.1:50051")])),
        ("versus", html("Old and new build", &[("old and new build".to_owned(), versus)])),
        ("suite", html("A published benchmark", &[(NASTY.to_owned(), suite)])),
        (
            "several",
            html("Three runs", &[named("baseline.json"), named(NASTY), named(&"long-name-".repeat(12))]),
        ),
    ];
    let suites = stored_suites();
    let is_stored = suites.is_some();
    pages.extend(suites.map(|suites| ("suites", html("polyrpc bench suite", &suites))));
    let count = pages.len();
    let files = pages.into_iter().map(|(name, page)| {
        let file = folder.join(format!("{name}.html"));
        fs::write(&file, page).unwrap();
        file
    });
    let files: Vec<_> = files.collect();
    if !is_stored {
        eprintln!("SKIPPED: the tables of the documents, since docs/performance lacks the result of a suite");
    }
    let mut node = Command::new("node");
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/check.mjs"));
    node.arg(packages).arg(folder).args(files).env("CHROMIUM", chromium);
    if std::env::var_os("POLYRPC_WRITES_PICTURES").is_some() {
        assert!(is_stored, "the picture needs the results of all suites in docs/performance");
        node.env("PICTURES", crates.join("../docs/guides/images"));
    }
    let output = node.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("ok   ").count(), count * 5 + 1, "{text}");
}

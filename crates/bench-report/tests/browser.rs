//! Pages in a real browser: `browser/check.mjs` opens them in Chromium. It leaves screenshots in the target folder.
//!
//! It needs Node, Chromium, and what `npm ci` installs in `crates/console/tests/browser`; without them it is skipped, or fails if
//! `POLYRPC_WANTS_BROWSER` is set.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{NASTY, documents};
use polyrpc_bench_report::report::html;

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
    let pages = [
        ("run", html(&format!("A run {NASTY}"), &[named("grpc://127.0.0.1:50051")])),
        ("versus", html("Old and new build", &[("old and new build".to_owned(), versus)])),
        ("suite", html("A published benchmark", &[(NASTY.to_owned(), suite)])),
        (
            "several",
            html("Three runs", &[named("baseline.json"), named(NASTY), named(&"long-name-".repeat(12))]),
        ),
    ];
    let files = pages.map(|(name, page)| {
        let file = folder.join(format!("{name}.html"));
        fs::write(&file, page).unwrap();
        file
    });
    let mut node = Command::new("node");
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/check.mjs"));
    node.arg(packages).arg(folder).args(files).env("CHROMIUM", chromium);
    let output = node.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("ok   ").count(), 4 * 5 + 1, "{text}");
}

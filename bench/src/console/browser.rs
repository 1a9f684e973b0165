//! The pages in Chromium: `crates/console/tests/browser/bench.mjs` loads them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use polyrpc_console::Console;
use polyrpc_console::vars::Counter;
use serde::Deserialize;
use tokio::runtime::Builder;

use super::{METHODS, admin, bar, call_each, client, serve};
use crate::bar::{Bar, Limit};

/// Maximum time until a page that was never loaded before is complete, and until 40 plots are drawn, in milliseconds.
const LOAD_LIMIT: f64 = 500.0;
const PLOTS_LIMIT: f64 = 100.0;

/// Maximum size of a page with all that it loads, as it is transferred, in KiB.
const TRANSFER_LIMIT: f64 = 80.0;

/// Each variable has four plots: of a minute, an hour, a day and a month.
const VARIABLES: usize = 10;

/// Medians of some loads.
#[derive(Debug, Deserialize)]
struct Figures {
    load_ms: f64,
    plots_ms: f64,
    plots: usize,
    transfer_kib: f64,
}

/// Measures, or says why it cannot.
pub(super) fn bars() -> io::Result<Vec<Bar>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/console/tests/browser");
    let chromium =
        std::env::var_os("CHROMIUM").map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    let lacks = match (has_node, chromium.exists(), folder.join("node_modules").exists()) {
        (false, ..) => Some("node"),
        (_, false, _) => Some("chromium"),
        (_, _, false) => Some("the packages of `npm ci` in crates/console/tests/browser"),
        _ => None,
    };
    if let Some(lacks) = lacks {
        println!("SKIPPED: figures of a browser, for lack of {lacks}");
        return Ok(Vec::new());
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = serve(&runtime, METHODS)?;
    call_each(&runtime, &client(&server)?, METHODS)?;
    let variables: Vec<_> = (0..VARIABLES).map(|n| Counter::new(&format!("bench_plot_{n}"))).collect();
    let console = Console::new();
    console.observe(&server);
    let admin = admin(&console)?;
    for step in 0..5 {
        variables.iter().for_each(|variable| variable.add(step));
        std::thread::sleep(Duration::from_secs(1));
    }
    let mut node = Command::new("node");
    node.arg(folder.join("bench.mjs")).arg(format!("http://{}", admin.address())).env("CHROMIUM", chromium);
    let output = node.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let figures: Figures = serde_json::from_slice(&output.stdout)?;
    println!("{figures:?}");
    Ok(vec![
        bar("console_cold_load", figures.load_ms, Limit::MillisAtMost(LOAD_LIMIT)),
        Bar {
            clean: figures.plots == 4 * VARIABLES,
            ..bar("console_40_plots", figures.plots_ms, Limit::MillisAtMost(PLOTS_LIMIT))
        },
        bar("console_transfer", figures.transfer_kib, Limit::KibAtMost(TRANSFER_LIMIT)),
    ])
}

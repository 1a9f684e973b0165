//! The console in a real browser: `browser/check.mjs` walks through it with Chromium. It leaves screenshots in the target folder.
//!
//! It needs Node, Chromium, and what `npm ci` installs in `browser/`; without them it says that it is skipped, or fails if
//! `POLYRPC_WANTS_BROWSER` is set.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::counting::counting_service;
use common::services;
use polyrpc::layers::Metrics;
use polyrpc::{Client, propagation};
use polyrpc_console::settings::Setting;
use polyrpc_console::{Admin, Console, Role};

const NASTY: &str = "<img src=x onerror=alert(1)><script>alert(1)</script>\"'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_work_in_chromium() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success());
    let lacks = match (has_node, Path::new(&chromium).exists(), folder.join("node_modules").exists()) {
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
    let console = Console::new();
    let _limit = Setting::define("browser_limit", 5_u64, NASTY).register();
    let tick = || async { propagation::note(format_args!("{NASTY}")) };
    let server = services().function("tick", tick).function(NASTY, || async {}).version(NASTY);
    let server = server.service(counting_service());
    let server = server.count_calls(&Metrics::new()).bind("127.0.0.1:0").await.unwrap().start();
    console.observe(&server);
    let metrics = Metrics::new();
    console.observe_metrics(&metrics);
    let client = |protocol: &str| {
        let (scheme, rest) = protocol.split_once('?').unwrap_or((protocol, ""));
        let url = format!("{scheme}://{}?{rest}", server.address());
        Client::builder(&url).layer(metrics.clone()).build().unwrap()
    };
    let clients = ["grpc", "rpcx", "baidu-std", "http", "net-rpc", "rest-rpc?version=0.20"].map(client);
    let calls = tokio::spawn(async move {
        loop {
            for client in &clients {
                let _: Result<(), polyrpc::Error> = client.call("tick", &()).await;
                let _: Result<(), polyrpc::Error> = client.call(NASTY, &()).await;
                let _: Result<(), polyrpc::Error> = client.call("fail", &NASTY).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, "a-token-for-writing").writable();
    let admin = admin.start(&console).unwrap();
    let url = format!("http://{}", admin.address());
    let fleet = format!("{} admin={}", server.address(), admin.address());
    let fleet: polyrpc::discovery::List = fleet.parse().unwrap();
    console.observe_fleet(NASTY, Box::new(fleet), Some("a-token-for-writing".into())).unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let walk = move || {
        let mut node = Command::new("node");
        let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
        node.arg(folder.join("check.mjs")).arg(url).arg(shots).env("CHROMIUM", chromium);
        node.env("PROFILES", if cfg!(feature = "profile") { "yes" } else { "" });
        node.output().unwrap()
    };
    let output = tokio::task::spawn_blocking(walk).await.unwrap();
    calls.abort();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.matches("ok   ").count() >= 30, "{text}");
}

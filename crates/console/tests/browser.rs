//! The console in a real browser: `browser/check.mjs` walks through it with Chromium, and `browser/loads.mjs` follows it while six
//! protocols are loaded. They leave screenshots in the target folder. `browser/guide.mjs` makes the pictures of the guide.
//!
//! It needs Node, Chromium, and what `npm ci` installs in `browser/`; without them it says that it is skipped, or fails if
//! `POLYRPC_WANTS_BROWSER` is set.

mod common;
#[path = "common/loads.rs"]
mod loads;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::counting::counting_service;
use common::services;
use polyrpc::layers::Metrics;
use polyrpc::{Client, propagation};
use polyrpc_console::settings::Setting;
use polyrpc_console::{Admin, Console, Role};
use polyrpc_load::Stop;
use shop::Mall;

const NASTY: &str = "<img src=x onerror=alert(1)><script>alert(1)</script>\"'";

/// One browser at a time: two are slow on a small machine, and there is one profiler in a process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_work_in_chromium() {
    let _alone = ALONE.lock().await;
    let Some(node) = node("check.mjs") else { return };
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
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    let text = run(node, &[url.as_ref(), shots.as_os_str()]).await;
    calls.abort();
    assert!(text.matches("ok   ").count() >= 30, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_follow_loads_of_six_protocols() {
    let _alone = ALONE.lock().await;
    let Some(node) = node("loads.mjs") else { return };
    let server = loads::server().count_calls(&Metrics::new()).bind("127.0.0.1:0").await.unwrap().start();
    let console = Console::new();
    console.observe(&server);
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let url = format!("http://{}", admin.address());
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    let names = loads::PROTOCOLS.map(|(scheme, ..)| loads::name(scheme));
    let mut arguments: Vec<&OsStr> = vec![url.as_ref(), shots.as_os_str()];
    arguments.extend(names.iter().map(OsStr::new));
    let stop = Stop::default();
    let loads = loads::start(&server.address().to_string(), &stop);
    let (succeeded, text) = try_run(node, &arguments).await;
    stop.stop();
    for (name, load) in names.iter().zip(loads) {
        let outcome = tokio::task::spawn_blocking(|| load.join().unwrap()).await.unwrap();
        let counts = &outcome.counts;
        assert!(counts.succeeded > 100 && counts.failed == 0, "{name}: {counts:?}, {:?}", outcome.errors());
    }
    assert!(succeeded && text.matches("ok   ").count() == names.len() + 1, "{text}");
}

/// Returns the command that runs a script in Chromium; `None` if something of that is not installed.
fn node(script: &str) -> Option<Command> {
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
        return None;
    }
    let mut node = Command::new("node");
    node.arg(folder.join(script)).env("CHROMIUM", chromium);
    node.env("PROFILES", if cfg!(feature = "profile") { "yes" } else { "" });
    Some(node)
}

/// Runs a script that has to succeed, and returns what it prints.
async fn run(node: Command, arguments: &[&OsStr]) -> String {
    let (succeeded, text) = try_run(node, arguments).await;
    assert!(succeeded, "{text}");
    text
}

/// Runs a script. Returns whether it succeeded, and what it prints.
async fn try_run(mut node: Command, arguments: &[&OsStr]) -> (bool, String) {
    node.args(arguments);
    let output = tokio::task::spawn_blocking(move || node.output().unwrap()).await.unwrap();
    let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (output.status.success(), out.into_owned() + &errors)
}

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides");

/// Maximum size of a picture in the repository, in bytes.
const LARGEST: usize = 150 << 10;

/// Sizes that a picture has which shows something. It grows with the text in it, such as that of longer addresses and numbers.
const PLAUSIBLE: std::ops::Range<usize> = 5_000..1 << 20;

/// The pictures are written into the guide if `POLYRPC_WRITES_PICTURES` is set, and else elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_the_guide_are_made() {
    let _alone = ALONE.lock().await;
    let Some(node) = node("guide.mjs") else { return };
    let mall = Mall::open().await;
    let visits = mall.visit();
    let folder = match std::env::var_os("POLYRPC_WRITES_PICTURES") {
        Some(_) => Path::new(GUIDE).join("images"),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures"),
    };
    let url = format!("http://{}", mall.web.admin.address());
    run(node, &[url.as_ref(), folder.as_os_str()]).await;
    visits.abort();
    for name in pictures() {
        let is_profile = name == "operating-profile.png";
        if is_profile && !cfg!(feature = "profile") {
            continue;
        }
        let bytes = picture(&folder, &name);
        assert!(PLAUSIBLE.contains(&bytes.len()), "{name} has {} bytes", bytes.len());
    }
}

/// Reads a picture, which is a whole one.
fn picture(folder: &Path, name: &str) -> Vec<u8> {
    let file = folder.join(name);
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let is_whole = bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.ends_with(b"IEND\xaeB`\x82");
    assert!(is_whole, "{name} is no picture: {} bytes", bytes.len());
    bytes
}

/// Returns the names of the pictures that the script makes.
fn pictures() -> Vec<String> {
    let script = include_str!("browser/guide.mjs");
    let names = script.split("shot(\"").skip(1).filter_map(|rest| rest.split('"').next());
    names.map(|name| format!("operating-{name}.png")).collect()
}

#[test]
fn guide_has_the_pictures_that_the_script_makes() {
    let guide = std::fs::read_to_string(Path::new(GUIDE).join("operating-a-server.md")).unwrap();
    let named: BTreeSet<&str> =
        guide.split("](images/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let pictures = pictures();
    assert_eq!(named, pictures.iter().map(String::as_str).collect(), "the guide and guide.mjs differ");
    for name in named {
        let bytes = picture(&Path::new(GUIDE).join("images"), name);
        assert!((PLAUSIBLE.start..LARGEST).contains(&bytes.len()), "{name} has {} bytes", bytes.len());
    }
}

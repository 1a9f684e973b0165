//! Profiles of the memory in use.

mod common;

use std::process::{Command, Output};

use common::{Answer, observe, send, services, wait_until};
use polyrpc::Client;
use polyrpc_console::{Admin, AdminHandle, Jemalloc, Role};

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const SIZE: usize = 64 << 10;
const BLOCKS: usize = 256;

/// What the handler does; its name is looked for.
#[inline(never)]
fn fill_the_warehouse() -> Vec<Vec<u8>> {
    // Not as a tail call, which would leave no frame of this function.
    std::hint::black_box((0..BLOCKS).map(|block| vec![block as u8 | 1; SIZE]).collect())
}

fn ask(admin: &AdminHandle, target: &str, fields: &str) -> Answer {
    send(admin.address(), "GET", target, fields, "")
}

/// Runs a test of this file in a process whose allocator has these settings.
fn run(test: &str, settings: &str) -> Output {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args([test, "--exact", "--ignored", "--nocapture"]).env("_RJEM_MALLOC_CONF", settings);
    process.output().unwrap()
}

#[test]
fn memory_in_use_is_profiled_if_the_allocator_samples() {
    for (test, settings) in [
        ("heap_is_profiled", "prof:true,prof_active:false,lg_prof_sample:14"),
        ("heap_is_not_profiled", "prof:false"),
    ] {
        let output = run(test, settings);
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    }
}

#[tokio::test]
#[ignore = "needs allocator settings: memory_in_use_is_profiled_if_the_allocator_samples runs it"]
async fn heap_is_not_profiled() {
    let (console, _server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").anonymous(Role::Profile).start(&console).unwrap();
    let answer = ask(&admin, "/hotspots/heap", "");
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("_RJEM_MALLOC_CONF=prof:true,prof_active:false"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs allocator settings: memory_in_use_is_profiled_if_the_allocator_samples runs it"]
async fn heap_is_profiled() {
    let shelf = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let own = shelf.clone();
    let fill = move || {
        let shelf = own.clone();
        async move { shelf.lock().unwrap().push(fill_the_warehouse()) }
    };
    let (console, server) = observe(services().function("Shop/Fill", fill)).await;
    let admin = Admin::on("127.0.0.1:0").anonymous(Role::Profile).start(&console).unwrap();
    // Nothing is sampled until somebody asks.
    let first = ask(&admin, "/hotspots/heap", "");
    assert!(first.status == 503 && first.body.contains("from now on"), "{first:?}");
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    let before = ask(&admin, "/hotspots/heap?format=json", "").json()["data"]["profile"]["id"].clone();
    let () = client.call("Shop/Fill", &()).await.unwrap();
    wait_until(|| shelf.lock().unwrap().len() == 1).await;
    let profile = ask(&admin, "/hotspots/heap?format=json", "").json()["data"]["profile"].clone();
    let is_wanted = |row: &&serde_json::Value| {
        row["name"].as_str().is_some_and(|name| name.contains("fill_the_warehouse") && !name.contains("{"))
    };
    let row = profile["functions"]
        .as_array()
        .unwrap()
        .iter()
        .find(is_wanted)
        .unwrap_or_else(|| panic!("{profile}"));
    let (total, wanted) = (row["total"].as_f64().unwrap(), (SIZE * BLOCKS) as f64);
    assert!((0.8..1.25).contains(&(total / wanted)), "{total} of {wanted} bytes");
    // What was allocated between two profiles.
    let grown =
        ask(&admin, &format!("/hotspots/heap?view={}&base={before}&format=json", profile["id"]), "").json();
    let grown =
        grown["data"]["profile"]["functions"].as_array().unwrap().iter().find(is_wanted).unwrap()["grown"]
            .clone();
    assert!(grown.as_f64().is_some_and(|grown| grown > 0.0), "{grown}");
    let html = ask(&admin, "/hotspots/heap", "User-Agent: Mozilla/5.0\r\n").body;
    assert!(html.contains("name=take") && !html.contains("<svg"), "{html}");
    let html =
        ask(&admin, &format!("/hotspots/heap?view={}", profile["id"]), "User-Agent: Mozilla/5.0\r\n").body;
    assert!(
        html.contains("<svg") && !html.contains("by method") && !html.contains("Methods whose"),
        "{html}"
    );
    go_reads_the_profile(&admin, &profile["id"].to_string());
    drop(shelf);
}

fn go_reads_the_profile(admin: &AdminHandle, id: &str) {
    let url = format!("http://{}/pprof/heap?view={id}", admin.address());
    let Ok(output) = Command::new("go")
        .args(["tool", "pprof", "-top", "-cum", &url])
        .env("PPROF_TMPDIR", env!("CARGO_TARGET_TMPDIR"))
        .output()
    else {
        eprintln!("SKIPPED: go is not installed, which reads profiles");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Type: inuse_space") && text.contains("fill_the_warehouse"), "{text}");
}

//! What a console keeps in memory: series of many variables and methods, and the recorded calls.

mod common;

use std::alloc::System;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{page, send};
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Raw};
use polyrpc::layers::Metrics;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Context, Format, Server};
use polyrpc_console::vars::Counter;
use polyrpc_console::{Admin, Console, Role};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const METHODS: usize = 200;
const VARIABLES: usize = 1_000;
const MIB: f64 = (1 << 20) as f64;

/// Returns the memory in use, in MiB.
fn memory_in_use() -> f64 {
    let stats = ALLOCATOR.stats();
    (stats.bytes_allocated as f64 - stats.bytes_deallocated as f64) / MIB
}

/// Returns the names of the threads that consoles of this process have.
fn console_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("polyrpc-")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn series_and_spans_keep_to_their_budgets() {
    let mut service = ServiceBuilder::new("Echo");
    for method in 0..METHODS {
        let echo = |cx: Context, body: Bytes| std::future::ready((cx, Ok(body)));
        service = service.method::<Raw, Bytes, Bytes, _, _>(&format!("Method{method}"), echo);
    }
    let server = Server::new().service(service).count_calls(&Metrics::new());
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    let call_all = async || {
        for method in 0..METHODS {
            let body = Body::new(Format::Raw, Bytes::from_static(b"a"));
            let target = format!("Echo/Method{method}");
            let called = client.call_raw(&target, body, CallOptions::default());
            assert_eq!(called.await.unwrap().message.bytes, "a");
        }
    };
    call_all().await;
    assert_eq!(console_threads(), [""; 0], "nothing runs without a console");
    let before = memory_in_use();
    let variables: Vec<_> = (0..VARIABLES).map(|n| Counter::new(&format!("memory_test_{n}"))).collect();
    let console = Console::new();
    assert_eq!(console_threads(), [""; 0], "nothing runs while nothing is observed");
    console.observe(&server);
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, "a-token-for-writing").writable();
    let admin = admin.anonymous(Role::Read).start(&console).unwrap();
    let set = |samples: &str| {
        let target = format!("/flags/rpcz_samples_per_second?setvalue={samples}");
        let answer =
            send(admin.address(), "GET", &target, "Authorization: Bearer a-token-for-writing\r\n", "");
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    set("0");
    // Every sample of every method's window has counts of its own.
    for _ in 0..11 {
        call_all().await;
        variables.iter().for_each(|variable| variable.add(1));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for target in ["/status", "/vars"] {
        page(&admin, target);
    }
    let series = memory_in_use() - before;
    assert!(series < 8.0, "the series take {series:.1} MiB");

    set("10000");
    let end = Instant::now() + Duration::from_secs(60);
    let total = loop {
        call_all().await;
        let total = page(&admin, "/rpcz?format=json&max_scan=1").json()["data"]["total"].as_u64().unwrap();
        if total > 5_000 {
            break total;
        }
        assert!(Instant::now() < end, "{total} spans");
    };
    let spans = memory_in_use() - before - series;
    assert!(spans < 16.0, "{total} spans take {spans:.1} MiB");
    println!("series {series:.1} MiB, {total} spans {spans:.1} MiB");

    drop((admin, console));
    let end = Instant::now() + Duration::from_secs(60);
    while !console_threads().is_empty() {
        assert!(Instant::now() < end, "still there: {:?}", console_threads());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The console's own things are gone with it; the variables and the server are not.
    let left = memory_in_use() - before;
    assert!(left < series + spans, "{left:.1} of {:.1} MiB are left", series + spans);
}

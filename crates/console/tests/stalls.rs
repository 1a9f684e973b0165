//! Calls in flight, and handlers that block the threads of their connections.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{observe, page, services, wait_until};
use polyrpc::Client;
use polyrpc_console::Admin;
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_and_stalls_are_named() {
    let go = Arc::new(Notify::new());
    let waits = go.clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let blocks = is_over.clone();
    let server = services()
        .function("Shop/Wait", move || {
            let waits = waits.clone();
            async move { waits.notified().await }
        })
        .function("Shop/Block", move || {
            let is_over = blocks.clone();
            async move { block_until(&is_over) }
        });
    let (console, server) = observe(server).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let client = Client::new(&format!("grpc://{}", server.address())).unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.call::<()>("Shop/Wait", &()).await }
    });
    let json = |target: &str| page(&admin, target).json()["data"].clone();
    wait_until(|| json("/tasks?format=json&method=Shop.Wait")["calls"][0]["phase"] == "handler waits").await;
    assert_eq!(json("/tasks?format=json&method=Shop.Wait")["total"], 1);
    let call = json("/tasks?format=json&method=Shop*")["calls"][0].clone();
    assert_eq!((call["phase"].as_str(), call["protocol"].as_str()), (Some("handler waits"), Some("grpc")));
    assert!(call["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{call}");
    assert!(page(&admin, "/tasks").body.contains("|Shop/Wait (handler waits)\n"));
    go.notify_one();
    waiting.await.unwrap().unwrap();

    // Handlers of other tests of the process, and those that get no processor, may stall, too.
    let stall = || {
        let stalls = json("/tasks?format=json")["stalls"].clone();
        let is_wanted = |stall: &&serde_json::Value| stall["name"] == "Shop/Block";
        stalls.as_array().unwrap().iter().find(is_wanted).cloned().unwrap_or_default()
    };
    for count in 1..=2_u64 {
        let client = client.clone();
        let blocking = tokio::spawn(async move { client.call::<()>("Shop/Block", &()).await });
        wait_without_timers(|| stall()["count"] == count);
        is_over.store(true, Ordering::Relaxed);
        blocking.await.unwrap().unwrap();
    }
    let stall = stall();
    assert_eq!(stall["count"], 2);
    assert!(
        stall["longest"].as_u64().is_some_and(|longest| (20_000..60_000_000).contains(&longest)),
        "{stall}"
    );
    let metrics = page(&admin, "/metrics").body;
    assert!(metrics.contains("rpc_stalls{method=\"Shop/Block\"} 2"), "{metrics}");
    wait_until(|| json("/tasks?format=json&method=Shop*")["total"] == 0).await;
}

/// Waits without the runtime's timers. If a handler blocks the worker that polls them, they stop: the other workers sleep
/// until they are notified. This thread is not a worker, so blocking it delays no task.
fn wait_without_timers(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "it does not become true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Blocks the thread until this is set, which it resets, and a minute at most.
fn block_until(is_over: &AtomicBool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_over.swap(false, Ordering::Relaxed) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handler_that_blocks_in_its_first_poll_is_listed_by_the_time_in_it() {
    let go = Arc::new(AtomicBool::new(false));
    let blocks = go.clone();
    // The counter of a method's stalls is that of the process: no other test has a method of this name.
    let server = services()
        .function("Shop/Hold", move || {
            let go = blocks.clone();
            async move { block_until(&go) }
        })
        .function("Shop/Wait", std::future::pending::<()>);
    let (console, server) = observe(server).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    // Each has a connection of its own: the other calls of a connection wait for a handler that blocks.
    let call = |method: &'static str| {
        let client = Client::new(&format!("grpc://{}", server.address())).unwrap();
        tokio::spawn(async move { client.call::<()>(method, &()).await })
    };
    let calls = || page(&admin, "/tasks?format=json&method=Shop*").json()["data"]["calls"].clone();
    let blocking = call("Shop/Hold");
    wait_without_timers(|| calls()[0]["age"].is_number());
    let waiting = call("Shop/Wait");
    wait_without_timers(|| calls().as_array().is_some_and(|calls| calls.len() == 2));
    let listed = calls();
    go.store(true, Ordering::Relaxed);
    assert_eq!((&listed[0]["name"], &listed[1]["name"]), (&"Shop/Hold".into(), &"Shop/Wait".into()));
    blocking.await.unwrap().unwrap();
    waiting.abort();
}

//! A service moves from rpcx to its rewrite in gRPC, without a failed call.

use std::sync::atomic::Ordering;

use polyrpc_gateway::{Config, Gateway, check};
use serde_json::Value;

use super::shop::{Customers, Shop, page, proto, wait_for_page};

/// The surcharge is the rewrite's mistake.
const SURCHARGE: i64 = 1;

fn configuration(a: &Shop, b: &Shop, route: &str) -> Config {
    let text = format!(
        r#"
            name = "moving"
            [admin]
            listen = "127.0.0.1:0"
            [schema]
            proto = ["{proto}"]
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "a"
            url = "rpcx://{a}"
            format = "msgpack"
            [[upstream]]
            name = "b"
            url = "grpc://{b}"
            [[route]]
            name = "shop"
            match = {{ service = "shop.Shop" }}
            {route}
        "#,
        proto = proto(),
        a = a.address(),
        b = b.address()
    );
    let config = Config::parse(&text).unwrap();
    check(&config).unwrap();
    config
}

/// The verdicts on the paths at which the mirror differed.
fn verdicts(report: &Value) -> Vec<(String, String)> {
    let paths = report[0]["methods"][0]["paths"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    paths.iter().map(|path| (text(&path["path"]), text(&path["verdict"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_moves_to_its_rewrite_and_back_without_a_failed_call() {
    let (a, mut b) = (Shop::start(0).await, Shop::start(SURCHARGE).await);
    let mirrored = "to = { a = 100, b = 0 }\n[route.mirror]\nto = \"b\"\nrate = 100000\ntimeout = \"60s\"";
    let mut gateway = Gateway::start(configuration(&a, &b, mirrored)).await.unwrap();
    let customers = Customers::new(&gateway);

    // The mirror finds the wrong field, and only that, though the time differs in every call.
    customers.shop(10_000).await;
    let count = |report: &Value, name: &str| report[0]["copies"][name].as_i64().unwrap();
    let all = ["equal", "different", "failed", "unmeasured", "dropped", "paused", "untranslatable"];
    let report = wait_for_page(&gateway, "report", |report| {
        all.iter().map(|name| count(report, name)).sum::<i64>() == 10_000
    })
    .await;
    let expected = [("price", "differs"), ("time", "noise")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(verdicts(&report), expected, "{report:#}");
    for name in ["failed", "unmeasured", "paused", "untranslatable"] {
        assert_eq!(count(&report, name), 0, "{name} {report:#}");
    }
    // Other gateways of this process have other variables.
    let findings = page(&gateway, "vars/moving_mirror_findings").await;
    assert_eq!(findings["variables"][0]["value"].as_f64(), Some(1.0), "{findings:#}");
    let price = &report[0]["methods"][0]["paths"][0];
    assert!(price["samples"].as_array().unwrap().len() == 5, "{price}");
    // One of the prices may be zero, which ProtoJSON leaves out.
    for shown in price["samples"].as_array().unwrap().iter().flat_map(|sample| sample.as_array().unwrap()) {
        let shown = shown.as_str().unwrap();
        assert!(shown == "absent" || shown.starts_with("number, #"), "values are redacted: {price}");
    }

    // The rewrite takes over step by step.
    for (share, least) in [(1, 0), (50, 500), (100, 1000)] {
        // A stall of the machine in a single call may be thousands of times as long as a call.
        let rollback = "rollback = { to = \"a\", failures = 0.05, p99_ratio = 1000000.0, min_calls = 50 }";
        let route = format!("to = {{ a = {}, b = {share} }}\n{rollback}", 100 - share);
        gateway.reload(configuration(&a, &b, &route)).await.unwrap();
        let before = b.calls.load(Ordering::Relaxed);
        customers.shop(1_000).await;
        let taken = b.calls.load(Ordering::Relaxed) - before;
        assert!(taken >= least / 2 && taken <= 1_000, "{share} %: {taken}");
    }
    let routes = page(&gateway, "routes").await;
    assert!(routes[1]["fell_back"].is_null(), "{routes:#}");

    // It breaks: what fails there is answered by the old service, which soon gets all calls.
    b.is_broken.store(true, Ordering::Relaxed);
    let before = a.calls.load(Ordering::Relaxed);
    customers.shop(1_000).await;
    assert_eq!(a.calls.load(Ordering::Relaxed) - before, 1_000);
    let routes = page(&gateway, "routes").await;
    assert!(routes[1]["fell_back"].as_str().unwrap().contains("calls failed"), "{routes:#}");
    let before = b.calls.load(Ordering::Relaxed);
    b.is_broken.store(false, Ordering::Relaxed);
    customers.shop(200).await;
    assert_eq!(b.calls.load(Ordering::Relaxed), before, "the route does not return by itself");

    // A new route starts with empty counters; a removed service fails no call either.
    let route = "to = { a = 0, b = 100 }\nrollback = { to = \"a\", failures = 0.1, min_calls = 50 }";
    gateway.reload(configuration(&a, &b, route)).await.unwrap();
    customers.shop(200).await;
    assert_eq!(b.calls.load(Ordering::Relaxed), before + 200);
    b.stop().await;
    customers.shop(500).await;
    let routes = page(&gateway, "routes").await;
    assert!(!routes[0]["fell_back"].is_null(), "{routes:#}");
    gateway.shutdown().await;
}

//! What a mirror may not do: delay callers, repeat what has side effects, take more than its bounds.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Bytes, Client, Code, Format, Json};
use polyrpc_gateway::{Config, Gateway};
use serde_json::Value;
use tokio::net::TcpListener;

use super::shop::{Customers, Shop, page, proto, wait_for_page};

async fn gateway(a: &str, b: &str, mirror: &str) -> Gateway {
    let text = format!(
        r#"
            [admin]
            listen = "127.0.0.1:0"
            [schema]
            proto = ["{proto}"]
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "a"
            url = "grpc://{a}"
            [[upstream]]
            name = "b"
            url = "grpc://{b}"
            [[route]]
            to = "a"
            [route.mirror]
            to = "b"
            {mirror}
        "#,
        proto = proto()
    );
    Gateway::start(Config::parse(&text).unwrap()).await.unwrap()
}

fn count(report: &Value, name: &str) -> i64 {
    report[0]["copies"][name].as_i64().unwrap()
}

/// A listener that accepts and never answers.
async fn silent_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_that_does_not_answer_delays_no_caller_and_is_paused() {
    let a = Shop::start(0).await;
    let (_listener, silent) = silent_listener().await;
    let gateway = gateway(&a.address(), &silent, "concurrent = 8\ntimeout = \"1s\"\nrate = 100000").await;
    let started = Instant::now();
    let customers = Customers::new(&gateway);
    customers.shop(2_000).await;
    // Eight copies wait for a second each; one call that waited for its copy would show.
    assert!(started.elapsed() < Duration::from_secs(60));
    let report = page(&gateway, "report").await;
    assert!(count(&report, "dropped") + count(&report, "paused") >= 2_000 - 8 - 8 * 60, "{report:#}");
    assert_eq!(count(&report, "equal"), 0);
    // Every copy that was made fails, and further ones are not made. Calls go on meanwhile: a pause ends by itself, and the
    // next begins only when further copies have failed.
    let started = Instant::now();
    let report = loop {
        let report = page(&gateway, "report").await;
        if report[0]["paused"] == true {
            break report;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{report:#}");
        customers.call("Get", 1).await.unwrap();
    };
    assert!(count(&report, "failed") >= 5, "{report:#}");
    let before = count(&report, "paused");
    customers.call("Get", 1).await.unwrap();
    let is_over = |report: &Value| count(report, "paused") > before || report[0]["paused"] == false;
    wait_for_page(&gateway, "report", is_over).await;
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_safe_methods_are_copied() {
    let (a, b) = (Shop::start(0).await, Shop::start(0).await);
    let gateway = gateway(&a.address(), &b.address(), "share = 1.0").await;
    let customers = Customers::new(&gateway);
    for id in 0..50 {
        customers.call("Buy", id).await.unwrap();
    }
    customers.call("Get", 1).await.unwrap();
    let report =
        wait_for_page(&gateway, "report", |report| count(report, "equal") + count(report, "different") == 1)
            .await;
    assert_eq!(report[0]["methods"][0]["method"], "shop.Shop/Get");
    assert_eq!(b.calls.load(Ordering::Relaxed), 1);
    // The second primary is the first one, asked again on a connection of its own.
    assert_eq!(a.calls.load(Ordering::Relaxed), 52);
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_methods_and_a_part_of_the_calls_are_copied() {
    let (a, b) = (Shop::start(0).await, Shop::start(0).await);
    // No copy is dropped or fails because the machine is busy.
    let bounds = "concurrent = 1000\ntimeout = \"60s\"";
    let mirror = "share = 0.2\nnoise = \"b\"\nrule = [{ path = \"time\", ignore = true }]";
    let text_of_route = format!("{bounds}\n{mirror}\n[[route]]\nto = \"a\"");
    let gateway = gateway(&a.address(), &b.address(), &text_of_route).await;
    Customers::new(&gateway).shop(1_000).await;
    let report = wait_for_page(&gateway, "report", |report| {
        count(report, "equal") + count(report, "dropped") == b.calls.load(Ordering::Relaxed) as i64 / 2
            && count(report, "equal") > 100
    })
    .await;
    assert!((100..300).contains(&count(&report, "equal")), "{report:#}");
    assert_eq!(count(&report, "different"), 0, "the time is ignored");
    assert_eq!(a.calls.load(Ordering::Relaxed), 1_000, "the noise is measured at another upstream");
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_a_call_that_cannot_be_retried_counts_as_dropped() {
    let (new, b) = (Shop::start(0).await, Shop::start(0).await);
    new.is_broken.store(true, Ordering::Relaxed);
    let text = format!(
        r#"
            [admin]
            listen = "127.0.0.1:0"
            [schema]
            proto = ["{proto}"]
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "new"
            url = "grpc://{new}"
            [[upstream]]
            name = "old"
            url = "rest-rpc://127.0.0.1:1"
            [[upstream]]
            name = "b"
            url = "grpc://{b}"
            [[route]]
            to = {{ new = 100, old = 0 }}
            rollback = {{ to = "old", failures = 1.0 }}
            [route.mirror]
            to = "b"
        "#,
        proto = proto(),
        new = new.address(),
        b = b.address()
    );
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let client = Client::new(&format!("http://{}", gateway.addresses()[0])).unwrap();
    let body = Body::new(Format::Json(Json::Brpc), r#"{"id":1}"#);
    // The types of the old upstream's functions, where the call would be repeated, are not declared.
    let refused = client.call_raw("shop.Shop/Get", body, CallOptions::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    assert!(refused.message().contains("json cannot become rest_rpc"), "{refused}");
    let report = page(&gateway, "report").await;
    assert_eq!(count(&report, "dropped"), 1, "{report:#}");
    assert_eq!(b.calls.load(Ordering::Relaxed), 0);
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_a_call_whose_caller_goes_away_counts_as_dropped() {
    let (listener, silent) = silent_listener().await;
    let b = Shop::start(0).await;
    let gateway = gateway(&silent, &b.address(), "").await;
    let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let body = Body::new(Format::Protobuf, Bytes::new());
    let _connection = tokio::select! {
        _ = client.call_raw("shop.Shop/Get", body, CallOptions::default()) => panic!("nothing answers"),
        // The copy is prepared before the gateway connects.
        accepted = listener.accept() => accepted.unwrap(),
    };
    wait_for_page(&gateway, "report", |report| count(report, "dropped") == 1).await;
    assert_eq!(b.calls.load(Ordering::Relaxed), 0);
    gateway.shutdown().await;
}

/// The slowest hundredth of calls with a mirror that does not answer within this time, and without one: medians of this
/// many rounds of calls.
async fn percentiles(timeout: &str, rounds: usize, calls: usize) -> [Duration; 2] {
    let a = Shop::start(0).await;
    let (_listener, silent) = silent_listener().await;
    let (with, without) = (
        gateway(&a.address(), &silent, &format!("timeout = \"{timeout}\"")).await,
        gateway(&a.address(), &silent, "share = 0.0").await,
    );
    let mut p99 = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (gateway, all) in [&with, &without].into_iter().zip(&mut p99) {
            let customers = Customers::new(gateway);
            customers.call("Get", 1).await.unwrap();
            let mut times = Vec::new();
            for id in 0..calls {
                let started = Instant::now();
                customers.call("Get", id).await.unwrap();
                times.push(started.elapsed());
            }
            times.sort();
            all.push(times[times.len() * 99 / 100]);
        }
    }
    p99.map(|mut all| {
        all.sort();
        all[all.len() / 2]
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_do_not_wait_for_a_slow_mirror() {
    let [with, without] = percentiles("20s", 3, 100).await;
    // Far more than the noise of a busy machine, and far less than a caller that waits for its copy.
    assert!(with < without + Duration::from_secs(5), "{with:?} {without:?}");
}

/// A mirror that takes a hundred times as long as the primary changes the callers' percentile by less than the noise of
/// the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement for an idle machine: `cargo test --release -p polyrpc-gateway --test traffic -- --ignored`"]
async fn slow_mirror_keeps_the_percentile_of_callers() {
    let [with, without] = percentiles("100ms", 9, 3_000).await;
    println!("p99 with a slow mirror {with:?}, without {without:?}");
    assert!(with.as_secs_f64() <= without.as_secs_f64() * 1.05, "{with:?} {without:?}");
}

//! Upstreams that break, and configurations that are broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polyrpc::client::CallOptions;
use polyrpc::{Bytes, Client, Code, Format};
use polyrpc_gateway::{Config, Gateway, check_online};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::shop::{Customers, Shop, proto, wait_for_page};

/// What a broken upstream does once it has read a request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It closes the connection.
    Closes,
    /// It begins an answer, and closes the connection.
    ClosesMidway,
    /// It begins an answer, and says nothing more.
    Stalls,
    /// It answers with bytes of no protocol.
    Garbage,
}

/// Starts an upstream with this fault; returns its address.
async fn start_broken(fault: Fault, beginning: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let Ok(1..) = stream.read(&mut request).await else { return };
                let written = match fault {
                    Fault::Closes => &b""[..],
                    Fault::ClosesMidway | Fault::Stalls => beginning,
                    Fault::Garbage => &[0xa5; 512],
                };
                let _ = stream.write_all(written).await;
                if matches!(fault, Fault::Stalls) {
                    // Until the gateway closes it.
                    while let Ok(1..) = stream.read(&mut request).await {}
                }
            });
        }
    });
    address
}

fn configuration(scheme: &str, wrong: &str, right: &str) -> String {
    format!(
        r#"
            [schema]
            proto = ["{proto}"]
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "wrong"
            url = "{scheme}://{wrong}"
            timeout = "500ms"
            retries = 0
            [[upstream]]
            name = "right"
            url = "grpc://{right}"
            [[route]]
            match = {{ method = "Buy" }}
            to = "wrong"
            [[route]]
            to = "right"
        "#,
        proto = proto()
    )
}

/// Both upstreams are this shop, with time enough for calls that must succeed on a busy machine.
fn patient_configuration(shop: &Shop) -> String {
    let text = configuration("grpc", &shop.address(), &shop.address());
    text.replace("timeout = \"500ms\"", "timeout = \"60s\"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_upstream_fails_its_own_calls_in_time() {
    let shop = Shop::start(0).await;
    // Beginnings of answers in each protocol.
    let beginnings: [(&str, &[u8]); 4] = [
        ("http", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"id\""),
        ("grpc", b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"),
        ("baidu-std", b"PRPC\0\0\0\x64\0\0\0\x08\x12"),
        ("rpcx", b"\x08\0\x01\x60\0\0\0\0\0\0\0\x01\0\0\0\x64"),
    ];
    for (scheme, beginning) in beginnings {
        for fault in [Fault::Closes, Fault::ClosesMidway, Fault::Stalls, Fault::Garbage] {
            let wrong = start_broken(fault, beginning).await;
            let text = configuration(scheme, &wrong, &shop.address());
            let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
            let customers = Customers::new(&gateway);
            let started = Instant::now();
            let failure = customers.call("Buy", 1).await.unwrap_err();
            assert!(started.elapsed() < Duration::from_secs(30), "{scheme} {fault:?}");
            let known = [Code::Unavailable, Code::DeadlineExceeded, Code::Internal, Code::Unknown];
            assert!(known.contains(&failure.code()), "{scheme} {fault:?}: {failure}");
            // The caller learns which upstream it was, but not where.
            let begins = failure.message().starts_with("polyrpc-gateway: upstream `wrong`");
            assert!(begins || matches!(fault, Fault::Garbage), "{scheme} {fault:?}: {failure}");
            assert!(!failure.message().contains(&wrong), "{scheme} {fault:?}: {failure}");
            // The others go on.
            assert_eq!(customers.call("Get", 7).await.unwrap()["price"], 21, "{scheme} {fault:?}");
            gateway.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_stream_that_passes_unread_names_the_upstream_and_no_address() {
    let shop = Shop::start(0).await;
    let wrong = start_broken(Fault::ClosesMidway, b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64").await;
    let text = configuration("grpc", &wrong, &shop.address()).replace("Buy", "Chat");
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let chat = async {
        let mut call = client.open_raw("shop.Feed/Chat", CallOptions::default(), Format::Protobuf).await?;
        // If the call has ended, its receiving half has the reason.
        let _ = call.send(Bytes::from_static(b"\x08\x07")).await;
        call.next().await
    };
    let failure = timeout(Duration::from_secs(30), chat).await.expect("an answer").map(drop).unwrap_err();
    assert!(failure.message().starts_with("polyrpc-gateway: upstream `wrong`"), "{failure}");
    assert!(!failure.message().contains(&wrong), "{failure}");
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_reloads_under_load_fail_no_call() {
    let shop = Shop::start(0).await;
    let text = patient_configuration(&shop);
    let mut gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut customers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, stop, made) = (Customers::new(&gateway), stop.clone(), made.clone());
        customers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                client.call("Get", 7).await.unwrap();
                client.call("Buy", 7).await.unwrap();
                made.fetch_add(2, Ordering::Relaxed);
            }
        });
    }
    let broken = [
        text.replace("shop.proto", "missing.proto"),
        text.replace("grpc://", "nothing://"),
        text.replace("127.0.0.1:0\"", "127.0.0.1:0\"\ntls = {cert = \"no\", key = \"no\"}"),
        format!("{text}\n[[listen]]\naddress = \"203.0.113.1:1\""),
    ];
    for _ in 0..5 {
        for broken in &broken {
            gateway.reload(Config::parse(broken).unwrap()).await.unwrap_err();
        }
        // A right one between them moves the calls, and fails none.
        let moved = text.replace("to = \"right\"", "to = \"wrong\"");
        gateway.reload(Config::parse(&moved).unwrap()).await.unwrap();
        gateway.reload(Config::parse(&text).unwrap()).await.unwrap();
    }
    let enough = made.load(Ordering::Relaxed) + 100;
    let started = Instant::now();
    while made.load(Ordering::Relaxed) < enough {
        assert!(started.elapsed() < Duration::from_secs(120));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = customers.join_next().await {
        ended.unwrap();
    }
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_without_threads_in_the_file_keeps_those_of_the_start() {
    let shop = Shop::start(0).await;
    let text = configuration("grpc", &shop.address(), &shop.address());
    // Hardly a machine has seven cores.
    let with_threads = |threads: usize| Config::parse(&format!("threads = {threads}\n{text}")).unwrap();
    let mut gateway = Gateway::start(with_threads(7)).await.unwrap();
    // A further upstream gets clients for the threads that there are.
    let more = format!("{text}\n[[upstream]]\nname = \"more\"\nurl = \"grpc://{}\"", shop.address());
    gateway.reload(Config::parse(&more).unwrap()).await.unwrap();
    gateway.reload(with_threads(7)).await.unwrap();
    let refused = gateway.reload(with_threads(8)).await.unwrap_err().to_string();
    assert!(refused.contains("`threads` cannot change while the gateway runs"), "{refused}");
    assert_eq!(Customers::new(&gateway).call("Get", 7).await.unwrap()["price"], 21);
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_is_repeated_keeps_its_only_permit_of_the_route() {
    let shop = Shop::start(0).await;
    let wrong = start_broken(Fault::Closes, b"").await;
    let rollback = "rollback = { to = \"right\", failures = 1.0 }";
    let text = configuration("grpc", &wrong, &shop.address()).replace(
        "to = \"wrong\"",
        &format!("to = {{ wrong = 1, right = 0 }}\ncalls = 1\nsafe = [\"*/Buy\"]\n{rollback}"),
    );
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let customers = Customers::new(&gateway);
    for id in 0..5 {
        assert_eq!(customers.call("Buy", id).await.unwrap()["id"].as_i64().unwrap_or(0), id as i64);
    }
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_limit_of_a_route_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let text = configuration("grpc", &silent, &silent)
        .replace(
            "match = { method = \"Buy\" }",
            "name = \"limited\"\ncalls = 4\nmatch = { method = \"Buy\" }",
        )
        .replace("timeout = \"500ms\"", "timeout = \"60s\"")
        .replace("name = \"right\"", "name = \"right\"\ntimeout = \"100ms\"");
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let customers = Customers::new(&gateway);
    let mut calls = tokio::task::JoinSet::new();
    for id in 0..20 {
        let customers = customers.clone();
        calls.spawn(async move { customers.call("Buy", id).await.unwrap_err() });
    }
    for _ in 0..16 {
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("overloaded: too many calls of `limited`"), "{refused}");
    }
    // Four are under way, until they are given up.
    assert_eq!(calls.len(), 4);
    drop(calls);
    assert_eq!(customers.call("Get", 1).await.unwrap_err().code(), Code::DeadlineExceeded);
}

/// Calls whose only message does not come take no permit from those whose message comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_without_a_message_do_not_use_up_the_limit_of_a_route() {
    let shop = Shop::start(0).await;
    let text = patient_configuration(&shop).replace(
        "match = { method = \"Buy\" }",
        "name = \"limited\"\ncalls = 4\nmatch = { method = \"Buy\" }",
    );
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let mut silent = Vec::new();
    for _ in 0..8 {
        let opened = client.open_raw("shop.Shop/Buy", CallOptions::default(), Format::Protobuf).await;
        silent.push(opened.unwrap());
    }
    let customers = Customers::new(&gateway);
    for id in 0..20 {
        assert_eq!(customers.call("Buy", id).await.unwrap()["id"].as_i64().unwrap_or(0), id as i64);
    }
    drop(silent);
}

/// An upstream that cannot be asked for its description keeps no other route from working.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_reflection_stops_neither_the_start_nor_a_reload() {
    let shop = Shop::start(0).await;
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let text = configuration("grpc", &closed, &shop.address())
        .replace("[[listen]]", "reflect = [\"wrong\"]\n[[listen]]");
    let mut gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let customers = Customers::new(&gateway);
    assert_eq!(customers.call("Get", 7).await.unwrap()["price"], 21);
    gateway.reload(Config::parse(&text.replace("500ms", "400ms")).unwrap()).await.unwrap();
    assert_eq!(customers.call("Get", 8).await.unwrap()["price"], 24);
    // The error names the upstream.
    let problems = check_online(&Config::parse(&text).unwrap()).await.unwrap_err().to_string();
    assert!(problems.contains("upstream `wrong` cannot be asked for its reflection"), "{problems}");
    gateway.shutdown().await;
}

/// A gateway has no methods of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_has_the_methods_that_callers_called() {
    let shop = Shop::start(0).await;
    let text = configuration("grpc", &shop.address(), &shop.address());
    let text = format!("{text}\n[admin]\nlisten = \"127.0.0.1:0\"");
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    Customers::new(&gateway).call("Get", 7).await.unwrap();
    let status = wait_for_page(&gateway, "status", |status| status["seen"][0]["succeeded"] == 1).await;
    assert_eq!(status["seen"][0]["method"], "shop.Shop/Get", "{status:#}");
    gateway.shutdown().await;
}

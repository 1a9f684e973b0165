//! Concurrency limits, and calls that are not started.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::server::ConcurrencyLimit;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Code, Context, Protocol, Retry, Server};

use crate::common::{ADORNED, PROTOCOLS, Prober, Wire, client, json_call, serve, soon};

/// A caller whose call is pending in the server.
async fn waiting(
    prober: &Prober,
    protocol: Protocol,
    server: &polyrpc::server::ServerHandle,
) -> tokio::task::JoinHandle<polyrpc::client::Result<String>> {
    let (client, came) = (client(protocol, server), prober.gate.count());
    let call = tokio::spawn(async move { client.call::<String>("Probe/Wait", "x").await });
    prober.gate.came(came + 1).await;
    call
}

#[tokio::test]
async fn call_over_the_limit_is_rejected_as_retryable_elsewhere() {
    for (limit, text) in [
        (
            Server::concurrency_limit as fn(Server, ConcurrencyLimit) -> Server,
            "Reached server's max_concurrency=2",
        ),
        (Server::concurrency_limit_per_method, "Reached the method's max_concurrency=2"),
    ] {
        let prober = Prober::default();
        let server = serve(limit(prober.server(), ConcurrencyLimit::Constant(2))).await;
        let mut calls = Vec::new();
        for _ in 0..2 {
            calls.push(waiting(&prober, Protocol::BaiduStd, &server).await);
        }
        for protocol in PROTOCOLS {
            let error = soon(client(protocol, &server).call::<String>("Probe/Wait", "x")).await.unwrap_err();
            assert!(error.message().contains(text), "{protocol:?}: {error}");
            assert_eq!(error.code(), Code::ResourceExhausted, "{protocol:?}");
            assert_eq!(error.status().retry(), Retry::Elsewhere, "{protocol:?}");
        }
        // Each method may have a limit, or all together.
        let other = soon(client(Protocol::Rpcx, &server).call::<String>("Probe/Echo", "x")).await;
        assert_eq!(other.is_ok(), text.contains("method"));
        prober.gate.open();
        for call in calls {
            soon(call).await.unwrap().unwrap();
        }
        soon(client(Protocol::Rpcx, &server).call::<String>("Probe/Wait", "x")).await.unwrap();
    }
}

#[tokio::test]
async fn method_limit_applies_to_it_and_its_slot_is_freed_with_its_caller() {
    let prober = Prober::default();
    let server = prober
        .server()
        .concurrency_limit_per_method(ConcurrencyLimit::Constant(1))
        .concurrency_limit_for("Probe", ConcurrencyLimit::Unlimited)
        .concurrency_limit_for("Probe/Wait", "1".parse().unwrap());
    let server = serve(server).await;
    let first = waiting(&prober, Protocol::Grpc, &server).await;
    assert!(soon(client(Protocol::Rpcx, &server).call::<String>("Probe/Wait", "x")).await.is_err());
    // Over gRPC the server learns that the caller has gone.
    first.abort();
    drop(first.await);
    let patient = client(Protocol::Rpcx, &server);
    let next =
        tokio::spawn(async move { crate::common::again(|| patient.call::<String>("Probe/Wait", "x")).await });
    prober.gate.came(2).await;
    prober.gate.open();
    assert_eq!(soon(next).await.unwrap(), "x");
}

#[tokio::test]
async fn blocking_handler_keeps_its_slot_after_its_caller_left() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    let begun = Arc::new(AtomicUsize::new(0));
    let reported = begun.clone();
    let service = ServiceBuilder::new("S").blocking_method::<Raw, Bytes, Bytes, _, _>(
        "Hold",
        move |cx: Context, body| {
            let (held, reported) = (held.clone(), reported.clone());
            async move {
                reported.fetch_add(1, Ordering::SeqCst);
                let _ = held.lock().unwrap().recv();
                (cx, Ok(body))
            }
        },
    );
    let server = serve(Server::new().service(service).concurrency_limit(ConcurrencyLimit::Constant(1))).await;
    let mut wire = Wire::connect(Protocol::Rpcx, &server).await;
    let mut call = json_call("S", "Hold", "x");
    call.timeout = Some(Duration::from_millis(50));
    let mut n = 0;
    // On a busy machine the deadline may pass before the handler starts: then it is called again.
    soon(async {
        while begun.load(Ordering::SeqCst) == 0 {
            n += 1;
            wire.send(n, &call).await;
            let code = wire.reply().await.unwrap().1.result.unwrap_err().code();
            assert!(n > 1 || code == Code::DeadlineExceeded, "{code}");
        }
    })
    .await;
    call.timeout = None;
    n += 1;
    wire.send(n, &call).await;
    assert_eq!(wire.reply().await.unwrap().1.result.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    release.send(()).unwrap();
    release.send(()).unwrap();
    // Its thread needs a moment to release the slot.
    soon(async {
        loop {
            n += 1;
            wire.send(n, &call).await;
            match wire.reply().await.unwrap().1.result {
                Ok(_) => return,
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted),
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn standard_services_are_exempt_from_the_limit() {
    let prober = Prober::default();
    let health = polyrpc::introspection::Health::new();
    let server =
        serve(prober.server().health(&health).concurrency_limit(ConcurrencyLimit::Constant(1))).await;
    let call = waiting(&prober, Protocol::Rpcx, &server).await;
    let body = polyrpc::codec::Body::new(polyrpc::Format::Protobuf, "");
    let asked = client(Protocol::Grpc, &server);
    soon(asked.call_raw("grpc.health.v1.Health/Check", body, Default::default())).await.unwrap();
    prober.gate.open();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_expired_in_the_queue_is_not_started() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let service =
        ServiceBuilder::new("S").method::<Raw, Bytes, Bytes, _, _>("Busy", move |cx: Context, body| {
            counted.fetch_add(1, Ordering::SeqCst);
            // Blocks the thread, so that later calls are queued.
            let until = Instant::now() + Duration::from_millis(30);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            async { (cx, Ok(body)) }
        });
    let server = serve(Server::new().service(service)).await;
    for protocol in ADORNED {
        let mut wire = Wire::connect(protocol, &server).await;
        let mut call = json_call("S", "Busy", "x");
        call.timeout = Some(Duration::from_millis(10));
        let mut bytes = wire.encode(1, &call);
        for id in [3, 5, 7, 9] {
            bytes.extend(wire.encode(id, &call));
        }
        ran.store(0, Ordering::SeqCst);
        wire.socket.send(&bytes).await;
        let mut late = 0;
        for _ in 0..5 {
            if let Err(status) = wire.reply().await.expect("an answer").1.result {
                assert_eq!(status.code(), Code::DeadlineExceeded, "{protocol:?}");
                assert!(status.message().contains("the deadline passed before it started"), "{protocol:?}");
                late += 1;
            }
        }
        assert!(late >= 3 && ran.load(Ordering::SeqCst) == 5 - late, "{protocol:?}: {late}");
        assert!(server.info().expired >= 3, "{protocol:?}");
    }
}

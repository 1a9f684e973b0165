//! Calls in flight, as `Metrics` lists them.

use std::sync::Arc;
use std::time::Duration;

use polyrpc::layer::Side;
use polyrpc::layers::{Metrics, current_polls, watch_calls};
use polyrpc::{Client, Server};
use tokio::sync::{Mutex, Notify, mpsc};

/// Lets one test run at a time: watching calls concerns the whole process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Waits for a condition.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn calls_are_listed_while_they_wait_and_while_they_run() {
    let _alone = ALONE.lock().await;
    let (metrics, go) = (Metrics::new(), Arc::new(Notify::new()));
    let (let_go, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let (entered, mut has_entered) = mpsc::channel(1);
    let gone = go.clone();
    let server = Server::new()
        .function("wait", move || {
            let gone = gone.clone();
            async move { gone.notified().await }
        })
        .function("block", move || {
            let (blocked, entered) = (blocked.clone(), entered.clone());
            async move {
                entered.send(()).await.unwrap();
                // On purpose, in the connection's task.
                let _ = blocked.lock().unwrap().recv();
            }
        });
    let server = server.count_calls(&metrics).bind("127.0.0.1:0").await.unwrap().start();
    let client = |protocol: &str| Client::new(&format!("{protocol}://{}", server.address())).unwrap();
    let unwatched = tokio::spawn({
        let client = client("rpcx");
        async move { client.call::<()>("wait", &()).await }
    });
    until(|| metrics.methods().iter().any(|method| method.in_flight() == 1)).await;
    assert!(metrics.calls_in_flight().is_empty(), "nobody watches");
    go.notify_one();
    unwatched.await.unwrap().unwrap();

    let watch = watch_calls();
    let waiting = tokio::spawn({
        let client = client("grpc");
        async move { client.call::<()>("wait", &()).await }
    });
    // During its first poll, and another one, it is listed otherwise.
    until(|| matches!(&metrics.calls_in_flight()[..], [call] if call.age.is_some() && call.poll.is_none()))
        .await;
    let [call] = &metrics.calls_in_flight()[..] else { panic!() };
    assert_eq!((call.side, call.protocol, call.method.as_str()), (Side::Server, "grpc", "wait"));
    assert!(call.age.is_some() && call.poll.is_none(), "{call:?}");
    assert!(call.peer.as_ref().is_some_and(|peer| peer.to_string().starts_with("127.0.0.1:")), "{call:?}");

    let blocking = tokio::spawn({
        let client = client("rpcx");
        async move { client.call::<()>("block", &()).await }
    });
    has_entered.recv().await.unwrap();
    let poll = || {
        current_polls()
            .into_iter()
            .find(|poll| metrics.call_of_poll(poll).is_some_and(|call| call.method == "block"))
    };
    let first = poll().expect("it is polled");
    assert_eq!(poll(), Some(first), "it is the same poll");
    assert_eq!(metrics.calls_in_flight().len(), 2);
    let_go.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    until(|| poll().is_none()).await;

    go.notify_one();
    waiting.await.unwrap().unwrap();
    until(|| metrics.calls_in_flight().is_empty()).await;
    drop(watch);
}

#[tokio::test]
async fn abandoned_calls_leave_the_list() {
    let _alone = ALONE.lock().await;
    let metrics = Metrics::new();
    let _watch = watch_calls();
    let server = Server::new().function("wait", std::future::pending::<()>).count_calls(&metrics);
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    let counted = Metrics::new();
    let client = Client::builder(&format!("rpcx://{}", server.address())).layer(counted.clone());
    let client = client.build().unwrap();
    let call = client.call::<()>("wait", &());
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
    assert!(counted.calls_in_flight().is_empty());
    drop(client);
    drop(server);
    until(|| metrics.calls_in_flight().is_empty()).await;
}

//! Callers that do not read their responses, or wait long for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc::{Bytes, Client, Format, Server};
use polyrpc_gateway::{Config, Gateway};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;

/// A server whose responses have 1 MiB, or 10 bytes if the method is `Small`; `Wait` has none. And the number of the
/// large ones.
async fn store() -> (ServerHandle, Arc<AtomicUsize>) {
    let calls = Arc::<AtomicUsize>::default();
    let counted = calls.clone();
    let server = Server::new().fallback(move |mut call: RawRequest| {
        let size = if call.method() == "Small" { 10 } else { MIB };
        let waits = call.method() == "Wait";
        counted.fetch_add(size / MIB, Ordering::Relaxed);
        async move {
            if waits {
                std::future::pending::<()>().await;
            }
            let format = call.body().await?.format;
            let mut response = RawResponse::message(vec![7_u8; size]);
            response.format = Some(format);
            Ok(response)
        }
    });
    (server.bind("127.0.0.1:0").await.unwrap().start(), calls)
}

async fn gateway(store: &ServerHandle) -> Gateway {
    gateway_with(store, "").await
}

/// A gateway with this option of its upstream.
async fn gateway_with(store: &ServerHandle, option: &str) -> Gateway {
    let text = format!(
        r#"
            [limits]
            memory = "32MiB"
            write_timeout = "1s"
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "store"
            url = "rpcx://{}"
            {option}
            [[route]]
            to = "store"
        "#,
        store.address()
    );
    Gateway::start(Config::parse(&text).unwrap()).await.unwrap()
}

fn client(gateway: &Gateway) -> Client {
    Client::builder(&format!("rpcx://{}", gateway.addresses()[0])).timeout(PATIENCE).build().unwrap()
}

async fn call(client: &Client, method: &str) -> usize {
    let body = Body::new(Format::Raw, Bytes::from_static(b"x"));
    let response = client.call_raw(&format!("Store/{method}"), body, CallOptions::default()).await;
    response.unwrap().message.bytes.len()
}

/// A call of rpcx, with raw bytes as its payload.
fn frame(method: &str, seq: u64) -> Vec<u8> {
    let mut blocks = Vec::new();
    for block in [&b"Store"[..], method.as_bytes(), b"", b"x"] {
        blocks.extend((block.len() as u32).to_be_bytes());
        blocks.extend(block);
    }
    let mut frame = vec![0x08, 0, 0, 0];
    frame.extend(seq.to_be_bytes());
    frame.extend((blocks.len() as u32).to_be_bytes());
    frame.extend(blocks);
    frame
}

/// Connects, sends this many calls, and reads nothing.
async fn call_without_reading(gateway: &Gateway, calls: u64) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // So that the system takes few responses.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let address = gateway.addresses()[0].to_string().parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let frames: Vec<u8> = (1..=calls).flat_map(|seq| frame("Large", seq)).collect();
    stream.write_all(&frames).await.unwrap();
    stream
}

/// Waits until the gateway has closed the connection, without reading from it.
async fn wait_for_close(mut stream: TcpStream) {
    while stream.write_all(&frame("Small", 0)).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_do_not_read_get_few_calls_forwarded_and_are_closed_in_time() {
    const CALLERS: usize = 4;
    const CALLS: usize = 200;
    let (store, calls) = store().await;
    let gateway = gateway(&store).await;
    let client = client(&gateway);
    // From now on the gateway knows how long the responses are.
    assert_eq!(timeout(PATIENCE, call(&client, "Large")).await.unwrap(), MIB);
    let mut silent = Vec::new();
    for _ in 0..CALLERS {
        silent.push(call_without_reading(&gateway, CALLS as u64).await);
    }
    // Others get their responses meanwhile, large ones too.
    for _ in 0..10 {
        assert_eq!(timeout(PATIENCE, call(&client, "Large")).await.unwrap(), MIB);
        assert_eq!(timeout(PATIENCE, call(&client, "Small")).await.unwrap(), 10);
    }
    for stream in silent {
        timeout(PATIENCE, wait_for_close(stream)).await.expect("it is closed after the write timeout");
    }
    // Each has at most 3 MiB unread or under way, and what its socket takes.
    let forwarded = calls.load(Ordering::Relaxed);
    assert!(forwarded < CALLERS * CALLS / 4, "{forwarded} calls were forwarded");
    assert_eq!(timeout(PATIENCE, call(&client, "Large")).await.unwrap(), MIB);
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_that_reads_gets_every_large_response_however_many_it_asks_for() {
    const CALLS: usize = 100;
    let (store, calls) = store().await;
    let gateway = gateway(&store).await;
    let client = client(&gateway);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let client = client.clone();
        waiting.spawn(async move { call(&client, "Large").await });
    }
    let answers = timeout(PATIENCE, waiting.join_all()).await.expect("no call waits forever");
    assert!(answers.iter().all(|size| *size == MIB), "{answers:?}");
    assert_eq!(calls.load(Ordering::Relaxed), CALLS);
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_of_one_caller_leave_permits_for_others() {
    let (store, _) = store().await;
    let gateway = gateway_with(&store, "calls = 32").await;
    let (greedy, other) = (client(&gateway), client(&gateway));
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let greedy = greedy.clone();
        let body = Body::new(Format::Raw, Bytes::from_static(b"x"));
        waiting.spawn(async move { greedy.call_raw("Store/Wait", body, CallOptions::default()).await });
    }
    // A sixteenth of the permits is for other connections.
    for _ in 0..10 {
        let refused = timeout(PATIENCE, waiting.join_next()).await.expect("some calls are refused");
        let refused = refused.unwrap().unwrap().unwrap_err();
        assert!(refused.message().contains("too many calls of `store` are in flight"), "{refused}");
    }
    assert_eq!(timeout(PATIENCE, call(&other, "Small")).await.unwrap(), 10);
    assert_eq!(waiting.len(), 30);
    waiting.shutdown().await;
    gateway.shutdown().await;
}

/// Calls of a method without any response so far are not held back for long: they may all wait for the same event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_long_for_their_responses_are_all_forwarded() {
    const CALLS: usize = 200;
    let arrived = Arc::<AtomicUsize>::default();
    let (counted, everyone) = (arrived.clone(), Arc::new(tokio::sync::Barrier::new(CALLS)));
    let server = Server::new().fallback(move |mut call: RawRequest| {
        let everyone = everyone.clone();
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let format = call.body().await?.format;
            everyone.wait().await;
            let mut response = RawResponse::message("done");
            response.format = Some(format);
            Ok(response)
        }
    });
    let store = server.bind("127.0.0.1:0").await.unwrap().start();
    let gateway = gateway(&store).await;
    let client = client(&gateway);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let client = client.clone();
        waiting.spawn(async move { call(&client, "Wait").await });
    }
    let answers = timeout(PATIENCE, waiting.join_all()).await;
    let arrived = arrived.load(Ordering::Relaxed);
    assert!(answers.is_ok_and(|answers| answers.iter().all(|size| *size == 4)), "{arrived} arrived");
    gateway.shutdown().await;
}

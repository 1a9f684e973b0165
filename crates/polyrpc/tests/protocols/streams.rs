//! Streaming methods over gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polyrpc::client::Request;
use polyrpc::{Client, Code, Context, Protocol, Result, Server, Status, Streaming};

use crate::common::{client, failure_of, serve, soon, until};

#[polyrpc::service]
trait Numbers {
    async fn count(&self, cx: &mut Context, to: u64) -> Result<Streaming<u64>>;
    async fn pair(&self, a: u64, b: u64) -> Result<Streaming<u64>>;
    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64>;
    async fn double(&self, cx: &mut Context, numbers: Streaming<u64>) -> Result<Streaming<u64>>;
    async fn blobs(&self, size: usize, times: usize) -> Result<Streaming<String>>;
    async fn plain(&self, n: u64) -> Result<u64>;
}

#[derive(Default, Clone)]
struct Counting {
    made: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
}

/// Counts live objects.
struct Life(Arc<AtomicUsize>);

impl Life {
    fn begin(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Numbers for Counting {
    async fn count(&self, cx: &mut Context, to: u64) -> Result<Streaming<u64>> {
        if to > 1000 {
            return Err(Status::invalid_argument("too far").into());
        }
        cx.reply_options().metadata.insert("counts", "up");
        cx.reply_options().trailers.insert("behind", "all");
        let life = Life::begin(&self.alive);
        Ok(Streaming::produce(move |sender| async move {
            let _life = life;
            for n in 0..to {
                sender.send(n).await?;
            }
            match to {
                666 => Err(Status::not_found("667").into()),
                // Until the receiver is dropped.
                999 => std::future::pending().await,
                _ => Ok(()),
            }
        }))
    }

    async fn pair(&self, a: u64, b: u64) -> Result<Streaming<u64>> {
        Ok(Streaming::from_iter([a, b]))
    }

    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64> {
        crate::common::sum(numbers).await
    }

    async fn double(&self, _: &mut Context, mut numbers: Streaming<u64>) -> Result<Streaming<u64>> {
        let life = Life::begin(&self.alive);
        Ok(Streaming::produce(move |sender| async move {
            let _life = life;
            while let Some(n) = numbers.message().await? {
                sender.send(2 * n).await?;
            }
            Ok(())
        }))
    }

    async fn blobs(&self, size: usize, times: usize) -> Result<Streaming<String>> {
        let made = self.made.clone();
        Ok(Streaming::from_iter((0..times).map(move |_| {
            made.fetch_add(1, Ordering::SeqCst);
            "x".repeat(size)
        })))
    }

    async fn plain(&self, n: u64) -> Result<u64> {
        Ok(n)
    }
}

async fn numbers() -> (NumbersClient, Counting, polyrpc::server::ServerHandle) {
    let counting = Counting::default();
    let server = serve(Server::new().service(NumbersServer::new(counting.clone()))).await;
    (NumbersClient::new(client(Protocol::Grpc, &server)), counting, server)
}

async fn all<T>(mut messages: Streaming<T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(message) = soon(messages.message()).await? {
        all.push(message);
    }
    Ok(all)
}

#[tokio::test]
async fn every_call_kind_is_served_and_called() {
    let (client, _counting, _server) = numbers().await;
    assert_eq!(soon(client.plain(3)).await.unwrap(), 3);
    assert_eq!(all(soon(client.count(3)).await.unwrap()).await.unwrap(), [0, 1, 2]);
    assert_eq!(all(soon(client.pair(7, 8)).await.unwrap()).await.unwrap(), [7, 8]);
    assert_eq!(all(soon(client.count(0)).await.unwrap()).await.unwrap(), [0; 0]);
    assert_eq!(soon(client.sum(Streaming::from_iter(1..=100))).await.unwrap(), 5050);
    assert_eq!(soon(client.sum(Streaming::empty())).await.unwrap(), 0);
    assert_eq!(
        all(soon(client.double(Streaming::from_iter(0..500))).await.unwrap()).await.unwrap().len(),
        500
    );
}

#[tokio::test]
async fn both_directions_proceed_independently() {
    let (client, _counting, _server) = numbers().await;
    let (sender, requests) = Streaming::channel(1);
    // The head arrives before any message.
    let mut answers = soon(client.double(requests)).await.unwrap();
    for n in 0..10 {
        sender.send(n).await.unwrap();
        assert_eq!(soon(answers.message()).await.unwrap(), Some(2 * n));
    }
    drop(sender);
    assert_eq!(soon(answers.message()).await.unwrap(), None);
}

#[tokio::test]
async fn headers_and_trailers_arrive() {
    let (client, _counting, _server) = numbers().await;
    let response = soon(client.count_with(Request::new(2))).await.unwrap();
    assert_eq!(response.metadata.get("counts"), Some("up"));
    let mut messages = response.message;
    while soon(messages.message()).await.unwrap().is_some() {}
    assert_eq!(messages.trailers().get("behind"), Some("all"));
}

#[tokio::test]
async fn failure_ends_the_stream_at_once_or_in_the_middle() {
    let (client, _counting, _server) = numbers().await;
    let error = soon(client.count(5000)).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "too far"));
    let mut messages = soon(client.count(666)).await.unwrap();
    for n in 0..666 {
        assert_eq!(soon(messages.message()).await.unwrap(), Some(n));
    }
    let error = soon(messages.message()).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "667"));
    assert_eq!(soon(messages.message()).await.unwrap(), None);
}

#[tokio::test]
async fn failing_request_stream_cancels_the_call() {
    let (client, counting, _server) = numbers().await;
    let (sender, requests) = Streaming::channel(1);
    let mut answers = soon(client.double(requests)).await.unwrap();
    sender.send(1).await.unwrap();
    assert_eq!(soon(answers.message()).await.unwrap(), Some(2));
    sender.fail(Status::cancelled("no more")).await;
    let error = soon(answers.message()).await.unwrap_err();
    assert_eq!(error.message(), "no more");
    until(|| counting.alive.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn dropped_response_stream_ends_the_handler() {
    let (client, counting, server) = numbers().await;
    let mut messages = soon(client.count(999)).await.unwrap();
    assert_eq!(soon(messages.message()).await.unwrap(), Some(0));
    assert_eq!(counting.alive.load(Ordering::SeqCst), 1);
    drop(messages);
    until(|| counting.alive.load(Ordering::SeqCst) == 0).await;
    assert_eq!(soon(client.plain(3)).await.unwrap(), 3, "the connection goes on");
    assert_eq!(server.connection_count(), 1);
}

/// The endless stream of a call with this deadline. On a busy machine the deadline may pass before the response starts:
/// then it is called again.
async fn counted_until(client: &NumbersClient, timeout: Duration) -> Streaming<u64> {
    soon(async {
        loop {
            match client.count_with(Request::new(999).with_timeout(timeout)).await {
                Ok(response) => return response.message,
                Err(error) => assert_eq!(error.code(), Code::DeadlineExceeded, "{error}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn stream_ends_at_its_deadline() {
    let (client, counting, _server) = numbers().await;
    let messages = counted_until(&client, Duration::from_millis(100)).await;
    assert_eq!(failure_of(messages).await.code(), Code::DeadlineExceeded);
    until(|| counting.alive.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn slow_reader_blocks_only_its_handler() {
    const SIZE: usize = 10_000;
    let (client, counting, _server) = numbers().await;
    let mut blobs = soon(client.blobs(SIZE, 10_000)).await.unwrap();
    assert!(soon(blobs.message()).await.unwrap().is_some());
    // As far as windows and buffers allow, and no further.
    let made = loop {
        let before = counting.made.load(Ordering::SeqCst);
        for n in 0..50 {
            assert_eq!(soon(client.plain(n)).await.unwrap(), n);
        }
        if counting.made.load(Ordering::SeqCst) == before {
            break before;
        }
    };
    assert!(made * SIZE < 1 << 20, "{made} were made");
    let mut taken = 1;
    while soon(blobs.message()).await.unwrap().is_some() {
        taken += 1;
    }
    assert_eq!(taken, 10_000);
}

#[tokio::test]
async fn calls_over_the_stream_limit_open_another_connection() {
    let (client, _counting, server) = numbers().await;
    let mut open = Vec::new();
    for _ in 0..1100 {
        open.push(soon(client.count(999)).await.unwrap());
    }
    assert!(server.connection_count() >= 2, "{}", server.connection_count());
    assert_eq!(soon(client.plain(3)).await.unwrap(), 3);
}

#[tokio::test]
async fn protocol_without_streams_rejects_them() {
    let server = serve(Server::new().service(NumbersServer::new(Counting::default()))).await;
    for protocol in [Protocol::Rpcx, Protocol::Http] {
        let client: Client = crate::common::client(protocol, &server);
        let client = NumbersClient::new(client);
        let error = soon(client.count(3)).await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{protocol:?}");
        assert_eq!(soon(client.plain(3)).await.unwrap(), 3, "{protocol:?}");
    }
}

/// The call carries the first message, the attached stream the others.
#[tokio::test]
async fn baidu_std_streaming_method_uses_an_attached_stream() {
    let counting = Counting::default();
    let server = serve(Server::new().service(NumbersServer::new(counting.clone()))).await;
    let client = NumbersClient::new(crate::common::client(Protocol::BaiduStd, &server));
    let response = soon(client.count_with(Request::new(3))).await.unwrap();
    assert_eq!(response.metadata.get("counts"), Some("up"));
    assert_eq!(all(response.message).await.unwrap(), [0, 1, 2]);
    assert_eq!(all(soon(client.count(0)).await.unwrap()).await.unwrap(), [0; 0]);
    assert_eq!(all(soon(client.pair(7, 8)).await.unwrap()).await.unwrap(), [7, 8]);
    let (sender, requests) = Streaming::channel(1);
    let mut answers = soon(client.double(requests)).await.unwrap();
    for n in 0..100 {
        sender.send(n).await.unwrap();
        assert_eq!(soon(answers.message()).await.unwrap(), Some(2 * n));
    }
    drop(answers);
    until(|| counting.alive.load(Ordering::SeqCst) == 0).await;
    // All of them available: the first is sent with the call.
    let mut answers = soon(client.double(Streaming::from_iter(1..=3))).await.unwrap();
    for n in 1..=3 {
        assert_eq!(soon(answers.message()).await.unwrap(), Some(2 * n));
    }
}

#[tokio::test]
async fn baidu_std_streaming_method_ends_at_its_deadline() {
    let counting = Counting::default();
    let server = serve(Server::new().service(NumbersServer::new(counting.clone()))).await;
    let client = NumbersClient::new(crate::common::client(Protocol::BaiduStd, &server));
    let messages = counted_until(&client, Duration::from_millis(500)).await;
    assert_eq!(failure_of(messages).await.code(), Code::DeadlineExceeded);
    until(|| counting.alive.load(Ordering::SeqCst) == 0).await;
    assert_eq!(soon(client.plain(3)).await.unwrap(), 3, "the connection goes on");
}

#[tokio::test]
async fn baidu_std_early_failure_fails_the_call_and_a_late_one_resets_the_stream() {
    let (counting, server) = (Counting::default(), Server::new());
    let server = serve(server.service(NumbersServer::new(counting.clone()))).await;
    let client = NumbersClient::new(crate::common::client(Protocol::BaiduStd, &server));
    let error = soon(client.count(5000)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let mut messages = soon(client.count(666)).await.unwrap();
    for n in 0..666 {
        assert_eq!(soon(messages.message()).await.unwrap(), Some(n));
    }
    assert_eq!(soon(messages.message()).await.unwrap_err().code(), Code::Unknown);
    let messages = soon(client.count(999)).await.unwrap();
    drop(messages);
    until(|| counting.alive.load(Ordering::SeqCst) == 0).await;
    let error = soon(client.sum(Streaming::from_iter(1..=3))).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert_eq!(soon(client.plain(3)).await.unwrap(), 3);
}

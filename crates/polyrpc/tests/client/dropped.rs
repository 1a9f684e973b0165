//! Futures of a client that are dropped at every point at which they wait.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use polyrpc::client::FailMode;
use polyrpc::discovery::{Instance, List};
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Protocol, Result, Streaming};

use crate::common::{PROTOCOLS, again, serve, soon, unreachable_address, until, url};

/// Methods of each shape.
#[polyrpc::service]
trait Shapes {
    async fn echo(&self, text: String) -> Result<String>;
    async fn double(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>>;
    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64>;
}

struct Shaped;

impl Shapes for Shaped {
    async fn echo(&self, text: String) -> Result<String> {
        // Pending once, so that calls are in flight on the server when they are dropped.
        tokio::task::yield_now().await;
        Ok(text)
    }

    async fn double(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>> {
        Ok(crate::common::doubled(numbers))
    }

    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64> {
        crate::common::sum(numbers).await
    }
}

async fn shapes() -> ServerHandle {
    serve(polyrpc::Server::new().service(ShapesServer::new(Shaped))).await
}

/// What is dropped, and of which client.
type DropCase = (&'static str, fn(&Client) -> Pin<Box<dyn Future<Output = ()> + '_>>);

const UNARY: [DropCase; 1] = [("a call", |client| {
    Box::pin(async move {
        let _ = ShapesClient::new(client.clone()).echo("dropped".into()).await;
    })
})];

const STREAMING: [DropCase; 3] = [
    ("a bidirectional call", |client| {
        Box::pin(async move {
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            let numbers = Streaming::produce(move |out| async move {
                let mut receiver = receiver;
                while let Some(number) = receiver.recv().await {
                    out.send(number).await?;
                }
                Ok(())
            });
            let Ok(mut doubled) = ShapesClient::new(client.clone()).double(numbers).await else { return };
            for number in 0..3_u64 {
                let _ = sender.send(number).await;
                let _ = doubled.message().await;
            }
            drop(sender);
            while let Ok(Some(_)) = doubled.message().await {}
        })
    }),
    ("a client-streaming call", |client| {
        Box::pin(async move {
            let numbers = Streaming::produce(|out| async move {
                for number in 0..20_u64 {
                    out.send(number).await?;
                }
                Ok(())
            });
            let _ = ShapesClient::new(client.clone()).sum(numbers).await;
        })
    }),
    ("a call of an unknown method", |client| {
        Box::pin(async move {
            let _ = client.call::<String>("Shapes/Nothing", "dropped").await;
        })
    }),
];

/// Polls a future this many times, whenever it asks for that, and drops it. Returns whether it ended before.
async fn drop_after(polls: usize, mut future: Pin<Box<dyn Future<Output = ()> + '_>>) -> bool {
    let mut left = polls;
    poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Limit of the polls of one future: far above those of the longest.
const MOST: usize = 1000;

/// Drops each future after one poll, after two, and so on until it ends before; a new client each time, or the same.
async fn drop_at_every_point(
    what: &str,
    futures: &[DropCase],
    client: impl Fn() -> Client,
    servers: &[&ServerHandle],
    is_reused: bool,
) {
    for (name, future) in futures {
        let name = format!("{what}, {name}, {}", if is_reused { "the same client" } else { "a new client" });
        let mut current = client();
        let mut ended = 0;
        for polls in 1..MOST {
            if !is_reused {
                current = client();
            }
            ended += usize::from(soon(drop_after(polls, future(&current))).await);
            // A poll may come later or earlier: how often it is polled until it ends varies.
            if ended == 3 {
                break;
            }
        }
        assert_eq!(ended, 3, "{name}: it never ends");
        let kept = || async { ShapesClient::new(current.clone()).echo("kept".into()).await };
        assert_eq!(again(kept).await, "kept", "{name}");
        until(|| servers.iter().all(|server| server.info().pending_calls + server.info().open_streams == 0))
            .await;
        until(|| current.endpoints().iter().all(|endpoint| endpoint.in_flight == 0)).await;
        drop(current);
        // Nor is a connection left behind.
        until(|| servers.iter().all(|server| server.connection_count() == 0)).await;
    }
}

#[tokio::test]
async fn call_dropped_at_any_point_leaks_nothing() {
    for protocol in PROTOCOLS {
        let server = shapes().await;
        let client = || Client::new(&url(protocol, &server)).unwrap();
        for is_reused in [false, true] {
            drop_at_every_point(protocol.as_str(), &UNARY, client, &[&server], is_reused).await;
        }
    }
}

#[tokio::test]
async fn streaming_call_dropped_at_any_point_leaks_nothing() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let server = shapes().await;
        let client = || Client::new(&url(protocol, &server)).unwrap();
        let futures = if protocol == Protocol::Grpc { &STREAMING[..] } else { &STREAMING[2..] };
        for is_reused in [false, true] {
            drop_at_every_point(protocol.as_str(), futures, client, &[&server], is_reused).await;
        }
    }
}

#[tokio::test]
async fn call_over_several_servers_dropped_at_any_point_leaks_nothing() {
    let (one, other) = (shapes().await, shapes().await);
    let addresses = [one.address().to_string(), other.address().to_string(), unreachable_address()];
    for mode in [FailMode::Failover, FailMode::Failbackup] {
        let client = || {
            let builder =
                Client::builder("rpcx://both").discover(List::new(addresses.clone().map(Instance::tcp)));
            builder.fail_mode(mode).backup_after(Duration::ZERO).idempotent().build().unwrap()
        };
        for is_reused in [false, true] {
            let what = format!("rpcx, {mode:?}");
            drop_at_every_point(&what, &UNARY, client, &[&one, &other], is_reused).await;
        }
    }
}

#[tokio::test]
async fn shutdown_dropped_at_any_point_closes_the_server() {
    for polls in 1..MOST {
        let server = shapes().await;
        let address = server.address().to_string();
        let client = Client::new(&url(Protocol::Rpcx, &server)).unwrap();
        soon(ShapesClient::new(client.clone()).echo("hi".into())).await.unwrap();
        let ended = soon(drop_after(polls, Box::pin(server.shutdown(Duration::from_secs(10))))).await;
        until(|| std::net::TcpStream::connect(&address).is_err()).await;
        assert!(soon(ShapesClient::new(client).echo("late".into())).await.is_err());
        if ended {
            return;
        }
    }
    panic!("the shutdown never ends");
}

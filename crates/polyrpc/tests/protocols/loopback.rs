//! The public API over loopback: one service, called over every protocol.

use std::time::Duration;

use polyrpc::client::{ConnectionMode, Request};
use polyrpc::{Client, Code, Context, Protocol, Result, Server, Status};
use serde::{Deserialize, Serialize};

/// The protocols that support everything these tests use.
const PROTOCOLS: [Protocol; 4] = [Protocol::BaiduStd, Protocol::Rpcx, Protocol::Grpc, Protocol::Http];

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Args {
    a: i32,
    b: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reply {
    c: i32,
}

#[polyrpc::service]
trait Arith {
    async fn mul(&self, args: Args) -> Result<Reply>;
    async fn error(&self, args: Args) -> Result<Reply>;
    async fn panic(&self, args: Args) -> Result<Reply>;
    async fn wait(&self, args: Args) -> Result<Reply>;
    #[rpc(blocking)]
    async fn block(&self, args: Args) -> Result<Reply>;
    async fn meta(&self, cx: &mut Context, args: Args) -> Result<Reply>;
}

struct Calculator;

impl Arith for Calculator {
    async fn mul(&self, args: Args) -> Result<Reply> {
        Ok(Reply { c: args.a * args.b })
    }

    async fn error(&self, _: Args) -> Result<Reply> {
        Err(Status::internal("boom"))?
    }

    async fn panic(&self, _: Args) -> Result<Reply> {
        panic!("oh no")
    }

    async fn wait(&self, _: Args) -> Result<Reply> {
        std::future::pending().await
    }

    async fn block(&self, args: Args) -> Result<Reply> {
        std::thread::yield_now();
        Ok(Reply { c: args.a })
    }

    async fn meta(&self, cx: &mut Context, args: Args) -> Result<Reply> {
        let echoed = cx.metadata().get("k1").unwrap_or("none").to_owned();
        cx.reply_options().metadata.insert("echo", echoed);
        Ok(Reply { c: args.a })
    }
}

fn server() -> Server {
    Server::new()
        .service(ArithServer::new(Calculator))
        .function("echo", |text: String| async move { text })
        .function("add", |a: i32, b: i32| async move { a + b })
}

fn url(protocol: Protocol, address: &polyrpc::Address) -> String {
    format!("{}://{address}", protocol.as_str())
}

#[tokio::test]
async fn one_service_answers_every_protocol_on_one_port() {
    let server = server().bind("127.0.0.1:0").await.unwrap().start();
    for protocol in PROTOCOLS {
        for kind in [ConnectionMode::Shared, ConnectionMode::Pooled, ConnectionMode::Short] {
            let client =
                Client::builder(&url(protocol, server.address())).connection_mode(kind).build().unwrap();
            let arith = ArithClient::new(client.clone());
            let args = Args { a: 7, b: 8 };
            let case = format!("{protocol:?} {kind:?}");
            assert_eq!(arith.mul(args.clone()).await.expect(&case), Reply { c: 56 }, "{case}");
            assert_eq!(arith.block(args.clone()).await.expect(&case), Reply { c: 7 }, "{case}");
            let error = arith.error(args.clone()).await.unwrap_err();
            assert!(error.message().contains("boom"), "{case}: {error}");
            let error = arith.panic(args.clone()).await.unwrap_err();
            assert!(error.message().contains("the handler panicked"), "{case}: {error}");
            if protocol != Protocol::NetRpc {
                let request = Request::new(args.clone()).with_metadata("k1", "v1");
                let reply = arith.meta_with(request).await.unwrap();
                assert_eq!(reply.metadata.get("echo"), Some("v1"), "{case}");
            }
            assert_eq!(client.call::<String>("echo", "hello").await.expect(&case), "hello", "{case}");
            assert_eq!(client.call::<i32>("add", &(1, 2)).await.expect(&case), 3, "{case}");
            let error = client.call::<i32>("Arith/Nope", &(1, 2)).await.unwrap_err();
            assert_eq!(error.code(), Code::Unimplemented, "{case}: {error}");
        }
    }
}

#[tokio::test]
async fn slow_call_ends_at_its_deadline() {
    let server = server().bind("127.0.0.1:0").await.unwrap().start();
    for protocol in PROTOCOLS {
        let arith = ArithClient::new(Client::new(&url(protocol, server.address())).unwrap());
        let slow = Request::new(Args { a: 7, b: 8 }).with_timeout(Duration::from_millis(50));
        let error = arith.wait_with(slow).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{protocol:?}: {error}");
        assert_eq!(arith.mul(Args { a: 2, b: 3 }).await.unwrap(), Reply { c: 6 });
    }
}

#[tokio::test]
async fn many_callers_share_one_connection_without_mixing_replies() {
    let server = server().bind("127.0.0.1:0").await.unwrap().start();
    for protocol in PROTOCOLS {
        let client = Client::new(&url(protocol, server.address())).unwrap();
        let callers: Vec<_> = (0..64)
            .map(|caller| {
                let client = client.clone();
                tokio::spawn(async move {
                    for n in 0..50 {
                        assert_eq!(client.call::<i32>("add", &(caller, n)).await.unwrap(), caller + n);
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
    }
}

#[test]
fn blocking_client_calls_without_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async { server().bind("127.0.0.1:0").await.unwrap().start() });
    for protocol in PROTOCOLS {
        let client = polyrpc::blocking::Client::new(&url(protocol, server.address())).unwrap();
        let arith = ArithBlockingClient::new(client.clone());
        assert_eq!(arith.mul(Args { a: 7, b: 8 }).unwrap(), Reply { c: 56 });
        let long = "x".repeat(1 << 20);
        assert_eq!(client.call::<String>("echo", &long).unwrap(), long);
        let error = arith.panic(Args { a: 7, b: 8 }).unwrap_err();
        assert!(error.message().contains("the handler panicked"), "{error}");
    }
}

#[tokio::test]
async fn in_process_client_needs_no_network() {
    let server = server().bind("127.0.0.1:0").await.unwrap().start();
    for protocol in PROTOCOLS {
        let client = server.client(protocol).unwrap();
        assert_eq!(client.call::<i32>("add", &(1, 2)).await.unwrap(), 3);
    }
}

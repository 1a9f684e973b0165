//! Services: what `#[polyrpc::service]` makes of a trait, and services written by hand.

mod common;

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use common::{ADORNED, PROTOCOLS, client, serve, serve_apart, url};
use polyrpc::client::{CallOptions, Request};
use polyrpc::codec::{Body, Raw};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Format, Protocol, Result, Server};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Item {
    name: String,
    count: u32,
}

#[polyrpc::service(name = "shop.v1.Cart")]
trait Cart {
    /// Several arguments.
    async fn add_item(&self, name: String, count: u32) -> Result<Item>;
    /// None.
    async fn list(&self) -> Result<Vec<Item>>;
    #[rpc(name = "total")]
    async fn sum(&self, items: Vec<Item>) -> Result<u32>;
    async fn greet(&self, who: String) -> Result<String> {
        Ok(format!("hello {who}"))
    }
    #[rpc(blocking)]
    async fn thread(&self) -> Result<String>;
    async fn protocol(&self, cx: &mut Context, suffix: String) -> Result<String>;
    async fn fails(&self) -> std::result::Result<(), std::num::ParseIntError>;
    /// Names that generated code might use itself.
    async fn names(&self, cx: i32, implementation: i32, result: i32, response: i32) -> Result<i32>;
    async fn r#type(&self, request: i32) -> Result<i32>;
}

struct Shop;

impl Cart for Shop {
    async fn add_item(&self, name: String, count: u32) -> Result<Item> {
        Ok(Item { name, count })
    }

    async fn list(&self) -> Result<Vec<Item>> {
        let mut polled = false;
        poll_fn(|cx| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
        Ok(vec![Item { name: "pear".into(), count: 2 }])
    }

    async fn sum(&self, items: Vec<Item>) -> Result<u32> {
        Ok(items.iter().map(|item| item.count).sum())
    }

    async fn thread(&self) -> Result<String> {
        // Would panic on a thread that drives connections.
        let name = tokio::runtime::Handle::current().block_on(async { 1 });
        Ok(format!("thread {name}"))
    }

    async fn protocol(&self, cx: &mut Context, suffix: String) -> Result<String> {
        Ok(format!("{}{suffix}", cx.protocol().as_str()))
    }

    async fn fails(&self) -> std::result::Result<(), std::num::ParseIntError> {
        "x".parse::<i32>().map(drop)
    }

    async fn names(&self, cx: i32, implementation: i32, result: i32, response: i32) -> Result<i32> {
        Ok(cx + implementation + result + response)
    }

    async fn r#type(&self, request: i32) -> Result<i32> {
        Ok(request)
    }
}

#[tokio::test]
async fn every_method_signature_is_served() {
    let server = serve(Server::new().service(CartServer::new(Shop))).await;
    let urls = PROTOCOLS.map(|protocol| url(protocol, &server));
    let json_rpc = format!("http+json-rpc://{}", server.address());
    for url in urls.iter().chain([&json_rpc]) {
        let cart = CartClient::new(Client::new(url).unwrap());
        let pear = Item { name: "pear".into(), count: 2 };
        assert_eq!(cart.add_item("pear".into(), 2).await.expect(url), pear);
        assert_eq!(cart.list().await.expect(url), std::slice::from_ref(&pear));
        assert_eq!(cart.sum(vec![pear.clone(), pear]).await.expect(url), 4);
        assert_eq!(cart.greet("you".into()).await.expect(url), "hello you");
        assert_eq!(cart.protocol("!".into()).await.expect(url), format!("{}!", protocol_of(url)));
        assert_eq!(cart.names(1, 2, 3, 4).await.expect(url), 10);
        assert_eq!(cart.r#type(7).await.expect(url), 7);
        let error = cart.fails().await.unwrap_err();
        // What the handler met is nobody's business but the server's.
        assert!(error.message().contains("internal error"), "{url}: {error}");
        assert!(!error.message().contains("digit"), "{url}: {error}");
    }
}

fn protocol_of(url: &str) -> &str {
    url.split(['+', ':']).next().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_method_can_block_its_thread() {
    let server = serve(Server::new().service(CartServer::new(Shop))).await;
    for protocol in PROTOCOLS {
        let cart = CartClient::new(client(protocol, &server));
        assert_eq!(cart.thread().await.unwrap(), "thread 1", "{protocol:?}");
    }
}

#[test]
fn blocking_stub_has_the_same_methods() {
    let (_runtime, server) = serve_apart(Server::new().service(CartServer::new(Shop)));
    for protocol in PROTOCOLS {
        let client = polyrpc::blocking::Client::new(&url(protocol, &server)).unwrap();
        let cart = CartBlockingClient::new(client);
        assert_eq!(cart.add_item("pear".into(), 2).unwrap().count, 2);
        assert_eq!(cart.list().unwrap().len(), 1);
        assert_eq!(cart.greet_with(Request::new("you".into())).unwrap().message, "hello you");
        assert!(cart.fails().is_err());
    }
}

#[tokio::test]
async fn methods_are_called_by_peer_spellings() {
    let server = serve(Server::new().service(CartServer::new(Shop))).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        assert_eq!(client.call::<String>("shop.v1.Cart/Greet", "you").await.unwrap(), "hello you");
        assert_eq!(client.call::<String>("Cart/Greet", "you").await.unwrap(), "hello you");
        assert_eq!(client.call::<u32>("shop.v1.Cart/total", &[(); 0]).await.unwrap(), 0);
        assert_eq!(client.call::<i32>("Cart/Type", &3).await.unwrap(), 3);
        for missing in ["Cart/greet", "Cart/Sum", "Basket/Greet", "shop.v2.Cart/Greet"] {
            let error = client.call::<String>(missing, "you").await.unwrap_err();
            assert_eq!(error.code(), Code::Unimplemented, "{protocol:?} {missing}: {error}");
        }
    }
}

#[tokio::test]
async fn ambiguous_short_service_name_matches_none() {
    let service = |name: &str| {
        ServiceBuilder::new(name)
            .method::<Raw, Bytes, Bytes, _, _>("Echo", |cx, body| async { (cx, Ok(body)) })
    };
    let server = serve(Server::new().service(service("a.Twin")).service(service("b.Twin"))).await;
    let client = client(Protocol::BaiduStd, &server);
    let echo = async |target: &str| {
        client.call_raw(target, Body::new(Format::Protobuf, &b"x"[..]), CallOptions::default()).await
    };
    assert!(echo("a.Twin/Echo").await.is_ok());
    assert!(echo("b.Twin/Echo").await.is_ok());
    assert_eq!(echo("Twin/Echo").await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn raw_service_handles_bytes_in_any_format() {
    let raw = ServiceBuilder::new("Bytes").method::<Raw, Bytes, Bytes, _, _>(
        "Reverse",
        |cx, body: Bytes| async move {
            let reversed: Vec<u8> = body.iter().rev().copied().collect();
            (cx, Ok(reversed.into()))
        },
    );
    let server = serve(Server::new().service(raw)).await;
    for (protocol, format) in [
        (Protocol::BaiduStd, Format::Protobuf),
        (Protocol::Rpcx, Format::Raw),
        (Protocol::Rpcx, Format::MessagePack),
        (Protocol::Rpcx, Format::Other(4)),
        (Protocol::Http, Format::Raw),
    ] {
        let client = client(protocol, &server);
        let body = Body::new(format, &[1, 2, 3, 0xff][..]);
        let reply = client.call_raw("Bytes/Reverse", body, CallOptions::default()).await.unwrap();
        assert_eq!(&reply.message.bytes[..], [0xff, 3, 2, 1], "{protocol:?} {format:?}");
    }
    // Of rpcx's formats those without a codec are told so, as its server does.
    let client = client(Protocol::Rpcx, &server);
    for number in 5..=15 {
        let body = Body::new(Format::Other(number), &b"x"[..]);
        let error = client.call_raw("Bytes/Reverse", body, CallOptions::default()).await.unwrap_err();
        assert_eq!(error.message(), format!("can not find codec for {number}"));
    }
}

#[tokio::test]
async fn body_of_any_size_round_trips() {
    let raw = ServiceBuilder::new("Bytes")
        .method::<Raw, Bytes, Bytes, _, _>("Echo", |cx, body| async { (cx, Ok(body)) });
    let server = serve(Server::new().service(raw)).await;
    for protocol in ADORNED {
        let client = client(protocol, &server);
        for size in [0, 1, 1023, 8 << 10, (8 << 10) + 1, 16 << 10, 64 << 10, (1 << 20) + 7, 9 << 20] {
            let format = if protocol == Protocol::BaiduStd { Format::Protobuf } else { Format::Raw };
            let bytes: Bytes = (0..size).map(|n| (n % 251) as u8).collect();
            let reply = client
                .call_raw("Bytes/Echo", Body::new(format, bytes.clone()), CallOptions::default())
                .await
                .unwrap();
            assert!(reply.message.bytes == bytes, "{protocol:?} {size}");
        }
    }
}

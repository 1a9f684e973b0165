//! Callers that send too little, or too much.

use std::sync::atomic::Ordering;
use std::time::Duration;

use polyrpc::client::{CallOptions, RawCall};
use polyrpc::codec::Body;
use polyrpc::{Bytes, Client, Code, Format, Metadata};
use polyrpc_gateway::{Config, Gateway};
use tokio::time::timeout;

use super::shop::{Shop, proto};

const PATIENCE: Duration = Duration::from_secs(60);

async fn gateway(scheme: &str, shop: &Shop) -> (Gateway, Client) {
    let text = format!(
        r#"
            [schema]
            proto = ["{proto}"]
            [limits]
            header_timeout = "500ms"
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "shop"
            url = "{scheme}://{shop}"
            [[route]]
            to = "shop"
        "#,
        shop = shop.address(),
        proto = proto()
    );
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    (gateway, client)
}

async fn open(client: &Client, method: &str) -> RawCall {
    client.open_raw(method, CallOptions::default(), Format::Protobuf).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_without_a_message_ends_in_time_and_reaches_no_upstream() {
    let shop = Shop::start(0).await;
    // Declared methods with one request, and any method of an upstream that has no streams.
    let methods = [("grpc", "shop.Shop/Get"), ("grpc", "shop.Feed/Watch"), ("rpcx", "any.Other/Method")];
    for (scheme, method) in methods {
        let (gateway, client) = gateway(scheme, &shop).await;
        let mut call = open(&client, method).await;
        let failure = timeout(PATIENCE, call.next()).await.expect("it ends in time").unwrap_err();
        assert_eq!(failure.code(), Code::DeadlineExceeded, "{method}: {failure}");
        assert_eq!(shop.calls.load(Ordering::Relaxed), 0, "{method}");
        gateway.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_learns_at_once_of_a_stream_of_requests() {
    let shop = Shop::start(0).await;
    let (gateway, client) = gateway("grpc", &shop).await;
    for (method, calls) in [("shop.Feed/Chat", 1), ("any.Other/Method", 2)] {
        let _silent = open(&client, method).await;
        timeout(PATIENCE, async {
            while shop.calls.load(Ordering::Relaxed) < calls {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the upstream has the call");
    }
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_that_would_end_the_upstreams_connection_are_refused() {
    let shop = Shop::start(0).await;
    for (scheme, calls) in [("rpcx", 1), ("baidu-std", 2)] {
        let (gateway, client) = gateway(scheme, &shop).await;
        let get = async |entries: usize| {
            let mut metadata = Metadata::new();
            (0..entries).for_each(|n| metadata.append(format!("entry-{n}"), "v"));
            let body = Body::new(Format::Protobuf, Bytes::from_static(b"\x08\x07"));
            let options = CallOptions { metadata, ..CallOptions::default() };
            client.call_raw("shop.Shop/Get", body, options).await
        };
        get(200).await.unwrap();
        let failure = get(300).await.unwrap_err();
        assert_eq!(failure.code(), Code::ResourceExhausted, "{scheme}: {failure}");
        assert_eq!(shop.calls.load(Ordering::Relaxed), calls, "{scheme}");
        gateway.shutdown().await;
    }
}

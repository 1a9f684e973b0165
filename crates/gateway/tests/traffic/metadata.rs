//! What goes with calls and responses, between protocols that carry it in other ways.

use std::sync::{Arc, Mutex};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc::{Bytes, Client, Code, Format, Metadata, Server};
use polyrpc_gateway::{Config, Gateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

type SharedMetadata = Arc<Mutex<Metadata>>;

/// A server that answers with an empty message and this metadata, and the metadata that it was sent last.
async fn server(answer: Metadata) -> (ServerHandle, SharedMetadata) {
    let seen = SharedMetadata::default();
    let noted = seen.clone();
    let server = Server::new().fallback(move |mut call: RawRequest| {
        let (noted, metadata) = (noted.clone(), answer.clone());
        async move {
            *noted.lock().unwrap() = call.metadata().clone();
            let format = call.body().await?.format;
            let mut response = RawResponse::message(Bytes::new());
            (response.format, response.metadata) = (Some(format), metadata);
            Ok(response)
        }
    });
    (server.bind("127.0.0.1:0").await.unwrap().start(), seen)
}

async fn gateway(url: &str, more: &str) -> Gateway {
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\nurl = \"{url}\"\n\
         format = \"protobuf\"\n{more}\n[[route]]\nto = \"a\"\n"
    );
    Gateway::start(Config::parse(&text).unwrap()).await.unwrap()
}

async fn call(client: &Client, metadata: Metadata) -> Result<Metadata, polyrpc::Error> {
    let options = CallOptions { metadata, ..CallOptions::default() };
    let body = Body::new(Format::Protobuf, Bytes::new());
    Ok(client.call_raw("a.B/C", body, options).await?.metadata)
}

fn client(scheme: &str, gateway: &Gateway) -> Client {
    Client::new(&format!("{scheme}://{}", gateway.addresses()[0])).unwrap()
}

fn entries(count: usize) -> Metadata {
    let mut metadata = Metadata::new();
    (0..count).for_each(|n| metadata.append(format!("x-k{n}"), "v"));
    metadata
}

/// Hops and addresses that the gateway adds have room of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_the_gateway_take_no_room_of_the_callers() {
    let (server, _) = server(Metadata::new()).await;
    for url in ["rpcx", "baidu-std"].map(|scheme| format!("{scheme}://{}", server.address())) {
        let plain = gateway(&url, "").await;
        let forwarding = gateway(&url, "forwarded = true").await;
        for count in [200, 235, 236, 237, 238, 239, 240, 241, 242, 250, 256] {
            let [plain, forwarding] = [&plain, &forwarding].map(|gateway| client("baidu-std", gateway));
            let (plain, forwarding) =
                (call(&plain, entries(count)).await, call(&forwarding, entries(count)).await);
            assert_eq!(plain.is_ok(), forwarding.is_ok(), "{url}: {count}: {plain:?} {forwarding:?}");
            assert!(plain.is_ok() || count > 230, "{url}: {count}: {plain:?}");
            if let Err(failure) = plain {
                assert_eq!(failure.code(), Code::ResourceExhausted, "{url}: {count}: {failure}");
            }
        }
    }
}

/// A response with more than the caller's connection survives fails alone, and other calls of the connection go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_with_too_many_entries_fails_only_its_own_call() {
    let (server, _) = server(entries(300)).await;
    let gateway = gateway(&format!("grpc://{}", server.address()), "").await;
    for scheme in ["rpcx", "baidu-std"] {
        let client = client(scheme, &gateway);
        for _ in 0..3 {
            let failure = call(&client, Metadata::new()).await.unwrap_err();
            let text = failure.message();
            assert!(
                text.contains("polyrpc-gateway: a call of") && text.contains("has 300"),
                "{scheme}: {text}"
            );
        }
    }
    assert_eq!(call(&client("grpc", &gateway), Metadata::new()).await.unwrap().get("x-k7"), Some("v"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_values_are_in_base64_once_and_only_over_http() {
    let bytes = &b"\x00\x01\x02\xff"[..];
    let one = |value: &'static [u8]| {
        let mut metadata = Metadata::new();
        metadata.append("x-raw-bin", value);
        metadata
    };
    for (caller, sent, upstream, got) in [
        ("grpc", bytes, "http", &b"AAEC/w"[..]),
        ("http", b"AAEC/w==", "grpc", bytes),
        ("grpc", bytes, "grpc", bytes),
        ("grpc", bytes, "rpcx", bytes),
        ("grpc", bytes, "baidu-std", bytes),
        ("rpcx", bytes, "grpc", bytes),
    ] {
        // The server's own protocol says how it answers.
        let answer = if upstream == "http" { one(b"AAEC/w") } else { one(bytes) };
        let (server, seen) = server(answer).await;
        let gateway = gateway(&format!("{upstream}://{}", server.address()), "").await;
        let answered = call(&client(caller, &gateway), one(sent)).await.unwrap();
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen.bytes("x-raw-bin").map(|value| &value[..]), Some(got), "{caller} to {upstream}");
        let wanted = if caller == "http" { &b"AAEC/w"[..] } else { bytes };
        assert_eq!(
            answered.bytes("x-raw-bin").map(|value| &value[..]),
            Some(wanted),
            "{caller} to {upstream}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_values_that_could_not_be_told_apart_are_refused() {
    let mut several = Metadata::new();
    several.append("x-raw-bin", &b"\x00\x01, "[..]);
    several.append("x-raw-bin", &b"\x00"[..]);
    let (server, seen) = server(Metadata::new()).await;
    for scheme in ["rpcx", "baidu-std"] {
        let gateway = gateway(&format!("{scheme}://{}", server.address()), "").await;
        let failure = call(&client("grpc", &gateway), several.clone()).await.unwrap_err();
        assert_eq!(failure.code(), Code::InvalidArgument, "{failure}");
        assert!(failure.message().contains("one value of the binary metadata `x-raw-bin`"), "{failure}");
    }
    // The others keep them apart.
    let gateway = gateway(&format!("grpc://{}", server.address()), "").await;
    call(&client("grpc", &gateway), several.clone()).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    assert!(seen.all("x-raw-bin").eq(several.all("x-raw-bin")), "{seen:?}");
    let mut wrong = Metadata::new();
    wrong.append("x-raw-bin", "not base64!");
    let failure = call(&client("http", &gateway), wrong).await.unwrap_err();
    assert!(failure.message().contains("the binary metadata `x-raw-bin` is not base64"), "{failure}");
}

/// RFC 9110, section 7.6.1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_for_one_hop_are_not_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let Ok(1..) = stream.read(&mut request).await else { continue };
            let answer = "HTTP/1.1 200 OK\r\nX-Hop: 1\r\nConnection: close, x-hop\r\nX-End: 2\r\n\
                          Content-Type: application/proto\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let gateway = gateway(&format!("http://{address}"), "").await;
    let answered = call(&client("grpc", &gateway), Metadata::new()).await.unwrap();
    assert_eq!((answered.get("x-hop"), answered.get("x-end")), (None, Some("2")), "{answered:?}");
}

//! A custom protocol: that of `examples/custom_protocol.rs`.

#[allow(dead_code, reason = "the example has a `main`")]
#[path = "../../../../examples/custom_protocol.rs"]
mod example;

use example::{LINES, LineClient, LineServer};
use polyrpc::blocking;
use polyrpc::client::Builder;
use polyrpc::server::{Listen, ServerHandle};
use polyrpc::{Client, Code, Protocol, Server};
use polyrpc_core::session::client::SessionContext;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{serve, soon};

fn lines() -> Server {
    let server = Server::new().function("add", |a: i32, b: i32| async move { a + b });
    server.protocol(&LINES, |context| LineServer::new(context.limits))
}

fn builder(url: &str) -> Builder {
    Client::builder(url).protocol(&LINES, session)
}

fn session(context: &SessionContext) -> LineClient {
    LineClient::new(&context.limits, context.credential.as_ref()).with(&context.dialect.parameters)
}

async fn add(server: &ServerHandle) -> i32 {
    let client = builder(&format!("lines://{}", server.address())).build().unwrap();
    assert_eq!(client.protocol(), Protocol::from(&LINES));
    soon(client.call("add", &(1, 2))).await.unwrap()
}

#[tokio::test]
async fn custom_protocol_shares_the_port_and_is_named_in_server_info() {
    let server = serve(lines()).await;
    let client = builder(&format!("lines://{}", server.address())).build().unwrap();
    assert_eq!(soon(client.call::<i32>("add", &(1, 2))).await.unwrap(), 3);
    let spoken: Vec<_> = server.info().connections.iter().map(|one| one.protocol).collect();
    assert_eq!(spoken, [Some(Protocol::from(&LINES))]);
    for scheme in ["rpcx", "grpc", "http"] {
        let client = Client::new(&format!("{scheme}://{}", server.address())).unwrap();
        assert_eq!(soon(client.call::<i32>("add", &(1, 2))).await.unwrap(), 3, "{scheme}");
    }
}

#[tokio::test]
async fn listener_can_be_restricted_to_a_custom_protocol() {
    let only = Listen::on("127.0.0.1:0").protocols([Protocol::from(&LINES)]);
    let server = lines().bind(only).await.unwrap().start();
    assert_eq!(add(&server).await, 3);
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    assert!(soon(client.call::<i32>("add", &(1, 2))).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_protocol_works_in_blocking_and_cluster_clients() {
    let server = serve(lines()).await;
    let address = server.address().to_string();
    let client = builder(&format!("lines+list://{address},{address}")).build().unwrap();
    assert_eq!(soon(client.call::<i32>("add", &(1, 2))).await.unwrap(), 3);
    let sum = tokio::task::spawn_blocking(move || {
        let client: blocking::Client = builder(&format!("lines://{address}")).build_blocking()?;
        client.call::<i32>("add", &(1, 2))
    });
    assert_eq!(soon(sum).await.unwrap().unwrap(), 3);
}

#[tokio::test]
async fn url_parameters_are_checked_and_reach_the_session() {
    // Answers only a call whose line ends as the URL requires.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.push(socket.read_u8().await.unwrap());
        }
        let number = String::from_utf8(line.clone()).unwrap().split(' ').nth(1).unwrap().to_owned();
        socket.write_all(format!("OK {number} 3\n").as_bytes()).await.unwrap();
        line
    };
    let client = builder(&format!("lines://{address}?end=crlf")).build().unwrap();
    let (sum, line) = soon(async { tokio::join!(client.call::<i32>("add", &(1, 2)), answer) }).await;
    assert_eq!(sum.unwrap(), 3);
    assert!(line.ends_with(b"[1,2]\r\n"), "{}", line.escape_ascii());

    for (query, why) in [
        ("end=cr", "invalid parameter `end=cr`: expected lf, crlf"),
        ("end=lf&end=lf", "the parameter `end` occurs twice"),
        ("begin=x", "the parameter `begin` is unknown: lines:// has transport="),
    ] {
        for url in [format!("lines://h:1?{query}"), format!("lines+list://h:1?{query}")] {
            let error = builder(&url).build().unwrap_err();
            let why = if url.contains("list") && query == "begin=x" {
                "`begin` is unknown: `list` has none"
            } else {
                why
            };
            assert!(error.message().contains(why), "{error}");
        }
    }
    let names: Vec<_> = polyrpc::client::url_parameters(&LINES).iter().map(|known| known.name).collect();
    assert_eq!(names, ["transport", "http_path", "end"]);
}

#[tokio::test]
async fn unsupported_call_is_rejected_before_it_is_sent() {
    let server = serve(lines()).await;
    let client = builder(&format!("lines://{}", server.address())).credential("secret").build().unwrap();
    let error = soon(client.call::<i32>("add", &(1, 2))).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(server.info().calls.started, 0);
}

#[tokio::test]
async fn missing_or_duplicate_protocol_is_an_error() {
    let twice = lines().protocol(&LINES, |context| LineServer::new(context.limits));
    let error = twice.bind("127.0.0.1:0").await.unwrap_err();
    assert_eq!(error.to_string(), "the server has two protocols `lines`");
    let only = Listen::on("127.0.0.1:0").protocols([Protocol::from(&LINES)]);
    let error = Server::new().bind(only).await.unwrap_err();
    assert_eq!(error.to_string(), "the server has no protocol `lines`: add it by Server::protocol");

    let twice = builder("lines://h:1").protocol(&LINES, session);
    let error = twice.build().unwrap_err();
    assert!(error.message().contains("the client has two protocols `lines`"), "{error}");
    let error = Client::new("lines://h:1").unwrap_err();
    assert!(error.message().contains("unknown protocol `lines`: expected baidu-std, rpcx"), "{error}");
    let server = serve(lines()).await;
    let error = server.client(Protocol::from(&LINES)).unwrap_err();
    assert!(error.to_string().contains("the client has no protocol `lines`"), "{error}");
}

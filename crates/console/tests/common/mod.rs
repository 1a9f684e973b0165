//! What the tests share: requests that are written byte by byte, and a server to observe.

#![allow(dead_code, reason = "no test uses everything")]

pub(crate) mod counting;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::layers::Metrics;
use polyrpc::server::ServerHandle;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Address, Context, Server, Status};
use polyrpc_console::{AdminHandle, Console};

/// The only script of a page.
pub(crate) const OWN_SCRIPT: &str = "<script type=module src=/console/live.js></script>";

/// An answer over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Sends a request over any connection, and reads the answer to its end.
pub(crate) fn exchange(mut stream: impl Read + Write, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer { status: status.expect("a status"), head: head.to_owned(), body: body.to_owned() }
}

/// Sends a request with these further fields to an address.
pub(crate) fn send(address: &Address, method: &str, target: &str, fields: &str, body: &str) -> Answer {
    let stream = TcpStream::connect(address.to_string()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let host = if fields.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    exchange(
        stream,
        &format!("{method} {target} HTTP/1.1\r\n{host}{length}Connection: close\r\n{fields}\r\n{body}"),
    )
}

pub(crate) fn get(address: &Address, target: &str) -> Answer {
    send(address, "GET", target, "", "")
}

pub(crate) fn page(admin: &AdminHandle, target: &str) -> Answer {
    let answer = get(admin.address(), target);
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    answer
}

/// Waits for a condition.
pub(crate) async fn wait_until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "it does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A server with brpc's service, a function that fails and a function.
pub(crate) fn services() -> Server {
    let file = protox::file::File::from_source(
        "echo.proto",
        "syntax = \"proto2\"; package example;
         message EchoRequest { required string message = 1; }
         message EchoResponse { required string message = 1; }
         service EchoService { rpc Echo (EchoRequest) returns (EchoResponse); }",
    );
    let mut set = b"\x0a".to_vec();
    let file = prost::Message::encode_to_vec(file.unwrap().file_descriptor_proto());
    prost::encoding::encode_varint(file.len() as u64, &mut set);
    set.extend(file);
    let echo = ServiceBuilder::new("example.EchoService")
        .schema(&set)
        .method::<Raw, Bytes, Bytes, _, _>("Echo", |cx: Context, body| std::future::ready((cx, Ok(body))));
    Server::new()
        .service(echo)
        .function("add", |a: i64, b: i64| async move { a + b })
        .function("fail", |_: String| async move { Err::<(), _>(Status::not_found("nothing")) })
}

/// A console that observes a server of [`services`].
pub(crate) async fn observe(server: Server) -> (Console, ServerHandle) {
    let console = Console::new();
    let running =
        console.serve_pages(server).metrics(&Metrics::new()).bind("127.0.0.1:0").await.unwrap().start();
    console.observe(&running);
    (console, running)
}

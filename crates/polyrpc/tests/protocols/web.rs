//! Protocols of browsers and curl: gRPC-Web, Connect, JSON over HTTP/2, HTTP/2 by upgrade.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyrpc::server::{Cors, Listen};
use polyrpc::{Protocol, Result, Server, Streaming};
use tokio::io::AsyncReadExt;

use crate::common::{Prober, Socket, serve, soon, until};

#[polyrpc::service]
trait Numbers {
    async fn count(&self, to: u64) -> Result<Streaming<u64>>;
    async fn endless(&self, n: u64) -> Result<Streaming<u64>>;
    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64>;
}

#[derive(Default, Clone)]
struct Counting {
    alive: Arc<AtomicUsize>,
}

/// Counts live objects.
struct Life(Arc<AtomicUsize>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Numbers for Counting {
    async fn count(&self, to: u64) -> Result<Streaming<u64>> {
        Ok(Streaming::from_iter(0..to))
    }

    async fn endless(&self, n: u64) -> Result<Streaming<u64>> {
        self.alive.fetch_add(1, Ordering::SeqCst);
        let life = Life(self.alive.clone());
        Ok(Streaming::produce(move |sender| async move {
            let _life = life;
            sender.send(n).await?;
            std::future::pending().await
        }))
    }

    async fn sum(&self, mut numbers: Streaming<u64>) -> Result<u64> {
        let mut sum = 0;
        while let Some(n) = numbers.message().await? {
            sum += n;
        }
        Ok(sum)
    }
}

fn numbers(counting: Counting) -> Server {
    Server::new().service(NumbersServer::new(counting))
}

/// A gRPC message.
fn framed(body: &str) -> Vec<u8> {
    [&[0][..], &(body.len() as u32).to_be_bytes(), body.as_bytes()].concat()
}

fn request(method: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST /Numbers/{method} HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web+json\r\n{fields}\
         Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The chunked body of a response, each frame as flag and text.
fn frames(response: &[u8]) -> Vec<(u8, String)> {
    let body = response.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let (mut frames, mut rest) = (Vec::new(), &response[body..]);
    loop {
        let line = rest.iter().position(|byte| *byte == b'\r').expect("a chunk");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let chunk = &rest[line + 2..line + 2 + size];
        rest = &rest[line + 2 + size + 2..];
        match chunk {
            [] => return frames,
            [flag, _, _, _, _, frame @ ..] => {
                frames.push((*flag, String::from_utf8(frame.to_vec()).unwrap()));
            }
            _ => panic!("no frame: {chunk:?}"),
        }
    }
}

/// The response to a request on its own connection.
async fn answer(server: &polyrpc::server::ServerHandle, request: &[u8]) -> Vec<u8> {
    let mut socket = Socket::connect(server).await;
    socket.send(request).await;
    socket.rest().await
}

#[tokio::test]
async fn stream_messages_arrive_in_chunks_followed_by_the_trailers() {
    let server = serve(numbers(Counting::default())).await;
    let response = answer(&server, &request("Count", "Connection: close\r\n", &framed("3"))).await;
    let messages = ["0", "1", "2"].map(|n| (0, n.to_owned()));
    let end = (0x80, "grpc-status:0\r\n".to_owned());
    assert_eq!(frames(&response), messages.into_iter().chain([end]).collect::<Vec<_>>());
}

#[tokio::test]
async fn all_messages_of_a_request_are_read() {
    let server = serve(numbers(Counting::default())).await;
    let body = [framed("1"), framed("2"), framed("39")].concat();
    let response = answer(&server, &request("Sum", "Connection: close\r\n", &body)).await;
    assert_eq!(frames(&response), [(0, "42".to_owned()), (0x80, "grpc-status:0\r\n".to_owned())]);
    let response = answer(&server, &request("Nothing", "Connection: close\r\n", &framed("1"))).await;
    let (flag, end) = frames(&response).remove(0);
    assert_eq!(flag, 0x80);
    assert!(end.starts_with("grpc-status:12\r\ngrpc-message:unknown method Nothing"), "{end}");
}

/// A plain HTTP request in JSON.
fn json(method: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST /Numbers/{method} HTTP/1.0\r\nHost: a\r\nContent-Type: application/json\r\n{fields}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    head.into()
}

async fn text(server: &polyrpc::server::ServerHandle, request: &[u8]) -> String {
    String::from_utf8(answer(server, request).await).unwrap()
}

#[tokio::test]
async fn streaming_method_answers_plain_http_as_lines_and_events() {
    let server = serve(numbers(Counting::default())).await;
    let lines = text(&server, &json("Count", "Accept: application/x-ndjson\r\n", "3")).await;
    assert!(lines.contains("content-type: application/x-ndjson\r\n"), "{lines}");
    assert!(lines.ends_with("\r\n\r\n0\n1\n2\n"), "{lines}");
    let events = text(&server, &json("Count", "Accept: text/event-stream\r\n", "2")).await;
    assert!(events.ends_with("\r\n\r\ndata: 0\n\ndata: 1\n\nevent: end\ndata: {}\n\n"), "{events}");
    let unknown = text(&server, &json("Nothing", "Accept: application/x-ndjson\r\n", "3")).await;
    assert!(unknown.starts_with("HTTP/1.1 404 "), "{unknown}");
    let unary = text(&server, &json("Count", "Connect-Protocol-Version: 1\r\n", "3")).await;
    assert!(unary.starts_with("HTTP/1.1 501 ") && unary.contains(r#"{"code":"unimplemented""#), "{unary}");
}

#[tokio::test]
async fn method_without_side_effects_is_callable_by_connect_get() {
    let server = serve(numbers(Counting::default()).mark_no_side_effects("Numbers", "Count")).await;
    let get = |query: &str, fields: &str| {
        format!(
            "GET /Numbers/Count?connect=v1&encoding=json&{query} HTTP/1.0\r\nHost: localhost\r\n{fields}\r\n"
        )
    };
    let events = text(&server, get("message=1", "Accept: text/event-stream\r\n").as_bytes()).await;
    assert!(events.ends_with("data: 0\n\nevent: end\ndata: {}\n\n"), "{events}");
    let other = get("message=1", "").replace("Count", "Endless");
    assert!(text(&server, other.as_bytes()).await.starts_with("HTTP/1.1 405 "));
}

#[tokio::test]
async fn disconnecting_cancels_the_call() {
    let counting = Counting::default();
    let server = serve(numbers(counting.clone())).await;
    let mut socket = Socket::connect(&server).await;
    socket.send(&request("Endless", "", &framed("7"))).await;
    socket.up_to("\r\n\r\n").await;
    assert_eq!(counting.alive.load(Ordering::SeqCst), 1);
    drop(socket);
    until(|| counting.alive.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn bytes_sent_ahead_are_read_up_to_a_limit() {
    let counting = Counting::default();
    let server = serve(numbers(counting.clone())).await;
    let mut socket = Socket::connect(&server).await;
    socket.send(&request("Endless", "", &framed("7"))).await;
    socket.up_to("\r\n\r\n").await;
    // The system's buffers take some of it, the server no more than its limit.
    let flood = vec![b'\n'; 1 << 20];
    let mut taken = 0;
    while taken < 64 {
        let sent = tokio::time::timeout(std::time::Duration::from_millis(500), async {
            tokio::io::AsyncWriteExt::write_all(&mut socket.stream, &flood).await
        });
        match sent.await {
            Ok(written) => written.expect("the connection is open"),
            Err(_) => break,
        }
        taken += 1;
    }
    assert!(taken < 64, "all of it was taken");
}

#[tokio::test]
async fn cross_origin_pages_can_call_if_allowed() {
    let preflight = "OPTIONS /Numbers/Count HTTP/1.1\r\nHost: a\r\nOrigin: https://page\r\nConnection: close\r\n\
        Access-Control-Request-Method: POST\r\n\r\n";
    let allow = "access-control-allow-origin: https://page\r\n";
    for (cors, allowed) in [(Cors::None, false), (Cors::Any, true)] {
        let server = serve(numbers(Counting::default()).cors(cors)).await;
        let leave = String::from_utf8(answer(&server, preflight.as_bytes()).await).unwrap();
        assert_eq!(leave.contains(allow), allowed, "{leave}");
    }
}

/// A JSON call that requests an upgrade to HTTP/2.
const UPGRADE: &str = "POST /Probe/Echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\n\
    Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 6\r\n\r\n\"http\"";

#[tokio::test]
async fn upgraded_connection_continues_in_http_2_with_the_request() {
    let server = serve(Prober::default().server()).await;
    let mut socket = Socket::connect(&server).await;
    socket.send(UPGRADE.as_bytes()).await;
    assert!(socket.up_to("\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    assert_eq!(data_of(&mut socket, 1).await, b"\"http\"");
    // The preface, empty settings, and a request on the next stream: HEADERS and DATA.
    let block = b"\x83\x86\x44\x0b/Probe/Echo\x41\x01h";
    let mut more = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    more.extend([0, 0, block.len() as u8, 1, 4, 0, 0, 0, 3]);
    more.extend(block);
    more.extend(b"\0\0\x04\0\x01\0\0\0\x03\"h2\"");
    socket.send(&more).await;
    assert_eq!(data_of(&mut socket, 3).await, b"\"h2\"");
}

/// The first data on a stream.
async fn data_of(socket: &mut Socket, stream: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        soon(socket.stream.read_exact(&mut head)).await.expect("a frame");
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        soon(socket.stream.read_exact(&mut payload)).await.expect("all of it");
        if (head[3], head[8]) == (0, stream) {
            return payload;
        }
    }
}

#[tokio::test]
async fn upgrade_is_ignored_if_http_2_is_disabled() {
    let server = Prober::default().server();
    let server = server.bind(Listen::on("127.0.0.1:0").protocols([Protocol::Http])).await.unwrap().start();
    let (status, body) = Socket::connect(&server).await.http(UPGRADE).await;
    assert_eq!((status, &body[..]), (200, "\"http\""));
}

//! Every protocol within a WebSocket, on the same port as without.

use bytes::{Buf, BytesMut};
use polyrpc::client::{CallOptions, ConnectionMode};
use polyrpc::codec::Body;
use polyrpc::server::{Limits, Listen, ServerHandle};
use polyrpc::{Client, Code, Format, Protocol, Retry};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{Gate, Prober, serve_apart, soon, until, url_of};

async fn serve(prober: &Prober) -> ServerHandle {
    crate::common::serve(prober.server()).await
}

fn client(scheme: &str, server: &ServerHandle) -> Client {
    let url = url_of(scheme, format_args!("{}/_rpcx_", server.address()));
    let sign = if url.contains('?') { '&' } else { '?' };
    Client::new(&format!("{url}{sign}transport=ws")).unwrap()
}

#[tokio::test]
async fn every_protocol_works_within_a_websocket() {
    let server = serve(&Prober::default()).await;
    for protocol in ["baidu-std", "rpcx", "grpc", "http", "http?dialect=json-rpc"] {
        let client = client(protocol, &server);
        for length in [1, 125, 126, 65_535, 70_000, 1 << 20] {
            let text = "x".repeat(length);
            let answer = soon(client.call::<String>("Probe/Echo", &text)).await;
            assert_eq!(answer.unwrap_or_else(|error| panic!("{protocol}: {error}")), text);
        }
    }
}

#[tokio::test]
async fn many_calls_share_a_websocket() {
    let server = serve(&Prober::default()).await;
    let client = client("rpcx", &server);
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.call::<String>("Probe/Echo", &n.to_string()).await })
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(soon(call).await.unwrap().unwrap(), n.to_string());
    }
    assert_eq!(server.connection_count(), 1);
}

#[test]
fn blocking_client_supports_websockets() {
    let (_runtime, server) = serve_apart(Prober::default().server());
    let url = format!("rpcx://{}?transport=ws", server.address());
    for kind in [ConnectionMode::Shared, ConnectionMode::Short] {
        let client = Client::builder(&url).connection_mode(kind).build_blocking().unwrap();
        for n in 0..10 {
            assert_eq!(client.call::<String>("Probe/Echo", &n.to_string()).unwrap(), n.to_string());
        }
    }
}

#[tokio::test]
async fn rejected_upgrade_reports_the_response() {
    let prober = Prober::default();
    let server = serve(&prober).await;
    let client = Client::new(&format!("rpcx://{}/elsewhere?transport=ws", server.address())).unwrap();
    let error = soon(client.call::<String>("Probe/Echo", "a")).await.unwrap_err();
    assert!(error.message().contains("the server rejected the WebSocket: HTTP 404"), "{error}");
    assert_eq!(prober.ran(), 0);
}

#[tokio::test]
async fn websocket_is_restricted_to_the_protocols_of_the_listener() {
    let listen = Listen::on("127.0.0.1:0").protocols([Protocol::Http, Protocol::Rpcx]);
    let server = Prober::default().server().bind(listen).await.unwrap().start();
    assert_eq!(soon(client("rpcx", &server).call::<String>("Probe/Echo", "a")).await.unwrap(), "a");
    let error = soon(client("grpc", &server).call::<String>("Probe/Echo", "a")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

/// A handwritten WebSocket client.
struct Socket {
    stream: TcpStream,
    read: BytesMut,
}

impl Socket {
    async fn open(server: &ServerHandle) -> Self {
        let stream = TcpStream::connect(server.address().to_string()).await.unwrap();
        let mut socket = Self { stream, read: BytesMut::new() };
        socket
            .send_frame(
                b"GET /_rpcx_ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            )
            .await;
        while !socket.read.ends_with(b"\r\n\r\n") {
            assert!(socket.more().await, "a handshake");
        }
        assert!(socket.read.starts_with(b"HTTP/1.1 101 "));
        socket.read.clear();
        socket
    }

    async fn send_frame(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
    }

    /// A frame with a zero mask.
    async fn frame(&mut self, first: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).unwrap();
        assert!(length < 126);
        self.send_frame(&[&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()).await;
    }

    async fn more(&mut self) -> bool {
        soon(self.stream.read_buf(&mut self.read)).await.unwrap_or(0) > 0
    }

    /// The next frame, which is short; `None` at the end.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let [first, length, rest @ ..] = &self.read[..]
                && let Some(payload) = rest.get(..usize::from(*length))
            {
                let frame = (*first, payload.to_vec());
                self.read.advance(2 + frame.1.len());
                return Some(frame);
            }
            if !self.more().await {
                return None;
            }
        }
    }
}

const HEARTBEAT: &[u8] = b"\x08\0\x40\x30\0\0\0\0\0\0\0\x01\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[tokio::test]
async fn call_can_span_messages_with_pings_between_them() {
    let server = serve(&Prober::default()).await;
    let mut socket = Socket::open(&server).await;
    for (n, byte) in HEARTBEAT.iter().enumerate() {
        let first = if n == 0 {
            0x02
        } else if n + 1 < HEARTBEAT.len() {
            0x00
        } else {
            0x80
        };
        socket.frame(first, &[*byte]).await;
        socket.frame(0x89, &[n as u8]).await;
        let (opcode, pong) = socket.next().await.unwrap();
        // The reply may arrive before the last pong.
        if n + 1 < HEARTBEAT.len() {
            assert_eq!((opcode, pong), (0x8a, vec![n as u8]));
        } else {
            let answers = [(opcode, pong), socket.next().await.unwrap()];
            assert!(
                answers.iter().any(|(opcode, answer)| *opcode == 0x82 && answer[2] == 0xc0),
                "{answers:?}"
            );
        }
    }
}

#[tokio::test]
async fn close_is_answered_after_pending_replies() {
    let prober = Prober::default();
    let server = serve(&prober).await;
    let mut socket = Socket::open(&server).await;
    let call =
        b"\x08\0\0\x10\0\0\0\0\0\0\0\x07\0\0\0\x1c\0\0\0\x05Probe\0\0\0\x04Wait\0\0\0\0\0\0\0\x03\"a\"";
    socket.frame(0x81, call).await;
    prober.gate.came(1).await;
    socket.frame(0x88, b"\x03\xe9bye").await;
    prober.gate.open();
    let (opcode, answer) = socket.next().await.unwrap();
    assert_eq!((opcode, answer[2]), (0x82, 0x80));
    assert_eq!(socket.next().await, Some((0x88, vec![3, 0xe9])));
    assert_eq!(socket.next().await, None);
}

#[tokio::test]
async fn protocol_violation_is_answered_and_closes_the_connection() {
    let server = serve(&Prober::default()).await;
    for wrong in [&b"\x82\x01x"[..], b"\xc2\x80\0\0\0\0", b"\x80\x80\0\0\0\0", b"\x88\x81\0\0\0\0x"] {
        let mut socket = Socket::open(&server).await;
        socket.send_frame(wrong).await;
        assert_eq!(socket.next().await, Some((0x88, vec![3, 0xea])), "{}", wrong.escape_ascii());
        assert_eq!(socket.next().await, None);
    }
}

#[tokio::test]
async fn close_without_a_call_and_unknown_protocol_are_answered() {
    let server = serve(&Prober::default()).await;
    let mut leaving = Socket::open(&server).await;
    leaving.frame(0x88, b"\x03\xe9").await;
    assert_eq!(leaving.next().await, Some((0x88, vec![3, 0xe9])));
    assert_eq!(leaving.next().await, None);
    let mut babbling = Socket::open(&server).await;
    babbling.frame(0x82, b"\xff\xff\xff\xff").await;
    assert_eq!(babbling.next().await, Some((0x88, vec![3, 0xe8])));
    assert_eq!(babbling.next().await, None);
}

#[tokio::test]
async fn nested_websocket_is_rejected() {
    let server = serve(&Prober::default()).await;
    let mut socket = Socket::open(&server).await;
    let inner = b"GET /_rpcx_ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    socket.frame(0x02, inner).await;
    socket
        .frame(0x80, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        .await;
    while let Some((opcode, _)) = socket.next().await {
        assert_eq!(opcode, 0x82);
    }
}

#[tokio::test]
async fn draining_server_answers_accepted_calls_and_sends_a_close() {
    let prober = Prober { gate: Gate::default(), ..Prober::default() };
    let server = serve(&prober).await;
    let client = client("rpcx", &server);
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.call::<String>("Probe/Wait", "a").await }
    });
    prober.gate.came(1).await;
    let shutdown = tokio::spawn(server.shutdown(crate::common::PATIENCE));
    prober.gate.open();
    assert_eq!(soon(call).await.unwrap().unwrap(), "a");
    soon(shutdown).await.unwrap();
    let error = soon(client.call::<String>("Probe/Echo", "a")).await.unwrap_err();
    assert_ne!(error.status().retry(), Retry::Never);
}

#[tokio::test]
async fn idle_websocket_is_closed() {
    let limits = Limits { first_byte_timeout: Duration::from_millis(250), ..Limits::default() };
    let server = crate::common::serve(Prober::default().server().limits(limits)).await;
    let mut socket = Socket::open(&server).await;
    while socket.next().await.is_some() {}
}

/// The bytes of frames count as progress. They were missing when that was checked, so that the first check failed.
#[tokio::test]
async fn stalled_message_within_a_websocket_closes_its_connection() {
    let limits = Limits { header_timeout: Duration::from_millis(500), ..Limits::default() };
    let server = crate::common::serve(Prober::default().server().limits(limits)).await;
    let mut socket = Socket::open(&server).await;
    socket.frame(0x82, &HEARTBEAT[..HEARTBEAT.len() - 1]).await;
    let is_closed = |(cause, count): &(&str, u64)| *cause == "message_timeout" && *count == 1;
    until(|| server.info().closed_connections.iter().any(is_closed)).await;
    until(|| server.connection_count() == 0).await;
}

#[tokio::test]
async fn oneway_call_arrives_after_its_client_is_dropped() {
    let prober = Prober::default();
    let server = crate::common::serve(prober.server()).await;
    for scheme in ["rpcx", "rpcx?transport=ws"] {
        let client = Client::new(&url_of(scheme, server.address())).unwrap();
        let oneway = CallOptions { oneway: true, ..CallOptions::default() };
        // A string of one character, in MessagePack.
        let body = Body::new(Format::MessagePack, [0xa1, b'x'].to_vec());
        soon(client.call_raw("Probe/Echo", body, oneway)).await.unwrap();
        drop(client);
        until(|| prober.ran() == 1).await;
        prober.ran.store(0, Ordering::SeqCst);
    }
}

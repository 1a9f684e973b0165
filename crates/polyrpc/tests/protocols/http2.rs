//! gRPC against raw HTTP/2 peers that send what our client never would.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use polyrpc::client::CallOptions;
use polyrpc::codec::Raw;
use polyrpc::payload::compress;
use polyrpc::server::{Limits as ServerLimits, Listen};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Compression, Context, Format, Result, Server, Status, Streaming};
use polyrpc_core::{Limits, Outbox};
use polyrpc_wire::Protocol;
use polyrpc_wire::http::h2::hpack::encode_stateless;
use polyrpc_wire::http::h2::{Connection, Event};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{PATIENCE, Prober, Socket, json_call, serve, soon};

/// One side of a connection.
struct Http2 {
    stream: TcpStream,
    connection: Connection,
    inbox: BytesMut,
    out: Outbox,
}

impl Http2 {
    fn client(stream: TcpStream) -> Self {
        let connection = Connection::client(Default::default());
        Self { stream, connection, inbox: BytesMut::new(), out: Outbox::new() }
    }

    async fn server(listener: &TcpListener) -> Self {
        let (stream, _) = soon(listener.accept()).await.unwrap();
        let connection = Connection::server(Default::default());
        Self { stream, connection, inbox: BytesMut::new(), out: Outbox::new() }
    }

    async fn flush(&mut self) {
        // The peer may have closed already.
        let _ = soon(self.stream.write_all(&self.out.take())).await;
    }

    /// Waits for the GOAWAY with this last stream.
    async fn send_goaway(&mut self, last_stream: u32) {
        loop {
            match self.event().await.expect("the server waits") {
                Event::GoAway { last, .. } if last == last_stream => return,
                _ => {}
            }
        }
    }

    /// The next event; `None` at the end of the connection.
    async fn event(&mut self) -> Option<Event> {
        loop {
            let event = self.connection.next_event(&mut self.inbox, &mut self.out);
            self.flush().await;
            match event.expect("the peer conforms to the protocol") {
                Some(event) => return Some(event),
                None => match soon(self.stream.read_buf(&mut self.inbox)).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                },
            }
        }
    }

    fn ask(&mut self, path: &str, fields: &[(&str, &str)]) -> u32 {
        let usual = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "me")];
        let block = block(&[&usual, fields].concat());
        self.connection.open(&block, false, &mut self.out)
    }

    /// Sends a request without a body; returns the response's header fields in order, and the body.
    async fn get(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> (Vec<String>, String) {
        let usual = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")];
        let block = block(&[&usual, fields].concat());
        let asked = self.connection.open(&block, true, &mut self.out);
        let (mut head, mut body) = (Vec::new(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        loop {
            let (over, stream) = match self.event().await.expect("the connection goes on") {
                Event::Headers { stream, fields, end } => {
                    head.extend(
                        fields.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))),
                    );
                    (end, stream)
                }
                Event::Data { stream, bytes, end } => {
                    body.extend_from_slice(&bytes);
                    (end, stream)
                }
                _ => continue,
            };
            if over && stream == asked {
                return (head, text(&body));
            }
        }
    }

    fn send(&mut self, stream: u32, bytes: impl Into<Bytes>, end: bool) {
        self.connection.data(stream, b"", bytes.into(), end, &mut self.out);
    }

    /// The value of this field in the first headers or trailers that have it.
    async fn field(&mut self, name: &str) -> String {
        loop {
            let event = self.event().await.expect("the connection goes on");
            if let Event::Headers { fields, .. } | Event::Trailers { fields, .. } = event
                && let Some(value) = fields.get(name.as_bytes())
            {
                return String::from_utf8_lossy(value).into_owned();
            }
        }
    }

    /// Answers a call with one compressed message.
    async fn answer_compressed(&mut self, body: &[u8]) {
        let (stream, format) = loop {
            match self.event().await.expect("a call") {
                Event::Headers { stream, fields, .. } | Event::Whole { stream, fields, .. } => {
                    let format = fields.get(b"content-type").expect("a content type");
                    break (stream, String::from_utf8_lossy(format).into_owned());
                }
                _ => {}
            }
        };
        let head = [(":status", "200"), ("content-type", &*format), ("grpc-encoding", "gzip")];
        self.connection.headers(stream, &block(&head), false, &mut self.out);
        self.send(stream, message(true, body), false);
        self.connection.trailers(stream, &block(&[("grpc-status", "0")]), &mut self.out);
        self.flush().await;
        while self.event().await.is_some() {}
    }
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    encode_stateless(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), &mut block);
    block
}

fn message(compressed: bool, body: &[u8]) -> Vec<u8> {
    [&[compressed.into()][..], &(body.len() as u32).to_be_bytes(), body].concat()
}

const JSON: (&str, &str) = ("content-type", "application/grpc+json");

#[tokio::test]
async fn call_that_crosses_the_goaway_is_answered() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let mut wire = crate::common::Wire::connect(Protocol::Grpc, &server).await;
    wire.send(1, &json_call("Probe", "Echo", "\"first\"")).await;
    assert!(wire.reply().await.unwrap().1.result.is_ok());
    let crossing = wire.encode(2, &json_call("Probe", "Echo", "\"crossing\""));
    let going = tokio::spawn(server.shutdown(PATIENCE));
    // The server sends GOAWAY and a PING.
    let mut received_bytes = Vec::new();
    while !received_bytes.windows(8).any(|bytes| bytes == b"polyrpc!") {
        assert_ne!(
            soon(wire.socket.stream.read_buf(&mut received_bytes)).await.unwrap(),
            0,
            "it waits for the answer"
        );
    }
    wire.socket.send(&crossing).await;
    let (id, reply) = wire.reply().await.expect("an answer");
    assert_eq!((id, &reply.result.unwrap()[..]), (2, &b"\"crossing\""[..]));
    assert!(!going.is_finished());
    wire.socket.send(b"\0\0\x08\x06\x01\0\0\0\0polyrpc!").await;
    assert!(wire.reply().await.is_none(), "then the connection ends");
    drop(wire);
    soon(going).await.unwrap();
}

#[tokio::test]
async fn partially_received_request_survives_shutdown() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let mut peer = Http2::client(Socket::connect(&server).await.stream);
    // An answered request shows that the partial one was read.
    let stream = peer.ask("/Probe/Echo", &[("content-type", "application/json")]);
    peer.send(stream, &b"\"in "[..], false);
    let other = peer.ask("/Probe/Echo", &[("content-type", "application/json")]);
    peer.send(other, &b"\"x\""[..], true);
    assert_eq!(peer.field(":status").await, "200");
    let going = tokio::spawn(server.shutdown(PATIENCE));
    peer.send_goaway(other).await;
    peer.send(stream, &b"two\""[..], true);
    peer.flush().await;
    assert_eq!(peer.field(":status").await, "200");
    while peer.event().await.is_some() {}
    drop(peer);
    soon(going).await.unwrap();
}

#[tokio::test]
async fn undecompressable_request_is_internal_in_grpc_only() {
    let server = serve(Prober::default().server()).await;
    let mut peer = Http2::client(Socket::connect(&server).await.stream);
    let garbage = message(true, b"no gzip at all");
    // In one piece, and in several.
    for cut in [garbage.len(), 9] {
        let stream = peer.ask("/Probe/Echo", &[JSON, ("grpc-encoding", "gzip")]);
        peer.send(stream, garbage[..cut].to_vec(), cut == garbage.len());
        if cut < garbage.len() {
            peer.flush().await;
            peer.send(stream, garbage[cut..].to_vec(), true);
        }
        assert_eq!(peer.field("grpc-status").await, "13");
    }
    let stream =
        peer.ask("/Probe/Echo", &[("content-type", "application/json"), ("content-encoding", "gzip")]);
    peer.send(stream, &b"no gzip at all"[..], true);
    assert_eq!(peer.field(":status").await, "400");
}

#[tokio::test]
async fn undecompressable_response_reports_the_cause() {
    const LIMIT: usize = 1000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("grpc://{}", listener.local_addr().unwrap());
    // One per call, since a peer that has answered is gone.
    let limits = Limits { decompressed: LIMIT, ..Limits::default() };
    let connect = || Client::builder(&url).limits(limits.clone()).build().unwrap();
    let bomb = compress::compress(Compression::Gzip, &[b' '; LIMIT + 1]).unwrap();
    for (body, code) in [(&b"no gzip at all"[..], Code::Internal), (&bomb, Code::ResourceExhausted)] {
        let client = connect();
        let unary = async { client.call::<String>("Probe/Echo", "x").await.unwrap_err() };
        let peer = async { Http2::server(&listener).await.answer_compressed(body).await };
        let error = tokio::select! { error = unary => error, () = peer => panic!("the call ends") };
        assert_eq!(error.code(), code, "{error}");
        let client = connect();
        let streamed = async {
            let mut call = client.open_raw("Probe/Echo", CallOptions::default(), Format::Raw).await.unwrap();
            call.next().await.unwrap_err()
        };
        let peer = async { Http2::server(&listener).await.answer_compressed(body).await };
        let error = tokio::select! { error = streamed => error, () = peer => panic!("the call ends") };
        assert_eq!(error.code(), code, "{error}");
    }
}

#[tokio::test]
async fn protocol_violation_of_a_server_is_answered_with_a_goaway() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("grpc://{}", listener.local_addr().unwrap())).unwrap();
    let call = async { client.call::<String>("Probe/Echo", "x").await.unwrap_err() };
    let peer = async {
        let (mut stream, _) = soon(listener.accept()).await.unwrap();
        // DATA in place of SETTINGS.
        stream.write_all(b"\0\0\x01\0\0\0\0\0\x01x").await.unwrap();
        let mut received_bytes = Vec::new();
        let _ = soon(stream.read_to_end(&mut received_bytes)).await;
        received_bytes
    };
    let (error, received_bytes) = tokio::join!(call, peer);
    assert!(error.message().contains("the first frame is not SETTINGS"), "{error}");
    let why = b"the first frame is not SETTINGS";
    assert!(received_bytes.windows(why.len()).any(|bytes| bytes == why), "{}", received_bytes.escape_ascii());
}

#[tokio::test]
async fn head_without_a_message_is_deadline_exceeded() {
    let server = serve(Prober::default().server()).await;
    let mut peer = Http2::client(Socket::connect(&server).await.stream);
    peer.ask("/Probe/Echo", &[JSON, ("grpc-timeout", "100m")]);
    assert_eq!(peer.field("grpc-status").await, (Code::DeadlineExceeded as u32).to_string());
    // A call without a timeout waits for its message indefinitely.
    let stream = peer.ask("/Probe/Echo", &[JSON]);
    peer.flush().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    peer.send(stream, message(false, b"\"late\""), true);
    assert_eq!(peer.field("grpc-status").await, "0");
}

#[tokio::test]
async fn grpc_call_with_an_expired_timeout_is_deadline_exceeded() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let mut peer = Http2::client(Socket::connect(&server).await.stream);
    let stream = peer.ask("/Probe/Echo", &[JSON, ("grpc-timeout", "0n")]);
    peer.send(stream, message(false, b"\"late\""), true);
    peer.flush().await;
    assert_eq!(peer.field("grpc-status").await, (Code::DeadlineExceeded as u32).to_string());
    assert_eq!(prober.ran(), 0);
}

#[tokio::test]
async fn buffered_partial_call_survives_shutdown() {
    let server = serve(Prober::default().server()).await;
    let mut peer = Http2::client(Socket::connect(&server).await.stream);
    let stream = peer.ask("/Probe/Echo", &[JSON]);
    let other = peer.ask("/Probe/Echo", &[JSON]);
    peer.send(other, message(false, b"\"x\""), true);
    assert_eq!(peer.field("grpc-status").await, "0");
    let going = tokio::spawn(server.shutdown(PATIENCE));
    peer.send_goaway(other).await;
    peer.send(stream, message(false, b"\"y\""), true);
    peer.flush().await;
    assert_eq!(peer.field("grpc-status").await, "0");
    drop(peer);
    soon(going).await.unwrap();
}

#[tokio::test]
async fn json_over_http2_is_counted_as_http_and_not_as_grpc() {
    let metrics = polyrpc::layers::Metrics::new();
    let server = serve(Prober::default().server().metrics(&metrics)).await;
    let mut peer = Http2::client(TcpStream::connect(server.address().to_string()).await.unwrap());
    let stream = peer.ask("/Probe/Echo", &[("content-type", "application/json")]);
    peer.send(stream, "\"x\"", true);
    peer.flush().await;
    assert_eq!(peer.field(":status").await, "200");
    Client::new(&crate::common::url(Protocol::Grpc, &server))
        .unwrap()
        .call::<String>("Probe/Echo", "x")
        .await
        .unwrap();
    let counted: Vec<_> =
        metrics.methods().iter().map(|method| (method.protocol, method.succeeded)).collect();
    assert_eq!(counted, [("grpc", 1), ("http", 1)]);
}

/// Requests that are no calls, with their responses on an open listener.
const NAMING: [(&str, &str, u16); 12] = [
    ("GET", "/health/Probe", 200),
    ("GET", "/health/Nobody", 404),
    ("GET", "/readyz?service=Probe", 200),
    ("GET", "/readyz?service=Nobody", 404),
    ("GET", "/health?service=Probe", 200),
    ("GET", "/health?service=Nobody", 404),
    ("GET", "/Probe/Echo", 405),
    ("GET", "/Probe/Nothing", 404),
    ("GET", "/Nobody/Home", 404),
    ("GET", "/favicon.ico", 404),
    ("PUT", "/Probe/Echo", 405),
    ("DELETE", "/Nobody/Home", 404),
];

/// A server with health checks, which requires the credential `secret` if it is guarded.
async fn probed(guarded: bool) -> polyrpc::server::ServerHandle {
    let limits = polyrpc::server::Limits { credential_failures: 1000, ..Default::default() };
    let server = Prober::default().server().health(&polyrpc::introspection::Health::new()).limits(limits);
    let listen = polyrpc::server::Listen::on("127.0.0.1:0");
    let listen = match guarded {
        true => listen.authenticate(|credential, _| match credential {
            Some(b"secret") => Ok(()),
            _ => Err(Status::unauthenticated("who is it?")),
        }),
        false => listen,
    };
    server.bind(listen).await.unwrap().start()
}

/// The same request over HTTP/1 and HTTP/2: the status, whether `Allow` has POST, and the whole response.
async fn both(
    server: &polyrpc::server::ServerHandle,
    method: &str,
    path: &str,
    credential: &str,
) -> [Reported; 2] {
    let line = if credential.is_empty() { String::new() } else { format!("Authorization: {credential}\r\n") };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{line}Connection: close\r\n\r\n");
    let mut socket = Socket::connect(server).await;
    socket.send(request.as_bytes()).await;
    let http1 = String::from_utf8(socket.rest().await).unwrap();
    let mut peer = Http2::client(Socket::connect(server).await.stream);
    let field = [("authorization", credential)];
    let fields = if credential.is_empty() { &[][..] } else { &field[..] };
    let (head, body) = peer.get(method, path, fields).await;
    let status =
        |text: &str| text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    [
        Reported { status: status(&http1), allows: http1.contains("Allow: POST\r\n"), all: http1 },
        Reported {
            status: status(&head[0]),
            allows: head.iter().any(|field| field == "allow: POST"),
            all: format!("{head:?} {body}"),
        },
    ]
}

#[derive(Debug)]
struct Reported {
    status: u16,
    allows: bool,
    all: String,
}

#[tokio::test]
async fn get_of_an_unknown_path_is_404_and_wrong_verb_of_a_method_405() {
    let server = probed(false).await;
    for (method, path, status) in NAMING {
        for reported in both(&server, method, path, "").await {
            assert_eq!(reported.status, status, "{method} {path}: {reported:?}");
            assert_eq!(reported.allows, status == 405, "{method} {path}: {reported:?}");
        }
    }
}

#[tokio::test]
async fn guarded_listener_does_not_reveal_names() {
    let server = probed(true).await;
    for credential in ["", "guess"] {
        let mut seen: Option<[String; 2]> = None;
        for (method, path, _) in NAMING {
            let reported = both(&server, method, path, credential).await;
            for reported in &reported {
                assert_eq!(reported.status, 401, "{method} {path}: {reported:?}");
            }
            let all = reported.map(|reported| reported.all);
            assert_eq!(seen.get_or_insert_with(|| all.clone()), &all, "{method} {path}");
        }
        // A call is rejected likewise.
        let call = both(&server, "POST", "/Probe/Echo", credential).await;
        assert_eq!(seen.unwrap(), call.map(|reported| reported.all));
        for path in ["/health", "/readyz", "/livez", "/health?service="] {
            for reported in both(&server, "GET", path, credential).await {
                assert_eq!(reported.status, 200, "{path}: {reported:?}");
            }
        }
    }
    for (method, path, status) in NAMING {
        for reported in both(&server, method, path, "secret").await {
            assert_eq!(reported.status, status, "{method} {path}: {reported:?}");
        }
    }
}

#[tokio::test]
async fn upgrade_request_on_a_guarded_listener_does_not_reveal_names() {
    let server = probed(true).await;
    for (credential, switches) in [("", false), ("Authorization: secret\r\n", true)] {
        let mut reported = Vec::new();
        for path in ["/health/Probe", "/health/Nobody"] {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\n{credential}Connection: Upgrade, HTTP2-Settings\r\n\
                 Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
            );
            let mut socket = Socket::connect(&server).await;
            socket.send(request.as_bytes()).await;
            reported.push(socket.up_to("\r\n\r\n").await);
        }
        assert_eq!(reported[0], reported[1]);
        assert_eq!(reported[0].starts_with("HTTP/1.1 101 "), switches, "{reported:?}");
        assert_eq!(reported[0].starts_with("HTTP/1.1 401 "), !switches, "{reported:?}");
    }
}

/// The status of a gRPC call with this credential; `None` if the connection ends.
async fn status_with(peer: &mut Http2, credential: Option<&str>) -> Option<String> {
    let credential = credential.map(|credential| ("authorization", credential));
    let fields: Vec<_> = [JSON].into_iter().chain(credential).collect();
    let stream = peer.ask("/Probe/Echo", &fields);
    peer.send(stream, message(false, b"\"x\""), true);
    peer.flush().await;
    loop {
        if let Event::Headers { fields, .. } | Event::Trailers { fields, .. } = peer.event().await?
            && let Some(status) = fields.get(b"grpc-status")
        {
            return Some(String::from_utf8_lossy(status).into_owned());
        }
    }
}

#[tokio::test]
async fn rejected_credential_of_an_http2_connection_is_not_inherited() {
    const UNAUTHENTICATED: &str = "16";
    let judge = |credential: Option<&[u8]>| match credential {
        Some(b"secret") => Ok(()),
        _ => Err(Status::unauthenticated("who is it?")),
    };
    let on = || Listen::on("127.0.0.1:0").trust_grpc_connections();
    let at_once = on().authenticate(move |credential, _| judge(credential));
    let later = on().authenticate_async(move |credential, _| async move { judge(credential.as_deref()) });
    for listen in [at_once, later] {
        let prober = Prober::default();
        let server = prober.server().bind(listen).await.unwrap().start();
        let mut peer = Http2::client(Socket::connect(&server).await.stream);
        for credential in [Some("guess"), None, Some(""), None] {
            let status = status_with(&mut peer, credential).await;
            assert!(matches!(status.as_deref(), None | Some(UNAUTHENTICATED)), "{credential:?}: {status:?}");
        }
        assert_eq!(prober.ran(), 0);
        // An accepted one is inherited: that is what this listener is for.
        let mut peer = Http2::client(Socket::connect(&server).await.stream);
        for credential in [Some("secret"), None] {
            assert_eq!(status_with(&mut peer, credential).await.as_deref(), Some("0"), "{credential:?}");
        }
        assert_eq!(prober.ran(), 2);
    }
}

/// A peer that may be sent 2 GiB, on each stream and in total.
const BOUNDLESS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\
    \0\0\x04\x08\0\0\0\0\0\x7f\xff\x00\x00";

#[tokio::test]
async fn stream_that_is_not_read_waits_at_the_unsent_limit() {
    const SIZE: usize = 64 << 10;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let pour = move |cx: Context, _: Bytes| {
        let counted = counted.clone();
        let messages = Streaming::produce(move |sender| async move {
            loop {
                sender.send(Bytes::from(vec![b'x'; SIZE])).await?;
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        async move { (cx, Result::Ok(messages)) }
    };
    let service = ServiceBuilder::new("S").server_streaming::<Raw, Bytes, Bytes, _, _>("Pour", pour);
    let server = Server::new().service(service).function("echo", |text: String| async move { text });
    let server =
        serve(server.limits(ServerLimits { unsent_per_connection: 1 << 20, ..ServerLimits::default() }))
            .await;
    let mut socket = Socket::connect(&server).await;
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/S/Pour"),
        (":authority", "me"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]);
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        [&(payload.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    };
    let request = [BOUNDLESS, &frame(1, 4, &head), &frame(0, 1, &message(false, b"x"))].concat();
    socket.send(&request).await;
    crate::common::until(|| sent.load(Ordering::SeqCst) > 0).await;
    // It would have had the time to send far more, while others are served.
    let (other, begun) = (crate::common::client(Protocol::Rpcx, &server), Instant::now());
    while begun.elapsed() < Duration::from_millis(900) {
        assert_eq!(soon(other.call::<String>("echo", "a")).await.unwrap(), "a");
    }
    // The limit and the system's buffers: at most some 10 MiB.
    let sent = sent.load(Ordering::SeqCst) * SIZE;
    assert!(sent < 16 << 20, "{sent} bytes were sent unread");
    assert!(server.info().held_bytes < 4 << 20, "{}", server.info().held_bytes);
}

//! Server limits: each affects only the peer that reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polyrpc::client::{CallOptions, Request};
use polyrpc::codec::Body;
use polyrpc::server::{Http2, Limits};
use polyrpc::{Client, Code, Compression, Context, Format, Json, Protocol, Result, Retry, Server};

use crate::common::{
    Gate, PROTOCOLS, ProbeClient, Prober, Socket, Wire, client, json_call, serve, soon, until, url, url_of,
};

fn limited(limits: Limits) -> Server {
    Prober::default().server().limits(limits)
}

#[tokio::test]
async fn oversized_message_is_rejected() {
    let server = serve(limited(Limits { message: 64 << 10, ..Limits::default() })).await;
    for protocol in PROTOCOLS {
        let probe = ProbeClient::new(client(protocol, &server));
        let other = ProbeClient::new(client(protocol, &server));
        other.echo("here".into()).await.unwrap();
        let fits = "x".repeat(60 << 10);
        assert_eq!(soon(probe.echo(fits.clone())).await.unwrap(), fits, "{protocol:?}");
        let error = soon(probe.echo("x".repeat(65 << 10))).await.unwrap_err();
        assert_ne!(error.code(), Code::DeadlineExceeded, "{protocol:?}: {error}");
        // Its connection may be closed, but the server is reachable and others are not affected.
        assert_eq!(soon(probe.echo(fits.clone())).await.unwrap(), fits, "{protocol:?}");
        assert_eq!(soon(other.echo("still here".into())).await.unwrap(), "still here", "{protocol:?}");
    }
}

#[tokio::test]
async fn oversized_request_is_answered_in_its_protocol_and_its_connection_goes_on() {
    let server = serve(limited(Limits { message: 64 << 10, ..Limits::default() })).await;
    for scheme in ["rpcx", "net-rpc", "rest-rpc", "rest-rpc?version=0.20"] {
        let probe = ProbeClient::new(Client::new(&url_of(scheme, server.address())).unwrap());
        let error = soon(probe.echo("x".repeat(1 << 20))).await.unwrap_err();
        assert!(error.message().contains("65536"), "{scheme}: {error}");
        assert_eq!(error.status().retry(), Retry::Never, "{scheme}: {error}");
        assert_eq!(soon(probe.echo("still here".into())).await.unwrap(), "still here", "{scheme}");
        assert_eq!(server.connection_count(), 1, "{scheme}");
        drop(probe);
        until(|| server.connection_count() == 0).await;
    }
}

#[tokio::test]
async fn http_rejects_an_oversized_message_before_it_is_sent() {
    let server = serve(limited(Limits { message: 64 << 10, ..Limits::default() })).await;
    let mut socket = Socket::connect(&server).await;
    let (status, _) =
        socket.http("POST /Probe/Echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").await;
    assert_eq!(status, 413);
    assert!(socket.rest().await.is_empty());
    let mut socket = Socket::connect(&server).await;
    socket.offer(format!("GET /{} HTTP/1.1\r\nHost: a\r\n", "x".repeat(70 << 10)).as_bytes()).await;
    let (status, _) = socket.http_response().await;
    assert_eq!(status, 431);
}

#[tokio::test]
async fn client_rejects_an_oversized_reply() {
    let server = serve(
        Server::new().function("repeat", |text: String, times: usize| async move { text.repeat(times) }),
    )
    .await;
    for protocol in PROTOCOLS {
        let limits = polyrpc_core::Limits { message: 64 << 10, ..Default::default() };
        let client = Client::builder(&url(protocol, &server)).limits(limits).build().unwrap();
        let error = soon(client.call::<String>("repeat", &("x", 65usize << 10))).await.unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{protocol:?}: {error}");
        assert_eq!(error.status().retry(), Retry::Never, "{protocol:?}: {error}");
        assert!(error.message().contains("65536"), "{protocol:?}: {error}");
        assert_eq!(
            soon(client.call::<String>("repeat", &("x", 3usize))).await.unwrap(),
            "xxx",
            "{protocol:?}"
        );
    }
}

/// Limits with one, named first, set to zero.
fn with_zero(name: &'static str, set: impl FnOnce(&mut Limits)) -> (&'static str, Limits) {
    let mut limits = Limits::default();
    set(&mut limits);
    (name, limits)
}

#[tokio::test]
async fn zero_limit_that_would_reject_everything_is_an_error() {
    const ZERO: Duration = Duration::ZERO;
    for (name, limits) in [
        with_zero("Limits::message", |limits| limits.message = 0),
        with_zero("Limits::decompressed", |limits| limits.decompressed = 0),
        with_zero("Limits::header", |limits| limits.header = 0),
        with_zero("Limits::memory", |limits| limits.memory = 0),
        with_zero("Limits::memory_per_peer", |limits| limits.memory_per_peer = 0),
        with_zero("Limits::memory_per_connection", |limits| limits.memory_per_connection = 0),
        with_zero("Limits::unsent_per_connection", |limits| limits.unsent_per_connection = 0),
        with_zero("Limits::connections", |limits| limits.connections = 0),
        with_zero("Limits::connections_per_peer", |limits| limits.connections_per_peer = 0),
        with_zero("Limits::in_flight", |limits| limits.in_flight = 0),
        with_zero("Limits::in_flight_per_peer", |limits| limits.in_flight_per_peer = 0),
        with_zero("Limits::in_flight_per_connection", |limits| limits.in_flight_per_connection = 0),
        with_zero("Limits::streams_per_connection", |limits| limits.streams_per_connection = 0),
        with_zero("Limits::first_byte_timeout", |limits| limits.first_byte_timeout = ZERO),
        with_zero("Limits::header_timeout", |limits| limits.header_timeout = ZERO),
        with_zero("Limits::message_timeout", |limits| limits.message_timeout = ZERO),
        with_zero("Limits::write_timeout", |limits| limits.write_timeout = ZERO),
        with_zero("Limits::idle_timeout", |limits| limits.idle_timeout = Some(ZERO)),
        with_zero("Limits::stream_idle_timeout", |limits| limits.stream_idle_timeout = Some(ZERO)),
        with_zero("Limits::call_timeout", |limits| limits.call_timeout = Some(ZERO)),
        with_zero("Limits::connection_age", |limits| limits.connection_age = Some(ZERO)),
        with_zero("Limits::authentication_timeout", |limits| limits.authentication_timeout = ZERO),
        with_zero("Limits::transfer_tokens", |limits| limits.transfer_tokens = 0),
        with_zero("Limits::transfer_token_timeout", |limits| limits.transfer_token_timeout = ZERO),
        with_zero("Limits::http2::stream_window", |limits| limits.http2.stream_window = 0),
        with_zero("Limits::http2::large_stream_window", |limits| limits.http2.large_stream_window = 0),
        with_zero("Limits::http2::max_stream_window", |limits| limits.http2.max_stream_window = 0),
        with_zero("Limits::http2::connection_window", |limits| limits.http2.connection_window = 0),
        with_zero("Limits::http2::frame", |limits| limits.http2.frame = 0),
        with_zero("Limits::http2::large_frame", |limits| limits.http2.large_frame = 0),
        with_zero("Limits::http2::keepalive_interval", |limits| limits.http2.keepalive_interval = Some(ZERO)),
        with_zero("Limits::http2::keepalive_timeout", |limits| limits.http2.keepalive_timeout = ZERO),
    ] {
        let error =
            limited(limits).bind("127.0.0.1:0").await.err().unwrap_or_else(|| panic!("{name} is taken"));
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{name}");
        assert!(error.to_string().starts_with(&format!("the limit `{name}` is zero: ")), "{error}");
    }
}

#[tokio::test]
async fn meaningful_zero_limit_is_accepted() {
    let limits = Limits {
        streams: 0,
        streams_per_peer: 0,
        min_data_rate: 0,
        half_close_timeout: Duration::ZERO,
        connection_age_grace: Duration::ZERO,
        credential_failures: 0,
        http2: Http2 { resets: 0, resets_per_second: 0, ..Http2::default() },
        ..Limits::default()
    };
    let server = serve(limited(limits)).await;
    for protocol in PROTOCOLS {
        assert_eq!(soon(ProbeClient::new(client(protocol, &server)).echo("a".into())).await.unwrap(), "a");
    }
}

const COMPRESSIONS: [(Protocol, Compression); 6] = [
    (Protocol::BaiduStd, Compression::Gzip),
    (Protocol::BaiduStd, Compression::Zlib),
    (Protocol::BaiduStd, Compression::Snappy),
    (Protocol::Rpcx, Compression::Gzip),
    (Protocol::Http, Compression::Gzip),
    (Protocol::Http, Compression::Zlib),
];

#[tokio::test]
async fn message_oversized_after_decompression_is_rejected() {
    let server = serve(limited(Limits { decompressed: 64 << 10, ..Limits::default() })).await;
    for (protocol, compression) in COMPRESSIONS {
        let probe = ProbeClient::new(client(protocol, &server));
        let request = |length: usize| Request::new("x".repeat(length)).with_compression(compression);
        let error = soon(probe.echo_with(request(66 << 10))).await.unwrap_err();
        let case = format!("{protocol:?} {compression:?}");
        // rpcx closes the connection; the others keep it open.
        let ends = protocol == Protocol::Rpcx;
        let why = if ends { "closed the connection" } else { "exceeds the limit of 65536 bytes" };
        assert!(error.message().contains(why), "{case}: {error}");
        let reply = crate::common::again(|| probe.echo_with(request(60 << 10))).await;
        assert_eq!(reply.message.len(), 60 << 10, "{case}");
        assert!(ends || server.connection_count() == 1, "{case}");
        drop(probe);
        until(|| server.connection_count() == 0).await;
    }
}

#[polyrpc::service]
trait Shrink {
    /// This many bytes, compressed as requested.
    async fn zeros(&self, cx: &mut Context, length: usize, compression: u8) -> Result<String>;
}

struct Shrinker;

impl Shrink for Shrinker {
    async fn zeros(&self, cx: &mut Context, length: usize, compression: u8) -> Result<String> {
        cx.reply_options().compression = match compression {
            1 => Compression::Gzip,
            2 => Compression::Zlib,
            _ => Compression::Snappy,
        };
        Ok("0".repeat(length))
    }
}

#[tokio::test]
async fn reply_oversized_after_decompression_fails_its_call_only() {
    let server = serve(Server::new().service(ShrinkServer::new(Shrinker))).await;
    for (protocol, compression) in COMPRESSIONS {
        if (protocol, compression) == (Protocol::Http, Compression::Zlib) {
            // None of our clients announces it.
            continue;
        }
        let limits = polyrpc_core::Limits { decompressed: 64 << 10, ..Default::default() };
        let client = Client::builder(&url(protocol, &server)).limits(limits).build().unwrap();
        let zeros = async |length: usize| {
            let number = match compression {
                Compression::Gzip => 1,
                Compression::Zlib => 2,
                _ => 3,
            };
            // rpcx compresses a reply if the request was compressed, which only long ones are.
            let body = format!("[{length}, {number}]{}", " ".repeat(2000));
            let body = Body::new(Format::Json(Json::Brpc), body);
            let options = CallOptions { compression: Some(compression), ..CallOptions::default() };
            soon(client.call_raw("Shrink/Zeros", body, options)).await
        };
        let case = format!("{protocol:?} {compression:?}");
        let error = zeros(66 << 10).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal, "{case}: {error}");
        assert!(error.message().contains("exceeds the limit of 65536 bytes"), "{case}: {error}");
        // With or without quotes.
        assert!(zeros(60 << 10).await.expect(&case).message.bytes.len() >= 60 << 10, "{case}");
        assert_eq!(server.connection_count(), 1, "{case}");
        drop(client);
        until(|| server.connection_count() == 0).await;
    }
}

#[tokio::test]
async fn connection_over_the_limit_is_closed_until_another_ends() {
    let server = serve(limited(Limits { connections: 2, ..Limits::default() })).await;
    for protocol in PROTOCOLS {
        let mut wires = Vec::new();
        for n in 0..2 {
            let mut wire = Wire::connect(protocol, &server).await;
            wire.send(n, &json_call("Probe", "Echo", "\"a\"")).await;
            assert_eq!(wire.reply().await.expect("an answer").0, n, "{protocol:?}");
            wires.push(wire);
        }
        assert!(Socket::connect(&server).await.rest().await.is_empty(), "{protocol:?}");
        assert_eq!(server.connection_count(), 2);
        wires.pop();
        until(|| server.connection_count() == 1).await;
        let mut wire = Wire::connect(protocol, &server).await;
        wire.send(3, &json_call("Probe", "Echo", "\"a\"")).await;
        assert!(wire.reply().await.is_some(), "{protocol:?}");
        drop((wire, wires));
        until(|| server.connection_count() == 0).await;
    }
}

#[tokio::test]
async fn call_over_the_limit_is_rejected_while_others_proceed() {
    for protocol in PROTOCOLS {
        let prober = Prober::default();
        let server = serve(prober.server().limits(Limits { in_flight: 4, ..Limits::default() })).await;
        let probe = ProbeClient::new(client(protocol, &server));
        let waiting: Vec<_> = (0..4)
            .map(|n| {
                let probe = probe.clone();
                tokio::spawn(async move { probe.wait(n.to_string()).await })
            })
            .collect();
        prober.gate.came(4).await;
        for _ in 0..2 {
            let error = soon(probe.wait("one more".into())).await.unwrap_err();
            assert!(error.message().contains("Reached server's max_concurrency=4"), "{protocol:?}: {error}");
            assert_eq!(error.code(), Code::ResourceExhausted, "{protocol:?}");
            assert_eq!(error.status().retry(), Retry::Elsewhere, "{protocol:?}");
        }
        prober.gate.open();
        for (n, waiting) in waiting.into_iter().enumerate() {
            assert_eq!(soon(waiting).await.unwrap().unwrap(), n.to_string(), "{protocol:?}");
        }
        assert_eq!(prober.ran(), 4, "{protocol:?}");
        assert!(soon(probe.wait("now".into())).await.is_ok(), "{protocol:?}");
    }
}

#[polyrpc::service]
trait Counted {
    async fn step(&self, n: u32) -> Result<u32>;
}

/// Counts its concurrent calls.
#[derive(Clone, Default)]
struct Counter {
    gate: Gate,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Counted for Counter {
    async fn step(&self, n: u32) -> Result<u32> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.gate.pass().await;
        tokio::task::yield_now().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(n)
    }
}

#[tokio::test]
async fn connection_with_too_many_calls_is_read_later_without_loss() {
    const CALLS: usize = 500;
    for protocol in PROTOCOLS {
        let counter = Counter::default();
        let limits = Limits { in_flight_per_connection: 8, ..Limits::default() };
        let server = serve(Server::new().service(CountedServer::new(counter.clone())).limits(limits)).await;
        let mut wire = Wire::connect(protocol, &server).await;
        let mut calls = Vec::new();
        for n in 0..CALLS {
            calls.extend(wire.encode(n as u64, &json_call("Counted", "Step", &n.to_string())));
        }
        wire.socket.send(&calls).await;
        counter.gate.came(8).await;
        // Another connection is served meanwhile, which also gives this one time to exceed the limit.
        let other = CountedClient::new(client(protocol, &server));
        let others: Vec<_> = (0..4)
            .map(|n| {
                let other = other.clone();
                tokio::spawn(async move { other.step(n).await })
            })
            .collect();
        counter.gate.came(12).await;
        assert_eq!(counter.gate.count(), 12, "{protocol:?}");
        counter.gate.open();
        for other in others {
            soon(other).await.unwrap().unwrap();
        }
        let mut answered = vec![false; CALLS];
        for _ in 0..CALLS {
            let (id, reply) = wire.reply().await.expect("an answer");
            assert_eq!(reply.result.unwrap(), id.to_string(), "{protocol:?}");
            answered[id as usize] = true;
        }
        assert!(answered.iter().all(|answered| *answered), "{protocol:?}");
        assert!(counter.most.load(Ordering::SeqCst) <= 12, "{protocol:?}");
    }
}

#[tokio::test]
async fn names_beyond_the_limit_of_a_head_are_rejected() {
    let server = serve(limited(Limits { header: 8 << 10, ..Limits::default() })).await;
    // The other protocols limit what contains the names.
    for protocol in [Protocol::Rpcx, Protocol::NetRpc] {
        let mut wire = Wire::connect(protocol, &server).await;
        for (id, length, text) in [(1, 8 << 10, "names of more than 8192 bytes"), (2, 8000, "xxx")] {
            let call = wire.encode(id, &json_call(&"x".repeat(length), "Echo", "1"));
            wire.socket.send(&call).await;
            let (answered, reply) = wire.reply().await.expect("an answer");
            let failure = reply.result.unwrap_err();
            assert_eq!(answered, id);
            assert!(failure.message().contains(text), "{protocol:?}: {failure}");
        }
    }
}

#[tokio::test]
async fn trickling_message_closes_its_connection_only() {
    let server =
        serve(limited(Limits { header_timeout: Duration::from_millis(500), ..Limits::default() })).await;
    let whole = "\"".to_owned() + &"x".repeat(400) + "\"";
    for protocol in PROTOCOLS {
        let probe = ProbeClient::new(client(protocol, &server));
        let mut wire = Wire::connect(protocol, &server).await;
        let bytes = wire.encode(1, &json_call("Probe", "Echo", &whole));
        let begun = Instant::now();
        let mut dripped = 0;
        let mut drip = tokio::time::interval(Duration::from_millis(20));
        let mut drops = bytes.iter().cycle();
        // Its bytes would take more than 8 seconds, and never end.
        soon(async {
            loop {
                let mut end = [0];
                tokio::select! {
                    _ = drip.tick() => {
                        let dropped = tokio::io::AsyncWriteExt::write_all(&mut wire.socket.stream, &[*drops.next().unwrap()]).await;
                        if dropped.is_err() { break }
                        dripped += 1;
                    }
                    read = tokio::io::AsyncReadExt::read(&mut wire.socket.stream, &mut end) => {
                        if matches!(read, Ok(0) | Err(_)) { break }
                    }
                }
                assert_eq!(probe.echo("meanwhile".into()).await.unwrap(), "meanwhile");
            }
        })
        .await;
        assert!(dripped < bytes.len(), "{protocol:?}: the message came whole");
        assert!(begun.elapsed() >= Duration::from_millis(500), "{protocol:?}: {:?}", begun.elapsed());
        assert!(soon(probe.echo("after".into())).await.is_ok(), "{protocol:?}");
    }
}

#[tokio::test]
async fn connection_without_a_detected_protocol_is_closed() {
    let server =
        serve(limited(Limits { header_timeout: Duration::from_millis(250), ..Limits::default() })).await;
    for start in [&b"P"[..], b"PR", b"PO", b"S"] {
        let mut socket = Socket::connect(&server).await;
        socket.offer(start).await;
        assert!(socket.rest().await.is_empty());
    }
    // If protocols may switch, after the first message too.
    let limits = Limits { header_timeout: Duration::from_millis(250), ..Limits::default() };
    let listen = polyrpc::server::Listen::on("127.0.0.1:0").allow_protocol_switch();
    let server = limited(limits).bind(listen).await.unwrap().start();
    let mut socket = Socket::connect(&server).await;
    socket.send(b"POST /Probe/Echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\"a\"PR").await;
    assert_eq!(socket.http_response().await, (200, "\"a\"".to_owned()));
    let rest = socket.rest().await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400 "), "{}", rest.escape_ascii());
}

#[tokio::test]
async fn endless_head_times_out() {
    let server =
        serve(limited(Limits { header_timeout: Duration::from_millis(250), ..Limits::default() })).await;
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    // HEADERS of one field, without END_HEADERS: every frame is complete, the head is not.
    const HEADERS: &[u8] = b"\0\0\x01\x01\0\0\0\0\x01\x83";
    let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
    for start in [preface.to_vec(), [preface, SETTINGS, HEADERS].concat()] {
        let mut socket = Socket::connect(&server).await;
        socket.send(&start).await;
        socket.rest().await;
    }
}

#[tokio::test]
async fn large_message_may_take_longer_than_the_header_timeout() {
    let limits = Limits { header_timeout: Duration::from_millis(250), ..Limits::default() };
    let server = serve(limited(limits)).await;
    for protocol in PROTOCOLS {
        let mut wire = Wire::connect(protocol, &server).await;
        let bytes = wire.encode(1, &json_call("Probe", "Echo", &format!("\"{}\"", "x".repeat(200 << 10))));
        // Four times the timeout in total, each part well within it.
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        for part in bytes.chunks(bytes.len() / 20) {
            pace.tick().await;
            wire.socket.send(part).await;
        }
        assert!(wire.reply().await.expect("an answer").1.result.is_ok(), "{protocol:?}");
    }
}

#[tokio::test]
async fn calls_of_closed_connections_no_longer_count() {
    const ROUNDS: usize = 40;
    for protocol in PROTOCOLS {
        let prober = Prober::default();
        // Full after fewer rounds, if the calls of closed connections counted.
        let limits = Limits { in_flight: 32, half_close_timeout: Duration::ZERO, ..Limits::default() };
        let server = serve(prober.server().limits(limits)).await;
        for round in 1..=ROUNDS {
            let mut wire = Wire::connect(protocol, &server).await;
            wire.send(1, &json_call("Probe", "Wait", "\"x\"")).await;
            prober.gate.came(round).await;
            drop(wire);
            until(|| server.info().pending_calls == 0).await;
        }
        let probe = ProbeClient::new(client(protocol, &server));
        assert_eq!(soon(probe.echo("a".into())).await.unwrap(), "a", "{protocol:?}");
        assert_eq!(server.info().held_bytes, 0, "{protocol:?}: it holds nothing of them");
    }
}

#[tokio::test]
async fn idle_connection_is_closed_and_reopened() {
    let limits = Limits {
        first_byte_timeout: Duration::from_millis(250),
        idle_timeout: Some(Duration::from_millis(250)),
        ..Limits::default()
    };
    let prober = Prober::default();
    let server = serve(prober.server().limits(limits)).await;
    // Go's client would not reconnect: `net_rpc.rs`.
    for protocol in PROTOCOLS.into_iter().filter(|protocol| *protocol != Protocol::NetRpc) {
        let probe = ProbeClient::new(client(protocol, &server));
        probe.echo("a".into()).await.unwrap();
        let mut wire = Wire::connect(protocol, &server).await;
        wire.send(1, &json_call("Probe", "Echo", "\"a\"")).await;
        assert!(wire.reply().await.is_some());
        assert!(wire.reply().await.is_none(), "{protocol:?}");
        until(|| server.connection_count() == 0).await;
        assert_eq!(crate::common::again(|| probe.echo("b".into())).await, "b", "{protocol:?}");
    }
    // A connection with a pending call is not idle.
    let probe = ProbeClient::new(client(Protocol::Rpcx, &server));
    let waiting = tokio::spawn(async move { probe.wait("long".into()).await });
    prober.gate.came(1).await;
    let mut idle = Socket::connect(&server).await;
    idle.rest().await;
    prober.gate.open();
    assert_eq!(soon(waiting).await.unwrap().unwrap(), "long");
}

#[tokio::test]
async fn server_does_not_read_from_a_client_that_does_not_read() {
    const CALLS: usize = 400;
    const SIZE: usize = 128 << 10;
    for protocol in PROTOCOLS {
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = ran.clone();
        let server = Server::new()
            .function("blob", move || {
                counted.fetch_add(1, Ordering::SeqCst);
                async { "x".repeat(SIZE) }
            })
            .function("echo", |text: String| async move { text })
            .limits(Limits {
                unsent_per_connection: 1 << 20,
                header_timeout: Duration::from_millis(250),
                ..Limits::default()
            });
        let server = serve(server).await;
        let mut wire = Wire::connect(protocol, &server).await;
        let mut calls = Vec::new();
        for n in 0..CALLS {
            calls.extend(wire.encode(n as u64, &json_call("", "blob", "null")));
        }
        wire.socket.send(&calls).await;
        // Others are served, and the server would have had time to answer all. Nor does it treat a peer that
        // has not read yet as a slow sender.
        let (other, begun) = (client(protocol, &server), Instant::now());
        while begun.elapsed() < Duration::from_millis(900) {
            assert_eq!(soon(other.call::<String>("echo", "a")).await.unwrap(), "a");
        }
        // The limit plus the system's buffers: at most some 10 MiB.
        let answered = ran.load(Ordering::SeqCst) * SIZE;
        assert!(answered < 16 << 20, "{protocol:?}: {answered} bytes were answered unread");
        for _ in 0..CALLS {
            let (_, reply) = wire.reply().await.expect("an answer");
            match reply.result {
                Ok(blob) => assert_eq!(blob.len(), SIZE + 2, "{protocol:?}"),
                // HTTP/2 must keep reading, since window updates arrive on the connection: it rejects new calls instead.
                Err(status) => {
                    assert_eq!((protocol, status.retry()), (Protocol::Grpc, polyrpc_core::Retry::Elsewhere));
                }
            }
        }
    }
}

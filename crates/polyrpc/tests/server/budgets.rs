//! Limits on what one peer can make a server hold, and for how long, while others are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::introspection::ServerInfo;
use polyrpc::layer::{Call, Layer, Next, Outcome};
use polyrpc::payload::compress;
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::{Client, Code, Compression, Format, MemoryBudget, Protocol, Server, Status, Streaming};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::common::{
    Gate, PROTOCOLS, ProbeClient, Prober, Socket, Wire, client, json_call, serve, serve_apart, soon, until,
    url,
};

fn limited(limits: Limits) -> Server {
    Prober::default().server().limits(limits)
}

/// A client whose calls may take as long as they need on a busy machine.
fn patient(protocol: Protocol, server: &ServerHandle) -> Client {
    Client::builder(&url(protocol, server)).timeout(None).build().unwrap()
}

/// Number of rejections and closed connections with this cause.
fn counted(counts: &[(&'static str, u64)], cause: &str) -> u64 {
    counts.iter().find(|(name, _)| *name == cause).expect("the cause exists").1
}

fn closed(facts: &ServerInfo, cause: &str) -> u64 {
    counted(&facts.closed_connections, cause)
}

fn refused(facts: &ServerInfo, cause: &str) -> u64 {
    counted(&facts.rejections, cause)
}

/// Opens gRPC calls without their messages.
async fn open_heads(server: &ServerHandle, calls: u64) -> Wire {
    let mut wire = Wire::connect(Protocol::Grpc, server).await;
    let call = json_call("Probe", "Echo", "");
    for id in 0..calls {
        let bytes = wire.open(id, &call);
        wire.socket.send(&bytes).await;
    }
    wire
}

#[tokio::test]
async fn calls_without_a_message_do_not_exhaust_the_call_limit() {
    let limits = Limits { in_flight: 16, ..Limits::default() };
    let server = serve(limited(limits)).await;
    let probe = ProbeClient::new(client(Protocol::BaiduStd, &server));
    probe.echo("before".into()).await.unwrap();
    let _heads = open_heads(&server, 200).await;
    // Long enough for the calls to be opened without their messages.
    sleep(Duration::from_millis(1200)).await;
    assert_eq!(server.info().pending_calls, 0);
    for protocol in PROTOCOLS {
        let probe = ProbeClient::new(client(protocol, &server));
        assert_eq!(soon(probe.echo("still here".into())).await.unwrap(), "still here", "{protocol:?}");
    }
}

#[tokio::test]
async fn one_connection_cannot_exhaust_the_call_limit() {
    let prober = Prober::default();
    let server = serve(prober.server().limits(Limits { in_flight: 64, ..Limits::default() })).await;
    let greedy: Vec<_> = (0..4).map(|_| ProbeClient::new(client(Protocol::Rpcx, &server))).collect();
    let mut waiting = Vec::new();
    let mut wait = |n: usize| {
        let probe = greedy[n % 4].clone();
        waiting.push(tokio::spawn(async move { probe.wait("greedy".into()).await }));
    };
    // A connection that is alone may use all: so each has a call before any has many.
    (0..4).for_each(&mut wait);
    until(|| server.info().pending_calls == 4).await;
    (4..400).for_each(wait);
    until(|| refused(&server.info(), "calls") > 0).await;
    let late = ProbeClient::new(client(Protocol::Rpcx, &server));
    let waits = tokio::spawn({
        let late = late.clone();
        async move { late.wait("late".into()).await }
    });
    let before = server.info().pending_calls;
    assert!(before < 64, "{before}");
    until(|| server.info().pending_calls > before || prober.gate.count() > 64).await;
    prober.gate.open();
    assert_eq!(soon(waits).await.unwrap().unwrap(), "late");
}

#[tokio::test]
async fn stalled_message_closes_its_connection_while_a_handler_is_busy() {
    let limits = Limits { header_timeout: Duration::from_millis(500), ..Limits::default() };
    for protocol in [Protocol::BaiduStd, Protocol::Rpcx] {
        let server = serve(limited(limits.clone())).await;
        let mut wire = Wire::connect(protocol, &server).await;
        wire.send(1, &json_call("Probe", "Wait", "\"a\"")).await;
        let bytes = wire.encode(2, &json_call("Probe", "Echo", "\"b\""));
        wire.socket.send(&bytes[..bytes.len() - 1]).await;
        until(|| closed(&server.info(), "message_timeout") == 1).await;
        drop(wire);
        until(|| server.connection_count() == 0).await;
    }
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let limits = Limits { first_byte_timeout: Duration::from_millis(500), ..Limits::default() };
    let server = serve(limited(limits)).await;
    let mut socket = Socket::connect(&server).await;
    assert!(socket.rest().await.is_empty());
    assert_eq!(closed(&server.info(), "first_byte_timeout"), 1);
}

#[tokio::test]
async fn peer_that_does_not_read_is_closed() {
    let limits = Limits { write_timeout: Duration::from_millis(500), ..Limits::default() };
    for protocol in [Protocol::BaiduStd, Protocol::Rpcx, Protocol::Http] {
        let server = serve(limited(limits.clone())).await;
        let mut wire = Wire::connect(protocol, &server).await;
        let large = format!("\"{}\"", "x".repeat(16 << 20));
        wire.send(1, &json_call("Probe", "Echo", &large)).await;
        until(|| closed(&server.info(), "write_timeout") == 1).await;
        until(|| server.connection_count() == 0).await;
    }
}

/// The system has taken the whole reply, so that nothing waits for the server to write.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn peer_that_leaves_a_reply_to_the_system_is_closed() {
    let limits = Limits { write_timeout: Duration::from_millis(500), ..Limits::default() };
    let server = serve(limited(limits)).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // Less than the reply, which the server's send buffer has room for.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut peer = socket.connect(server.address().to_string().parse().unwrap()).await.unwrap();
    let reply = format!("\"{}\"", "x".repeat(32 << 10));
    peer.write_all(&crate::common::baidu_frame("Probe", "Echo", 1, 0, reply.as_bytes())).await.unwrap();
    until(|| closed(&server.info(), "write_timeout") == 1).await;
    until(|| server.connection_count() == 0).await;
}

#[tokio::test]
async fn connection_is_drained_at_its_maximum_age() {
    let limits = Limits {
        connection_age: Some(Duration::from_secs(1)),
        connection_age_grace: Duration::from_millis(500),
        ..Limits::default()
    };
    let server = serve(limited(limits)).await;
    for protocol in PROTOCOLS {
        let mut wire = Wire::connect(protocol, &server).await;
        wire.send(1, &json_call("Probe", "Echo", "\"a\"")).await;
        assert!(wire.answer().await.is_some(), "{protocol:?}");
        while wire.answer().await.is_some() {}
    }
}

#[tokio::test]
async fn unread_replies_stay_within_the_budget_and_others_are_served() {
    let memory = 32 << 20;
    let limits = Limits {
        memory,
        memory_per_peer: memory,
        memory_per_connection: memory,
        write_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let server = serve(limited(limits)).await;
    let good = ProbeClient::new(client(Protocol::Rpcx, &server));
    good.echo("before".into()).await.unwrap();
    let bomb = format!("\"{}\"", "x".repeat(7 << 20));
    let bomb = compress::compress(Compression::Gzip, bomb.as_bytes()).unwrap();
    let mut unread = Vec::new();
    for id in 0..12 {
        let mut wire = Wire::connect(Protocol::BaiduStd, &server).await;
        let frame = crate::common::baidu_frame("Probe", "Echo", id, 2, &bomb);
        wire.socket.send(&frame).await;
        unread.push(wire);
        let used = server.info().held_bytes;
        assert!(used <= memory, "{used}");
        assert_eq!(soon(good.echo("meanwhile".into())).await.unwrap(), "meanwhile");
    }
    until(|| refused(&server.info(), "memory") + closed(&server.info(), "write_timeout") > 0).await;
    until(|| closed(&server.info(), "write_timeout") + closed(&server.info(), "largest_holder") > 0).await;
    drop(unread);
    until(|| server.connection_count() == 1).await;
    assert!(server.info().held_bytes < 64 << 10);
}

/// The reply of 1 MiB to any call.
async fn blob(mut call: RawRequest) -> polyrpc::Result<RawResponse> {
    call.body().await?;
    Ok(RawResponse::message(Bytes::from(vec![b'x'; 1 << 20])))
}

#[test]
fn client_reads_no_more_replies_than_its_calls_take() {
    const CALLS: usize = 64;
    // Its server sends them from other threads.
    let (_runtime, server) = serve_apart(Server::new().fallback(blob));
    let budget = MemoryBudget::new(256 << 20);
    let url = url(Protocol::Rpcx, &server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let most = runtime.block_on(async {
        let client = Client::builder(&url).memory_budget(&budget).timeout(None).build().unwrap();
        let call = || async {
            let body = Body::new(Format::Raw, Bytes::from_static(b"1"));
            let reply = client.call_raw("Any/Blob", body, CallOptions::default()).await.unwrap();
            assert_eq!(reply.message.bytes.len(), 1 << 20);
            budget.held()
        };
        soon(futures_util::future::join_all((0..CALLS).map(|_| call()))).await.into_iter().max()
    });
    assert!(most.unwrap() <= 8 << 20, "{most:?}");
}

/// Responds with messages without end.
async fn pour(call: RawRequest) -> polyrpc::Result<RawResponse> {
    let messages = futures_util::stream::repeat_with(|| Ok(Bytes::from_static(&[0; 16 << 10])));
    let mut response = RawResponse::messages(Streaming::from_stream(messages));
    response.format = Some(call.format());
    Ok(response)
}

#[tokio::test]
async fn unread_streams_of_a_client_with_a_budget_hold_back_no_others() {
    // More than the usual window of a connection holds, twice.
    const STREAMS: usize = 640;
    // A server refuses streams while more than this is unsent.
    let limits = Limits { unsent_per_connection: 64 << 20, ..Limits::default() };
    let server = serve(Server::new().limits(limits).fallback(pour)).await;
    let budget = MemoryBudget::new(256 << 20);
    let client = Client::builder(&url(Protocol::Grpc, &server)).memory_budget(&budget).build().unwrap();
    let open = || client.open_raw("Any/Pour", CallOptions::default(), Format::Protobuf);
    let mut unread = Vec::new();
    for _ in 0..STREAMS {
        unread.push(soon(open()).await.unwrap());
    }
    until(|| budget.held() >= STREAMS * (60 << 10)).await;
    let mut late = soon(open()).await.unwrap();
    assert_eq!(soon(late.next()).await.unwrap().map(|message| message.bytes.len()), Some(16 << 10));
}

#[tokio::test]
async fn replies_behind_unread_ones_leave_room_for_others() {
    const CALLS: usize = 48;
    let memory = 32 << 20;
    let limits =
        Limits { memory, memory_per_peer: memory, memory_per_connection: memory, ..Limits::default() };
    let gate = Gate::default();
    let server = Server::new().limits(limits).fallback({
        let gate = gate.clone();
        move |call: RawRequest| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                blob(call).await
            }
        }
    });
    let server = serve(server).await;
    let mut wire = Wire::connect(Protocol::BaiduStd, &server).await;
    for id in 0..CALLS {
        wire.send(id as u64, &json_call("Any", "Blob", "1")).await;
    }
    // All of them are pending when the first reply is written.
    gate.came(CALLS).await;
    gate.open();
    until(|| server.info().pending_calls == 0).await;
    assert!(refused(&server.info(), "memory") > 0);
    let used = server.info().held_bytes;
    assert!(used <= memory / 2 + (1 << 20), "{used}");
}

#[tokio::test]
async fn servers_that_share_a_budget_close_only_connections_that_hold_most() {
    let memory = 8 << 20;
    let limits = Limits {
        memory,
        memory_per_peer: memory,
        memory_per_connection: memory,
        header_timeout: Duration::from_secs(120),
        ..Limits::default()
    };
    let (budget, prober) = (MemoryBudget::new(memory), Prober::default());
    let quiet = serve(prober.server().limits(limits.clone()).memory_budget(&budget)).await;
    let flooded = serve(limited(limits).memory_budget(&budget)).await;
    let probe = ProbeClient::new(patient(Protocol::Rpcx, &quiet));
    let waits = tokio::spawn(async move { probe.wait("x".repeat(16 << 10)).await });
    prober.gate.came(1).await;
    let mut unfinished = Vec::new();
    for id in 0..24 {
        let mut wire = Wire::connect(Protocol::Rpcx, &flooded).await;
        let bytes = wire.encode(id, &json_call("Probe", "Echo", &format!("\"{}\"", "x".repeat(1 << 20))));
        wire.socket.offer(&bytes[..400 << 10]).await;
        unfinished.push(wire);
    }
    until(|| closed(&flooded.info(), "largest_holder") >= 2).await;
    assert_eq!(closed(&quiet.info(), "largest_holder"), 0);
    prober.gate.open();
    assert_eq!(soon(waits).await.unwrap().unwrap().len(), 16 << 10);
}

#[tokio::test]
async fn message_of_maximum_length_fits_the_default_budget() {
    let server = serve(limited(Limits::default())).await;
    let text = "x".repeat((64 << 20) - (64 << 10));
    for protocol in [Protocol::Rpcx, Protocol::Grpc] {
        let probe = ProbeClient::new(patient(protocol, &server));
        assert_eq!(soon(probe.echo(text.clone())).await.unwrap().len(), text.len(), "{protocol:?}");
    }
}

#[tokio::test]
async fn shutdown_does_not_wait_for_incomplete_messages() {
    let server = serve(limited(Limits::default())).await;
    let _heads = open_heads(&server, 10).await;
    let mut half = Wire::connect(Protocol::BaiduStd, &server).await;
    let bytes = half.encode(1, &json_call("Probe", "Echo", "\"a\""));
    half.socket.send(&bytes[..bytes.len() - 1]).await;
    until(|| server.connection_count() == 2).await;
    sleep(Duration::from_millis(800)).await;
    let began = Instant::now();
    server.shutdown(Duration::from_secs(30)).await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// Accepts `right` after a delay.
async fn judge(credential: Option<Bytes>) -> Result<(), Status> {
    sleep(Duration::from_millis(50)).await;
    match credential.as_deref() {
        Some(b"right") => Ok(()),
        _ => Err(Status::unauthenticated("wrong")),
    }
}

#[tokio::test]
async fn async_authenticator_works_over_every_protocol() {
    let prober = Prober::default();
    let listen =
        polyrpc::server::Listen::on("127.0.0.1:0").authenticate_async(|credential, _| judge(credential));
    let server = prober.server().bind(listen).await.unwrap().start();
    for protocol in [Protocol::BaiduStd, Protocol::Rpcx, Protocol::Grpc, Protocol::Http] {
        let client_with = |credential: &'static str| {
            let url = crate::common::url(protocol, &server);
            ProbeClient::new(polyrpc::Client::builder(&url).credential(credential).build().unwrap())
        };
        let ran = prober.ran();
        let error = soon(client_with("wrong").echo("a".into())).await.unwrap_err();
        // rpcx has no code for it, only a text.
        let code = if protocol == Protocol::Rpcx { Code::Unknown } else { Code::Unauthenticated };
        assert_eq!((error.code(), prober.ran()), (code, ran), "{protocol:?}: {error}");
        let right = client_with("right");
        let several = (0..5).map(|_| right.echo("b".into()));
        for answer in soon(futures_util::future::join_all(several)).await {
            assert_eq!(answer.unwrap(), "b", "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn hanging_authenticator_fails_its_call_only() {
    let limits = Limits { authentication_timeout: Duration::from_millis(200), ..Limits::default() };
    let listen = polyrpc::server::Listen::on("127.0.0.1:0").authenticate_async(|credential, _| async move {
        match credential.as_deref() {
            Some(b"stuck") => std::future::pending().await,
            _ => Ok(()),
        }
    });
    let server = limited(limits).bind(listen).await.unwrap().start();
    let client_with = |credential: &'static str| {
        let url = crate::common::url(Protocol::Rpcx, &server);
        ProbeClient::new(polyrpc::Client::builder(&url).credential(credential).build().unwrap())
    };
    let error = soon(client_with("stuck").echo("a".into())).await.unwrap_err();
    assert!(error.message().contains("could not be checked in time"), "{error}");
    assert_eq!(soon(client_with("other").echo("b".into())).await.unwrap(), "b");
    assert_eq!(refused(&server.info(), "authentication_timeout"), 1);
}

#[tokio::test]
async fn failed_credentials_are_delayed_and_counted() {
    let listen = polyrpc::server::Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(b"right") => Ok(()),
        _ => Err(Status::unauthenticated("wrong")),
    });
    let server = Prober::default().server().bind(listen).await.unwrap().start();
    let guess = "POST /Probe/Echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: wrong\r\n\
                 Content-Type: application/json\r\nContent-Length: 3\r\n\r\n\"a\"";
    let mut socket = Socket::connect(&server).await;
    socket.offer(guess.repeat(1000).as_bytes()).await;
    let answers = String::from_utf8(socket.rest().await).unwrap();
    let answered = answers.matches("HTTP/1.1 4").count();
    assert!((10..=30).contains(&answered), "{answered} guesses were answered");
    assert_eq!(closed(&server.info(), "credentials"), 1);
    let before = refused(&server.info(), "credential");
    assert!(before < 40);
    // Others at the address with a valid credential are not delayed, while the next wrong one would be for long.
    let mut guessing = Vec::new();
    for _ in 0..20 {
        let mut socket = Socket::connect(&server).await;
        socket.send(guess.as_bytes()).await;
        guessing.push(socket);
    }
    until(|| refused(&server.info(), "credential") == before + 20).await;
    let url = crate::common::url(Protocol::Rpcx, &server);
    let good = ProbeClient::new(polyrpc::Client::builder(&url).credential("right").build().unwrap());
    let began = Instant::now();
    assert_eq!(soon(good.echo("a".into())).await.unwrap(), "a");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn idle_stream_ends_and_its_connection_stays_open() {
    let limits = Limits { stream_idle_timeout: Some(Duration::from_secs(1)), ..Limits::default() };
    let health = polyrpc::introspection::Health::new();
    let server = serve(limited(limits).health(&health)).await;
    let client = client(Protocol::Grpc, &server);
    let watch = crate::common::standard::HealthClient::new(client.clone());
    let mut watch = soon(watch.watch(Default::default())).await.unwrap();
    assert!(soon(watch.message()).await.unwrap().is_some());
    let error = loop {
        match soon(watch.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended well"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    assert_eq!(soon(ProbeClient::new(client).echo("a".into())).await.unwrap(), "a");
}

/// An HTTP/2 frame.
fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a gRPC call with a JSON message, on this stream.
fn h2_head(stream: u32) -> Vec<u8> {
    h2_head_of(stream, "application/grpc+json")
}

/// The head of a call with a message of this type.
fn h2_head_of(stream: u32, content_type: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/Probe/Echo"),
        (":authority", "127.0.0.1"),
        ("content-type", content_type),
        ("te", "trailers"),
    ];
    let field = |(name, value): (&str, &str)| {
        [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    h2_frame(1, 4, stream, &fields.into_iter().flat_map(field).collect::<Vec<u8>>())
}

#[tokio::test]
async fn credentials_of_cancelled_requests_are_no_longer_checked() {
    let checked = Arc::new(());
    let authenticator = checked.clone();
    let listen = polyrpc::server::Listen::on("127.0.0.1:0").authenticate_async(move |_, _| {
        let checked = authenticator.clone();
        async move {
            let _checked = checked;
            std::future::pending::<Result<(), Status>>().await
        }
    });
    let limits = Limits { authentication_timeout: Duration::from_secs(120), ..Limits::default() };
    let server = limited(limits).bind(listen).await.unwrap().start();
    let idle = Arc::strong_count(&checked);
    let mut socket = Socket::connect(&server).await;
    socket.send(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &h2_frame(4, 0, 0, &[])].concat()).await;
    let streams = || (0..100).map(|n| 2 * n + 1);
    let heads: Vec<u8> = streams().flat_map(|stream| h2_head_of(stream, "application/json")).collect();
    socket.send(&heads).await;
    until(|| Arc::strong_count(&checked) == idle + 100).await;
    let resets: Vec<u8> = streams().step_by(2).flat_map(|stream| h2_frame(3, 0, stream, &[0; 4])).collect();
    socket.send(&resets).await;
    until(|| Arc::strong_count(&checked) == idle + 50).await;
    drop(socket);
    until(|| Arc::strong_count(&checked) == idle).await;
}

/// Makes a call over HTTP/2 whose short response waits for the stream's closed window.
async fn leave_an_answer_unread(server: &ServerHandle) -> Socket {
    let mut socket = Socket::connect(server).await;
    let settings = h2_frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let message = h2_frame(0, 1, 1, b"\0\0\0\0\x03\"x\"");
    let call = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &h2_head(1), &message].concat();
    socket.send(&call).await;
    socket
}

#[tokio::test]
async fn calls_that_wait_for_room_fail_when_unread_responses_are_given_up() {
    const CALLS: usize = 48;
    let memory = 32 << 20;
    let limits = Limits {
        memory,
        memory_per_peer: memory,
        memory_per_connection: memory,
        write_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let forwarded = Arc::<AtomicUsize>::default();
    let server = Server::new().limits(limits).fallback({
        let forwarded = forwarded.clone();
        move |call: RawRequest| {
            let forwarded = forwarded.clone();
            async move {
                let _room = call.reserve_response(|| 1 << 20).await?;
                forwarded.fetch_add(1, Ordering::Relaxed);
                blob(call).await
            }
        }
    });
    let server = serve(server).await;
    let mut socket = Socket::connect(&server).await;
    let settings = h2_frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    socket.send(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()).await;
    let calls = (1..).step_by(2).take(CALLS);
    let call = |stream| [h2_head(stream), h2_frame(0, 1, stream, b"\0\0\0\0\x03\"x\"")].concat();
    socket.send(&calls.flat_map(call).collect::<Vec<u8>>()).await;
    until(|| server.info().calls.started == CALLS as u64 && server.info().calls.in_flight() == 0).await;
    let forwarded = forwarded.load(Ordering::Relaxed);
    assert!((1..=8).contains(&forwarded), "{forwarded} calls were forwarded");
    assert_eq!(server.info().calls.failed, (CALLS - forwarded) as u64);
}

#[tokio::test]
async fn unread_small_response_keeps_no_connection_open() {
    let limits = Limits {
        write_timeout: Duration::from_millis(500),
        idle_timeout: Some(Duration::from_millis(500)),
        ..Limits::default()
    };
    let server = serve(limited(limits)).await;
    let _socket = leave_an_answer_unread(&server).await;
    until(|| server.info().calls.started == 1).await;
    until(|| server.connection_count() == 0).await;
}

#[tokio::test]
async fn peer_with_a_closed_window_is_pinged() {
    let http2 = polyrpc::server::Http2 {
        keepalive_interval: Some(Duration::from_millis(500)),
        keepalive_timeout: Duration::from_millis(500),
        ..Default::default()
    };
    let server = serve(limited(Limits { http2, ..Limits::default() })).await;
    let _socket = leave_an_answer_unread(&server).await;
    until(|| closed(&server.info(), "keepalive_timeout") == 1).await;
}

#[tokio::test]
async fn unread_small_response_does_not_allow_filling_the_budget() {
    let (memory, more) = (4 << 20, 64 << 20);
    let limits = Limits { memory, memory_per_peer: more, memory_per_connection: more, ..Limits::default() };
    let server = serve(limited(limits)).await;
    let mut socket = leave_an_answer_unread(&server).await;
    until(|| server.info().calls.succeeded == 1).await;
    // 100 messages, sent as far as the windows allow, without their ends.
    let sending = tokio::spawn(async move {
        for stream in (3..203).step_by(2) {
            socket.offer(&h2_head(stream)).await;
            socket.offer(&h2_frame(0, 0, stream, &[&[0, 0, 2, 0, 0][..], &[b'x'; 16_000]].concat())).await;
            for _ in 0..3 {
                socket.offer(&h2_frame(0, 0, stream, &[b'x'; 16_000])).await;
            }
        }
        sleep(Duration::from_secs(60)).await;
    });
    // Until the budget is nearly full, and for a while after that.
    let (mut full_since, mut most) = (None, 0);
    soon(async {
        while full_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(1500)) {
            most = most.max(server.info().held_bytes);
            if most >= 3 << 20 {
                full_since.get_or_insert_with(Instant::now);
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    sending.abort();
    assert!(most <= memory, "{most}");
}

/// Subscribes by number over rest_rpc v0.21, from this address.
async fn subscribe_from(address: [u8; 4], server: &ServerHandle) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let mut stream = socket.connect(server.address().to_string().parse().unwrap()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &subscription(7)).await.unwrap();
    stream
}

/// A subscription by number of rest_rpc v0.21.
fn subscription(id: u8) -> [u8; 32] {
    let mut subscription = [0; 32];
    (subscription[0], subscription[3], subscription[4]) = (39, 1, id);
    subscription
}

#[tokio::test]
async fn repeated_subscriptions_are_passed_through_layers_once() {
    let started = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let server = serve(Server::new().layer(CountSubscriptions(started.clone(), ended.clone()))).await;
    let mut stream = subscribe_from([127, 0, 0, 1], &server).await;
    let mut frames = Vec::new();
    // The same number often, then two in turn: a connection has one subscription by number.
    (0..1_000).for_each(|_| frames.extend(subscription(1)));
    (0..1_000).for_each(|n| frames.extend(subscription(2 + n as u8 % 2)));
    tokio::io::AsyncWriteExt::write_all(&mut stream, &frames).await.unwrap();
    let received = || server.info().connections.iter().map(|connection| connection.received).sum::<u64>();
    until(|| received() >= frames.len() as u64).await;
    until(|| started.load(Ordering::SeqCst) - ended.load(Ordering::SeqCst) == 1).await;
    // Those that were replaced in the same read never started.
    assert!(started.load(Ordering::SeqCst) <= 1_002, "{started:?}");
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn subscription_that_passed_layers_ends_with_its_connection() {
    let started = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let server = serve(Server::new().layer(CountSubscriptions(started.clone(), ended.clone()))).await;
    let stream = subscribe_from([127, 0, 0, 1], &server).await;
    until(|| started.load(Ordering::SeqCst) == 1).await;
    assert_eq!((server.connection_count(), ended.load(Ordering::SeqCst)), (1, 0));
    drop(stream);
    until(|| server.connection_count() == 0).await;
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

/// Counts subscriptions that have passed, and those whose handling has ended.
struct CountSubscriptions(Arc<AtomicUsize>, Arc<AtomicUsize>);

impl Layer for CountSubscriptions {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        struct EndCounter(Arc<AtomicUsize>);
        impl Drop for EndCounter {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        let _ended = EndCounter(self.1.clone());
        next.call(call).await
    }
}

#[tokio::test]
async fn idle_connections_are_evicted_from_the_greediest_address_first() {
    let server = serve(limited(Limits { connections: 16, ..Limits::default() })).await;
    let mut subscribed = Vec::new();
    for n in 0..15 {
        let address = [127, 0, 0, if n < 5 { 3 } else { 2 }];
        subscribed.push(subscribe_from(address, &server).await);
        until(|| server.connection_count() == n + 1).await;
    }
    // By the server's clock, which does not count the time in which the machine stalls.
    let is_new = || server.info().connections.iter().any(|open| open.age < Duration::from_secs(6));
    soon(async {
        while is_new() {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let probe = ProbeClient::new(client(Protocol::Rpcx, &server));
    assert_eq!(soon(probe.echo("late".into())).await.unwrap(), "late");
    assert_eq!(closed(&server.info(), "made_room"), 1);
    let has_ended = |n: &usize| matches!(subscribed[*n].try_read(&mut [0; 1]), Ok(0));
    until(|| (0..15).any(|n| has_ended(&n))).await;
    sleep(Duration::from_millis(200)).await;
    let ended: Vec<_> = (0..15).filter(has_ended).collect();
    assert!(ended.len() == 1 && ended[0] >= 5, "one, of the address with most connections: {ended:?}");
}

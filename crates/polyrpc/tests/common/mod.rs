//! Shared by the tests of the public API: a server to probe, a gate for its handlers, sockets that send exactly
//! what they are given, frames written by hand.

#![allow(dead_code, reason = "every test file uses its own part of it")]

pub(crate) mod standard;

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc::codec::Raw;
use polyrpc::server::ServerHandle;
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Context, Error, Protocol, Result, Retry, Server, Status, Streaming};
use polyrpc_core::session::Client as Session;
use polyrpc_core::session::ClientEvent;
use polyrpc_core::{Call, CallId, Outbox, Reply};
use polyrpc_wire::{baidu_std, fb_rpc, grpc, http, net_rpc, rest_rpc, rpcx};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

/// The protocols that carry JSON. rest_rpc has tests of its own; fb_rpc carries FlatBuffers only
/// (`tests/protocols/flatbuffers.rs`).
pub(crate) const PROTOCOLS: [Protocol; 5] =
    [Protocol::BaiduStd, Protocol::Rpcx, Protocol::Grpc, Protocol::Http, Protocol::NetRpc];

/// Timeout of events that must happen: far longer than they take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for an event that must happen.
pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.expect("it happens in time")
}

/// Calls until it succeeds: a call that races with the closing of the connection fails as
/// retryable, and in no other way.
pub(crate) async fn again<T, F: Future<Output = polyrpc::client::Result<T>>>(call: impl Fn() -> F) -> T {
    soon(async {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(error) => assert_ne!(error.status().retry(), Retry::Never, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Yields until `condition` holds.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Error of a stream, after its messages were read.
pub(crate) async fn failure_of<T>(mut messages: Streaming<T>) -> Error {
    loop {
        match soon(messages.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it does not fail"),
            Err(error) => return error,
        }
    }
}

/// A client-streaming method.
pub(crate) async fn sum(mut numbers: Streaming<u64>) -> Result<u64> {
    let mut sum = 0;
    while let Some(n) = numbers.message().await? {
        sum += n;
    }
    Ok(sum)
}

/// A bidirectional method that fails at 13.
pub(crate) fn doubled(mut numbers: Streaming<u64>) -> Streaming<u64> {
    Streaming::produce(move |sender| async move {
        while let Some(n) = numbers.message().await? {
            if n == 13 {
                return Err(Status::out_of_range("thirteen").into());
            }
            sender.send(2 * n).await?;
        }
        Ok(())
    })
}

/// Echoes messages on every stream attached to the call.
pub(crate) fn echo_attached_streams(cx: &mut Context) -> Result<()> {
    for (mut incoming, sender) in cx.accept_streams::<Raw, Bytes>(StreamOptions::default())? {
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                let _ = sender.send(message).await;
            }
        });
    }
    Ok(())
}

pub(crate) async fn serve(server: Server) -> ServerHandle {
    server.bind("127.0.0.1:0").await.expect("a port is free").start()
}

pub(crate) fn url(protocol: Protocol, server: &ServerHandle) -> String {
    format!("{}://{}", protocol.as_str(), server.address())
}

/// URL of a server for a scheme with parameters, as in `rpcx?transport=ws`.
pub(crate) fn url_of(scheme: &str, address: impl Display) -> String {
    match scheme.split_once('?') {
        Some((scheme, parameters)) => format!("{scheme}://{address}?{parameters}"),
        None => format!("{scheme}://{address}"),
    }
}

pub(crate) fn client(protocol: Protocol, server: &ServerHandle) -> Client {
    Client::new(&url(protocol, server)).expect("the URL is valid")
}

/// An address at which nothing listens. Its port stays bound, so that no other test or program listens there either.
pub(crate) fn unreachable_address() -> String {
    static RESERVED: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    RESERVED.lock().unwrap().push(socket);
    address
}

/// A free address for a server that starts later. Each call returns another host of the loopback network, so that no
/// other test takes the port before the server starts.
pub(crate) fn free_address() -> String {
    static HOSTS: AtomicUsize = AtomicUsize::new(1);
    let host = HOSTS.fetch_add(1, Ordering::Relaxed);
    let free = std::net::TcpListener::bind(format!("127.77.0.{host}:0")).unwrap();
    free.local_addr().unwrap().to_string()
}

/// A runtime with a server, for callers without a runtime.
pub(crate) fn serve_apart(server: Server) -> (tokio::runtime::Runtime, ServerHandle) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let running = runtime.block_on(serve(server));
    (runtime, running)
}

/// Blocks handlers until it is opened, and counts them.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    came: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gate {
    /// Waits until the gate is open.
    pub(crate) async fn pass(&self) {
        self.0.came.send_modify(|came| *came += 1);
        let _ = self.0.open.subscribe().wait_for(|open| *open).await;
    }

    pub(crate) fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Waits until this many handlers have arrived.
    pub(crate) async fn came(&self, n: usize) {
        let mut came = self.0.came.subscribe();
        let _ = soon(came.wait_for(|came| *came >= n)).await;
    }

    pub(crate) fn count(&self) -> usize {
        *self.0.came.borrow()
    }
}

/// A service that returns what it sees.
#[polyrpc::service]
pub(crate) trait Probe {
    async fn echo(&self, text: String) -> Result<String>;
    /// Waits at the gate.
    async fn wait(&self, text: String) -> Result<String>;
    /// The address of the caller's end of the connection.
    async fn peer(&self, cx: &mut Context) -> Result<String>;
    /// The name of the handler's thread.
    async fn thread(&self) -> Result<String>;
}

/// Implements [`Probe`], and counts calls.
#[derive(Clone, Default)]
pub(crate) struct Prober {
    pub(crate) gate: Gate,
    pub(crate) ran: Arc<AtomicUsize>,
}

impl Prober {
    pub(crate) fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }

    /// A server with only this service.
    pub(crate) fn server(&self) -> Server {
        Server::new().service(ProbeServer::new(self.clone()))
    }
}

impl Probe for Prober {
    async fn echo(&self, text: String) -> Result<String> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(text)
    }

    async fn wait(&self, text: String) -> Result<String> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        self.gate.pass().await;
        Ok(text)
    }

    async fn peer(&self, cx: &mut Context) -> Result<String> {
        Ok(cx.peer().to_string())
    }

    async fn thread(&self) -> Result<String> {
        Ok(std::thread::current().name().unwrap_or_default().to_owned())
    }
}

/// A socket that sends exactly what it is given.
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
}

impl Socket {
    pub(crate) async fn connect(server: &ServerHandle) -> Self {
        Self { stream: TcpStream::connect(server.address().to_string()).await.expect("the server listens") }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.expect("the server reads");
    }

    /// Sends as much as the server reads; it may close before the end.
    pub(crate) async fn offer(&mut self, bytes: &[u8]) {
        let _ = soon(self.stream.write_all(bytes)).await;
    }

    /// Shuts down the sending direction.
    pub(crate) async fn hang_up(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Reads up to the end of the connection, closed or reset.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let _ = soon(self.stream.read_to_end(&mut all)).await;
        all
    }

    /// Reads up to and including the first occurrence of `end`.
    pub(crate) async fn up_to(&mut self, end: &str) -> String {
        let mut all = Vec::new();
        while !all.ends_with(end.as_bytes()) {
            let byte = soon(self.stream.read_u8()).await;
            all.push(byte.unwrap_or_else(|_| panic!("no `{end}` in {}", all.escape_ascii())));
        }
        String::from_utf8(all).expect("text")
    }

    /// Sends an HTTP request and returns the response's status and body.
    pub(crate) async fn http(&mut self, request: &str) -> (u16, String) {
        self.send(request.as_bytes()).await;
        self.http_response().await
    }

    pub(crate) async fn http_response(&mut self) -> (u16, String) {
        let head = self.up_to("\r\n\r\n").await;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let length = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        soon(self.stream.read_exact(&mut body)).await.expect("the whole body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

/// A client of one protocol on its own socket; the test decides when to send and read.
pub(crate) struct Wire {
    pub(crate) socket: Socket,
    session: Box<dyn Session + Send>,
    inbox: BytesMut,
}

impl Wire {
    pub(crate) async fn connect(protocol: Protocol, server: &ServerHandle) -> Self {
        Self::new(Socket::connect(server).await, protocol)
    }

    pub(crate) fn new(socket: Socket, protocol: Protocol) -> Self {
        Self { socket, session: session(protocol), inbox: BytesMut::new() }
    }

    /// The bytes of a call.
    pub(crate) fn encode(&mut self, id: u64, call: &Call<'_>) -> Vec<u8> {
        let mut out = Outbox::new();
        self.session.send(CallId(id), call.clone(), &mut out).expect("the protocol can express it");
        out.take()
    }

    /// The bytes that open a call whose messages follow.
    pub(crate) fn open(&mut self, id: u64, call: &Call<'_>) -> Vec<u8> {
        let mut out = Outbox::new();
        let streaming = self.session.streaming().expect("the protocol has streams");
        streaming.open(CallId(id), call.clone(), &mut out).expect("the protocol can express it");
        out.take()
    }

    pub(crate) async fn send(&mut self, id: u64, call: &Call<'_>) {
        let bytes = self.encode(id, call);
        self.socket.send(&bytes).await;
    }

    /// The next reply; `None` at the end of the connection.
    pub(crate) async fn reply(&mut self) -> Option<(u64, Reply)> {
        loop {
            let mut out = Outbox::new();
            let next = self.session.next_event(&mut self.inbox, &mut out);
            // Responses of the session itself. The server may have closed already.
            let _ = self.socket.stream.write_all(&out.take()).await;
            match next.expect("the server conforms to the protocol") {
                Some(ClientEvent::Reply(id, reply)) => return Some((id.0, reply)),
                Some(_) => {}
                None => match soon(self.socket.stream.read_buf(&mut self.inbox)).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                },
            }
        }
    }

    pub(crate) async fn answer(&mut self) -> Option<ClientEvent> {
        loop {
            let mut out = Outbox::new();
            let next = self.session.next_event(&mut self.inbox, &mut out);
            // Responses of the session itself. The server may have closed already.
            let _ = self.socket.stream.write_all(&out.take()).await;
            match next.expect("the server conforms to the protocol") {
                Some(answer) => return Some(answer),
                None => match soon(self.socket.stream.read_buf(&mut self.inbox)).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                },
            }
        }
    }
}

/// The protocols that carry more of a call than its name and its message, which may be in any format: metadata and
/// a deadline.
pub(crate) const ADORNED: [Protocol; 4] =
    [Protocol::BaiduStd, Protocol::Rpcx, Protocol::Grpc, Protocol::Http];

fn session(protocol: Protocol) -> Box<dyn Session + Send> {
    match protocol {
        Protocol::BaiduStd => Box::new(baidu_std::Client::new(baidu_std::ClientConfig {
            deliver_timeout: true,
            ..Default::default()
        })),
        Protocol::Rpcx => Box::new(rpcx::Client::new(Default::default())),
        Protocol::FbRpc => Box::new(fb_rpc::Client::new(Default::default())),
        Protocol::Grpc => Box::new(grpc::Client::new(grpc::ClientConfig {
            limits: Default::default(),
            http: Default::default(),
            authority: "test".into(),
            tls: false,
            web: false,
            framing: None,
            credential: None,
        })),
        Protocol::Http => {
            Box::new(http::Client::new(http::ClientConfig { authority: "test".into(), ..Default::default() }))
        }
        Protocol::RestRpc => Box::new(rest_rpc::Client::new(Default::default())),
        // In the codec of the calls made here.
        Protocol::NetRpc => Box::new(net_rpc::Client::new(net_rpc::ClientConfig {
            codec: net_rpc::Codec::Json,
            ..Default::default()
        })),
        other => panic!("there is no session of {}", other.as_str()),
    }
}

/// A call with a JSON body, which every protocol can carry.
pub(crate) fn json_call<'a>(service: &'a str, method: &'a str, json: &str) -> Call<'a> {
    let format = polyrpc::Format::Json(polyrpc::Json::Brpc);
    Call::new(service, method, format, Bytes::copy_from_slice(json.as_bytes()))
}

/// A baidu_std request frame with the given message.
pub(crate) fn baidu_frame(
    service: &str,
    method: &str,
    id: u64,
    compress_type: u64,
    message: &[u8],
) -> Vec<u8> {
    let mut request = Vec::new();
    field(&mut request, 1, service.as_bytes());
    field(&mut request, 2, method.as_bytes());
    let mut meta = Vec::new();
    field(&mut meta, 1, &request);
    number(&mut meta, 3, compress_type);
    number(&mut meta, 4, id);
    // The content type: JSON.
    number(&mut meta, 10, 1);
    let mut frame = b"PRPC".to_vec();
    frame.extend(u32::try_from(meta.len() + message.len()).unwrap().to_be_bytes());
    frame.extend(u32::try_from(meta.len()).unwrap().to_be_bytes());
    frame.extend(meta);
    frame.extend(message);
    frame
}

/// A request as brpc's client with an authenticator writes it: the credential is the meta's seventh field.
pub(crate) fn baidu_with_credential(id: u64, credential: &str) -> Vec<u8> {
    let mut frame = baidu_frame("Probe", "Echo", id, 0, b"\"a\"");
    let meta = u32::from_be_bytes(frame[8..12].try_into().unwrap()) as usize;
    let mut field = vec![7 << 3 | 2, credential.len() as u8];
    field.extend(credential.as_bytes());
    for at in [4, 8] {
        let length = u32::from_be_bytes(frame[at..at + 4].try_into().unwrap()) + field.len() as u32;
        frame[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
    frame.splice(12 + meta..12 + meta, field);
    frame
}

fn field(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// An rpcx request frame in JSON with the given payload.
pub(crate) fn rpcx_frame(service: &str, method: &str, seq: u64, gzip: bool, payload: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::new();
    for block in [service.as_bytes(), method.as_bytes(), b"", payload] {
        blocks.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
        blocks.extend(block);
    }
    let mut frame = vec![0x08, 0, if gzip { 1 << 2 } else { 0 }, 1 << 4];
    frame.extend(seq.to_be_bytes());
    frame.extend(u32::try_from(blocks.len()).unwrap().to_be_bytes());
    frame.extend(blocks);
    frame
}

/// Resident memory of this process: now, and the peak since [`forget_peak`], in KiB.
#[cfg(target_os = "linux")]
pub(crate) fn memory() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self is readable");
    let line = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel reports it");
        value.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").parse().expect("a number")
    };
    (line("VmRSS"), line("VmHWM"))
}

/// Resets the peak memory to the current. Returns whether the system supports that.
#[cfg(target_os = "linux")]
pub(crate) fn forget_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

//! The well-behaved clients: one per protocol and transport, each with a small call at a constant rate, independent
//! of earlier calls; one that opens a new connection for each call; one with a stream that stays open.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::client::Result;
use polyrpc::codec::Body;
use polyrpc::tls::{self, Pem};
use polyrpc::{Client, Format, Streaming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::measure::Record;
use crate::operator;
use crate::service::{PlainClient, TOKEN};
use crate::target_server::Target;

/// Interval between calls of a client.
const PERIOD: Duration = Duration::from_millis(10);
/// Interval between new connections.
const NEW_CONNECTION: Duration = Duration::from_millis(200);
/// Interval between messages of the open stream.
const MESSAGE: Duration = Duration::from_millis(100);
/// A call not answered by then is lost.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

const TEXT: &str = "a small message of a well-behaved client";

type Answer = Pin<Box<dyn Future<Output = std::result::Result<(), String>> + Send>>;
type Call = Arc<dyn Fn() -> Answer + Send + Sync>;

/// The process under attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetKind {
    Server,
    /// A gateway in front of a server.
    Gateway,
}

/// Clients whose messages a gateway cannot translate without a schema: positional arguments, gob, bytes.
const UNTRANSLATED: [&str; 3] = ["rest_rpc", "net_rpc", "fb_rpc"];

/// All well-behaved clients, calling in the background until this is dropped.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) record: Arc<Record>,
    /// The operator's requests to the admin listener.
    pub(crate) admin: Arc<Record>,
    tasks: JoinSet<()>,
}

impl Clients {
    /// Starts calling, after every client has made one call.
    ///
    /// # Errors
    ///
    /// If a client cannot be built, or its first call fails.
    pub(crate) async fn start(target: &Target, target_kind: TargetKind) -> std::result::Result<Self, String> {
        let record = Arc::new(Record::default());
        let mut tasks = JoinSet::new();
        let mut clients = clients(target)?;
        clients.retain(|(name, _)| target_kind == TargetKind::Server || !UNTRANSLATED.contains(name));
        for (name, call) in &clients {
            let answered = timeout(CALL_TIMEOUT, call()).await.map_err(|_| "no answer".to_owned());
            answered.and_then(|answer| answer).map_err(|error| format!("{name}: {error}"))?;
        }
        let begun = Instant::now();
        let count = clients.len() as u32;
        for (n, (name, call)) in (0..).zip(clients) {
            let first = begun + PERIOD * n / count;
            tasks.spawn(call_at(first, PERIOD, name, call, record.clone()));
        }
        tasks.spawn(call_at(
            begun,
            NEW_CONNECTION,
            "new connection",
            call_on_new_connection(target)?,
            record.clone(),
        ));
        tasks.spawn(keep_stream(client("grpc", &target.open)?, record.clone()));
        let admin = Arc::new(Record::default());
        tasks.spawn(operator::poll_pages(target.admin.clone(), admin.clone()));
        Ok(Self { record, admin, tasks })
    }

    /// Ends all calls and closes the connections: the remaining work of the server is the attackers'.
    pub(crate) fn stop(&mut self) {
        self.tasks.abort_all();
    }
}

/// Makes a call at each planned time, even while earlier ones are pending. Latency counts from the planned time.
async fn call_at(first: Instant, period: Duration, name: &'static str, call: Call, record: Arc<Record>) {
    let mut calls = JoinSet::new();
    let mut planned = first;
    loop {
        sleep_until(planned).await;
        // A timer that woke us late is not the server's fault.
        let begun = Instant::now();
        let (answer, record) = (call(), record.clone());
        calls.spawn(async move {
            match timeout(CALL_TIMEOUT, answer).await {
                Ok(Ok(())) => record.record_answer(name, begun.elapsed()),
                Ok(Err(reason)) => record.record_loss(name, reason),
                Err(_) => record.record_loss(name, format!("no answer within {} s", CALL_TIMEOUT.as_secs())),
            }
        });
        while calls.try_join_next().is_some() {}
        planned += period;
    }
}

/// Keeps a stream open, with one message in each direction at a time.
async fn keep_stream(client: Client, record: Arc<Record>) {
    let stub = PlainClient::new(client);
    loop {
        if let Err(error) = talk(&stub, &record).await {
            record.record_loss("open stream", error);
        }
        tokio::time::sleep(MESSAGE).await;
    }
}

async fn talk(stub: &PlainClient, record: &Record) -> std::result::Result<(), String> {
    let (sender, texts) = Streaming::channel(1);
    let within = |what: &'static str| move |_| format!("{what} within {} s", CALL_TIMEOUT.as_secs());
    let opened = timeout(CALL_TIMEOUT, stub.talk(texts)).await.map_err(within("not opened"))?;
    let mut answers = opened.map_err(|error| error.to_string())?;
    loop {
        let begun = Instant::now();
        sender.send(TEXT.to_owned()).await.map_err(|error| error.to_string())?;
        let answer = timeout(CALL_TIMEOUT, answers.message()).await.map_err(within("no message"))?;
        match answer.map_err(|error| error.to_string())? {
            Some(_) => record.record_answer("open stream", begun.elapsed()),
            None => return Err("the stream ended".to_owned()),
        }
        tokio::time::sleep(MESSAGE).await;
    }
}

fn clients(target: &Target) -> std::result::Result<Vec<(&'static str, Call)>, String> {
    let open = &target.open;
    let unix = format!("rpcx://{}", target.unix.display());
    let guarded = Client::builder(&format!("rpcx://{}", target.guarded)).credential(TOKEN);
    Ok(vec![
        ("baidu_std", echo(client("baidu-std", open)?, "Plain/Echo")),
        ("rpcx", echo(client("rpcx", open)?, "Plain/Echo")),
        ("gRPC", echo(client("grpc", open)?, "Plain/Echo")),
        ("HTTP/1 JSON", echo(client("http", open)?, "Plain/Echo")),
        ("JSON-RPC", echo(client("http?dialect=json-rpc", open)?, "Plain.Echo")),
        ("rest_rpc", echo(client("rest-rpc", open)?, "echo")),
        ("net_rpc", echo(client("net-rpc", open)?, "Plain/Echo")),
        ("fb_rpc", echo_bytes(client("fb-rpc", open)?)),
        ("HTTP/2 JSON", http2_json(open)),
        ("gRPC-Web", grpc_web(open)),
        ("WebSocket", echo(client("rpcx?transport=ws", open)?, "Plain/Echo")),
        ("Unix", echo(build_client(Client::builder(&unix))?, "Plain/Echo")),
        ("TLS", echo(client_with_root("grpc+tls", &target.tls, target)?, "Plain/Echo")),
        ("KCP", echo(client("rpcx?transport=kcp", &target.kcp)?, "Plain/Echo")),
        ("QUIC", echo(client_with_root("rpcx?transport=quic", &target.quic, target)?, "Plain/Echo")),
        ("guarded", echo(build_client(guarded)?, "Plain/Echo")),
    ])
}

/// Makes each call on a new connection, over one protocol and transport after the other.
fn call_on_new_connection(target: &Target) -> std::result::Result<Call, String> {
    let target = target.clone();
    let next_index = std::sync::atomic::AtomicUsize::new(0);
    let ways: [(&str, fn(&Target) -> &str); 7] = [
        ("rpcx", |target| &target.open),
        ("grpc", |target| &target.open),
        ("http", |target| &target.open),
        ("rpcx?transport=kcp", |target| &target.kcp),
        ("baidu-std", |target| &target.open),
        ("grpc+tls", |target| &target.tls),
        ("rpcx?transport=quic", |target| &target.quic),
    ];
    for (scheme, address_of) in ways {
        client_with_root(scheme, address_of(&target), &target)?;
    }
    Ok(Arc::new(move || {
        let index = next_index.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (scheme, address_of) = ways[index % ways.len()];
        let client = client_with_root(scheme, address_of(&target), &target);
        Box::pin(async move {
            let answer = client?.call::<String>("Plain/Echo", TEXT).await;
            answer.map(drop).map_err(|error| format!("{scheme}: {error}"))
        })
    }))
}

fn client(scheme: &str, address: &str) -> std::result::Result<Client, String> {
    build_client(Client::builder(&url(scheme, address)))
}

/// The URL of a server for a scheme with parameters, as in `rpcx?transport=ws`.
fn url(scheme: &str, address: &str) -> String {
    match scheme.split_once('?') {
        Some((scheme, parameters)) => format!("{scheme}://{address}?{parameters}"),
        None => format!("{scheme}://{address}"),
    }
}

/// A client that trusts the server's certificate.
fn client_with_root(scheme: &str, address: &str, target: &Target) -> std::result::Result<Client, String> {
    let builder = Client::builder(&url(scheme, address));
    if !scheme.contains("tls") && !scheme.contains("quic") {
        return build_client(builder);
    }
    build_client(builder.tls(tls::Client::new().ca(Pem::bytes(target.certificate.clone()))))
}

fn build_client(builder: polyrpc::client::Builder) -> std::result::Result<Client, String> {
    builder.retries(0).timeout(CALL_TIMEOUT).build().map_err(|error| error.to_string())
}

fn echo(client: Client, target: &'static str) -> Call {
    Arc::new(move || {
        let client = client.clone();
        Box::pin(
            async move { check_reply(client.call::<String>(target, TEXT).await.map(|text| text == TEXT)) },
        )
    })
}

/// fb_rpc carries FlatBuffers messages, or bytes for a method that does not decode them.
fn echo_bytes(client: Client) -> Call {
    Arc::new(move || {
        let client = client.clone();
        Box::pin(async move {
            let body = Body::new(Format::Raw, TEXT.as_bytes());
            let response = client.call_raw("Bare/#0", body, CallOptions::default()).await;
            check_reply(response.map(|response| response.message.bytes == TEXT))
        })
    })
}

fn check_reply(answer: Result<bool>) -> std::result::Result<(), String> {
    match answer {
        Ok(true) => Ok(()),
        Ok(false) => Err("the answer is wrong".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// JSON over HTTP/2, with the `h2` crate. One connection; a new one if it breaks.
fn http2_json(address: &str) -> Call {
    let address: Arc<str> = address.into();
    let connection = Arc::new(Mutex::new(None::<h2::client::SendRequest<Bytes>>));
    Arc::new(move || {
        let (address, connection) = (address.clone(), connection.clone());
        Box::pin(async move {
            let sender = {
                let mut connection = connection.lock().await;
                match &*connection {
                    Some(sender) => sender.clone(),
                    None => connection.insert(connect_http2(&address).await?).clone(),
                }
            };
            let answer = post_http2(sender, &address).await;
            if answer.is_err() {
                connection.lock().await.take();
            }
            answer
        })
    })
}

async fn connect_http2(address: &str) -> std::result::Result<h2::client::SendRequest<Bytes>, String> {
    let socket = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    socket.set_nodelay(true).map_err(|error| error.to_string())?;
    let (sender, connection) = h2::client::handshake(socket).await.map_err(|error| error.to_string())?;
    // It ends with its connection, or when no sender is left.
    tokio::spawn(connection);
    Ok(sender)
}

async fn post_http2(
    sender: h2::client::SendRequest<Bytes>,
    address: &str,
) -> std::result::Result<(), String> {
    let text = |error: h2::Error| error.to_string();
    let mut sender = sender.ready().await.map_err(text)?;
    let request = http::Request::post(format!("http://{address}/Plain/Echo"))
        .header("content-type", "application/json")
        .body(())
        .map_err(|error| error.to_string())?;
    let (response, mut body) = sender.send_request(request, false).map_err(text)?;
    body.send_data(format!("\"{TEXT}\"").into(), true).map_err(text)?;
    let response = response.await.map_err(text)?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("HTTP {}", response.status()));
    }
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let data = data.map_err(text)?;
        body.flow_control().release_capacity(data.len()).map_err(text)?;
    }
    Ok(())
}

/// gRPC-Web as spoken by browsers over HTTP/1.1: one call at a time per connection.
fn grpc_web(address: &str) -> Call {
    let address: Arc<str> = address.into();
    let idle = Arc::new(Mutex::new(Vec::<TcpStream>::new()));
    Arc::new(move || {
        let (address, idle) = (address.clone(), idle.clone());
        Box::pin(async move {
            let unused = idle.lock().await.pop();
            let socket = post_grpc_web(unused, &address).await.map_err(|error| error.to_string())?;
            idle.lock().await.push(socket);
            Ok(())
        })
    })
}

async fn post_grpc_web(unused: Option<TcpStream>, address: &str) -> std::io::Result<TcpStream> {
    let mut socket = match unused {
        Some(socket) => socket,
        None => TcpStream::connect(address).await?,
    };
    socket.set_nodelay(true)?;
    let message = format!("\"{TEXT}\"");
    let length = (message.len() as u32).to_be_bytes();
    let head = format!(
        "POST /Plain/Echo HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/grpc-web+json\r\n\
         Content-Length: {}\r\n\r\n",
        5 + message.len()
    );
    socket.write_all(&[head.as_bytes(), &[0], &length, message.as_bytes()].concat()).await?;
    let mut response = Vec::new();
    // The body is chunked, and its last chunk is empty.
    while !response.ends_with(b"\r\n0\r\n\r\n") {
        if socket.read_buf(&mut response).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let text = String::from_utf8_lossy(&response);
    match text.contains("grpc-status:0") {
        true => Ok(socket),
        false => Err(std::io::Error::other(text.lines().next().unwrap_or_default().to_owned())),
    }
}

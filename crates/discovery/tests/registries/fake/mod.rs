//! A scripted HTTP server for tests: its responses may be late, partial, or garbage.

// Each test uses only a part of it.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::future::Future;
use std::io::Write;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use polyrpc::discovery::{Advertisement, Attributes, Instance, InstanceStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// A received request.
#[derive(Debug, Clone)]
pub struct FakeRequest {
    pub method: String,
    pub path: String,
    pub query: Attributes,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl FakeRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// `GET /path`.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A scripted response.
#[derive(Debug)]
pub enum Reply {
    Whole(u16, Vec<(&'static str, String)>, String),
    /// Less of the body than announced, then the end of the connection.
    Half(String),
    /// Lines in chunks as they arrive; the response ends when the sender is dropped.
    Lines(mpsc::UnboundedReceiver<String>),
    /// These bytes, then the end of the connection.
    Raw(&'static str),
    /// The end of the connection.
    Nothing,
}

impl Reply {
    pub fn json(body: impl ToString) -> Self {
        Self::Whole(200, Vec::new(), body.to_string())
    }

    pub fn status(status: u16, body: &str) -> Self {
        Self::Whole(status, Vec::new(), body.to_owned())
    }
}

type Answer = Arc<dyn Fn(FakeRequest) -> BoxFuture<'static, Reply> + Send + Sync>;

/// A server that runs until dropped.
pub struct Fake {
    pub address: String,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<FakeRequest>>>,
    accepting: JoinHandle<()>,
}

impl Fake {
    pub async fn start<F>(answer: impl Fn(FakeRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        Self::start_at("127.0.0.1:0", answer).await
    }

    pub async fn start_at<F>(address: &str, answer: impl Fn(FakeRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (connections, asked) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<Vec<FakeRequest>>>::default());
        let answer: Answer = Arc::new(move |asked| Box::pin(answer(asked)));
        let (counted, noted) = (connections.clone(), asked.clone());
        let accepting = tokio::spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                served.spawn(serve(stream, answer.clone(), noted.clone()));
            }
        });
        Self { address, connections, asked, accepting }
    }

    /// Number of connections made to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<FakeRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// Stops it with all its connections.
    pub async fn stop(mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream, answer: Answer, asked: Arc<Mutex<Vec<FakeRequest>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        asked.lock().unwrap().push(request.clone());
        let reply = tokio::select! {
            reply = answer(request) => reply,
            // Clients do not pipeline, so this is the end.
            _ = stream.fill_buf() => return,
        };
        if write(&mut stream, reply).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<FakeRequest> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut words = head.first()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let headers: Vec<_> = head
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(FakeRequest { method, path: path.to_owned(), query: query.parse().unwrap(), headers, body })
}

async fn write(stream: &mut BufReader<TcpStream>, reply: Reply) -> std::io::Result<()> {
    match reply {
        Reply::Whole(status, headers, body) => {
            let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            stream.write_all(format!("{head}\r\n{body}").as_bytes()).await?;
            stream.flush().await
        }
        Reply::Half(body) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len() * 2);
            stream.write_all(format!("{head}{body}").as_bytes()).await?;
            end(stream).await
        }
        Reply::Lines(mut lines) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            stream.flush().await?;
            while let Some(line) = lines.recv().await {
                stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await?;
                stream.flush().await?;
            }
            stream.write_all(b"0\r\n\r\n").await?;
            stream.flush().await
        }
        Reply::Raw(bytes) => {
            stream.write_all(bytes.as_bytes()).await?;
            end(stream).await
        }
        Reply::Nothing => end(stream).await,
    }
}

async fn end(stream: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    stream.flush().await?;
    stream.shutdown().await?;
    Err(std::io::ErrorKind::ConnectionReset.into())
}

/// The next set, as sorted lines; earlier errors are skipped.
pub async fn next_set(sets: &mut InstanceStream) -> Vec<String> {
    loop {
        if let Ok(found) = next(sets).await {
            return found
                .iter()
                .map(|one| format!("{one} {}", one.attributes).trim_end().to_owned())
                .collect();
        }
    }
}

/// The next item, set or error.
pub async fn next(sets: &mut InstanceStream) -> polyrpc::client::Result<Vec<Instance>> {
    let item = tokio::time::timeout(PATIENCE, sets.next()).await.expect("no update from the watch");
    item.expect("the watch has ended")
}

/// Waits for the set with these lines.
pub async fn until(sets: &mut InstanceStream, wanted: &[String]) {
    while next_set(sets).await != wanted {}
}

pub fn entry(service: &str, instance: &str, attributes: &str) -> Advertisement {
    let instance = instance.parse::<Instance>().unwrap().with(attributes.parse().unwrap());
    Advertisement::new(service, instance, Duration::from_secs(20))
}

/// An unused port, for a program that binds it later, perhaps several times: not one of those that the system meanwhile
/// gives to listeners and connections of others, which are 32768 and more.
pub fn free_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = process::id().wrapping_mul(61).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (number % 12_000) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// An installed program, killed when dropped; `None`, with a message, if it is not installed.
pub struct Program(Child);

impl Program {
    pub fn start(name: &str, settle: impl FnOnce(&mut Command)) -> Option<Self> {
        let mut command = Command::new(name);
        settle(&mut command);
        match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                // Bypasses the test harness, which hides the output of passing tests.
                let _ =
                    writeln!(std::io::stderr(), "SKIPPED: nothing was tried against a real {name}: {error}");
                None
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const PATIENCE: Duration = Duration::from_secs(90);

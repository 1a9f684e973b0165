//! SIGTERM to a server in a separate process under load: no call is lost, over any protocol, by
//! clients that retry on another server.
//!
//! This test binary is the server too, as in `tests/server_loss.rs`.

#![cfg(unix)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{PATIENCE, Prober, Socket, serve, soon, url_of};
use polyrpc::client::{CallOptions, FailMode};
use polyrpc::codec::{Body, Raw};
use polyrpc::discovery::{Instance, List};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Context, Error, Format, signal};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;

/// Environment variable that makes a process the server; the value is its lame-duck phase in milliseconds.
const SERVER: &str = "POLYRPC_TEST_LAME_DUCK";

/// Number of rounds per protocol; 20 in the long form.
const ROUNDS: &str = "POLYRPC_SIGTERM_ROUNDS";

const CALLERS: usize = 16;

/// Does something only in the processes that the tests start.
#[test]
fn child_process_serves_until_sigterm() {
    let Ok(lame_duck) = std::env::var(SERVER) else { return };
    let lame_duck = Duration::from_millis(lame_duck.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let echo = |cx: Context, body: Bytes| async { (cx, Ok(body)) };
        let raw = ServiceBuilder::new("Raw").method::<Raw, Bytes, Bytes, _, _>("Echo", echo);
        let server = Prober::default().server().service(raw).lame_duck(lame_duck);
        let server = server.function("echo", |text: String| async move { text });
        let bound = server.bind("127.0.0.1:0").await.unwrap();
        let stop = signal::shutdown();
        println!("\n{LISTENS}{}", bound.address());
        bound.run_until(stop, PATIENCE).await;
    });
}

const LISTENS: &str = "listens at ";

/// A server in a child process, killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(lame_duck: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process_serves_until_sigterm", "--nocapture"])
            .env(SERVER, lame_duck.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines
            .find_map(|line| line.unwrap().strip_prefix(LISTENS).map(str::to_owned))
            .expect("it listens");
        // Otherwise its last output would not be read.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
    }

    /// Waits until it exits with success.
    async fn wait_for_exit(mut self) {
        soon(async {
            loop {
                match self.process.try_wait().unwrap() {
                    Some(status) => return assert!(status.success(), "{status}"),
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        })
        .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Calls without a pause until told to stop.
struct Callers {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    callers: Vec<tokio::task::JoinHandle<Vec<Error>>>,
}

impl Callers {
    fn start(client: &Client, scheme: &'static str) -> Self {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let callers = (0..CALLERS)
            .map(|_| {
                let (client, stop, made) = (client.clone(), stop.clone(), made.clone());
                tokio::spawn(async move {
                    let mut lost = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        lost.extend(call(&client, scheme).await.err());
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                    lost
                })
            })
            .collect();
        Self { stop, made, callers }
    }

    async fn made(&self, more: usize) {
        let want = self.made.load(Ordering::Relaxed) + more;
        soon(async {
            while self.made.load(Ordering::Relaxed) < want {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Number of calls, and the errors of the failed ones.
    async fn stop(self) -> (usize, Vec<Error>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut lost = Vec::new();
        for caller in self.callers {
            lost.extend(soon(caller).await.unwrap());
        }
        (self.made.load(Ordering::Relaxed), lost)
    }
}

/// fb_rpc addresses methods by number, and carries no plain types.
async fn call(client: &Client, scheme: &str) -> Result<(), Error> {
    if scheme == "fb-rpc" {
        let body = Body::new(Format::Raw, &b"bytes"[..]);
        return client.call_raw("Raw/#0", body, CallOptions::default()).await.map(drop);
    }
    let target = if scheme == "rest-rpc" { "echo" } else { "Probe/Echo" };
    client.call::<String>(target, "x").await.map(|answer| assert_eq!(answer, "x"))
}

async fn no_call_is_lost(scheme: &'static str, lame_duck: u64) {
    let rounds = std::env::var(ROUNDS).map_or(2, |rounds| rounds.parse().unwrap());
    let mut servers = vec![Server::start(lame_duck), Server::start(lame_duck)];
    let mut all = 0;
    for round in 0..rounds {
        let list = List::new(servers.iter().map(|server| Instance::tcp(&*server.address)));
        let client = Client::builder(&url_of(scheme, "two"))
            .discover(list)
            .fail_mode(FailMode::Failover)
            .retries(2)
            .idempotent()
            .build()
            .unwrap();
        let callers = Callers::start(&client, scheme);
        callers.made(100 + round * 97 % 500).await;
        let victim = servers.remove(round % 2);
        victim.terminate();
        victim.wait_for_exit().await;
        callers.made(200).await;
        let (made, lost) = callers.stop().await;
        let first = lost.first();
        assert!(
            lost.is_empty(),
            "{scheme}, round {round}: {} of {made} calls were lost: {first:?}",
            lost.len()
        );
        all += made;
        servers.insert(round % 2, Server::start(lame_duck));
    }
    println!("{scheme}: 0 of {all} calls were lost in {rounds} rounds");
}

macro_rules! no_call_is_lost {
    ($($test:ident: $scheme:literal,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            no_call_is_lost($scheme, 100).await;
            no_call_is_lost($scheme, 0).await;
        }
    )*};
}

no_call_is_lost! {
    no_call_of_baidu_std_is_lost_by_sigterm: "baidu-std",
    no_call_of_rpcx_is_lost_by_sigterm: "rpcx",
    no_call_of_grpc_is_lost_by_sigterm: "grpc",
    no_call_of_http_is_lost_by_sigterm: "http",
    no_call_of_json_rpc_is_lost_by_sigterm: "http?dialect=json-rpc",
    no_call_of_net_rpc_is_lost_by_sigterm: "net-rpc",
    no_call_of_net_rpc_in_json_is_lost_by_sigterm: "net-rpc?codec=json",
    no_call_of_rest_rpc_is_lost_by_sigterm: "rest-rpc",
    no_call_of_fb_rpc_is_lost_by_sigterm: "fb-rpc",
}

#[tokio::test]
async fn lame_duck_server_accepts_calls_and_is_not_ready() {
    let lame_duck = Duration::from_secs(5);
    let server = serve(Prober::default().server().lame_duck(lame_duck)).await;
    let address = server.address().to_string();
    let mut kept = Socket::connect(&server).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for path in ["/livez", "/readyz", "/health"] {
        assert_eq!(kept.http(&get(path)).await.0, 200, "{path}");
    }
    let caller = Client::new(&format!("rpcx://{address}")).unwrap();
    assert_eq!(caller.call::<String>("Probe/Echo", "x").await.unwrap(), "x");

    let begun = Instant::now();
    let going = tokio::spawn(server.shutdown(PATIENCE));
    tokio::task::yield_now().await;
    kept.send(b"POST /Probe/Echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n\"x\"").await;
    let answer = String::from_utf8(kept.rest().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\"x\""), "{answer}");
    assert!(answer.contains("Connection: close"), "{answer}");
    for (path, status) in [("/livez", 200), ("/readyz", 503), ("/health", 503)] {
        let mut socket = Socket { stream: TcpStream::connect(&address).await.unwrap() };
        assert_eq!(socket.http(&get(path)).await.0, status, "{path}");
        assert!(socket.rest().await.is_empty(), "{path}: it was the last answer");
    }
    assert_eq!(caller.call::<String>("Probe/Echo", "x").await.unwrap(), "x", "it still takes calls");
    let other = Client::new(&format!("grpc://{address}")).unwrap();
    assert_eq!(other.call::<String>("Probe/Echo", "x").await.unwrap(), "x", "of new clients too");
    assert!(begun.elapsed() < lame_duck, "the machine is too slow for this test");
    soon(going).await.unwrap();
    assert!(begun.elapsed() >= lame_duck);
    caller.call::<String>("Probe/Echo", "x").await.unwrap_err();
}

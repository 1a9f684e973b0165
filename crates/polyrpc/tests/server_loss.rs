//! Servers in separate processes, killed or stopped while they are called, or short of what a process needs.
//!
//! This test binary is the server too: started again, with [`SERVER`] in its environment, it runs only the test that
//! serves.

#![cfg(unix)]

mod common;
#[cfg(target_os = "linux")]
mod resources;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Prober, serve, soon};
use polyrpc::client::{CircuitBreaker, FailMode, Request, StubMethod};
use polyrpc::codec::Serde;
use polyrpc::discovery::{Instance, List};
use polyrpc::server::Limits;
use polyrpc::{Client, Error};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};

const ECHO: StubMethod = StubMethod::plain("Probe", "Echo");

/// Environment variable that makes a process the server.
const SERVER: &str = "POLYRPC_TEST_SERVER";

/// Limits of a server's process, from its environment.
#[derive(Clone, Copy, Default)]
struct ProcessLimits {
    /// Number of descriptors.
    descriptors: Option<u64>,
    /// Bytes of address space.
    memory: Option<u64>,
    /// Bytes of the server's memory budget.
    budget: Option<usize>,
}

const DESCRIPTORS: &str = "POLYRPC_TEST_DESCRIPTORS";
const MEMORY: &str = "POLYRPC_TEST_MEMORY";
const BUDGET: &str = "POLYRPC_TEST_BUDGET";

impl ProcessLimits {
    fn from_environment() -> Self {
        let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
        Self {
            descriptors: number(DESCRIPTORS),
            memory: number(MEMORY),
            budget: number(BUDGET).map(|bytes| bytes as usize),
        }
    }

    fn environment(self) -> Vec<(&'static str, String)> {
        let numbers = [
            (DESCRIPTORS, self.descriptors),
            (MEMORY, self.memory),
            (BUDGET, self.budget.map(|bytes| bytes as u64)),
        ];
        numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string()))).collect()
    }

    /// Applies them to this process.
    fn apply(self) {
        let limits = [(Resource::Nofile, self.descriptors), (Resource::As, self.memory)];
        for (resource, limit) in limits.into_iter().filter(|(_, limit)| limit.is_some()) {
            setrlimit(resource, Rlimit { current: limit, maximum: limit }).unwrap();
        }
    }
}

/// Number of concurrent callers.
const CALLERS: usize = 64;

/// Does something only in the processes that the other tests start: serves until it is killed, or its standard input
/// closes with the process that started it.
#[test]
fn child_process_serves() {
    if std::env::var_os(SERVER).is_none() {
        return;
    }
    let limited = ProcessLimits::from_environment();
    limited.apply();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let usual = Limits::default();
        let limits = Limits { memory: limited.budget.unwrap_or(usual.memory), ..usual };
        let server = serve(Prober::default().server().limits(limits)).await;
        println!("\n{LISTENS}{}", server.address());
        let over = tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop));
        over.await.unwrap();
    });
}

const LISTENS: &str = "listens at ";

/// A server in a child process, killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        Self::start_with(ProcessLimits::default())
    }

    fn start_with(limited: ProcessLimits) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process_serves", "--nocapture"])
            .env(SERVER, "yes")
            .envs(limited.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines
            .find_map(|line| line.unwrap().strip_prefix(LISTENS).map(str::to_owned))
            .expect("it listens");
        Self { process, address }
    }

    #[cfg(target_os = "linux")]
    fn id(&self) -> u32 {
        self.process.id()
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn list(servers: &[Server]) -> List {
    List::new(servers.iter().map(|server| Instance::tcp(&*server.address)))
}

/// Calls without a pause until told to stop.
struct Callers {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    callers: Vec<tokio::task::JoinHandle<Vec<(Duration, Result<(), Error>)>>>,
}

impl Callers {
    fn start(client: &Client, timeout: Duration) -> Self {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let callers = (0..CALLERS)
            .map(|_| {
                let (client, stop, made) = (client.clone(), stop.clone(), made.clone());
                tokio::spawn(async move {
                    let mut odd = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let request = Request::new("x".to_owned()).with_idempotent().with_timeout(timeout);
                        let began = Instant::now();
                        let ended = client.invoke::<Serde, String, String>(&ECHO, request).await;
                        made.fetch_add(1, Ordering::Relaxed);
                        if ended.is_err() || began.elapsed() > timeout {
                            odd.push((began.elapsed(), ended.map(drop)));
                        }
                    }
                    odd
                })
            })
            .collect();
        Self { stop, made, callers }
    }

    /// Number of calls, and the failed and slow ones.
    async fn stop(self) -> (usize, Vec<(Duration, Result<(), Error>)>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut odd = Vec::new();
        for caller in self.callers {
            odd.extend(soon(caller).await.unwrap());
        }
        (self.made.load(Ordering::Relaxed), odd)
    }

    /// Waits until this many more calls were made.
    async fn made(&self, more: usize) {
        let want = self.made.load(Ordering::Relaxed) + more;
        soon(async {
            while self.made.load(Ordering::Relaxed) < want {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_when_one_of_three_servers_is_killed() {
    let mut servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    for round in 0..20_usize {
        let client = Client::builder("rpcx://three").discover(list(&servers)).build().unwrap();
        let callers = Callers::start(&client, Duration::from_secs(10));
        // Sometimes during the first calls, sometimes after thousands.
        callers.made(round * 97 % 2000).await;
        let victim = servers.remove(round % 3);
        victim.send(Signal::KILL);
        callers.made(500).await;
        let (made, odd) = callers.stop().await;
        assert!(odd.is_empty(), "round {round}: {} of {made} calls failed: {:?}", odd.len(), odd.first());
        servers.push(Server::start());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_calls_are_late_while_one_of_three_servers_is_stopped() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let client = Client::builder("rpcx://three")
        .discover(list(&servers))
        .fail_mode(FailMode::Failbackup)
        .backup_after(Duration::from_millis(50))
        .build()
        .unwrap();
    // Longer than a stall of the machine, which delays every call, and shorter than the server is stopped.
    let callers = Callers::start(&client, Duration::from_secs(6));
    callers.made(1000).await;
    servers[0].send(Signal::STOP);
    tokio::time::sleep(Duration::from_secs(8)).await;
    servers[0].send(Signal::CONT);
    callers.made(1000).await;
    let (made, odd) = callers.stop().await;
    assert!(odd.len() * 1000 <= made, "{} of {made} calls were late: {:?}", odd.len(), odd.first());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_server_is_ejected_within_a_second() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let client = Client::builder("rpcx://three")
        .discover(list(&servers))
        .circuit_breaker(CircuitBreaker::consecutive(5, Duration::from_secs(10)))
        .build()
        .unwrap();
    let callers = Callers::start(&client, Duration::from_millis(200));
    let ejected = || client.endpoints().iter().any(|facts| facts.ejected);
    let all_are_well = || client.endpoints().iter().all(|facts| facts.available);
    let mut took = Vec::new();
    // Once more if the machine stalled.
    while took.len() < 3 && took.iter().all(|took| *took >= Duration::from_secs(1)) {
        callers.made(1000).await;
        servers[0].send(Signal::STOP);
        let began = Instant::now();
        soon(async {
            while !ejected() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        took.push(began.elapsed());
        servers[0].send(Signal::CONT);
        soon(async {
            while !all_are_well() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
    callers.stop().await;
    assert!(took.iter().any(|took| *took < Duration::from_secs(1)), "{took:?}");
}

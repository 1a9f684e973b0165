//! A registry that is killed under load, and restarted empty after half a minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::real::{Kind, Registry, kinds};
use futures_util::StreamExt;
use futures_util::future::join_all;
use polyrpc::client::balance::Policy;
use polyrpc::discovery::Attributes;
use polyrpc::server::{Registration, RegistrationEvent, ServerHandle};
use polyrpc::{Client, Error, Server};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const OUTAGE: Duration = Duration::from_secs(30);
/// Twice the time that it may take on an idle machine: all registries and their callers share this one.
const BACK: Duration = Duration::from_secs(10);
const SERVERS: usize = 3;
const CALLERS: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_that_restarts_empty_fails_no_call_and_loses_no_server() {
    // Concurrently, since each takes as long as the outage.
    join_all(kinds().into_iter().map(async |kind| {
        if let Some(registry) = Registry::start(kind).await {
            outage(registry).await;
        }
    }))
    .await;
}

async fn outage(mut registry: Registry) {
    let kind = registry.kind;
    let servers = join_all((0..SERVERS).map(|_| serve(&registry))).await;
    let mut watcher = Watcher::start(&registry);
    watcher.wait_for(&lines(&servers, 1)).await;
    let callers = Callers::start(&registry).await;

    registry.kill();
    callers.make(OUTAGE).await;
    assert!(registry.begin().await, "{kind:?} does not begin again");

    // A new watch finds them all, and an old one receives the new instances.
    let back = Instant::now();
    Watcher::start(&registry).wait_for(&lines(&servers, 1)).await;
    let took = back.elapsed();
    println!("{kind:?}: all are registered again after {took:?}");
    assert!(took < BACK, "{kind:?}: {took:?}");
    servers.iter().for_each(|server| server.registration().set("weight", "2"));
    watcher.wait_for(&lines(&servers, 2)).await;
    let took = back.elapsed();
    assert!(took < BACK * 2, "{kind:?}: {took:?}");

    // By now doubtful sets have been accepted.
    callers.make(Duration::from_secs(12)).await;
    callers.stop(kind).await;
    join_all(servers.into_iter().map(|server| server.shutdown(BACK))).await;
    watcher.wait_for(&[]).await;
}

async fn serve(registry: &Registry) -> ServerHandle {
    let registration =
        Registration::new().attributes(Attributes::new().with("weight", "1")).on_event(|event| {
            if let RegistrationEvent::Failed(entry, error) = event {
                println!("{entry}: {error}");
            }
        });
    Server::new()
        .function("Arith/Add", |a: i64, b: i64| async move { a + b })
        .register_in(registry.registrar(), registration)
        .bind("127.0.0.1:0")
        .await
        .unwrap()
        .start()
}

/// The expected list of these servers.
fn lines(servers: &[ServerHandle], weight: u32) -> Vec<String> {
    let mut lines: Vec<_> =
        servers.iter().map(|server| format!("tcp@{} weight={weight}", server.address())).collect();
    lines.sort();
    lines
}

/// A permanent watcher of a service.
struct Watcher {
    latest: watch::Receiver<Vec<String>>,
    watching: JoinHandle<()>,
}

impl Watcher {
    fn start(registry: &Registry) -> Self {
        let mut sets = registry.discover("Arith").watch();
        let (sender, latest) = watch::channel(vec!["nothing heard".to_owned()]);
        let watching = tokio::spawn(async move {
            while let Some(item) = sets.next().await {
                let Ok(set) = item else { continue };
                let mut lines: Vec<_> = set.iter().map(|one| format!("{one} {}", one.attributes)).collect();
                lines.sort();
                sender.send_replace(lines);
            }
        });
        Self { latest, watching }
    }

    /// Waits until exactly these are listed.
    async fn wait_for(&mut self, lines: &[String]) {
        let heard = timeout(OUTAGE, self.latest.wait_for(|latest| latest == lines)).await.is_ok();
        assert!(heard, "expected {lines:?}, not {:?}", self.latest.borrow());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Callers without pauses, with a client that discovers its servers in the registry.
struct Callers {
    client: Client,
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Vec<Error>>>,
    /// Minimum number of servers that the client knew.
    counting: JoinHandle<usize>,
}

impl Callers {
    async fn start(registry: &Registry) -> Self {
        let url = format!("rpcx+{}", registry.url("/Arith"));
        polyrpc_discovery::install();
        let client = Client::builder(&url).balance(Policy::round_robin()).build().unwrap();
        while client.endpoints().len() < SERVERS {
            assert_eq!(client.call::<i64>("Arith/Add", &(1, 2)).await.unwrap(), 3);
        }
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let callers = (0..CALLERS).map(|_| tokio::spawn(call(client.clone(), stop.clone(), made.clone())));
        let counting = tokio::spawn(least(client.clone(), stop.clone()));
        Self { callers: callers.collect(), client, stop, made, counting }
    }

    /// Lets them call for a while, and checks their progress.
    async fn make(&self, time: Duration) {
        let before = self.made.load(Ordering::Relaxed);
        tokio::time::sleep(time).await;
        assert!(self.made.load(Ordering::Relaxed) > before + CALLERS);
    }

    async fn stop(self, kind: Kind) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        for caller in self.callers {
            failed.extend(caller.await.unwrap());
        }
        let made = self.made.load(Ordering::Relaxed);
        assert!(failed.is_empty(), "{kind:?}: {} of {made} calls failed: {:?}", failed.len(), failed.first());
        assert_eq!(self.counting.await.unwrap(), SERVERS, "{kind:?}: a server was removed");
        assert!(self.client.endpoints().iter().all(|facts| facts.available && facts.failed_attempts == 0));
    }
}

async fn call(client: Client, stop: Arc<AtomicBool>, made: Arc<AtomicUsize>) -> Vec<Error> {
    let mut failed = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match client.call::<i64>("Arith/Add", &(1, 2)).await {
            Ok(sum) => assert_eq!(sum, 3),
            Err(error) if failed.len() < CALLERS => failed.push(error),
            Err(_) => break,
        }
        made.fetch_add(1, Ordering::Relaxed);
    }
    failed
}

async fn least(client: Client, stop: Arc<AtomicBool>) -> usize {
    let mut least = SERVERS;
    while !stop.load(Ordering::Relaxed) {
        least = least.min(client.endpoints().len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    least
}

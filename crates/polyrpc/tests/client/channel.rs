//! A client of several servers: discovery, load balancing, retries and removal.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt, stream};
use polyrpc::client::balance::{AttemptOutcome, Candidate, LoadBalancer, PickContext, Picker, Policy};
use polyrpc::client::{Backoff, Builder, CallOptions, FailMode, Request, Response, RetryBudget, StubMethod};
use polyrpc::codec::{Raw, Serde};
use polyrpc::discovery::{Attributes, Discover, Instance, InstanceStream, List};
use polyrpc::layers::RateLimit;
use polyrpc::server::{Publisher, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::transfer::{ByteStream, Streams};
use polyrpc::{Client, Code, Context, Error, Format, Protocol, Result, Server, Status, Streaming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::common::{
    Gate, PATIENCE, PROTOCOLS, Prober, free_address, serve, serve_apart, soon, unreachable_address, until,
};

const ECHO: StubMethod = StubMethod::plain("Probe", "Echo");

/// A registry under the control of the test.
#[derive(Clone)]
struct Registry(Arc<watch::Sender<Option<Result<Vec<Instance>, Status>>>>, Arc<AtomicUsize>);

impl Registry {
    fn silent() -> Self {
        Self(Arc::new(watch::Sender::new(None)), Arc::default())
    }

    fn new<'s>(servers: impl IntoIterator<Item = &'s ServerHandle>) -> Self {
        let registry = Self::silent();
        registry.announce(servers.into_iter().map(instance));
        registry
    }

    fn announce(&self, set: impl IntoIterator<Item = Instance>) {
        self.0.send_replace(Some(Ok(set.into_iter().collect())));
    }

    fn fail(&self, why: &'static str) {
        self.0.send_replace(Some(Err(Status::unavailable(why))));
    }

    fn watchers(&self) -> usize {
        self.0.receiver_count()
    }

    /// Waits until the watcher has seen what is published here.
    async fn while_watched(&self, announce: impl FnOnce(&Self)) {
        let asked = self.1.load(Ordering::SeqCst);
        announce(self);
        until(|| self.1.load(Ordering::SeqCst) > asked).await;
    }
}

impl Discover for Registry {
    fn watch(&self) -> InstanceStream {
        let mut reported = self.0.subscribe();
        reported.mark_changed();
        let asked = self.1.clone();
        stream::unfold((reported, asked), |(mut reported, asked)| async move {
            asked.fetch_add(1, Ordering::SeqCst);
            loop {
                reported.changed().await.ok()?;
                let update = reported.borrow_and_update().clone();
                if let Some(update) = update {
                    return Some((update.map_err(Into::into), (reported, asked)));
                }
            }
        })
        .boxed()
    }
}

fn instance(server: &ServerHandle) -> Instance {
    Instance::tcp(server.address().to_string())
}

/// A round-robin client, which reaches every server.
fn builder(protocol: Protocol, discover: impl Discover) -> Builder {
    let url = format!("{}://somewhere", protocol.as_str());
    Client::builder(&url).discover(discover).balance(Policy::round_robin())
}

fn client(discover: impl Discover) -> Client {
    builder(Protocol::Rpcx, discover).build().unwrap()
}

async fn echo(client: &Client) -> polyrpc::client::Result<String> {
    soon(client.call("Probe/Echo", &"hello")).await
}

/// An idempotent call.
async fn echo_again(client: &Client) -> polyrpc::client::Result<Response<String>> {
    soon(client.invoke::<Serde, String, String>(&ECHO, Request::new("hello".to_owned()).with_idempotent()))
        .await
}

/// Servers that count their calls.
async fn servers(n: usize) -> Vec<(Prober, ServerHandle)> {
    let mut servers = Vec::new();
    for _ in 0..n {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        servers.push((prober, server));
    }
    servers
}

fn running(servers: &[(Prober, ServerHandle)]) -> impl Iterator<Item = &ServerHandle> {
    servers.iter().map(|(_, server)| server)
}

/// An address without a listener.
fn unreachable_instance() -> Instance {
    Instance::tcp(unreachable_address())
}

/// A status that every protocol can express, and that marks the call as not started.
fn busy() -> Status {
    Status::resource_exhausted(BUSY)
}

const BUSY: &str = "request reached rate limit";

/// A service whose calls fail with a given status.
async fn failing(status: Status) -> (Arc<AtomicUsize>, ServerHandle) {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let service = ServiceBuilder::new("Probe").method::<Serde, String, String, _, _>(
        "Echo",
        move |cx: Context, _: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            let status = status.clone();
            async move { (cx, Result::<String>::Err(status.into())) }
        },
    );
    (tries, serve(Server::new().service(service)).await)
}

/// A server that accepts a call and then closes the connection, each time.
async fn closing_server() -> (Arc<AtomicUsize>, Instance) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let deaths = Arc::new(AtomicUsize::new(0));
    let counted = deaths.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut some = [0; 64];
            if socket.read(&mut some).await.is_ok_and(|n| n > 0) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (deaths, Instance::tcp(address))
}

/// Picks the first available server in listed order; counts its sets and records outcomes.
#[derive(Debug, Clone, Default)]
struct First {
    sets: Arc<AtomicUsize>,
    keys: Arc<Mutex<Vec<Option<u64>>>>,
    under_way: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<Code>>>,
}

impl LoadBalancer for First {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        self.sets.fetch_add(1, Ordering::SeqCst);
        Box::new(FirstOf(self.clone(), candidates.len()))
    }
}

struct FirstOf(First, usize);

impl Picker for FirstOf {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        self.0.keys.lock().unwrap().push(asked.key);
        (0..self.1).find(|&index| asked.is_eligible(index))
    }

    fn call_started(&self, _: usize, _: Instant) {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        self.0.under_way.fetch_add(1, Ordering::SeqCst);
    }

    fn call_finished(&self, _: usize, outcome: &AttemptOutcome<'_>) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        self.0.failures.lock().unwrap().extend(outcome.failure.map(Status::code));
    }
}

#[tokio::test]
async fn all_servers_found_by_a_url_are_called() {
    for protocol in PROTOCOLS {
        let servers = servers(3).await;
        let list: Vec<_> = running(&servers).map(|server| server.address().to_string()).collect();
        let client = Client::new(&format!("{}+list://{}", protocol.as_str(), list.join(","))).unwrap();
        for _ in 0..300 {
            assert_eq!(echo(&client).await.unwrap(), "hello");
        }
        assert!(servers.iter().all(|(prober, _)| prober.ran() > 0), "{protocol:?}");
        let facts = client.endpoints();
        assert_eq!(facts.iter().map(|facts| facts.attempts).sum::<u64>(), 300);
        assert!(facts.iter().all(|facts| facts.available && facts.in_flight == 0));
        assert!(facts.iter().all(|facts| facts.failed_attempts == 0));
    }
}

#[tokio::test]
async fn client_of_one_server_reports_it_like_a_cluster() {
    for protocol in PROTOCOLS {
        let started = servers(1).await;
        let address = started[0].1.address().to_string();
        let client = Client::new(&format!("{}://{address}", protocol.as_str())).unwrap();
        assert_eq!(client.endpoints().len(), 1, "before the first call");
        for _ in 0..10 {
            assert_eq!(echo(&client).await.unwrap(), "hello", "{protocol:?}");
        }
        let [facts] = &client.endpoints()[..] else { panic!("one server") };
        assert_eq!(facts.instance.address, address, "{protocol:?}");
        assert_eq!((facts.attempts, facts.failed_attempts), (10, 0), "{protocol:?}");
        assert!(facts.available && !facts.ejected && facts.in_flight == 0, "{protocol:?}: {facts:?}");
    }
    let unreachable = unreachable_instance();
    let client = Client::new(&format!("rpcx://{}", unreachable.address)).unwrap();
    for _ in 0..3 {
        echo(&client).await.unwrap_err();
    }
    let [facts] = &client.endpoints()[..] else { panic!("one server") };
    assert!(facts.failed_attempts > 0 && !facts.available, "{facts:?}");
    assert_eq!(facts.attempts, facts.failed_attempts);
}

#[tokio::test]
async fn unreachable_server_fails_no_call() {
    for protocol in PROTOCOLS {
        let servers = servers(2).await;
        let registry = Registry::silent();
        registry.announce([unreachable_instance()].into_iter().chain(running(&servers).map(instance)));
        let budget = RetryBudget { ratio: 0.0, initial_tokens: 0, max_tokens: 0 };
        let client = builder(protocol, registry).retry_budget(budget).build().unwrap();
        for _ in 0..20 {
            assert_eq!(echo(&client).await.unwrap(), "hello", "{protocol:?}");
        }
        assert_eq!(client.endpoints().iter().filter(|facts| facts.available).count(), 2, "{protocol:?}");
    }
}

#[tokio::test]
async fn dying_server_fails_no_idempotent_call() {
    for protocol in PROTOCOLS {
        let (deaths, closing_server) = closing_server().await;
        let servers = servers(1).await;
        let registry = Registry::silent();
        registry.announce([closing_server, instance(&servers[0].1)]);
        let client = builder(protocol, registry.clone()).build().unwrap();
        let mut failed = 0;
        while deaths.load(Ordering::SeqCst) == 0 {
            failed += usize::from(echo(&client).await.is_err());
        }
        assert_eq!(failed, 1, "{protocol:?}: the call may have been executed");

        let client = builder(protocol, registry).build().unwrap();
        while deaths.load(Ordering::SeqCst) < 3 {
            assert_eq!(echo_again(&client).await.unwrap().message, "hello", "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn only_retryable_failures_are_retried_elsewhere() {
    for protocol in PROTOCOLS {
        for (status, tries) in [(busy(), 2), (Status::invalid_argument("never"), 1)] {
            let (code, message) = (status.code(), status.message().to_owned());
            let (first, one) = failing(status.clone()).await;
            let (second, other) = failing(status).await;
            let client = builder(protocol, Registry::new([&one, &other])).retries(1).build().unwrap();
            let error = echo(&client).await.unwrap_err();
            assert!(error.message().ends_with(&message), "{protocol:?}: {error}");
            if protocol != Protocol::NetRpc {
                // It cannot express that a call is retryable elsewhere.
                let tried = first.load(Ordering::SeqCst) + second.load(Ordering::SeqCst);
                assert_eq!(tried, tries, "{protocol:?} {code:?}");
                assert!(first.load(Ordering::SeqCst) < 2, "the other one comes first");
            }
        }
    }
}

#[tokio::test]
async fn failfast_returns_the_first_failure() {
    let (tries, server) = failing(busy()).await;
    let client =
        builder(Protocol::Rpcx, Registry::new([&server])).fail_mode(FailMode::Failfast).build().unwrap();
    assert_eq!(echo(&client).await.unwrap_err().message(), BUSY);
    assert_eq!(tries.load(Ordering::SeqCst), 1);

    let registry = Registry::silent();
    registry.announce([unreachable_instance(), instance(&server)]);
    let client =
        builder(Protocol::Rpcx, registry).balance(First::default()).fail_mode(FailMode::Failfast).build();
    let error = echo(&client.unwrap()).await.unwrap_err();
    assert!(error.message().contains("cannot connect to") || error.message() == BUSY, "{error}");
}

#[tokio::test]
async fn failtry_stays_with_one_server() {
    let (first, one) = failing(busy()).await;
    let (second, other) = failing(busy()).await;
    let client =
        builder(Protocol::Rpcx, Registry::new([&one, &other])).fail_mode(FailMode::Failtry).build().unwrap();
    assert_eq!(echo(&client).await.unwrap_err().message(), BUSY);
    let mut tried = [first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)];
    tried.sort_unstable();
    assert_eq!(tried, [0, 4]);
}

#[tokio::test]
async fn servers_are_retried_after_a_backoff_once_all_were_tried() {
    let (tries, server) = failing(busy()).await;
    let backoff = Backoff { initial: Duration::from_millis(50), ..Backoff::default() };
    let client =
        builder(Protocol::Rpcx, Registry::new([&server])).retry_backoff(backoff).retries(2).build().unwrap();
    let began = Instant::now();
    assert_eq!(echo(&client).await.unwrap_err().message(), BUSY);
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    assert!(began.elapsed() >= Duration::from_millis(25 + 40), "half of a pause is random");
}

#[tokio::test]
async fn no_call_is_retried_past_its_deadline() {
    let (tries, server) = failing(busy()).await;
    let hour = Duration::from_secs(3600);
    let backoff = Backoff { initial: hour, max: hour, factor: 1.0 };
    let client = builder(Protocol::Rpcx, Registry::new([&server])).retry_backoff(backoff).build().unwrap();
    let request = Request::new("x".to_owned()).with_timeout(PATIENCE);
    let began = Instant::now();
    let error = client.invoke::<Serde, String, String>(&ECHO, request).await.unwrap_err();
    assert_eq!((error.message(), tries.load(Ordering::SeqCst)), (BUSY, 1));
    assert!(began.elapsed() < PATIENCE, "no wait for an attempt that is not made");
}

#[tokio::test]
async fn retries_stay_within_the_budget_if_everything_fails() {
    for mode in [FailMode::Failover, FailMode::Failtry, FailMode::Failbackup] {
        let (tries, server) = failing(busy()).await;
        let backoff = Backoff { initial: Duration::from_micros(1), ..Backoff::default() };
        let client =
            builder(Protocol::Rpcx, Registry::new([&server])).fail_mode(mode).retry_backoff(backoff).build();
        let client = client.unwrap();
        for _ in 0..300 {
            assert_eq!(echo(&client).await.unwrap_err().message(), BUSY);
        }
        let tries = tries.load(Ordering::SeqCst);
        assert!((359..=360).contains(&tries), "{mode:?}: {tries} attempts for 300 calls");
    }
}

#[tokio::test]
async fn call_whose_handler_failed_is_retried_only_if_it_is_idempotent() {
    for protocol in [Protocol::Grpc, Protocol::Http, Protocol::BaiduStd] {
        for status in
            [Status::unavailable("the disk is full"), Status::resource_exhausted("the disk is full")]
        {
            let (tries, server) = failing(status.clone()).await;
            let client = builder(protocol, Registry::new([&server])).retries(2).build().unwrap();
            assert_eq!(echo(&client).await.unwrap_err().code(), status.code(), "{protocol:?}");
            assert_eq!(tries.load(Ordering::SeqCst), 1, "{protocol:?} {status}");
            assert_eq!(echo_again(&client).await.unwrap_err().code(), status.code(), "{protocol:?}");
            assert_eq!(tries.load(Ordering::SeqCst), 1 + 3, "{protocol:?} {status}");
        }
    }
}

#[tokio::test]
async fn rejection_by_a_layer_is_retried_although_the_call_is_not_idempotent() {
    for protocol in [Protocol::Grpc, Protocol::Http, Protocol::BaiduStd, Protocol::Rpcx] {
        let servers = [Prober::default(), Prober::default()];
        let [full, free] = &servers;
        let full = serve(full.server().layer(RateLimit::new(0.001, 1))).await;
        let free = serve(free.server()).await;
        let client = builder(protocol, Registry::new([&full, &free])).retries(2).build().unwrap();
        for _ in 0..6 {
            echo(&client).await.unwrap();
        }
        assert_eq!(servers[0].ran(), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn handler_whose_own_call_was_rejected_is_not_started_again() {
    for protocol in [Protocol::Grpc, Protocol::Http, Protocol::BaiduStd] {
        let (_, back) = failing(busy()).await;
        let next = crate::common::client(Protocol::Rpcx, &back);
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = tries.clone();
        let front = Server::new().function("relay", move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let next = next.clone();
            async move { next.call::<String>("Probe/Echo", &"hello").await }
        });
        let front = serve(front).await;
        let client = builder(protocol, Registry::new([&front])).retries(2).build().unwrap();
        let error = soon(client.call::<String>("relay", &())).await.unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{protocol:?}");
        assert!(
            error.message().ends_with("a call of the handler failed: request reached rate limit"),
            "{error}"
        );
        assert_eq!(tries.load(Ordering::SeqCst), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn hedged_call_is_answered_by_the_second_server() {
    for protocol in PROTOCOLS {
        let first = First::default();
        let servers = slow_and_quick().await;
        let (slow, quick) = (&servers[0], &servers[1]);
        let client = builder(protocol, Registry::new(running(&servers)))
            .balance(first.clone())
            .fail_mode(FailMode::Failbackup)
            .backup_after(Duration::from_millis(5))
            .build()
            .unwrap();
        let answer: String = soon(client.call("Probe/Wait", &"hello")).await.unwrap();
        assert_eq!(answer, "hello", "{protocol:?}");
        assert_eq!((slow.0.ran(), quick.0.ran()), (1, 1), "{protocol:?}");
        until(|| first.under_way.load(Ordering::SeqCst) == 0).await;
        assert_eq!(*first.failures.lock().unwrap(), [Code::Cancelled], "the other was given up");
        assert!(client.endpoints().iter().all(|facts| facts.in_flight == 0 && facts.failed_attempts == 0));
    }
}

#[tokio::test]
async fn backup_request_is_withdrawn_from_the_budget() {
    let (of_poor, of_rich) = (servers(2).await, servers(2).await);
    let hedged = |servers: &[(Prober, ServerHandle)], budget: RetryBudget| {
        let builder = builder(Protocol::Rpcx, Registry::new(running(servers))).retry_budget(budget);
        builder.fail_mode(FailMode::Failbackup).backup_after(Duration::from_millis(5)).build().unwrap()
    };
    let came = |servers: &[(Prober, ServerHandle)]| servers.iter().map(|(one, _)| one.ran()).sum::<usize>();
    let wait = |client: Client| async move { client.call::<String>("Probe/Wait", &"x").await };
    let poor =
        tokio::spawn(wait(hedged(&of_poor, RetryBudget { ratio: 0.0, initial_tokens: 0, max_tokens: 0 })));
    until(|| came(&of_poor) == 1).await;
    // The delay of this one begins later, and ends with a backup request: that of the first one has ended without.
    let rich = tokio::spawn(wait(hedged(&of_rich, RetryBudget::UNLIMITED)));
    until(|| came(&of_rich) == 2).await;
    assert_eq!(came(&of_poor), 1);
    of_poor.iter().chain(&of_rich).for_each(|(prober, _)| prober.gate.open());
    for call in [poor, rich] {
        assert_eq!(soon(call).await.unwrap().unwrap(), "x");
    }
    assert_eq!(came(&of_poor), 1);
}

#[tokio::test]
async fn call_that_no_server_looks_at_is_resent_once() {
    const HEADERS: u8 = 1;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("grpc://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            // SETTINGS, then a GOAWAY that excludes every stream, once the call has come.
            let _ = socket.write_all(b"\0\0\0\x04\0\0\0\0\0").await;
            let _ = socket.read_exact(&mut [0; 24]).await;
            let mut head = [0; 9];
            while socket.read_exact(&mut head).await.is_ok() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let _ = socket.read_exact(&mut vec![0; length]).await;
                if head[3] == HEADERS {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let _ = socket.write_all(b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0").await;
                }
            }
        }
    });
    let client = Client::new(&url).unwrap();
    let error = echo(&client).await.unwrap_err();
    assert_eq!((error.code(), asked.load(Ordering::SeqCst)), (Code::Unavailable, 2), "{error}");
}

/// A server whose backlog is full, so that the system ignores further connects; and the connections that fill it.
async fn silent_instance() -> (Instance, Vec<std::net::TcpStream>, std::net::TcpListener) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap().into_std().unwrap();
    let address = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        filling.push(stream);
    }
    (Instance::tcp(address.to_string()), filling, listener)
}

#[tokio::test]
async fn server_that_accepts_no_connection_leaves_time_for_another() {
    let server = serve(Prober::default().server()).await;
    let (silent, _filling, _listener) = silent_instance().await;
    let order = vec![silent.address.clone()];
    let registry = Registry::silent();
    registry.announce([silent, instance(&server)]);
    let call = async |seconds| {
        // Only the call's own timeout applies, and each client tries the silent server first.
        let builder = builder(Protocol::Rpcx, registry.clone()).connect_timeout(PATIENCE);
        let client = builder.balance(Order(order.clone())).retries(1).build().unwrap();
        let request = Request::new("hello".to_owned()).with_timeout(Duration::from_secs(seconds));
        soon(client.invoke::<Serde, String, String>(&ECHO, request)).await
    };
    let mut answer = call(2).await;
    for seconds in [8, 32] {
        // The machine may stall for the half that is left.
        if answer.is_err() {
            answer = call(seconds).await;
        }
    }
    assert_eq!(answer.unwrap().message, "hello");
}

#[tokio::test]
async fn failtry_waits_for_the_connect_backoff_of_its_server() {
    let address = free_address();
    let list = List::new([Instance::tcp(&*address)]);
    let client = builder(Protocol::Rpcx, list).fail_mode(FailMode::Failtry).retries(1).build().unwrap();
    let calling = client.clone();
    let call = tokio::spawn(async move { echo_again(&calling).await });
    until(|| client.endpoints().iter().any(|facts| !facts.available)).await;
    // It comes back well before the next connect, half a second later.
    let _server = Prober::default().server().bind(address.as_str()).await.unwrap().start();
    assert_eq!(soon(call).await.unwrap().unwrap().message, "hello");
}

/// Two servers in the order of their addresses, of which the first delays its callers.
async fn slow_and_quick() -> Vec<(Prober, ServerHandle)> {
    let mut servers = servers(2).await;
    servers.sort_by_key(|(_, server)| server.address().to_string());
    servers[1].0.gate.open();
    servers
}

#[tokio::test]
async fn failure_does_not_end_a_hedged_call_with_a_pending_attempt() {
    let (tries, failing) = failing(Status::invalid_argument("no")).await;
    let gate = Gate::default();
    let slow = slow(&gate, None).await;
    let client = builder(Protocol::Rpcx, Registry::new([&slow, &failing]))
        .balance(Order::new([&slow]))
        .fail_mode(FailMode::Failbackup)
        .build()
        .unwrap();
    let call = tokio::spawn(async move { echo(&client).await });
    until(|| tries.load(Ordering::SeqCst) == 1).await;
    gate.open();
    assert_eq!(soon(call).await.unwrap().unwrap(), "hello");
}

/// A server that answers, or fails with the status, once its gate opens.
async fn slow(gate: &Gate, failure: Option<Status>) -> ServerHandle {
    let gate = gate.clone();
    let service = ServiceBuilder::new("Probe").method::<Serde, String, String, _, _>(
        "Echo",
        move |cx: Context, text: String| {
            let (gate, failure) = (gate.clone(), failure.clone());
            async move {
                gate.pass().await;
                (cx, failure.map_or(Ok(text), |status| Err(status.into())))
            }
        },
    );
    serve(Server::new().service(service)).await
}

#[tokio::test]
async fn retry_budget_is_charged_only_for_started_attempts() {
    let gate = Gate::default();
    let (first, second) = (slow(&gate, Some(busy())).await, slow(&gate, Some(busy())).await);
    let third = serve(Prober::default().server()).await;
    let client = builder(Protocol::Rpcx, Registry::new([&first, &second, &third]))
        .balance(Order::new([&first, &second]))
        .fail_mode(FailMode::Failbackup)
        .retries(2)
        .build()
        .unwrap();
    let call = tokio::spawn(async move { echo(&client).await });
    gate.came(2).await;
    gate.open();
    assert_eq!(soon(call).await.unwrap().unwrap(), "hello");
}

#[tokio::test]
async fn definite_failure_wins_over_a_retryable_one() {
    let (says_no, is_busy) = (Gate::default(), Gate::default());
    let first = slow(&says_no, Some(Status::invalid_argument("no"))).await;
    let second = slow(&is_busy, Some(busy())).await;
    let third = Prober::default();
    let running = serve(third.server()).await;
    let client = builder(Protocol::Rpcx, Registry::new([&first, &second, &running]))
        .balance(Order::new([&first, &second]))
        .fail_mode(FailMode::Failbackup)
        .retries(2)
        .build()
        .unwrap();
    let calling = client.clone();
    let call = tokio::spawn(async move { echo(&calling).await });
    is_busy.came(1).await;
    says_no.open();
    until(|| client.endpoints().iter().map(|facts| facts.in_flight).sum::<usize>() == 1).await;
    is_busy.open();
    assert_eq!(soon(call).await.unwrap().unwrap_err().message(), "no");
    assert_eq!(third.ran(), 0);
}

/// Prefers these servers, in this order.
#[derive(Debug)]
struct Order(Vec<String>);

impl Order {
    fn new<'s>(servers: impl IntoIterator<Item = &'s ServerHandle>) -> Self {
        Self(servers.into_iter().map(|server| instance(server).address).collect())
    }
}

impl LoadBalancer for Order {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let index_of =
            |of: &String| candidates.iter().position(|candidate| candidate.instance().address == *of);
        Box::new(OrderOf(self.0.iter().filter_map(index_of).collect(), candidates.len()))
    }
}

struct OrderOf(Vec<usize>, usize);

impl Picker for OrderOf {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        self.0.iter().copied().chain(0..self.1).find(|&index| asked.is_eligible(index))
    }
}

#[tokio::test]
async fn dropped_call_is_cancelled_on_every_server() {
    for mode in [FailMode::Failover, FailMode::Failbackup] {
        let servers = servers(2).await;
        let first = First::default();
        let client = builder(Protocol::Rpcx, Registry::new(running(&servers)))
            .balance(first.clone())
            .fail_mode(mode)
            .build()
            .unwrap();
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call::<String>("Probe/Wait", &"x").await }
        });
        let came = || servers.iter().map(|(prober, _)| prober.ran()).sum::<usize>();
        until(|| came() == if mode == FailMode::Failbackup { 2 } else { 1 }).await;
        call.abort();
        until(|| first.under_way.load(Ordering::SeqCst) == 0).await;
        assert!(client.endpoints().iter().all(|facts| facts.in_flight == 0));
    }
}

#[tokio::test]
async fn server_without_weight_receives_no_call_even_if_others_fail() {
    let idle = Prober::default();
    let server = serve(idle.server()).await;
    let weightless = || instance(&server).with("weight=0".parse().unwrap());
    let registry = Registry::silent();
    registry.announce([weightless()]);
    let client = builder(Protocol::Rpcx, registry.clone())
        .balance(Policy::smooth_weighted_round_robin())
        .cluster_recovery(100, Duration::from_secs(3600))
        .build()
        .unwrap();
    let failed = echo(&client).await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::Unavailable, "the load balancer picked no server"));

    // It is healthy, so there is nothing to recover from.
    registry.announce([instance(&server)]);
    until(|| client.endpoints().iter().all(|facts| facts.instance.attributes.weight() == 1)).await;
    for _ in 0..20 {
        echo(&client).await.unwrap();
    }
    let ran = idle.ran();

    // It is connected by now.
    let gone = [unreachable_instance(), unreachable_instance(), unreachable_instance()];
    registry.announce(gone.into_iter().chain([weightless()]));
    until(|| client.endpoints().len() == 4).await;
    for _ in 0..5 {
        echo(&client).await.unwrap_err();
    }
    assert_eq!(idle.ran(), ran);
}

#[tokio::test]
async fn waiting_call_proceeds_once_the_balancer_has_a_server() {
    let server = serve(Prober::default().server()).await;
    let registry = Registry::silent();
    registry.announce([instance(&server).with("weight=0".parse().unwrap())]);
    let client = builder(Protocol::Rpcx, registry.clone())
        .balance(Policy::smooth_weighted_round_robin())
        .build()
        .unwrap();
    let calling = client.clone();
    let call = tokio::spawn(async move {
        let request = Request::new("hello".to_owned()).with_wait_for_ready();
        calling.invoke::<Serde, String, String>(&ECHO, request).await
    });
    until(|| client.endpoints().len() == 1).await;
    tokio::task::yield_now().await;
    registry.announce([instance(&server)]);
    assert_eq!(soon(call).await.unwrap().unwrap().message, "hello");
}

#[tokio::test]
async fn first_call_waits_for_discovery() {
    let servers = servers(1).await;
    let registry = Registry::silent();
    let client = client(registry.clone());
    let call = tokio::spawn(async move { echo(&client).await });
    until(|| registry.watchers() == 1).await;
    registry.fail("not yet");
    tokio::task::yield_now().await;
    registry.announce(running(&servers).map(instance));
    assert_eq!(soon(call).await.unwrap().unwrap(), "hello");
}

#[tokio::test]
async fn call_without_a_server_in_time_reports_the_cause() {
    let registry = Registry::silent();
    let client = client(registry.clone());
    let timeout = Duration::from_millis(200);
    let call = async || {
        let request = Request::new(String::new()).with_timeout(timeout);
        client.invoke::<Serde, String, String>(&ECHO, request).await
    };
    let error = call().await.unwrap_err();
    let want = "no server known for rpcx://somewhere: the registry has not answered in time";
    assert_eq!((error.code(), error.message()), (Code::Unavailable, want));

    registry.fail("on fire");
    let error = call().await.unwrap_err();
    assert!(error.message().ends_with("unavailable: on fire"), "{error}");

    registry.announce([]);
    let error = echo(&client).await.unwrap_err();
    assert!(error.message().ends_with("the registry has no callable server"), "{error}");
}

#[tokio::test]
async fn wait_for_ready_call_waits_for_a_server() {
    let servers = servers(1).await;
    let registry = Registry::silent();
    registry.announce([]);
    let client = client(registry.clone());
    echo(&client).await.unwrap_err();
    let call = tokio::spawn(async move {
        let request = Request::new("x".to_owned()).with_wait_for_ready();
        client.invoke::<Serde, String, String>(&ECHO, request).await
    });
    tokio::task::yield_now().await;
    registry.announce(running(&servers).map(instance));
    assert_eq!(soon(call).await.unwrap().unwrap().message, "x");
}

#[tokio::test]
async fn discovered_servers_are_kept_if_the_registry_loses_them() {
    let servers = servers(2).await;
    let registry = Registry::new(running(&servers));
    let client = client(registry.clone());
    echo(&client).await.unwrap();
    for round in 0..20 {
        match round % 3 {
            0 => registry.announce([]),
            1 => registry.fail("gone"),
            _ => registry.announce([Instance::tcp("not an address")]),
        }
        // Longer than a change may be held back.
        while_echoing(&client, Duration::from_millis(60)).await;
    }
    assert_eq!(client.endpoints().len(), 2);
}

/// Calls without a pause for this long.
async fn while_echoing(client: &Client, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        echo(client).await.unwrap();
    }
}

#[tokio::test]
async fn set_without_a_usable_server_does_not_replace_a_good_one() {
    let servers = servers(2).await;
    let registry = Registry::new(running(&servers));
    let client = client(registry.clone());
    echo(&client).await.unwrap();
    // No outage before it, which would make the client distrust the registry.
    registry.while_watched(|registry| registry.announce([Instance::tcp("not an address")])).await;
    while_echoing(&client, Duration::from_millis(200)).await;
    assert_eq!(client.endpoints().len(), 2);
}

#[tokio::test]
async fn server_missing_after_an_outage_is_kept_for_a_grace_period() {
    let servers = servers(3).await;
    let all: Vec<_> = running(&servers).map(instance).collect();
    let lose: [fn(&Registry); 2] = [|registry| registry.fail("gone"), |registry| registry.announce([])];
    for lose in lose {
        let registry = Registry::new(running(&servers));
        let client = client(registry.clone());
        echo(&client).await.unwrap();
        registry.while_watched(lose).await;

        // They register again one by one, the first with a new weight to identify it.
        let heavier = all[0].clone().with(attribute("weight", 7));
        registry.announce([heavier.clone()]);
        let is_heard = || client.endpoints().iter().any(|facts| facts.instance == heavier);
        until(is_heard).await;
        assert_eq!(client.endpoints().len(), 3);
        registry.announce([heavier.clone(), all[1].clone().with(attribute("state", 1))]);
        until(|| client.endpoints().iter().any(|facts| facts.instance.attributes == attribute("state", 1)))
            .await;
        assert_eq!(client.endpoints().len(), 3);

        // A server that has not after ten seconds has left.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(11)).await;
        tokio::time::resume();
        until(|| client.endpoints().len() == 2).await;
        registry.announce([heavier]);
        until(|| client.endpoints().len() == 1).await;
    }
}

#[tokio::test]
async fn unreachable_server_missing_after_an_outage_is_removed() {
    let mut servers = servers(2).await;
    let registry = Registry::new(running(&servers));
    let client = client(registry.clone());
    for _ in 0..4 {
        echo(&client).await.unwrap();
    }
    registry.while_watched(|registry| registry.fail("gone")).await;
    registry.announce([instance(&servers[0].1).with(attribute("weight", 7))]);
    until(|| client.endpoints().iter().any(|facts| facts.instance.attributes.weight() == 7)).await;
    assert_eq!(client.endpoints().len(), 2);
    servers.remove(1).1.shutdown(Duration::ZERO).await;
    soon(async {
        while client.endpoints().len() == 2 {
            echo_again(&client).await.unwrap();
        }
    })
    .await;
    echo(&client).await.unwrap();
}

#[tokio::test]
async fn outage_ends_once_no_server_is_missing() {
    let servers = servers(2).await;
    let registry = Registry::new(running(&servers));
    let client = client(registry.clone());
    echo(&client).await.unwrap();
    registry.while_watched(|registry| registry.fail("gone")).await;
    let heavier = running(&servers).map(|server| instance(server).with(attribute("weight", 7)));
    registry.announce(heavier);
    until(|| client.endpoints().iter().all(|facts| facts.instance.attributes.weight() == 7)).await;
    registry.announce([instance(&servers[0].1)]);
    until(|| client.endpoints().len() == 1).await;
}

#[tokio::test]
async fn empty_set_is_accepted_if_configured() {
    let servers = servers(1).await;
    let registry = Registry::new(running(&servers));
    let client = builder(Protocol::Rpcx, registry.clone()).accept_empty_resolution().build().unwrap();
    echo(&client).await.unwrap();
    registry.announce([]);
    until(|| client.endpoints().is_empty()).await;
    assert!(echo(&client).await.unwrap_err().message().starts_with("no server known for"));
    registry.announce(running(&servers).map(instance));
    until(|| !client.endpoints().is_empty()).await;
    echo(&client).await.unwrap();
}

#[tokio::test]
async fn inactive_servers_and_other_groups_receive_no_calls() {
    let servers = servers(3).await;
    let instance_with = |n: usize, text: &str| instance(&servers[n].1).with(text.parse().unwrap());
    let registry = Registry::silent();
    registry.announce([
        instance_with(0, "group=a"),
        instance_with(1, "group=a&state=inactive"),
        instance_with(2, "group=b"),
    ]);
    let client = builder(Protocol::Rpcx, registry.clone()).group("a").build().unwrap();
    for _ in 0..10 {
        echo(&client).await.unwrap();
    }
    let ran: Vec<_> = servers.iter().map(|(prober, _)| prober.ran()).collect();
    assert_eq!(ran, [10, 0, 0]);

    registry.announce([instance_with(0, "group=a&state=inactive")]);
    until(|| client.endpoints().is_empty()).await;
    assert!(echo(&client).await.is_err(), "the status was returned on purpose");
}

#[tokio::test]
async fn removed_server_finishes_its_calls_and_is_disconnected() {
    for protocol in PROTOCOLS {
        let servers = servers(2).await;
        let registry = Registry::new([&servers[0].1]);
        let client = builder(protocol, registry.clone()).build().unwrap();
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call::<String>("Probe/Wait", &"x").await }
        });
        servers[0].0.gate.came(1).await;
        registry.announce([instance(&servers[1].1)]);
        until(|| client.endpoints().iter().all(|facts| facts.instance == instance(&servers[1].1))).await;
        assert_eq!(echo(&client).await.unwrap(), "hello");
        assert_eq!((servers[0].0.ran(), servers[1].0.ran()), (1, 1), "{protocol:?}");
        servers[0].0.gate.open();
        assert_eq!(soon(call).await.unwrap().unwrap(), "x");
        until(|| servers[0].1.connection_count() == 0).await;
        assert_eq!(servers[1].1.connection_count(), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn remaining_server_keeps_connections_and_counters_on_attribute_changes() {
    let servers = servers(2).await;
    let registry = Registry::new([&servers[0].1]);
    let client = client(registry.clone());
    let peer: String = client.call("Probe/Peer", &()).await.unwrap();
    let heavier = instance(&servers[0].1).with(Attributes::new().with("weight", "7"));
    registry.announce([heavier.clone(), instance(&servers[1].1)]);
    until(|| client.endpoints().len() == 2).await;
    registry.announce([heavier.clone()]);
    until(|| client.endpoints().len() == 1).await;
    assert_eq!(client.call::<String>("Probe/Peer", &()).await.unwrap(), peer);
    let facts = client.endpoints();
    assert_eq!((&facts[0].instance, facts[0].attempts), (&heavier, 2));
}

#[tokio::test]
async fn returning_server_is_called_again() {
    let servers = servers(1).await;
    let prober = Prober::default();
    let server = Prober::default().server().bind(&*free_address()).await.unwrap().start();
    let gone = instance(&server);
    let registry = Registry::new([&servers[0].1, &server]);
    let client = client(registry);
    echo(&client).await.unwrap();
    server.shutdown(Duration::ZERO).await;
    let well = |client: &Client| client.endpoints().iter().filter(|facts| facts.available).count();
    soon(async {
        while well(&client) == 2 {
            echo_again(&client).await.unwrap();
        }
    })
    .await;
    let back = prober.server().bind(&*gone.address).await.unwrap().start();
    until(|| well(&client) == 2).await;
    for _ in 0..50 {
        echo(&client).await.unwrap();
    }
    assert!(prober.ran() > 0);
    drop(back);
}

#[tokio::test]
async fn flapping_and_failing_registry_fails_no_call() {
    let servers = servers(3).await;
    let all: Vec<_> = running(&servers).map(instance).collect();
    for every in [100, 10, 1].map(Duration::from_millis) {
        let registry = Registry::new(running(&servers));
        let first = First::default();
        let client = builder(Protocol::Rpcx, registry.clone())
            .balance(CountingBalancer(first.clone()))
            .build()
            .unwrap();
        echo(&client).await.unwrap();
        let callers = Callers::start(&client);
        let began = Instant::now();
        for round in 0.. {
            match round % 7 {
                0 => registry.announce(all.iter().rev().cloned()),
                1 => registry.announce(all.iter().chain(&all).chain(&all[..1]).cloned()),
                2 => registry.announce(all.iter().cloned().chain(malformed())),
                3 => registry.fail("flapping"),
                4 => registry.announce(all[round / 7 % 3..][..1].iter().cloned()),
                5 => registry.announce([]),
                _ => registry.announce(all.iter().cloned().chain(many())),
            }
            tokio::time::sleep(every).await;
            if round >= 14 && first.sets.load(Ordering::SeqCst) > 8 {
                break;
            }
        }
        let (took, sets) = (began.elapsed(), first.sets.load(Ordering::SeqCst));
        callers.stop().await;
        // One set was made before the first of these, and one may be due at either end.
        assert!(sets as f64 <= took.as_secs_f64() * 20.0 + 2.0, "every {every:?}: {sets} sets in {took:?}");
    }
}

#[tokio::test]
async fn endless_registry_updates_fail_no_call() {
    let servers = servers(2).await;
    let first = First::default();
    let talker = Talker(running(&servers).map(instance).collect());
    let client = builder(Protocol::Rpcx, talker).balance(CountingBalancer(first.clone())).build().unwrap();
    let began = Instant::now();
    // Its first set may be empty.
    soon(async {
        while echo(&client).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let callers = Callers::start(&client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (took, sets) = (began.elapsed(), first.sets.load(Ordering::SeqCst));
    callers.stop().await;
    assert!((1.0..=took.as_secs_f64() * 20.0 + 2.0).contains(&(sets as f64)), "{sets} sets in {took:?}");
}

/// A registry that yields another set each time it is polled.
struct Talker(Vec<Instance>);

impl Discover for Talker {
    fn watch(&self) -> InstanceStream {
        let all = self.0.clone();
        stream::iter(0_u64..)
            .map(move |turn| match turn % 3 {
                0 => Err(Status::unavailable(format!("failure {turn}")).into()),
                1 => Ok(Vec::new()),
                _ => Ok(all.iter().cloned().map(|one| one.with(attribute("turn", turn))).collect()),
            })
            .boxed()
    }
}

fn attribute(name: &str, value: u64) -> Attributes {
    Attributes::new().with(name, value.to_string())
}

/// Round robin that counts its snapshots.
#[derive(Debug)]
struct CountingBalancer(First);

impl LoadBalancer for CountingBalancer {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        self.0.sets.fetch_add(1, Ordering::SeqCst);
        Policy::round_robin().picker(candidates)
    }
}

/// Callers that call without a pause, and accept no failure.
struct Callers {
    stop: watch::Sender<bool>,
    callers: Vec<tokio::task::JoinHandle<Result<usize>>>,
}

impl Callers {
    fn start(client: &Client) -> Self {
        let stop = watch::Sender::new(false);
        let callers = (0..64).map(|_| {
            let (client, stop) = (client.clone(), stop.subscribe());
            tokio::spawn(async move {
                let mut made = 0;
                while !*stop.borrow() {
                    client.call::<String>("Probe/Echo", &"x").await?;
                    made += 1;
                }
                Ok(made)
            })
        });
        Self { callers: callers.collect(), stop }
    }

    /// Stops them, and returns the number of calls.
    async fn stop(self) -> usize {
        self.stop.send_replace(true);
        let mut made = 0;
        for caller in self.callers {
            made += soon(caller).await.unwrap().unwrap();
        }
        made
    }
}

/// Malformed instances.
fn malformed() -> impl Iterator<Item = Instance> {
    let texts = ["", ":80", "h", "h:0", "h:99999", "\0:1", "unix:/x", "a b:x"];
    texts.into_iter().map(Instance::tcp)
}

/// A very large number of instances, after all others in the order of addresses.
fn many() -> impl Iterator<Item = Instance> {
    (0..10_000).map(|n| Instance::tcp(format!("server-{n}.invalid:1")))
}

#[tokio::test]
async fn ten_thousand_mostly_dead_servers_fail_no_call() {
    let servers = servers(3).await;
    let registry = Registry::silent();
    let dead = (1..=10_000_u32).map(|n| Instance::tcp(format!("127.{}.{}.1:1", 1 + n / 250, n % 250)));
    registry.announce(dead.chain(running(&servers).map(instance)));
    let client = client(registry);
    let callers = Callers::start(&client);
    until(|| servers.iter().map(|(prober, _)| prober.ran()).sum::<usize>() > 1000).await;
    callers.stop().await;
}

#[tokio::test]
async fn watch_ends_with_the_last_clone_of_the_client() {
    let servers = servers(1).await;
    let registry = Registry::new(running(&servers));
    let client = client(registry.clone());
    assert_eq!(registry.watchers(), 0, "nothing is asked before the first call");
    let clone = client.clone();
    echo(&client).await.unwrap();
    drop(client);
    echo(&clone).await.unwrap();
    assert_eq!(registry.watchers(), 1);
    drop(clone);
    until(|| registry.watchers() == 0 && servers[0].1.connection_count() == 0).await;
}

#[test]
fn client_outlives_the_runtime_of_its_first_call() {
    let (_runtime, server) = serve_apart(Prober::default().server());
    let registry = Registry::new([&server]);
    let client = client(registry.clone());
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            echo_again(&client).await.unwrap();
            until(|| registry.watchers() == 1).await;
        });
    }
}

#[tokio::test]
async fn balancer_receives_the_hash_key_and_outcome_of_each_call() {
    let servers = servers(1).await;
    let first = First::default();
    let client =
        builder(Protocol::Rpcx, Registry::new(running(&servers))).balance(first.clone()).build().unwrap();
    let keyed = Request::new("x".to_owned()).with_key(7);
    client.invoke::<Serde, String, String>(&ECHO, keyed).await.unwrap();
    client.call::<String>("Probe/Nothing", &()).await.unwrap_err();
    assert_eq!(*first.keys.lock().unwrap(), [Some(7), None]);
    assert_eq!(*first.failures.lock().unwrap(), [Code::Unimplemented]);
    assert_eq!(first.begun.load(Ordering::SeqCst), 2);
    assert_eq!(first.under_way.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn single_server_client_retries_if_configured() {
    let (tries, server) = failing(busy()).await;
    let url = format!("rpcx://{}", server.address());
    assert!(echo(&Client::new(&url).unwrap()).await.is_err());
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    assert!(echo(&Client::builder(&url).retries(2).build().unwrap()).await.is_err());
    assert_eq!(tries.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn instances_are_reached_over_their_network() {
    let prober = Prober::default();
    let path = std::env::temp_dir().join(format!("polyrpc-channel-{}.sock", std::process::id()));
    let server = prober.server().bind("127.0.0.1:0").await.unwrap();
    let server = server.and(&*format!("unix:{}", path.display())).await.unwrap().start();
    let address = server.address().to_string();
    let unix = format!("unix@{}", path.display());
    for (protocol, networks) in [
        (Protocol::Rpcx, &["tcp", "ws", "http"][..]),
        (Protocol::NetRpc, &["tcp", "http"]),
        (Protocol::Http, &["tcp", "http", "ws"]),
        (Protocol::Grpc, &["tcp", "ws"]),
        (Protocol::BaiduStd, &["tcp", "ws"]),
    ] {
        let instances = networks.iter().map(|network| format!("{network}@{address}")).chain([unix.clone()]);
        for instance in instances {
            let client = builder(protocol, List::new([instance.parse().unwrap()])).build().unwrap();
            assert_eq!(echo(&client).await.unwrap(), "hello", "{protocol:?} {instance}");
        }
    }
    let client = Client::new(&format!("rpcx://{address}?transport=http-connect")).unwrap();
    assert_eq!(echo(&client).await.unwrap(), "hello");
    drop(server);
    let _ = std::fs::remove_file(path);
}

#[tokio::test]
async fn streams_fail_over_until_started() {
    let numbers = || {
        let service = ServiceBuilder::new("S").bidi_streaming::<Raw, String, String, _, _>(
            "Chat",
            |cx: Context, messages: Streaming<String>| async move { (cx, Ok(messages)) },
        );
        Server::new().service(service)
    };
    for protocol in [Protocol::Grpc, Protocol::BaiduStd] {
        let server = serve(numbers()).await;
        let registry = Registry::silent();
        registry.announce([unreachable_instance(), instance(&server)]);
        let first = First::default();
        let client = builder(protocol, registry).balance(first.clone()).build().unwrap();
        for _ in 0..4 {
            let mut call =
                soon(client.open_raw("S/Chat", CallOptions::default(), Format::Raw)).await.unwrap();
            call.send("one").await.unwrap();
            assert_eq!(soon(call.next()).await.unwrap().unwrap().bytes, "one", "{protocol:?}");
            assert_eq!(client.endpoints().iter().map(|facts| facts.in_flight).sum::<usize>(), 1);
            drop(call);
            until(|| client.endpoints().iter().all(|facts| facts.in_flight == 0)).await;

            let chat = StubMethod::plain("S", "Chat");
            let texts = Streaming::from_iter(["a".to_owned(), "b".to_owned()]);
            let answer = soon(client.invoke_streaming::<Raw, String, String>(&chat, texts)).await.unwrap();
            let mut answer = answer.message;
            assert_eq!(soon(answer.message()).await.unwrap().unwrap(), "a");
            assert_eq!(soon(answer.message()).await.unwrap().unwrap(), "b");
        }
    }
}

#[tokio::test]
async fn subscription_continues_on_another_server() {
    let (one, other) = (Server::new().allow_publish(), Server::new().allow_publish());
    let publishers = [one.publisher(), other.publisher()];
    let mut servers = vec![serve(one).await, serve(other).await];
    let client = builder(Protocol::RestRpc, Registry::new(&servers)).build().unwrap();
    let mut topic = client.subscribe::<String>("topic", "").await.unwrap();
    let publishing = |publishers: [Publisher; 2]| async move {
        loop {
            for publisher in &publishers {
                let _ = publisher.publish("topic", "", &"news".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let publishing = tokio::spawn(publishing(publishers));
    assert_eq!(soon(topic.message()).await.unwrap().unwrap(), "news");
    let serving = servers.iter().position(|server| server.connection_count() > 0).unwrap();
    servers.remove(serving).shutdown(Duration::ZERO).await;
    soon(async {
        while servers[0].connection_count() == 0 {
            let _ = topic.message().now_or_never();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(soon(topic.message()).await.unwrap().unwrap(), "news");
    publishing.abort();
}

#[tokio::test]
async fn byte_streams_connect_to_the_server_that_granted_them() {
    let streams = Streams::new(|mut stream: ByteStream, _| async move {
        stream.write_all(b"hello").await?;
        Ok(())
    });
    // It announces its listening address, which is the unspecified one.
    let server = Server::new().streams(streams).bind("0.0.0.0:0").await.unwrap().start();
    let port = server.address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let client = client(List::new([Instance::tcp(format!("127.0.0.1:{port}"))]));
    let mut stream = soon(client.byte_stream(&HashMap::new())).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "hello");
}

#[test]
fn blocking_client_rejects_several_servers() {
    for builder in [
        Client::builder("rpcx+list://127.0.0.1:1,127.0.0.1:2"),
        Client::builder("rpcx://x").discover(List::new([])),
        Client::builder("rpcx://127.0.0.1:1").retries(3),
    ] {
        let error = builder.build_blocking().unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{error}");
    }
}

#[test]
fn invalid_url_of_several_servers_names_the_cause() {
    for (url, why) in [
        ("rpcx+list://", "expected host:port"),
        ("rpcx+list://a", "expected network@host:port"),
        ("rpcx+lst://a:1", "`+lst` is neither `+tls` nor a registry"),
        ("ftp+list://a:1", "unknown protocol `ftp`: expected"),
        ("rpcx+kcp+list://a:1", "a URL has at most one registry"),
        ("rpcx+list://a:1?transport=unix", "`transport=unix` is not allowed with a registry"),
        ("rpcx+list://a:1?trnsport=ws", "the parameter `trnsport` is unknown: `list` has none"),
    ] {
        let error = Client::new(url).unwrap_err();
        assert!(error.message().contains(why), "{url}: {error}");
    }
}

#[tokio::test]
async fn many_callers_share_the_servers() {
    let servers = servers(3).await;
    let client = client(Registry::new(running(&servers)));
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    client.call::<String>("Probe/Echo", &"x").await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for caller in callers {
        soon(caller).await.unwrap().unwrap();
    }
    assert_eq!(servers.iter().map(|(prober, _)| prober.ran()).sum::<usize>(), 64 * 50);
    let connections: HashSet<_> = running(&servers).map(ServerHandle::connection_count).collect();
    assert_eq!(connections, HashSet::from([1]));
}

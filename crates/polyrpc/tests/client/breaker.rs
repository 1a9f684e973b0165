//! Ejection of failing servers, and their return.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use polyrpc::client::balance::Policy;
use polyrpc::client::{Builder, CircuitBreaker, EndpointInfo, FailMode, HealthCheck};
use polyrpc::codec::Serde;
use polyrpc::discovery::{Instance, List};
use polyrpc::introspection::ServingStatus;
use polyrpc::server::ServerHandle;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Protocol, Server, Status, introspection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::common::{Prober, free_address, serve, soon, until};

const LONG: Duration = Duration::from_secs(60);

/// A server that fails on demand.
#[derive(Clone, Default)]
struct ChangingServer {
    fails: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl ChangingServer {
    fn failing() -> Self {
        let moody = Self::default();
        moody.fails.store(true, Ordering::SeqCst);
        moody
    }

    fn server(&self, failure: Status) -> Server {
        let moody = self.clone();
        let answer = move |cx: Context, text: String| {
            moody.calls.fetch_add(1, Ordering::SeqCst);
            let fails = moody.fails.load(Ordering::SeqCst);
            let failure = failure.clone();
            async move { (cx, if fails { Err(failure.into()) } else { Ok(text) }) }
        };
        let service = ServiceBuilder::new("Probe").method::<Serde, String, String, _, _>("Echo", answer);
        Server::new().service(service)
    }

    async fn serve(&self) -> ServerHandle {
        serve(self.server(Status::internal("moody"))).await
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn builder<'s>(protocol: Protocol, servers: impl IntoIterator<Item = &'s ServerHandle>) -> Builder {
    let instances = servers.into_iter().map(|server| Instance::tcp(server.address().to_string()));
    Client::builder(&format!("{}://some", protocol.as_str()))
        .discover(List::new(instances))
        // The default load balancer would avoid a failing server.
        .balance(Policy::round_robin())
        .fail_mode(FailMode::Failfast)
}

/// Ejects a server after three failures.
fn three() -> CircuitBreaker {
    CircuitBreaker::consecutive(3, LONG)
}

async fn echo(client: &Client) -> polyrpc::client::Result<String> {
    soon(client.call("Probe/Echo", &"hello")).await
}

fn count(client: &Client, which: impl Fn(&EndpointInfo) -> bool) -> usize {
    client.endpoints().iter().filter(|facts| which(facts)).count()
}

fn ejected(client: &Client) -> usize {
    count(client, |facts| facts.ejected)
}

fn available(client: &Client) -> usize {
    count(client, |facts| facts.available)
}

/// Calls until this many servers are ejected.
async fn until_ejected(client: &Client, servers: usize) {
    soon(async {
        while ejected(client) != servers {
            let _ = echo(client).await;
        }
    })
    .await;
}

#[tokio::test]
async fn failing_server_is_ejected_and_returns_over_every_protocol() {
    for protocol in crate::common::PROTOCOLS {
        let (bad, good) = (ChangingServer::failing(), ChangingServer::default());
        let servers = [bad.serve().await, good.serve().await];
        let breaker = three().ejection_time(Duration::from_secs(1), LONG);
        let client = builder(protocol, &servers).circuit_breaker(breaker).build().unwrap();
        until_ejected(&client, 1).await;
        let before = bad.calls();
        while ejected(&client) == 1 && good.calls() < 20 {
            echo(&client).await.unwrap();
        }
        assert_eq!(bad.calls(), before, "{protocol:?}");
        bad.fails.store(false, Ordering::SeqCst);
        until(|| available(&client) == 2).await;
        let before = bad.calls();
        for _ in 0..4 {
            echo(&client).await.unwrap();
        }
        assert!(bad.calls() > before, "{protocol:?}");
    }
}

#[tokio::test]
async fn half_of_the_servers_stay_if_all_fail() {
    let moody: Vec<_> = (0..5).map(|_| ChangingServer::failing()).collect();
    let mut servers = Vec::new();
    for moody in &moody {
        servers.push(moody.serve().await);
    }
    for (most, want) in [(0.5, 2), (1.0, 4), (0.0, 0), (0.01, 1)] {
        let breaker = three().ejection_time(LONG, LONG).max_ejection_ratio(most);
        let client = builder(Protocol::Rpcx, &servers).circuit_breaker(breaker).build().unwrap();
        for _ in 0..200 {
            echo(&client).await.unwrap_err();
            assert!(ejected(&client) <= want, "{most}");
        }
        assert_eq!((ejected(&client), available(&client)), (want, 5 - want), "{most}");
    }
}

#[tokio::test]
async fn only_server_is_never_ejected() {
    let bad = ChangingServer::failing();
    let server = bad.serve().await;
    let breaker = three().max_ejection_ratio(1.0);
    let client = builder(Protocol::BaiduStd, [&server]).circuit_breaker(breaker).build().unwrap();
    for _ in 0..50 {
        echo(&client).await.unwrap_err();
    }
    assert_eq!((bad.calls(), ejected(&client)), (50, 0));
}

#[tokio::test]
async fn overload_and_caller_errors_are_not_failures() {
    for status in [Status::resource_exhausted("request reached rate limit"), Status::invalid_argument("no")] {
        for protocol in [Protocol::BaiduStd, Protocol::Grpc] {
            let servers = [
                serve(ChangingServer::failing().server(status.clone())).await,
                serve(ChangingServer::failing().server(status.clone())).await,
            ];
            let client = builder(protocol, &servers).circuit_breaker(three()).build().unwrap();
            for _ in 0..50 {
                assert_eq!(echo(&client).await.unwrap_err().status().code(), status.code());
            }
            assert_eq!(available(&client), 2, "{protocol:?} {status}");
        }
    }
}

#[tokio::test]
async fn timed_out_calls_are_failures() {
    let prober = Prober::default();
    let servers = [serve(prober.server()).await, serve(prober.server()).await];
    let client = builder(Protocol::Rpcx, &servers)
        .timeout(Duration::from_millis(50))
        .circuit_breaker(three().ejection_time(LONG, LONG))
        .build()
        .unwrap();
    soon(async {
        while ejected(&client) == 0 {
            let ended: polyrpc::client::Result<String> = client.call("Probe/Wait", &"x").await;
            assert_eq!(ended.unwrap_err().status().code(), Code::DeadlineExceeded);
        }
    })
    .await;
    prober.gate.open();
}

#[tokio::test]
async fn half_open_server_that_fails_is_ejected_at_once() {
    let (bad, good) = (ChangingServer::failing(), ChangingServer::default());
    let servers = [bad.serve().await, good.serve().await];
    let breaker = three().ejection_time(Duration::from_millis(50), LONG).half_open(10);
    let client = builder(Protocol::Rpcx, &servers).circuit_breaker(breaker).build().unwrap();
    until_ejected(&client, 1).await;
    let before = bad.calls();
    until(|| ejected(&client) == 0).await;
    until_ejected(&client, 1).await;
    assert_eq!(bad.calls(), before + 1);
}

#[tokio::test]
async fn server_returns_when_its_health_check_passes() {
    let (bad, good) = (ChangingServer::failing(), ChangingServer::default());
    let health = introspection::Health::new();
    health.set("Probe", ServingStatus::NotServing);
    let server = serve(bad.server(Status::internal("moody")).health(&health)).await;
    let servers = [server, good.serve().await];
    for protocol in [Protocol::Grpc, Protocol::Rpcx, Protocol::BaiduStd] {
        health.set("Probe", ServingStatus::NotServing);
        bad.fails.store(true, Ordering::SeqCst);
        let client = builder(protocol, &servers)
            .circuit_breaker(three().ejection_time(Duration::from_millis(1), LONG))
            .health_check(HealthCheck::grpc("Probe").interval(Duration::from_millis(20)))
            .build()
            .unwrap();
        until_ejected(&client, 1).await;
        let before = bad.calls();
        for _ in 0..5 {
            echo(&client).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((bad.calls(), ejected(&client)), (before, 1), "{protocol:?}");
        bad.fails.store(false, Ordering::SeqCst);
        health.set("Probe", ServingStatus::Serving);
        until(|| available(&client) == 2).await;
    }
}

#[tokio::test]
async fn servers_with_failing_health_checks_receive_no_calls() {
    let (one, two) = (introspection::Health::new(), introspection::Health::new());
    let unwell = Prober::default();
    let servers =
        [serve(unwell.server().health(&one)).await, serve(Prober::default().server().health(&two)).await];
    let client = builder(Protocol::Grpc, &servers)
        .health_check(HealthCheck::grpc("Probe").interval(Duration::from_millis(10)).timeout(LONG).always())
        .build()
        .unwrap();
    echo(&client).await.unwrap();
    one.set("Probe", ServingStatus::NotServing);
    until(|| available(&client) == 1).await;
    let before = unwell.ran();
    for _ in 0..20 {
        echo(&client).await.unwrap();
    }
    assert_eq!(unwell.ran(), before);
    one.set("Probe", ServingStatus::Serving);
    until(|| available(&client) == 2).await;
    soon(async {
        while unwell.ran() == before {
            echo(&client).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn heartbeat_health_check_detects_dead_servers() {
    let server = serve(Prober::default().server()).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let instances = [server.address().to_string(), silent.local_addr().unwrap().to_string()];
    let list = List::new(instances.clone().map(Instance::tcp));
    // A check of the other server must outlast a stall of the machine.
    let health =
        HealthCheck::heartbeat().interval(Duration::from_millis(20)).timeout(Duration::from_secs(3)).always();
    let client =
        Client::builder("rpcx://some").discover(list).timeout(LONG).health_check(health).build().unwrap();
    // It may go to the silent server.
    let _ = tokio::time::timeout(Duration::from_millis(500), echo(&client)).await;
    let is_detected = |facts: &EndpointInfo| facts.available == (facts.instance.address == instances[0]);
    soon(async {
        while client.endpoints().len() < 2 || !client.endpoints().iter().all(is_detected) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for _ in 0..10 {
        echo(&client).await.unwrap();
    }
}

/// Answers every HTTP request with the given status.
async fn server_answering(status: Arc<AtomicUsize>) -> Instance {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let status = status.clone();
            tokio::spawn(async move {
                let mut request = [0; 512];
                let n = socket.read(&mut request).await.unwrap_or(0);
                if request[..n].starts_with(b"GET /health HTTP/1.1\r\n") {
                    let status = status.load(Ordering::SeqCst);
                    let answer = format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n");
                    let _ = socket.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    Instance::tcp(address)
}

#[tokio::test]
async fn http_health_check_detects_unhealthy_servers() {
    let status = Arc::new(AtomicUsize::new(503));
    let list =
        List::new([server_answering(status.clone()).await, server_answering(Arc::new(204.into())).await]);
    let client = Client::builder("rpcx://some")
        .discover(list)
        .timeout(Duration::from_millis(50))
        .health_check(HealthCheck::http("/health").interval(Duration::from_millis(10)).always())
        .build()
        .unwrap();
    let _ = echo(&client).await;
    until(|| available(&client) == 1).await;
    status.store(200, Ordering::SeqCst);
    until(|| available(&client) == 2).await;
}

// Rejected calls never wait: on a single thread, other tasks would not run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_resume_gradually_after_all_servers_were_down() {
    let gone = free_address();
    let client = Client::builder("rpcx://some")
        .discover(List::new([Instance::tcp(&*gone)]))
        .cluster_recovery(2, Duration::from_millis(200))
        .build()
        .unwrap();
    soon(async {
        loop {
            let error = echo(&client).await.unwrap_err();
            let status = error.status();
            if status.number() == Some(1018) {
                assert_eq!(status.code(), Code::Unavailable);
                break;
            }
        }
    })
    .await;
    let prober = Prober::default();
    let server = prober.server().bind(&*gone).await.unwrap().start();
    // Half of the calls at first, finally all.
    let mut in_a_row = 0;
    soon(async {
        while in_a_row < 100 {
            match echo(&client).await {
                Ok(_) => in_a_row += 1,
                Err(error) => {
                    assert_eq!(error.status().number(), Some(1018), "{error}");
                    in_a_row = 0;
                }
            }
        }
    })
    .await;
    drop(server);
}

#[tokio::test]
async fn health_checks_end_with_the_client() {
    let status = Arc::new(AtomicUsize::new(503));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let health =
        HealthCheck::http("/health").interval(Duration::from_millis(5)).timeout(Duration::from_millis(20));
    let client = Client::builder("rpcx://some")
        .discover(List::new([Instance::tcp(address), server_answering(status).await]))
        .timeout(Duration::from_millis(20))
        .health_check(health.always())
        .build()
        .unwrap();
    let _ = echo(&client).await;
    for _ in 0..3 {
        drop(soon(listener.accept()).await.unwrap());
    }
    drop(client);
    // Probes already sent are answered; then there are none.
    let quiet =
        async { while tokio::time::timeout(Duration::from_millis(200), listener.accept()).await.is_ok() {} };
    soon(quiet).await;
}

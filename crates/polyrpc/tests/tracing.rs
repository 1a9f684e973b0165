//! Events and spans of `tracing`: connections, calls, attempts and failures.

mod common;

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use common::{PATIENCE, Prober, serve, unreachable_address};
use polyrpc::client::balance::Policy;
use polyrpc::client::{CircuitBreaker, FailMode};
use polyrpc::discovery::{Instance, List};
use polyrpc::{Client, Server, Status};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Every event, with its spans: `connection{…}/call{…}: WARN message field=value`.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn reported() -> Vec<String> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Waits for an event that contains all of this.
async fn wait_for_event(wanted: &[&str]) -> String {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            let found = reported().into_iter().find(|line| wanted.iter().all(|part| line.contains(part)));
            match found {
                Some(line) => return line,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    found.unwrap_or_else(|_| panic!("{wanted:?} is not among\n{}", reported().join("\n")))
}

/// Records all events of this library.
struct Recorder {
    next: AtomicU64,
    spans: Mutex<HashMap<u64, String>>,
}

thread_local! {
    static WITHIN: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn record() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let recorder = Recorder { next: AtomicU64::new(1), spans: Mutex::default() };
        tracing::subscriber::set_global_default(recorder).expect("there is no other");
    });
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("polyrpc") && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut fields = Fields::default();
        span.record(&mut fields);
        let text = format!("{}{{{}}}", span.metadata().name(), fields.0.trim_start());
        self.spans.lock().unwrap().insert(id, text);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let spans = self.spans.lock().unwrap();
        let within = WITHIN.with_borrow(|within| {
            within.iter().filter_map(|id| spans.get(id).cloned()).collect::<Vec<_>>().join("/")
        });
        let metadata = event.metadata();
        let line = format!("{within}: {} {}:{}", metadata.level(), metadata.target(), fields.0);
        TOLD.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn enter(&self, span: &Id) {
        WITHIN.with_borrow_mut(|within| within.push(span.into_u64()));
    }

    fn exit(&self, _: &Id) {
        WITHIN.with_borrow_mut(|within| {
            within.pop();
        });
    }
}

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, " {}={value}", field.name());
    }
}

#[tokio::test]
async fn connections_calls_and_attempts_are_logged_with_their_fields() {
    record();
    let handler = || async {
        tracing::debug!(target: "polyrpc::test", "in the handler");
        "done".to_owned()
    };
    let server = Server::new()
        .function("Traced/Work", handler)
        .function("Traced/Fail", || async { Err::<String, _>(Status::not_found("no such thing")) });
    let server = serve(server).await;
    let address = server.address().to_string();
    let client = Client::new(&format!("rpcx://{address}")).unwrap();
    client.call::<String>("Traced/Work", &()).await.unwrap();
    client.call::<String>("Traced/Fail", &()).await.unwrap_err();

    let accepted =
        wait_for_event(&["polyrpc::server: message=a connection was accepted", "connection{connection="])
            .await;
    assert!(accepted.contains("peer=127.0.0.1:"), "{accepted}");
    wait_for_event(&["polyrpc::client: message=connection established", &format!("server={address}")]).await;
    let within = wait_for_event(&["in the handler"]).await;
    for part in ["connection{connection=", "call{service=Traced method=Work protocol=rpcx peer=127.0.0.1:"] {
        assert!(within.contains(part), "{part} in {within}");
    }
    wait_for_event(&["polyrpc::server: message=the call ended", "method=Work", "took="]).await;
    wait_for_event(&[
        "polyrpc::server: message=the call failed",
        "method=Fail",
        "code=not found",
        "no such thing",
    ])
    .await;
    wait_for_event(&[
        "polyrpc::client: message=the call ended",
        "call{service=Traced method=Work protocol=rpcx}",
    ])
    .await;
    let attempt = wait_for_event(&["polyrpc::client: message=the attempt failed", "method=Fail"]).await;
    assert!(attempt.contains(&format!("attempt{{server={address}}}")), "{attempt}");
    server.shutdown(PATIENCE).await;
    let ended =
        wait_for_event(&["polyrpc::server: message=a connection ended", "protocol=rpcx", "calls=2 failed=1"])
            .await;
    assert!(ended.contains("received=") && ended.contains("sent="), "{ended}");
}

#[tokio::test]
async fn ejections_and_retries_are_logged() {
    record();
    async fn ill(_: String) -> Result<String, Status> {
        Err(Status::internal("ill"))
    }
    async fn moody() -> Result<String, Status> {
        Err(Status::unavailable("moody"))
    }
    let broken = serve(Server::new().function("Ejected/Work", moody).function("Ejected/Ill", ill)).await;
    let sound = Server::new().function("Ejected/Work", || async { "done".to_owned() });
    let sound = serve(sound.function("Ejected/Ill", |text: String| async move { text })).await;
    let address = broken.address().to_string();
    let list = List::new([&broken, &sound].map(|server| Instance::tcp(server.address().to_string())));
    let client = Client::builder("grpc://two")
        .discover(list)
        .fail_mode(FailMode::Failover)
        // The default load balancer would avoid a failing server.
        .balance(Policy::round_robin())
        .circuit_breaker(CircuitBreaker::consecutive(2, Duration::from_secs(10)))
        .idempotent()
        .build()
        .unwrap();
    for _ in 0..20 {
        client.call::<String>("Ejected/Work", &()).await.unwrap();
    }
    wait_for_event(&["retrying the call", "service=Ejected", "error=moody"]).await;
    // A busy server is not a failing one.
    for _ in 0..20 {
        let _ = client.call::<String>("Ejected/Ill", "x").await;
    }
    wait_for_event(&["WARN", "endpoint ejected after too many failures", &format!("server={address}")]).await;
}

#[tokio::test]
async fn panicking_handlers_and_unreachable_servers_are_logged() {
    record();
    async fn panics() -> String {
        panic!("as asked by the test")
    }
    let server = serve(Server::new().function("Panics/Now", panics)).await;
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    client.call::<String>("Panics/Now", &()).await.unwrap_err();
    let panicked = ["ERROR", "a handler panicked", "as asked by the test", "connection{"];
    wait_for_event(&panicked).await;
    wait_for_event(&["a handler panicked", "service=Panics", "method=Now", "peer=127.0.0.1:"]).await;

    let address = unreachable_address();
    let client = Client::new(&format!("rpcx://{address}")).unwrap();
    client.call::<String>("Panics/Now", &()).await.unwrap_err();
    wait_for_event(&["WARN", "server unreachable", &address]).await;
}

#[tokio::test]
async fn lame_duck_phase_is_logged() {
    record();
    let server = serve(Prober::default().server().lame_duck(Duration::from_millis(1))).await;
    server.shutdown(PATIENCE).await;
    wait_for_event(&["INFO", "the server is going away", "lame_duck=1ms"]).await;
}

#[tokio::test]
async fn shutdown_logs_finished_and_aborted_calls() {
    record();
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let probe = |protocol| common::ProbeClient::new(common::client(protocol, &server));
    let stuck: Vec<_> = [polyrpc::Protocol::Rpcx, polyrpc::Protocol::Grpc]
        .map(|protocol| {
            let probe = probe(protocol);
            tokio::spawn(async move { probe.wait("x".into()).await })
        })
        .into();
    prober.gate.came(2).await;
    server.shutdown(Duration::from_millis(50)).await;
    wait_for_event(&["INFO", "the server has shut down", "finished=0", "aborted=2", "took="]).await;
    for call in stuck {
        assert!(common::soon(call).await.unwrap().is_err());
    }

    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let probe = common::ProbeClient::new(common::client(polyrpc::Protocol::Rpcx, &server));
    let call = tokio::spawn(async move { probe.wait("x".into()).await });
    prober.gate.came(1).await;
    let shutting = tokio::spawn(server.shutdown(PATIENCE));
    prober.gate.open();
    common::soon(shutting).await.unwrap();
    assert_eq!(common::soon(call).await.unwrap().unwrap(), "x");
    wait_for_event(&["INFO", "the server has shut down", "finished=1", "aborted=0"]).await;
}

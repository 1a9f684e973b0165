//! The client: connections, early ends of calls, and runtimes.

use std::collections::HashSet;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use polyrpc::client::{Backoff, ConnectionMode, Hook, Request, StubMethod};
use polyrpc::codec::Serde;
use polyrpc::server::Limits;
use polyrpc::{Address, Client, Code, Context, Cores, Protocol, Push, Result, Retry, Server, Status};
use polyrpc_core::session::ClientEvent;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::common::{
    Gate, PATIENCE, PROTOCOLS, ProbeBlockingClient, ProbeClient, Prober, Wire, again, client, free_address,
    json_call, serve, serve_apart, soon, unreachable_address, until, url,
};

/// Two of the three multiplex calls on a connection.
const MULTIPLEXED: [Protocol; 2] = [Protocol::BaiduStd, Protocol::Rpcx];

const ECHO: StubMethod = StubMethod::plain("Probe", "Echo");

#[tokio::test]
async fn connection_mode_selects_shared_or_pooled_connections() {
    for protocol in PROTOCOLS {
        for kind in [ConnectionMode::Shared, ConnectionMode::Pooled, ConnectionMode::Short] {
            let prober = Prober::default();
            let server = serve(prober.server()).await;
            let client = Client::builder(&url(protocol, &server)).connection_mode(kind).build().unwrap();
            let probe = ProbeClient::new(client);
            let case = format!("{protocol:?} {kind:?}");

            // Sequential calls.
            let mut peers = HashSet::new();
            for _ in 0..5 {
                peers.insert(soon(probe.peer()).await.expect(&case));
            }
            assert_eq!(peers.len(), if kind == ConnectionMode::Short { 5 } else { 1 }, "{case}");

            // Concurrent calls.
            let waiting: Vec<_> = (0..10)
                .map(|n: u32| {
                    let probe = probe.clone();
                    tokio::spawn(async move { probe.wait(n.to_string()).await })
                })
                .collect();
            prober.gate.came(10).await;
            let shared = kind == ConnectionMode::Shared && protocol != Protocol::Http;
            until(|| server.connection_count() == if shared { 1 } else { 10 }).await;
            prober.gate.open();
            for (n, waiting) in waiting.into_iter().enumerate() {
                assert_eq!(soon(waiting).await.unwrap().unwrap(), n.to_string(), "{case}");
            }
            if kind == ConnectionMode::Short {
                until(|| server.connection_count() == 0).await;
            }
            drop(probe);
            until(|| server.connection_count() == 0).await;
        }
    }
}

#[tokio::test]
async fn concurrent_first_callers_make_one_connection() {
    for protocol in MULTIPLEXED {
        let server = serve(Prober::default().server()).await;
        let probe = ProbeClient::new(client(protocol, &server));
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let probe = probe.clone();
                tokio::spawn(async move { probe.peer().await })
            })
            .collect();
        let mut peers = HashSet::new();
        for caller in callers {
            peers.insert(soon(caller).await.unwrap().unwrap());
        }
        assert_eq!(peers.len(), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn pool_keeps_at_most_its_maximum_of_connections() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let client = Client::builder(&url(Protocol::Http, &server))
        .connection_mode(ConnectionMode::Pooled)
        .max_idle_connections(2)
        .build()
        .unwrap();
    let probe = ProbeClient::new(client);
    let waiting: Vec<_> = (0..6)
        .map(|_| {
            let probe = probe.clone();
            tokio::spawn(async move { probe.wait("a".into()).await })
        })
        .collect();
    prober.gate.came(6).await;
    prober.gate.open();
    for waiting in waiting {
        soon(waiting).await.unwrap().unwrap();
    }
    until(|| server.connection_count() == 2).await;
    soon(probe.echo("b".into())).await.unwrap();
}

#[tokio::test]
async fn missing_server_is_reported_at_once() {
    let address = unreachable_address();
    for protocol in PROTOCOLS {
        let url = format!("{}://{address}", protocol.as_str());
        for kind in [ConnectionMode::Shared, ConnectionMode::Pooled, ConnectionMode::Short] {
            let client = Client::builder(&url).connection_mode(kind).build().unwrap();
            let error = soon(client.call::<()>("f", &())).await.unwrap_err();
            assert_eq!(error.code(), Code::Unavailable);
            assert!(error.message().starts_with(&format!("cannot connect to {address}: ")), "{error}");
            assert!(error.message().to_lowercase().contains("refused"), "{error}");
            assert_eq!(error.status().retry(), Retry::Elsewhere);
        }
    }
    let blocking = polyrpc::blocking::Client::new(&format!("rpcx://{address}")).unwrap();
    let error = blocking.call::<()>("f", &()).unwrap_err();
    assert!(error.message().starts_with(&format!("cannot connect to {address}: ")), "{error}");
    let error = Client::new("rpcx://no.such.host.invalid:1").unwrap().call::<()>("f", &()).await.unwrap_err();
    assert!(error.message().starts_with("cannot connect to no.such.host.invalid:1: "), "{error}");
}

#[tokio::test]
async fn connect_timeout_applies_to_an_unresponsive_server() {
    // A listener that does not accept and whose backlog is full.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(100), tokio::net::TcpStream::connect(address)).await
    {
        queued.push(stream);
    }
    let url = format!("baidu-std://{address}");
    let builder = || Client::builder(&url).connect_timeout(Duration::from_millis(50));
    let error = soon(builder().build().unwrap().call::<()>("f", &())).await.unwrap_err();
    assert_eq!(error.message(), format!("cannot connect to {address}: timed out"));
    // The call's own timeout applies too.
    let brief = Client::builder(&url).timeout(Duration::from_millis(50)).build().unwrap();
    let error = soon(brief.call::<()>("f", &())).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");

    let (within, url) = (Instant::now() + PATIENCE, url.clone());
    let blocking = tokio::task::spawn_blocking(move || {
        let unreachable =
            Client::builder(&url).connect_timeout(Duration::from_millis(50)).build_blocking().unwrap();
        let brief = Client::builder(&url).timeout(Duration::from_millis(50)).build_blocking().unwrap();
        (unreachable.call::<()>("f", &()).unwrap_err(), brief.call::<()>("f", &()).unwrap_err())
    });
    let (unreachable, brief) = soon(blocking).await.unwrap();
    assert!(unreachable.message().starts_with(&format!("cannot connect to {address}: ")), "{unreachable}");
    assert_eq!(brief.code(), Code::DeadlineExceeded, "{brief}");
    assert!(Instant::now() < within);
}

#[tokio::test]
async fn calls_fail_fast_during_the_connect_backoff() {
    let address = free_address();
    let hour = Duration::from_secs(3600);
    let backoff = Backoff { initial: hour, max: hour, factor: 2.0 };
    let patient = Client::builder(&format!("rpcx://{address}")).connect_backoff(backoff).build().unwrap();
    let crowded = Client::builder(&format!("rpcx://{address}"))
        .connection_mode(ConnectionMode::Pooled)
        .connect_backoff(Backoff { initial: Duration::from_secs(10), max: hour, factor: 10.0 })
        .build()
        .unwrap();
    let millisecond = Duration::from_millis(1);
    let hasty = Client::builder(&format!("rpcx://{address}"))
        .connect_backoff(Backoff { initial: millisecond, max: millisecond, factor: 1.0 })
        .build()
        .unwrap();
    let reason = soon(patient.call::<()>("Probe/Echo", "a")).await.unwrap_err();
    soon(hasty.call::<()>("Probe/Echo", "a")).await.unwrap_err();
    // Concurrent failures count once: they do not each extend the backoff.
    let together: Vec<_> = (0..50)
        .map(|_| {
            let crowded = crowded.clone();
            tokio::spawn(async move { crowded.call::<()>("Probe/Echo", "a").await })
        })
        .collect();
    for failed in together {
        soon(failed).await.unwrap().unwrap_err();
    }
    let early = soon(crowded.call::<()>("Probe/Echo", "a")).await.unwrap_err();
    let next = early.message().split_once("; next attempt in ").and_then(|(_, when)| when.strip_suffix(" s"));
    let seconds: f64 = next.expect("the error has the time of the next attempt").parse().unwrap();
    assert!(seconds < 13.0, "{early}");
    let server = Prober::default().server().bind(address.as_str()).await.unwrap().start();
    // Although the server is up now, the client does not connect before the backoff ends, and reports why and when.
    let early = soon(patient.call::<()>("Probe/Echo", "a")).await.unwrap_err();
    assert_eq!(early.code(), reason.code());
    let (why, when) =
        early.message().split_once("; next attempt in ").expect("the error has the time of the next attempt");
    assert_eq!(why, reason.message());
    assert!(when.ends_with(" s"), "{when}");
    assert_eq!(again(|| hasty.call::<String>("Probe/Echo", "a")).await, "a");
    drop(server);
}

/// An rpcx server behind a listener that closes accepted connections at once, until the test lets it pass them on.
struct ClosingServer {
    address: String,
    begun: Instant,
    accepted: Arc<AtomicUsize>,
    good: Arc<AtomicBool>,
}

impl ClosingServer {
    async fn start() -> Self {
        let server = serve(Prober::default().server()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (accepted, good) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, lets_through) = (accepted.clone(), good.clone());
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let behind = server.address().to_string();
                if lets_through.load(Ordering::Relaxed) {
                    tokio::spawn(async move {
                        let mut behind = TcpStream::connect(behind).await.unwrap();
                        let _ = copy_bidirectional(&mut client, &mut behind).await;
                    });
                }
            }
        });
        Self { address, begun: Instant::now(), accepted, good }
    }

    fn builder(&self) -> polyrpc::client::Builder {
        Client::builder(&format!("rpcx://{}", self.address))
    }

    /// While `callers` call for two seconds, at most two connects a second are made, except for the first failures; of
    /// those there are at most `first`. Returns the callers once all have a response.
    async fn assert_connects_are_rare(self, case: &str, first: usize, callers: tokio::task::JoinHandle<()>) {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let connects = self.accepted.load(Ordering::Relaxed);
        // On a busy machine it may have been longer.
        let time = self.begun.elapsed();
        assert!(
            connects <= first + time.as_millis() as usize / 500,
            "{case}: {connects} connects in {time:?}"
        );
        self.good.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        soon(callers).await.unwrap();
        // The backoff lasts six seconds at most. If each caller had to wait for its own connect, it would be 25.
        assert!(begun.elapsed() < Duration::from_secs(15), "{case}: {:?}", begun.elapsed());
    }
}

const CALLERS: usize = 50;

/// Concurrent callers, each retrying until it succeeds.
fn call_until_answered(client: &Client) -> tokio::task::JoinHandle<()> {
    let callers = (0..CALLERS).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            while client.call::<String>("Probe/Echo", "a").await.is_err() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    tokio::spawn(async move {
        for caller in callers {
            caller.await.unwrap();
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_accepts_and_closes_is_dialled_at_most_twice_a_second() {
    let cases = [
        (ConnectionMode::Shared, 2),
        (ConnectionMode::Pooled, CALLERS + 1),
        (ConnectionMode::Short, CALLERS + 1),
    ];
    let cases = cases.map(|(kind, first)| async move {
        let server = ClosingServer::start().await;
        let callers = call_until_answered(&server.builder().connection_mode(kind).build().unwrap());
        server.assert_connects_are_rare(&format!("{kind:?}"), first, callers).await;
    });
    futures_util::future::join_all(cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_client_dials_a_closing_server_at_most_twice_a_second() {
    let server = ClosingServer::start().await;
    let client = server.builder().build_blocking().unwrap();
    let callers = tokio::task::spawn_blocking(move || {
        std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    while client.call::<String>("Probe/Echo", "a").is_err() {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
        });
    });
    server.assert_connects_are_rare("blocking", CALLERS + 1, callers).await;
}

#[tokio::test]
async fn connection_lost_before_any_reply_is_replaced_once_and_then_reported() {
    let server = ClosingServer::start().await;
    let hour = Duration::from_secs(3600);
    let backoff = Backoff { initial: hour, max: hour, factor: 1.0 };
    let client = server.builder().connect_backoff(backoff).build().unwrap();
    let call = || soon(client.call::<String>("Probe/Echo", "a"));
    while server.accepted.load(Ordering::Relaxed) < 2 {
        call().await.unwrap_err();
    }
    let reported = loop {
        let failed = call().await.unwrap_err();
        if failed.message().contains("next attempt in") {
            break failed;
        }
    };
    assert_eq!(reported.code(), Code::Unavailable);
    let message = reported.message();
    assert!(message.contains(&server.address) && message.contains("before any reply"), "{message}");
    assert_eq!(server.accepted.load(Ordering::Relaxed), 2);
    // A waiting caller proceeds with the next successful attempt.
    let client = server.builder().build().unwrap();
    let call = || soon(client.call::<String>("Probe/Echo", "a"));
    while !call().await.unwrap_err().message().contains("next attempt in") {}
    server.good.store(true, Ordering::Relaxed);
    let request = Request::new("a".to_owned()).with_wait_for_ready();
    let answer = soon(client.invoke::<Serde, String, String>(&ECHO, request)).await.unwrap();
    assert_eq!(answer.message, "a");
}

#[tokio::test]
async fn wait_for_ready_call_waits_for_the_server() {
    for kind in [ConnectionMode::Shared, ConnectionMode::Pooled, ConnectionMode::Short] {
        let address = free_address();
        let backoff = Backoff { initial: Duration::from_millis(1), ..Backoff::default() };
        let client = Client::builder(&format!("rpcx://{address}"))
            .connection_mode(kind)
            .connect_backoff(backoff)
            .build()
            .unwrap();
        let echo = |request: Request<String>| {
            let client = client.clone();
            let request = request.with_wait_for_ready();
            async move { client.invoke::<Serde, String, String>(&ECHO, request).await }
        };
        let brief = Request::new("a".to_owned()).with_timeout(Duration::from_millis(50));
        assert_eq!(soon(echo(brief)).await.unwrap_err().code(), Code::DeadlineExceeded, "{kind:?}");
        let mut waiting = Box::pin(echo("b".to_owned().into()));
        assert!(waiting.as_mut().now_or_never().is_none());
        let server = Prober::default().server().bind(address.as_str()).await.unwrap().start();
        assert_eq!(soon(waiting).await.unwrap().message, "b", "{kind:?}");
        drop(server);
    }
}

/// An rpcx server behind a gate: connections are accepted, but get no response until it opens. Then each passes the
/// other gate as soon as its client has closed it.
async fn serve_behind(gate: &Gate, ended: &Gate) -> String {
    let server = serve(Prober::default().server()).await;
    let before = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = before.local_addr().unwrap();
    let (gate, ended) = (gate.clone(), ended.clone());
    tokio::spawn(async move {
        loop {
            let (mut client, _) = before.accept().await.unwrap();
            let (gate, ended, behind) = (gate.clone(), ended.clone(), server.address().to_string());
            tokio::spawn(async move {
                gate.pass().await;
                let mut behind = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut behind).await;
                ended.pass().await;
            });
        }
    });
    format!("rpcx://{address}?transport=http-connect")
}

#[tokio::test]
async fn connect_can_outlast_every_call() {
    for kind in [ConnectionMode::Shared, ConnectionMode::Pooled] {
        let (gate, ended) = (Gate::default(), Gate::default());
        let url = serve_behind(&gate, &ended).await;
        let client = Client::builder(&url).connection_mode(kind).connect_timeout(PATIENCE).build().unwrap();
        for _ in 0..3 {
            let brief = Request::new("a".to_owned()).with_timeout(Duration::from_millis(50));
            let failed = soon(client.invoke::<Serde, String, String>(&ECHO, brief)).await.unwrap_err();
            assert_eq!(failed.code(), Code::DeadlineExceeded, "{kind:?}");
        }
        gate.came(1).await;
        gate.open();
        assert_eq!(soon(ProbeClient::new(client).echo("b".into())).await.unwrap(), "b", "{kind:?}");
        assert_eq!(gate.count(), 1, "{kind:?}: the connection is the one that the first call began");
    }
}

/// Reports each new connection.
struct Connections(mpsc::UnboundedSender<()>);

impl Hook for Connections {
    fn on_connect(&self, _: &Address) -> Result<(), Status> {
        let _ = self.0.send(());
        Ok(())
    }
}

#[tokio::test]
async fn unused_connection_ends_with_its_client() {
    for is_made in [true, false] {
        let (gate, ended) = (Gate::default(), Gate::default());
        let (made, mut connections) = mpsc::unbounded_channel();
        let url = serve_behind(&gate, &ended).await;
        let client = Client::builder(&url).connect_timeout(PATIENCE).hook(Connections(made)).build().unwrap();
        let brief = Request::new("a".to_owned()).with_timeout(Duration::from_millis(50));
        soon(client.invoke::<Serde, String, String>(&ECHO, brief)).await.unwrap_err();
        gate.came(1).await;
        if is_made {
            gate.open();
            soon(connections.recv()).await.unwrap();
        }
        drop(client);
        gate.open();
        ended.came(1).await;
    }
}

#[tokio::test]
async fn client_reconnects_when_the_server_returns() {
    let address = free_address();
    let mut server = Prober::default().server().bind(address.as_str()).await.unwrap().start();
    let clients: Vec<_> = PROTOCOLS
        .into_iter()
        .flat_map(|protocol| {
            [ConnectionMode::Shared, ConnectionMode::Pooled, ConnectionMode::Short].map(|kind| {
                let backoff = Backoff { initial: Duration::from_millis(1), ..Backoff::default() };
                let url = format!("{}://{address}", protocol.as_str());
                ProbeClient::new(
                    Client::builder(&url).connection_mode(kind).connect_backoff(backoff).build().unwrap(),
                )
            })
        })
        .collect();
    for round in 0..3 {
        for client in &clients {
            assert_eq!(again(|| client.echo(round.to_string())).await, round.to_string());
        }
        soon(server.shutdown(PATIENCE)).await;
        for client in &clients {
            soon(client.echo("nobody".into())).await.unwrap_err();
        }
        server = Prober::default().server().bind(address.as_str()).await.unwrap().start();
    }
    for client in &clients {
        assert_eq!(again(|| client.echo("a".into())).await, "a");
    }
}

#[tokio::test]
async fn dropped_call_does_not_affect_others() {
    for protocol in PROTOCOLS {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        let probe = ProbeClient::new(client(protocol, &server));
        // Some calls are dropped before their replies arrive.
        for n in 1..=20 {
            let call = probe.wait(format!("late {n}"));
            tokio::select! {
                biased;
                reply = call => panic!("{reply:?} came through a closed gate"),
                () = prober.gate.came(n) => {}
            }
        }
        // HTTP has no ids: a call behind a pending one would wait too, so it uses another connection.
        assert_eq!(soon(probe.echo("meanwhile".into())).await.unwrap(), "meanwhile", "{protocol:?}");
        prober.gate.open();
        for n in 0..100 {
            assert_eq!(soon(probe.echo(n.to_string())).await.unwrap(), n.to_string(), "{protocol:?}");
        }
        if protocol != Protocol::Http {
            assert_eq!(server.connection_count(), 1, "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn call_dropped_after_one_poll_leaks_nothing() {
    for protocol in MULTIPLEXED {
        let server = serve(Prober::default().server()).await;
        let probe = ProbeClient::new(client(protocol, &server));
        probe.echo("first".into()).await.unwrap();
        for _ in 0..10_000 {
            assert!(probe.echo("dropped".into()).now_or_never().is_none());
        }
        assert_eq!(soon(probe.echo("kept".into())).await.unwrap(), "kept", "{protocol:?}");
    }
}

#[tokio::test]
async fn zero_timeout_fails_before_anything_is_sent() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    for protocol in PROTOCOLS.into_iter().chain([Protocol::FbRpc, Protocol::RestRpc]) {
        let client = client(protocol, &server);
        let of_itself = Client::builder(&url(protocol, &server)).timeout(Duration::ZERO).build().unwrap();
        for error in [
            soon(client.call_with::<String>("Probe/Echo", Request::new("a").with_timeout(Duration::ZERO)))
                .await
                .unwrap_err(),
            soon(of_itself.call::<String>("Probe/Echo", "a")).await.unwrap_err(),
        ] {
            assert_eq!(error.code(), Code::DeadlineExceeded, "{protocol:?}: {error}");
            assert_eq!(error.message(), "the call has a timeout of zero", "{protocol:?}");
        }
    }
    assert_eq!((prober.ran(), server.connection_count()), (0, 0));
    let blocking = Client::builder(&url(Protocol::Rpcx, &server)).timeout(Duration::ZERO).build_blocking();
    let error = blocking.unwrap().call::<String>("Probe/Echo", "a").unwrap_err();
    assert_eq!((error.code(), server.connection_count()), (Code::DeadlineExceeded, 0));
}

#[tokio::test]
async fn each_call_has_its_own_timeout() {
    for protocol in PROTOCOLS {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        let builder = Client::builder(&url(protocol, &server)).timeout(Duration::from_millis(80));
        let probe = ProbeClient::new(builder.build().unwrap());
        let begun = Instant::now();
        let waiting = |timeout: Option<u64>| {
            let (probe, mut request) = (probe.clone(), Request::new("a".to_owned()));
            request.options.timeout = timeout.map(Duration::from_millis);
            async move {
                let error = probe.wait_with(request).await.unwrap_err();
                assert_eq!(error.code(), Code::DeadlineExceeded, "{protocol:?}: {error}");
                begun.elapsed()
            }
        };
        // The longest first, so that each later one must move the timer forward.
        let (usual, short) = soon(async {
            tokio::select! {
                biased;
                long = waiting(Some(600_000)) => panic!("{protocol:?}: ten minutes end after {long:?}"),
                others = async { tokio::join!(waiting(None), waiting(Some(20))) } => others,
            }
        })
        .await;
        // The server receives whole milliseconds and may be the one to end a call.
        assert!(usual.as_millis() >= 78 && short.as_millis() >= 18, "{protocol:?}: {usual:?} {short:?}");
        let after = Request::new("after".to_owned()).with_timeout(PATIENCE);
        assert_eq!(soon(probe.echo_with(after)).await.unwrap().message, "after", "{protocol:?}");
    }
}

#[tokio::test]
async fn calls_end_if_the_server_is_silent_and_the_runtime_is_dropped() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("baidu-std://{}", silent.local_addr().unwrap());
    let client = Client::builder(&url).timeout(None).build().unwrap();
    // The connection is made in a runtime that is dropped before the call ends.
    let apart = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = client.clone();
    apart.spawn(async move { first.call::<()>("f", &()).await });
    let accepted = tokio::task::spawn_blocking(move || silent.accept().unwrap());
    let (mut accepted, _) = soon(accepted).await.unwrap();
    let read = tokio::task::spawn_blocking(move || accepted.read(&mut [0; 4]).map(|n| (n, accepted)));
    let (n, _accepted) = soon(read).await.unwrap().unwrap();
    assert!(n > 0, "the first call was sent");
    let second = tokio::spawn(async move { client.call::<()>("f", &()).await });
    tokio::task::yield_now().await;
    apart.shutdown_background();
    let error = soon(second).await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
}

#[tokio::test]
async fn sending_to_a_server_that_does_not_read_is_limited() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for protocol in MULTIPLEXED {
        let url = format!("{}://{}", protocol.as_str(), listener.local_addr().unwrap());
        let client = Client::builder(&url).timeout(Duration::from_millis(5)).build().unwrap();
        let megabyte = "x".repeat(1 << 20);
        let refused = soon(async {
            for sent in 0.. {
                let error = client.call::<()>("f", &megabyte).await.unwrap_err();
                if error.code() == Code::ResourceExhausted {
                    return sent;
                }
                assert_eq!(error.code(), Code::DeadlineExceeded, "{protocol:?}: {error}");
            }
            unreachable!()
        })
        .await;
        assert!(refused < 90, "{protocol:?}: {refused} MiB wait for a server that does not read");
        let _silent = listener.accept().await.unwrap();
    }
}

#[tokio::test]
async fn oneway_call_returns_once_sent() {
    for protocol in PROTOCOLS {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        let client = client(protocol, &server);
        let signature = polyrpc::client::StubMethod::plain("Probe", "Wait");
        for _ in 0..10 {
            let mut request = Request::new("a".to_owned());
            request.options.oneway = true;
            soon(client.invoke::<Serde, String, Option<String>>(&signature, request))
                .await
                .unwrap_or_else(|e| panic!("{protocol:?}: {e}"));
        }
        prober.gate.open();
        until(|| prober.ran() == 10).await;
        assert_eq!(soon(client.call::<String>("Probe/Echo", "a")).await.unwrap(), "a", "{protocol:?}");
    }
}

/// The server counts them as long as they run, although the client does not wait for them.
#[tokio::test]
async fn oneway_calls_beyond_the_servers_streams_wait() {
    let prober = Prober::default();
    let limits = Limits { streams_per_connection: 4, ..Limits::default() };
    let server = serve(prober.server().limits(limits)).await;
    let client = Client::builder(&url(Protocol::Grpc, &server)).max_shared_connections(1).build().unwrap();
    // The server's settings have arrived with the response.
    assert_eq!(soon(client.call::<String>("Probe/Echo", "a")).await.unwrap(), "a");
    let caller = client.clone();
    let sent = tokio::spawn(async move {
        for _ in 0..10 {
            caller.oneway("Probe/Wait", "a").await.unwrap();
        }
    });
    until(|| prober.ran() == 1 + 4).await;
    prober.gate.open();
    soon(sent).await.unwrap();
    until(|| prober.ran() == 1 + 10).await;
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn server_that_answers_heartbeats_stays_connected() {
    for interval in [10, 100, 1000].map(Duration::from_millis) {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        let client = Client::builder(&url(Protocol::Rpcx, &server)).keepalive(interval).timeout(PATIENCE);
        let probe = ProbeClient::new(client.build().unwrap());
        let mut waiting = Box::pin(probe.wait("a".into()));
        // Long enough for many heartbeats, none of which may end the call.
        let early = tokio::time::timeout(20 * interval, &mut waiting).await;
        let ended = match early {
            Ok(ended) => ended,
            Err(_) => {
                prober.gate.open();
                soon(waiting).await
            }
        };
        match ended {
            // The machine stalled before an answer arrived: the next interval is longer.
            Err(error) if error.message() == UNANSWERED => {}
            ended => {
                assert_eq!(ended.unwrap(), "a");
                return assert_eq!(server.connection_count(), 1);
            }
        }
    }
    panic!("heartbeats end the call at every interval");
}

const UNANSWERED: &str = "the server does not answer heartbeats";

#[tokio::test]
async fn server_that_answers_no_heartbeat_is_disconnected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rpcx://{}", listener.local_addr().unwrap());
    let client = Client::builder(&url).timeout(None).keepalive(Duration::from_millis(30)).build().unwrap();
    let call = tokio::spawn(async move { client.call::<()>("f", &()).await });
    let (mut silent, _) = listener.accept().await.unwrap();
    let error = soon(call).await.unwrap().unwrap_err();
    assert_eq!(error.message(), UNANSWERED);
    assert_eq!(error.code(), Code::Unavailable);
    // A heartbeat was sent before the connection was closed.
    let mut sent = Vec::new();
    let _ = soon(silent.read_to_end(&mut sent)).await;
    assert!(sent.windows(3).any(|window| window == [8, 0, 0x40]), "{}", sent.escape_ascii());
}

#[polyrpc::service]
trait Pushes {
    /// Pushes this many messages now, and as many after the call.
    async fn push(&self, cx: &mut Context, times: u32) -> Result<u32>;
    /// Pushes until told to stop; returns the number of pushes.
    async fn flood(&self, cx: &mut Context) -> Result<u32>;
}

struct Pusher(mpsc::UnboundedSender<u32>);

fn message(n: u32, size: usize) -> Push {
    let mut body = n.to_be_bytes().to_vec();
    body.resize(size, 0);
    Push {
        service: "news".into(),
        method: "daily".into(),
        metadata: [("key", "value")].into_iter().collect(),
        body: body.into(),
    }
}

impl Pushes for Pusher {
    async fn push(&self, cx: &mut Context, times: u32) -> Result<u32> {
        let pusher = cx.pusher();
        (0..times).try_for_each(|n| pusher.push(message(n, 4)))?;
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            (times..2 * times).try_for_each(|n| pusher.push(message(n, 4)))
        });
        Ok(times)
    }

    async fn flood(&self, cx: &mut Context) -> Result<u32> {
        let (pusher, count) = (cx.pusher(), self.0.clone());
        tokio::spawn(async move {
            let mut n = 0;
            let end = loop {
                match pusher.push(message(n, 16 << 10)) {
                    // 400 MB: nothing limits it.
                    Ok(()) if n > 25_000 => break n,
                    Ok(()) => n += 1,
                    Err(status) => {
                        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                        break n;
                    }
                }
                tokio::task::yield_now().await;
            };
            let _ = count.send(end);
        });
        Ok(0)
    }
}

#[tokio::test]
async fn server_can_push_messages() {
    let (flooded, _) = mpsc::unbounded_channel();
    let server = serve(Server::new().service(PushesServer::new(Pusher(flooded)))).await;
    let (heard, mut hear) = mpsc::unbounded_channel();
    let client = Client::builder(&url(Protocol::Rpcx, &server))
        .on_push(move |push| heard.send(push).expect("the test listens"))
        .build()
        .unwrap();
    let stub = PushesClient::new(client);
    assert_eq!(soon(stub.push(50)).await.unwrap(), 50);
    for n in 0_u32..100 {
        let push = soon(hear.recv()).await.unwrap();
        assert_eq!(
            (&*push.service, &*push.method, push.metadata.get("key")),
            ("news", "daily", Some("value"))
        );
        assert_eq!(push.body[..4], n.to_be_bytes());
    }
    // If the protocol cannot push, the handler gets an error.
    for protocol in [Protocol::BaiduStd, Protocol::Http] {
        let stub = PushesClient::new(crate::common::client(protocol, &server));
        let error = soon(stub.push(1)).await.unwrap_err();
        assert!(error.message().contains("cannot push"), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn pushed_messages_precede_the_response() {
    let (flooded, _) = mpsc::unbounded_channel();
    let server = serve(Server::new().service(PushesServer::new(Pusher(flooded)))).await;
    let mut wire = Wire::connect(Protocol::Rpcx, &server).await;
    wire.send(1, &json_call("Pushes", "Push", "2")).await;
    for n in 0_u32..2 {
        let answer = wire.answer().await;
        let Some(ClientEvent::Push(push)) = answer else { panic!("{answer:?}") };
        assert_eq!(push.body[..4], n.to_be_bytes());
    }
    assert!(matches!(wire.answer().await, Some(ClientEvent::Reply(..))));
}

#[tokio::test]
async fn pushes_to_a_client_that_does_not_read_are_limited_and_not_lost() {
    let (flooded, mut end) = mpsc::unbounded_channel();
    let limits = Limits { unsent_per_connection: 1 << 20, ..Limits::default() };
    let server = serve(Server::new().service(PushesServer::new(Pusher(flooded))).limits(limits)).await;
    let mut wire = Wire::connect(Protocol::Rpcx, &server).await;
    wire.send(1, &json_call("Pushes", "Flood", "null")).await;
    let pushed = soon(end.recv()).await.unwrap();
    assert!(pushed < 4000, "{pushed} messages of 16 KiB wait for a client that does not read");
    let mut next = 0;
    while next < pushed {
        match wire.answer().await.expect("the connection goes on") {
            ClientEvent::Push(push) => {
                assert_eq!(push.body[..4], next.to_be_bytes());
                next += 1;
            }
            _ => assert_eq!(next, 0, "the reply comes first"),
        }
    }
}

#[tokio::test]
async fn mock_answers_in_place_of_a_server() {
    let mock = Client::mock(|call| match (call.service, call.method) {
        ("Probe", "Echo") => {
            let text = call.decode::<Serde, String>()?;
            call.encode_reply::<Serde, _>(&format!("mocked {text}"))
        }
        _ => Err(Status::not_found("not mocked").into()),
    });
    let probe = ProbeClient::new(mock);
    assert_eq!(probe.echo("a".into()).await.unwrap(), "mocked a");
    assert_eq!(probe.peer().await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn in_process_client_needs_no_network() {
    for protocol in PROTOCOLS {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        let probe = ProbeClient::new(server.client(protocol).unwrap());
        assert_eq!(probe.echo("a".into()).await.unwrap(), "a");
        assert_eq!(probe.peer().await.unwrap(), "in-process");
        soon(server.shutdown(PATIENCE)).await;
        let error = soon(probe.echo("b".into())).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn unix_sockets_are_supported() {
    let path = std::env::temp_dir().join(format!("polyrpc-client-{}.sock", std::process::id()));
    let listen = format!("unix:{}", path.display());
    // The socket of a dead server is replaced, that of a live server is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Prober::default().server().bind(listen.as_str()).await.unwrap().start();
    assert!(Prober::default().server().bind(listen.as_str()).await.is_err());
    for protocol in PROTOCOLS {
        let url = format!("{}://{}?transport=unix", protocol.as_str(), path.display());
        let probe = ProbeClient::new(Client::new(&url).unwrap());
        assert_eq!(probe.peer().await.unwrap(), "unix", "{protocol:?}");
        let blocking = tokio::task::spawn_blocking(move || {
            ProbeBlockingClient::new(polyrpc::blocking::Client::new(&url).unwrap()).echo("a".into())
        });
        assert_eq!(soon(blocking).await.unwrap().unwrap(), "a", "{protocol:?}");
    }
    soon(server.shutdown(PATIENCE)).await;
    let url = format!("rpcx://{}", path.display());
    let error = Client::new(&url).unwrap().call::<()>("f", &()).await.unwrap_err();
    assert!(error.message().starts_with("cannot connect to unix:"), "{error}");
}

#[tokio::test]
async fn server_and_client_can_have_their_own_threads() {
    let server = serve(Prober::default().server().executor(Cores::start(2).unwrap())).await;
    for protocol in PROTOCOLS {
        let cores = Cores::start(1).unwrap();
        let builder =
            Client::builder(&url(protocol, &server)).executor(cores).connection_mode(ConnectionMode::Pooled);
        let probe = ProbeClient::new(builder.build().unwrap());
        let mut threads = HashSet::new();
        let callers: Vec<_> = (0..40)
            .map(|_| {
                let probe = probe.clone();
                tokio::spawn(async move { probe.thread().await })
            })
            .collect();
        for caller in callers {
            threads.insert(soon(caller).await.unwrap().unwrap());
        }
        assert!(threads.iter().all(|name| name.starts_with("polyrpc-")), "{protocol:?}: {threads:?}");
        assert_eq!(threads.len(), 2, "{protocol:?}: connections are dealt out");
    }
    soon(server.shutdown(PATIENCE)).await;
}

#[test]
fn many_threads_share_a_blocking_client() {
    let (runtime, server) = serve_apart(Prober::default().server());
    for protocol in PROTOCOLS {
        let client = polyrpc::blocking::Client::new(&url(protocol, &server)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let probe = ProbeBlockingClient::new(client.clone());
                scope.spawn(move || {
                    for n in 0..50 {
                        let text = format!("{thread} {n} {}", "x".repeat(n * 997));
                        assert_eq!(probe.echo(text.clone()).unwrap(), text, "{protocol:?}");
                    }
                });
            }
        });
        assert!(server.connection_count() <= 8, "{protocol:?}");
        drop(client);
        runtime.block_on(until(|| server.connection_count() == 0));
    }
}

#[test]
fn blocking_call_times_out_and_its_late_reply_reaches_no_other() {
    let prober = Prober::default();
    let (_runtime, server) = serve_apart(prober.server());
    for protocol in PROTOCOLS {
        let probe =
            ProbeBlockingClient::new(polyrpc::blocking::Client::new(&url(protocol, &server)).unwrap());
        probe.echo("warm".into()).unwrap();
        let begun = Instant::now();
        let request = Request::new("late".to_owned()).with_timeout(Duration::from_millis(60));
        let error = probe.wait_with(request).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{protocol:?}: {error}");
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(59) && took < Duration::from_secs(5), "{protocol:?}: {took:?}");
        for n in 0..20 {
            assert_eq!(probe.echo(n.to_string()).unwrap(), n.to_string(), "{protocol:?}");
        }
    }
    prober.gate.open();
}

#[test]
fn blocking_client_reads_the_refusal_of_a_server_that_closes_before_it_has_read_the_request() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let refusing = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9\r\n\r\nslow down").unwrap();
        // Closed with unread data: the client's next write fails.
    });
    let client = polyrpc::blocking::Client::new(&url).unwrap();
    let error = client.call::<()>("f", &"x".repeat(64 << 20)).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    refusing.join().unwrap();
}

#[test]
fn connect_time_of_a_blocking_call_reduces_the_sent_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Rounded up to milliseconds, the whole timeout would be sent as 10,001.
    let timeout = Duration::from_secs(10) + Duration::from_nanos(1);
    let client = Client::builder(&url).timeout(timeout).build_blocking().unwrap();
    let calling = std::thread::spawn(move || client.call::<()>("f", &()));
    let (stream, _) = listener.accept().unwrap();
    let reported = std::io::BufReader::new(stream)
        .lines()
        .map(|line| line.unwrap().to_lowercase())
        .find_map(|line| line.strip_prefix("connect-timeout-ms: ")?.parse::<u64>().ok())
        .unwrap();
    assert!((1..=10_000).contains(&reported), "{reported}");
    assert_eq!(calling.join().unwrap().unwrap_err().code(), Code::Unavailable);
}

#[test]
fn trickling_reply_does_not_extend_the_timeout_of_a_blocking_call() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut first = [0];
            if stream.read_exact(&mut first).is_err() {
                // The caller has given up already.
                continue;
            }
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            // An endless head, or endless pushes instead of a reply.
            let mut push = [0; 32];
            (push[0], push[2], push[11], push[15]) = (8, 0x20, 1, 16);
            let drop: &[u8] = if first == [8] { &push } else { b"H" };
            // Sends whenever the caller is silent for a while, until it disconnects: far longer than the call's timeout.
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && stream.write_all(drop).is_ok() {
                match stream.read(&mut [0; 1024]) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(_) => break,
                }
            }
        }
    });
    // The number of pushes that arrive before the call times out.
    let pushes = |scheme: &str, milliseconds| {
        let news = Arc::new(AtomicUsize::new(0));
        let counted = news.clone();
        let client = Client::builder(&format!("{scheme}://{address}"))
            .timeout(Duration::from_millis(milliseconds))
            .on_push(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            })
            .build_blocking()
            .unwrap();
        let begun = Instant::now();
        let error = client.call::<()>("f", &()).unwrap_err();
        let took = begun.elapsed();
        assert!(took < PATIENCE, "{scheme}: {took:?}");
        assert_eq!(error.code(), Code::DeadlineExceeded, "{scheme}: {error}");
        news.load(Ordering::SeqCst)
    };
    assert_eq!(pushes("http", 200), 0);
    // If the machine stalls for the whole timeout, none arrives: then a longer one.
    assert!([200, 2_000, 20_000].into_iter().any(|timeout| pushes("rpcx", timeout) > 1));
}

#[test]
fn blocking_client_reconnects() {
    // A connection used within the last second is reused unchecked; an older one is checked first.
    let limits = Limits { idle_timeout: Some(Duration::from_millis(1100)), ..Limits::default() };
    let (runtime, server) = serve_apart(Prober::default().server().limits(limits));
    // A net/rpc connection is not closed when idle.
    let probes: Vec<_> = PROTOCOLS
        .into_iter()
        .filter(|protocol| *protocol != Protocol::NetRpc)
        .map(|protocol| {
            ProbeBlockingClient::new(polyrpc::blocking::Client::new(&url(protocol, &server)).unwrap())
        })
        .collect();
    for probe in &probes {
        probe.echo("a".into()).unwrap();
    }
    runtime.block_on(until(|| server.connection_count() == 0));
    for probe in &probes {
        assert_eq!(probe.echo("b".into()).unwrap(), "b");
    }
}

#[tokio::test]
async fn client_does_not_read_from_a_server_that_does_not_read() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let url = format!("baidu-std://{}", listener.local_addr().unwrap());
    let probe = ProbeClient::new(Client::new(&url).unwrap());
    let calling = tokio::spawn(async move { probe.echo("a".into()).await });
    let (mut stream, _) = soon(listener.accept()).await.unwrap();
    // A frame of an unknown stream: each is answered with a reset.
    let frame = b"STRM\0\0\0\x06\0\0\0\x06\x08\x07\x10\x05\x18\x03";
    let frames = frame.repeat(4000);
    // It has stopped reading if nothing is written in ten pauses in a row. A stall of the machine is one of them.
    let (mut sent, mut pauses) = (0, 0);
    while sent < 40 << 20 && pauses < 10 {
        let write = AsyncWriteExt::write(&mut stream, &frames[sent % frames.len()..]);
        match tokio::time::timeout(Duration::from_millis(100), write).await {
            Ok(written) => (sent, pauses) = (sent + written.unwrap(), 0),
            Err(_) => pauses += 1,
        }
    }
    assert_eq!(pauses, 10, "everything was read, although the responses were not");
    // Once its responses are read, reading resumes.
    let mut buffer = vec![0; 1 << 20];
    let mut read = 0;
    while read < 2 << 20 {
        read += soon(stream.read(&mut buffer)).await.unwrap();
    }
    soon(stream.writable()).await.unwrap();
    assert!(!calling.is_finished(), "the call goes on");
}

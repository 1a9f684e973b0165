//! The built-in layers of both sides, around real calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyrpc::client::{Attempt, Hook};
use polyrpc::introspection::{Health, ServingStatus};
use polyrpc::layer::Side;
use polyrpc::layers::{AccessLog, Compress, Metrics, Mirror, Span, Spans};
use polyrpc::propagation::{self, CallScope, Trace, TraceParent};
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::{Bytes, Client, Code, Compression, Metadata, Protocol, Result, Server, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{PROTOCOLS, ProbeClient, ProbeServer, Prober, Socket, client, serve, soon, until, url};

/// The response of a page at this path: the head, and the body.
async fn page(server: &ServerHandle, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address().to_string()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn layered(protocol: Protocol, server: &ServerHandle, layer: impl polyrpc::layer::Layer) -> Client {
    Client::builder(&url(protocol, server)).layer(layer).build().unwrap()
}

#[tokio::test]
async fn server_exposes_metrics_on_its_own_port() {
    let metrics = Metrics::new();
    let server = serve(Prober::default().server().metrics(&metrics)).await;
    for protocol in [Protocol::Rpcx, Protocol::BaiduStd, Protocol::Grpc] {
        let probe = ProbeClient::new(layered(protocol, &server, metrics.clone()));
        probe.echo("hello".into()).await.unwrap();
    }
    let (head, text) = page(&server, "/metrics").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    for side in ["client", "server"] {
        for protocol in ["rpcx", "baidu_std", "grpc"] {
            let labels = format!("side=\"{side}\",protocol=\"{protocol}\",service=\"Probe\",method=\"Echo\"");
            let line = format!("polyrpc_calls_total{{{labels},code=\"ok\"}} 1");
            assert!(text.lines().any(|known| known == line), "{line}\n in\n{text}");
        }
    }
    let port = server.address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let (_, text) = page(&server, "/brpc_metrics").await;
    let line = format!("rpc_server_{port}_probe_echo_count 3");
    assert!(text.lines().any(|known| known == line), "{line}\n in\n{text}");
    // Without HTTP they are called like any function.
    let text: String = client(Protocol::Rpcx, &server).call("metrics", &()).await.unwrap();
    assert!(text.contains("polyrpc_calls_total"), "{text}");
}

/// Exit code of `promtool check metrics` for a page: 0 valid, 1 unparsable, 3 lint errors. `None`: promtool is not
/// installed.
fn promtool(page: &str) -> Option<(Option<i32>, String)> {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let piped = || Stdio::piped();
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(piped())
        .stdout(piped())
        .stderr(piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            assert!(std::env::var_os("POLYRPC_WANTS_PROMTOOL").is_none(), "promtool: {error}");
            println!("promtool is not installed (Debian: prometheus)");
            return None;
        }
    };
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let output_text = [output.stdout, output.stderr].concat();
    Some((output.status.code(), String::from_utf8_lossy(&output_text).into_owned()))
}

#[tokio::test]
async fn promtool_accepts_the_page() {
    let metrics = Metrics::new();
    let server = serve(Prober::default().server().metrics(&metrics)).await;
    for protocol in [Protocol::Rpcx, Protocol::Http] {
        let probe = ProbeClient::new(layered(protocol, &server, metrics.clone()));
        probe.echo("hello".into()).await.unwrap();
        client(protocol, &server).call::<String>("Probe/Nope", "x").await.unwrap_err();
    }
    let (_, text) = page(&server, "/metrics").await;
    if let Some((code, output_text)) = promtool(&text) {
        assert_eq!((code, &*output_text), (Some(0), ""), "{text}");
    }
    let (_, text) = page(&server, "/brpc_metrics").await;
    if let Some((code, output_text)) = promtool(&text) {
        // brpc's names have no help, which is not a format error.
        assert!(code != Some(1), "{output_text}\n{text}");
        let other: Vec<_> = output_text.lines().filter(|line| !line.ends_with("no help text")).collect();
        assert!(other.is_empty(), "{other:?}");
    }
}

/// The number on a page's line with this prefix.
fn number(text: &str, line: &str) -> f64 {
    let found = text.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(' ')?.parse().ok());
    found.unwrap_or_else(|| panic!("no {line} in\n{text}"))
}

/// The response to a raw request.
async fn status(server: &ServerHandle, request: &str) -> u16 {
    Socket::connect(server).await.http(request).await.0
}

#[tokio::test]
async fn calls_rejected_before_routing_or_for_size_are_on_the_page() {
    let metrics = Metrics::new();
    let limits = Limits { message: 10_000, decompressed: 10_000, ..Limits::default() };
    let server = serve(Prober::default().server().metrics(&metrics).limits(limits)).await;
    for protocol in PROTOCOLS {
        client(protocol, &server).call::<String>("Nope/Nope", "x").await.unwrap_err();
    }
    assert_eq!(
        status(&server, "POST /Probe/Nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\"\"")
            .await,
        404
    );
    let wrong_type = "POST /Probe/Echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/css\r\nContent-Length: 2\r\n\r\n\"\"";
    assert_eq!(status(&server, wrong_type).await, 415);
    assert_eq!(
        status(&server, "PUT /Probe/Echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\"\"").await,
        405
    );
    let too_large = "POST /Probe/Echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000\r\n\r\n";
    assert_eq!(status(&server, too_large).await, 413);
    let long = "x".repeat(20_000);
    let error = client(Protocol::Grpc, &server).call::<String>("Probe/Echo", &long).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");

    // Over baidu_std it closes the connection.
    client(Protocol::BaiduStd, &server).call::<String>("Probe/Echo", &long).await.unwrap_err();

    let (_, text) = page(&server, "/metrics").await;
    let refused = |cause: &str| number(&text, &format!("polyrpc_rejections_total{{cause=\"{cause}\"}}"));
    assert_eq!(refused("unknown_method"), PROTOCOLS.len() as f64 + 1.0);
    assert_eq!(refused("unsupported"), 2.0);
    // The client may have retried on another connection.
    let closed = number(&text, "polyrpc_connections_closed_total{cause=\"too_large\"}");
    assert!(closed >= 1.0, "{text}");
    assert_eq!(refused("too_large"), 2.0 + closed);
}

#[tokio::test]
async fn connections_bytes_rejections_and_process_metrics_are_on_the_page() {
    let metrics = Metrics::new();
    let prober = Prober::default();
    let server =
        prober.server().metrics(&metrics).concurrency_limit(polyrpc::server::ConcurrencyLimit::Constant(1));
    let server = serve(server).await;
    let caller = client(Protocol::BaiduStd, &server);
    let long = "x".repeat(10_000);
    let answer: String = caller.call("Probe/Echo", &long).await.unwrap();
    assert_eq!(answer, long);
    let waiting = {
        let probe = ProbeClient::new(client(Protocol::Rpcx, &server));
        tokio::spawn(async move { probe.wait("x".into()).await })
    };
    prober.gate.came(1).await;
    caller.call::<String>("Probe/Echo", "refused").await.unwrap_err();
    drop(caller);
    until(|| server.connection_count() == 1).await;

    let (_, text) = page(&server, "/metrics").await;
    assert_eq!(number(&text, "polyrpc_connections"), 2.0, "the one that waits and that of the page");
    assert_eq!(number(&text, "polyrpc_connections_accepted_total"), 3.0);
    for name in ["polyrpc_received_bytes_total", "polyrpc_sent_bytes_total"] {
        assert!((10_000.0..12_000.0).contains(&number(&text, name)), "{text}");
    }
    assert_eq!(number(&text, "polyrpc_rejections_total{cause=\"concurrency\"}"), 1.0);
    assert_eq!(number(&text, "polyrpc_pending_handlers"), 1.0);
    assert_eq!(number(&text, "polyrpc_queued_pushes"), 0.0);
    assert_eq!(number(&text, "polyrpc_build_info{version=\"0.1.0\"}"), 1.0);
    if cfg!(target_os = "linux") {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let began = number(&text, "process_start_time_seconds");
        assert!(began <= now + 1.0 && now - began < 3600.0, "{began}, now {now}");
        assert!(number(&text, "process_cpu_seconds_total") > 0.0);
        assert!(number(&text, "process_open_fds") >= 5.0);
        assert!(number(&text, "process_max_fds") >= number(&text, "process_open_fds"));
        let resident = number(&text, "process_resident_memory_bytes");
        assert!(resident > 1e6 && resident <= number(&text, "process_virtual_memory_bytes"));
    }
    prober.gate.open();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn cancelled_and_rejected_calls_are_counted_as_such() {
    let metrics = Metrics::new();
    let prober = Prober::default();
    let server = serve(prober.server().layer(metrics.clone())).await;
    let probe = ProbeClient::new(layered(Protocol::Grpc, &server, metrics.clone()));
    let waiting = tokio::spawn(async move { probe.wait("x".into()).await });
    prober.gate.came(1).await;
    let in_flight = || metrics.methods().iter().map(|method| method.in_flight()).collect::<Vec<_>>();
    assert_eq!(in_flight(), [1, 1]);
    waiting.abort();
    until(|| in_flight() == [0, 0]).await;
    let text = metrics.text();
    assert_eq!(text.matches("code=\"cancelled\"} 1").count(), 2, "{text}");
}

/// Calls itself once over another protocol.
#[polyrpc::service]
trait Relay {
    async fn relay(&self, hops: u32) -> Result<u32>;
}

struct Relaying(Mutex<Option<Client>>);

impl Relay for Arc<Relaying> {
    async fn relay(&self, hops: u32) -> Result<u32> {
        let next = self.0.lock().unwrap().clone();
        match next {
            Some(next) if hops > 0 => Ok(RelayClient::new(next).relay(hops - 1).await?),
            _ => Ok(hops),
        }
    }
}

#[tokio::test]
async fn every_span_is_a_child_of_its_enclosing_span() {
    let spans = Arc::<Mutex<Vec<(String, TraceParent, Option<u64>)>>>::default();
    let noted = spans.clone();
    let tracing = Spans::new(move |span: &Span<'_>| {
        let name = format!("{} {} {}", span.side, span.protocol.as_str(), span.name);
        noted.lock().unwrap().push((name, span.context, span.parent));
    });
    let relaying = Arc::new(Relaying(Mutex::default()));
    let server =
        serve(Server::new().service(RelayServer::new(relaying.clone())).layer(tracing.clone())).await;
    *relaying.0.lock().unwrap() = Some(layered(Protocol::BaiduStd, &server, tracing.clone()));
    let first = RelayClient::new(layered(Protocol::Grpc, &server, tracing.clone()));
    first.relay(1).await.unwrap();
    until(|| spans.lock().unwrap().len() == 4).await;
    let mut reported = std::mem::take(&mut *spans.lock().unwrap());
    reported.reverse();
    let names: Vec<_> = reported.iter().map(|(name, ..)| &**name).collect();
    assert_eq!(
        names,
        [
            "client grpc Relay/Relay",
            "server grpc Relay/Relay",
            "client baidu_std Relay/Relay",
            "server baidu_std Relay/Relay"
        ]
    );
    assert_eq!(reported[0].2, None, "the trace begins");
    for pair in reported.windows(2) {
        assert_eq!(pair[1].2, Some(pair[0].1.span_id()), "{reported:?}");
        assert_eq!(pair[1].1.trace_id(), pair[0].1.trace_id());
    }
    // An unsampled trace is not recorded, but still propagated.
    let quiet = Trace::new(TraceParent::root(false));
    propagation::scope(CallScope::default().with_trace(quiet), first.relay(1)).await.unwrap();
    let unsampled = RelayClient::new(layered(Protocol::Rpcx, &server, tracing.sample_rate(0.0)));
    unsampled.relay(1).await.unwrap();
    assert!(spans.lock().unwrap().is_empty());
}

#[tokio::test]
async fn access_log_contains_each_selected_call() {
    let lines = Arc::<Mutex<Vec<(Side, String)>>>::default();
    let noted = lines.clone();
    let log = AccessLog::new(move |line| noted.lock().unwrap().push((line.side, line.to_string())));
    let server = serve(Prober::default().server().layer(log.clone())).await;
    let client = layered(Protocol::Rpcx, &server, log.clone());
    let probe = ProbeClient::new(client.clone());
    probe.echo("hello".into()).await.unwrap();
    let reported = std::mem::take(&mut *lines.lock().unwrap());
    let [server_line, client_line] = &reported[..] else { panic!("{reported:?}") };
    assert!(server_line.1.starts_with("server rpcx 127.0.0.1:"), "{}", server_line.1);
    assert!(server_line.1.contains(" Probe/Echo ok "), "{}", server_line.1);
    assert!(client_line.1.starts_with("client rpcx - Probe/Echo ok "), "{}", client_line.1);
    let rarely = ProbeClient::new(layered(Protocol::Rpcx, &server, log.clone().sample_rate(0.0)));
    rarely.echo("hello".into()).await.unwrap();
    let slow = log.sample_rate(0.0).slow(Duration::ZERO);
    ProbeClient::new(layered(Protocol::Rpcx, &server, slow)).echo("hello".into()).await.unwrap();
    let clients = lines.lock().unwrap().iter().filter(|(side, _)| *side == Side::Client).count();
    assert_eq!(clients, 1, "the one that was slow");
    let nobody = Client::builder("rpcx://127.0.0.1:1").layer(AccessLog::new({
        let lines = lines.clone();
        move |line| lines.lock().unwrap().push((line.side, line.to_string()))
    }));
    lines.lock().unwrap().clear();
    assert!(nobody.build().unwrap().call::<()>("m", &()).await.is_err());
    let line = lines.lock().unwrap().remove(0).1;
    assert!(line.starts_with("client rpcx - m \"unavailable: cannot connect"), "{line}");
}

#[tokio::test]
async fn mirror_sends_copies_without_delaying_calls() {
    let (here, there) = (Prober::default(), Prober::default());
    let elsewhere = serve(there.server()).await;
    let mirror = Mirror::to(client(Protocol::Rpcx, &elsewhere)).max_in_flight(2);
    let server = serve(here.server().layer(mirror.clone())).await;
    let probe = ProbeClient::new(client(Protocol::Rpcx, &server));
    here.gate.open();
    for _ in 0..2 {
        probe.wait("x".into()).await.unwrap();
    }
    there.gate.came(2).await;
    // Two are in flight: a third is over the limit.
    probe.wait("x".into()).await.unwrap();
    let (answered, failed, skipped) = (mirror.succeeded(), mirror.failed(), mirror.skipped());
    assert_eq!((answered, failed, skipped), (0, 0, 1));
    there.gate.open();
    until(|| mirror.succeeded() == 2).await;
    assert_eq!(there.ran(), 2);
    // On the client side; calls mirrored already are not mirrored again by the server.
    let client = layered(Protocol::Rpcx, &server, Mirror::to(client(Protocol::Rpcx, &server)));
    ProbeClient::new(client).echo("x".into()).await.unwrap();
    until(|| here.ran() == 5).await;
    until(|| mirror.succeeded() == 3).await;
    assert_eq!(there.ran(), 3);
}

/// Records the received size of replies.
#[derive(Clone, Default)]
struct Sizes(Arc<Mutex<Vec<usize>>>);

impl Hook for Sizes {
    fn on_receive(&self, _: &Attempt<'_>, _: &mut Metadata, result: &mut Result<Bytes, Status>) {
        self.0.lock().unwrap().push(result.as_ref().map_or(0, |body| body.len()));
    }
}

#[tokio::test]
async fn only_large_messages_are_compressed() {
    let gzip = Compress::new(Compression::Gzip);
    let server = serve(Prober::default().server().layer(gzip.clone())).await;
    for protocol in [Protocol::Rpcx, Protocol::BaiduStd] {
        let sizes = Sizes::default();
        let builder = Client::builder(&url(protocol, &server)).layer(gzip.clone()).hook(sizes.clone());
        let probe = ProbeClient::new(builder.build().unwrap());
        for length in [100, 100_000] {
            let text = "x".repeat(length);
            assert_eq!(probe.echo(text.clone()).await.unwrap(), text);
        }
        let sizes = sizes.0.lock().unwrap().clone();
        assert!(sizes[0] >= 100 && sizes[1] < 1000, "{protocol:?}: {sizes:?}");
    }
}

#[tokio::test]
async fn panicking_handler_is_counted_as_failed() {
    let metrics = Metrics::new();
    let panic = || async {
        if true {
            panic!("boom")
        }
    };
    let server = serve(Server::new().function("panic", panic).layer(metrics.clone())).await;
    let error = client(Protocol::Rpcx, &server).call::<()>("panic", &()).await.unwrap_err();
    assert_ne!(error.code(), Code::Cancelled);
    let methods = metrics.methods();
    assert_eq!((methods[0].failed, methods[0].in_flight()), (1, 0));
    assert!(metrics.text().contains("code=\"internal\"} 1"));
    let _ = ProbeServer::new(Prober::default());
}

#[tokio::test]
async fn health_page_follows_the_health_status() {
    let health = Health::new();
    let server = serve(Prober::default().server().health(&health)).await;
    let status = async |path: &str| page(&server, path).await.0.split(' ').nth(1).unwrap().to_owned();
    for path in ["/health", "/health/Probe", "/health?service=Probe", "/health?service="] {
        assert_eq!(status(path).await, "200", "{path}");
    }
    assert_eq!(status("/health/Nope").await, "404");
    health.set("Probe", ServingStatus::NotServing);
    assert_eq!([status("/health/Probe").await, status("/health").await], ["503", "200"]);
    health.set("", ServingStatus::NotServing);
    assert_eq!([status("/health").await, status("/health?service=Probe").await], ["503", "503"]);
}

#[tokio::test]
async fn health_page_without_a_health_service_is_ok() {
    let server = serve(Prober::default().server()).await;
    assert_eq!(page(&server, "/health").await.1, "OK");
}

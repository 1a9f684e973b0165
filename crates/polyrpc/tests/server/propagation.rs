//! What the calls of a handler inherit from the call that it serves: deadline, trace and cancellation.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polyrpc::client::Request;
use polyrpc::propagation::{self, CallScope, Trace, TraceParent};
use polyrpc::{Code, Context, Metadata, Protocol, Result, Server};
use tokio::sync::oneshot;

use crate::common::{Gate, client, serve, serve_apart, soon, url};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[polyrpc::service]
trait Hop {
    /// Remaining milliseconds here and at every later hop, each of which works for a while.
    async fn left(&self, cx: &mut Context) -> Result<Vec<u64>>;
    /// The same on a separate thread, with a blocking client.
    #[rpc(blocking)]
    async fn left_blocking(&self, cx: &mut Context) -> Result<Vec<u64>>;
    /// Remaining time for calls of a task spawned here: without and with the current scope.
    async fn left_elsewhere(&self) -> Result<(bool, bool)>;
    /// `traceparent`, `tracestate` and `baggage` as received here and at every later hop.
    async fn trace(&self, cx: &mut Context) -> Result<Vec<Vec<String>>>;
    /// Waits at the gate of the last hop.
    async fn wait(&self) -> Result<()>;
}

#[derive(Clone, Default)]
struct Hopper {
    next: Option<HopClient>,
    blocking: Option<polyrpc::blocking::Client>,
    gate: Gate,
    dropped: Arc<Mutex<Option<oneshot::Sender<Instant>>>>,
}

/// How long a hop works before its own call.
const WORK: Duration = Duration::from_millis(20);

impl Hop for Hopper {
    async fn left(&self, cx: &mut Context) -> Result<Vec<u64>> {
        let mut left = vec![millis(cx)];
        tokio::time::sleep(WORK).await;
        if let Some(next) = &self.next {
            left.extend(next.left().await?);
        }
        Ok(left)
    }

    async fn left_blocking(&self, cx: &mut Context) -> Result<Vec<u64>> {
        let mut left = vec![millis(cx)];
        std::thread::sleep(WORK);
        if let Some(next) = &self.blocking {
            left.extend(next.call::<Vec<u64>>("Hop/Left", &())?);
        }
        Ok(left)
    }

    async fn left_elsewhere(&self) -> Result<(bool, bool)> {
        assert!(propagation::current().remaining().is_some());
        let has_deadline = async { propagation::current().deadline().is_some() };
        let bare = tokio::spawn(has_deadline).await?;
        let has_deadline = async { propagation::current().deadline().is_some() };
        let handed_on = tokio::spawn(propagation::scope(propagation::current(), has_deadline)).await?;
        Ok((bare, handed_on))
    }

    async fn trace(&self, cx: &mut Context) -> Result<Vec<Vec<String>>> {
        let came = ["traceparent", "tracestate", "baggage"].map(|key| cx.metadata().get(key).unwrap_or("-"));
        let mut traces = vec![came.map(str::to_owned).to_vec()];
        if let Some(next) = &self.next {
            traces.extend(next.trace().await?);
        }
        Ok(traces)
    }

    async fn wait(&self) -> Result<()> {
        if let Some(next) = &self.next {
            return Ok(next.wait().await?);
        }
        let _guard = Guard(self.dropped.lock().unwrap().take());
        self.gate.pass().await;
        Ok(())
    }
}

fn millis(cx: &Context) -> u64 {
    cx.remaining().map_or(u64::MAX, |left| left.as_millis() as u64)
}

/// Reports when it is dropped.
struct Guard(Option<oneshot::Sender<Instant>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(reported) = self.0.take() {
            let _ = reported.send(Instant::now());
        }
    }
}

/// One server per protocol, each of which calls the next over that one's protocol; the client of the first, and the
/// last hop.
async fn chain(protocols: &[Protocol]) -> (HopClient, Hopper, Vec<polyrpc::server::ServerHandle>) {
    let (mut servers, mut next) = (Vec::new(), None);
    let last = Hopper::default();
    for &protocol in protocols.iter().rev() {
        let hopper = Hopper { next: next.take(), ..last.clone() };
        let server = serve(Server::new().service(HopServer::new(hopper))).await;
        next = Some(HopClient::new(client(protocol, &server)));
        servers.push(server);
    }
    (next.expect("a chain has a hop"), last, servers)
}

#[tokio::test]
async fn remaining_time_shrinks_at_each_hop_over_every_protocol() {
    use Protocol::{BaiduStd, Grpc, Http, Rpcx};
    for protocols in [[Grpc, Rpcx, BaiduStd], [Http, Grpc, Rpcx], [BaiduStd, Http, Grpc]] {
        let (first, _, _servers) = chain(&protocols).await;
        let request = Request::new(()).with_timeout(Duration::from_secs(5));
        let left = soon(first.left_with(request)).await.unwrap().message;
        assert_eq!(left.len(), 3);
        assert!(left[0] <= 5000, "{protocols:?}: {left:?}");
        // Protocols carry whole milliseconds, and some round up.
        let shrinks = left.windows(2).all(|pair| pair[1] <= pair[0] + 2 - WORK.as_millis() as u64);
        assert!(shrinks, "{protocols:?}: {left:?}");
    }
}

#[tokio::test]
async fn call_with_its_own_timeout_uses_the_shorter_one() {
    let (first, _, _servers) = chain(&[Protocol::Rpcx, Protocol::Rpcx]).await;
    // Longer than the client's default timeout.
    let request = Request::new(()).with_timeout(Duration::from_secs(60));
    let left = soon(first.left_with(request)).await.unwrap().message;
    assert!(left[0] > 50_000 && left[1] <= 10_000, "{left:?}");
}

#[test]
fn blocking_handler_passes_its_deadline_to_a_blocking_client() {
    let (_last_runtime, last) = serve_apart(Server::new().service(HopServer::new(Hopper::default())));
    let blocking = polyrpc::blocking::Client::new(&url(Protocol::Rpcx, &last)).unwrap();
    let hopper = Hopper { blocking: Some(blocking), ..Hopper::default() };
    let (runtime, first) = serve_apart(Server::new().service(HopServer::new(hopper)));
    runtime.block_on(async {
        let first = HopClient::new(client(Protocol::Grpc, &first));
        let request = Request::new(()).with_timeout(Duration::from_secs(5));
        let left = soon(first.left_blocking_with(request)).await.unwrap().message;
        assert_eq!(left.len(), 2);
        assert!(left[0] <= 5000 && left[1] <= 4982, "{left:?}");
    });
}

#[tokio::test]
async fn spawned_task_inherits_only_an_explicit_scope() {
    let (first, _, _servers) = chain(&[Protocol::Grpc]).await;
    let request = Request::new(()).with_timeout(Duration::from_secs(5));
    assert_eq!(soon(first.left_elsewhere_with(request)).await.unwrap().message, (false, true));
}

#[tokio::test]
async fn call_of_a_cancelled_handler_is_not_made() {
    let (first, _, _servers) = chain(&[Protocol::Rpcx]).await;
    let late = CallScope::default().with_deadline(Instant::now());
    let error = propagation::scope(late, first.left()).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert_eq!(first.left().await.unwrap().len(), 1);
}

#[tokio::test]
async fn dropped_handler_cancels_its_calls() {
    let (first, last, _servers) = chain(&[Protocol::Grpc, Protocol::Grpc, Protocol::Grpc]).await;
    let (reported, dropped) = oneshot::channel();
    *last.dropped.lock().unwrap() = Some(reported);
    let calling = tokio::spawn(async move { first.wait().await });
    last.gate.came(1).await;
    calling.abort();
    soon(dropped).await.expect("the last hop's handler is dropped");
}

#[tokio::test]
async fn trace_is_propagated_over_every_protocol_with_metadata() {
    use Protocol::{BaiduStd, Grpc, Http, Rpcx};
    for protocols in [[BaiduStd, Rpcx, Grpc, Http], [Http, Grpc, Rpcx, BaiduStd]] {
        let (first, _, _servers) = chain(&protocols).await;
        let metadata: Metadata =
            [("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", "user=7")].into_iter().collect();
        let trace = Trace::read(&metadata).unwrap();
        let traces = propagation::scope(CallScope::default().with_trace(trace), first.trace());
        let traces = soon(traces).await.unwrap();
        assert_eq!(traces, vec![vec![PARENT, "a=1", "user=7"]; 4], "{protocols:?}");
        // No trace is left over.
        assert_eq!(first.trace().await.unwrap(), vec![vec!["-"; 3]; 4]);
    }
}

#[tokio::test]
async fn protocols_without_metadata_drop_the_trace() {
    for protocol in [Protocol::NetRpc, Protocol::RestRpc] {
        let server = serve(Server::new().function("answer", || async { 42 })).await;
        let client = client(protocol, &server);
        let inherited = CallScope::default().with_trace(Trace::new(PARENT.parse::<TraceParent>().unwrap()));
        let answer = propagation::scope(inherited, client.call::<i32>("answer", &()));
        assert_eq!(soon(answer).await.unwrap(), 42, "{protocol:?}");
    }
}

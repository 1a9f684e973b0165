//! One call to all servers of a client: broadcast, fork and inform.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Serde};
use polyrpc::discovery::{Instance, List};
use polyrpc::layer::{Call, Layer, Next, Outcome};
use polyrpc::server::ServerHandle;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Format, Protocol, Result, Retry, Server, Status};

use crate::common::{Gate, PROTOCOLS, ProbeClient, Prober, serve, soon, unreachable_address, until};

fn instance(server: &ServerHandle) -> Instance {
    Instance::tcp(server.address().to_string())
}

/// Without a timeout, so that calls must end in another way.
fn client(protocol: Protocol, servers: impl IntoIterator<Item = Instance>) -> Client {
    let url = format!("{}://somewhere", protocol.as_str());
    Client::builder(&url).timeout(None).discover(List::new(servers)).build().unwrap()
}

fn rpcx(servers: impl IntoIterator<Item = Instance>) -> Client {
    client(Protocol::Rpcx, servers)
}

async fn servers(n: usize) -> Vec<(Prober, ServerHandle)> {
    let mut servers = Vec::new();
    for _ in 0..n {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        servers.push((prober, server));
    }
    servers
}

fn instances(servers: &[(Prober, ServerHandle)]) -> Vec<Instance> {
    servers.iter().map(|(_, server)| instance(server)).collect()
}

/// A server whose `Probe/Wait` answers at once.
async fn server_answering(answer: Result<&'static str, Status>) -> ServerHandle {
    let service = ServiceBuilder::new("Probe").method::<Serde, String, String, _, _>(
        "Wait",
        move |cx: Context, _: String| {
            let answer = answer.clone().map(str::to_owned).map_err(Into::into);
            async move { (cx, answer) }
        },
    );
    serve(Server::new().service(service)).await
}

/// A server whose `Probe/Wait` blocks, and reports when it is cancelled.
async fn waiting() -> (Gate, Arc<AtomicUsize>, ServerHandle) {
    struct DropCounter(Arc<AtomicUsize>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (gate, ended) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (passed, counted) = (gate.clone(), ended.clone());
    let service = ServiceBuilder::new("Probe").method::<Serde, String, String, _, _>(
        "Wait",
        move |cx: Context, text: String| {
            let (gate, dropped) = (passed.clone(), DropCounter(counted.clone()));
            async move {
                gate.pass().await;
                drop(dropped);
                (cx, Ok(text))
            }
        },
    );
    (gate, ended, serve(Server::new().service(service)).await)
}

/// An address without a listener.
fn unreachable_instance() -> Instance {
    Instance::tcp(unreachable_address())
}

async fn wait(client: &Client) -> polyrpc::client::Result<String> {
    soon(client.call("Probe/Wait", &"hello")).await
}

#[tokio::test]
async fn broadcast_reaches_every_server_over_every_protocol() {
    let servers = servers(3).await;
    for (number, protocol) in PROTOCOLS.into_iter().enumerate() {
        let broadcast = client(protocol, instances(&servers)).broadcast();
        // By a stub, which does not know about it.
        let text = soon(ProbeClient::new(broadcast).echo("hello".to_owned())).await.unwrap();
        assert_eq!(text, "hello", "{protocol:?}");
        assert!(servers.iter().all(|(prober, _)| prober.ran() == number + 1), "{protocol:?}");
    }
}

#[tokio::test]
async fn broadcast_ends_with_the_first_failure_and_cancels_the_rest() {
    let (gate, ended, slow) = waiting().await;
    let failing = ServiceBuilder::new("Probe").method::<Serde, String, String, _, _>(
        "Wait",
        move |cx: Context, _: String| {
            let other = gate.clone();
            async move {
                other.came(1).await;
                (cx, Err(Status::permission_denied("not you").into()))
            }
        },
    );
    let failing = serve(Server::new().service(failing)).await;
    let broadcast = client(Protocol::Grpc, [instance(&slow), instance(&failing)]).broadcast();
    let error = wait(&broadcast).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.message().contains(&instance(&failing).to_string()), "{error}");
    until(|| ended.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn broadcast_fails_if_one_server_is_unreachable() {
    let servers = servers(2).await;
    let mut all = instances(&servers);
    all.push(unreachable_instance());
    let client = rpcx(all);
    for _ in 0..3 {
        let error = soon(client.broadcast().call::<String>("Probe/Echo", &"x")).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        // Other servers may have started it.
        assert_eq!(error.status().retry(), Retry::IfIdempotent);
    }
    // Plain calls continue meanwhile.
    assert_eq!(soon(client.call::<String>("Probe/Echo", &"x")).await.unwrap(), "x");
}

#[tokio::test]
async fn fork_returns_the_first_success() {
    let (_gate, _, slow) = waiting().await;
    let (failing, fast) =
        (server_answering(Err(Status::internal("broken"))).await, server_answering(Ok("fast")).await);
    let client = rpcx([instance(&slow), instance(&failing), instance(&fast), unreachable_instance()]);
    assert_eq!(wait(&client.fork()).await.unwrap(), "fast");
}

#[tokio::test]
async fn losing_calls_of_a_fork_are_cancelled() {
    let (gate, ended, slow) = waiting().await;
    let (other_gate, _, other) = waiting().await;
    let client = client(Protocol::Grpc, [instance(&slow), instance(&other)]);
    let fork = tokio::spawn(async move { wait(&client.fork()).await });
    gate.came(1).await;
    other_gate.came(1).await;
    other_gate.open();
    assert_eq!(fork.await.unwrap().unwrap(), "hello");
    until(|| ended.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn fork_fails_if_all_servers_fail() {
    let same = [
        server_answering(Err(Status::not_found("a"))).await,
        server_answering(Err(Status::not_found("b"))).await,
    ];
    let error = wait(&rpcx(same.iter().map(instance)).fork()).await.unwrap_err();
    assert!(error.message().starts_with("2 of 2 failed"), "{error}");
    let one = server_answering(Err(Status::not_found("a"))).await;
    let client = client(Protocol::Grpc, [instance(&one), unreachable_instance()]);
    let error = wait(&client.fork()).await.unwrap_err();
    // brpc's ETOOMANYFAILS.
    assert_eq!(error.status().number(), Some(1005));
}

#[tokio::test]
async fn call_to_many_has_the_timeout_of_one_call() {
    let (_gate, _, slow) = waiting().await;
    let fast = server_answering(Ok("fast")).await;
    let client = rpcx([instance(&slow), instance(&fast)]);
    // Half of it is for connecting, even if the machine stalls.
    let options = CallOptions { timeout: Some(Duration::from_secs(2)), ..Default::default() };
    let body = Body::new(Format::MessagePack, b"\xa1x".as_slice());
    let error = soon(client.broadcast().call_raw("Probe/Wait", body, options)).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let silent =
        Client::builder("rpcx://x").discover(polyrpc::discovery::InProcess::new().discover("nothing"));
    let silent = silent.timeout(Duration::from_millis(50)).build().unwrap();
    assert!(soon(silent.broadcast().call::<()>("a", &())).await.is_err());
    assert!(soon(silent.inform(|server| async move { server.call::<()>("a", &()).await })).await.is_err());
}

#[tokio::test]
async fn inform_waits_for_all_and_returns_a_receipt_for_each() {
    let (fast, broken) =
        (server_answering(Ok("fast")).await, server_answering(Err(Status::not_found("x"))).await);
    let (gate, _, slow) = waiting().await;
    let gone = unreachable_instance();
    let client = rpcx([instance(&fast), instance(&broken), instance(&slow), gone.clone()]);
    let informing = client.inform(|server| async move { server.call::<String>("Probe/Wait", &"hi").await });
    let mut informing = Box::pin(soon(informing));
    tokio::select! {
        biased;
        _ = &mut informing => panic!("one server has not answered"),
        () = gate.came(1) => gate.open(),
    }
    let receipts = informing.await.unwrap();
    assert_eq!(receipts.len(), 4);
    for (server, reply) in receipts {
        let server = server.unwrap();
        match reply {
            Ok(text) if text == "fast" => assert_eq!(server, instance(&fast)),
            Ok(text) => assert_eq!((text.as_str(), server), ("hi", instance(&slow))),
            Err(error) if error.message().contains('x') && server == instance(&broken) => {}
            Err(error) => assert_eq!((error.code(), server), (Code::Unavailable, gone.clone())),
        }
    }
}

#[tokio::test]
async fn inform_works_with_stubs() {
    let servers = servers(2).await;
    let client = client(Protocol::BaiduStd, instances(&servers));
    let receipts = client.inform(|server| async move {
        let stub = ProbeClient::new(server);
        stub.echo("one".to_owned()).await?;
        stub.echo("two".to_owned()).await
    });
    let receipts = soon(receipts).await.unwrap();
    assert!(receipts.iter().all(|(_, reply)| reply.as_ref().is_ok_and(|text| text == "two")));
    assert!(servers.iter().all(|(prober, _)| prober.ran() == 2));
    assert_eq!(client.endpoints().iter().map(|facts| facts.attempts).collect::<Vec<_>>(), [2, 2]);
}

#[tokio::test]
async fn layers_wrap_the_whole_broadcast_and_each_call_of_inform() {
    struct Counting(Arc<Mutex<usize>>);
    impl Layer for Counting {
        async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
            *self.0.lock().unwrap() += 1;
            next.call(call).await
        }
    }
    let (servers, passed) = (servers(3).await, Arc::new(Mutex::new(0)));
    let client = rpcx(instances(&servers)).layered(Counting(passed.clone()));
    let _: String = soon(client.broadcast().call("Probe/Echo", &"x")).await.unwrap();
    assert_eq!(*passed.lock().unwrap(), 1);
    let echo = |server: Client| async move { server.call::<String>("Probe/Echo", &"x").await };
    soon(client.inform(echo)).await.unwrap();
    assert_eq!(*passed.lock().unwrap(), 4);
}

#[tokio::test]
async fn broadcast_and_fork_of_one_server_call_it_once() {
    let servers = servers(1).await;
    let client = crate::common::client(Protocol::Rpcx, &servers[0].1);
    for same in [client.broadcast(), client.fork()] {
        assert_eq!(soon(same.call::<String>("Probe/Echo", &"x")).await.unwrap(), "x");
    }
    let echo = |server: Client| async move { server.call::<String>("Probe/Echo", &"x").await };
    let receipts = soon(client.inform(echo)).await.unwrap();
    assert!(matches!(receipts[..], [(None, Ok(_))]));
}

#[tokio::test]
async fn servers_removed_during_a_broadcast_still_answer_it() {
    let (gate, _, slow) = waiting().await;
    let (other_gate, _, other) = waiting().await;
    let list = List::new([instance(&slow), instance(&other)]);
    let client = Client::builder("rpcx://x").discover(list.clone()).build().unwrap();
    let broadcast = client.broadcast();
    let call = tokio::spawn(async move { wait(&broadcast).await });
    gate.came(1).await;
    other_gate.came(1).await;
    list.update([instance(&other)]);
    until(|| client.endpoints().len() == 1).await;
    gate.open();
    other_gate.open();
    assert_eq!(call.await.unwrap().unwrap(), "hello");
    assert_eq!(soon(client.broadcast().call::<String>("Probe/Wait", &"again")).await.unwrap(), "again");
    assert_eq!(gate.count(), 1);
}

#[tokio::test]
async fn dropped_broadcast_is_cancelled_on_every_server() {
    let (gate, ended, one) = waiting().await;
    let (other_gate, other_ended, other) = waiting().await;
    let broadcast = client(Protocol::Grpc, [instance(&one), instance(&other)]).broadcast();
    let call = tokio::spawn(async move { wait(&broadcast).await });
    gate.came(1).await;
    other_gate.came(1).await;
    call.abort();
    until(|| ended.load(Ordering::SeqCst) + other_ended.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn streams_cannot_be_broadcast() {
    let servers = servers(2).await;
    let broadcast = rpcx(instances(&servers)).broadcast();
    let refused =
        broadcast.open_raw("Probe/Echo", CallOptions::default(), Format::MessagePack).now_or_never();
    assert_eq!(refused.unwrap().unwrap_err().code(), Code::Unimplemented);
}

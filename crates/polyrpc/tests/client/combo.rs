//! Combined clients: parallel, selective, partition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyrpc::client::balance::{Candidate, LoadBalancer, PickContext, Picker, Policy};
use polyrpc::client::combo::{Merge, Parallel, Partition, PartitionIndex, Selective, SubChannel, fold};
use polyrpc::client::{Builder, CallOptions, OutgoingCall, Response, RetryBudget};
use polyrpc::codec::{Body, Codec, Serde};
use polyrpc::discovery::{Attributes, Instance, List};
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Code, Error, Format, Protocol, Result, Retry, Scope, Status};

use crate::common::{PROTOCOLS, ProbeClient, Prober, serve, soon, unreachable_address, until};

/// A client that answers every call with this, and counts them.
fn says(answer: Result<&'static str, Status>) -> (Client, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let client = Client::mock(move |call| {
        counted.fetch_add(1, Ordering::SeqCst);
        answer_with(&call, answer.clone()?)
    });
    (client, calls)
}

fn answer_with(call: &OutgoingCall<'_>, text: &str) -> Result<Body> {
    call.encode_reply::<Serde, _>(&text.to_owned())
}

fn ok(answer: &'static str) -> Client {
    says(Ok(answer)).0
}

fn fails(status: Status) -> Client {
    says(Err(status)).0
}

fn text(response: &Response<Body>) -> String {
    Serde::decode(response.message.clone(), None).unwrap()
}

/// Concatenates texts.
fn joined(whole: &mut Option<Response<Body>>, part: Response<Body>) -> Merge {
    let all = whole.as_ref().map(text).unwrap_or_default() + &text(&part);
    let bytes = Serde::encode(&all, Format::MessagePack, None).unwrap();
    *whole = Some(Response::new(Body::new(Format::MessagePack, bytes)));
    Merge::Merged
}

fn join(client: Client) -> SubChannel {
    SubChannel::new(client).merge(|whole, part, _| joined(whole, part))
}

/// An unreachable server.
fn gone() -> Status {
    Status::unavailable("gone").with_scope(Scope::Connection).with_retry(Retry::Elsewhere)
}

async fn call(client: &Client) -> polyrpc::client::Result<String> {
    soon(client.call("Probe/Echo", &"hello")).await
}

async fn wait(client: &Client) -> polyrpc::client::Result<String> {
    soon(client.call("Probe/Wait", &"hello")).await
}

fn instance(server: &ServerHandle) -> Instance {
    Instance::tcp(server.address().to_string())
}

fn tagged(server: &ServerHandle, tags: &[&str]) -> Instance {
    let mut instance = instance(server);
    tags.iter().for_each(|tag| instance.attributes.append("tag", *tag));
    instance
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

/// An address without a listener.
fn unreachable_instance() -> Instance {
    Instance::tcp(unreachable_address())
}

#[tokio::test]
async fn parallel_call_reaches_all_over_every_protocol() {
    let servers = servers(2).await;
    for (number, protocol) in PROTOCOLS.into_iter().enumerate() {
        let subs = servers.iter().map(|(_, server)| crate::common::client(protocol, server));
        let parallel = subs.fold(Parallel::new(), |builder, sub| builder.sub_channel(sub)).build().unwrap();
        let text = soon(ProbeClient::new(parallel).echo("hello".to_owned())).await.unwrap();
        assert_eq!(text, "hello", "{protocol:?}");
        assert!(servers.iter().all(|(prober, _)| prober.ran() == number + 1), "{protocol:?}");
    }
}

#[tokio::test]
async fn mapper_changes_the_call_for_each_client() {
    let echo = || {
        Client::mock(|call| {
            answer_with(&call, &format!("{}={}", call.method, call.decode::<Serde, String>()?))
        })
    };
    let part = |client| {
        join(client).map(|call, partition| {
            let text = call.decode::<Serde, String>()?;
            let word = text.split(' ').nth(partition.index).unwrap_or_default().to_owned();
            call.with_message::<Serde, String>(word).map(Some)
        })
    };
    let renamed = join(echo()).map(|mut call, partition| {
        call.method = if partition.count == 3 { "Last" } else { "First" };
        Ok(Some(call))
    });
    let builder = Parallel::new().sub_channel(part(echo())).sub_channel(part(echo())).sub_channel(renamed);
    let answer: String = builder.build().unwrap().call("S/Get", &"one two").await.unwrap();
    assert_eq!(answer, "Get=oneGet=twoLast=one two");
}

#[tokio::test]
async fn mapped_request_works_over_every_protocol() {
    let servers = servers(1).await;
    for protocol in PROTOCOLS {
        let sub = SubChannel::new(crate::common::client(protocol, &servers[0].1)).map(|call, _| {
            let louder = call.decode::<Serde, String>()? + "!";
            call.with_message::<Serde, String>(louder).map(Some)
        });
        let client = ProbeClient::new(Parallel::new().sub_channel(sub).build().unwrap());
        assert_eq!(soon(client.echo("hello".to_owned())).await.unwrap(), "hello!", "{protocol:?}");
    }
}

#[tokio::test]
async fn skipped_client_is_not_called_and_a_bad_request_calls_none() {
    let (skipped, skips) = says(Ok("skipped"));
    let (asked, asks) = says(Ok("asked"));
    let skip = SubChannel::new(skipped).map(|_, _| Ok(None));
    let parallel = Parallel::new().sub_channel(skip.clone()).sub_channel(asked.clone()).build().unwrap();
    assert_eq!(call(&parallel).await.unwrap(), "asked");

    let all_skipped = Parallel::new().sub_channel(skip).build().unwrap();
    assert_eq!(call(&all_skipped).await.unwrap_err().code(), Code::Cancelled);

    let bad = SubChannel::new(ok("")).map(|_, _| Err(Status::invalid_argument("no such part")));
    let error =
        call(&Parallel::new().sub_channel(asked).sub_channel(bad).build().unwrap()).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "no such part"));
    assert_eq!((skips.load(Ordering::SeqCst), asks.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test]
async fn parallel_call_fails_only_at_its_fail_limit() {
    let with_limit = |limit: Option<usize>| {
        let builder =
            Parallel::new().sub_channel(ok("a")).sub_channel(fails(gone())).sub_channel(fails(gone()));
        match limit {
            Some(limit) => builder.fail_limit(limit),
            None => builder,
        }
    };
    assert_eq!(call(&with_limit(None).build().unwrap()).await.unwrap(), "a");
    assert_eq!(call(&with_limit(Some(3)).build().unwrap()).await.unwrap(), "a");
    assert_eq!(call(&with_limit(Some(2)).build().unwrap()).await.unwrap_err().code(), Code::Unavailable);
    let mixed = Parallel::new()
        .sub_channel(fails(gone()))
        .sub_channel(fails(Status::not_found("x")))
        .build()
        .unwrap();
    let error = call(&mixed).await.unwrap_err();
    assert_eq!(error.status().number(), Some(1005));
    assert!(error.message().contains("client 1: not found: x"), "{error}");
}

#[tokio::test]
async fn success_limit_ends_a_parallel_call_and_cancels_the_rest() {
    let servers = servers(3).await;
    // No timeout ends the third.
    let client =
        |server| Client::builder(&crate::common::url(Protocol::Rpcx, server)).timeout(None).build().unwrap();
    let subs = servers.iter().map(|(_, server)| client(server));
    let parallel =
        subs.fold(Parallel::new(), |builder, sub| builder.sub_channel(sub)).success_limit(2).build().unwrap();
    let call = tokio::spawn(async move { wait(&parallel).await });
    for (prober, _) in &servers {
        prober.gate.came(1).await;
    }
    servers[0].0.gate.open();
    servers[2].0.gate.open();
    assert_eq!(call.await.unwrap().unwrap(), "hello");
}

#[tokio::test]
async fn sub_call_timeout_counts_as_a_failure_and_the_rest_is_merged() {
    let servers = servers(2).await;
    servers[0].0.gate.open();
    let subs = || servers.iter().map(|(_, server)| crate::common::client(Protocol::Rpcx, server));
    let builder = |milliseconds| {
        subs()
            .fold(Parallel::new(), |builder, sub| builder.sub_channel(sub))
            .timeout(Duration::from_millis(milliseconds))
    };
    let mut answer = wait(&builder(100).build().unwrap()).await;
    for milliseconds in [1_000, 10_000] {
        // Both calls time out if the machine stalls.
        if answer.is_err() {
            answer = wait(&builder(milliseconds).build().unwrap()).await;
        }
    }
    assert_eq!(answer.unwrap(), "hello");
    let strict = builder(100).fail_limit(1).build().unwrap();
    assert_eq!(wait(&strict).await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn mergers_run_in_response_order_and_can_reject() {
    let servers = servers(2).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let subs = servers.iter().map(|(_, server)| {
        let order = order.clone();
        SubChannel::new(crate::common::client(Protocol::Rpcx, server)).merge(move |whole, part, partition| {
            order.lock().unwrap().push(partition.index);
            joined(whole, part)
        })
    });
    let parallel = subs.fold(Parallel::new(), |builder, sub| builder.sub_channel(sub)).build().unwrap();
    let call = tokio::spawn(async move { wait(&parallel).await });
    servers[0].0.gate.came(1).await;
    servers[1].0.gate.open();
    until(|| order.lock().unwrap().len() == 1).await;
    servers[0].0.gate.open();
    assert_eq!(call.await.unwrap().unwrap(), "hellohello");
    assert_eq!(*order.lock().unwrap(), [1, 0]);

    let refuse = |merge: fn() -> Merge| SubChannel::new(ok("b")).merge(move |_, _, _| merge());
    let failed = refuse(|| Merge::Fail(Status::data_loss("b")));
    assert_eq!(soon(call_of(join(ok("a")), failed)).await.unwrap(), "a");
    let all_failed = refuse(|| Merge::FailAll(Status::data_loss("b")));
    assert_eq!(soon(call_of(join(ok("a")), all_failed)).await.unwrap_err().code(), Code::DataLoss);
    assert!(
        soon(call_of(SubChannel::new(ok("a")), SubChannel::new(ok("b"))))
            .await
            .unwrap_err()
            .message()
            .contains("merger")
    );
}

async fn call_of(one: SubChannel, other: SubChannel) -> polyrpc::client::Result<String> {
    call(&Parallel::new().sub_channel(one).sub_channel(other).build()?).await
}

#[tokio::test]
async fn values_are_folded_and_invalid_ones_are_failures() {
    let says = |number: i64| Client::mock(move |call| call.encode_reply::<Serde, _>(&number));
    let adding = |client: Client| SubChannel::new(client).merge(fold::<Serde, i64>(|all, part| all + part));
    let builder = || {
        Parallel::new()
            .sub_channel(adding(says(1)))
            .sub_channel(adding(ok("?")))
            .sub_channel(adding(says(41)))
    };
    let sum: i64 = builder().build().unwrap().call("S/M", &()).await.unwrap();
    assert_eq!(sum, 42);
    let strict = builder().fail_limit(1).build().unwrap();
    let error = strict.call::<i64>("S/M", &()).await.unwrap_err();
    assert!(error.message().contains("client 1: internal: unreadable reply"), "{error}");
}

#[tokio::test]
async fn protobuf_messages_are_merged() {
    let says = |bytes: &'static [u8]| Client::mock(move |call| Ok(Body::new(call.body.format, bytes)));
    let parallel =
        Parallel::new().sub_channel(says(b"\x0a\x01a")).sub_channel(says(b"\x0a\x01b")).build().unwrap();
    let request = Body::new(Format::Protobuf, b"".as_slice());
    let response = parallel.call_raw("S/M", request, CallOptions::default()).await.unwrap();
    assert_eq!(response.message.bytes.as_ref(), b"\x0a\x01a\x0a\x01b");
}

#[tokio::test]
async fn combinations_can_be_nested() {
    let inner = Parallel::new().sub_channel(join(ok("a"))).sub_channel(join(ok("b"))).build().unwrap();
    let selective =
        Selective::builder().sub_channel("gone", fails(gone())).sub_channel("inner", inner).build().unwrap();
    let outer =
        Parallel::new().sub_channel(join(selective.client())).sub_channel(join(ok("c"))).build().unwrap();
    for _ in 0..4 {
        assert_eq!(call(&outer).await.unwrap(), "abc");
    }
}

#[test]
fn empty_combination_is_an_error() {
    assert_eq!(Parallel::new().build().unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(Selective::builder().build().unwrap_err().code(), Code::InvalidArgument);
    let of_one = || Ok(Client::builder("rpcx://h:1"));
    assert_eq!(Partition::new(2, of_one).build().unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(Partition::dynamic(of_one).build().unwrap_err().code(), Code::InvalidArgument);
    let found = || Ok(Client::builder("rpcx+list://h:1 0/1"));
    assert_eq!(Partition::new(0, found).build().unwrap_err().code(), Code::InvalidArgument);
    let failing = || Err(Error::new(Code::DataLoss, "no"));
    assert_eq!(Partition::new(1, failing).build().unwrap_err().code(), Code::DataLoss);
}

/// The clock stands still: an ejection ends after a second.
#[tokio::test(start_paused = true)]
async fn selective_call_fails_over_to_another_client() {
    let (well, calls) = says(Ok("well"));
    let (down, tries) = says(Err(gone()));
    let selective = Selective::builder().sub_channel("down", down).sub_channel("well", well).build().unwrap();
    let client = selective.client();
    for _ in 0..10 {
        assert_eq!(call(&client).await.unwrap(), "well");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 10);
    // It was ejected after the first failure.
    assert_eq!(tries.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn selective_call_never_reaches_a_client_that_the_balancer_excludes() {
    let (drained, calls) = says(Ok("drained"));
    let weight = |weight: &str| Attributes::new().with("weight", weight);
    let selective = Selective::builder()
        .sub_channel_with("down", fails(gone()), weight("1"))
        .sub_channel_with("drained", drained, weight("0"))
        .balance(Policy::weighted_round_robin());
    let client = selective.build().unwrap().client();
    for _ in 0..3 {
        assert_eq!(call(&client).await.unwrap_err().message(), "gone");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn selective_call_is_retried_only_if_its_failure_allows() {
    let broken = || fails(Status::unavailable("broken").with_retry(Retry::IfIdempotent));
    let selective = |retries| {
        let builder =
            Selective::builder().sub_channel("a", broken()).sub_channel("b", broken()).retries(retries);
        let (last, calls) = says(Ok("last"));
        (builder.sub_channel("c", last).balance(First).build().unwrap().client(), calls)
    };
    let again = |client: Client| async move {
        let options = CallOptions { idempotent: true, ..Default::default() };
        soon(client.call_raw("a", Body::new(Format::MessagePack, b"\xc0".as_slice()), options)).await
    };
    let (client, calls) = selective(3);
    assert_eq!(call(&client).await.unwrap_err().message(), "broken");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(again(client).await.is_ok());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let (client, calls) = selective(1);
    assert!(again(client).await.is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn selective_retries_stay_within_the_budget() {
    let busy = || says(Err(Status::unavailable("busy").with_retry(Retry::Elsewhere)));
    let ((one, tries), (other, more)) = (busy(), busy());
    let budget = RetryBudget { ratio: 0.2, initial_tokens: 10, max_tokens: 100 };
    let selective =
        Selective::builder().sub_channel("one", one).sub_channel("other", other).retry_budget(budget);
    let client = selective.build().unwrap().client();
    for _ in 0..1000 {
        assert_eq!(call(&client).await.unwrap_err().message(), "busy");
    }
    let attempts = tries.load(Ordering::SeqCst) + more.load(Ordering::SeqCst);
    assert!((1150..=1200).contains(&attempts), "{attempts}");
}

/// Picks the first available server.
#[derive(Debug)]
struct First;

impl LoadBalancer for First {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        struct Turn(usize);
        impl Picker for Turn {
            fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
                (0..self.0).find(|&index| asked.is_eligible(index))
            }
        }
        Box::new(Turn(candidates.len()))
    }
}

#[tokio::test]
async fn clients_can_be_added_and_removed_during_selective_calls() {
    let servers = servers(2).await;
    let client_of = |index: usize| crate::common::client(Protocol::Rpcx, &servers[index].1);
    let selective = Selective::builder().sub_channel("one", client_of(0)).build().unwrap();
    let client = selective.client();
    let under_way = tokio::spawn({
        let client = client.clone();
        async move { wait(&client).await }
    });
    servers[0].0.gate.came(1).await;

    selective.add("two", client_of(1));
    assert!(selective.remove("one") && !selective.remove("one"));
    assert_eq!(selective.names(), ["two"]);
    assert_eq!(call(&client).await.unwrap(), "hello");
    assert_eq!((servers[0].0.ran(), servers[1].0.ran()), (1, 1));
    servers[0].0.gate.open();
    assert_eq!(under_way.await.unwrap().unwrap(), "hello");

    selective.remove("two");
    let error = call(&client).await.unwrap_err();
    assert_eq!((error.code(), error.status().retry()), (Code::Unavailable, Retry::Elsewhere));
    selective.add("three", ok("three"));
    selective.add("three", ok("four"));
    assert_eq!(call(&client).await.unwrap(), "four");
}

#[tokio::test]
async fn selective_call_has_one_timeout_for_all_attempts() {
    let servers = servers(2).await;
    let builder = servers.iter().enumerate().fold(Selective::builder(), |builder, (index, (_, server))| {
        builder.sub_channel(index.to_string(), crate::common::client(Protocol::Rpcx, server))
    });
    let client = builder.timeout(Duration::from_millis(50)).build().unwrap().client();
    assert_eq!(wait(&client).await.unwrap_err().code(), Code::DeadlineExceeded);
    let began: usize = servers.iter().map(|(prober, _)| prober.ran()).sum();
    assert!(began <= 1, "{began}");
}

/// A client of the list's servers.
fn template(list: &List) -> impl Fn() -> polyrpc::client::Result<Builder> + Send + Sync + 'static {
    let list = list.clone();
    move || Ok(Client::builder("rpcx://parts").discover(list.clone()))
}

#[tokio::test]
async fn partitioned_call_reaches_one_server_of_each_partition() {
    let servers = servers(5).await;
    let tags: [&[&str]; 5] = [&["0/2"], &["1/2"], &["1/2"], &["0/3"], &[]];
    let list = List::new(servers.iter().zip(tags).map(|((_, server), tags)| tagged(server, tags)));
    let client = Partition::new(2, template(&list)).fail_limit(1).build().unwrap();
    for _ in 0..4 {
        assert_eq!(call(&client).await.unwrap(), "hello");
    }
    let ran: Vec<_> = servers.iter().map(|(prober, _)| prober.ran()).collect();
    assert_eq!((ran[0], ran[1] + ran[2], ran[3], ran[4]), (4, 4, 0, 0), "{ran:?}");
    // The available servers of both partitions.
    assert_eq!(client.endpoints().len(), 3);
}

#[tokio::test]
async fn server_with_several_tags_holds_several_partitions() {
    let servers = servers(1).await;
    let list = List::new([tagged(&servers[0].1, &["0/3", "1/3", "2/3"])]);
    let client = Partition::new(3, template(&list)).build().unwrap();
    assert_eq!(call(&client).await.unwrap(), "hello");
    assert_eq!(servers[0].0.ran(), 3);
}

#[tokio::test]
async fn partitions_are_discovered_by_the_url_of_the_template() {
    let servers = servers(2).await;
    let url = format!("baidu-std+list://{} 0/2,{} 1/2", servers[0].1.address(), servers[1].1.address());
    let client = Partition::new(2, move || Ok(Client::builder(&url))).fail_limit(1).build().unwrap();
    assert_eq!(call(&client).await.unwrap(), "hello");
    assert!(servers.iter().all(|(prober, _)| prober.ran() == 1));
}

#[tokio::test]
async fn partition_without_a_server_fails() {
    let servers = servers(1).await;
    let list = List::new([tagged(&servers[0].1, &["0/2"])]);
    assert_eq!(call(&Partition::new(2, template(&list)).build().unwrap()).await.unwrap(), "hello");
    let strict = Partition::new(2, template(&list)).fail_limit(1).build().unwrap();
    assert_eq!(call(&strict).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn partitions_can_move_during_calls() {
    let servers = servers(3).await;
    let server = |index: usize| &servers[index].1;
    let list = List::new([tagged(server(0), &["0/2"]), tagged(server(1), &["1/2"])]);
    let client = Partition::new(2, template(&list)).fail_limit(1).build().unwrap();
    let under_way = tokio::spawn({
        let client = client.clone();
        async move { wait(&client).await }
    });
    servers[0].0.gate.came(1).await;
    servers[1].0.gate.came(1).await;
    list.update([tagged(server(0), &["0/2"]), tagged(server(2), &["1/2"])]);
    let holds = |server: &ServerHandle| {
        client.endpoints().iter().any(|facts| facts.instance.address == server.address().to_string())
    };
    until(|| holds(server(2)) && !holds(server(1))).await;
    assert_eq!(call(&client).await.unwrap(), "hello");
    assert_eq!((servers[1].0.ran(), servers[2].0.ran()), (1, 1));
    servers[0].0.gate.open();
    servers[1].0.gate.open();
    assert_eq!(under_way.await.unwrap().unwrap(), "hello");
}

#[tokio::test]
async fn custom_tag_parser_assigns_partitions() {
    let servers = servers(2).await;
    let list = List::new([tagged(&servers[0].1, &["shard-a"]), tagged(&servers[1].1, &["shard-b"])]);
    let parse = |tag: &str| {
        let index = match tag {
            "shard-a" => 0,
            // An index beyond the last partition is ignored.
            "shard-b" => 2,
            _ => return None,
        };
        Some(PartitionIndex { index, count: 1 })
    };
    let client = Partition::new(1, template(&list)).parse(parse).build().unwrap();
    assert_eq!(call(&client).await.unwrap(), "hello");
    assert_eq!((servers[0].0.ran(), servers[1].0.ran()), (1, 0));
}

#[tokio::test]
async fn partitioned_calls_are_mapped_and_merged() {
    let servers = servers(2).await;
    let list = List::new([tagged(&servers[0].1, &["0/2"]), tagged(&servers[1].1, &["1/2"])]);
    let client = Partition::new(2, template(&list))
        .map(|call, partition| call.with_message::<Serde, String>(partition.index.to_string()).map(Some))
        .merge(|whole, part, _| joined(whole, part))
        .build()
        .unwrap();
    let mut answer: Vec<_> = call(&client).await.unwrap().chars().collect();
    answer.sort_unstable();
    assert_eq!(answer, ['0', '1']);
}

#[tokio::test]
async fn traffic_is_split_by_the_capacity_of_partitionings() {
    let servers = servers(4).await;
    let server = |index: usize| &servers[index].1;
    // A partitioning in two with one server each, and a whole on two servers: 1 to 2.
    let list = List::new([
        tagged(server(0), &["0/2"]),
        tagged(server(1), &["1/2"]),
        tagged(server(2), &["0/1"]),
        tagged(server(3), &["0/1", "0/4"]),
    ]);
    let client = Partition::dynamic(template(&list)).fail_limit(1).build().unwrap();
    let calls = 600;
    for _ in 0..calls {
        assert_eq!(call(&client).await.unwrap(), "hello");
    }
    let ran: BTreeMap<_, _> =
        servers.iter().enumerate().map(|(index, (prober, _))| (index, prober.ran())).collect();
    assert_eq!(ran[&0], ran[&1]);
    assert_eq!(ran[&0] + ran[&2] + ran[&3], calls);
    // Six standard deviations.
    assert!(ran[&0].abs_diff(calls / 3) < 70, "{ran:?}");
}

#[tokio::test]
async fn calls_follow_a_change_of_partitioning() {
    let servers = servers(3).await;
    let server = |index: usize| &servers[index].1;
    let list = List::new([tagged(server(0), &["0/1"]), tagged(server(1), &["0/2"])]);
    let client = Partition::dynamic(template(&list)).fail_limit(1).build().unwrap();
    for _ in 0..10 {
        assert_eq!(call(&client).await.unwrap(), "hello");
    }
    let ran = |index: usize| servers[index].0.ran();
    // An incomplete partitioning receives nothing.
    assert_eq!((ran(0), ran(1)), (10, 0));

    list.update([tagged(server(1), &["0/2"]), tagged(server(2), &["1/2"])]);
    soon(async {
        while ran(2) == 0 {
            assert_eq!(call(&client).await.unwrap(), "hello");
        }
    })
    .await;
    let before = ran(0);
    for _ in 0..10 {
        assert_eq!(call(&client).await.unwrap(), "hello");
    }
    assert_eq!((ran(0), ran(1)), (before, ran(2)));
}

#[tokio::test]
async fn calls_wait_for_a_complete_partitioning() {
    let servers = servers(2).await;
    let list = List::new([tagged(&servers[0].1, &["0/2"])]);
    let client = Partition::dynamic(template(&list)).build().unwrap();
    let options = CallOptions { timeout: Some(Duration::from_millis(20)), ..Default::default() };
    let nothing = Body::new(Format::MessagePack, b"\xa0".as_slice());
    let error = soon(client.call_raw("Probe/Echo", nothing, options)).await.unwrap_err();
    assert!(error.message().contains("some partitions have no server"), "{error}");
    let waiting = tokio::spawn(async move { call(&client).await });
    list.update([tagged(&servers[0].1, &["0/2"]), tagged(&servers[1].1, &["1/2"])]);
    assert_eq!(waiting.await.unwrap().unwrap(), "hello");
}

#[tokio::test]
async fn failing_partitioning_is_skipped_for_another() {
    let servers = servers(1).await;
    let list = List::new([
        tagged(&servers[0].1, &["0/1"]),
        unreachable_instance().with("tag=0/2".parse().unwrap()),
        unreachable_instance().with("tag=1/2".parse().unwrap()),
    ]);
    let client = Partition::dynamic(template(&list)).fail_limit(1).build().unwrap();
    for _ in 0..10 {
        let options = CallOptions { idempotent: true, ..Default::default() };
        let body = Body::new(Format::MessagePack, b"\xa1x".as_slice());
        soon(client.call_raw("Probe/Echo", body, options)).await.unwrap();
    }
    assert_eq!(servers[0].0.ran(), 10);
}

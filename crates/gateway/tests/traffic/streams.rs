//! Streams through the gateway: from web pages, of topics, with slow readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use polyrpc::client::{CallOptions, RawCall};
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::rest_rpc::Version;
use polyrpc::server::Listen;
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Bytes, Client, Format, Result, Server, Status, Streaming};
use polyrpc_gateway::{Config, Gateway, check};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::shop::{proto, wait_for_page};

async fn gateway(url: &str, route: &str) -> Gateway {
    named_gateway("gateway", "16MiB", url, route).await
}

/// `name`: what the names of its variables begin with.
async fn named_gateway(name: &str, memory: &str, url: &str, route: &str) -> Gateway {
    let text = format!(
        r#"
            name = "{name}"
            [schema]
            proto = ["{proto}"]
            [limits]
            memory = "{memory}"
            [admin]
            listen = "127.0.0.1:0"
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "feed"
            url = "{url}"
            [[route]]
            to = "feed"
            {route}
        "#,
        proto = proto()
    );
    let config = Config::parse(&text).unwrap();
    check(&config).unwrap();
    Gateway::start(config).await.unwrap()
}

/// A call as a web page or curl makes it, and the lines of the response's body, without the sizes of its chunks.
struct Page(BufReader<TcpStream>);

impl Page {
    async fn open(gateway: &Gateway, accept: &str) -> Self {
        let address = gateway.addresses()[0].to_string();
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request = format!(
            "POST /shop.Feed/Watch HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Accept: {accept}\r\nContent-Length: 8\r\n\r\n{{\"id\":7}}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the next line that begins so.
    async fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let read = timeout(Duration::from_secs(60), self.0.read_line(&mut line)).await;
            assert!(read.expect("a line comes in time").unwrap() > 0, "no line begins with {start}");
            if line.starts_with(start) {
                return line.trim_end().to_owned();
            }
        }
    }
}

/// A server of gRPC that sends these messages.
async fn feed(
    messages: impl Fn() -> Streaming<Bytes> + Send + Sync + 'static,
) -> polyrpc::server::ServerHandle {
    let server = Server::new().fallback(move |mut call: RawRequest| {
        let messages = messages();
        async move {
            call.body().await?;
            Ok(RawResponse::messages(messages))
        }
    });
    server.bind("127.0.0.1:0").await.unwrap().start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_stream_of_grpc_is_lines_of_json_and_server_sent_events() {
    let offers = || {
        let offers = [&b"\x08\x07\x18\x15"[..], b"\x08\x07\x18\x16"].map(Bytes::from_static);
        let offers = offers.into_iter().map(Ok);
        let failure = Err(polyrpc::Status::data_loss("the feed broke").into());
        Streaming::from_stream(futures_util::stream::iter(offers.chain([failure])))
    };
    let server = feed(offers).await;
    let gateway = gateway(&format!("grpc://{}", server.address()), "").await;
    let mut lines = Page::open(&gateway, "application/x-ndjson").await;
    assert_eq!(lines.line("{").await, r#"{"id":"7","price":"21"}"#);
    assert_eq!(lines.line("{").await, r#"{"id":"7","price":"22"}"#);
    assert!(lines.line("{").await.contains("the feed broke"), "the failure is the last line");
    let mut events = Page::open(&gateway, "text/event-stream").await;
    assert_eq!(events.line("data:").await, r#"data: {"id":"7","price":"21"}"#);
    assert_eq!(events.line("data:").await, r#"data: {"id":"7","price":"22"}"#);
    assert!(events.line("data:").await.contains("the feed broke"));
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_topic_are_a_stream_of_responses() {
    let server = Server::new();
    let publisher = server.publisher();
    let listen = Listen::on("127.0.0.1:0").rest_rpc(Version::V0_20);
    let server = server.bind(listen).await.unwrap().start();
    let url = format!("rest-rpc://{}?version=0.20", server.address());
    let route = "match = { service = \"shop.Feed\" }\nsubscribe = { key = \"offers\" }";
    let gateway = gateway(&url, route).await;
    let mut page = Page::open(&gateway, "text/event-stream").await;
    let grpc = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let mut call = grpc.open_raw("shop.Feed/Watch", CallOptions::default(), Format::Protobuf).await.unwrap();
    call.send(Bytes::from_static(b"\x08\x07")).await.unwrap();
    call.finish_sending().await.unwrap();
    // A subscription is not acknowledged, and what is published before it is lost: one message a caller is enough.
    let publishing = async {
        loop {
            publisher.publish("offers", "", &json!({ "id": 7, "price": 21 })).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let receiving = async {
        assert_eq!(page.line("data:").await, r#"data: {"id":"7","price":"21"}"#);
        timeout(Duration::from_secs(60), call.next()).await.unwrap().unwrap().unwrap()
    };
    let message = tokio::select! {
        message = receiving => message,
        () = publishing => unreachable!(),
    };
    assert_eq!(&message.bytes[..], b"\x08\x07\x18\x15");
    gateway.shutdown().await;
}

/// A brpc server's metadata are those of its reply, which accepts the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_a_brpc_reply_are_those_of_the_stream() {
    let server = Server::new().fallback(|mut call: RawRequest| async move {
        for (_, sender) in call.accept_streams(StreamOptions::default())? {
            tokio::spawn(async move { sender.send(Bytes::from_static(b"\x08\x07\x18\x15")).await });
        }
        let mut reply = RawResponse::message(Bytes::new());
        reply.metadata.insert("price-in", "cents");
        Ok(reply)
    });
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    let gateway = gateway(&format!("baidu-std://{}", server.address()), "").await;
    let grpc = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let mut call = grpc.open_raw("shop.Feed/Watch", CallOptions::default(), Format::Protobuf).await.unwrap();
    call.send(Bytes::from_static(b"\x08\x07")).await.unwrap();
    call.finish_sending().await.unwrap();
    let metadata = timeout(Duration::from_secs(60), call.metadata()).await.unwrap().unwrap();
    assert_eq!(metadata.get("price-in"), Some("cents"));
    let message = timeout(Duration::from_secs(60), call.next()).await.unwrap().unwrap();
    assert_eq!(&message.unwrap().bytes[..], b"\x08\x07\x18\x15");
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_fail_are_counted_and_make_the_route_fall_back() {
    let offer = || Ok(Bytes::from_static(b"\x08\x07\x18\x15"));
    let broken = move || {
        let failure = Err(polyrpc::Status::data_loss("the feed broke").into());
        Streaming::from_stream(futures_util::stream::iter([offer(), failure]))
    };
    let (broken, good) = (
        feed(broken).await,
        feed(move || Streaming::from_stream(futures_util::stream::iter([offer()]))).await,
    );
    let text = format!(
        r#"
            [admin]
            listen = "127.0.0.1:0"
            [schema]
            proto = ["{proto}"]
            [[listen]]
            address = "127.0.0.1:0"
            [[upstream]]
            name = "broken"
            url = "grpc://{}"
            [[upstream]]
            name = "good"
            url = "grpc://{}"
            [[route]]
            to = {{ broken = 1, good = 0 }}
            rollback = {{ to = "good", failures = 0.5, min_calls = 10 }}
        "#,
        broken.address(),
        good.address(),
        proto = proto()
    );
    let gateway = Gateway::start(Config::parse(&text).unwrap()).await.unwrap();
    // gRPC passes unread, lines of JSON are translated.
    let grpc = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let watch = async || {
        let mut call = grpc.open_raw("shop.Feed/Watch", CallOptions::default(), Format::Protobuf).await?;
        // If the call has ended, its receiving half has the reason.
        let _ = call.send(Bytes::from_static(b"\x08\x07")).await;
        let _ = call.finish_sending().await;
        while call.next().await?.is_some() {}
        Ok::<_, polyrpc::Error>(())
    };
    for _ in 0..5 {
        assert_eq!(watch().await.unwrap_err().code(), polyrpc::Code::DataLoss);
        let mut lines = Page::open(&gateway, "application/x-ndjson").await;
        lines.line("{\"id\"").await;
        lines.line("{").await;
    }
    let routes = wait_for_page(&gateway, "routes", |routes| !routes[0]["fell_back"].is_null()).await;
    assert_eq!(routes[0]["failed"], 10, "{routes:#}");
    watch().await.unwrap();
    let routes = wait_for_page(&gateway, "routes", |routes| routes[1]["succeeded"] == 1).await;
    assert_eq!(routes[1]["upstream"], "good", "{routes:#}");
    gateway.shutdown().await;
}

/// Counts a conversation of the upstream that has ended.
struct EndCounter(Arc<AtomicUsize>);

impl Drop for EndCounter {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns every request, and breaks after the one that is [`BREAK`].
async fn echo(mut messages: Streaming<Bytes>, sender: &Sender<Bytes>, _ended: EndCounter) -> Result<()> {
    while let Some(message) = messages.message().await? {
        sender.send(message.clone()).await?;
        if message == BREAK {
            return Err(Status::data_loss("the conversation broke").into());
        }
    }
    Ok(())
}

/// A server whose conversations are echoes, over streams of gRPC and attached ones; counts those that ended.
async fn echoes() -> (polyrpc::server::ServerHandle, Arc<AtomicUsize>) {
    let ended = Arc::<AtomicUsize>::default();
    let counted = ended.clone();
    let server = Server::new().fallback(move |mut call: RawRequest| {
        let counted = counted.clone();
        async move {
            if call.is_streamed() {
                let (messages, ended) = (call.messages(), EndCounter(counted));
                let answers = |sender| async move { echo(messages, &sender, ended).await };
                return Ok(RawResponse::messages(Streaming::produce(answers)));
            }
            for (messages, sender) in call.accept_streams(StreamOptions::default())? {
                let ended = EndCounter(counted.clone());
                tokio::spawn(async move {
                    if let Err(failure) = echo(messages, &sender, ended).await {
                        sender.fail(failure).await;
                    }
                });
            }
            Ok(RawResponse::message(Bytes::new()))
        }
    });
    (server.bind("127.0.0.1:0").await.unwrap().start(), ended)
}

/// Opens conversations on streams that are attached to one call, each of which has begun.
async fn conversations(address: &str, streams: usize) -> Vec<RawCall> {
    let client = Client::new(&format!("baidu-std://{address}")).unwrap();
    let (body, options) = (Body::new(Format::Protobuf, Bytes::new()), StreamOptions::default());
    let opened = client.open_streams_raw("shop.Feed/Chat", body, CallOptions::default(), options, streams);
    let mut calls = opened.await.unwrap().1;
    for call in &mut calls {
        call.send(GOES_ON).await.unwrap();
        let echo = timeout(Duration::from_secs(60), call.next()).await.unwrap().unwrap();
        assert_eq!(echo.unwrap().bytes, GOES_ON);
    }
    calls
}

/// Breaks a conversation, and continues to send until it is stopped. Returns the responses that it got after the break.
async fn break_off(call: RawCall) -> Vec<Bytes> {
    let (mut sender, mut receiver) = call.split();
    sender.send(BREAK).await.unwrap();
    let sending = async {
        while sender.send(GOES_ON).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let receiving = async {
        let mut responses = Vec::new();
        while let Ok(Some(response)) = receiver.next().await {
            responses.push(response.bytes);
        }
        responses
    };
    timeout(Duration::from_secs(60), async { tokio::join!(sending, receiving).1 }).await.unwrap()
}

/// An attached stream is counted by its end, whether its upstream gets a call of gRPC or an attached stream.
async fn attached_streams_are_counted(scheme: &str) {
    let (server, ended) = echoes().await;
    let gateway = gateway(&format!("{scheme}://{}", server.address()), "").await;
    let address = gateway.addresses()[0].to_string();
    // A relay loses the connection of its caller.
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (relayed, onward) = (relay.local_addr().unwrap().to_string(), address.clone());
    let relaying = tokio::spawn(async move {
        let (mut near, _) = relay.accept().await.unwrap();
        let mut far = TcpStream::connect(&onward).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    let given_up = conversations(&relayed, 1).await;
    relaying.abort();
    timeout(Duration::from_secs(60), async {
        while ended.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the upstream learns that its caller is gone");
    drop(given_up);
    for call in conversations(&address, 1).await {
        timeout(Duration::from_secs(60), call.close()).await.unwrap().unwrap();
    }
    for _ in 0..10 {
        let call = conversations(&address, 1).await.pop().unwrap();
        assert_eq!(break_off(call).await, [BREAK], "what came before the failure is passed on");
    }
    let ended = |routes: &serde_json::Value| routes[0]["failed"] == 10 && routes[0]["succeeded"] == 1;
    wait_for_page(&gateway, "routes", ended).await;
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attached_stream_is_counted_by_its_end() {
    attached_streams_are_counted("baidu-std").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attached_stream_to_a_call_of_grpc_is_counted_by_its_end() {
    attached_streams_are_counted("grpc").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_with_several_attached_streams_is_counted_once_by_the_worst_end() {
    let (server, _) = echoes().await;
    let gateway = gateway(&format!("baidu-std://{}", server.address()), "").await;
    let address = gateway.addresses()[0].to_string();
    for breaks in [true, false] {
        let mut calls = conversations(&address, 3).await;
        if breaks {
            break_off(calls.remove(1)).await;
        }
        for call in calls {
            timeout(Duration::from_secs(60), call.close()).await.unwrap().unwrap();
        }
    }
    let ended = |routes: &serde_json::Value| routes[0]["failed"] == 1 && routes[0]["succeeded"] == 1;
    wait_for_page(&gateway, "routes", ended).await;
    gateway.shutdown().await;
}

/// Requests of conversations, as the messages of `shop.proto`.
const GOES_ON: Bytes = Bytes::from_static(b"\x08\x07");
const BREAK: Bytes = Bytes::from_static(b"\x08\x0d");

#[tokio::test]
async fn topic_of_a_protocol_without_topics_is_refused_when_it_is_checked() {
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\nurl = \"grpc://127.0.0.1:1\"\n\
                [[route]]\nto = \"a\"\nsubscribe = { key = \"x\" }\n";
    let problems = check(&Config::parse(text).unwrap()).unwrap_err().to_string();
    assert_eq!(problems, "line 6: `subscribe` needs topics, which grpc does not have");
}

/// What streams to readers that first read nothing make the gateway hold.
#[derive(Debug)]
struct StalledStreams {
    /// What the server could send meanwhile, in bytes.
    sent: u64,
    /// What the gateway held of its budget, in bytes.
    held: usize,
}

/// Opens streams of this many mebibytes each through a gateway with this name and a budget of 4 MiB, and reads them once
/// all are stalled.
async fn stall_streams(name: &str, streams: usize, mebibytes: u64) -> StalledStreams {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let messages = move || {
        let sent = counted.clone();
        Streaming::produce(move |sender| async move {
            let chunk = Bytes::from(vec![0x5a; 64 << 10]);
            for _ in 0..mebibytes * 16 {
                sender.send(chunk.clone()).await?;
                sent.fetch_add(64 << 10, Ordering::Relaxed);
            }
            Ok(())
        })
    };
    let server = feed(messages).await;
    let gateway = named_gateway(name, "4MiB", &format!("grpc://{}", server.address()), "").await;
    let mut calls = Vec::new();
    for _ in 0..streams {
        // Each on a connection of its own: one slow reader may not stop the others.
        let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
        let mut call =
            client.open_raw("shop.Feed/Watch", CallOptions::default(), Format::Protobuf).await.unwrap();
        call.send(Bytes::from_static(b"\x08\x07")).await.unwrap();
        call.finish_sending().await.unwrap();
        calls.push(call);
    }
    // All buffers on the way are full once nothing more is sent.
    let (mut quiet, mut before) = (0, u64::MAX);
    while quiet < 20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = sent.load(Ordering::Relaxed);
        quiet = if now == before && now > 0 { quiet + 1 } else { 0 };
        before = now;
    }
    let sent = sent.load(Ordering::Relaxed);
    let stalled = StalledStreams { sent, held: memory_held(&gateway, name).await };
    let mut readers = tokio::task::JoinSet::new();
    for mut call in calls {
        readers.spawn(async move {
            let mut received = 0;
            while let Some(message) = call.next().await.unwrap() {
                received += message.bytes.len() as u64;
            }
            received
        });
    }
    while let Some(received) = readers.join_next().await {
        assert_eq!(received.unwrap(), mebibytes << 20);
    }
    // What was held is given back, whether or not the connections stay.
    let started = std::time::Instant::now();
    while memory_held(&gateway, name).await > 64 << 10 {
        assert!(started.elapsed() < Duration::from_secs(60), "{} bytes", memory_held(&gateway, name).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.shutdown().await;
    stalled
}

/// Bytes that a gateway holds of its budget.
async fn memory_held(gateway: &Gateway, name: &str) -> usize {
    let address = gateway.admin_address().unwrap().to_string();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let path = format!("/vars/{name}_memory_held?console=1");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let digits = response.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("{response}"))
}

/// Beside the gateway's budget of 4 MiB: what the server, the sockets and a client hold.
const BESIDE: u64 = 12 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_to_a_slow_reader_stays_within_the_budget() {
    let stalled = stall_streams("one_stream", 1, 64).await;
    assert!(stalled.sent <= (4 << 20) + BESIDE && stalled.held <= 4 << 20, "{stalled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_to_many_slow_readers_share_the_budget() {
    // Their windows at the upstream alone would be 16 MiB.
    let stalled = stall_streams("many_streams", 32, 2).await;
    assert!(stalled.held > 1 << 20 && stalled.held <= 4 << 20, "{stalled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long without optimization: `cargo test --release -p polyrpc-gateway --test traffic -- --ignored`"]
async fn stream_of_a_gibibyte_to_a_slow_reader_stays_within_the_budget() {
    let stalled = stall_streams("gibibyte", 1, 1024).await;
    println!("{stalled:?} while nothing was read");
    assert!(stalled.sent <= (4 << 20) + BESIDE && stalled.held <= 4 << 20, "{stalled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_pass_unread_count_as_calls_until_they_end() {
    let (server, _) = echoes().await;
    let gateway = gateway(&format!("grpc://{}", server.address()), "calls = 1").await;
    let client = Client::new(&format!("grpc://{}", gateway.addresses()[0])).unwrap();
    let open = async || {
        let mut call = client.open_raw("shop.Feed/Chat", CallOptions::default(), Format::Protobuf).await?;
        // If the call has ended, its receiving half has the reason.
        let _ = call.send(GOES_ON).await;
        call.next().await.map(|message| (call, message.unwrap().bytes))
    };
    let (first, answer) = open().await.unwrap();
    assert_eq!(answer, GOES_ON);
    let refused = open().await.map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), polyrpc::Code::ResourceExhausted, "{refused}");
    // One that its caller gives up returns its permit, too.
    drop(first);
    timeout(Duration::from_secs(60), async {
        while open().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the permit is free again");
    gateway.shutdown().await;
}

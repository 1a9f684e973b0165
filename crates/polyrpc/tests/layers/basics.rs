//! Layers, custom and built-in.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::{CallOptions, RawCall};
use polyrpc::codec::{Body, Raw};
use polyrpc::layer::{Call, Layer, Next, Outcome, StreamType};
use polyrpc::layers::RateLimit;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Error, Format, Protocol, Retry, Server, Status, Streaming};

use crate::common::{PROTOCOLS, Prober, client, serve, soon};

/// Records each call and its end.
#[derive(Clone)]
struct Witness {
    name: &'static str,
    reported: Arc<Mutex<Vec<String>>>,
}

impl Witness {
    fn new(name: &'static str) -> Self {
        Self { name, reported: Arc::default() }
    }

    /// Another layer that records to the same log.
    fn beside(&self, name: &'static str) -> Self {
        Self { name, reported: self.reported.clone() }
    }

    fn tell(&self, what: String) {
        self.reported.lock().unwrap().push(format!("{} {what}", self.name));
    }

    fn reported(&self) -> Vec<String> {
        std::mem::take(&mut self.reported.lock().unwrap())
    }
}

impl Layer for Witness {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        self.tell(format!("{}/{} {}", call.service(), call.method(), call.body().bytes.escape_ascii()));
        let ending = next.call(call).await;
        self.tell(match ending.failure() {
            None => "ok".to_owned(),
            Some(status) => status.message().to_owned(),
        });
        ending
    }
}

/// Rejects every call.
struct RejectAll(Status);

impl Layer for RejectAll {
    async fn call(self: Arc<Self>, _: Call, _: Next) -> Outcome {
        Outcome::failed(self.0.clone())
    }
}

/// A layer from a function.
struct By<F>(F);

impl<F, Fut> Layer for By<F>
where
    F: Fn(Call, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        (self.0)(call, next).await
    }
}

#[tokio::test]
async fn layers_run_in_order_of_addition_with_server_layers_first() {
    let first = Witness::new("1");
    let server = serve(
        Prober::default()
            .server()
            .layer_on("Probe/Echo", first.beside("3"))
            .layer(first.clone())
            .layer_on("Probe", first.beside("4"))
            .layer(first.beside("2")),
    )
    .await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        assert_eq!(soon(client.call::<String>("Probe/Echo", "x")).await.unwrap(), "x", "{protocol:?}");
        let reported = first.reported();
        let names: Vec<_> = reported.iter().map(|reported| &reported[..1]).collect();
        assert_eq!(names, ["1", "2", "3", "4", "4", "3", "2", "1"], "{protocol:?}");
        assert!(
            reported[0].contains("Probe/Echo") && reported[0].contains('x'),
            "{protocol:?}: {reported:?}"
        );
        assert_eq!(reported[7], "1 ok");
    }
}

#[tokio::test]
async fn layer_sees_the_full_method_name_for_every_spelling() {
    let witness = Witness::new("w");
    let service = ServiceBuilder::new("a.b.S")
        .method::<Raw, Bytes, Bytes, _, _>("M", |cx: Context, body| async { (cx, Ok(body)) });
    let server = serve(
        Server::new()
            .service(service)
            .function("f", || async { 1 })
            .alias("Other", "a.b.S")
            .alias_method("x/y", "a.b.S/M")
            .layer_on("Other", witness.clone())
            .layer_on("f", witness.clone()),
    )
    .await;
    let client = client(Protocol::Rpcx, &server);
    for called in ["a.b.S/M", "S/M", "Other/M", "x/y"] {
        let body = Body::new(Format::Raw, "b");
        soon(client.call_raw(called, body, Default::default())).await.unwrap();
        assert_eq!(witness.reported(), ["w a.b.S/M b", "w ok"], "{called}");
    }
    soon(client.call::<i32>("f", &())).await.unwrap();
    assert!(witness.reported()[0].starts_with("w /f"));
}

#[tokio::test]
async fn call_rejected_by_a_layer_reaches_no_handler() {
    let prober = Prober::default();
    let outside = Witness::new("w");
    let status = Status::permission_denied("not today");
    let server = serve(prober.server().layer(outside.clone()).layer(RejectAll(status))).await;
    for protocol in PROTOCOLS {
        let error = soon(client(protocol, &server).call::<String>("Probe/Echo", "x")).await.unwrap_err();
        assert!(error.message().contains("not today"), "{protocol:?}: {error}");
        assert_eq!(outside.reported()[1], "w not today");
    }
    let url = format!("rest-rpc://{}", server.address());
    let error = soon(Client::new(&url).unwrap().call::<String>("Echo", "x")).await.unwrap_err();
    assert!(!error.message().is_empty());
    assert_eq!(prober.ran(), 0);
}

#[tokio::test]
async fn standard_services_bypass_user_layers() {
    let health = polyrpc::introspection::Health::new();
    let witness = Witness::new("w");
    let server = Server::new()
        .health(&health)
        .function("limited", || async { 1 })
        .layer(witness.clone())
        .layer(RateLimit::new(0.001, 1));
    let server = serve(server.reflection()).await;
    let client = client(Protocol::Grpc, &server);
    let body = Body::new(Format::Protobuf, "");
    assert!(soon(client.call::<i32>("limited", &())).await.is_ok());
    assert!(soon(client.call::<i32>("limited", &())).await.is_err());
    assert_eq!(witness.reported().len(), 4);
    for _ in 0..3 {
        soon(client.call_raw("grpc.health.v1.Health/Check", body.clone(), CallOptions::default()))
            .await
            .unwrap();
    }
    assert!(witness.reported().is_empty());
}

#[tokio::test]
async fn layer_can_change_request_and_response_and_add_extensions() {
    struct Tenant(String);
    let service = ServiceBuilder::new("S").method::<Raw, String, String, _, _>(
        "Who",
        |cx: Context, body: String| async move {
            let tenant = cx.extension::<Tenant>().map_or("anonymous", |tenant| &tenant.0).to_owned();
            (cx, Ok(format!("{tenant}: {body}")))
        },
    );
    let layer = By(|mut call: Call, next: Next| async move {
        let cx = call.context_mut().unwrap();
        assert!(cx.insert_extension(Tenant("acme".to_owned())).is_none());
        assert!(cx.extension_mut::<Tenant>().is_some() && cx.extension::<String>().is_none());
        call.body_mut().bytes = "changed".into();
        let mut ending = next.call(call).await;
        let answer = ending.body().unwrap();
        ending.set_body(Body::new(answer.format, [&answer.bytes[..], b"!"].concat()));
        ending.metadata_mut().unwrap().insert("served-by", "layer");
        assert!(ending.trailers_mut().unwrap().is_empty());
        ending
    });
    let server = serve(Server::new().service(service).layer(layer)).await;
    let body = Body::new(Format::Raw, "as it came");
    let reply =
        soon(client(Protocol::Rpcx, &server).call_raw("S/Who", body, Default::default())).await.unwrap();
    assert_eq!(reply.message.bytes, "acme: changed!");
    assert_eq!(reply.metadata.get("served-by"), Some("layer"));
}

#[tokio::test]
async fn panicking_layer_fails_its_call_only() {
    let prober = Prober::default();
    async fn panics(_: Call, _: Next) -> Outcome {
        panic!("oops")
    }
    let server = serve(prober.server().function("ok", || async { 1 }).layer_on("Probe", By(panics))).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        let error = soon(client.call::<String>("Probe/Echo", "x")).await.unwrap_err();
        assert!(error.message().contains("the handler panicked"), "{protocol:?}: {error}");
        assert_eq!(soon(client.call::<i32>("ok", &())).await.unwrap(), 1, "{protocol:?}");
    }
    assert_eq!(prober.ran(), 0);
}

/// The response, up to the end.
async fn all(call: &mut RawCall) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(message) = soon(call.next()).await.unwrap() {
        all.extend_from_slice(&message.bytes);
    }
    all
}

#[tokio::test]
async fn streams_pass_through_layers() {
    let witness = Witness::new("w");
    let shapes: Arc<Mutex<Vec<StreamType>>> = Arc::default();
    let seen = shapes.clone();
    let twice =
        |cx: Context, body: Bytes| async move { (cx, Ok(Streaming::from_iter([body.clone(), body]))) };
    let echo = |cx: Context, requests: Streaming<Bytes>| async move { (cx, Ok(requests)) };
    let service = ServiceBuilder::new("S")
        .server_streaming::<Raw, Bytes, Bytes, _, _>("Twice", twice)
        .bidi_streaming::<Raw, Bytes, Bytes, _, _>("Echo", echo);
    let server = serve(Server::new().service(service).layer(witness.clone()).layer(By(
        move |call: Call, next: Next| {
            seen.lock().unwrap().push(call.stream_type());
            next.call(call)
        },
    )))
    .await;
    let client = client(Protocol::Grpc, &server);
    let mut call = soon(client.open_raw("S/Twice", CallOptions::default(), Format::Raw)).await.unwrap();
    soon(call.send("m")).await.unwrap();
    // The server may have ended the call after the one message.
    let _ = soon(call.finish_sending()).await;
    assert_eq!(all(&mut call).await, b"mm");
    assert_eq!(witness.reported(), ["w S/Twice m", "w ok"]);
    let mut call = soon(client.open_raw("S/Echo", CallOptions::default(), Format::Raw)).await.unwrap();
    for message in ["a", "b"] {
        soon(call.send(message)).await.unwrap();
    }
    soon(call.finish_sending()).await.unwrap();
    assert_eq!(all(&mut call).await, b"ab");
    assert_eq!(witness.reported(), ["w S/Echo ", "w ok"]);
    let server_streams = StreamType { client_streaming: false, server_streaming: true };
    assert_eq!(*shapes.lock().unwrap(), [server_streams, StreamType::BIDI]);
}

#[tokio::test]
async fn layer_can_delay_a_blocking_call() {
    let service = ServiceBuilder::new("S").blocking_method::<Raw, Bytes, String, _, _>(
        "Thread",
        |cx: Context, _| async {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            (cx, Ok(name))
        },
    );
    let patient = By(|call: Call, next: Next| async move {
        assert!(next.is_blocking());
        tokio::task::yield_now().await;
        next.call(call).await
    });
    let server = serve(Server::new().service(service).layer(patient)).await;
    let client = client(Protocol::BaiduStd, &server);
    let reply =
        soon(client.call_raw("S/Thread", Body::new(Format::Raw, ""), Default::default())).await.unwrap();
    assert!(!reply.message.bytes.is_empty());
}

#[test]
#[should_panic(expected = "there is no service, method or function `Nobody`")]
fn layer_on_an_unknown_service_panics() {
    let _ = Server::new().layer_on("Nobody", RejectAll(Status::internal("")));
}

#[tokio::test]
async fn rate_limited_call_is_rejected_with_the_text_of_rpcx() {
    let server = serve(Prober::default().server().layer(RateLimit::new(0.001, 2))).await;
    for (n, protocol) in PROTOCOLS.into_iter().enumerate() {
        let client = client(protocol, &server);
        for _ in 0..2 {
            let result = soon(client.call::<String>("Probe/Echo", "x")).await;
            if n == 0 {
                result.unwrap();
                continue;
            }
            let error = result.unwrap_err();
            assert!(error.message().contains("request reached rate limit"), "{protocol:?}: {error}");
            assert_eq!(error.code(), Code::ResourceExhausted, "{protocol:?}");
            assert_eq!(error.status().retry(), Retry::Elsewhere, "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn deadline_set_by_a_client_layer_only_shortens_the_timeout() {
    /// Sets a deadline after this time.
    struct Limit(Option<Duration>);

    impl Layer for Limit {
        async fn call(self: Arc<Self>, mut call: Call, next: Next) -> Outcome {
            call.set_deadline(self.0.map(|timeout| std::time::Instant::now() + timeout));
            next.call(call).await
        }
    }

    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    for (limit, longest) in [(Some(minute), minute), (Some(2 * hour), hour), (None, hour)] {
        let timeout = Arc::new(Mutex::new(None::<Duration>));
        let seen = timeout.clone();
        let client = Client::mock(move |call| {
            *seen.lock().unwrap() = call.options.timeout;
            Ok(call.body)
        });
        let options = CallOptions { timeout: Some(hour), ..CallOptions::default() };
        let body = Body::new(Format::Raw, Bytes::new());
        client.layered(Limit(limit)).call_raw("m", body, options).await.unwrap();
        let timeout = timeout.lock().unwrap().expect("the call has a timeout");
        assert!(timeout <= longest && timeout > longest / 2, "{limit:?}: {timeout:?}");
    }
}

#[tokio::test]
async fn rate_limit_applies_per_connection_method_or_peer() {
    async fn calls(per: fn(RateLimit) -> RateLimit) -> Vec<bool> {
        let prober = Prober::default();
        let server = prober.server().function("other", || async { 1 });
        let server = serve(server.layer(per(RateLimit::new(0.001, 1)))).await;
        let mut reported = Vec::new();
        for client in [client(Protocol::Rpcx, &server), client(Protocol::Rpcx, &server)] {
            reported.push(soon(client.call::<String>("Probe/Echo", "x")).await.is_ok());
            reported.push(soon(client.call::<String>("Probe/Echo", "x")).await.is_ok());
            reported.push(soon(client.call::<i32>("other", &())).await.is_ok());
        }
        reported
    }
    let (yes, no) = (true, false);
    assert_eq!(calls(|limit| limit).await, [yes, no, no, no, no, no]);
    assert_eq!(calls(RateLimit::per_connection).await, [yes, no, no, yes, no, no]);
    assert_eq!(calls(RateLimit::per_method).await, [yes, no, yes, no, no, no]);
    assert_eq!(calls(RateLimit::per_peer).await, [yes, no, no, no, no, no]);
}

#[tokio::test]
async fn rate_limited_call_can_wait_until_its_deadline() {
    let limit = RateLimit::new(20.0, 1).max_wait(Duration::from_secs(60));
    let server = serve(Prober::default().server().layer(limit)).await;
    let client = client(Protocol::Grpc, &server);
    let began = std::time::Instant::now();
    for _ in 0..3 {
        soon(client.call::<String>("Probe/Echo", "x")).await.unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(95), "{:?}", began.elapsed());
    // Its next token comes long after the deadline.
    let limit = RateLimit::new(0.001, 1).max_wait(Duration::from_secs(3600));
    let server = serve(Prober::default().server().layer(limit)).await;
    let first = crate::common::client(Protocol::Grpc, &server);
    soon(first.call::<String>("Probe/Echo", "x")).await.unwrap();
    let hasty = Client::builder(&crate::common::url(Protocol::Grpc, &server))
        .timeout(Some(Duration::from_millis(5)))
        .build()
        .unwrap();
    let error: Error = soon(hasty.call::<String>("Probe/Echo", "x")).await.unwrap_err();
    assert!(matches!(error.code(), Code::ResourceExhausted | Code::DeadlineExceeded), "{error}");
}

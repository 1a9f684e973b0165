//! Fallbacks for calls and HTTP requests that no service answers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::{CallOptions, RawCall, Request};
use polyrpc::codec::{Body, Serde};
use polyrpc::fallback::{HttpRequest, HttpResponse, RawRequest, RawResponse, StreamEnd, forward_stream};
use polyrpc::introspection::Health;
use polyrpc::layer::{Call, Layer, Next, Outcome, StreamType};
use polyrpc::server::{AnsweredCall, Hook, IncomingCall, Limits, Listen, ServerHandle};
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Code, Context, Format, Json, Metadata, Protocol, Result, Server, Status, Streaming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::common::{PROTOCOLS, client, serve, soon, until, url_of};

#[polyrpc::service]
trait Shapes {
    async fn unary(&self, cx: &mut Context, text: String) -> Result<String>;
    async fn fail(&self, cx: &mut Context, text: String) -> Result<String>;
    async fn hang(&self, text: String) -> Result<String>;
    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64>;
    async fn twice(&self, n: u64) -> Result<Streaming<u64>>;
    async fn double(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>>;
    async fn attached_streams(&self, cx: &mut Context, text: String) -> Result<String>;
}

/// Calls received by a backend.
#[derive(Clone, Default)]
struct RecordingBackend(Arc<Mutex<Vec<String>>>);

impl Shapes for RecordingBackend {
    async fn unary(&self, cx: &mut Context, text: String) -> Result<String> {
        let word = cx.metadata().get("word").unwrap_or_default().to_owned();
        self.0.lock().unwrap().push(format!("{text} {word} {}", cx.remaining().is_some()));
        cx.reply_options().metadata.insert("answered", word);
        cx.reply_options().attachment = cx.attachment().clone();
        cx.reply_options().trailers.insert("behind", "it");
        Ok(text)
    }

    async fn fail(&self, cx: &mut Context, text: String) -> Result<String> {
        cx.reply_options().trailers.insert("behind", "the failure");
        Err(Status::not_found(text).with_number(2404).into())
    }

    async fn hang(&self, _: String) -> Result<String> {
        std::future::pending().await
    }

    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64> {
        crate::common::sum(numbers).await
    }

    async fn twice(&self, n: u64) -> Result<Streaming<u64>> {
        Ok(Streaming::from_iter([n, n]))
    }

    async fn double(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>> {
        Ok(crate::common::doubled(numbers))
    }

    async fn attached_streams(&self, cx: &mut Context, text: String) -> Result<String> {
        crate::common::echo_attached_streams(cx)?;
        Ok(text)
    }
}

/// A server without services that forwards every call.
fn proxy(backend: &Client) -> Server {
    let backend = backend.clone();
    Server::new().fallback(move |call: RawRequest| {
        let backend = backend.clone();
        async move { call.forward(&backend).await }
    })
}

/// A backend, a proxy in front of it, and a client of the proxy.
async fn proxied(scheme: &str, shaped: &RecordingBackend) -> (ServerHandle, ServerHandle, Client) {
    let backend = Server::new()
        .service(ShapesServer::new(shaped.clone()))
        .function("add", |a: i32, b: i32| async move { a + b });
    let backend = serve(backend).await;
    let proxy = serve(proxy(&Client::new(&url_of(scheme, backend.address())).unwrap())).await;
    let client = Client::new(&url_of(scheme, proxy.address())).unwrap();
    (backend, proxy, client)
}

const SCHEMES: [&str; 10] = [
    "baidu-std",
    "rpcx",
    "grpc",
    "http",
    "rest-rpc",
    "rest-rpc?version=0.21",
    "net-rpc",
    "net-rpc?codec=json",
    "http?dialect=json-rpc",
    "rpcx?transport=ws",
];

#[tokio::test]
async fn schemaless_proxy_forwards_unary_calls_over_every_protocol() {
    for scheme in SCHEMES {
        let shaped = RecordingBackend::default();
        let (_backend, _proxy, client) = proxied(scheme, &shaped).await;
        let shapes = ShapesClient::new(client.clone());
        let mut request = Request::new("hello".to_owned()).with_timeout(Duration::from_secs(10));
        if !matches!(client.protocol(), Protocol::RestRpc | Protocol::NetRpc) {
            request = request.with_metadata("word", "sesame");
        }
        if scheme == "baidu-std" {
            request = request.with_attachment("beside");
        }
        let response = soon(client.invoke::<Serde, String, String>(
            &polyrpc::client::StubMethod::plain("Shapes", "Unary"),
            request,
        ))
        .await
        .unwrap_or_else(|error| panic!("{scheme}: {error}"));
        assert_eq!(response.message, "hello", "{scheme}");
        let reported = shaped.0.lock().unwrap().join(",");
        match scheme {
            "rest-rpc" | "rest-rpc?version=0.21" | "net-rpc" | "net-rpc?codec=json" => {
                assert_eq!(reported, "hello  false", "{scheme}");
            }
            _ => {
                assert_eq!(reported, "hello sesame true", "{scheme}");
                let answered = response.metadata.get("answered");
                assert_eq!(answered, Some("sesame"), "{scheme}: {:?}", response.metadata);
            }
        }
        if scheme == "baidu-std" {
            assert_eq!(response.attachment, "beside");
        }
        if scheme == "grpc" {
            assert_eq!(response.trailers.get("behind"), Some("it"));
        }
        // Numbers and a function without a service.
        assert_eq!(soon(client.call::<i32>("add", &(7, 8))).await.unwrap(), 15, "{scheme}");
        // A failure arrives as the backend sent it.
        let there = soon(shapes.fail("none".to_owned())).await.unwrap_err();
        let direct = Client::new(&url_of(scheme, _backend.address())).unwrap();
        let direct = soon(ShapesClient::new(direct).fail("none".to_owned())).await.unwrap_err();
        // Each brpc server adds its own prefix to a failure.
        assert!(there.message().ends_with(direct.message()), "{scheme}: {there}, {direct}");
        assert_eq!(there.code(), direct.code(), "{scheme}");
        assert_eq!(there.status().number(), direct.status().number(), "{scheme}");
        assert_eq!(there.trailers().get("behind"), direct.trailers().get("behind"), "{scheme}");
        // A method unknown to the backend, with the backend's text.
        let unknown = soon(client.call::<i32>("Nobody/Home", &1)).await.unwrap_err();
        assert!(matches!(unknown.code(), Code::Unimplemented | Code::Unknown), "{scheme}: {unknown}");
    }
}

#[tokio::test]
async fn schemaless_proxy_forwards_grpc_streams_and_brpc_attached_streams() {
    for scheme in ["grpc", "baidu-std"] {
        let (_backend, _proxy, client) = proxied(scheme, &RecordingBackend::default()).await;
        let shapes = ShapesClient::new(client.clone());
        let numbers = || Streaming::from_iter([1, 2, 3]);
        let mut twice = soon(shapes.twice(4)).await.unwrap();
        for _ in 0..2 {
            assert_eq!(soon(twice.message()).await.unwrap(), Some(4), "{scheme}");
        }
        let mut doubled = soon(shapes.double(numbers())).await.unwrap();
        for n in [2, 4, 6] {
            assert_eq!(soon(doubled.message()).await.unwrap(), Some(n), "{scheme}");
        }
        if scheme == "grpc" {
            assert_eq!(soon(twice.message()).await.unwrap(), None);
            assert_eq!(soon(shapes.sum(numbers())).await.unwrap(), 6);
            let mut broken = soon(shapes.double(Streaming::from_iter([1, 13]))).await.unwrap();
            assert_eq!(soon(broken.message()).await.unwrap(), Some(2));
            let error = soon(broken.message()).await.unwrap_err();
            assert_eq!((error.code(), error.message()), (Code::OutOfRange, "thirteen"));
            // A conversation in which each side waits for the other.
            let (sender, words) = Streaming::channel(1);
            let mut answers = soon(shapes.double(words)).await.unwrap();
            for n in 1..10 {
                sender.send(n).await.unwrap();
                assert_eq!(soon(answers.message()).await.unwrap(), Some(2 * n));
            }
        } else {
            let opened = client.open_stream::<Serde, String, String>(
                "Shapes/AttachedStreams",
                Request::new("x".to_owned()),
                StreamOptions::default(),
            );
            let (reply, mut stream) = soon(opened).await.unwrap();
            assert_eq!(reply.message, "x");
            for word in ["one", "two"] {
                stream.send(word).await.unwrap();
                assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, word);
            }
            soon(stream.close()).await.unwrap();
        }
    }
}

/// A proxy that forwards attached streams and reports how they ended.
async fn reporting_proxy(backend: Client) -> (ServerHandle, mpsc::UnboundedReceiver<Result<StreamEnd>>) {
    let (report, ended) = mpsc::unbounded_channel();
    let proxy = Server::new().fallback(move |mut call: RawRequest| {
        let (backend, report) = (backend.clone(), report.clone());
        async move {
            let (target, body, options) = (call.target(), call.body().await?, call.options());
            let stream_options = StreamOptions::default();
            let (reply, upstream) =
                backend.open_stream_raw(&target, body, options, stream_options.clone()).await?;
            let (sender, receiver) = upstream.split();
            let stream = call.accept_streams(stream_options)?.pop().expect("a stream");
            tokio::spawn(async move {
                let _ = report.send(forward_stream(stream, (Some(sender), receiver), ()).await);
            });
            Ok(RawResponse::from(reply))
        }
    });
    (serve(proxy).await, ended)
}

/// A wire to a server that passes on what the server sends until it is cut.
async fn wire(server: &ServerHandle, is_cut: Arc<AtomicBool>, carried: Arc<AtomicUsize>) -> String {
    let wire = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, server) = (wire.local_addr().unwrap().to_string(), server.address().to_string());
    tokio::spawn(async move {
        let (client, _) = wire.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
        tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = from_server.read(&mut piece).await {
                if !is_cut.load(Ordering::SeqCst) && to_client.write_all(&piece[..n]).await.is_err() {
                    break;
                }
            }
            // Both sides of the connection stay open.
            std::future::pending::<()>().await;
        });
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = from_client.read(&mut piece).await {
            carried.fetch_add(n, Ordering::SeqCst);
            to_server.write_all(&piece[..n]).await.unwrap();
        }
    });
    address
}

async fn open_attached(client: &Client) -> RawCall {
    let request = Request::new("x".to_owned());
    let options = StreamOptions::default();
    soon(client.open_stream::<Serde, String, String>("Shapes/AttachedStreams", request, options))
        .await
        .unwrap()
        .1
}

#[tokio::test]
async fn forwarded_stream_ends_though_its_server_never_confirms_the_close() {
    let backend = serve(Server::new().service(ShapesServer::new(RecordingBackend::default()))).await;
    let (is_cut, carried) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let address = wire(&backend, is_cut.clone(), carried.clone()).await;
    let (proxy, mut ended) = reporting_proxy(Client::new(&format!("baidu-std://{address}")).unwrap()).await;
    let caller = client(Protocol::BaiduStd, &proxy);
    let mut stream = open_attached(&caller).await;
    stream.send("one").await.unwrap();
    assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, "one");
    is_cut.store(true, Ordering::SeqCst);
    let before = carried.load(Ordering::SeqCst);
    soon(stream.close()).await.unwrap();
    until(|| carried.load(Ordering::SeqCst) > before).await;
    // Its time passes as soon as nothing else happens.
    tokio::time::pause();
    assert_eq!(soon(ended.recv()).await.unwrap().unwrap(), StreamEnd::ByCaller);
}

#[tokio::test]
async fn forwarded_stream_ends_with_its_caller_though_its_server_reads_nothing() {
    let unread = Arc::new(Mutex::new(Vec::new()));
    let backend = Server::new().fallback(move |mut call: RawRequest| {
        let unread = unread.clone();
        async move {
            unread.lock().unwrap().extend(call.accept_streams(StreamOptions::default())?);
            let body = call.body().await?;
            let mut response = RawResponse::message(body.bytes);
            response.format = Some(body.format);
            Ok(response)
        }
    });
    let backend = serve(backend).await;
    let (proxy, mut ended) = reporting_proxy(client(Protocol::BaiduStd, &backend)).await;
    let caller = client(Protocol::BaiduStd, &proxy);
    let mut stream = open_attached(&caller).await;
    // More than the window of the server's stream, and less than that and the window of the proxy's.
    for _ in 0..48 {
        soon(stream.send(vec![0; 64 << 10])).await.unwrap();
    }
    drop((stream, caller));
    tokio::time::pause();
    assert_eq!(soon(ended.recv()).await.unwrap().unwrap(), StreamEnd::CallerGone);
}

#[tokio::test]
async fn cancelled_caller_cancels_the_backend_call() {
    for scheme in ["baidu-std", "rpcx", "grpc"] {
        let (backend, _proxy, client) = proxied(scheme, &RecordingBackend::default()).await;
        let hang = polyrpc::client::StubMethod::plain("Shapes", "Hang");
        // On a busy machine the deadline may pass before the call reaches the backend: then it is made again.
        soon(async {
            while backend.info().calls.started == 0 {
                let request = Request::new("x".to_owned()).with_timeout(Duration::from_millis(50));
                let error = client.invoke::<Serde, String, String>(&hang, request).await.unwrap_err();
                assert_eq!(error.code(), Code::DeadlineExceeded, "{scheme}: {error}");
            }
        })
        .await;
        until(|| {
            let calls = backend.info().calls;
            calls.started > 0 && calls.started == calls.succeeded + calls.failed
        })
        .await;
    }
}

#[tokio::test]
async fn fallback_receives_names_and_bytes_unchanged() {
    let seen: Arc<Mutex<Vec<(String, String, Format, Bytes, bool)>>> = Arc::default();
    let log = seen.clone();
    let server =
        Server::new().function("known", |n: i32| async move { n }).fallback(move |mut call: RawRequest| {
            let log = log.clone();
            async move {
                let (service, method) = (call.service().to_owned(), call.method().to_owned());
                let body = call.body().await?;
                log.lock().unwrap().push((
                    service,
                    method,
                    body.format,
                    body.bytes.clone(),
                    call.is_oneway(),
                ));
                Ok(RawResponse::message(body.bytes))
            }
        });
    let server = serve(server).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        assert_eq!(client.call::<i32>("known", &1).await.unwrap(), 1, "{protocol:?}");
        assert!(
            seen.lock().unwrap().is_empty(),
            "{protocol:?}: a registered method does not reach the fallback"
        );
        let body = match protocol {
            Protocol::NetRpc => continue,
            // None of them was decoded.
            Protocol::BaiduStd => Body::new(Format::Protobuf, "}{ no message of any kind"),
            _ => Body::new(Format::Raw, "}{ no message of any kind"),
        };
        let oneway = protocol == Protocol::Rpcx;
        let options = CallOptions { oneway, ..CallOptions::default() };
        let made = client.call_raw("a.b.Nobody/Home", body.clone(), options).await;
        until(|| !seen.lock().unwrap().is_empty()).await;
        let (service, method, format, bytes, was_oneway) = seen.lock().unwrap().remove(0);
        assert_eq!((service.as_str(), method.as_str()), ("a.b.Nobody", "Home"), "{protocol:?}");
        assert_eq!((format, &bytes), (body.format, &body.bytes), "{protocol:?}");
        assert_eq!(was_oneway, oneway, "{protocol:?}");
        if !oneway {
            assert_eq!(made.unwrap().message.bytes, body.bytes, "{protocol:?}");
        }
        // A known service and an unknown method.
        let _ = client.call_raw("known/nothing", body, CallOptions::default()).await.unwrap();
        assert_eq!(seen.lock().unwrap().remove(0).1, "nothing", "{protocol:?}");
    }
    // By numbers.
    let flat = Client::new(&format!("fb-rpc://{}", server.address())).unwrap();
    let body = Body::new(Format::FlatBuffers, "no table");
    assert_eq!(
        flat.call_raw("#77/#3", body.clone(), CallOptions::default()).await.unwrap().message.bytes,
        body.bytes
    );
    let (service, method, ..) = seen.lock().unwrap().remove(0);
    assert_eq!((service.as_str(), method.as_str()), ("#77", "#3"));
}

#[tokio::test]
async fn call_with_one_request_reaches_the_fallback_with_that() {
    let calls = Arc::<AtomicUsize>::default();
    let counted = calls.clone();
    let server = Server::new()
        .limits(Limits { header_timeout: Duration::from_millis(500), ..Limits::default() })
        .fallback(move |mut call: RawRequest| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move { Ok(RawResponse::messages(call.messages())) }
        })
        .fallback_has_single_request(|service, method, _| (service, method) == ("Any", "One"));
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    let client = Client::new(&format!("grpc://{}", server.address())).unwrap();
    let open = |method| client.open_raw(method, CallOptions::default(), Format::Protobuf);
    let text = |body: Option<Body>| body.map(|body| body.bytes);

    let mut many = open("Any/Many").await.unwrap();
    many.send(Bytes::from_static(b"first")).await.unwrap();
    assert_eq!(text(many.next().await.unwrap()).unwrap(), "first");
    // Its message never comes.
    let mut one = open("Any/One").await.unwrap();
    let failure = soon(one.next()).await.unwrap_err();
    assert_eq!((failure.code(), calls.load(Ordering::Relaxed)), (Code::DeadlineExceeded, 1), "{failure}");

    let mut one = open("Any/One").await.unwrap();
    one.send(Bytes::from_static(b"only")).await.unwrap();
    one.finish_sending().await.unwrap();
    assert_eq!(text(soon(one.next()).await.unwrap()).unwrap(), "only");
    assert_eq!(text(soon(one.next()).await.unwrap()), None);
    let mut two = open("Any/One").await.unwrap();
    two.send(Bytes::from_static(b"one")).await.unwrap();
    two.send(Bytes::from_static(b"two")).await.unwrap();
    assert_eq!(soon(two.next()).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(calls.load(Ordering::Relaxed), 2);

    // The other has no clock between its messages.
    many.send(Bytes::from_static(b"second")).await.unwrap();
    assert_eq!(text(soon(many.next()).await.unwrap()).unwrap(), "second");
}

#[tokio::test]
async fn response_that_the_protocol_cannot_carry_is_an_error() {
    let server = Server::new().fallback(|_: RawRequest| async {
        Ok(RawResponse::messages(Streaming::from_iter(["a", "b"].map(Bytes::from))))
    });
    let server = serve(server).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        let body = match protocol {
            Protocol::NetRpc => continue,
            _ => Body::new(Format::Raw, "x"),
        };
        if protocol == Protocol::Grpc {
            let mut call = client.open_raw("Nobody/Home", CallOptions::default(), Format::Raw).await.unwrap();
            // The server responds without waiting for messages: the call may have ended already.
            let _ = call.send("x").await;
            let _ = call.finish_sending().await;
            assert_eq!(call.next().await.unwrap().unwrap().bytes, "a");
            assert_eq!(call.next().await.unwrap().unwrap().bytes, "b");
            assert!(call.next().await.unwrap().is_none());
            continue;
        }
        let error = client.call_raw("Nobody/Home", body, CallOptions::default()).await.unwrap_err();
        assert!(error.message().contains("the response is a stream, which"), "{protocol:?}: {error}");
    }
}

/// Rejects calls without the metadata `word`, and records the others.
#[derive(Clone, Default)]
struct Guard(Arc<Mutex<Vec<String>>>);

impl Layer for Guard {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        if call.metadata().get("word").is_none() {
            return Outcome::failed(Status::permission_denied("no word"));
        }
        self.0.lock().unwrap().push(format!(
            "{}/{} {}",
            call.service(),
            call.method(),
            call.stream_type() == StreamType::BIDI
        ));
        next.call(call).await
    }
}

impl Hook for Guard {
    fn on_request(&self, call: &mut IncomingCall<'_>) -> Result<(), Status> {
        self.0.lock().unwrap().push(format!("received {}/{}", call.service(), call.method()));
        Ok(())
    }

    fn on_response(&self, call: &AnsweredCall<'_>) {
        self.0
            .lock()
            .unwrap()
            .push(format!("answered {}/{} {}", call.service, call.method, call.method_found));
    }
}

#[tokio::test]
async fn relayed_response_loses_the_metadata_that_the_protocol_cannot_carry_and_nothing_else() {
    let server = Server::new().fallback(|_: RawRequest| async {
        let mut response = RawResponse::message("done");
        response.metadata.insert("fine", "x");
        response.metadata.insert("latin", &b"\xff\xfe"[..]);
        Ok(response)
    });
    let server = serve(server).await;
    for protocol in [Protocol::Grpc, Protocol::Rpcx] {
        let body = Body::new(Format::Raw, "x");
        let client = client(protocol, &server);
        let response = client.call_raw("Nobody/Home", body, CallOptions::default()).await.unwrap();
        assert_eq!(response.message.bytes, "done", "{protocol:?}");
        assert_eq!(response.metadata.get("fine"), Some("x"), "{protocol:?}");
        let carried = response.metadata.bytes("latin").is_some();
        assert_eq!(carried, protocol == Protocol::Rpcx, "{protocol:?}");
    }
}

#[tokio::test]
async fn layers_hooks_and_authenticators_apply_to_the_fallback() {
    let (layer, hook) = (Guard::default(), Guard::default());
    let health = Health::new();
    let server = Server::new()
        .fallback(|call: RawRequest| async move { Ok(RawResponse::message(call.method().to_owned())) })
        .layer(layer.clone())
        .hook(hook.clone())
        .health(&health);
    let listen = Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(b"open") => Ok(()),
        _ => Err(Status::unauthenticated("who is it?")),
    });
    let server = server.bind(listen).await.unwrap().start();
    for protocol in PROTOCOLS.into_iter().filter(|protocol| *protocol != Protocol::NetRpc) {
        let url = crate::common::url(protocol, &server);
        let anonymous = Client::new(&url).unwrap();
        let body = Body::new(Format::Raw, "x");
        let error =
            anonymous.call_raw("Nobody/Home", body.clone(), CallOptions::default()).await.unwrap_err();
        assert!(error.message().contains("who is it?"), "{protocol:?}: {error}");
        let known = Client::builder(&url).credential("open").build().unwrap();
        let error = known.call_raw("Nobody/Home", body.clone(), CallOptions::default()).await.unwrap_err();
        assert!(error.message().ends_with("no word"), "{protocol:?}: {error}");
        let metadata: Metadata = [("word", "sesame")].into_iter().collect();
        let options = CallOptions { metadata, ..CallOptions::default() };
        let response = known.call_raw("Nobody/Home", body, options).await.unwrap();
        assert_eq!(response.message.bytes, "Home", "{protocol:?}");
        let passed = std::mem::take(&mut *layer.0.lock().unwrap());
        assert_eq!(passed, ["Nobody/Home true"], "{protocol:?}");
        let answered = "answered Nobody/Home false";
        until(|| hook.0.lock().unwrap().iter().filter(|line| *line == answered).count() == 3).await;
        let reported = std::mem::take(&mut *hook.0.lock().unwrap());
        assert!(reported.contains(&"received Nobody/Home".to_owned()), "{protocol:?}: {reported:?}");
    }
}

#[tokio::test]
async fn standard_services_bypass_the_fallback() {
    let server = Server::new()
        .health(&Health::new())
        .reflection()
        .fallback(|_: RawRequest| async { Err(Status::internal("it came to the fallback").into()) });
    let server = serve(server).await;
    let grpc = client(Protocol::Grpc, &server);
    let healthy = grpc.call_raw(
        "grpc.health.v1.Health/Check",
        Body::new(Format::Protobuf, Bytes::new()),
        CallOptions::default(),
    );
    assert_eq!(soon(healthy).await.unwrap().message.bytes, [8_u8, 1].as_slice());
    let page =
        exchange(&server, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    let call = "POST /Nobody/Home HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
        Connection: close\r\nContent-Length: 2\r\n\r\n{}";
    let page = exchange(&server, call).await;
    assert!(page.starts_with("HTTP/1.1 500 ") && page.contains("it came to the fallback"), "{page}");
}

#[tokio::test]
async fn head_authenticated_requests_reach_the_fallback() {
    let server = Server::new().fallback(|mut call: RawRequest| async move {
        let format = call.format();
        Ok(RawResponse::message(format!("{format:?} {:?}", call.body().await?.bytes)))
    });
    let server = serve(server).await;
    let post = |fields: &str, body: &str| {
        format!("POST /Nobody/Home HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n{body}")
    };
    // The head arrives alone; the body after 100 Continue.
    let mut socket = TcpStream::connect(server.address().to_string()).await.unwrap();
    let head = post("Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n", "");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut invitation = [0; 25];
    soon(socket.read_exact(&mut invitation)).await.unwrap();
    assert_eq!(&invitation, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"{}").await.unwrap();
    let mut answer = String::new();
    soon(socket.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("Json(Brpc) b\"{}\""), "{answer}");
    let chunks = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let answer = exchange(&server, &post(chunks, "2\r\n{}\r\n0\r\n\r\n")).await;
    assert!(answer.contains("Json(Brpc) b\"{}\""), "{answer}");
    let web = "Content-Type: application/grpc-web+json\r\nContent-Length: 7\r\n";
    let answer = exchange(&server, &post(web, "\0\0\0\0\u{2}{}")).await;
    assert!(answer.contains("Json(Proto3) b\"{}\"") && answer.contains("grpc-status:0"), "{answer}");
}

// -------------------------------------------------------------------------------------------- HTTP

/// Sends this, and reads to the end of the connection.
async fn exchange(server: &ServerHandle, request: &str) -> String {
    let mut socket = TcpStream::connect(server.address().to_string()).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    soon(socket.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Echoes the request.
async fn mirror(mut request: HttpRequest) -> Result<HttpResponse> {
    match request.target.as_str() {
        "/fail" => return Err(Status::not_found("no such thing").into()),
        "/break" => {
            let pieces = [Ok(Bytes::from_static(b"begun")), Err(Status::internal("broken").into())];
            let body = Streaming::from_stream(futures_util::stream::iter(pieces));
            return Ok(HttpResponse { body, ..HttpResponse::new(200, "") });
        }
        "/trailers" => {
            let response = HttpResponse::new(200, "body");
            response.trailers.insert("behind", "it");
            return Ok(response);
        }
        "/early" => return Ok(HttpResponse::new(403, "not you")),
        _ => {}
    }
    let mut length = 0;
    while let Some(piece) = request.body.message().await? {
        length += piece.len();
    }
    let fields: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
        .collect();
    let HttpRequest { method, target, authority, .. } = request;
    let text = format!("{method} {target} {authority} {length} {}\n", fields.join(";"));
    let mut response = HttpResponse::new(200, text);
    response.headers.append("set-cookie", "a=1");
    response.headers.append("set-cookie", "b=2");
    response.headers.append("connection", "upgrade");
    response.headers.append("bad name", "x");
    Ok(response)
}

fn pages() -> Server {
    Server::new().function("echo", |text: String| async move { text }).http_fallback(mirror)
}

#[tokio::test]
async fn unrouted_requests_reach_the_http_fallback_unchanged() {
    let server = serve(pages()).await;
    let asked = |head: &str, body: &str| {
        format!(
            "{head} HTTP/1.1\r\nHost: localhost:1\r\nX-Two: a\r\nX-Two: b\r\nX-Hop: x\r\nConnection: X-Hop, close\r\n{body}"
        )
    };
    let page = exchange(&server, &asked("GET /a/b?c=d&e", "\r\n")).await;
    let want = "GET /a/b?c=d&e localhost:1 0 host=localhost:1;x-two=a;x-two=b\n";
    assert!(page.contains(want), "{page}");
    assert!(page.contains("set-cookie: a=1\r\nset-cookie: b=2\r\n"), "{page}");
    assert!(page.contains("transfer-encoding: chunked\r\n") && page.ends_with("0\r\n\r\n"), "{page}");
    assert!(!page.contains("bad name") && !page.contains("upgrade"), "{page}");
    for verb in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let page = exchange(&server, &asked(&format!("{verb} /x"), "Content-Length: 5\r\n\r\nhello")).await;
        assert!(page.contains(&format!("{verb} /x localhost:1 5 ")), "{page}");
    }
    let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    let page = exchange(&server, &asked("POST /x", chunks)).await;
    assert!(page.contains("POST /x localhost:1 7 "), "{page}");
    let head = exchange(&server, &asked("HEAD /x", "\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let old = exchange(&server, "GET /old HTTP/1.0\r\n\r\n").await;
    assert!(old.contains("GET /old  0 \n") && !old.contains("chunked"), "{old}");
    let failed = exchange(&server, &asked("GET /fail", "\r\n")).await;
    assert!(failed.starts_with("HTTP/1.1 404 ") && failed.contains("no such thing"), "{failed}");
    let broken = exchange(&server, &asked("GET /break", "\r\n")).await;
    assert!(broken.contains("5\r\nbegun\r\n") && !broken.contains("\r\n0\r\n"), "{broken}");
    let trailers = exchange(&server, &asked("GET /trailers", "\r\n")).await;
    assert!(trailers.ends_with("4\r\nbody\r\n0\r\nbehind: it\r\n\r\n"), "{trailers}");
    let socket = asked(
        "GET /ws",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let page = exchange(&server, &socket).await;
    assert!(page.starts_with("HTTP/1.1 501 ") && page.contains("WebSocket"), "{page}");
}

#[tokio::test]
async fn request_that_calls_nothing_is_404_where_the_fallback_has_no_method() {
    let fallback = || Server::new().fallback(|_: RawRequest| async { Ok(RawResponse::message("{}")) });
    let (any, some) =
        (serve(fallback()).await, fallback().fallback_has_method(|service, _| service == "Some"));
    let some = serve(some).await;
    for (path, of_any, of_some) in [("/Some/Method", 405, 405), ("/Other/Method", 405, 404), ("/x", 405, 404)]
    {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        for (server, status) in [(&any, of_any), (&some, of_some)] {
            let answer = exchange(server, &request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
    }
    let body = Body::new(Format::Json(Json::Brpc), "{}");
    let answer = client(Protocol::Http, &some).call_raw("Other/Method", body, CallOptions::default()).await;
    assert_eq!(answer.unwrap().message.bytes, "{}", "a call reaches the fallback");
}

#[tokio::test]
async fn services_and_built_in_pages_precede_the_http_fallback() {
    let server = serve(pages()).await;
    let call = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
        Content-Length: 4\r\n\r\n\"hi\"";
    let page = exchange(&server, call).await;
    assert!(page.ends_with("\r\n\r\n\"hi\""), "{page}");
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    for path in ["/health", "/readyz", "/livez", "/version"] {
        let page = exchange(&server, &get(path)).await;
        assert!(page.starts_with("HTTP/1.1 200 ") && !page.contains("GET /"), "{path}: {page}");
    }
    // A method is not called with GET.
    assert!(exchange(&server, &get("/echo")).await.starts_with("HTTP/1.1 405 "));
    for path in ["/", "/Nobody/Home", "/healthy"] {
        assert!(exchange(&server, &get(path)).await.contains(&format!("GET {path} ")), "{path}");
    }
    let rpc = r#"{"jsonrpc":"2.0","method":"echo","params":["hi"],"id":1}"#;
    let rpc = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{rpc}",
        rpc.len()
    );
    assert!(exchange(&server, &rpc).await.contains(r#""result":"hi""#));
    // gRPC keeps its own texts.
    let error = client(Protocol::Grpc, &server).call::<String>("Nobody/Home", &1).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented, "{error}");
}

#[tokio::test]
async fn pipelined_requests_of_both_kinds_are_answered_in_order() {
    let server = serve(pages()).await;
    let call = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n\"hi\"";
    let page = "POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
    let last = "GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let all = exchange(&server, &[call, page, call, page, call, last].concat()).await;
    let offsets: Vec<_> = ["\"hi\"", "POST /page localhost 3", "GET /last"].map(|text| all.find(text)).into();
    assert!(offsets.is_sorted() && offsets.iter().all(Option::is_some), "{all}");
    assert_eq!((all.matches("\"hi\"").count(), all.matches("POST /page").count()), (3, 2), "{all}");
}

#[tokio::test]
async fn unconsumed_body_is_not_read() {
    let taken = Arc::new(tokio::sync::Notify::new());
    let go_on = taken.clone();
    let server = Server::new().limits(Limits { message: 1 << 20, ..Limits::default() }).http_fallback(
        move |mut request: HttpRequest| {
            let go_on = go_on.clone();
            async move {
                go_on.notified().await;
                let mut length = 0;
                while let Some(piece) = request.body.message().await? {
                    length += piece.len();
                }
                Ok(HttpResponse::new(200, length.to_string()))
            }
        },
    );
    let server = serve(server).await;
    let mut socket = TcpStream::connect(server.address().to_string()).await.unwrap();
    // Longer than the message limit.
    const LENGTH: usize = 64 << 20;
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {LENGTH}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = socket.into_split();
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = sent.clone();
    let sending = tokio::spawn(async move {
        let piece = vec![7; 64 << 10];
        for _ in 0..LENGTH / piece.len() {
            write.write_all(&piece).await.unwrap();
            count.fetch_add(piece.len(), std::sync::atomic::Ordering::SeqCst);
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(before < 32 << 20, "{before} bytes were read and not taken");
    let held = server.info().held_bytes;
    assert!(held < 4 << 20, "{held} bytes are held");
    taken.notify_one();
    soon(sending).await.unwrap();
    let mut answer = String::new();
    soon(read.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.contains(&LENGTH.to_string()), "{answer}");
}

#[tokio::test]
async fn early_response_arrives_and_closes_the_connection() {
    let server = serve(pages()).await;
    let mut socket = TcpStream::connect(server.address().to_string()).await.unwrap();
    let head = "POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&[7; 1000]).await.unwrap();
    let mut answer = Vec::new();
    soon(socket.read_to_end(&mut answer)).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("not you"));
}

#[tokio::test]
async fn disconnected_peer_cancels_its_handler() {
    struct Gone(Arc<tokio::sync::Notify>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let gone = Arc::new(tokio::sync::Notify::new());
    let reported = gone.clone();
    let server = Server::new().http_fallback(move |_: HttpRequest| {
        let gone = Gone(reported.clone());
        async move {
            let _gone = gone;
            std::future::pending().await
        }
    });
    let server = serve(server).await;
    let mut socket = TcpStream::connect(server.address().to_string()).await.unwrap();
    socket.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(socket);
    soon(gone.notified()).await;
}

#[tokio::test]
async fn unauthenticated_request_gets_no_page() {
    let listen = Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(b"Bearer open") => Ok(()),
        _ => Err(Status::unauthenticated("who is it?")),
    });
    let server = pages().layer(Guard::default()).bind(listen).await.unwrap().start();
    let get =
        |fields: &str| format!("GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    let page = exchange(&server, &get("")).await;
    assert!(page.starts_with("HTTP/1.1 401 ") && page.contains("who is it?"), "{page}");
    let page = exchange(&server, &get("Authorization: Bearer open\r\n")).await;
    assert!(page.starts_with("HTTP/1.1 403 ") && page.contains("no word"), "{page}");
    let page = exchange(&server, &get("Authorization: Bearer open\r\nWord: sesame\r\n")).await;
    assert!(page.contains("GET /x localhost 0"), "{page}");
}

#[tokio::test]
async fn in_process_connector_needs_no_socket() {
    let server = pages().bind(Listen::in_process()).await.unwrap().start();
    let connector = server.connector();
    let mut stream = connector.connect().unwrap();
    stream.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut page = String::new();
    soon(stream.read_to_string(&mut page)).await.unwrap();
    assert!(page.contains("GET /x localhost 0"), "{page}");
    let client = server.client(Protocol::Rpcx).unwrap();
    assert_eq!(client.call::<String>("echo", &"hi").await.unwrap(), "hi");
    drop(client);
    server.shutdown(Duration::from_secs(1)).await;
    let refused = connector.connect().err().expect("it has shut down");
    assert_eq!(refused.kind(), std::io::ErrorKind::NotConnected);
}

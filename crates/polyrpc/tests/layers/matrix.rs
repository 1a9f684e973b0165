//! The same layer on both sides, over every protocol and for every kind of call: it sees each call and its end once,
//! its additions arrive, and its rejections are reported.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyrpc::client::{CallOptions, Request};
use polyrpc::codec::{Body, Serde};
use polyrpc::layer::{Call, Layer, Next, Outcome, Side};
use polyrpc::layers::{CallEnd, CallStart, Observe, RateLimit, Token, bearer};
use polyrpc::server::{Listen, Publisher};
use polyrpc::service::Peer;
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Code, Context, Error, Format, Json, Protocol, Result, Server, Status, Streaming};
use tokio::sync::Notify;

use crate::common::{serve, soon, until, url_of};

/// Counts calls and their ends, adds a token to outgoing calls, and admits only calls with it.
#[derive(Clone, Default)]
struct Guard {
    seen: Arc<Mutex<ObservedCalls>>,
    word: Option<&'static str>,
    wants_word: bool,
    refuses: bool,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct ObservedCalls {
    began: Vec<(Side, String)>,
    ended: Vec<Option<Code>>,
}

impl Guard {
    fn seen(&self) -> ObservedCalls {
        self.seen.lock().unwrap().clone()
    }

    async fn pass(&self, mut call: Call, next: Next) -> Outcome {
        if let Some(word) = self.word {
            call.metadata_mut().insert("word", word);
        }
        if self.wants_word && call.metadata().get("word").is_none() {
            return Outcome::failed(Status::unauthenticated("the word is missing"));
        }
        match self.refuses {
            true => Outcome::failed(Status::permission_denied("refused by the layer")),
            false => next.call(call).await,
        }
    }
}

impl Layer for Guard {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        self.seen.lock().unwrap().began.push((call.side(), call.method().to_owned()));
        let ending = self.pass(call, next).await;
        self.seen.lock().unwrap().ended.push(ending.failure().map(Status::code));
        ending
    }
}

#[polyrpc::service]
trait Shapes {
    async fn unary(&self, text: String) -> Result<String>;
    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64>;
    async fn twice(&self, n: u64) -> Result<Streaming<u64>>;
    async fn double(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>>;
    async fn attached_streams(&self, cx: &mut Context, text: String) -> Result<String>;
}

#[derive(Clone)]
struct Shaped;

impl Shapes for Shaped {
    async fn unary(&self, text: String) -> Result<String> {
        Ok(text)
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

const JSON: Format = Format::Json(Json::Proto3);

/// The kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Unary,
    Oneway,
    ClientStreams,
    ServerStreams,
    Bidi,
    RawStreams,
    AttachedStreams,
    Subscription,
}

use Kind::{AttachedStreams, Bidi, ClientStreams, Oneway, RawStreams, ServerStreams, Subscription, Unary};

const KINDS: [Kind; 8] =
    [Unary, Oneway, ClientStreams, ServerStreams, Bidi, RawStreams, AttachedStreams, Subscription];

const SCHEMES: [&str; 8] = [
    "baidu-std",
    "rpcx",
    "grpc",
    "http",
    "rest-rpc",
    "net-rpc",
    "http?dialect=json-rpc",
    "rpcx?transport=ws",
];

/// Whether the protocol supports such calls.
fn has(scheme: &str, kind: Kind) -> bool {
    match kind {
        Unary => true,
        // The others answer every call.
        Oneway => scheme.starts_with("rpcx"),
        ServerStreams | Bidi => matches!(scheme, "grpc" | "baidu-std"),
        ClientStreams | RawStreams => scheme == "grpc",
        AttachedStreams => scheme == "baidu-std",
        Subscription => scheme == "rest-rpc",
    }
}

/// Whether the protocol carries metadata of the client to the server.
fn carries_metadata(scheme: &str) -> bool {
    !matches!(scheme, "rest-rpc" | "net-rpc")
}

fn numbers() -> Streaming<u64> {
    Streaming::from_iter([1, 2, 3])
}

async fn collect(messages: polyrpc::client::Result<Streaming<u64>>) -> Result<Vec<u64>> {
    let (mut messages, mut all) = (messages?, Vec::new());
    while let Some(n) = messages.message().await? {
        all.push(n);
    }
    Ok(all)
}

/// Makes such a call, and checks the result.
async fn call(kind: Kind, client: &Client, publisher: &Publisher) -> Result<()> {
    let shapes = ShapesClient::new(client.clone());
    match kind {
        Unary => assert_eq!(shapes.unary("x".to_owned()).await?, "x"),
        Oneway => {
            // A string of one character, in MessagePack.
            let body = Body::new(Format::MessagePack, [0xa1, b'x'].to_vec());
            client
                .call_raw("Shapes/Unary", body, CallOptions { oneway: true, ..CallOptions::default() })
                .await?;
        }
        ClientStreams => assert_eq!(shapes.sum(numbers()).await?, 6),
        ServerStreams => assert_eq!(collect(shapes.twice(4).await).await?, [4, 4]),
        // brpc's streams have no half-close: a reader that is done drops the stream.
        Bidi if client.protocol() == Protocol::BaiduStd => {
            let mut doubled = shapes.double(numbers()).await?;
            for n in [2, 4, 6] {
                assert_eq!(doubled.message().await?, Some(n));
            }
        }
        Bidi => assert_eq!(collect(shapes.double(numbers()).await).await?, [2, 4, 6]),
        RawStreams => {
            let mut raw = client.open_raw("Shapes/Double", CallOptions::default(), JSON).await?;
            raw.send("3").await.map_err(|_| Error::new(Code::Cancelled, "ended")).ok();
            raw.finish_sending().await.ok();
            let answer = raw.next().await?.ok_or_else(|| Error::new(Code::Internal, "no answer"))?;
            assert_eq!(answer.bytes, "6");
            assert!(raw.next().await?.is_none());
        }
        AttachedStreams => {
            let body = Request::new("x".to_owned());
            let (reply, mut stream) = client
                .open_stream::<Serde, String, String>(
                    "Shapes/AttachedStreams",
                    body,
                    StreamOptions::default(),
                )
                .await?;
            assert_eq!(reply.message, "x");
            stream.send("echo").await?;
            assert_eq!(stream.next().await?.unwrap().bytes, "echo");
        }
        Subscription => {
            let mut news = client.subscribe::<String>("news", "").await?;
            let publisher = publisher.clone();
            // Until it arrives: the server may still count an ended subscription.
            let publish = tokio::spawn(async move {
                loop {
                    publisher.publish("news", "", "hello").unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            let reported = news.message().await;
            publish.abort();
            assert_eq!(reported?.unwrap(), "hello");
        }
    }
    Ok(())
}

fn method(kind: Kind) -> &'static str {
    match kind {
        Unary | Oneway => "Unary",
        ClientStreams => "Sum",
        ServerStreams => "Twice",
        Bidi | RawStreams => "Double",
        AttachedStreams => "AttachedStreams",
        Subscription => "news",
    }
}

/// Makes every kind of call over every protocol, with a layer on each side.
async fn each(
    on_client: Guard,
    on_server: Guard,
    check: impl Fn(&str, Kind, Result<()>, &ObservedCalls, &ObservedCalls),
) -> usize {
    let mut cells = 0;
    for scheme in SCHEMES {
        for kind in KINDS.into_iter().filter(|kind| has(scheme, *kind)) {
            if kind == Subscription && (on_server.refuses || on_server.wants_word) {
                // It is not acknowledged, and its rejection not reported: the client retries forever.
                continue;
            }
            let (client_guard, server_guard) = (
                Guard { seen: Arc::default(), ..on_client.clone() },
                Guard { seen: Arc::default(), ..on_server.clone() },
            );
            let server = Server::new().service(ShapesServer::new(Shaped)).layer(server_guard.clone());
            let publisher = server.publisher();
            let server = serve(server).await;
            let url = url_of(scheme, server.address());
            let client = Client::builder(&url).layer(client_guard.clone()).build().unwrap();
            let made = tokio::time::timeout(crate::common::PATIENCE, call(kind, &client, &publisher)).await;
            let result = made.unwrap_or_else(|_| panic!("{scheme} {kind:?} does not end"));
            // The handler of a oneway call and the last observer of its end may be late.
            if result.is_ok() && !matches!((scheme, kind), (_, Subscription) | ("baidu-std", Bidi)) {
                let ended = until(|| server_guard.seen().ended.len() == 1);
                let ended = tokio::time::timeout(Duration::from_secs(5), ended).await;
                assert!(ended.is_ok(), "{scheme} {kind:?}: {:?}", server_guard.seen());
            }
            drop(client);
            check(scheme, kind, result, &client_guard.seen(), &server_guard.seen());
            cells += 1;
        }
    }
    cells
}

#[tokio::test]
async fn layers_see_every_call_kind_once_on_both_sides_over_every_protocol() {
    let cells = each(Guard::default(), Guard::default(), |scheme, kind, result, client, server| {
        result.unwrap_or_else(|error| panic!("{scheme} {kind:?}: {error}"));
        for (side, seen) in [(Side::Client, client), (Side::Server, server)] {
            let [(began, name)] = &seen.began[..] else { panic!("{scheme} {kind:?}: {seen:?}") };
            // rest_rpc's newest version sends a number in place of the topic's name.
            let names_it = name == method(kind) || kind == Subscription && name.starts_with('#');
            assert!(*began == side && names_it, "{scheme} {kind:?}: {seen:?}");
            match (scheme, kind) {
                // They end when the caller drops them, and the layer's future is dropped with them.
                (_, Subscription) | ("baidu-std", Bidi) => {
                    assert!(seen.ended.len() <= 1, "{scheme} {kind:?}")
                }
                _ => assert_eq!(seen.ended, [None], "{scheme} {kind:?} {side}"),
            }
        }
    });
    assert_eq!(cells.await, 18);
}

#[tokio::test]
async fn call_rejected_by_a_client_layer_reaches_no_server() {
    let refusing = Guard { refuses: true, ..Guard::default() };
    each(refusing, Guard::default(), |scheme, kind, result, client, server| {
        let error = result.expect_err("it was refused");
        assert_eq!(error.code(), Code::PermissionDenied, "{scheme} {kind:?}: {error}");
        assert_eq!(client.ended, [Some(Code::PermissionDenied)], "{scheme} {kind:?}");
        assert_eq!(*server, ObservedCalls::default(), "{scheme} {kind:?}");
    })
    .await;
}

#[tokio::test]
async fn call_rejected_by_a_server_layer_is_reported_to_the_caller() {
    let refusing = Guard { refuses: true, ..Guard::default() };
    each(Guard::default(), refusing, |scheme, kind, result, client, server| {
        assert_eq!(server.ended, [Some(Code::PermissionDenied)], "{scheme} {kind:?}");
        if kind == Oneway {
            return;
        }
        let error = result.expect_err("it was refused");
        assert!(error.message().contains("refused by the layer"), "{scheme} {kind:?}: {error}");
        assert!(matches!(client.ended[..], [Some(_)]), "{scheme} {kind:?}: {client:?}");
    })
    .await;
}

#[tokio::test]
async fn metadata_added_by_a_client_layer_reaches_the_server_layer() {
    let showing = Guard { word: Some("open sesame"), ..Guard::default() };
    let wanting = Guard { wants_word: true, ..Guard::default() };
    each(showing, wanting.clone(), |scheme, kind, result, _, _| {
        if carries_metadata(scheme) {
            result.unwrap_or_else(|error| panic!("{scheme} {kind:?}: {error}"));
        }
    })
    .await;
    each(Guard::default(), wanting, |scheme, kind, result, _, server| {
        assert_eq!(server.ended, [Some(Code::Unauthenticated)], "{scheme} {kind:?}: {result:?}");
    })
    .await;
}

#[tokio::test]
async fn subscription_rejected_by_a_layer_receives_nothing() {
    let guard = Guard { refuses: true, ..Guard::default() };
    let server = Server::new().layer(guard.clone());
    let publisher = server.publisher();
    let server = serve(server).await;
    let client = Client::new(&format!("rest-rpc://{}", server.address())).unwrap();
    let news = client.subscribe::<String>("news", "").await.unwrap();
    until(|| guard.seen().ended.len() == 1).await;
    assert_eq!(guard.seen().ended, [Some(Code::PermissionDenied)]);
    assert_eq!(publisher.publish("news", "", "hello").unwrap(), 0);
    drop(news);
}

#[tokio::test]
async fn subscriptions_share_the_rate_of_a_method_and_their_topics_are_not_declared() {
    /// Records for each call whether the program names the method.
    #[derive(Clone, Default)]
    struct Declared(Arc<Mutex<Vec<bool>>>);

    impl Observe for Declared {
        type Call = ();

        fn on_start(&self, call: &CallStart<'_>) {
            self.0.lock().unwrap().push(call.declared);
        }

        fn on_end(&self, (): (), _: &CallEnd<'_>) {}
    }

    let (declared, guard) = (Declared::default(), Guard::default());
    let limit = RateLimit::new(0.001, 1).per_method();
    let server = serve(Server::new().layer(declared.clone()).layer(guard.clone()).layer(limit)).await;
    let client = Client::new(&format!("rest-rpc://{}", server.address())).unwrap();
    let _news = soon(client.subscribe::<String>("news", "")).await.unwrap();
    until(|| guard.seen().began.len() == 1).await;
    let _people = soon(client.subscribe::<String>("people", "")).await.unwrap();
    until(|| guard.seen().ended.len() == 1).await;
    assert_eq!(guard.seen().ended, [Some(Code::ResourceExhausted)]);
    assert_eq!(*declared.0.lock().unwrap(), [false, false]);
}

#[tokio::test]
async fn bearer_layer_adds_its_token_to_streams() {
    let authenticate = |credential: Option<&[u8]>, _: &Peer| match credential {
        Some(b"Bearer good") => Ok(()),
        _ => Err(Status::unauthenticated("who are you?")),
    };
    let server = Server::new().service(ShapesServer::new(Shaped));
    let publisher = server.publisher();
    let listen = Listen::on("127.0.0.1:0").authenticate(authenticate);
    let server = server.bind(listen).await.unwrap().start();
    let bearer = bearer(|| async { Ok(Token { value: "good".to_owned(), expires_at: None }) });
    let url = format!("grpc://{}", server.address());
    let client = Client::builder(&url).layer(bearer).build().unwrap();
    for kind in [Unary, ClientStreams, ServerStreams, Bidi, RawStreams] {
        soon(call(kind, &client, &publisher)).await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

#[tokio::test]
async fn layer_can_end_an_open_stream() {
    /// Ends calls when notified.
    struct Ender(Arc<Notify>);
    impl Layer for Ender {
        async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
            tokio::select! {
                ending = next.call(call) => ending,
                () = self.0.notified() => Outcome::failed(Status::deadline_exceeded("no longer")),
            }
        }
    }
    let server = serve(Server::new().service(ShapesServer::new(Shaped))).await;
    let url = format!("grpc://{}", server.address());
    let is_over = Arc::new(Notify::new());
    let client = Client::builder(&url).layer(Ender(is_over.clone())).build().unwrap();
    let endless = Streaming::produce(|sender| async move {
        sender.send(1).await?;
        std::future::pending::<Result<()>>().await
    });
    let shapes = ShapesClient::new(client);
    let mut doubled = soon(shapes.double(endless)).await.unwrap();
    assert_eq!(soon(doubled.message()).await.unwrap(), Some(2));
    let ends = async {
        tokio::task::yield_now().await;
        is_over.notify_one();
    };
    let (ended, ()) = tokio::join!(soon(doubled.message()), ends);
    let error = ended.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::DeadlineExceeded, "no longer"));
    assert_eq!(soon(doubled.message()).await.unwrap(), None);
}

#[tokio::test]
async fn dropped_stream_ends_for_the_layers() {
    let watched = Arc::new(Mutex::new(Vec::new()));
    #[derive(Clone)]
    struct Watching(Arc<Mutex<Vec<Option<Code>>>>);
    impl polyrpc::layers::Observe for Watching {
        type Call = ();
        fn on_start(&self, _: &polyrpc::layers::CallStart<'_>) {}
        fn on_end(&self, (): (), end: &polyrpc::layers::CallEnd<'_>) {
            self.0.lock().unwrap().push(end.failure.map(Status::code));
        }
    }
    let server = serve(Server::new().service(ShapesServer::new(Shaped))).await;
    let url = format!("grpc://{}", server.address());
    let client = Client::builder(&url).layer(Watching(watched.clone())).build().unwrap();
    let open = soon(client.open_raw("Shapes/Double", CallOptions::default(), JSON)).await.unwrap();
    assert!(watched.lock().unwrap().is_empty());
    drop(open);
    assert_eq!(*watched.lock().unwrap(), [Some(Code::Cancelled)]);
}

#[tokio::test]
async fn layer_of_the_other_side_is_rejected() {
    let server = Server::new()
        .service(ShapesServer::new(Shaped))
        .layer(bearer(|| async { Err(Status::internal("")) }));
    let error = server.bind("127.0.0.1:0").await.expect_err("it does not bind").to_string();
    assert!(error.contains("Bearer is a layer of a client, not of a server"), "{error}");
}

#[tokio::test]
async fn client_sends_an_alias_as_its_target() {
    let server = serve(Server::new().function("add", |a: i32, b: i32| async move { a + b })).await;
    let client = Client::builder(&format!("rpcx://{}", server.address())).alias_method("math/plus", "add");
    let sum: i32 = soon(client.build().unwrap().call("math/plus", &(1, 2))).await.unwrap();
    assert_eq!(sum, 3);
}

#[tokio::test]
async fn first_added_layer_is_outermost() {
    struct NotingLayer(&'static str, Arc<Mutex<Vec<String>>>);
    impl Layer for NotingLayer {
        async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
            self.1.lock().unwrap().push(format!("{} {}/{}", self.0, call.service(), call.method()));
            let ending = next.call(call).await;
            self.1.lock().unwrap().push(format!("{} back", self.0));
            ending
        }
    }
    let noted = Arc::<Mutex<Vec<String>>>::default();
    let client = Client::mock(|call| call.encode_reply::<Serde, _>(&call.method.to_owned()));
    let client = client.layered(NotingLayer("a", noted.clone())).layered(NotingLayer("b", noted.clone()));
    assert_eq!(client.call::<String>("S/m", &()).await.unwrap(), "m");
    assert_eq!(*noted.lock().unwrap(), ["a S/m", "b S/m", "b back", "a back"]);
}

#[tokio::test]
async fn client_layer_can_retry_and_redirect() {
    struct Twice;
    impl Layer for Twice {
        async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
            let (mut again, once_more) = call.try_clone().zip(next.try_clone()).unwrap();
            let ending = next.call(call).await;
            match ending.failure() {
                Some(status) if status.code() == Code::NotFound => {
                    again.redirect("", "second").unwrap();
                    once_more.call(again).await
                }
                _ => ending,
            }
        }
    }
    let plain = Client::mock(|call| match call.method {
        "first" => Err(Status::not_found("first").into()),
        method => call.encode_reply::<Serde, _>(&method.to_owned()),
    });
    let twice = plain.layered(Twice);
    assert_eq!(twice.call::<String>("first", &()).await.unwrap(), "second");
    // The client without the layer is unchanged.
    assert_eq!(plain.call::<String>("first", &()).await.unwrap_err().code(), Code::NotFound);
}

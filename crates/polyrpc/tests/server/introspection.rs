//! Introspection: gRPC's standard health and reflection services, and server info.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::introspection::{Calls, Health, ServingStatus};
use polyrpc::layers::{AccessLog, Metrics, Mirror, RateLimit, Spans};
use polyrpc::server::{AnsweredCall, ConcurrencyLimit, Hook, IncomingCall, Limits, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::streaming::Sender;
use polyrpc::{Client, Code, Context, Protocol, Server, Status, Streaming};
use polyrpc_grpc_messages::health::v1::health_check_response::ServingStatus as ReceivedStatus;
use polyrpc_grpc_messages::health::v1::health_check_response::ServingStatus::{
    NOT_SERVING, SERVICE_UNKNOWN, SERVING,
};
use polyrpc_grpc_messages::health::v1::{HealthCheckRequest, HealthCheckResponse, HealthListRequest};
use polyrpc_grpc_messages::reflection::v1::server_reflection_request::MessageRequest;
use polyrpc_grpc_messages::reflection::v1::server_reflection_response::MessageResponse;
use polyrpc_grpc_messages::reflection::v1::{
    ExtensionRequest, ServerReflectionRequest, ServerReflectionResponse,
};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use tokio::net::TcpStream;

use crate::common::standard::{HealthClient, OlderServerReflectionClient, ServerReflectionClient};
use crate::common::{ProbeServer, Prober, Socket, again, client, serve, soon, until};

// ------------------------------------------------------------------------------------------------ health

async fn health() -> (Health, HealthClient, ServerHandle) {
    let health = Health::new();
    let server = Server::new().health(&health).service(ProbeServer::new(Prober::default()));
    let server = serve(server).await;
    (health, HealthClient::new(client(Protocol::Grpc, &server)), server)
}

fn health_request(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into(), ..HealthCheckRequest::default() }
}

async fn next(watch: &mut Streaming<HealthCheckResponse>) -> Option<ReceivedStatus> {
    soon(watch.message()).await.unwrap().and_then(|response| response.status.as_known())
}

#[tokio::test]
async fn services_are_serving_until_set_otherwise() {
    let (health, client, _server) = health().await;
    let check =
        async |service: &str| soon(client.check(health_request(service))).await.map(|r| r.status.as_known());
    for known in ["", "Probe", "grpc.health.v1.Health"] {
        assert_eq!(check(known).await.unwrap(), Some(SERVING), "{known}");
    }
    assert_eq!(check("Nope").await.unwrap_err().code(), Code::NotFound);

    health.set("Probe", ServingStatus::NotServing);
    health.set("elsewhere.Thing", ServingStatus::Serving);
    assert_eq!(check("Probe").await.unwrap(), Some(NOT_SERVING));
    assert_eq!(check("elsewhere.Thing").await.unwrap(), Some(SERVING));
    assert_eq!(check("").await.unwrap(), Some(SERVING), "the server's overall status");
    health.remove("elsewhere.Thing");
    assert_eq!(check("elsewhere.Thing").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn status_set_before_the_server_starts_is_kept() {
    let health = Health::new();
    health.set("Probe", ServingStatus::NotServing);
    let _server = serve(Prober::default().server().health(&health)).await;
    assert_eq!(
        (health.get("Probe"), health.get("")),
        (Some(ServingStatus::NotServing), Some(ServingStatus::Serving))
    );
}

#[tokio::test]
async fn http_distinguishes_readiness_from_liveness() {
    let (health, _, server) = health().await;
    let mut socket = Socket::connect(&server).await;
    let mut ask =
        async |path: &str| socket.http(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await.0;
    for path in
        ["/livez", "/readyz", "/health", "/readyz?service=Probe", "/health/Probe", "/health?service=Probe"]
    {
        assert_eq!(ask(path).await, 200, "{path}");
    }
    health.set("Probe", ServingStatus::NotServing);
    for (path, status) in [("/readyz", 200), ("/readyz?service=Probe", 503), ("/health/Probe", 503)] {
        assert_eq!(ask(path).await, status, "{path}");
    }
    health.set("", ServingStatus::NotServing);
    for (path, status) in
        [("/livez", 200), ("/readyz", 503), ("/health", 503), ("/readyz?service=Other", 404)]
    {
        assert_eq!(ask(path).await, status, "{path}");
    }
}

#[tokio::test]
async fn functions_and_services_named_like_probes_keep_their_paths() {
    let function = |answer: &'static str| move || async move { answer.to_owned() };
    let server = Server::new()
        .function("livez", function("a function"))
        .function("readyz/livez", function("a method"))
        .function("health/Probe", function("of a service called health"));
    let bound = server.bind(polyrpc::server::Listen::on("127.0.0.1:0").lenient_http()).await.unwrap().start();
    let mut socket = Socket::connect(&bound).await;
    for (path, answer) in [
        ("/livez", "\"a function\""),
        ("/readyz/livez", "\"a method\""),
        ("/health/Probe", "\"of a service called health\""),
        ("/readyz", "OK"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(socket.http(&request).await, (200, answer.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn health_list_contains_every_service() {
    let (health, client, _server) = health().await;
    health.set("Probe", ServingStatus::NotServing);
    let list = soon(client.list(HealthListRequest::default())).await.unwrap();
    let status = |service: &str| list.statuses.get(service).and_then(|response| response.status.as_known());
    assert_eq!(status(""), Some(SERVING));
    assert_eq!(status("Probe"), Some(NOT_SERVING));
    assert_eq!(status("grpc.health.v1.Health"), Some(SERVING));
    assert_eq!(list.statuses.len(), 3);
}

#[tokio::test]
async fn health_watch_yields_the_status_and_every_change() {
    let (health, client, _server) = health().await;
    let mut known = soon(client.watch(health_request("Probe"))).await.unwrap();
    let mut unknown = soon(client.watch(health_request("later"))).await.unwrap();
    assert_eq!(next(&mut known).await, Some(SERVING));
    assert_eq!(next(&mut unknown).await, Some(SERVICE_UNKNOWN));

    health.set("Probe", ServingStatus::NotServing);
    assert_eq!(next(&mut known).await, Some(NOT_SERVING));
    health.set("Probe", ServingStatus::Serving);
    assert_eq!(next(&mut known).await, Some(SERVING));
    health.set("later", ServingStatus::Serving);
    assert_eq!(next(&mut unknown).await, Some(SERVING), "the other service does not change");
    health.remove("later");
    assert_eq!(next(&mut unknown).await, Some(SERVICE_UNKNOWN));
}

#[tokio::test]
async fn health_watches_see_the_shutdown_without_delaying_it() {
    let (health, client, server) = health().await;
    let mut watches = Vec::new();
    for service in ["", "Probe", "nope"] {
        let mut watch = soon(client.watch(health_request(service))).await.unwrap();
        next(&mut watch).await;
        watches.push((service, watch));
    }
    soon(server.shutdown(crate::common::PATIENCE * 2)).await;
    for (service, mut watch) in watches {
        if service != "nope" {
            assert_eq!(next(&mut watch).await, Some(NOT_SERVING), "{service}");
        }
        assert_eq!(soon(watch.message()).await.unwrap_err().code(), Code::Unavailable, "{service}");
    }
    health.set("Probe", ServingStatus::Serving);
    assert_eq!(health.get("Probe"), Some(ServingStatus::NotServing), "it is over");
}

#[tokio::test]
async fn health_works_over_every_protocol_and_user_services_keep_short_names() {
    let mine = ServiceBuilder::new("my.Health")
        .method::<Raw, _, _, _, _>("Check", |cx: Context, _: Bytes| async { (cx, Ok(Bytes::from("mine"))) });
    let server = serve(Server::new().health(&Health::new()).service(mine).reflection()).await;

    let standard = HealthClient::new(client(Protocol::BaiduStd, &server));
    let answer = again(|| standard.check(health_request("my.Health"))).await;
    assert_eq!(answer.status.as_known(), Some(SERVING));
    let options = polyrpc::client::CallOptions::default();
    let raw = polyrpc::codec::Body::new(polyrpc::Format::Raw, "");
    let answer = soon(client(Protocol::BaiduStd, &server).call_raw("Health/Check", raw, options)).await;
    assert_eq!(answer.unwrap().message.bytes, "mine");
}

// -------------------------------------------------------------------------------------------- reflection

#[tokio::test]
async fn services_with_descriptors_are_listed_in_any_order_of_addition() {
    let server = Server::new()
        .reflection()
        .service(shop())
        .alias("shop.Store", "shop.Shop")
        .service(ProbeServer::new(Prober::default()))
        .health(&Health::new());
    let server = serve(server).await;
    let listed = ReflectionStream::open(&server).await.ask(MessageRequest::ListServices(String::new())).await;
    let Some(MessageResponse::ListServicesResponse(list)) = listed.message_response else {
        panic!("{listed:?}")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "shop.Shop",
        ]
    );
}

#[tokio::test]
async fn every_symbol_is_found_in_its_file() {
    let server = serve(Server::new().service(shop()).reflection()).await;
    let cases = [
        ("shop.Shop", "shop/shop.proto"),
        ("shop.Shop.Buy", "shop/shop.proto"),
        ("shop.Order", "shop/shop.proto"),
        ("shop.Order.item", "shop/shop.proto"),
        ("shop.Order.payment", "shop/shop.proto"),
        ("shop.Order.Line", "shop/shop.proto"),
        ("shop.Order.Line.count", "shop/shop.proto"),
        ("shop.Order.Line.Unit", "shop/shop.proto"),
        ("shop.Order.Line.KILO", "shop/shop.proto"),
        ("shop.Item", "shop/item.proto"),
        ("shop.Colour", "shop/item.proto"),
        ("shop.RED", "shop/item.proto"),
        ("shop.weight", "shop/weight.proto"),
        ("shop.Heavy.height", "shop/weight.proto"),
        ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
        ("grpc.reflection.v1.ServerReflection", "grpc/reflection/v1/reflection.proto"),
        ("grpc.reflection.v1alpha.ErrorResponse", "grpc/reflection/v1alpha/reflection.proto"),
    ];
    for (symbol, file) in cases {
        let asked = MessageRequest::FileContainingSymbol(symbol.into());
        let files = ReflectionStream::open(&server).await.files(asked).await;
        assert_eq!(name(files.first().expect(symbol)), file, "{symbol}");
    }
}

#[tokio::test]
async fn files_are_sent_unchanged_with_imports_once_per_stream() {
    let server = serve(Server::new().service(shop()).reflection()).await;
    let mut asking = ReflectionStream::open(&server).await;
    let by_name = |name: &str| MessageRequest::FileByFilename(name.into());
    let files = asking.files(by_name("shop/weight.proto")).await;
    assert_eq!(names(&files), ["shop/weight.proto", "shop/item.proto"]);
    let files = asking.files(by_name("shop/shop.proto")).await;
    assert_eq!(names(&files), ["shop/shop.proto", "google/protobuf/timestamp.proto"], "the others were sent");
    let files = asking.files(by_name("shop/item.proto")).await;
    assert_eq!(names(&files), ["shop/item.proto"], "a requested file is sent again");

    let all = ReflectionStream::open(&server).await.files(by_name("shop/shop.proto")).await;
    assert_eq!(all.len(), 4);
    let set = descriptors();
    for file in all {
        assert!(set.windows(file.len()).any(|window| window == file), "{} unchanged", name(&file));
    }
}

#[tokio::test]
async fn extensions_are_found_by_number_and_listed() {
    let server = serve(Server::new().service(shop()).reflection()).await;
    let mut asking = ReflectionStream::open(&server).await;
    let extension = |number| {
        let containing_type = "shop.Item".into();
        ExtensionRequest { containing_type, extension_number: number, ..ExtensionRequest::default() }
    };
    for number in [100, 150] {
        let files = asking.files(extension(number).into()).await;
        assert_eq!(name(&files[0]), "shop/weight.proto");
    }
    assert_eq!(asking.error(extension(101).into()).await, 5);

    for (message, want) in [("shop.Item", &[100, 150][..]), ("shop.Order", &[])] {
        let answer = asking.ask(MessageRequest::AllExtensionNumbersOfType(message.into())).await;
        let Some(MessageResponse::AllExtensionNumbersResponse(numbers)) = answer.message_response else {
            panic!("{answer:?}")
        };
        assert_eq!((numbers.base_type_name.as_str(), &numbers.extension_number[..]), (message, want));
    }
    assert_eq!(asking.error(MessageRequest::AllExtensionNumbersOfType("shop.Nope".into())).await, 5);
}

#[tokio::test]
async fn unanswerable_reflection_request_keeps_the_stream_and_an_empty_one_ends_it() {
    let server = serve(Server::new().service(shop()).reflection()).await;
    let mut asking = ReflectionStream::open(&server).await;
    assert_eq!(asking.error(MessageRequest::FileByFilename("nope.proto".into())).await, 5);
    for symbol in ["", "shop", "shop.Nope", "shop.Colour.RED", ".shop.Shop"] {
        assert_eq!(asking.error(MessageRequest::FileContainingSymbol(symbol.into())).await, 5, "{symbol}");
    }
    let request = ServerReflectionRequest {
        host: "example.org".into(),
        message_request: Some(MessageRequest::FileContainingSymbol("shop.Shop".into())),
        ..ServerReflectionRequest::default()
    };
    let answer = asking.send(request.clone()).await.unwrap();
    assert_eq!(
        (answer.valid_host.as_str(), answer.original_request.as_option()),
        ("example.org", Some(&request))
    );

    let nothing = asking.send(ServerReflectionRequest::default()).await;
    assert_eq!(nothing.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn v1alpha_reflection_is_answered_as_v1() {
    let server = serve(Server::new().service(shop()).reflection()).await;
    let client = OlderServerReflectionClient::new(client(Protocol::Grpc, &server));
    let file = MessageRequest::FileByFilename("shop/shop.proto".into());
    let request =
        ServerReflectionRequest { message_request: Some(file), ..ServerReflectionRequest::default() };
    let mut answers =
        soon(client.server_reflection_info(Streaming::from_iter([request.clone(), request.clone()])))
            .await
            .unwrap();
    for count in [4, 1] {
        let answer = soon(answers.message()).await.unwrap().unwrap();
        assert_eq!(answer.original_request.as_option(), Some(&request));
        let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else {
            panic!("{answer:?}")
        };
        assert_eq!(files.file_descriptor_proto.len(), count);
    }
    assert!(soon(answers.message()).await.unwrap().is_none());
}

/// A stream of reflection requests.
struct ReflectionStream {
    sender: Sender<ServerReflectionRequest>,
    answers: Option<Streaming<ServerReflectionResponse>>,
    requests: Option<Streaming<ServerReflectionRequest>>,
    client: ServerReflectionClient,
}

impl ReflectionStream {
    async fn open(server: &ServerHandle) -> Self {
        let (sender, requests) = Streaming::channel(1);
        let client = ServerReflectionClient::new(client(Protocol::Grpc, server));
        Self { sender, answers: None, requests: Some(requests), client }
    }

    async fn send(&mut self, request: ServerReflectionRequest) -> polyrpc::Result<ServerReflectionResponse> {
        self.sender.send(request).await?;
        if let Some(requests) = self.requests.take() {
            self.answers = Some(soon(self.client.server_reflection_info(requests)).await?);
        }
        let answers = self.answers.as_mut().expect("the stream is open");
        Ok(soon(answers.message()).await?.expect("an answer"))
    }

    async fn ask(&mut self, question: MessageRequest) -> ServerReflectionResponse {
        let request =
            ServerReflectionRequest { message_request: Some(question), ..ServerReflectionRequest::default() };
        self.send(request).await.expect("an answer")
    }

    async fn files(&mut self, question: MessageRequest) -> Vec<Bytes> {
        match self.ask(question).await.message_response {
            Some(MessageResponse::FileDescriptorResponse(files)) => files.file_descriptor_proto,
            other => panic!("{other:?}"),
        }
    }

    async fn error(&mut self, question: MessageRequest) -> i32 {
        match self.ask(question).await.message_response {
            Some(MessageResponse::ErrorResponse(error)) => error.error_code,
            other => panic!("{other:?}"),
        }
    }
}

/// The name of a file: the first field of its descriptor.
fn name(file: &Bytes) -> String {
    let length = usize::from(file[1]);
    String::from_utf8(file[2..2 + length].to_vec()).unwrap()
}

fn names(files: &[Bytes]) -> Vec<String> {
    let names: Vec<_> = files.iter().map(name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "none comes twice");
    names
}

/// A service whose descriptors use every feature.
fn shop() -> ServiceBuilder {
    ServiceBuilder::new("shop.Shop")
        .schema(&descriptors())
        .method::<Raw, _, _, _, _>("Buy", |cx: Context, order: Bytes| async { (cx, Ok(order)) })
}

fn descriptors() -> Vec<u8> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Sources);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("shop/shop.proto").unwrap();
    compiler.encode_file_descriptor_set()
}

struct Sources;

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let source = SOURCES.iter().find(|(known, _)| *known == name);
        source.map_or_else(
            || Err(protox::Error::file_not_found(name)),
            |(name, source)| File::from_source(name, source),
        )
    }
}

const SOURCES: [(&str, &str); 3] = [
    (
        "shop/item.proto",
        r#"
        syntax = "proto2";
        package shop;
        message Item { optional string name = 1; extensions 100 to 199; }
        enum Colour { RED = 1; }
        "#,
    ),
    (
        "shop/weight.proto",
        r#"
        syntax = "proto2";
        package shop;
        import "shop/item.proto";
        extend Item { optional int32 weight = 150; }
        message Heavy { extend Item { optional Heavy height = 100; } }
        "#,
    ),
    (
        "shop/shop.proto",
        r#"
        syntax = "proto3";
        package shop;
        import "google/protobuf/timestamp.proto";
        import "shop/item.proto";
        import "shop/weight.proto";
        message Order {
          Item item = 1;
          google.protobuf.Timestamp at = 2;
          oneof payment { string card = 3; bytes coin = 4; }
          message Line { int32 count = 1; enum Unit { PIECE = 0; KILO = 1; } }
        }
        service Shop { rpc Buy(Order) returns (Order); }
        "#,
    ),
];

// ----------------------------------------------------------------------------------- beside the user's calls

/// Every observer of calls.
#[derive(Clone, Default)]
struct Witnesses {
    received: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    lines: Arc<AtomicUsize>,
    spans: Arc<AtomicUsize>,
    metrics: Metrics,
}

fn more(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::SeqCst);
}

impl Hook for Witnesses {
    fn on_request(&self, _: &mut IncomingCall<'_>) -> polyrpc::Result<(), Status> {
        more(&self.received);
        Ok(())
    }

    fn on_response(&self, _: &AnsweredCall<'_>) {
        more(&self.answered);
    }
}

impl Witnesses {
    /// A server with these observers, and limits that two calls exhaust.
    fn around(&self, server: Server, mirror: &Mirror) -> Server {
        let (lines, spans) = (self.lines.clone(), self.spans.clone());
        server
            .metrics(&self.metrics)
            .hook(self.clone())
            .layer(AccessLog::new(move |_| more(&lines)))
            .layer(Spans::new(move |_| more(&spans)))
            .layer(mirror.clone())
            .layer(RateLimit::new(0.001, 2))
            .concurrency_limit(ConcurrencyLimit::Constant(2))
            .limits(Limits { in_flight: 1, ..Limits::default() })
    }

    /// Number of calls that each observer has seen.
    fn calls_seen(&self, mirror: &Mirror) -> [(&'static str, u64); 6] {
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst) as u64;
        let (answered, failed, skipped) = (mirror.succeeded(), mirror.failed(), mirror.skipped());
        [
            ("hooks before", count(&self.received)),
            ("hooks after", count(&self.answered)),
            ("metrics", self.metrics.methods().iter().map(|method| method.started).sum()),
            ("access log", count(&self.lines)),
            ("spans", count(&self.spans)),
            ("mirror", answered + failed + skipped),
        ]
    }
}

type BoxedQuery = Pin<Box<dyn Future<Output = ()>>>;

/// Every introspection request, over every protocol.
fn questions(server: &ServerHandle) -> Vec<(String, BoxedQuery)> {
    let mut questions: Vec<(String, BoxedQuery)> = Vec::new();
    let url = server.address().to_string();
    for protocol in [Protocol::Grpc, Protocol::BaiduStd, Protocol::Rpcx, Protocol::Http] {
        let health = HealthClient::new(client(protocol, server));
        let asked = async move {
            let answer = again(|| health.check(health_request(""))).await;
            assert_eq!(answer.status.as_known(), Some(SERVING));
        };
        questions.push((format!("Health/Check by {protocol:?}"), Box::pin(asked)));
    }
    let health = HealthClient::new(client(Protocol::Grpc, server));
    let watched = async move {
        let mut watch = soon(health.watch(health_request(""))).await.unwrap();
        assert_eq!(next(&mut watch).await, Some(SERVING));
    };
    questions.push(("Health/Watch".into(), Box::pin(watched)));
    let rpcx = client(Protocol::Rpcx, server);
    for (name, part) in [("Reflection/GetServices", "type Probe struct"), ("metrics", "polyrpc_calls_total")]
    {
        let rpcx = rpcx.clone();
        let asked = async move {
            let text: String = again(|| rpcx.call(name, "")).await;
            assert!(text.contains(part), "{text}");
        };
        questions.push((format!("{name} by rpcx"), Box::pin(asked)));
    }
    for path in ["/metrics", "/brpc_metrics", "/health", "/livez", "/readyz"] {
        let url = url.clone();
        let asked = async move {
            let mut socket = Socket { stream: TcpStream::connect(url).await.unwrap() };
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(socket.http(&request).await.0, 200);
        };
        questions.push((format!("GET {path}"), Box::pin(asked)));
    }
    questions
}

#[tokio::test]
async fn standard_services_bypass_hooks_metrics_logs_mirrors_and_limits() {
    let (prober, elsewhere) = (Prober::default(), Prober::default());
    elsewhere.gate.open();
    let other = serve(elsewhere.server()).await;
    let mirror = Mirror::to(client(Protocol::Rpcx, &other));
    let witnesses = Witnesses::default();
    let server = prober.server().health(&Health::new()).reflection();
    let server = serve(witnesses.around(server, &mirror)).await;

    // One user call is pending, so that the server accepts no other.
    let caller = client(Protocol::Rpcx, &server);
    let waiting = {
        let caller = caller.clone();
        tokio::spawn(async move { caller.call::<String>("Probe/Wait", "x").await })
    };
    prober.gate.came(1).await;
    let refused = soon(caller.call::<String>("Probe/Echo", "x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    until(|| mirror.succeeded() == 1).await;
    let before = witnesses.calls_seen(&mirror);
    let numbers = before.map(|(_, number)| number);
    assert_eq!(
        numbers,
        [2, 1, 1, 0, 0, 1],
        "of the one that waits, and of the one that was refused: {before:?}"
    );

    for (question, asked) in questions(&server) {
        asked.await;
        assert_eq!(witnesses.calls_seen(&mirror), before, "{question}");
    }
    let mut asking = ReflectionStream::open(&server).await;
    let answer = asking.ask(MessageRequest::ListServices(String::new())).await;
    assert!(matches!(answer.message_response, Some(MessageResponse::ListServicesResponse(_))));
    drop(asking);

    // User calls are observed and limited as before.
    prober.gate.open();
    soon(waiting).await.unwrap().unwrap();
    soon(caller.call::<String>("Probe/Echo", "x")).await.unwrap();
    let limited = soon(caller.call::<String>("Probe/Echo", "x")).await.unwrap_err();
    assert_eq!(limited.code(), Code::ResourceExhausted);
    let calls_seen = || witnesses.calls_seen(&mirror).map(|(_, number)| number);
    until(|| calls_seen()[1] == 4 && calls_seen()[5] == 3).await;
    assert_eq!(calls_seen(), [4, 4, 3, 3, 3, 3]);
}

// ------------------------------------------------------------------------------------------------ facts

/// Number of calls that were started, succeeded and failed.
fn counts(calls: Calls) -> (u64, u64, u64) {
    (calls.started, calls.succeeded, calls.failed)
}

#[tokio::test]
async fn server_info_lists_connections_and_call_outcomes() {
    let server = Server::new().function("half", |n: i64| async move {
        match n % 2 {
            0 => Ok(n / 2),
            _ => Err(Status::invalid_argument("odd")),
        }
    });
    let server = serve(server).await;
    let (even, odd) = (client(Protocol::Rpcx, &server), client(Protocol::BaiduStd, &server));
    let half = async |client: &Client, n: i64| soon(client.call::<i64>("half", &n)).await;
    half(&even, 2).await.unwrap();
    half(&even, 4).await.unwrap();
    half(&odd, 3).await.unwrap_err();

    let reported = |protocol| {
        let connections = server.info().connections;
        let open = connections.iter().find(|connection| connection.protocol == Some(protocol));
        open.map(|open| counts(open.calls))
    };
    until(|| reported(Protocol::Rpcx) == Some((2, 2, 0)) && reported(Protocol::BaiduStd) == Some((1, 0, 1)))
        .await;

    drop((even, odd));
    until(|| server.info().connections.is_empty()).await;
    let all = server.info().calls;
    assert_eq!(counts(all), (3, 2, 1));
    assert_eq!(all.in_flight(), 0);
}

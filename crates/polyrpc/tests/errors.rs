//! Which parts of a failure reach the caller.

mod common;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polyrpc::client::{CancelHandle, Request, StubMethod};
use polyrpc::codec::{Body, Raw, Serde};
use polyrpc::service::{Fallible, ServiceBuilder};
use polyrpc::{Client, Code, Context, Failure, Format, Json, Protocol, Result, Server, Status, Streaming};
use tracing::field::{Field, Visit};

use crate::common::{Gate, PROTOCOLS, client, serve, soon, unreachable_address, until};

const SECRET: &str = "postgres://admin:hunter2@db";

fn connect() -> std::result::Result<(), io::Error> {
    Err(io::Error::other(SECRET))
}

#[polyrpc::service]
trait Shop {
    async fn buy(&self, what: String) -> Result<String>;
    async fn list(&self, what: String) -> Result<Streaming<String>>;
}

struct FailingShop;

impl Shop for FailingShop {
    async fn buy(&self, _: String) -> Result<String> {
        connect()?;
        Ok("bought".into())
    }

    async fn list(&self, what: String) -> Result<Streaming<String>> {
        if what == "at once" {
            connect()?;
        }
        Ok(Streaming::produce(|sender| async move {
            sender.send("first".into()).await?;
            Ok(connect()?)
        }))
    }
}

/// Functions that fail with various error types.
fn leaky() -> Server {
    type BoxedError = Box<dyn std::error::Error + Send + Sync>;
    Server::new()
        .service(ShopServer::new(FailingShop))
        .function("io", || async { connect() })
        .function("boxed", || async { Ok::<(), BoxedError>(connect()?) })
        .function("anyhow", || async {
            Err::<(), _>(anyhow::Error::from(connect().unwrap_err()).context("while connecting"))
        })
        .function("words", || async {
            Err(format!("no {} here", "tea"))?;
            Ok::<(), Failure>(())
        })
        .function::<_, Fallible>("static", || async { Err::<(), _>("no tea here") })
}

#[tokio::test]
async fn text_of_a_foreign_error_is_not_sent() {
    let server = serve(leaky()).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        for target in ["io", "boxed", "anyhow"] {
            let error = client.call::<()>(target, &()).await.unwrap_err();
            assert!(error.message().ends_with("internal error"), "{protocol:?} {target}: {error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{protocol:?} {target}: {error:?}");
        }
        let error = ShopClient::new(client).buy("tea".into()).await.unwrap_err();
        assert!(error.message().ends_with("internal error"), "{protocol:?}: {error}");
        if !matches!(protocol, Protocol::Rpcx | Protocol::NetRpc) {
            // These protocols carry only the text.
            assert_eq!(error.code(), Code::Internal, "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn unknown_function_is_named_in_the_error() {
    let server = serve(leaky()).await;
    for protocol in PROTOCOLS.into_iter().chain([Protocol::RestRpc]) {
        let error = client(protocol, &server).call::<()>("gone", &()).await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{protocol:?}: {error}");
        if protocol != Protocol::RestRpc {
            assert!(error.message().contains("gone"), "{protocol:?}: {error}");
        }
    }
}

#[tokio::test]
async fn text_of_a_foreign_error_is_not_sent_in_a_stream() {
    let server = serve(leaky()).await;
    let shop = ShopClient::new(client(Protocol::Grpc, &server));
    let failed = shop.list("at once".into()).await.err();
    assert_eq!(failed.map(|error| error.message().to_owned()).as_deref(), Some("internal error"));
    let mut list = shop.list("later".into()).await.unwrap();
    assert_eq!(list.message().await.unwrap().as_deref(), Some("first"));
    let error = list.message().await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Internal, "internal error"));
}

#[tokio::test]
async fn error_text_written_by_the_handler_is_sent() {
    let server = serve(leaky()).await;
    for protocol in PROTOCOLS {
        for target in ["words", "static"] {
            let error = client(protocol, &server).call::<()>(target, &()).await.unwrap_err();
            assert!(error.message().ends_with("no tea here"), "{protocol:?} {target}: {error}");
        }
    }
}

#[tokio::test]
async fn long_error_text_is_shortened_and_the_connection_goes_on() {
    let long = || async { Err::<(), _>("é".repeat(300 << 10)) };
    let server = serve(Server::new().function::<_, Fallible>("long", long)).await;
    for protocol in PROTOCOLS.into_iter().chain([Protocol::RestRpc]) {
        let client = client(protocol, &server);
        for _ in 0..2 {
            let error = soon(client.call::<()>("long", &())).await.unwrap_err();
            assert!(error.message().contains("éé"), "{protocol:?}: {} bytes", error.message().len());
        }
        assert_eq!(server.connection_count(), 1, "{protocol:?}");
        drop(client);
        until(|| server.connection_count() == 0).await;
    }
}

#[tokio::test]
async fn server_can_expose_errors_as_go_does() {
    let server = serve(leaky().expose_errors()).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        let error = client.call::<()>("io", &()).await.unwrap_err();
        assert!(error.message().ends_with(SECRET), "{protocol:?}: {error}");
        let error = client.call::<()>("anyhow", &()).await.unwrap_err();
        assert!(error.message().contains("while connecting"), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn foreign_error_is_logged_with_its_call() {
    let events = Events::default();
    let _default = tracing::subscriber::set_default(events.clone());
    let server = serve(leaky()).await;
    let shop = ShopClient::new(client(Protocol::Rpcx, &server));
    // The event is limited to 20 in 10 s for the whole process, and other tests cause it too. One that emits it for the
    // first time on another thread, at the same moment, may have it ignored once.
    let deadline = Instant::now() + Duration::from_secs(30);
    let event = loop {
        let request = Request::new("tea".to_owned())
            .with_metadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        shop.buy_with(request).await.unwrap_err();
        let event = events.0.lock().unwrap().iter().find(|event| event.contains("a handler failed")).cloned();
        if let Some(event) = event {
            break event;
        }
        assert!(Instant::now() < deadline, "the event was not emitted");
        tracing::callsite::rebuild_interest_cache();
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for part in [SECRET, "service=Shop", "method=Buy", "connection=", "peer=127.0.0.1", "0af7651916cd43dd"] {
        assert!(event.contains(part), "{part} is not in {event}");
    }
}

#[tokio::test]
async fn refused_connection_exposes_its_io_error() {
    let client = Client::new(&format!("grpc://{}", unreachable_address())).unwrap();
    let failed: std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> =
        client.call::<()>("any", &()).await.map_err(Into::into);
    let error = failed.unwrap_err();
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(error) = source.downcast_ref::<io::Error>() {
            return assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        cause = source.source();
    }
    panic!("no io::Error is in the chain of {error:?}");
}

/// Fails with headers and trailers.
fn failing() -> ServiceBuilder {
    fn beside(cx: &mut Context) {
        cx.reply_options().metadata.insert("x-head", "h");
        cx.reply_options().trailers.insert("x-tail", "t");
    }
    ServiceBuilder::new("Failing")
        .method::<Serde, String, String, _, _>("Unary", |mut cx: Context, _| async move {
            beside(&mut cx);
            (cx, Err(Status::not_found("none").into()))
        })
        .server_streaming::<Raw, String, String, _, _>("Streams", |mut cx: Context, _| async move {
            beside(&mut cx);
            let messages = [Ok("one".to_owned()), Err(Status::not_found("none").into())];
            (cx, Ok(Streaming::from_stream(futures_util::stream::iter(messages))))
        })
}

#[tokio::test]
async fn failed_call_carries_headers_and_trailers_of_the_peer() {
    let server = serve(Server::new().service(failing())).await;
    let grpc = client(Protocol::Grpc, &server);
    let error = grpc.call::<String>("Failing/Unary", "x").await.unwrap_err();
    assert_eq!((error.code(), error.headers().get("x-head")), (Code::NotFound, Some("h")));
    assert_eq!(error.trailers().get("x-tail"), Some("t"));

    let signature = StubMethod::plain("Failing", "Streams");
    let requests = Streaming::once("x".to_owned());
    let answer = grpc.invoke_streaming::<Raw, String, String>(&signature, requests).await.unwrap();
    let mut messages = answer.message;
    assert_eq!(messages.message().await.unwrap().as_deref(), Some("one"));
    let error = messages.message().await.unwrap_err();
    assert_eq!((error.code(), error.headers().get("x-head")), (Code::NotFound, Some("h")));
    assert_eq!(error.trailers().get("x-tail"), Some("t"));
}

#[tokio::test]
async fn metadata_of_a_failure_is_not_forwarded() {
    let back = serve(Server::new().service(failing())).await;
    let next = client(Protocol::Grpc, &back);
    let relay = Server::new().function("relay", move || {
        let next = next.clone();
        async move { next.call::<String>("Failing/Unary", "x").await }
    });
    let front = serve(relay).await;
    let error = client(Protocol::Grpc, &front).call::<String>("relay", &()).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "none"));
    assert_eq!((error.headers().get("x-head"), error.trailers().get("x-tail")), (None, None));
}

#[cfg(feature = "prost")]
mod details {
    use polyrpc::Details;

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct ErrorInfo {
        #[prost(string, tag = "1")]
        reason: String,
        #[prost(string, tag = "2")]
        domain: String,
    }

    impl prost::Name for ErrorInfo {
        const PACKAGE: &'static str = "google.rpc";
        const NAME: &'static str = "ErrorInfo";
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct RetryInfo {
        /// A duration of this many seconds.
        #[prost(bytes = "vec", tag = "1")]
        retry_delay: Vec<u8>,
    }

    impl prost::Name for RetryInfo {
        const PACKAGE: &'static str = "google.rpc";
        const NAME: &'static str = "RetryInfo";
    }

    #[tokio::test]
    async fn typed_details_are_written_by_a_server_and_read_by_a_client() {
        let info = ErrorInfo { reason: "STOCKOUT".into(), domain: "shop".into() };
        let retry = RetryInfo { retry_delay: vec![0x08, 0x05] };
        let status = Status::unavailable("sold out").with(&info).with(&retry);
        let server = serve(Server::new().function("buy", move || {
            let status = status.clone();
            async move { Err::<(), _>(status) }
        }))
        .await;
        let error = client(Protocol::Grpc, &server).call::<()>("buy", &()).await.unwrap_err();
        assert_eq!(error.status().detail::<RetryInfo>(), Some(retry));
        assert_eq!(error.status().details_of::<ErrorInfo>().collect::<Vec<_>>(), [info]);
    }
}

#[tokio::test]
async fn wrong_number_of_arguments_is_named_in_the_error() {
    let server = serve(Server::new().function("add", |a: i32, b: i32| async move { a + b })).await;
    let (json, pack) = (Format::Json(Json::Go), Format::MessagePack);
    for (protocol, format, bytes) in [
        (Protocol::Grpc, json, &b"[1, 2, 3]"[..]),
        (Protocol::Http, json, b"[1, 2, 3]"),
        (Protocol::Rpcx, json, b"[1, 2, 3]"),
        (Protocol::Rpcx, pack, b"\x93\x01\x02\x03"),
    ] {
        let body = Body::new(format, bytes);
        let failed = client(protocol, &server).call_raw("add", body, <_>::default()).await;
        let Err(error) = failed else { panic!("{protocol:?} {format:?}") };
        let text = "wrong number of arguments: expected 2, found 3";
        assert!(error.message().contains(text), "{protocol:?} {format:?}: {error}");
    }
}

#[tokio::test]
async fn malformed_request_is_internal_in_grpc() {
    let server = serve(
        Server::new()
            .function("add", |a: i32, b: i32| async move { a + b })
            .service(ShopServer::new(FailingShop)),
    )
    .await;
    let grpc = client(Protocol::Grpc, &server);
    let error = grpc.call::<i32>("add", &("no", "numbers")).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal, "{error}");
    let error = grpc.call::<i32>("Shop/Buy", &(1, 2, 3)).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal, "{error}");
    let signature = StubMethod::plain("Shop", "List");
    let answer = grpc.invoke_streaming::<Raw, String, String>(&signature, Streaming::once("{".to_owned()));
    let error = match answer.await {
        Ok(mut answer) => answer.message.message().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.code(), Code::Internal, "{error}");
    let error = client(Protocol::BaiduStd, &server).call::<i32>("add", &("no", "numbers")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
}

#[tokio::test]
async fn call_is_cancelled_by_a_handle() {
    for protocol in PROTOCOLS {
        let (gate, over) = (Gate::default(), Arc::new(Mutex::new(0)));
        let (waits, counts) = (gate.clone(), over.clone());
        let server = serve(Server::new().function("wait", move || {
            let (waits, counts) = (waits.clone(), DropCounter(counts.clone()));
            async move {
                let _counts = counts;
                waits.pass().await;
            }
        }))
        .await;
        let client = client(protocol, &server);
        let cancel = CancelHandle::new();
        let calling = tokio::spawn({
            let cancel = cancel.clone();
            async move { client.call_with::<()>("wait", Request::new(()).with_cancel(&cancel)).await }
        });
        gate.came(1).await;
        cancel.cancel();
        let error = soon(calling).await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Cancelled, "{protocol:?}");
        if matches!(protocol, Protocol::Grpc | Protocol::Http) {
            // The others cannot express it: their servers learn of it from the end of the connection.
            until(|| *over.lock().unwrap() == 1).await;
        }
        let late = crate::common::client(protocol, &server);
        let error = late.call_with::<()>("wait", Request::new(()).with_cancel(&cancel)).await.unwrap_err();
        assert_eq!(error.code(), Code::Cancelled, "{protocol:?}: the call stays cancelled");
    }
}

/// Counts drops.
struct DropCounter(Arc<Mutex<usize>>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

#[tokio::test]
async fn stream_is_cancelled_by_a_handle() {
    let endless = |cx: Context, _: String| async move {
        let messages = Streaming::produce(|sender| async move {
            loop {
                sender.send("more".to_owned()).await?;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        (cx, Ok(messages))
    };
    let service = ServiceBuilder::new("S").server_streaming::<Raw, String, String, _, _>("Endless", endless);
    let server = serve(Server::new().service(service)).await;
    let cancel = CancelHandle::new();
    let request = Request::new(Streaming::once("x".to_owned())).with_cancel(&cancel);
    let grpc = client(Protocol::Grpc, &server);
    let signature = StubMethod::plain("S", "Endless");
    let answer = grpc.invoke_streaming::<Raw, String, String>(&signature, request);
    let mut messages = soon(answer).await.unwrap().message;
    assert_eq!(soon(messages.message()).await.unwrap().as_deref(), Some("more"));
    cancel.cancel();
    let error = soon(async {
        loop {
            if let Err(error) = messages.message().await {
                return error;
            }
        }
    });
    assert_eq!(error.await.code(), Code::Cancelled);
    assert_eq!(soon(messages.message()).await.unwrap(), None);
}

#[tokio::test]
async fn raw_call_rejects_a_cancel_handle() {
    let server = serve(Server::new()).await;
    let grpc = client(Protocol::Grpc, &server);
    let options = polyrpc::client::CallOptions { cancel: Some(CancelHandle::new()), ..Default::default() };
    let opened = grpc.open_raw("S/M", options, polyrpc::Format::Protobuf).await;
    assert_eq!(opened.unwrap_err().code(), Code::InvalidArgument);
}

/// The events of a thread, each as one line.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Events {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!("{}={value} ", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

#[tokio::test]
async fn errors_convert_as_the_readme_says() {
    async fn sold() -> polyrpc::Result<()> {
        Err(Status::not_found("sold out").into())
    }
    async fn called() -> polyrpc::client::Result<()> {
        Err(polyrpc::Error::from(Status::unavailable("gone")))
    }
    async fn boxed(of_client: bool) -> std::result::Result<(), Box<dyn std::error::Error>> {
        match of_client {
            true => called().await?,
            false => sold().await.map_err(polyrpc::Error::from)?,
        }
        Ok(())
    }
    assert!(boxed(true).await.unwrap_err().to_string().contains("gone"));
    let error = boxed(false).await.unwrap_err();
    assert!(error.to_string().contains("sold out"), "{error}");
}

//! What a console is built on: a handle that observes a server, pages that describe it, and servers of pages alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Raw};
use polyrpc::fallback::{HttpRequest, HttpResponse};
use polyrpc::layer::{Call, Layer, Next, Outcome};
use polyrpc::layers::Metrics;
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Format, Protocol, Result, Server, Status};

use crate::common::{Socket, client, serve, soon};

/// Rejects everything.
struct RejectAll;

impl Layer for RejectAll {
    async fn call(self: Arc<Self>, _: Call, _: Next) -> Outcome {
        Outcome::failed(Status::permission_denied("closed"))
    }
}

async fn page(request: HttpRequest) -> Result<HttpResponse> {
    Ok(HttpResponse::new(200, format!("page {}", request.target)))
}

async fn get(server: &ServerHandle, path: &str) -> String {
    let mut socket = Socket::connect(server).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.send(request.as_bytes()).await;
    String::from_utf8(soon(socket.rest()).await).unwrap()
}

fn services() -> Server {
    Server::new()
        .function("echo", |text: String| async move { text })
        .function("fail", |_: String| async move { Err::<(), _>(Status::not_found("nothing")) })
}

#[tokio::test]
async fn pages_answer_their_names_only_and_after_the_methods() {
    let server = serve(services().pages(["", "status", "echo"], page)).await;
    for path in ["/", "/status", "/status/a/b", "/status?x=1"] {
        let text = get(&server, path).await;
        assert!(
            text.starts_with("HTTP/1.1 200 ") && text.contains(&format!("page {path}")),
            "{path}: {text}"
        );
    }
    // The function of that name is not called by GET.
    assert!(get(&server, "/echo").await.starts_with("HTTP/1.1 405 "));
    assert!(get(&server, "/health").await.ends_with("OK"));
    let unknown = get(&server, "/statuses").await;
    assert!(unknown.starts_with("HTTP/1.1 404 ") && !unknown.contains("page"), "{unknown}");
}

#[tokio::test]
async fn pages_come_before_the_http_fallback() {
    let other = |_: HttpRequest| async { Ok(HttpResponse::new(200, "other")) };
    let server = serve(services().http_fallback(other).pages(["status"], page)).await;
    assert!(get(&server, "/status").await.contains("page /status"));
    assert!(get(&server, "/elsewhere").await.contains("other"));
}

#[tokio::test]
async fn pages_and_introspection_pass_no_layer_and_no_limit_of_calls() {
    let metrics = Metrics::new();
    let about = ServiceBuilder::new("about.server")
        .method::<Raw, Bytes, Bytes, _, _>("Get", |cx: Context, _| {
            std::future::ready((cx, Ok(Bytes::from_static(b"me"))))
        });
    let limits = Limits { in_flight: 1, ..Limits::default() };
    let waiting = Server::new().function("wait", std::future::pending::<()>);
    let server = waiting.limits(limits).pages(["status"], page).introspection(about).metrics(&metrics);
    let server = serve(server).await;
    let client = client(Protocol::BaiduStd, &server);
    let caller = client.clone();
    let pending = tokio::spawn(async move { caller.call::<()>("wait", &()).await });
    crate::common::until(|| server.info().pending_calls == 1).await;
    // The limit is reached.
    assert!(client.call::<()>("wait", &()).await.is_err());
    assert!(get(&server, "/status").await.contains("page /status"));
    let body = Body::new(Format::Raw, Bytes::new());
    let reply = client.call_raw("about.server/Get", body, CallOptions::default()).await.unwrap();
    assert_eq!(reply.message.bytes, "me");
    pending.abort();
    assert!(metrics.methods().iter().all(|method| method.method == "wait"), "{metrics:?}");

    let server = serve(services().layer(RejectAll).pages(["status"], page)).await;
    assert!(get(&server, "/status").await.contains("page /status"));
}

#[tokio::test]
async fn an_http_handler_gets_every_request() {
    let server = serve(services().http_handler(page)).await;
    for path in ["/", "/health", "/readyz", "/livez", "/version", "/echo", "/_rpcx_"] {
        let text = get(&server, path).await;
        assert!(text.contains(&format!("page {path}")), "{path}: {text}");
    }
    let mut socket = Socket::connect(&server).await;
    let call = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json-rpc\r\nConnection: close\r\n\
        Content-Length: 2\r\n\r\n{}";
    socket.send(call.as_bytes()).await;
    assert!(String::from_utf8(soon(socket.rest()).await).unwrap().contains("page /"));
}

#[tokio::test]
async fn a_monitor_sees_the_methods_the_counters_and_the_health() {
    let metrics = Metrics::new();
    let server = services().alias_method("other", "echo").version("v7").metrics(&metrics);
    let server = serve(server).await;
    let monitor = server.monitor();
    let names: Vec<_> =
        monitor.methods().into_iter().map(|method| (method.name, method.is_standard)).collect();
    let standard = |name: &str| (name.to_owned(), name.ends_with("metrics"));
    assert_eq!(names, ["brpc_metrics", "echo", "fail", "metrics"].map(standard));
    assert_eq!((monitor.version().as_str(), monitor.is_serving("")), ("v7", Some(true)));

    let client = client(Protocol::Rpcx, &server);
    let _: String = client.call("echo", "hello").await.unwrap();
    let then = monitor.metrics().unwrap().methods();
    for _ in 0..3 {
        let _: String = client.call("echo", "hello").await.unwrap();
    }
    client.call::<()>("fail", "hello").await.unwrap_err();
    let now = monitor.metrics().unwrap().methods();
    let echo = now.iter().find(|method| method.method == "echo").unwrap();
    let lately = echo.since(then.iter().find(|then| then.is_same_method(echo)).unwrap());
    assert_eq!((echo.succeeded, lately.succeeded, lately.started), (4, 3, 3));
    assert!(lately.quantile(1.0) > Duration::ZERO && lately.max() >= lately.quantile(0.5));
    let fail = now.iter().find(|method| method.method == "fail").unwrap();
    assert_eq!(fail.failures().collect::<Vec<_>>(), [(polyrpc::Code::NotFound, 1)]);
    assert_eq!(fail.merged(echo).started, 5);

    let connections = monitor.info().unwrap().connections;
    let [connection] = &connections[..] else { panic!("{connections:?}") };
    crate::common::until(|| monitor.info().unwrap().connections[0].received > 0).await;
    assert!(monitor.info().unwrap().connections[0].sent > 0);
    assert!(!monitor.close_connection(connection.id + 1));
    assert!(monitor.close_connection(connection.id));
    crate::common::until(|| monitor.info().unwrap().connections.is_empty()).await;

    server.shutdown(Duration::ZERO).await;
    drop(client);
    crate::common::until(|| monitor.info().is_none()).await;
    assert_eq!((monitor.is_serving(""), monitor.methods().len()), (None, 0));
}

#[tokio::test]
async fn counted_calls_are_on_no_page() {
    let metrics = Metrics::new();
    let server = serve(services().count_calls(&metrics)).await;
    let _: String = client(Protocol::BaiduStd, &server).call("echo", "hello").await.unwrap();
    let counted = server.monitor().metrics().unwrap();
    assert!(counted.ptr_eq(&metrics));
    crate::common::until(|| counted.methods()[0].succeeded == 1).await;
    for path in ["/metrics", "/brpc_metrics"] {
        assert!(get(&server, path).await.starts_with("HTTP/1.1 404 "), "{path}");
    }
    assert!(server.monitor().methods().iter().all(|method| !method.is_standard));
}

#[tokio::test]
async fn a_drained_connection_finishes_its_calls() {
    let slow = |text: String| async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        text
    };
    let server = serve(Server::new().function("slow", slow)).await;
    let monitor = server.monitor();
    let client = client(Protocol::BaiduStd, &server);
    let call = client.call::<String>("slow", "hello");
    let drain = async {
        crate::common::until(|| server.info().pending_calls == 1).await;
        assert!(monitor.drain_connection(monitor.info().unwrap().connections[0].id));
    };
    let (reply, ()) = tokio::join!(call, drain);
    assert_eq!(reply.unwrap(), "hello");
    crate::common::until(|| monitor.info().unwrap().connections.is_empty()).await;
}

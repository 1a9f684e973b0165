//! An axum router on the port of a server.

mod common;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use bytes::Bytes;
use common::{GreeterClient, VERSIONS, curl, curl_with, framed, greeting, soon};
use http_body_util::BodyExt;
use polyrpc::server::{Listen, ServerHandle};
use polyrpc::service::Peer;
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::{Client, Server};
use polyrpc_tower::{Routes, RpcService};
use tower::ServiceExt;
use tower_http::cors::CorsLayer;

/// A body with given frames, which counts the frames that were polled.
struct Frames {
    left: usize,
    taken: Arc<AtomicUsize>,
    trailers: Option<http::HeaderMap>,
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(
                self.trailers.take().map(|trailers| Ok(http_body::Frame::trailers(trailers))),
            );
        }
        self.left -= 1;
        self.taken.fetch_add(PIECE, Ordering::SeqCst);
        Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from(vec![b'x'; PIECE])))))
    }
}

const PIECE: usize = 16 << 10;

async fn length(request: Request) -> String {
    let mut body = request.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    length.to_string()
}

async fn about(request: Request) -> impl IntoResponse {
    let peer = request.extensions().get::<Peer>().is_some();
    let host = request.uri().authority().map(ToString::to_string);
    let host = host.or_else(|| Some(request.headers().get("host")?.to_str().ok()?.to_owned()));
    format!(
        "{} {} {:?} {} {}",
        request.method(),
        request.uri().path_and_query().unwrap(),
        request.version(),
        host.is_some_and(|host| host.starts_with("127.0.0.1:")),
        peer
    )
}

fn router(taken: &Arc<AtomicUsize>) -> Router {
    let (few, many) = (taken.clone(), taken.clone());
    Router::new()
        .route("/", get(|| async { axum::response::Html("<h1>a page</h1>") }))
        .route("/about", any(about))
        .route("/length", post(length))
        .route("/echo", post(|request: Request| async move { Body::new(request.into_body()) }))
        .route("/empty", get(|| async { http::StatusCode::NO_CONTENT }))
        .route(
            "/trailers",
            get(move || {
                let trailers =
                    [("x-sum", "42")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
                let body = Frames {
                    left: 2,
                    taken: few.clone(),
                    trailers: Some(http::HeaderMap::from_iter(trailers)),
                };
                async move { Body::new(body) }
            }),
        )
        .route(
            "/endless",
            get(move || {
                let body = Frames { left: usize::MAX, taken: many.clone(), trailers: None };
                async move { Body::new(body) }
            }),
        )
        .layer(CorsLayer::permissive())
}

async fn serve(server: Server) -> (ServerHandle, String) {
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    let url = format!("http://{}", server.address());
    (server, url)
}

#[tokio::test]
async fn router_pages_share_the_port_with_every_protocol() {
    let taken = Arc::default();
    let (server, url) = serve(greeting().http_fallback(Routes::new(router(&taken)))).await;
    for protocol in ["baidu-std", "rpcx", "grpc", "http", "rest-rpc", "net-rpc"] {
        let client = Client::new(&format!("{protocol}://{}", server.address())).unwrap();
        let greeted = soon(GreeterClient::new(client).greet("joe".to_owned())).await;
        assert_eq!(greeted.unwrap(), "hello, joe", "{protocol}");
    }
    for (version, shown) in VERSIONS.into_iter().zip(["HTTP/1.1", "HTTP/2.0"]) {
        let page = curl(&[version, "-i", &format!("{url}/")]).await;
        assert!(page.ends_with("<h1>a page</h1>") && page.contains("text/html"), "{version}: {page}");
        assert!(page.contains("content-length: 15"), "{version}: {page}");
        for verb in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let told = curl(&[version, "-X", verb, &format!("{url}/about?a=b")]).await;
            assert_eq!(told, format!("{verb} /about?a=b {shown} true true"), "{version}");
        }
        let head = curl(&[version, "-I", &format!("{url}/")]).await;
        assert!(head.contains(" 200") && !head.contains("page</h1>"), "{version}: {head}");
        assert!(curl(&[version, "-i", &format!("{url}/empty")]).await.contains(" 204"), "{version}");
        let missing = curl(&[version, "-i", &format!("{url}/nowhere")]).await;
        assert!(missing.contains(" 404"), "{version}: {missing}");
        let wrong = curl(&[version, "-i", &format!("{url}/length")]).await;
        assert!(wrong.contains(" 405") && wrong.contains("allow: POST"), "{version}: {wrong}");
        let sent =
            curl_with(&[version, "--data-binary", "@-", &format!("{url}/length")], &vec![7; 3 << 20]).await;
        assert_eq!(sent, (3 << 20).to_string(), "{version}");
        let to = format!("{url}/length");
        let chunks = [version, "-H", "Transfer-Encoding: chunked", "-T", "-", "-X", "POST", &to];
        assert_eq!(curl_with(&chunks, &vec![7; 1 << 20]).await, (1 << 20).to_string(), "{version}");
        // The echo arrives while more is being sent.
        let text = "0123456789abcdef".repeat(128 << 10);
        let echoed =
            curl_with(&[version, "--data-binary", "@-", &format!("{url}/echo")], text.as_bytes()).await;
        assert!(echoed == text, "{version}: {} bytes came back", echoed.len());
        assert!(curl(&[version, &format!("{url}/health")]).await.contains("OK"), "{version}");
    }
}

#[tokio::test]
async fn browser_gets_pages_and_calls_on_one_port() {
    let taken = Arc::default();
    let (_server, url) = serve(greeting().http_fallback(Routes::new(router(&taken)))).await;
    for version in VERSIONS {
        let preflight = |path: &str| {
            let url = format!("{url}{path}");
            async move {
                let origin =
                    ["-H", "Origin: http://elsewhere.example", "-H", "Access-Control-Request-Method: POST"];
                let answer = curl(&[&[version, "-i", "-X", "OPTIONS"][..], &origin, &[&url]].concat()).await;
                answer.to_lowercase().contains("access-control-allow-origin: *")
            }
        };
        // The router's layer applies to its routes; `Server::cors` applies to the services.
        assert!(preflight("/length").await, "{version}");
        assert!(!preflight("/Greeter/Greet").await, "{version}");
        let page = curl(&[version, &format!("{url}/")]).await;
        assert_eq!(page, "<h1>a page</h1>", "{version}");
        let json = ["-H", "Content-Type: application/json", "-d", "\"joe\""];
        let fetched = curl(&[&[version][..], &json, &[&format!("{url}/Greeter/Greet")]].concat()).await;
        assert_eq!(fetched, "\"hello, joe\"", "{version}");
        let to = format!("{url}/Greeter/Count");
        let web = [version, "-H", "Content-Type: application/grpc-web+json", "--data-binary", "@-", &to];
        let answer = curl_with(&web, &framed("3")).await;
        assert!(answer.contains("grpc-status:0"), "{version}: {answer:?}");
    }
}

#[tokio::test]
async fn pages_and_calls_share_a_port_with_tls() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (key.cert.pem(), key.signing_key.serialize_pem());
    let identity = Identity::new(Pem::bytes(certificate), Pem::bytes(key));
    let listen = Listen::on("127.0.0.1:0").tls(tls::Server::new(identity).unwrap());
    let taken = Arc::default();
    let server = greeting().http_fallback(Routes::new(router(&taken))).bind(listen).await.unwrap().start();
    let url = format!("https://{}", server.address());
    for (version, shown) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let told = curl(&[version, "-k", &format!("{url}/about")]).await;
        assert_eq!(told, format!("GET /about {shown} true true"), "{version}");
        let to = format!("{url}/length");
        assert_eq!(
            curl_with(&[version, "-k", "--data-binary", "@-", &to], &vec![7; 1 << 20]).await,
            (1 << 20).to_string(),
            "{version}"
        );
        let json = ["-k", "-H", "Content-Type: application/json", "-d", "\"joe\""];
        let fetched = curl(&[&[version][..], &json, &[&format!("{url}/Greeter/Greet")]].concat()).await;
        assert_eq!(fetched, "\"hello, joe\"", "{version}");
    }
}

/// A server with the router, as a tower service: over in-process HTTP/2.
async fn within(taken: &Arc<AtomicUsize>) -> (ServerHandle, RpcService) {
    let server = greeting().http_fallback(Routes::new(router(taken)));
    let server = server.bind(Listen::in_process()).await.unwrap().start();
    let service = RpcService::new(&server);
    (server, service)
}

fn get_request(path: &str) -> http::Request<http_body_util::Empty<Bytes>> {
    http::Request::get(path).body(http_body_util::Empty::new()).unwrap()
}

#[tokio::test]
async fn trailers_of_a_response_arrive() {
    let taken = Arc::default();
    let (_server, service) = within(&taken).await;
    let response = soon(service.oneshot(get_request("/trailers"))).await.unwrap();
    let collected = soon(response.into_body().collect()).await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "42");
    assert_eq!(collected.to_bytes().len(), 2 * PIECE);
}

#[tokio::test]
async fn unread_response_body_is_produced_up_to_the_window() {
    let taken: Arc<AtomicUsize> = Arc::default();
    let (server, service) = within(&taken).await;
    let response = soon(service.oneshot(get_request("/endless"))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let made = taken.load(Ordering::SeqCst);
    assert!(made < 16 << 20, "{made} bytes were made");
    assert!(server.info().held_bytes < 16 << 20, "{}", server.info().held_bytes);
    let mut body = response.into_body();
    let mut read = 0;
    while read < 64 << 20 {
        read += soon(body.frame()).await.unwrap().unwrap().into_data().unwrap().len();
    }
    drop(body);
    // Nobody reads it any more: it ends.
    soon(async {
        while server.info().calls.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn unconsumed_request_body_is_read_up_to_the_window() {
    let go_on = Arc::new(tokio::sync::Notify::new());
    let waiting = go_on.clone();
    let router = Router::new().route(
        "/late",
        post(move |request: Request| {
            let waiting = waiting.clone();
            async move {
                waiting.notified().await;
                length(request).await
            }
        }),
    );
    let server = Server::new().http_fallback(Routes::new(router));
    let server = server.bind(Listen::in_process()).await.unwrap().start();
    let taken: Arc<AtomicUsize> = Arc::default();
    let body = Frames { left: 4096, taken: taken.clone(), trailers: None };
    let request = http::Request::post("/late").body(body).unwrap();
    let answering = tokio::spawn(RpcService::new(&server).oneshot(request));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let sent = taken.load(Ordering::SeqCst);
    assert!(sent < 16 << 20, "{sent} bytes were sent");
    assert!(server.info().held_bytes < 16 << 20, "{}", server.info().held_bytes);
    go_on.notify_one();
    let response = soon(answering).await.unwrap().unwrap();
    let told = soon(response.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(told, (4096 * PIECE).to_string());
}

#[tokio::test]
async fn failing_service_is_answered_without_its_error_text() {
    let service = tower::service_fn(|_: http::Request<polyrpc_tower::RequestBody>| async {
        Result::<http::Response<Body>, _>::Err("postgres://admin:hunter2@db".to_owned())
    });
    let (_server, url) = serve(Server::new().http_fallback(Routes::new(service))).await;
    for version in VERSIONS {
        let page = curl(&[version, "-i", &format!("{url}/x")]).await;
        assert!(page.contains(" 500") && !page.contains("hunter2"), "{version}: {page}");
    }
}

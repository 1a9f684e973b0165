//! A server's services within axum.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use common::{GreeterClient, VERSIONS, curl, curl_with, framed, greeting, soon};
use http_body_util::BodyExt;
use polyrpc::layer::{Call, Layer, Next, Outcome};
use polyrpc::server::{Listen, ServerHandle};
use polyrpc::{Client, Code, Server, Status, Streaming};
use polyrpc_tower::RpcService;
use tower::ServiceExt;
use tower_http::cors::CorsLayer;
use tower_http::trace::TraceLayer;

/// Serves a router in which everything except one page is handled by the server; returns the address.
async fn serve(server: &ServerHandle, dress: impl FnOnce(Router) -> Router) -> String {
    let router =
        Router::new().route("/page", get(|| async { "a page" })).fallback_service(RpcService::new(server));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(axum::serve(listener, dress(router)).into_future());
    address
}

async fn start(server: Server) -> ServerHandle {
    server.bind(Listen::in_process()).await.unwrap().start()
}

#[tokio::test]
async fn server_nested_in_axum_answers_grpc_with_streams_and_trailers() {
    let server = start(greeting()).await;
    let address = serve(&server, |router| router.layer(TraceLayer::new_for_http())).await;
    let client = Client::new(&format!("grpc://{address}")).unwrap();
    let greeter = GreeterClient::new(client.clone());
    assert_eq!(soon(greeter.greet("joe".to_owned())).await.unwrap(), "hello, joe");
    let error = soon(greeter.greet(String::new())).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::InvalidArgument, "no name"));
    assert_eq!(error.trailers().get("behind"), Some("it"));
    let mut counted = soon(greeter.count(1000)).await.unwrap();
    for n in 1..=1000 {
        assert_eq!(soon(counted.message()).await.unwrap(), Some(n));
    }
    assert_eq!(soon(counted.message()).await.unwrap(), None);
    // A conversation in which each side waits for the other.
    let (sender, numbers) = Streaming::channel(1);
    let mut doubled = soon(greeter.double(numbers)).await.unwrap();
    for n in 1..50 {
        sender.send(n).await.unwrap();
        assert_eq!(soon(doubled.message()).await.unwrap(), Some(2 * n));
    }
    drop(sender);
    assert_eq!(soon(doubled.message()).await.unwrap(), None);
    let error = soon(client.call::<String>("Nobody/Home", &1)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
}

#[tokio::test]
async fn browser_gets_a_page_json_and_grpc_web_through_a_cors_layer() {
    let server = start(greeting()).await;
    let address = serve(&server, |router| router.layer(CorsLayer::permissive())).await;
    let url = |path: &str| format!("http://{address}{path}");
    for version in VERSIONS {
        assert_eq!(curl(&[version, &url("/page")]).await, "a page", "{version}");
        let (origin, wish) = ("Origin: http://elsewhere.example", "Access-Control-Request-Method: POST");
        let to = url("/Greeter/Greet");
        let preflight = curl(&[version, "-i", "-X", "OPTIONS", "-H", origin, "-H", wish, &to]).await;
        let preflight = preflight.to_lowercase();
        assert!(preflight.contains("access-control-allow-origin: *"), "{version}: {preflight}");
        let json = ["-i", "-H", "Content-Type: application/json", "-d", "\"joe\""];
        let fetched = curl(&[&[version][..], &json, &[&url("/Greeter/Greet")]].concat()).await;
        let lower = fetched.to_lowercase();
        assert!(
            fetched.ends_with("\"hello, joe\"") && lower.contains("allow-origin: *"),
            "{version}: {fetched}"
        );
        let to = url("/Greeter/Count");
        let web = [version, "-H", "Content-Type: application/grpc-web+json", "--data-binary", "@-", &to];
        let answer = curl_with(&web, &framed("3")).await;
        assert!(answer.contains("\u{1}1\0") && answer.contains("grpc-status:0"), "{version}: {answer:?}");
    }
}

/// Counts calls, and rejects forbidden ones.
#[derive(Clone, Default)]
struct Guard(Arc<AtomicUsize>);

impl Layer for Guard {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        self.0.fetch_add(1, Ordering::SeqCst);
        match call.metadata().get("word") {
            Some(_) => next.call(call).await,
            None => Outcome::failed(Status::permission_denied("no word")),
        }
    }
}

#[tokio::test]
async fn layers_and_authenticators_apply_within_axum() {
    let guard = Guard::default();
    let listen = Listen::in_process().authenticate(|credential, _| match credential {
        Some(b"Bearer open") => Ok(()),
        _ => Err(Status::unauthenticated("who is it?")),
    });
    let server = greeting().layer(guard.clone()).bind(listen).await.unwrap().start();
    let address = serve(&server, |router| router).await;
    let url = format!("http://{address}/Greeter/Greet");
    for version in VERSIONS {
        let post = [version, "-i", "-H", "Content-Type: application/json", "-d", "\"joe\"", &url];
        let refused = curl(&post).await;
        assert!(refused.contains(" 401") && refused.contains("who is it?"), "{version}: {refused}");
        assert_eq!(guard.0.swap(0, Ordering::SeqCst), 0, "{version}: the call reached the layer");
        let known = ["-H", "Authorization: Bearer open"];
        let refused = curl(&[&post[..], &known].concat()).await;
        assert!(refused.contains(" 403") && refused.contains("no word"), "{version}: {refused}");
        let passed = curl(&[&post[..], &known, &["-H", "Word: sesame"]].concat()).await;
        assert!(passed.ends_with("\"hello, joe\""), "{version}: {passed}");
        assert_eq!(guard.0.swap(0, Ordering::SeqCst), 2, "{version}");
    }
}

#[tokio::test]
async fn nested_service_sees_the_rest_of_the_path() {
    let server = start(greeting()).await;
    let router = Router::new().nest_service("/rpc", RpcService::new(&server));
    let request = http::Request::post("/rpc/Greeter/Greet").header("content-type", "application/json");
    let response = router.oneshot(request.body(axum::body::Body::from("\"joe\"")).unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "\"hello, joe\"");
}

#[tokio::test]
async fn concurrent_requests_share_connections() {
    let held = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = held.clone();
    let server = start(Server::new().function("wait", move |n: u64| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            n
        }
    }))
    .await;
    let service = RpcService::new(&server);
    let calls = (0..200_u64).map(|n| {
        let request = http::Request::post("/wait").header("content-type", "application/json");
        let request = request.body(http_body_util::Full::new(bytes::Bytes::from(n.to_string()))).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    });
    let calls: Vec<_> = calls.collect();
    soon(async {
        while server.info().pending_calls < 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let connections = server.connection_count();
    assert!((2..=16).contains(&connections), "{connections} connections");
    held.add_permits(200);
    for (n, call) in calls.into_iter().enumerate() {
        let response = soon(call).await.unwrap().unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), n.to_string());
    }
}

#[tokio::test]
async fn stopped_server_is_answered_with_an_error() {
    let server = start(greeting()).await;
    let service = RpcService::new(&server);
    server.shutdown(Duration::from_secs(1)).await;
    let request =
        http::Request::post("/Greeter/Greet").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let response = soon(service.oneshot(request)).await.unwrap();
    assert_eq!(response.status(), 503);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "the server has shut down\n");
}

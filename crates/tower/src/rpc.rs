use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Extensions, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use http_body_util::BodyExt;
use polyrpc::server::ServerHandle;
use tower_service::Service;

use crate::pool::{self, Pool};
use crate::{BoxError, ResponseBody};

/// A polyrpc server as a tower service: it handles gRPC, gRPC-Web and plain HTTP.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use polyrpc::Server;
/// use polyrpc::server::Listen;
/// use polyrpc_tower::RpcService;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // It opens no socket of its own.
/// let server = Server::new().function("echo", |text: String| async move { text });
/// let server = server.bind(Listen::in_process()).await?.start();
///
/// let router = Router::new()
///     .route("/", get(|| async { "a page" }))
///     .fallback_service(RpcService::new(&server));
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
/// axum::serve(listener, router).await?;
/// # Ok(())
/// # }
/// ```
///
/// Clones share their connections. Requests reach the server as over a socket: its layers, limits, hooks, metrics and
/// the listener's authenticator apply. The server sees a caller [in this process](polyrpc::service::Peer::InProcess):
/// limits and rules by address must be applied by tower layers, which know the address.
///
/// It does not keep the server running. After the server's shutdown, requests are answered with 503.
#[derive(Clone)]
pub struct RpcService(Arc<Pool>);

impl RpcService {
    /// Creates the service for the server's first listener.
    pub fn new(server: &ServerHandle) -> Self {
        Self(Arc::new(Pool::new(server.connector())))
    }
}

impl<B> Service<Request<B>> for RpcService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let pool = self.0.clone();
        let version = request.version();
        let request = within_http2(request);
        Box::pin(async move {
            let mut response = match send(&pool, request).await {
                Ok(response) => response,
                Err(error) if pool::is_gone(&error) => unavailable("the server has shut down\n"),
                Err(_) => unavailable("the server did not answer\n"),
            };
            *response.version_mut() = version;
            Ok(response)
        })
    }
}

async fn send(pool: &Pool, request: Request<pool::Body>) -> Result<Response<ResponseBody>, BoxError> {
    let (mut sender, in_flight) = pool.acquire().await?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| ResponseBody::new(body, in_flight)))
}

/// Converts the request to HTTP/2.
fn within_http2<B>(request: Request<B>) -> Request<pool::Body>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = request.into_parts();
    parts.uri = to_absolute(&parts.uri, &parts.headers);
    parts.version = Version::HTTP_2;
    parts.extensions = Extensions::new();
    remove_hop_by_hop(&mut parts.headers);
    let body = body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())));
    Request::from_parts(parts, body.map_err(Into::into).boxed_unsync())
}

/// Returns the URI with scheme and host, which HTTP/1 has in its `Host`.
fn to_absolute(uri: &Uri, headers: &HeaderMap) -> Uri {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    let authority = uri.authority().cloned().or(host);
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(uri.scheme().cloned().unwrap_or(Scheme::HTTP));
    parts.authority = Some(authority.unwrap_or_else(|| Authority::from_static("localhost")));
    parts.path_and_query =
        Some(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).unwrap_or_default()
}

/// Removes the hop-by-hop headers.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(',').filter_map(|name| name.trim().parse().ok()))
        .collect();
    for name in named {
        headers.remove(name);
    }
    let of_hop =
        [header::CONNECTION, header::HOST, header::TRANSFER_ENCODING, header::UPGRADE, header::EXPECT];
    for name in of_hop {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
    headers.remove("http2-settings");
    if headers.get(header::TE).is_some_and(|te| te != "trailers") {
        headers.remove(header::TE);
    }
}

#[cold]
fn unavailable(text: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::text(text));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

impl fmt::Debug for RpcService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RpcService")
    }
}

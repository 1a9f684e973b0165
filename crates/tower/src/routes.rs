use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::Stream;
use http::header::{self, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use polyrpc::fallback::{HttpFallback, HttpRequest, HttpResponse};
use polyrpc::service::Trailers;
use polyrpc::{Failure, Metadata, Result, Status, Streaming};
use tower_service::Service;

use crate::{BoxError, RequestBody};

/// HTTP fallback that is a tower service: it handles the HTTP requests that a polyrpc server does not answer itself,
/// for example an axum `Router` with pages, on the port of the RPCs.
/// [`Server::http_fallback`](polyrpc::Server::http_fallback) documents which requests it gets.
///
/// ```
/// use axum::{Router, routing::get};
/// use polyrpc::Server;
/// use polyrpc_tower::Routes;
///
/// let router = Router::new().route("/", get(|| async { "a page" }));
/// let server = Server::new()
///     .function("echo", |text: String| async move { text })
///     .http_fallback(Routes::new(router));
/// ```
///
/// Bodies are streamed in both directions: no more of a request is read than the service consumes, and no more of a
/// response than the peer reads. Trailers of responses are sent, those of requests are ignored. The caller is in the
/// request's extensions as a [`Peer`](polyrpc::service::Peer). If the service fails, the response is 500; if it is not
/// ready, the request waits.
#[derive(Clone)]
pub struct Routes<S>(S);

impl<S> Routes<S> {
    /// Creates a fallback from this service.
    pub fn new(service: S) -> Self {
        Self(service)
    }
}

impl<S, B> HttpFallback for Routes<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    fn call(&self, request: HttpRequest) -> impl Future<Output = Result<HttpResponse>> + Send + 'static {
        let mut service = self.0.clone();
        async move {
            let head_only = request.method == "HEAD";
            let request = request_of(request)?;
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(hide)?;
            let response = service.call(request).await.map_err(hide)?;
            Ok(response_of(response, head_only))
        }
    }
}

/// The error of a service is not exposed to the peer.
fn hide(error: impl Into<BoxError>) -> Failure {
    let error: BoxError = error.into();
    Failure::from(error)
}

fn request_of(request: HttpRequest) -> Result<Request<RequestBody>> {
    let HttpRequest { method, target, authority, is_http2, is_tls, headers, body, context, .. } = request;
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let scheme = if is_tls { "https" } else { "http" };
    // As in hyper: HTTP/1.1 has the host in a field.
    let uri = match is_http2 && !authority.is_empty() {
        true => format!("{scheme}://{authority}{target}"),
        false => target,
    };
    let version = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    let built = Request::builder().method(method.as_str()).uri(uri).version(version);
    let mut request = built
        .body(RequestBody::new(body, length))
        .map_err(|error| Status::invalid_argument(format!("the request cannot be read: {error}")))?;
    for (name, value) in headers.iter() {
        let (name, value) = (name.parse::<HeaderName>(), HeaderValue::from_maybe_shared(value.clone()));
        if let (Ok(name), Ok(value)) = (name, value) {
            request.headers_mut().append(name, value);
        }
    }
    request.extensions_mut().insert(context.peer().clone());
    Ok(request)
}

fn response_of<B>(response: Response<B>, head_only: bool) -> HttpResponse
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let mut headers = Metadata::new();
    for (name, value) in &parts.headers {
        headers.append(name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes()));
    }
    let tells_length = parts.headers.contains_key(header::CONTENT_LENGTH);
    let is_bare = head_only || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(length) = body.size_hint().exact().filter(|_| !tells_length && !is_bare) {
        headers.append("content-length", length.to_string());
    }
    let trailers = Trailers::default();
    let pieces = Pieces { body: Box::pin(body), trailers: trailers.clone() };
    HttpResponse { status: parts.status.as_u16(), headers, body: Streaming::from_stream(pieces), trailers }
}

/// Body of a response; its trailers are kept separately.
struct Pieces<B> {
    body: Pin<Box<B>>,
    trailers: Trailers,
}

impl<B: Body> Stream for Pieces<B>
where
    B::Error: Into<BoxError>,
{
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            let frame = match ready!(self.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(hide(error)))),
                None => return Poll::Ready(None),
            };
            match frame.into_data() {
                Ok(mut data) => {
                    return Poll::Ready(Some(Ok(data.copy_to_bytes(data.remaining()))));
                }
                Err(frame) => {
                    let Ok(trailers) = frame.into_trailers() else { continue };
                    for (name, value) in &trailers {
                        let value = Bytes::copy_from_slice(value.as_bytes());
                        self.trailers.append(name.as_str().to_owned(), value);
                    }
                }
            }
        }
    }
}

impl<S> fmt::Debug for Routes<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Routes")
    }
}

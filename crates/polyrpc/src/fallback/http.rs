//! HTTP requests that are not calls.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::{Format, Head, Metadata, Status};
use polyrpc_wire::Protocol;

use crate::call::streaming::{Incoming, Outgoing, Streaming, send};
use crate::call::{CallSite, Context, Outcome, OutcomeKind, ResponseFuture, StreamType, Trailers};
use crate::codec::{Body, Raw};
use crate::service::Method;
use crate::{Failure, Result};

/// An HTTP request that the server does not answer itself.
#[derive(Debug)]
#[non_exhaustive]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query, unchanged: `/pages/1?full`.
    pub target: String,
    /// Host that the request names, with its port if it has one; empty if it names none (HTTP/1.0).
    pub authority: String,
    /// Whether it arrived over HTTP/2.
    pub is_http2: bool,
    /// Whether it arrived over TLS.
    pub is_tls: bool,
    /// Fields, with names in lower case; repeated fields are kept. Hop-by-hop fields (`connection`,
    /// `transfer-encoding`, `upgrade`, …) are removed.
    pub headers: Metadata,
    /// Streamed body. It ends with an error if the peer disconnects.
    pub body: Streaming<Bytes>,
    /// Further data: peer, connection, extensions of layers.
    pub context: Context,
}

/// Response to a request.
#[derive(Debug)]
pub struct HttpResponse {
    /// Status, from 200 to 999.
    pub status: u16,
    /// Fields, with names in lower case; fields may be repeated. Hop-by-hop and invalid fields are removed. With
    /// `content-length` the body must have that length; without it HTTP/1.1 uses chunks.
    pub headers: Metadata,
    /// Body. An error aborts it, which the client can detect.
    pub body: Streaming<Bytes>,
    /// Trailers, which may be set until the body has ended.
    pub trailers: Trailers,
}

impl HttpResponse {
    /// Creates a response with this body.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let body = if body.is_empty() { Streaming::empty() } else { Streaming::once(body) };
        Self { status, headers: Metadata::new(), body, trailers: Trailers::default() }
    }
}

/// Answers HTTP requests that a server does not answer itself: see
/// [`Server::http_fallback`](crate::Server::http_fallback). Implemented for every `async fn` from [`HttpRequest`] to
/// `polyrpc::Result<HttpResponse>`.
///
/// ```
/// use polyrpc::Server;
/// use polyrpc::fallback::{HttpRequest, HttpResponse};
///
/// let server = Server::new().http_fallback(|request: HttpRequest| async move {
///     match request.target.as_str() {
///         "/" => Ok(HttpResponse::new(200, "<h1>Hello</h1>")),
///         _ => Ok(HttpResponse::new(404, "there is no such page\n")),
///     }
/// });
/// ```
pub trait HttpFallback: Send + Sync + 'static {
    /// Answers a request. It runs in the connection's task and must not block; it is dropped when the peer disconnects.
    /// An error is sent as JSON, as that of a call.
    fn call(&self, request: HttpRequest) -> impl Future<Output = Result<HttpResponse>> + Send + 'static;
}

impl<F, Fut> HttpFallback for F
where
    F: Fn(HttpRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<HttpResponse>> + Send + 'static,
{
    fn call(&self, request: HttpRequest) -> impl Future<Output = Result<HttpResponse>> + Send + 'static {
        self(request)
    }
}

/// A fallback for HTTP requests, as a bidirectional streaming method.
pub(super) struct HttpMethod(Arc<dyn Erased>);

impl HttpMethod {
    pub(super) fn new(handler: impl HttpFallback) -> Self {
        Self(Arc::new(handler))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<HttpResponse>> + Send>>;

trait Erased: Send + Sync {
    fn answer(&self, request: HttpRequest) -> Answering;
}

impl<H: HttpFallback> Erased for H {
    fn answer(&self, request: HttpRequest) -> Answering {
        Box::pin(self.call(request))
    }
}

impl Method for HttpMethod {
    fn start(&self, _: Context, _: Body) -> Result<ResponseFuture, Status> {
        Err(Status::internal("an HTTP request was dispatched as a call"))
    }

    fn stream_type(&self) -> StreamType {
        StreamType::BIDI
    }

    fn open(&self, cx: Context, incoming: Incoming, outgoing: Outgoing) -> Result<ResponseFuture, Status> {
        let site = cx.site();
        let answering = self.0.answer(HttpRequest::new(cx, incoming));
        Ok(Box::pin(async move { respond(answering.await, &site, outgoing).await }))
    }
}

impl HttpRequest {
    fn new(cx: Context, incoming: Incoming) -> Self {
        let text = |name: &str| cx.metadata().get(name).unwrap_or_default().to_owned();
        let (method, target, authority) = (text(":method"), text(":path"), text(":authority"));
        let mut headers = Metadata::new();
        for (name, value) in cx.metadata().iter().filter(|(name, _)| !name.starts_with(':')) {
            headers.append(name.to_owned(), value.clone());
        }
        let is_http2 = cx.carrier() == Protocol::Grpc;
        let is_tls = cx.peer().tls().is_some();
        let body = Streaming::from_incoming(incoming, Ok);
        Self { method, target, authority, is_http2, is_tls, headers, body, context: cx }
    }
}

async fn respond(result: Result<HttpResponse>, site: &CallSite, outgoing: Outgoing) -> Outcome {
    let response = match result.and_then(check_status) {
        Ok(response) => response,
        Err(failure) => return Outcome::failed(site.status_for_caller(failure.into_status())),
    };
    let HttpResponse { status, headers, body, trailers: late } = response;
    let mut metadata = Metadata::new();
    metadata.append(":status", status.to_string());
    headers.iter().for_each(|(name, value)| metadata.append(name.to_owned(), value.clone()));
    outgoing.set_head(Head { format: Format::Raw, metadata, ..Head::default() });
    let result = send::<Raw, Bytes>(body, &outgoing, Format::Raw, None).await;
    let mut trailers = Metadata::new();
    late.append_to(&mut trailers);
    let result = result.map_err(|status| site.status_for_caller(status));
    OutcomeKind::Finish { result, trailers }.into()
}

fn check_status(response: HttpResponse) -> Result<HttpResponse> {
    match response.status {
        200..=999 => Ok(response),
        status => Err(Failure::from(Status::internal(format!("a handler answered with status {status}")))),
    }
}

impl fmt::Debug for HttpMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpMethod")
    }
}

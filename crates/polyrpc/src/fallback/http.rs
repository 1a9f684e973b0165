//! Requests of HTTP that are no calls.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::{Format, Head, Metadata, Status};
use polyrpc_wire::Protocol;

use crate::call::{CallSite, Context, Outcome, ResponseFuture, StreamType, Trailers};
use crate::codec::{Body, Raw};
use crate::service::Method;
use crate::streaming::{Incoming, Outgoing, Streaming, send};
use crate::{Failure, Result};

/// A request of HTTP that this server does not answer itself.
#[derive(Debug)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// The path and the query, as they came: `/pages/1?full`.
    pub target: String,
    /// The host that the request names, with its port if it has one; empty if it names none (HTTP/1.0).
    pub authority: String,
    /// It came by HTTP/2.
    pub http2: bool,
    /// It came by TLS.
    pub secure: bool,
    /// The fields, names in lower case, as often as they came. Those that are for the connection (`connection`,
    /// `transfer-encoding`, `upgrade`, …) are left out.
    pub fields: Metadata,
    /// The body as it comes. An error ends it if the peer goes away.
    pub body: Streaming<Bytes>,
    /// What else is known: peer, connection, what layers have left.
    pub context: Context,
}

/// What a request is answered with.
#[derive(Debug)]
pub struct HttpResponse {
    /// From 200 to 999.
    pub status: u16,
    /// The fields, names in lower case; one may come several times. What is for the connection is left out, and what
    /// cannot stand in a head. With `content-length` the body must be as long as that; without it HTTP/1.1 sends chunks.
    pub fields: Metadata,
    /// The body. An error breaks it off so that the client sees it.
    pub body: Streaming<Bytes>,
    /// What is said here until the body has ended travels behind it.
    pub trailers: Trailers,
}

impl HttpResponse {
    /// A response with this body.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let body = if body.is_empty() { Streaming::empty() } else { Streaming::once(body) };
        Self { status, fields: Metadata::new(), body, trailers: Trailers::default() }
    }
}

/// Answers requests of HTTP that a server does not answer itself: see
/// [`Server::http_fallback`](crate::Server::http_fallback). An `async fn` from [`HttpRequest`] to
/// `polyrpc::Result<HttpResponse>` is one.
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
    /// Answers a request. It runs in the connection's task and must not hold its thread; it is dropped when the peer goes
    /// away. An error is answered as a call's is, in JSON.
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

/// A fallback for requests of HTTP, as a method that streams both ways.
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
        Err(Status::internal("a request of HTTP came as a call"))
    }

    fn shape(&self) -> StreamType {
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
        let mut fields = Metadata::new();
        for (name, value) in cx.metadata().iter().filter(|(name, _)| !name.starts_with(':')) {
            fields.append(name.to_owned(), value.clone());
        }
        let http2 = cx.carrier() == Protocol::Grpc;
        let secure = cx.peer().tls().is_some();
        let body = Streaming::received(incoming, Ok);
        Self { method, target, authority, http2, secure, fields, body, context: cx }
    }
}

async fn respond(result: Result<HttpResponse>, site: &CallSite, outgoing: Outgoing) -> Outcome {
    let response = match result.and_then(checked) {
        Ok(response) => response,
        Err(failure) => return Outcome::failed(site.status_for_caller(failure.into_status())),
    };
    let HttpResponse { status, fields, body, trailers: late } = response;
    let mut metadata = Metadata::new();
    metadata.append(":status", status.to_string());
    fields.iter().for_each(|(name, value)| metadata.append(name.to_owned(), value.clone()));
    outgoing.set_head(Head { format: Format::Raw, metadata, ..Head::default() });
    let result = send::<Raw, Bytes>(body, &outgoing, Format::Raw, None).await;
    let mut trailers = Metadata::new();
    late.append_to(&mut trailers);
    Outcome::Finish { result: result.map_err(|status| site.status_for_caller(status)), trailers }
}

fn checked(response: HttpResponse) -> Result<HttpResponse> {
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

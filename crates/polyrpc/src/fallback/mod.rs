//! What takes calls, and requests of HTTP, that no service of the server answers: gateways, proxies and recorders stand on
//! it.
//!
//! A call of a service or method that is not registered is refused in its protocol's own words, unless the server has a
//! [fallback](crate::Server::fallback): that is given the names, the metadata and the encoded message, whatever the
//! protocol, and answers with an encoded message. It reads and writes no message.
//!
//! ```
//! use polyrpc::fallback::RawRequest;
//! use polyrpc::{Client, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> polyrpc::Result<()> {
//! // A proxy that knows nothing of what it carries.
//! let backend = Client::new("baidu-std://127.0.0.1:8001")?;
//! let proxy = Server::new().fallback(move |call: RawRequest| {
//!     let backend = backend.clone();
//!     async move { call.forward(&backend).await }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! What the fallback is given:
//!
//! | protocol | service and method | messages |
//! |---|---|---|
//! | baidu_std | as written | one each way, an attachment, streams beside the call |
//! | rpcx, JSON-RPC, net/rpc | as written | one each way |
//! | gRPC, gRPC-Web | as in the path | any number each way: how many it should be, only a schema knows |
//! | HTTP | `POST /Service/Method` | one each way |
//! | rest_rpc | no service; the function's name, or `#` and its number where callers send no name (`#887912700`) | one each way |
//! | fb_rpc | `#` and the number of each (`#2147483648`, `#7`), as [`Client`](crate::Client) takes them | one each way, an attachment |
//!
//! Compression is undone: the message is what its sender had before it was compressed. Hooks, the listener's
//! authenticator, limits and the layers of the whole server stand before a fallback as before any method
//! ([`Server::layer`](crate::Server::layer)). Health, reflection and pages answer themselves.
//!
//! What is plain HTTP and no call, a web page say, is for the
//! [HTTP fallback](crate::Server::http_fallback). If a server has one, it takes every request of plain HTTP that names
//! nothing registered, those that could be calls (`POST /Service/Method`) too.

mod fields;
mod forward;
mod http;
mod method;
mod relay;
mod request;
mod response;

use std::sync::Arc;

pub use self::http::{HttpFallback, HttpRequest, HttpResponse};
pub use self::request::RawRequest;
pub use self::response::RawResponse;

use self::http::HttpMethod;
use self::method::RawMethod;
use crate::{Result, Server};

impl Server {
    /// Takes every call of a service, method or function that is not registered, by whatever protocol it comes. Without
    /// it such calls are refused in each protocol's own words.
    ///
    /// See [`fallback`](crate::fallback) for what it is given. What it returns as an error is told as any handler's error
    /// is; of one that came from a server that was called ([`RawRequest::forward`]), metadata and trailers go on too.
    ///
    /// ```
    /// use polyrpc::fallback::{RawRequest, RawResponse};
    /// use polyrpc::{Server, Status};
    ///
    /// let server = Server::new().fallback(|mut call: RawRequest| async move {
    ///     match call.method() {
    ///         "Echo" => Ok(RawResponse::message(call.body().await?.bytes)),
    ///         method => Err(Status::unimplemented(format!("there is no {method} here either")).into()),
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn fallback<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(RawRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<RawResponse>> + Send + 'static,
    {
        self.router_mut().set_fallback(Arc::new(RawMethod::new(handler)));
        self
    }

    /// Takes every request of HTTP/1.1 and HTTP/2 that this server does not answer itself: own pages, a web framework's
    /// routes. The crate `polyrpc-tower` makes one of any `tower::Service`.
    ///
    /// A request is answered, in this order, by
    ///
    /// 1. the built-in pages: `/health`, `/readyz`, `/livez`, `/version`, `/metrics` if there are metrics, and what
    ///    `CONNECT` asks for;
    /// 2. a method that is registered: by its path (`/Service/Method`, whatever the verb), by a rule of `google.api.http`,
    ///    by JSON-RPC (`POST` of JSON to `/` or `/jsonrpc`, or by its content type), by the fields of rpcx's gateway; gRPC
    ///    and gRPC-Web by their content types;
    /// 3. this fallback;
    /// 4. without one: 404, and at `/` a text that says what there is.
    ///
    /// Bodies are streams both ways; what is not taken is not read from the peer. The listener's authenticator judges
    /// every such request by its `Authorization`, and the layers of the whole server stand around it: it is a call that
    /// streams both ways, without a service, whose method is the path. [`Cors`](super::server::Cors) does not count for
    /// it. HTTP knows the methods GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS here; others are refused, and so is an
    /// upgrade to WebSocket (501).
    #[must_use]
    pub fn http_fallback(mut self, handler: impl HttpFallback) -> Self {
        self.router_mut().set_http_fallback(Arc::new(HttpMethod::new(handler)));
        self
    }
}

//! Fallbacks for calls and HTTP requests that no service of the server handles: the base of gateways, proxies and
//! recorders.
//!
//! A call of a service or method that is not registered is rejected with its protocol's own error, unless the server
//! has a [fallback](crate::Server::fallback). The fallback gets the names, the metadata and the encoded message,
//! whatever the protocol, and returns an encoded message. It does not decode or encode any message.
//!
//! ```
//! use polyrpc::fallback::RawRequest;
//! use polyrpc::{Client, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> polyrpc::Result<()> {
//! // A proxy that does not decode messages.
//! let backend = Client::new("baidu-std://127.0.0.1:8001")?;
//! let proxy = Server::new().fallback(move |call: RawRequest| {
//!     let backend = backend.clone();
//!     async move { call.forward(&backend).await }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! Arguments of the fallback:
//!
//! | protocol | service and method | messages |
//! |---|---|---|
//! | baidu_std | as sent | one each way, an attachment, attached streams |
//! | rpcx, JSON-RPC, net/rpc | as sent | one each way |
//! | gRPC, gRPC-Web | as in the path | any number each way: the arity is known only from a schema |
//! | HTTP | `POST /Service/Method` | one each way |
//! | rest_rpc | no service; the function's name, or `#` and its number if there is no name (`#887912700`) | one each way |
//! | fb_rpc | `#` and the number of each (`#2147483648`, `#7`), as in [`Client`](crate::Client) | one each way, an attachment |
//!
//! The message is decompressed. Hooks, the listener's authenticator, limits and the layers of the whole server run
//! before a fallback as before any method ([`Server::layer`](crate::Server::layer)). Health, reflection and pages are
//! answered by the server itself.
//!
//! Plain HTTP that is no call, such as a web page, is for the [HTTP fallback](crate::Server::http_fallback). If a
//! server has one, it takes every plain HTTP request that matches nothing registered, including those that could be
//! calls (`POST /Service/Method`).

mod attached;
mod fields;
mod forward;
mod http;
mod method;
mod relay;
mod request;
mod reservation;
mod response;

use std::sync::Arc;

use polyrpc_core::Metadata;

pub use self::attached::{StreamEnd, StreamTranslation, forward_stream};
pub use self::http::{HttpFallback, HttpRequest, HttpResponse};
pub use self::request::RawRequest;
pub use self::response::RawResponse;

use self::http::HttpMethod;
use self::method::RawMethod;
use crate::codec::{MAX_IN_PLACE_BYTES, on_blocking_pool};
use crate::service::{MethodRole, Service};
use crate::{Result, Server};

/// Maximum length in bytes of a message that a fallback may transcode inline, on the connection's thread: about a
/// millisecond of work, for which all other connections of the thread wait.
pub const MAX_INLINE_TRANSCODE: usize = MAX_IN_PLACE_BYTES;

/// Transcodes a long message on a blocking thread, after those of other calls: the process works on two long messages
/// at a time, or on one with fewer than four cores.
///
/// # Errors
///
/// That of `transcode`; [`Unavailable`](crate::Code::Unavailable) if the runtime is stopping.
///
/// # Cancel safety
///
/// If the future is dropped, transcoding that has started runs to its end, and another never starts.
pub async fn transcode_blocking<T: Send + 'static>(
    transcode: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    on_blocking_pool(transcode).await
}

impl Server {
    /// Handles every call of a service, method or function that is not registered, in any protocol. Without a fallback
    /// such calls are rejected with each protocol's own error.
    ///
    /// See [`fallback`](crate::fallback) for its arguments. Its errors are reported like those of any handler; of an
    /// error from an upstream server ([`RawRequest::forward`]), metadata and trailers are passed on too.
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

    /// Sets which calls of the [fallback](Self::fallback) have one request message, where a caller may send any number
    /// (gRPC), by service, method and metadata. `has_single_request` is called for calls whose message
    /// has not arrived with the head; it must not block.
    ///
    /// The fallback receives such a call once its message is complete; until then it costs as little as a call of a
    /// registered method, and the message must arrive in time
    /// ([`Limits::message_timeout`](crate::server::Limits::message_timeout) and `min_data_rate`). Without a message, or
    /// with a second one, it fails with [`Unimplemented`](crate::Code::Unimplemented). Other calls reach the fallback
    /// with their heads, and may then be silent for as long as a stream may.
    ///
    /// ```
    /// use polyrpc::Server;
    /// use polyrpc::fallback::{RawRequest, RawResponse};
    ///
    /// let server = Server::new()
    ///     .fallback(|mut call: RawRequest| async move { Ok(RawResponse::message(call.body().await?.bytes)) })
    ///     .fallback_has_single_request(|service, _method, _metadata| service != "Streams");
    /// ```
    #[must_use]
    pub fn fallback_has_single_request(
        mut self,
        has_single_request: impl Fn(&str, &str, &Metadata) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.router_mut().set_fallback_has_single_request(Arc::new(has_single_request));
        self
    }

    /// Sets which methods the [fallback](Self::fallback) has, by service and method; of a path with one part, the
    /// method is empty. An HTTP request that calls nothing, such as a GET, gets 405 at the path of one of them, and 404
    /// elsewhere. Without this it gets 405 at every path. `has_method` must not block.
    ///
    /// Calls do not depend on it: the fallback answers them, whatever their method.
    ///
    /// ```
    /// use polyrpc::Server;
    /// use polyrpc::fallback::{RawRequest, RawResponse};
    ///
    /// let server = Server::new()
    ///     .fallback(|mut call: RawRequest| async move { Ok(RawResponse::message(call.body().await?.bytes)) })
    ///     .fallback_has_method(|service, _method| service.starts_with("example."));
    /// ```
    #[must_use]
    pub fn fallback_has_method(
        mut self,
        has_method: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.router_mut().set_fallback_has_method(Arc::new(has_method));
        self
    }

    /// Handles every HTTP/1.1 and HTTP/2 request that this server does not answer itself, for example own pages or the
    /// routes of a web framework. The crate `polyrpc-tower` creates one from any `tower::Service`.
    ///
    /// A request is answered, in this order, by
    ///
    /// 1. the built-in pages: `/health`, `/readyz`, `/livez`, `/version`, `/metrics` if there are metrics, and
    ///    `CONNECT`;
    /// 2. a registered method: by its path (`/Service/Method`, with any verb), by a rule of `google.api.http`, by
    ///    JSON-RPC (`POST` of JSON to `/` or `/jsonrpc`, or by its content type), by the fields of rpcx's gateway; gRPC
    ///    and gRPC-Web by their content types;
    /// 3. this fallback;
    /// 4. without one: 404, and at `/` a text that lists what is available.
    ///
    /// Bodies are streams in both directions; what the handler does not read is not read from the peer. The listener's
    /// authenticator checks every such request by its `Authorization`, and the layers of the whole server wrap it: it
    /// is a bidirectional streaming call without a service, whose method is the path. [`Cors`](super::server::Cors)
    /// does not apply to it. The supported HTTP methods are GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS; others are
    /// rejected, and so is an upgrade to WebSocket (501).
    #[must_use]
    pub fn http_fallback(mut self, handler: impl HttpFallback) -> Self {
        self.router_mut().set_http_fallback(Arc::new(HttpMethod::new(handler)));
        self
    }

    /// Handles every HTTP/1.1 and HTTP/2 request, including those for the built-in pages (`/health`, `/version`),
    /// instead of the server: its methods are then not called by plain HTTP, JSON-RPC or rpcx's gateway. Otherwise as
    /// [`http_fallback`](Self::http_fallback), which it replaces.
    #[must_use]
    pub fn http_handler(mut self, handler: impl HttpFallback) -> Self {
        self.router_mut().pass_every_request();
        self.http_fallback(handler)
    }

    /// Handles HTTP/1.1 and HTTP/2 requests for pages that describe the server itself: those whose path begins with one
    /// of these names, the empty one for `/`. Registered methods and the built-in pages of the same path come first,
    /// then pages that were added before; [`http_fallback`](Self::http_fallback) comes after.
    ///
    /// Like health and reflection they are outside of layers, hooks, metrics and limits of calls; the listener's
    /// authenticator checks every request.
    ///
    /// ```
    /// use polyrpc::Server;
    /// use polyrpc::fallback::{HttpRequest, HttpResponse};
    ///
    /// let server = Server::new().pages(["uptime"], |_: HttpRequest| async { Ok(HttpResponse::new(200, "1 s\n")) });
    /// ```
    #[must_use]
    pub fn pages<'n>(mut self, names: impl IntoIterator<Item = &'n str>, handler: impl HttpFallback) -> Self {
        let names = names.into_iter().map(Box::from).collect();
        self.router_mut().add_pages(names, Arc::new(HttpMethod::new(handler)));
        self
    }

    /// Adds a service that describes the server itself, as health and reflection do: it is called by its full name, and
    /// outside of layers, hooks, metrics and limits of calls.
    #[must_use]
    pub fn introspection(mut self, service: impl Service) -> Self {
        self.router_mut().add_standard(MethodRole::Introspection, service);
        self
    }
}

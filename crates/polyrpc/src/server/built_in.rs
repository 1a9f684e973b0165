//! The sessions of the built-in protocols, configured by listener and server.

use std::cell::OnceCell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use polyrpc_core::session::Handover;
use polyrpc_core::{Json, Metadata};
use polyrpc_wire::http::h2;
use polyrpc_wire::http::rule::Routes;
use polyrpc_wire::rest_rpc::{self, Functions};
use polyrpc_wire::{Protocol, baidu_std, fb_rpc, http, http_server, net_rpc, rpcx};

use super::limits::Http2;
use super::listener_context::{ListenerContext, ListenerOptions, ListenerProtocols};
use super::sessions::{SessionFactory, sessions};
use super::{Limits, Shared};
use crate::service::Router;
use crate::transport::Address;

/// A listener during its setup.
pub(super) struct Setup<'a> {
    listener: &'a ListenerContext,
    protocols: &'a ListenerProtocols,
    options: &'a ListenerOptions,
    /// Configuration shared by HTTP/1 and HTTP/2.
    http: OnceCell<Arc<http::ServerConfig>>,
}

/// Creates the session factory of a protocol for a listener.
type Build = fn(&Setup<'_>) -> Arc<dyn SessionFactory>;

const BUILT_IN: [(Protocol, Build); 7] = [
    (Protocol::BaiduStd, |setup| setup.baidu_std()),
    (Protocol::Rpcx, |setup| setup.rpcx()),
    (Protocol::FbRpc, |setup| setup.fb_rpc()),
    (Protocol::Grpc, |setup| setup.grpc()),
    (Protocol::Http, |setup| setup.http()),
    (Protocol::RestRpc, |setup| setup.rest_rpc()),
    (Protocol::NetRpc, |setup| setup.net_rpc()),
];

impl<'a> Setup<'a> {
    pub(super) fn new(
        listener: &'a ListenerContext,
        protocols: &'a ListenerProtocols,
        options: &'a ListenerOptions,
    ) -> Self {
        Self { listener, protocols, options, http: OnceCell::new() }
    }

    /// Returns the session factory of a protocol, or `None` if it is not a built-in one.
    pub(super) fn sessions(&self, protocol: Protocol) -> Option<Arc<dyn SessionFactory>> {
        let (_, build) = BUILT_IN.iter().find(|(known, _)| *known == protocol)?;
        Some(build(self))
    }

    fn baidu_std(&self) -> Arc<dyn SessionFactory> {
        let config = Arc::new(baidu_std::ServerConfig {
            limits: self.listener.limits.clone(),
            address: self.listener.address.to_string(),
            streams: Default::default(),
            lenient_json: self.options.json == Some(Json::BrpcLenient),
        });
        sessions(move |_| baidu_std::Server::new(config.clone()))
    }

    fn rpcx(&self) -> Arc<dyn SessionFactory> {
        let limits = self.listener.limits.clone();
        let config = Arc::new(rpcx::ServerConfig { limits, compressors: self.listener.server.compressors });
        sessions(move |_| rpcx::Server::new(config.clone()))
    }

    fn fb_rpc(&self) -> Arc<dyn SessionFactory> {
        let config = Arc::new(fb_rpc::ServerConfig {
            limits: self.listener.limits.clone(),
            directory: Arc::new(self.listener.server.router.directory().clone()),
            only: match self.protocols {
                ListenerProtocols::FbRpc(magic) => Some(*magic),
                _ => None,
            },
        });
        sessions(move |_| fb_rpc::Server::new(config.clone()))
    }

    fn grpc(&self) -> Arc<dyn SessionFactory> {
        let server = &self.listener.server;
        let config = Arc::new(http_server::h2::ServerConfig {
            limits: self.listener.limits.clone(),
            http: Arc::new(http2(&server.limits)),
            cors: server.cors.clone(),
            gateway: self.listener.allowed.contains(&Protocol::Http).then(|| self.http_config()),
            methods: single_request_methods(server),
            trust_connection: self.options.trust_grpc,
        });
        sessions(move |context| {
            match context.handover.take().and_then(Handover::downcast::<http_server::Upgrade>) {
                None => http_server::h2::Server::new(config.clone()),
                Some(upgrade) => http_server::h2::Server::from_upgrade(config.clone(), upgrade),
            }
        })
    }

    fn http(&self) -> Arc<dyn SessionFactory> {
        let http = self.http_config();
        // Within TLS, HTTP/2 is negotiated by ALPN or not used at all (RFC 9113, section 3.2).
        let https = Arc::new(http::ServerConfig { h2c: false, ..(*http).clone() });
        sessions(move |context| {
            let config = if context.is_secured { &https } else { &http };
            http_server::h1::Server::new(config.clone())
        })
    }

    fn rest_rpc(&self) -> Arc<dyn SessionFactory> {
        let functions = functions(&self.listener.server.router);
        let config = Arc::new(rest_rpc::ServerConfig { limits: self.listener.limits.clone(), functions });
        let fixed = match self.protocols {
            ListenerProtocols::RestRpc(version) => Some(*version),
            _ => None,
        };
        sessions(move |context| {
            let version = fixed.or_else(|| rest_rpc::version(context.start));
            rest_rpc::Server::new(config.clone(), version.unwrap_or_default())
        })
    }

    fn net_rpc(&self) -> Arc<dyn SessionFactory> {
        let limits = self.listener.limits.clone();
        let config = Arc::new(net_rpc::ServerConfig { limits, codec: self.protocols.codec() });
        sessions(move |_| net_rpc::Server::new(config.clone()))
    }

    fn http_config(&self) -> Arc<http::ServerConfig> {
        self.http.get_or_init(|| Arc::new(self.new_http_config())).clone()
    }

    fn new_http_config(&self) -> http::ServerConfig {
        let Self { listener, options, .. } = self;
        let server = &listener.server;
        let version = match &server.version[..] {
            "" if options.lenient_http => service_names(&server.router),
            "" => concat!("polyrpc/", env!("CARGO_PKG_VERSION")).to_owned(),
            version => version.to_owned(),
        };
        let guarded = listener.authenticator.is_some();
        // The page lists all functions to unauthenticated callers.
        let shows = listener.allowed.contains(&Protocol::NetRpc) && !guarded;
        let debug_page = if shows { net_rpc::page(&server.router.list()) } else { String::new() };
        http::ServerConfig {
            limits: listener.limits.clone(),
            address: listener.address.to_string(),
            version,
            routes: routes(&server.router),
            cors: server.cors.clone(),
            h2c: listener.allowed.contains(&Protocol::Grpc),
            debug_page,
            guarded,
            methods: Some(Arc::new(Callable(server.clone()))),
            passes_every_request: server.router.passes_every_request(),
            own: server.router.passes_requests().then(|| Arc::new(Own(server.clone())) as Arc<_>),
            health: Some(server.health.clone()),
            probes: probes(&server.router),
            hosts: http::Hosts { names: options.hosts.clone(), loopback: is_loopback(&listener.address) },
            lenient: options.lenient_http,
            json: options.json,
            trust_connection: options.trust_http,
            switches: options.allow_protocol_switch,
        }
    }
}

/// The requests that the server answers itself, for HTTP sessions.
struct Own(Arc<Shared>);

impl http::MethodCatalog for Own {
    fn offers(&self, service: &str, method: &str) -> bool {
        let router = &self.0.router;
        // Without a handler for them, unknown paths are answered like those of unknown methods.
        router.entry(service, method).is_ok()
            || router.http_fallback().is_none() && router.page(service).is_none()
    }
}

/// The callable methods, for HTTP sessions: those of the router and of its fallback.
struct Callable(Arc<Shared>);

impl http::MethodCatalog for Callable {
    fn offers(&self, service: &str, method: &str) -> bool {
        let router = &self.0.router;
        router.entry(service, method).is_ok() || router.fallback_has_method(service, method)
    }
}

/// The methods that only the fallback knows, for gRPC sessions.
struct FallbackMethods(Arc<Shared>);

impl http_server::h2::DynamicMethods for FallbackMethods {
    fn has_unary_request(&self, service: &str, method: &str, metadata: &Metadata) -> bool {
        let router = &self.0.router;
        router.entry(service, method).is_err()
            && router.fallback_has_single_request(service, method, metadata)
    }
}

impl fmt::Debug for FallbackMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.router.fmt(f)
    }
}

impl fmt::Debug for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.router.fmt(f)
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.router.fmt(f)
    }
}

/// Whether a listener can only be reached from this machine.
fn is_loopback(address: &Address) -> bool {
    let Address::Tcp(address) = address else { return false };
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// Returns the HTTP methods and paths of RPC methods. The framework's own functions, such as metrics, are pages that a
/// GET shows.
fn routes(router: &Router) -> Routes {
    let mut routes = router.routes();
    let functions = router.list().into_iter().filter(|(service, _)| service.is_empty());
    for name in functions.flat_map(|(_, names)| names) {
        if router.entry(&name, "").is_ok_and(|entry| entry.is_standard()) {
            routes.declare_no_side_effects(&name, "");
        }
    }
    routes
}

/// Returns the probe paths that are not names of functions.
fn probes(router: &Router) -> http::Probes {
    let is_free = |name| router.entry(name, "").is_err();
    http::Probes { live: is_free("livez"), ready: is_free("readyz") }
}

/// Returns the version that brpc reports if none is set.
fn service_names(router: &Router) -> String {
    let names: Vec<_> =
        router.list().into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
    if names.is_empty() { "functions".to_owned() } else { names.join("+") }
}

/// Returns the HTTP/2 configuration. Regardless of `unsent_per_connection`, the longest message must fit: a peer's window is often 64
/// KiB, and the rest of a reply is buffered until it opens.
fn http2(limits: &Limits) -> h2::Config {
    let usual = h2::Config::default();
    let max_unsent = usual.max_unsent.max(limits.message.saturating_add(limits.unsent_per_connection));
    // The largest possible window (RFC 9113, section 6.9.1).
    let window = |bytes: u32| bytes.min(i32::MAX as u32);
    let Http2 { stream_window, large_stream_window, max_stream_window, connection_window, .. } = limits.http2;
    h2::Config {
        streams: u32::try_from(limits.streams_per_connection).unwrap_or(u32::MAX),
        header_list: limits.header,
        frame: limits.http2.frame,
        large_frame: limits.http2.large_frame,
        window: window(stream_window),
        large_window: window(large_stream_window),
        max_window: window(max_stream_window),
        connection_window: window(connection_window),
        unsent: usual.unsent,
        unsent_in_all: limits.unsent_per_connection,
        max_unsent,
        stalled: limits.write_timeout,
        resets: limits.http2.resets,
        resets_per_second: limits.http2.resets_per_second,
    }
}

/// Returns the methods whose calls gRPC sessions deliver as a whole where possible.
fn single_request_methods(server: &Arc<Shared>) -> http_server::h2::Methods {
    let (router, mut methods) = (&server.router, http_server::h2::Methods::default());
    if router.knows_fallback_calls() {
        methods.set_dynamic(Arc::new(FallbackMethods(server.clone())));
    }
    for (service, names) in router.list() {
        let has_unary_request = |name: &&String| {
            router.entry(&service, name).is_ok_and(|entry| !entry.method().stream_type().client_streaming)
        };
        names.iter().filter(has_unary_request).for_each(|name| methods.add(&service, name));
    }
    methods
}

/// Returns the functions of the server, by the names and numbers of rest_rpc.
fn functions(router: &Router) -> Functions {
    let mut functions = Functions::default();
    for (service, methods) in router.list() {
        methods.iter().for_each(|method| functions.add(&service, method));
    }
    functions
}

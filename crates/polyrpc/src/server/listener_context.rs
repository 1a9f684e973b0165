use std::net::SocketAddr;
use std::sync::Arc;
use std::{fmt, io};

use polyrpc_core::{Format, Json, Protocol};
use polyrpc_wire::http::h2;
use polyrpc_wire::http::rule::Routes;
use polyrpc_wire::rest_rpc::{self, Functions, Generation};
use polyrpc_wire::{baidu_std, fb_rpc, http, http_server, net_rpc, rpcx};

use super::authentication::Authenticator;
use super::limits::Http2;
use super::{Limits, Shared};
use crate::service::Router;
use crate::transport::{Address, tls};

/// What the connections of one listening socket share.
pub(super) struct ListenerContext {
    pub(super) server: Arc<Shared>,
    pub(super) address: Address,
    pub(super) allowed: Vec<Protocol>,
    pub(super) authenticator: Option<Authenticator>,
    pub(super) tls: Option<tls::Acceptor>,
    pub(super) baidu_std: Arc<baidu_std::ServerConfig>,
    pub(super) rpcx: Arc<rpcx::ServerConfig>,
    pub(super) fb_rpc: Arc<fb_rpc::ServerConfig>,
    pub(super) grpc: Arc<http_server::h2::ServerConfig>,
    pub(super) http: Arc<http::ServerConfig>,
    /// Within TLS, where HTTP/2 is asked for in the handshake or not at all (RFC 9113, section 3.2).
    pub(super) https: Arc<http::ServerConfig>,
    pub(super) rest_rpc: Arc<rest_rpc::ServerConfig>,
    /// Every connection speaks this of rest_rpc, whatever it begins with.
    pub(super) generation: Option<Generation>,
    pub(super) net_rpc: Arc<net_rpc::ServerConfig>,
    /// The protocols that may follow each other on one connection without being asked for.
    pub(super) family: Vec<Protocol>,
    /// The one protocol that is spoken here without being told by the first bytes.
    pub(super) fixed_protocol: Option<Protocol>,
}

impl ListenerContext {
    pub(super) fn new(
        server: Arc<Shared>,
        spoken: ListenerProtocols,
        authenticator: Option<Authenticator>,
        tls: Option<tls::Server>,
        options: ListenerOptions,
        address: Address,
    ) -> Self {
        let (mut codec, mut generation, mut magic) = (None, None, None);
        let (allowed, spoken) = match spoken {
            ListenerProtocols::Sniffed(allowed) => (allowed, None),
            ListenerProtocols::NetRpc(only) => {
                codec = Some(only);
                (vec![Protocol::NetRpc], Some(Protocol::NetRpc))
            }
            // Its frames tell the protocol, and the magic.
            ListenerProtocols::FbRpc(only) => {
                magic = Some(only);
                (vec![Protocol::FbRpc], None)
            }
            ListenerProtocols::RestRpc(only) => {
                generation = Some(only);
                (vec![Protocol::RestRpc], Some(Protocol::RestRpc))
            }
        };
        let switches = |protocol: &Protocol| options.switch_protocols && FAMILY.contains(protocol);
        let family = allowed.iter().copied().filter(switches).collect();
        let limits = server.limits.wire();
        let baidu_std = baidu_std::ServerConfig {
            limits: limits.clone(),
            address: address.to_string(),
            streams: Default::default(),
            lenient_json: options.json == Some(Json::BrpcLenient),
        };
        let rpcx = rpcx::ServerConfig { limits: limits.clone(), compressors: server.compressors };
        let directory = Arc::new(server.router.directory().clone());
        let fb_rpc = fb_rpc::ServerConfig { limits: limits.clone(), directory, only: magic };
        let http2 = http2(&server.limits);
        let cors = server.cors.clone();
        let version = match &server.version[..] {
            "" if options.lenient_http => service_names(&server.router),
            "" => concat!("polyrpc/", env!("CARGO_PKG_VERSION")).to_owned(),
            version => version.to_owned(),
        };
        // It tells whoever asks what there is to be called.
        let shows = allowed.contains(&Protocol::NetRpc) && authenticator.is_none();
        let debug_page = if shows { net_rpc::page(&server.router.list()) } else { String::new() };
        let net_rpc = net_rpc::ServerConfig { limits: limits.clone(), codec };
        let http = http::ServerConfig {
            limits: limits.clone(),
            address: address.to_string(),
            version,
            routes: routes(&server.router),
            cors: cors.clone(),
            h2c: allowed.contains(&Protocol::Grpc),
            debug_page,
            guarded: authenticator.is_some(),
            methods: Some(Arc::new(Callable(server.clone()))),
            own: server
                .router
                .http_fallback()
                .is_some()
                .then(|| Arc::new(MethodLookup(server.clone())) as Arc<_>),
            health: Some(server.health.clone()),
            probes: probes(&server.router),
            hosts: http::Hosts { names: options.hosts, loopback: is_loopback(&address) },
            lenient: options.lenient_http,
            json: options.json,
            trust_connection: options.trust_http,
            switches: options.switch_protocols,
        };
        let https = Arc::new(http::ServerConfig { h2c: false, ..http.clone() });
        let http = Arc::new(http);
        let rest_rpc =
            rest_rpc::ServerConfig { limits: limits.clone(), functions: functions(&server.router) };
        let gateway = allowed.contains(&Protocol::Http).then(|| http.clone());
        let methods = taking_one(&server.router);
        let trust_connection = options.trust_grpc;
        let http2 = Arc::new(http2);
        let grpc =
            http_server::h2::ServerConfig { limits, http: http2, cors, gateway, methods, trust_connection };
        Self {
            server,
            address,
            tls: tls.map(|tls| tls::Acceptor::new(tls, &allowed)),
            allowed,
            authenticator,
            baidu_std: Arc::new(baidu_std),
            rpcx: Arc::new(rpcx),
            fb_rpc: Arc::new(fb_rpc),
            grpc: Arc::new(grpc),
            http,
            https,
            rest_rpc: Arc::new(rest_rpc),
            generation,
            net_rpc: Arc::new(net_rpc),
            family,
            fixed_protocol: spoken,
        }
    }

    /// Whether a connection may begin with a token, and go on with nothing but bytes: they travel in clear text, and are
    /// told from calls by what they begin with.
    pub(super) fn takes_data(&self) -> bool {
        let is_socket = matches!(self.address, Address::Tcp(_) | Address::Unix(_));
        is_socket && self.fixed_protocol.is_none() && !self.tls.as_ref().is_some_and(tls::Acceptor::required)
    }
}

/// Which methods the server has, for the sessions of HTTP.
struct MethodLookup(Arc<Shared>);

impl http::MethodCatalog for MethodLookup {
    fn offers(&self, service: &str, method: &str) -> bool {
        self.0.router.entry(service, method).is_ok()
    }
}

/// Which methods can be called, for the sessions of HTTP: any, if what is not registered has a fallback.
struct Callable(Arc<Shared>);

impl http::MethodCatalog for Callable {
    fn offers(&self, service: &str, method: &str) -> bool {
        let router = &self.0.router;
        router.entry(service, method).is_ok() || router.fallback().is_some()
    }
}

impl fmt::Debug for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.router.fmt(f)
    }
}

impl fmt::Debug for MethodLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.router.fmt(f)
    }
}

/// What a listener takes that is safe only for some who call.
#[derive(Debug, Default)]
pub(super) struct ListenerOptions {
    pub(super) trust_http: bool,
    pub(super) trust_grpc: bool,
    pub(super) lenient_http: bool,
    pub(super) switch_protocols: bool,
    pub(super) hosts: Vec<String>,
    pub(super) json: Option<Json>,
}

/// The protocols between which brpc's server lets a connection change (brpc `input_messenger.cpp`).
const FAMILY: [Protocol; 4] = [Protocol::BaiduStd, Protocol::FbRpc, Protocol::Grpc, Protocol::Http];

/// Whether only this machine reaches a listener.
fn is_loopback(address: &Address) -> bool {
    let Address::Tcp(address) = address else { return false };
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// The verbs and paths of methods. The framework's own functions are pages, as of metrics, which a GET shows.
fn routes(router: &Router) -> Routes {
    let mut routes = router.routes().clone();
    let functions = router.list().into_iter().filter(|(service, _)| service.is_empty());
    for name in functions.flat_map(|(_, names)| names) {
        if router.entry(&name, "").is_ok_and(|entry| entry.is_standard()) {
            routes.declare_no_side_effects(&name, "");
        }
    }
    routes
}

/// The paths of probes that no function has.
fn probes(router: &Router) -> http::Probes {
    let is_free = |name| router.entry(name, "").is_err();
    http::Probes { live: is_free("livez"), ready: is_free("readyz") }
}

/// What brpc tells of itself where nobody sets a version.
fn service_names(router: &Router) -> String {
    let names: Vec<_> =
        router.list().into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
    if names.is_empty() { "functions".to_owned() } else { names.join("+") }
}

/// What a connection of HTTP/2 takes on. Whatever `unsent` is, there is room for the longest message: a peer's window is
/// often 64 KiB, and all the rest of an answer waits for it.
fn http2(limits: &Limits) -> h2::Config {
    let usual = h2::Config::default();
    let most_unsent = usual.most_unsent.max(limits.message.saturating_add(limits.unsent));
    // No window may be larger (RFC 9113, section 6.9.1).
    let window = |bytes: u32| bytes.min(i32::MAX as u32);
    let Http2 { stream_window, max_stream_window, connection_window, .. } = limits.http2;
    h2::Config {
        streams: u32::try_from(limits.streams_per_connection).unwrap_or(u32::MAX),
        header_list: limits.header,
        frame: limits.http2.frame,
        window: window(stream_window),
        most_window: window(max_stream_window),
        connection_window: window(connection_window),
        unsent: usual.unsent,
        unsent_in_all: limits.unsent,
        most_unsent,
        stalled: limits.write_timeout,
        resets: limits.http2.resets,
        resets_per_second: limits.http2.resets_per_second,
    }
}

/// The methods whose calls gRPC brings as a whole, if it can.
fn taking_one(router: &Router) -> http_server::h2::Methods {
    let mut methods = http_server::h2::Methods::default();
    for (service, names) in router.list() {
        let takes_one = |name: &&String| {
            router.entry(&service, name).is_ok_and(|entry| !entry.method().shape().client_streams)
        };
        names.iter().filter(takes_one).for_each(|name| methods.add(&service, name));
    }
    methods
}

/// What the server offers, by the names and numbers of rest_rpc.
fn functions(router: &Router) -> Functions {
    let mut functions = Functions::default();
    for (service, methods) in router.list() {
        methods.iter().for_each(|method| functions.add(&service, method));
    }
    functions
}

impl ListenerProtocols {
    /// Whether what the server offers can be carried. Where gob is one protocol of all, what it cannot carry is told and
    /// let pass.
    ///
    /// # Errors
    ///
    /// The methods that cannot be called here.
    pub(super) fn check(&self, router: &Router) -> io::Result<()> {
        let by_name = match self {
            Self::NetRpc(net_rpc::Codec::Gob) => true,
            Self::Sniffed(allowed) if allowed.contains(&Protocol::NetRpc) => {
                allowed.len() < Protocol::ALL.len()
            }
            _ => return Ok(()),
        };
        let methods = router.entries().filter(|entry| !entry.is_standard());
        for entry in methods {
            let Err(status) = entry.method().check(Format::Gob) else { continue };
            let (service, name) = (entry.name().service(), entry.name().method());
            let dot = if service.is_empty() { "" } else { "." };
            let text = format!("{service}{dot}{name} cannot be called by net/rpc: {}", status.message());
            if by_name {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            tracing::warn!("{text}");
        }
        Ok(())
    }
}

/// What is spoken at a listening socket.
#[derive(Debug, Clone)]
pub(super) enum ListenerProtocols {
    /// One of these, as the first bytes of a connection tell.
    Sniffed(Vec<Protocol>),
    /// Only this, whose first bytes may be any.
    NetRpc(net_rpc::Codec),
    /// Only this, of rest_rpc.
    RestRpc(Generation),
    /// Only this, of fb_rpc.
    FbRpc(fb_rpc::Magic),
}

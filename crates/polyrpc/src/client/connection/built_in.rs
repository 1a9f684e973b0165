//! The sessions of the built-in protocols, configured by the client.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use polyrpc_core::Status;
use polyrpc_core::session::client::SessionContext;
use polyrpc_wire::http::{h2, websocket};
use polyrpc_wire::rpcx::Compressors;
use polyrpc_wire::{Protocol, baidu_std, fb_rpc, grpc, grpc_web, http, net_rpc, rest_rpc, rpcx};

use super::sessions::{SessionFactory, sessions};

/// Options of a client for the sessions of built-in protocols.
pub(in crate::client) struct Options {
    pub(in crate::client) compressors: Compressors,
    /// Whether a budget bounds what its connections hold.
    pub(in crate::client) has_memory_budget: bool,
}

/// Creates the session factory of a protocol for a client.
type Build = fn(SessionContext, Options) -> Result<Arc<dyn SessionFactory>, String>;

const BUILT_IN: [(Protocol, Build); 7] = [
    (Protocol::BaiduStd, baidu_std),
    (Protocol::Rpcx, rpcx),
    (Protocol::FbRpc, fb_rpc),
    (Protocol::Grpc, grpc),
    (Protocol::Http, http),
    (Protocol::RestRpc, rest_rpc),
    (Protocol::NetRpc, net_rpc),
];

/// Returns the session factory of a built-in protocol.
///
/// # Errors
///
/// If the protocol is not a built-in one, or the parameters of its URL contradict each other.
pub(in crate::client) fn session_factory(
    protocol: Protocol,
    context: SessionContext,
    options: Options,
) -> Result<Arc<dyn SessionFactory>, Status> {
    let built_in = BUILT_IN.iter().find(|(known, _)| *known == protocol);
    let (_, build) = built_in.ok_or_else(|| unknown(protocol))?;
    build(context, options).map_err(Status::invalid_argument)
}

#[cold]
fn unknown(protocol: Protocol) -> Status {
    let name = protocol.as_str();
    Status::unimplemented(format!("the client has no protocol `{name}`: add it by Builder::protocol"))
}

fn baidu_std(context: SessionContext, _: Options) -> Result<Arc<dyn SessionFactory>, String> {
    let SessionContext { limits, credential, .. } = context;
    let streams = Default::default();
    let config = baidu_std::ClientConfig { limits, credential, deliver_timeout: true, streams };
    Ok(sessions(move || baidu_std::Client::new(config.clone())))
}

fn rpcx(context: SessionContext, options: Options) -> Result<Arc<dyn SessionFactory>, String> {
    let SessionContext { limits, credential, .. } = context;
    let Options { compressors, .. } = options;
    let config = rpcx::ClientConfig { limits, credential, compressors };
    Ok(sessions(move || rpcx::Client::new(config.clone())))
}

fn fb_rpc(context: SessionContext, _: Options) -> Result<Arc<dyn SessionFactory>, String> {
    let SessionContext { limits, credential, dialect, .. } = context;
    let (magic, hash) = fb_rpc::version(&dialect.parameters);
    let config = fb_rpc::ClientConfig { limits, magic, hash, credential };
    Ok(sessions(move || fb_rpc::Client::new(config.clone())))
}

fn grpc(context: SessionContext, options: Options) -> Result<Arc<dyn SessionFactory>, String> {
    let SessionContext { limits, credential, dialect, authority, is_secured, .. } = context;
    let framing = grpc::client_framing(&dialect);
    if dialect.within_http1 {
        let config = grpc_web::ClientConfig { limits, authority, credential, framing };
        return Ok(sessions(move || grpc_web::Client::new(config.clone())));
    }
    let mut http = h2::Config::default();
    if options.has_memory_budget {
        http.connection_window = WINDOW_OF_ALL_STREAMS;
    }
    let config = grpc::ClientConfig {
        limits,
        http: http.into(),
        authority,
        tls: is_secured,
        web: dialect.scheme == grpc::WEB,
        framing,
        credential,
    };
    Ok(sessions(move || grpc::Client::new(config.clone())))
}

/// Window of a connection over HTTP/2 whose memory a budget bounds: the initial windows of as many streams as servers
/// usually allow. A smaller one is used up by streams that are not read, and holds back all others of the connection.
const WINDOW_OF_ALL_STREAMS: u32 = 64 << 20;

fn http(context: SessionContext, _: Options) -> Result<Arc<dyn SessionFactory>, String> {
    let SessionContext { limits, credential, dialect, authority, .. } = context;
    let json_rpc = http::is_json_rpc(&dialect.parameters);
    let config = http::ClientConfig { limits, authority, credential, json_rpc };
    Ok(sessions(move || http::Client::new(config.clone())))
}

fn rest_rpc(context: SessionContext, _: Options) -> Result<Arc<dyn SessionFactory>, String> {
    if context.credential.is_some() {
        return Err("rest_rpc has no credentials".to_owned());
    }
    let version = rest_rpc::Version::selected_by(&context.dialect.parameters)?;
    let config = rest_rpc::ClientConfig { limits: context.limits, version };
    Ok(sessions(move || rest_rpc::Client::new(config.clone())))
}

fn net_rpc(context: SessionContext, _: Options) -> Result<Arc<dyn SessionFactory>, String> {
    let SessionContext { limits, credential, dialect, connect, .. } = context;
    let codec = net_rpc::Codec::selected_by(&dialect.parameters);
    let config = net_rpc::ClientConfig { limits, codec, connect, credential };
    Ok(sessions(move || net_rpc::Client::new(config.clone())))
}

/// Wraps sessions into WebSockets at this path of the server.
pub(in crate::client) fn within_websocket(
    carried: Arc<dyn SessionFactory>,
    context: &SessionContext,
    path: &str,
) -> Arc<dyn SessionFactory> {
    let config = websocket::ClientConfig {
        limits: context.limits.clone(),
        authority: context.authority.clone(),
        path: path.to_owned(),
        random: random_seed,
    };
    sessions(move || websocket::Client::new(config.clone(), carried.session()))
}

/// Seed for the masks of WebSocket messages. No page controls the messages, so predictable masks are harmless; if the
/// system has no better source of randomness, the keys of the standard hasher suffice.
fn random_seed() -> u64 {
    getrandom::u64().unwrap_or_else(|_| RandomState::new().build_hasher().finish())
}

//! Which sessions read a connection.

use std::rc::Rc;
use std::sync::Arc;

use polyrpc_core::session::Client;
use polyrpc_core::{Detection, Limits, protocol};
use polyrpc_wire::http::h2;
use polyrpc_wire::net_rpc::{CONNECT_PATH, Codec};
use polyrpc_wire::rest_rpc::Version;
use polyrpc_wire::{
    Protocol, baidu_std, fb_rpc, grpc, grpc_web, http, http_server, net_rpc, rest_rpc, rpcx, sniff,
};

use super::captured::Budget;
use super::observer::{Matching, Observe, Observer};

/// Detects the protocol of what a client sent first; `None` if more bytes are needed.
///
/// # Errors
///
/// Why it is not read.
pub(super) fn detect(
    start: &[u8],
    follows_connect: bool,
    budget: &Rc<Budget>,
) -> Result<Option<Box<dyn Observe>>, &'static str> {
    if matches!(start, [0x16, 0x03, ..]) {
        return Err("it is encrypted by TLS: record the calls at one of its ends instead");
    }
    match sniff::sniff(start, &Protocol::ALL) {
        Detection::Is(protocol) => new_observer(protocol, start, follows_connect, budget),
        Detection::NeedMore if start.len() < MAX_DETECTION_BYTES => Ok(None),
        _ => Err("its protocol is not known, or it began before the capture"),
    }
}

fn new_observer(
    protocol: Protocol,
    start: &[u8],
    follows_connect: bool,
    budget: &Rc<Budget>,
) -> Result<Option<Box<dyn Observe>>, &'static str> {
    let limits = Limits::default();
    let observer: Box<dyn Observe> = match protocol {
        Protocol::BaiduStd => {
            let client = || Box::new(baidu_std::Client::new(baidu_std::ClientConfig::default()));
            let server = baidu_std::Server::new(Arc::default());
            Box::new(Observer::new(protocol, server, client(), by_numbers(client()), budget))
        }
        Protocol::Rpcx => {
            let client = || Box::new(rpcx::Client::new(rpcx::ClientConfig::default()));
            let server = rpcx::Server::new(Arc::default());
            Box::new(Observer::new(protocol, server, client(), by_numbers(client()), budget))
        }
        Protocol::FbRpc => {
            let magic = if start.first() == Some(&b'F') { fb_rpc::Magic::Frpc } else { fb_rpc::Magic::Brpc };
            let client =
                || Box::new(fb_rpc::Client::new(fb_rpc::ClientConfig { magic, ..Default::default() }));
            let server = fb_rpc::Server::new(Arc::default());
            Box::new(Observer::new(protocol, server, client(), by_numbers(client()), budget))
        }
        Protocol::RestRpc => {
            let version = rest_rpc::version(start).unwrap_or_default();
            let client = || {
                Box::new(rest_rpc::Client::new(rest_rpc::ClientConfig { limits: limits.clone(), version }))
            };
            let server = rest_rpc::Server::new(Arc::default(), version);
            let matching = match version {
                Version::V0_21(_) => Matching::CallOrder,
                _ => by_numbers(client()),
            };
            Box::new(Observer::new(protocol, server, client(), matching, budget))
        }
        Protocol::NetRpc => {
            let codec = match start.first() {
                Some(b'{') => Codec::Json,
                Some(0x80..=0x9f) => Codec::MessagePack,
                _ => Codec::Gob,
            };
            let connect = follows_connect.then(|| CONNECT_PATH.to_owned());
            let config = net_rpc::ClientConfig { codec, connect, ..Default::default() };
            let server = net_rpc::Server::new(Arc::default());
            let matching = Matching::CallOrder;
            Box::new(Observer::new(
                protocol,
                server,
                Box::new(net_rpc::Client::new(config)),
                matching,
                budget,
            ))
        }
        Protocol::Grpc => {
            let config = http_server::h2::ServerConfig {
                http: windows(),
                gateway: Some(Arc::default()),
                ..Default::default()
            };
            let client = grpc::Client::new(grpc::ClientConfig { http: windows(), ..client_of_grpc() });
            let matching = Matching::CallOrder;
            Box::new(Observer::new(
                protocol,
                http_server::h2::Server::new(Arc::new(config)),
                Box::new(client),
                matching,
                budget,
            ))
        }
        Protocol::Http => {
            let Some(http_protocol) = detect_http_protocol(start) else { return Ok(None) };
            let server = http_server::h1::Server::new(Arc::new(http::ServerConfig {
                lenient: true,
                ..Default::default()
            }));
            let web = |scheme| {
                let framing = grpc::client_framing(&protocol::Dialect::new(scheme));
                let authority = String::new();
                grpc_web::Client::new(grpc_web::ClientConfig {
                    limits: limits.clone(),
                    authority,
                    credential: None,
                    framing,
                })
            };
            let client: Box<dyn Client> = match http_protocol {
                HttpProtocol::Plain => {
                    let config = http::ClientConfig::default();
                    Box::new(http::Client::new(config))
                }
                HttpProtocol::JsonRpc => {
                    let config = http::ClientConfig { json_rpc: true, ..Default::default() };
                    Box::new(http::Client::new(config))
                }
                HttpProtocol::GrpcWeb => Box::new(web(grpc::WEB)),
                HttpProtocol::Connect => Box::new(web(grpc::connect::SCHEME)),
            };
            let is_connect = matches!(http_protocol, HttpProtocol::Connect);
            let observer = Observer::new(protocol, server, client, Matching::CallOrder, budget);
            Box::new(if is_connect { observer.with_connect_protocol() } else { observer })
        }
        _ => return Err("its protocol is not read"),
    };
    Ok(Some(observer))
}

fn by_numbers(client: Box<dyn Client>) -> Matching {
    Matching::Numbers(client)
}

/// RPC protocol of a connection over HTTP/1.1, detected from its first request.
#[derive(Clone, Copy)]
enum HttpProtocol {
    Plain,
    JsonRpc,
    GrpcWeb,
    Connect,
}

/// `None` until the head of the request is complete.
fn detect_http_protocol(start: &[u8]) -> Option<HttpProtocol> {
    let end = start.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.or_else(|| (start.len() >= MAX_DETECTION_BYTES).then_some(start.len()))?;
    let head = String::from_utf8_lossy(&start[..end]).to_ascii_lowercase();
    let content_type =
        head.lines().find_map(|line| line.strip_prefix("content-type:")).unwrap_or_default().trim();
    Some(match () {
        () if content_type.starts_with("application/grpc-web") => HttpProtocol::GrpcWeb,
        () if content_type.starts_with("application/connect+")
            || head.contains("connect-protocol-version:") =>
        {
            HttpProtocol::Connect
        }
        () if head.starts_with("post / ") && content_type.starts_with("application/json") => {
            HttpProtocol::JsonRpc
        }
        () => HttpProtocol::Plain,
    })
}

fn client_of_grpc() -> grpc::ClientConfig {
    grpc::ClientConfig {
        limits: Limits::default(),
        http: Arc::default(),
        authority: "captured".to_owned(),
        tls: false,
        web: false,
        framing: None,
        credential: None,
    }
}

/// The flow-control windows of the captured peers are unknown: everything is accepted.
fn windows() -> Arc<h2::Config> {
    const MAX_WINDOW: u32 = i32::MAX as u32;
    Arc::new(h2::Config {
        streams: MAX_WINDOW,
        frame: (1 << 24) - 1,
        window: MAX_WINDOW,
        max_window: MAX_WINDOW,
        connection_window: MAX_WINDOW,
        resets: u32::MAX,
        resets_per_second: u32::MAX,
        ..h2::Config::default()
    })
}

/// Maximum number of bytes from which a protocol is detected.
const MAX_DETECTION_BYTES: usize = 64 << 10;

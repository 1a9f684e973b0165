use std::sync::Arc;

use polyrpc_wire::{Protocol, Status, baidu_std, grpc, h2, http1, rpcx};

use super::Shared;
use crate::net::Address;
use crate::service::Peer;
use crate::tls;

/// What the connections of one listening socket share.
pub(super) struct Port {
    pub(super) server: Arc<Shared>,
    pub(super) address: Address,
    pub(super) allowed: Vec<Protocol>,
    pub(super) authenticator: Option<Authenticator>,
    pub(super) tls: Option<tls::Acceptor>,
    pub(super) baidu_std: Arc<baidu_std::ServerConfig>,
    pub(super) rpcx: Arc<rpcx::ServerConfig>,
    pub(super) grpc: Arc<grpc::ServerConfig>,
    pub(super) http: Arc<http1::ServerConfig>,
    /// Within TLS, where HTTP/2 is asked for in the handshake or not at all (RFC 9113, section 3.2).
    pub(super) https: Arc<http1::ServerConfig>,
}

impl Port {
    pub(super) fn new(
        server: Arc<Shared>,
        allowed: Vec<Protocol>,
        authenticator: Option<Authenticator>,
        tls: Option<tls::Server>,
        address: Address,
    ) -> Self {
        let limits = server.limits.wire();
        let baidu_std = baidu_std::ServerConfig { limits: limits.clone(), address: address.to_string() };
        let rpcx = rpcx::ServerConfig { limits: limits.clone() };
        let http2 = h2::Config { unsent_in_all: server.limits.unsent, ..h2::Config::default() };
        let cors = server.cors.clone();
        let version = server.version.clone();
        let http = http1::ServerConfig {
            limits: limits.clone(),
            address: address.to_string(),
            version,
            routes: server.router.routes().clone(),
            cors: cors.clone(),
            h2c: allowed.contains(&Protocol::Grpc),
        };
        let https = Arc::new(http1::ServerConfig { h2c: false, ..http.clone() });
        let http = Arc::new(http);
        let gateway = allowed.contains(&Protocol::Http).then(|| http.clone());
        let grpc = grpc::ServerConfig { limits, http: Arc::new(http2), cors, gateway };
        Self {
            server,
            address,
            tls: tls.map(|tls| tls::Acceptor::new(tls, &allowed)),
            allowed,
            authenticator,
            baidu_std: Arc::new(baidu_std),
            rpcx: Arc::new(rpcx),
            grpc: Arc::new(grpc),
            http,
            https,
        }
    }
}

/// Judges who calls by the credential that came with the call, if one did.
pub(super) type Authenticator = Arc<dyn Fn(Option<&[u8]>, &Peer) -> Result<(), Status> + Send + Sync>;

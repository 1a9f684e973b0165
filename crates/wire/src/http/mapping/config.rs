use std::fmt;
use std::sync::Arc;

use polyrpc_core::{Json, Limits};

use super::hosts::Hosts;
use crate::http::Cors;
use crate::http::rule::Routes;

/// Settings shared by the sessions of one listener.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Limits of a connection.
    pub limits: Limits,
    /// Address of the server, as `ip:port`: error texts start with it, like brpc's.
    pub address: String,
    /// Response to `GET /version`.
    pub version: String,
    /// Methods with declared HTTP methods and paths. They take precedence over all other meanings of a path.
    pub routes: Routes,
    /// Which pages of other origins may call from a browser.
    pub cors: Cors,
    /// Whether a client may upgrade to HTTP/2, which is reported as
    /// [`ServerEvent::Upgrade`](polyrpc_core::session::ServerEvent::Upgrade).
    pub h2c: bool,
    /// Names of the server in `Host`.
    pub hosts: Hosts,
    /// Whether methods are called like in brpc: with any HTTP method, any content type, by pages of any origin.
    pub lenient: bool,
    /// Whether an accepted credential applies to later requests of its connection that have none, like in brpc. Never
    /// over HTTP/2.
    pub trust_connection: bool,
    /// Whether a message of another protocol may follow ([`ServerEvent::Foreign`](polyrpc_core::session::ServerEvent::Foreign));
    /// else it is answered with 400.
    pub switches: bool,
    /// Content of `GET /debug/rpc`, as in Go's `net/rpc`; the path does not exist if it is empty.
    pub debug_page: String,
    /// Default JSON dialect of calls and responses; `None`: [`Json::Brpc`]. With [`Json::BrpcLenient`] failures are
    /// brpc's text, too, otherwise JSON.
    pub json: Option<Json>,
    /// Health reported by `GET /health`; `None`: the server counts as healthy while it runs.
    pub health: Option<Arc<dyn Health>>,
    /// Further health check paths.
    pub probes: Probes,
    /// Whether calls need a credential. If so, a response that reveals which methods exist, or the health of a service,
    /// requires one, too.
    pub guarded: bool,
    /// Known methods, so that a GET of an unknown path is distinguished from one of a method; `None`: any path may be a
    /// method.
    pub methods: Option<Arc<dyn MethodCatalog>>,
    /// The server's own methods, if other requests are passed to another handler: those are
    /// [exchanges](polyrpc_core::session::server::Ticket::is_exchange).
    pub own: Option<Arc<dyn MethodCatalog>>,
    /// Whether every request is passed to that handler, including those for methods and built-in pages.
    pub passes_every_request: bool,
}

impl ServerConfig {
    /// Returns the default JSON dialect.
    pub(crate) fn json(&self) -> Json {
        self.json.unwrap_or(Json::Brpc)
    }
}

/// The methods of a server.
pub trait MethodCatalog: fmt::Debug + Send + Sync {
    /// Whether this method exists; a function has a name and no method.
    fn offers(&self, service: &str, method: &str) -> bool;
}

/// Health of services.
pub trait Health: fmt::Debug + Send + Sync {
    /// Whether this service accepts calls; the empty name means the server as a whole. `None` if there is no such
    /// service.
    fn is_serving(&self, service: &str) -> Option<bool>;

    /// Whether the health of single services is known, so that `/health/Service` queries it. Otherwise that path is a
    /// method's.
    fn knows_services(&self) -> bool {
        true
    }
}

/// Health check paths that the server answers itself. A function of the same name keeps its path.
#[derive(Debug, Clone, Copy)]
pub struct Probes {
    /// `/livez`: whether the server runs.
    pub live: bool,
    /// `/readyz`: whether the server accepts calls.
    pub ready: bool,
}

impl Default for Probes {
    fn default() -> Self {
        Self { live: true, ready: true }
    }
}

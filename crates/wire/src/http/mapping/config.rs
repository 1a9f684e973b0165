use std::fmt;
use std::sync::Arc;

use polyrpc_core::{Json, Limits};

use super::hosts::Hosts;
use crate::http::Cors;
use crate::http::rule::Routes;

/// What the sessions of one listener share.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// What a connection will accept.
    pub limits: Limits,
    /// Where this server listens, as `ip:port`: error texts begin with it, as brpc's do.
    pub address: String,
    /// What `GET /version` answers.
    pub version: String,
    /// Methods that are called by verbs and paths of their own. They go before all other meanings of a path.
    pub routes: Routes,
    /// Which pages of other origins may call from a browser.
    pub cors: Cors,
    /// Whether a client may go on in HTTP/2, which [`Event::Upgrade`](polyrpc_core::session::Event::Upgrade) tells.
    pub h2c: bool,
    /// Under which names the server is called, as `Host` has them.
    pub hosts: Hosts,
    /// Whether methods are called as brpc lets them: by any verb, with any content type, by pages of any origin.
    pub lenient: bool,
    /// Whether an accepted credential holds for the other requests of its connection, as in brpc, where they bring
    /// none. Never over HTTP/2.
    pub trust_connection: bool,
    /// Whether a message of another protocol may follow ([`Event::Foreign`](polyrpc_core::session::Event::Foreign)); else it is answered with 400.
    pub switches: bool,
    /// What `GET /debug/rpc` shows, as Go's `net/rpc` has it; nothing if it is empty.
    pub debug_page: String,
    /// In which dialect of JSON a method is called and answered where a request does not say; `None`: [`Json::Brpc`].
    /// With [`Json::BrpcLenient`] failures are brpc's text too, otherwise they are JSON.
    pub json: Option<Json>,
    /// What `GET /health` tells; `None`: that the server runs.
    pub health: Option<Arc<dyn Health>>,
    /// Which further paths tell it.
    pub probes: Probes,
    /// Whether calls need a credential. Then an answer that would tell what can be called, of a service's health too, is
    /// given only to whoever brings one.
    pub guarded: bool,
    /// Tells which methods can be called, so that a GET of any other path is told from one of a method; `None`: any may.
    pub methods: Option<Arc<dyn MethodCatalog>>,
    /// Tells what the server's own methods are, where somebody else takes requests that are none of them: those are
    /// [exchanges](polyrpc_core::session::Server::is_exchange).
    pub own: Option<Arc<dyn MethodCatalog>>,
}

impl ServerConfig {
    /// The dialect of JSON where a request does not say.
    pub(crate) fn json(&self) -> Json {
        self.json.unwrap_or(Json::Brpc)
    }
}

/// Tells which methods a server has.
pub trait MethodCatalog: fmt::Debug + Send + Sync {
    /// Whether there is such a method; a function has a name and no method.
    fn offers(&self, service: &str, method: &str) -> bool;
}

/// Knows whether services take calls.
pub trait Health: fmt::Debug + Send + Sync {
    /// Whether this service takes calls; the empty name means the server as a whole. `None` if there is no such service.
    fn is_serving(&self, service: &str) -> Option<bool>;

    /// Whether it speaks of services, so that `/health/Service` asks for one. Else that path is a method's.
    fn knows_services(&self) -> bool {
        true
    }
}

/// Which paths of probes the server answers itself. A function of the same name keeps its path.
#[derive(Debug, Clone, Copy)]
pub struct Probes {
    /// `/livez`: whether the server runs.
    pub live: bool,
    /// `/readyz`: whether it takes calls.
    pub ready: bool,
}

impl Default for Probes {
    fn default() -> Self {
        Self { live: true, ready: true }
    }
}

//! [Consul](https://developer.hashicorp.com/consul), in two ways: rpcx's keys ([`Keys`]), and the service catalogue,
//! from which brpc reads the healthy instances ([`Services`]).
//!
//! URL syntax, after `consul://`:
//!
//! | URL | meaning |
//! |---|---|
//! | `127.0.0.1:8500/rpcx_test/Arith` | the keys of service `Arith` under `rpcx_test`, as rpcx writes them |
//! | `127.0.0.1:8500/Echo`, `…/Echo?by=health` | the healthy instances of service `Echo` |
//! | `Echo` | the same, from the agent in `CONSUL_HTTP_ADDR`, else from the local one: brpc's `consul://Echo` |
//!
//! For registration, the name of the service is omitted: `127.0.0.1:8500/rpcx_test` means rpcx's keys, `127.0.0.1:8500`
//! (or `?by=health`) the catalogue, and `127.0.0.1:8500?by=agent` the catalogue in the format of rpcx 1.
//!
//! Parameters: `by` (`keys`, `health`, `agent`), `token` (of the ACL; default `CONSUL_HTTP_TOKEN`), `dc` (the data
//! centre), `tag` (only instances of the catalogue that have it), `tls`.

mod api;
mod keys;
mod services;

use std::sync::Arc;
use std::{env, fmt};

use ::http::header::HeaderValue;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Registrar};

pub use self::keys::{KeyDiscovery, Keys};
pub use self::services::{ServiceDiscovery, Services};

use crate::http::Http;
use crate::url_parts::UrlParts;

/// Consul's HTTP API, of an agent or a server.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// use polyrpc_discovery::consul::Consul;
///
/// let consul = Consul::new("http://127.0.0.1:8500")?;
/// let found_by_keys = consul.keys("rpcx_test").service("Arith");
/// let found_by_health = consul.services().service("Echo").tag("v2");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Consul {
    http: Arc<Http>,
    token: Option<HeaderValue>,
    datacenter: Option<String>,
}

impl Consul {
    /// Uses the API at `http://host:port`, `https://host:port` (feature `tls`) or `host:port`; the default port is
    /// 8500.
    ///
    /// # Errors
    ///
    /// If the URL is invalid. No connection is made yet.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { http: Arc::new(Http::new(url, PORT)?), token: None, datacenter: None })
    }

    /// Uses the address from the environment (`CONSUL_HTTP_ADDR`, `CONSUL_HTTP_TOKEN`), else this machine.
    ///
    /// # Errors
    ///
    /// If the address or the token from the environment is invalid.
    pub fn from_env() -> Result<Self> {
        let url = env::var("CONSUL_HTTP_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
        Self::new(&url)?.with_token_from_env()
    }

    /// Sets the ACL token.
    ///
    /// # Errors
    ///
    /// If it contains characters that a header cannot carry.
    pub fn token(mut self, token: &str) -> Result<Self> {
        let mut token = HeaderValue::try_from(token).map_err(|_| {
            Status::invalid_argument("Consul's token has characters that are invalid in a header")
        })?;
        token.set_sensitive(true);
        self.token = Some(token);
        Ok(self)
    }

    /// Uses this data centre, instead of the agent's own.
    #[must_use]
    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.datacenter = Some(name.into());
        self
    }

    /// Sets the TLS configuration.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: polyrpc::tls::Client) -> Self {
        self.http = Arc::new(self.http.with_tls(tls));
        self
    }

    /// rpcx's keys under this path.
    pub fn keys(&self, base: &str) -> Keys {
        Keys::new(self.clone(), base)
    }

    /// Service catalogue.
    pub fn services(&self) -> Services {
        Services::new(self.clone())
    }

    fn with_token_from_env(self) -> Result<Self> {
        match env::var("CONSUL_HTTP_TOKEN") {
            Ok(token) if !token.is_empty() => self.token(&token),
            _ => Ok(self),
        }
    }
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consul").field("http", &self.http).field("datacenter", &self.datacenter).finish()
    }
}

/// Opens the discovery of a service for the rest of a `consul://` URL.
pub(crate) fn discover(rest: &str) -> Result<Box<dyn Discover>, Status> {
    let url = UrlParts::parse(rest)?;
    url.check_parameters(&PARAMETERS)?;
    let (service, base) = match url.path.split_last() {
        Some((service, base)) => (service.clone(), base.join("/")),
        // brpc's syntax: no agent, only a service.
        None if !url.hosts.is_empty() && !url.hosts.contains(':') => {
            if url.is_on("tls", false)? {
                return Err(Status::invalid_argument(
                    "`tls` needs an agent in the URL; CONSUL_HTTP_ADDR may be an https:// address",
                ));
            }
            if matches!(Interface::parse(&url, "")?, Interface::Keys) {
                return Err(Status::invalid_argument(
                    "`by=keys` needs an agent and a path: expected consul://host:port/base/Service?by=keys",
                ));
            }
            let consul = configure(Consul::from_env().map_err(polyrpc::Error::into_status)?, &url)?;
            return Ok(healthy(&consul, &url.hosts, &url));
        }
        None => {
            return Err(Status::invalid_argument(
                "which service of Consul? expected consul://host:port/Service",
            ));
        }
    };
    let consul = open(&url)?;
    match Interface::parse(&url, &base)? {
        Interface::Keys if url.settings.value("tag").is_some() => {
            Err(Status::invalid_argument("the setting `tag` is for Consul's catalogue: keys have no tags"))
        }
        Interface::Keys => Ok(Box::new(consul.keys(&base).service(service))),
        Interface::Health | Interface::Agent => Ok(healthy(&consul, &service, &url)),
    }
}

/// Opens the registry for the rest of a `consul://` URL.
pub(crate) fn registrar(rest: &str) -> Result<Box<dyn Registrar>, Status> {
    let url = UrlParts::parse(rest)?;
    url.check_parameters(&PARAMETERS)?;
    if url.settings.value("tag").is_some() {
        return Err(Status::invalid_argument(
            "the setting `tag` is for discovery: the tags of a server are its attributes `tag`",
        ));
    }
    let consul = open(&url)?;
    let base = url.path.join("/");
    Ok(match Interface::parse(&url, &base)? {
        Interface::Keys => Box::new(consul.keys(&base)),
        Interface::Health => Box::new(consul.services()),
        Interface::Agent => Box::new(consul.services().legacy_rpcx_format()),
    })
}

/// Where instances are stored.
enum Interface {
    /// In rpcx's keys.
    Keys,
    /// In the catalogue.
    Health,
    /// In the catalogue, in the format of rpcx 1.
    Agent,
}

impl Interface {
    /// Parses the setting `by`. Without it, a path selects the keys.
    fn parse(url: &UrlParts, base: &str) -> Result<Self, Status> {
        match url.settings.value("by") {
            Some("keys") => Ok(Self::Keys),
            None if !base.is_empty() => Ok(Self::Keys),
            Some(by @ ("health" | "agent")) if !base.is_empty() => Err(Status::invalid_argument(format!(
                "`by={by}` means Consul's catalogue, which has no paths: omit `{base}`"
            ))),
            None | Some("health") => Ok(Self::Health),
            Some("agent") => Ok(Self::Agent),
            Some(other) => Err(unknown_interface(other)),
        }
    }
}

fn open(url: &UrlParts) -> Result<Consul, Status> {
    let consul = Consul::new(&url.origins()?).and_then(Consul::with_token_from_env);
    configure(consul.map_err(polyrpc::Error::into_status)?, url)
}

fn configure(mut consul: Consul, url: &UrlParts) -> Result<Consul, Status> {
    if let Some(token) = url.settings.value("token") {
        consul = consul.token(token).map_err(polyrpc::Error::into_status)?;
    }
    if let Some(datacenter) = url.settings.value("dc") {
        consul = consul.datacenter(datacenter);
    }
    Ok(consul)
}

fn healthy(consul: &Consul, service: &str, url: &UrlParts) -> Box<dyn Discover> {
    let found = consul.services().service(service);
    Box::new(match url.settings.value("tag") {
        Some(tag) => found.tag(tag),
        None => found,
    })
}

#[cold]
fn unknown_interface(by: &str) -> Status {
    Status::invalid_argument(format!("the setting `by` cannot be `{by}`: expected keys, health, agent"))
}

pub(crate) const PARAMETERS: [&str; 5] = ["by", "dc", "tag", "tls", "token"];
const PORT: u16 = 8500;

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
//! centre), `tag` (only instances that have it), `tls`.

mod keys;
mod services;

use std::sync::Arc;
use std::time::Duration;
use std::{env, fmt};

use ::http::header::{HeaderName, HeaderValue};
use ::http::{Method, Request};
use bytes::Bytes;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Attributes, Discover, Registrar};

pub use self::keys::{KeyDiscovery, Keys};
pub use self::services::{ServiceDiscovery, Services};

use crate::http::{ANSWER, Http, HttpResponse};
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

    async fn get(&self, path: &str, query: Attributes, within: Duration) -> Result<HttpResponse, Status> {
        self.call(Method::GET, path, query, Bytes::new(), within).await
    }

    /// Waits for changes since the index, or returns everything if Consul no longer knows the index.
    ///
    /// An index is valid only on its connection: another one may lead to an agent that has lost its data and waits for
    /// that index.
    async fn watch(
        &self,
        path: &str,
        query: Attributes,
        index: &mut Index,
        wait: Duration,
    ) -> Result<HttpResponse, Status> {
        if index.0 != 0 {
            let query =
                query.clone().with("index", index.0.to_string()).with("wait", format!("{}s", wait.as_secs()));
            let request = self.request(Method::GET, path, query, Bytes::new())?;
            // Consul adds up to a sixteenth to the wait.
            if let Some(answer) = self.http.call_on(&request, wait + wait / 16 + ANSWER).await {
                return Ok(answer);
            }
            *index = Index::default();
        }
        self.get(path, query, ANSWER).await
    }

    async fn put(
        &self,
        path: &str,
        query: Attributes,
        body: impl Into<Bytes>,
    ) -> Result<HttpResponse, Status> {
        self.call(Method::PUT, path, query, body.into(), ANSWER).await
    }

    async fn delete(&self, path: &str) -> Result<HttpResponse, Status> {
        self.call(Method::DELETE, path, Attributes::new(), Bytes::new(), ANSWER).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: Attributes,
        body: Bytes,
        within: Duration,
    ) -> Result<HttpResponse, Status> {
        self.http.call(self.request(method, path, query, body)?, within).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        mut query: Attributes,
        body: Bytes,
    ) -> Result<Request<Bytes>, Status> {
        if let Some(datacenter) = &self.datacenter {
            query.set("dc", datacenter);
        }
        let mut request = Request::builder().method(method).uri(format!("/v1{path}?{query}"));
        if let Some(token) = &self.token {
            request = request.header(TOKEN, token);
        }
        request
            .body(body)
            .map_err(|error| Status::invalid_argument(format!("cannot query Consul for {path}: {error}")))
    }
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consul").field("http", &self.http).field("datacenter", &self.datacenter).finish()
    }
}

/// Opens the discovery of a service for the rest of a `consul://` URL.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let place = UrlParts::parse(place)?;
    place.only(&PARAMETERS)?;
    let (service, base) = match place.path.split_last() {
        Some((service, base)) => (service.clone(), base.join("/")),
        // brpc's syntax: no agent, only a service.
        None if !place.hosts.is_empty() && !place.hosts.contains(':') => {
            let consul = configure(Consul::from_env().map_err(polyrpc::Error::into_status)?, &place)?;
            return Ok(healthy(&consul, &place.hosts, &place));
        }
        None => {
            return Err(Status::invalid_argument("which service of Consul? want consul://host:port/Service"));
        }
    };
    let consul = open(&place)?;
    match place.settings.value("by") {
        Some("keys") => Ok(Box::new(consul.keys(&base).service(service))),
        None if !base.is_empty() => Ok(Box::new(consul.keys(&base).service(service))),
        None | Some("health" | "agent") => Ok(healthy(&consul, &service, &place)),
        Some(other) => Err(unknown_way(other)),
    }
}

/// Opens the registry for the rest of a `consul://` URL.
pub(crate) fn registrar(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let place = UrlParts::parse(place)?;
    place.only(&PARAMETERS)?;
    let consul = open(&place)?;
    let base = place.path.join("/");
    match place.settings.value("by") {
        Some("keys") => Ok(Box::new(consul.keys(&base))),
        None if !base.is_empty() => Ok(Box::new(consul.keys(&base))),
        None | Some("health") => Ok(Box::new(consul.services())),
        Some("agent") => Ok(Box::new(consul.services().legacy_rpcx_format())),
        Some(other) => Err(unknown_way(other)),
    }
}

fn open(place: &UrlParts) -> Result<Consul, Status> {
    let consul = Consul::new(&place.origins()).and_then(Consul::with_token_from_env);
    configure(consul.map_err(polyrpc::Error::into_status)?, place)
}

fn configure(mut consul: Consul, place: &UrlParts) -> Result<Consul, Status> {
    if let Some(token) = place.settings.value("token") {
        consul = consul.token(token).map_err(polyrpc::Error::into_status)?;
    }
    if let Some(datacenter) = place.settings.value("dc") {
        consul = consul.datacenter(datacenter);
    }
    Ok(consul)
}

fn healthy(consul: &Consul, service: &str, place: &UrlParts) -> Box<dyn Discover> {
    let found = consul.services().service(service);
    Box::new(match place.settings.value("tag") {
        Some(tag) => found.tag(tag),
        None => found,
    })
}

#[cold]
fn unknown_way(by: &str) -> Status {
    Status::invalid_argument(format!("the setting `by` cannot be `{by}`: want keys, health, agent"))
}

pub(crate) const PARAMETERS: [&str; 5] = ["by", "dc", "tag", "tls", "token"];
const PORT: u16 = 8500;
const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

/// Position of a watch: Consul's index of a blocking query.
#[derive(Debug, Default)]
struct Index(u64);

impl Index {
    /// Advances to the index of the answer. An index that went backwards is reset, as required of clients
    /// (developer.hashicorp.com/consul/api-docs/features/blocking).
    fn advance(&mut self, answer: &HttpResponse) -> Result<(), Status> {
        let index = answer.headers.get(INDEX).and_then(|value| value.to_str().ok());
        let Some(index) = index.and_then(|index| index.parse::<u64>().ok()) else {
            return Err(Status::unavailable("a response has no X-Consul-Index: is this Consul?"));
        };
        self.0 = if index < self.0 { 0 } else { index.max(1) };
        Ok(())
    }
}

const INDEX: HeaderName = HeaderName::from_static("x-consul-index");

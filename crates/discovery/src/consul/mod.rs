//! [Consul](https://developer.hashicorp.com/consul), in two ways: rpcx's keys ([`Keys`]), and the catalogue of
//! services, of which brpc reads those that are healthy ([`Services`]).
//!
//! As a URL, behind `consul://`:
//!
//! | URL | what it is |
//! |---|---|
//! | `127.0.0.1:8500/rpcx_test/Arith` | the keys of service `Arith` under `rpcx_test`, as rpcx writes them |
//! | `127.0.0.1:8500/Echo`, `…/Echo?by=health` | the healthy instances of service `Echo` |
//! | `Echo` | the same of the agent that `CONSUL_HTTP_ADDR` names, else of this machine's: brpc's `consul://Echo` |
//!
//! Where servers register, the name of the service is left out: `127.0.0.1:8500/rpcx_test` are rpcx's keys,
//! `127.0.0.1:8500` (or `?by=health`) the catalogue, and `127.0.0.1:8500?by=agent` the catalogue as rpcx 1 wrote
//! it.
//!
//! Settings: `by` (`keys`, `health`, `agent`), `token` (of the ACL; else `CONSUL_HTTP_TOKEN`), `dc` (the data centre),
//! `tag` (only instances that have it), `tls`.

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

pub use self::keys::{Keys, KeysOf};
pub use self::services::{Services, ServicesOf};

use crate::http::{ANSWER, Http, HttpResponse};
use crate::registry_url::RegistryUrl;

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
    /// At `http://host:port`, `https://host:port` (feature `tls`) or `host:port`; 8500 is the usual port.
    ///
    /// # Errors
    ///
    /// When the URL is none. Nothing is connected yet.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { http: Arc::new(Http::new(url, PORT)?), token: None, datacenter: None })
    }

    /// At the address that the environment names (`CONSUL_HTTP_ADDR`, `CONSUL_HTTP_TOKEN`), else on this machine.
    ///
    /// # Errors
    ///
    /// When the address or the token of the environment cannot be used.
    pub fn of_the_environment() -> Result<Self> {
        let url = env::var("CONSUL_HTTP_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
        Self::new(&url)?.with_token_of_the_environment()
    }

    /// Shows this token of the ACL.
    ///
    /// # Errors
    ///
    /// When it holds what cannot stand in a header.
    pub fn token(mut self, token: &str) -> Result<Self> {
        let mut token = HeaderValue::try_from(token)
            .map_err(|_| Status::invalid_argument("Consul's token has characters that no header may have"))?;
        token.set_sensitive(true);
        self.token = Some(token);
        Ok(self)
    }

    /// Asks for what is in this data centre, instead of the agent's own.
    #[must_use]
    pub fn datacenter(mut self, name: impl Into<String>) -> Self {
        self.datacenter = Some(name.into());
        self
    }

    /// Checks servers by these rules.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: polyrpc::tls::Client) -> Self {
        self.http = Arc::new(self.http.with_tls(tls));
        self
    }

    /// What rpcx keeps as keys under this path.
    pub fn keys(&self, base: &str) -> Keys {
        Keys::new(self.clone(), base)
    }

    /// The catalogue of services.
    pub fn services(&self) -> Services {
        Services::new(self.clone())
    }

    fn with_token_of_the_environment(self) -> Result<Self> {
        match env::var("CONSUL_HTTP_TOKEN") {
            Ok(token) if !token.is_empty() => self.token(&token),
            _ => Ok(self),
        }
    }

    async fn get(&self, path: &str, query: Attributes, within: Duration) -> Result<HttpResponse, Status> {
        self.call(Method::GET, path, query, Bytes::new(), within).await
    }

    /// Asks for changes since the index, or for everything if Consul no longer knows the index.
    ///
    /// An index is worth nothing on another connection, behind which may be an agent that has lost its data and waits for
    /// that index to come.
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
            // Consul adds up to a sixteenth to the time it waits.
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
            .map_err(|error| Status::invalid_argument(format!("Consul cannot be asked for {path}: {error}")))
    }
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consul").field("http", &self.http).field("datacenter", &self.datacenter).finish()
    }
}

/// Opens what stands behind `consul://`, to find a service.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let place = RegistryUrl::parse(place)?;
    place.only(&SETTINGS)?;
    let (service, base) = match place.path.split_last() {
        Some((service, base)) => (service.clone(), base.join("/")),
        // brpc's way to say it: no agent, only a service.
        None if !place.hosts.is_empty() && !place.hosts.contains(':') => {
            let consul = settle(Consul::of_the_environment().map_err(polyrpc::Error::into_status)?, &place)?;
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

/// Opens what stands behind `consul://`, to make servers known.
pub(crate) fn register(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let place = RegistryUrl::parse(place)?;
    place.only(&SETTINGS)?;
    let consul = open(&place)?;
    let base = place.path.join("/");
    match place.settings.value("by") {
        Some("keys") => Ok(Box::new(consul.keys(&base))),
        None if !base.is_empty() => Ok(Box::new(consul.keys(&base))),
        None | Some("health") => Ok(Box::new(consul.services())),
        Some("agent") => Ok(Box::new(consul.services().as_rpcx_once_did())),
        Some(other) => Err(unknown_way(other)),
    }
}

fn open(place: &RegistryUrl) -> Result<Consul, Status> {
    let consul = Consul::new(&place.origins()).and_then(Consul::with_token_of_the_environment);
    settle(consul.map_err(polyrpc::Error::into_status)?, place)
}

fn settle(mut consul: Consul, place: &RegistryUrl) -> Result<Consul, Status> {
    if let Some(token) = place.settings.value("token") {
        consul = consul.token(token).map_err(polyrpc::Error::into_status)?;
    }
    if let Some(datacenter) = place.settings.value("dc") {
        consul = consul.datacenter(datacenter);
    }
    Ok(consul)
}

fn healthy(consul: &Consul, service: &str, place: &RegistryUrl) -> Box<dyn Discover> {
    let found = consul.services().service(service);
    Box::new(match place.settings.value("tag") {
        Some(tag) => found.tag(tag),
        None => found,
    })
}

#[cold]
fn unknown_way(by: &str) -> Status {
    Status::invalid_argument(format!("Consul knows no services by `{by}`: want keys, health, agent"))
}

const SETTINGS: [&str; 5] = ["by", "dc", "tag", "tls", "token"];
const PORT: u16 = 8500;
const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

/// How far a watch has come: Consul's index of a blocking query.
#[derive(Debug, Default)]
struct Index(u64);

impl Index {
    /// Notes where the answer stands. One that has gone back began anew, as the rules for clients have it
    /// (developer.hashicorp.com/consul/api-docs/features/blocking).
    fn advance(&mut self, answer: &HttpResponse) -> Result<(), Status> {
        let index = answer.headers.get(INDEX).and_then(|value| value.to_str().ok());
        let Some(index) = index.and_then(|index| index.parse::<u64>().ok()) else {
            return Err(Status::unavailable("an answer has no X-Consul-Index: is this Consul?"));
        };
        self.0 = if index < self.0 { 0 } else { index.max(1) };
        Ok(())
    }
}

const INDEX: HeaderName = HeaderName::from_static("x-consul-index");

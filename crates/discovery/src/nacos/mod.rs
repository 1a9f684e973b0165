//! [Nacos](https://nacos.io), by its HTTP API: that of Nacos 1 and 2 or, if a server no longer has it, that of Nacos 3
//! (ADR 20).
//!
//! URL syntax, after `nacos://`: `127.0.0.1:8848/Arith`, several servers separated by commas; for registration the name
//! of the service is omitted. Parameters: `group` (or `groupName`; `DEFAULT_GROUP`), `namespace` (or `namespaceId`),
//! `cluster` (or `clusters`; for discovery, several separated by commas), `username` and `password`, `tls`. brpc's
//! `nacos://serviceName=Echo&groupName=g` uses the Nacos of this machine.

mod api;
mod host;
mod registrar;
mod resolver;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Discover, Registrar};

pub use self::resolver::ServiceDiscovery;

use self::api::Api;
use crate::url_parts::UrlParts;

/// Namespace of a Nacos, with the group and the cluster of its instances.
///
/// Instances are *ephemeral*: without heartbeats for the entry's time-to-live, Nacos considers them unhealthy, and
/// removes them.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// use polyrpc_discovery::nacos::Nacos;
///
/// let nacos = Nacos::new("http://127.0.0.1:8848")?.group("payments").login("nacos", "secret");
/// let found = nacos.service("Arith");
/// # Ok(())
/// # }
/// ```
pub struct Nacos {
    api: Arc<Api>,
    scope: Scope,
    /// Entries that were registered here, in their last version.
    registered: Mutex<HashMap<String, Advertisement>>,
}

/// Namespace, group and cluster.
#[derive(Debug, Clone)]
struct Scope {
    namespace: Option<String>,
    group: String,
    cluster: Option<String>,
}

impl Nacos {
    /// Uses the API at `http://host:port`, `https://host:port` (feature `tls`) or `host:port`, or several separated by
    /// commas; the default port is 8848.
    ///
    /// # Errors
    ///
    /// If the URL is invalid. No connection is made yet.
    pub fn new(urls: &str) -> Result<Self> {
        let scope = Scope { namespace: None, group: "DEFAULT_GROUP".to_owned(), cluster: None };
        Ok(Self { api: Arc::new(Api::new(urls)?), scope, registered: Mutex::default() })
    }

    /// Sets the namespace, by its id.
    #[must_use]
    pub fn namespace(mut self, id: impl Into<String>) -> Self {
        self.scope.namespace = Some(id.into());
        self
    }

    /// Sets the group. Default: `DEFAULT_GROUP`.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.scope.group = name.into();
        self
    }

    /// Sets the cluster. By default instances are registered in `DEFAULT`, and discovered in all clusters.
    #[must_use]
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.scope.cluster = Some(name.into());
        self
    }

    /// Logs in as this user before the first request.
    #[must_use]
    pub fn login(mut self, username: impl Into<String>, password: impl Into<String>) -> Self {
        self.api = Arc::new(self.api.with_login(username.into(), password.into()));
        self
    }

    /// Sets the TLS configuration.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: polyrpc::tls::Client) -> Self {
        self.api = Arc::new(self.api.with_tls(tls));
        self
    }

    /// Discovers the healthy instances of one service; those that are disabled or have no weight are inactive.
    pub fn service(&self, name: impl Into<String>) -> ServiceDiscovery {
        ServiceDiscovery::new(self.api.clone(), self.scope.clone(), name.into())
    }
}

impl Scope {
    fn fields(&self, service: &str) -> Attributes {
        let mut fields = Attributes::new().with("serviceName", service).with("groupName", &self.group);
        if let Some(namespace) = &self.namespace {
            fields.set("namespaceId", namespace);
        }
        fields
    }
}

impl fmt::Debug for Nacos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nacos").field("api", &self.api).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Opens the discovery of a service for the rest of a `nacos://` URL.
pub(crate) fn discover(rest: &str) -> Result<Box<dyn Discover>, Status> {
    let (nacos, url) = open(rest)?;
    let named = url.settings.value("serviceName");
    match (named, url.path.as_slice()) {
        (Some(name), []) => Ok(Box::new(nacos.service(name))),
        (None, [name]) => Ok(Box::new(nacos.service(name))),
        _ => Err(Status::invalid_argument("which service of Nacos? expected nacos://host:port/Service")),
    }
}

/// Opens the registry for the rest of a `nacos://` URL.
pub(crate) fn registrar(rest: &str) -> Result<Box<dyn Registrar>, Status> {
    let (nacos, url) = open(rest)?;
    match (url.path.as_slice(), url.settings.value("serviceName")) {
        ([], None) => Ok(Box::new(nacos)),
        _ => Err(Status::invalid_argument(
            "a server's services have names already: expected nacos://host:port",
        )),
    }
}

fn open(text: &str) -> Result<(Nacos, UrlParts), Status> {
    let is_brpcs = text.split(['/', '?']).next().is_some_and(|start| start.contains('='));
    let url = match is_brpcs {
        // brpc's syntax: only the query (`nacos_naming_service.cpp`).
        true => UrlParts::parse(&format!("127.0.0.1?{text}"))?,
        false => UrlParts::parse(text)?,
    };
    url.check_parameters(&PARAMETERS)?;
    let mut nacos = Nacos::new(&url.origins()?).map_err(polyrpc::Error::into_status)?;
    if let Some(group) = either(&url, "group", "groupName")? {
        nacos = nacos.group(group);
    }
    if let Some(namespace) = either(&url, "namespace", "namespaceId")? {
        nacos = nacos.namespace(namespace);
    }
    if let Some(cluster) = either(&url, "cluster", "clusters")? {
        nacos = nacos.cluster(cluster);
    }
    match (url.settings.value("username"), url.settings.value("password")) {
        (Some(username), Some(password)) => nacos = nacos.login(username, password),
        (None, None) => {}
        _ => {
            let text = "a login to Nacos needs both `username` and `password`";
            return Err(Status::invalid_argument(text));
        }
    }
    Ok((nacos, url))
}

/// Returns the value of a setting with two names.
fn either<'a>(url: &'a UrlParts, name: &str, other: &str) -> Result<Option<&'a str>, Status> {
    match (url.settings.value(name), url.settings.value(other)) {
        (Some(_), Some(_)) => {
            Err(Status::invalid_argument(format!("`{name}` and `{other}` are the same setting: write one")))
        }
        (one, another) => Ok(one.or(another)),
    }
}

pub(crate) const PARAMETERS: [&str; 10] = [
    "cluster",
    "clusters",
    "group",
    "groupName",
    "namespace",
    "namespaceId",
    "password",
    "serviceName",
    "tls",
    "username",
];

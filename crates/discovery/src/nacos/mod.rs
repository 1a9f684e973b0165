//! [Nacos](https://nacos.io), by its HTTP API: that of Nacos 1 and 2 or, if a server no longer has it, that of Nacos 3
//! (ADR 20).
//!
//! URL syntax, after `nacos://`: `127.0.0.1:8848/Arith`, several servers separated by commas; for registration the name
//! of the service is omitted. Parameters: `group` (or `groupName`; `DEFAULT_GROUP`), `namespace` (or `namespaceId`),
//! `cluster` (or `clusters`; for discovery, several separated by commas), `username` and `password`, `tls`. brpc's
//! `nacos://serviceName=Echo&groupName=g` uses the Nacos of this machine.

mod api;
mod host;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Discover, Instance, InstanceStream, Registrar};

use self::api::{Api, Reply, Verb};
use self::host::{current_attributes, host_registration, instances};
use crate::lenient_list;
use crate::url_parts::UrlParts;
use crate::watch::{self, WatchSource};

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
    entered: Mutex<HashMap<String, Advertisement>>,
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
        Ok(Self { api: Arc::new(Api::new(urls)?), scope, entered: Mutex::default() })
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
        ServiceDiscovery { api: self.api.clone(), scope: self.scope.clone(), name: name.into() }
    }

    async fn enter(&self, entry: &Advertisement) -> Result<(), Status> {
        let known =
            self.entered.lock().unwrap_or_else(PoisonError::into_inner).get(&entry.to_string()).cloned();
        if known.as_ref() == Some(entry) && self.beat(entry).await? {
            return Ok(());
        }
        let host = host_registration(entry)?;
        let fields = host.fields(self.fields(&entry.service))?;
        self.api.call(Verb::Enter, &fields).await?.granted(&format!("cannot register {entry} in Nacos"))?;
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.to_string(), entry.clone());
        Ok(())
    }

    /// Sends a heartbeat of the server; `false` if Nacos does not know it.
    async fn beat(&self, entry: &Advertisement) -> Result<bool, Status> {
        let host = host_registration(entry)?;
        let grouped = format!("{}@@{}", self.scope.group, entry.service);
        let cluster = self.scope.cluster.as_deref().unwrap_or("DEFAULT");
        let fields = host.place(self.fields(&entry.service)).with("beat", host.beat(&grouped, cluster)?);
        let known = self.api.call(Verb::Beat, &fields).await?.knows("cannot send a heartbeat to Nacos")?;
        if !known {
            self.forget(entry);
        }
        Ok(known)
    }

    /// Returns Nacos' current attributes of the entry. A disabled instance is missing from the lists of Nacos 1 and 2,
    /// in which case they are unknown.
    async fn look(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let action = format!("cannot read {entry} from Nacos");
        let list = list(&self.api, &self.scope, &entry.service).await?.list(&action)?;
        current_attributes(list.hosts.items, entry)
    }

    async fn leave(&self, entry: &Advertisement) -> Result<(), Status> {
        self.forget(entry);
        let fields = host_registration(entry)?.place(self.fields(&entry.service));
        let reply = self.api.call(Verb::Leave, &fields).await?;
        reply.granted(&format!("cannot deregister {entry} from Nacos"))
    }

    fn forget(&self, entry: &Advertisement) {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry.to_string());
    }

    fn fields(&self, service: &str) -> Attributes {
        let mut fields = self.scope.fields(service).with("ephemeral", "true");
        if let Some(cluster) = &self.scope.cluster {
            fields.set("clusterName", cluster);
        }
        fields
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

impl Registrar for Nacos {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.enter(entry).await?) }.boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.leave(entry).await?) }.boxed()
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        async { Ok(self.look(entry).await?) }.boxed()
    }
}

impl fmt::Debug for Nacos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nacos").field("api", &self.api).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// Instances of one service in a Nacos.
///
/// Nacos sends no notifications over HTTP: it is polled as often as its answers may be cached, and at least every three
/// seconds.
#[derive(Debug, Clone)]
pub struct ServiceDiscovery {
    api: Arc<Api>,
    scope: Scope,
    name: String,
}

impl Discover for ServiceDiscovery {
    fn watch(&self) -> InstanceStream {
        watch::sets(NacosWatch { of: self.clone(), pause: None, warning: None })
    }
}

struct NacosWatch {
    of: ServiceDiscovery,
    /// Validity of the last answer.
    pause: Option<Duration>,
    warning: Option<Status>,
}

impl WatchSource for NacosWatch {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        if let Some(pause) = self.pause.take() {
            tokio::time::sleep(pause).await;
        }
        let ServiceDiscovery { api, scope, name } = &self.of;
        let list =
            list(api, scope, name).await?.list(&format!("cannot list the instances of {name} in Nacos"))?;
        if list.hosts.is_unusable() {
            return Err(Status::data_loss(format!("no instance of {name} in Nacos can be read")));
        }
        self.pause = Some(list.pause());
        let (all, read) = (list.hosts.all, list.hosts.items.len());
        let found = instances(list.hosts.items);
        let nowhere = found.iter().filter(|found| found.is_none()).count();
        let what = format_args!("instances of {name} in Nacos");
        self.warning = lenient_list::warning(all, read - nowhere, what);
        Ok(found.into_iter().flatten().collect())
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

/// Lists all instances of a service.
async fn list(api: &Api, scope: &Scope, name: &str) -> Result<Reply, Status> {
    let mut fields = scope.fields(name).with("healthyOnly", "false");
    if let Some(clusters) = &scope.cluster {
        // Nacos 1 and 2 read the former, Nacos 3 the latter.
        fields.set("clusters", clusters);
        fields.set("clusterName", clusters);
    }
    api.call(Verb::List, &fields).await
}

/// Opens the discovery of a service for the rest of a `nacos://` URL.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let (nacos, place) = open(place)?;
    let named = place.settings.value("serviceName");
    match (named, place.path.as_slice()) {
        (Some(name), []) => Ok(Box::new(nacos.service(name))),
        (None, [name]) => Ok(Box::new(nacos.service(name))),
        _ => Err(Status::invalid_argument("which service of Nacos? want nacos://host:port/Service")),
    }
}

/// Opens the registry for the rest of a `nacos://` URL.
pub(crate) fn registrar(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let (nacos, place) = open(place)?;
    match (place.path.as_slice(), place.settings.value("serviceName")) {
        ([], None) => Ok(Box::new(nacos)),
        _ => Err(Status::invalid_argument("a server's services have names already: want nacos://host:port")),
    }
}

fn open(text: &str) -> Result<(Nacos, UrlParts), Status> {
    let is_brpcs = text.split(['/', '?']).next().is_some_and(|start| start.contains('='));
    let place = match is_brpcs {
        // brpc's syntax: only the query (`nacos_naming_service.cpp`).
        true => UrlParts::parse(&format!("127.0.0.1?{text}"))?,
        false => UrlParts::parse(text)?,
    };
    place.only(&PARAMETERS)?;
    let mut nacos = Nacos::new(&place.origins()).map_err(polyrpc::Error::into_status)?;
    let setting = |names: [&str; 2]| names.into_iter().find_map(|name| place.settings.value(name));
    if let Some(group) = setting(["group", "groupName"]) {
        nacos = nacos.group(group);
    }
    if let Some(namespace) = setting(["namespace", "namespaceId"]) {
        nacos = nacos.namespace(namespace);
    }
    if let Some(cluster) = setting(["cluster", "clusters"]) {
        nacos = nacos.cluster(cluster);
    }
    if let (Some(username), Some(password)) =
        (place.settings.value("username"), place.settings.value("password"))
    {
        nacos = nacos.login(username, password);
    }
    Ok((nacos, place))
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

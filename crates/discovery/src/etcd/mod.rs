//! [etcd](https://etcd.io) v3: rpcx's keys (rpcx-etcd `serverplugin/etcdv3.go`).
//!
//! URL syntax, after `etcd://`: `host:port,host:port/rpcx_test/Arith` for discovery, without the service for
//! registration; `user:password@` may precede the first host. The keys start with a slash, as in rpcx's examples;
//! `?slash=false` omits it. Discovery looks for both.
//!
//! Parameters: `user`, `password`, `slash`.

mod api;
mod proto;
mod registrar;
mod resolver;

use std::fmt;
use std::sync::Arc;

use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Registrar};

pub use self::registrar::EtcdRegistrar;
pub use self::resolver::EtcdService;

use self::api::Api;
use crate::rpcx_tree::split;
use crate::url_parts::UrlParts;

/// etcd cluster, with credentials.
#[derive(Clone)]
pub struct Etcd {
    endpoints: Arc<[String]>,
    user: Option<(String, String)>,
}

impl Etcd {
    /// Uses the servers at `host:port` or `http://host:port`.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { endpoints: endpoints.into_iter().map(Into::into).collect(), user: None }
    }

    /// Sets the credentials.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Discovers the instances of a service under rpcx's base path, with or without a leading slash.
    pub fn service(&self, base: &str, service: &str) -> EtcdService {
        EtcdService::new(self.clone(), base, service)
    }

    /// Registers servers under rpcx's base path, which is used verbatim.
    pub fn registrar(&self, base: &str) -> EtcdRegistrar {
        EtcdRegistrar::new(self.clone(), base)
    }

    async fn connect(&self) -> Result<Api, Status> {
        Api::connect(&self.endpoints, self.user.clone()).await
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// Opens the discovery of a service for the rest of an `etcd://` URL.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let place = UrlParts::parse(place)?;
    let (base, service) = split(&place)?;
    Ok(Box::new(open(&place)?.service(&base, &service)))
}

/// Opens the registry for the rest of an `etcd://` URL.
pub(crate) fn registrar(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let place = UrlParts::parse(place)?;
    let base = place.path.join("/");
    let slash = if place.settings.value("slash") == Some("false") { "" } else { "/" };
    Ok(Box::new(open(&place)?.registrar(&format!("{slash}{base}"))))
}

fn open(place: &UrlParts) -> Result<Etcd, Status> {
    place.check_parameters(&PARAMETERS)?;
    let (user, hosts) = place.user()?;
    if hosts.is_empty() {
        return Err(Status::invalid_argument("where is etcd? want etcd://host:port"));
    }
    let etcd = Etcd::new(hosts.split(','));
    let setting = |name| place.settings.value(name).map(str::to_owned);
    let user = user.or_else(|| Some((setting("user")?, setting("password").unwrap_or_default())));
    Ok(match user {
        Some((name, password)) => etcd.user(name, password),
        None => etcd,
    })
}

pub(crate) const PARAMETERS: [&str; 3] = ["password", "slash", "user"];

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
use crate::rpcx_tree::{base, split};
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
pub(crate) fn discover(rest: &str) -> Result<Box<dyn Discover>, Status> {
    let url = UrlParts::parse(rest)?;
    let (base, service) = split(&url)?;
    // Without effect here, but one URL serves both purposes, and a wrong value is an error in both.
    url.is_on("slash", true)?;
    Ok(Box::new(open(&url)?.service(&base, &service)))
}

/// Opens the registry for the rest of an `etcd://` URL.
pub(crate) fn registrar(rest: &str) -> Result<Box<dyn Registrar>, Status> {
    let url = UrlParts::parse(rest)?;
    Ok(Box::new(open(&url)?.registrar(&base(&url)?)))
}

fn open(url: &UrlParts) -> Result<Etcd, Status> {
    url.check_parameters(&PARAMETERS)?;
    let (user, hosts) = url.user()?;
    if hosts.is_empty() {
        return Err(Status::invalid_argument("where is etcd? expected etcd://host:port"));
    }
    let etcd = Etcd::new(hosts.split(','));
    let setting = |name| url.settings.value(name).map(str::to_owned);
    match (user, setting("user"), setting("password")) {
        (None, None, None) => Ok(etcd),
        (Some((name, password)), None, None) => Ok(etcd.user(name, password)),
        (None, Some(name), password) => Ok(etcd.user(name, password.unwrap_or_default())),
        (None, None, Some(_)) => Err(Status::invalid_argument("`password` of etcd needs `user`")),
        (Some(_), _, _) => Err(Status::invalid_argument(
            "etcd's user and password are given twice: before the first host and as parameters",
        )),
    }
}

pub(crate) const PARAMETERS: [&str; 3] = ["password", "slash", "user"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_gives_the_credentials_once() {
        let user = |url| open(&UrlParts::parse(url).unwrap()).map(|etcd| etcd.user);
        let known = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        for (url, expected) in [
            ("h:1/b/S", None),
            ("me:p@h:1/b/S", known("me", "p")),
            ("h:1/b/S?user=me&password=p", known("me", "p")),
            ("h:1/b/S?user=me", known("me", "")),
        ] {
            assert_eq!(user(url).unwrap(), expected, "{url}");
        }
        for url in ["h:1/b/S?password=p", "me@h:1/b/S?password=p", "me:p@h:1/b/S?user=you&password=q"] {
            assert!(user(url).is_err(), "{url}");
        }
    }
}

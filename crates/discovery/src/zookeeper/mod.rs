//! [ZooKeeper](https://zookeeper.apache.org): rpcx's nodes (rpcx-zookeeper `serverplugin/zookeeper.go`).
//!
//! URL syntax, after `zookeeper://`: `host:port,host:port/rpcx_test/Arith` for discovery, without the service for
//! registration. ZooKeeper must be 3.6 or later, for recursive watches.

mod registrar;
mod resolver;

use std::fmt;
use std::time::Duration;

use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Registrar};
use tokio::time::timeout;
use zookeeper_client::{Client, Error};

pub use self::registrar::ZooKeeperRegistrar;
pub use self::resolver::ZooKeeperService;

use crate::rpcx_tree::{Tree, split};
use crate::url_parts::UrlParts;

/// ZooKeeper ensemble.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    cluster: String,
}

impl ZooKeeper {
    /// Uses the servers at `host:port`, several separated by commas.
    pub fn new(servers: impl Into<String>) -> Self {
        Self { cluster: servers.into() }
    }

    /// Discovers the instances of a service under rpcx's base path.
    pub fn service(&self, base: &str, service: &str) -> ZooKeeperService {
        ZooKeeperService::new(self.clone(), root_tree(base).service(service))
    }

    /// Registers servers under rpcx's base path.
    pub fn registrar(&self, base: &str) -> ZooKeeperRegistrar {
        ZooKeeperRegistrar::new(self.clone(), root_tree(base))
    }

    async fn connect(&self, session: Duration) -> Result<Client, Status> {
        let connector = Client::connector()
            .with_session_timeout(session)
            .with_connection_timeout(RESPONSE_TIMEOUT)
            .with_fail_eagerly();
        Ok(with_timeout(connector.connect(&self.cluster)).await?)
    }
}

/// ZooKeeper's paths start at its root.
fn root_tree(base: &str) -> Tree {
    Tree::new(format!("/{}", base.trim_matches('/')))
}

/// Opens the discovery of a service for the rest of a `zookeeper://` URL.
pub(crate) fn discover(rest: &str) -> Result<Box<dyn Discover>, Status> {
    let url = UrlParts::parse(rest)?;
    let (base, service) = split(&url)?;
    Ok(Box::new(open(&url)?.service(&base, &service)))
}

/// Opens the registry for the rest of a `zookeeper://` URL.
pub(crate) fn registrar(rest: &str) -> Result<Box<dyn Registrar>, Status> {
    let url = UrlParts::parse(rest)?;
    Ok(Box::new(open(&url)?.registrar(&url.path.join("/"))))
}

fn open(url: &UrlParts) -> Result<ZooKeeper, Status> {
    url.check_parameters(&[])?;
    match url.hosts.is_empty() {
        true => Err(Status::invalid_argument("where is ZooKeeper? expected zookeeper://host:port")),
        false => Ok(ZooKeeper::new(url.hosts.clone())),
    }
}

/// Reason why there is no answer.
enum Failure {
    Zoo(Error),
    Silence,
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Zoo(error) => failed(error),
            Failure::Silence => failed("no response in time"),
        }
    }
}

/// Awaits an answer with a timeout.
async fn with_timeout<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    match timeout(RESPONSE_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(Failure::Zoo),
        Err(_) => Err(Failure::Silence),
    }
}

#[cold]
fn failed(why: impl fmt::Display) -> Status {
    Status::unavailable(format!("ZooKeeper: {why}"))
}

/// Timeout of an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

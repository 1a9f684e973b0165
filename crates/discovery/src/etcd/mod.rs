//! [etcd](https://etcd.io) v3: rpcx's keys (rpcx-etcd `serverplugin/etcdv3.go`).
//!
//! URL syntax, after `etcd://`: `host:port,host:port/rpcx_test/Arith` for discovery, without the service for
//! registration; `user:password@` may precede the first host. The keys start with a slash, as in rpcx's examples;
//! `?slash=false` omits it. Discovery looks for both.
//!
//! Parameters: `user`, `password`, `slash`.

mod api;
mod proto;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Discover, Instance, InstanceStream, Registrar};
use polyrpc::{Status, Streaming};
use tokio::sync::Mutex;

use self::api::{Api, KeepAlive, failed};
use self::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use self::proto::etcdserverpb::{Compare, PutRequest, RequestOp, TxnRequest, WatchResponse};
use crate::rpcx_tree::{BASE_VALUE, FoundInstances, Tree, attributes, split};
use crate::url_parts::UrlParts;
use crate::watch::{self, WatchSource};

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
        let base = base.trim_matches('/');
        let trees = [Tree::new(format!("/{base}")), Tree::new(base)];
        EtcdService { etcd: self.clone(), prefixes: trees.map(|tree| tree.prefix(service)) }
    }

    /// Registers servers under rpcx's base path, which is used verbatim.
    pub fn registrar(&self, base: &str) -> EtcdRegistrar {
        EtcdRegistrar { etcd: self.clone(), tree: Tree::new(base), held: Mutex::default() }
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
    place.only(&PARAMETERS)?;
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

// ---------------------------------------------------------------------- finding

/// Instances of one service.
#[derive(Debug, Clone)]
pub struct EtcdService {
    etcd: Etcd,
    /// Prefixes of the keys with and without a leading slash.
    prefixes: [String; 2],
}

impl Discover for EtcdService {
    fn watch(&self) -> InstanceStream {
        watch::sets(EtcdWatchSource { of: self.clone(), watching: None, warning: None })
    }
}

struct EtcdWatchSource {
    of: EtcdService,
    watching: Option<EtcdWatch>,
    warning: Option<Status>,
}

/// Connection that receives changes.
struct EtcdWatch {
    api: Api,
    changes: Streaming<WatchResponse>,
}

impl WatchSource for EtcdWatchSource {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        // After a failure, the next poll uses a new connection.
        let (watching, found) = match self.watching.take() {
            None => self.of.begin().await?,
            Some(mut watching) => {
                changed(&mut watching.changes).await?;
                let (found, _) = self.of.list(&mut watching.api).await?;
                (watching, found)
            }
        };
        self.watching = Some(watching);
        found.end(&mut self.warning)
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl EtcdService {
    /// Lists the instances, and watches from then on.
    async fn begin(&self) -> Result<(EtcdWatch, FoundInstances), Status> {
        let mut api = self.etcd.connect().await?;
        let (found, revision) = self.list(&mut api).await?;
        let changes = api.watch(&self.prefixes, revision + 1).await?;
        Ok((EtcdWatch { api, changes }, found))
    }

    /// Returns the current instances and their revision.
    async fn list(&self, api: &mut Api) -> Result<(FoundInstances, i64), Status> {
        let (mut found, mut revision) = (FoundInstances::default(), None);
        for prefix in &self.prefixes {
            let answer = api.list(prefix).await?;
            // A change between the two lists must not be missed: the older revision counts.
            revision.get_or_insert(answer.header.revision);
            for pair in &answer.kvs {
                let name = pair.key.get(prefix.len()..).unwrap_or_default();
                found.note(name, &pair.value);
            }
        }
        Ok((found, revision.unwrap_or_default()))
    }
}

/// Waits for a change, and consumes further ones that have arrived: a single list covers all of them.
async fn changed(changes: &mut Streaming<WatchResponse>) -> Result<(), Status> {
    while !is_change(changes.message().await)? {}
    while let Some(response) = changes.message().now_or_never() {
        is_change(response)?;
    }
    Ok(())
}

fn is_change(response: Result<Option<WatchResponse>>) -> Result<bool, Status> {
    match response.map_err(failed)? {
        Some(response) if response.canceled => Err(failed(response.cancel_reason)),
        Some(response) => Ok(!response.events.is_empty()),
        None => Err(failed("the watch has ended")),
    }
}

// ---------------------------------------------------------------------- registering

/// Servers under one base path. All of them share a lease, so that they leave together when the process dies.
#[derive(Debug)]
pub struct EtcdRegistrar {
    etcd: Etcd,
    tree: Tree,
    held: Mutex<Option<LeaseConnection>>,
}

/// Connection, and the lease that it keeps alive.
struct LeaseConnection {
    api: Api,
    lease: KeepAlive,
}

impl Registrar for EtcdRegistrar {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        self.enter(entry).map(|done| Ok(done?)).boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        self.leave(entry).map(|done| Ok(done?)).boxed()
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        self.look(entry).map(|found| Ok(found?)).boxed()
    }
}

impl EtcdRegistrar {
    async fn enter(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut place = self.held.lock().await;
        // After a failure, the next attempt uses a new connection.
        let mut held = match place.take() {
            Some(mut held) => match held.lease.renew().await? {
                true => held,
                false => LeaseConnection::new(held.api, entry.ttl).await?,
            },
            None => LeaseConnection::new(self.etcd.connect().await?, entry.ttl).await?,
        };
        held.put(&self.tree, entry).await?;
        *place = Some(held);
        Ok(())
    }

    async fn look(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let mut place = self.held.lock().await;
        let Some(held) = place.as_mut() else { return Ok(None) };
        let key = self.tree.instance(entry);
        let found = held.api.list(&key).await?;
        let mut pairs = found.kvs.into_iter().filter(|pair| pair.key[..] == *key.as_bytes());
        Ok(pairs.next().map(|pair| attributes(&pair.value)))
    }

    async fn leave(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut place = self.held.lock().await;
        let mut api = match place.as_ref() {
            Some(held) => held.api.clone(),
            None => self.etcd.connect().await?,
        };
        let left = api.delete(self.tree.instance(entry)).await;
        if left.is_err() {
            *place = None;
        }
        left
    }
}

impl LeaseConnection {
    async fn new(mut api: Api, ttl: Duration) -> Result<Self, Status> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).clamp(1, LONGEST_LEASE);
        let lease = api.grant(seconds).await?;
        Ok(Self { api, lease })
    }

    /// Writes only missing or changed keys: watchers are not notified of unchanged ones.
    async fn put(&mut self, tree: &Tree, entry: &Advertisement) -> Result<(), Status> {
        let (key, value) = (tree.instance(entry), entry.instance.attributes.to_string());
        let directory = tree.service(&entry.service);
        let lease = self.lease.id;
        let as_wanted = vec![
            compare(&key, CompareResult::EQUAL, TargetUnion::Value(value.clone().into())),
            compare(&key, CompareResult::EQUAL, TargetUnion::Lease(lease)),
            // It may have expired with the lease of another server, which wrote it last.
            compare(&directory, CompareResult::GREATER, TargetUnion::Version(0)),
        ];
        let mut puts = vec![put(&directory, &entry.service, lease), put(&key, &value, lease)];
        if !tree.base().is_empty() {
            puts.push(put(tree.base(), BASE_VALUE, lease));
        }
        self.api.transact(TxnRequest { compare: as_wanted, success: Vec::new(), failure: puts }).await
    }
}

fn compare(key: &str, result: CompareResult, with: TargetUnion) -> Compare {
    let target = match with {
        TargetUnion::Version(_) => CompareTarget::VERSION,
        TargetUnion::Value(_) => CompareTarget::VALUE,
        TargetUnion::Lease(_) => CompareTarget::LEASE,
    };
    let key = key.to_owned().into();
    Compare { result: result.into(), target: target.into(), key, target_union: Some(with) }
}

fn put(key: &str, value: &str, lease: i64) -> RequestOp {
    let put = PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), lease };
    RequestOp { request: put.into() }
}

impl fmt::Debug for LeaseConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseConnection").field("lease", &self.lease.id).finish_non_exhaustive()
    }
}

pub(crate) const PARAMETERS: [&str; 3] = ["password", "slash", "user"];

/// In seconds; etcd's maximum (`lease.maxLeaseTTL`).
const LONGEST_LEASE: i64 = 9_000_000_000;

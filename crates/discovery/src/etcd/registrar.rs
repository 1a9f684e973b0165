//! Registers servers: writes their keys with a lease, and renews it.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Registrar};
use tokio::sync::Mutex;

use super::Etcd;
use super::api::{Api, KeepAlive};
use super::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::etcdserverpb::{Compare, PutRequest, RequestOp, TxnRequest};
use crate::rpcx_tree::{BASE_VALUE, Tree, attributes};

/// Servers under one base path. All of them share a lease, so that they expire together when the process dies.
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
        self.register(entry).map(|done| Ok(done?)).boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        self.deregister(entry).map(|done| Ok(done?)).boxed()
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        self.look_up(entry).map(|found| Ok(found?)).boxed()
    }
}

impl EtcdRegistrar {
    pub(super) fn new(etcd: Etcd, base: &str) -> Self {
        Self { etcd, tree: Tree::new(base), held: Mutex::default() }
    }

    async fn register(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut guard = self.held.lock().await;
        // After a failure, the next attempt uses a new connection.
        let mut held = match guard.take() {
            Some(mut held) => match held.lease.renew().await? {
                true => held,
                false => LeaseConnection::new(held.api, entry.ttl).await?,
            },
            None => LeaseConnection::new(self.etcd.connect().await?, entry.ttl).await?,
        };
        held.put(&self.tree, entry).await?;
        *guard = Some(held);
        Ok(())
    }

    async fn look_up(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let mut guard = self.held.lock().await;
        let Some(held) = guard.as_mut() else { return Ok(None) };
        let key = self.tree.instance(entry);
        let found = held.api.list(&key).await?;
        let mut pairs = found.kvs.into_iter().filter(|pair| pair.key[..] == *key.as_bytes());
        Ok(pairs.next().map(|pair| attributes(&pair.value)))
    }

    async fn deregister(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut guard = self.held.lock().await;
        let mut api = match guard.as_ref() {
            Some(held) => held.api.clone(),
            None => self.etcd.connect().await?,
        };
        let left = api.delete(self.tree.instance(entry)).await;
        if left.is_err() {
            *guard = None;
        }
        left
    }
}

impl LeaseConnection {
    async fn new(mut api: Api, ttl: Duration) -> Result<Self, Status> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).clamp(1, MAX_LEASE_SECONDS);
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

/// In seconds; etcd's maximum (`lease.maxLeaseTTL`).
const MAX_LEASE_SECONDS: i64 = 9_000_000_000;

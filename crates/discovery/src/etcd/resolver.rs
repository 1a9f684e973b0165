//! Finds the instances of a service: lists its keys, watches their prefix, and lists them again after each change.

use futures_util::FutureExt;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Instance, InstanceStream};
use polyrpc::{Status, Streaming};

use super::Etcd;
use super::api::{Api, failed};
use super::proto::etcdserverpb::WatchResponse;
use crate::rpcx_tree::{FoundInstances, Tree};
use crate::watch::{self, WatchSource};

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
                wait_for_change(&mut watching.changes).await?;
                let (found, _) = self.of.list(&mut watching.api).await?;
                (watching, found)
            }
        };
        self.watching = Some(watching);
        found.finish(&mut self.warning)
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl EtcdService {
    pub(super) fn new(etcd: Etcd, base: &str, service: &str) -> Self {
        let base = base.trim_matches('/');
        let trees = [Tree::new(format!("/{base}")), Tree::new(base)];
        Self { etcd, prefixes: trees.map(|tree| tree.prefix(service)) }
    }

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
                found.add(name, &pair.value);
            }
        }
        Ok((found, revision.unwrap_or_default()))
    }
}

/// Waits for a change, and consumes further ones that have arrived: a single list covers all of them.
async fn wait_for_change(changes: &mut Streaming<WatchResponse>) -> Result<(), Status> {
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

//! Finds the instances of a service: reads the nodes below it, watches them, and reads those that change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Instance, InstanceStream};
use zookeeper_client::{AddWatchMode, Client, Error, EventType, PersistentWatcher, SessionState};

use super::{Failure, ZooKeeper, failed, with_timeout};
use crate::rpcx_tree::FoundInstances;
use crate::watch::{self, WatchSource};

/// Instances of one service.
#[derive(Debug, Clone)]
pub struct ZooKeeperService {
    ensemble: ZooKeeper,
    path: String,
}

impl Discover for ZooKeeperService {
    fn watch(&self) -> InstanceStream {
        watch::sets(ZooKeeperWatchSource { of: self.clone(), watching: None, warning: None })
    }
}

struct ZooKeeperWatchSource {
    of: ZooKeeperService,
    watching: Option<ZooKeeperWatch>,
    warning: Option<Status>,
}

/// Session that is notified of every change below the service, including changed attributes.
struct ZooKeeperWatch {
    client: Client,
    changes: PersistentWatcher,
    /// Data of the nodes, by name.
    nodes: BTreeMap<String, Vec<u8>>,
}

impl WatchSource for ZooKeeperWatchSource {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        // After a failure, the next poll uses a new session.
        let watching = match self.watching.take() {
            None => self.of.begin().await?,
            Some(mut watching) => {
                watching.change(&self.of.path).await?;
                watching
            }
        };
        let watching = self.watching.insert(watching);
        let mut found = FoundInstances::default();
        watching.nodes.iter().for_each(|(name, data)| found.add(name.as_bytes(), data));
        found.finish(&mut self.warning)
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl ZooKeeperService {
    pub(super) fn new(ensemble: ZooKeeper, path: String) -> Self {
        Self { ensemble, path }
    }

    async fn begin(&self) -> Result<ZooKeeperWatch, Status> {
        let client = self.ensemble.connect(SESSION_TIMEOUT).await?;
        // The watch is set first: a change while the nodes are read is reported afterwards.
        let changes = with_timeout(client.watch(&self.path, AddWatchMode::PersistentRecursive)).await?;
        let mut watching = ZooKeeperWatch { client, changes, nodes: BTreeMap::new() };
        watching.read_all(&self.path).await?;
        Ok(watching)
    }
}

impl ZooKeeperWatch {
    async fn read_all(&mut self, path: &str) -> Result<(), Status> {
        let names = match with_timeout(self.client.list_children(path)).await {
            Ok(names) => names,
            // No server has registered the service yet.
            Err(Failure::Zoo(Error::NoNode)) => Vec::new(),
            Err(failure) => return Err(failure.into()),
        };
        self.nodes.clear();
        self.read(path, names).await
    }

    /// Reads the current data of these nodes.
    async fn read(&mut self, path: &str, names: impl IntoIterator<Item = String>) -> Result<(), Status> {
        let client = &self.client;
        let reads = stream::iter(names).map(|name| async move {
            let data = read(client, &format!("{path}/{name}")).await?;
            Ok::<_, Status>((name, data))
        });
        let mut reads = reads.buffer_unordered(MAX_CONCURRENT_READS);
        while let Some(node) = reads.next().await {
            match node? {
                (name, Some(data)) => self.nodes.insert(name, data),
                (name, None) => self.nodes.remove(&name),
            };
        }
        Ok(())
    }

    /// Waits until nodes are created, deleted or changed, and reads all that were reported.
    async fn change(&mut self, path: &str) -> Result<(), Status> {
        let mut changed = BTreeSet::new();
        let mut event = self.changes.changed().await;
        loop {
            if event.event_type == EventType::Session {
                // ZooKeeper does not report what changed while there was no connection.
                return match event.session_state {
                    SessionState::SyncConnected => self.read_all(path).await,
                    other => Err(failed(format!("the session is {other}"))),
                };
            }
            let name = event.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
            // Nodes below an instance do not matter.
            changed.extend(name.filter(|name| !name.contains('/')).map(str::to_owned));
            match self.changes.changed().now_or_never() {
                Some(next) => event = next,
                None => return self.read(path, changed).await,
            }
        }
    }
}

/// Returns the data of a node; `None` if it does not exist.
async fn read(client: &Client, path: &str) -> Result<Option<Vec<u8>>, Status> {
    match with_timeout(client.get_data(path)).await {
        Ok((data, _)) => Ok(Some(data)),
        Err(Failure::Zoo(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// Timeout of a session that only reads, without a connection.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of nodes that are read concurrently.
const MAX_CONCURRENT_READS: usize = 64;

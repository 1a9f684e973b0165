//! Registers servers: creates ephemeral nodes, which ZooKeeper deletes when their session ends.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Registrar};
use tokio::sync::Mutex;
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, SessionState};

use super::{Failure, ZooKeeper, failed, with_timeout};
use crate::rpcx_tree::{BASE_VALUE, Tree, attributes};

/// Servers under one base path. All of them belong to one session, so that they expire together when the process dies.
#[derive(Debug)]
pub struct ZooKeeperRegistrar {
    ensemble: ZooKeeper,
    tree: Tree,
    client: Mutex<Option<Client>>,
}

impl Registrar for ZooKeeperRegistrar {
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

impl ZooKeeperRegistrar {
    pub(super) fn new(ensemble: ZooKeeper, tree: Tree) -> Self {
        Self { ensemble, tree, client: Mutex::default() }
    }

    async fn register(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut guard = self.client.lock().await;
        let client = self.session(&mut guard, entry.ttl).await?;
        self.write(client, entry).await
    }

    /// Returns the current session as long as it lasts: all entries end with it, so a failure to write one of them must
    /// not end it.
    async fn session<'p>(
        &self,
        current: &'p mut Option<Client>,
        ttl: Duration,
    ) -> Result<&'p Client, Status> {
        let lasts = match &*current {
            Some(client) => is_connected(client).await,
            None => false,
        };
        if !lasts {
            // The previous session is dropped only now: without an answer it might still come back.
            *current = Some(self.ensemble.connect(ttl).await?);
        }
        current.as_ref().ok_or_else(|| failed("there is no session"))
    }

    async fn write(&self, client: &Client, entry: &Advertisement) -> Result<(), Status> {
        let path = self.tree.instance(entry);
        let value = entry.instance.attributes.to_string();
        if let Some((data, owner)) = self.owner(client, &path).await? {
            if owner == client.session_id().0 {
                if data != value.as_bytes() {
                    with_timeout(client.set_data(&path, value.as_bytes(), None)).await?;
                }
                return Ok(());
            }
            // A present owner is an earlier process: an address has one server, so that process is gone.
            ignore_missing(with_timeout(client.delete(&path, None)).await)?;
        }
        self.make_directories(client, &entry.service).await?;
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        with_timeout(client.create(&path, value.as_bytes(), &ephemeral)).await?;
        Ok(())
    }

    async fn owner(&self, client: &Client, path: &str) -> Result<Option<(Vec<u8>, i64)>, Status> {
        match with_timeout(client.get_data(path)).await {
            Ok((data, stat)) => Ok(Some((data, stat.ephemeral_owner))),
            Err(Failure::Zoo(Error::NoNode)) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Creates the directories step by step, as rpcx does; the last two have values.
    async fn make_directories(&self, client: &Client, service: &str) -> Result<(), Status> {
        let (base, service_path) = (self.tree.base(), self.tree.service(service));
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for (end, _) in service_path.match_indices('/').skip(1).chain([(service_path.len(), "")]) {
            let Some(path) = service_path.get(..end) else { continue };
            let value = match path {
                _ if path == base => BASE_VALUE,
                _ if path == service_path => service,
                _ => "",
            };
            match with_timeout(client.create(path, value.as_bytes(), &persistent)).await {
                Ok(_) | Err(Failure::Zoo(Error::NodeExists)) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }

    async fn look_up(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let mut guard = self.client.lock().await;
        let client = self.session(&mut guard, entry.ttl).await?;
        let found = self.owner(client, &self.tree.instance(entry)).await?;
        Ok(found.map(|(data, _)| attributes(&data)))
    }

    async fn deregister(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut guard = self.client.lock().await;
        let client = self.session(&mut guard, entry.ttl).await?;
        ignore_missing(with_timeout(client.delete(&self.tree.instance(entry), None)).await)
    }
}

/// Whether the session has a connection or gets one again. A server that has lost its data rejects a session that has
/// seen a later state than it knows (`ZooKeeperServer.processConnectRequest`), without a reply: it accepts a new one.
async fn is_connected(client: &Client) -> bool {
    let mut changes = client.state_watcher();
    let settled = async {
        let mut state = client.state();
        while state == SessionState::Disconnected {
            state = changes.changed().await;
        }
        !state.is_terminated()
    };
    timeout(RECONNECT_TIMEOUT, settled).await.unwrap_or(false)
}

fn ignore_missing(done: Result<(), Failure>) -> Result<(), Status> {
    match done {
        Ok(()) | Err(Failure::Zoo(Error::NoNode)) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

/// Time that a session may take to reconnect: its client tries more than once a second.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(1500);

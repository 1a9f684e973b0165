//! [ZooKeeper](https://zookeeper.apache.org): rpcx's nodes (rpcx-zookeeper `serverplugin/zookeeper.go`).
//!
//! URL syntax, after `zookeeper://`: `host:port,host:port/rpcx_test/Arith` for discovery, without the service for
//! registration. ZooKeeper must be 3.6 or later, for recursive watches.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Discover, Instance, InstanceStream, Registrar};
use tokio::sync::Mutex;
use tokio::time::timeout;
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, Error, EventType, PersistentWatcher, SessionState,
};

use crate::rpcx_tree::{BASE_VALUE, FoundInstances, Tree, attributes, split};
use crate::url_parts::UrlParts;
use crate::watch::{self, WatchSource};

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
        let path = rooted(base).service(service);
        ZooKeeperService { ensemble: self.clone(), path }
    }

    /// Registers servers under rpcx's base path.
    pub fn registrar(&self, base: &str) -> ZooKeeperRegistrar {
        ZooKeeperRegistrar { ensemble: self.clone(), tree: rooted(base), client: Mutex::default() }
    }

    async fn connect(&self, session: Duration) -> Result<Client, Status> {
        let connector = Client::connector()
            .with_session_timeout(session)
            .with_connection_timeout(ANSWER)
            .with_fail_eagerly();
        Ok(with_timeout(connector.connect(&self.cluster)).await?)
    }
}

/// ZooKeeper's paths start at its root.
fn rooted(base: &str) -> Tree {
    Tree::new(format!("/{}", base.trim_matches('/')))
}

/// Opens the discovery of a service for the rest of a `zookeeper://` URL.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let place = UrlParts::parse(place)?;
    let (base, service) = split(&place)?;
    Ok(Box::new(open(&place)?.service(&base, &service)))
}

/// Opens the registry for the rest of a `zookeeper://` URL.
pub(crate) fn registrar(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let place = UrlParts::parse(place)?;
    Ok(Box::new(open(&place)?.registrar(&place.path.join("/"))))
}

fn open(place: &UrlParts) -> Result<ZooKeeper, Status> {
    place.only(&[])?;
    match place.hosts.is_empty() {
        true => Err(Status::invalid_argument("where is ZooKeeper? want zookeeper://host:port")),
        false => Ok(ZooKeeper::new(place.hosts.clone())),
    }
}

// ---------------------------------------------------------------------- finding

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
        watching.nodes.iter().for_each(|(name, data)| found.note(name.as_bytes(), data));
        found.end(&mut self.warning)
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl ZooKeeperService {
    async fn begin(&self) -> Result<ZooKeeperWatch, Status> {
        let client = self.ensemble.connect(SESSION).await?;
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
        let mut reads = reads.buffer_unordered(AT_ONCE);
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

// ---------------------------------------------------------------------- registering

/// Servers under one base path. All of them belong to a session, so that they leave together when the process dies.
#[derive(Debug)]
pub struct ZooKeeperRegistrar {
    ensemble: ZooKeeper,
    tree: Tree,
    client: Mutex<Option<Client>>,
}

impl Registrar for ZooKeeperRegistrar {
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

impl ZooKeeperRegistrar {
    async fn enter(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut place = self.client.lock().await;
        let client = self.session(&mut place, entry.ttl).await?;
        self.write(client, entry).await
    }

    /// Returns the current session as long as it lasts: all entries end with it, so a failure to write one of them must
    /// not end it.
    async fn session<'p>(&self, place: &'p mut Option<Client>, ttl: Duration) -> Result<&'p Client, Status> {
        let lasts = match &*place {
            Some(client) => is_connected(client).await,
            None => false,
        };
        if !lasts {
            // The previous session is dropped only now: without an answer it might still come back.
            *place = Some(self.ensemble.connect(ttl).await?);
        }
        place.as_ref().ok_or_else(|| failed("there is no session"))
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

    async fn look(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let mut place = self.client.lock().await;
        let client = self.session(&mut place, entry.ttl).await?;
        let found = self.owner(client, &self.tree.instance(entry)).await?;
        Ok(found.map(|(data, _)| attributes(&data)))
    }

    async fn leave(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut place = self.client.lock().await;
        let client = self.session(&mut place, entry.ttl).await?;
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
    timeout(RECONNECTING, settled).await.unwrap_or(false)
}

fn ignore_missing(done: Result<(), Failure>) -> Result<(), Status> {
    match done {
        Ok(()) | Err(Failure::Zoo(Error::NoNode)) => Ok(()),
        Err(failure) => Err(failure.into()),
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
    match timeout(ANSWER, request).await {
        Ok(answer) => answer.map_err(Failure::Zoo),
        Err(_) => Err(Failure::Silence),
    }
}

#[cold]
fn failed(why: impl fmt::Display) -> Status {
    Status::unavailable(format!("ZooKeeper: {why}"))
}

/// Timeout of an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Time that a session may take to reconnect: its client tries more than once a second.
const RECONNECTING: Duration = Duration::from_millis(1500);
/// Timeout of a session that only reads, without a connection.
const SESSION: Duration = Duration::from_secs(10);
/// Number of nodes that are read concurrently.
const AT_ONCE: usize = 64;

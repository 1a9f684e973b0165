//! [ZooKeeper](https://zookeeper.apache.org): rpcx's nodes (rpcx-zookeeper `serverplugin/zookeeper.go`).
//!
//! As a URL, behind `zookeeper://`: `host:port,host:port/rpcx_test/Arith` to find a service, without the service to
//! register servers. It must be 3.6 or later, which tells of everything below a node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Discover, Instance, Registrar, Sets};
use tokio::sync::Mutex;
use tokio::time::timeout;
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, Error, EventType, PersistentWatcher, SessionState,
};

use crate::registry_url::RegistryUrl;
use crate::tree::{BASE_VALUE, FoundInstances, Tree, attributes, split};
use crate::watch::{self, WatchSource};

/// An ensemble of ZooKeeper.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    cluster: String,
}

impl ZooKeeper {
    /// Of servers at `host:port`, with commas between several.
    pub fn new(servers: impl Into<String>) -> Self {
        Self { cluster: servers.into() }
    }

    /// Finds the instances of a service under rpcx's base path.
    pub fn service(&self, base: &str, service: &str) -> ZooKeeperService {
        let path = rooted(base).service(service);
        ZooKeeperService { ensemble: self.clone(), path }
    }

    /// Registers servers under rpcx's base path.
    pub fn register(&self, base: &str) -> ZooKeeperRegister {
        ZooKeeperRegister { ensemble: self.clone(), tree: rooted(base), client: Mutex::default() }
    }

    async fn connect(&self, session: Duration) -> Result<Client, Status> {
        let connector = Client::connector()
            .with_session_timeout(session)
            .with_connection_timeout(ANSWER)
            .with_fail_eagerly();
        Ok(within(connector.connect(&self.cluster)).await?)
    }
}

/// Paths of ZooKeeper begin at its root.
fn rooted(base: &str) -> Tree {
    Tree::new(format!("/{}", base.trim_matches('/')))
}

/// Opens what stands behind `zookeeper://`, to find a service.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let place = RegistryUrl::parse(place)?;
    let (base, service) = split(&place)?;
    Ok(Box::new(open(&place)?.service(&base, &service)))
}

/// Opens what stands behind `zookeeper://`, to make servers known.
pub(crate) fn register(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let place = RegistryUrl::parse(place)?;
    Ok(Box::new(open(&place)?.register(&place.path.join("/"))))
}

fn open(place: &RegistryUrl) -> Result<ZooKeeper, Status> {
    place.only(&[])?;
    match place.hosts.is_empty() {
        true => Err(Status::invalid_argument("where is ZooKeeper? want zookeeper://host:port")),
        false => Ok(ZooKeeper::new(place.hosts.clone())),
    }
}

// ---------------------------------------------------------------------- finding

/// The instances of one service.
#[derive(Debug, Clone)]
pub struct ZooKeeperService {
    ensemble: ZooKeeper,
    path: String,
}

impl Discover for ZooKeeperService {
    fn watch(&self) -> Sets {
        watch::sets(ZooKeeperWatchSource { of: self.clone(), watching: None, complaint: None })
    }
}

struct ZooKeeperWatchSource {
    of: ZooKeeperService,
    watching: Option<ZooKeeperWatch>,
    complaint: Option<Status>,
}

/// A session that is told of every change below the service, of what is said about an instance too.
struct ZooKeeperWatch {
    client: Client,
    changes: PersistentWatcher,
    /// What lies in the nodes, by their names.
    nodes: BTreeMap<String, Vec<u8>>,
}

impl WatchSource for ZooKeeperWatchSource {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        // Whatever goes wrong, the next question is asked in a session of its own.
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
        found.end(&mut self.complaint)
    }

    fn complaint(&mut self) -> Option<Status> {
        self.complaint.take()
    }
}

impl ZooKeeperService {
    async fn begin(&self) -> Result<ZooKeeperWatch, Status> {
        let client = self.ensemble.connect(SESSION).await?;
        // The watch comes first: what changes while the nodes are read is told afterwards.
        let changes = within(client.watch(&self.path, AddWatchMode::PersistentRecursive)).await?;
        let mut watching = ZooKeeperWatch { client, changes, nodes: BTreeMap::new() };
        watching.read_all(&self.path).await?;
        Ok(watching)
    }
}

impl ZooKeeperWatch {
    async fn read_all(&mut self, path: &str) -> Result<(), Status> {
        let names = match within(self.client.list_children(path)).await {
            Ok(names) => names,
            // No server has registered the service yet.
            Err(Failure::Zoo(Error::NoNode)) => Vec::new(),
            Err(failure) => return Err(failure.into()),
        };
        self.nodes.clear();
        self.read(path, names).await
    }

    /// Reads what lies in these nodes now.
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

    /// Waits until nodes have come, gone or changed, and reads all of which that has been told.
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
            // What lies below an instance is none of ours.
            changed.extend(name.filter(|name| !name.contains('/')).map(str::to_owned));
            match self.changes.changed().now_or_never() {
                Some(next) => event = next,
                None => return self.read(path, changed).await,
            }
        }
    }
}

/// What lies in a node; `None` if it is not there.
async fn read(client: &Client, path: &str) -> Result<Option<Vec<u8>>, Status> {
    match within(client.get_data(path)).await {
        Ok((data, _)) => Ok(Some(data)),
        Err(Failure::Zoo(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

// ---------------------------------------------------------------------- registering

/// Servers under one base path. All of them belong to a session, so that they leave together when the process dies.
#[derive(Debug)]
pub struct ZooKeeperRegister {
    ensemble: ZooKeeper,
    tree: Tree,
    client: Mutex<Option<Client>>,
}

impl Registrar for ZooKeeperRegister {
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
        self.look(entry).map(|said| Ok(said?)).boxed()
    }
}

impl ZooKeeperRegister {
    async fn enter(&self, entry: &Advertisement) -> Result<(), Status> {
        let mut place = self.client.lock().await;
        let client = self.session(&mut place, entry.ttl).await?;
        self.write(client, entry).await
    }

    /// The session there is, as long as it lasts: with it all entries end, so that no failure to write one of them may
    /// end it.
    async fn session<'p>(&self, place: &'p mut Option<Client>, ttl: Duration) -> Result<&'p Client, Status> {
        let lasts = match &*place {
            Some(client) => is_connected(client).await,
            None => false,
        };
        if !lasts {
            // Only now the previous session is dropped: without an answer it might still come back.
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
                    within(client.set_data(&path, value.as_bytes(), None)).await?;
                }
                return Ok(());
            }
            // Whoever owns it was here before us: an address has one server, so that is nobody any more.
            ignore_missing(within(client.delete(&path, None)).await)?;
        }
        self.make_directories(client, &entry.service).await?;
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        within(client.create(&path, value.as_bytes(), &ephemeral)).await?;
        Ok(())
    }

    async fn owner(&self, client: &Client, path: &str) -> Result<Option<(Vec<u8>, i64)>, Status> {
        match within(client.get_data(path)).await {
            Ok((data, stat)) => Ok(Some((data, stat.ephemeral_owner))),
            Err(Failure::Zoo(Error::NoNode)) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Step by step, as rpcx does; the last two have values.
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
            match within(client.create(path, value.as_bytes(), &persistent)).await {
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
        ignore_missing(within(client.delete(&self.tree.instance(entry), None)).await)
    }
}

/// Whether the session has a connection or gets one again. A server that has lost its data takes no session that has seen
/// more than it knows (`ZooKeeperServer.processConnectRequest`), and says nothing: a new one is let in.
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

/// Why there is no answer.
enum Failure {
    Zoo(Error),
    Silence,
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Zoo(error) => failed(error),
            Failure::Silence => failed("it does not answer"),
        }
    }
}

/// An answer, if it comes in time.
async fn within<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    match timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(Failure::Zoo),
        Err(_) => Err(Failure::Silence),
    }
}

#[cold]
fn failed(why: impl fmt::Display) -> Status {
    Status::unavailable(format!("ZooKeeper: {why}"))
}

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a session may take to find a connection again: its client tries more than once a second.
const RECONNECTING: Duration = Duration::from_millis(1500);
/// How long a session that only reads lasts without a connection.
const SESSION: Duration = Duration::from_secs(10);
/// How many nodes are read at once.
const AT_ONCE: usize = 64;

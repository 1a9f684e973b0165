//! [Redis](https://redis.io): rpcx's keys, as its store in Go writes them (rpcxio/libkv `store/redis`).
//!
//! As a URL, behind `redis://`: `:password@host:port/rpcx_test/Arith` to find a service, without the service to register
//! servers. That store puts a slash before every key, so that of `/rpcx_test` becomes `//rpcx_test`, as in rpcx's
//! examples; where servers were given a base path without one, `?slash=false` says so. To find a service both are
//! looked for.
//!
//! Settings: `db` (the number of the database), `slash`.
//!
//! Redis tells of changes where `notify-keyspace-events` lets it; this asks for that, and looks every five seconds
//! where it is refused.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Discover, Instance, Registrar, Sets, redacted};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, RedisError, cmd, pipe};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::registry_url::RegistryUrl;
use crate::tree::{BASE_VALUE, FoundInstances, Tree, attributes, split};
use crate::watch::{self, WatchSource};

/// A server of Redis, and how it is asked.
#[derive(Clone)]
pub struct Redis {
    client: Client,
}

impl Redis {
    /// At `redis://:password@host:port/db`, or what else the crate `redis` takes for a URL.
    ///
    /// # Errors
    ///
    /// When the URL is none. Nothing is connected yet.
    pub fn new(url: &str) -> Result<Self> {
        let wrong = |error: RedisError| {
            Status::invalid_argument(format!("`{}` is no URL of Redis: {error}", redacted(url)))
        };
        Ok(Self { client: Client::open(url).map_err(wrong)? })
    }

    /// Finds the instances of a service under rpcx's base path. Whether that begins with a slash makes no difference.
    pub fn service(&self, base: &str, service: &str) -> RedisService {
        let base = base.trim_matches('/');
        let trees = [Tree::new(format!("/{base}")), Tree::new(base)];
        RedisService { redis: self.clone(), prefixes: trees.map(|tree| key(&tree.prefix(service))) }
    }

    /// Registers servers under rpcx's base path, which is written as it stands.
    pub fn register(&self, base: &str) -> RedisRegister {
        RedisRegister { redis: self.clone(), tree: Tree::new(base), connection: Mutex::default() }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Status> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        within(self.client.get_multiplexed_async_connection_with_config(&config)).await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest of what is known of the connection has the password.
        f.debug_struct("Redis")
            .field("address", &self.client.get_connection_info().addr().to_string())
            .finish_non_exhaustive()
    }
}

/// Opens what stands behind `redis://`, to find a service.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let place = RegistryUrl::parse(place)?;
    let (base, service) = split(&place)?;
    Ok(Box::new(open(&place)?.service(&base, &service)))
}

/// Opens what stands behind `redis://`, to make servers known.
pub(crate) fn register(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let place = RegistryUrl::parse(place)?;
    let slash = if place.settings.value("slash") == Some("false") { "" } else { "/" };
    Ok(Box::new(open(&place)?.register(&format!("{slash}{}", place.path.join("/")))))
}

fn open(place: &RegistryUrl) -> Result<Redis, Status> {
    place.only(&["db", "slash"])?;
    let db = place.settings.value("db").unwrap_or("0");
    Redis::new(&format!("redis://{}/{db}", place.hosts)).map_err(polyrpc::Error::into_status)
}

/// The store's own slash stands before every path, whatever that begins with.
fn key(path: &str) -> String {
    format!("/{path}")
}

/// What the store keeps under a key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredEntry {
    key: String,
    /// In base64.
    value: String,
    /// The nanoseconds of the second in which it was written.
    last_index: u64,
}

impl StoredEntry {
    fn json(path: &str, value: &str) -> Result<String, Status> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last_index = since.subsec_nanos().into();
        let kept = Self { key: path.to_owned(), value: STANDARD.encode(value), last_index };
        serde_json::to_string(&kept).map_err(|error| Status::internal(error.to_string()))
    }

    fn read(json: &[u8]) -> Option<Vec<u8>> {
        let kept: Self = serde_json::from_slice(json).ok()?;
        STANDARD.decode(kept.value).ok()
    }
}

// ---------------------------------------------------------------------- finding

/// The instances of one service.
#[derive(Debug, Clone)]
pub struct RedisService {
    redis: Redis,
    /// Of the keys whose base path begins with a slash, and of those whose does not.
    prefixes: [String; 2],
}

impl Discover for RedisService {
    fn watch(&self) -> Sets {
        watch::sets(RedisWatchSource { of: self.clone(), watching: None, complaint: None })
    }
}

struct RedisWatchSource {
    of: RedisService,
    watching: Option<RedisWatch>,
    complaint: Option<Status>,
}

/// A connection by which Redis is asked, and one on which changes are told.
struct RedisWatch {
    connection: MultiplexedConnection,
    changes: PubSub,
}

impl WatchSource for RedisWatchSource {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        // Whatever goes wrong, the next question is asked on connections of its own.
        let mut watching = match self.watching.take() {
            None => self.of.begin().await?,
            Some(mut watching) => {
                watching.changed().await?;
                watching
            }
        };
        let found = self.of.list(&mut watching.connection).await?;
        self.watching = Some(watching);
        found.end(&mut self.complaint)
    }

    fn complaint(&mut self) -> Option<Status> {
        self.complaint.take()
    }
}

impl RedisService {
    async fn begin(&self) -> Result<RedisWatch, Status> {
        let mut connection = self.redis.connect().await?;
        // Where this is forbidden, it is looked for changes now and then.
        let notify = ["SET", "notify-keyspace-events", "KEA"];
        let _ = within(cmd("CONFIG").arg(&notify).query_async::<()>(&mut connection)).await;
        let mut changes = within(self.redis.client.get_async_pubsub()).await?;
        for prefix in &self.prefixes {
            within(changes.psubscribe(format!("__keyspace@*__:{}*", literal(prefix)))).await?;
        }
        Ok(RedisWatch { connection, changes })
    }

    async fn list(&self, connection: &mut MultiplexedConnection) -> Result<FoundInstances, Status> {
        let mut found = FoundInstances::default();
        for prefix in &self.prefixes {
            let keys = scan(connection, prefix).await?;
            if keys.is_empty() {
                continue;
            }
            let values: Vec<Option<Vec<u8>>> = within(cmd("MGET").arg(&keys).query_async(connection)).await?;
            for (key, value) in keys.iter().zip(values) {
                let name = key.get(prefix.len()..).unwrap_or_default();
                // It may have expired since it was listed.
                let Some(value) = value else { continue };
                found.note(name, &StoredEntry::read(&value).unwrap_or_else(unreadable));
            }
        }
        Ok(found)
    }
}

/// What stands for a value that the store has not written: no text, so that it is told of.
fn unreadable() -> Vec<u8> {
    vec![0xff]
}

/// Every key with this prefix, once.
async fn scan(connection: &mut MultiplexedConnection, prefix: &str) -> Result<Vec<Vec<u8>>, Status> {
    let (pattern, mut cursor, mut keys) = (format!("{}*", literal(prefix)), 0_u64, Vec::new());
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
        let (next, some): (u64, Vec<Vec<u8>>) = within(scan.query_async(connection)).await?;
        keys.extend(some);
        if next == 0 || keys.len() >= MOST_KEYS {
            break;
        }
        cursor = next;
    }
    // Redis may tell of a key more than once.
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// A text within a pattern that matches nothing else.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            literal.push('\\');
        }
        literal.push(character);
    }
    literal
}

impl RedisWatch {
    /// Waits for a change, or until it is time to look without being told: keys expire late, and Redis may be set up to
    /// tell of nothing. What else has been told is taken with it: one list answers all of it.
    async fn changed(&mut self) -> Result<(), Status> {
        let mut changes = self.changes.on_message();
        let Ok(mut told) = timeout(LOOK, changes.next()).await else {
            return Ok(());
        };
        while told.is_some() {
            match changes.next().now_or_never() {
                Some(next) => told = next,
                None => return Ok(()),
            }
        }
        Err(failed("the connection is closed"))
    }
}

// ---------------------------------------------------------------------- registering

/// Servers under one base path. A key expires when it is not written again.
#[derive(Debug)]
pub struct RedisRegister {
    redis: Redis,
    tree: Tree,
    connection: Mutex<Option<Connection>>,
}

struct Connection(MultiplexedConnection);

impl Registrar for RedisRegister {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        self.enter(entry).map(|done| Ok(done?)).boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        let path = self.tree.instance(entry);
        async move {
            let mut delete = pipe();
            delete.del(key(&path)).ignore();
            Ok(self.ask::<()>(&delete).await?)
        }
        .boxed()
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        let path = self.tree.instance(entry);
        async move {
            let mut get = pipe();
            get.get(key(&path));
            let (found,): (Option<Vec<u8>>,) = self.ask(&get).await?;
            Ok(found.and_then(|json| StoredEntry::read(&json)).map(|value| attributes(&value)))
        }
        .boxed()
    }
}

impl RedisRegister {
    async fn enter(&self, entry: &Advertisement) -> Result<(), Status> {
        let directory = self.tree.service(&entry.service);
        let mut write = pipe();
        // Not over what is there: rpcx's clients would be told of a change.
        if !self.tree.base().is_empty() {
            write.set_nx(key(self.tree.base()), StoredEntry::json(self.tree.base(), BASE_VALUE)?).ignore();
        }
        write.set_nx(key(&directory), StoredEntry::json(&directory, &entry.service)?).ignore();
        let path = self.tree.instance(entry);
        let kept = StoredEntry::json(&path, &entry.instance.attributes.to_string())?;
        let millis = u64::try_from(entry.ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, LONGEST_EXPIRY);
        write.pset_ex(key(&path), kept, millis).ignore();
        self.ask(&write).await
    }

    async fn ask<T: redis::FromRedisValue>(&self, pipeline: &redis::Pipeline) -> Result<T, Status> {
        let mut place = self.connection.lock().await;
        // Whatever goes wrong, the next time begins with a connection of its own.
        let mut connection = match place.take() {
            Some(Connection(connection)) => connection,
            None => self.redis.connect().await?,
        };
        let answer = within(pipeline.query_async::<T>(&mut connection)).await?;
        *place = Some(Connection(connection));
        Ok(answer)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

/// An answer, if it comes in time.
async fn within<T>(asked: impl Future<Output = Result<T, RedisError>>) -> Result<T, Status> {
    match timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(failed("it does not answer")),
    }
}

#[cold]
fn failed(why: impl fmt::Display) -> Status {
    Status::unavailable(format!("Redis: {why}"))
}

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long to wait at most before the keys are looked at again.
const LOOK: Duration = Duration::from_secs(5);
/// In milliseconds: a century.
const LONGEST_EXPIRY: u64 = 100 * 366 * 24 * 3600 * 1000;
/// More instances than that no client can use.
const MOST_KEYS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_store_in_go() {
        let json = StoredEntry::json("/rpcx_test", "rpcx_path").unwrap();
        assert!(json.starts_with(r#"{"Key":"/rpcx_test","Value":"cnBjeF9wYXRo","LastIndex":"#), "{json}");
        assert_eq!(StoredEntry::read(json.as_bytes()).unwrap(), b"rpcx_path");
        for wrong in [&b""[..], b"{}", b"weight=1", br#"{"Key":"a","Value":"%","LastIndex":1}"#] {
            assert!(StoredEntry::read(wrong).is_none());
        }
    }

    #[test]
    fn a_name_is_no_pattern() {
        assert_eq!(literal("/a*[b]?\\c"), "/a\\*\\[b\\]\\?\\\\c");
    }

    #[test]
    fn a_url_names_password_and_database() {
        assert!(discover(":secret@127.0.0.1:6379/rpcx_test/Arith?db=3").is_ok());
        assert!(discover("127.0.0.1:6379").is_err());
        assert!(discover("127.0.0.1:6379/b/S?color=red").is_err());
        assert!(register("127.0.0.1:6379/rpcx_test").is_ok());
    }
}

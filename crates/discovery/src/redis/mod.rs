//! [Redis](https://redis.io): rpcx's keys, in the format of its Go store (rpcxio/libkv `store/redis`).
//!
//! URL syntax, after `redis://`: `:password@host:port/rpcx_test/Arith` for discovery, without the service for
//! registration. The Go store puts a slash before every key, so that `/rpcx_test` becomes `//rpcx_test`, as in rpcx's
//! examples; if servers use a base path without one, set `?slash=false`. Discovery looks for both.
//!
//! Parameters: `db` (the number of the database), `slash`.
//!
//! Redis notifies of changes if `notify-keyspace-events` allows it; this client requests that, and polls every five
//! seconds if it is refused.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{
    Advertisement, Attributes, Discover, Instance, InstanceStream, Registrar, redacted,
};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, RedisError, cmd, pipe};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::rpcx_tree::{BASE_VALUE, FoundInstances, Tree, attributes, split};
use crate::url_parts::UrlParts;
use crate::watch::{self, WatchSource};

/// Redis server.
#[derive(Clone)]
pub struct Redis {
    client: Client,
}

impl Redis {
    /// Uses the server at `redis://:password@host:port/db`, or any other URL of the crate `redis`.
    ///
    /// # Errors
    ///
    /// If the URL is invalid. No connection is made yet.
    pub fn new(url: &str) -> Result<Self> {
        let wrong = |error: RedisError| {
            Status::invalid_argument(format!("`{}` is not a Redis URL: {error}", redacted(url)))
        };
        Ok(Self { client: Client::open(url).map_err(wrong)? })
    }

    /// Discovers the instances of a service under rpcx's base path, with or without a leading slash.
    pub fn service(&self, base: &str, service: &str) -> RedisService {
        let base = base.trim_matches('/');
        let trees = [Tree::new(format!("/{base}")), Tree::new(base)];
        RedisService { redis: self.clone(), prefixes: trees.map(|tree| key(&tree.prefix(service))) }
    }

    /// Registers servers under rpcx's base path, which is used verbatim.
    pub fn registrar(&self, base: &str) -> RedisRegistrar {
        RedisRegistrar { redis: self.clone(), tree: Tree::new(base), connection: Mutex::default() }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Status> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        with_timeout(self.client.get_multiplexed_async_connection_with_config(&config)).await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest of the connection info contains the password.
        f.debug_struct("Redis")
            .field("address", &self.client.get_connection_info().addr().to_string())
            .finish_non_exhaustive()
    }
}

/// Opens the discovery of a service for the rest of a `redis://` URL.
pub(crate) fn discover(place: &str) -> Result<Box<dyn Discover>, Status> {
    let place = UrlParts::parse(place)?;
    let (base, service) = split(&place)?;
    Ok(Box::new(open(&place)?.service(&base, &service)))
}

/// Opens the registry for the rest of a `redis://` URL.
pub(crate) fn registrar(place: &str) -> Result<Box<dyn Registrar>, Status> {
    let place = UrlParts::parse(place)?;
    let slash = if place.settings.value("slash") == Some("false") { "" } else { "/" };
    Ok(Box::new(open(&place)?.registrar(&format!("{slash}{}", place.path.join("/")))))
}

fn open(place: &UrlParts) -> Result<Redis, Status> {
    place.only(&PARAMETERS)?;
    let db = place.settings.value("db").unwrap_or("0");
    Redis::new(&format!("redis://{}/{db}", place.hosts)).map_err(polyrpc::Error::into_status)
}

/// The store puts its own slash before every path.
fn key(path: &str) -> String {
    format!("/{path}")
}

/// Value that the store keeps under a key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredEntry {
    key: String,
    /// Base64.
    value: String,
    /// Nanoseconds of the second in which it was written.
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

/// Instances of one service.
#[derive(Debug, Clone)]
pub struct RedisService {
    redis: Redis,
    /// Prefixes of the keys whose base path has a leading slash, and of those without.
    prefixes: [String; 2],
}

impl Discover for RedisService {
    fn watch(&self) -> InstanceStream {
        watch::sets(RedisWatchSource { of: self.clone(), watching: None, warning: None })
    }
}

struct RedisWatchSource {
    of: RedisService,
    watching: Option<RedisWatch>,
    warning: Option<Status>,
}

/// Connection for requests, and a connection that receives changes.
struct RedisWatch {
    connection: MultiplexedConnection,
    changes: PubSub,
}

impl WatchSource for RedisWatchSource {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        // After a failure, the next poll uses new connections.
        let mut watching = match self.watching.take() {
            None => self.of.begin().await?,
            Some(mut watching) => {
                watching.changed().await?;
                watching
            }
        };
        let found = self.of.list(&mut watching.connection).await?;
        self.watching = Some(watching);
        found.end(&mut self.warning)
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl RedisService {
    async fn begin(&self) -> Result<RedisWatch, Status> {
        let mut connection = self.redis.connect().await?;
        // If this is forbidden, the keys are polled.
        let notify = ["SET", "notify-keyspace-events", "KEA"];
        let _ = with_timeout(cmd("CONFIG").arg(&notify).query_async::<()>(&mut connection)).await;
        let mut changes = with_timeout(self.redis.client.get_async_pubsub()).await?;
        for prefix in &self.prefixes {
            with_timeout(changes.psubscribe(format!("__keyspace@*__:{}*", literal(prefix)))).await?;
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
            let values: Vec<Option<Vec<u8>>> =
                with_timeout(cmd("MGET").arg(&keys).query_async(connection)).await?;
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

/// Placeholder for a value that the store has not written: not UTF-8, so that it is reported.
fn unreadable() -> Vec<u8> {
    vec![0xff]
}

/// Returns every key with this prefix, once.
async fn scan(connection: &mut MultiplexedConnection, prefix: &str) -> Result<Vec<Vec<u8>>, Status> {
    let (pattern, mut cursor, mut keys) = (format!("{}*", literal(prefix)), 0_u64, Vec::new());
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
        let (next, some): (u64, Vec<Vec<u8>>) = with_timeout(scan.query_async(connection)).await?;
        keys.extend(some);
        if next == 0 || keys.len() >= MAX_KEYS {
            break;
        }
        cursor = next;
    }
    // Redis may return a key more than once.
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Escapes a text, so that a pattern matches it literally.
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
    /// Waits for a change, or until the next poll: keys expire late, and Redis may be configured without notifications.
    /// Further notifications that have arrived are consumed too: a single list covers all of them.
    async fn changed(&mut self) -> Result<(), Status> {
        let mut changes = self.changes.on_message();
        let Ok(mut next_change) = timeout(LOOK, changes.next()).await else {
            return Ok(());
        };
        while next_change.is_some() {
            match changes.next().now_or_never() {
                Some(next) => next_change = next,
                None => return Ok(()),
            }
        }
        Err(failed("the connection is closed"))
    }
}

// ---------------------------------------------------------------------- registering

/// Servers under one base path. A key expires if it is not renewed.
#[derive(Debug)]
pub struct RedisRegistrar {
    redis: Redis,
    tree: Tree,
    connection: Mutex<Option<Connection>>,
}

struct Connection(MultiplexedConnection);

impl Registrar for RedisRegistrar {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        self.enter(entry).map(|done| Ok(done?)).boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        let path = self.tree.instance(entry);
        async move {
            let mut delete = pipe();
            delete.del(key(&path)).ignore();
            Ok(self.query::<()>(&delete).await?)
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
            let (found,): (Option<Vec<u8>>,) = self.query(&get).await?;
            Ok(found.and_then(|json| StoredEntry::read(&json)).map(|value| attributes(&value)))
        }
        .boxed()
    }
}

impl RedisRegistrar {
    async fn enter(&self, entry: &Advertisement) -> Result<(), Status> {
        let directory = self.tree.service(&entry.service);
        let mut write = pipe();
        // An existing key is not overwritten: rpcx's clients would be notified of a change.
        if !self.tree.base().is_empty() {
            write.set_nx(key(self.tree.base()), StoredEntry::json(self.tree.base(), BASE_VALUE)?).ignore();
        }
        write.set_nx(key(&directory), StoredEntry::json(&directory, &entry.service)?).ignore();
        let path = self.tree.instance(entry);
        let kept = StoredEntry::json(&path, &entry.instance.attributes.to_string())?;
        let millis = u64::try_from(entry.ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, LONGEST_EXPIRY);
        write.pset_ex(key(&path), kept, millis).ignore();
        self.query(&write).await
    }

    async fn query<T: redis::FromRedisValue>(&self, pipeline: &redis::Pipeline) -> Result<T, Status> {
        let mut place = self.connection.lock().await;
        // After a failure, the next attempt uses a new connection.
        let mut connection = match place.take() {
            Some(Connection(connection)) => connection,
            None => self.redis.connect().await?,
        };
        let answer = with_timeout(pipeline.query_async::<T>(&mut connection)).await?;
        *place = Some(Connection(connection));
        Ok(answer)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

/// Awaits an answer with a timeout.
async fn with_timeout<T>(request: impl Future<Output = Result<T, RedisError>>) -> Result<T, Status> {
    match timeout(ANSWER, request).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(failed("no response in time")),
    }
}

#[cold]
fn failed(why: impl fmt::Display) -> Status {
    Status::unavailable(format!("Redis: {why}"))
}

pub(crate) const PARAMETERS: [&str; 2] = ["db", "slash"];

/// Timeout of an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Longest time between two polls of the keys.
const LOOK: Duration = Duration::from_secs(5);
/// In milliseconds: a century.
const LONGEST_EXPIRY: u64 = 100 * 366 * 24 * 3600 * 1000;
/// No client can use more instances than that.
const MAX_KEYS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_those_of_the_go_store() {
        let json = StoredEntry::json("/rpcx_test", "rpcx_path").unwrap();
        assert!(json.starts_with(r#"{"Key":"/rpcx_test","Value":"cnBjeF9wYXRo","LastIndex":"#), "{json}");
        assert_eq!(StoredEntry::read(json.as_bytes()).unwrap(), b"rpcx_path");
        for wrong in [&b""[..], b"{}", b"weight=1", br#"{"Key":"a","Value":"%","LastIndex":1}"#] {
            assert!(StoredEntry::read(wrong).is_none());
        }
    }

    #[test]
    fn special_characters_of_a_name_are_escaped_in_patterns() {
        assert_eq!(literal("/a*[b]?\\c"), "/a\\*\\[b\\]\\?\\\\c");
    }

    #[test]
    fn url_selects_password_and_database() {
        assert!(discover(":secret@127.0.0.1:6379/rpcx_test/Arith?db=3").is_ok());
        assert!(discover("127.0.0.1:6379").is_err());
        assert!(discover("127.0.0.1:6379/b/S?color=red").is_err());
        assert!(registrar("127.0.0.1:6379/rpcx_test").is_ok());
    }
}

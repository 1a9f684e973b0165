//! Registers servers: writes their keys with an expiry, and again before they expire.

use std::fmt;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Registrar};
use redis::aio::MultiplexedConnection;
use redis::pipe;
use tokio::sync::Mutex;

use super::store::{StoredEntry, key};
use super::{Redis, with_timeout};
use crate::rpcx_tree::{BASE_VALUE, Tree, attributes};

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
        self.register(entry).map(|done| Ok(done?)).boxed()
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
    pub(super) fn new(redis: Redis, base: &str) -> Self {
        Self { redis, tree: Tree::new(base), connection: Mutex::default() }
    }

    async fn register(&self, entry: &Advertisement) -> Result<(), Status> {
        let directory = self.tree.service(&entry.service);
        let mut write = pipe();
        // An existing key is not overwritten: rpcx's clients would be notified of a change.
        if !self.tree.base().is_empty() {
            write.set_nx(key(self.tree.base()), StoredEntry::json(self.tree.base(), BASE_VALUE)?).ignore();
        }
        write.set_nx(key(&directory), StoredEntry::json(&directory, &entry.service)?).ignore();
        let path = self.tree.instance(entry);
        let kept = StoredEntry::json(&path, &entry.instance.attributes.to_string())?;
        let millis = u64::try_from(entry.ttl.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_EXPIRY_MILLIS);
        write.pset_ex(key(&path), kept, millis).ignore();
        self.query(&write).await
    }

    async fn query<T: redis::FromRedisValue>(&self, pipeline: &redis::Pipeline) -> Result<T, Status> {
        let mut guard = self.connection.lock().await;
        // After a failure, the next attempt uses a new connection.
        let mut connection = match guard.take() {
            Some(Connection(connection)) => connection,
            None => self.redis.connect().await?,
        };
        let answer = with_timeout(pipeline.query_async::<T>(&mut connection)).await?;
        *guard = Some(Connection(connection));
        Ok(answer)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

/// In milliseconds: a century.
const MAX_EXPIRY_MILLIS: u64 = 100 * 366 * 24 * 3600 * 1000;

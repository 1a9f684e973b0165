//! Finds the instances of a service: reads all keys below it after each notification, and every five seconds.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Instance, InstanceStream};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::cmd;
use tokio::time::timeout;

use super::store::{StoredEntry, key};
use super::{Redis, failed, with_timeout};
use crate::rpcx_tree::{FoundInstances, Tree};
use crate::watch::{self, WatchSource};

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
                watching.wait_for_change().await?;
                watching
            }
        };
        let found = self.of.list(&mut watching.connection).await?;
        self.watching = Some(watching);
        found.finish(&mut self.warning)
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl RedisService {
    pub(super) fn new(redis: Redis, base: &str, service: &str) -> Self {
        let base = base.trim_matches('/');
        let trees = [Tree::new(format!("/{base}")), Tree::new(base)];
        Self { redis, prefixes: trees.map(|tree| key(&tree.prefix(service))) }
    }

    async fn begin(&self) -> Result<RedisWatch, Status> {
        let mut connection = self.redis.connect().await?;
        // If this is forbidden, the keys are polled.
        let notify = ["SET", "notify-keyspace-events", "KEA"];
        let _ = with_timeout(cmd("CONFIG").arg(&notify).query_async::<()>(&mut connection)).await;
        let mut changes = with_timeout(self.redis.client.get_async_pubsub()).await?;
        for prefix in &self.prefixes {
            with_timeout(changes.psubscribe(format!("__keyspace@*__:{}*", escape_pattern(prefix)))).await?;
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
                found.add(name, &StoredEntry::read(&value).unwrap_or_else(unreadable));
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
    let (pattern, mut cursor, mut keys) = (format!("{}*", escape_pattern(prefix)), 0_u64, Vec::new());
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
fn escape_pattern(text: &str) -> String {
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
    async fn wait_for_change(&mut self) -> Result<(), Status> {
        let mut changes = self.changes.on_message();
        let Ok(mut next_change) = timeout(POLL_INTERVAL, changes.next()).await else {
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

/// Longest time between two polls of the keys.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// No client can use more instances than that.
const MAX_KEYS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_of_a_name_are_escaped_in_patterns() {
        assert_eq!(escape_pattern("/a*[b]?\\c"), "/a\\*\\[b\\]\\?\\\\c");
    }
}

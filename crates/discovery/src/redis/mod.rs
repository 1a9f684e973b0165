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

mod registrar;
mod resolver;
mod store;

use std::fmt;
use std::time::Duration;

use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Registrar, redacted};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::time::timeout;

pub use self::registrar::RedisRegistrar;
pub use self::resolver::RedisService;

use crate::rpcx_tree::{base, split};
use crate::url_parts::UrlParts;

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
        RedisService::new(self.clone(), base, service)
    }

    /// Registers servers under rpcx's base path, which is used verbatim.
    pub fn registrar(&self, base: &str) -> RedisRegistrar {
        RedisRegistrar::new(self.clone(), base)
    }

    async fn connect(&self) -> Result<MultiplexedConnection, Status> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
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
pub(crate) fn discover(rest: &str) -> Result<Box<dyn Discover>, Status> {
    let url = UrlParts::parse(rest)?;
    let (base, service) = split(&url)?;
    // Without effect here, but one URL serves both purposes, and a wrong value is an error in both.
    url.is_on("slash", true)?;
    Ok(Box::new(open(&url)?.service(&base, &service)))
}

/// Opens the registry for the rest of a `redis://` URL.
pub(crate) fn registrar(rest: &str) -> Result<Box<dyn Registrar>, Status> {
    let url = UrlParts::parse(rest)?;
    Ok(Box::new(open(&url)?.registrar(&base(&url)?)))
}

fn open(url: &UrlParts) -> Result<Redis, Status> {
    url.check_parameters(&PARAMETERS)?;
    let db = url.settings.value("db").unwrap_or("0");
    Redis::new(&format!("redis://{}/{db}", url.hosts)).map_err(polyrpc::Error::into_status)
}

/// Awaits an answer with a timeout.
async fn with_timeout<T>(request: impl Future<Output = Result<T, RedisError>>) -> Result<T, Status> {
    match timeout(RESPONSE_TIMEOUT, request).await {
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
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_selects_password_and_database() {
        assert!(discover(":secret@127.0.0.1:6379/rpcx_test/Arith?db=3").is_ok());
        assert!(discover("127.0.0.1:6379").is_err());
        assert!(discover("127.0.0.1:6379/b/S?color=red").is_err());
        assert!(discover("127.0.0.1:6379/b/S?slash=no").is_err());
        assert!(registrar("127.0.0.1:6379/rpcx_test").is_ok());
    }
}

//! Service registries for discovery and registration. Each is a cargo feature, since each has its own dependencies.
//!
//! A URL names a registry and the path in it: `etcd://127.0.0.1:2379/rpcx_test/Arith`. The syntax after `://` is
//! documented in the registry's module.

#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "nacos")]
pub mod nacos;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

// Shared by several registries, not all of which use everything.
#[cfg(feature = "http")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod lenient_list;
#[cfg(feature = "http")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod metadata;
#[cfg(feature = "asked")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod registry_url;
#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod tree;
#[cfg(feature = "asked")]
mod watch;

#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "consul", feature = "kubernetes", feature = "nacos")),
    allow(dead_code, unused_imports)
)]
mod http;

use polyrpc::client::Result;
use polyrpc::discovery::{self, Discover, Registrar};
use polyrpc::{Client, Status, client};

/// Opens the discovery for a URL: `etcd://127.0.0.1:2379/rpcx_test/Arith`. A protocol may precede it, as in clients'
/// URLs: `rpcx+etcd://…`. The built-in kinds of `polyrpc` work too: `list://a:1,b:2`, `dns://host:port`.
///
/// # Errors
///
/// If the registry is unknown or not compiled in, or the URL is invalid for it. No connection is made yet.
pub fn discover(url: &str) -> Result<Box<dyn Discover>> {
    first(url, open)
}

/// Opens the registry for a URL: `etcd://127.0.0.1:2379/rpcx_test`.
///
/// # Errors
///
/// As [`discover`].
pub fn register(url: &str) -> Result<Box<dyn Registrar>> {
    first(url, open_registry)
}

/// Returns the builder of a client whose servers are discovered by a URL: `rpcx+etcd://127.0.0.1:2379/rpcx_test/Arith`.
/// Any other URL is passed to [`Client::builder`].
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// let client = polyrpc_discovery::builder("rpcx+etcd://127.0.0.1:2379/rpcx_test/Arith")?.group("blue").build()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the part after the registry's keyword is invalid. Other errors are reported when the client is built. No
/// connection is made yet.
pub fn builder(url: &str) -> Result<client::Builder> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let words: Vec<_> = scheme.split('+').collect();
    for (place, word) in words.iter().enumerate().skip(1) {
        if let Some(discover) = known(word, rest)? {
            let others = [&words[..place], &words[place + 1..]].concat().join("+");
            let way = format!("{others}://{}", last_segment(rest));
            return Ok(Client::builder(&way).discover(discover));
        }
    }
    Ok(Client::builder(url))
}

/// Returns the part that names the client in messages: mostly the service. Passwords are in other parts of a URL.
fn last_segment(rest: &str) -> &str {
    let path = rest.split('?').next().unwrap_or_default();
    path.rsplit_once('/').map_or("", |(_, last)| last)
}

/// Opens the discovery for a keyword of a URL, as [`polyrpc::discovery::open`].
///
/// # Errors
///
/// If the rest is invalid for the keyword.
pub fn open(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    match known(word, rest)? {
        Some(known) => Ok(Some(known)),
        None => discovery::open(word, rest),
    }
}

/// Opens the discovery of a registry of this crate.
fn known(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    match (word, rest) {
        #[cfg(feature = "consul")]
        ("consul", place) => Ok(Some(consul::discover(place)?)),
        #[cfg(feature = "etcd")]
        ("etcd", place) => Ok(Some(etcd::discover(place)?)),
        #[cfg(feature = "kubernetes")]
        ("kubernetes", place) => Ok(Some(kubernetes::discover(place)?)),
        #[cfg(feature = "nacos")]
        ("nacos", place) => Ok(Some(nacos::discover(place)?)),
        #[cfg(feature = "redis")]
        ("redis", place) => Ok(Some(redis::discover(place)?)),
        #[cfg(feature = "zookeeper")]
        ("zookeeper", place) => Ok(Some(zookeeper::discover(place)?)),
        _ => Ok(None),
    }
}

/// Opens the registry for a keyword of a URL, as [`polyrpc::discovery::open_registry`].
///
/// # Errors
///
/// If the rest is invalid for the keyword.
pub fn open_registry(word: &str, rest: &str) -> Result<Option<Box<dyn Registrar>>> {
    match (word, rest) {
        #[cfg(feature = "consul")]
        ("consul", place) => Ok(Some(consul::register(place)?)),
        #[cfg(feature = "etcd")]
        ("etcd", place) => Ok(Some(etcd::register(place)?)),
        #[cfg(feature = "nacos")]
        ("nacos", place) => Ok(Some(nacos::register(place)?)),
        #[cfg(feature = "redis")]
        ("redis", place) => Ok(Some(redis::register(place)?)),
        #[cfg(feature = "zookeeper")]
        ("zookeeper", place) => Ok(Some(zookeeper::register(place)?)),
        (word, rest) => discovery::open_registry(word, rest),
    }
}

/// Opens the first keyword of the scheme that is a registry's; one before it is a protocol's.
fn first<T>(url: &str, open: impl Fn(&str, &str) -> Result<Option<T>>) -> Result<T> {
    let wrong = |why: &str| {
        Status::invalid_argument(format!("`{}`: {why}, for example {EXAMPLES}", discovery::redacted(url)))
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("want the URL of a registry"))?;
    for word in scheme.split('+') {
        if let Some(opened) = open(word, rest)? {
            return Ok(opened);
        }
    }
    Err(wrong(&format!("the registry `{scheme}` is unknown, or not built in")).into())
}

const EXAMPLES: &str = "etcd://host:2379/base/Service, dns://host:port, file:///etc/servers, mdns://Service";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_may_stand_behind_a_protocol() {
        for url in ["list://a:1", "rpcx+list://a:1 3,b:2", "grpc+tls+dlist://h:1", "file:///x"] {
            assert!(discover(url).is_ok(), "{url}");
        }
        for url in ["", "list", "rpcx://a:1", "list://a", "nothing://x"] {
            assert!(discover(url).is_err(), "{url}");
        }
        assert!(register("list://a:1").is_err());
    }

    #[test]
    fn neither_errors_nor_debug_repeat_a_password() {
        for url in [
            "me:hunter2@h:1",
            "nothing://me:hunter2@h:1",
            "rpcx+nothing://h:1/x?password=hunter2",
            "remotefile://ftp://me:hunter2@h/x",
            "dns://me:hunter2@h",
            #[cfg(feature = "etcd")]
            "etcd://me:hunter2@h:1/%ff",
            #[cfg(feature = "redis")]
            "redis://:hunter2@h:x/base/Arith",
            #[cfg(feature = "consul")]
            "consul://me:hunter2@h:1/base/Arith",
            #[cfg(feature = "nacos")]
            "nacos://me:hunter2@h:1/Arith?username=me&password=hunter2",
        ] {
            let error = discover(url).err().unwrap_or_else(|| panic!("{url} is wrong"));
            assert!(!error.message().contains("hunter2"), "{error}");
            let built = builder(&format!("rpcx+{url}")).and_then(client::Builder::build);
            assert!(!built.err().is_some_and(|error| error.message().contains("hunter2")), "{url}");
        }
        for url in [
            #[cfg(feature = "etcd")]
            "etcd://me:hunter2@h:1/base/Arith",
            #[cfg(feature = "redis")]
            "redis://:hunter2@h:1/base/Arith",
            #[cfg(feature = "nacos")]
            "nacos://h:1/Arith?username=me&password=hunter2",
            #[cfg(feature = "consul")]
            "consul://h:1/base/Arith?token=hunter2",
        ] {
            let client = builder(&format!("rpcx+{url}")).unwrap();
            assert!(!format!("{client:?}").contains("hunter2"), "{url}");
            assert!(!format!("{:?}", client.build()).contains("hunter2"), "{url}");
        }
        #[cfg(feature = "redis")]
        assert!(!format!("{:?}", redis::Redis::new("redis://:hunter2@h:1").unwrap()).contains("hunter2"));
        #[cfg(feature = "etcd")]
        assert!(!format!("{:?}", etcd::Etcd::new(["h:1"]).user("me", "hunter2")).contains("hunter2"));
    }

    #[tokio::test]
    async fn a_client_is_built_for_what_a_registry_finds() {
        for url in [
            "rpcx://h:1",
            "rpcx+list://a:1,b:2",
            #[cfg(feature = "etcd")]
            "rpcx+etcd://me:secret@h:1,h:2/base/path/Arith",
            #[cfg(feature = "zookeeper")]
            "baidu-std+zookeeper://h:1/base/Arith",
            #[cfg(feature = "redis")]
            "http+json-rpc+redis://:secret@h:1/base/Arith?db=1",
            #[cfg(feature = "consul")]
            "rpcx+ws+consul://h:1/base/Arith",
        ] {
            assert!(builder(url).and_then(client::Builder::build).is_ok(), "{url}");
        }
        for url in ["", "rpcx+nothing://h:1/base/Arith", "ftp+etcd://h:1/base/Arith", "rpcx+etcd://h:1"] {
            assert!(builder(url).and_then(client::Builder::build).is_err(), "{url}");
        }
    }
}

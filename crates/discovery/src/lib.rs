//! Service registries for discovery and registration. Each is a cargo feature, since each has its own dependencies.
//!
//! A URL names a registry and the path in it: `etcd://127.0.0.1:2379/rpcx_test/Arith`. The syntax after `://` is
//! documented in the registry's module.

// Each registry is a folder: `mod.rs` has its type and opens it for a URL, `resolver.rs` finds the instances of a service,
// and `registrar.rs` registers servers; Kubernetes has no registrar, Consul has both files in `keys` and in `services`. All
// resolvers share `watch.rs`, which makes the stream that clients read. `url_parts.rs` only splits the part of a URL after
// `://`.

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
#[cfg(feature = "_http")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod lenient_list;
#[cfg(feature = "_http")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod metadata;
#[cfg(any(feature = "consul", feature = "etcd", feature = "redis", feature = "zookeeper"))]
#[cfg_attr(not(all(feature = "etcd", feature = "redis", feature = "zookeeper")), allow(dead_code))]
mod rpcx_tree;
#[cfg(feature = "_watch")]
#[cfg_attr(not(all(feature = "consul", feature = "kubernetes", feature = "nacos")), allow(dead_code))]
mod url_parts;
#[cfg(feature = "_watch")]
mod watch;

#[cfg(feature = "_http")]
#[cfg_attr(
    not(all(feature = "consul", feature = "kubernetes", feature = "nacos")),
    allow(dead_code, unused_imports)
)]
mod http;

use std::sync::Once;

use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{self, Discover, Registrar};

/// Opens the discovery for a URL: `etcd://127.0.0.1:2379/rpcx_test/Arith`. A protocol may precede it, as in clients'
/// URLs, and is ignored together with its parameters: `rpcx+etcd://…?transport=kcp`. The built-in kinds of `polyrpc` work
/// too: `list://a:1,b:2`, `dns://host:port`.
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
/// See [`discover`].
pub fn registrar(url: &str) -> Result<Box<dyn Registrar>> {
    first(url, |word, rest| {
        let registry = open_registry(word, rest)?;
        // It also fails only for a known word.
        if registry.is_none() && !matches!(open(word, rest), Ok(None)) {
            let url = discovery::redacted(url);
            let text = format!("`{url}`: it only lists servers; register with {WRITABLE}");
            return Err(Status::invalid_argument(text).into());
        }
        Ok(registry)
    })
}

/// Makes the registries of this crate available in clients' URLs, for the whole process. Call it before clients are
/// built; further calls have no effect.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// polyrpc_discovery::install();
/// let client = polyrpc::Client::new("rpcx+etcd://127.0.0.1:2379/rpcx_test/Arith")?;
/// # Ok(())
/// # }
/// ```
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| discovery::install(open_built_in));
}

/// Opens the discovery for a keyword of a URL, as [`polyrpc::discovery::open`].
///
/// # Errors
///
/// If the rest is invalid for the keyword.
pub fn open(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    match open_built_in(word, rest)? {
        Some(known) => Ok(Some(known)),
        None => discovery::open(word, rest),
    }
}

/// Opens the discovery of a registry of this crate.
fn open_built_in(word: &str, rest: &str) -> Result<Option<Box<dyn Discover>>> {
    match (word, rest) {
        #[cfg(feature = "consul")]
        ("consul", rest) => Ok(Some(consul::discover(rest)?)),
        #[cfg(feature = "etcd")]
        ("etcd", rest) => Ok(Some(etcd::discover(rest)?)),
        #[cfg(feature = "kubernetes")]
        ("kubernetes", rest) => Ok(Some(kubernetes::discover(rest)?)),
        #[cfg(feature = "nacos")]
        ("nacos", rest) => Ok(Some(nacos::discover(rest)?)),
        #[cfg(feature = "redis")]
        ("redis", rest) => Ok(Some(redis::discover(rest)?)),
        #[cfg(feature = "zookeeper")]
        ("zookeeper", rest) => Ok(Some(zookeeper::discover(rest)?)),
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
        ("consul", rest) => Ok(Some(consul::registrar(rest)?)),
        #[cfg(feature = "etcd")]
        ("etcd", rest) => Ok(Some(etcd::registrar(rest)?)),
        #[cfg(feature = "nacos")]
        ("nacos", rest) => Ok(Some(nacos::registrar(rest)?)),
        #[cfg(feature = "redis")]
        ("redis", rest) => Ok(Some(redis::registrar(rest)?)),
        #[cfg(feature = "zookeeper")]
        ("zookeeper", rest) => Ok(Some(zookeeper::registrar(rest)?)),
        (word, rest) => discovery::open_registry(word, rest),
    }
}

/// Opens the first keyword of the scheme that is a registry's; one before it is a protocol's.
fn first<T>(url: &str, open: impl Fn(&str, &str) -> Result<Option<T>>) -> Result<T> {
    let wrong = |why: &str| {
        Status::invalid_argument(format!("`{}`: {why}, for example {EXAMPLES}", discovery::redacted(url)))
    };
    let registry = polyrpc::client::registry_url(url);
    let (scheme, rest) = registry.split_once("://").ok_or_else(|| wrong("expected the URL of a registry"))?;
    let scheme = scheme.to_ascii_lowercase();
    for word in scheme.split('+') {
        if let Some(opened) = open(word, rest)? {
            return Ok(opened);
        }
    }
    if polyrpc::Client::new(url).is_ok() {
        return Err(wrong("this URL names one server; expected the URL of a registry").into());
    }
    Err(wrong(&format!("the registry `{scheme}` is unknown, or not built in")).into())
}

const EXAMPLES: &str = "etcd://host:2379/base/Service, dns://host:port, file:///etc/servers, mdns://Service";

/// Registries that servers register in.
const WRITABLE: &str = "etcd, zookeeper, consul, nacos, redis or mdns";

#[cfg(test)]
mod tests {
    use polyrpc::Client;

    use super::*;

    #[test]
    fn registry_scheme_may_follow_a_protocol() {
        for url in [
            "list://a:1",
            "LIST://a:1",
            "rpcx+list://a:1 3,b:2",
            "rpcx+list://a:1?transport=ws",
            "grpc+tls+dlist://h:1",
            "file:///x",
            "lines+file:///x",
        ] {
            assert!(discover(url).is_ok(), "{url}");
        }
        for url in ["", "list", "rpcx://a:1", "list://a", "nothing://x", "list://a:1?transport=ws"] {
            assert!(discover(url).is_err(), "{url}");
        }
        let error = |failed: Option<polyrpc::Error>| failed.unwrap().to_string();
        for url in ["list://a:1", "file:///x", "dns://h:1"] {
            let error = error(registrar(url).err());
            assert!(error.contains("it only lists servers"), "{error}");
        }
        #[cfg(feature = "nacos")]
        {
            let error = error(registrar("nacos://h:8848/Arith").err());
            assert!(error.contains("a server's services have names already"), "{error}");
        }
        let error = error(discover("rpcx://a:1").err());
        assert!(error.contains("this URL names one server"), "{error}");
    }

    #[test]
    fn registry_and_protocol_parameters_do_not_overlap() {
        let registries: &[&[&str]] = &[
            #[cfg(feature = "consul")]
            &consul::PARAMETERS,
            #[cfg(feature = "etcd")]
            &etcd::PARAMETERS,
            #[cfg(feature = "kubernetes")]
            &kubernetes::PARAMETERS,
            #[cfg(feature = "nacos")]
            &nacos::PARAMETERS,
            #[cfg(feature = "redis")]
            &redis::PARAMETERS,
        ];
        for protocol in polyrpc::Protocol::ALL {
            for parameter in polyrpc::client::url_parameters(protocol.descriptor()) {
                let name = parameter.name;
                assert!(registries.iter().all(|known| !known.contains(&name)), "{protocol:?} {name}");
            }
        }
    }

    #[test]
    fn errors_and_debug_output_hide_passwords() {
        install();
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
            let built = Client::new(&format!("rpcx+{url}"));
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
            let client = Client::builder(&format!("rpcx+{url}"));
            assert!(!format!("{client:?}").contains("hunter2"), "{url}");
            assert!(!format!("{:?}", client.build()).contains("hunter2"), "{url}");
        }
        #[cfg(feature = "redis")]
        assert!(!format!("{:?}", redis::Redis::new("redis://:hunter2@h:1").unwrap()).contains("hunter2"));
        #[cfg(feature = "etcd")]
        assert!(!format!("{:?}", etcd::Etcd::new(["h:1"]).user("me", "hunter2")).contains("hunter2"));
    }

    #[tokio::test]
    async fn client_is_built_for_the_discovered_instances() {
        install();
        for url in [
            "rpcx://h:1",
            "rpcx+list://a:1,b:2",
            #[cfg(feature = "etcd")]
            "rpcx+etcd://me:secret@h:1,h:2/base/path/Arith",
            #[cfg(feature = "zookeeper")]
            "baidu-std+zookeeper://h:1/base/Arith",
            #[cfg(feature = "redis")]
            "http+redis://:secret@h:1/base/Arith?db=1&dialect=json-rpc",
            #[cfg(feature = "consul")]
            "rpcx+consul://h:1/base/Arith?transport=ws&dc=a",
        ] {
            assert!(Client::new(url).is_ok(), "{url}");
        }
        for url in ["", "rpcx+nothing://h:1/base/Arith", "ftp+etcd://h:1/base/Arith", "rpcx+etcd://h:1"] {
            assert!(Client::new(url).is_err(), "{url}");
        }
    }
}

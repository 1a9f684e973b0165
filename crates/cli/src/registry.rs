//! Registries by their URLs: `list://a:1,b:2`, `dns://host:port`; as clients write it with a protocol before,
//! `rpcx+mdns://Arith`.

use polyrpc::discovery::{self, Discover, Register};

use crate::failure::Failure;

/// Who knows the instances of a service.
pub(crate) fn discover(url: &str) -> Result<Box<dyn Discover>, Failure> {
    open(url, discovery::open)
}

/// Where servers make themselves known.
pub(crate) fn register(url: &str) -> Result<Box<dyn Register>, Failure> {
    open(url, discovery::open_registry)
}

/// Opens what the first word of the scheme means that is a registry's: one before it is a protocol's.
fn open<T>(url: &str, open: impl Fn(&str, &str) -> polyrpc::Result<Option<T>>) -> Result<T, Failure> {
    let hint = "for example dns://host:port, file:///etc/servers, mdns://Arith";
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Failure::new(format!("`{url}` is no URL of a registry")).with_hint(hint));
    };
    for word in scheme.split('+') {
        if let Some(opened) = open(word, rest)? {
            return Ok(opened);
        }
    }
    Err(Failure::new(format!("no registry is known for `{scheme}` in `{url}`")).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_may_stand_behind_a_protocol() {
        for url in ["list://a:1", "rpcx+list://a:1 3,b:2", "grpc+tls+dns://h:1", "file:///x", "mdns://Arith"]
        {
            assert!(discover(url).is_ok(), "{url}");
        }
        for url in ["", "list", "rpcx://a:1", "list://a", "nothing://x"] {
            assert!(discover(url).is_err(), "{url}");
        }
        assert!(register("mdns://").is_ok());
        assert!(register("list://a:1").is_err());
    }
}

//! rpcx's layout in registries whose keys have paths: `base/Service/network@address`, with the attributes as a query
//! string. The directories above have values too: `rpcx_path` and the service's name.

use polyrpc::Status;
use polyrpc::discovery::{Advertisement, Attributes, Instance};

use crate::url_parts::UrlParts;

/// Value of the base path in rpcx.
pub(crate) const BASE_VALUE: &str = "rpcx_path";

/// Base path under which services are registered. A leading slash, or its absence, is part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Empty if services are registered at the root.
    base: String,
    /// Prefix of services at the root.
    root: &'static str,
}

impl Tree {
    pub(crate) fn new(base: impl Into<String>) -> Self {
        let mut base = base.into();
        let root = if base.starts_with('/') { "/" } else { "" };
        base.truncate(base.trim_end_matches('/').len());
        Self { base, root }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Path of a service.
    pub(crate) fn service(&self, service: &str) -> String {
        match self.base.is_empty() {
            true => format!("{}{service}", self.root),
            false => format!("{}/{service}", self.base),
        }
    }

    /// Path of an instance.
    pub(crate) fn instance(&self, entry: &Advertisement) -> String {
        format!("{}/{}", self.service(&entry.service), entry.instance)
    }

    /// Common prefix of the instances' paths. The trailing slash excludes similarly named services.
    pub(crate) fn prefix(&self, service: &str) -> String {
        format!("{}/", self.service(service))
    }
}

/// Parses the instance of a name and its value.
pub(crate) fn instance(name: &str, value: &str) -> Result<Instance, Status> {
    let Ok(attributes) = value.parse();
    Ok(name.parse::<Instance>()?.with(attributes))
}

/// Instances of a service, and the first entry that is no instance.
#[derive(Debug, Default)]
pub(crate) struct FoundInstances {
    instances: Vec<Instance>,
    wrong: Option<Status>,
}

impl FoundInstances {
    /// Adds an entry. Entries that are no instances must not affect the others.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        let no_text =
            |what| Status::invalid_argument(format!("{what} `{}` is not UTF-8", name.escape_ascii()));
        let read = match (str::from_utf8(name), str::from_utf8(value)) {
            (Ok(name), Ok(value)) => instance(name, value),
            (Ok(_), Err(_)) => Err(no_text("the value of")),
            (Err(_), _) => Err(no_text("the name")),
        };
        match read {
            Ok(instance) => self.instances.push(instance),
            Err(status) => {
                self.wrong.get_or_insert(status);
            }
        }
    }

    /// Returns the instances, and a warning about entries that are none; fails if there are entries, and none of them
    /// is an instance.
    pub(crate) fn finish(self, warning: &mut Option<Status>) -> Result<Vec<Instance>, Status> {
        match self {
            Self { instances, wrong: Some(wrong) } if instances.is_empty() => Err(wrong),
            Self { instances, wrong } => {
                *warning = wrong;
                Ok(instances)
            }
        }
    }
}

/// Splits a URL's path into base path and service: `/rpcx_test/Arith`.
pub(crate) fn split(url: &UrlParts) -> Result<(String, String), Status> {
    match url.path.split_last() {
        Some((service, base)) => Ok((base.join("/"), service.clone())),
        None => Err(Status::invalid_argument("which service? expected host:port/base/Service")),
    }
}

/// Returns the base path for registration: with a slash before the URL's path, unless `slash` is off.
pub(crate) fn base(url: &UrlParts) -> Result<String, Status> {
    let slash = if url.is_on("slash", true)? { "/" } else { "" };
    Ok(format!("{slash}{}", url.path.join("/")))
}

/// The attributes of an instance, parsed from a registry's value; empty if the value is not UTF-8.
pub(crate) fn attributes(value: &[u8]) -> Attributes {
    let Ok(attributes) = str::from_utf8(value).unwrap_or_default().parse();
    attributes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn paths_equal_those_of_rpcx() {
        let tree = Tree::new("/rpcx_test/");
        let entry = Advertisement::new("Arith", "tcp@h:1".parse().unwrap(), Duration::from_secs(1));
        assert_eq!(tree.base(), "/rpcx_test");
        assert_eq!(tree.instance(&entry), "/rpcx_test/Arith/tcp@h:1");
        assert_eq!(tree.prefix("Arith"), "/rpcx_test/Arith/");
        assert_eq!(Tree::new("").instance(&entry), "Arith/tcp@h:1");
        let root = Tree::new("/");
        assert_eq!((root.base(), root.prefix("Arith")), ("", "/Arith/".to_owned()));
        assert_eq!(root.instance(&entry), "/Arith/tcp@h:1");
    }

    /// Only `slash=false` was understood: everything else meant true.
    #[test]
    fn slash_of_the_base_path_is_a_switch() {
        let base = |text: &str| base(&UrlParts::parse(text).unwrap());
        for (text, expected) in [
            ("h:1/rpcx_test", "/rpcx_test"),
            ("h:1/a/b?slash", "/a/b"),
            ("h:1/rpcx_test?slash=1", "/rpcx_test"),
            ("h:1/rpcx_test?slash=0", "rpcx_test"),
            ("h:1/rpcx_test?slash=off", "rpcx_test"),
            ("h:1/rpcx_test?slash=false", "rpcx_test"),
        ] {
            assert_eq!(base(text).unwrap(), expected, "{text}");
        }
        assert!(base("h:1/rpcx_test?slash=no").is_err());
    }

    #[test]
    fn invalid_entries_do_not_hide_instances() {
        let mut found = FoundInstances::default();
        found.add(b"tcp@h:1", b"weight=3");
        found.add(b"nonsense", b"");
        found.add(b"tcp@h:2", b"\xff");
        found.add(b"tcp@h\xff:2", b"");
        let mut warning = None;
        let instances = found.finish(&mut warning).unwrap();
        assert_eq!((instances.len(), instances[0].attributes.weight()), (1, 3));
        assert!(warning.take().unwrap().message().contains("nonsense"));

        let mut found = FoundInstances::default();
        found.add(b"nonsense", b"");
        assert!(found.finish(&mut warning).unwrap_err().message().contains("nonsense"));
        assert!(FoundInstances::default().finish(&mut warning).unwrap().is_empty() && warning.is_none());
    }
}

//! Finds the instances of a service: reads the keys below it, and waits for changes by a blocking query.

use std::time::Duration;

use ::http::StatusCode;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Attributes, Discover, Instance, InstanceStream};

use super::Pair;
use crate::consul::Consul;
use crate::consul::api::Index;
use crate::lenient_list::{self, LenientList};
use crate::url_parts::path;
use crate::watch::{self, WatchSource};

/// Instances of one service in rpcx's keys.
#[derive(Debug, Clone)]
pub struct KeyDiscovery {
    consul: Consul,
    /// Common prefix of its keys: `base/Service/`.
    prefix: String,
}

impl KeyDiscovery {
    pub(super) fn new(consul: Consul, prefix: String) -> Self {
        Self { consul, prefix }
    }
}

impl Discover for KeyDiscovery {
    fn watch(&self) -> InstanceStream {
        watch::sets(KeysWatch { of: self.clone(), index: Index::default(), warning: None })
    }
}

struct KeysWatch {
    of: KeyDiscovery,
    index: Index,
    warning: Option<Status>,
}

impl WatchSource for KeysWatch {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        let found = self.query().await;
        if found.is_err() {
            self.index = Index::default();
        }
        found
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl KeysWatch {
    async fn query(&mut self) -> Result<Vec<Instance>, Status> {
        let KeyDiscovery { consul, prefix } = &self.of;
        let query = Attributes::new().with("recurse", "");
        let answer = consul
            .watch(&format!("/kv/{}", path(prefix)), query, &mut self.index, BLOCKING_QUERY_WAIT)
            .await?;
        let pairs: LenientList<Pair> = match answer.status {
            // No such key is no failure: no server is registered yet.
            StatusCode::NOT_FOUND => LenientList::default(),
            _ => answer.json(&format!("cannot list Consul's keys under {prefix}"))?,
        };
        self.index.advance(&answer)?;
        let (all, found) = (pairs.all, instances(pairs.items, prefix));
        if all > 0 && found.is_empty() {
            return Err(Status::data_loss(format!("no key under {prefix} in Consul names an instance")));
        }
        self.warning = lenient_list::warning(all, found.len(), format_args!("keys under {prefix} in Consul"));
        Ok(found)
    }
}

/// Returns the well-formed instances; other keys belong to other programs.
fn instances(pairs: Vec<Pair>, prefix: &str) -> Vec<Instance> {
    let instance = |pair: Pair| {
        let instance: Instance = pair.key.strip_prefix(prefix)?.parse().ok()?;
        let attributes = String::from_utf8(pair.decode_value()?).ok()?.parse().ok()?;
        Some(instance.with(attributes))
    };
    pairs.into_iter().filter_map(instance).collect()
}

/// Wait of rpcx (libkv `store/consul`).
const BLOCKING_QUERY_WAIT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn pair(key: &str, value: &str) -> Pair {
        Pair { key: key.to_owned(), value: Some(STANDARD.encode(value)), session: None }
    }

    #[test]
    fn keys_that_are_not_instances_are_skipped() {
        let pairs = vec![
            pair("b/S/tcp@a:1", "weight=2"),
            pair("b/S/nested/tcp@a:2", ""),
            pair("b/S/", "S"),
            pair("b/S2/tcp@a:3", ""),
            pair("b/S/bird@a:4", ""),
            Pair { key: "b/S/tcp@a:5".into(), value: Some("no base64!".into()), session: None },
            Pair { key: "b/S/tcp@a:6".into(), value: None, session: None },
        ];
        let found = instances(pairs, "b/S/");
        let found: Vec<_> = found.iter().map(|one| format!("{one} {}", one.attributes)).collect();
        assert_eq!(found, ["tcp@a:1 weight=2", "tcp@a:6 "]);
    }
}

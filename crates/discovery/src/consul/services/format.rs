//! Converts instances from and to the format of Consul's catalogue.

use std::collections::BTreeMap;
use std::time::Duration;

use polyrpc::Status;
use polyrpc::discovery::{Advertisement, Instance, Network};
use serde::{Deserialize, Serialize};

use crate::metadata::{from_map, to_map};

pub(super) fn plain_registration<'a>(
    entry: &'a Advertisement,
    id: &'a str,
) -> Result<Registration<'a>, Status> {
    let Advertisement { instance, .. } = entry;
    let mut meta = to_map(&instance.attributes, may_be_a_name);
    let (address, port) = match instance.network {
        Network::Unix => (instance.address.as_str(), 0),
        _ => host_and_port(&instance.address).ok_or_else(|| {
            Status::invalid_argument(format!("cannot register {instance} in Consul: expected host:port"))
        })?,
    };
    if instance.network != Network::Tcp {
        meta.insert(NETWORK.to_owned(), instance.network.to_string());
    }
    let weight = instance.attributes.weight().clamp(1, 65_535);
    Ok(Registration {
        id,
        name: &entry.service,
        address: address.to_owned(),
        port,
        tags: instance.attributes.values("tag").map(str::to_owned).collect(),
        meta,
        weights: Weights { passing: weight, warning: 1 },
        check: Check::new(entry.ttl),
    })
}

pub(super) fn legacy_rpcx_format<'a>(entry: &'a Advertisement, id: &'a str) -> Registration<'a> {
    Registration {
        id,
        name: &entry.service,
        address: entry.instance.to_string(),
        port: 0,
        tags: vec![entry.instance.attributes.to_string()],
        meta: BTreeMap::new(),
        weights: Weights { passing: 1, warning: 1 },
        check: Check::new(entry.ttl),
    }
}

fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host, port.parse().ok()?))
}

/// Whether Consul accepts a name of a metadata field (`structs.ValidateMetadata`).
fn may_be_a_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=128).contains(&name.len()) && !name.starts_with("consul-") && name.bytes().all(is_fine)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Healthy {
    node: Option<Node>,
    service: Service,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Node {
    #[serde(default)]
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Service {
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: u16,
    tags: Option<Vec<String>>,
    meta: Option<BTreeMap<String, String>>,
    weights: Option<Weights>,
}

impl Healthy {
    /// Returns the instance; `None` if the entry has no usable address.
    pub(super) fn instance(self) -> Option<Instance> {
        self.service.instance(self.node)
    }
}

impl Service {
    /// Returns the instance; `None` if the entry has no usable address.
    pub(super) fn instance(self, node: Option<Node>) -> Option<Instance> {
        let Self { address, port, tags, meta, weights } = self;
        let tags = tags.unwrap_or_default();
        if address.contains('@') {
            let attributes = tags.first().map(|query| query.parse().unwrap_or_default());
            return Some(address.parse::<Instance>().ok()?.with(attributes.unwrap_or_default()));
        }
        let host = if address.is_empty() { node?.address } else { address };
        let mut attributes = from_map(meta.unwrap_or_default());
        let network = attributes.value(NETWORK).map_or(Ok(Network::Tcp), str::parse).ok()?;
        attributes.remove(NETWORK);
        attributes.remove("tag");
        for tag in tags {
            attributes.append("tag", tag);
        }
        let weight = weights.map_or(1, |weights| weights.passing);
        // One is Consul's default weight.
        if weight != 1 {
            attributes.set("weight", weight.to_string());
        }
        let address = match network {
            Network::Unix => host,
            _ if host.contains(':') => format!("[{host}]:{port}"),
            _ => format!("{host}:{port}"),
        };
        Some(format!("{network}@{address}").parse::<Instance>().ok()?.with(attributes))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Registration<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    name: &'a str,
    address: String,
    port: u16,
    tags: Vec<String>,
    meta: BTreeMap<String, String>,
    weights: Weights,
    check: Check,
}

impl Registration<'_> {
    /// Service, as returned by the agent.
    pub(super) fn service(self) -> Service {
        let Self { address, port, tags, meta, weights, .. } = self;
        Service { address, port, tags: Some(tags), meta: Some(meta), weights: Some(weights) }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    passing: u32,
    #[serde(default)]
    warning: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Check {
    #[serde(rename = "TTL")]
    ttl: String,
    status: &'static str,
    deregister_critical_service_after: &'static str,
}

impl Check {
    fn new(ttl: Duration) -> Self {
        Self {
            ttl: format!("{}ms", ttl.as_millis().max(1)),
            // It is registered when it is ready; otherwise clients would not find it before the next update.
            status: "passing",
            // Consul's minimum.
            deregister_critical_service_after: "1m",
        }
    }
}

const NETWORK: &str = "network";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        let healthy: Healthy = serde_json::from_str(text).unwrap();
        healthy.instance().map(|instance| format!("{instance} {}", instance.attributes))
    }

    #[test]
    fn services_registered_by_other_software_are_parsed() {
        for (text, instance) in [
            (r#"{"Service":{"Address":"10.0.0.1","Port":80}}"#, "tcp@10.0.0.1:80 "),
            (
                r#"{"Node":{"Address":"n"},"Service":{"Address":"","Port":80,"Tags":["3","x"],"Meta":null}}"#,
                "tcp@n:80 tag=3&tag=x",
            ),
            (
                r#"{"Service":{"Address":"::1","Port":80,"Meta":{"network":"quic","a":"b"},
                "Weights":{"Passing":7,"Warning":1}}}"#,
                "quic@[::1]:80 a=b&weight=7",
            ),
            (
                r#"{"Service":{"Address":"tcp@h:8972","Port":0,"Tags":["weight=2&state=inactive"]}}"#,
                "tcp@h:8972 state=inactive&weight=2",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Some(instance), "{text}");
        }
    }

    #[test]
    fn services_without_a_usable_address_are_skipped() {
        for text in [
            r#"{"Service":{"Address":"h","Port":0}}"#,
            r#"{"Service":{"Port":80}}"#,
            r#"{"Service":{"Address":"h","Port":80,"Meta":{"network":"pigeon"}}}"#,
            r#"{"Service":{"Address":"bird@h:1","Port":80}}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}

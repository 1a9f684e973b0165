use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::http::StatusCode;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Discover, Instance, InstanceStream, Network, Registrar};
use serde::{Deserialize, Serialize};

use super::{Consul, Index};
use crate::http::ANSWER;
use crate::lenient_list::{self, LenientList};
use crate::metadata::{changed, from_map, to_map};
use crate::url_parts::segment;
use crate::watch::{self, WatchSource};

/// Consul's service catalogue. A server is registered with the local agent, with a TTL check that must be renewed;
/// Consul removes a server whose check has failed for a minute.
#[derive(Debug)]
pub struct Services {
    consul: Consul,
    written: InstanceFormat,
    /// Entries that were registered here, by id.
    entered: Mutex<HashMap<String, Advertisement>>,
}

/// Format of an instance.
#[derive(Debug, Clone, Copy)]
enum InstanceFormat {
    /// Address, port, weight and metadata in Consul's own fields.
    Plainly,
    /// `network@host:port` as the address, and the attributes as the only tag.
    LegacyRpcx,
}

impl Services {
    pub(super) fn new(consul: Consul) -> Self {
        Self { consul, written: InstanceFormat::Plainly, entered: Mutex::default() }
    }

    /// Registers instances in the format of rpcx 1 (v1.1, `serverplugin/consul.go`), for its clients. Discovery
    /// understands both formats.
    #[must_use]
    pub fn legacy_rpcx_format(mut self) -> Self {
        self.written = InstanceFormat::LegacyRpcx;
        self
    }

    /// Discovers the instances of one service that pass their checks.
    pub fn service(&self, name: impl Into<String>) -> ServiceDiscovery {
        ServiceDiscovery { consul: self.consul.clone(), name: name.into(), tag: None }
    }

    async fn enter(&self, entry: &Advertisement) -> Result<(), Status> {
        let id = id(entry);
        if self.is_entered(&id, entry) && self.pass(&id).await? {
            return Ok(());
        }
        let wanted = serde_json::to_vec(&self.wanted(entry, &id)?)
            .map_err(|error| Status::internal(error.to_string()))?;
        let query = Attributes::new().with("replace-existing-checks", "true");
        let answer = self.consul.put("/agent/service/register", query, wanted).await?;
        answer.granted(&format!("cannot register {entry} in Consul"))?;
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).insert(id, entry.clone());
        Ok(())
    }

    /// Renews the server's check; `false` if the agent does not know it.
    async fn pass(&self, id: &str) -> Result<bool, Status> {
        let check = format!("/agent/check/pass/{}", segment(&format!("service:{id}")));
        let answer = self.consul.put(&check, Attributes::new(), "").await?;
        // Agents before 1.11 return 500.
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::INTERNAL_SERVER_ERROR) {
            self.entered.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
            return Ok(false);
        }
        answer.granted("cannot pass a Consul check").map(|()| true)
    }

    async fn leave(&self, entry: &Advertisement) -> Result<(), Status> {
        let id = id(entry);
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let path = format!("/agent/service/deregister/{}", segment(&id));
        let answer = self.consul.put(&path, Attributes::new(), "").await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(()),
            _ => answer.granted(&format!("cannot deregister {entry} from Consul")),
        }
    }

    /// Returns the agent's current attributes of the entry.
    async fn look(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let id = id(entry);
        let path = format!("/agent/service/{}", segment(&id));
        let answer = self.consul.get(&path, Attributes::new(), ANSWER).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let found: Service = answer.json(&format!("cannot read {entry} from Consul"))?;
        let written = self.wanted(entry, &id)?.service();
        let (Some(written), Some(found)) = (written.instance(None), found.instance(None)) else {
            return Ok(None);
        };
        Ok(Some(changed(&entry.instance.attributes, &written.attributes, &found.attributes)))
    }

    fn wanted<'a>(&self, entry: &'a Advertisement, id: &'a str) -> Result<Registration<'a>, Status> {
        match self.written {
            InstanceFormat::Plainly => unnamed_registration(entry, id),
            InstanceFormat::LegacyRpcx => Ok(legacy_rpcx_format(entry, id)),
        }
    }

    fn is_entered(&self, id: &str, entry: &Advertisement) -> bool {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner).get(id) == Some(entry)
    }
}

impl Registrar for Services {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.enter(entry).await?) }.boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.leave(entry).await?) }.boxed()
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        async { Ok(self.look(entry).await?) }.boxed()
    }
}

/// Id, as in rpcx.
fn id(entry: &Advertisement) -> String {
    format!("{}-{}", entry.service, entry.instance)
}

fn unnamed_registration<'a>(entry: &'a Advertisement, id: &'a str) -> Result<Registration<'a>, Status> {
    let Advertisement { instance, .. } = entry;
    let mut meta = to_map(&instance.attributes, may_be_a_name);
    let (address, port) = match instance.network {
        Network::Unix => (instance.address.as_str(), 0),
        _ => host_and_port(&instance.address).ok_or_else(|| {
            Status::invalid_argument(format!("cannot register {instance} in Consul: want host:port"))
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

fn legacy_rpcx_format<'a>(entry: &'a Advertisement, id: &'a str) -> Registration<'a> {
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

/// Healthy instances of one service in Consul's catalogue.
#[derive(Debug, Clone)]
pub struct ServiceDiscovery {
    consul: Consul,
    name: String,
    tag: Option<String>,
}

impl ServiceDiscovery {
    /// Keeps only the instances with this tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }
}

impl Discover for ServiceDiscovery {
    fn watch(&self) -> InstanceStream {
        watch::sets(ServicesWatch { of: self.clone(), index: Index::default(), warning: None })
    }
}

struct ServicesWatch {
    of: ServiceDiscovery,
    index: Index,
    warning: Option<Status>,
}

impl WatchSource for ServicesWatch {
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

impl ServicesWatch {
    async fn query(&mut self) -> Result<Vec<Instance>, Status> {
        let ServiceDiscovery { consul, name, tag } = &self.of;
        // Query parameters of brpc (`consul_naming_service.cpp`).
        let mut query = Attributes::new().with("passing", "").with("stale", "");
        if let Some(tag) = tag {
            query.set("tag", tag);
        }
        let path = format!("/health/service/{}", segment(name));
        let answer = consul.watch(&path, query, &mut self.index, WAIT).await?;
        let healthy: LenientList<Healthy> =
            answer.json(&format!("cannot list the healthy instances of {name} in Consul"))?;
        self.index.advance(&answer)?;
        let (all, healthy) = (healthy.all, healthy.items.into_iter());
        let found: Vec<_> = healthy.filter_map(Healthy::instance).collect();
        if all > 0 && found.is_empty() {
            return Err(Status::data_loss(format!("no instance of {name} in Consul has an address")));
        }
        self.warning = lenient_list::warning(all, found.len(), format_args!("instances of {name} in Consul"));
        Ok(found)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Healthy {
    node: Option<Node>,
    service: Service,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    #[serde(default)]
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Service {
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
    fn instance(self) -> Option<Instance> {
        self.service.instance(self.node)
    }
}

impl Service {
    /// Returns the instance; `None` if the entry has no usable address.
    fn instance(self, node: Option<Node>) -> Option<Instance> {
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
struct Registration<'a> {
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
    fn service(self) -> Service {
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
/// Wait of brpc.
const WAIT: Duration = Duration::from_secs(60);

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

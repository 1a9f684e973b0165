//! Converts instances from and to the format of Nacos.

use std::collections::BTreeMap;
use std::time::Duration;

use polyrpc::Status;
use polyrpc::discovery::{Advertisement, Attributes, Instance, Network};
use serde::{Deserialize, Serialize};

use crate::metadata::{apply_changes, from_map, to_map};

/// Instance in Nacos' format.
#[derive(Debug, Deserialize)]
pub(super) struct Host {
    #[serde(default)]
    ip: String,
    #[serde(default)]
    port: u32,
    // brpc uses only instances for which both are true; Nacos always sends both.
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    healthy: bool,
    weight: Option<f64>,
    metadata: Option<BTreeMap<String, Option<String>>>,
}

/// Returns the healthy instances: with rpcx's metadata, if present, and Nacos' weight. A disabled instance, or one of
/// weight zero, is inactive, not missing: that is intended, and is accepted even if it applies to all of them. `None`
/// for an instance without a valid address.
pub(super) fn instances(hosts: Vec<Host>) -> Vec<Option<Instance>> {
    let hosts: Vec<_> = hosts.into_iter().filter(|host| host.healthy).collect();
    // Weights may be fractions, which ours cannot be: then all are converted to hundredths.
    let scale = if hosts.iter().all(|host| host.weight().fract() == 0.0) { 1.0 } else { 100.0 };
    hosts.into_iter().map(|host| host.instance(scale)).collect()
}

/// Returns Nacos' current attributes of an entry, if it is among these. A fractional weight is not ours, and is
/// ignored.
pub(super) fn current_attributes(
    hosts: Vec<Host>,
    entry: &Advertisement,
) -> Result<Option<Attributes>, Status> {
    let host_registration = host_registration(entry)?;
    let is_it =
        |host: &Host| host.ip == host_registration.ip && host.port == u32::from(host_registration.port);
    let Some(found) = hosts.into_iter().find(is_it) else { return Ok(None) };
    let written = host_registration.host();
    let (was_enabled, is_enabled) = (written.enabled, found.enabled);
    let weight = found.weight.filter(|weight| weight.fract() == 0.0).or(written.weight);
    let found = Host { weight, ..found };
    let (Some(written), Some(found)) = (written.attributes(), found.attributes()) else { return Ok(None) };
    let mut current = apply_changes(&entry.instance.attributes, &written, &found);
    match (was_enabled, is_enabled) {
        (true, false) => current.set("state", "inactive"),
        (false, true) => current.remove("state"),
        _ => {}
    }
    Ok(Some(current))
}

impl Host {
    fn weight(&self) -> f64 {
        self.weight.filter(|weight| weight.is_finite()).unwrap_or(1.0)
    }

    fn instance(self, scale: f64) -> Option<Instance> {
        let is_active = self.enabled && self.weight() > 0.0;
        let bracketed = if self.ip.contains(':') { format!("[{}]", self.ip) } else { self.ip.clone() };
        let port = self.port;
        let (network, mut attributes) = self.into_attributes(scale)?;
        if !is_active {
            attributes.set("state", "inactive");
        }
        let instance: Instance = format!("{network}@{bracketed}:{port}").parse().ok()?;
        Some(instance.with(attributes))
    }

    /// Attributes, regardless of whether the instance is enabled.
    fn attributes(self) -> Option<Attributes> {
        self.into_attributes(1.0).map(|(_, attributes)| attributes)
    }

    fn into_attributes(self, scale: f64) -> Option<(Network, Attributes)> {
        let weight = self.weight().max(0.0);
        let metadata = self.metadata.unwrap_or_default();
        let metadata = metadata.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let mut attributes = from_map(metadata.filter(|(name, _)| !name.starts_with(PRESERVED)).collect());
        let network = attributes.value(NETWORK).map_or(Ok(Network::Tcp), str::parse).ok()?;
        attributes.remove(NETWORK);
        // One is Nacos' default weight; in this case rpcx's own weight applies.
        let weight = if weight == 1.0 { f64::from(attributes.weight()) } else { weight } * scale;
        if weight != 1.0 {
            attributes.set("weight", weight.max(weight.min(1.0).ceil()).round().to_string());
        }
        Some((network, attributes))
    }
}

/// Entry in Nacos' format.
#[derive(Debug)]
pub(super) struct HostRegistration<'a> {
    ip: &'a str,
    port: u16,
    weight: f64,
    enabled: bool,
    metadata: BTreeMap<String, String>,
}

/// Converts an entry: rpcx's metadata and the network (rpcx-nacos `serverplugin/nacos.go`), and its time to live.
pub(super) fn host_registration(entry: &Advertisement) -> Result<HostRegistration<'_>, Status> {
    let Instance { network, address, attributes, .. } = &entry.instance;
    let host_and_port = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = host_and_port.filter(|_| *network != Network::Unix) else {
        return Err(Status::invalid_argument(format!(
            "cannot register {entry} in Nacos: expected host:port"
        )));
    };
    let mut metadata = to_map(attributes, |_| true);
    metadata.insert(NETWORK.to_owned(), network.to_string());
    // Intervals of the heartbeat, of becoming unhealthy, and of removal (`PreservedMetadataKeys`).
    let ttl = entry.ttl.max(Duration::from_millis(3)).as_millis();
    for (name, millis) in
        [("heart.beat.interval", ttl / 3), ("heart.beat.timeout", ttl), ("ip.delete.timeout", ttl)]
    {
        metadata.insert(format!("{PRESERVED}{name}"), millis.to_string());
    }
    Ok(HostRegistration {
        ip: host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host),
        port,
        weight: f64::from(attributes.weight()).min(MAX_WEIGHT),
        enabled: attributes.is_active(),
        metadata,
    })
}

impl HostRegistration<'_> {
    /// Host, as returned by Nacos.
    fn host(self) -> Host {
        let metadata = self.metadata.into_iter().map(|(name, value)| (name, Some(value))).collect();
        Host {
            ip: self.ip.to_owned(),
            port: self.port.into(),
            enabled: self.enabled,
            healthy: true,
            weight: Some(self.weight),
            metadata: Some(metadata),
        }
    }

    /// Adds the address.
    pub(super) fn with_address(&self, fields: Attributes) -> Attributes {
        fields.with("ip", self.ip).with("port", self.port.to_string())
    }

    /// Adds all fields.
    pub(super) fn fields(&self, fields: Attributes) -> Result<Attributes, Status> {
        let fields =
            self.with_address(fields).with("weight", self.weight.to_string()).with("healthy", "true");
        Ok(fields.with("enabled", self.enabled.to_string()).with("metadata", json(&self.metadata)?))
    }

    /// Returns the heartbeat of Nacos 1 and 2, which also restores an entry that they have lost.
    pub(super) fn beat(&self, service: &str, cluster: &str) -> Result<String, Status> {
        json(&Beat {
            service_name: service,
            ip: self.ip,
            port: self.port,
            cluster,
            weight: self.weight,
            metadata: &self.metadata,
            scheduled: true,
        })
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Beat<'a> {
    service_name: &'a str,
    ip: &'a str,
    port: u16,
    cluster: &'a str,
    weight: f64,
    metadata: &'a BTreeMap<String, String>,
    scheduled: bool,
}

fn json(value: &impl Serialize) -> Result<String, Status> {
    serde_json::to_string(value).map_err(|error| Status::internal(error.to_string()))
}

const NETWORK: &str = "network";
/// Prefix of the names that Nacos interprets itself.
const PRESERVED: &str = "preserved.";
/// Maximum weight in Nacos (`Constants`).
const MAX_WEIGHT: f64 = 10_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let hosts: Vec<Host> = serde_json::from_str(text).unwrap();
        instances(hosts).iter().flatten().map(|one| format!("{one} {}", one.attributes)).collect()
    }

    #[test]
    fn hosts_registered_by_other_software_are_parsed() {
        let hosts = r#"[
            {"ip":"10.0.0.1","port":8972,"enabled":true,"healthy":true,"weight":1.0,
             "metadata":{"network":"quic","weight":"7","group":"a","preserved.heart.beat.timeout":"9","x":null}},
            {"ip":"::1","port":80,"enabled":true,"healthy":true,"weight":5.0},
            {"ip":"h","port":80,"enabled":true,"healthy":true,"weight":null,"metadata":null}]"#;
        assert_eq!(
            read(hosts),
            ["quic@10.0.0.1:8972 group=a&weight=7", "tcp@[::1]:80 weight=5", "tcp@h:80 "]
        );
    }

    #[test]
    fn disabled_or_zero_weight_host_is_inactive() {
        let hosts = r#"[
            {"ip":"a","port":1,"enabled":false,"healthy":true},
            {"ip":"b","port":1,"enabled":true,"healthy":true,"weight":0},
            {"ip":"c","port":1,"enabled":true,"healthy":true,"weight":-1}]"#;
        assert_eq!(
            read(hosts),
            ["tcp@a:1 state=inactive", "tcp@b:1 state=inactive&weight=0", "tcp@c:1 state=inactive&weight=0"]
        );
    }

    #[test]
    fn unhealthy_or_unaddressed_hosts_are_skipped() {
        let hosts = r#"[
            {"ip":"b","port":1,"enabled":true,"healthy":false},
            {"ip":"","port":1,"enabled":true,"healthy":true},
            {"ip":"d","port":70000,"enabled":true,"healthy":true},
            {"ip":"e","port":1,"enabled":true,"healthy":true,"metadata":{"network":"pigeon"}},
            {"ip":"f","port":1}]"#;
        assert!(read(hosts).is_empty());
    }

    #[test]
    fn fractional_weights_are_scaled_to_hundredths() {
        let hosts = r#"[
            {"ip":"a","port":1,"enabled":true,"healthy":true,"weight":0.5},
            {"ip":"b","port":1,"enabled":true,"healthy":true,"weight":1},
            {"ip":"c","port":1,"enabled":true,"healthy":true,"weight":0.001},
            {"ip":"d","port":1,"enabled":true,"healthy":true,"weight":1,"metadata":{"weight":"7"}},
            {"ip":"e","port":1,"enabled":true,"healthy":true,"weight":1,"metadata":{"weight":"0"}}]"#;
        let expected = ["50", "100", "1", "700", "0"].iter().zip(["a", "b", "c", "d", "e"]);
        assert_eq!(read(hosts), expected.map(|(w, ip)| format!("tcp@{ip}:1 weight={w}")).collect::<Vec<_>>());
    }

    #[test]
    fn published_instance_round_trips() {
        let attributes: Attributes = "group=a&group=b&weight=3".parse().unwrap();
        let instance = "kcp@[::1]:7".parse::<Instance>().unwrap().with(attributes);
        let entry = Advertisement::new("S", instance, Duration::from_secs(15));
        let host = host_registration(&entry).unwrap().host();
        assert_eq!(instances(vec![host]), [Some(entry.instance)]);
    }
}

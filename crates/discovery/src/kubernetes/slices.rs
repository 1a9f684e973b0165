//! Parses endpoint slices, and selects the pods that may be called.

use std::collections::{BTreeMap, BTreeSet};

use polyrpc::Status;
use polyrpc::discovery::{Attributes, Instance, Network};
use serde::Deserialize;

use super::PodDiscovery;
use crate::lenient_list::LenientList;

/// Parsed parts of an `EndpointSlice`
/// (kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slice {
    pub(super) metadata: Metadata,
    #[serde(default)]
    address_type: String,
    #[serde(default)]
    endpoints: LenientList<Endpoint>,
    #[serde(default)]
    ports: LenientList<Port>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) resource_version: String,
    /// Continuation token of a paged list.
    #[serde(default, rename = "continue")]
    pub(super) continue_token: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Option<Conditions>,
    zone: Option<String>,
    node_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
    protocol: Option<String>,
}

/// Returns the pods of all slices of a service that may be called.
pub(super) fn instances(
    slices: &BTreeMap<String, Slice>,
    of: &PodDiscovery,
) -> Result<Vec<Instance>, Status> {
    // A dual-stack service has each pod once per family: one is enough, and IPv4 works everywhere.
    let slices: Vec<_> = match slices.values().any(|slice| slice.address_type == "IPv4" && slice.has_pods()) {
        true => slices.values().filter(|slice| slice.address_type != "IPv6").collect(),
        false => slices.values().collect(),
    };
    let ready = collect_instances(&slices, of, Endpoint::is_ready)?;
    // If all pods are terminating, those that still serve are better than none (KEP 1669).
    if ready.is_empty() { collect_instances(&slices, of, Endpoint::is_serving) } else { Ok(ready) }
}

fn collect_instances(
    slices: &[&Slice],
    of: &PodDiscovery,
    may_be_called: fn(&Endpoint) -> bool,
) -> Result<Vec<Instance>, Status> {
    let mut found = Vec::new();
    for slice in slices {
        let Some(port) = slice.port(of)? else { continue };
        let endpoints = slice.endpoints.items.iter().filter(|endpoint| may_be_called(endpoint));
        found.extend(endpoints.filter_map(|endpoint| endpoint.instance(port, of.network)));
    }
    Ok(found)
}

impl Slice {
    /// Returns the number of endpoints, and the number of well-formed ones.
    pub(super) fn endpoints(&self) -> (usize, usize) {
        (self.endpoints.all, self.endpoints.items.len())
    }

    fn has_pods(&self) -> bool {
        !self.endpoints.items.is_empty()
    }

    /// Returns the requested port, if this slice has it.
    fn port(&self, of: &PodDiscovery) -> Result<Option<u16>, Status> {
        let carrier = if matches!(of.network, Network::Kcp | Network::Quic) { "UDP" } else { "TCP" };
        let mut ports =
            self.ports.items.iter().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == carrier);
        let Some(wanted) = &of.port else {
            let one = ports.next().and_then(|port| port.port);
            return match ports.next() {
                None => Ok(one),
                Some(_) => Err(Status::invalid_argument(format!(
                    "the service {of} of Kubernetes has the ports {}: name one",
                    self.port_names()
                ))),
            };
        };
        Ok(ports.find(|port| port.matches(wanted)).and_then(|port| port.port))
    }

    fn port_names(&self) -> String {
        let names: BTreeSet<_> = self.ports.items.iter().filter_map(|port| port.name.as_deref()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    }
}

impl Port {
    fn matches(&self, wanted: &str) -> bool {
        self.name.as_deref() == Some(wanted) || (self.port.is_some() && wanted.parse().ok() == self.port)
    }
}

impl Endpoint {
    /// An unknown condition counts as ready, according to the API.
    fn is_ready(&self) -> bool {
        self.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    }

    fn is_serving(&self) -> bool {
        self.conditions.as_ref().and_then(|conditions| conditions.serving) == Some(true)
    }

    /// Uses the first address: there is only one nowadays.
    fn instance(&self, port: u16, network: Network) -> Option<Instance> {
        let address = self.addresses.first()?;
        let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
        let topology = [("zone", &self.zone), ("node", &self.node_name)];
        let attributes: Attributes =
            topology.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        Some(format!("{network}@{host}:{port}").parse::<Instance>().ok()?.with(attributes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kubernetes;
    use super::*;

    fn read(slices: &[&str], port: Option<&str>, network: Network) -> Result<Vec<String>, Status> {
        let slices =
            slices.iter().enumerate().map(|(at, text)| (at.to_string(), serde_json::from_str(text).unwrap()));
        let mut of = Kubernetes::new("http://127.0.0.1:1").unwrap().service("n", "s").network(network);
        of.port = port.map(str::to_owned);
        let found = instances(&slices.collect(), &of)?;
        Ok(found.iter().map(|one| format!("{one} {}", one.attributes)).collect())
    }

    const TWO_PORTS: &str = r#"{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":[
        {"addresses":["10.0.0.1"],"conditions":{"ready":true},"zone":"z","nodeName":"n"},
        {"addresses":["10.0.0.2"],"conditions":{"ready":false,"serving":true,"terminating":true}},
        {"addresses":["10.0.0.3"],"conditions":{}}, {"addresses":[]}, "garbage"],
        "ports":[{"name":"grpc","port":80,"protocol":"TCP"},{"name":"web","port":81},
                 {"name":"grpc","port":82,"protocol":"UDP"},{"name":"none"}]}"#;

    #[test]
    fn ready_pods_are_found_at_the_requested_port() {
        let expected =
            |port| vec![format!("tcp@10.0.0.1:{port} node=n&zone=z"), format!("tcp@10.0.0.3:{port} ")];
        for (port_name, port) in [("grpc", 80), ("web", 81), ("81", 81)] {
            assert_eq!(read(&[TWO_PORTS], Some(port_name), Network::Tcp).unwrap(), expected(port));
        }
        assert_eq!(read(&[TWO_PORTS], None, Network::Quic).unwrap()[1], "quic@10.0.0.3:82 ");
        assert!(read(&[TWO_PORTS], Some("else"), Network::Tcp).unwrap().is_empty());
        assert!(read(&[TWO_PORTS], Some("none"), Network::Tcp).unwrap().is_empty());
    }

    #[test]
    fn port_name_is_required_if_there_are_several() {
        let error = read(&[TWO_PORTS], None, Network::Tcp).unwrap_err();
        assert!(error.message().contains("grpc, none, web"), "{error}");
    }

    #[test]
    fn serving_pods_are_used_if_none_is_ready() {
        let slice = r#"{"metadata":{},"addressType":"IPv6","endpoints":[
            {"addresses":["fd00::1"],"conditions":{"ready":false,"serving":true,"terminating":true}},
            {"addresses":["fd00::2"],"conditions":{"ready":false,"serving":false}}],"ports":[{"port":80}]}"#;
        assert_eq!(read(&[slice], None, Network::Tcp).unwrap(), ["tcp@[fd00::1]:80 "]);
    }

    #[test]
    fn dual_stack_pod_is_one_instance() {
        let six = r#"{"metadata":{},"addressType":"IPv6","endpoints":[{"addresses":["fd00::1"]}],"ports":[{"port":80}]}"#;
        let four = r#"{"metadata":{},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"port":80}]}"#;
        let none = r#"{"metadata":{},"addressType":"IPv4","endpoints":null,"ports":null}"#;
        assert_eq!(read(&[six, four], None, Network::Tcp).unwrap(), ["tcp@10.0.0.1:80 "]);
        assert_eq!(read(&[six, none], None, Network::Tcp).unwrap(), ["tcp@[fd00::1]:80 "]);
    }
}

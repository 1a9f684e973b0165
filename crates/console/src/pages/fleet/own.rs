use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use polyrpc::client::EndpointInfo;

use super::super::flags;
use crate::console::NamedClient;
use crate::console::State;
use crate::fleet::{OwnEndpoint, OwnMethod, OwnSnapshot};
use crate::reply::Reply;

/// Maximum number of methods that are sent: the busiest.
const MAX_METHODS: usize = 500;

/// Answers with the state of this process, for the page of its registry.
pub(super) fn answer(state: &State) -> Reply {
    Reply::json("fleet-self", &own_snapshot(state))
}

fn own_snapshot(state: &State) -> OwnSnapshot {
    let stats = state.stats();
    let settings = flags::all(state).into_iter().map(|flag| (flag.name, flag.value));
    let version = stats.iter().map(|stats| stats.version.as_str()).find(|version| !version.is_empty());
    let services: BTreeSet<String> = stats.iter().flat_map(|stats| stats.services.keys().cloned()).collect();
    let mut methods = BTreeMap::<String, OwnMethod>::new();
    for method in stats.iter().flat_map(|stats| stats.methods()).filter(|method| method.totals.is_some()) {
        let slash = if method.info.service.is_empty() { "" } else { "/" };
        let name = format!("{}{slash}{}", method.info.service, method.info.name);
        let own = methods.entry(name.clone()).or_insert_with(|| OwnMethod { name, ..OwnMethod::default() });
        own.per_second += method.per_second();
        own.errors_per_second += method.errors_per_second();
        own.in_flight += method.in_flight();
        // Those of several servers may repeat: readers add them.
        own.buckets.extend(&method.buckets);
    }
    let mut methods: Vec<_> = methods.into_values().collect();
    methods.sort_by(|one, other| other.per_second.total_cmp(&one.per_second));
    methods.truncate(MAX_METHODS);
    OwnSnapshot {
        version: version
            .map_or_else(|| concat!("polyrpc/", env!("CARGO_PKG_VERSION")).to_owned(), str::to_owned),
        ready: state.is_serving("") == Some(true),
        uptime: SystemTime::now().duration_since(state.started).unwrap_or_default().as_secs_f64(),
        connections: stats.iter().map(|stats| stats.connections as u64).sum(),
        settings: settings.collect(),
        methods,
        services: services.into_iter().collect(),
        calls: state.clients().iter().flat_map(|client| calls(client)).collect(),
    }
}

/// Returns the servers of a client.
fn calls(observed: &NamedClient) -> Vec<OwnEndpoint> {
    let protocol = observed.client.protocol().as_str();
    let call = |info: EndpointInfo| OwnEndpoint {
        client: observed.name.clone(),
        protocol: protocol.to_owned(),
        address: info.instance.address.clone(),
        attempts: info.attempts,
        failures: info.failed_attempts,
        in_flight: info.in_flight as u64,
    };
    observed.client.endpoints().into_iter().map(call).collect()
}

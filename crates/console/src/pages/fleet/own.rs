use std::collections::BTreeMap;
use std::time::SystemTime;

use super::super::flags;
use crate::console::State;
use crate::fleet::{OwnLook, OwnMethod};
use crate::reply::Reply;

/// Maximum number of methods that are sent: the busiest.
const METHODS: usize = 500;

/// Answers with what this process knows of itself, for the page of its registry.
pub(super) fn answer(state: &State) -> Reply {
    Reply::json("fleet-self", &look(state))
}

fn look(state: &State) -> OwnLook {
    let stats = state.stats();
    let settings = flags::all(state).into_iter().map(|flag| (flag.name, flag.value));
    let version = stats.iter().map(|stats| stats.version.as_str()).find(|version| !version.is_empty());
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
    methods.truncate(METHODS);
    OwnLook {
        version: version
            .map_or_else(|| concat!("polyrpc/", env!("CARGO_PKG_VERSION")).to_owned(), str::to_owned),
        ready: state.is_serving("") == Some(true),
        uptime: SystemTime::now().duration_since(state.started).unwrap_or_default().as_secs_f64(),
        connections: stats.iter().map(|stats| stats.connections as u64).sum(),
        settings: settings.collect(),
        methods,
    }
}

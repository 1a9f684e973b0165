//! Text pages of brpc's servers, and of ours that have no newer page.

use std::collections::{BTreeMap, BTreeSet};

use super::histogram::Buckets;
use super::snapshot::{Kind, MethodSnapshot, ServerSnapshot, truncate};

/// Maximum number of methods.
const MAX_METHODS: usize = 500;

/// Maximum number of services.
const MAX_SERVICES: usize = 50;

/// Reads `/status` as brpc writes it (`builtin/status_service.cpp`): `name: value` of the server, then a line `[Service]`,
/// and for each method a line `Method (Request) returns (Response)` before its own values. `None` if it is something else.
pub(super) fn parse(status: &str, version: &str, healthy: bool, uptime: f64) -> Option<ServerSnapshot> {
    let (mut service, mut methods) = (String::new(), Vec::<MethodSnapshot>::new());
    let (mut own, mut services) = (BTreeMap::<&str, &str>::new(), BTreeSet::new());
    for line in status.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            service = truncate(name);
            if services.len() < MAX_SERVICES {
                services.insert(service.clone());
            }
        } else if let Some((name, _)) = line.split_once(" (").filter(|_| line.contains(") returns (")) {
            if methods.len() >= MAX_METHODS {
                break;
            }
            let short = truncate(name);
            let name = if service.is_empty() { short } else { format!("{service}/{short}") };
            methods.push(MethodSnapshot { name, buckets: Buckets::default(), ..MethodSnapshot::default() });
        } else if let Some((name, value)) = line.split_once(": ") {
            match methods.last_mut() {
                None => drop(own.insert(name, value)),
                Some(method) => set(method, name, value),
            }
        }
    }
    let is_status =
        own.contains_key("version") || own.contains_key("connection_count") || !methods.is_empty();
    is_status.then(|| ServerSnapshot {
        kind: Kind::Brpc,
        version: truncate(own.get("version").copied().filter(|own| !own.is_empty()).unwrap_or(version)),
        ready: healthy,
        uptime,
        connections: own.get("connection_count").and_then(|count| count.parse().ok()).unwrap_or(0),
        settings: BTreeMap::new(),
        methods,
        services: services.into_iter().collect(),
        calls: Vec::new(),
    })
}

fn set(method: &mut MethodSnapshot, name: &str, value: &str) {
    let Ok(value) = value.trim().parse::<u64>() else { return };
    match name {
        "qps" => method.per_second = value as f64,
        "eps" => method.errors_per_second = value as f64,
        "concurrency" => method.in_flight = value,
        "latency_50" => method.p50 = value,
        "latency_99" => method.p99 = value,
        _ => {}
    }
}

/// Reads a variable of `/vars`: `name : value`.
pub(super) fn variable(page: &str, name: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.split_once(" : ").filter(|(known, _)| *known == name))?;
    line.1.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_brpc_is_read() {
        let status = "version: Impl\nnon_service_error: 12\nconnection_count: 1\nmax_concurrency: unlimited\n\
                      concurrency: 0\n[example.EchoService]\n\nEcho (EchoRequest) returns (EchoResponse)\ncount: 56\n\
                      qps: 1\nerror: 17\neps: 1\nlatency: 154\nlatency_50: 5\nlatency_99: 7\nconcurrency: 2\n";
        let snapshot = parse(status, "Impl", true, 5.0).unwrap();
        let [echo] = &snapshot.methods[..] else { panic!("{snapshot:?}") };
        assert_eq!((snapshot.version.as_str(), snapshot.connections, snapshot.ready), ("Impl", 1, true));
        assert_eq!(
            (echo.name.as_str(), echo.per_second, echo.errors_per_second),
            ("example.EchoService/Echo", 1.0, 1.0)
        );
        assert_eq!((echo.p50, echo.p99, echo.in_flight, snapshot.percentiles()), (5, 7, 2, (5, 7)));
        for other in ["", "<html>hello</html>", "OK\n"] {
            assert!(parse(other, "", true, 0.0).is_none(), "{other}");
        }
        assert_eq!(variable("a : x\nprocess_uptime : 12.5\n", "process_uptime"), Some(12.5));
    }
}

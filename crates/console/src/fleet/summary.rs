use std::collections::BTreeMap;

use super::histogram::{Buckets, micros};
use super::snapshot::{MethodSnapshot, ServerSnapshot};
use super::view::ServerView;

/// Summary of all servers.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) reachable: usize,
    pub(crate) ready: usize,
    pub(crate) versions: BTreeMap<String, Vec<String>>,
    pub(crate) methods: Vec<MergedMethod>,
    /// Settings whose values differ between servers.
    pub(crate) skews: Vec<Skew>,
    /// Servers that differ from the others, and how.
    pub(crate) outliers: BTreeMap<String, String>,
}

/// A method over all servers. Durations are in microseconds.
#[derive(Debug)]
pub(crate) struct MergedMethod {
    pub(crate) name: String,
    pub(crate) servers: usize,
    pub(crate) per_second: f64,
    pub(crate) errors_per_second: f64,
    pub(crate) in_flight: u64,
    /// Percentiles of the calls of all servers that send histograms; `None` if none does.
    pub(crate) percentiles: Option<[u64; SHARES.len()]>,
    /// Number of servers that send none.
    pub(crate) without: usize,
}

pub(crate) const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// A setting with the servers that have each of its values.
#[derive(Debug)]
pub(crate) struct Skew {
    pub(crate) name: String,
    pub(crate) values: BTreeMap<String, Vec<String>>,
}

/// Differences from the median that are noise: of a percentile in microseconds, and of the share of failures.
const QUICK: u64 = 1_000;
const MIN_ERROR_SHARE_EXCESS: f64 = 0.05;

/// Summarises the servers.
pub(crate) fn summary(servers: &[ServerView]) -> Summary {
    let snapshots: Vec<_> =
        servers.iter().filter_map(|server| Some((server, server.snapshot.as_deref()?))).collect();
    let mut summary = Summary { reachable: snapshots.len(), ..Summary::default() };
    summary.ready = snapshots.iter().filter(|(_, snapshot)| snapshot.ready).count();
    let (mut methods, mut settings) = (
        BTreeMap::<&str, Vec<&MethodSnapshot>>::new(),
        BTreeMap::<&str, BTreeMap<String, Vec<String>>>::new(),
    );
    for (server, snapshot) in &snapshots {
        summary.versions.entry(snapshot.version.clone()).or_default().push(server.address.clone());
        for method in &snapshot.methods {
            methods.entry(&method.name).or_default().push(method);
        }
        for (name, value) in &snapshot.settings {
            // The settings of a server have its port in their names.
            let name = name.split_once('@').map_or(name.as_str(), |(name, _)| name);
            let values = settings.entry(name).or_default();
            values.entry(value.clone()).or_default().push(server.address.clone());
        }
    }
    summary.methods = methods.into_iter().map(|(name, methods)| merge_methods(name, &methods)).collect();
    let differing = settings.into_iter().filter(|(_, values)| values.len() > 1);
    summary.skews = differing.map(|(name, values)| Skew { name: name.to_owned(), values }).collect();
    summary.outliers = outliers(&snapshots);
    summary
}

fn merge_methods(name: &str, methods: &[&MethodSnapshot]) -> MergedMethod {
    let mut buckets = Buckets::default();
    methods.iter().for_each(|method| buckets.merge(&method.buckets));
    let is_busy = |method: &&&MethodSnapshot| method.per_second > 0.0 && method.buckets.is_empty();
    MergedMethod {
        name: name.to_owned(),
        servers: methods.len(),
        per_second: methods.iter().map(|method| method.per_second).sum(),
        errors_per_second: methods.iter().map(|method| method.errors_per_second).sum(),
        in_flight: methods.iter().fold(0, |sum, method| sum.saturating_add(method.in_flight)),
        percentiles: (!buckets.is_empty()).then(|| SHARES.map(|share| micros(buckets.percentile(share)))),
        without: methods.iter().filter(is_busy).count(),
    }
}

/// Returns the servers that are slower, or fail more, than the median of three or more.
fn outliers(snapshots: &[(&ServerView, &ServerSnapshot)]) -> BTreeMap<String, String> {
    let figures: Vec<_> = snapshots
        .iter()
        .map(|(server, snapshot)| {
            let (fine, failed) = snapshot.rates();
            let failing = if fine + failed > 0.0 { failed / (fine + failed) } else { 0.0 };
            (&server.address, snapshot.percentiles().1, failing, fine + failed > 0.0)
        })
        .filter(|(.., is_called)| *is_called)
        .collect();
    if figures.len() < 3 {
        return BTreeMap::new();
    }
    let (mut latencies, mut failures): (Vec<_>, Vec<_>) =
        figures.iter().map(|(_, latency, failing, _)| (*latency, *failing)).unzip();
    latencies.sort_unstable();
    failures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let (usual, usually) =
        (latencies.get(middle).copied().unwrap_or(0), failures.get(middle).copied().unwrap_or(0.0));
    let mut outliers = BTreeMap::new();
    for (address, latency, failing, _) in figures {
        let mut why = Vec::new();
        if latency > usual.saturating_mul(2) && latency > usual + QUICK {
            why.push(format!("p99 is {latency} µs, the median of the servers {usual} µs"));
        }
        if failing > usually + MIN_ERROR_SHARE_EXCESS {
            why.push(format!("{:.0} % fail, the median is {:.0} %", failing * 100.0, usually * 100.0));
        }
        if !why.is_empty() {
            outliers.insert(address.clone(), why.join("; "));
        }
    }
    outliers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::snapshot::Kind;
    use super::*;

    fn server(address: &str, version: &str, limit: &str, bucket: i32, failing: f64) -> ServerView {
        let method = MethodSnapshot {
            name: "add".into(),
            per_second: 100.0,
            errors_per_second: failing,
            buckets: Buckets::new([(bucket, 100)]),
            ..MethodSnapshot::default()
        };
        let settings =
            BTreeMap::from([("limit".into(), limit.into()), (format!("drain@{address}"), "false".into())]);
        let snapshot = ServerSnapshot {
            kind: Kind::PolyRpc,
            version: version.into(),
            ready: true,
            uptime: 1.0,
            connections: 1,
            settings,
            methods: vec![method],
            services: Vec::new(),
            calls: Vec::new(),
        };
        ServerView {
            snapshot: Some(Arc::new(snapshot)),
            ..ServerView::new(address.into(), Ok(address.into()))
        }
    }

    #[test]
    fn differences_are_found() {
        let servers = [
            server("a:1", "1", "5", -80, 0.0),
            server("b:2", "1", "5", -80, 0.0),
            server("c:3", "2", "6", 0, 0.0),
            server("d:4", "1", "5", -80, 50.0),
            ServerView::new("e:5".into(), Ok("e:5".into())),
        ];
        let summary = summary(&servers);
        assert_eq!((summary.reachable, summary.ready), (4, 4));
        assert_eq!(summary.versions.get("2"), Some(&vec!["c:3".to_owned()]));
        let [skew] = &summary.skews[..] else { panic!("{:?}", summary.skews) };
        assert_eq!((skew.name.as_str(), &skew.values["6"][..]), ("limit", &["c:3".to_owned()][..]));
        let outliers: Vec<_> = summary.outliers.iter().collect();
        assert!(outliers[0].0 == "c:3" && outliers[0].1.starts_with("p99 is "), "{outliers:?}");
        assert!(outliers[1].0 == "d:4" && outliers[1].1.contains("33 % fail"), "{outliers:?}");
        let [add] = &summary.methods[..] else { panic!("{:?}", summary.methods) };
        assert_eq!((add.servers, add.per_second), (4, 400.0));
        // One call of four takes a second.
        let [p50, p90, ..] = add.percentiles.unwrap();
        assert!(p50 < 2_000 && p90 > 900_000, "{add:?}");
    }
}

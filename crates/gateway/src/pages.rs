//! Pages of the gateway on its admin listener.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyrpc::Client;
use polyrpc_console::PageContent;
use polyrpc_record::layer::RecorderStats;
use serde::Serialize;
use serde_json::json;

use crate::compare::{MethodFindings, PathFindings, Verdict};
use crate::mirror::{Counts, Mirror};
use crate::plan::{Plan, Route, Target};
use crate::upstream::Upstream;

#[derive(Serialize)]
struct RouteRow {
    route: String,
    upstream: String,
    /// Share of the calls, relative to those of the route's other upstreams.
    share: u32,
    succeeded: u64,
    failed: i64,
    /// Latencies of all calls, in microseconds.
    latency_99: u64,
    /// Why the route fell back to another upstream.
    fell_back: Option<String>,
}

/// The routes, with the calls of their upstreams.
pub(crate) fn routes(plan: &Plan) -> PageContent {
    let rows: Vec<_> = plan.routes.iter().flat_map(|route| route_rows(route)).collect();
    let cells = rows.iter().map(|row| {
        let state =
            row.fell_back.as_ref().map_or_else(|| "in use".to_owned(), |why| format!("fell back: {why}"));
        [
            row.route.clone(),
            row.upstream.clone(),
            row.share.to_string(),
            row.succeeded.to_string(),
            row.failed.to_string(),
            row.latency_99.to_string(),
            state,
        ]
    });
    let columns = ["Route", "Upstream", "Share", "Succeeded", "Failed", "99 % µs", "State"];
    PageContent::new(json!(rows)).table("Routes", columns, cells)
}

fn route_rows(route: &Route) -> Vec<RouteRow> {
    let fell_back = route.state.rollback.as_ref().and_then(|rollback| rollback.reason());
    let row = |target: &Target| RouteRow {
        route: route.name.clone(),
        upstream: target.upstream.spec.name.clone(),
        share: target.share,
        succeeded: target.latency.count(),
        failed: target.failures.value(),
        latency_99: u64::try_from(target.latency.quantile(0.99).as_micros()).unwrap_or(u64::MAX),
        fell_back: fell_back.map(str::to_owned),
    };
    route.targets().iter().map(row).collect()
}

#[derive(Serialize)]
struct UpstreamRow {
    upstream: String,
    protocol: &'static str,
    servers: usize,
    available: usize,
    in_flight: usize,
    attempts: u64,
    failures: u64,
}

/// The upstreams, with the states of their servers. A client of one address has no list before its first call.
pub(crate) fn upstreams(plan: &Plan) -> PageContent {
    let rows: Vec<_> = plan.upstreams.iter().map(upstream_row).collect();
    let cells = rows.iter().map(|row| {
        [
            row.upstream.clone(),
            row.protocol.to_owned(),
            match row.servers {
                // A client of one fixed server may have no list.
                0 => "–".to_owned(),
                servers => format!("{} of {servers}", row.available),
            },
            row.in_flight.to_string(),
            row.attempts.to_string(),
            row.failures.to_string(),
        ]
    });
    let columns = ["Upstream", "Protocol", "Servers available", "Under way", "Attempts", "Failed"];
    PageContent::new(json!(rows)).table("Upstreams", columns, cells)
}

fn upstream_row(upstream: &Arc<Upstream>) -> UpstreamRow {
    let all = || upstream.clients().iter().flat_map(Client::endpoints);
    // Each thread has its own list, with its own health states.
    let mut known = BTreeMap::new();
    for server in all() {
        *known.entry(server.instance.address.clone()).or_insert(true) &= server.available;
    }
    UpstreamRow {
        upstream: upstream.spec.name.clone(),
        protocol: upstream.protocol().as_str(),
        servers: known.len(),
        available: known.values().filter(|available| **available).count(),
        in_flight: all().map(|server| server.in_flight).sum(),
        attempts: all().map(|server| server.attempts).sum(),
        failures: all().map(|server| server.failed_attempts).sum(),
    }
}

#[derive(Serialize)]
struct RecordingRow {
    recorded: u64,
    queue_full: u64,
    above_limit: u64,
    not_written: u64,
}

/// Counts of recorded and unrecorded calls.
pub(crate) fn recording(stats: RecorderStats) -> PageContent {
    let RecorderStats { recorded, queue_full, method_limit, not_written, .. } = stats;
    let row = RecordingRow { recorded, queue_full, above_limit: method_limit, not_written };
    let columns = ["Recorded", "Queue was full", "Above `per_method`", "Not written"];
    let cells = [recorded, queue_full, method_limit, not_written].map(|count| count.to_string());
    PageContent::new(json!(row)).table("Recording", columns, [cells])
}

#[derive(Serialize)]
struct Report<'r> {
    route: &'r str,
    mirror: &'r str,
    paused: bool,
    copies: &'r Counts,
    methods: Vec<MethodReport>,
}

#[derive(Serialize)]
struct MethodReport {
    method: String,
    compared: u64,
    equal: u64,
    /// Differences at paths beyond the limit.
    at_other_paths: u64,
    paths: Vec<PathReport>,
}

#[derive(Serialize)]
struct PathReport {
    path: String,
    verdict: &'static str,
    /// Calls in which only the mirror differed, only the second primary, or both.
    mirror_alone: u64,
    second_alone: u64,
    both: u64,
    /// Values of the primary and the mirror.
    samples: Vec<[String; 2]>,
}

/// Findings of the comparison of copies, by route and method. Differences come first.
pub(crate) fn report(plan: &Plan) -> PageContent {
    let mirrored: Vec<_> =
        plan.routes.iter().filter_map(|route| Some((route, route.state.mirror.as_deref()?))).collect();
    let reports: Vec<_> = mirrored.iter().map(|(route, mirror)| report_of(route, mirror)).collect();
    let mut page = PageContent::new(json!(reports)).table("Copies", COPIES, reports.iter().map(copies_row));
    for report in &reports {
        for method in &report.methods {
            let caption = format!(
                "{}, {}: {} compared, {} equal",
                report.route, method.method, method.compared, method.equal
            );
            page = page.table(caption, PATHS, method.paths.iter().map(path_row));
        }
    }
    page
}

/// Number of paths at which a mirror differs.
pub(crate) fn findings(plan: &Plan) -> usize {
    let mirrors = plan.routes.iter().filter_map(|route| route.state.mirror.as_ref());
    let count = |method: &MethodFindings| {
        method.paths.values().filter(|path| method.verdict(path) == Verdict::Differs).count()
    };
    mirrors.map(|mirror| mirror.read(|findings| findings.methods().values().map(count).sum::<usize>())).sum()
}

const COPIES: [&str; 9] =
    ["Route", "Mirror", "Equal", "Different", "Failed", "Unmeasured", "Dropped", "Paused", "Untranslatable"];

const PATHS: [&str; 6] = ["Path", "Verdict", "Mirror alone", "Second primary alone", "Both", "Samples"];

fn copies_row(report: &Report<'_>) -> [String; 9] {
    let copies = report.copies;
    [
        report.route.to_owned(),
        report.mirror.to_owned(),
        copies.equal.get().to_string(),
        copies.different.get().to_string(),
        copies.failed.get().to_string(),
        copies.unmeasured.get().to_string(),
        copies.dropped.get().to_string(),
        copies.paused.get().to_string(),
        copies.untranslatable.get().to_string(),
    ]
}

fn path_row(path: &PathReport) -> [String; 6] {
    let samples: Vec<_> = path.samples.iter().map(|[one, other]| format!("{one} → {other}")).collect();
    [
        path.path.clone(),
        path.verdict.to_owned(),
        path.mirror_alone.to_string(),
        path.second_alone.to_string(),
        path.both.to_string(),
        samples.join("; "),
    ]
}

fn report_of<'r>(route: &'r Route, mirror: &'r Mirror) -> Report<'r> {
    let methods = mirror.read(|findings| {
        findings.methods().iter().map(|(name, method)| method_report(name, method)).collect()
    });
    Report {
        route: &route.name,
        mirror: &mirror.spec.to,
        paused: mirror.is_paused(),
        copies: mirror.counts(),
        methods,
    }
}

fn method_report(name: &str, method: &MethodFindings) -> MethodReport {
    let mut paths: Vec<_> =
        method.paths.iter().map(|(path, found)| path_report(path, found, method.verdict(found))).collect();
    paths.sort_by_key(|path| path.verdict != verdict(Verdict::Differs));
    MethodReport {
        method: name.to_owned(),
        compared: method.compared,
        equal: method.equal,
        at_other_paths: method.at_other_paths,
        paths,
    }
}

fn path_report(path: &str, found: &PathFindings, concluded: Verdict) -> PathReport {
    let samples = found.samples.iter();
    PathReport {
        path: path.to_owned(),
        verdict: verdict(concluded),
        mirror_alone: found.alone,
        second_alone: found.noise,
        both: found.both,
        samples: samples.map(|difference| [difference.one.clone(), difference.other.clone()]).collect(),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Differs => "differs",
        Verdict::Noise => "noise",
        Verdict::TooFew => "too few calls",
    }
}

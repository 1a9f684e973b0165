//! Results in the form that is stored, and that every report is made of.

use std::time::{SystemTime, UNIX_EPOCH};

use polyrpc_bench_report::model::{
    Arrivals, Build, Counts, Document, ErrorCount, Latencies, Latency, Load, LoopKind, Metadata,
    NamedLatency, Outcome as Summary, Process, Resources, Run, Second, Target, ThresholdResult, Verdict,
};
use polyrpc_load::{CheckedCondition, Histogram, Lost, Outcome, Pacing, Usage};

use super::report::{Report, Setting};

/// The document of a run.
pub(super) fn to_document(report: &Report<'_>) -> Document {
    Document::Run(Box::new(to_run(report)))
}

/// The run as data.
pub(super) fn to_run(report: &Report<'_>) -> Run {
    let (setting, outcome) = (&report.setting, report.outcome);
    let counts = &outcome.counts;
    let is_open = matches!(setting.pacing, Pacing::Open { .. });
    let latency = |histogram: &Histogram<u64>| Latency::new(histogram.clone());
    Run {
        metadata: metadata(setting, report),
        target: target(setting),
        load: load(setting),
        duration_s: outcome.window.as_secs_f64(),
        calls_per_second: outcome.calls_per_second(),
        counts: Counts {
            planned: is_open.then_some(counts.planned),
            succeeded: counts.succeeded,
            failed: counts.failed,
            unanswered: counts.unanswered,
            blocked: counts.blocked,
        },
        errors: errors(outcome),
        latency: Latencies {
            response: Latency::new(outcome.response()),
            all: (counts.failed + counts.unanswered > 0).then(|| Latency::new(outcome.response_of_all())),
            service: is_open.then(|| latency(&outcome.service)),
            lag: is_open.then(|| latency(&outcome.lag)),
            methods: methods(setting, outcome),
            phases: Vec::new(),
        },
        series: outcome.seconds.iter().map(|second| interval(second, outcome)).collect(),
        steps: Vec::new(),
        resources: Resources {
            client: process(outcome.generator),
            server: outcome
                .server
                .map_or_else(|| Process { unknown: report.unknown_server(), ..Process::default() }, process),
        },
        thresholds: report.checked.iter().map(threshold).collect(),
        warnings: warnings(report),
        verdict: verdict(outcome),
    }
}

fn metadata(setting: &Setting, report: &Report<'_>) -> Metadata {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Metadata {
        started_s: now.saturating_sub(report.outcome.window).as_secs_f64(),
        command: setting.command.clone(),
        build: build(),
        machine: report.machine.to_document(),
        seed: Some(setting.seed),
        ..Metadata::default()
    }
}

/// This program.
pub(super) fn build() -> Build {
    Build { name: "polyrpc".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), commit: None }
}

/// What is called.
pub(super) fn target(setting: &Setting) -> Target {
    Target {
        url: setting.url.clone(),
        method: setting.target.clone(),
        format: Some(setting.format.to_owned()),
        request_bytes: Some(setting.request_bytes as u64),
        // Only unary methods are tried before the load.
        reply_bytes: (setting.shape == "unary").then_some(setting.reply_bytes as u64),
    }
}

/// The planned load.
pub(super) fn load(setting: &Setting) -> Load {
    let load = Load { warmup_s: setting.warmup_s, ..Load::default() };
    match &setting.pacing {
        Pacing::Closed { callers, .. } => Load {
            kind: LoopKind::Closed,
            callers: Some(*callers as u64),
            description: format!("{}, {}", setting.shape, setting.clients),
            ..load
        },
        Pacing::Open { profile, arrivals } => Load {
            kind: LoopKind::Open,
            rate: Some(profile.highest_rate()),
            arrivals: Some(match arrivals {
                polyrpc_load::Arrivals::Constant => Arrivals::Constant,
                polyrpc_load::Arrivals::Poisson => Arrivals::Poisson,
            }),
            description: format!("{}, {arrivals} arrivals at {profile}, {}", setting.shape, setting.clients),
            ..load
        },
    }
}

fn errors(outcome: &Outcome) -> Vec<ErrorCount> {
    let mut errors: Vec<_> =
        outcome.errors().into_iter().map(|(error, count)| ErrorCount { error, count }).collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    errors
}

/// Each method of a mix. The only method is the whole run.
fn methods(setting: &Setting, outcome: &Outcome) -> Vec<NamedLatency> {
    if setting.methods.len() < 2 {
        return Vec::new();
    }
    let named = setting.methods.iter().zip(&outcome.methods).map(|(name, method)| NamedLatency {
        name: name.clone(),
        latency: Latency::new(method.response.clone()),
    });
    // As many as the format holds.
    named.take(100).collect()
}

fn interval(second: &polyrpc_load::Second, outcome: &Outcome) -> Second {
    let start_s = second.second as f64;
    let left = outcome.window.as_secs_f64() - start_s;
    let [p50, p90, p99, p999] = second.quantiles.map(|nanos| (second.succeeded > 0).then_some(nanos));
    Second {
        start_s,
        length_s: if left > 0.0 { left.min(1.0) } else { 1.0 },
        succeeded: second.succeeded,
        failed: second.failed,
        sent: Some(second.sent),
        in_flight: Some(second.in_flight),
        p50_ns: p50,
        p90_ns: p90,
        p99_ns: p99,
        p999_ns: p999,
        max_ns: (second.succeeded > 0).then_some(second.max),
        lag_max_ns: Some(second.lag_max),
    }
}

fn process(usage: Usage) -> Process {
    Process {
        // Several processes have no id in common.
        pid: (usage.pid > 0).then_some(usage.pid),
        cpu_s: Some(usage.cpu.as_secs_f64()),
        max_rss_bytes: (usage.memory_peak > 0).then_some(usage.memory_peak),
        unknown: None,
    }
}

/// A condition and its result.
pub(super) fn threshold(checked: &CheckedCondition) -> ThresholdResult {
    ThresholdResult {
        threshold: checked.condition.clone(),
        value: Some(checked.measured.clone()),
        is_met: checked.is_met,
        reason: None,
    }
}

fn warnings(report: &Report<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.outcome.server.is_some() && report.machine.cores() < 4 {
        warnings.push(format!(
            "client and server share {} cores: trust ratios and CPU time, not absolute figures",
            report.machine.cores()
        ));
    }
    warnings
}

fn verdict(outcome: &Outcome) -> Verdict {
    let summary = match &outcome.verdict {
        polyrpc_load::Verdict::GeneratorSaturated { .. } => Summary::GeneratorSaturated,
        polyrpc_load::Verdict::WorkerLost { .. } => Summary::WorkerLost,
        polyrpc_load::Verdict::NothingMeasured => Summary::Inconsistent,
        _ if outcome.interrupted => Summary::Interrupted,
        _ if matches!(outcome.lost, Some(Lost { for_good: true, .. })) => Summary::ServerLost,
        polyrpc_load::Verdict::ServerSaturated { .. } => Summary::ServerSaturated,
        polyrpc_load::Verdict::Valid => Summary::Completed,
    };
    // The outcome says already whether the run is valid.
    let reason = |text: String| text.trim_start_matches("INVALID: ").trim_start_matches("valid; ").to_owned();
    let judged =
        (outcome.verdict != polyrpc_load::Verdict::Valid).then(|| reason(outcome.verdict.to_string()));
    let lost = outcome.lost.as_ref().map(super::report::describe_lost);
    Verdict { outcome: summary, reasons: judged.into_iter().chain(lost).collect() }
}

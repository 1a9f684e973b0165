//! The results as JSON.

use std::collections::BTreeMap;

use polyrpc_load::{Arrivals, Checked, Counts, Outcome, Pacing, Second, Usage};
use serde::Serialize;

use super::latency::Latency;
use super::machine::Machine;
use super::report::Report;

/// The results of a run.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    url: &'a str,
    target: &'a str,
    shape: &'a str,
    format: &'a str,
    request_bytes: usize,
    reply_bytes: usize,
    clients: &'a str,
    #[serde(rename = "loop")]
    kind: &'static str,
    callers: Option<usize>,
    /// Planned calls per second, the highest of stages.
    rate: Option<f64>,
    arrivals: Option<String>,
    warmup_s: f64,
    seed: u64,
    command: &'a str,
    duration_s: f64,
    /// Whether a signal ended it early.
    interrupted: bool,
    /// Calls that succeeded.
    calls: u64,
    calls_per_second: f64,
    counts: Calls,
    /// Failed calls by error.
    errors: BTreeMap<String, u64>,
    /// From the planned time of a call to its end; in a closed loop from the end of the caller's last call.
    latency_us: Latency,
    /// The same with calls that failed or were not answered.
    latency_of_all_us: Latency,
    /// From the send to the end.
    service_us: Latency,
    /// From the planned time to the send.
    lag_us: Latency,
    methods: Vec<Method<'a>>,
    series: Vec<Interval>,
    cpu_us_per_call: Cpu,
    resources: Resources,
    thresholds: Vec<Threshold>,
    verdict: Verdict,
    machine: &'a Machine,
}

#[derive(Debug, Serialize)]
struct Calls {
    planned: u64,
    sent: u64,
    succeeded: u64,
    failed: u64,
    unanswered: u64,
    blocked: u64,
}

#[derive(Debug, Serialize)]
struct Method<'a> {
    name: &'a str,
    calls: u64,
    errors: &'a BTreeMap<String, u64>,
    latency_us: Latency,
}

#[derive(Debug, Serialize)]
struct Interval {
    start_s: f64,
    length_s: f64,
    succeeded: u64,
    failed: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// CPU time of both sides per successful call.
#[derive(Debug, Serialize)]
struct Cpu {
    client: Option<f64>,
    server: Option<f64>,
    server_pid: Option<u32>,
    /// Why the server's CPU time is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

#[derive(Debug, Serialize)]
struct Resources {
    client: Process,
    server: Option<Process>,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    cpu_s: f64,
    rss_bytes: u64,
    max_rss_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Threshold {
    condition: String,
    measured: String,
    is_met: bool,
}

#[derive(Debug, Serialize)]
struct Verdict {
    outcome: &'static str,
    reasons: Vec<String>,
}

impl<'a> Document<'a> {
    pub(super) fn new(report: &'a Report<'a>) -> Self {
        let (setting, outcome) = (&report.setting, report.outcome);
        let (kind, callers, rate, arrivals) = match &setting.pacing {
            Pacing::Closed { callers, .. } => ("closed", Some(*callers), None, None),
            Pacing::Open { profile, arrivals } => {
                ("open", None, Some(profile.highest_rate()), Some(*arrivals))
            }
        };
        Self {
            url: &setting.url,
            target: &setting.target,
            shape: &setting.shape,
            format: setting.format,
            request_bytes: setting.request_bytes,
            reply_bytes: setting.reply_bytes,
            clients: &setting.clients,
            kind,
            callers,
            rate,
            arrivals: arrivals.as_ref().map(Arrivals::to_string),
            warmup_s: setting.warmup_s,
            seed: setting.seed,
            command: &setting.command,
            duration_s: outcome.window.as_secs_f64(),
            interrupted: outcome.interrupted,
            calls: outcome.counts.succeeded,
            calls_per_second: outcome.calls_per_second(),
            counts: (&outcome.counts).into(),
            errors: outcome.errors(),
            latency_us: Latency::new(&outcome.response()),
            latency_of_all_us: Latency::new(&outcome.response_of_all()),
            service_us: Latency::new(&outcome.service),
            lag_us: Latency::new(&outcome.lag),
            methods: methods(&setting.methods, outcome),
            series: outcome.seconds.iter().map(|second| Interval::new(second, outcome)).collect(),
            cpu_us_per_call: Cpu {
                client: report.cpu_per_call(Some(outcome.generator)),
                server: report.cpu_per_call(outcome.server),
                server_pid: outcome.server.map(|server| server.pid),
                unknown: report.unknown_server(),
            },
            resources: Resources {
                client: outcome.generator.into(),
                server: outcome.server.map(Process::from),
            },
            thresholds: report.checked.iter().map(Threshold::from).collect(),
            verdict: Verdict {
                outcome: report.verdict_name(),
                reasons: match &outcome.verdict {
                    polyrpc_load::Verdict::Valid => Vec::new(),
                    verdict => vec![verdict.to_string()],
                },
            },
            machine: &report.machine,
        }
    }
}

fn methods<'a>(names: &'a [String], outcome: &'a Outcome) -> Vec<Method<'a>> {
    let each = names.iter().zip(&outcome.methods).map(|(name, method)| Method {
        name,
        calls: method.response.len(),
        errors: &method.errors,
        latency_us: Latency::new(&method.response),
    });
    each.collect()
}

impl Interval {
    fn new(second: &Second, outcome: &Outcome) -> Self {
        let start = second.second as f64;
        let left = outcome.window.as_secs_f64() - start;
        let [p50_ns, p90_ns, p99_ns, _] = second.quantiles;
        Self {
            start_s: start,
            length_s: if left > 0.0 { left.min(1.0) } else { 1.0 },
            succeeded: second.succeeded,
            failed: second.failed,
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns: second.max,
        }
    }
}

impl From<&Counts> for Calls {
    fn from(counts: &Counts) -> Self {
        let Counts { planned, sent, succeeded, failed, unanswered, blocked, .. } = *counts;
        Self { planned, sent, succeeded, failed, unanswered, blocked }
    }
}

impl From<Usage> for Process {
    fn from(usage: Usage) -> Self {
        let Usage { pid, cpu, memory, memory_peak } = usage;
        Self { pid, cpu_s: cpu.as_secs_f64(), rss_bytes: memory, max_rss_bytes: memory_peak }
    }
}

impl From<&Checked> for Threshold {
    fn from(checked: &Checked) -> Self {
        let Checked { condition, measured, is_met } = checked.clone();
        Self { condition, measured, is_met }
    }
}

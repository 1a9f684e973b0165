//! One run.

use super::markup::Html;
use crate::figure::{latency_against_rate, latency_over_time, quantile_curve, rate_over_time};
use crate::format::{Bytes, Count, Nanoseconds, percentile, utc};
use crate::model::{Latency, LoopKind, Metadata, Process, Run, Second};
use crate::report::terminal::steps;

pub(super) fn write(page: &mut Html, run: &Run) {
    verdict(
        page,
        &run.verdict.outcome.to_string(),
        run.verdict.outcome.is_valid(),
        &run.verdict.reasons,
        &run.warnings,
    );
    facts(page, run);
    thresholds(page, run);
    page.raw("<div class=figures>");
    quantiles(page, run);
    over_time(page, run);
    against_rate(page, run);
    page.raw("</div>");
    details(page, run);
}

/// Verdict, reasons and warnings.
pub(super) fn verdict(
    page: &mut Html,
    verdict: &str,
    is_valid: bool,
    reasons: &[String],
    warnings: &[String],
) {
    page.raw("<p class=verdict>Verdict: <span class=").raw(if is_valid { "good" } else { "bad" }).raw(">");
    page.text(verdict).raw("</span></p>");
    if reasons.is_empty() && warnings.is_empty() {
        return;
    }
    page.raw("<ul class=note>");
    for reason in reasons.iter().chain(warnings) {
        page.raw("<li>").text(reason).raw("</li>");
    }
    page.raw("</ul>");
}

fn facts(page: &mut Html, run: &Run) {
    let latency = &run.latency.response;
    page.raw("<dl class=facts>");
    page.fact("calls/s", Count(run.calls_per_second));
    if let Some(rate) = run.load.rate {
        page.fact("planned calls/s", Count(rate));
    }
    page.fact("calls", Count(run.counts.succeeded as f64));
    page.fact("errors", format!("{:.3} %", run.error_share() * 100.0));
    for quantile in [0.5, 0.99, 0.999] {
        if let Some(estimate) = latency.quantile(quantile) {
            page.fact(&percentile(quantile), Nanoseconds(estimate.value as f64));
        }
    }
    if latency.count() > 0 {
        page.fact("longest", Nanoseconds(latency.histogram().max() as f64));
    }
    page.raw("</dl>");
    if run.load.kind == LoopKind::Closed {
        page.raw("<p class=note>A closed loop: each caller waits for its call before the next one. The latencies leave out the ");
        page.raw("waiting of calls that independent callers would have made while the server was slow.</p>");
    }
}

fn thresholds(page: &mut Html, run: &Run) {
    if run.thresholds.is_empty() {
        return;
    }
    page.table("Thresholds", &["threshold", "result", "measured"]);
    for result in &run.thresholds {
        let value = result.value.as_deref().or(result.reason.as_deref()).unwrap_or("unknown");
        page.raw("<tr><th scope=row>").text(&result.threshold).raw("</th><td class=n>");
        page.raw(if result.is_met { "<span class=good>met" } else { "<span class=bad>not met" });
        page.raw("</span></td><td class=n>").text(value).raw("</td></tr>");
    }
    page.end_table();
}

/// The quantile curve, and the quantiles with their intervals.
fn quantiles(page: &mut Html, run: &Run) {
    let latency = &run.latency;
    let optional = [("all calls", &latency.all), ("service", &latency.service), ("lag", &latency.lag)];
    let others = optional.into_iter().filter_map(|(name, latency)| Some((name, latency.as_ref()?)));
    let all: Vec<_> = [("response", &latency.response)].into_iter().chain(others).collect();
    let Some(plot) = quantile_curve(&all) else { return };
    page.figure(&plot);
    let mut columns = vec!["quantile", "response", "95 % interval"];
    columns.extend(all.iter().skip(1).map(|(name, _)| *name));
    page.table("Quantiles", &columns);
    for estimate in latency.response.quantiles() {
        let interval = estimate.interval.map_or_else(
            || "–".to_owned(),
            |interval| format!("{} – {}", Nanoseconds(interval.low), Nanoseconds(interval.high)),
        );
        let mut cells = vec![Nanoseconds(estimate.value as f64).to_string(), interval];
        cells.extend(all.iter().skip(1).map(|(_, latency)| format_quantile(latency, estimate.quantile)));
        page.row(percentile(estimate.quantile), &cells);
    }
    let histogram_row = |page: &mut Html, name: &str, value: &dyn Fn(&Latency) -> f64| {
        let mut cells: Vec<_> =
            all.iter().map(|(_, latency)| Nanoseconds(value(latency)).to_string()).collect();
        cells.insert(1, String::new());
        page.row(name, &cells);
    };
    histogram_row(page, "mean", &|latency| latency.histogram().mean());
    histogram_row(page, "maximum", &|latency| latency.histogram().max() as f64);
    page.end_table().end_figure();
}

fn format_quantile(latency: &Latency, quantile: f64) -> String {
    let estimate = latency.quantile(quantile);
    estimate.map_or_else(|| "–".to_owned(), |estimate| Nanoseconds(estimate.value as f64).to_string())
}

/// Latency and rate over time, each with its table.
fn over_time(page: &mut Html, run: &Run) {
    let time = |value: Option<u64>| {
        value.map_or_else(|| "–".to_owned(), |nanos| Nanoseconds(nanos as f64).to_string())
    };
    let name = |second: &Second| format!("{:.1}", second.start_s);
    let rows = run.series.iter().take(MAX_ROWS);
    let cut = run.series.len().saturating_sub(MAX_ROWS);
    if let Some(plot) = latency_over_time(&run.series) {
        page.figure(&plot).long_table("Latency by second", &["from second", "p50", "p90", "p99", "max"]);
        for second in rows.clone() {
            page.row(name(second), &[second.p50_ns, second.p90_ns, second.p99_ns, second.max_ns].map(time));
        }
        page.end_table();
        note_cut(page, cut);
        page.end_figure();
    }
    if let Some(plot) = rate_over_time(&run.series) {
        page.figure(&plot)
            .long_table("Calls by second", &["from second", "sent", "succeeded", "failed", "in flight"]);
        let count = |value: Option<u64>| {
            value.map_or_else(|| "–".to_owned(), |value| Count(value as f64).to_string())
        };
        for second in rows {
            let counts = [second.sent, Some(second.succeeded), Some(second.failed), second.in_flight];
            page.row(name(second), &counts.map(count));
        }
        page.end_table();
        note_cut(page, cut);
        page.end_figure();
    }
}

fn note_cut(page: &mut Html, cut: usize) {
    if cut > 0 {
        page.raw("<p class=note>").text(cut).raw(" more lines are in the JSON and CSV forms.</p>");
    }
}

fn against_rate(page: &mut Html, run: &Run) {
    let Some(plot) = latency_against_rate(&run.steps, None) else { return };
    page.figure(&plot).table("Rates", &["planned calls/s", "calls/s", "p50", "p99", "within limits"]);
    for step in &run.steps {
        let cells = [
            Count(step.rate).to_string(),
            Nanoseconds(step.p50_ns as f64).to_string(),
            Nanoseconds(step.p99_ns as f64).to_string(),
            if step.is_met { "yes" } else { "no" }.to_owned(),
        ];
        page.row(Count(step.planned_rate), &cells);
    }
    page.end_table().end_figure();
}

/// Distribution, errors, methods, resources, conditions, the command.
fn details(page: &mut Html, run: &Run) {
    let histogram = run.latency.response.histogram();
    page.raw("<h3>Details</h3><div class=tables>");
    if !histogram.is_empty() {
        page.table("Calls by response time", &["less than", "calls", "share"]);
        for (below, count) in steps(histogram) {
            let share = format!("{:.3} %", count as f64 / histogram.len() as f64 * 100.0);
            page.row(Nanoseconds(below as f64), &[Count(count as f64).to_string(), share]);
        }
        page.end_table();
    }
    if !run.errors.is_empty() {
        page.table("Failed calls", &["error", "calls"]);
        for error in &run.errors {
            page.row(&error.error, &[Count(error.count as f64).to_string()]);
        }
        page.end_table();
    }
    for (title, all) in [("Methods", &run.latency.methods), ("Phases", &run.latency.phases)] {
        if all.is_empty() {
            continue;
        }
        page.table(title, &["name", "calls", "p50", "p99", "max"]);
        for named in all {
            let latency = &named.latency;
            let cells = [
                Count(latency.count() as f64).to_string(),
                format_quantile(latency, 0.5),
                format_quantile(latency, 0.99),
                Nanoseconds(latency.histogram().max() as f64).to_string(),
            ];
            page.row(&named.name, &cells);
        }
        page.end_table();
    }
    page.table("Cost", &["process", "CPU per call", "memory"]);
    for (name, process) in [("client", &run.resources.client), ("server", &run.resources.server)] {
        cost(page, name, process, run.counts.succeeded);
    }
    page.end_table();
    page.raw("</div><h3>Conditions</h3><dl class=conditions>");
    page.condition("server", &run.target.url).condition("method", &run.target.method);
    page.condition("load", &run.load.description);
    if let (Some(request), Some(reply)) = (run.target.request_bytes, run.target.reply_bytes) {
        page.condition("messages", format!("{request} B to the server, {reply} B back"));
    }
    let seconds = |seconds: f64| Nanoseconds(seconds * 1e9).to_string();
    page.condition(
        "length",
        format!("{} after {} of warm-up", seconds(run.duration_s), seconds(run.load.warmup_s)),
    );
    metadata(page, &run.metadata);
}

fn cost(page: &mut Html, name: &str, process: &Process, calls: u64) {
    let unknown = || process.unknown.clone().unwrap_or_else(|| "unknown".to_owned());
    let cpu = process.cpu_us_per_call(calls).map_or_else(unknown, |micros| format!("{micros:.2} µs"));
    let memory =
        process.max_rss_bytes.map_or_else(|| "–".to_owned(), |bytes| Bytes(bytes as f64).to_string());
    page.row(name, &[cpu, memory]);
}

/// Machine and versions, within a list of conditions, and the command after it.
pub(super) fn metadata(page: &mut Html, metadata: &Metadata) {
    let machine = &metadata.machine;
    page.condition("started", utc(metadata.started_s));
    let kind = if machine.is_virtual == Some(true) { ", a virtual machine" } else { "" };
    let cpu = machine.cpu.as_deref().unwrap_or("unknown CPU");
    page.condition("machine", format!("{cpu}, {} cores{kind}", machine.cores));
    for (name, value) in [
        ("system", &machine.system),
        ("governor", &machine.governor),
        ("load average", &machine.load_average),
    ] {
        if let Some(value) = value {
            page.condition(name, value);
        }
    }
    let commit = metadata.build.commit.as_ref().map_or_else(String::new, |commit| format!(" ({commit})"));
    page.condition("measured by", format!("{} {}{commit}", metadata.build.name, metadata.build.version));
    for (name, version) in &metadata.versions {
        page.condition(name, version);
    }
    if let Some(seed) = metadata.seed {
        page.condition("seed", seed);
    }
    page.raw("</dl><h3>Command</h3><pre tabindex=0>").text(&metadata.command).raw("</pre>");
}

/// Longer tables are for programs.
const MAX_ROWS: usize = 1000;

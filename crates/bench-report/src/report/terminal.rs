//! Results as text.

use std::fmt::{Display, Write};

use hdrhistogram::Histogram;

use crate::format::{Bytes, Count, Nanoseconds, percentile, to_printable};
use crate::model::{Document, Latency, LoopKind, Process, Run, Versus};
use crate::statistics::Interval;

/// The result as text of at most 100 columns, with colours if `is_coloured`. It ends without a newline.
pub fn terminal(document: &Document, is_coloured: bool) -> String {
    let mut text = Text { text: String::new(), is_coloured };
    match document {
        Document::Run(run) => text.run(run),
        Document::Versus(versus) => text.versus(versus),
        Document::Suite(suite) => super::suite::write_text(&mut text.text, suite),
    }
    text.text.truncate(text.text.trim_end().len());
    text.text
}

struct Text {
    text: String,
    is_coloured: bool,
}

impl Text {
    fn run(&mut self, run: &Run) {
        let target = format!("{} {}", run.target.url, run.target.method);
        let target = self.bold(to_printable(&target));
        self.line(target);
        self.line(to_printable(&load(run)));
        self.line("");
        self.verdict(&run.verdict.outcome.to_string(), run.verdict.outcome.is_valid(), &run.verdict.reasons);
        let rate = self.bold(format!("{} calls/s", Count(run.calls_per_second)));
        let planned = run.load.rate.map_or_else(String::new, |rate| format!(" of {} planned", Count(rate)));
        self.entry("rate", format!("{rate}{planned}  ({})", calls(run.counts.succeeded)));
        let errors = self.errors(run);
        self.entry("errors", errors);
        self.entry(latency_name(run), summary(&run.latency.response));
        let others =
            [("all calls", &run.latency.all), ("service", &run.latency.service), ("lag", &run.latency.lag)];
        for (name, latency) in others {
            if let Some(latency) = latency {
                self.entry(name, summary(latency));
            }
        }
        for named in run.latency.methods.iter().chain(&run.latency.phases) {
            self.entry(&to_printable(&named.name), summary(&named.latency));
        }
        let calls = run.counts.succeeded;
        self.entry("client", process(&run.resources.client, calls));
        self.entry("server", process(&run.resources.server, calls));
        self.entry("machine", to_printable(&machine(run)));
        self.entry("command", to_printable(&run.metadata.command));
        for warning in &run.warnings {
            self.entry("warning", to_printable(warning));
        }
        self.histogram(run.latency.response.histogram());
        self.quantiles(&run.latency.response);
        self.thresholds(run);
    }

    fn versus(&mut self, versus: &Versus) {
        for (letter, subject) in [("A", &versus.a), ("B", &versus.b)] {
            let errors = match subject.failed {
                0 => String::new(),
                failed => format!("  ({} failed)", calls(failed)),
            };
            let line = format!("{letter}  {}{errors}", to_printable(&subject.title()));
            let line = self.bold(line);
            self.line(line);
        }
        let rounds = versus.figures.iter().map(|figure| figure.rounds.len()).max().unwrap_or(0);
        let repeated =
            if versus.repeated > 0 { format!(", {} repeated", versus.repeated) } else { String::new() };
        self.line(format!(
            "{rounds} rounds of 2 × {} s each{repeated}, {}",
            versus.window_s,
            to_printable(&versus.load.description)
        ));
        self.line("");
        self.verdict(
            &versus.verdict.outcome.to_string(),
            versus.verdict.outcome.is_valid(),
            &versus.verdict.reasons,
        );
        self.line(format!(
            "  {:<19} {:>7}  {:<17} {:<18} {}",
            "B / A", "ratio", "95 % interval", "A / A, same rounds", "finding"
        ));
        for figure in &versus.figures {
            let (ratio, interval, control) = match &figure.comparison {
                Some(comparison) => {
                    let shown = |interval: Option<Interval>| {
                        interval.map_or_else(|| "unknown".to_owned(), ratio_interval)
                    };
                    (
                        format!("{:.3}", comparison.ratio),
                        shown(comparison.interval),
                        shown(comparison.control),
                    )
                }
                None => ("-".to_owned(), String::new(), String::new()),
            };
            let finding = match figure.is_b_better() {
                Some(true) => self.paint("32", figure.finding()),
                Some(false) => self.paint("31", figure.finding()),
                None => figure.finding(),
            };
            self.line(format!(
                "  {:<19} {ratio:>7}  {interval:<17} {control:<18} {finding}",
                to_printable(&figure.name)
            ));
        }
        self.line("");
        for warning in &versus.warnings {
            self.entry("warning", to_printable(warning));
        }
        self.entry("command", to_printable(&versus.metadata.command));
    }

    fn verdict(&mut self, verdict: &str, is_valid: bool, reasons: &[String]) {
        let shown = if is_valid { verdict.to_owned() } else { self.paint("31", verdict) };
        self.entry("verdict", shown);
        for reason in reasons {
            self.entry("", to_printable(reason));
        }
    }

    fn errors(&self, run: &Run) -> String {
        if run.error_count() == 0 {
            return "none".to_owned();
        }
        let mut parts: Vec<_> = run
            .errors
            .iter()
            .map(|error| format!("{} {}", Count(error.count as f64), to_printable(&error.error)))
            .collect();
        if run.counts.unanswered > 0 {
            parts.push(format!("{} unanswered", Count(run.counts.unanswered as f64)));
        }
        parts.push(format!("{:.3} % of all", run.error_share() * 100.0));
        self.paint("31", parts.join(", "))
    }

    /// One line per step of 1, 2, 5, 10, …
    fn histogram(&mut self, histogram: &Histogram<u64>) {
        let steps = steps(histogram);
        let most = steps.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        self.line("");
        for (below, count) in steps {
            let share = count as f64 / histogram.len() as f64 * 100.0;
            let bar = self.paint("36", format!("{:<BAR$}", bar(count as f64 / most as f64)));
            self.line(format!("  < {:>7}  {bar}  {share:>6.2} %", Nanoseconds(below as f64)));
        }
    }

    fn quantiles(&mut self, latency: &Latency) {
        self.line("");
        for estimate in latency.quantiles() {
            let percent = format!("{} %", &percentile(estimate.quantile)[1..]);
            let interval = estimate.interval.map_or_else(String::new, |interval| {
                format!("  ({} – {})", Nanoseconds(interval.low), Nanoseconds(interval.high))
            });
            self.line(format!("  {percent:>7} within {:>7}{interval}", Nanoseconds(estimate.value as f64)));
        }
    }

    fn thresholds(&mut self, run: &Run) {
        if run.thresholds.is_empty() {
            return;
        }
        self.line("");
        for result in &run.thresholds {
            let value = result.value.as_deref().or(result.reason.as_deref()).unwrap_or("unknown");
            let mark = if result.is_met { self.paint("32", "met    ") } else { self.paint("31", "NOT MET") };
            self.line(format!("  {mark}  {}: {}", to_printable(&result.threshold), to_printable(value)));
        }
    }

    fn entry(&mut self, name: &str, value: impl Display) {
        let name = self.paint("2", format!("{name:<9}"));
        self.line(format!("  {name} {value}"));
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn bold(&self, text: impl Display) -> String {
        self.paint("1", text)
    }

    fn paint(&self, code: &str, text: impl Display) -> String {
        if self.is_coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// A number of calls: `1 call`, `1,234 calls`.
fn calls(count: u64) -> String {
    format!("{} call{}", Count(count as f64), if count == 1 { "" } else { "s" })
}

/// Format and sizes of the messages, connections and callers, length.
fn load(run: &Run) -> String {
    let mut parts = Vec::new();
    let sizes = match (run.target.request_bytes, run.target.reply_bytes) {
        (Some(request), Some(reply)) => Some(format!("{request} B → {reply} B")),
        (Some(request), None) => Some(format!("{request} B")),
        _ => None,
    };
    let format = [run.target.format.clone(), sizes].into_iter().flatten().collect::<Vec<_>>().join(", ");
    parts.extend((!format.is_empty()).then_some(format));
    parts.push(match run.load.kind {
        LoopKind::Open => format!("open loop, {}", run.load.description),
        LoopKind::Closed => format!("closed loop, {}", run.load.description),
    });
    let seconds = |seconds: f64| Nanoseconds(seconds * 1e9).to_string();
    parts.push(format!("{} after {} of warm-up", seconds(run.duration_s), seconds(run.load.warmup_s)));
    parts.join(" · ")
}

/// What the latencies of a closed loop leave out is in the name.
fn latency_name(run: &Run) -> &'static str {
    match run.load.kind {
        LoopKind::Open => "response",
        LoopKind::Closed => "latency",
    }
}

fn summary(latency: &Latency) -> String {
    if latency.count() == 0 {
        return "no samples".to_owned();
    }
    let shown = |value: f64| Nanoseconds(value).to_string();
    let quantiles = [0.5, 0.9, 0.99, 0.999].into_iter().filter_map(|quantile| {
        Some(format!("{} {}", percentile(quantile), shown(latency.quantile(quantile)?.value as f64)))
    });
    let histogram = latency.histogram();
    let others = [
        format!("mean {}", shown(histogram.mean())),
        format!("min {}", shown(histogram.min() as f64)),
        format!("max {}", shown(histogram.max() as f64)),
    ];
    quantiles.chain(others).collect::<Vec<_>>().join("  ")
}

fn process(process: &Process, calls: u64) -> String {
    let mut parts = Vec::new();
    parts.extend(process.cpu_us_per_call(calls).map(|micros| format!("{micros:.2} µs CPU/call")));
    parts.extend(process.max_rss_bytes.map(|bytes| format!("{} memory", Bytes(bytes as f64))));
    parts.extend(process.pid.map(|pid| format!("process {pid}")));
    parts.extend(process.unknown.as_deref().map(to_printable));
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
}

fn machine(run: &Run) -> String {
    let machine = &run.metadata.machine;
    let cpu = machine.cpu.as_deref().unwrap_or("unknown CPU");
    let cores = if machine.cores == 1 { "core" } else { "cores" };
    let system = machine.system.as_deref().unwrap_or("unknown system");
    let is_virtual = if machine.is_virtual == Some(true) { ", virtual" } else { "" };
    format!("{cpu}, {} {cores}{is_virtual}, {system}", machine.cores)
}

pub(super) fn ratio_interval(interval: Interval) -> String {
    format!("{:.3} – {:.3}", interval.low, interval.high)
}

/// Number of latencies between each step and the one before it, from the first nonempty step to the last.
pub(super) fn steps(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut recorded = histogram.iter_recorded().peekable();
    let mut steps = Vec::new();
    for below in (0..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power))) {
        let mut count = 0;
        while let Some(step) = recorded.next_if(|step| step.value_iterated_to() < below) {
            count += step.count_at_value();
        }
        if count > 0 || !steps.is_empty() {
            steps.push((below, count));
        }
        if recorded.peek().is_none() {
            break;
        }
    }
    steps
}

/// A bar in eighths of a character.
fn bar(share: f64) -> String {
    let eighths = (share * (BAR * 8) as f64).ceil() as usize;
    let rest = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1));
    "█".repeat(eighths / 8).chars().chain(rest.copied()).collect()
}

const BAR: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_falls_into_one_step() {
        let mut histogram = Histogram::new(3).unwrap();
        for nanos in [900, 12_000, 12_500, 49_990, 50_010, 4_000_000] {
            histogram.record(nanos).unwrap();
        }
        let steps = steps(&histogram);
        assert_eq!(steps.first(), Some(&(1_000, 1)));
        assert_eq!(steps.last(), Some(&(5_000_000, 1)));
        assert_eq!(steps.iter().map(|(_, count)| count).sum::<u64>(), 6);
    }

    #[test]
    fn smallest_share_draws_a_visible_bar() {
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.0001), "▏");
        assert_eq!(bar(0.0), "");
    }
}

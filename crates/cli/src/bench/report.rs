//! Report of the results, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::load::{Figures, Lost, Tally};
use super::machine::Machine;
use crate::terminal::{Painter, ShortDuration, grouped};

/// Description of the measured call.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) url: String,
    pub(super) target: String,
    pub(super) format: &'static str,
    pub(super) request_bytes: usize,
    pub(super) reply_bytes: usize,
    pub(super) clients: String,
    pub(super) callers: usize,
    pub(super) warmup_s: f64,
    pub(super) command: String,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    setting: Setting,
    duration_s: f64,
    /// Whether Ctrl-C ended it early.
    interrupted: bool,
    /// Calls that succeeded.
    pub(super) calls: u64,
    calls_per_second: f64,
    /// Failed calls by error.
    errors: BTreeMap<String, u64>,
    latency_us: Latency,
    cpu_us_per_call: Cpu,
    machine: Machine,
    #[serde(skip)]
    histogram: Histogram<u64>,
}

/// Microseconds. Percentiles that need more calls are absent: 20 calls have no slowest 1 %.
#[derive(Debug, Serialize)]
struct Latency {
    min: Option<f64>,
    mean: Option<f64>,
    p10: Option<f64>,
    p25: Option<f64>,
    p50: Option<f64>,
    p75: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    p99_9: Option<f64>,
    max: Option<f64>,
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

impl Report {
    pub(super) fn new(setting: Setting, figures: Figures) -> Self {
        let Figures {
            tally: Tally { latencies, errors, .. },
            window,
            client_cpu,
            server_cpu,
            interrupted,
            ..
        } = figures;
        let calls = latencies.len();
        Self {
            setting,
            duration_s: window.as_secs_f64(),
            interrupted,
            calls,
            calls_per_second: if calls == 0 { 0.0 } else { calls as f64 / window.as_secs_f64() },
            errors,
            latency_us: Latency::new(&latencies),
            cpu_us_per_call: Cpu::new(calls, client_cpu, server_cpu),
            machine: Machine::here(),
            histogram: latencies,
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report is made of plain values")
    }
}

impl Latency {
    fn new(latencies: &Histogram<u64>) -> Self {
        let calls = latencies.len();
        let at = |thousandths: u64| {
            // Number of calls beyond the percentile, on its shorter side.
            let beyond = calls.saturating_mul(thousandths.min(1000 - thousandths)) / 1000;
            (beyond > 0).then(|| micros(latencies.value_at_quantile(thousandths as f64 / 1e3)))
        };
        let of_any = |value: f64| (calls > 0).then_some(value);
        Self {
            min: of_any(micros(latencies.min())),
            mean: of_any(latencies.mean() / 1e3),
            p10: at(100),
            p25: at(250),
            p50: of_any(micros(latencies.value_at_quantile(0.5))),
            p75: at(750),
            p90: at(900),
            p95: at(950),
            p99: at(990),
            p99_9: at(999),
            max: of_any(micros(latencies.max())),
        }
    }
}

impl Cpu {
    fn new(calls: u64, client: Duration, server: Result<(u32, Duration), String>) -> Self {
        let each = |spent: Duration| (calls > 0).then(|| spent.as_secs_f64() * 1e6 / calls as f64);
        let (server_pid, spent, unknown) = match server {
            Ok((id, spent)) => (Some(id), each(spent), None),
            Err(why) => (None, None, Some(why)),
        };
        Self { client: each(client), server: spent, server_pid, unknown }
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paint = Painter::for_stdout();
        let setting = &self.setting;
        let sizes = format!("{}, {} B → {} B", setting.format, setting.request_bytes, setting.reply_bytes);
        writeln!(f, "{}", paint.bold(format_args!("{} {}", setting.url, setting.target)))?;
        let duration = ShortDuration(Duration::from_secs_f64(self.duration_s));
        let warmup = ShortDuration(Duration::from_secs_f64(setting.warmup_s));
        let end = if self.interrupted { ", interrupted" } else { "" };
        writeln!(f, "{sizes} · {} · {duration} after {warmup}{end}", setting.clients)?;
        writeln!(f)?;
        let mut line =
            |name: &str, value: String| writeln!(f, "  {}  {value}", paint.dim(format_args!("{name:<8}")));
        let rate = paint.bold(format_args!("{} calls/s", grouped(self.calls_per_second.round() as u64)));
        line("rate", format!("{rate}  ({} calls)", grouped(self.calls)))?;
        line("errors", self.error_list(paint))?;
        line("latency", self.latency_us.to_string())?;
        line("CPU/call", self.cpu_us_per_call.to_string())?;
        line("machine", self.machine.to_string())?;
        line("command", setting.command.clone())?;
        self.draw(f, paint)?;
        self.list_quantiles(f)?;
        self.list_statuses(f)
    }
}

impl Report {
    fn error_list(&self, paint: Painter) -> String {
        if self.errors.is_empty() {
            return "none".to_owned();
        }
        let each: Vec<_> =
            self.errors.iter().map(|(error, count)| format!("{} {error}", grouped(*count))).collect();
        paint.red(each.join(", "))
    }

    /// One line per step of 1, 2, 5, 10, …
    fn draw(&self, f: &mut fmt::Formatter<'_>, paint: Painter) -> fmt::Result {
        if self.calls == 0 {
            return Ok(());
        }
        writeln!(f)?;
        let steps = steps(&self.histogram);
        let most = steps.iter().map(|(_, count)| *count).max().unwrap_or_default().max(1);
        for (below, count) in steps {
            let share = count as f64 / self.calls as f64 * 100.0;
            let bar = bar(count as f64 / most as f64);
            let below = ShortDuration(Duration::from_nanos(below)).to_string();
            writeln!(f, "  < {below:>7}  {}  {share:>6.2} %", paint.cyan(format_args!("{bar:<BAR$}")))?;
        }
        Ok(())
    }
}

impl Report {
    /// Latency below which each share of the calls stayed.
    fn list_quantiles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.calls == 0 {
            return Ok(());
        }
        let Latency { p10, p25, p50, p75, p90, p95, p99, p99_9, .. } = self.latency_us;
        writeln!(f)?;
        for (share, micros) in [
            ("10", p10),
            ("25", p25),
            ("50", p50),
            ("75", p75),
            ("90", p90),
            ("95", p95),
            ("99", p99),
            ("99.9", p99_9),
        ] {
            if let Some(micros) = micros {
                writeln!(f, "  {share:>4} % in {}", ShortDuration(Duration::from_secs_f64(micros / 1e6)))?;
            }
        }
        Ok(())
    }

    /// Number of failed calls by error.
    fn list_statuses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        let all = [("ok", self.calls)].into_iter().filter(|(_, calls)| *calls > 0);
        let all = all.chain(self.errors.iter().map(|(error, count)| (&error[..], *count)));
        for (n, (status, calls)) in all.enumerate() {
            let line = format!("  [{status}] {}", grouped(calls));
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{line}")?;
        }
        Ok(())
    }
}

/// Number of latencies between each step and the one before it, from the first nonempty step to the
/// last.
fn steps(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let mut recorded = histogram.iter_recorded().peekable();
    let mut steps = Vec::new();
    for below in (0..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power))) {
        let mut count = 0;
        while let Some(step) = recorded.next_if(|step| step.value_iterated_to() < below) {
            count += step.count_since_last_iteration();
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

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, mean, p50, p90, p99, p99_9, max, .. } = *self;
        let all = [
            ("p50", p50),
            ("p90", p90),
            ("p99", p99),
            ("p99.9", p99_9),
            ("fastest", min),
            ("mean", mean),
            ("slowest", max),
        ];
        let known = all.into_iter().filter_map(|(name, micros)| Some((name, micros?)));
        let listed: Vec<_> = known
            .map(|(name, micros)| format!("{name} {}", ShortDuration(Duration::from_secs_f64(micros / 1e6))))
            .collect();
        f.write_str(if listed.is_empty() { "none" } else { "" })?;
        f.write_str(&listed.join("  "))
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, after, reason, for_good } = self;
        let what = if *for_good { "the server went away" } else { "the server was away for a while" };
        let calls = format!("{} call{}", grouped(*calls), if *calls == 1 { "" } else { "s" });
        write!(f, "{what}: {calls} had no connection, the first after {}: {reason}", ShortDuration(*after))
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |micros: Option<f64>| {
            micros.map_or_else(|| "unknown".to_owned(), |micros| format!("{micros:.2} µs"))
        };
        write!(f, "client {}", time(self.client))?;
        match (&self.unknown, self.server_pid) {
            (Some(why), _) => write!(f, "  server unknown: {why}"),
            (None, Some(id)) => write!(f, "  server {} (process {id})", time(self.server)),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_falls_into_one_histogram_bucket() {
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
    fn percentile_is_reported_only_with_enough_calls() {
        let report_of = |calls: u64| {
            let mut histogram = Histogram::new(3).unwrap();
            (0..calls).for_each(|n| histogram.record(1000 + n).unwrap());
            Latency::new(&histogram).to_string()
        };
        let names = |text: &str| -> Vec<String> {
            text.split("  ").map(|part| part.split(' ').next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(report_of(0), "none");
        assert_eq!(names(&report_of(1)), ["p50", "fastest", "mean", "slowest"]);
        assert_eq!(names(&report_of(10)), ["p50", "p90", "fastest", "mean", "slowest"]);
        assert_eq!(names(&report_of(999)), ["p50", "p90", "p99", "fastest", "mean", "slowest"]);
        assert_eq!(names(&report_of(1000)), ["p50", "p90", "p99", "p99.9", "fastest", "mean", "slowest"]);
    }

    #[test]
    fn smallest_share_draws_a_visible_bar() {
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.0001), "▏");
        assert_eq!(bar(0.0), "");
    }
}

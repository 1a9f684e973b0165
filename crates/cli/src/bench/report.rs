//! Report of the results as text.

use std::fmt;
use std::time::Duration;

use polyrpc::client::ConnectionMode;
use polyrpc_load::{CheckedCondition, Histogram, Lost, Outcome, Pacing, Plan, Process, Usage};

use super::latency::Latency;
use super::machine::Machine;
use crate::failure::Failure;
use crate::terminal::{Painter, ShortDuration, escape, format_count, pluralize};

/// Description of the measured calls.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) url: String,
    pub(super) target: String,
    pub(super) methods: Vec<String>,
    pub(super) shape: String,
    pub(super) format: &'static str,
    pub(super) request_bytes: usize,
    pub(super) reply_bytes: usize,
    pub(super) clients: String,
    pub(super) pacing: Pacing,
    pub(super) warmup_s: f64,
    pub(super) seed: u64,
    pub(super) command: String,
}

/// The whole report.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) setting: Setting,
    pub(super) outcome: &'a Outcome,
    pub(super) server: &'a Result<Process, String>,
    pub(super) checked: Vec<CheckedCondition>,
    pub(super) machine: Machine,
    response: Histogram<u64>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        setting: Setting,
        outcome: &'a Outcome,
        server: &'a Result<Process, String>,
        checked: Vec<CheckedCondition>,
    ) -> Self {
        let response = outcome.response();
        Self { setting, outcome, server, checked, machine: Machine::here(), response }
    }

    /// Microseconds of CPU time per successful call.
    pub(super) fn cpu_per_call(&self, usage: Option<Usage>) -> Option<f64> {
        let calls = self.outcome.counts.succeeded;
        usage.filter(|_| calls > 0).map(|usage| usage.cpu.as_secs_f64() * 1e6 / calls as f64)
    }

    /// Why the server's CPU time is unknown, if it is.
    pub(super) fn unknown_server(&self) -> Option<String> {
        match (self.server, self.outcome.server) {
            (_, Some(_)) => None,
            (Err(why), None) => Some(why.clone()),
            (Ok(_), None) => Some("the server's process has ended".to_owned()),
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.setting.pacing, Pacing::Open { .. })
    }
}

/// Describes connections and callers.
pub(super) fn describe_clients(plan: &Plan, workers: usize) -> String {
    let by = if workers > 0 { format!(", {}", pluralize(workers as u64, "worker")) } else { String::new() };
    let most = plan.max_in_flight as u64;
    let (callers, blocking) = match plan.pacing {
        Pacing::Closed { callers, blocking } => (callers, blocking),
        Pacing::Open { .. } => {
            let connections = match plan.connection_mode {
                ConnectionMode::Shared => pluralize(plan.connections as u64, "connection"),
                ConnectionMode::Short => "a connection for each call".to_owned(),
                _ => "a connection for each call in flight".to_owned(),
            };
            return format!("{connections}, up to {} calls in flight{by}", format_count(most));
        }
    };
    let connections = match plan.connection_mode {
        ConnectionMode::Shared => pluralize(plan.connections as u64, "connection"),
        ConnectionMode::Short => "a connection for each call".to_owned(),
        _ => pluralize(callers as u64, "connection"),
    };
    let caller = if blocking { "blocking caller" } else { "caller" };
    format!("{connections}, {}", pluralize(callers as u64, caller))
}

/// Describes lost connections.
pub(super) fn describe_lost(lost: &Lost) -> String {
    let Lost { calls, after, reason, for_good } = lost;
    let what = if *for_good { "the server went away" } else { "the server was away for a while" };
    let calls = pluralize(*calls, "call");
    format!("{what}: {calls} had no connection, the first after {}: {reason}", ShortDuration(*after))
}

/// Replies of one or several runs, and how many of them were not the expected ones.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReplyCounts {
    wrong: u64,
    answered: u64,
}

impl ReplyCounts {
    /// Adds the replies of a run.
    pub(super) fn add(&mut self, outcome: &Outcome) {
        self.wrong += outcome.wrong_replies();
        self.answered += outcome.counts.succeeded + outcome.counts.failed;
    }

    /// Counts the replies of these runs.
    pub(super) fn of<'o>(outcomes: impl IntoIterator<Item = &'o Outcome>) -> Self {
        let mut counts = Self::default();
        outcomes.into_iter().for_each(|outcome| counts.add(outcome));
        counts
    }

    /// Fails if a reply was wrong.
    pub(super) fn check(self) -> Result<(), Failure> {
        if self.wrong == 0 {
            return Ok(());
        }
        let (wrong, answered) = (format_count(self.wrong), format_count(self.answered));
        Err(Failure::new(format!("{wrong} of {answered} calls got another reply than --expect")))
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paint = Painter::for_stdout();
        self.write_title(f, paint)?;
        writeln!(f)?;
        self.write_figures(f, paint)?;
        self.draw(f, paint)?;
        self.list_quantiles(f)?;
        self.list_methods(f)?;
        self.list_statuses(f)
    }
}

impl Report<'_> {
    fn write_title(&self, f: &mut fmt::Formatter<'_>, paint: Painter) -> fmt::Result {
        let setting = &self.setting;
        let sizes = format!("{}, {} B → {} B", setting.format, setting.request_bytes, setting.reply_bytes);
        writeln!(f, "{}", paint.bold(format_args!("{} {}", setting.url, setting.target)))?;
        let duration = ShortDuration(self.outcome.window);
        let warmup = ShortDuration(Duration::from_secs_f64(setting.warmup_s));
        let end = if self.outcome.interrupted { ", interrupted" } else { "" };
        writeln!(f, "{sizes} · {} · {duration} after {warmup}{end}", setting.clients)
    }

    fn write_figures(&self, f: &mut fmt::Formatter<'_>, paint: Painter) -> fmt::Result {
        let (setting, outcome) = (&self.setting, self.outcome);
        let mut line =
            |name: &str, value: String| writeln!(f, "  {}  {value}", paint.dim(format_args!("{name:<8}")));
        let per_second = format_count(outcome.calls_per_second().round() as u64);
        let rate = paint.bold(format_args!("{per_second} calls/s"));
        let planned = match &setting.pacing {
            Pacing::Open { profile, arrivals } => format!(", {arrivals} arrivals at {profile}"),
            Pacing::Closed { .. } => ", a closed loop: no response times of independent callers".to_owned(),
        };
        let calls = pluralize(outcome.counts.succeeded, "call");
        line("rate", format!("{rate}  ({calls}){planned}"))?;
        line("errors", self.error_list(paint))?;
        line("latency", Latency::new(&self.response).to_string())?;
        if self.is_open() {
            line("service", Latency::new(&outcome.service).to_string())?;
            line("lag", Latency::new(&outcome.lag).to_string())?;
        }
        if outcome.counts.failed + outcome.counts.unanswered > 0 {
            line("with all", Latency::new(&outcome.response_of_all()).to_string())?;
        }
        line("CPU/call", self.cpu())?;
        line("memory", self.memory())?;
        line("machine", self.machine.to_string())?;
        line("command", setting.command.clone())?;
        for checked in &self.checked {
            let text = checked.to_string();
            line("required", if checked.is_met { paint.green(text) } else { paint.red(text) })?;
        }
        if self.is_open() || !outcome.verdict.is_valid() {
            let text = outcome.verdict.to_string();
            line("verdict", if outcome.verdict.is_valid() { text } else { paint.red(text) })?;
        }
        Ok(())
    }

    fn error_list(&self, paint: Painter) -> String {
        let mut each: Vec<_> = self
            .outcome
            .errors()
            .iter()
            .map(|(error, count)| format!("{} {error}", format_count(*count)))
            .collect();
        if self.outcome.counts.unanswered > 0 {
            each.push(format!("{} unanswered", format_count(self.outcome.counts.unanswered)));
        }
        match each.is_empty() {
            true => "none".to_owned(),
            false => paint.red(each.join(", ")),
        }
    }

    fn cpu(&self) -> String {
        let time = |micros: Option<f64>| {
            // Systems count CPU time in ticks: less than one is not nothing.
            let micros = micros.filter(|micros| *micros > 0.0);
            micros.map_or_else(|| "unknown".to_owned(), |micros| format!("{micros:.2} µs"))
        };
        let client = time(self.cpu_per_call(Some(self.outcome.generator)));
        match (self.unknown_server(), self.outcome.server) {
            (Some(why), _) => format!("client {client}  server unknown: {why}"),
            (None, Some(server)) => {
                format!(
                    "client {client}  server {} (process {})",
                    time(self.cpu_per_call(Some(server))),
                    server.pid
                )
            }
            (None, None) => format!("client {client}"),
        }
    }

    fn memory(&self) -> String {
        let mebibytes = |usage: Usage| format!("{:.1} MiB", usage.memory_peak as f64 / f64::from(1 << 20));
        let client = mebibytes(self.outcome.generator);
        match self.outcome.server {
            Some(server) => format!("client {client}  server {}, at most", mebibytes(server)),
            None => format!("client {client}, at most"),
        }
    }

    /// One line per step of 1, 2, 5, 10, …
    fn draw(&self, f: &mut fmt::Formatter<'_>, paint: Painter) -> fmt::Result {
        if self.response.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        let steps = steps(&self.response);
        let most = steps.iter().map(|(_, count)| *count).max().unwrap_or_default().max(1);
        for (below, count) in steps {
            let share = count as f64 / self.response.len() as f64 * 100.0;
            let bar = bar(count as f64 / most as f64);
            let below = ShortDuration(Duration::from_nanos(below)).to_string();
            writeln!(f, "  < {below:>7}  {}  {share:>6.2} %", paint.cyan(format_args!("{bar:<BAR$}")))?;
        }
        Ok(())
    }

    /// Latency below which each share of the calls stayed.
    fn list_quantiles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.response.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        for (share, micros) in Latency::new(&self.response).percentiles() {
            writeln!(f, "  {share:>5} % in {}", ShortDuration(Duration::from_secs_f64(micros / 1e6)))?;
        }
        Ok(())
    }

    /// Latencies of each method of a mix.
    fn list_methods(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.setting.methods.len() < 2 {
            return Ok(());
        }
        writeln!(f)?;
        for (name, method) in self.setting.methods.iter().zip(&self.outcome.methods) {
            let failed: u64 = method.errors.values().sum();
            let failed =
                if failed > 0 { format!("  errors {}", format_count(failed)) } else { String::new() };
            let calls = format_count(method.response.len());
            writeln!(f, "  {name}  {calls} calls  {}{failed}", Latency::new(&method.response))?;
        }
        Ok(())
    }

    /// Number of calls by status.
    fn list_statuses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        let succeeded = self.outcome.counts.succeeded;
        let errors = self.outcome.errors();
        let all = [("ok", succeeded)].into_iter().filter(|(_, calls)| *calls > 0);
        let all = all.chain(errors.iter().map(|(error, count)| (&error[..], *count)));
        for (n, (status, calls)) in all.enumerate() {
            let reason =
                self.outcome.reason(status).map(|reason| format!(", for example: {}", escape(reason)));
            let line = format!("  [{status}] {}{}", format_count(calls), reason.unwrap_or_default());
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
    fn smallest_share_draws_a_visible_bar() {
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.0001), "▏");
        assert_eq!(bar(0.0), "");
    }
}

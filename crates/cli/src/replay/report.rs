//! The result of a replay.

use std::collections::BTreeMap;
use std::time::Duration;

use polyrpc::{Code, Status};
use polyrpc_record::compare::Difference;
use serde_json::json;

use super::plan::Plan;
use crate::terminal::{format_count, pluralize};

/// What came of the calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    planned: u64,
    left_out: u64,
    pub(super) sent: u64,
    pub(super) failed: u64,
    /// Failed calls for which there was no connection.
    unconnected: u64,
    /// Failed calls whose recorded ones did not.
    pub(super) unexpected: u64,
    pub(super) compared: u64,
    different: u64,
    pub(super) lasted: Duration,
    pub(super) stopped: Option<&'static str>,
    latencies: Vec<Duration>,
    recorded: Vec<Duration>,
    /// Number of calls and a sample, by method and path.
    differences: BTreeMap<(String, String), (u64, String)>,
    /// Number of calls by the failure.
    failures: BTreeMap<String, u64>,
}

impl Outcome {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut recorded: Vec<_> =
            plan.calls.iter().map(|call| call.took).filter(|took| !took.is_zero()).collect();
        recorded.sort_unstable();
        Self { planned: plan.calls.len() as u64, left_out: plan.left_out, recorded, ..Self::default() }
    }

    /// Adds a call. `found`: its differences, if it was compared.
    pub(super) fn add(
        &mut self,
        name: &str,
        latency: Duration,
        failure: Option<&Status>,
        found: Option<Vec<Difference>>,
    ) {
        self.sent += 1;
        self.latencies.push(latency);
        if let Some(status) = failure {
            self.failed += 1;
            self.unconnected += u64::from(is_unconnected(status));
            let text = status.to_string();
            if self.failures.len() < MAX_LISTED || self.failures.contains_key(&text) {
                *self.failures.entry(text).or_default() += 1;
            }
        }
        let Some(found) = found else { return };
        self.compared += 1;
        self.different += u64::from(!found.is_empty());
        for difference in found {
            let key = (name.to_owned(), to_pattern(&difference.path));
            if self.differences.len() < MAX_LISTED || self.differences.contains_key(&key) {
                let entry = self.differences.entry(key).or_insert_with(|| (0, difference.to_string()));
                entry.0 += 1;
            }
        }
    }

    /// Whether there was no connection for any call: that says nothing about the answers.
    pub(super) fn has_reached_nobody(&self) -> bool {
        self.sent > 0 && self.unconnected == self.sent
    }

    pub(super) fn differs(&self) -> bool {
        self.different > 0 || self.compared == 0 && self.failed > 0
    }

    /// A quantile of the latencies so far.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        quantile(&sorted, share)
    }

    pub(super) fn to_text(&self) -> String {
        let seconds = self.lasted.as_secs_f64();
        let mut lines = vec![format!(
            "{} of {} sent in {seconds:.1} s, {:.0} a second; {} failed",
            format_count(self.sent),
            pluralize(self.planned, "call"),
            self.sent as f64 / seconds.max(1e-9),
            format_count(self.failed)
        )];
        if self.left_out > 0 {
            lines.push(format!("left out of the recording: {}", pluralize(self.left_out, "call")));
        }
        if let Some(reason) = self.stopped {
            lines.push(format!("stopped: {reason}"));
        }
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        lines.push(latencies("latency, from when a call was due", &sorted));
        if !self.recorded.is_empty() {
            lines.push(latencies("recorded duration", &self.recorded));
        }
        lines.extend(histogram(&sorted));
        for (failure, count) in &self.failures {
            lines.push(format!("{:>8} × {failure}", format_count(*count)));
        }
        if self.compared > 0 {
            let equal = self.compared - self.different;
            lines.push(format!(
                "{} answers are as recorded, {} differ",
                format_count(equal),
                format_count(self.different)
            ));
        }
        for ((name, path), (count, sample)) in &self.differences {
            let path = if path.is_empty() { "the message" } else { path };
            lines.push(format!("{:>8} × {name} {path}, as in: {sample}", format_count(*count)));
        }
        lines.join("\n")
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let nanos = |share| u64::try_from(quantile(&sorted, share).as_nanos()).unwrap_or(u64::MAX);
        let differences = self.differences.iter().map(|((method, path), (calls, sample))| {
            json!({ "method": method, "path": path, "calls": calls, "sample": sample })
        });
        json!({
            "planned": self.planned, "sent": self.sent, "failed": self.failed, "left_out": self.left_out,
            "compared": self.compared, "different": self.different, "stopped": self.stopped,
            "seconds": self.lasted.as_secs_f64(),
            "latency_ns": {
                "p50": nanos(0.5), "p90": nanos(0.9), "p99": nanos(0.99), "p99_9": nanos(0.999), "max": nanos(1.0),
            },
            "failures": self.failures,
            "differences": differences.collect::<serde_json::Value>(),
        })
    }
}

/// Whether a call failed because no connection could be established.
fn is_unconnected(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.message().starts_with("cannot connect")
}

/// A path without the positions of elements, so that all elements of a list count as one field.
fn to_pattern(path: &str) -> String {
    let parts = path.split('.').map(|part| if part.parse::<u64>().is_ok() { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}

fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn latencies(what: &str, sorted: &[Duration]) -> String {
    let at = |share| quantile(sorted, share);
    format!("{what}: p50 {:.1?}, p90 {:.1?}, p99 {:.1?}, max {:.1?}", at(0.5), at(0.9), at(0.99), at(1.0))
}

/// Counts by powers of two of a microsecond.
fn histogram(sorted: &[Duration]) -> Vec<String> {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for latency in sorted {
        let power = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1).ilog2();
        *counts.entry(power).or_default() += 1;
    }
    let max_count = counts.values().copied().max().unwrap_or(1);
    let line = |(power, count): (&u32, &u64)| {
        let bar = "█".repeat((count * 40).div_ceil(max_count) as usize);
        format!(
            "  < {:>9} {:>9} {bar}",
            format!("{:.0?}", Duration::from_micros(2 << power)),
            format_count(*count)
        )
    };
    counts.iter().map(line).collect()
}

/// Maximum number of lines about differences, and about failures.
const MAX_LISTED: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let sorted: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantile(&sorted, 0.5), Duration::from_millis(50));
        assert_eq!(quantile(&sorted, 0.99), Duration::from_millis(99));
        assert_eq!(quantile(&sorted, 1.0), Duration::from_millis(100));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn known_failures_are_counted_when_no_further_ones_are_listed() {
        let mut outcome = Outcome::default();
        let failures = (0..=MAX_LISTED).map(|n| format!("no user {n}"));
        for text in failures.chain(["no user 0".to_owned(), format!("no user {MAX_LISTED}")]) {
            outcome.add("Users/Get", Duration::ZERO, Some(&Status::not_found(text)), None);
        }
        assert_eq!((outcome.failed, outcome.failures.len()), (MAX_LISTED as u64 + 3, MAX_LISTED));
        assert_eq!(outcome.failures.get(&Status::not_found("no user 0").to_string()), Some(&2));
    }

    #[test]
    fn elements_of_a_list_count_as_one_field() {
        assert_eq!(to_pattern("items.3.price"), "items.*.price");
        assert_eq!(to_pattern(""), "");
    }
}

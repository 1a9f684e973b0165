//! The results as a table in Markdown.

use std::fmt::Write;
use std::time::Duration;

use super::measure::Measurement;
use super::tool::Tool;
use crate::bench::selftest::{Check, ExpectedTimes};
use crate::bench::wake_ups::WakeUps;
use crate::terminal::{ShortDuration, format_count};

/// What is known of a tool.
pub(super) struct Row {
    pub(super) tool: Tool,
    /// Why it was not run at all.
    pub(super) missing: Option<String>,
    /// As many calls as its callers can make.
    pub(super) probe: Result<Measurement, String>,
    /// Calls at a rate.
    pub(super) rated: Result<Measurement, String>,
    /// Calls while the server stalls.
    pub(super) stalled: Result<StalledRun, String>,
}

/// A run while the server stalled, and what is right.
pub(super) struct StalledRun {
    pub(super) ran: Measurement,
    pub(super) expected: ExpectedTimes,
    /// Delays of another thread meanwhile.
    pub(super) noise: WakeUps,
}

impl Row {
    pub(super) fn missing(tool: Tool, reason: String) -> Self {
        let none = || reason.clone();
        Self { tool, probe: Err(none()), rated: Err(none()), stalled: Err(none()), missing: Some(reason) }
    }

    /// Why one of its runs measured nothing.
    pub(super) fn failure(&self) -> Option<&str> {
        let stalled = self.stalled.as_ref().err();
        let reason =
            [self.probe.as_ref().err(), self.rated.as_ref().err(), stalled].into_iter().flatten().next();
        self.missing.as_ref().or(reason).map(String::as_str)
    }

    /// The checks of the self-test on what the tool says about a server that stalls.
    pub(super) fn checks(&self) -> Vec<Check> {
        let Ok(StalledRun { ran, expected, noise }) = &self.stalled else { return Vec::new() };
        let reading = &ran.reading;
        let quantiles = [("p90", 0.9, reading.p90), ("p95", 0.95, reading.p95), ("p99", 0.99, reading.p99)];
        let mut checks: Vec<_> = quantiles
            .into_iter()
            .filter_map(|(name, quantile, said)| {
                Some(Check::from_times(name, expected.quantile(quantile), said?, *noise))
            })
            .collect();
        checks.extend(reading.mean.map(|mean| Check::from_times("mean", expected.mean(), mean, *noise)));
        checks
    }
}

/// The table, of a rate that was asked for.
pub(super) fn markdown(rows: &[Row], asked: u32) -> String {
    let mut text = format!(
        "| tool | protocol | calls per CPU second | CPU/call | {} asked | stalls: p90 | p95 | p99 | mean | checks |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        format_rate(f64::from(asked))
    );
    for row in rows {
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "| {} | {} | {} |", row.tool.name(), row.tool.protocol(), cells(row).join(" | "));
    }
    let expected = rows.iter().find_map(|row| row.stalled.as_ref().ok());
    if let Some(StalledRun { expected, .. }) = expected {
        let at = |quantile| ShortDuration(*expected.quantile(quantile).end());
        let _ = write!(
            text,
            "\nThe server was stopped {} times in {}: p90 {}, p95 {}, p99 {}, mean {} are right, ± 5 ms and 2 %.",
            expected.stalls.len(),
            ShortDuration(expected.duration),
            at(0.9),
            at(0.95),
            at(0.99),
            ShortDuration(*expected.mean().end()),
        );
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    if let Some(reason) = &row.missing {
        return [vec![reason.clone()], vec![String::new(); 7]].concat();
    }
    let mut cells = match &row.probe {
        Ok(ran) => {
            let per_call = ran.cpu.as_secs_f64() / ran.reading.calls.max(1) as f64;
            vec![format_count((1.0 / per_call.max(1e-12)) as u64), format!("{:.2} µs", per_call * 1e6)]
        }
        Err(reason) => vec![reason.clone(), String::new()],
    };
    cells.push(match &row.rated {
        Ok(ran) if ran.reading.is_invalid => format!("{}, says INVALID", format_rate(ran.reading.rate())),
        Ok(ran) => format_rate(ran.reading.rate()),
        Err(reason) => reason.clone(),
    });
    let Ok(StalledRun { ran, .. }) = &row.stalled else {
        let reason = row.stalled.as_ref().err().cloned().unwrap_or_default();
        cells.extend([vec![reason], vec![String::new(); 4]].concat());
        return cells;
    };
    let reading = &ran.reading;
    let said = [reading.p90, reading.p95, reading.p99, reading.mean];
    cells.extend(said.map(|time| time.map_or_else(|| "not told".to_owned(), format_time)));
    let checks = row.checks();
    let failed: Vec<_> =
        checks.iter().filter(|check| !check.passed).map(|check| check.what.as_str()).collect();
    cells.push(match failed.is_empty() {
        true => format!("{} ok", checks.len()),
        false => format!("FAILED: {}", failed.join(", ")),
    });
    cells
}

fn format_time(time: Duration) -> String {
    ShortDuration(time).to_string()
}

fn format_rate(per_second: f64) -> String {
    format!("{}/s", format_count(per_second.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_measured_nothing_is_a_failure() {
        let row = Row::missing(Tool::Ghz, "not installed".to_owned());
        assert_eq!(row.failure(), Some("not installed"));
        let failed = Row { missing: None, rated: Err("it measured nothing".to_owned()), ..row };
        assert!(failed.failure().is_some());
    }
}

//! The result of a soak: text, JSON, and a page with plots.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use polyrpc_bench_report::figure::{Series, escape, over_time};
use serde::Serialize;

use super::Options;
use super::sample::{AtRest, Sample};
use super::traffic::Ledger;
use super::verdict::{Bar, bars};

/// Events other than calls.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Events {
    /// When servers were restarted.
    pub(crate) restarts_s: Vec<f64>,
    /// New certificates.
    pub(crate) rotations: u64,
    /// Sets and errors that registries reported.
    pub(crate) sets: u64,
}

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    minutes: f64,
    seed: u64,
    /// Whether debug assertions were active.
    debug: bool,
    bars: Vec<Bar>,
    calls: Ledger,
    misbehaved: BTreeMap<&'static str, u64>,
    events: Events,
    at_rest: AtRest,
    samples: Vec<Sample>,
}

impl Report {
    pub(crate) fn new(
        options: &Options,
        samples: Vec<Sample>,
        at_rest: AtRest,
        calls: Ledger,
        misbehaved: BTreeMap<&'static str, u64>,
        events: Events,
    ) -> Self {
        let load_end = options.minutes * 60.0;
        let load: Vec<_> = samples.iter().copied().filter(|sample| sample.at_s <= load_end).collect();
        let bars = bars(&load, &at_rest, &calls);
        let (minutes, seed, debug) = (options.minutes, options.seed, cfg!(debug_assertions));
        Self { minutes, seed, debug, bars, calls, misbehaved, events, at_rest, samples }
    }

    pub(crate) fn is_passed(&self) -> bool {
        self.bars.iter().all(|bar| bar.is_met)
    }

    /// Writes `soak.json` and `soak.html` to this folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::write(folder.join("soak.json"), serde_json::to_vec_pretty(self)?)?;
        std::fs::write(folder.join("soak.html"), self.page())
    }

    fn page(&self) -> String {
        type Value = fn(&Sample) -> f64;
        let line = |name: &str, value: Value| Series {
            name: name.to_owned(),
            points: self.samples.iter().map(|sample| (sample.at_s, value(sample))).collect(),
        };
        let memory = [
            line("server", |sample| sample.server.resident as f64 / f64::from(1 << 20)),
            line("clients", |sample| sample.client.resident as f64 / f64::from(1 << 20)),
        ];
        let descriptors = [
            line("server", |sample| sample.server.descriptors as f64),
            line("clients", |sample| sample.client.descriptors as f64),
        ];
        let tasks = [
            line("server", |sample| sample.server.tasks as f64),
            line("clients", |sample| sample.client.tasks as f64),
        ];
        let open = [
            line("connections", |sample| sample.connections as f64),
            line("calls in flight", |sample| sample.in_flight as f64),
        ];
        let marks: Vec<_> = self.calls.failures.iter().map(|failure| failure.at_s).collect();
        let plots = [
            over_time("Resident memory", "MiB", &memory, &marks),
            over_time("Open files", "descriptors", &descriptors, &marks),
            over_time("Tasks", "tasks", &tasks, &marks),
            over_time("Of the server", "number", &open, &marks),
        ];
        let plots: String = plots.into_iter().flatten().map(|plot| plot.standalone()).collect();
        format!(
            "<!doctype html><meta charset=\"utf-8\"><title>Soak</title><h1>Soak, {:.1} minutes</h1>\
             <style>svg{{width:48%}}</style><pre>{}</pre>{plots}\n",
            self.minutes,
            escape(&self.to_string())
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slowest = self
            .calls
            .combinations
            .iter()
            .max_by(|left, right| left.1.slowest_ms.total_cmp(&right.1.slowest_ms));
        writeln!(
            f,
            "{} restarts, {} certificates, {} sets of registries, {} clients of one call, {} misbehaved",
            self.events.restarts_s.len(),
            self.events.rotations,
            self.events.sets,
            self.calls.clients,
            self.misbehaved.values().sum::<u64>()
        )?;
        if let Some((combination, calls)) = slowest {
            writeln!(f, "slowest call: {:.0} ms, {combination}", calls.slowest_ms)?;
        }
        for bar in &self.bars {
            let verdict = if bar.is_met { "ok  " } else { "FAIL" };
            writeln!(f, "{verdict} {:<28} {} (limit: {})", bar.name, bar.measured, bar.limit)?;
        }
        for failure in self.calls.failures.iter().take(MAX_SHOWN_FAILURES) {
            writeln!(f, "     at {:.1} s, {}: {}", failure.at_s, failure.combination, failure.error)?;
        }
        Ok(())
    }
}

/// Failures in the text; the JSON has more.
const MAX_SHOWN_FAILURES: usize = 10;

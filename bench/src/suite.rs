//! A suite: workloads with their bars, measured alternately, printed and checked.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::bar::Bar;
use crate::case::{Case, MeasuredCase, MeasuredQuiet, QuietCase};
use crate::report::{self, Machine};
use crate::run::{Timing, parse_seconds};
use crate::subject::Subject;

/// A suite of `./dev bench NAME`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    pub(crate) cases: &'static [Case],
    pub(crate) quiet_cases: &'static [QuietCase],
}

/// How a suite is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only one subject; bars are not checked then.
    #[arg(long)]
    only: Option<Subject>,
    /// Measure only workloads whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Number of rounds of each workload.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 1.5, value_parser = parse_seconds)]
    seconds: f64,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// All results, and the conditions of the measurement.
#[derive(Debug, Serialize)]
struct Measurement {
    machine: Machine,
    command: Vec<String>,
    rounds: usize,
    timing: Timing,
    cases: Vec<MeasuredCase>,
    quiet_cases: Vec<MeasuredQuiet>,
    bars: Vec<Bar>,
}

impl Suite {
    /// Measures, prints and checks the bars.
    pub(crate) fn run(self, options: &Options) -> io::Result<ExitCode> {
        let measured = self.measure(options);
        measured.print();
        if let Some(path) = &options.json {
            serde_json::to_writer_pretty(File::create(path)?, &measured)?;
        }
        let kept = measured.bars.iter().all(Bar::is_ok);
        Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn measure(self, options: &Options) -> Measurement {
        let machine = Machine::current();
        let timing = options.timing();
        let subjects = options.subjects();
        let chosen = |name: &str| name.contains(&options.filter);

        let cases = self.cases.iter().filter(|case| chosen(case.name));
        let cases: Vec<_> = cases.map(|case| case.measure(&subjects, options.rounds, timing)).collect();
        let quiet_cases = self.quiet_cases.iter().filter(|case| chosen(case.name));
        let quiet_cases: Vec<_> = quiet_cases.map(|case| case.measure(&subjects)).collect();

        let bars = match options.only {
            None => cases
                .iter()
                .map(MeasuredCase::bar)
                .chain(quiet_cases.iter().map(MeasuredQuiet::bar))
                .collect(),
            Some(_) => Vec::new(),
        };
        let command = std::env::args().collect();
        Measurement { machine, command, rounds: options.rounds, timing, cases, quiet_cases, bars }
    }
}

impl Options {
    fn timing(&self) -> Timing {
        Timing {
            warm_up: Duration::from_millis(500),
            window: Duration::from_secs_f64(self.seconds.clamp(0.01, 3600.0)),
        }
    }

    fn subjects(&self) -> Vec<Subject> {
        self.only.map_or_else(|| vec![Subject::Floor, Subject::Polyrpc], |only| vec![only])
    }
}

impl Measurement {
    /// Prints everything; the bars last, one per line.
    fn print(&self) {
        let timing = self.timing;
        let method = format!(
            "{} rounds in turn, {:.1} s each after {:.1} s of warm-up; loopback; median (min–max)",
            self.rounds,
            timing.window.as_secs_f64(),
            timing.warm_up.as_secs_f64()
        );
        report::print_conditions(&self.machine, &self.command, &method);
        if !self.cases.is_empty() {
            report::print_calls(&self.cases);
        }
        if !self.quiet_cases.is_empty() {
            report::print_memory(&self.quiet_cases);
        }
        println!();
        if self.bars.is_empty() {
            println!("nothing is judged: a bar needs the floor and PolyRPC in the same run");
        }
        for bar in &self.bars {
            println!("{bar}");
        }
    }
}

//! A suite: workloads with their bars, measured alternately, printed and checked.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::bar::{Bar, Limit};
use crate::idle::{self, Quiet};
use crate::report::{self, Machine};
use crate::rounds::{self, Series};
use crate::run::{self, Timing, Workload};
use crate::subject::Subject;

/// A suite of `./dev bench NAME`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    pub(crate) cases: &'static [Case],
    pub(crate) quiet_cases: &'static [QuietCase],
}

/// A workload and its bar.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) workload: Workload,
    pub(crate) limit: Limit,
}

/// Idle connections and their bar.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct QuietCase {
    pub(crate) name: &'static str,
    pub(crate) quiet: Quiet,
    pub(crate) limit: Limit,
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
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// All results, and the conditions of the measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) machine: Machine,
    pub(crate) command: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) timing: Timing,
    pub(crate) cases: Vec<MeasuredCase>,
    pub(crate) quiet_cases: Vec<MeasuredQuiet>,
    pub(crate) bars: Vec<Bar>,
}

/// A workload and the results of every subject.
#[derive(Debug, Serialize)]
pub(crate) struct MeasuredCase {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) series: Vec<Series>,
}

/// Idle connections, and the memory of each subject per connection in KiB.
#[derive(Debug, Serialize)]
pub(crate) struct MeasuredQuiet {
    #[serde(flatten)]
    pub(crate) case: QuietCase,
    pub(crate) kib: Vec<(Subject, Result<f64, String>)>,
}

impl Suite {
    /// Measures, prints and checks the bars.
    pub(crate) fn run(self, options: &Options) -> io::Result<ExitCode> {
        let measured = self.measure(options);
        report::print(&measured);
        if let Some(path) = &options.json {
            serde_json::to_writer_pretty(File::create(path)?, &measured)?;
        }
        let kept = measured.bars.iter().all(Bar::is_ok);
        Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn measure(self, options: &Options) -> Measured {
        let machine = Machine::here();
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
        Measured { machine, command, rounds: options.rounds, timing, cases, quiet_cases, bars }
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

impl Case {
    fn measure(&self, subjects: &[Subject], rounds: usize, timing: Timing) -> MeasuredCase {
        eprintln!("measuring {}", self.name);
        let series =
            rounds::interleave(rounds, subjects, |subject| run::run(subject, &self.workload, timing));
        MeasuredCase { case: *self, series }
    }
}

impl QuietCase {
    fn measure(&self, subjects: &[Subject]) -> MeasuredQuiet {
        eprintln!("measuring {}", self.name);
        let cost = |&subject: &Subject| {
            (subject, idle::kib_per_connection(subject, self.quiet).map_err(|error| error.to_string()))
        };
        MeasuredQuiet { case: *self, kib: subjects.iter().map(cost).collect() }
    }
}

impl MeasuredCase {
    /// The series of one subject, if it was measured.
    pub(crate) fn of(&self, subject: Subject) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject)
    }

    fn bar(&self) -> Bar {
        let (floor, own) = (self.of(Subject::Floor), self.of(Subject::Polyrpc));
        let spread = match self.case.limit {
            Limit::RatioAtLeast(_) => own.zip(floor).and_then(|(own, floor)| own.ratio_to(floor)),
            _ => own.and_then(|own| own.spread(|o| o.cpu_us())),
        };
        Bar {
            name: self.case.name.to_owned(),
            value: spread.map(|spread| spread.median),
            limit: self.case.limit,
            clean: self.series.iter().all(Series::is_clean),
        }
    }
}

impl MeasuredQuiet {
    fn bar(&self) -> Bar {
        let own = self.kib.iter().find(|(subject, _)| *subject == Subject::Polyrpc);
        let value = own.and_then(|(_, kib)| kib.as_ref().ok().copied());
        Bar { name: self.case.name.to_owned(), value, limit: self.case.limit, clean: true }
    }
}

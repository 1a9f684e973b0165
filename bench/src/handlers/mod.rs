//! `handlers`: what a call costs whose handler is not just an echo, compared with the echo in the same rounds.
//!
//! [`kind`] says what is different, [`subject`] is the process that serves a kind and calls it. The floor moves as many
//! bytes without any RPC.

mod kind;
mod subject;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use polyrpc_bench_report::statistics::noise::Noise;
use polyrpc_bench_report::statistics::{Comparison, MIN_ROUNDS, Round, compare};
use serde::Serialize;

use self::kind::Kind;
use self::subject::{CALLERS, PAYLOAD, Window};
pub(crate) use self::subject::{SubjectOptions, serve};
use crate::bar::{Bar, Limit};
use crate::exchange::Protocol;
use crate::process::{Child, Ready};
use crate::report::{self, Machine};
use crate::run::{self, Placement, REPORT_TIMEOUT, Timing, Workload, parse_seconds};
use crate::subject::{Shape, Subject};

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only what has this in its name.
    #[arg(long, default_value = "")]
    filter: String,
    /// Number of rounds; each has two windows of the echo and two of what is compared with it. An interval needs six.
    #[arg(long, default_value_t = MIN_ROUNDS)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 0.5, value_parser = parse_seconds)]
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
    rows: Vec<MeasuredRow>,
    bars: Vec<Bar>,
}

/// A row of the table, each compared with the echo.
#[derive(Clone, Copy, Debug)]
enum Row {
    /// The same bytes without any RPC.
    Floor,
    Kind(Kind),
}

/// A row beside the echo. Figures are microseconds of CPU time per call, client and server together.
#[derive(Debug, Serialize)]
struct MeasuredRow {
    name: &'static str,
    #[serde(skip)]
    limit: Limit,
    rounds: Vec<Round>,
    /// Calls that ended in another way than they should.
    wrong: u64,
    comparison: Option<Comparison>,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let command: Vec<_> = std::env::args().collect();
    let method = format!(
        "{CALLERS} callers of an echo of {PAYLOAD} bytes over gRPC on one connection; {} rounds of echo, other, other, echo, {} s each",
        options.rounds, options.seconds
    );
    report::print_conditions(&machine, &command, &method);
    println!();
    println!(
        "{:<16} {:>10} {:>10} {:>8}  {:<18} finding",
        "other", "echo µs", "other µs", "ratio", "interval of 95 %"
    );
    let mut rows = Vec::new();
    for row in Row::all().filter(|row| row.name().contains(&options.filter)) {
        let measured = row.measure(options.rounds.max(1), options.seconds)?;
        measured.print();
        rows.push(measured);
    }
    let bars: Vec<_> = rows.iter().map(MeasuredRow::bar).collect();
    println!();
    bars.iter().for_each(|bar| println!("{bar}"));
    let kept = bars.iter().all(Bar::is_ok);
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &Measurement { machine, command, rows, bars })?;
    }
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Row {
    fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Floor).chain(Kind::ALL.map(Self::Kind))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Kind(kind) => kind.name(),
        }
    }

    /// CPU time per call as a multiple of the echo's. The floor's is less: it bounds what the echo costs.
    fn limit(self) -> Limit {
        match self {
            Self::Floor => Limit::RatioAtLeast(0.1),
            Self::Kind(Kind::Echo) => Limit::RatioAtMost(1.1),
            Self::Kind(Kind::Waiting) => Limit::RatioAtMost(2.0),
            Self::Kind(Kind::Failing) => Limit::RatioAtMost(2.0),
            Self::Kind(Kind::ThreeLayers) => Limit::RatioAtMost(1.8),
            Self::Kind(Kind::TwoThreads) => Limit::RatioAtMost(4.0),
            Self::Kind(Kind::SystemAllocator) => Limit::RatioAtMost(1.5),
        }
    }

    fn measure(self, rounds: usize, seconds: f64) -> io::Result<MeasuredRow> {
        let mut echo = Remote::start(Kind::Echo, seconds)?;
        let mut other = match self {
            Self::Floor => None,
            Self::Kind(kind) => Some(Remote::start(kind, seconds)?),
        };
        let mut other = || match &mut other {
            Some(kind) => kind.window(),
            None => floor(seconds),
        };
        let mut wrong = 0;
        let mut figure = |window: io::Result<Window>| {
            let window = window?;
            wrong += window.wrong;
            Ok::<_, io::Error>(window.cpu_us)
        };
        let mut measured = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            // With the other one in the middle, a drift of the machine affects both alike.
            let first = figure(echo.window())?;
            let b = [figure(other())?, figure(other())?];
            measured.push(Round { a: [first, figure(echo.window())?], b, noise: Noise::Quiet });
        }
        let comparison = compare(&measured, CONFIDENCE);
        Ok(MeasuredRow { name: self.name(), limit: self.limit(), rounds: measured, wrong, comparison })
    }
}

/// As many frames in flight on one connection, of the same length, between two processes.
fn floor(seconds: f64) -> io::Result<Window> {
    let workload = Workload {
        protocol: Protocol::Rpcx,
        payload: PAYLOAD,
        shape: Shape::Shared(CALLERS),
        placement: Placement::Free,
    };
    let timing = Timing { warm_up: Duration::from_millis(100), window: window(seconds) };
    let outcome = run::run(Subject::Floor, &workload, timing)?;
    Ok(Window { cpu_us: outcome.cpu_us(), calls: outcome.calls, wrong: outcome.errors })
}

fn window(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.01, 3600.0))
}

/// The process of a kind.
struct Remote {
    child: Child,
    window: Duration,
}

impl Remote {
    /// Starts it and waits until it listens.
    fn start(kind: Kind, seconds: f64) -> io::Result<Self> {
        let kind_argument = format!("--kind={}", kind.name());
        let arguments = ["handlers-subject".to_owned(), kind_argument, format!("--seconds={seconds}")];
        let child = match kind {
            Kind::SystemAllocator => Child::start_program(&with_system_allocator()?, &arguments),
            _ => Child::start(&arguments),
        }?;
        let Ready {} = child.read_report(REPORT_TIMEOUT)?;
        Ok(Self { child, window: window(seconds) })
    }

    fn window(&mut self) -> io::Result<Window> {
        self.child.send_go()?;
        self.child.read_report(self.window + REPORT_TIMEOUT)
    }
}

/// The other program of this package, in the same directory.
fn with_system_allocator() -> io::Result<PathBuf> {
    let other = std::env::current_exe()?.with_file_name("polyrpc-bench-system-allocator");
    match other.is_file() {
        true => Ok(other),
        false => Err(io::Error::other(format!(
            "{} is not built (cargo build --release -p polyrpc-bench)",
            other.display()
        ))),
    }
}

impl MeasuredRow {
    fn bar(&self) -> Bar {
        Bar {
            name: format!("handlers_{}", self.name),
            value: self.comparison.as_ref().map(|comparison| comparison.ratio),
            limit: self.limit,
            clean: self.wrong == 0,
        }
    }

    fn print(&self) {
        let mean = |of: fn(&Round) -> [f64; 2]| {
            let figures: Vec<f64> = self.rounds.iter().flat_map(of).collect();
            figures.iter().sum::<f64>() / figures.len() as f64
        };
        let (echo, other) = (mean(|round| round.a), mean(|round| round.b));
        let (ratio, interval, finding) = match &self.comparison {
            None => (report::dash(), report::dash(), "a figure is 0".to_owned()),
            Some(comparison) => {
                let interval = comparison.interval;
                let interval =
                    interval.map(|interval| format!("{:.2} to {:.2}", interval.low, interval.high));
                let interval = interval.unwrap_or_else(report::dash);
                (format!("{:.2}", comparison.ratio), interval, comparison.finding.to_string())
            }
        };
        println!("{:<16} {echo:>10.2} {other:>10.2} {ratio:>8}  {interval:<18} {finding}", self.name);
        if self.wrong > 0 {
            println!("  {} calls ended in another way than they should", self.wrong);
        }
    }
}

const CONFIDENCE: f64 = 0.95;

//! `large`: an echo of large messages over gRPC compared with the same over baidu_std, by one blocking caller on the
//! core of its server.
//!
//! [`echo`] is the service and its caller.

mod echo;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::bar::{Bar, Limit};
use crate::measure;
use crate::report::{self, Machine, dash, with_spread};
use crate::rounds::{self, Series, Spread};
use crate::run::{self, Outcome, Timing, parse_seconds};

pub(crate) use self::echo::{ClientOptions, ServerOptions, call, serve};

/// Length of the string, and the maximum ratio of gRPC's CPU time per call to baidu_std's.
const CASES: [(usize, Option<f64>); 5] =
    [(64 << 10, Some(1.25)), (256 << 10, Some(1.35)), (1 << 20, None), (4 << 20, None), (16 << 20, None)];

/// How much more a call of 16 MiB may cost than four of 4 MiB.
const GROWTH: f64 = 1.25;

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    /// baidu_std, whose frames are as long as the message.
    BaiduStd,
    /// gRPC.
    Grpc,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::BaiduStd, Self::Grpc];

    fn as_str(self) -> &'static str {
        match self {
            Self::BaiduStd => "baidu-std",
            Self::Grpc => "grpc",
        }
    }
}

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only lengths whose name contains this, such as 64k.
    #[arg(long, default_value = "")]
    filter: String,
    /// Number of rounds of each workload.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Another build of this program: it is measured in the same rounds, and the ratio to it is printed.
    #[arg(long)]
    before: Option<PathBuf>,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A protocol of this build, or of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Subject {
    protocol: Protocol,
    is_before: bool,
}

/// All results, and the conditions of the measurement.
#[derive(Debug, Serialize)]
struct Measurement {
    machine: Machine,
    command: Vec<String>,
    rounds: usize,
    cases: Vec<Case>,
    bars: Vec<Bar>,
}

/// A length, with the results of both protocols.
#[derive(Debug, Serialize)]
struct Case {
    size: usize,
    limit: Option<f64>,
    series: Vec<Series<Subject>>,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let chosen = CASES.into_iter().filter(|(size, _)| name(*size).contains(&options.filter));
    let cases: Vec<_> = chosen.map(|(size, limit)| Case::measure(options, size, limit)).collect();
    let bars = cases.iter().filter_map(Case::bar).chain(growth(&cases)).collect();
    let command = std::env::args().collect();
    let measured = Measurement { machine, command, rounds: options.rounds, cases, bars };
    measured.print();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    let all_ok = measured.bars.iter().all(Bar::is_ok);
    Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn name(size: usize) -> String {
    match size >> 20 {
        0 => format!("{}k", size >> 10),
        mib => format!("{mib}m"),
    }
}

impl Case {
    fn measure(options: &Options, size: usize, limit: Option<f64>) -> Self {
        eprintln!("measuring {}", name(size));
        let window = Duration::from_secs_f64(options.seconds);
        let timing = Timing { warm_up: WARM_UP, window };
        let builds = if options.before.is_some() { &[true, false][..] } else { &[false] };
        let subjects: Vec<_> = builds
            .iter()
            .flat_map(|&is_before| Protocol::ALL.map(|protocol| Subject { protocol, is_before }))
            .collect();
        let series = rounds::interleave(options.rounds, &subjects, |subject| {
            let program = options.before.as_deref().filter(|_| subject.is_before);
            load(program, subject.protocol, size, timing)
        });
        Self { size, limit, series }
    }

    fn series(&self, protocol: Protocol, is_before: bool) -> Option<&Series<Subject>> {
        self.series.iter().find(|series| series.subject == Subject { protocol, is_before })
    }

    /// Ratio of gRPC's CPU time per call to baidu_std's in the same rounds.
    fn ratio(&self, is_before: bool) -> Option<Spread> {
        let series = |protocol| self.series(protocol, is_before);
        series(Protocol::Grpc)?.ratio(series(Protocol::BaiduStd)?, Outcome::cpu_us)
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar {
            name: format!("large_{}_grpc_of_baidu_std", name(self.size)),
            value: self.ratio(false).map(|ratio| ratio.median),
            limit: Limit::RatioAtMost(self.limit?),
            clean: self.series.iter().all(Series::is_clean),
        })
    }
}

/// The bar for the longest messages: their cost grows no faster than their length.
fn growth(cases: &[Case]) -> Option<Bar> {
    let series = |size| cases.iter().find(|case| case.size == size)?.series(Protocol::Grpc, false);
    let (long, longest) = (series(4 << 20)?, series(16 << 20)?);
    Some(Bar {
        name: "large_grpc_16m_of_four_4m".to_owned(),
        value: longest.ratio(long, Outcome::cpu_us).map(|ratio| ratio.median / 4.0),
        limit: Limit::RatioAtMost(GROWTH),
        clean: long.is_clean() && longest.is_clean(),
    })
}

/// One measurement with separate server and client processes on one core.
fn load(
    program: Option<&std::path::Path>,
    protocol: Protocol,
    size: usize,
    timing: Timing,
) -> io::Result<Outcome> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let core = Some(measure::last_core()?);
    let server = ServerOptions { listen, core }.to_arguments();
    run::run_pair_with(program, &server, timing, |connect| {
        let (warm_up, window) = (timing.warm_up.as_millis() as u64, timing.window.as_millis() as u64);
        ClientOptions { protocol, connect, size, warm_up, window, core }.to_arguments()
    })
}

const WARM_UP: Duration = Duration::from_millis(300);

impl Measurement {
    fn print(&self) {
        let method = format!("{} rounds in turn; loopback; median (min–max)", self.rounds);
        report::print_conditions(&self.machine, &self.command, &method);
        println!();
        println!(
            "{:<8} {:<18} {:>26} {:>12} {:>12} {:>26} {:>24}",
            "bytes", "", "calls/s", "client µs", "server µs", "CPU µs", "of baidu-std"
        );
        for case in &self.cases {
            case.series.iter().for_each(|series| case.print(series));
        }
        println!();
        for bar in &self.bars {
            println!("{bar}");
        }
    }
}

impl Case {
    fn print(&self, series: &Series<Subject>) {
        let Subject { protocol, is_before } = series.subject;
        let build = if is_before { ", before" } else { "" };
        let median = |figure: fn(&Outcome) -> f64| {
            series.spread(figure).map_or_else(dash, |spread| format!("{:.1}", spread.median))
        };
        let ratio = self.ratio(is_before).filter(|_| protocol == Protocol::Grpc);
        println!(
            "{:<8} {:<18} {:>26} {:>12} {:>12} {:>26} {:>24}",
            name(self.size),
            format!("{}{build}", protocol.as_str()),
            with_spread(series.spread(|outcome| outcome.calls_per_second), 0),
            median(|outcome| outcome.client_cpu_us),
            median(|outcome| outcome.server_cpu_us),
            with_spread(series.spread(Outcome::cpu_us), 1),
            with_spread(ratio, 3),
        );
        series.error_messages().for_each(|error| println!("  {error}"));
    }
}

//! `rest_rpc`: an echo over rest_rpc compared with the same over baidu_std, as in rest_rpc's own benchmark against brpc:
//! a string of 1 to 64 KiB, one caller, and 6, 10 and 20 of them. Every caller is a thread with a
//! separate connection, as there.
//!
//! [`echo`] is the service and its callers, [`table`] prints the results like that benchmark.

mod echo;
mod table;

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
use crate::report::{self, Machine};
use crate::rounds::{self, Series, Spread};
use crate::run::{self, Outcome, Timing, parse_seconds};

pub(crate) use self::echo::{ClientOptions, ServerOptions, call, serve};

/// Number of callers and length of the string, as in the seed.
const CASES: [(usize, usize); 10] = [
    (1, 1 << 10),
    (1, 8 << 10),
    (1, 16 << 10),
    (1, 64 << 10),
    (6, 1 << 10),
    (10, 1 << 10),
    (20, 1 << 10),
    (6, 64 << 10),
    (10, 64 << 10),
    (20, 64 << 10),
];

/// Maximum ratio to baidu_std's CPU time per call.
const RATIO: f64 = 1.10;

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BenchProtocol {
    /// A protobuf message over baidu_std.
    BaiduStd,
    /// The current rest_rpc (v0.21), which uses struct_pack and has no correlation ids.
    RestRpc,
    /// The rest_rpc at the time of that benchmark (v0.11), which uses MessagePack.
    RestRpcV0_11,
}

impl BenchProtocol {
    const ALL: [Self; 3] = [Self::BaiduStd, Self::RestRpc, Self::RestRpcV0_11];
    /// The protocols compared with baidu_std.
    const JUDGED: [Self; 2] = [Self::RestRpc, Self::RestRpcV0_11];

    fn as_str(self) -> &'static str {
        match self {
            Self::BaiduStd => "baidu-std",
            Self::RestRpc => "rest-rpc",
            Self::RestRpcV0_11 => "rest-rpc-v0-11",
        }
    }
}

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only workloads whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Number of rounds of each workload.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
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
    cases: Vec<Case>,
    bars: Vec<Bar>,
}

/// A number of callers and a string length, with the results of every protocol.
#[derive(Debug, Serialize)]
struct Case {
    callers: usize,
    size: usize,
    series: Vec<Series<BenchProtocol>>,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let chosen = CASES.into_iter().filter(|(callers, size)| name(*callers, *size).contains(&options.filter));
    let cases: Vec<_> = chosen.map(|(callers, size)| Case::measure(options, callers, size)).collect();
    let bars = cases.iter().flat_map(Case::bars).collect();
    let command = std::env::args().collect();
    let measured = Measurement { machine, command, rounds: options.rounds, cases, bars };
    measured.print();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    let kept = measured.bars.iter().all(Bar::is_ok);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn name(callers: usize, size: usize) -> String {
    format!("rest_rpc_{callers}x{}k", size >> 10)
}

impl Case {
    fn measure(options: &Options, callers: usize, size: usize) -> Self {
        eprintln!("measuring {}", name(callers, size));
        let window = Duration::from_secs_f64(options.seconds.clamp(0.01, 3600.0));
        let timing = Timing { warm_up: WARM_UP, window };
        let series = rounds::interleave(options.rounds, &BenchProtocol::ALL, |spoken| {
            load(spoken, callers, size, timing)
        });
        Self { callers, size, series }
    }

    fn series(&self, spoken: BenchProtocol) -> Option<&Series<BenchProtocol>> {
        self.series.iter().find(|series| series.subject == spoken)
    }

    /// Ratio of the CPU time per call to baidu_std's in the same rounds.
    fn ratio(&self, spoken: BenchProtocol) -> Option<Spread> {
        self.series(spoken)?.ratio(self.series(BenchProtocol::BaiduStd)?, Outcome::cpu_us)
    }

    fn bars(&self) -> impl Iterator<Item = Bar> {
        let clean = self.series.iter().all(Series::is_clean);
        BenchProtocol::JUDGED.into_iter().map(move |spoken| Bar {
            name: format!("{}_{}", name(self.callers, self.size), spoken.as_str()),
            value: self.ratio(spoken).map(|ratio| ratio.median),
            limit: Limit::RatioAtMost(RATIO),
            clean,
        })
    }
}

/// One measurement with separate server and client processes. A single caller and its server share a core: the
/// measurement covers the work of a call, not the wake-up of another core.
fn load(spoken: BenchProtocol, callers: usize, size: usize, timing: Timing) -> io::Result<Outcome> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let core = if callers == 1 { Some(measure::last_core()?) } else { None };
    let server = ServerOptions { spoken, listen, core }.to_arguments();
    run::run_pair(&server, timing, |connect| {
        let (warm_up, window) = (timing.warm_up.as_millis() as u64, timing.window.as_millis() as u64);
        ClientOptions { spoken, connect, callers, size, warm_up, window, core }.to_arguments()
    })
}

const WARM_UP: Duration = Duration::from_millis(300);

impl Measurement {
    fn print(&self) {
        let method = format!("{} rounds in turn; loopback; median", self.rounds);
        report::print_conditions(&self.machine, &self.command, &method);
        table::print(&self.cases);
        println!();
        for bar in &self.bars {
            println!("{bar}");
        }
    }
}

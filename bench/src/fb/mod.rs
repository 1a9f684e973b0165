//! `fb`: FlatBuffers over fb_rpc compared with protobuf over baidu_std, as in the benchmark of the FlatBuffers proposal
//! to brpc (apache/brpc#3197): a message of 32 bytes of fixed fields and a string, 1 and 64 callers on one connection.
//!
//! [`echo`] is the service with both kinds of messages and its callers, [`messages_only`] the messages without them,
//! [`table`] prints the results like the proposal.

mod echo;
mod messages_only;
mod table;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::bar::{Bar, Limit};
use crate::exchange::Protocol;
use crate::measure;
use crate::report::{self, Machine};
use crate::rounds::{self, Series, Spread};
use crate::run::{self, Outcome, Placement, Timing, Workload, parse_seconds};
use crate::subject::{Shape, Subject};

pub(crate) use self::echo::{ClientOptions, ServerOptions, call, serve};

/// Lengths of the string in bytes, as in the proposal.
const SIZES: [usize; 10] = [0, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
const CALLERS: [usize; 2] = [1, 64];

/// From this size on FlatBuffers must be cheaper by this factor.
const LARGE: usize = 1024;
const LARGE_RATIO: f64 = 0.85;

/// Kind of message, each over brpc's protocol for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Messages {
    /// Protobuf over baidu_std.
    Protobuf,
    /// FlatBuffers over fb_rpc.
    Flatbuffers,
}

impl Messages {
    const ALL: [Self; 2] = [Self::Protobuf, Self::Flatbuffers];

    fn as_str(self) -> &'static str {
        match self {
            Self::Protobuf => "protobuf",
            Self::Flatbuffers => "flatbuffers",
        }
    }
}

/// The measured subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// The same bytes without any RPC: the unavoidable cost of these sockets.
    Floor,
    /// The service with messages of this kind.
    Of(Messages),
}

impl Side {
    const ALL: [Self; 3] = [Self::Floor, Self::Of(Messages::Protobuf), Self::Of(Messages::Flatbuffers)];

    fn as_str(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Of(messages) => messages.as_str(),
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
    allocations: Vec<Allocations>,
    bars: Vec<Bar>,
}

/// A size and a number of callers, with the results of both kinds of messages and of the floor.
#[derive(Debug, Serialize)]
struct Case {
    callers: usize,
    size: usize,
    series: Vec<Series<Side>>,
    /// CPU time of the messages of a call alone, in microseconds.
    alone: Vec<Series<Messages, f64>>,
}

/// Allocations of a call, client and server together, and of reading its request.
#[derive(Debug, Serialize, Deserialize)]
struct Allocations {
    messages: Messages,
    size: usize,
    a_call: f64,
    reading: f64,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let cases: Vec<_> = CALLERS
        .into_iter()
        .flat_map(|callers| SIZES.map(|size| (callers, size)))
        .filter(|(callers, size)| name(*callers, *size).contains(&options.filter))
        .map(|(callers, size)| Case::measure(options, callers, size))
        .collect();
    let allocations = count_allocations()?;
    let bars = cases.iter().map(Case::bar).chain(reading_bar(&allocations)).collect();
    let command = std::env::args().collect();
    let measured = Measurement { machine, command, rounds: options.rounds, cases, allocations, bars };
    measured.print();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    let kept = measured.bars.iter().all(Bar::is_ok);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn name(callers: usize, size: usize) -> String {
    format!("fb_{callers}_{size}")
}

impl Case {
    fn measure(options: &Options, callers: usize, size: usize) -> Self {
        eprintln!("measuring {}", name(callers, size));
        let window = Duration::from_secs_f64(options.seconds.clamp(0.01, 3600.0));
        let timing = Timing { warm_up: WARM_UP, window };
        let series = rounds::interleave(options.rounds, &Side::ALL, |side| match side {
            Side::Floor => run::run(Subject::Floor, &floor(callers, size), timing),
            Side::Of(messages) => load(messages, callers, size, timing),
        });
        let alone = rounds::interleave(options.rounds, &Messages::ALL, |messages| {
            messages_only::cpu_us(messages, size)
        });
        Self { callers, size, series, alone }
    }

    fn series(&self, side: Side) -> Option<&Series<Side>> {
        self.series.iter().find(|series| series.subject == side)
    }

    /// Cost of the messages of a call alone.
    fn cost_alone(&self, messages: Messages) -> Option<f64> {
        let series = self.alone.iter().find(|series| series.subject == messages)?;
        Some(series.spread(|cpu_us| *cpu_us)?.median)
    }

    /// Ratio of one side's figure to that of protobuf, per round.
    fn to_protobuf(&self, side: Side, figure: impl Fn(&Outcome) -> f64) -> Option<Spread> {
        self.series(side)?.ratio(self.series(Side::Of(Messages::Protobuf))?, figure)
    }

    /// FlatBuffers must not cost more CPU time, and clearly less for large strings.
    fn bar(&self) -> Bar {
        let limit = if self.size >= LARGE { LARGE_RATIO } else { 1.0 };
        let ratio = self.to_protobuf(Side::Of(Messages::Flatbuffers), Outcome::cpu_us);
        Bar {
            name: name(self.callers, self.size),
            value: ratio.map(|ratio| ratio.median),
            limit: Limit::RatioAtMost(limit),
            clean: self.series.iter().all(Series::is_clean),
        }
    }
}

/// Reading a FlatBuffers request must not allocate.
fn reading_bar(allocations: &[Allocations]) -> Option<Bar> {
    let reading =
        allocations.iter().filter(|row| row.messages == Messages::Flatbuffers).map(|row| row.reading);
    let most = reading.reduce(f64::max)?;
    Some(Bar {
        name: "fb_reading".into(),
        value: Some(most),
        limit: Limit::AllocationsAtMost(0.0),
        clean: true,
    })
}

/// One measurement with separate server and client processes. A single caller and its server share a core: the
/// measurement covers the work of a call, not the wake-up of another core.
fn load(messages: Messages, callers: usize, size: usize, timing: Timing) -> io::Result<Outcome> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let core = if callers == 1 { Some(measure::last_core()?) } else { None };
    let server = ServerOptions { messages, listen, core }.to_arguments();
    run::run_pair(&server, timing, |connect| {
        let (warm_up, window) = (timing.warm_up.as_millis() as u64, timing.window.as_millis() as u64);
        ClientOptions { messages, connect, callers, size, warm_up, window, core }.to_arguments()
    })
}

/// The number of bytes of a call over baidu_std, in each direction.
fn floor(callers: usize, size: usize) -> Workload {
    let (shape, placement) = match callers {
        1 => (Shape::Blocking, Placement::OneCore),
        callers => (Shape::Shared(callers), Placement::Free),
    };
    Workload { protocol: Protocol::BaiduStd, payload: FIXED + size, shape, placement }
}

/// Length of a message's other fields.
const FIXED: usize = 32;

const WARM_UP: Duration = Duration::from_millis(300);

/// Runs the program that counts allocations, which needs its own allocator.
fn count_allocations() -> io::Result<Vec<Allocations>> {
    let program = std::env::current_exe()?.with_file_name("polyrpc-bench-allocations");
    if !program.exists() {
        eprintln!("{} is missing: cargo build --release -p polyrpc-bench", program.display());
        return Ok(Vec::new());
    }
    let output = std::process::Command::new(program).output()?;
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

impl Measurement {
    fn print(&self) {
        let method = format!("{} rounds in turn; loopback; median", self.rounds);
        report::print_conditions(&self.machine, &self.command, &method);
        for callers in CALLERS {
            let cases: Vec<_> = self.cases.iter().filter(|case| case.callers == callers).collect();
            table::print(callers, &cases);
        }
        table::print_allocations(&self.allocations);
        println!();
        for bar in &self.bars {
            println!("{bar}");
        }
    }
}

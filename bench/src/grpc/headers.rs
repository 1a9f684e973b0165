//! `headers`: the server's CPU time for calls whose metadata change, which peers add to their HPACK table each time,
//! and for calls whose metadata stay the same.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::peer::Peer;
use super::task::{ClientOptions, Method};
use crate::bar::{Bar, Limit};
use crate::process::{Child, Done, Listening};
use crate::report::{self, Machine, with_spread};
use crate::rounds::{self, Series, Spread};
use crate::run::{REPORT_TIMEOUT, parse_seconds};

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct HeadersOptions {
    /// Number of rounds of each workload.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Another build of this program, whose server is measured in the same rounds; the bars with `of_before` need it.
    #[arg(long)]
    before: Option<PathBuf>,
    /// Do not measure tonic; the bars that need it are then missed.
    #[arg(long)]
    without_tonic: bool,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Number of metadata entries of a call, and whether their values stay the same; the maximum ratio to the build before.
const CASES: [(usize, bool, Option<f64>); 7] = [
    (0, true, None),
    (1, false, None),
    (5, false, Some(0.85)),
    (20, false, Some(0.60)),
    (100, false, Some(0.60)),
    (20, true, None),
    (100, true, None),
];

/// The case that is compared with tonic, and the maximum ratio.
const OF_TONIC: (usize, f64) = (20, 0.6);

/// Callers on one connection.
const IN_FLIGHT: usize = 64;

/// The server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Subject {
    Polyrpc,
    Before,
    Tonic,
}

impl Subject {
    fn as_str(self) -> &'static str {
        match self {
            Self::Polyrpc => "polyrpc",
            Self::Before => "before",
            Self::Tonic => Peer::TonicOneThread.as_str(),
        }
    }
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

/// A workload, with the server's CPU time per call in microseconds of every server.
#[derive(Debug, Serialize)]
struct Case {
    entries: usize,
    is_same: bool,
    limit: Option<f64>,
    series: Vec<Series<Subject, f64>>,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &HeadersOptions) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let cases: Vec<_> = CASES.into_iter().map(|case| Case::measure(options, case)).collect();
    let bars = cases.iter().flat_map(|case| case.bars(options)).collect();
    let command = std::env::args().collect();
    let measured = Measurement { machine, command, rounds: options.rounds, cases, bars };
    measured.print();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    let all_ok = measured.bars.iter().all(Bar::is_ok);
    Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl HeadersOptions {
    fn subjects(&self) -> Vec<Subject> {
        let before = self.before.is_some().then_some(Subject::Before);
        let tonic = (!self.without_tonic).then_some(Subject::Tonic);
        [Subject::Polyrpc].into_iter().chain(before).chain(tonic).collect()
    }

    fn start(&self, subject: Subject) -> io::Result<(Child, SocketAddr)> {
        match (subject, &self.before) {
            (Subject::Before, Some(program)) => {
                let server = Child::start_program(program, &["grpc-server".to_owned()])?;
                let Listening { address } = server.read_report(REPORT_TIMEOUT)?;
                Ok((server, address))
            }
            (Subject::Tonic, _) => Peer::TonicOneThread.start(0),
            (Subject::Polyrpc | Subject::Before, _) => Peer::Polyrpc.start(0),
        }
    }

    /// Calls a fresh server; returns its CPU time per call in microseconds.
    fn load(&self, subject: Subject, metadata: usize, same: bool) -> io::Result<f64> {
        let (mut server, address) = self.start(subject)?;
        let options = ClientOptions {
            method: Method::Echo,
            callers: IN_FLIGHT,
            metadata,
            same,
            window: (self.seconds * 1e3) as u64,
            ..ClientOptions::echo(address)
        };
        let (mut client, _) = options.start()?;
        let before = server.resource_usage()?;
        client.send_go()?;
        let Done { tally, .. } = options.wait_for_end(&client)?;
        let spent = server.resource_usage()?.cpu_ns - before.cpu_ns;
        if tally.errors > 0 {
            return Err(io::Error::other(format!("{} wrong replies of {}", tally.errors, tally.calls)));
        }
        Ok(spent as f64 / 1e3 / tally.calls as f64)
    }
}

impl Case {
    fn measure(options: &HeadersOptions, (entries, is_same, limit): (usize, bool, Option<f64>)) -> Self {
        eprintln!("measuring {entries} entries, {}", kind(is_same));
        let series = rounds::interleave(options.rounds, &options.subjects(), |subject| {
            options.load(subject, entries, is_same)
        });
        Self { entries, is_same, limit, series }
    }

    fn series(&self, subject: Subject) -> Option<&Series<Subject, f64>> {
        self.series.iter().find(|series| series.subject == subject)
    }

    fn ratio(&self, subject: Subject) -> Option<Spread> {
        self.series(Subject::Polyrpc)?.ratio(self.series(subject)?, |cost| *cost)
    }

    fn bars(&self, options: &HeadersOptions) -> impl Iterator<Item = Bar> {
        let of_before = self.limit.filter(|_| options.before.is_some()).map(|limit| (Subject::Before, limit));
        let (entries, limit) = OF_TONIC;
        let of_tonic = (entries == self.entries && !self.is_same).then_some((Subject::Tonic, limit));
        of_before.into_iter().chain(of_tonic).map(|(subject, limit)| Bar {
            name: format!(
                "headers_{}_of_{}",
                self.entries,
                if subject == Subject::Tonic { "tonic" } else { "before" }
            ),
            value: self.ratio(subject).map(|ratio| ratio.median),
            limit: Limit::RatioAtMost(limit),
            clean: self.series.iter().all(|series| series.rounds.iter().all(Result::is_ok)),
        })
    }
}

fn kind(is_same: bool) -> &'static str {
    if is_same { "the same" } else { "new" }
}

impl Measurement {
    fn print(&self) {
        let method = format!(
            "{} rounds in turn; {IN_FLIGHT} callers on one connection; loopback; median (min–max)",
            self.rounds
        );
        report::print_conditions(&self.machine, &self.command, &method);
        println!();
        println!(
            "{:>8} {:<10} {:<17} {:>24} {:>24}",
            "metadata", "values", "server", "server CPU µs", "ours is"
        );
        for case in &self.cases {
            for series in &case.series {
                let ratio = case.ratio(series.subject).filter(|_| series.subject != Subject::Polyrpc);
                println!(
                    "{:>8} {:<10} {:<17} {:>24} {:>24}",
                    case.entries,
                    kind(case.is_same),
                    series.subject.as_str(),
                    with_spread(series.spread(|cost| *cost), 2),
                    with_spread(ratio, 3),
                );
                for error in series.rounds.iter().filter_map(|round| round.as_ref().err()) {
                    println!("  {error}");
                }
            }
        }
        println!();
        for bar in &self.bars {
            println!("{bar}");
        }
    }
}

//! `grpc`: PolyRPC's server compared with tonic, grpc-go and gRPC C++, with the same clients.
//!
//! 1. [`echo`] measures the CPU time of a call: one connection with h2load and with our client, ten with ghz.
//! 2. [`headers`], a suite of its own, does so for calls whose metadata change.
//! 3. [`heavy`] measures light calls during computing handlers.
//! 4. [`many_connections`] opens up to 10,000 connections.
//!
//! [`peer`] starts a server of any implementation; [`server`] is ours. [`h2load`] and [`ghz`] drive foreign clients,
//! [`client`] is our own, in a separate process; [`task`] defines its arguments and its output.

mod echo;
mod headers;
mod heavy;
mod many_connections;

mod peer;
mod server;

mod client;
mod ghz;
mod h2load;
mod task;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::bar::Bar;
use crate::report::{self, Machine};

pub(crate) use self::client::call;
pub(crate) use self::h2load::rate as h2load_rate;
pub(crate) use self::headers::{HeadersOptions, run as measure_headers};
pub(crate) use self::peer::{GrpcServer, file};
pub(crate) use self::server::ServerOptions;
pub(crate) use self::server::serve;
pub(crate) use self::task::ClientOptions;

use self::peer::Peer;

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only these servers; bars that need others are then missed.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Peer>,
    /// Measure only workloads whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Number of rounds of each workload.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// All results, and the conditions of the measurement.
#[derive(Debug, Serialize)]
struct Measured {
    machine: Machine,
    command: Vec<String>,
    rounds: usize,
    echo: Vec<echo::Measured>,
    heavy: Option<heavy::Measured>,
    many: Vec<many_connections::Measured>,
    bars: Vec<Bar>,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let peers = options.peers();
    let echo = echo::measure(options, &peers);
    let heavy = heavy::measure(options, &peers);
    let many = many_connections::measure(options, &peers);

    let bars = echo.iter().flat_map(echo::Measured::bars);
    let bars = bars.chain(heavy.iter().flat_map(heavy::Measured::bars));
    let bars = bars.chain(many.iter().flat_map(many_connections::Measured::bars)).collect();
    let command = std::env::args().collect();
    let measured = Measured { machine, command, rounds: options.rounds, echo, heavy, many, bars };
    measured.print();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    let kept = measured.bars.iter().all(Bar::is_ok);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn peers(&self) -> Vec<Peer> {
        if self.only.is_empty() { Peer::ALL.to_vec() } else { self.only.clone() }
    }

    /// Whether the workload with this name is to be measured.
    fn is_chosen(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }
}

impl Measured {
    fn print(&self) {
        let method = format!("{} rounds in turn; loopback; median (min–max)", self.rounds);
        report::print_conditions(&self.machine, &self.command, &method);
        echo::print(&self.echo);
        if let Some(heavy) = &self.heavy {
            heavy.print();
        }
        many_connections::print(&self.many);
        println!();
        for bar in &self.bars {
            println!("{bar}");
        }
    }
}

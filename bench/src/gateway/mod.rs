//! `gateway`: calls through PolyRPC's gateway compared with nghttpx, haproxy, nginx and Envoy, with the same client and upstream.
//!
//! 1. [`load`] measures the CPU time of a call in the proxy: gRPC to gRPC by our client, JSON to gRPC by h2load.
//! 2. [`idle`] measures the memory of connections that made one call.
//! 3. [`recording`] measures what a recorded call costs its thread.
//!
//! [`proxy`] starts a proxy with its [`configuration`]; [`server`] is ours.

mod idle;
mod load;
mod recording;

mod proxy;
mod server;

mod configuration;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::bar::Bar;
use crate::process;
use crate::report::{self, Machine};

pub(crate) use self::server::{ServerOptions, serve};

use self::proxy::Proxy;

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only these proxies; bars that need others are then missed.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Proxy>,
    /// Measure only workloads whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Number of rounds of each workload.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Number of idle connections.
    #[arg(long, default_value_t = 5000)]
    connections: usize,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Options {
    fn proxies(&self) -> Vec<Proxy> {
        if self.only.is_empty() { Proxy::ALL.to_vec() } else { self.only.clone() }
    }

    /// Whether the workload with this name is to be measured.
    fn is_chosen(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }
}

/// All results, and the conditions of the measurement.
#[derive(Debug, Serialize)]
struct Measured {
    machine: Machine,
    command: Vec<String>,
    rounds: usize,
    load: Vec<load::Measured>,
    idle: Option<idle::Measured>,
    recording: Option<recording::Measured>,
    bars: Vec<Bar>,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    // The proxies inherit it, and some do not raise it themselves.
    process::prepare(None)?;
    let machine = Machine::current();
    let command: Vec<_> = std::env::args().collect();
    let method = format!("{} rounds in turn; loopback; one thread each; median (min–max)", options.rounds);
    report::print_conditions(&machine, &command, &method);
    let load = load::measure(options);
    load::print(&load);
    let idle = idle::measure(options);
    idle.iter().for_each(idle::Measured::print);
    let recording = recording::measure(options)?;
    recording.iter().for_each(recording::Measured::print);

    let bars = load.iter().flat_map(load::Measured::bars);
    let bars = bars.chain(idle.iter().map(idle::Measured::bar));
    let bars: Vec<_> = bars.chain(recording.iter().flat_map(recording::Measured::bars)).collect();
    println!();
    bars.iter().for_each(|bar| println!("{bar}"));
    let measured = Measured { machine, command, rounds: options.rounds, load, idle, recording, bars };
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    Ok(if measured.bars.iter().all(Bar::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

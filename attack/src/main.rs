//! Attacks on a PolyRPC server, each alongside well-behaved clients of every protocol.
//!
//! 1. [`mod@attacks`] lists the attacks, one file per family, and the expected outcome of each.
//! 2. [`suite`] runs them one by one: [`victim`] is the server, in a separate process; [`clients`] are the
//!    well-behaved clients, in this process; [`attacker`] is the attack, in a third process with the lowest priority.
//! 3. [`measure`] reads latencies and the server's memory, [`report`] prints the table;
//!    [`thresholds`] decide between ok and FAIL.

mod attacker;
mod attacks;
mod clients;
mod measure;
mod operator;
mod profile;
mod raw;
mod report;
mod service;
mod suite;
mod thresholds;
mod victim;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Attacks a PolyRPC server alongside well-behaved clients of every protocol, and checks that they are not affected.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: suite::Options,
}

/// Child processes, started by the suite.
#[derive(Debug, Subcommand)]
enum Role {
    /// The server under attack.
    #[command(hide = true)]
    Victim(victim::Options),
    /// One attack.
    #[command(hide = true)]
    Attacker(attacker::Options),
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    measure::raise_descriptor_limit();
    match arguments.role {
        None => suite::run(&arguments.options),
        Some(Role::Victim(options)) => victim::serve(&options).map(|()| ExitCode::SUCCESS),
        Some(Role::Attacker(options)) => attacker::attack(&options).map(|()| ExitCode::SUCCESS),
    }
}

//! Attacks on a server of PolyRPC, each beside well-behaved clients of every protocol.
//!
//! 1. [`mod@attacks`] lists the attacks, one file per family, and what each must show.
//! 2. [`suite`] runs them one by one: [`victim`] is the server, in a process of its own; [`clients`] are the
//!    well-behaved clients, in this process; [`attacker`] is the attack, in a third process with the lowest priority.
//! 3. [`measure`] reads latencies and the server's memory, [`report`] prints the table.

mod attacker;
mod attacks;
mod clients;
mod measure;
mod profile;
mod raw;
mod report;
mod service;
mod suite;
mod victim;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Attacks a server of PolyRPC beside well-behaved clients of every protocol, and judges what they notice.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    options: suite::Options,
}

/// The other processes; the suite starts them.
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

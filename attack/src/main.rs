//! Attacks on a PolyRPC server, each alongside well-behaved clients of every protocol.
//!
//! 1. [`mod@attacks`] lists the attacks, one file per family, and the expected outcome of each.
//! 2. [`suite`] runs them one by one: [`target_server`] is the server, in a separate process, or a [`mod@gateway`] in
//!    front of it; [`clients`] are the well-behaved clients, in this process; [`attacker`] is the attack, in a third
//!    process with the lowest priority.
//! 3. [`sink`] is attacked in place of the server if calls were late, to measure the cost of the attack for the machine
//!    alone.
//! 4. [`measure`] reads latencies and the server's memory, [`report`] prints the table;
//!    [`thresholds`] decide between ok and FAIL.
//!
//! Other programs share the server's methods: [`soak`] lets a [`cluster`] run for minutes or hours, and [`faults`]
//! kills and stops its servers; [`networks`] calls over bad networks. A fourth, [`mod@instructions`], makes calls that
//! are counted.

mod admin_pages;
mod attacker;
mod attacks;
mod clients;
mod cluster;
mod faults;
mod gateway;
mod instructions;
mod measure;
mod networks;
mod operator;
mod profile;
mod raw;
mod report;
mod scratch;
mod service;
mod sink;
mod soak;
mod suite;
mod target_server;
mod thresholds;

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

/// Other programs than the suite, and child processes.
#[derive(Debug, Subcommand)]
enum Role {
    /// Calls a cluster over every protocol and transport while servers restart, registries flap and clients misbehave;
    /// resources may not grow, and no call may fail.
    Soak(soak::Options),
    /// Kills and stops servers under load, over every protocol and transport; no idempotent call may fail.
    Faults(faults::Options),
    /// Calls over networks with loss, delay, reordering, duplicates and cuts (networks.py).
    Networks(networks::Options),
    /// Calls over one protocol and transport, by one thread, for a count of instructions (checks/instructions.py).
    Instructions(instructions::Options),
    /// A server of the cluster.
    #[command(hide = true)]
    Replica(cluster::Options),
    /// An echo by quinn alone, with which goodput is compared.
    #[command(hide = true)]
    QuinnEcho(networks::EchoOptions),
    /// The server under attack.
    #[command(hide = true)]
    TargetServer(target_server::Options),
    /// A process that only reads; it is attacked instead of the server to measure the load of the attack itself.
    #[command(hide = true)]
    Sink,
    /// The gateway under attack.
    #[command(hide = true)]
    Gateway(gateway::Options),
    /// One attack.
    #[command(hide = true)]
    Attacker(attacker::Options),
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    measure::raise_descriptor_limit();
    match arguments.role {
        None => suite::run(&arguments.options),
        Some(Role::Soak(options)) => soak::run(&options),
        Some(Role::Faults(options)) => faults::run(&options),
        Some(Role::Networks(options)) => networks::run(&options),
        Some(Role::Instructions(options)) => instructions::run(&options),
        Some(Role::Replica(options)) => cluster::serve(&options).map(|()| ExitCode::SUCCESS),
        Some(Role::QuinnEcho(options)) => networks::serve_echo(&options).map(|()| ExitCode::SUCCESS),
        Some(Role::TargetServer(options)) => target_server::serve(&options).map(|()| ExitCode::SUCCESS),
        Some(Role::Sink) => sink::read_everything().map(|()| ExitCode::SUCCESS),
        Some(Role::Gateway(options)) => gateway::serve(&options).map(|()| ExitCode::SUCCESS),
        Some(Role::Attacker(options)) => attacker::attack(&options).map(|()| ExitCode::SUCCESS),
    }
}

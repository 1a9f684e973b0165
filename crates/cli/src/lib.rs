//! The command `polyrpc`: serves, calls and measures over every supported protocol, and generates code.
//!
//! This is a library so that the repository's test servers can extend `serve`. Its API is not stable.
//!
//! * `demo` starts a server and calls it over every protocol.
//! * `serve` serves the `services` of the demo.
//! * `list` lists the services of a server.
//! * `describe` describes their methods in OpenAPI, JSON Schema or `.proto` files.
//! * `discover` lists the contents of a registry.
//! * `call` calls a method of any server.
//! * `bench` calls it for a while, by the engine of `polyrpc-load`, and reports latencies and the cost.
//! * `gateway` forwards calls between protocols.
//! * `recording` lists, shows and converts recordings of calls.
//! * `replay` sends recorded calls, compares the answers, or answers as recorded.
//! * `diff` compares the answers of two recordings.
//! * `dump` shows the calls in captured packets.
//! * `generate` generates the Rust code of `.proto` and `.fbs` files.
//! * `shell` writes completions and manual pages.
//! * `new` writes a project to begin with.
//!
//! `demo`, `call` and `bench` encode and decode messages by `message`: JSON in, any format on the wire, JSON out.
//! Without a `.proto`, `list` and `call` query the server by `reflection`; only `demo` uses the descriptions of this
//! program's own services.

mod demo;

pub mod serve;
pub mod services;

mod declarations;
mod list;

mod describe;

mod discover;

mod fleet;

mod call;

mod bench;

mod gateway;

mod recording;
mod replay;

mod diff;
mod dump;

mod generate;
mod new;

mod shell;

mod kcp;
mod message;
mod reflection;

mod admin;
mod failure;
mod limits;
mod log;
mod terminal;
mod tls;
mod url;
mod usage;

/// The messages and services of the demo.
#[allow(warnings, reason = "generated")]
pub mod proto;

#[allow(warnings, reason = "generated")]
mod fbs;

use std::env;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

pub use crate::failure::Failure;

/// Reads the calls in a file of captured packets, as `dump` does; returns their number. For fuzzing.
#[doc(hidden)]
pub fn captured_calls(file: &[u8]) -> usize {
    dump::count_calls(file)
}

/// Runs the command with the arguments of this process. Returns its exit code.
pub fn main() -> ExitCode {
    polyrpc_discovery::install();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error, env::args_os()),
    };
    match cli.run() {
        Ok(code) => code,
        Err(failure) => {
            terminal::print_error(failure);
            ExitCode::FAILURE
        }
    }
}

/// Serve, call and measure RPC over every protocol of PolyRPC.
#[derive(Debug, Parser)]
#[command(name = "polyrpc", version)]
struct Cli {
    /// Log filter for standard error: error, warn, info, debug, trace or off, or target=level,… [default: RUST_LOG, or
    /// else warn while serving, with recoveries of servers and registries, and error otherwise]
    #[arg(long, global = true, value_name = "LEVEL", value_parser = log::parse_filter)]
    log: Option<Targets>,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    fn run(self) -> Result<ExitCode, Failure> {
        let filter = log::install(self.log, self.command.default_log_level())?;
        self.command.run(filter)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a server on a free port and call it over every protocol
    Demo(demo::Options),
    /// Serve the demo's services
    Serve(serve::Options),
    /// List the services of a server, or describe a service, method or message
    List(list::Options),
    /// Describe the methods of a server in OpenAPI, JSON Schema or .proto files
    Describe(describe::Options),
    /// List the servers in a registry, a file or DNS
    Discover(discover::Options),
    /// Show all servers of a registry on one page
    Console(fleet::Options),
    /// Call a method: JSON in, JSON out
    Call(call::Options),
    /// Call a method many times, at a rate or in a closed loop, and report latencies, rate and CPU time
    Bench(Box<bench::Options>),
    /// Forward calls between protocols by a configuration file
    Gateway(gateway::Options),
    /// List, show and convert recordings of calls
    Recording(recording::Options),
    /// Send recorded calls to a server and compare the answers, or answer as recorded
    Replay(Box<replay::Options>),
    /// Compare the answers of two recordings
    Diff(diff::Options),
    /// Show the calls in captured packets
    Dump(dump::Options),
    /// Write the Rust code of .proto or .fbs files, to be committed
    Generate(generate::Options),
    /// Print the completions of a shell
    Completions(shell::Completions),
    /// Print the manual page, or write those of all commands
    Man(shell::Man),
    /// Write a project: a service, a client, tests and a Dockerfile
    New(new::Options),
}

impl Command {
    /// Default log level of a command. Commands that call report failures themselves.
    fn default_log_level(&self) -> LevelFilter {
        match self {
            Self::Serve(_) | Self::Console(_) | Self::Gateway(_) => LevelFilter::WARN,
            Self::Replay(options) if options.serve => LevelFilter::WARN,
            _ => LevelFilter::ERROR,
        }
    }

    fn run(self, filter: log::LogFilter) -> Result<ExitCode, Failure> {
        match self {
            Self::Demo(options) => demo::run(&options),
            Self::Serve(mut options) => {
                options.admin.log_filter = Some(filter);
                serve::run(&options)
            }
            Self::List(options) => list::run(options),
            Self::Describe(options) => describe::run(&options),
            Self::Discover(options) => discover::run(options),
            Self::Console(options) => fleet::run(&options),
            Self::Call(options) => call::run(options),
            Self::Bench(options) => bench::run(*options),
            Self::Gateway(options) => gateway::run(&options),
            Self::Recording(options) => recording::run(&options),
            Self::Replay(options) => replay::run(&options),
            Self::Diff(options) => diff::run(&options),
            Self::Dump(options) => dump::run(&options),
            Self::Generate(options) => generate::run(options),
            Self::Completions(options) => shell::generate_completions(&options, &mut Cli::command()),
            Self::Man(options) => shell::generate_man(&options, Cli::command()),
            Self::New(options) => new::run(options),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        super::Cli::command().debug_assert();
    }
}

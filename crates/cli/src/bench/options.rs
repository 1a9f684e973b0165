//! Options of the load: when calls start, and how they use connections.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use polyrpc::client::ConnectionMode;
use polyrpc_load::{Arrivals, Pacing, Profile, Rate, Requirements, RunLength, Stages};

use crate::failure::Failure;
use crate::terminal;

/// When calls start and how long the load lasts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadOptions {
    /// Calls per second, as in 500, 20k, 1.5M or 30/m: an open loop, whose calls start whether or not earlier ones have
    /// ended [default: a closed loop of --callers]
    #[arg(long, visible_alias = "rps", value_name = "RATE", allow_negative_numbers = true, conflicts_with_all = ["callers", "blocking"])]
    rate: Option<Rate>,
    /// Points in time and their rates, joined by lines, as in 0:1k,30s:50k,2m:50k
    #[arg(long, value_name = "TIME:RATE,…", conflicts_with_all = ["rate", "callers", "blocking"])]
    stages: Option<Stages>,
    /// Intervals between the calls of an open loop [default: constant]
    #[arg(long, value_enum)]
    arrivals: Option<Intervals>,
    /// Number of concurrent callers of a closed loop [default: one per connection]
    #[arg(short, long, visible_alias = "concurrency", value_name = "N", value_parser = parse_positive)]
    pub(super) callers: Option<usize>,
    /// Number of connections that the callers share, with --connection-mode shared
    #[arg(long, value_name = "N", value_parser = parse_positive, conflicts_with = "blocking")]
    pub(super) connections: Option<usize>,
    /// How callers use connections: shared, one each, or a new one for each call
    #[arg(long, value_parser = connection_modes(), default_value = "shared")]
    pub(super) connection_mode: ConnectionMode,
    /// Use one thread per caller, which writes and reads its connection itself
    #[arg(long)]
    pub(super) blocking: bool,
    /// Number of threads [default: one per connection, at most one per core]
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    threads: Option<usize>,
    /// Maximum number of calls in flight of an open loop; others wait, and their waiting time counts
    #[arg(long, value_name = "N", value_parser = parse_positive, default_value = "10000")]
    pub(super) max_in_flight: usize,
    /// How long to measure [default: 5s, or as long as --stages]
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, allow_negative_numbers = true)]
    pub(super) duration: Option<Duration>,
    /// Number of calls to measure, however long they take
    #[arg(short = 'n', long, visible_alias = "total", value_name = "N", value_parser = parse_positive, conflicts_with = "duration")]
    pub(super) calls: Option<usize>,
    /// Duration of the warm-up before the measurement
    #[arg(long, value_name = "TIME", value_parser = terminal::parse_duration, allow_negative_numbers = true, default_value = "1s")]
    pub(super) warmup: Duration,
    /// Seed of random intervals, methods and messages
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) seed: u64,
    /// Conditions on the results, as in 'p99<5ms,errors<0.1%,rate>=19k'; also p50, p99.9, mean, max, each also with
    /// the prefix service., lag. or all. (with failed calls)
    #[arg(long, value_name = "CONDITIONS")]
    pub(super) require: Option<Requirements>,
    /// Find the highest rate at which --slo is met, starting from --rate [default: 1k]; each trial lasts --duration
    #[arg(long, requires = "slo", conflicts_with_all = ["stages", "callers", "blocking", "calls", "require"])]
    pub(super) find_max: bool,
    /// Conditions of --find-max, in the form of --require
    // `requires` has no effect together with options that `find_max` conflicts with: these conflict here, too.
    #[arg(long, value_name = "CONDITIONS", requires = "find_max", conflicts_with_all = ["stages", "callers", "blocking", "calls", "require"])]
    pub(super) slo: Option<Requirements>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Intervals {
    /// Equal intervals
    Constant,
    /// Exponentially distributed intervals, as those of many independent users
    Poisson,
}

/// How calls use connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) connection_mode: ConnectionMode,
    pub(super) connections: usize,
    pub(super) threads: usize,
    /// Callers of a closed loop.
    pub(super) callers: usize,
}

impl LoadOptions {
    /// Whether calls are planned.
    pub(super) fn is_open(&self) -> bool {
        self.rate.is_some() || self.stages.is_some() || self.find_max
    }

    /// When calls start.
    pub(super) fn pacing(&self, callers: usize) -> Result<Pacing, Failure> {
        let profile = match (self.rate, &self.stages) {
            (Some(rate), _) => Profile::Constant(rate),
            (None, Some(stages)) => Profile::Stages(stages.clone()),
            (None, None) if self.find_max => {
                Profile::Constant(Rate::per_second(1_000).map_err(Failure::new)?)
            }
            (None, None) if self.arrivals.is_some() => {
                return Err(Failure::new("--arrivals is for calls at a --rate or in --stages"));
            }
            (None, None) => return Ok(Pacing::Closed { callers, blocking: self.blocking }),
        };
        let arrivals = match self.arrivals {
            Some(Intervals::Poisson) => Arrivals::Poisson,
            Some(Intervals::Constant) | None => Arrivals::Constant,
        };
        Ok(Pacing::Open { profile, arrivals })
    }

    pub(super) fn length(&self) -> RunLength {
        match (self.calls, self.duration, &self.stages) {
            (Some(calls), ..) => RunLength::Calls(calls as u64),
            (None, Some(duration), _) => RunLength::Time(duration),
            (None, None, Some(stages)) => RunLength::Time(stages.duration()),
            (None, None, None) => RunLength::Time(DURATION),
        }
    }

    /// How calls use connections, if the protocol multiplexes calls or not.
    /// `workers` make the calls, each with its own threads; 0 if this process does.
    pub(super) fn connection_use(
        &self,
        multiplexes: bool,
        streams: Option<usize>,
        workers: usize,
    ) -> Result<Use, Failure> {
        let shared = self.connection_mode == ConnectionMode::Shared && multiplexes && !self.blocking;
        if self.connections.is_some() && !shared {
            return Err(Failure::new(
                "--connections is for calls that share connections; here every caller has its own",
            )
            .with_hint("set the number with --callers"));
        }
        // At least one for each thread of each worker.
        let default_connections = if workers > 0 { workers * self.threads.unwrap_or(1) } else { 1 };
        let connections = self.connections.unwrap_or(default_connections);
        let callers = self.callers.or(streams).unwrap_or(connections);
        if callers < connections && !self.is_open() {
            return Err(Failure::new(format!("{callers} callers cannot use {connections} connections")));
        }
        if self.calls.is_some_and(|calls| calls < callers) && !self.is_open() {
            return Err(Failure::new(format!("there are fewer calls than the {callers} callers")));
        }
        let connection_mode = match (self.connection_mode, shared) {
            (ConnectionMode::Short, _) => ConnectionMode::Short,
            (_, true) => ConnectionMode::Shared,
            (_, false) => ConnectionMode::Pooled,
        };
        let max_connections = match (connection_mode, self.is_open()) {
            (ConnectionMode::Shared, _) => connections,
            (_, true) => self.max_in_flight,
            (_, false) => callers,
        };
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = match (connection_mode, self.is_open()) {
            // How many connections there will be is not known: one thread keeps the times of few calls exact.
            (ConnectionMode::Pooled | ConnectionMode::Short, true) => 1,
            _ => max_connections.min(cores),
        };
        // The cores of a worker are not known.
        let threads = self.threads.unwrap_or(if workers > 0 { 1 } else { threads });
        let all = threads * workers.max(1);
        if all > max_connections {
            return Err(Failure::new(format!("{all} threads cannot use {max_connections} connections")));
        }
        let connections =
            if connection_mode == ConnectionMode::Shared { connections } else { callers.max(all) };
        Ok(Use { connection_mode, connections, threads, callers })
    }
}

/// Parser of the names of connection modes.
fn connection_modes() -> impl TypedValueParser<Value = ConnectionMode> {
    PossibleValuesParser::new(["shared", "pooled", "short"]).map(|name| match name.as_str() {
        "pooled" => ConnectionMode::Pooled,
        "short" => ConnectionMode::Short,
        _ => ConnectionMode::Shared,
    })
}

pub(super) fn parse_positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a number above 0".to_owned())
}

const DURATION: Duration = Duration::from_secs(5);

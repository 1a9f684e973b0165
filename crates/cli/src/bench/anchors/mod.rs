//! `polyrpc bench anchors`: compares this generator with other load tools, on the same server in one run.

mod ghz;
mod h2load;
mod oha;
mod own;
mod reading;
mod wrk;

mod tool;

mod measure;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use polyrpc_load::Rate;

use self::measure::Cores;
use self::reading::{Environment, Load};
use self::table::{Row, StalledRun};
use self::tool::Tool;
use super::directory::PrivateDirectory;
use super::machine::Machine;
use super::selftest::{ExpectedTimes, Server};
use super::wake_ups::WakeUpProbe;
use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Options {
    /// Only these tools: polyrpc, clock-at-send, ghz, h2load, wrk, oha
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = parse_tool)]
    tools: Vec<String>,
    /// Location of a tool that is not in PATH, as NAME=FILE; clock-at-send is this program built with that feature; may
    /// be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_tool_path)]
    path: Vec<(String, PathBuf)>,
    /// Target rate in calls per second, as in 40000 or 40k
    #[arg(long, value_name = "RATE", default_value = "40k", value_parser = parse_whole_rate)]
    rate: u32,
    /// Length of each measurement without stalls
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = terminal::parse_duration)]
    duration: Duration,
}

/// Runs the tools, and prints the table. Fails if this program gets a check wrong.
pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    if options.duration < Duration::from_secs(1) {
        return Err(Failure::new("--duration is at least a second: wrk knows no shorter one"));
    }
    let dir = PrivateDirectory::new("anchors")?;
    let cores = Cores::split();
    let server = match &cores {
        Some(cores) => cores.for_server(Server::start),
        None => Server::start(),
    }?;
    let bench = Bench { options, server, dir: dir.path() };
    let measure = || bench.measure_rows();
    let rows = match &cores {
        Some(cores) => cores.for_tools(measure),
        None => measure(),
    };
    terminal::print(&table::markdown(&rows, options.rate))?;
    let pinning = match cores {
        Some(_) => "the server on the first core, the tools on the others",
        None => "server and tools share the cores",
    };
    terminal::print(&format!("{}; {pinning}.", Machine::here()))?;
    let ours: Vec<_> = rows.iter().filter(|row| matches!(row.tool, Tool::Own(_))).collect();
    if let Some((row, reason)) = ours.iter().find_map(|row| Some((row, row.failure()?))) {
        return Err(Failure::new(format!("this program over {} failed: {reason}", row.tool.protocol())));
    }
    let failed: Vec<_> = ours.into_iter().flat_map(Row::checks).filter(|check| !check.passed).collect();
    match failed.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => {
            Err(Failure::new(format!("{} checks of this program failed: is the machine busy?", failed.len())))
        }
    }
}

struct Bench<'a> {
    options: &'a Options,
    server: Server,
    dir: &'a Path,
}

impl Bench<'_> {
    fn measure_rows(&self) -> Vec<Row> {
        let wanted = |tool: &Tool| {
            self.options.tools.is_empty() || self.options.tools.iter().any(|name| name == tool.name())
        };
        Tool::ALL.into_iter().filter(wanted).map(|tool| self.measure_row(tool)).collect()
    }

    fn measure_row(&self, tool: Tool) -> Row {
        let program = match tool.program(&self.options.path) {
            Ok(program) => program,
            Err(reason) => return Row::missing(tool, reason),
        };
        terminal::print_error(format_args!("{} over {} …", tool.name(), tool.protocol()));
        let environment = Environment { address: self.server.address(), dir: self.dir };
        let run = |load| measure::run((tool, &program), load, environment, || ());
        let (rate, length) = (self.options.rate, self.options.duration);
        let probe = run(Load { rate: None, in_flight: CALLERS, length });
        let rated = run(Load { rate: Some(rate), in_flight: CALLERS, length });
        Row { tool, missing: None, probe, rated, stalled: self.measure_stalled(tool, &program, environment) }
    }

    /// A tool without a rate makes the load that it can make.
    fn measure_stalled(
        &self,
        tool: Tool,
        program: &Path,
        environment: Environment<'_>,
    ) -> Result<StalledRun, String> {
        let duration = PERIOD * STALLS;
        let planned = Load { rate: Some(STALLED_RATE), in_flight: STALLED_IN_FLIGHT, length: duration };
        let load = match tool.arguments(planned, environment) {
            Some(_) => planned,
            None => Load { rate: None, ..planned },
        };
        let mut stalls = Vec::new();
        let stall = || stalls = measure::stall(&self.server, STALLS, PERIOD, STALL);
        let probe = WakeUpProbe::start();
        let ran = measure::run((tool, program), load, environment, stall);
        let noise = probe.finish();
        Ok(StalledRun { ran: ran?, expected: ExpectedTimes { stalls, duration }, noise })
    }
}

/// Tools take whole numbers of calls per second.
fn parse_whole_rate(text: &str) -> Result<u32, String> {
    let per_second = text.parse::<Rate>()?.calls_per_second();
    match per_second.fract() == 0.0 && (1.0..=MAX_RATE).contains(&per_second) {
        true => Ok(per_second as u32),
        false => Err(format!("expected a whole number of calls per second, from 1 to {MAX_RATE}")),
    }
}

fn parse_tool(text: &str) -> Result<String, String> {
    match Tool::ALL.iter().any(|tool| tool.name() == text) {
        true => Ok(text.to_owned()),
        false => Err("expected polyrpc, clock-at-send, ghz, h2load, wrk or oha".to_owned()),
    }
}

fn parse_tool_path(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((parse_tool(name)?, path.into()))
}

const MAX_RATE: f64 = 1e7;
/// Number of callers while the server does not stall.
const CALLERS: usize = 64;
const STALLS: u32 = 4;
const PERIOD: Duration = Duration::from_secs(2);
const STALL: Duration = Duration::from_millis(250);
/// Calls per second while the server stalls.
const STALLED_RATE: u32 = 1_000;
/// Limit of calls in flight that a stall exceeds.
const STALLED_IN_FLIGHT: usize = 50;

const HELP: &str = "\
Each tool runs three times: as many calls as 64 callers make over its connections, calls at --rate, and 1,000 calls a second while \
the server is stopped four times for 250 ms, with at most 50 calls in flight. Its own figures are compared with the exact ones, by \
the checks of the self-test. CPU time is that of the whole process. A tool that is not installed keeps its row, with the reason.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_whole_numbers_of_calls_per_second() {
        assert_eq!((parse_whole_rate("40000"), parse_whole_rate("1.5M")), (Ok(40_000), Ok(1_500_000)));
        for wrong in ["1.5", "30/m", "0", "11M", "fast"] {
            assert!(parse_whole_rate(wrong).is_err(), "{wrong}");
        }
    }
}

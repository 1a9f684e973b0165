//! `polyrpc bench selftest`: measures what is known, to show that this tool leaves out no call and notices its own delays.

mod check;
mod child;

mod stalls;
mod stopped_generator;

#[cfg(target_os = "linux")]
mod arrivals;
#[cfg(target_os = "linux")]
mod sink;

use std::process::ExitCode;

use clap::Args;

pub(super) use self::check::Check;
pub(super) use self::child::Server;
pub(super) use self::stalls::{ExpectedTimes, Stall};
use self::stalls::{PERIOD, measure_stalls};
use self::stopped_generator::measure_stopped_generator;
use super::wake_ups::WakeUpProbe;
use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many times the server is stopped in each measurement
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=100))]
    stalls: u32,
}

/// Runs all checks. Fails if one of them does.
pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let mut results = Results::default();
    let server = Server::start()?;
    for max_in_flight in [10_000, LOW_IN_FLIGHT] {
        results.print_title(&match max_in_flight {
            LOW_IN_FLIGHT => format!("a server that is stopped, with up to {LOW_IN_FLIGHT} calls in flight"),
            _ => "a server that is stopped".to_owned(),
        })?;
        let probe = WakeUpProbe::start();
        let measured = measure_stalls(&server, options.stalls, max_in_flight);
        let noise = probe.finish();
        let (outcome, stalls) = measured?;
        let expected = ExpectedTimes { stalls, duration: PERIOD * options.stalls };
        let checks = expected.compare(&outcome, noise).into_iter();
        results.add(checks.chain([Check::from_verdict(&outcome, noise)]))?;
    }
    results.print_title("a generator that is stopped for 300 ms")?;
    results.add([measure_stopped_generator(&server)?])?;
    measure_arrivals(&mut results)?;
    results.finish()
}

#[cfg(target_os = "linux")]
fn measure_arrivals(results: &mut Results) -> Result<(), Failure> {
    results.print_title("when calls arrive, by the kernel's clock")?;
    results.add(arrivals::check_lag()?)?;
    results.add([arrivals::check_poisson()?])
}

#[cfg(not(target_os = "linux"))]
fn measure_arrivals(results: &mut Results) -> Result<(), Failure> {
    results.print_title(
        "when calls arrive: not measured, since this program knows the kernel's receive times only on Linux",
    )
}

/// Checks that were made and printed.
#[derive(Default)]
struct Results {
    checks: usize,
    failed: usize,
}

impl Results {
    fn print_title(&mut self, text: &str) -> Result<(), Failure> {
        terminal::print(text).map(drop)
    }

    fn add(&mut self, checks: impl IntoIterator<Item = Check>) -> Result<(), Failure> {
        for check in checks {
            terminal::print(&check.to_string())?;
            self.checks += 1;
            self.failed += usize::from(!check.passed);
        }
        Ok(())
    }

    fn finish(self) -> Result<ExitCode, Failure> {
        let Self { checks, failed } = self;
        if failed > 0 {
            return Err(Failure::new(format!(
                "{failed} of {checks} checks failed: do not trust what this tool measures"
            )));
        }
        terminal::print(&format!("all {checks} checks passed"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A number of calls in flight that a stall exceeds.
const LOW_IN_FLIGHT: usize = 50;

//! `floods`: a well-behaved client of PolyRPC's server, next to an attacker, over HTTP/2.
//!
//! 1. [`mod@attack`] defines an attack, [`attacks`] lists them. They are in [`resets`], [`control`], [`headers`],
//!    [`data`] and [`slow`], written in [`frames`].
//! 2. [`round`] runs one of them next to the well-behaved client: [`attacker`] and [`victim`] are separate processes.
//! 3. This module runs the rounds, with rounds without an attack between them, and checks the bars.

mod attack;
mod attacks;

mod control;
mod data;
mod headers;
mod resets;
mod slow;

mod frames;

mod attacker;
mod round;
mod victim;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::bar::{Bar, Limit};
use crate::report::{self, Machine};
use crate::rounds::Spread;
use crate::run::parse_seconds;

pub(crate) use self::attacker::{AttackerOptions, run_attacker};
pub(crate) use self::victim::{VictimOptions, run_victim};

use self::attack::{Attack, BUSY_CLIENT, ExpectedOutcome};
use self::attacker::AttackResult;
use self::round::Round;

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only attacks whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Duration of each attack, in seconds.
    #[arg(long, default_value_t = 10.0, value_parser = parse_seconds)]
    seconds: f64,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// All results, and the conditions of the measurement.
#[derive(Debug, Serialize)]
struct Measurement {
    machine: Machine,
    command: Vec<String>,
    seconds: f64,
    /// The well-behaved client alone.
    quiet: Vec<RoundResult>,
    /// The well-behaved client next to another one that calls as fast as it can.
    busy: Vec<RoundResult>,
    attacks: Vec<RoundResult>,
    bars: Vec<Bar>,
}

/// A round, or its error.
#[derive(Debug, Serialize)]
struct RoundResult {
    name: &'static str,
    round: Result<Round, String>,
}

/// Number of attacks between two measurements of the baselines, so that both see the same drift of the machine.
const ATTACKS_PER_BASELINE: usize = 6;

/// Number of repetitions of an attack that exceeded [`MAX_P99_RATIO`]; the median of all its rounds is judged.
const REPETITIONS: usize = 2;

/// Maximum ratio of the p99 latency to that without an attacker.
const MAX_P99_RATIO: f64 = 2.0;

/// Maximum growth of the server's resident memory, in KiB.
const MAX_GROWTH_KIB: f64 = 10.0 * 1024.0;

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let mut measured = Measurement {
        machine: Machine::current(),
        command: std::env::args().collect(),
        seconds: options.seconds,
        quiet: Vec::new(),
        busy: Vec::new(),
        attacks: Vec::new(),
        bars: Vec::new(),
    };
    let window = Duration::from_secs_f64(options.seconds.clamp(0.1, 3600.0));
    let chosen: Vec<_> = attacks::all().filter(|attack| attack.name.contains(&options.filter)).collect();
    measured.measure(&chosen, window);
    let late: Vec<_> = chosen.into_iter().filter(|attack| measured.is_late(attack)).collect();
    for _ in 0..REPETITIONS {
        measured.measure(&late, window);
    }
    measured.measure_baselines(window);
    measured.bars = measured.evaluate();
    measured.print();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    let kept = measured.bars.iter().all(Bar::is_ok);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl RoundResult {
    fn attack(attack: &Attack, window: Duration) -> Self {
        Self::new(attack.name, Some(attack), window)
    }

    fn new(name: &'static str, attack: Option<&Attack>, window: Duration) -> Self {
        eprintln!("measuring {name}");
        Self { name, round: round::run(attack, window).map_err(|error| error.to_string()) }
    }

    fn p99_us(&self) -> Option<f64> {
        self.round.as_ref().ok().map(|round| round.served.p99_us)
    }
}

impl Measurement {
    fn measure(&mut self, attacks: &[&'static Attack], window: Duration) {
        for chunk in attacks.chunks(ATTACKS_PER_BASELINE) {
            self.measure_baselines(window);
            self.attacks.extend(
                chunk.iter().map(|attack| RoundResult::attack(attack, window.max(attack.min_duration))),
            );
        }
    }

    fn measure_baselines(&mut self, window: Duration) {
        self.quiet.push(RoundResult::new("quiet", None, window));
        self.busy.push(RoundResult::new("busy", Some(&BUSY_CLIENT), window));
    }

    /// Two bars per attack: the latency of the well-behaved client, and the memory of the server.
    fn evaluate(&self) -> Vec<Bar> {
        let measured = attacks::all().filter(|attack| self.rounds_of(attack).next().is_some());
        measured.flat_map(|attack| [self.judge_p99(attack), self.judge_memory(attack)]).collect()
    }

    fn judge_p99(&self, attack: &Attack) -> Bar {
        Bar {
            name: format!("floods_{}_p99", attack.name),
            value: self.latency_ratio(attack),
            limit: Limit::RatioAtMost(MAX_P99_RATIO),
            clean: self.is_clean(attack),
        }
    }

    fn judge_memory(&self, attack: &Attack) -> Bar {
        let grown = self.rounds_of(attack).flat_map(|result| &result.round).map(|round| round.grown_kib);
        Bar {
            name: format!("floods_{}_memory", attack.name),
            value: grown.max().map(|kib| kib as f64),
            limit: Limit::KibAtMost(MAX_GROWTH_KIB),
            clean: self.is_clean(attack),
        }
    }

    fn is_late(&self, attack: &Attack) -> bool {
        self.latency_ratio(attack).is_none_or(|times| times > MAX_P99_RATIO)
    }

    /// Ratio of the well-behaved client's latency to that when alone.
    fn latency_ratio(&self, attack: &Attack) -> Option<f64> {
        p99_us(self.rounds_of(attack)).zip(p99_us(&self.quiet)).map(|(own, quiet)| own / quiet)
    }

    /// Whether no call was lost, and the attack had its expected outcome, in every round.
    fn is_clean(&self, attack: &Attack) -> bool {
        self.rounds_of(attack).all(|result| {
            let round = result.round.as_ref();
            round.is_ok_and(|round| {
                let attack_result = round.attack_result.as_ref();
                round.served.lost == 0
                    && attack_result.is_some_and(|attack_result| attack.has_expected_outcome(attack_result))
            })
        })
    }

    fn rounds_of(&self, attack: &Attack) -> impl Iterator<Item = &RoundResult> {
        self.attacks.iter().filter(|result| result.name == attack.name)
    }

    fn print(&self) {
        let method = format!(
            "{} s an attack beside 2,000 calls a second; loopback; × of the median p99 of {} rounds; what came late thrice",
            self.seconds,
            self.busy.len()
        );
        report::print_conditions(&self.machine, &self.command, &method);
        println!();
        println!(
            "{:<32} {:>8} {:>8} {:>10} {:>9} {:>9} {:>6} {:>7} {:>5} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7}",
            "floods",
            "closed",
            "GOAWAY",
            "turns",
            "MiB sent",
            "RSS +KiB",
            "CPU %",
            "calls",
            "lost",
            "p50 µs",
            "p99 µs",
            "of all",
            "max µs",
            "× busy",
            "× quiet"
        );
        for result in self.quiet.iter().chain(&self.busy).chain(&self.attacks) {
            self.print_round(result);
        }
        println!();
        for bar in &self.bars {
            println!("{bar}");
        }
    }

    fn print_round(&self, result: &RoundResult) {
        let Round { served, attack_result, grown_kib, cpu } = match &result.round {
            Ok(round) => round,
            Err(error) => return println!("{:<32} {error}", result.name),
        };
        let format_result =
            |figure: fn(&AttackResult) -> String| attack_result.as_ref().map_or_else(report::dash, figure);
        let times = |baseline: &[RoundResult]| {
            p99_us(baseline).map_or_else(report::dash, |baseline| format!("{:.2}", served.p99_us / baseline))
        };
        println!(
            "{:<32} {:>8} {:>8} {:>10} {:>9} {:>9} {:>6.0} {:>7} {:>5} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>6} {:>7}",
            result.name,
            format_result(|attack_result| attack_result.closed.to_string()),
            format_result(|attack_result| attack_result
                .goaway_code
                .map_or_else(report::dash, |code| code.to_string())),
            format_result(|attack_result| attack_result.iterations.to_string()),
            format_result(|attack_result| format!("{:.1}", attack_result.sent as f64 / f64::from(1 << 20))),
            grown_kib,
            cpu * 100.0,
            served.calls,
            served.lost,
            served.p50_us,
            served.p99_us,
            served.p99_of_all_us,
            served.max_us,
            times(&self.busy),
            times(&self.quiet),
        );
    }
}

fn p99_us<'t>(rounds: impl IntoIterator<Item = &'t RoundResult>) -> Option<f64> {
    Spread::from_figures(rounds.into_iter().filter_map(RoundResult::p99_us)).map(|spread| spread.median)
}

impl Attack {
    /// Whether the server reacted as expected.
    fn has_expected_outcome(&self, attack_result: &AttackResult) -> bool {
        match self.expected {
            ExpectedOutcome::GoAway(codes) => {
                attack_result.closed > 0
                    && attack_result.goaway_code.is_some_and(|code| codes.contains(&code))
            }
            ExpectedOutcome::Closed => attack_result.closed > 0,
            ExpectedOutcome::Bounded => attack_result.sent > 0,
        }
    }
}

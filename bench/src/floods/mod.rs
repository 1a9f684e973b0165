//! `floods`: a good client of PolyRPC's server, and beside it somebody who means harm, over HTTP/2.
//!
//! 1. [`mod@attack`] says what an attack is and lists them. They stand in [`resets`], [`control`], [`headers`], [`data`]
//!    and [`slow`], written in [`frames`].
//! 2. [`round`] lets one of them stand beside the good client: [`attacker`] and [`victim`] are processes of their own.
//! 3. Here the rounds are taken in turn, with rounds without an attack between them, and judged.

mod attack;

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

pub(crate) use self::attacker::{AttackerOptions, live as attack};
pub(crate) use self::victim::{VictimOptions, live as be_victim};

use self::attack::{Attack, Fate, NEIGHBOUR};
use self::attacker::Siege;
use self::round::Round;

/// How the suite is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only attacks that have this in their name.
    #[arg(long, default_value = "")]
    filter: String,
    /// How long each attack goes on, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Where to write everything that was measured.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Everything that was measured, and under which conditions.
#[derive(Debug, Serialize)]
struct Measured {
    machine: Machine,
    command: Vec<String>,
    seconds: f64,
    /// The good client alone.
    quiet: Vec<Tried>,
    /// The good client beside an honest one that calls as fast as it can.
    busy: Vec<Tried>,
    attacks: Vec<Tried>,
    bars: Vec<Bar>,
}

/// A round, or why there is none.
#[derive(Debug, Serialize)]
struct Tried {
    name: &'static str,
    round: Result<Round, String>,
}

/// After how many attacks the rounds without one are repeated: what the machine does meanwhile meets them all.
const BETWEEN: usize = 6;

/// How much later than beside an honest client a call may come, 99 times of 100.
const LATER: f64 = 2.0;

/// How much the server may grow.
const GROWN_KIB: f64 = 10.0 * 1024.0;

/// Measures, prints and judges.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let mut measured = Measured {
        machine: Machine::here(),
        command: std::env::args().collect(),
        seconds: options.seconds,
        quiet: Vec::new(),
        busy: Vec::new(),
        attacks: Vec::new(),
        bars: Vec::new(),
    };
    let window = Duration::from_secs_f64(options.seconds.clamp(0.1, 3600.0));
    let chosen: Vec<_> = Attack::all().filter(|attack| attack.name.contains(&options.filter)).collect();
    for some in chosen.chunks(BETWEEN) {
        measured.measure_peace(window);
        measured.attacks.extend(some.iter().map(|attack| Tried::attack(attack, window.max(attack.least))));
    }
    measured.measure_peace(window);
    measured.bars = measured.judge();
    measured.print();
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    let kept = measured.bars.iter().all(Bar::is_ok);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Tried {
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

impl Measured {
    fn measure_peace(&mut self, window: Duration) {
        self.quiet.push(Tried::new("quiet", None, window));
        self.busy.push(Tried::new("busy", Some(&NEIGHBOUR), window));
    }

    /// Two bars for each attack: what it costs the good client, and what it costs the server in memory.
    fn judge(&self) -> Vec<Bar> {
        self.attacks
            .iter()
            .filter_map(|tried| Some((Attack::named(tried.name)?, tried)))
            .flat_map(|(attack, tried)| {
                let round = tried.round.as_ref().ok();
                let clean = round.is_some_and(|round| {
                    round.served.lost == 0 && round.siege.as_ref().is_some_and(|siege| attack.met(siege))
                });
                let later = Bar {
                    name: format!("floods_{}_p99", attack.name),
                    value: tried.p99_us().zip(p99_us(&self.busy)).map(|(own, busy)| own / busy),
                    limit: Limit::RatioAtMost(LATER),
                    clean,
                };
                let memory = Bar {
                    name: format!("floods_{}_memory", attack.name),
                    value: round.map(|round| round.grown_kib as f64),
                    limit: Limit::KibAtMost(GROWN_KIB),
                    clean,
                };
                [later, memory]
            })
            .collect()
    }

    fn print(&self) {
        let method = format!(
            "{} s an attack beside 2,000 calls a second; loopback; × of the median p99 of {} rounds",
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
        for tried in self.quiet.iter().chain(&self.busy).chain(&self.attacks) {
            self.print_round(tried);
        }
        println!();
        for bar in &self.bars {
            println!("{bar}");
        }
    }

    fn print_round(&self, tried: &Tried) {
        let Round { served, siege, grown_kib, cpu } = match &tried.round {
            Ok(round) => round,
            Err(error) => return println!("{:<32} {error}", tried.name),
        };
        let of_siege = |figure: fn(&Siege) -> String| siege.as_ref().map_or_else(report::dash, figure);
        let times = |baseline: &[Tried]| {
            p99_us(baseline).map_or_else(report::dash, |baseline| format!("{:.2}", served.p99_us / baseline))
        };
        println!(
            "{:<32} {:>8} {:>8} {:>10} {:>9} {:>9} {:>6.0} {:>7} {:>5} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>6} {:>7}",
            tried.name,
            of_siege(|siege| siege.closed.to_string()),
            of_siege(|siege| siege.goodbye.map_or_else(report::dash, |code| code.to_string())),
            of_siege(|siege| siege.turns.to_string()),
            of_siege(|siege| format!("{:.1}", siege.sent as f64 / f64::from(1 << 20))),
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

fn p99_us(baseline: &[Tried]) -> Option<f64> {
    Spread::of(baseline.iter().filter_map(Tried::p99_us)).map(|spread| spread.median)
}

impl Attack {
    /// Whether the attack met with what it deserves.
    fn met(&self, siege: &Siege) -> bool {
        match self.fate {
            Fate::SentAway(codes) => {
                siege.closed > 0 && siege.goodbye.is_some_and(|code| codes.contains(&code))
            }
            Fate::Closed => siege.closed > 0,
            Fate::Bounded => siege.sent > 0,
        }
    }
}

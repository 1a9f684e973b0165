//! `polyrpc bench ab`: two servers under the same load, in interleaved rounds.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use polyrpc::discovery::redacted;
use polyrpc_bench_report::model::{self, Better, Document, Figure, Metadata, Subject, Verdict, Versus};
use polyrpc_bench_report::report;
use polyrpc_bench_report::statistics::noise::{Noise, Probe};
use polyrpc_bench_report::statistics::order::{Side, abba};
use polyrpc_bench_report::statistics::{MIN_ROUNDS, Round, compare, withdraw_insignificant};
use polyrpc_load::{Outcome, RunLength, Stop};

use super::noise::NoiseProbe;
use super::output::{Files, Output};
use super::report::ReplyCounts;
use super::{INVALID, PreparedLoad, RunOptions, document, interrupt};
use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(super) struct Options {
    /// The reference, A
    #[arg(value_name = "URL_A")]
    a: String,
    /// B, and the load of both
    #[command(flatten)]
    run: RunOptions,
    /// Number of rounds, from 6 to 200; each has two windows of --duration for each server
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(MIN_ROUNDS as i64..=200))]
    rounds: u16,
    /// Report a difference only if it is significant for all figures together (Holm's correction); needs at least 12
    /// rounds
    #[arg(long)]
    strict: bool,
}

/// The comparison.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    better: Better,
    of: fn(&Outcome) -> Option<f64>,
}

/// The windows of a round.
struct RoundResult {
    a: Vec<Outcome>,
    b: Vec<Outcome>,
    probe: Option<Probe>,
}

pub(super) fn run(options: Options) -> Result<ExitCode, Failure> {
    options.check()?;
    let output = Output::open(options.run.json.as_deref())?;
    let files = Files::open(&options.run.files)?;
    let b = options.run.prepare()?;
    let a = RunOptions { url: Some(options.a.clone()), ..options.run.clone() }.prepare()?;
    let stop = interrupt::watch()?;
    let comparison = Comparison { a, b, stop, probe: NoiseProbe::calibrate() };
    let (mut versus, replies) = comparison.measure(options.rounds.into())?;
    if options.strict {
        let mut comparisons: Vec<_> =
            versus.figures.iter_mut().filter_map(|figure| figure.comparison.as_mut()).collect();
        withdraw_insignificant(&mut comparisons, 1.0 - CONFIDENCE);
    }
    let document = Document::Versus(Box::new(versus));
    let is_coloured = terminal::is_coloured(&std::io::stdout());
    let printed = output.print(&report::terminal(&document, is_coloured), || document.to_json());
    let code = super::stored::exit_code(&document);
    // A full disk does not keep the other files from being written.
    let urls = format!("{} and {}", redacted(&options.a), redacted(options.run.url()));
    let written = files.write(&[(urls, document)]);
    printed.and(written)?;
    if code != INVALID {
        replies?;
    }
    Ok(ExitCode::from(code))
}

impl Options {
    /// Rejects options that have no meaning for two servers.
    fn check(&self) -> Result<(), Failure> {
        let run = &self.run;
        let given = [
            (run.live, "--live"),
            (run.server_pid.is_some(), "--server-pid"),
            (run.load.find_max, "--find-max"),
            (run.load.require.is_some(), "--require"),
            (run.files.hdr.is_some(), "--hdr"),
            (run.baseline.given_option().is_some(), "--baseline"),
            (run.workers.count() > 0, "--workers"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(Failure::new(format!("{option} is for one server; ab measures two"))),
            None => Ok(()),
        }
    }
}

struct Comparison {
    a: PreparedLoad,
    b: PreparedLoad,
    stop: Stop,
    probe: NoiseProbe,
}

impl Comparison {
    /// Measures all rounds, and checks the replies in them. After an interrupt the complete ones are reported.
    fn measure(self, rounds: usize) -> Result<(Versus, Result<(), Failure>), Failure> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut measured: Vec<RoundResult> = Vec::with_capacity(rounds);
        let mut repeated = 0;
        while measured.len() < rounds {
            let Some(round) = self.measure_round(measured.len())? else { break };
            let is_unusable = round.noise() == Noise::Unusable;
            let noise = round.probe.map_or_else(String::new, |probe| format!(": {probe}"));
            let number = measured.len() + 1;
            if is_unusable && repeated < MAX_REPEATED {
                repeated += 1;
                terminal::print_error(format_args!("  round {number} is repeated{noise}"));
                continue;
            }
            terminal::print_error(format_args!("  round {number} of {rounds}{noise}"));
            measured.push(round);
        }
        let replies = self.check_replies(&measured);
        Ok((self.into_versus(started, &measured, repeated, rounds), replies))
    }

    /// Fails if a server sent a wrong reply.
    fn check_replies(&self, measured: &[RoundResult]) -> Result<(), Failure> {
        let check = |prepared: &PreparedLoad, counts: ReplyCounts| {
            counts.check().map_err(|failure| failure.with_subject(&prepared.setting.url))
        };
        check(&self.a, ReplyCounts::of(measured.iter().flat_map(|round| &round.a)))?;
        check(&self.b, ReplyCounts::of(measured.iter().flat_map(|round| &round.b)))
    }

    /// One round; `None` if it was interrupted.
    fn measure_round(&self, number: usize) -> Result<Option<RoundResult>, Failure> {
        let begun = self.probe.begin();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for side in abba(number) {
            let (prepared, windows) = match side {
                Side::A => (&self.a, &mut a),
                Side::B => (&self.b, &mut b),
            };
            let outcome = polyrpc_load::run(&prepared.plan, &self.stop, |_| {});
            let outcome =
                outcome.map_err(|error| Failure::new(format!("{}: {error}", prepared.setting.url)))?;
            if outcome.interrupted {
                return Ok(None);
            }
            windows.push(outcome);
        }
        Ok(Some(RoundResult { a, b, probe: self.probe.finish(begun) }))
    }

    fn into_versus(
        self,
        started: Duration,
        measured: &[RoundResult],
        repeated: u64,
        rounds: usize,
    ) -> Versus {
        let machine = super::machine::Machine::here();
        let mut warnings = Vec::new();
        if self.a.server.is_ok() && machine.cores() < 4 {
            warnings.push(format!("clients and servers share {} cores", machine.cores()));
        }
        let noisy = measured.iter().filter(|round| round.noise() != Noise::Quiet).count();
        if noisy > 0 {
            warnings.push(format!("the machine was noisy in {noisy} of {} rounds", measured.len()));
        }
        let setting = &self.b.setting;
        Versus {
            metadata: Metadata {
                started_s: started.as_secs_f64(),
                command: setting.command.clone(),
                build: document::build(),
                machine: machine.to_document(),
                seed: Some(setting.seed),
                ..Metadata::default()
            },
            load: document::load(setting),
            window_s: match self.b.plan.length {
                RunLength::Time(time) => time.as_secs_f64(),
                RunLength::Calls(_) => mean_window(measured),
            },
            a: subject(&self.a, measured, |round| &round.a),
            b: subject(&self.b, measured, |round| &round.b),
            figures: QUANTITIES.iter().filter_map(|quantity| figure(quantity, measured)).collect(),
            probes: measured.iter().filter_map(|round| round.probe).collect(),
            repeated,
            warnings,
            verdict: verdict(measured, rounds),
        }
    }
}

impl RoundResult {
    fn noise(&self) -> Noise {
        self.probe.map_or(Noise::Quiet, |probe| probe.noise())
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.a.iter().chain(&self.b)
    }
}

fn mean_window(measured: &[RoundResult]) -> f64 {
    let windows: Vec<_> =
        measured.iter().flat_map(RoundResult::outcomes).map(|it| it.window.as_secs_f64()).collect();
    windows.iter().sum::<f64>() / windows.len().max(1) as f64
}

fn subject(
    prepared: &PreparedLoad,
    measured: &[RoundResult],
    side: fn(&RoundResult) -> &Vec<Outcome>,
) -> Subject {
    let counts = || measured.iter().flat_map(side).map(|outcome| &outcome.counts);
    Subject {
        name: prepared.setting.url.clone(),
        target: document::target(&prepared.setting),
        failed: counts().map(|counts| counts.failed + counts.unanswered).sum(),
        succeeded: counts().map(|counts| counts.succeeded).sum(),
    }
}

/// `None` if no window has it, as the rate of an open loop that is planned, or CPU times of other machines.
fn figure(quantity: &Quantity, measured: &[RoundResult]) -> Option<Figure> {
    let both = |windows: &[Outcome]| match windows {
        [first, second] => Some([(quantity.of)(first)?, (quantity.of)(second)?]),
        _ => None,
    };
    let rounds: Vec<_> = measured
        .iter()
        .filter_map(|round| Some(Round { a: both(&round.a)?, b: both(&round.b)?, noise: round.noise() }))
        .collect();
    // A figure that is missing in some rounds is known of the better ones only.
    let comparison = if rounds.len() == measured.len() { compare(&rounds, CONFIDENCE) } else { None };
    let (name, unit) = (quantity.name.to_owned(), quantity.unit.to_owned());
    (!rounds.is_empty()).then_some(Figure { name, unit, better: quantity.better, rounds, comparison })
}

fn verdict(measured: &[RoundResult], rounds: usize) -> Verdict {
    let invalid = measured.iter().flat_map(RoundResult::outcomes).find(|outcome| !outcome.verdict.is_valid());
    let (outcome, reason) = match invalid {
        Some(outcome) => {
            let summary = match outcome.verdict {
                polyrpc_load::Verdict::NothingMeasured => model::Outcome::Inconsistent,
                _ => model::Outcome::GeneratorSaturated,
            };
            (summary, Some(outcome.verdict.to_string()))
        }
        None if measured.len() < rounds => {
            let reason = format!("{} of {rounds} rounds are complete", measured.len());
            (model::Outcome::Interrupted, Some(reason))
        }
        None => (model::Outcome::Completed, None),
    };
    Verdict { outcome, reasons: reason.into_iter().collect() }
}

fn quantile(outcome: &Outcome, quantile: f64) -> Option<f64> {
    Some(model::Latency::new(outcome.response()).quantile(quantile)?.value as f64)
}

fn cpu_ns(usage: polyrpc_load::Usage, outcome: &Outcome) -> Option<f64> {
    let calls = outcome.counts.succeeded;
    (calls > 0 && !usage.cpu.is_zero()).then(|| usage.cpu.as_nanos() as f64 / calls as f64)
}

const QUANTITIES: [Quantity; 5] = [
    Quantity {
        name: "rate",
        unit: "calls/s",
        better: Better::Higher,
        of: |outcome| Some(outcome.calls_per_second()).filter(|rate| *rate > 0.0),
    },
    Quantity { name: "p50", unit: "ns", better: Better::Lower, of: |outcome| quantile(outcome, 0.5) },
    Quantity { name: "p99", unit: "ns", better: Better::Lower, of: |outcome| quantile(outcome, 0.99) },
    Quantity {
        name: "server CPU per call",
        unit: "ns",
        better: Better::Lower,
        of: |outcome| cpu_ns(outcome.server?, outcome),
    },
    Quantity {
        name: "client CPU per call",
        unit: "ns",
        better: Better::Lower,
        of: |outcome| cpu_ns(outcome.generator, outcome),
    },
];

const CONFIDENCE: f64 = 0.95;
/// Rounds that are repeated because of noise, in all.
const MAX_REPEATED: u64 = 3;

const HELP: &str = "\
Example:
  polyrpc bench ab grpc://127.0.0.1:50051 grpc://127.0.0.1:50052 helloworld.Greeter/SayHello '{\"name\":\"Joe\"}' \
--rounds 10 --duration 2s --warmup 200ms --html ab.html

Each round measures A, B, B, A, or B, A, A, B, so that a drift of the machine affects both alike. Ratios are computed within \
rounds. A difference is named only if the interval of the ratio excludes 1, and the ratio differs from 1 by more than 3 % and \
by more than A differs from itself in the same rounds. Noise of the machine is probed before and after each round: rounds \
with too much of it are repeated, up to 3, and no winner is named if most rounds are noisy.

Without --rate both servers are called in a closed loop. Each figure is judged by itself, so that of five figures one \
differs by chance in up to 15 % of comparisons of equal servers with 6 rounds; --strict makes that 5 %.

Exit codes: 0 B is not shown to be worse, 1 it is in a figure, or a reply differs from --expect, 2 wrong command line, 3 INVALID.";

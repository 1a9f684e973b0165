//! Rounds of a suite: every pair under every load, in the order of a Latin square.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use polyrpc_bench_report::model::{self, CaseNoise, Cell, Latency, Suite};
use polyrpc_bench_report::statistics::noise::Noise;
use polyrpc_bench_report::statistics::order::latin_square;
use polyrpc_load::{Histogram, Stop};

use super::client::Messages;
use super::definition::{CellPlan, Plan};
use super::peers::{Peer, Peers};
use super::window::{self, Outcome, Programs, WindowError};
use crate::bench::noise::NoiseProbe;
use crate::bench::{document, machine, open_files};
use crate::failure::Failure;
use crate::terminal;

pub(super) struct Rounds<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) peers: &'a mut Peers,
    pub(super) stop: &'a Stop,
}

/// A cell while it is measured.
struct Running {
    plan: CellPlan,
    client: Option<Peer>,
    server: Peer,
    cell: Cell,
    histogram: Option<Histogram<u64>>,
}

/// What one round of a case brought: for each of its subjects a window, or why not.
type CaseRound = Vec<(usize, Result<Outcome, WindowError>)>;

impl Rounds<'_> {
    pub(super) fn measure(mut self) -> Result<Suite, Failure> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut suite = self.plan.suite.clone();
        self.peers.define(&self.plan.definition.peer);
        let (mut running, missing) = self.prepare();
        let messages = Messages::new()?;
        let probe = NoiseProbe::calibrate();
        terminal::print_error(format_args!("{}: {}", suite.name, describe_work(&running, suite.rounds)));
        let cases: Vec<_> = suite.cases.iter().map(|case| case.id.clone()).collect();
        'rounds: for round in 0..suite.rounds {
            for case in &cases {
                if !self.measure_case(&mut running, case, round, &messages, &probe, &mut suite) {
                    break 'rounds;
                }
            }
            terminal::print_error(format_args!("  {}: round {} of {}", suite.name, round + 1, suite.rounds));
        }
        suite.cells = running.into_iter().map(Running::finish).chain(missing).collect();
        self.describe(&mut suite, started.as_secs_f64());
        Ok(suite)
    }

    /// The cells that can be measured, with a second one for the first of each case, and those that cannot.
    fn prepare(&mut self) -> (Vec<Running>, Vec<Cell>) {
        let (mut running, mut missing): (Vec<Running>, Vec<Cell>) = (Vec::new(), Vec::new());
        let plan = self.plan;
        for plan in &plan.cells {
            let mut cell = Cell { case: plan.case.clone(), pair: plan.pair.id.clone(), ..Cell::default() };
            match self.find_programs(plan) {
                Err(reason) => {
                    cell.missing = Some(reason);
                    missing.push(cell);
                }
                Ok((client, server)) => {
                    let is_first = running.iter().all(|other| other.cell.case != plan.case);
                    let new = |cell: Cell| Running {
                        plan: plan.clone(),
                        client: client.clone(),
                        server: server.clone(),
                        cell,
                        histogram: None,
                    };
                    if is_first {
                        running.push(new(Cell { is_control: true, ..cell.clone() }));
                    }
                    running.push(new(cell));
                }
            }
        }
        (running, missing)
    }

    fn find_programs(&mut self, plan: &CellPlan) -> Result<(Option<Peer>, Peer), String> {
        let limit = open_files::max_connections();
        if plan.connections > limit {
            return Err(format!(
                "it has {} connections, and a process may open {limit} here: raise the limit of open files (ulimit -n)",
                plan.connections
            ));
        }
        let pair = &plan.pair;
        let mut find = |name: &str| {
            let found = self.peers.find(name, plan.contract);
            found.map_err(|reason| format!("{name}: {reason}"))
        };
        let server = find(&pair.server)?;
        let client = match pair.client.as_str() {
            OURS => None,
            name => Some(find(name)?),
        };
        Ok((client, server))
    }

    /// Measures one round of a case, again if the machine was too noisy. `false` if it was interrupted.
    fn measure_case(
        &self,
        running: &mut [Running],
        case: &str,
        round: u64,
        messages: &Messages,
        probe: &NoiseProbe,
        suite: &mut Suite,
    ) -> bool {
        loop {
            let begun = probe.begin();
            let Some(measured) = self.measure_round(running, case, round, messages) else { return false };
            if measured.is_empty() {
                return true;
            }
            let probe = probe.finish(begun);
            let is_unusable = probe.is_some_and(|probe| probe.noise() == Noise::Unusable);
            let has_failed = measured.iter().any(|(_, outcome)| outcome.is_err());
            if is_unusable && !has_failed && suite.repeated < MAX_REPEATED {
                suite.repeated += 1;
                continue;
            }
            suite.noise.extend(probe.map(|probe| CaseNoise { case: case.to_owned(), round, probe }));
            for (at, outcome) in measured {
                running[at].add(outcome);
            }
            return true;
        }
    }

    /// One window of each subject of a case that has not failed; `None` if it was interrupted.
    fn measure_round(
        &self,
        running: &[Running],
        case: &str,
        round: u64,
        messages: &Messages,
    ) -> Option<CaseRound> {
        let of_case = running.iter().enumerate().filter(|(_, running)| running.cell.case == case);
        let subjects: Vec<_> =
            of_case.filter(|(_, running)| running.cell.failure.is_none()).map(|(at, _)| at).collect();
        let square = latin_square(subjects.len());
        let order = &square[round as usize % square.len()];
        let mut measured = Vec::with_capacity(subjects.len());
        for index in order {
            let at = subjects[*index];
            let subject = &running[at];
            let programs = Programs { client: subject.client.as_ref(), server: &subject.server };
            let outcome = window::measure(&programs, &subject.plan, messages, round, self.stop);
            if self.stop.is_stopped() || matches!(outcome, Err(WindowError::Interrupted)) {
                return None;
            }
            measured.push((at, outcome));
        }
        Some(measured)
    }

    /// Adds who took part, where, and what became of it.
    fn describe(self, suite: &mut Suite, started_s: f64) {
        let mut names: Vec<_> =
            suite.pairs.iter().flat_map(|pair| [pair.client.clone(), pair.server.clone()]).collect();
        names.sort_unstable();
        names.dedup();
        suite.peers = self.peers.report(&names);
        if let Some(own) = suite.peers.iter_mut().find(|peer| peer.name == OURS) {
            own.missing = None;
        }
        let machine = machine::Machine::here();
        if machine.cores() < 4 {
            let text = format!(
                "clients and servers share {} cores: CPU time per call says more than calls per second",
                machine.cores()
            );
            suite.warnings.push(text);
        }
        if cfg!(debug_assertions) {
            suite.warnings.push(
                "PolyRPC was built without optimization: its figures are those of a debug build".to_owned(),
            );
        }
        let noisy = suite.noise.iter().filter(|noise| noise.probe.noise() != Noise::Quiet).count();
        if noisy > 0 {
            suite
                .warnings
                .push(format!("the machine was noisy in {noisy} of {} rounds of a case", suite.noise.len()));
        }
        suite.metadata.started_s = started_s.round();
        suite.metadata.build = document::build();
        suite.metadata.machine = machine.to_document();
        suite.verdict = verdict(suite, self.stop.is_stopped());
    }
}

/// Describes the amount of work and its estimated duration.
fn describe_work(running: &[Running], rounds: u64) -> String {
    let windows = running.len() as u64 * rounds;
    let in_round: f64 =
        running.iter().map(|cell| cell.plan.warmup_s + cell.plan.window_s + AROUND_WINDOW_S).sum();
    let seconds = in_round * rounds as f64;
    let time = match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        _ => format!("{:.0} minutes", seconds / 60.0),
    };
    format!("{windows} windows in {rounds} rounds, about {time}")
}

impl Running {
    fn add(&mut self, outcome: Result<Outcome, WindowError>) {
        match outcome {
            Ok(outcome) => {
                self.cell.commands = outcome.commands;
                self.cell.windows.push(outcome.window);
                let histogram = outcome.latency.histogram();
                match &mut self.histogram {
                    None => self.histogram = Some(histogram.clone()),
                    // Own clients have histograms of other bounds; adding resizes.
                    Some(sum) => {
                        sum.auto(true);
                        let _ = sum.add(histogram);
                    }
                }
            }
            Err(WindowError::Failed(reason)) => self.cell.failure = Some(reason),
            Err(WindowError::Wrong(reason)) => {
                self.cell.failure = Some(reason);
                self.cell.is_wrong = true;
            }
            Err(WindowError::Interrupted) => {}
        }
    }

    fn finish(mut self) -> Cell {
        self.cell.latency = self.histogram.map(Latency::new);
        self.cell
    }
}

fn verdict(suite: &Suite, is_interrupted: bool) -> model::Verdict {
    let failures: BTreeMap<_, _> = suite
        .cells
        .iter()
        .filter(|cell| !cell.is_control)
        .filter_map(|cell| Some(((cell.pair.clone(), cell.case.clone()), cell.failure.clone()?)))
        .collect();
    let mut reasons: Vec<_> =
        failures.iter().map(|((pair, case), reason)| format!("{pair}, {case}: {reason}")).collect();
    let invalid = suite.cells.iter().filter(|cell| !cell.is_wrong).flat_map(|cell| {
        let reason = cell.windows.iter().find_map(|window| window.invalid.as_ref())?;
        Some(format!("INVALID: {}, {}: {reason}", cell.pair, cell.case))
    });
    reasons.extend(invalid);
    let has_any = suite.cells.iter().any(|cell| !cell.windows.is_empty());
    let outcome = match () {
        () if is_interrupted => model::Outcome::Interrupted,
        () if !has_any && suite.cases.iter().any(|case| case.missing.is_none()) => {
            model::Outcome::Inconsistent
        }
        () => model::Outcome::Completed,
    };
    if !has_any {
        reasons.push("no pair was measured".to_owned());
    }
    model::Verdict { outcome, reasons }
}

/// This program's own name as a peer.
const OURS: &str = "polyrpc";
/// About the time for starting and stopping a server and a client, and for two checks.
const AROUND_WINDOW_S: f64 = 0.15;
/// Rounds of a case that are repeated because of noise, in a suite.
const MAX_REPEATED: u64 = 3;

//! Runs the attacks one by one, and checks the well-behaved clients and the server's memory.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::attacker::Attacker;
use crate::attacks::{Attack, End, Form, Outcome};
use crate::clients::{Clients, TargetKind};
use crate::measure::{Calls, StealMeter, p99};
use crate::profile::{BUDGET, Profile};
use crate::report::{self, Row};
use crate::target_server::TargetProcess;
use crate::thresholds::{
    MAX_ABOVE_BUDGET, MAX_MEMORY_GROWTH, MAX_P99_RATIO, MAX_STOLEN_SHARE, MIN_BASELINE_P99, SHORT_MAX_P99,
};

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Shorter timeouts and smaller attacks, all against one server: about 2 minutes.
    #[arg(long)]
    short: bool,
    /// Attack a gateway in front of a server, with the attacks that affect what a gateway forwards or buffers.
    #[arg(long)]
    gateway: bool,
    /// Only attacks whose name contains one of these, or whose row is one of these.
    names: Vec<String>,
    /// File for the table as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Print the list of attacks instead of running them.
    #[arg(long)]
    list: bool,
}

/// Number of repetitions of an attack that fails only by its p99; the median counts.
const REPEATS: usize = 2;
/// Maximum number of measurements that are repeated since the hypervisor took CPU time.
const MAX_DISTURBED: usize = 8;
/// Timeout of an attack.
const ATTACK_TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit for a server without calls to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum number of calls for a client's p99; with fewer, only that of all clients is checked.
const MIN_CALLS: usize = 300;

/// The attacks on a gateway: those whose calls it forwards, or that make it buffer the data of either side. The others
/// exercise the same code as in a server.
const GATEWAY_ATTACKS: [&str; 13] = [
    "heads_without_body",
    "watches",
    "half_a_message",
    "grpc_bodies_without_end",
    "slow_message",
    "chunks_without_end",
    "calls_that_wait",
    "answers_unread",
    "windows_of_zero",
    "streams_unread",
    "rapid_reset",
    "long_metadata",
    "messages_that_stop",
];

/// Runs the suite.
#[tokio::main]
pub(crate) async fn run(options: &Options) -> io::Result<ExitCode> {
    let profile = if options.short { Profile::Short } else { Profile::Full };
    let chosen: Vec<_> = Attack::all().filter(|attack| options.selects(attack, profile)).collect();
    if options.list {
        report::list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    if chosen.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no attack has such a name"));
    }
    report::head(profile);
    let mut suite = Suite { profile, target_kind: options.target_kind(), test_bed: None };
    let mut rows = Vec::new();
    for attack in chosen {
        let row = suite.evaluate(attack).await?;
        report::row(&row);
        rows.push(row);
    }
    report::foot(&rows);
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    let held = rows.iter().all(|row| row.failures.is_empty());
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn target_kind(&self) -> TargetKind {
        if self.gateway { TargetKind::Gateway } else { TargetKind::Server }
    }

    fn selects(&self, attack: &Attack, profile: Profile) -> bool {
        if self.gateway && !GATEWAY_ATTACKS.contains(&attack.name) {
            return false;
        }
        if profile.is_short() && attack.form == Form::FullOnly {
            return false;
        }
        let names = |name: &String| attack.name.contains(name.as_str()) || attack.row == name;
        self.names.is_empty() || self.names.iter().any(names)
    }
}

/// The process under attack and its well-behaved clients.
struct TestBed {
    clients: Clients,
    process: TargetProcess,
    /// The server behind a gateway.
    _upstream: Option<TargetProcess>,
    baseline: BTreeMap<&'static str, Calls>,
}

impl TestBed {
    async fn start(profile: Profile, target_kind: TargetKind) -> io::Result<Self> {
        let (process, _upstream) = match target_kind {
            TargetKind::Server => (TargetProcess::start(profile)?, None),
            TargetKind::Gateway => {
                let upstream = TargetProcess::start_upstream()?;
                (TargetProcess::start_gateway(profile, &upstream)?, Some(upstream))
            }
        };
        let clients = Clients::start(&process.target, target_kind).await.map_err(io::Error::other)?;
        // One-time effects, such as the first growth of a buffer, are not part of the baseline.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut test_bed = Self { clients, process, _upstream, baseline: BTreeMap::new() };
        test_bed.measure_baseline(profile).await?;
        Ok(test_bed)
    }

    /// Measures the calls without an attack; again while the hypervisor takes CPU time. In the short form, whose timeouts
    /// are short too, a stall of the machine may cost a call: then again.
    async fn measure_baseline(&mut self, profile: Profile) -> io::Result<()> {
        let mut measured = Ok(());
        for _ in 0..profile.pick(MAX_DISTURBED, 3) {
            let steal = StealMeter::start();
            self.clients.record.take();
            tokio::time::sleep(profile.baseline()).await;
            self.baseline = self.clients.record.take();
            measured = match self.baseline.iter().find(|(_, calls)| calls.lost > 0) {
                None => Ok(()),
                Some((name, calls)) => Err(io::Error::other(format!(
                    "{name} lost calls before any attack: {}",
                    calls.reason.as_deref().unwrap_or_default()
                ))),
            };
            let is_final = match profile.is_short() {
                true => measured.is_ok(),
                false => measured.is_err() || steal.share() <= MAX_STOLEN_SHARE,
            };
            if is_final {
                break;
            }
        }
        measured
    }
}

struct Suite {
    profile: Profile,
    target_kind: TargetKind,
    /// Processes and clients that the next attack can reuse.
    test_bed: Option<TestBed>,
}

impl Suite {
    /// Runs an attack, and repeats it if only the p99 failed: other programs use the machine too. In the short form every
    /// failure is repeated once, on a fresh server: a stall of the machine exceeds its timeouts, and a server that has
    /// seen other attacks may hold memory that is theirs.
    async fn evaluate(&mut self, attack: &'static Attack) -> io::Result<Row> {
        let mut rows = Vec::new();
        let mut disturbed = 0;
        loop {
            let mut row = self.attempt(attack).await?;
            if self.profile.is_short() && !row.failures.is_empty() && rows.is_empty() {
                row = self.attempt(attack).await?;
            }
            let is_late = row.fails_by_p99_alone();
            if is_late && row.is_disturbed() && disturbed < MAX_DISTURBED {
                disturbed += 1;
                continue;
            }
            rows.push(row);
            if !is_late || rows.len() > REPEATS {
                break;
            }
        }
        // A row without a failure is kept if it is the last; of the slow ones, the median.
        rows.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let other = rows.iter().position(|row| !row.failures.is_empty() && !row.fails_by_p99_alone());
        let middle = (rows.len() - 1) / 2;
        let mut row = rows.swap_remove(other.unwrap_or(middle));
        if disturbed > 0 {
            row.notes.push(format!(
                "late measurements that do not count, since the hypervisor took CPU time: {disturbed}"
            ));
        }
        if row.fails_by_p99_alone() {
            self.compare_with_sink(attack, &mut row).await?;
        }
        Ok(row)
    }

    /// Measures the same calls to a server that is not attacked, while a process that only reads is attacked: moving
    /// bytes delays every program on a machine. Calls at most twice as slow as these are not a failure of the server.
    async fn compare_with_sink(&self, attack: &'static Attack, row: &mut Row) -> io::Result<()> {
        let test_bed = TestBed::start(self.profile, self.target_kind).await?;
        let mut beside_sink = BTreeMap::new();
        for _ in 0..=MAX_DISTURBED {
            let steal = StealMeter::start();
            test_bed.clients.record.take();
            let sink = TargetProcess::start_sink()?;
            let _attacker = Attacker::start(attack, self.profile, &sink.target)?;
            // As long as the attack on the server took, so that quiet periods have the same weight.
            tokio::time::sleep(Duration::from_secs_f64(row.seconds)).await;
            beside_sink = test_bed.clients.record.take();
            if steal.share() <= MAX_STOLEN_SHARE {
                break;
            }
        }
        row.compare_with_sink(&test_bed.baseline, &beside_sink);
        Ok(())
    }

    async fn attempt(&mut self, attack: &'static Attack) -> io::Result<Row> {
        if attack.form == Form::Alone {
            return self.attempt_alone(attack).await;
        }
        let mut test_bed = match self.test_bed.take() {
            Some(test_bed) => test_bed,
            None => TestBed::start(self.profile, self.target_kind).await?,
        };
        let row = self.run_attack(attack, &mut test_bed).await?;
        let is_reusable = self.profile.is_short() && row.failures.is_empty() && test_bed.process.is_running();
        if is_reusable && attack.form != Form::Terminated {
            self.test_bed = Some(test_bed);
        }
        Ok(row)
    }

    /// An attack without a server and its clients.
    async fn attempt_alone(&self, attack: &'static Attack) -> io::Result<Row> {
        let mut row = Row::new(attack);
        let target = crate::target_server::Target::none();
        let mut attacker = Attacker::start(attack, self.profile, &target)?;
        let outcome = outcome(&mut attacker).await;
        row.take_outcome(outcome);
        Ok(row)
    }

    async fn run_attack(&self, attack: &'static Attack, test_bed: &mut TestBed) -> io::Result<Row> {
        let mut row = Row::new(attack);
        let memory = test_bed.process.memory();
        memory.forget_peak();
        let (at_start, cpu, begun) = (memory.resident(), memory.cpu(), Instant::now());
        test_bed.clients.record.take();
        test_bed.clients.admin.take();

        let steal = StealMeter::start();
        let mut attacker = Attacker::start(attack, self.profile, &test_bed.process.target)?;
        let outcome = outcome(&mut attacker).await;
        tokio::time::sleep(self.profile.window().saturating_sub(begun.elapsed())).await;
        let calls = test_bed.clients.record.take();

        row.stolen = steal.share();
        row.seconds = begun.elapsed().as_secs_f64();
        row.cpu = (memory.cpu().saturating_sub(cpu)).as_secs_f64() / row.seconds;
        row.peak = memory.peak();
        row.judge_memory();
        row.judge_end(attack, &outcome, self.profile);
        row.take_outcome(outcome);
        row.judge_calls(&calls, &test_bed.baseline, self.profile);
        row.judge_admin(&test_bed.clients.admin, self.profile);
        if !test_bed.process.is_running() {
            row.failures.push("the server's process ended".to_owned());
            return Ok(row);
        }
        if attack.form == Form::Terminated {
            test_bed.clients.stop();
            row.terminate(test_bed)?;
            return Ok(row);
        }
        drop(attacker);
        row.wait_for_recovery(test_bed, at_start, self.profile).await;
        Ok(row)
    }
}

async fn outcome(attacker: &mut Attacker) -> Outcome {
    let broken = |why: String| Outcome { failures: vec![why], ..Outcome::default() };
    match tokio::time::timeout(ATTACK_TIMEOUT, attacker.outcome()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => broken(error.to_string()),
        Err(_) => broken(format!("the attack was not over after {} s", ATTACK_TIMEOUT.as_secs())),
    }
}

impl Row {
    fn take_outcome(&mut self, outcome: Outcome) {
        self.sent = outcome.sent;
        self.connections = outcome.connections;
        self.notes.extend(outcome.notes);
        self.failures.extend(outcome.failures);
    }

    fn judge_memory(&mut self) {
        if self.peak > BUDGET + MAX_ABOVE_BUDGET {
            self.failures.push(format!("memory above {} MiB", (BUDGET + MAX_ABOVE_BUDGET) >> 20));
        }
    }

    fn judge_end(&mut self, attack: &Attack, outcome: &Outcome, profile: Profile) {
        let released = outcome.released.map(Duration::from_millis);
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let limit = attack.end.limit(profile);
        let wait_limit = limit.and_then(|limit| profile.wait_limit(limit));
        self.end = match (attack.end, released) {
            (End::Brief, _) => String::new(),
            (_, Some(released)) if outcome.open == 0 => seconds(released),
            (End::Held(bound), _) => format!("held: {bound}"),
            (End::Within(_), _) if wait_limit.is_some() => format!("{} open", outcome.open),
            (End::Within(_), _) => format!("held ≤ {}", seconds(limit.unwrap_or_default())),
        };
        let (Some(limit), Some(wait_limit)) = (limit, wait_limit) else { return };
        if outcome.open > 0 {
            self.failures.push(format!("{} not ended within {}", outcome.open, seconds(limit)));
        }
        if let Some(released) = released.filter(|released| *released > wait_limit) {
            self.failures.push(format!("ended after {}, not {}", seconds(released), seconds(limit)));
        }
    }

    fn judge_calls(
        &mut self,
        calls: &BTreeMap<&'static str, Calls>,
        baseline: &BTreeMap<&'static str, Calls>,
        profile: Profile,
    ) {
        self.calls = calls.values().map(|calls| calls.latencies.len()).sum();
        self.lost = calls.values().map(|calls| calls.lost).sum();
        let clients_with_losses: Vec<_> = calls.iter().filter(|(_, calls)| calls.lost > 0).collect();
        if let [(name, first), ..] = clients_with_losses[..] {
            let reason = first.reason.as_deref().unwrap_or_default();
            let others: Vec<_> =
                clients_with_losses.iter().map(|(name, calls)| format!("{name} {}", calls.lost)).collect();
            self.failures.push(format!("calls lost: {}; {name}: {reason}", others.join(", ")));
        }
        let clients_without_calls = baseline.keys().filter(|name| !calls.contains_key(*name));
        self.failures.extend(clients_without_calls.map(|name| format!("{name} made no call")));
        (self.p99, self.ratio, self.slowest) = find_slowest(calls, baseline);
        self.latencies = calls.clone();
        let bound = profile.pick(Duration::ZERO, SHORT_MAX_P99);
        if self.ratio > MAX_P99_RATIO && self.p99 > bound {
            self.late = true;
            self.failures.push(format!("p99 of {} is {:.1} × its baseline", self.slowest, self.ratio));
        }
    }

    /// Judges the p99 of a late row again: each client's baseline is the longer of its p99 without an attack, and while
    /// the sink was attacked.
    fn compare_with_sink(
        &mut self,
        baseline: &BTreeMap<&'static str, Calls>,
        beside_sink: &BTreeMap<&'static str, Calls>,
    ) {
        let (without, with) = (find_slowest(&self.latencies, baseline), find_slowest(beside_sink, baseline));
        let longer = baseline.iter().map(|(name, quiet)| {
            let beside = beside_sink.get(name).unwrap_or(quiet);
            let is_longer = p99(&beside.latencies) > p99(&quiet.latencies);
            (*name, if is_longer { beside } else { quiet }.clone())
        });
        (self.p99, self.ratio, self.slowest) = find_slowest(&self.latencies, &longer.collect());
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        self.notes.push(format!(
            "a sink is attacked instead: p99 of {} {:.1} ms; the ratio is that to these calls, without them it is {:.2}",
            with.2,
            milliseconds(with.0),
            without.1
        ));
        if self.ratio <= MAX_P99_RATIO {
            self.late = false;
            self.failures.clear();
        }
    }

    fn terminate(&mut self, test_bed: &mut TestBed) -> io::Result<()> {
        match test_bed.process.terminate(crate::target_server::GRACE + EXIT_TIMEOUT)? {
            Some(took) if took <= EXIT_TIMEOUT => {
                self.notes.push(format!("exit took {:.1} s", took.as_secs_f64()))
            }
            Some(took) => self.failures.push(format!("exit took {:.1} s", took.as_secs_f64())),
            None => self.failures.push("the server does not exit".to_owned()),
        }
        Ok(())
    }

    /// Waits until the memory has been released.
    async fn wait_for_recovery(&mut self, test_bed: &TestBed, at_start: usize, profile: Profile) {
        let begun = Instant::now();
        let memory = test_bed.process.memory();
        let remains = || memory.resident().saturating_sub(at_start);
        while remains() > MAX_MEMORY_GROWTH && begun.elapsed() < profile.recovery() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.remains = remains();
        if self.remains > MAX_MEMORY_GROWTH {
            let seconds = profile.recovery().as_secs();
            self.failures.push(format!("{} MiB more than before, {seconds} s later", self.remains >> 20));
        }
    }
}

/// The largest ratio of a p99 to its baseline: over each client with enough calls, and all of them together.
fn find_slowest(
    calls: &BTreeMap<&'static str, Calls>,
    baseline: &BTreeMap<&'static str, Calls>,
) -> (Duration, f64, String) {
    let together = |calls: &BTreeMap<&'static str, Calls>| {
        calls.values().flat_map(|calls| calls.latencies.iter().copied()).collect::<Vec<_>>()
    };
    let ratio = |latencies: &[Duration], usual: &[Duration]| {
        let p99 = p99(latencies);
        (p99, p99.as_secs_f64() / self::p99(usual).max(MIN_BASELINE_P99).as_secs_f64())
    };
    let (all, ratio_of_all) = ratio(&together(calls), &together(baseline));
    let mut slowest = (all, ratio_of_all, "all".to_owned());
    for (name, calls) in calls {
        let Some(usual) = baseline.get(name) else { continue };
        if calls.latencies.len() < MIN_CALLS || usual.latencies.len() < MIN_CALLS / 2 {
            continue;
        }
        let (p99, ratio) = ratio(&calls.latencies, &usual.latencies);
        if ratio > slowest.1 {
            slowest = (p99, ratio, (*name).to_owned());
        }
    }
    slowest
}

//! A run: threads connect, wait for the common start, and call; this thread measures the processes meanwhile.

mod assignment;

mod blocking;
mod concurrent;

mod worker;

use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use polyrpc::Status;

use self::assignment::Assignment;
use self::worker::Worker;
use crate::engine::clock::{Clock, Wall};
use crate::engine::driver::Window;
use crate::engine::record::{SecondPart, ThreadRecord};
use crate::outcome::{self, Outcome, Second};
use crate::plan::{Pacing, Plan, PlanPart, RunLength};
use crate::process::{Process, Usage};
use crate::rpc::Methods;
use crate::schedule::Schedule;
use crate::seconds::SecondMerger;
use crate::stop::Stop;
use crate::verdict::Verdict;

/// Why there was no run.
#[derive(Debug, Clone)]
pub enum RunError {
    /// The plan is contradictory, or a client cannot be created.
    Plan(String),
    /// The server cannot be reached.
    Connect(Status),
    /// The system refused a resource.
    System(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(reason) | Self::System(reason) => f.write_str(reason),
            Self::Connect(status) => status.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs a plan to its end. `on_second` gets every second of the measurement when it has passed.
///
/// # Errors
///
/// If the plan is contradictory, or the server cannot be reached before the run. Later failures are counted.
pub fn run(plan: &Plan, stop: &Stop, mut on_second: impl FnMut(&Second)) -> Result<Outcome, RunError> {
    let ready = ReadyRun::connect(plan, PlanPart::WHOLE)?;
    let mut seconds = SecondMerger::new(ready.threads());
    let mut outcome = ready.start(Instant::now(), stop, |part| {
        if let Some(second) = seconds.add(&part) {
            on_second(second);
        }
    })?;
    outcome.seconds = seconds.finish();
    Ok(outcome)
}

/// A run whose connections are open. Dropping it closes them.
pub struct ReadyRun {
    plan: Plan,
    methods: usize,
    schedule: Option<Schedule>,
    clock: Wall,
    reports: Receiver<SecondPart>,
    workers: Vec<Worker>,
}

impl fmt::Debug for ReadyRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyRun").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl ReadyRun {
    /// Starts the threads of a part of a plan, which connect. Blocks until they have.
    ///
    /// # Errors
    ///
    /// See [`run`].
    pub fn connect(plan: &Plan, part: PlanPart) -> Result<Self, RunError> {
        plan.check(part).map_err(RunError::Plan)?;
        let methods = Methods::new(plan);
        let schedule = plan.schedule();
        let clock = Wall::start();
        let (report, reports) = mpsc::channel();
        let assignment = |thread| Assignment {
            plan: plan.clone(),
            methods: methods.clone(),
            schedule: schedule.clone(),
            clock,
            report: report.clone(),
            thread: part.thread(thread),
            threads: part.threads(plan.threads),
        };
        let workers = (0..plan.threads).map(|thread| Worker::spawn(assignment(thread)));
        let workers: Vec<_> = workers.collect::<Result<_, _>>()?;
        for worker in &workers {
            worker.wait_until_connected()?;
        }
        Ok(Self { plan: plan.clone(), methods: methods.len(), schedule, clock, reports, workers })
    }

    /// Number of threads that report each second.
    pub fn threads(&self) -> usize {
        self.workers.iter().map(|worker| worker.records).sum()
    }

    /// Starts the warm-up at the given time, or at once if that has passed, and runs to the end. `on_part` gets each
    /// second of each thread when it has passed; the outcome itself contains no seconds.
    ///
    /// # Errors
    ///
    /// If a thread failed.
    pub fn start(
        self,
        then: Instant,
        stop: &Stop,
        mut on_part: impl FnMut(SecondPart),
    ) -> Result<Outcome, RunError> {
        let Self { plan, methods, schedule, clock, reports, workers } = self;
        let starts = clock.nanos_at(then).max(clock.now()) + START_AFTER;
        let opens = starts + nanos(plan.warmup);
        let length = plan.length(schedule.as_ref());
        let closes = length.map(|length| opens + length);
        let window = Window { starts, opens, closes, drain_timeout: nanos(plan.drain_timeout) };
        for worker in &workers {
            stop.add(worker.wakeups.clone());
            worker.start(window);
        }

        let mut meter = Meter::new(plan.server);
        let is_done = receive_until(&reports, clock.instant(opens), &mut on_part);
        meter.open();
        let is_done = is_done
            || closes.is_some_and(|closes| receive_until(&reports, clock.instant(closes), &mut on_part));
        if closes.is_none() || is_done {
            reports.iter().for_each(&mut on_part);
        }
        meter.close();
        let ended = clock.now();
        reports.iter().for_each(&mut on_part);

        let mut record = ThreadRecord::new(methods);
        for worker in workers {
            record.add(&worker.finish()?);
        }
        stop.clear();
        let measured_until = match closes {
            // The last planned call ends before the planned end, by up to an interval: a window that ended with it
            // would show a rate above the planned one.
            Some(closes) if schedule.is_some() && !stop.is_stopped() => closes,
            Some(closes) => closes.min(ended),
            None => record.last_end.max(opens),
        };
        let verdict = match &plan.pacing {
            _ if stop.is_stopped() && record.counts.sent == 0 => Verdict::NothingMeasured,
            Pacing::Open { .. } => Verdict::for_open_loop(&record.counts, &record.own_lag),
            Pacing::Closed { .. } => Verdict::for_closed_loop(&record.counts),
        };
        Ok(Outcome {
            window: Duration::from_nanos(measured_until.saturating_sub(opens)),
            opened: Some(clock.instant(opens)),
            counts: record.counts,
            lost: outcome::lost_calls(&record, opens),
            methods: record.methods.into_iter().map(Into::into).collect(),
            service: record.service,
            lag: record.lag,
            own_lag: record.own_lag,
            seconds: Vec::new(),
            verdict,
            interrupted: stop.is_stopped(),
            generator: meter.generator(),
            server: meter.server(),
        })
    }
}

/// Handles reports until then. Returns whether all threads are done.
fn receive_until(
    reports: &Receiver<SecondPart>,
    then: Instant,
    mut on_report: impl FnMut(SecondPart),
) -> bool {
    loop {
        match reports.recv_timeout(then.saturating_duration_since(Instant::now())) {
            Ok(part) => on_report(part),
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}

/// CPU time and memory of both processes within the window.
struct Meter {
    server: Option<Process>,
    before: Option<(Duration, Option<Duration>)>,
    after: Option<(Usage, Option<Usage>)>,
}

impl Meter {
    fn new(server: Option<Process>) -> Self {
        Self { server, before: None, after: None }
    }

    fn open(&mut self) {
        self.before = Some((Process::this().cpu().unwrap_or_default(), self.server.and_then(Process::cpu)));
    }

    fn close(&mut self) {
        let Some((generator, server)) = self.before else { return };
        let used = self.server.zip(server).and_then(|(process, before)| process.usage_since(before));
        let own = Process::this().usage_since(generator);
        self.after = own.map(|own| (own, used));
    }

    fn generator(&self) -> Usage {
        let unknown = Usage { pid: Process::this().id, cpu: Duration::ZERO, memory: 0, memory_peak: 0 };
        self.after.map_or(unknown, |(own, _)| own)
    }

    fn server(&self) -> Option<Usage> {
        self.after.and_then(|(_, server)| server)
    }
}

impl Plan {
    /// Planned calls of an open loop.
    fn schedule(&self) -> Option<Schedule> {
        let Pacing::Open { profile, arrivals } = &self.pacing else { return None };
        let (duration, total) = match self.length {
            RunLength::Time(duration) => (Some(duration), None),
            RunLength::Calls(calls) => (None, Some(calls)),
        };
        Some(Schedule { profile: profile.clone(), arrivals: *arrivals, seed: self.seed, duration, total })
    }

    /// Length of the measurement, if it is known before the run: not of a closed loop with a number of calls.
    pub fn measured_time(&self) -> Option<Duration> {
        self.length(self.schedule().as_ref()).map(Duration::from_nanos)
    }

    /// Length of the window in nanoseconds, if it is known before the run.
    fn length(&self, schedule: Option<&Schedule>) -> Option<u64> {
        match (self.length, schedule) {
            (RunLength::Time(duration), _) => Some(nanos(duration)),
            (RunLength::Calls(calls), Some(schedule)) => schedule.end_of(calls),
            (RunLength::Calls(_), None) => None,
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// Time between the signal to the threads and the start of the warm-up.
const START_AFTER: u64 = 2_000_000;

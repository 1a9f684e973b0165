//! Callers with a thread and a blocking client each.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use polyrpc::blocking::Client;

use super::RunError;
use super::assignment::{Assignment, system};
use crate::engine::call_error::CallError;
use crate::engine::clock::{Clock, Wall};
use crate::engine::driver::Window;
use crate::engine::record::{Seconds, ThreadRecord};
use crate::engine::slots::{CallTimes, Wakeups};
use crate::plan::Plan;
use crate::rpc::{Methods, call_error};

/// Callers that share a record. A lock for each call costs less than histograms for each caller.
struct Callers<'a> {
    methods: &'a Methods,
    clock: Wall,
    window: Window,
    wakeups: &'a Wakeups,
    /// Number of measured calls to start.
    remaining: Option<AtomicI64>,
    results: Mutex<(ThreadRecord, Seconds)>,
}

/// Makes the calls of one thread's share of the callers.
pub(super) fn call(
    assignment: &Assignment,
    ready: &Sender<Result<(), RunError>>,
    started: &Receiver<Window>,
    wakeups: &Arc<Wakeups>,
) -> Result<ThreadRecord, RunError> {
    let count = Plan::share(assignment.callers(), assignment.thread, assignment.threads);
    let client = || {
        let built = assignment.builder()?.build_blocking();
        built.map_err(|error| RunError::Connect(error.status().clone()))
    };
    let clients: Vec<Client> = match (0..count).map(|_| client()).collect() {
        Ok(clients) => clients,
        Err(error) => {
            let _ = ready.send(Err(RunError::clone(&error)));
            return Err(error);
        }
    };
    let _ = ready.send(Ok(()));
    // The run was given up because another thread could not start.
    let Ok(window) = started.recv() else { return Ok(ThreadRecord::new(0)) };
    let record = ThreadRecord::new(assignment.methods.len());
    let seconds = Seconds::new(window.opens, assignment.report.clone());
    let callers = Callers {
        methods: &assignment.methods,
        clock: assignment.clock,
        window,
        wakeups,
        remaining: assignment.calls().map(|calls| AtomicI64::new(i64::try_from(calls).unwrap_or(i64::MAX))),
        results: Mutex::new((record, seconds)),
    };
    thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            let first = (assignment.thread + number * assignment.threads) as u64;
            let step = assignment.callers() as u64;
            let callers = &callers;
            let caller = move || callers.run(client, first, step);
            thread::Builder::new()
                .spawn_scoped(scope, caller)
                .map_err(|error| system("start a thread", &error))?;
        }
        Ok(())
    })?;
    let (record, mut seconds) = callers.results.into_inner().unwrap_or_else(PoisonError::into_inner);
    seconds.finish(0);
    Ok(record)
}

impl Callers<'_> {
    /// Makes one call after the other. An interrupt waits for the call that is being made.
    fn run(&self, client: &Client, first: u64, step: u64) {
        let mut index = first;
        let mut now = self.clock.now();
        if let Some(early) = self.window.starts.checked_sub(now) {
            thread::sleep(Duration::from_nanos(early));
            now = self.clock.now();
        }
        while !self.wakeups.is_stopped() && self.window.closes.is_none_or(|closes| now < closes) {
            let is_measured = now >= self.window.opens;
            let is_last = |remaining: &AtomicI64| remaining.fetch_sub(1, Ordering::Relaxed) <= 0;
            if is_measured && self.remaining.as_ref().is_some_and(is_last) {
                return;
            }
            let method = self.methods.mix().method(index);
            let times = CallTimes { index, method, planned: now, sendable: now, sent: now, is_measured };
            let (called, body) = self.methods.call(index);
            let ended = client.call_raw(&called.target, body.clone(), called.options.clone());
            let failure = match ended {
                Ok(response) => called.check(&response.message.bytes).err(),
                Err(error) => Some(call_error(error.status())),
            };
            now = self.clock.now();
            self.record(&times, now, failure.as_ref());
            if failure.is_some_and(|failure| failure.is_lost) {
                thread::sleep(PAUSE);
                now = self.clock.now();
            }
            index += step;
        }
    }

    fn record(&self, times: &CallTimes, now: u64, failure: Option<&CallError>) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let (record, seconds) = &mut *results;
        seconds.report_passed(now, 0);
        if !times.is_measured {
            return;
        }
        record.counts.planned += 1;
        record.record_sent(times);
        seconds.record_sent(times);
        let response = record.record_end(times, now, failure);
        seconds.record_end(response, failure.is_none());
        record.counts.ended_in_window += u64::from(self.window.closes.is_none_or(|closes| now <= closes));
    }
}

/// Pause of a caller that lost its connection: its next call would fail at once, and failures would dominate.
const PAUSE: Duration = Duration::from_millis(10);

//! Makes the calls of one thread: starts what is due, records what has ended, sleeps until the next call is due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::call_error::CallError;
use super::clock::{Alarm, Clock};
use super::record::{Seconds, ThreadRecord};
use super::slots::{CallTimes, Slots, Wakeups};
use crate::mix::Mix;
use crate::schedule::{Due, Part};

/// When calls start.
pub(crate) enum Pacing {
    /// At planned times, whether or not earlier calls have ended.
    Open(OpenLoop),
    /// When the last call of a caller has ended.
    Closed(ClosedLoop),
}

/// Planned calls.
pub(crate) struct OpenLoop {
    /// Calls before the measurement; times count from the start of the run.
    warmup: Part,
    /// Measured calls; times count from the start of the measurement.
    measured: Part,
    next: Option<PlannedCall>,
    /// Calls that become due within this time are sent together.
    gather: u64,
    /// Since when every slot is in use, apart from moments between two calls.
    full_since: Option<u64>,
    /// When a slot became free last.
    last_freed: u64,
}

/// The next call of an open loop, at a time of the clock.
#[derive(Debug, Clone, Copy)]
struct PlannedCall {
    index: u64,
    at: u64,
    is_measured: bool,
}

/// Callers that call one after the other.
pub(crate) struct ClosedLoop {
    pub(crate) callers: usize,
    /// Number of measured calls still to start, if limited.
    pub(crate) remaining: Option<u64>,
    /// Index of the next call.
    pub(crate) next: u64,
    pub(crate) step: u64,
    /// Callers that may call again, and since when.
    ready: VecDeque<(u32, u64)>,
    /// Callers that pause after a lost connection, and until when.
    pausing: VecDeque<(u32, u64)>,
}

impl ClosedLoop {
    pub(crate) fn new(callers: usize, remaining: Option<u64>, first: u64, step: u64) -> Self {
        Self { callers, remaining, next: first, step, ready: VecDeque::new(), pausing: VecDeque::new() }
    }
}

impl OpenLoop {
    pub(crate) fn new(warmup: Part, measured: Part, gather: u64) -> Self {
        Self { warmup, measured, next: None, gather, full_since: None, last_freed: 0 }
    }

    fn advance(&mut self, window: &Window) {
        let at = |start: u64, is_measured: bool| {
            move |due: Due| PlannedCall { index: due.index, at: start + due.at, is_measured }
        };
        let warmup = self.warmup.next().map(at(window.starts, false)).filter(|due| due.at < window.opens);
        self.next = warmup.or_else(|| self.measured.next().map(at(window.opens, true)));
    }
}

/// Times of the run, in nanoseconds of the clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Start of the warm-up.
    pub(crate) starts: u64,
    /// Start of the measurement.
    pub(crate) opens: u64,
    /// End of the measurement; `None`: when all calls have been made.
    pub(crate) closes: Option<u64>,
    /// Maximum time to wait after that for calls in flight.
    pub(crate) drain_timeout: u64,
}

/// Calls of one thread.
///
/// `S` creates call number `index` of the run, made by caller `slot` of the thread; the call is sent when its future is
/// polled first.
pub(crate) struct Driver<C, A, S, F> {
    clock: C,
    alarm: A,
    call: S,
    mix: Mix,
    pacing: Pacing,
    window: Window,
    /// Maximum number of calls in flight.
    max_in_flight: usize,
    slots: Slots<F>,
    wakeups: Arc<Wakeups>,
    /// Calls that were started and whose time of sending is not known yet.
    batch: Vec<u32>,
    /// Calls that ended when they were started.
    completed: Vec<(u32, Result<(), Box<CallError>>)>,
    record: ThreadRecord,
    seconds: Seconds,
    /// When the last call was sent, once no more will be.
    exhausted: Option<u64>,
}

impl<C, A, S, F> Driver<C, A, S, F>
where
    C: Clock,
    A: Alarm,
    S: Fn(u64, u32) -> F,
    F: Future<Output = Result<(), Box<CallError>>>,
{
    pub(crate) fn new(
        (clock, alarm): (C, A),
        (call, mix): (S, Mix),
        mut pacing: Pacing,
        window: Window,
        max_in_flight: usize,
        wakeups: Arc<Wakeups>,
        (record, seconds): (ThreadRecord, Seconds),
    ) -> Self {
        let mut slots = Slots::new(wakeups.clone());
        match &mut pacing {
            Pacing::Open(open) => open.advance(&window),
            Pacing::Closed(closed) => {
                let callers = (0..closed.callers).map_while(|_| slots.take(closed.callers));
                closed.ready = callers.map(|slot| (slot, window.starts)).collect();
            }
        }
        Self {
            clock,
            alarm,
            call,
            mix,
            pacing,
            window,
            max_in_flight,
            slots,
            wakeups,
            batch: Vec::with_capacity(BATCH),
            completed: Vec::new(),
            record,
            seconds,
            exhausted: None,
        }
    }

    /// Runs until all calls have ended, the drain timeout is over, or the run is stopped.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wakeups.register(cx.waker());
        let now = self.clock.now();
        self.seconds.report_passed(now, self.slots.in_flight());
        self.end_woken(now);
        if self.wakeups.is_stopped() {
            self.abandon(now);
            return Poll::Ready(());
        }
        let now = self.start_due(now);
        if let Some(since) = self.exhausted {
            let end = self.window.closes.map_or(since, |closes| closes.max(since));
            let is_over = now >= end.saturating_add(self.window.drain_timeout);
            if self.slots.in_flight() == 0 || is_over {
                self.abandon(now);
                return Poll::Ready(());
            }
        }
        match self.next_alarm() {
            Some(at) if at <= now => cx.waker().wake_by_ref(),
            Some(at) => {
                if self.alarm.poll_at(at, cx).is_ready() {
                    cx.waker().wake_by_ref();
                }
            }
            // Other tasks of the thread, which write and read, come first.
            None => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    }

    /// The results.
    pub(crate) fn finish(mut self) -> ThreadRecord {
        self.seconds.finish(self.slots.in_flight());
        self.record
    }

    fn end_woken(&mut self, now: u64) {
        let woken = self.slots.take_woken();
        for &slot in &woken {
            if let Some(result) = self.slots.poll(slot) {
                self.end(slot, now, result.err().as_deref());
            }
        }
        self.slots.give_back(woken);
    }

    fn end(&mut self, slot: u32, now: u64, failure: Option<&CallError>) {
        let times = *self.slots.times(slot);
        if times.is_measured {
            let response = self.record.record_end(&times, now, failure);
            self.seconds.record_end(response, failure.is_none());
            self.record.counts.ended_in_window +=
                u64::from(self.window.closes.is_none_or(|closes| now <= closes));
        }
        match &mut self.pacing {
            Pacing::Open(open) => {
                open.last_freed = now;
                self.slots.release(slot);
            }
            // The next call would fail at once, and failures would dominate the results.
            Pacing::Closed(closed) if failure.is_some_and(|failure| failure.is_lost) => {
                closed.pausing.push_back((slot, now + PAUSE));
            }
            Pacing::Closed(closed) => closed.ready.push_back((slot, now)),
        }
    }

    /// Starts the calls that are due, at most a round of them. Returns the time.
    fn start_due(&mut self, mut now: u64) -> u64 {
        let is_full = self.is_full();
        if let Pacing::Open(open) = &mut self.pacing
            && let Some(due) = open.next
            && due.at + open.gather > now
        {
            if due.at > now && !is_full {
                open.full_since = None;
            }
            return now;
        }
        for _ in 0..ROUND / BATCH {
            while self.batch.len() + self.completed.len() < BATCH {
                let Some((slot, times)) = self.next_call(now) else { break };
                let call = (self.call)(times.index, slot);
                match self.slots.start(slot, times, call) {
                    None => self.batch.push(slot),
                    Some(result) => self.completed.push((slot, result)),
                }
            }
            if self.batch.is_empty() && self.completed.is_empty() {
                break;
            }
            now = self.clock.now();
            self.record_batch(now);
        }
        now
    }

    /// Records that the calls of the batch were sent.
    fn record_batch(&mut self, now: u64) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.drain(..).for_each(|slot| self.record_sent(slot, now));
        self.batch = batch;
        let mut completed = std::mem::take(&mut self.completed);
        for (slot, result) in completed.drain(..) {
            self.record_sent(slot, now);
            self.end(slot, now, result.err().as_deref());
        }
        self.completed = completed;
    }

    fn record_sent(&mut self, slot: u32, now: u64) {
        let times = self.slots.times(slot);
        times.sent = now;
        let times = *times;
        if times.is_measured {
            self.record.record_sent(&times);
            self.seconds.record_sent(&times);
        }
    }

    /// The next call to start, if one is due and a caller is free.
    fn next_call(&mut self, now: u64) -> Option<(u32, CallTimes)> {
        let (slot, index, planned, sendable, is_measured) = match &mut self.pacing {
            Pacing::Open(open) => {
                let Some(due) = open.next else {
                    self.exhausted.get_or_insert(now);
                    return None;
                };
                if due.at > now {
                    if self.slots.in_flight() < self.max_in_flight {
                        open.full_since = None;
                    }
                    return None;
                }
                let Some(slot) = self.slots.take(self.max_in_flight) else {
                    open.full_since.get_or_insert(now);
                    return None;
                };
                open.advance(&self.window);
                self.record.counts.planned += u64::from(due.is_measured);
                let full_since = open.full_since;
                if self.slots.in_flight() + 1 >= self.max_in_flight {
                    open.full_since.get_or_insert(now);
                }
                // The server is responsible for the time in which every slot was in use.
                let blocked = full_since.map_or(0, |since| open.last_freed.saturating_sub(since.max(due.at)));
                (slot, due.index, due.at, due.at + blocked, due.is_measured)
            }
            Pacing::Closed(closed) => {
                let is_measured = now >= self.window.opens;
                let is_over = self.window.closes.is_some_and(|closes| now >= closes);
                if is_over || is_measured && closed.remaining == Some(0) {
                    self.exhausted.get_or_insert(now);
                    return None;
                }
                while let Some((slot, _)) = closed.pausing.pop_front_if(|(_, until)| *until <= now) {
                    closed.ready.push_back((slot, now));
                }
                let (slot, since) = closed.ready.pop_front()?;
                let index = closed.next;
                closed.next += closed.step;
                if is_measured {
                    closed.remaining = closed.remaining.map(|remaining| remaining - 1);
                    self.record.counts.planned += 1;
                }
                (slot, index, since, since, is_measured)
            }
        };
        let method = self.mix.method(index);
        Some((slot, CallTimes { index, method, planned, sendable, sent: now, is_measured }))
    }

    /// When to poll again if no call ends before. `None`: at once, after the other tasks of the thread.
    fn next_alarm(&self) -> Option<u64> {
        let now_or = match &self.pacing {
            Pacing::Open(open) => match open.next {
                Some(_) if self.is_full() => u64::MAX,
                Some(due) => due.at + open.gather,
                None => u64::MAX,
            },
            Pacing::Closed(_) if self.exhausted.is_some() => u64::MAX,
            Pacing::Closed(closed) if !closed.ready.is_empty() => return None,
            Pacing::Closed(closed) => {
                let closes = self.window.closes.unwrap_or(u64::MAX);
                closed.pausing.front().map_or(closes, |(_, until)| (*until).min(closes))
            }
        };
        let end = self.exhausted.map(|since| self.window.closes.map_or(since, |closes| closes.max(since)));
        let end = end.map_or(u64::MAX, |end| end.saturating_add(self.window.drain_timeout));
        Some(now_or.min(end).min(self.seconds.ends_at()))
    }

    fn is_full(&self) -> bool {
        self.slots.in_flight() >= self.max_in_flight
    }

    /// Ends the run: unfinished calls are recorded as lasting at least until now.
    fn abandon(&mut self, now: u64) {
        for times in self.slots.abandon() {
            if times.is_measured {
                self.record.record_unanswered(&times, now);
            }
        }
        let Pacing::Open(open) = &mut self.pacing else { return };
        while let Some(due) = open.next.filter(|due| due.at <= now) {
            if due.is_measured {
                self.record.counts.planned += 1;
                self.record.record_unsent(self.mix.method(due.index), due.at, now);
            }
            open.advance(&self.window);
        }
    }
}

/// Calls that share one reading of the clock as the time of their sending.
const BATCH: usize = 64;
/// Calls that are started before the other tasks of the thread run.
const ROUND: usize = 4 * BATCH;
/// Pause of a caller that lost its connection, in nanoseconds.
const PAUSE: u64 = 10_000_000;

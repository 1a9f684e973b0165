//! The engine against a server of known behaviour, both with a virtual clock: every time is exact.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::call_error::CallError;
use super::clock::{Alarm, Clock};
use super::driver::{ClosedLoop, Driver, OpenLoop, Pacing, Window};
use super::record::{SecondPart, Seconds, ThreadRecord, histogram};
use super::slots::Wakeups;
use crate::mix::Mix;
use crate::schedule::{Arrivals, Profile, Rate, Schedule};
use crate::stall::Stalls;
use crate::verdict::Verdict;

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Virtual time, and its scheduled events.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Events>>);

#[derive(Default)]
struct Events {
    now: u64,
    wakers: BTreeMap<(u64, u64), Waker>,
    created: u64,
}

impl World {
    fn events(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap()
    }

    fn wake_at(&self, at: u64, waker: &Waker) -> (u64, u64) {
        let mut events = self.events();
        events.created += 1;
        let event = (at, events.created);
        events.wakers.insert(event, waker.clone());
        event
    }

    /// Advances to the next event.
    fn advance(&self) {
        let mut events = self.events();
        let ((at, _), waker) = events.wakers.pop_first().expect("something will happen");
        events.now = events.now.max(at);
        drop(events);
        waker.wake();
    }
}

impl Clock for World {
    fn now(&self) -> u64 {
        self.events().now
    }
}

/// An alarm in virtual time.
struct VirtualAlarm {
    world: World,
    event: Option<(u64, u64)>,
}

impl Alarm for VirtualAlarm {
    fn poll_at(&mut self, at: u64, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.now() >= at {
            return Poll::Ready(());
        }
        if self.event.is_none_or(|(armed, _)| armed != at) {
            if let Some(event) = self.event.take() {
                self.world.events().wakers.remove(&event);
            }
            self.event = Some(self.world.wake_at(at, cx.waker()));
        }
        Poll::Pending
    }
}

/// A server that answers one call after the other, and not at all at the start of every period.
#[derive(Debug, Clone, Copy)]
struct Server {
    service: u64,
    stall: u64,
    period: u64,
    free_at: u64,
}

impl Server {
    fn answers_at(&mut self, arrives: u64) -> u64 {
        let starts = arrives.max(self.free_at);
        let phase = starts % self.period;
        let starts = if phase < self.stall { starts - phase + self.stall } else { starts };
        self.free_at = starts + self.service;
        self.free_at
    }
}

/// A call in flight.
struct Reply {
    world: World,
    server: Arc<Mutex<Server>>,
    answered: Option<u64>,
}

impl Future for Reply {
    type Output = Result<(), Box<CallError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let now = self.world.now();
        let answered = match self.answered {
            Some(answered) => answered,
            None => {
                let answered = self.server.lock().unwrap().answers_at(now);
                self.answered = Some(answered);
                self.world.wake_at(answered, cx.waker());
                answered
            }
        };
        if now >= answered { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A run in virtual time.
struct Run {
    pacing: Pacing,
    server: Server,
    max_in_flight: usize,
    duration: u64,
    /// The generator does not run in this time.
    stopped: std::ops::Range<u64>,
}

impl Run {
    fn open(schedule: &Schedule, server: Server) -> Self {
        let pacing = OpenLoop::new(schedule.warmup(Duration::ZERO).part(0, 1), schedule.part(0, 1), 0);
        let duration = schedule.duration.unwrap().as_nanos() as u64;
        Self { pacing: Pacing::Open(pacing), server, max_in_flight: 1 << 20, duration, stopped: 0..0 }
    }

    fn run(self) -> (ThreadRecord, Vec<SecondPart>) {
        let world = World::default();
        let server = Arc::new(Mutex::new(self.server));
        let (report, reports) = mpsc::channel();
        let window = Window { starts: 0, opens: 0, closes: Some(self.duration), drain_timeout: 60 * SECOND };
        let call = {
            let world = world.clone();
            move |_, _| Reply { world: world.clone(), server: server.clone(), answered: None }
        };
        let mut driver = Driver::new(
            (world.clone(), VirtualAlarm { world: world.clone(), event: None }),
            (call, Mix::new([1], 0)),
            self.pacing,
            window,
            self.max_in_flight,
            Arc::new(Wakeups::default()),
            (ThreadRecord::new(1), Seconds::new(0, report)),
        );
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        loop {
            if !flag.0.swap(false, Ordering::Relaxed) {
                world.advance();
                continue;
            }
            if self.stopped.contains(&world.now()) {
                world.events().now = self.stopped.end;
            }
            if driver.poll(&mut Context::from_waker(&waker)).is_ready() {
                break;
            }
        }
        (driver.finish(), reports.iter().collect())
    }
}

fn schedule(rate: u64, arrivals: Arrivals, seconds: u64) -> Schedule {
    Schedule {
        profile: Profile::Constant(Rate::per_second(rate).unwrap()),
        arrivals,
        seed: 3,
        duration: Some(Duration::from_secs(seconds)),
        total: None,
    }
}

/// Response times of all planned calls, if at max_in_flight `max_in_flight` are in flight.
fn enumerate_responses(schedule: &Schedule, mut server: Server, max_in_flight: usize) -> Histogram<u64> {
    let mut responses = histogram();
    let mut ends: Vec<u64> = Vec::new();
    for due in schedule.part(0, 1) {
        let freed = ends.len().checked_sub(max_in_flight).map_or(0, |earlier| ends[earlier]);
        let end = server.answers_at(due.at.max(freed));
        responses.record(end - due.at).unwrap();
        ends.push(end);
    }
    responses
}

const STALLING: Server = Server { service: 10_000, stall: SECOND, period: 10 * SECOND, free_at: 0 };

#[test]
fn measured_response_times_equal_the_enumeration() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let schedule = schedule(2_000, arrivals, 20);
        // With few calls in flight the others wait at the generator, for the same time.
        for max_in_flight in [1 << 20, 100] {
            let (record, _) = Run { max_in_flight, ..Run::open(&schedule, STALLING) }.run();
            let expected = enumerate_responses(&schedule, STALLING, max_in_flight);
            assert_eq!(record.methods[0].response, expected, "{arrivals}, {max_in_flight} in flight");
            assert_eq!(record.counts.planned, expected.len());
        }
    }
}

#[test]
fn stalls_have_the_quantiles_of_the_formula() {
    for (rate, service, utilization) in [(1_000, 1_000, 0.0), (1_000, 500_000, 0.5)] {
        let schedule = schedule(rate, Arrivals::Constant, 40);
        let (record, _) = Run::open(&schedule, Server { service, ..STALLING }).run();
        let response = &record.methods[0].response;
        let stalls = Stalls { stall: Duration::from_secs(1), period: Duration::from_secs(10), utilization };
        for quantile in [0.5, 0.9, 0.95, 0.99, 0.999] {
            let expected = stalls.quantile(quantile).as_nanos() as u64;
            let measured = response.value_at_quantile(quantile);
            let tolerance = 2 * MILLI + expected / 1000;
            assert!(
                measured.abs_diff(expected) <= tolerance,
                "{utilization} {quantile}: {measured} {expected}"
            );
        }
        let mean = response.mean() / stalls.mean().as_nanos() as f64;
        assert!((0.97..1.03).contains(&mean), "{utilization}: {mean}");
    }
}

#[test]
fn stopped_generator_is_invalid_and_stalled_server_is_not() {
    let schedule = schedule(10_000, Arrivals::Constant, 10);
    let verdict = |record: &ThreadRecord| Verdict::for_open_loop(&record.counts, &record.own_lag);

    let (stalled, _) = Run { max_in_flight: 1_000, ..Run::open(&schedule, STALLING) }.run();
    assert!(stalled.counts.blocked > 5_000, "{:?}", stalled.counts);
    assert!(matches!(verdict(&stalled), Verdict::ServerSaturated { .. }), "{}", verdict(&stalled));

    let quick = Server { stall: 0, ..STALLING };
    for max_in_flight in [1 << 20, 1_000] {
        let stopped = 5 * SECOND..5 * SECOND + 300 * MILLI;
        let (record, _) = Run { stopped, max_in_flight, ..Run::open(&schedule, quick) }.run();
        assert!(!verdict(&record).is_valid(), "{max_in_flight}: {}", verdict(&record));
        // The calls were made nevertheless, and their times include the delay.
        assert_eq!(record.counts.succeeded, 100_000);
        assert!(record.methods[0].response.max() >= 299 * MILLI);
    }
    assert_eq!(verdict(&Run::open(&schedule, quick).run().0), Verdict::Valid);
}

#[test]
fn response_time_counts_from_the_planned_time() {
    let schedule = schedule(1_000, Arrivals::Constant, 10);
    let (record, _) = Run { max_in_flight: 1, ..Run::open(&schedule, STALLING) }.run();
    // The one call in flight waits a second, the 1,000 behind it at the generator.
    assert_eq!(record.service.value_at_quantile(0.99) / MILLI, 0);
    // 1 % of the capacity is used.
    let p99 = record.methods[0].response.value_at_quantile(0.99) / MILLI;
    assert!((900..=902).contains(&p99), "{p99} ms");
}

#[test]
fn seconds_add_up_to_the_run() {
    let schedule = schedule(1_000, Arrivals::Constant, 3);
    let (record, seconds) = Run::open(&schedule, Server { stall: 0, ..STALLING }).run();
    let succeeded: Vec<_> = seconds.iter().map(|second| second.succeeded).collect();
    assert_eq!(succeeded[..3], [1_000; 3]);
    assert_eq!(seconds.iter().map(|second| second.sent).sum::<u64>(), record.counts.sent);
}

#[test]
fn closed_loop_keeps_every_caller_busy() {
    let server = Server { service: MILLI, stall: 0, ..STALLING };
    let run = |remaining| {
        let pacing = Pacing::Closed(ClosedLoop::new(10, remaining, 0, 1));
        Run { pacing, server, max_in_flight: 10, duration: SECOND, stopped: 0..0 }.run().0
    };
    let record = run(None);
    // Little's law: 10 callers at 1,000 calls a second wait 10 ms each.
    assert_eq!(record.methods[0].response.value_at_quantile(0.5) / MILLI, 10);
    assert!((999..=1_010).contains(&record.counts.succeeded), "{:?}", record.counts);
    assert_eq!(run(Some(77)).counts.succeeded, 77);
}

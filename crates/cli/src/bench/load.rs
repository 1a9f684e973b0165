//! Load generator: repeated calls, and their latencies.
//!
//! A first Ctrl-C ends the load early; what was measured until then is reported. A second one ends the program.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use polyrpc::codec::Body;
use polyrpc::{Client, Scope, Status, blocking, client};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::cpu::{self, Process};
use super::interrupt::Interrupt;
use crate::failure::Failure;
use crate::terminal::grouped;

/// One call, repeated.
pub(super) struct Load {
    pub(super) target: String,
    pub(super) request: Body,
    pub(super) warmup: Duration,
    pub(super) extent: Extent,
}

/// Length of the measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extent {
    /// Calls during this time.
    Time(Duration),
    /// This number of calls.
    Calls(usize),
}

/// How callers run and share connections.
pub(super) enum Clients {
    /// One connection per client; callers are distributed over the clients.
    Shared { clients: Vec<Client>, callers: usize },
    /// Every caller has its own connection.
    Pooled { clients: Vec<Client>, callers: usize },
    /// A connection for each call.
    Short { clients: Vec<Client>, callers: usize },
    /// A thread and a client for each caller.
    Blocking { clients: Vec<blocking::Client>, short: bool },
}

impl Clients {
    pub(super) fn callers(&self) -> usize {
        match self {
            Self::Shared { callers, .. } | Self::Pooled { callers, .. } | Self::Short { callers, .. } => {
                *callers
            }
            Self::Blocking { clients, .. } => clients.len(),
        }
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (connections, caller) = match self {
            Self::Shared { clients, .. } => (many(clients.len(), "connection"), "caller"),
            Self::Pooled { callers, .. } => (many(*callers, "connection"), "caller"),
            Self::Short { .. } => ("a connection for each call".to_owned(), "caller"),
            Self::Blocking { clients, short: false } => {
                (many(clients.len(), "connection"), "blocking caller")
            }
            Self::Blocking { short: true, .. } => {
                ("a connection for each call".to_owned(), "blocking caller")
            }
        };
        write!(f, "{connections}, {}", many(self.callers(), caller))
    }
}

fn many(count: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

/// Result of the measurement.
pub(super) struct Figures {
    pub(super) tally: Tally,
    pub(super) window: Duration,
    /// The CPU time of this process within the window.
    pub(super) client_cpu: Duration,
    /// The server's process and its CPU time, or why they are not known.
    pub(super) server_cpu: Result<(u32, Duration), String>,
    /// Whether an interrupt ended the load early.
    pub(super) interrupted: bool,
    /// Lost connections, if some calls had none.
    pub(super) lost: Option<Lost>,
}

/// Calls that lost their connection or could not get one.
pub(super) struct Lost {
    pub(super) calls: u64,
    /// When the first of them ended, from the start of the measurement.
    pub(super) after: Duration,
    /// Error of the first of them.
    pub(super) reason: String,
    /// Whether the last call of every caller ended so: the server did not return.
    pub(super) for_good: bool,
}

/// Outcomes of calls.
pub(super) struct Tally {
    /// Latencies of successful calls in nanoseconds.
    pub(super) latencies: Histogram<u64>,
    /// Failed calls by error.
    pub(super) errors: BTreeMap<String, u64>,
    /// When the last of them ended.
    last: Instant,
    /// Number of calls without a connection, and when and how the first of them ended.
    lost: u64,
    first_lost: Option<(Instant, String)>,
    /// Whether the last call of some caller had a connection.
    connected: bool,
}

impl Tally {
    fn new() -> Self {
        // One significant digit more would cost ten times the memory of each caller.
        let latencies = Histogram::new(3).expect("3 digits are possible");
        Self {
            latencies,
            errors: BTreeMap::new(),
            last: Instant::now(),
            lost: 0,
            first_lost: None,
            connected: false,
        }
    }

    fn note(&mut self, now: Instant, latency: Duration, failed: Option<&Status>) {
        self.last = now;
        match failed {
            None => {
                let nanos = latency.as_nanos().try_into().unwrap_or(u64::MAX);
                self.latencies.record(nanos).expect("a histogram that resizes takes any value");
                self.connected = true;
            }
            Some(status) => self.note_failure(now, status),
        }
    }

    #[cold]
    fn note_failure(&mut self, now: Instant, status: &Status) {
        *self.errors.entry(named(status)).or_default() += 1;
        self.connected = status.scope() != Scope::Connection;
        if !self.connected {
            self.lost += 1;
            self.first_lost.get_or_insert_with(|| (now, status.to_string()));
        }
    }

    fn add(mut self, other: Self) -> Self {
        self.latencies.add(&other.latencies).expect("a histogram that resizes takes any other");
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
        self.last = self.last.max(other.last);
        self.lost += other.lost;
        self.first_lost = [self.first_lost, other.first_lost].into_iter().flatten().min_by_key(|(at, _)| *at);
        self.connected |= other.connected;
        self
    }

    fn lost(&self, opened: Instant) -> Option<Lost> {
        let (at, reason) = self.first_lost.as_ref()?;
        Some(Lost {
            calls: self.lost,
            after: at.saturating_duration_since(opened),
            reason: reason.clone(),
            for_good: !self.connected,
        })
    }
}

fn named(status: &Status) -> String {
    match status.number() {
        Some(number) => format!("{} ({number})", status.code()),
        None => status.code().to_string(),
    }
}

impl Load {
    /// Calls until the time is over, the calls are made, or an interrupt arrives.
    pub(super) fn run(self, clients: Clients, server: Result<Process, String>) -> Result<Figures, Failure> {
        let interrupt = Interrupt::watch()?;
        let counters = Counters::new(clients.callers());
        let opens = Instant::now() + self.warmup;
        let closes = match self.extent {
            Extent::Time(duration) => Some(opens + duration),
            Extent::Calls(_) => None,
        };
        let calling = self.start(clients, Window { opens, closes }, &counters, &interrupt)?;
        let progress = match self.extent {
            Extent::Time(duration) => Progress::through(self.warmup + duration),
            Extent::Calls(calls) => Progress::of(calls),
        };

        progress.until(Some(opens), &calling, &counters);
        let before = (cpu::own(), server.as_ref().map(Process::cpu));
        progress.until(closes, &calling, &counters);
        let after = (cpu::own(), server.as_ref().map(Process::cpu));
        let ended = Instant::now();
        progress.finish();

        let tally = calling.wait()?;
        let interrupted = interrupt.is_interrupted();
        let closed = match closes {
            Some(closes) => closes.min(ended),
            None => tally.last,
        };
        Ok(Figures {
            window: closed.saturating_duration_since(opens),
            client_cpu: after.0.saturating_sub(before.0),
            server_cpu: server_cpu(&server, before.1, after.1),
            interrupted,
            lost: tally.lost(opens),
            tally,
        })
    }

    fn start(
        &self,
        clients: Clients,
        window: Window,
        counters: &Counters,
        interrupt: &Interrupt,
    ) -> Result<Calling, Failure> {
        let count = clients.callers();
        let mut callers = Vec::with_capacity(count);
        for (n, counter) in counters.each().enumerate() {
            callers.push(Caller {
                target: self.target.clone(),
                request: self.request.clone(),
                window,
                share: self.extent.share(n, count),
                last: Instant::now(),
                tally: Tally::new(),
                ended: 0,
                counter,
                interrupted: interrupt.subscribe(),
            });
        }
        let (clients, runtime) = match clients {
            Clients::Blocking { clients, .. } => {
                return Ok(Calling::start(move || call_on_threads(clients, callers)));
            }
            Clients::Shared { clients, .. } => {
                let runtime = runtime(clients.len() == 1)?;
                (clients, runtime)
            }
            Clients::Pooled { clients, .. } | Clients::Short { clients, .. } => {
                (clients, runtime(callers.len() == 1)?)
            }
        };
        Ok(Calling::start(move || runtime.block_on(call_all(&clients, callers))))
    }
}

/// Running callers, on their own thread.
struct Calling {
    thread: thread::JoinHandle<Tally>,
    /// Disconnected once they are done.
    done: mpsc::Receiver<()>,
}

impl Calling {
    fn start(work: impl FnOnce() -> Tally + Send + 'static) -> Self {
        let (at_work, done) = mpsc::channel();
        let thread = thread::spawn(move || {
            let _at_work: mpsc::Sender<()> = at_work;
            work()
        });
        Self { thread, done }
    }

    /// Waits for this long, at most until they are done, and returns whether they are.
    fn is_done_after(&self, time: Duration) -> bool {
        self.done.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    }

    fn wait(self) -> Result<Tally, Failure> {
        self.thread.join().map_err(|_| Failure::new("a caller panicked"))
    }
}

impl Extent {
    /// Number of calls of caller `n` of `count`.
    fn share(self, n: usize, count: usize) -> u64 {
        match self {
            Self::Time(_) => u64::MAX,
            Self::Calls(calls) => (calls / count + usize::from(n < calls % count)) as u64,
        }
    }
}

/// One task reads one connection: more threads would only add context switches.
fn runtime(one_connection: bool) -> Result<Runtime, Failure> {
    let mut builder =
        if one_connection { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().build().map_err(|error| Failure::system("start a runtime", &error))
}

async fn call_all(clients: &[Client], callers: Vec<Caller>) -> Tally {
    let callers = callers.into_iter().zip(clients.iter().cycle());
    let running: Vec<_> = callers.map(|(caller, client)| tokio::spawn(caller.run(client.clone()))).collect();
    let mut all = Tally::new();
    for caller in running {
        all = all.add(caller.await.expect("a caller does not panic and is not cancelled"));
    }
    all
}

fn call_on_threads(clients: Vec<blocking::Client>, callers: Vec<Caller>) -> Tally {
    thread::scope(|scope| {
        let callers = callers.into_iter().zip(clients);
        let running: Vec<_> =
            callers.map(|(caller, client)| scope.spawn(move || caller.run_blocking(&client))).collect();
        running
            .into_iter()
            .fold(Tally::new(), |all, caller| all.add(caller.join().expect("a caller does not panic")))
    })
}

/// Makes one call after the other.
struct Caller {
    target: String,
    request: Body,
    window: Window,
    /// Number of measured calls.
    share: u64,
    /// When the last call ended: then the next begins.
    last: Instant,
    tally: Tally,
    ended: u64,
    counter: Arc<Counter>,
    interrupted: oneshot::Receiver<()>,
}

/// Start of the measurement.
#[derive(Debug, Clone, Copy)]
struct Window {
    opens: Instant,
    /// End of the measurement; `None`: once all calls are made.
    closes: Option<Instant>,
}

/// Next step of a caller after a call.
enum NextStep {
    Call,
    /// Pause after a lost connection: the next call would fail at once, and failures would dominate.
    Breathe,
    Stop,
}

impl Caller {
    async fn run(mut self, client: Client) -> Tally {
        let (_alive, idle) = oneshot::channel();
        let mut interrupted = std::mem::replace(&mut self.interrupted, idle);
        // Calls are polled first, so that the other future is not polled before each of them.
        tokio::select! {
            biased;
            () = self.call(&client) => {}
            _ = &mut interrupted => {}
        }
        self.tally
    }

    async fn call(&mut self, client: &Client) {
        self.last = Instant::now();
        loop {
            let called =
                client.call_raw(&self.target, self.request.clone(), client::CallOptions::default()).await;
            match self.ended(called.as_ref().err().map(polyrpc::Error::status)) {
                NextStep::Call => {}
                NextStep::Breathe => {
                    tokio::time::sleep(BREATH).await;
                    self.last = Instant::now();
                }
                NextStep::Stop => return,
            }
        }
    }

    /// An interrupt waits for the call that is being made.
    fn run_blocking(mut self, client: &blocking::Client) -> Tally {
        self.last = Instant::now();
        while self.interrupted.try_recv() == Err(TryRecvError::Empty) {
            let called = client.call_raw(&self.target, self.request.clone(), client::CallOptions::default());
            match self.ended(called.as_ref().err().map(polyrpc::Error::status)) {
                NextStep::Call => {}
                NextStep::Breathe => {
                    thread::sleep(BREATH);
                    self.last = Instant::now();
                }
                NextStep::Stop => break,
            }
        }
        self.tally
    }

    /// A call has ended: one reading of the clock is its end and the start of the next.
    fn ended(&mut self, failed: Option<&Status>) -> NextStep {
        let now = Instant::now();
        if self.window.closes.is_some_and(|closes| now >= closes) {
            return NextStep::Stop;
        }
        if now >= self.window.opens {
            self.tally.note(now, now - self.last, failed);
            self.ended += 1;
            self.counter.0.store(self.ended, Ordering::Relaxed);
            if self.ended == self.share {
                return NextStep::Stop;
            }
        }
        self.last = now;
        match failed {
            Some(status) if status.scope() == Scope::Connection => NextStep::Breathe,
            _ => NextStep::Call,
        }
    }
}

const BREATH: Duration = Duration::from_millis(10);

/// Number of finished calls per caller, for the progress bar.
struct Counters(Vec<Arc<Counter>>);

/// Padded to a cache line, so that callers do not slow each other down by counting.
#[repr(align(64))]
#[derive(Default)]
struct Counter(AtomicU64);

impl Counters {
    fn new(callers: usize) -> Self {
        Self((0..callers).map(|_| Arc::default()).collect())
    }

    fn each(&self) -> impl Iterator<Item = Arc<Counter>> {
        self.0.iter().cloned()
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}

/// The progress bar on standard error; none if that is not a terminal.
struct Progress {
    bar: ProgressBar,
    /// Counts calls, not time.
    counts: bool,
}

impl Progress {
    fn through(total: Duration) -> Self {
        Self::new(total.as_millis().try_into().unwrap_or(u64::MAX), false)
    }

    fn of(calls: usize) -> Self {
        Self::new(calls as u64, true)
    }

    fn new(length: u64, counts: bool) -> Self {
        let style = ProgressStyle::with_template("{bar:40.cyan} {msg}").expect("a valid template");
        let bar = ProgressBar::new(length).with_style(style.progress_chars("━╸─"));
        Self { bar, counts }
    }

    /// Sleeps until then, at most until the callers are done, and updates the bar.
    fn until(&self, then: Option<Instant>, calling: &Calling, counters: &Counters) {
        loop {
            let left = then.map_or(FRAME, |then| then.saturating_duration_since(Instant::now()));
            if left.is_zero() || calling.is_done_after(left.min(FRAME)) {
                return;
            }
            self.show(counters);
        }
    }

    fn show(&self, counters: &Counters) {
        let calls = counters.sum();
        let elapsed = || self.bar.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        self.bar.set_position(if self.counts { calls } else { elapsed() });
        self.bar.set_message(match calls {
            0 => "warming up".to_owned(),
            calls => format!("{} calls", grouped(calls)),
        });
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

const FRAME: Duration = Duration::from_millis(100);

fn server_cpu(
    server: &Result<Process, String>,
    before: Result<Option<Duration>, &String>,
    after: Result<Option<Duration>, &String>,
) -> Result<(u32, Duration), String> {
    match (server, before, after) {
        (Ok(process), Ok(Some(before)), Ok(Some(after))) => Ok((process.id, after.saturating_sub(before))),
        (Err(why), ..) => Err(why.clone()),
        _ => Err("the server's process has ended".to_owned()),
    }
}

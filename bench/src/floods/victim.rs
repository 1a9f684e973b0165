//! The well-behaved client: callers with a fixed rate over one connection, which count every call.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use hdrhistogram::Histogram;
use polyrpc::Client;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant as TokioInstant, MissedTickBehavior, interval_at};

use crate::process::{self, Ready};
use crate::proto::example::{EchoRequest, EchoServiceClient};
use crate::rounds::Spread;

/// Arguments of the well-behaved client.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct VictimOptions {
    /// The server to call.
    #[arg(long)]
    pub(super) connect: SocketAddr,
    /// Duration in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    pub(super) window: u64,
    /// The core to run on.
    #[arg(long)]
    pub(super) core: Option<usize>,
}

impl VictimOptions {
    /// The equivalent command line.
    pub(super) fn to_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "floods-victim".to_owned(),
            format!("--connect={}", self.connect),
            format!("--window={}", self.window),
        ];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }
}

/// Main function of the well-behaved client's process.
pub(crate) fn run_victim(options: &VictimOptions) -> io::Result<()> {
    process::prepare(options.core)?;
    let victim = Victim::connect(options.connect)?;
    victim.run(Duration::from_millis(500))?;
    process::write_report(&Ready {})?;
    let mut commands = io::stdin().lines();
    if commands.next().transpose()?.is_some() {
        process::write_report(&victim.run(Duration::from_millis(options.window))?)?;
    }
    commands.try_for_each(|line| line.map(drop))
}

/// Results of the well-behaved client's calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct VictimResult {
    /// Number of calls.
    pub(super) calls: u64,
    /// Failed calls, and those with a wrong response.
    pub(super) lost: u64,
    /// Latency. While a call is late, the calls due meanwhile count as late too.
    pub(super) p50_us: f64,
    /// The median over all seconds of each second's 99th percentile. Interference of the machine comes in
    /// bursts, the effect of an attacker is continuous.
    pub(super) p99_us: f64,
    /// Maximum over all calls.
    pub(super) p99_of_all_us: f64,
    pub(super) max_us: f64,
}

/// Number of callers, and the interval of each: 2,000 calls a second.
const CALLERS: u32 = 4;
const CALL_INTERVAL: Duration = Duration::from_millis(2);

/// A well-behaved client.
#[derive(Debug)]
pub(super) struct Victim {
    runtime: Runtime,
    stub: EchoServiceClient,
}

impl Victim {
    pub(super) fn connect(server: SocketAddr) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = Client::new(&format!("grpc://{server}"))
            .map_err(|error| io::Error::other(error.into_status()))?;
        Ok(Self { runtime, stub: EchoServiceClient::new(client) })
    }

    /// Makes calls for the duration of `window`.
    pub(super) fn run(&self, window: Duration) -> io::Result<VictimResult> {
        let record = Arc::new(Mutex::new(Record::new(window)));
        self.runtime.block_on(async {
            let began = TokioInstant::now();
            let callers: Vec<_> = (0..CALLERS)
                .map(|n| {
                    let first = began + CALL_INTERVAL * n / CALLERS;
                    tokio::spawn(call(self.stub.clone(), first, began + window, record.clone()))
                })
                .collect();
            for caller in callers {
                caller.await.map_err(io::Error::other)?;
            }
            Ok::<_, io::Error>(())
        })?;
        let record = record.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(record.finish())
    }
}

/// Calls repeatedly. Latency counts from the actual start of a call: late timers are not the server's
/// fault.
async fn call(stub: EchoServiceClient, first: TokioInstant, until: TokioInstant, record: Arc<Mutex<Record>>) {
    let request = EchoRequest { message: "A".repeat(32), ..Default::default() };
    let mut ticks = interval_at(first, CALL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ticks.tick().await < until {
        let began = Instant::now();
        let is_right = match stub.echo(request.clone()).await {
            Ok(answer) => answer.message == request.message,
            Err(error) => {
                eprintln!("a call was lost: {error}");
                false
            }
        };
        record.lock().unwrap_or_else(PoisonError::into_inner).record_call(began.elapsed(), is_right);
    }
}

/// The calls of all callers. They run on one thread, so the lock is never contended.
#[derive(Debug)]
struct Record {
    began: Instant,
    calls: u64,
    lost: u64,
    /// Latencies of the calls that ended in each second.
    seconds: Vec<Histogram<u64>>,
}

impl Record {
    fn new(window: Duration) -> Self {
        // From 1 ns to 60 s with three digits.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order");
        let seconds = vec![histogram; window.as_secs().max(1) as usize];
        Self { began: Instant::now(), calls: 0, lost: 0, seconds }
    }

    fn record_call(&mut self, latency: Duration, is_right: bool) {
        self.calls += 1;
        self.lost += u64::from(!is_right);
        let now = (self.began.elapsed().as_secs() as usize).min(self.seconds.len() - 1);
        let second = &mut self.seconds[now];
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).min(second.high());
        second.record_correct(latency, CALL_INTERVAL.as_nanos() as u64).expect("it is within the bounds");
    }

    fn finish(&self) -> VictimResult {
        let us = |ns: u64| ns as f64 / 1e3;
        let mut all = self.seconds[0].clone();
        self.seconds[1..].iter().for_each(|second| all.add(second).expect("they have the same bounds"));
        let p99s = self.seconds.iter().filter(|second| !second.is_empty());
        let p99 = Spread::from_figures(p99s.map(|second| us(second.value_at_quantile(0.99))));
        VictimResult {
            calls: self.calls,
            lost: self.lost,
            p50_us: us(all.value_at_quantile(0.5)),
            p99_us: p99.map_or(f64::INFINITY, |spread| spread.median),
            p99_of_all_us: us(all.value_at_quantile(0.99)),
            max_us: us(all.max()),
        }
    }
}

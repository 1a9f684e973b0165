//! A closed loop of callers, measured.

use std::fs;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::Failure;

/// The load of a client. The options are those of the clients that `polyrpc bench suite` starts.
pub(crate) struct Load {
    pub(crate) address: String,
    pub(crate) contract: String,
    pub(crate) message: Vec<u8>,
    pub(crate) callers: usize,
    pub(crate) connections: usize,
    warmup: Duration,
    window: Duration,
    interval: Duration,
}

impl Load {
    pub(crate) fn parse(options: &[&str]) -> Result<Self, Failure> {
        let mut load = Self {
            address: String::new(),
            contract: "say581".to_owned(),
            message: Vec::new(),
            callers: 1,
            connections: 1,
            warmup: Duration::from_millis(500),
            window: Duration::from_secs(1),
            interval: Duration::ZERO,
        };
        let seconds = |text: &str| Ok::<_, Failure>(Duration::try_from_secs_f64(text.parse()?)?);
        for option in options.chunks(2) {
            match option {
                ["--address", value] => load.address = (*value).to_owned(),
                ["--contract", value] => load.contract = (*value).to_owned(),
                ["--message", value] => load.message = fs::read(value)?,
                ["--callers", value] => load.callers = value.parse()?,
                ["--connections", value] => load.connections = value.parse()?,
                ["--warmup", value] => load.warmup = seconds(value)?,
                ["--window", value] => load.window = seconds(value)?,
                ["--interval", value] => load.interval = seconds(value)?,
                _ => return Err(format!("unknown option {option:?}").into()),
            }
        }
        match load.connections {
            1.. if load.connections <= load.callers => Ok(load),
            connections => {
                Err(format!("{} callers cannot use {connections} connections", load.callers).into())
            }
        }
    }
}

/// One call, with its reply checked.
pub(crate) trait Call: Clone + Send + 'static {
    fn call(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const ENDED: u8 = 2;

/// A histogram for each of thousands of callers would take gigabytes.
const SHARDS: usize = 64;
const HOUR: u64 = 3_600_000_000_000;

struct Shared {
    phase: AtomicU8,
    failed: AtomicU64,
    error: Mutex<Option<String>>,
    times: Vec<Mutex<Histogram<u64>>>,
    interval: Duration,
}

/// Calls over all connections, each of which has made one call, and prints the result.
pub(crate) async fn run(load: &Load, connections: Vec<impl Call>) -> Result<(), Failure> {
    let times = (0..SHARDS).map(|_| Ok(Mutex::new(Histogram::new_with_bounds(1, HOUR, 3)?)));
    let shared = Arc::new(Shared {
        phase: AtomicU8::new(WARMING),
        failed: AtomicU64::new(0),
        error: Mutex::new(None),
        times: times.collect::<Result<_, Failure>>()?,
        interval: load.interval,
    });
    let callers: Vec<_> = (0..load.callers)
        .map(|number| {
            let connection = connections[number % connections.len()].clone();
            tokio::spawn(repeat(connection, number, Arc::clone(&shared)))
        })
        .collect();
    tokio::time::sleep(load.warmup).await;
    let before = cpu();
    println!("begin");
    let begun = Instant::now();
    shared.phase.store(MEASURING, Ordering::Relaxed);
    tokio::time::sleep(load.window).await;
    shared.phase.store(ENDED, Ordering::Relaxed);
    let (window, spent) = (begun.elapsed(), cpu().saturating_sub(before));
    println!("end");
    for caller in callers {
        // One that hangs does not keep the result.
        let _ = tokio::time::timeout(Duration::from_secs(5), caller).await;
    }
    let mut sum = Histogram::<u64>::new_with_bounds(1, HOUR, 3)?;
    for shard in &shared.times {
        sum.add(&*shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))?;
    }
    let mut encoded = Vec::new();
    V2DeflateSerializer::new().serialize(&sum, &mut encoded)?;
    let error = shared.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    let result = json!({
        "succeeded": sum.len(),
        "failed": shared.failed.load(Ordering::Relaxed),
        "error": error,
        "window_s": window.as_secs_f64(),
        "cpu_s": spent.as_secs_f64(),
        "rss_bytes": peak_memory(),
        "hdr": base64::engine::general_purpose::STANDARD.encode(&encoded),
    });
    println!("{result}");
    Ok(())
}

async fn repeat(mut connection: impl Call, number: usize, shared: Arc<Shared>) {
    // The end of a call is the start of the next one, so that no time of a caller is left out.
    let mut last = Instant::now();
    while shared.phase.load(Ordering::Relaxed) != ENDED {
        let outcome = connection.call().await;
        let now = Instant::now();
        if shared.phase.load(Ordering::Relaxed) == MEASURING {
            shared.record(number, outcome, now.duration_since(last));
        }
        if shared.interval.is_zero() {
            last = now;
        } else {
            tokio::time::sleep(shared.interval.saturating_sub(now.duration_since(last))).await;
            last = Instant::now();
        }
    }
}

impl Shared {
    fn record(&self, number: usize, outcome: Result<(), Failure>, time: Duration) {
        match outcome {
            Ok(()) => {
                let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let mut times =
                    self.times[number % SHARDS].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                times.saturating_record(nanos);
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let mut first = self.error.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                first.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

//! Calls at a fixed rate, independent of replies.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use hdrhistogram::Histogram;
use polyrpc::{Client, Code};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::KnownClient;
use crate::process;
use crate::run::parse_seconds;

/// Arguments of the caller.
#[derive(Debug, Args)]
pub(crate) struct CallerOptions {
    /// The server to call, as a URL.
    #[arg(long)]
    pub(super) connect: String,
    /// Calls a second.
    #[arg(long, value_parser = parse_rate)]
    pub(super) rate: f64,
    /// Warm-up in seconds.
    #[arg(long, value_parser = parse_seconds)]
    pub(super) settle: f64,
    /// Duration of the measurement, in seconds.
    #[arg(long, value_parser = parse_seconds)]
    pub(super) seconds: f64,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1e9).contains(rate));
    rate.ok_or_else(|| "expected 0.001 to 1e9 calls a second".to_owned())
}

impl CallerOptions {
    pub(super) fn to_arguments(&self) -> Vec<String> {
        let Self { connect, rate, settle, seconds } = self;
        vec![
            "overload-caller".to_owned(),
            format!("--connect={connect}"),
            format!("--rate={rate}"),
            format!("--settle={settle}"),
            format!("--seconds={seconds}"),
        ]
    }
}

/// Results of one load.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answers {
    /// Duration of the measurement.
    pub(super) seconds: f64,
    /// Correct replies.
    pub(super) accepted: u64,
    /// Calls rejected for overload.
    pub(super) refused: u64,
    /// Other failures.
    pub(super) failed: u64,
    /// Latency of accepted calls, from their due time.
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// Latency of rejected calls.
    pub(super) refused_p99_ms: f64,
    /// Delay of the client's own call starts.
    pub(super) begun_late_p99_ms: f64,
}

impl Answers {
    /// Correctly answered calls per second.
    pub(super) fn goodput(&self) -> f64 {
        self.accepted as f64 / self.seconds
    }
}

/// Main function of the caller's process.
pub(crate) fn run_caller(options: &CallerOptions) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    process::write_report(&runtime.block_on(load(options))?)
}

/// Timeout of a caller: longer than a call should ever take.
const TIMEOUT: Duration = Duration::from_secs(10);

async fn load(options: &CallerOptions) -> io::Result<Answers> {
    let client = Client::builder(&options.connect).timeout(TIMEOUT).build();
    let stub = KnownClient::new(client.map_err(|error| io::Error::other(error.into_status()))?);
    let recorder = Arc::new(Mutex::new(CallRecorder::new()));
    let mut calls = JoinSet::new();
    let began = Instant::now();
    let from = began + Duration::from_secs_f64(options.settle);
    let until = from + Duration::from_secs_f64(options.seconds);
    for n in 0_u64.. {
        let due = began + Duration::from_secs_f64(n as f64 / options.rate);
        if due >= until {
            break;
        }
        sleep_until(due).await;
        while calls.try_join_next().is_some() {}
        let (stub, recorder) = (stub.clone(), recorder.clone());
        calls.spawn(async move {
            let start_delay = due.elapsed();
            let result = stub.cost(Bytes::from_static(b"x")).await;
            if due >= from {
                let failure = result.err().map(|error| error.code());
                recorder.lock().unwrap_or_else(PoisonError::into_inner).record_call(
                    failure,
                    due.elapsed(),
                    start_delay,
                );
            }
        });
    }
    calls.join_all().await;
    let recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(recorder.answers(options.seconds))
}

struct CallRecorder {
    accepted: Histogram<u64>,
    refused: Histogram<u64>,
    start_delay: Histogram<u64>,
    failed: u64,
}

impl CallRecorder {
    fn new() -> Self {
        // From 1 µs to 60 s with three digits.
        let histogram = || Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order");
        Self { accepted: histogram(), refused: histogram(), start_delay: histogram(), failed: 0 }
    }

    fn record_call(&mut self, failure: Option<Code>, latency: Duration, start_delay: Duration) {
        self.start_delay.saturating_record(start_delay.as_micros() as u64);
        match failure {
            None => self.accepted.saturating_record(latency.as_micros() as u64),
            Some(Code::ResourceExhausted) => self.refused.saturating_record(latency.as_micros() as u64),
            Some(_) => self.failed += 1,
        }
    }

    fn answers(&self, seconds: f64) -> Answers {
        let ms = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Answers {
            seconds,
            accepted: self.accepted.len(),
            refused: self.refused.len(),
            failed: self.failed,
            p50_ms: ms(&self.accepted, 0.5),
            p99_ms: ms(&self.accepted, 0.99),
            max_ms: ms(&self.accepted, 1.0),
            refused_p99_ms: ms(&self.refused, 0.99),
            begun_late_p99_ms: ms(&self.start_delay, 0.99),
        }
    }
}

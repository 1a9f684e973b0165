//! `overload`: a method of known cost, called at half its capacity, at its capacity, and at three times its capacity,
//! with the automatic concurrency limit (`auto`).
//!
//! The method blocks one of [`THREADS`] threads for [`HELD`], like one that waits for a database: this limits the calls
//! per second on any machine. [`load`] calls at a fixed rate, independent of replies. The same server runs through all
//! three, as in production.

mod load;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use polyrpc::server::ConcurrencyLimit;
use polyrpc::{Result, Server};
use serde::Serialize;
use tokio::runtime::Builder;

use self::load::Answers;
use crate::bar::{Bar, Limit};
use crate::process::{self, Child, Listening};
use crate::report::{self, Machine};
use crate::run::{REPORT_TIMEOUT, parse_seconds};

pub(crate) use self::load::{CallerOptions, run_caller};

/// Options of the suite.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration of the measurement of each load, in seconds.
    #[arg(long, default_value_t = 10.0, value_parser = parse_seconds)]
    seconds: f64,
    /// Warm-up of each load.
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    settle: f64,
    /// The concurrency limit: `auto`, `timeout`, a number, `unlimited`.
    #[arg(long, default_value = "auto")]
    limit: ConcurrencyLimit,
    /// The scheme of the protocol.
    #[arg(long, default_value = "baidu-std")]
    protocol: String,
    /// File to write all results to.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Arguments of the server.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// The concurrency limit.
    #[arg(long, default_value = "auto")]
    limit: ConcurrencyLimit,
}

const THREADS: usize = 8;
const HELD: Duration = Duration::from_millis(10);
/// Capacity in calls per second.
const CAPACITY: f64 = THREADS as f64 * 1e9 / HELD.as_nanos() as f64;

/// Required share of the throughput at capacity under triple load.
const GOODPUT: f64 = 0.9;
/// Maximum ratio of the p99 of accepted calls to that at half load.
const LATER: f64 = 2.0;
/// Maximum p99 of rejections.
const REFUSED_MS: f64 = 5.0;

/// All results, and the conditions of the measurement.
#[derive(Debug, Serialize)]
struct Measurement {
    machine: Machine,
    command: Vec<String>,
    half: Answers,
    full: Answers,
    triple: Answers,
}

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let server = Child::start(&["overload-server".to_owned(), format!("--limit={}", options.limit)])?;
    let Listening { address } = server.read_report(REPORT_TIMEOUT)?;
    let load = |times: f64| {
        eprintln!("measuring {times} of what can be answered");
        let caller = CallerOptions {
            connect: format!("{}://{address}", options.protocol),
            rate: CAPACITY * times,
            settle: options.settle,
            seconds: options.seconds,
        };
        let within = Duration::from_secs_f64(options.settle + options.seconds) + REPORT_TIMEOUT;
        Child::start(&caller.to_arguments())?.read_report(within)
    };
    let measured = Measurement {
        machine: Machine::current(),
        command: std::env::args().collect(),
        half: load(0.5)?,
        full: load(1.0)?,
        triple: load(3.0)?,
    };
    let bars = measured.evaluate();
    measured.print(options, &bars);
    if let Some(path) = &options.json {
        serde_json::to_writer_pretty(File::create(path)?, &measured)?;
    }
    Ok(if bars.iter().all(Bar::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Measurement {
    fn evaluate(&self) -> [Bar; 3] {
        let Self { half, full, triple, .. } = self;
        let clean = [half, full, triple].iter().all(|answers| answers.failed == 0 && answers.accepted > 0);
        let bar = |name: &str, value: f64, limit| Bar {
            name: format!("overload_{name}"),
            value: Some(value),
            limit,
            clean,
        };
        [
            bar("goodput", triple.goodput() / full.goodput(), Limit::RatioAtLeast(GOODPUT)),
            bar("p99", triple.p99_ms / half.p99_ms, Limit::RatioAtMost(LATER)),
            bar("refused", triple.refused_p99_ms, Limit::MillisAtMost(REFUSED_MS)),
        ]
    }

    fn print(&self, options: &Options, bars: &[Bar]) {
        let method = format!(
            "{THREADS} threads, {HELD:?} a call: {CAPACITY} calls a second; limit {}; {} over loopback; each load for {} s \
             and measured for {} s; open loop, latency from when a call was due",
            options.limit, options.protocol, options.settle, options.seconds
        );
        report::print_conditions(&self.machine, &self.command, &method);
        println!();
        println!(
            "{:<8} {:>10} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>12}",
            "load",
            "accepted/s",
            "refused/s",
            "failed",
            "p50 ms",
            "p99 ms",
            "max ms",
            "late ms",
            "refused p99"
        );
        for (name, answers) in [("half", &self.half), ("full", &self.full), ("triple", &self.triple)] {
            println!(
                "{name:<8} {:>10.0} {:>10.0} {:>8} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>12.2}",
                answers.goodput(),
                answers.refused as f64 / answers.seconds,
                answers.failed,
                answers.p50_ms,
                answers.p99_ms,
                answers.max_ms,
                answers.begun_late_p99_ms,
                answers.refused_p99_ms
            );
        }
        println!();
        bars.iter().for_each(|bar| println!("{bar}"));
    }
}

#[polyrpc::service(name = "bench.Known", codec = polyrpc::codec::Raw)]
trait Known {
    /// Blocks a thread for a fixed time.
    #[rpc(blocking)]
    async fn cost(&self, body: Bytes) -> Result<Bytes>;
}

struct Holder;

impl Known for Holder {
    async fn cost(&self, body: Bytes) -> Result<Bytes> {
        thread::sleep(HELD);
        Ok(body)
    }
}

/// Main function of the server's process.
pub(crate) fn serve(options: &ServerOptions) -> io::Result<()> {
    let runtime =
        Builder::new_multi_thread().worker_threads(1).max_blocking_threads(THREADS).enable_all().build()?;
    let server =
        Server::new().service(KnownServer::new(Holder)).concurrency_limit_per_method(options.limit.clone());
    let bound = runtime.block_on(server.bind("127.0.0.1:0"))?;
    let address = bound.address().to_string().parse().map_err(io::Error::other)?;
    runtime.spawn(bound.run());
    process::report_usage(address)
}

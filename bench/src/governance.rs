//! `governance`: the cost of discovery, load balancing, retries, metrics and outlier detection.
//!
//! The same calls are made alternately by a bare client and by one with all of that over one endpoint, in this process;
//! the ratio of their CPU times is the cost of governance. Each load balancer also picks among a thousand servers.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use polyrpc::client::balance::{AttemptOutcome, Candidate, LoadBalancer, P2c, PickContext, Policy};
use polyrpc::client::{self, CircuitBreaker, FailMode};
use polyrpc::codec::Body;
use polyrpc::discovery::{Attributes, Instance, List};
use polyrpc::layers::Metrics;
use polyrpc::{Client, Format};
use tokio::runtime::{Builder, Runtime};

use crate::bar::{Bar, Limit};
use crate::exchange::Protocol;
use crate::load::{SharedLatencyRecorder, Tally, to_io_error};
use crate::measure;
use crate::report::{self, Machine};
use crate::rounds::{Series, Spread, interleave};
use crate::run::{parse_seconds, setup, start_server};
use crate::subject::{Shape, Subject};

/// Options of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of rounds of each client.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Length of each window, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = parse_seconds)]
    seconds: f64,
}

/// Maximum CPU time of a governed call, as a multiple of a bare one's.
const CALL_LIMIT: f64 = 1.7;

/// Maximum duration of a pick among [`SERVERS`], as a multiple of one by `random`.
const PICK_LIMIT: f64 = 10.0;

const SERVERS: u32 = 1000;

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let command: Vec<_> = std::env::args().collect();
    let method = format!(
        "{CALLERS} callers of an rpcx echo of {PAYLOAD} bytes on one connection, bare and governed in turn, {} windows \
         of {} s each; {PICKS} choices among {SERVERS} servers",
        options.rounds, options.seconds
    );
    report::print_conditions(&machine, &command, &method);
    let mut bars = vec![call_bar(options)?];
    let random = policy("random")?;
    for name in BALANCERS {
        bars.push(pick_bar(name, &policy(name)?, &random));
    }
    println!();
    bars.iter().for_each(|bar| println!("{bar}"));
    Ok(if bars.iter().all(Bar::is_ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The client that makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bare,
    Governed,
}

fn call_bar(options: &Options) -> io::Result<Bar> {
    let (_server, listening) =
        start_server(setup(Subject::Polyrpc, Shape::Shared(CALLERS))?, Protocol::Rpcx, PAYLOAD, None)?;
    let address = listening.address.to_string();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let bare = Client::new(&format!("rpcx://{address}")).map_err(to_io_error)?;
    let governed = governed_client(&address)?;
    let window = Duration::from_secs_f64(options.seconds.clamp(0.01, 3600.0));
    let measured = interleave(options.rounds.max(1), &[Kind::Bare, Kind::Governed], |kind| {
        let client = match kind {
            Kind::Bare => &bare,
            Kind::Governed => &governed,
        };
        window_of(&runtime, client, window)
    });
    Ok(evaluate(&measured))
}

/// With all features of governance, over one endpoint.
fn governed_client(address: &str) -> io::Result<Client> {
    Client::builder("rpcx://one")
        .discover(List::new([Instance::tcp(address)]))
        .balance(P2c::new())
        .fail_mode(FailMode::Failover)
        .retries(3)
        .circuit_breaker(CircuitBreaker::consecutive(5, Duration::from_secs(10)))
        .layer(Metrics::new())
        .timeout(Duration::from_secs(10))
        .build()
        .map_err(to_io_error)
}

fn evaluate(measured: &[Series<Kind, Window>]) -> Bar {
    for series in measured {
        if let Some(Spread { median, min, max }) = series.spread(|window| window.cpu_us) {
            println!("{:<9?} {median:.3} µs of CPU a call ({min:.3} to {max:.3})", series.subject);
        }
    }
    let series = |kind| measured.iter().find(|series| series.subject == kind);
    // Within each round, since the machine varies.
    let ratio = series(Kind::Governed).zip(series(Kind::Bare));
    let ratio = ratio.and_then(|(governed, bare)| governed.ratio(bare, |window| window.cpu_us));
    Bar {
        name: "governance_cpu".to_owned(),
        value: ratio.map(|ratio| ratio.median),
        limit: Limit::RatioAtMost(CALL_LIMIT),
        clean: measured
            .iter()
            .flat_map(|series| &series.rounds)
            .all(|round| round.as_ref().is_ok_and(|window| window.tally.errors == 0)),
    }
}

/// Result of a window.
#[derive(Debug)]
struct Window {
    cpu_us: f64,
    tally: Tally,
}

const CALLERS: usize = 64;
const PAYLOAD: usize = 32;

fn window_of(runtime: &Runtime, client: &Client, window: Duration) -> io::Result<Window> {
    // One-time work is not part of the cost of a call.
    let warm_up = call(client.clone(), SharedLatencyRecorder::start(Duration::from_millis(50)));
    runtime.block_on(warm_up).map_err(to_io_error)?;
    let latencies = SharedLatencyRecorder::start(window);
    let before = measure::cpu_time();
    runtime.block_on(async {
        let callers: Vec<_> =
            (0..CALLERS).map(|_| tokio::spawn(call(client.clone(), latencies.clone()))).collect();
        for caller in callers {
            caller.await.map_err(io::Error::other)?.map_err(to_io_error)?;
        }
        Ok::<_, io::Error>(())
    })?;
    let spent = measure::cpu_time() - before;
    let tally = latencies.finish();
    Ok(Window { cpu_us: spent.as_secs_f64() * 1e6 / tally.calls as f64, tally })
}

/// Calls until the window closes.
async fn call(client: Client, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
    let body = Body::new(Format::Raw, Bytes::from_static(&[b'A'; PAYLOAD]));
    let mut began = latencies.started();
    while latencies.is_open_at(began) {
        let reply = client.call_raw("Echo/Raw", body.clone(), client::CallOptions::default()).await?;
        began = latencies.record_call(began, reply.message.bytes == body.bytes);
    }
    Ok(())
}

/// Number of timed picks in a turn.
const PICKS: u32 = 100_000;
const PICK_ROUNDS: usize = 3;

fn policy(name: &str) -> io::Result<Policy> {
    name.parse().map_err(to_io_error)
}

/// Compares the picks of a balancer with those of another, in turn.
fn pick_bar(name: &str, balance: &dyn LoadBalancer, random: &dyn LoadBalancer) -> Bar {
    let turns: Option<Vec<_>> =
        (0..PICK_ROUNDS).map(|_| Some((pick_time(balance)?, pick_time(random)?))).collect();
    let turns = turns.unwrap_or_default();
    let spread = |figure: fn(&(f64, f64)) -> f64| Spread::from_figures(turns.iter().map(figure));
    if let Some(Spread { median, min, max }) = spread(|(own, _)| own * 1e9) {
        println!("{name}: {median:.0} ns a pick ({min:.0} to {max:.0})");
    }
    Bar {
        name: format!("governance_pick_{}", name.split(':').next().unwrap_or(name)),
        value: spread(|(own, random)| own / random).map(|ratio| ratio.median),
        limit: Limit::RatioAtMost(PICK_LIMIT),
        clean: true,
    }
}

/// Time of a pick in seconds; `None` if there was a pick without a server.
fn pick_time(balance: &dyn LoadBalancer) -> Option<f64> {
    let candidates: Vec<_> = (0..SERVERS).map(server).map(Candidate::new).collect();
    let pick = balance.picker(&candidates);
    let now = Instant::now();
    // Every server has had a call, so that the load balancers have data.
    for index in 0..candidates.len() {
        let latency = Duration::from_micros(100 + index as u64 % 50);
        pick.call_started(index, now);
        pick.call_finished(index, &AttemptOutcome::new(latency, now));
    }
    let context = |key: u32| {
        let mut context = PickContext::new(&candidates);
        (context.service, context.method, context.now) = ("Echo", "Raw", now);
        (context.key, context.request) = (Some(u64::from(key.wrapping_mul(2_654_435_761))), b"request");
        context
    };
    let began = Instant::now();
    let chosen = (0..PICKS).filter(|&key| std::hint::black_box(pick.pick(&context(key))).is_some()).count();
    let a_pick = began.elapsed() / PICKS;
    (chosen == PICKS as usize).then_some(a_pick.as_secs_f64())
}

/// Every load balancer with its own algorithm, by name. The one by latency is the smooth one after measuring.
const BALANCERS: [&str; 14] = [
    "random",
    "rr",
    "swrr",
    "wrr",
    "wr",
    "least",
    "least_reported",
    "p2c",
    "la",
    "doublejump",
    "jump",
    "c_murmurhash",
    "c_ketama",
    "closest:latitude=52.5 longitude=13.4",
];

/// One of many instances, as described by a registry.
fn server(n: u32) -> Instance {
    let degrees = |n: u32| f64::from(n % 90).to_string();
    let attributes = Attributes::new()
        .with("weight", (1 + n % 10).to_string())
        .with("latitude", degrees(n))
        .with("longitude", degrees(n / 90));
    Instance::tcp(format!("10.0.{}.{}:8972", n / 256, n % 256)).with(attributes)
}

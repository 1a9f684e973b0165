//! Computing handlers, as in the seed: their share of the cores, and the latency of light calls.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::peer::Peer;
use super::server::add_up;
use super::task::{ClientOptions, Method};
use super::{Options, ghz};
use crate::bar::{Bar, Limit};
use crate::process::Done;
use crate::report::{dash, with_spread};
use crate::rounds::{self, Series};

/// The seed's number of additions.
const ADDITIONS: u64 = 10_000_000;

const WINDOW: Duration = Duration::from_secs(3);

/// Result of one server in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    /// Heavy calls per second, relative to the loop alone on all cores just before and after.
    of_loop: f64,
    heavy_per_second: f64,
    /// The same with ghz, which itself needs much of the cores.
    of_loop_under_ghz: Option<f64>,
    /// Slowdown of the loop alone at its 99th percentile: the interference of the machine
    /// itself.
    machine_stall_ms: f64,
    /// Latency of light calls during heavy ones.
    light_p50_ms: f64,
    light_p99_ms: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Measured {
    series: Vec<Series<Peer, Outcome>>,
}

pub(super) fn measure(options: &Options, peers: &[Peer]) -> Option<Measured> {
    options.is_chosen("heavy").then(|| {
        eprintln!("measuring heavy");
        Measured { series: rounds::interleave(options.rounds, peers, load) }
    })
}

fn load(peer: Peer) -> io::Result<Outcome> {
    let before = measure_alone();
    let (_server, address) = peer.start(ADDITIONS)?;
    let heavy = ClientOptions {
        method: Method::Hello,
        connections: 10,
        window: WINDOW.as_millis() as u64,
        ..ClientOptions::echo(address)
    };
    let heavy_per_second = rate(&heavy)?;
    // The speed of a virtual machine varies by some percent from second to second.
    let after = measure_alone();
    let alone = (before.per_second + after.per_second) / 2.0;
    let (light_p50_ms, light_p99_ms) = measure_light_calls(&heavy)?;
    let ghz_rate = ghz::run(address, (alone * WINDOW.as_secs_f64()) as u64);
    Ok(Outcome {
        of_loop: heavy_per_second / alone,
        heavy_per_second,
        of_loop_under_ghz: ghz_rate.ok().map(|report| report.calls_per_second / alone),
        machine_stall_ms: (before.stall_ms + after.stall_ms) / 2.0,
        light_p50_ms,
        light_p99_ms,
    })
}

/// The loop with all cores otherwise idle.
struct Alone {
    per_second: f64,
    stall_ms: f64,
}

fn measure_alone() -> Alone {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let each: Vec<Vec<Duration>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(loops_on_this_core)).collect();
        threads.into_iter().map(|thread| thread.join().expect("the loop does not panic")).collect()
    });
    let rate = |loops: &Vec<Duration>| loops.len() as f64 / loops.iter().sum::<Duration>().as_secs_f64();
    let per_second = each.iter().map(rate).sum();
    let mut all = each.concat();
    all.sort_unstable();
    let stall = all[all.len() * 99 / 100].saturating_sub(all[all.len() / 2]);
    Alone { per_second, stall_ms: stall.as_secs_f64() * 1e3 }
}

/// Duration of each loop.
fn loops_on_this_core() -> Vec<Duration> {
    let began = Instant::now();
    let mut loops = Vec::new();
    while began.elapsed() < WINDOW {
        let lap = Instant::now();
        add_up(ADDITIONS);
        loops.push(lap.elapsed());
    }
    loops
}

fn rate(options: &ClientOptions) -> io::Result<f64> {
    let (mut client, _) = options.start()?;
    client.send_go()?;
    let Done { tally, .. } = options.wait_for_end(&client)?;
    Ok(tally.calls as f64 / (tally.elapsed_ns as f64 / 1e9))
}

/// Median and 99th percentile of light calls in milliseconds, at 400 a second, during heavy ones.
fn measure_light_calls(heavy: &ClientOptions) -> io::Result<(f64, f64)> {
    let mut light = ClientOptions::echo(heavy.connect);
    light.callers = 4;
    light.every = 10_000;
    light.window = heavy.window - heavy.window / 10;
    let (mut heavy_client, _) = heavy.start()?;
    let (mut light_client, _) = light.start()?;
    heavy_client.send_go()?;
    light_client.send_go()?;
    let Done { tally, .. } = light.wait_for_end(&light_client)?;
    heavy.wait_for_end(&heavy_client)?;
    if tally.errors > 0 {
        return Err(io::Error::other(format!("{} wrong replies to light calls", tally.errors)));
    }
    Ok((tally.p50_ns as f64 / 1e6, tally.p99_ns as f64 / 1e6))
}

impl Measured {
    pub(super) fn bars(&self) -> Vec<Bar> {
        let own = self.series.iter().find(|series| series.subject == Peer::Polyrpc);
        let clean = own.is_some_and(|own| own.rounds.iter().all(Result::is_ok));
        let median =
            |figure: fn(&Outcome) -> f64| own.and_then(|own| own.spread(figure)).map(|spread| spread.median);
        let peers = self.series.iter().filter(|series| series.subject != Peer::Polyrpc);
        let light = peers.filter_map(|peer| own?.ratio(peer, |outcome| outcome.light_p99_ms));
        vec![
            Bar {
                name: "grpc_heavy_of_the_loop_alone".into(),
                value: median(|outcome| outcome.of_loop),
                limit: Limit::RatioAtLeast(0.97),
                clean,
            },
            Bar {
                name: "grpc_light_beside_heavy_p99_of_the_best".into(),
                value: light.map(|ratio| ratio.median).max_by(f64::total_cmp),
                limit: Limit::RatioAtMost(1.0),
                clean,
            },
        ]
    }

    pub(super) fn print(&self) {
        println!();
        println!(
            "{:<14} {:<17} {:>22} {:>22} {:>12} {:>22} {:>22} {:>22}",
            "heavy",
            "server",
            "calls/s",
            "of the loop alone",
            "under ghz",
            "light p50 ms",
            "light p99 ms",
            "the machine's stalls"
        );
        for series in &self.series {
            let under_ghz = series.spread(|outcome| outcome.of_loop_under_ghz.unwrap_or(f64::NAN));
            let under_ghz = under_ghz.filter(|spread| !spread.median.is_nan());
            println!(
                "{:<14} {:<17} {:>22} {:>22} {:>12} {:>22} {:>22} {:>22}",
                format!("{ADDITIONS}"),
                series.subject.as_str(),
                with_spread(series.spread(|outcome| outcome.heavy_per_second), 0),
                with_spread(series.spread(|outcome| outcome.of_loop), 3),
                under_ghz.map_or_else(dash, |spread| format!("{:.3}", spread.median)),
                with_spread(series.spread(|outcome| outcome.light_p50_ms), 2),
                with_spread(series.spread(|outcome| outcome.light_p99_ms), 2),
                with_spread(series.spread(|outcome| outcome.machine_stall_ms), 2),
            );
            for error in series.rounds.iter().filter_map(|round| round.as_ref().err()) {
                println!("  {error}");
            }
        }
    }
}

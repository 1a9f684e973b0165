//! What a console costs the calls of the server that it observes.

use std::io;
use std::time::Duration;

use polyrpc::Client;
use polyrpc_console::{AdminHandle, Console};
use tokio::runtime::{Builder, Runtime};

use super::{Options, admin, client, detach, get, serve};
use crate::bar::{Bar, Limit};
use crate::load::{SharedLatencyRecorder, Tally, call_echo};
use crate::measure;
use crate::rounds::{Series, Spread, interleave};

/// Maximum cost of a console for a call that it does not record, in microseconds of CPU time.
const UNRECORDED_LIMIT: f64 = 0.02;

/// Minimum share of the calls per second while a thousand are recorded each second.
const RECORDED_LIMIT: f64 = 0.99;

/// Minimum share of the calls per second while the process is profiled at 99 Hz.
const PROFILED_LIMIT: f64 = 0.98;

/// The server that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It counts its calls, and there is no console.
    Counted,
    /// A console observes it, and records none of them.
    Observed,
    /// A console records a thousand a second.
    Recorded,
    /// As `Observed`, and the process is profiled at 99 Hz.
    Profiled,
}

/// Measures and compares the calls of all kinds of servers.
pub(super) fn bars(options: &Options) -> io::Result<Vec<Bar>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (counted, observed) = (serve(&runtime, 1)?, serve(&runtime, 1)?);
    let (bare, seen) = (client(&counted)?, client(&observed)?);
    let window = Duration::from_secs_f64(options.seconds.clamp(0.01, 3600.0));
    let kinds = [Kind::Counted, Kind::Observed, Kind::Recorded, Kind::Profiled];
    let measured = interleave(options.rounds.max(1), &kinds, |kind| {
        let samples = match kind {
            // While no console exists: a part of what it does is done for every server of its process.
            Kind::Counted => return window_of(&runtime, &bare, WARM_UP, window),
            Kind::Observed | Kind::Profiled => 0,
            Kind::Recorded => 1000,
        };
        let console = Console::new();
        console.observe(&observed);
        let admin = admin(&console)?;
        get(&admin, &format!("/flags/rpcz_samples_per_second?setvalue={samples}"))?;
        let measured = match kind {
            Kind::Profiled => {
                measure_profiled(&admin, window, || window_of(&runtime, &seen, WARM_UP, window))
            }
            Kind::Recorded => window_of(&runtime, &seen, RATE_FOUND, window),
            Kind::Counted | Kind::Observed => window_of(&runtime, &seen, WARM_UP, window),
        };
        detach(console, admin)?;
        measured
    });
    for series in &measured {
        if let Some(Spread { median, min, max }) = series.spread(|window| window.cpu_us) {
            println!("{:<9?} {median:.3} µs of CPU a call ({min:.3} to {max:.3})", series.subject);
        }
    }
    let [counted, observed, recorded, profiled] = &measured[..] else { return Ok(Vec::new()) };
    // Within each round, since the machine varies.
    let pairs = observed.rounds.iter().zip(&counted.rounds);
    let pairs =
        pairs.filter_map(|(observed, counted)| Some((observed.as_ref().ok()?, counted.as_ref().ok()?)));
    let more = Spread::from_figures(pairs.map(|(observed, counted)| observed.cpu_us - counted.cpu_us));
    let rate = recorded.ratio(counted, |window| window.tally.calls as f64);
    let while_profiled = profiled.ratio(observed, |window| window.tally.calls as f64);
    if let Some(Spread { median, min, max }) = while_profiled {
        println!("{median:.3} of the calls while profiled ({min:.3} to {max:.3})");
    }
    let is_clean = |series: &Series<Kind, Window>| {
        series.rounds.iter().all(|round| round.as_ref().is_ok_and(|window| window.tally.errors == 0))
    };
    for series in &measured {
        for error in series.rounds.iter().filter_map(|round| round.as_ref().err()) {
            println!("{:?}: {error}", series.subject);
        }
    }
    let clean = measured.iter().all(is_clean);
    Ok(vec![
        Bar {
            name: "console_unrecorded_more_cpu".to_owned(),
            value: more.map(|more| more.median),
            limit: Limit::CpuAtMost(UNRECORDED_LIMIT),
            clean,
        },
        Bar {
            name: "console_recorded_rate".to_owned(),
            value: rate.map(|rate| rate.median),
            limit: Limit::RatioAtLeast(RECORDED_LIMIT),
            clean,
        },
        Bar {
            name: "console_profiled_rate".to_owned(),
            value: while_profiled.map(|rate| rate.median),
            limit: Limit::RatioAtLeast(PROFILED_LIMIT),
            clean,
        },
    ])
}

/// Measures a window within a profile. What comes before and after the samples, to prepare and to resolve them, is not part of
/// the window.
fn measure_profiled(
    admin: &AdminHandle,
    window: Duration,
    measure: impl FnOnce() -> io::Result<Window>,
) -> io::Result<Window> {
    let seconds = window.as_secs() + 3;
    std::thread::scope(|scope| {
        let profile = scope.spawn(|| get(admin, &format!("/hotspots/cpu?seconds={seconds}")));
        // Until its samples are taken.
        std::thread::sleep(PREPARATION);
        let measured = measure();
        profile.join().map_err(|_| io::Error::other("the profile was not made"))??;
        measured
    })
}

/// Time until a profile samples.
const PREPARATION: Duration = Duration::from_secs(1);

/// Result of a window.
#[derive(Debug)]
struct Window {
    cpu_us: f64,
    tally: Tally,
}

/// One-time work is not part of the cost of a call.
const WARM_UP: Duration = Duration::from_millis(200);

/// Time in which a console finds how many calls to record of each thread: it looks each second.
const RATE_FOUND: Duration = Duration::from_millis(1200);

fn window_of(runtime: &Runtime, client: &Client, warm_up: Duration, window: Duration) -> io::Result<Window> {
    runtime.block_on(call_echo(client, &SharedLatencyRecorder::start(warm_up)))?;
    let latencies = SharedLatencyRecorder::start(window);
    let before = measure::cpu_time();
    runtime.block_on(call_echo(client, &latencies))?;
    let spent = measure::cpu_time() - before;
    let tally = latencies.finish();
    Ok(Window { cpu_us: spent.as_secs_f64() * 1e6 / tally.calls as f64, tally })
}

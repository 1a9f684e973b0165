//! Memory of a console, its work while no page is viewed, and a check that nothing runs without a console.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::{Client, Format};
use polyrpc_console::vars::Counter;
use polyrpc_console::{AdminHandle, Console};
use tokio::runtime::{Builder, Runtime};

use super::{METHODS, VARIABLES, admin, bar, call_each, client, console_threads, detach, get, serve};
use crate::bar::{Bar, Limit};
use crate::measure;

/// Maximum memory of the series of variables and methods, and with recorded calls, in KiB.
const SERIES_LIMIT: f64 = 8.0 * 1024.0;
const SPANS_LIMIT: f64 = 24.0 * 1024.0;

/// Maximum CPU time of a second without calls and without viewers, in milliseconds.
const SAMPLER_LIMIT: f64 = 2.0;
const DETACHED_LIMIT: f64 = 0.1;

/// Time in which every sample of the methods' windows is of its own.
const FILLING: u32 = 12;

/// Calls that fail: as many as are kept apart from the others, and some more.
const FAILED: usize = 17_000;

/// Calls between two checks of what is recorded.
const CALLS: usize = 4_000;

/// Measures the resident memory and the CPU time of a process that is otherwise idle.
pub(super) fn bars() -> io::Result<Vec<Bar>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let server = serve(&runtime, METHODS)?;
    let client = client(&server)?;
    call_each(&runtime, &client, METHODS)?;
    let variables: Vec<_> = (0..VARIABLES).map(|n| Counter::new(&format!("bench_variable_{n}"))).collect();
    let detached = idle()?;
    let before = measure::resident_kib()? as f64;
    let console = Console::new();
    console.observe(&server);
    let admin = admin(&console)?;
    get(&admin, "/flags/rpcz_samples_per_second?setvalue=0")?;
    for _ in 0..FILLING {
        let second = Instant::now() + Duration::from_secs(1);
        call_each(&runtime, &client, METHODS)?;
        variables.iter().for_each(|variable| variable.add(1));
        std::thread::sleep(second.saturating_duration_since(Instant::now()));
    }
    let series = measure::resident_kib()? as f64 - before;
    let sampler = idle()?;
    get(&admin, "/status")?;
    get(&admin, "/vars")?;
    // The allocator keeps what the pages needed while they were written.
    println!("pages take {:.0} KiB", measure::resident_kib()? as f64 - before - series);
    get(&admin, "/flags/rpcz_samples_per_second?setvalue=10000")?;
    // Those that fail are kept apart from the others, and for longer.
    fail(&runtime, &client)?;
    let recorded =
        fill(&admin, || (0..CALLS / METHODS).try_for_each(|_| call_each(&runtime, &client, METHODS)))?;
    let spans = measure::resident_kib()? as f64 - before;
    println!("series take {series:.0} KiB, {recorded} recorded calls {:.0} KiB more", spans - series);
    detach(console, admin)?;
    let threads = console_threads()?;
    let after = idle()?;
    println!(
        "{detached:.2} ms of CPU a second before there is a console, {after:.2} ms after it, threads left: {threads:?}"
    );
    Ok(vec![
        bar("console_series_memory", series, Limit::KibAtMost(SERIES_LIMIT)),
        bar("console_spans_memory", spans, Limit::KibAtMost(SPANS_LIMIT)),
        bar("console_sampler_cpu", sampler, Limit::MillisAtMost(SAMPLER_LIMIT)),
        bar("console_detached_cpu", detached.max(after), Limit::MillisAtMost(DETACHED_LIMIT)),
    ])
}

/// Makes calls until no more of them are recorded than before. Returns how many there are then.
fn fill(admin: &AdminHandle, mut call: impl FnMut() -> io::Result<()>) -> io::Result<u64> {
    // Time in which as many calls are recorded as there is room for.
    const STILL: Duration = Duration::from_secs(5);
    // Some of each second are kept for an hour.
    const FEW: u64 = 50;
    let end = Instant::now() + Duration::from_secs(60);
    let (mut recorded, mut grown) = (0, Instant::now());
    while grown.elapsed() < STILL {
        if Instant::now() > end {
            return Err(io::Error::other("the memory of recorded calls is never full"));
        }
        call()?;
        let now = total(&get(admin, "/rpcz?format=json&max_scan=1")?)?;
        if now > recorded + FEW {
            (recorded, grown) = (now, Instant::now());
        }
    }
    Ok(recorded)
}

/// Makes calls that fail, each of which is recorded.
fn fail(runtime: &Runtime, client: &Client) -> io::Result<()> {
    let body = Body::new(Format::Raw, Bytes::from_static(b"A"));
    runtime.block_on(async {
        for _ in 0..FAILED {
            let called = client.call_raw("Echo/Fail", body.clone(), CallOptions::default()).await;
            if called.is_ok() {
                return Err(io::Error::other("a call that fails has succeeded"));
            }
        }
        Ok(())
    })
}

/// Returns the CPU time of a second in which this thread waits, in milliseconds.
fn idle() -> io::Result<f64> {
    const SECONDS: u32 = 3;
    let before = measure::cpu_time();
    std::thread::sleep(Duration::from_secs(SECONDS.into()));
    let spent = measure::cpu_time().checked_sub(before).ok_or_else(|| io::Error::other("no CPU clock"))?;
    Ok(spent.as_secs_f64() * 1e3 / f64::from(SECONDS))
}

/// Returns how many calls were recorded so far.
fn total(page: &str) -> io::Result<u64> {
    let body = page.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let json: serde_json::Value = serde_json::from_str(body)?;
    json["data"]["total"].as_u64().ok_or_else(|| io::Error::other("no number of recorded calls"))
}

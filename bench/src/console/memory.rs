//! The memory that a console takes, and what it does while nobody looks; and that nothing runs without one.

use std::io;
use std::time::{Duration, Instant};

use polyrpc_console::Console;
use polyrpc_console::vars::Counter;
use tokio::runtime::Builder;

use super::{METHODS, VARIABLES, admin, bar, call_each, client, console_threads, detach, get, serve};
use crate::bar::{Bar, Limit};
use crate::measure;

/// Maximum memory of the series of variables and methods, and with recorded calls, in KiB.
const SERIES_LIMIT: f64 = 8.0 * 1024.0;
const SPANS_LIMIT: f64 = 24.0 * 1024.0;

/// Maximum CPU time of a second in which nobody calls and nobody looks, in milliseconds.
const SAMPLER_LIMIT: f64 = 2.0;
const DETACHED_LIMIT: f64 = 0.1;

/// Time in which every sample of the methods' windows is of its own.
const FILLING: u32 = 12;

/// Recorded calls that fill all of their memory: 16 Ki recent ones and more.
const RECORDED: u64 = 60_000;

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
    get(&admin, "/status")?;
    get(&admin, "/vars")?;
    let series = measure::resident_kib()? as f64 - before;
    let sampler = idle()?;
    get(&admin, "/flags/rpcz_samples_per_second?setvalue=10000")?;
    let end = Instant::now() + Duration::from_secs(30);
    let mut recorded = 0;
    while recorded < RECORDED && Instant::now() < end {
        for _ in 0..20 {
            call_each(&runtime, &client, METHODS)?;
        }
        recorded = total(&get(&admin, "/rpcz?format=json&max_scan=1")?)?;
    }
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

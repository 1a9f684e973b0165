//! The clocks and the memory of this process, and the cores it may run on.
//!
//! Every process reads its own: the kernel's CPU clock of a process counts all its threads, those that
//! ended too, to the nanosecond, which nothing under `/proc` of another process does (`schedstat` forgets
//! ended threads, `stat` counts in ticks of 10 ms).

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The CPU time, user and system, that all threads of this process have used.
pub(crate) fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

/// The resident memory of this process in KiB.
///
/// `smaps_rollup` walks the page tables; the figure of `status` may lag by hundreds of KiB.
pub(crate) fn resident_kib() -> io::Result<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    rollup
        .lines()
        .find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB")?.trim().parse().ok())
        .ok_or_else(|| io::Error::other("no Rss in /proc/self/smaps_rollup"))
}

/// The resident memory of another process in KiB, without a word from it.
pub(crate) fn resident_kib_of(process: u32) -> io::Result<u64> {
    status_kib(process, "VmRSS:")
}

/// The most resident memory that another process has had since it began, in KiB.
pub(crate) fn most_resident_kib_of(process: u32) -> io::Result<u64> {
    status_kib(process, "VmHWM:")
}

fn status_kib(process: u32, key: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {key} in /proc/{process}/status")))
}

/// How many files and sockets this process holds open.
pub(crate) fn open_files() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

/// Lets this process open `wanted` files, or as many as it may.
pub(crate) fn allow_open_files(wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit { current: Some(wanted), maximum: maximum.map(|maximum| maximum.max(wanted)) };
    if setrlimit(Resource::Nofile, raised).is_err() {
        // Only root may raise the maximum. Up to it everybody may go; should that fail too, the
        // connection that is one too many says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Keeps this thread, and those it will start, on one core.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None, &only)?)
}

/// Lets this process have only what others leave of its core.
pub(crate) fn come_last() -> io::Result<()> {
    rustix::process::nice(19)?;
    Ok(())
}

/// The last core this process may run on: interrupts gather on the first ones.
pub(crate) fn last_core() -> io::Result<usize> {
    cores()?.pop().ok_or_else(|| io::Error::other("this process may run on no core"))
}

/// The cores this process may run on.
pub(crate) fn cores() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// What one reading of the clock costs, so that the report can say it: every call is timed by one.
pub(crate) fn clock_reading() -> Duration {
    const READINGS: u32 = 1_000_000;
    let start = Instant::now();
    for _ in 1..READINGS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed() / READINGS
}

//! Clocks and memory of this process, and its cores.
//!
//! Every process reads its own: the kernel's CPU clock of a process covers all its threads, including
//! ended ones, in nanoseconds, which nothing under `/proc` of another process offers (`schedstat` omits
//! ended threads, `stat` counts in ticks of 10 ms).

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// User and system CPU time of all threads of this process.
pub(crate) fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

/// User and system CPU time of this thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

/// CPU time in nanoseconds of the threads that another process has, without its cooperation. Ended threads are missing, and what
/// a running thread has used since the last tick.
pub(crate) fn cpu_ns_of(process: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end meanwhile.
        let spent = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += spent.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// The resident memory of this process in KiB.
///
/// `smaps_rollup` walks the page tables; the value in `status` may lag by hundreds of KiB.
pub(crate) fn resident_kib() -> io::Result<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    rollup
        .lines()
        .find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB")?.trim().parse().ok())
        .ok_or_else(|| io::Error::other("no Rss in /proc/self/smaps_rollup"))
}

/// The resident memory of another process in KiB, without its cooperation.
pub(crate) fn resident_kib_of(process: u32) -> io::Result<u64> {
    status_kib(process, "VmRSS:")
}

/// The peak resident memory of another process since its start, in KiB.
pub(crate) fn peak_resident_kib_of(process: u32) -> io::Result<u64> {
    status_kib(process, "VmHWM:")
}

fn status_kib(process: u32, key: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {key} in /proc/{process}/status")))
}

/// Number of open files and sockets of this process.
pub(crate) fn open_files() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

/// Raises the limit of open files to `wanted`, or as far as allowed.
pub(crate) fn allow_open_files(wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit { current: Some(wanted), maximum: maximum.map(|maximum| maximum.max(wanted)) };
    if setrlimit(Resource::Nofile, raised).is_err() {
        // Only root may raise the hard limit. Up to it every process may; if that fails too, the
        // first connection over the limit reports it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Pins this thread, and those it starts, to one core.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None, &only)?)
}

/// Gives this process the lowest priority on its core.
pub(crate) fn lower_priority() -> io::Result<()> {
    rustix::process::nice(19)?;
    Ok(())
}

/// The last allowed core: interrupts concentrate on the first ones.
pub(crate) fn last_core() -> io::Result<usize> {
    cores()?.pop().ok_or_else(|| io::Error::other("this process may run on no core"))
}

/// The allowed cores.
pub(crate) fn cores() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// Cost of one clock reading, for the report: every call takes one.
pub(crate) fn clock_reading() -> Duration {
    const READINGS: u32 = 1_000_000;
    let start = Instant::now();
    for _ in 1..READINGS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed() / READINGS
}

//! CPU time of this process and of another one.

use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// User and system CPU time of all threads of this process, in nanoseconds.
pub(super) fn own() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

/// Another process on this machine.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: u32,
}

impl Process {
    /// User and system CPU time of all its threads, in ticks of 10 ms: the kernel offers nothing finer
    /// for another process that includes ended threads. `None` if the process has exited.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        let ticks = ticks(&stat)?;
        Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
    }
}

/// utime and stime (proc_pid_stat(5)); the name before them is in parentheses and may contain any bytes.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    Some(utime + stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_parsed_after_any_process_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 17 0 0 20 0 3 0 100 1000 10 0";
        assert_eq!(ticks(stat), Some(267));
        assert_eq!(ticks("42 (x"), None);
    }

    #[test]
    fn cpu_time_of_this_process_is_read() {
        let this = Process { id: std::process::id() };
        assert!(this.cpu().unwrap() <= own() + Duration::from_millis(20));
    }
}

//! CPU time and memory of this process and of another one on this machine.

use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// CPU time and memory that a process used during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Id of the process.
    pub pid: u32,
    /// User and system CPU time of all its threads within the window.
    pub cpu: Duration,
    /// Resident memory at the end of the window, in bytes; 0 if unknown.
    pub memory: u64,
    /// Greatest resident memory since the process started, in bytes; 0 if unknown.
    pub memory_peak: u64,
}

/// A process on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: u32,
}

impl Process {
    /// This process.
    pub fn this() -> Self {
        Self { id: std::process::id() }
    }

    /// User and system CPU time of all threads. In nanoseconds for this process; in ticks of 10 ms for another: the
    /// kernel offers nothing finer that includes ended threads. `None` if the process has exited, or cannot be read.
    pub fn cpu(self) -> Option<Duration> {
        if self == Self::this() {
            let spent = clock_gettime(ClockId::ProcessCPUTime);
            return Some(Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32));
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        Some(Duration::from_secs_f64(ticks(&stat)? as f64 / clock_ticks_per_second() as f64))
    }

    /// Usage of the process since its CPU time was `before`.
    pub(crate) fn usage_since(self, before: Duration) -> Option<Usage> {
        let cpu = self.cpu()?.saturating_sub(before);
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap_or_default();
        let bytes = |field: &str| kibibytes(&status, field).unwrap_or(0) * 1024;
        Some(Usage { pid: self.id, cpu, memory: bytes("VmRSS:"), memory_peak: bytes("VmHWM:") })
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

/// A field of proc_pid_status(5), in kibibytes.
fn kibibytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_parsed_after_any_process_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 17 0 0 20 0 3 0 100 1000 10 0";
        assert_eq!(ticks(stat), Some(267));
        assert_eq!(ticks("42 (x"), None);
        assert_eq!(kibibytes("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n", "VmRSS:"), Some(1024));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn use_of_this_process_is_read() {
        let usage = Process::this().usage_since(Duration::ZERO).unwrap();
        assert!(!usage.cpu.is_zero() && usage.memory > 0 && usage.memory_peak >= usage.memory, "{usage:?}");
    }
}

//! Measurements: memory and CPU time of the server's process, latency of the well-behaved clients' calls.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files of this process and its children to the system's maximum.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With fewer, attacks with many connections are smaller, and report that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Maximum number of open files of this process.
pub(crate) fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Number of files that a process has open.
///
/// # Errors
///
/// If the process has ended.
pub(crate) fn descriptors(process: u32) -> std::io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count())
}

/// The other sides' ports of all established TCP connections of this machine: on loopback, those of the clients whose
/// servers have not closed them, in addition to those of the servers.
pub(crate) fn established_peers() -> HashSet<u16> {
    const ESTABLISHED: &str = "01";
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let peer = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let (peer, state) = (fields.next()?, fields.next()?);
        let port = peer.rsplit_once(':')?.1;
        (state == ESTABLISHED).then(|| u16::from_str_radix(port, 16).ok())?
    };
    table.lines().skip(1).filter_map(peer).collect()
}

/// The memory and the CPU time of another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    process: u32,
}

impl Memory {
    pub(crate) fn of_process(process: u32) -> Self {
        Self { process }
    }

    /// Resident bytes now.
    pub(crate) fn resident(self) -> usize {
        self.status("VmRSS:")
    }

    /// Peak of the resident bytes since [`forget_peak`](Self::forget_peak).
    pub(crate) fn peak(self) -> usize {
        self.status("VmHWM:")
    }

    /// Resets the peak to the current value.
    pub(crate) fn forget_peak(self) {
        let _ = fs::write(format!("/proc/{}/clear_refs", self.process), "5");
    }

    fn status(self, key: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
        kib.unwrap_or(0) << 10
    }

    /// CPU time of the process, in clock ticks of a hundredth of a second.
    pub(crate) fn cpu(self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        // The program name, in parentheses, may contain blanks.
        let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
        let ticks: u64 =
            behind.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }
}

/// Measures the CPU time that the hypervisor takes from this machine for other machines, while its programs want to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StealMeter {
    since: Instant,
    before: Duration,
}

impl StealMeter {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), before: stolen() }
    }

    /// Share of one core that was taken since the start.
    pub(crate) fn share(self) -> f64 {
        stolen().saturating_sub(self.before).as_secs_f64() / self.since.elapsed().as_secs_f64()
    }
}

/// CPU time taken from all cores since the machine started, in clock ticks of a hundredth of a second; zero where the
/// system does not tell.
fn stolen() -> Duration {
    const STEAL: usize = 8;
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all_cores = stat.lines().next().unwrap_or_default();
    let ticks = all_cores.split_ascii_whitespace().nth(STEAL).and_then(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(ticks.unwrap_or(0) * 10)
}

/// The calls of all well-behaved clients since the last snapshot.
#[derive(Debug, Default)]
pub(crate) struct Record {
    calls: Mutex<BTreeMap<&'static str, Calls>>,
}

/// The calls of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// Time of each call from its planned start to its response.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) lost: usize,
    /// Error of the first lost call.
    pub(crate) reason: Option<String>,
}

impl Record {
    pub(crate) fn record_answer(&self, client: &'static str, latency: Duration) {
        self.lock().entry(client).or_default().latencies.push(latency);
    }

    pub(crate) fn record_loss(&self, client: &'static str, reason: String) {
        let mut calls = self.lock();
        let calls = calls.entry(client).or_default();
        calls.lost += 1;
        calls.reason.get_or_insert(reason);
    }

    /// The calls that ended since the last time.
    pub(crate) fn take(&self) -> BTreeMap<&'static str, Calls> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Calls>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latency that 99 of 100 calls do not exceed.
pub(crate) fn p99(latencies: &[Duration]) -> Duration {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_exceeded_by_one_call_in_a_hundred() {
        let latencies: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(p99(&latencies), Duration::from_millis(198));
        assert_eq!(p99(&[]), Duration::ZERO);
    }

    #[test]
    fn established_ports_include_an_open_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let server = listener.accept().unwrap();
        assert!(established_peers().contains(&port));
        drop(server);
        assert!(!established_peers().contains(&port));
    }

    #[test]
    fn memory_and_cpu_time_of_this_process_are_read() {
        let memory = Memory::of_process(std::process::id());
        let resident = memory.resident();
        assert!(resident > 0 && memory.peak() >= resident / 2);
        assert!(memory.cpu() < Duration::from_secs(3600));
    }

    #[test]
    fn stolen_time_is_read_and_never_decreases() {
        let meter = StealMeter { since: Instant::now(), before: Duration::ZERO };
        assert!(std::fs::read_to_string("/proc/stat").unwrap().starts_with("cpu  "));
        assert!(meter.share() >= 0.0 && stolen() <= stolen());
    }
}

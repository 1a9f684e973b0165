//! Metrics of this process, by the names that Prometheus' client libraries use.

use super::family::Family;

#[cfg(not(target_os = "linux"))]
pub(super) fn families() -> Vec<Family> {
    Vec::new()
}

/// Returns the metrics; unavailable ones are omitted.
#[cfg(target_os = "linux")]
pub(super) fn families() -> Vec<Family> {
    let mut families = Vec::new();
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    let help = "User and system CPU time of the process.";
    families.push(Family::counter("process_cpu_seconds_total", help, cpu));
    let mut gauge = |name, help, value: Option<f64>| {
        families.extend(value.map(|value| Family::gauge(name, help, value)));
    };
    let memory = linux::memory();
    gauge("process_virtual_memory_bytes", "Address space of the process.", memory.map(|(all, _)| all));
    gauge(
        "process_resident_memory_bytes",
        "Resident memory of the process.",
        memory.map(|(_, resident)| resident),
    );
    gauge("process_open_fds", "Open file descriptors.", linux::open_files());
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    gauge("process_max_fds", "Maximum number of open file descriptors.", most.map(|most| most as f64));
    gauge("process_start_time_seconds", "Start time of the process, in Unix time.", linux::start_time());
    gauge("process_threads", "Threads of the process.", linux::threads());
    families
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::sync::OnceLock;

    /// Returns the bytes of address space, and the resident ones.
    pub(super) fn memory() -> Option<(f64, f64)> {
        let text = fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = text.split(' ').map_while(|pages| pages.parse::<f64>().ok());
        let size = rustix::param::page_size() as f64;
        Some((pages.next()? * size, pages.next()? * size))
    }

    pub(super) fn open_files() -> Option<f64> {
        // Since Linux 6.2 the size of their folder is their number; to count thousands takes milliseconds.
        match fs::metadata("/proc/self/fd").ok()?.len() {
            // One is the descriptor that is used for counting.
            0 => Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64),
            files => Some(files as f64),
        }
    }

    pub(super) fn threads() -> Option<f64> {
        stat(THREADS)
    }

    /// Cached: it does not change, and computing it reads two files.
    pub(super) fn start_time() -> Option<f64> {
        static BEGAN: OnceLock<Option<f64>> = OnceLock::new();
        *BEGAN.get_or_init(|| {
            let text = fs::read_to_string("/proc/stat").ok()?;
            let boot: f64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
            Some(boot + stat(START_TIME)? / rustix::param::clock_ticks_per_second() as f64)
        })
    }

    /// Returns a field of `/proc/self/stat`, counted after the name.
    fn stat(field: usize) -> Option<f64> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The name is in parentheses, and may contain some itself.
        text.rsplit_once(") ")?.1.split(' ').nth(field)?.parse().ok()
    }

    /// Counted after the name (proc_pid_stat(5)): the 20th and the 22nd field of all.
    const THREADS: usize = 17;
    const START_TIME: usize = 19;
}

//! The process, as the system describes it. Nothing here depends on a request.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Figures of the process. Figures that the system does not provide are missing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process {
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) threads: Option<u64>,
    /// Time on a processor, of the program and of the system on its behalf.
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) switches: (u64, u64),
    pub(crate) major_faults: u64,
}

impl Process {
    pub(crate) fn read() -> Self {
        let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = pages.split(' ').map_while(|pages| pages.parse::<u64>().ok());
        let size = rustix::param::page_size() as u64;
        let mut process = Self {
            virtual_bytes: pages.next().map(|pages| pages * size),
            resident_bytes: pages.next().map(|pages| pages * size),
            open_files: open_files(),
            threads: entries("/proc/self/task"),
            ..Self::default()
        };
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name is in parentheses, and may contain some itself.
        let fields: Vec<u64> = match stat.rsplit_once(") ") {
            Some((_, fields)) => fields.split(' ').map(|field| field.parse().unwrap_or(0)).collect(),
            None => Vec::new(),
        };
        let field = |at: usize| fields.get(at).copied().unwrap_or(0);
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let time = |at| Duration::from_millis(field(at) * 1000 / ticks);
        (process.user, process.system) = (time(USER), time(SYSTEM));
        process.major_faults = field(MAJOR_FAULTS);
        // `/proc/self/status` has those of the main thread only.
        process.switches = switches();
        process
    }
}

/// Returns the context switches of all threads, voluntary and not. Those of threads that have ended are not known, so that
/// the greatest number counts: a counter does not fall.
fn switches() -> (u64, u64) {
    static GREATEST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
    let (voluntary, other) = switches_now();
    let greatest = |at: usize, now: u64| GREATEST[at].fetch_max(now, Ordering::Relaxed).max(now);
    (greatest(0, voluntary), greatest(1, other))
}

fn switches_now() -> (u64, u64) {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten().take(MAX_THREADS);
    // A thread may end meanwhile.
    let all = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    all.fold((0, 0), |(voluntary, other), text| {
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        (voluntary + number("voluntary_ctxt_switches"), other + number("nonvoluntary_ctxt_switches"))
    })
}

/// Maximum number of threads whose switches are read, each second.
const MAX_THREADS: usize = 1024;

/// Returns the number of open files. Since Linux 6.2 the size of their folder is it; to count thousands takes milliseconds.
fn open_files() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.len() {
        // One is the descriptor that is used for counting.
        0 => entries("/proc/self/fd").map(|files| files.saturating_sub(1)),
        files => Some(files),
    }
}

/// Returns the lines of `/proc/self/status`.
pub(crate) fn status() -> Vec<(String, String)> {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// A thread of the process.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Thread {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// The system's letter: R runs, S sleeps.
    pub(crate) state: String,
    /// Time on a processor, in seconds.
    pub(crate) cpu: f64,
}

/// Returns the threads, those first that have run longest.
pub(crate) fn threads() -> Vec<Thread> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    let read = |id: u64| {
        let stat = fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
        let (head, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let time = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
        let state = fields.first().map(|state| (*state).to_owned()).unwrap_or_default();
        Some(Thread { id, name, state, cpu: (time(USER) + time(SYSTEM)) / ticks })
    };
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    let mut threads: Vec<Thread> = ids.filter_map(read).collect();
    threads.sort_by(|one, other| other.cpu.total_cmp(&one.cpu).then(one.id.cmp(&other.id)));
    threads
}

fn entries(folder: &'static str) -> Option<u64> {
    Some(fs::read_dir(folder).ok()?.count() as u64)
}

// The indices of fields in `stat`, counted after the name (proc_pid_stat(5)): the 12th, 14th and 15th of all.
const MAJOR_FAULTS: usize = 9;
const USER: usize = 11;
const SYSTEM: usize = 12;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn process_and_its_threads_are_read() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (start, started) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name("odd) name (S".into());
        let work = move || {
            // The thread has its name from here on.
            drop(start);
            stopped.recv().is_err()
        };
        let worker = worker.spawn(work).unwrap();
        assert!(started.recv().is_err());
        let process = Process::read();
        assert!(process.resident_bytes > Some(1 << 20) && process.virtual_bytes > process.resident_bytes);
        assert!(process.threads >= Some(2) && process.open_files >= Some(3));
        // The worker waits, and so did this thread.
        assert!(process.switches.0 > 0, "{process:?}");
        let threads = threads();
        let odd = threads.iter().find(|thread| thread.name == "odd) name (S").unwrap();
        assert!(["R", "S"].contains(&odd.state.as_str()), "{odd:?}");
        drop(stop);
        assert!(worker.join().unwrap());
    }
}

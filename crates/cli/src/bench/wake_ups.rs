//! Whether this machine delays programs: another thread sleeps for a millisecond at a time and counts how often it wakes late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyrpc_load::LATE;

/// A running probe.
pub(super) struct WakeUpProbe {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<WakeUps>,
}

/// What a probe has seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WakeUps {
    pub(super) sleeps: u32,
    pub(super) late: u32,
}

impl WakeUpProbe {
    pub(super) fn start() -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = stopped.clone();
        let thread = thread::spawn(move || {
            let mut noise = WakeUps::default();
            while !seen.load(Ordering::Relaxed) {
                let started = Instant::now();
                thread::sleep(SLEEP);
                noise.sleeps += 1;
                noise.late += u32::from(started.elapsed() > SLEEP + LATE);
            }
            noise
        });
        Self { stopped, thread }
    }

    pub(super) fn finish(self) -> WakeUps {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

impl WakeUps {
    /// Share of the sleeps that ended more than [`LATE`] late.
    pub(super) fn late_share(self) -> f64 {
        f64::from(self.late) / f64::from(self.sleeps.max(1))
    }
}

const SLEEP: Duration = Duration::from_millis(1);

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use polyrpc_core::{Fault, Retry, Status};

/// See [`Builder::cluster_recovery`](crate::client::Builder::cluster_recovery).
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct RecoveryPolicy {
    /// Number of servers that can handle all calls.
    pub(in crate::client) min_working: usize,
    /// Time for which the number of healthy servers must stay the same.
    pub(in crate::client) hold: Duration,
}

/// Recovery state of a channel's servers.
#[derive(Debug)]
pub(super) struct ClusterRecovery {
    recovery: RecoveryPolicy,
    is_active: AtomicBool,
    count: Mutex<HealthyCount>,
}

/// Number of healthy servers.
#[derive(Debug, Default)]
struct HealthyCount {
    healthy: usize,
    /// Time since which the number is unchanged.
    since: Option<Instant>,
    counted: Option<Instant>,
}

impl ClusterRecovery {
    pub(super) fn new(recovery: RecoveryPolicy) -> Self {
        Self { recovery, is_active: AtomicBool::new(false), count: Mutex::default() }
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Starts the recovery: no server is healthy.
    #[cold]
    pub(super) fn start(&self) {
        if !self.is_active.swap(true, Ordering::Relaxed) {
            *self.count.lock().unwrap_or_else(PoisonError::into_inner) = HealthyCount::default();
        }
    }

    /// Admits or rejects a call; during a recovery `chance`, from zero to one, decides. `count_healthy`
    /// returns the number of healthy servers.
    ///
    /// # Errors
    ///
    /// If the call is rejected.
    #[cold]
    pub(super) fn admit(
        &self,
        now: Instant,
        chance: f64,
        count_healthy: impl FnOnce() -> usize,
    ) -> Result<(), Status> {
        if !self.is_active() {
            return Ok(());
        }
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.renew(now, count_healthy);
        if count.is_steady_for(self.recovery.hold, now) {
            self.is_active.store(false, Ordering::Relaxed);
            return Ok(());
        }
        match chance * (self.recovery.min_working as f64) < count.healthy as f64 {
            true => Ok(()),
            false => Err(rejected()),
        }
    }
}

impl HealthyCount {
    fn renew(&mut self, now: Instant, count_healthy: impl FnOnce() -> usize) {
        if self.counted.is_some_and(|counted| now.saturating_duration_since(counted) < FRESH) {
            return;
        }
        self.counted = Some(now);
        let healthy = count_healthy();
        if healthy != self.healthy || self.since.is_none() {
            self.healthy = healthy;
            self.since = Some(now);
        }
    }

    fn is_steady_for(&self, hold: Duration, now: Instant) -> bool {
        self.healthy > 0 && self.since.is_some_and(|since| now.saturating_duration_since(since) > hold)
    }
}

/// Time for which a count is valid (brpc `cluster_recover_policy.cpp`, `detect_available_server_interval_ms`).
const FRESH: Duration = Duration::from_millis(10);

#[cold]
fn rejected() -> Status {
    Status::unavailable("rejected: too few servers are healthy")
        .with_number(EREJECT)
        .with_fault(Fault::Us)
        .with_retry(Retry::Never)
}

/// brpc `errno.proto`.
const EREJECT: i32 = 1018;

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn recovery() -> ClusterRecovery {
        ClusterRecovery::new(RecoveryPolicy { min_working: 4, hold: 100 * MILLI })
    }

    /// Returns how many of a hundred calls are admitted with this number of healthy servers.
    fn count_admitted(recovery: &ClusterRecovery, now: Instant, healthy: usize) -> usize {
        (0..100).filter(|&n| recovery.admit(now, f64::from(n) / 100.0, || healthy).is_ok()).count()
    }

    #[test]
    fn admitted_share_grows_as_servers_recover() {
        let (recovery, start) = (recovery(), Instant::now());
        assert_eq!(count_admitted(&recovery, start, 0), 100, "outside of recovery");
        recovery.start();
        for (n, (healthy, want)) in [(0, 0), (1, 25), (2, 50), (4, 100), (9, 100)].into_iter().enumerate() {
            assert_eq!(count_admitted(&recovery, start + 10 * MILLI * n as u32, healthy), want, "{healthy}");
        }
    }

    #[test]
    fn recovery_ends_after_the_healthy_count_was_stable() {
        let (recovery, start) = (recovery(), Instant::now());
        recovery.start();
        assert_eq!(count_admitted(&recovery, start, 0), 0);
        assert_eq!(count_admitted(&recovery, start + 500 * MILLI, 0), 0, "none is not enough");
        assert_eq!(count_admitted(&recovery, start + 600 * MILLI, 1), 25);
        recovery.start();
        assert_eq!(count_admitted(&recovery, start + 690 * MILLI, 1), 25);
        assert_eq!(count_admitted(&recovery, start + 701 * MILLI, 1), 100);
        assert!(!recovery.is_active());
    }

    #[test]
    fn healthy_servers_are_not_counted_for_every_call() {
        let (recovery, start) = (recovery(), Instant::now());
        recovery.start();
        let counted = std::cell::Cell::new(0);
        for millis in 0..20 {
            let _ = recovery.admit(start + millis * MILLI, 1.0, || {
                counted.set(counted.get() + 1);
                0
            });
        }
        assert_eq!(counted.get(), 2);
    }

    #[test]
    fn rejected_call_is_not_retryable() {
        let recovery = recovery();
        recovery.start();
        let status = recovery.admit(Instant::now(), 0.0, || 0).unwrap_err();
        assert_eq!(status.retry(), Retry::Never);
        assert_eq!(status.number(), Some(1018));
    }
}

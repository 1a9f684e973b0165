use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Keepalive interval of the connections to one server: the user's setting, until the server finds it too frequent.
#[derive(Debug, Clone)]
pub(in crate::client) struct Keepalive(Arc<AtomicU64>);

impl Keepalive {
    pub(in crate::client) fn with_interval(interval: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1))))
    }

    fn interval(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    /// Doubles the interval from now on, also for new connections (gRPC's proposal A8).
    pub(super) fn double_interval(&self) {
        self.0.store(
            (self.interval() * 2).min(MAX_INTERVAL.max(self.interval())).as_millis() as u64,
            Ordering::Relaxed,
        );
    }
}

/// Longest interval.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Next keepalive of a connection.
pub(in crate::client) struct Heartbeat {
    pub(in crate::client) keepalive: Keepalive,
    next: Pin<Box<Sleep>>,
    /// Whether the answer to the last one is late, and `next` is the end of the extended wait for it.
    is_extended: bool,
}

impl Heartbeat {
    pub(in crate::client) fn new(keepalive: Keepalive) -> Self {
        let next = Box::pin(sleep(keepalive.interval()));
        Self { keepalive, next, is_extended: false }
    }

    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> bool {
        let due = self.next.as_mut().poll(cx).is_ready();
        if due {
            self.next.as_mut().reset(Instant::now() + self.keepalive.interval());
        }
        due
    }

    /// Extends the wait for the answer to the last heartbeat, once. Returns whether the answer may still come.
    pub(super) fn extend_wait(&mut self) -> bool {
        if !self.is_extended {
            self.next.as_mut().reset(Instant::now() + READ_GRACE);
        }
        !std::mem::replace(&mut self.is_extended, true)
    }

    /// Ends an extended wait: the answer has come.
    pub(super) fn end_wait(&mut self) {
        self.is_extended = false;
    }
}

/// Time to read what has arrived, before the silence of a server has consequences. While this process is paused, what
/// the server sends waits in the socket, and timers expire all the same.
pub(super) const READ_GRACE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_heartbeats_doubles_the_interval_up_to_a_limit() {
        let keepalive = Keepalive::with_interval(Duration::from_secs(10));
        let of_another_connection = keepalive.clone();
        keepalive.double_interval();
        assert_eq!(of_another_connection.interval(), Duration::from_secs(20));
        (0..60).for_each(|_| keepalive.double_interval());
        assert_eq!(keepalive.interval(), MAX_INTERVAL);
    }
}

//! Rate limits for log events that a peer or a flapping registry can cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// Allows at most a number of events in each interval and counts the rest.
///
/// ```text
/// static REFUSED: EventLimiter = EventLimiter::new(5, Duration::from_secs(10));
///
/// if let Some(suppressed) = REFUSED.allow() {
///     tracing::warn!(%peer, suppressed, "a connection was refused");
/// }
/// ```
#[derive(Debug)]
pub(crate) struct EventLimiter {
    burst: u32,
    interval: Duration,
    window: Mutex<Window>,
    suppressed: AtomicU64,
}

#[derive(Debug)]
struct Window {
    /// Start of the window: when its first event occurred.
    began: Option<Instant>,
    /// Events of the window that were allowed.
    allowed: u32,
}

impl EventLimiter {
    /// Creates a limiter of at most `burst` events in each `interval`.
    pub(crate) const fn new(burst: u32, interval: Duration) -> Self {
        let window = Mutex::new(Window { began: None, allowed: 0 });
        Self { burst, interval, window, suppressed: AtomicU64::new(0) }
    }

    /// Returns how many events were suppressed since the last allowed one if the event may be logged now. `None`: it is
    /// suppressed and counted.
    pub(crate) fn allow(&self) -> Option<u64> {
        self.allow_at(Instant::now())
    }

    fn allow_at(&self, now: Instant) -> Option<u64> {
        let mut window = match self.window.try_lock() {
            Ok(window) => window,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread holds the lock: in a flood this line is dropped instead of waiting for it.
            Err(TryLockError::WouldBlock) => return self.suppress(),
        };
        if window.began.is_none_or(|began| now.saturating_duration_since(began) >= self.interval) {
            *window = Window { began: Some(now), allowed: 0 };
        }
        if window.allowed >= self.burst {
            return self.suppress();
        }
        window.allowed += 1;
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }

    fn suppress(&self) -> Option<u64> {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn burst_passes_and_the_rest_is_counted() {
        static LIMITER: EventLimiter = EventLimiter::new(2, SECOND);
        let start = Instant::now();
        let allowed = (0..10).map(|tenth| LIMITER.allow_at(start + SECOND / 10 * tenth)).collect::<Vec<_>>();
        assert_eq!(allowed[..2], [Some(0), Some(0)]);
        assert_eq!(allowed[2..], [None; 8]);
        assert_eq!(LIMITER.allow_at(start + SECOND), Some(8), "a new interval begins");
        assert_eq!(LIMITER.allow_at(start + SECOND), Some(0));
        assert_eq!(LIMITER.allow_at(start + SECOND), None);
    }

    #[test]
    fn burst_of_zero_passes_nothing() {
        let limiter = EventLimiter::new(0, SECOND);
        assert_eq!(limiter.allow(), None);
        assert_eq!(limiter.allow_at(Instant::now() + SECOND * 2), None);
    }

    #[test]
    fn threads_share_one_limit() {
        let limiter = EventLimiter::new(10, SECOND * 3600);
        let allowed = std::thread::scope(|scope| {
            let allow = || (0..1000).filter_map(|_| limiter.allow()).collect::<Vec<_>>();
            let threads = [(); 4].map(|()| scope.spawn(allow));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(allowed.len(), 10);
        // Events that came while another thread began the interval were reported to one of the ten.
        let reported: u64 = allowed.iter().sum();
        assert_eq!(reported + limiter.suppressed.load(Ordering::Relaxed), 3990);
    }
}

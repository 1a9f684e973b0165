//! Rate limits for log events that a peer or a flapping registry can cause.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
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
    burst: u64,
    interval: Duration,
    /// When the first event of the current interval occurred, in milliseconds, and in the low bits the number of its
    /// allowed events. One word, so that an event neither waits for a lock nor is lost because of one.
    window: AtomicU64,
    suppressed: AtomicU64,
}

impl EventLimiter {
    /// Creates a limiter of at most `burst` events in each `interval`.
    pub(crate) const fn new(burst: u16, interval: Duration) -> Self {
        Self { burst: burst as u64, interval, window: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns how many events were suppressed since the last allowed one if the event may be logged now. `None`: it is
    /// suppressed and counted.
    pub(crate) fn allow(&self) -> Option<u64> {
        self.allow_at(ORIGIN.elapsed())
    }

    fn allow_at(&self, now: Duration) -> Option<u64> {
        let now = now.as_millis() as u64;
        let count = |window| self.count(window, now);
        match self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(_) => Some(self.suppressed.swap(0, Ordering::Relaxed)),
            Err(_) => self.suppress(),
        }
    }

    /// Returns the window with one more event, or `None` if no more are allowed.
    fn count(&self, window: u64, now: u64) -> Option<u64> {
        let (began, allowed) = (window >> COUNT_BITS, window & MAX_COUNT);
        let is_over = allowed == 0 || Duration::from_millis(now.saturating_sub(began)) >= self.interval;
        let counted = if is_over { now << COUNT_BITS | 1 } else { window + 1 };
        (is_over && self.burst > 0 || allowed < self.burst).then_some(counted)
    }

    fn suppress(&self) -> Option<u64> {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Origin of the times of windows.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Number of bits of the number of events, which is a `u16`. The time has the other ones.
const COUNT_BITS: u32 = 16;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn burst_passes_and_the_rest_is_counted() {
        static LIMITER: EventLimiter = EventLimiter::new(2, SECOND);
        let start = SECOND * 7;
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
        assert_eq!(limiter.allow_at(SECOND * 2), None);
    }

    #[test]
    fn no_event_of_several_threads_is_suppressed_below_the_limit() {
        let limiter = EventLimiter::new(40_000, SECOND * 3600);
        let allow_all = || (0..10_000).for_each(|_| assert_eq!(limiter.allow(), Some(0)));
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(allow_all)));
        assert_eq!(limiter.allow(), None);
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
        // Events that were suppressed before the last of the ten are reported by it.
        let reported: u64 = allowed.iter().sum();
        assert_eq!(reported + limiter.suppressed.load(Ordering::Relaxed), 3990);
    }
}

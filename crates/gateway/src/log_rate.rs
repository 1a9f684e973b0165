//! A rate limit for log events that callers can cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Allows one event per second, and counts the suppressed ones.
#[derive(Debug)]
pub(crate) struct LogRate(Mutex<LogState>);

#[derive(Debug)]
struct LogState {
    last: Option<Instant>,
    suppressed: u64,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl LogRate {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(LogState { last: None, suppressed: 0 }))
    }

    /// Returns how many events were suppressed since the last one, if this one may be logged.
    pub(crate) fn allow(&self) -> Option<u64> {
        self.allow_at(Instant::now())
    }

    fn allow_at(&self, now: Instant) -> Option<u64> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            logged.suppressed += 1;
            return None;
        }
        logged.last = Some(now);
        Some(std::mem::take(&mut logged.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_a_second_is_allowed_and_the_others_are_counted() {
        let (rate, began) = (LogRate::new(), Instant::now());
        assert_eq!(rate.allow_at(began), Some(0));
        assert_eq!(rate.allow_at(began + INTERVAL / 2), None);
        assert_eq!(rate.allow_at(began + INTERVAL / 2), None);
        assert_eq!(rate.allow_at(began + INTERVAL), Some(2));
    }
}

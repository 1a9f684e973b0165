//! Pauses copies to a failing upstream.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pauses copies for a while after several consecutive failures.
#[derive(Debug, Default)]
pub(super) struct Pause(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).until.is_some_and(|until| now < until)
    }

    /// Records whether the upstream answered.
    pub(super) fn record(&self, answered: bool, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answered {
            *state = State::default();
            return;
        }
        // Results of copies that were in flight when the pause began are ignored.
        if state.until.is_some_and(|until| now < until) {
            return;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures >= MAX_FAILURES {
            let doubled = MIN_PAUSE * 2_u32.pow((state.failures - MAX_FAILURES).min(6));
            state.until = Some(now + doubled.min(MAX_PAUSE));
        }
    }
}

/// Consecutive failures after which the pause begins.
const MAX_FAILURES: u32 = 5;

const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_become_longer_until_the_upstream_answers() {
        let (pause, start) = (Pause::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        (0..4).for_each(|_| pause.record(false, start));
        assert!(!pause.is_paused(start));
        (0..20).for_each(|_| pause.record(false, start));
        assert!(pause.is_paused(start) && !pause.is_paused(at(1)));
        pause.record(false, at(1));
        assert!(pause.is_paused(at(2)) && !pause.is_paused(at(3)));
        (0..20).for_each(|n| pause.record(false, at(100 * n + 100)));
        assert!(pause.is_paused(at(2059)) && !pause.is_paused(at(2060)));
        pause.record(true, at(2060));
        pause.record(false, at(2060));
        assert!(!pause.is_paused(at(2060)));
    }
}

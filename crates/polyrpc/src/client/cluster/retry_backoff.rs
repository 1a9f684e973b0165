use std::time::Duration;

use crate::client::connection::backoff::{Backoff, chance};

/// Returns the pause before the attempt that follows this number of attempts.
pub(super) fn pause(backoff: &Backoff, attempts: u32) -> Duration {
    let times = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = backoff.initial.as_secs_f64() * backoff.factor.max(1.0).powi(times);
    // Half of the pause is random jitter, so that calls that failed together do not retry together.
    let seconds = grown.min(backoff.max.as_secs_f64()) * (0.5 + 0.5 * chance());
    Duration::try_from_secs_f64(seconds).unwrap_or(backoff.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_up_to_its_limit() {
        let millis = Duration::from_millis;
        let backoff = Backoff { initial: millis(10), max: millis(50), factor: 2.0 };
        for (attempts, longest) in [(0, 10), (1, 10), (2, 20), (3, 40), (4, 50), (u32::MAX, 50)] {
            let pause = pause(&backoff, attempts);
            assert!((millis(longest) / 2..=millis(longest)).contains(&pause), "{attempts}: {pause:?}");
        }
        let odd = Backoff { factor: f64::NAN, ..backoff };
        assert!(pause(&odd, 3) <= millis(50));
    }
}

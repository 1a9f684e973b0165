//! Typical sizes of responses.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The typical size of a method's recent responses, in bytes.
#[derive(Debug, Default)]
pub(crate) struct ResponseSize {
    /// One more than the size; 0 until there is a response.
    typical: AtomicUsize,
    /// When the method was first called.
    called: OnceLock<Instant>,
}

impl ResponseSize {
    /// Returns the size to expect of a response; 0 if it is small.
    ///
    /// Before the first response it is large, since many calls may come by then. The longer that takes, the smaller is
    /// the size that is assumed: the calls may take minutes, and all wait for the same event.
    pub(crate) fn estimate(&self) -> usize {
        let known = self.typical.load(Relaxed).checked_sub(1);
        let size = known.unwrap_or_else(|| initial_estimate(self.called.get_or_init(Instant::now).elapsed()));
        if size > SMALL { size } else { 0 }
    }

    /// Records the size of a response. Of concurrent ones, some may not count.
    pub(crate) fn record(&self, size: usize) {
        let typical = self.typical.load(Relaxed).checked_sub(1);
        // Most methods have small responses: their calls write nothing that they share.
        if size > SMALL || typical.is_none_or(|typical| typical > SMALL) {
            let typical = match typical {
                None => size,
                // It rises faster than it falls: too small a size costs more than too large a one.
                Some(typical) if size > typical => typical + (size - typical) / 2,
                Some(typical) => typical - (typical - size) / 8,
            };
            self.typical.store(typical.saturating_add(1), Relaxed);
        }
    }
}

/// Returns the size to assume if a method has not responded for this long.
#[cold]
fn initial_estimate(waited: Duration) -> usize {
    let halvings = u32::try_from(waited.as_millis() / HALVED_AFTER.as_millis()).unwrap_or(u32::MAX);
    UNKNOWN.checked_shr(halvings).unwrap_or(0)
}

/// Size up to which responses are small: thousands of them may be expected at once.
const SMALL: usize = 16 << 10;

/// Assumed size of a response if the method has none so far.
const UNKNOWN: usize = 1 << 20;

/// Time after which half of it is assumed.
const HALVED_AFTER: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_size_follows_the_sizes_of_recent_responses() {
        let size = ResponseSize::default();
        size.record(100);
        assert_eq!(size.estimate(), 0, "small ones need no room");
        size.record(1 << 20);
        assert!(size.estimate() > 1 << 19, "{size:?}");
        (0..10).for_each(|_| size.record(1 << 20));
        assert!(size.estimate() > 1_000_000, "{size:?}");
        (0..100).for_each(|_| size.record(100));
        assert_eq!(size.estimate(), 0, "{size:?}");
    }

    #[test]
    fn first_response_sets_the_expected_size() {
        let size = ResponseSize::default();
        size.record(50_000);
        assert_eq!(size.estimate(), 50_000);
    }

    #[test]
    fn method_that_does_not_respond_is_assumed_to_have_ever_smaller_responses() {
        assert!(ResponseSize::default().estimate() > SMALL);
        assert_eq!(initial_estimate(Duration::ZERO), UNKNOWN);
        assert_eq!(initial_estimate(HALVED_AFTER), UNKNOWN / 2);
        assert_eq!(initial_estimate(HALVED_AFTER * 6), SMALL);
        assert_eq!(initial_estimate(Duration::MAX), 0);
    }
}

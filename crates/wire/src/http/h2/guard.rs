//! Protection against abusive peers.

use std::time::Duration;

/// Counters of actions that a well-behaved peer performs rarely.
#[derive(Debug)]
pub(super) struct AbuseGuard {
    /// Streams that were reset beyond those that ended normally, and were not forgiven yet: the tokens taken from a
    /// token bucket.
    pub(super) resets: u32,
    /// Time of the last refill of the bucket.
    refilled: Option<Duration>,
    /// Streams refused because too much is queued for the peer's windows, since the peer last read any of it.
    pub(super) refused: u32,
    /// Frames that require a response or have no effect, since the inbox was last empty.
    pub(super) burst: u32,
    /// Bytes and frames that may still arrive for streams that we have reset, since the peer sent them before it saw the
    /// RST_STREAM; beyond those, [`MAX_STRAY_FRAMES`].
    late: usize,
    /// Changes of the initial window size in the current second.
    changes: u32,
    /// Start of the current second.
    second: Option<Duration>,
}

impl Default for AbuseGuard {
    fn default() -> Self {
        Self {
            resets: 0,
            refilled: None,
            refused: 0,
            burst: 0,
            late: MAX_STRAY_FRAMES,
            changes: 0,
            second: None,
        }
    }
}

/// Frames on closed streams that a connection ignores in addition to those that flow control allows.
pub const MAX_STRAY_FRAMES: usize = 1000;

/// Frames without data that may follow the data of a stream after it was reset: its end, trailers.
const MAX_TRAILING_FRAMES: usize = 100;

/// How often a well-behaved peer changes the initial window size in a second: whenever its estimate of the bytes in
/// flight grows.
const MAX_WINDOW_CHANGES: u32 = 8;

/// How many resets each further change counts as: it costs work on every stream.
const WINDOW_CHANGE_COST: u32 = 8;

/// Control frames in one burst. A well-behaved peer sends a few.
const MAX_CONTROL_BURST: u32 = 200;

impl AbuseGuard {
    /// Returns the limit that the peer has exceeded, if any.
    #[inline]
    pub(super) fn exceeded_limit(&self, resets: u32) -> Option<&'static str> {
        if self.resets.max(self.refused) <= resets && self.burst <= MAX_CONTROL_BURST {
            return None;
        }
        Some(self.flood())
    }

    #[cold]
    fn flood(&self) -> &'static str {
        match () {
            () if self.burst > MAX_CONTROL_BURST => "too many control frames at once",
            () if self.changes > MAX_WINDOW_CHANGES => "too many changes of the windows",
            () if self.refused > self.resets => "too many streams while responses are not read",
            () => "too many streams were reset",
        }
    }

    /// Allows the bytes that the peer may still send on a stream that we have just reset: as many as the stream's
    /// `window` permits. All such streams together are limited by `max`, the window of the connection, because credit
    /// for it is granted after the RST_STREAM.
    pub(super) fn expect_late(&mut self, window: u32, max: usize) {
        self.late = self
            .late
            .saturating_add(window as usize + MAX_TRAILING_FRAMES)
            .min(max.saturating_mul(2).max(MAX_STRAY_FRAMES));
    }

    /// Allows as many late bytes as the window of the connection permits, for any number of refused streams.
    pub(super) fn expect_late_streams(&mut self, max: usize) {
        self.late = max.saturating_mul(2).max(MAX_STRAY_FRAMES);
    }

    /// Counts a frame on a closed stream. `cost`: bytes of DATA, or the frames that decoding the header block
    /// is worth; a frame costs at least 1. Returns `false` if no well-behaved peer would have sent so many.
    pub(super) fn take_late(&mut self, cost: usize) -> bool {
        let cost = cost.max(1);
        let is_expected = cost <= self.late;
        self.late = self.late.saturating_sub(cost);
        is_expected
    }

    /// Counts a change of the initial window size by the peer.
    pub(super) fn change_windows(&mut self) {
        self.changes = self.changes.saturating_add(1);
        if self.changes > MAX_WINDOW_CHANGES {
            self.resets = self.resets.saturating_add(WINDOW_CHANGE_COST);
        }
    }

    /// Forgives as many resets as the time since the last call allows.
    pub(super) fn refill(&mut self, now: Duration, per_second: u32) {
        if now.saturating_sub(*self.second.get_or_insert(now)) >= Duration::from_secs(1) {
            (self.changes, self.second) = (0, Some(now));
        }
        let since = *self.refilled.get_or_insert(now);
        let tokens = now.saturating_sub(since).as_millis() * u128::from(per_second) / 1000;
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        if tokens >= self.resets {
            // The bucket is full.
            self.resets = 0;
            self.refilled = Some(now);
        } else if tokens > 0 {
            self.resets -= tokens;
            // The fraction of a token is carried over.
            self.refilled = Some(since + Duration::from_secs(tokens.into()) / per_second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_refill_is_independent_of_the_tick_interval() {
        for step in [7, 250, 1000] {
            let mut guard = AbuseGuard { resets: 1000, ..AbuseGuard::default() };
            for millis in (0..=4200).step_by(step) {
                guard.refill(Duration::from_millis(millis), 100);
            }
            let refilled = 4200 / step * step;
            assert_eq!(guard.resets as usize, 1000 - refilled / 10, "steps of {step} ms");
        }
    }

    #[test]
    fn late_frames_are_expected_up_to_the_windows_of_the_reset_streams() {
        let mut guard = AbuseGuard::default();
        assert!((0..MAX_STRAY_FRAMES).all(|_| guard.take_late(0)));
        assert!(!guard.take_late(0));
        guard.expect_late(1_000, 1 << 20);
        assert!(guard.take_late(1_000), "the window");
        assert!((0..MAX_TRAILING_FRAMES).all(|_| guard.take_late(0)), "and its end");
        assert!(!guard.take_late(1));
        (0..100).for_each(|_| guard.expect_late(1 << 20, 1 << 20));
        assert!(!guard.take_late((2 << 20) + 1), "at most what the connection allows");
    }

    #[test]
    fn bucket_with_refill_rate_zero_is_unchanged() {
        let mut guard = AbuseGuard { resets: 5, ..AbuseGuard::default() };
        guard.refill(Duration::ZERO, 0);
        guard.refill(Duration::from_secs(1000), 0);
        assert_eq!(guard.resets, 5);
    }
}

//! What counts against a peer that behaves as an attacker would.

use std::time::Duration;

/// Counters of what an honest peer does rarely.
#[derive(Debug, Default)]
pub(super) struct AbuseGuard {
    /// Streams that were reset beyond those that ended well, and were not forgiven yet: what was taken out of a bucket of
    /// tokens.
    pub(super) resets: u32,
    /// To when the bucket was refilled.
    refilled: Option<Duration>,
    /// Streams that were refused for what waits for the peer's windows, since it last took any of that.
    pub(super) refused: u32,
    /// Frames that want an answer, or change nothing, since the inbox was last empty.
    pub(super) burst: u32,
    /// How often the windows of all streams were changed in this second.
    changes: u32,
    /// When the second began.
    second: Option<Duration>,
}

/// How often an honest peer changes the windows of all streams in a second: as often as it finds that it may have more on
/// its way.
const CHANGES: u32 = 8;

/// As how many resets each further change counts: it makes work on every stream.
const CHANGE: u32 = 8;

/// Control frames in one go. An honest peer sends a few.
const BURST: u32 = 200;

impl AbuseGuard {
    /// What the peer has done too often, if it has.
    #[inline]
    pub(super) fn judge(&self, resets: u32) -> Option<&'static str> {
        if self.resets.max(self.refused) <= resets && self.burst <= BURST {
            return None;
        }
        Some(self.flood())
    }

    #[cold]
    fn flood(&self) -> &'static str {
        match () {
            () if self.burst > BURST => "too many control frames at once",
            () if self.changes > CHANGES => "too many changes of the windows",
            () if self.refused > self.resets => "too many streams while what is sent is not taken",
            () => "too many streams were reset",
        }
    }

    /// The peer has changed the windows of all streams.
    pub(super) fn change_windows(&mut self) {
        self.changes = self.changes.saturating_add(1);
        if self.changes > CHANGES {
            self.resets = self.resets.saturating_add(CHANGE);
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
            // A full bucket holds no more.
            self.resets = 0;
            self.refilled = Some(now);
        } else if tokens > 0 {
            self.resets -= tokens;
            // What is less than a token counts for the next one.
            self.refilled = Some(since + Duration::from_secs(tokens.into()) / per_second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_is_refilled_by_the_time_that_passed_however_it_is_told() {
        for step in [7, 250, 1000] {
            let mut guard = AbuseGuard { resets: 1000, ..AbuseGuard::default() };
            for millis in (0..=4200).step_by(step) {
                guard.refill(Duration::from_millis(millis), 100);
            }
            let told = 4200 / step * step;
            assert_eq!(guard.resets as usize, 1000 - told / 10, "steps of {step} ms");
        }
    }

    #[test]
    fn bucket_that_is_not_refilled_stays_as_it_is() {
        let mut guard = AbuseGuard { resets: 5, ..AbuseGuard::default() };
        guard.refill(Duration::ZERO, 0);
        guard.refill(Duration::from_secs(1000), 0);
        assert_eq!(guard.resets, 5);
    }
}

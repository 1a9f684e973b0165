use std::time::Duration;

/// Interval between searches for slow connections.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// A duration in ticks, rounded up.
pub(super) fn ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX)
}

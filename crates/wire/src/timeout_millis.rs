//! Timeouts in milliseconds, as most protocols send them.

use std::time::Duration;

/// Returns whole milliseconds, rounded up: the server must not give up before the caller does, and 0 would mean that no
/// time is left.
pub(crate) fn to_millis(timeout: Duration) -> u128 {
    timeout.as_nanos().div_ceil(1_000_000)
}

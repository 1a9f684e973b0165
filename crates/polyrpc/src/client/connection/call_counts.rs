//! Counts of calls.

use std::ops::AddAssign;

/// Counts of calls. Each connection counts its own, under the lock that a call takes anyway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::client) struct CallCounts {
    /// Calls that were sent, or could not be since no connection was established.
    pub(in crate::client) calls: u64,
    /// Those that failed through no fault of the caller.
    pub(in crate::client) failures: u64,
    pub(in crate::client) in_flight: usize,
}

impl AddAssign for CallCounts {
    fn add_assign(&mut self, more: Self) {
        self.calls += more.calls;
        self.failures += more.failures;
        self.in_flight += more.in_flight;
    }
}

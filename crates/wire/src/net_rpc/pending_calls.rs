use std::collections::VecDeque;

use polyrpc_core::CallId;

/// Pending calls of a connection, by sequence number.
///
/// Sequence numbers count up from 0, like Go's: a peer may store them in a type that holds no larger ones.
#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    next: u64,
    /// Sorted by sequence number, which only grows.
    calls: VecDeque<(u64, CallId)>,
}

impl PendingCalls {
    /// Returns the sequence number of the next call.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Records that the call with the next number was sent; a call that expects no response is not recorded.
    pub(super) fn record_sent(&mut self, id: Option<CallId>) {
        self.calls.extend(id.map(|id| (self.next, id)));
        self.next += 1;
    }

    /// Removes the call with this number, which was answered. `None` if it is not pending.
    pub(super) fn end(&mut self, number: u64) -> Option<CallId> {
        let at = self.calls.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.calls.remove(at).map(|(_, id)| id)
    }

    /// Removes a call whose response is no longer needed.
    pub(super) fn forget(&mut self, id: CallId) {
        self.calls.retain(|(_, waiting)| *waiting != id);
    }
}

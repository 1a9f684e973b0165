use std::collections::VecDeque;

use polyrpc_core::CallId;

/// The calls of a connection that wait for their answers, by the number they have on the wire.
///
/// Numbers count up from 0, as Go's do: a peer may keep them in a type that holds no larger ones.
#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    next: u64,
    /// Sorted by number, since that only grows.
    calls: VecDeque<(u64, CallId)>,
}

impl PendingCalls {
    /// The number of the next call.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The call with the next number was sent; one that wants no answer is not waited for.
    pub(super) fn sent(&mut self, id: Option<CallId>) {
        self.calls.extend(id.map(|id| (self.next, id)));
        self.next += 1;
    }

    /// The call of this number is answered. `None` if nobody waits for it.
    pub(super) fn end(&mut self, number: u64) -> Option<CallId> {
        let at = self.calls.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.calls.remove(at).map(|(_, id)| id)
    }

    /// Nobody waits for this call any more.
    pub(super) fn forget(&mut self, id: CallId) {
        self.calls.retain(|(_, waiting)| *waiting != id);
    }
}

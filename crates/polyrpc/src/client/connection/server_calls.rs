//! The calls to one server, over all of its connections.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::any_connection::AnyConnection;
use super::call_counts::CallCounts;

/// The calls to one server.
#[derive(Default)]
pub(in crate::client) struct ServerCalls {
    /// On connections that have ended.
    ended: Mutex<CallCounts>,
    open: Mutex<Vec<Weak<dyn AnyConnection>>>,
}

impl ServerCalls {
    /// Adds a connection, whose calls count for as long as it is open.
    pub(super) fn add_connection(&self, connection: &Arc<dyn AnyConnection>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Only before the list grows: a connection for each call must not cost a look at all others.
        if open.len() == open.capacity() {
            open.retain(|connection| connection.strong_count() > 0);
        }
        open.push(Arc::downgrade(connection));
    }

    /// Adds the counts of a connection that has ended, or of an attempt to connect that failed.
    pub(super) fn add_ended(&self, counts: CallCounts) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) += counts;
    }

    /// Records that no connection was established.
    #[cold]
    pub(super) fn count_connect_error(&self) {
        self.add_ended(CallCounts { calls: 1, failures: 1, in_flight: 0 });
    }

    /// Returns the sums.
    pub(in crate::client) fn counts(&self) -> CallCounts {
        let mut sum = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let open = open.iter().filter_map(Weak::upgrade);
        open.filter_map(|connection| connection.counts()).for_each(|counts| sum += counts);
        sum
    }
}

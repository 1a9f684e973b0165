use std::mem;
use std::sync::{Mutex, PoisonError, Weak};

use tokio::sync::Notify;

/// Queue of servers that may be unreachable, for the task that probes them.
///
/// It is unbounded, but a server is added only once until it was probed.
#[derive(Debug)]
pub(super) struct SuspectQueue<Endpoint> {
    endpoints: Mutex<Vec<Weak<Endpoint>>>,
    notify: Notify,
}

impl<Endpoint> Default for SuspectQueue<Endpoint> {
    fn default() -> Self {
        Self { endpoints: Mutex::default(), notify: Notify::default() }
    }
}

impl<Endpoint> SuspectQueue<Endpoint> {
    pub(super) fn add(&self, endpoint: Weak<Endpoint>) {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).push(endpoint);
        self.notify.notify_one();
    }

    /// Waits until the queue is not empty.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }

    pub(super) fn take(&self) -> Vec<Weak<Endpoint>> {
        mem::take(&mut self.endpoints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

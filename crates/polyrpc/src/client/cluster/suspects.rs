use std::mem;
use std::sync::{Mutex, PoisonError, Weak};

use tokio::sync::Notify;

/// Servers of which it is doubtful whether they can be reached, for the task that tries.
///
/// Without a bound, but whoever adds a server does so once until it was tried.
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

    /// Waits until there are any.
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

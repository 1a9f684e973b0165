use std::mem;
use std::sync::{Mutex, PoisonError, Weak};

use tokio::sync::Notify;

/// Servers of which it is doubtful whether they can be reached, for the task that tries.
///
/// Without a bound, but whoever adds a server does so once until it was tried.
#[derive(Debug)]
pub(super) struct Doubts<Endpoint> {
    endpoints: Mutex<Vec<Weak<Endpoint>>>,
    bell: Notify,
}

impl<Endpoint> Default for Doubts<Endpoint> {
    fn default() -> Self {
        Self { endpoints: Mutex::default(), bell: Notify::default() }
    }
}

impl<Endpoint> Doubts<Endpoint> {
    pub(super) fn add(&self, endpoint: Weak<Endpoint>) {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).push(endpoint);
        self.bell.notify_one();
    }

    /// Waits until there are any.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn any(&self) {
        self.bell.notified().await;
    }

    pub(super) fn take(&self) -> Vec<Weak<Endpoint>> {
        mem::take(&mut self.endpoints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

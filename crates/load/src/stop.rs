use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::slots::Wakeups;

/// Ends a run early, from any thread: nothing more is sent, and calls in flight count as unanswered. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    stopped: AtomicBool,
    threads: Mutex<Vec<Arc<Wakeups>>>,
}

impl Stop {
    /// Ends the run.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        let threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().for_each(|thread| thread.stop());
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Adds a thread of the current run.
    pub(crate) fn add(&self, thread: Arc<Wakeups>) {
        self.0.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread.clone());
        if self.is_stopped() {
            thread.stop();
        }
    }

    /// Forgets the threads of a run that has ended.
    pub(crate) fn clear(&self) {
        self.0.threads.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::memory_budget::Account;

/// Tells a connection which of its streams want something of it.
///
/// Streams may be moved to other tasks, so they cannot reach the connection itself.
#[derive(Debug)]
pub(crate) struct StreamNotify {
    rung: Mutex<NotifiedStreams>,
    /// What the connection holds and may hold: queued messages are part of it.
    pub(super) account: Arc<Account>,
}

#[derive(Debug, Default)]
struct NotifiedStreams {
    /// Each once: a stream rings again only after it was looked at.
    streams: Vec<u64>,
    sleeper: Option<Waker>,
}

impl StreamNotify {
    /// The bell of the connection that has this account.
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self { rung: Mutex::default(), account }
    }

    /// This stream wants to be looked at.
    pub(crate) fn notify(&self, stream: u64) {
        let sleeper = {
            let mut rung = self.lock();
            rung.streams.push(stream);
            rung.sleeper.take()
        };
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Moves the streams to look at behind those in `streams`.
    pub(crate) fn answer(&self, streams: &mut Vec<u64>) {
        streams.append(&mut self.lock().streams);
    }

    /// The connection is awake: it will answer without being woken.
    pub(crate) fn mark_awake(&self) {
        self.lock().sleeper = None;
    }

    /// The connection goes to sleep: the next ring wakes it, and so does one that was not answered.
    pub(crate) fn sleep(&self, waker: &Waker) {
        let mut rung = self.lock();
        if rung.streams.is_empty() {
            rung.sleeper = Some(waker.clone());
        } else {
            drop(rung);
            waker.wake_by_ref();
        }
    }

    fn lock(&self) -> MutexGuard<'_, NotifiedStreams> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use std::sync::{Arc, PoisonError};
use std::task::Waker;

use crate::contention::{Mutex, MutexGuard};
use crate::memory_budget::Account;

/// Notifies a connection of its streams that need attention.
///
/// Streams may be moved to other tasks, so they cannot reach the connection itself.
#[derive(Debug)]
pub(crate) struct StreamNotify {
    rung: Mutex<NotifiedStreams>,
    /// The connection's account: queued messages are charged to it.
    pub(super) account: Arc<Account>,
}

#[derive(Debug, Default)]
struct NotifiedStreams {
    /// Each stream once: it notifies again only after it was handled.
    streams: Vec<u64>,
    sleeper: Option<Waker>,
}

impl StreamNotify {
    /// Creates the notifier of the connection with this account.
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self { rung: Mutex::default(), account }
    }

    /// Notifies the connection of this stream.
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

    /// Appends the notified streams to `streams`.
    pub(crate) fn take_notified(&self, streams: &mut Vec<u64>) {
        streams.append(&mut self.lock().streams);
    }

    /// Marks the connection as awake: it handles notifications without being woken.
    pub(crate) fn set_awake(&self) {
        self.lock().sleeper = None;
    }

    /// Marks the connection as asleep: the next notification wakes it, and so does one that was not handled.
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

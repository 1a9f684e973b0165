//! The queue between calls and the recorder's thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::RecorderStats;
use super::captured::CapturedCall;
use super::schemas::Schemas;

/// Queue with a limit in bytes. Pushing rarely wakes the thread, since waking costs more than the rest of a push: while
/// there are calls, the thread polls many times a second.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
    limit: usize,
    recorded: AtomicU64,
    queue_full: AtomicU64,
    method_limit: AtomicU64,
    not_written: AtomicU64,
}

#[derive(Default)]
struct Inner {
    calls: Vec<CapturedCall>,
    /// Schemas that replace the thread's own from the next calls on.
    schemas: Option<Schemas>,
    bytes: usize,
    is_closed: bool,
    /// The thread waits until it is woken.
    is_sleeping: bool,
}

/// Items that the thread receives.
pub(super) enum QueueItem {
    /// Calls, perhaps none.
    Calls(Vec<CapturedCall>),
    /// The last calls.
    Closed(Vec<CapturedCall>),
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            inner: Mutex::default(),
            changed: Condvar::new(),
            limit,
            recorded: AtomicU64::new(0),
            queue_full: AtomicU64::new(0),
            method_limit: AtomicU64::new(0),
            not_written: AtomicU64::new(0),
        }
    }

    /// Adds a call, or counts it if there is no room.
    pub(super) fn push(&self, call: CapturedCall) {
        let size = call.footprint();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.is_closed {
            return;
        }
        if inner.bytes + size > self.limit {
            drop(inner);
            self.queue_full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        inner.bytes += size;
        inner.calls.push(call);
        let should_wake = inner.is_sleeping || inner.bytes > self.limit / 4;
        inner.is_sleeping = false;
        drop(inner);
        if should_wake {
            self.changed.notify_one();
        }
    }

    /// Passes schemas to the thread, which [takes](Self::take_schemas) them before the next calls.
    pub(super) fn put_schemas(&self, schemas: Schemas) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).schemas = Some(schemas);
    }

    /// Takes schemas that were passed since the last call.
    pub(super) fn take_schemas(&self) -> Option<Schemas> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).schemas.take()
    }

    /// If `may_sleep` and there are no calls, first waits until one arrives. Then waits up to [`POLL_INTERVAL`] for
    /// more, unless the queue is closed or more than a quarter full.
    pub(super) fn receive(&self, may_sleep: bool) -> QueueItem {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if may_sleep && inner.calls.is_empty() && !inner.is_closed {
            inner.is_sleeping = true;
            let waited = self.changed.wait_while(inner, |inner| inner.calls.is_empty() && !inner.is_closed);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
            inner.is_sleeping = false;
        }
        if !inner.is_closed && inner.bytes <= self.limit / 4 {
            let waited = self.changed.wait_timeout(inner, POLL_INTERVAL);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let calls = std::mem::take(&mut inner.calls);
        inner.bytes = 0;
        match inner.is_closed {
            true => QueueItem::Closed(calls),
            false => QueueItem::Calls(calls),
        }
    }

    pub(super) fn close(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.changed.notify_one();
    }

    pub(super) fn count_limited(&self) {
        self.method_limit.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_written(&self, calls: u64) {
        self.recorded.fetch_add(calls, Ordering::Relaxed);
    }

    pub(super) fn count_not_written(&self, calls: u64) {
        self.not_written.fetch_add(calls, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> RecorderStats {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RecorderStats {
            recorded: value(&self.recorded),
            queue_full: value(&self.queue_full),
            method_limit: value(&self.method_limit),
            not_written: value(&self.not_written),
        }
    }
}

/// Interval of polling the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use super::CallKey;

/// The call that a thread polls.
#[derive(Debug)]
struct Cell {
    /// Number of the cell, unique within the process.
    thread: u64,
    name: Box<str>,
    /// Incremented when a poll starts or ends.
    number: AtomicU64,
    /// The call's key; `IDLE` outside of polls.
    call: AtomicU64,
    /// The call's index in the registry; `IDLE` if it has none.
    registry_index: AtomicU64,
}

const IDLE: u64 = u64::MAX;

static CELLS: Mutex<Vec<Weak<Cell>>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CELL: Arc<Cell> = Cell::enter();
}

impl Cell {
    /// Creates the cell of this thread.
    #[cold]
    fn enter() -> Arc<Self> {
        let cell = Arc::new(Self {
            thread: NEXT.fetch_add(1, Ordering::Relaxed),
            name: thread::current().name().unwrap_or_default().into(),
            number: AtomicU64::new(0),
            call: AtomicU64::new(IDLE),
            registry_index: AtomicU64::new(IDLE),
        });
        let mut cells = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
        cells.retain(|cell| cell.strong_count() > 0);
        cells.push(Arc::downgrade(&cell));
        cell
    }

    /// Sets the polled call; only called on its own thread. Returns the previous one.
    fn replace(&self, (call, registry_index): (u64, u64)) -> (u64, u64) {
        let before = (self.call.load(Ordering::Relaxed), self.registry_index.load(Ordering::Relaxed));
        self.call.store(call, Ordering::Relaxed);
        self.registry_index.store(registry_index, Ordering::Relaxed);
        // No read-modify-write is needed: only this thread writes.
        self.number.store(self.number.load(Ordering::Relaxed) + 1, Ordering::Release);
        before
    }

    /// Returns the current poll. A read during a change may mix two polls; the next read then differs.
    fn poll(&self) -> Option<RunningPoll> {
        let number = self.number.load(Ordering::Acquire);
        let (call, registry_index) =
            (self.call.load(Ordering::Relaxed), self.registry_index.load(Ordering::Relaxed));
        (call != IDLE).then_some(RunningPoll { thread: self.thread, number, call, registry_index })
    }
}

/// Runs work of a call with this index in the registry, and marks this thread with the call meanwhile.
#[inline]
pub(super) fn run_marked<T>(call: CallKey, registry_index: Option<u64>, work: impl FnOnce() -> T) -> T {
    // A thread that is ending no longer has a cell.
    let before = CELL.try_with(|cell| cell.replace((call.to_bits(), registry_index.unwrap_or(IDLE))));
    let _mark = before.ok().map(|before| Mark { before });
    work()
}

/// Returns the call with which this thread is marked.
pub(super) fn marked_call() -> Option<CallKey> {
    let call = CELL.try_with(|cell| cell.call.load(Ordering::Relaxed)).ok()?;
    (call != IDLE).then(|| CallKey::from_bits(call))
}

/// The current poll, until this is dropped, including by a panic.
struct Mark {
    /// The poll that encloses this one.
    before: (u64, u64),
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = CELL.try_with(|cell| cell.replace(self.before));
    }
}

/// A poll of a server's call, as observed while it ran. If two are equal, it is the same poll: the handler has not
/// returned meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunningPoll {
    thread: u64,
    number: u64,
    call: u64,
    registry_index: u64,
}

impl RunningPoll {
    /// Returns the number of the thread, counted from the first one that polled a watched call.
    pub fn thread(&self) -> u64 {
        self.thread
    }

    /// Returns the name of the thread; empty if it has none, or has ended.
    pub fn thread_name(&self) -> String {
        let cells = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
        let own = cells.iter().filter_map(Weak::upgrade).find(|cell| cell.thread == self.thread);
        own.map(|cell| cell.name.to_string()).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> CallKey {
        CallKey::from_bits(self.call)
    }

    pub(crate) fn registry_index(&self) -> u64 {
        self.registry_index
    }
}

/// Returns the running polls of servers' calls, at most one per thread, while a [watch](super::watch_calls) exists.
/// [`Metrics::call_of_poll`](crate::layers::Metrics::call_of_poll) returns the call of one.
pub fn current_polls() -> Vec<RunningPoll> {
    let cells = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
    cells.iter().filter_map(Weak::upgrade).filter_map(|cell| cell.poll()).collect()
}

//! Threads count in separate lanes, so that they do not contend for a cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One `T` for each of some threads, created when a thread first needs it.
#[derive(Debug)]
pub(super) struct Lanes<T>(Box<[OnceLock<Box<Lane<T>>>]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane<T>(T);

impl<T: Default> Default for Lanes<T> {
    fn default() -> Self {
        Self((0..count()).map(|_| OnceLock::new()).collect())
    }
}

impl<T: Default> Lanes<T> {
    /// Returns the lane of this thread, with which it may share it.
    pub(super) fn own(&self) -> &T {
        let at = LANE.with(|lane| *lane) & (self.0.len() - 1);
        // The length is a power of two.
        &self.0[at].get_or_init(Box::default).0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).map(|lane| &lane.0)
    }
}

thread_local! {
    /// The number of this thread, in the order in which they first counted.
    static LANE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Returns the number of threads that can run at a time, up to a bound: a power of two.
fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.next_power_of_two().min(16)
    })
}

//! Threads count in separate shards, so that they do not contend for a cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A `T` for each shard, created when a thread first needs it.
#[derive(Debug)]
pub(super) struct Sharded<T>(Box<[OnceLock<Box<Shard<T>>>]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<T>(T);

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self((0..count()).map(|_| OnceLock::new()).collect())
    }
}

impl<T: Default> Sharded<T> {
    /// Returns the shard of this thread; other threads may share it.
    pub(super) fn current(&self) -> &T {
        let at = SHARD.with(|shard| *shard) & (self.0.len() - 1);
        // The length is a power of two.
        &self.0[at].get_or_init(Box::default).0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).map(|shard| &shard.0)
    }
}

thread_local! {
    /// Number of this thread, in the order in which threads first counted.
    static SHARD: usize = {
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

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use slab::Slab;

use super::CallKey;
use crate::call::Peer;
use crate::contention::{Mutex, MutexGuard};

/// Number of watches.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

/// Threads enter calls in different shards, so that they do not wait for each other.
static SHARDS: [Mutex<Slab<Entry>>; 32] = [const { Mutex::new(Slab::new()) }; 32];

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS.len();
}

/// A pending call.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: CallKey,
    pub(crate) peer: Option<Peer>,
    pub(crate) began: Instant,
}

/// Watches calls in flight until it is dropped: see [`watch_calls`].
#[derive(Debug)]
struct RunningWatch(());

/// Makes [`Metrics`](crate::layers::Metrics) list the calls in flight that start from now on, until the result is
/// dropped. Without it, they are only counted.
///
/// ```
/// use polyrpc::layers::{Metrics, watch_calls};
///
/// let metrics = Metrics::new();
/// let _watch = watch_calls();
/// for call in metrics.calls_in_flight() {
///     println!("{}/{} for {:?}", call.service, call.method, call.age);
/// }
/// ```
#[must_use = "calls are watched for as long as the result exists"]
pub fn watch_calls() -> impl fmt::Debug + Send + Sync + 'static {
    WATCHES.fetch_add(1, Ordering::Relaxed);
    RunningWatch(())
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        WATCHES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a watch exists.
#[inline]
pub(crate) fn is_watched() -> bool {
    WATCHES.load(Ordering::Relaxed) > 0
}

/// Returns the pending calls, with their indices.
pub(crate) fn entries(metrics: u32) -> Vec<(u64, Entry)> {
    let mut all = Vec::new();
    for part in 0..SHARDS.len() {
        let part_entries = lock(part);
        let own = part_entries.iter().filter(|(_, entry)| entry.key.metrics == metrics);
        all.extend(own.map(|(index, entry)| (combined_index(part, index), entry.clone())));
    }
    all
}

/// An entry of a call in the registry; removed on drop.
#[derive(Debug)]
pub(super) struct RegistryEntry {
    part: usize,
    index: usize,
}

impl RegistryEntry {
    pub(super) fn new(entry: Entry) -> Self {
        let part = SHARD.try_with(|part| *part).unwrap_or_default();
        let index = lock(part).insert(entry);
        Self { part, index }
    }

    pub(super) fn combined_index(&self) -> u64 {
        combined_index(self.part, self.index)
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        lock(self.part).try_remove(self.index);
    }
}

fn combined_index(part: usize, index: usize) -> u64 {
    (part as u64) << 48 | index as u64
}

fn lock(part: usize) -> MutexGuard<'static, Slab<Entry>> {
    SHARDS[part % SHARDS.len()].lock().unwrap_or_else(PoisonError::into_inner)
}

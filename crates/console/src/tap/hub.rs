use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::mpsc;

use super::call::{Facts, TapCall};
use super::filter::Filter;

/// Maximum number of taps of the process.
const TAPS: usize = 4;

/// Maximum number of calls that a tap receives in a second.
pub(crate) const CALLS_PER_SECOND: u32 = 100;

/// How many taps are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static HUB: RwLock<Vec<Arc<Shared>>> = RwLock::new(Vec::new());
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Receives calls that end while it exists.
#[derive(Debug)]
pub(crate) struct Tap {
    shared: Arc<Shared>,
    calls: mpsc::Receiver<TapCall>,
}

#[derive(Debug)]
struct Shared {
    filter: Filter,
    sender: mpsc::Sender<TapCall>,
    /// Maximum number of calls in a second.
    rate: u32,
    /// The current second in the upper half, and how many calls were taken in it in the lower.
    taken: AtomicU64,
    /// How many calls were not shown.
    missed: AtomicU64,
}

impl Tap {
    /// Opens a tap that receives at most this many calls a second; `None` if there are too many taps.
    pub(crate) fn open(filter: Filter, rate: u32) -> Option<Self> {
        let (sender, calls) = mpsc::channel(2 * CALLS_PER_SECOND as usize);
        let rate = rate.clamp(1, CALLS_PER_SECOND);
        let (taken, missed) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { filter, sender, rate, taken, missed });
        let mut taps = HUB.write().unwrap_or_else(PoisonError::into_inner);
        if taps.len() >= TAPS {
            return None;
        }
        taps.push(shared.clone());
        OPEN.store(taps.len(), Ordering::Relaxed);
        Some(Self { shared, calls })
    }

    /// Returns the next call.
    ///
    /// # Cancel safety
    ///
    /// No call is lost.
    pub(crate) async fn next(&mut self) -> Option<TapCall> {
        self.calls.recv().await
    }

    /// Returns a call that was received already.
    pub(crate) fn received(&mut self) -> Option<TapCall> {
        self.calls.try_recv().ok()
    }

    /// Returns how many calls were not received, since there were too many.
    pub(crate) fn missed(&self) -> u64 {
        self.shared.missed.load(Ordering::Relaxed)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut taps = HUB.write().unwrap_or_else(PoisonError::into_inner);
        taps.retain(|tap| !Arc::ptr_eq(tap, &self.shared));
        OPEN.store(taps.len(), Ordering::Relaxed);
    }
}

impl Shared {
    /// Takes the place of a call in this second; `false` if none is left.
    fn takes(&self, second: u64) -> bool {
        let next = |taken: u64| match (taken >> 32 == second, taken as u32) {
            (false, _) => Some(second << 32 | 1),
            (true, count) if count < self.rate => Some(taken + 1),
            (true, _) => None,
        };
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Whether there is a place left in this second.
    fn has_place(&self, second: u64) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        taken >> 32 != second || (taken as u32) < self.rate
    }
}

/// Whether there is a tap.
#[inline]
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed) > 0
}

/// Offers a call that has ended to the taps. `details` is called only if a tap may want it. Calls are not delayed: a
/// tap misses calls that end while it is opened or closed, or for which it has no room.
#[cold]
pub(crate) fn offer(facts: &Facts, details: impl FnOnce() -> TapCall) {
    let Ok(taps) = HUB.try_read() else { return };
    let second = BEGAN.elapsed().as_secs() & u64::from(u32::MAX);
    let mut wanting = taps.iter().filter(|tap| tap.filter.accepts_facts(facts)).peekable();
    if wanting.peek().is_none() {
        return;
    }
    // A tap that has no place left knows nothing more of the call: formatting has its cost.
    let mut open = wanting
        .filter(|tap| {
            let has_place = tap.has_place(second);
            tap.missed.fetch_add(u64::from(!has_place), Ordering::Relaxed);
            has_place
        })
        .peekable();
    if open.peek().is_none() {
        return;
    }
    let call = details();
    for tap in open.filter(|tap| tap.filter.accepts(&call)) {
        if !tap.takes(second) || tap.sender.try_send(call.clone()).is_err() {
            tap.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

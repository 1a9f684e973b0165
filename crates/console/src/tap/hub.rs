//! Registry of the open taps, to which every ended call is offered.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::mpsc;

use super::call::{Facts, TapCall};
use super::filter::Filter;

/// Maximum number of open taps of the process.
const MAX_TAPS: usize = 4;

/// Maximum number of calls that a tap receives in a second.
pub(crate) const CALLS_PER_SECOND: u32 = 100;

/// Number of open taps: a copy of the length of [`TAPS`] that is read without its lock.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static TAPS: RwLock<Vec<Arc<Shared>>> = RwLock::new(Vec::new());
/// Start of the first of the seconds in which calls are counted.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Receives calls that end while it exists.
#[derive(Debug)]
pub(crate) struct Tap {
    shared: Arc<Shared>,
    calls: mpsc::Receiver<TapCall>,
}

/// State that a tap shares with the threads that offer calls.
#[derive(Debug)]
struct Shared {
    filter: Filter,
    sender: mpsc::Sender<TapCall>,
    /// Maximum number of calls in a second.
    rate: u32,
    /// Current second in the upper half, and the number of calls sent in that second in the lower half.
    used_slots: AtomicU64,
    /// Number of calls that were not sent, because the rate was reached or the channel was full.
    missed: AtomicU64,
}

impl Tap {
    /// Opens a tap that receives at most `rate` calls a second; `None` if there are too many taps.
    pub(crate) fn open(filter: Filter, rate: u32) -> Option<Self> {
        let (sender, calls) = mpsc::channel(2 * CALLS_PER_SECOND as usize);
        let rate = rate.clamp(1, CALLS_PER_SECOND);
        let (used_slots, missed) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { filter, sender, rate, used_slots, missed });
        let mut taps = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        if taps.len() >= MAX_TAPS {
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

    /// Returns the next call, or `None` if none has arrived.
    pub(crate) fn try_next(&mut self) -> Option<TapCall> {
        self.calls.try_recv().ok()
    }

    /// Returns the number of calls that the tap missed because there were too many.
    pub(crate) fn missed(&self) -> u64 {
        self.shared.missed.load(Ordering::Relaxed)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let mut taps = TAPS.write().unwrap_or_else(PoisonError::into_inner);
        taps.retain(|tap| !Arc::ptr_eq(tap, &self.shared));
        OPEN.store(taps.len(), Ordering::Relaxed);
    }
}

impl Shared {
    /// Takes one of the slots of this second; `false` if none is left.
    fn take_slot(&self, second: u64) -> bool {
        let next = |used: u64| match (used >> 32 == second, used as u32) {
            (false, _) => Some(second << 32 | 1),
            (true, count) if count < self.rate => Some(used + 1),
            (true, _) => None,
        };
        self.used_slots.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Whether a slot is left in this second.
    fn has_slot(&self, second: u64) -> bool {
        let used = self.used_slots.load(Ordering::Relaxed);
        used >> 32 != second || (used as u32) < self.rate
    }
}

/// Whether any tap is open.
#[inline]
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed) > 0
}

/// Offers an ended call to the taps. `details` is called only if a tap may want the call.
///
/// It never waits: all taps miss the calls that end while a tap is being opened or closed, and a tap misses those that
/// exceed its rate or do not fit into its channel.
#[cold]
pub(crate) fn offer(facts: &Facts, details: impl FnOnce() -> TapCall) {
    let Ok(taps) = TAPS.try_read() else { return };
    let second = START.elapsed().as_secs() & u64::from(u32::MAX);
    let mut interested = taps.iter().filter(|tap| tap.filter.accepts_facts(facts)).peekable();
    if interested.peek().is_none() {
        return;
    }
    // Taps without a slot only count the call as missed. If no tap has one, the call is not formatted.
    let mut with_slot = interested
        .filter(|tap| {
            let has_slot = tap.has_slot(second);
            tap.missed.fetch_add(u64::from(!has_slot), Ordering::Relaxed);
            has_slot
        })
        .peekable();
    if with_slot.peek().is_none() {
        return;
    }
    let call = details();
    for tap in with_slot.filter(|tap| tap.filter.accepts(&call)) {
        if !tap.take_slot(second) || tap.sender.try_send(call.clone()).is_err() {
            tap.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

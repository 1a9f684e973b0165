use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use polyrpc_core::Scope;

use super::candidate_state::address;
use super::{AttemptOutcome, Candidate, LoadBalancer, PickContext, Picker};

/// The server that another balancer chose first, for as long as its connection holds: rpcx's option `Sticky`.
///
/// Where servers keep something for their clients. A call that is tried again goes elsewhere for once; when the server's
/// connection failed, or it may not take calls or is gone, the other balancer chooses the next one to stay with.
#[derive(Debug)]
pub struct Sticky<B> {
    inner: B,
    kept: Arc<StickyTarget>,
}

/// The server to stay with, across sets.
#[derive(Debug)]
struct StickyTarget(AtomicUsize);

impl<B: LoadBalancer> Sticky<B> {
    /// Stays with what `inner` chooses.
    pub fn new(inner: B) -> Self {
        Self { inner, kept: Arc::new(StickyTarget(AtomicUsize::new(NONE))) }
    }
}

/// No server's address.
const NONE: usize = 0;

impl<B: LoadBalancer> LoadBalancer for Sticky<B> {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        Box::new(StickyPicker {
            inner: self.inner.picker(candidates),
            kept: self.kept.clone(),
            addresses: candidates.iter().map(address).collect(),
            last: AtomicUsize::new(0),
        })
    }
}

struct StickyPicker {
    inner: Box<dyn Picker>,
    kept: Arc<StickyTarget>,
    /// Of the servers of this set.
    addresses: Box<[usize]>,
    /// Where the kept one was last.
    last: AtomicUsize,
}

impl StickyPicker {
    /// The place of the server to stay with, if there is one and this set has it.
    fn sticky_index(&self) -> Option<usize> {
        let StickyTarget(kept) = &*self.kept;
        let kept = Some(kept.load(Ordering::Relaxed)).filter(|&kept| kept != NONE)?;
        let last = self.last.load(Ordering::Relaxed);
        if self.addresses.get(last) == Some(&kept) {
            return Some(last);
        }
        let place = self.addresses.iter().position(|&address| address == kept)?;
        self.last.store(place, Ordering::Relaxed);
        Some(place)
    }

    /// Stays with this one, unless another call has found one in the meantime.
    fn keep(&self, place: usize, in_place_of: Option<usize>) {
        let StickyTarget(kept) = &*self.kept;
        let seen = in_place_of.and_then(|place| self.addresses.get(place).copied());
        let Some(&chosen) = self.addresses.get(place) else { return };
        let now = kept.load(Ordering::Relaxed);
        let is_stale = now == NONE || Some(now) == seen || !self.addresses.contains(&now);
        if is_stale {
            // Whoever was faster is as good.
            let _ = kept.compare_exchange(now, chosen, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Picker for StickyPicker {
    fn pick(&self, asked: &PickContext<'_>) -> Option<usize> {
        let kept = self.sticky_index();
        match kept {
            Some(place) if asked.may_take(place) => Some(place),
            Some(place) if asked.is_available(place) => self.inner.pick(asked),
            _ => {
                let place = self.inner.pick(asked)?;
                self.keep(place, kept);
                Some(self.sticky_index().filter(|&kept| asked.may_take(kept)).unwrap_or(place))
            }
        }
    }

    fn call_started(&self, place: usize, now: Instant) {
        self.inner.call_started(place, now);
    }

    fn call_finished(&self, place: usize, outcome: &AttemptOutcome<'_>) {
        self.inner.call_finished(place, outcome);
        let StickyTarget(kept) = &*self.kept;
        if outcome.failure.is_some_and(|status| status.scope() == Scope::Connection)
            && let Some(&address) = self.addresses.get(place)
        {
            // Unless another is kept by now.
            let _ = kept.compare_exchange(address, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

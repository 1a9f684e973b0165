use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use polyrpc_core::Scope;

use super::candidate_state::address;
use super::{AttemptOutcome, Candidate, LoadBalancer, PickContext, Picker};

/// See [`Policy::sticky`](super::Policy::sticky).
#[derive(Debug)]
pub(crate) struct Sticky<B> {
    inner: B,
    kept: Arc<StickyTarget>,
}

/// Server to keep, across sets.
#[derive(Debug)]
struct StickyTarget(AtomicUsize);

impl<B: LoadBalancer> Sticky<B> {
    /// Creates a balancer that keeps the choice of `inner`.
    pub(crate) fn new(inner: B) -> Self {
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
    /// Addresses of the servers of this set.
    addresses: Box<[usize]>,
    /// Last known index of the kept server.
    last: AtomicUsize,
}

impl StickyPicker {
    /// Returns the index of the kept server, if there is one in this set.
    fn sticky_index(&self) -> Option<usize> {
        let StickyTarget(kept) = &*self.kept;
        let kept = Some(kept.load(Ordering::Relaxed)).filter(|&kept| kept != NONE)?;
        let last = self.last.load(Ordering::Relaxed);
        if self.addresses.get(last) == Some(&kept) {
            return Some(last);
        }
        let index = self.addresses.iter().position(|&address| address == kept)?;
        self.last.store(index, Ordering::Relaxed);
        Some(index)
    }

    /// Keeps this server instead of the one that it replaces, unless another call has chosen one in the meantime.
    fn keep(&self, index: usize, replaced: Option<usize>) {
        let StickyTarget(kept) = &*self.kept;
        let seen = replaced.and_then(|index| self.addresses.get(index).copied());
        let Some(&chosen) = self.addresses.get(index) else { return };
        let now = kept.load(Ordering::Relaxed);
        let is_stale = now == NONE || Some(now) == seen || !self.addresses.contains(&now);
        if is_stale {
            // If another call was faster, its choice is equally good.
            let _ = kept.compare_exchange(now, chosen, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Picker for StickyPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        let kept = self.sticky_index();
        match kept {
            Some(index) if context.is_eligible(index) => Some(index),
            Some(index) if context.is_available(index) => self.inner.pick(context),
            _ => {
                let index = self.inner.pick(context)?;
                self.keep(index, kept);
                Some(self.sticky_index().filter(|&kept| context.is_eligible(kept)).unwrap_or(index))
            }
        }
    }

    fn call_started(&self, index: usize, now: Instant) {
        self.inner.call_started(index, now);
    }

    fn call_finished(&self, index: usize, outcome: &AttemptOutcome<'_>) {
        self.inner.call_finished(index, outcome);
        let StickyTarget(kept) = &*self.kept;
        if outcome.failure.is_some_and(|status| status.scope() == Scope::Connection)
            && let Some(&address) = self.addresses.get(index)
        {
            // Unless another server is kept by now.
            let _ = kept.compare_exchange(address, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

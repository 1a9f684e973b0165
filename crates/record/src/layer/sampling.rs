//! Which calls are recorded.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Selects a share of the calls, evenly spread: for a tenth, every tenth.
#[derive(Debug)]
pub(super) struct Sampler {
    /// In units of 2⁻³² calls.
    share: u64,
    taken: AtomicU64,
}

impl Sampler {
    /// Creates a sampler for a share between 0 (none) and 1 (all); NaN counts as 0.
    pub(super) fn new(share: f64) -> Self {
        // The conversion to an integer saturates.
        Self { share: (share.clamp(0.0, 1.0) * ONE_CALL as f64) as u64, taken: AtomicU64::new(0) }
    }

    /// Returns whether this call is selected.
    pub(super) fn selects(&self) -> bool {
        match self.share {
            ONE_CALL => true,
            0 => false,
            share => {
                let before = self.taken.fetch_add(share, Ordering::Relaxed);
                before / ONE_CALL != before.wrapping_add(share) / ONE_CALL
            }
        }
    }

    /// Returns the number of calls that a selected one stands for.
    pub(super) fn weight(&self) -> f64 {
        ONE_CALL as f64 / self.share.max(1) as f64
    }
}

const ONE_CALL: u64 = 1 << 32;

/// Limits the calls of a method in a second.
#[derive(Debug)]
pub(super) struct MethodLimit {
    limit: u32,
    origin: Instant,
    hasher: RandomState,
    /// Second and number of calls, by a hash of the method: names may be the caller's choice.
    counts: Mutex<HashMap<u64, (u64, u32)>>,
}

impl MethodLimit {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, origin: Instant::now(), hasher: RandomState::new(), counts: Mutex::default() }
    }

    /// Counts a call at this time. Returns whether it is within the limit.
    pub(super) fn allows(&self, names: &str, split: usize, now: Instant) -> bool {
        let second = now.saturating_duration_since(self.origin).as_secs();
        let method = self.hasher.hash_one((names, split));
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MAX_METHODS && !counts.contains_key(&method) {
            counts.retain(|_, (at, _)| *at == second);
            if counts.len() >= MAX_METHODS {
                return false;
            }
        }
        let (at, count) = counts.entry(method).or_insert((second, 0));
        if *at != second {
            (*at, *count) = (second, 0);
        }
        *count = count.saturating_add(1);
        *count <= self.limit
    }
}

const MAX_METHODS: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn share_is_spread_evenly() {
        for (share, want) in [(0.0, 0), (0.1, 100), (0.25, 250), (1.0, 1000), (7.0, 1000), (f64::NAN, 0)] {
            let sampler = Sampler::new(share);
            let taken = (0..1000).filter(|_| sampler.selects()).count();
            assert!((want - 1..=want).contains(&(taken as i64)), "{taken} of {want}");
        }
        assert_eq!(Sampler::new(0.25).weight(), 4.0);
    }

    #[test]
    fn method_limit_applies_to_each_second_and_method() {
        let limit = MethodLimit::new(2);
        let start = limit.origin;
        let allowed = |names, at| limit.allows(names, 1, start + Duration::from_millis(at));
        assert_eq!([0, 1, 2].map(|at| allowed("ab", at)), [true, true, false]);
        assert!(allowed("ac", 3) && allowed("ab", 1000));
    }
}

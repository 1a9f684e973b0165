//! Limits on copies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Limits the copies in flight, their bytes, and the copies started per second.
#[derive(Debug)]
pub(super) struct Budget {
    max_copies: usize,
    max_bytes: usize,
    used: Arc<Usage>,
    rate: Mutex<Rate>,
}

#[derive(Debug, Default)]
struct Usage {
    copies: AtomicUsize,
    bytes: AtomicUsize,
}

/// A token bucket that holds a second's worth of copies.
#[derive(Debug)]
struct Rate {
    per_second: f64,
    left: f64,
    filled: Option<Instant>,
}

/// A limit is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitReached;

/// The share of the budget that a copy uses, returned when this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    used: Arc<Usage>,
    bytes: usize,
    max_bytes: usize,
}

impl Budget {
    pub(super) fn new(max_copies: usize, max_bytes: usize, per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        let rate = Mutex::new(Rate { per_second, left: per_second, filled: None });
        Self { max_copies, max_bytes, used: Arc::default(), rate }
    }

    /// Reserves the share of a copy.
    pub(super) fn take(&self, bytes: usize, now: Instant) -> Result<Permit, LimitReached> {
        let used = &self.used;
        let add = |count| (count < self.max_copies).then_some(count + 1);
        used.copies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| LimitReached)?;
        // Dropping it returns what was reserved so far.
        let mut permit = Permit { used: used.clone(), bytes: 0, max_bytes: self.max_bytes };
        permit.grow(bytes)?;
        match self.rate.lock().unwrap_or_else(PoisonError::into_inner).take(now) {
            true => Ok(permit),
            false => Err(LimitReached),
        }
    }
}

impl Permit {
    /// Adds bytes to the share.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), LimitReached> {
        let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes);
        self.used.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| LimitReached)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.used.copies.fetch_sub(1, Ordering::Relaxed);
        self.used.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Rate {
    fn take(&mut self, now: Instant) -> bool {
        let passed = self.filled.map_or(0.0, |then| now.saturating_duration_since(then).as_secs_f64());
        self.filled = Some(now);
        self.left = (self.left + passed * self.per_second).min(self.per_second);
        let has = self.left >= 1.0;
        if has {
            self.left -= 1.0;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_bound_refuses_and_gives_back() {
        let now = Instant::now();
        let budget = Budget::new(2, 100, 1_000_000);
        let first = budget.take(60, now).unwrap();
        assert_eq!(budget.take(41, now).unwrap_err(), LimitReached);
        let mut second = budget.take(40, now).unwrap();
        assert_eq!(second.grow(1), Err(LimitReached));
        assert_eq!(budget.take(0, now).unwrap_err(), LimitReached, "two are in flight");
        drop(first);
        second.grow(60).unwrap();
        drop(second);
        budget.take(100, now).unwrap();
    }

    #[test]
    fn copies_a_second_are_bounded() {
        let (budget, start) = (Budget::new(10, 10, 3), Instant::now());
        let taken = |at: u64| {
            let now = start + Duration::from_millis(at);
            (0..10).filter(|_| budget.take(0, now).is_ok()).count()
        };
        assert_eq!([taken(0), taken(400), taken(1400), taken(60_000)], [3, 1, 3, 3]);
    }
}

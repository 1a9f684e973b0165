use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::family::Sealed;
use super::registry::{self, Variable};
use super::value::{Kind, Reading, Value};

/// The largest number recorded: bvar's `Maxer`. Clones share their state.
#[derive(Clone)]
pub struct Max(Arc<Largest>);

#[derive(Debug)]
struct Largest {
    ever: AtomicI64,
    /// Since the last second.
    lately: AtomicI64,
    /// Of the last seconds, the latest first.
    past: Mutex<VecDeque<i64>>,
}

/// Mark: nothing was recorded.
const NONE: i64 = i64::MIN;

impl Default for Max {
    fn default() -> Self {
        let (ever, lately) = (AtomicI64::new(NONE), AtomicI64::new(NONE));
        Self(Arc::new(Largest { ever, lately, past: Mutex::default() }))
    }
}

impl Max {
    /// Creates a maximum that is listed under this name.
    pub fn new(name: &str) -> Self {
        let max = Self::default();
        registry::list(name, &max.0);
        max
    }

    /// Records a number.
    #[inline]
    pub fn record(&self, value: i64) {
        // Most numbers are not the largest, and a load causes no contention.
        if value > self.0.lately.load(Ordering::Relaxed) {
            self.0.lately.fetch_max(value, Ordering::Relaxed);
            self.0.ever.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Returns the largest number so far; zero if there is none.
    pub fn value(&self) -> i64 {
        zero_if_none(self.0.ever.load(Ordering::Relaxed))
    }

    /// Returns the largest number of the last so many seconds.
    pub(super) fn value_over(&self, seconds: usize) -> i64 {
        let past = self.0.past.lock().unwrap_or_else(PoisonError::into_inner);
        zero_if_none(past.iter().take(seconds).copied().max().unwrap_or(NONE))
    }
}

fn zero_if_none(value: i64) -> i64 {
    if value == NONE { 0 } else { value }
}

impl Variable for Largest {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        let value = zero_if_none(self.ever.load(Ordering::Relaxed));
        readings.push(Reading::new(name, Kind::Gauge, Value::Integer(value)));
    }

    fn sample(&self) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        past.push_front(self.lately.swap(NONE, Ordering::Relaxed));
        past.truncate(super::windows::MAX_SECONDS);
    }
}

impl Sealed for Max {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        self.0.read(name, readings);
    }
}

impl fmt::Debug for Max {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Max").field(&self.value()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_of_a_window_is_forgotten_after_it() {
        let max = Max::default();
        assert_eq!((max.value(), max.value_over(10)), (0, 0));
        for value in [-5, 40, 3, 7] {
            max.record(value);
            max.0.sample();
        }
        assert_eq!((max.value(), max.value_over(2), max.value_over(3), max.value_over(9)), (40, 7, 40, 40));
    }
}

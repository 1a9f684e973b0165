use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::family::Sealed;
use super::registry::{self, Variable};
use super::sharded::Sharded;
use super::value::{Kind, Reading, Value};

/// Sum of what was added: bvar's `Adder`. Adding costs a few nanoseconds, and threads do not slow each other down. Clones
/// count together.
#[derive(Clone, Default)]
pub struct Counter(Arc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    shards: Sharded<AtomicI64>,
    /// The sums at the last seconds, the latest first, if somebody reads a window of them.
    past: OnceLock<Mutex<VecDeque<i64>>>,
}

impl Counter {
    /// Creates a counter that is listed under this name.
    pub fn new(name: &str) -> Self {
        let counter = Self::default();
        registry::list(name, &counter.0);
        counter
    }

    /// Adds to the sum; a negative number makes it smaller.
    #[inline]
    pub fn add(&self, count: i64) {
        self.0.shards.current().fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the sum.
    pub fn value(&self) -> i64 {
        self.0.value()
    }

    /// Keeps the sums of the last seconds from now on.
    pub(super) fn keep_past(&self) {
        self.0.past.get_or_init(Mutex::default);
    }

    /// Returns what was added in the last so many seconds, and how many of them are known.
    pub(super) fn value_over(&self, seconds: usize) -> (i64, usize) {
        let Some(past) = self.0.past.get() else { return (0, 0) };
        let past = past.lock().unwrap_or_else(PoisonError::into_inner);
        let known = past.len().saturating_sub(1).min(seconds);
        match (past.front(), past.get(known)) {
            (Some(now), Some(then)) => (now - then, known),
            _ => (0, 0),
        }
    }
}

impl Sum {
    fn value(&self) -> i64 {
        self.shards.iter().map(|shard| shard.load(Ordering::Relaxed)).sum()
    }
}

impl Variable for Sum {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        readings.push(Reading::new(name, Kind::Gauge, Value::Integer(self.value())));
    }

    fn sample(&self) {
        if let Some(past) = self.past.get() {
            let mut past = past.lock().unwrap_or_else(PoisonError::into_inner);
            past.push_front(self.value());
            past.truncate(super::windows::MAX_SECONDS + 1);
        }
    }
}

impl Sealed for Counter {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        self.0.read(name, readings);
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.value()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_together_and_windows_have_what_was_added_lately() {
        let counter = Counter::default();
        counter.keep_past();
        assert_eq!(counter.value_over(10), (0, 0));
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| (0..1000).for_each(|_| counter.add(2)))));
        });
        assert_eq!(counter.value(), 8000);
        for add in [5, 7, 11] {
            counter.0.sample();
            counter.add(add);
        }
        counter.0.sample();
        let values = (counter.value_over(1), counter.value_over(2), counter.value_over(10));
        assert_eq!(values, ((11, 1), (18, 2), (23, 3)));
    }
}

use std::sync::OnceLock;
use std::thread::{self, ThreadId};

/// Values of which each of a set of threads has its own.
#[derive(Debug)]
pub(super) struct PerThread<T> {
    values: Vec<T>,
    /// The threads that have a value, in the order of the values.
    owners: Vec<OnceLock<ThreadId>>,
}

thread_local! {
    static ID: ThreadId = thread::current().id();
}

impl<T> PerThread<T> {
    /// `values` must not be empty.
    pub(super) fn new(values: Vec<T>) -> Self {
        let owners = values.iter().map(|_| OnceLock::new()).collect();
        Self { values, owners }
    }

    /// Returns the value of this thread. Threads get one in the order of their first use; threads that come when all
    /// are taken share the first.
    pub(super) fn current(&self) -> &T {
        let index = match self.values.len() {
            1 => 0,
            _ => ID
                .with(|id| self.owners.iter().position(|owner| owner.get_or_init(|| *id) == id))
                .unwrap_or(0),
        };
        &self.values[index]
    }

    pub(super) fn first(&self) -> &T {
        &self.values[0]
    }

    pub(super) fn all(&self) -> &[T] {
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_keeps_its_value_and_late_threads_share_the_first() {
        let values = PerThread::new(vec![0, 1]);
        let twice = || [*values.current(), *values.current()];
        let own = || thread::scope(|scope| scope.spawn(twice).join().unwrap());
        assert_eq!([own(), own(), own()], [[0, 0], [1, 1], [0, 0]]);
    }
}

//! Bounds on how many calls are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Admits a number of calls at a time. Clones are the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Option<Arc<Counted>>);

#[derive(Debug)]
struct Counted {
    most: usize,
    under_way: AtomicUsize,
}

/// A call that was admitted, until all clones are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Admitted {
    /// Nothing reads it.
    _place: Option<Arc<Place>>,
}

#[derive(Debug)]
struct Place(Arc<Counted>);

impl Gate {
    /// Admits any number, if there is no bound.
    pub(crate) fn new(most: Option<usize>) -> Self {
        Self(most.map(|most| Arc::new(Counted { most, under_way: AtomicUsize::new(0) })))
    }

    /// Admits a call unless there are too many.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        let Some(counted) = &self.0 else { return Some(Admitted::default()) };
        let add = |count| (count < counted.most).then_some(count + 1);
        counted.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Admitted { _place: Some(Arc::new(Place(counted.clone()))) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_free_again_when_a_call_ends() {
        let gate = Gate::new(Some(2));
        let (first, second) = (gate.admit(), gate.admit());
        assert!(first.is_some() && second.is_some() && gate.admit().is_none());
        let clone = first.clone();
        drop(first);
        assert!(gate.admit().is_none());
        drop(clone);
        assert!(gate.admit().is_some());
        let open = Gate::new(None);
        let all: Vec<_> = (0..1000).map(|_| open.admit()).collect();
        assert!(all.iter().all(Option::is_some));
    }
}

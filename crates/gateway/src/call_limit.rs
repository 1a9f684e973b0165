//! Limits of the number of calls in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Limits the number of concurrent calls. Clones share the limit.
#[derive(Debug, Clone)]
pub(crate) struct CallLimit(Option<Arc<Counted>>);

#[derive(Debug)]
struct Counted {
    max: usize,
    in_flight: AtomicUsize,
}

/// Permit of an admitted call, held until all clones are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallPermit {
    /// Only dropped, never read.
    _place: Option<Arc<Place>>,
}

#[derive(Debug)]
struct Place(Arc<Counted>);

impl CallLimit {
    /// Without a maximum, every call is admitted.
    pub(crate) fn new(max: Option<usize>) -> Self {
        Self(max.map(|max| Arc::new(Counted { max, in_flight: AtomicUsize::new(0) })))
    }

    /// Admits a call unless the limit is reached.
    pub(crate) fn admit(&self) -> Option<CallPermit> {
        let Some(counted) = &self.0 else { return Some(CallPermit::default()) };
        let add = |count| (count < counted.max).then_some(count + 1);
        counted.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(CallPermit { _place: Some(Arc::new(Place(counted.clone()))) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_free_again_when_a_call_ends() {
        let limit = CallLimit::new(Some(2));
        let (first, second) = (limit.admit(), limit.admit());
        assert!(first.is_some() && second.is_some() && limit.admit().is_none());
        let clone = first.clone();
        drop(first);
        assert!(limit.admit().is_none());
        drop(clone);
        assert!(limit.admit().is_some());
        let open = CallLimit::new(None);
        let all: Vec<_> = (0..1000).map(|_| open.admit()).collect();
        assert!(all.iter().all(Option::is_some));
    }
}

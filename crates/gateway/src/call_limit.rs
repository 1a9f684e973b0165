//! Limit on the number of calls in flight. Each caller's connection gets a fair share of it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Limits the number of concurrent calls. Clones share the limit.
///
/// The last quarter is shared: a connection takes from it only up to its equal share. The last sixteenth is for
/// connections that have few calls, so that the waiting calls of one caller never take all permits.
#[derive(Debug, Clone)]
pub(crate) struct CallLimit(Option<Arc<Counters>>);

#[derive(Debug)]
struct Counters {
    max: usize,
    in_flight: AtomicUsize,
    /// Calls of the callers' connections, by a hash of their numbers. Those with the same hash count as one connection
    /// ("stochastic fairness queueing", McKenney 1990): to count exactly would need a lock.
    by_connection: Box<[AtomicUsize]>,
    /// Number of hashes with calls.
    holders: AtomicUsize,
}

/// Permit of an admitted call, held until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct CallPermit {
    /// Only dropped, never read.
    _counted: Option<CountedCall>,
}

#[derive(Debug)]
struct CountedCall {
    counted: Arc<Counters>,
    /// Hash of the connection.
    slot: usize,
}

impl CallLimit {
    /// Without a maximum, every call is admitted.
    pub(crate) fn new(max: Option<usize>) -> Self {
        Self(max.map(|max| Arc::new(Counters::new(max))))
    }

    /// Admits a call of a connection, unless the limit or the connection's share is used up.
    pub(crate) fn admit(&self, connection: u64) -> Option<CallPermit> {
        let Some(counted) = &self.0 else { return Some(CallPermit::default()) };
        let slot = slot(connection);
        counted
            .add(slot)
            .then(|| CallPermit { _counted: Some(CountedCall { counted: counted.clone(), slot }) })
    }
}

impl Counters {
    fn new(max: usize) -> Self {
        let by_connection = (0..SLOTS).map(|_| AtomicUsize::new(0)).collect();
        Self { max, in_flight: AtomicUsize::new(0), by_connection, holders: AtomicUsize::new(0) }
    }

    fn add(&self, slot: usize) -> bool {
        let own = &self.by_connection[slot];
        let has_room = |count| count < self.max - self.max / 4 || count < self.limit_for(own.load(Relaxed));
        let add = |count| has_room(count).then_some(count + 1);
        let is_added = self.in_flight.fetch_update(Relaxed, Relaxed, add).is_ok();
        if is_added && own.fetch_add(1, Relaxed) == 0 {
            self.holders.fetch_add(1, Relaxed);
        }
        is_added
    }

    /// Returns the total number of calls from which on a connection with `own` calls is admitted no further one.
    #[cold]
    fn limit_for(&self, own: usize) -> usize {
        let Self { max, .. } = *self;
        let holders = self.holders.load(Relaxed) + usize::from(own == 0);
        match own {
            0 => max,
            own if own < FEW_CALLS => max - max / 32,
            own if holders <= 1 || own < max / (holders + 1) => max - max / 16,
            _ => 0,
        }
    }
}

/// Returns the hash of a connection's number. Numbers are consecutive: Fibonacci hashing spreads them evenly.
fn slot(connection: u64) -> usize {
    (connection.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        let Self { counted, slot } = self;
        if counted.by_connection[*slot].fetch_sub(1, Relaxed) == 1 {
            counted.holders.fetch_sub(1, Relaxed);
        }
        counted.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Number of hashes of connections; a power of two.
const SLOTS: usize = 1024;

/// Number of calls below which a connection counts as one with few calls.
const FEW_CALLS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(limit: &CallLimit, connection: u64) -> Vec<CallPermit> {
        std::iter::from_fn(|| limit.admit(connection)).collect()
    }

    #[test]
    fn permit_is_free_again_when_a_call_ends() {
        let limit = CallLimit::new(Some(2));
        let (first, second) = (limit.admit(1), limit.admit(1));
        assert!(first.is_some() && second.is_some() && limit.admit(1).is_none());
        drop(first);
        assert!(limit.admit(1).is_some());
        let open = CallLimit::new(None);
        let all: Vec<_> = (0..1000).map(|_| open.admit(1)).collect();
        assert!(all.iter().all(Option::is_some));
    }

    #[test]
    fn calls_of_one_connection_leave_permits_for_others() {
        let limit = CallLimit::new(Some(1_000));
        let greedy = fill(&limit, 1);
        assert_eq!(greedy.len(), 1_000 - 1_000 / 16);
        let others: Vec<_> = (2..22).map(|connection| limit.admit(connection)).collect();
        assert!(others.iter().all(Option::is_some));
        drop((greedy, others));
        assert_eq!(fill(&limit, 2).len(), 1_000 - 1_000 / 16, "no permit is leaked");
    }

    #[test]
    fn greedy_connections_get_equal_shares_of_the_last_quarter() {
        let limit = CallLimit::new(Some(1_000));
        let mut taken: Vec<Vec<CallPermit>> = (0..10).map(|_| Vec::new()).collect();
        let mut grew = true;
        while grew {
            grew = false;
            for (connection, permits) in taken.iter_mut().enumerate() {
                if let Some(permit) = limit.admit(connection as u64) {
                    permits.push(permit);
                    grew = true;
                }
            }
        }
        let counts: Vec<_> = taken.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| (75..=100).contains(count)), "{counts:?}");
        assert!(limit.admit(11).is_some());
    }

    #[test]
    fn small_limit_is_used_up_by_a_single_connection() {
        let limit = CallLimit::new(Some(4));
        assert_eq!(fill(&limit, 1).len(), 4);
        let one = CallLimit::new(Some(1));
        assert_eq!(fill(&one, 1).len(), 1);
    }

    #[test]
    fn consecutive_connections_have_different_hashes() {
        let slots: std::collections::HashSet<_> = (0..100).map(slot).collect();
        assert!(slots.len() > 95, "{}", slots.len());
        assert!(slots.iter().all(|slot| *slot < SLOTS));
    }
}

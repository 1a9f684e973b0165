use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use super::{Candidate, Load};
use crate::contention::Mutex;

/// Per-server state of a balancer. It outlives a set of servers and is dropped with the server.
pub(super) struct CandidateState<T>(Mutex<HashMap<usize, (Weak<Load>, Arc<T>)>>);

impl<T> CandidateState<T> {
    /// Returns the state of these servers in their order; creates missing ones with `fresh`.
    pub(super) fn get_or_insert(
        &self,
        candidates: &[Candidate],
        fresh: impl Fn(&Candidate) -> T,
    ) -> Box<[Arc<T>]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (load, _)| load.strong_count() > 0);
        let recall = |candidate: &Candidate| {
            let new = || (Arc::downgrade(candidate.load()), Arc::new(fresh(candidate)));
            known.entry(address(candidate)).or_insert_with(new).1.clone()
        };
        candidates.iter().map(recall).collect()
    }
}

/// Identity of a server. As long as the server or a weak reference to it exists, the number is not reused.
pub(super) fn address(candidate: &Candidate) -> usize {
    Arc::as_ptr(candidate.load()).addr()
}

impl<T> Default for CandidateState<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for CandidateState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("CandidateState").field("known", &known).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::balance::tests::candidates;

    #[test]
    fn state_of_a_server_outlives_a_set_and_ends_with_the_server() {
        let state = CandidateState::default();
        let (one, another) = (candidates(1), candidates(1));
        let first = state.get_or_insert(&one, |_| 1);
        assert_eq!(*state.get_or_insert(&another, |_| 2)[0], 2);
        assert!(Arc::ptr_eq(&first[0], &state.get_or_insert(&one, |_| 3)[0]));
        drop((one, another));
        state.get_or_insert(&[], |_| 4);
        assert_eq!(Arc::strong_count(&first[0]), 1);
    }
}

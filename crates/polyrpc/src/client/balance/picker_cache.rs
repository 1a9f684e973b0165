use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use super::{Candidate, Load};
use crate::contention::Mutex;

/// Picker state of the previous set, which is kept while the servers are the same: their attributes may change every
/// few seconds, and a restarted schedule would always begin with the same server.
pub(super) struct PickerCache<T>(Mutex<Option<CachedPicker<T>>>);

struct CachedPicker<T> {
    /// Weak references, so that the addresses are not reused.
    servers: Box<[Weak<Load>]>,
    made: Arc<T>,
}

impl<T> PickerCache<T> {
    /// Returns the state that was built for these servers, in this order, if it still `fits`; otherwise builds it.
    pub(super) fn get_or_build(
        &self,
        candidates: &[Candidate],
        fits: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.is_of(candidates) && fits(&last.made)) {
            return last.made.clone();
        }
        let servers = candidates.iter().map(|candidate| Arc::downgrade(candidate.load())).collect();
        let made = Arc::new(make());
        *last = Some(CachedPicker { servers, made: made.clone() });
        made
    }
}

impl<T> CachedPicker<T> {
    fn is_of(&self, candidates: &[Candidate]) -> bool {
        let is = |(server, candidate): (&Weak<Load>, &Candidate)| {
            std::ptr::eq(server.as_ptr(), Arc::as_ptr(candidate.load()))
        };
        self.servers.len() == candidates.len() && self.servers.iter().zip(candidates).all(is)
    }
}

impl<T> Default for PickerCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for PickerCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("PickerCache")
            .field("servers", &last.as_ref().map_or(0, |last| last.servers.len()))
            .finish()
    }
}

use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use super::{Candidate, Load};
use crate::contention::Mutex;

/// State of the last picker, kept while the servers are the same. Their attributes may change every few seconds, and a
/// schedule that was restarted each time would always begin with the same server.
pub(super) struct PickerCache<T>(Mutex<Option<CachedPicker<T>>>);

struct CachedPicker<T> {
    /// Weak references keep the allocations, so that no later `Load` has one of these pointers.
    servers: Box<[Weak<Load>]>,
    picker: Arc<T>,
}

impl<T> PickerCache<T> {
    /// Returns the state that was built for these servers, in this order, if it still `fits`; otherwise builds it.
    pub(super) fn get_or_build(
        &self,
        candidates: &[Candidate],
        fits: impl FnOnce(&T) -> bool,
        build: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.is_for(candidates) && fits(&last.picker)) {
            return last.picker.clone();
        }
        let servers = candidates.iter().map(|candidate| Arc::downgrade(candidate.load())).collect();
        let picker = Arc::new(build());
        *last = Some(CachedPicker { servers, picker: picker.clone() });
        picker
    }
}

impl<T> CachedPicker<T> {
    fn is_for(&self, candidates: &[Candidate]) -> bool {
        let same_server = |(server, candidate): (&Weak<Load>, &Candidate)| {
            std::ptr::eq(server.as_ptr(), Arc::as_ptr(candidate.load()))
        };
        self.servers.len() == candidates.len() && self.servers.iter().zip(candidates).all(same_server)
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

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of ejected servers of a channel.
#[derive(Debug, Default)]
pub(in crate::client::cluster) struct EjectionQuota(AtomicUsize);

/// Permit of one ejected server; dropping it returns the permit.
#[derive(Debug)]
pub(in crate::client::cluster) struct EjectionPermit(Arc<EjectionQuota>);

impl EjectionQuota {
    /// Takes a permit, unless `max` are taken already.
    pub(in crate::client::cluster) fn take(self: &Arc<Self>, max: usize) -> Option<EjectionPermit> {
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(EjectionPermit(self.clone()))
    }
}

impl Drop for EjectionPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_slots_are_taken_and_released() {
        let quota = Arc::new(EjectionQuota::default());
        let first = quota.take(2);
        let second = quota.take(2);
        assert!(first.is_some() && second.is_some() && quota.take(2).is_none());
        // The number of servers has decreased.
        drop(first);
        assert!(quota.take(1).is_none());
        drop(second);
        assert!(quota.take(1).is_some());
    }
}

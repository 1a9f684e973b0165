use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::discovery::{Attributes, Instance};

/// A server that calls may go to. Clones are the same server.
#[derive(Debug, Clone)]
pub struct Candidate {
    instance: Arc<Instance>,
    load: Arc<Load>,
}

impl Candidate {
    /// A server that has had no call yet.
    pub fn new(instance: Instance) -> Self {
        Self { instance: Arc::new(instance), load: Arc::default() }
    }

    /// The same server, of which other things are said now.
    #[must_use]
    pub fn renewed(&self, attributes: Attributes) -> Self {
        let instance = Instance { attributes, ..(*self.instance).clone() };
        Self { instance: Arc::new(instance), load: self.load.clone() }
    }

    /// The same server as if it did this: what a pick makes of it is to be learned, and nothing is to come of it.
    pub(in crate::client) fn with_load(&self, load: &Arc<Load>) -> Self {
        Self { instance: self.instance.clone(), load: load.clone() }
    }

    /// Where it is, and what is said about it.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// What it is doing.
    pub fn load(&self) -> &Arc<Load> {
        &self.load
    }

    /// Whether they are the same server.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.load, &other.load)
    }
}

/// What a client knows of what one server does for it.
#[derive(Debug)]
pub struct Load {
    in_flight: AtomicUsize,
    /// It answers, as far as is known.
    well: AtomicBool,
    /// Nanoseconds from `since` until which it has no calls; zero if it has them.
    shunned_until: AtomicU64,
    since: Instant,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            well: AtomicBool::new(true),
            shunned_until: AtomicU64::new(0),
            since: Instant::now(),
        }
    }
}

impl Load {
    /// How many attempts of this client are under way there.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// An attempt begins.
    pub fn record_start(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// An attempt has ended.
    pub fn record_end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether calls may go there now.
    pub fn is_available(&self, now: Instant) -> bool {
        if !self.well.load(Ordering::Relaxed) {
            return false;
        }
        let until = self.shunned_until.load(Ordering::Relaxed);
        until == 0 || self.since + Duration::from_nanos(until) <= now
    }

    /// Says whether it answers.
    pub fn set_well(&self, well: bool) {
        self.well.store(well, Ordering::Relaxed);
    }

    /// Keeps calls from it until then.
    pub fn mark_unavailable_until(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.since).as_nanos();
        self.shunned_until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_shunned_for_a_while_and_left_out_while_it_is_unwell() {
        let load = Load::default();
        let now = Instant::now();
        assert!(load.is_available(now));
        load.mark_unavailable_until(now + Duration::from_secs(1));
        assert!(!load.is_available(now));
        assert!(load.is_available(now + Duration::from_secs(1)));
        load.set_well(false);
        assert!(!load.is_available(now + Duration::from_secs(2)));
    }

    #[test]
    fn what_is_said_of_a_server_may_change_and_it_is_the_same() {
        let one = Candidate::new(Instance::tcp("h:1"));
        let same = one.renewed(Attributes::new().with("weight", "2"));
        assert!(one.is(&same));
        assert!(!one.is(&Candidate::new(Instance::tcp("h:1"))));
        assert_eq!(same.instance().attributes.weight(), 2);
    }
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::discovery::{Attributes, Instance};

/// Server that calls may go to. Clones denote the same server.
#[derive(Debug, Clone)]
pub struct Candidate {
    instance: Arc<Instance>,
    load: Arc<Load>,
}

impl Candidate {
    /// Creates a server without any calls.
    pub fn new(instance: Instance) -> Self {
        Self { instance: Arc::new(instance), load: Arc::default() }
    }

    /// Returns the same server with new attributes.
    pub(crate) fn with_attributes(&self, attributes: Attributes) -> Self {
        let instance = Instance { attributes, ..(*self.instance).clone() };
        Self { instance: Arc::new(instance), load: self.load.clone() }
    }

    /// Returns the same server with another load, for a trial pick that must not affect the real one.
    pub(in crate::client) fn with_load(&self, load: &Arc<Load>) -> Self {
        Self { instance: self.instance.clone(), load: load.clone() }
    }

    /// Address and attributes.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Number of this client's attempts in flight.
    pub fn in_flight(&self) -> usize {
        self.load.in_flight()
    }

    /// Whether calls may go to this server now: it is considered healthy.
    pub fn is_available(&self, now: Instant) -> bool {
        self.load.is_available(now)
    }

    /// Records the start of an attempt. A client does so for every attempt; a test of a balancer does it itself.
    pub fn record_start(&self) {
        self.load.record_start();
    }

    /// Records the end of an attempt.
    pub fn record_end(&self) {
        self.load.record_end();
    }

    /// Load and availability, as seen by this client.
    pub(crate) fn load(&self) -> &Arc<Load> {
        &self.load
    }

    /// Whether both denote the same server; not meaningful in some picks, see [`Picker::pick`](super::Picker::pick).
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.load, &other.load)
    }
}

/// Load and availability of one server, as seen by this client.
#[derive(Debug)]
pub(crate) struct Load {
    in_flight: AtomicUsize,
    /// Whether the server is healthy, as far as is known.
    healthy: AtomicBool,
    /// End of the ejection in nanoseconds from `since`; zero if the server is not ejected.
    ejected_until: AtomicU64,
    since: Instant,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            healthy: AtomicBool::new(true),
            ejected_until: AtomicU64::new(0),
            since: Instant::now(),
        }
    }
}

impl Load {
    /// Number of this client's attempts in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Records the start of an attempt.
    pub(crate) fn record_start(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of an attempt.
    pub(crate) fn record_end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether calls may go to this server now.
    pub(crate) fn is_available(&self, now: Instant) -> bool {
        if !self.healthy.load(Ordering::Relaxed) {
            return false;
        }
        let until = self.ejected_until.load(Ordering::Relaxed);
        until == 0 || self.since + Duration::from_nanos(until) <= now
    }

    /// Sets whether the server is healthy.
    pub(crate) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::Relaxed);
    }

    /// Keeps calls away from the server until then.
    pub(crate) fn mark_unavailable_until(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.since).as_nanos();
        self.ejected_until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_unavailable_until_a_time_and_while_unhealthy() {
        let load = Load::default();
        let now = Instant::now();
        assert!(load.is_available(now));
        load.mark_unavailable_until(now + Duration::from_secs(1));
        assert!(!load.is_available(now));
        assert!(load.is_available(now + Duration::from_secs(1)));
        load.set_healthy(false);
        assert!(!load.is_available(now + Duration::from_secs(2)));
    }

    #[test]
    fn attribute_change_keeps_the_identity_of_a_server() {
        let one = Candidate::new(Instance::tcp("h:1"));
        let same = one.with_attributes(Attributes::new().with("weight", "2"));
        assert!(one.ptr_eq(&same));
        assert!(!one.ptr_eq(&Candidate::new(Instance::tcp("h:1"))));
        assert_eq!(same.instance().attributes.weight(), 2);
    }
}

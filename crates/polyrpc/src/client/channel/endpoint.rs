use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use polyrpc_wire::Status;

use super::doubts::Doubts;
use super::now;
use super::snapshot::Snapshot;
use crate::client::balance::{Load, Outcome};
use crate::client::pool::Pool;
use crate::discovery::{Instance, Network};

/// A server of a channel: its connections, and what is known of it. It stays the same as long as the registry lists
/// it.
pub(in crate::client) struct Endpoint {
    network: Network,
    address: String,
    pool: Arc<Pool>,
    load: Arc<Load>,
    calls: AtomicU64,
    failures: AtomicU64,
    /// It is being tried in the background, or about to be.
    doubted: AtomicBool,
    doubts: Arc<Doubts>,
    this: Weak<Self>,
}

impl Endpoint {
    pub(super) fn new(instance: &Instance, pool: Pool, load: Arc<Load>, doubts: Arc<Doubts>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            network: instance.network,
            address: instance.address.clone(),
            pool: Arc::new(pool),
            load,
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            doubts,
            this: this.clone(),
        })
    }

    /// What makes it this server and no other, and its place in the order of servers.
    pub(super) fn key(&self) -> (Network, &str) {
        (self.network, &self.address)
    }

    pub(in crate::client) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// An attempt begins.
    fn began(&self) {
        self.load.enter();
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// How an attempt went. Breakers listen here.
    fn ended(&self, outcome: &Outcome<'_>) {
        if outcome.is_the_servers_failure() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It could not be reached: no more calls go there until it can.
    #[cold]
    pub(super) fn shun(&self) {
        self.load.set_well(false);
        self.doubt();
    }

    /// Has it tried in the background whether it can be reached.
    #[cold]
    pub(super) fn doubt(&self) {
        if !self.doubted.swap(true, Ordering::Relaxed) {
            self.doubts.add(self.this.clone());
        }
    }

    /// Whether it has to be tried whether it can be reached.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Relaxed)
    }

    /// When it may be tried next.
    pub(super) fn next_attempt(&self) -> Instant {
        self.pool.next_attempt().unwrap_or_else(now)
    }

    /// Tries whether it can be reached, and has calls go there if so. The connection is kept for them. Returns whether
    /// it need not be tried again.
    pub(super) async fn revive(&self) -> bool {
        if let Err(status) = self.pool.lease().await.map(drop) {
            self.load.set_well(false);
            return self.pool.is_retired() || status.retry() == polyrpc_wire::Retry::Never;
        }
        self.doubted.store(false, Ordering::Relaxed);
        self.load.set_well(true);
        true
    }

    /// It is not listed any more: its connections close when the last call on them has ended.
    pub(super) fn retire(&self) {
        self.pool.retire();
    }

    pub(super) fn facts(&self, instance: &Instance, now: Instant) -> EndpointFacts {
        EndpointFacts {
            instance: instance.clone(),
            in_flight: self.load.in_flight(),
            available: self.load.is_available(now),
            calls: self.calls.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.network, self.address)
    }
}

/// What a client knows of one of its servers; [`Client::endpoints`](crate::Client::endpoints) tells it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EndpointFacts {
    /// Where it is, and what the registry says about it.
    pub instance: Instance,
    /// How many attempts are under way there.
    pub in_flight: usize,
    /// Whether calls go there now.
    pub available: bool,
    /// How many attempts were made there since it was listed.
    pub calls: u64,
    /// How many of them failed by no fault of the caller.
    pub failures: u64,
}

/// An attempt on a server, from the choice to its end. One that is dropped before it has ended was given up.
pub(in crate::client) struct Visit {
    snapshot: Arc<Snapshot>,
    place: usize,
    began: Instant,
    timeout: Option<Duration>,
    /// How many more attempts the call has, and how many it has had.
    attempts: (u32, u32),
    ended: AtomicBool,
}

impl Visit {
    /// Begins an attempt on the server at this place; `None` if there is no such place.
    pub(super) fn begin(
        snapshot: Arc<Snapshot>,
        place: usize,
        began: Instant,
        timeout: Option<Duration>,
        attempts: (u32, u32),
    ) -> Option<Box<Self>> {
        snapshot.endpoint(place)?.began();
        snapshot.pick.began(place, began);
        Some(Box::new(Self { snapshot, place, began, timeout, attempts, ended: AtomicBool::new(false) }))
    }

    pub(in crate::client) fn endpoint(&self) -> &Arc<Endpoint> {
        self.snapshot.endpoint(self.place).expect("a visit begins at a place that there is")
    }

    /// How many servers there were to choose from.
    pub(super) fn servers(&self) -> usize {
        self.snapshot.len()
    }

    pub(super) fn latency(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    /// Tells everybody concerned how it ended, the first time that this is said.
    pub(in crate::client) fn end(&self, failure: Option<&Status>) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let now = now();
        let outcome = Outcome {
            latency: now.saturating_duration_since(self.began),
            now,
            failure,
            timeout: self.timeout,
            attempts: self.attempts,
        };
        self.endpoint().ended(&outcome);
        self.snapshot.pick.ended(self.place, &outcome);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !*self.ended.get_mut() {
            self.end(Some(&Status::cancelled("the attempt was given up")));
        }
        self.endpoint().load.leave();
    }
}

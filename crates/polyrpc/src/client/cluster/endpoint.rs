use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use polyrpc_core::{Retry, Status};

use super::breaker::{Breaker, Fuse, Quota, Seat};
use super::doubts::Doubts;
use super::health::{Health, Question};
use super::{TARGET, now};
use crate::client::balance::{Load, Outcome};
use crate::client::pool::{Pool, PooledConnection};
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
    doubts: Arc<Doubts<Endpoint>>,
    /// Whether it fails too much, where that matters.
    fuse: Option<Fuse>,
    quota: Arc<Quota>,
    /// Its place among those that are isolated.
    seat: Mutex<Option<Seat>>,
    this: Weak<Self>,
}

/// What the servers of a channel have in common.
#[derive(Debug, Clone, Default)]
pub(super) struct Common {
    pub(super) doubts: Arc<Doubts<Endpoint>>,
    pub(super) breaker: Option<Breaker>,
    pub(super) quota: Arc<Quota>,
}

impl Endpoint {
    pub(super) fn new(instance: &Instance, pool: Pool, load: Arc<Load>, common: &Common) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            network: instance.network,
            address: instance.address.clone(),
            pool: Arc::new(pool),
            load,
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            doubts: common.doubts.clone(),
            fuse: common.breaker.clone().map(|breaker| Fuse::new(breaker, now())),
            quota: common.quota.clone(),
            seat: Mutex::default(),
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
    pub(super) fn began(&self) {
        self.load.enter();
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// An attempt on it is over.
    pub(super) fn left(&self) {
        self.load.leave();
    }

    /// How an attempt went. Returns whether that was one failure too many.
    pub(super) fn ended(&self, outcome: &Outcome<'_>) -> bool {
        if outcome.is_the_servers_failure() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let Some(fuse) = &self.fuse else { return false };
        // What cannot be reached is out already, and takes nobody's place.
        self.load.is_available(outcome.now) && fuse.note(outcome)
    }

    /// Isolates it if it may be, being one of so many.
    #[cold]
    pub(super) fn isolate(&self, servers: usize, others_are_well: bool, now: Instant) {
        let Some(fuse) = &self.fuse else { return };
        let mut place = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_some() || self.pool.is_retired() {
            return;
        }
        let seat = others_are_well.then(|| self.quota.take(fuse.places_out(servers))).flatten();
        if seat.is_none() {
            return fuse.relent();
        }
        if fuse.open(now) {
            *place = seat;
            tracing::warn!(target: TARGET, server = %self.address, "a server that fails too much gets no calls for a while");
            self.shun();
        }
    }

    /// Whether it gets no calls because it failed too much.
    fn is_isolated(&self) -> bool {
        self.fuse.as_ref().is_some_and(|fuse| fuse.open_until().is_some())
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
        let reachable = self.pool.next_attempt().unwrap_or_else(now);
        let isolated = self.fuse.as_ref().and_then(Fuse::open_until);
        isolated.map_or(reachable, |until| until.max(reachable))
    }

    /// Tries whether it can be reached and is well, and has calls go there if so. The connection is kept for them.
    pub(super) async fn revive(&self, health: &Health) -> Trial {
        let tried = match self.is_isolated() {
            true => self.meet_anew(health).await,
            false => self.meet(health).await,
        };
        match tried {
            // Calls that were under way have brought it down meanwhile.
            Ok(()) if self.next_attempt() > now() => Trial::Again(Duration::ZERO),
            Ok(()) => {
                self.come_back();
                Trial::Over
            }
            Err(_) if self.pool.is_retired() => Trial::Over,
            Err(Illness::Unreachable(status)) => {
                self.load.set_well(false);
                match status.retry() {
                    Retry::Never => Trial::Over,
                    _ => Trial::Again(Duration::ZERO),
                }
            }
            Err(Illness::Unwell) => {
                self.load.set_well(false);
                Trial::Again(health.every)
            }
        }
    }

    /// Asks a server that is thought to be well.
    pub(super) async fn check(&self, health: &Health) {
        if self.is_doubted() || self.pool.is_retired() {
            return;
        }
        let asked = match health.question {
            // A connection that is there says nothing.
            Question::Connect => self.pool.anew().await.map(drop).map_err(Illness::Unreachable),
            _ => match self.pool.ready() {
                Some(lease) => self.ask(health, &lease).await,
                None => self.meet(health).await,
            },
        };
        if asked.is_err() {
            self.shun();
        }
    }

    async fn meet(&self, health: &Health) -> Result<(), Illness> {
        let lease = self.pool.lease().await.map_err(Illness::Unreachable)?;
        self.ask(health, &lease).await
    }

    /// The same over a new connection, which takes the place of those that may be broken.
    async fn meet_anew(&self, health: &Health) -> Result<(), Illness> {
        let lease = self.pool.anew().await.map_err(Illness::Unreachable)?;
        self.ask(health, &lease).await?;
        self.pool.renew(lease);
        Ok(())
    }

    async fn ask(&self, health: &Health, connection: &PooledConnection) -> Result<(), Illness> {
        let asked = health.question.ask(&self.pool, &connection.link, health.timeout).await;
        asked.map_err(|_| Illness::Unwell)
    }

    fn come_back(&self) {
        let mut place = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fuse) = &self.fuse
            && place.is_some()
        {
            fuse.close(now());
            tracing::info!(target: TARGET, server = %self.address, "a server that had failed too much gets calls again");
        }
        *place = None;
        // In this order: whoever takes it out again finds that it has to be tried.
        self.doubted.store(false, Ordering::Relaxed);
        self.load.set_well(true);
    }

    /// It is not listed any more: its connections close when the last call on them has ended.
    pub(super) fn retire(&self) {
        self.pool.retire();
        *self.seat.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn facts(&self, instance: &Instance, now: Instant) -> EndpointFacts {
        EndpointFacts {
            instance: instance.clone(),
            in_flight: self.load.in_flight(),
            available: self.load.is_available(now),
            isolated: self.is_isolated(),
            calls: self.calls.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

/// What came of trying a server.
pub(super) enum Trial {
    /// It need not be tried again.
    Over,
    /// After so long, and not before it may be.
    Again(Duration),
}

/// Why a server gets no calls.
enum Illness {
    Unreachable(Status),
    /// It does not say that it is well.
    Unwell,
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
    /// Whether it has no calls because it failed too much ([`Breaker`](crate::client::cluster::breaker::Breaker)).
    pub isolated: bool,
    /// How many attempts were made there since it was listed.
    pub calls: u64,
    /// How many of them failed by no fault of the caller.
    pub failures: u64,
}

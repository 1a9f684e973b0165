use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use polyrpc_core::{Retry, Status};

use super::TARGET;
use super::breaker::{CircuitBreaker, CircuitState, EjectionPermit, EjectionQuota};
use super::health::{HealthCheck, HealthProbe};
use super::suspects::SuspectQueue;
use crate::client::balance::{AttemptOutcome, Load};
use crate::client::connection::call_counts::CallCounts;
use crate::client::pool::{Pool, PooledConnection};
use crate::discovery::{Instance, Network};
use crate::runtime::now;

/// Server of a channel: its connections and its state. It is kept as long as the registry lists the server.
pub(in crate::client) struct Endpoint {
    network: Network,
    address: String,
    pool: Arc<Pool>,
    load: Arc<Load>,
    attempts: AtomicU64,
    failed_attempts: AtomicU64,
    /// Whether it is being probed in the background, or is about to be.
    is_suspect: AtomicBool,
    suspects: Arc<SuspectQueue<Self>>,
    /// Circuit breaker state, if one is configured.
    circuit: Option<CircuitState>,
    quota: Arc<EjectionQuota>,
    /// Permit to be ejected.
    ejection: Mutex<Option<EjectionPermit>>,
    this: Weak<Self>,
}

/// State shared by the servers of a channel.
#[derive(Debug, Clone, Default)]
pub(super) struct EndpointContext {
    pub(super) suspects: Arc<SuspectQueue<Endpoint>>,
    pub(super) breaker: Option<CircuitBreaker>,
    pub(super) quota: Arc<EjectionQuota>,
}

impl Endpoint {
    pub(super) fn new(
        instance: &Instance,
        pool: Pool,
        load: Arc<Load>,
        common: &EndpointContext,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            network: instance.network,
            address: instance.address.clone(),
            pool: Arc::new(pool),
            load,
            attempts: AtomicU64::new(0),
            failed_attempts: AtomicU64::new(0),
            is_suspect: AtomicBool::new(false),
            suspects: common.suspects.clone(),
            circuit: common.breaker.clone().map(|breaker| CircuitState::new(breaker, now())),
            quota: common.quota.clone(),
            ejection: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Identity of the server, and its sort key.
    pub(super) fn key(&self) -> (Network, &str) {
        (self.network, &self.address)
    }

    pub(in crate::client) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Records the start of an attempt.
    pub(super) fn record_start(&self) {
        self.load.record_start();
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of an attempt.
    pub(super) fn record_end(&self) {
        self.load.record_end();
    }

    /// Records the outcome of an attempt. Returns whether there were too many failures.
    pub(super) fn record_outcome(&self, outcome: &AttemptOutcome<'_>) -> bool {
        if outcome.is_server_failure() {
            self.failed_attempts.fetch_add(1, Ordering::Relaxed);
        }
        let Some(circuit) = &self.circuit else { return false };
        // An unreachable server is already unavailable, and takes no permit.
        self.load.is_available(outcome.now) && circuit.record(outcome)
    }

    /// Ejects the server if the quota allows it for this number of servers.
    #[cold]
    pub(super) fn try_eject(&self, servers: usize, has_other_healthy: bool, now: Instant) {
        let Some(circuit) = &self.circuit else { return };
        let mut ejection = self.ejection.lock().unwrap_or_else(PoisonError::into_inner);
        if ejection.is_some() || self.pool.is_retired() {
            return;
        }
        let permit = has_other_healthy.then(|| self.quota.take(circuit.ejection_limit(servers))).flatten();
        if permit.is_none() {
            return circuit.reset();
        }
        if circuit.open(now) {
            *ejection = permit;
            tracing::warn!(target: TARGET, server = %self.address, "endpoint ejected after too many failures");
            self.mark_unavailable();
        }
    }

    /// Whether the server gets no calls because it failed too often.
    fn is_ejected(&self) -> bool {
        self.circuit.as_ref().is_some_and(|circuit| circuit.open_until().is_some())
    }

    /// Stops calls to the server until a probe succeeds.
    #[cold]
    pub(super) fn mark_unavailable(&self) {
        self.load.set_healthy(false);
        self.suspect();
    }

    /// Schedules a background probe of whether the server is reachable.
    #[cold]
    pub(super) fn suspect(&self) {
        if !self.is_suspect.swap(true, Ordering::Relaxed) {
            self.suspects.add(self.this.clone());
        }
    }

    /// Whether a probe of the server is pending.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    /// Returns when the next connection may be attempted.
    pub(super) fn next_attempt(&self) -> Instant {
        let reachable = self.pool.next_attempt().unwrap_or_else(now);
        let ejected = self.circuit.as_ref().and_then(CircuitState::open_until);
        ejected.map_or(reachable, |until| until.max(reachable))
    }

    /// Probes whether the server is reachable and healthy, and restores it if so. The connection is kept for calls.
    pub(super) async fn probe(&self, health: &HealthCheck) -> ProbeOutcome {
        let tried = match self.is_ejected() {
            true => self.check_health_on_new_connection(health).await,
            false => self.check_health(health).await,
        };
        match tried {
            // Calls have failed meanwhile: it may not be tried yet.
            Ok(()) if self.next_attempt() > now() => ProbeOutcome::RetryAfter(Duration::ZERO),
            Ok(()) => {
                self.reinstate();
                ProbeOutcome::Stop
            }
            Err(_) if self.pool.is_retired() => ProbeOutcome::Stop,
            Err(ProbeFailure::Unreachable(status)) => {
                self.load.set_healthy(false);
                match status.retry() {
                    Retry::Never => ProbeOutcome::Stop,
                    _ => ProbeOutcome::RetryAfter(Duration::ZERO),
                }
            }
            Err(ProbeFailure::Unhealthy) => {
                self.load.set_healthy(false);
                ProbeOutcome::RetryAfter(health.interval)
            }
        }
    }

    /// Checks the health of a server that is considered healthy.
    pub(super) async fn check_in_background(&self, health: &HealthCheck) {
        if self.is_suspect() || self.pool.is_retired() {
            return;
        }
        let probe_result = match health.probe {
            // An existing connection proves nothing.
            HealthProbe::Connect => {
                self.pool.acquire_new().await.map(drop).map_err(ProbeFailure::Unreachable)
            }
            _ => match self.pool.try_acquire() {
                Some(connection) => self.check_health_on(health, &connection).await,
                None => self.check_health(health).await,
            },
        };
        if probe_result.is_err() {
            self.mark_unavailable();
        }
    }

    async fn check_health(&self, health: &HealthCheck) -> Result<(), ProbeFailure> {
        let connection = self.pool.acquire().await.map_err(ProbeFailure::Unreachable)?;
        self.check_health_on(health, &connection).await
    }

    /// Checks the health over a new connection, which replaces those that may be broken.
    async fn check_health_on_new_connection(&self, health: &HealthCheck) -> Result<(), ProbeFailure> {
        let connection = self.pool.acquire_new().await.map_err(ProbeFailure::Unreachable)?;
        self.check_health_on(health, &connection).await?;
        self.pool.replace_connections(connection);
        Ok(())
    }

    async fn check_health_on(
        &self,
        health: &HealthCheck,
        connection: &PooledConnection,
    ) -> Result<(), ProbeFailure> {
        let probe_result = health.probe.run(&self.pool, &connection.slot, health.timeout).await;
        probe_result.map_err(|_| ProbeFailure::Unhealthy)
    }

    fn reinstate(&self) {
        let mut ejection = self.ejection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(circuit) = &self.circuit
            && ejection.is_some()
        {
            circuit.close(now());
            tracing::info!(target: TARGET, server = %self.address, "ejected endpoint receives calls again");
        }
        *ejection = None;
        // The order matters: if a call makes the server unavailable again, it must find that a probe is
        // needed.
        self.is_suspect.store(false, Ordering::Relaxed);
        self.load.set_healthy(true);
    }

    /// Retires a server that is no longer listed: its connections close when the last call on them has ended.
    pub(super) fn retire(&self) {
        self.pool.retire();
        *self.ejection.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn info(&self, instance: &Instance, now: Instant) -> EndpointInfo {
        EndpointInfo {
            instance: instance.clone(),
            in_flight: self.load.in_flight(),
            available: self.load.is_available(now),
            ejected: self.is_ejected(),
            attempts: self.attempts.load(Ordering::Relaxed),
            failed_attempts: self.failed_attempts.load(Ordering::Relaxed),
        }
    }
}

/// Outcome of a probe.
pub(super) enum ProbeOutcome {
    /// No more probes: the server is healthy, is no longer listed, or fails in a way that a retry cannot
    /// change.
    Stop,
    /// Probe again after this time, and not before the server's next attempt is allowed.
    RetryAfter(Duration),
}

/// Why a probe failed.
enum ProbeFailure {
    Unreachable(Status),
    /// The server does not report that it is healthy.
    Unhealthy,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.network, self.address)
    }
}

/// State of one server of a client, as returned by [`Client::endpoints`](crate::Client::endpoints).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EndpointInfo {
    /// Address of the server, and its attributes from the registry if there is one.
    pub instance: Instance,
    /// Number of attempts in flight.
    pub in_flight: usize,
    /// Whether calls go there now.
    pub available: bool,
    /// Whether it is ejected because it failed too often
    /// ([`CircuitBreaker`](crate::client::cluster::breaker::CircuitBreaker)).
    pub ejected: bool,
    /// Number of attempts since the server was listed, or the client created.
    pub attempts: u64,
    /// Number of those that failed through no fault of the caller.
    pub failed_attempts: u64,
}

impl EndpointInfo {
    /// Returns the state of the server of a client that has one.
    pub(in crate::client) fn from_pool(pool: &Pool) -> Option<Self> {
        let (instance, counts, available) = pool.connection_info()?;
        let CallCounts { calls: attempts, failures: failed_attempts, in_flight } = counts;
        Some(Self { instance, in_flight, available, ejected: false, attempts, failed_attempts })
    }
}

//! Servers of a client that has several. A registry lists them ([`resolver_task`], [`filter`], [`registry_health`]),
//! and calls read them from a [`snapshot`]. A [`retry_loop`] runs one call over them, with [`backup`] for a second
//! request before the first has failed. An [`endpoint`] is one server, an [`endpoint_guard`] one attempt on it, and
//! [`single_endpoint`] calls a given server without a pick. A [`breaker`] ejects failing servers, [`health`] checks
//! restore them, and [`recovery`] protects the first ones that come back.
//!
//! A [`call_attempt`] is a call in progress, also to the only server of a client. A [`call_connection`] is the
//! connection that takes it.

mod backup;
mod breaker;
mod call_attempt;
mod call_connection;
mod config;
mod endpoint;
mod endpoint_guard;
mod filter;
mod health;
mod latencies;
mod mode;
mod recovery;
mod registry_health;
mod resolver_task;
mod retry_backoff;
mod retry_budget;
mod retry_loop;
mod single_endpoint;
mod snapshot;
mod suspects;
mod warnings;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use polyrpc_core::{Call, Reply, Retry, Scope, Status};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

pub use self::breaker::CircuitBreaker;
pub use self::endpoint::EndpointInfo;
pub use self::health::HealthCheck;
pub use self::mode::FailMode;
pub use self::retry_budget::RetryBudget;

pub(super) use self::call_attempt::CallAttempt;
pub(super) use self::call_connection::CallConnection;
pub(super) use self::config::ChannelConfig;
pub(super) use self::filter::may_call;
pub(super) use self::mode::Backup;
pub(super) use self::recovery::RecoveryPolicy;
pub(super) use self::registry_health::RegistryHealth;
pub(super) use self::retry_budget::RetryTokens;
pub(super) use self::retry_loop::{RetryLoop, RoutingOptions};
pub(super) use self::single_endpoint::SingleEndpoint;

use self::config::ChannelSettings;
use self::endpoint::EndpointContext;
use self::latencies::Latencies;
use self::recovery::ClusterRecovery;
use self::resolver_task::ResolverTask;
use self::snapshot::Snapshot;
use super::factory::Factory;
use crate::cores::Cores;
use crate::discovery::Discover;
use crate::runtime::AbortOnDrop;

/// Servers of a service, and the policy for failed calls. Its background task ends with it.
pub(super) struct Channel {
    shared: Arc<Shared>,
    resolver_task: Mutex<Option<AbortOnDrop<()>>>,
    cores: Option<Cores>,
}

/// State shared by calls and the background task.
struct Shared {
    /// Name of the service, as given by the user.
    name: String,
    settings: ChannelSettings,
    discover: Box<dyn Discover>,
    factory: Factory,
    /// Current servers; `None` before the first resolution.
    current: ArcSwapOption<Snapshot>,
    updates: watch::Sender<ResolverUpdate>,
    /// Whether the resolver task keeps the set current: it runs, or no further updates can arrive.
    is_maintained: AtomicBool,
    common: EndpointContext,
    /// Recovery state of the cluster, if configured.
    recovery: Option<ClusterRecovery>,
    retry_tokens: RetryTokens,
    latencies: Latencies,
}

/// Last update from the registry, for calls that wait for servers.
#[derive(Debug, Clone, Default)]
pub(super) enum ResolverUpdate {
    /// No update yet.
    #[default]
    Pending,
    /// A set of servers.
    Set,
    /// The registry failed.
    Failed(Status),
    /// No more updates will follow.
    Closed,
}

impl Channel {
    /// Creates a channel to the servers that `discover` finds. Nothing is resolved yet. `resends_unprocessed`:
    /// servers may report that they did not process a call, so a copy of it is kept.
    pub(super) fn new(
        name: String,
        mut plan: ChannelConfig,
        discover: Box<dyn Discover>,
        factory: Factory,
        resends_unprocessed: bool,
    ) -> Self {
        let cores = factory.cores();
        let common = EndpointContext { breaker: plan.breaker.take(), ..EndpointContext::default() };
        let recovery = plan.recovery.map(ClusterRecovery::new);
        let settings = plan.settings(resends_unprocessed);
        let shared = Shared {
            name,
            retry_tokens: RetryTokens::new(&settings.budget),
            settings,
            discover,
            factory,
            current: ArcSwapOption::empty(),
            updates: watch::Sender::default(),
            is_maintained: AtomicBool::new(false),
            common,
            recovery,
            latencies: Latencies::default(),
        };
        Self { shared: Arc::new(shared), resolver_task: Mutex::default(), cores }
    }

    /// Whether an unanswered call is also sent to a second server.
    pub(super) fn has_backups(&self) -> bool {
        self.shared.settings.fail_mode == FailMode::Failbackup
    }

    /// Makes a call, and sends a backup request to a second server if the first one is slow.
    pub(super) async fn exchange_with_backup(
        &self,
        call: Call<'_>,
        routing: RoutingOptions,
    ) -> Result<Option<Reply>, Status> {
        backup::call_with_backup(self, call, routing).await
    }

    /// Returns the state of the known servers.
    pub(super) fn endpoint_infos(&self) -> Vec<EndpointInfo> {
        self.shared.current.load().as_ref().map_or_else(Vec::new, |snapshot| snapshot.endpoint_infos())
    }

    /// Returns the current servers, if they are known.
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        if !self.shared.is_maintained.load(Ordering::Relaxed) {
            self.start();
        }
        self.shared.current.load_full()
    }

    /// Waits until there are servers. `patient`: an empty resolution does not end the wait.
    async fn servers(&self, deadline: Option<Instant>, patient: bool) -> Result<Arc<Snapshot>, Status> {
        let mut updates = self.shared.updates.subscribe();
        let latest = match deadline {
            Some(deadline) => deadline,
            None if patient => Instant::now() + MAX_WAIT,
            None => Instant::now() + FIRST_RESOLUTION_TIMEOUT,
        };
        loop {
            // Marked as seen before the servers are read, so that an update in between is noticed.
            let last = updates.borrow_and_update().clone();
            match self.snapshot().filter(|snapshot| !snapshot.is_empty()) {
                Some(snapshot) => return Ok(snapshot),
                None if last.is_final() && !patient => return Err(self.no_endpoint(&last)),
                None if last.is_failed() && self.shared.settings.fails_with_registry => {
                    return Err(self.no_endpoint(&last));
                }
                None => {}
            }
            // The sender lives as long as the servers: it cannot be gone.
            if timeout_at(latest, updates.changed()).await.is_err() {
                return Err(self.no_endpoint(&last));
            }
        }
    }

    /// Starts the background task, unless it runs. It runs in the runtime of the first call; if that runtime ends, the
    /// next call starts it again in its own.
    #[cold]
    fn start(&self) {
        let mut resolver_task = self.resolver_task.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.is_maintained.swap(true, Ordering::Relaxed) {
            return;
        }
        let resolver = ResolverTask::new(self.shared.clone()).run();
        let task = match &self.cores {
            Some(cores) => cores.next().spawn(resolver),
            None => tokio::spawn(resolver),
        };
        *resolver_task = Some(task.into());
    }

    #[cold]
    fn no_endpoint(&self, last: &ResolverUpdate) -> Status {
        let why = match last {
            ResolverUpdate::Pending => "the registry has not answered in time".to_owned(),
            ResolverUpdate::Set => "the registry has no callable server".to_owned(),
            ResolverUpdate::Failed(status) => status.to_string(),
            ResolverUpdate::Closed => "the registry sends no more updates".to_owned(),
        };
        Status::unavailable(format!("no server known for {}: {why}", self.shared.name))
            .with_scope(Scope::Connection)
            .with_retry(Retry::Elsewhere)
    }
}

impl ResolverUpdate {
    /// Whether a call without a server need not wait for one. A failed registry may be queried again.
    fn is_final(&self) -> bool {
        matches!(self, Self::Set | Self::Closed)
    }

    fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// Target of the `tracing` events.
const TARGET: &str = "polyrpc::client::cluster";

/// Default time that a call without a deadline waits for the first set of servers.
pub(super) const FIRST_RESOLUTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait of a call without a limit: the longest duration that the clock arithmetic supports.
const MAX_WAIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

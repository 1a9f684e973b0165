//! The servers of a client, where there are several. Who they are is told by a registry ([`keeper`], [`sift`], [`trust`]) and
//! read from a [`snapshot`]; a [`course`] is the way of one call through them, with [`backup`] where a second server is asked
//! before the first has failed; an [`endpoint`] is one of them, a [`visit`] one attempt on it, and [`each`] calls one without a
//! choice. A [`breaker`] takes out those that fail, by [`health`] they come back, and [`recovery`] spares the first that do.
//!
//! An [`attempt`] is a call on its way, also to the one server of a client that has no more; a [`lease`] is the connection that
//! takes it.

mod backoff;
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
pub use self::mode::{Backup, FailMode};
pub use self::recovery::RecoveryPolicy;
pub use self::retry_budget::RetryBudget;

pub(super) use self::call_attempt::CallAttempt;
pub(super) use self::call_connection::CallConnection;
pub(super) use self::config::ChannelConfig;
pub(super) use self::filter::may_call;
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

/// The servers of a service and what is to be done when calls fail. The task behind it ends with it.
pub(super) struct Channel {
    shared: Arc<Shared>,
    keeper: Mutex<Option<AbortOnDrop<()>>>,
    cores: Option<Cores>,
}

/// What calls and the task behind the channel have in common.
struct Shared {
    /// How the user named the service.
    name: String,
    settings: ChannelSettings,
    discover: Box<dyn Discover>,
    factory: Factory,
    /// The servers there are; `None` before the first set.
    current: ArcSwapOption<Snapshot>,
    news: watch::Sender<ResolverUpdate>,
    /// The task runs, or has nothing left to do.
    kept: AtomicBool,
    common: EndpointContext,
    /// Whether the servers are recovering, where that matters.
    recovery: Option<ClusterRecovery>,
    retry_tokens: RetryTokens,
    latencies: Latencies,
}

/// What was last heard from the registry, for those who wait for servers.
#[derive(Debug, Clone, Default)]
pub(super) enum ResolverUpdate {
    /// Nothing yet.
    #[default]
    Silence,
    /// A set.
    Set,
    /// It cannot be asked.
    Trouble(Status),
    /// It will say nothing more.
    Over,
}

impl Channel {
    /// A channel to the servers that `discover` finds. Nothing is asked yet. `spares`: they may say of a call that they
    /// never looked at it.
    pub(super) fn new(
        name: String,
        mut plan: ChannelConfig,
        discover: Box<dyn Discover>,
        factory: Factory,
        spares: bool,
    ) -> Self {
        let cores = factory.cores();
        let common = EndpointContext { breaker: plan.breaker.take(), ..EndpointContext::default() };
        let recovery = plan.recovery.map(ClusterRecovery::new);
        let settings = plan.settings(spares);
        let shared = Shared {
            name,
            retry_tokens: RetryTokens::new(&settings.budget),
            settings,
            discover,
            factory,
            current: ArcSwapOption::empty(),
            news: watch::Sender::default(),
            kept: AtomicBool::new(false),
            common,
            recovery: recovery,
            latencies: Latencies::default(),
        };
        Self { shared: Arc::new(shared), keeper: Mutex::default(), cores }
    }

    /// Whether an unanswered call is sent to a second server.
    pub(super) fn has_backups(&self) -> bool {
        self.shared.settings.fail_mode == FailMode::Failbackup
    }

    /// Makes a call, and the same again on a second server where the first takes its time.
    pub(super) async fn exchange_with_backup(
        &self,
        call: Call<'_>,
        routing: RoutingOptions,
    ) -> Result<Option<Reply>, Status> {
        backup::call_with_backup(self, call, routing).await
    }

    /// The servers there are, as far as is known.
    pub(super) fn facts(&self) -> Vec<EndpointInfo> {
        self.shared.current.load().as_ref().map_or_else(Vec::new, |snapshot| snapshot.facts())
    }

    /// The servers there are now, if they are known.
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        if !self.shared.kept.load(Ordering::Relaxed) {
            self.start();
        }
        self.shared.current.load_full()
    }

    /// The servers there are, once there are any. `patient`: an answer that there are none is not taken for one.
    async fn servers(&self, deadline: Option<Instant>, patient: bool) -> Result<Arc<Snapshot>, Status> {
        let mut news = self.shared.news.subscribe();
        let latest = match deadline {
            Some(deadline) => deadline,
            None if patient => Instant::now() + FOR_EVER,
            None => Instant::now() + FIRST_SET,
        };
        loop {
            // Before the servers are looked at: what comes in between is news.
            let last = news.borrow_and_update().clone();
            match self.snapshot().filter(|snapshot| !snapshot.is_empty()) {
                Some(snapshot) => return Ok(snapshot),
                None if last.is_final() && !patient => return Err(self.no_endpoint(&last)),
                None => {}
            }
            // The sender is in the same place as the servers: it cannot be gone.
            if timeout_at(latest, news.changed()).await.is_err() {
                return Err(self.no_endpoint(&last));
            }
        }
    }

    /// Starts the task behind the channel, unless it runs. It runs where the first call is made, and anew where the
    /// next is made should that runtime end.
    #[cold]
    fn start(&self) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let keeping = ResolverTask::new(self.shared.clone()).run();
        let task = match &self.cores {
            Some(cores) => cores.next().spawn(keeping),
            None => tokio::spawn(keeping),
        };
        *keeper = Some(task.into());
    }

    #[cold]
    fn no_endpoint(&self, last: &ResolverUpdate) -> Status {
        let why = match last {
            ResolverUpdate::Silence => "the registry has not answered in time".to_owned(),
            ResolverUpdate::Set => "the registry holds none that may be called".to_owned(),
            ResolverUpdate::Trouble(status) => status.to_string(),
            ResolverUpdate::Over => "the registry says nothing".to_owned(),
        };
        Status::unavailable(format!("no server known for {}: {why}", self.shared.name))
            .with_scope(Scope::Connection)
            .with_retry(Retry::Elsewhere)
    }
}

impl ResolverUpdate {
    /// Whether who has no server now need not wait for one. A registry that cannot be asked may be asked again.
    fn is_final(&self) -> bool {
        matches!(self, Self::Set | Self::Over)
    }
}

/// Under which name a subscriber of `tracing` is told.
const TARGET: &str = "polyrpc::client::channel";

/// The time by the clock that timers go by, which a test may have stopped.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// How long a call waits for the first set of servers that does not say how long it waits.
pub(super) const FIRST_SET: Duration = Duration::from_secs(10);

/// How long a call waits for a server that wants to wait for ever: what clocks can say.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

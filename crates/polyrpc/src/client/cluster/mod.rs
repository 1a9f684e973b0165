//! The servers of a client, where there are several. Who they are is told by a registry ([`keeper`], [`sift`], [`trust`]) and
//! read from a [`snapshot`]; a [`course`] is the way of one call through them, with [`backup`] where a second server is asked
//! before the first has failed; an [`endpoint`] is one of them, a [`visit`] one attempt on it, and [`each`] calls one without a
//! choice. A [`breaker`] takes out those that fail, by [`health`] they come back, and [`recovery`] spares the first that do.
//!
//! An [`attempt`] is a call on its way, also to the one server of a client that has no more; a [`lease`] is the connection that
//! takes it.

mod attempt;
mod backoff;
mod backup;
mod breaker;
mod budget;
mod course;
mod doubts;
mod each;
mod endpoint;
mod health;
mod keeper;
mod latencies;
mod lease;
mod mode;
mod plan;
mod recovery;
mod sift;
mod snapshot;
mod trust;
mod visit;
mod warnings;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use polyrpc_core::{Call, Reply, Retry, Scope, Status};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

pub use self::breaker::Breaker;
pub use self::budget::Budget;
pub use self::endpoint::EndpointFacts;
pub use self::health::Health;
pub use self::mode::{Backup, FailMode};
pub use self::recovery::Recovery;

pub(super) use self::attempt::Attempt;
pub(super) use self::budget::Purse;
pub(super) use self::course::{Course, Terms};
pub(super) use self::each::Server;
pub(super) use self::lease::Lease;
pub(super) use self::plan::Plan;
pub(super) use self::sift::may_call;
pub(super) use self::trust::Trust;

use self::endpoint::Common;
use self::keeper::Keeper;
use self::latencies::Latencies;
use self::plan::Settings;
use self::recovery::Crisis;
use self::snapshot::Snapshot;
use super::factory::Factory;
use crate::cores::Cores;
use crate::discovery::Discover;
use crate::runtime::Owned;

/// The servers of a service and what is to be done when calls fail. The task behind it ends with it.
pub(super) struct Channel {
    shared: Arc<Shared>,
    keeper: Mutex<Option<Owned<()>>>,
    cores: Option<Cores>,
}

/// What calls and the task behind the channel have in common.
struct Shared {
    /// How the user named the service.
    name: String,
    settings: Settings,
    discover: Box<dyn Discover>,
    factory: Factory,
    /// The servers there are; `None` before the first set.
    current: ArcSwapOption<Snapshot>,
    news: watch::Sender<News>,
    /// The task runs, or has nothing left to do.
    kept: AtomicBool,
    common: Common,
    /// Whether the servers are recovering, where that matters.
    crisis: Option<Crisis>,
    purse: Purse,
    latencies: Latencies,
}

/// What was last heard from the registry, for those who wait for servers.
#[derive(Debug, Clone, Default)]
pub(super) enum News {
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
        mut plan: Plan,
        discover: Box<dyn Discover>,
        factory: Factory,
        spares: bool,
    ) -> Self {
        let cores = factory.cores();
        let common = Common { breaker: plan.breaker.take(), ..Common::default() };
        let crisis = plan.recovery.map(Crisis::new);
        let settings = plan.settings(spares);
        let shared = Shared {
            name,
            purse: Purse::new(&settings.budget),
            settings,
            discover,
            factory,
            current: ArcSwapOption::empty(),
            news: watch::Sender::default(),
            kept: AtomicBool::new(false),
            common,
            crisis,
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
        terms: Terms,
    ) -> Result<Option<Reply>, Status> {
        backup::exchange(self, call, terms).await
    }

    /// The servers there are, as far as is known.
    pub(super) fn facts(&self) -> Vec<EndpointFacts> {
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
                None if last.is_final() && !patient => return Err(self.nobody(&last)),
                None => {}
            }
            // The sender is in the same place as the servers: it cannot be gone.
            if timeout_at(latest, news.changed()).await.is_err() {
                return Err(self.nobody(&last));
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
        let keeping = Keeper::new(self.shared.clone()).run();
        let task = match &self.cores {
            Some(cores) => cores.next().spawn(keeping),
            None => tokio::spawn(keeping),
        };
        *keeper = Some(task.into());
    }

    #[cold]
    fn nobody(&self, last: &News) -> Status {
        let why = match last {
            News::Silence => "the registry has not answered in time".to_owned(),
            News::Set => "the registry holds none that may be called".to_owned(),
            News::Trouble(status) => status.to_string(),
            News::Over => "the registry says nothing".to_owned(),
        };
        Status::unavailable(format!("no server known for {}: {why}", self.shared.name))
            .with_scope(Scope::Connection)
            .with_retry(Retry::Elsewhere)
    }
}

impl News {
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

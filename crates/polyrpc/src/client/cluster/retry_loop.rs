use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc_core::{Call, Retry, Scope, Status};
use tokio::time::{sleep, timeout_at};

use super::Channel;
use super::call_connection::CallConnection;
use super::endpoint::Endpoint;
use super::endpoint_guard::EndpointGuard;
use super::mode::FailMode;
use super::recovery::ClusterRecovery;
use super::retry_backoff::pause;
use super::snapshot::Snapshot;
use crate::client::balance::{AttemptCounts, PickContext};
use crate::client::connection::backoff::chance;
use crate::client::pool::PooledConnection;
use crate::client::retryable::{is_connection_failure_before_start, is_retryable};
use crate::runtime::now;

/// Call options that affect routing.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct RoutingOptions {
    pub(in crate::client) idempotent: bool,
    pub(in crate::client) key: Option<u64>,
    pub(in crate::client) wait_for_ready: bool,
}

/// Retry loop of one call over the servers of a channel: decides which server is tried next, if any.
pub(in crate::client) struct RetryLoop<'c> {
    channel: &'c Channel,
    service: &'c str,
    method: &'c str,
    routing: RoutingOptions,
    began: Instant,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// Copy of the call, for a retry.
    retained_call: Option<Call<'c>>,
    /// Number of attempts made.
    attempts_made: u32,
    /// Number of attempts left.
    attempts_left: u32,
    /// Number of servers that were unreachable, which does not count as attempts.
    unreachable: usize,
    tried: Vec<Arc<Endpoint>>,
    /// Chosen server without a connection yet.
    chosen: Option<ChosenEndpoint>,
    /// Reason of the last failure.
    last_failure: Option<Status>,
}

/// Server that was chosen for the next attempt.
pub(super) struct ChosenEndpoint {
    pub(super) guard: Box<EndpointGuard>,
    /// Whether it is considered healthy and was not tried by this call. A server that is chosen for lack of a better
    /// one is not.
    is_untried: bool,
}

impl<'c> RetryLoop<'c> {
    pub(in crate::client) fn new(channel: &'c Channel, call: &Call<'c>, routing: RoutingOptions) -> Self {
        let settings = &channel.shared.settings;
        channel.shared.retry_tokens.deposit();
        let began = now();
        Self {
            channel,
            service: call.service,
            method: call.method,
            routing,
            began,
            timeout: call.timeout,
            deadline: call.timeout.and_then(|timeout| began.checked_add(timeout)),
            retained_call: None,
            attempts_made: 0,
            attempts_left: if settings.fail_mode == FailMode::Failfast { 0 } else { settings.retries },
            unreachable: 0,
            tried: Vec::new(),
            chosen: None,
            last_failure: None,
        }
    }

    /// Returns the deadline of the call.
    pub(in crate::client) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns an existing connection to the first chosen server, if there is one.
    pub(in crate::client) fn try_acquire(&mut self, call: &Call<'c>) -> Option<CallConnection> {
        if self.attempts_made > 0 || self.unreachable > 0 {
            return None;
        }
        if self.attempts_left > 0 || self.channel.shared.settings.resends_unprocessed {
            self.retained_call = Some(call.clone());
        }
        if self.recovery().is_some() {
            return None;
        }
        let chosen = self.choose(self.channel.snapshot()?, &call.body, self.began)?;
        match chosen.guard.endpoint().pool().try_acquire() {
            Some(connection) => {
                self.attempts_made = 1;
                Some(CallConnection::with_guard(connection, chosen.guard))
            }
            None => {
                self.chosen = Some(chosen);
                None
            }
        }
    }

    /// Returns a connection to the next server, and establishes one if needed. Unreachable servers are skipped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the attempt.
    pub(in crate::client) async fn acquire(&mut self, request: &[u8]) -> Result<CallConnection, Status> {
        loop {
            let chosen = match self.chosen.take() {
                Some(chosen) => chosen,
                None => self.next_endpoint(request).await?,
            };
            match self.connect(&chosen).await {
                Ok(connection) => {
                    self.attempts_made = self.attempts_made.saturating_add(1);
                    return Ok(CallConnection::with_guard(connection, chosen.guard));
                }
                Err(status) => self.skip_endpoint(chosen, status)?,
            }
        }
    }

    /// Returns the call if it is to be retried after this failure on this server.
    #[cold]
    pub(in crate::client) fn retry(&mut self, status: &Status, guard: &EndpointGuard) -> Option<Call<'c>> {
        let call = self.retained_call.clone()?;
        (self.may_retry(status, guard) || self.may_resend_unprocessed(status, guard)).then_some(call)
    }

    /// Whether to try another server after the connection did not take the call.
    #[cold]
    pub(in crate::client) fn retry_unsent(&mut self, guard: &EndpointGuard) -> bool {
        self.attempts_made = self.attempts_made.saturating_sub(1);
        self.unreachable += 1;
        // The connection had just ended. The server may well be reachable by a new one, so it counts as tried only if
        // this happens again.
        if self.unreachable > 1 {
            self.mark_tried(guard);
        }
        self.unreachable <= guard.endpoint_count()
    }

    /// Whether to make another attempt after this failure. Withdraws it from the budget.
    pub(super) fn may_retry(&mut self, status: &Status, guard: &EndpointGuard) -> bool {
        if !is_retryable(status, self.routing.idempotent)
            || self.attempts_left == 0
            || self.is_expired()
            || !self.withdraw_retry()
        {
            return false;
        }
        self.attempts_left -= 1;
        self.mark_tried(guard);
        self.last_failure = Some(status.clone());
        true
    }

    /// Whether to resend a call that the server did not process because it closes the connection. A client of one
    /// server then uses another connection, once; so does a channel in every mode.
    fn may_resend_unprocessed(&mut self, status: &Status, guard: &EndpointGuard) -> bool {
        let is_spared = self.channel.shared.settings.resends_unprocessed
            && self.attempts_made == 1
            && is_connection_failure_before_start(status)
            && !self.is_expired();
        if is_spared {
            self.mark_tried(guard);
        }
        is_spared
    }

    /// Returns the next server, once it may be tried.
    pub(super) async fn next_endpoint(&mut self, request: &[u8]) -> Result<ChosenEndpoint, Status> {
        let deadline = self.deadline.map(Into::into);
        loop {
            let snapshot = match self.channel.snapshot().filter(|snapshot| !snapshot.is_empty()) {
                Some(snapshot) => snapshot,
                None => match self.channel.servers(deadline, self.routing.wait_for_ready).await {
                    Ok(snapshot) => snapshot,
                    // The failure of a server is more useful than the lack of servers.
                    Err(status) => return Err(self.last_failure.take().unwrap_or(status)),
                },
            };
            self.check_recovery(&snapshot)?;
            let chosen = match self.bound_endpoint() {
                Some(endpoint) => self.retry_same_endpoint(snapshot, &endpoint, request).await?,
                None => {
                    let connected = self.choose_connected(&snapshot, request);
                    match connected.or_else(|| self.choose(snapshot.clone(), request, now())) {
                        Some(chosen) => Some(chosen),
                        None => self.choose_or_wait(snapshot, request).await?,
                    }
                }
            };
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
    }

    /// Chooses a server for a backup request, if one is untried and the budget allows it.
    pub(super) fn choose_backup(&mut self, request: &[u8]) -> Option<ChosenEndpoint> {
        if self.attempts_left == 0 || self.recovery().is_some() {
            return None;
        }
        let chosen = self.choose(self.channel.snapshot()?, request, now())?;
        if !self.withdraw_retry() {
            return None;
        }
        self.attempts_left -= 1;
        Some(chosen)
    }

    /// Withdraws one more attempt from the budget; `false` if it is exhausted.
    fn withdraw_retry(&self) -> bool {
        let snapshot = || self.channel.shared.current.load();
        self.channel
            .shared
            .retry_tokens
            .withdraw(|| snapshot().as_ref().map_or(0, |snapshot| snapshot.in_flight()))
    }

    /// Starts an attempt on a server, which counts as tried while the attempt is in flight.
    pub(super) fn start_attempt(&mut self, guard: &EndpointGuard) {
        self.attempts_made = self.attempts_made.saturating_add(1);
        self.mark_tried(guard);
    }

    /// Returns the recovery state if the cluster is recovering.
    fn recovery(&self) -> Option<&'c ClusterRecovery> {
        self.channel.shared.recovery.as_ref().filter(|recovery| recovery.is_active())
    }

    /// Checks whether the recovery admits the call.
    fn check_recovery(&self, snapshot: &Snapshot) -> Result<(), Status> {
        let Some(recovery) = self.recovery() else { return Ok(()) };
        let now = now();
        recovery.admit(now, chance(), || snapshot.healthy_count(now))
    }

    /// Chooses a server that is considered healthy and is untried.
    fn choose(&self, snapshot: Arc<Snapshot>, request: &[u8], now: Instant) -> Option<ChosenEndpoint> {
        let tried = self.tried_indices(&snapshot);
        let index = snapshot.pick(&self.pick_context(&snapshot, &tried, request, now))?;
        // A user's own balancer may return a tried server.
        let is_untried = !tried.contains(&index);
        self.choose_index(snapshot, index, now, is_untried)
    }

    /// Chooses a server with an open connection for a call that found several servers unreachable. If a registry lists
    /// many dead servers, the balancer would try one after another until the deadline.
    fn choose_connected(&self, snapshot: &Arc<Snapshot>, request: &[u8]) -> Option<ChosenEndpoint> {
        if self.unreachable < MAX_UNREACHABLE {
            return None;
        }
        let now = now();
        // The most selective test comes first: there may be thousands of servers.
        let connection = |index: usize| {
            let (endpoint, candidate) = (snapshot.endpoint(index)?, snapshot.candidates().get(index)?);
            candidate.load().is_available(now).then(|| endpoint.pool().try_acquire()).flatten()
        };
        let tried = self.tried_indices(snapshot);
        let context = self.pick_context(snapshot, &tried, request, now);
        let index = snapshot.pick_among(&context, |index| connection(index).is_some())?;
        self.choose_index(snapshot.clone(), index, now, true)
    }

    /// Chooses a server although all were tried or none is considered healthy. Pauses first, since the failed server
    /// may need it.
    async fn choose_or_wait(
        &mut self,
        snapshot: Arc<Snapshot>,
        request: &[u8],
    ) -> Result<Option<ChosenEndpoint>, Status> {
        let index = self.choose_regardless_of_tried(&snapshot, request);
        self.tried.clear();
        let Some(endpoint) = index.and_then(|index| snapshot.endpoint(index)) else {
            self.handle_no_endpoint().await?;
            return Ok(None);
        };
        self.wait_before_retry(endpoint).await?;
        Ok(index.and_then(|index| self.choose_index(snapshot, index, now(), false)))
    }

    /// Returns the index of a healthy server, whether or not the call has tried it. If no server is healthy, returns the
    /// index of an unhealthy one, and prefers those that the call has not tried. `None` if the balancer picks none.
    fn choose_regardless_of_tried(&self, snapshot: &Snapshot, request: &[u8]) -> Option<usize> {
        let now = now();
        let context = self.pick_context(snapshot, &[], request, now);
        if let Some(index) = snapshot.pick(&context) {
            return Some(index);
        }
        if let Some(recovery) =
            self.channel.shared.recovery.as_ref().filter(|_| snapshot.healthy_count(now) == 0)
        {
            recovery.start();
        }
        let tried = self.tried_indices(snapshot);
        let untried = snapshot.pick_among(&PickContext { tried: &tried, ..context }, |_| true);
        untried.or_else(|| snapshot.pick_among(&context, |_| true))
    }

    /// Handles that the balancer has no server for the call. A call with wait-for-ready waits for new ones.
    #[cold]
    async fn handle_no_endpoint(&mut self) -> Result<(), Status> {
        if !self.routing.wait_for_ready {
            return Err(self.last_failure.take().unwrap_or_else(no_endpoint_picked));
        }
        self.unreachable += 1;
        self.pause(pause(&self.channel.shared.settings.backoff, self.attempts())).await
    }

    /// Returns the server that was tried already, after a pause.
    async fn retry_same_endpoint(
        &mut self,
        snapshot: Arc<Snapshot>,
        endpoint: &Arc<Endpoint>,
        request: &[u8],
    ) -> Result<Option<ChosenEndpoint>, Status> {
        let Some(index) = snapshot.index_of(endpoint) else {
            // The server has left: any other one replaces it.
            self.tried.clear();
            return Ok(self.choose(snapshot, request, now()));
        };
        self.wait_before_retry(endpoint).await?;
        Ok(self.choose_index(snapshot, index, now(), false))
    }

    /// Returns the server that the call is bound to, once it was tried.
    fn bound_endpoint(&self) -> Option<Arc<Endpoint>> {
        let is_bound = self.channel.shared.settings.fail_mode == FailMode::Failtry;
        self.tried.last().filter(|_| is_bound).cloned()
    }

    /// Waits before a server is tried again: at least until its connect backoff is over, unless that takes too long for
    /// a call without wait-for-ready.
    async fn wait_before_retry(&mut self, endpoint: &Endpoint) -> Result<(), Status> {
        let attempts = self.attempts();
        if attempts == 0 {
            return Ok(());
        }
        let now = now();
        let usual = pause(&self.channel.shared.settings.backoff, attempts);
        let reachable = endpoint.next_attempt().saturating_duration_since(now);
        let pause = match reachable <= MAX_BACKOFF_WAIT || self.routing.wait_for_ready {
            true => usual.max(reachable),
            false => usual,
        };
        self.pause(pause).await
    }

    async fn pause(&mut self, pause: Duration) -> Result<(), Status> {
        let is_in_time = |deadline| now().checked_add(pause).is_some_and(|then| then < deadline);
        if !self.deadline.is_none_or(is_in_time) {
            return Err(self.last_failure.take().unwrap_or_else(too_late));
        }
        sleep(pause).await;
        Ok(())
    }

    /// Returns the number of attempts, including unreachable servers.
    fn attempts(&self) -> u32 {
        self.attempts_made.saturating_add(u32::try_from(self.unreachable).unwrap_or(u32::MAX))
    }

    /// Returns the indices of the tried servers.
    fn tried_indices(&self, snapshot: &Snapshot) -> Vec<usize> {
        self.tried.iter().filter_map(|endpoint| snapshot.index_of(endpoint)).collect()
    }

    fn choose_index(
        &self,
        snapshot: Arc<Snapshot>,
        index: usize,
        now: Instant,
        is_untried: bool,
    ) -> Option<ChosenEndpoint> {
        let guard = EndpointGuard::start(
            snapshot,
            index,
            now,
            self.timeout,
            AttemptCounts { left: self.attempts_left, made: self.attempts_made },
        )?;
        Some(ChosenEndpoint { guard, is_untried })
    }

    fn pick_context<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        tried: &'a [usize],
        request: &'a [u8],
        now: Instant,
    ) -> PickContext<'a> {
        PickContext {
            service: self.service,
            method: self.method,
            key: self.routing.key,
            request,
            now,
            candidates: snapshot.candidates(),
            tried,
        }
    }

    /// Returns a connection to the chosen server.
    async fn connect(&self, chosen: &ChosenEndpoint) -> Result<PooledConnection, Status> {
        let pool = chosen.guard.endpoint().pool();
        if let Some(connection) = pool.try_acquire() {
            return Ok(connection);
        }
        let Some(deadline) = self.deadline else { return pool.acquire().await };
        let now = now();
        let left = deadline.saturating_duration_since(now);
        // Half of the time is kept for another server if this one does not accept the connection.
        let delay = if chosen.is_untried && self.attempts_left > 0 { left / 2 } else { left };
        match timeout_at((now + delay).into(), pool.acquire()).await {
            Ok(connected) => connected,
            Err(_) => {
                // The call has given up; a background probe finds out whether the server is to blame.
                chosen.guard.endpoint().suspect();
                Err(if delay < left { too_slow() } else { too_late() })
            }
        }
    }

    /// Skips an unreachable server, unless the call ends with that.
    fn skip_endpoint(&mut self, chosen: ChosenEndpoint, status: Status) -> Result<(), Status> {
        self.record_unreachable(&chosen.guard, &status);
        self.may_skip_endpoint(&chosen, status)
    }

    /// Records that a server was unreachable.
    pub(super) fn record_unreachable(&mut self, guard: &EndpointGuard, status: &Status) {
        guard.finish(Some(status));
        if status.retry() != Retry::Elsewhere {
            return;
        }
        if !guard.endpoint().is_suspect() {
            guard.endpoint().mark_unavailable();
        }
        self.unreachable += 1;
        self.mark_tried(guard);
    }

    /// Whether to continue after this server was unreachable; otherwise returns the failure.
    pub(super) fn may_skip_endpoint(
        &mut self,
        missed: &ChosenEndpoint,
        status: Status,
    ) -> Result<(), Status> {
        if status.retry() != Retry::Elsewhere {
            return Err(status);
        }
        // Each server is free of charge once.
        let is_free = missed.is_untried && self.unreachable <= missed.guard.endpoint_count();
        let settings = &self.channel.shared.settings;
        if settings.fail_mode == FailMode::Failfast && !self.routing.wait_for_ready || self.is_expired() {
            return Err(status);
        }
        if !is_free && !self.routing.wait_for_ready {
            match self.attempts_left.checked_sub(1) {
                Some(left) => self.attempts_left = left,
                None => return Err(status),
            }
        }
        self.last_failure = Some(status);
        Ok(())
    }

    /// Marks the server as tried. Only the most recent ones are remembered, as in brpc (`excluded_servers.h`).
    fn mark_tried(&mut self, guard: &EndpointGuard) {
        if self.tried.len() >= MAX_TRIED {
            self.tried.remove(0);
        }
        self.tried.push(guard.endpoint().clone());
    }

    fn is_expired(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now())
    }
}

/// Number of unreachable servers after which a call goes to a server with an open connection. Up to then the balancer
/// chooses.
const MAX_UNREACHABLE: usize = 2;

/// Number of servers that are remembered as tried.
const MAX_TRIED: usize = 8;

/// Longest connect backoff that a call with attempts left waits for.
const MAX_BACKOFF_WAIT: Duration = Duration::from_secs(1);

#[cold]
fn too_late() -> Status {
    Status::deadline_exceeded("no connection in time")
}

#[cold]
fn no_endpoint_picked() -> Status {
    Status::unavailable("the load balancer picked no server")
        .with_scope(Scope::Connection)
        .with_retry(Retry::Elsewhere)
}

#[cold]
fn too_slow() -> Status {
    Status::unavailable("no connection in half of the available time")
}

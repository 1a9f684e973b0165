//! Admission of connects to one server, and recording of their outcomes.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use polyrpc_core::{Reply, Retry, Scope, Status};
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::backoff::Backoff;
use super::connect_backoff::{BackoffChange, ConnectBackoff, ConnectPermit};
use crate::client::retryable::is_connection_failure_before_start;
use crate::contention::{Mutex, MutexGuard};
use crate::rate_limited::EventLimiter;
use crate::runtime::now;
use crate::transport::Address;

/// [`ConnectBackoff`] that is shared by tasks.
pub(in crate::client) struct ConnectGate {
    server: Address,
    backoff: Mutex<ConnectBackoff>,
    /// Notified when a connection was confirmed or has failed.
    changed: Notify,
}

impl ConnectGate {
    pub(in crate::client) fn new(server: Address, settings: Backoff) -> Self {
        let backoff = Mutex::new(ConnectBackoff::new(settings));
        Self { server, backoff, changed: Notify::new() }
    }

    /// Waits until a connect may start, and returns when it started.
    ///
    /// # Errors
    ///
    /// The reason of the last failure, if it is too early to try again.
    pub(in crate::client) async fn wait_turn(&self) -> Result<Instant, Status> {
        loop {
            // Created before the check, so that no change is missed.
            let changed = self.changed.notified();
            let now = now();
            let permit = self.lock().request_permit(now);
            match permit {
                ConnectPermit::Now => return Ok(now),
                ConnectPermit::Refused(reason) => return Err(reason),
                ConnectPermit::At(slot) => drop(timeout_at(slot.into(), changed).await),
            }
        }
    }

    /// Returns why no connect may start now, if that is so.
    pub(in crate::client) fn refusal(&self) -> Option<Status> {
        self.lock().refusal(now())
    }

    /// Returns when the next connect may start.
    pub(in crate::client) fn next_attempt(&self) -> Instant {
        self.lock().next_attempt(now())
    }

    /// Records the outcome of the connect that started at `connect_start`.
    pub(in crate::client) fn record_connect(&self, connect_start: Instant, failure: Option<&Status>) {
        let Some(reason) = failure else { return self.lock().on_connect(now()) };
        let change = self.lock().on_connect_error(connect_start, now(), reason);
        self.report(&change, reason);
    }

    #[cold]
    fn on_early_end(&self, connect_start: Instant, status: &Status) {
        let reason = ended_early(&self.server, status);
        let change = self.lock().on_early_end(connect_start, now(), &reason);
        self.report(&change, &reason);
    }

    #[cold]
    fn on_first_reply(&self) {
        let had_waited = self.lock().on_first_reply(now());
        self.changed.notify_waiters();
        log_recovery(&self.server, had_waited);
    }

    fn report(&self, change: &BackoffChange, reason: &Status) {
        self.changed.notify_waiters();
        if *change == BackoffChange::BacksOff {
            log_failure(&self.server, reason);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection without any reply yet.
pub(super) struct UnconfirmedConnection {
    gate: Arc<ConnectGate>,
    connect_start: Instant,
    /// Whether the server refused a call on it.
    refused: bool,
    /// Whether the server answered.
    answered: bool,
    /// Whether a reply was malformed, too long or incomplete: it shows neither that the server is well nor that it is not.
    is_unclear: bool,
}

impl UnconfirmedConnection {
    /// Tracks a connection whose connect started at `connect_start`.
    pub(in crate::client) fn new(gate: Arc<ConnectGate>, connect_start: Instant) -> Self {
        Self { gate, connect_start, refused: false, answered: false, is_unclear: false }
    }

    /// Records a reply; `None`: a streaming response started. It confirms the connection unless it only reports that
    /// the call was not processed.
    #[cold]
    pub(in crate::client) fn on_reply(&mut self, reply: Option<&Reply>) {
        let failure = reply.and_then(|reply| reply.result.as_ref().err());
        match failure.is_some_and(is_connection_failure_before_start) {
            true => self.refused = true,
            false => self.answered = true,
        }
    }

    /// Records that the connection ends because of a reply that is malformed, too long or incomplete. It fails the calls
    /// that waited for it, and delays no connect.
    #[cold]
    pub(super) fn on_incomplete_reply(&mut self) {
        self.is_unclear = true;
    }

    /// Records that the server takes no more calls on the connection. Right after the connect this means that it
    /// refuses to serve; later it is how a server closes its connections.
    #[cold]
    pub(super) fn on_go_away(&mut self) {
        self.refused |= self.was_just_connected();
    }

    fn was_just_connected(&self) -> bool {
        now().saturating_duration_since(self.connect_start) < JUST_CONNECTED_AGE
    }

    pub(in crate::client) fn is_confirmed(&self) -> bool {
        self.answered
    }

    /// Confirms to other connects that the server answers.
    #[cold]
    pub(in crate::client) fn confirm(self) {
        self.gate.on_first_reply();
    }

    /// Records that the connection ended without a reply. `left`: calls were waiting for one. `by_us`: this client
    /// closed it.
    #[cold]
    pub(in crate::client) fn on_close(self, left: bool, by_us: bool, status: &Status) {
        if self.answered {
            return self.confirm();
        }
        if self.is_unclear {
            return;
        }
        // An idle server may close an unused connection, but not right after it was established.
        if self.refused || left || !by_us && self.was_just_connected() {
            self.gate.on_early_end(self.connect_start, status);
        }
    }
}

/// A server that closes an unused connection within this time did not do so because it was idle.
const JUST_CONNECTED_AGE: Duration = Duration::from_secs(1);

/// Returns the status of a call that is not sent because connections end before any reply.
pub(in crate::client) fn ended_early(server: &Address, status: &Status) -> Status {
    Status::unavailable(format!(
        "cannot reach {server}: a connection ended before any reply: {}",
        status.message()
    ))
    .with_scope(Scope::Connection)
    .with_retry(Retry::Elsewhere)
    .with_source(status.clone())
}

/// Logs that a server is unreachable, once until it is reachable again, for all clients of the process: some programs
/// create a client per attempt.
#[cold]
pub(in crate::client) fn log_failure(server: &Address, reason: &Status) {
    if !LOST.add(server) {
        return;
    }
    if let Some(suppressed) = CHANGES.allow() {
        tracing::warn!(target: TARGET, %server, error = reason.message(), suppressed, "server unreachable");
    }
}

/// Logs that an unreachable server is reachable again. `had_waited`: this client had to wait for it.
#[cold]
pub(in crate::client) fn log_recovery(server: &Address, had_waited: bool) {
    if !LOST.remove(server) && !had_waited {
        return;
    }
    if let Some(suppressed) = CHANGES.allow() {
        tracing::info!(target: TARGET, %server, suppressed, "server reachable again");
    }
}

/// Target of the `tracing` events.
const TARGET: &str = "polyrpc::client::connection::connect_gate";

/// Servers that were logged as unreachable.
static LOST: LostConnection = LostConnection(Mutex::new(BTreeSet::new()));

struct LostConnection(Mutex<BTreeSet<String>>);

impl LostConnection {
    /// Adds a server. Returns whether it was new.
    fn add(&self, server: &Address) -> bool {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Servers may be gone for good. A forgotten server is logged once more.
        if lost.len() >= MAX_LOST {
            lost.clear();
        }
        lost.insert(server.to_string())
    }

    /// Removes a server. Returns whether it was known.
    fn remove(&self, server: &Address) -> bool {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !lost.is_empty() && lost.remove(&server.to_string())
    }
}

/// Number of unreachable servers that are remembered.
const MAX_LOST: usize = 1024;

/// A program may have many clients, and a network may lose all their servers at once, repeatedly.
static CHANGES: EventLimiter = EventLimiter::new(20, Duration::from_secs(10));

#[cfg(test)]
mod tests {
    use polyrpc_core::Head;

    use super::*;

    /// Returns whether connects are delayed after two connections with this outcome.
    async fn waits(connection: impl AsyncFn(UnconfirmedConnection)) -> bool {
        let server = Address::Tcp("h:1".into());
        let gate = Arc::new(ConnectGate::new(server, Backoff::single_server()));
        for _ in 0..2 {
            let connect_start = gate.wait_turn().await.expect("the first failure is tolerated");
            gate.record_connect(connect_start, None);
            connection(UnconfirmedConnection::new(gate.clone(), connect_start)).await;
        }
        gate.refusal().is_some()
    }

    fn closed() -> Status {
        Status::unavailable("closed")
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lost_server_is_logged_once_until_it_returns() {
        let lost = LostConnection(Mutex::default());
        let server = |port: usize| Address::Tcp(format!("lost:{port}"));
        assert!(!lost.remove(&server(1)), "it was not lost");
        assert_eq!([1, 1, 2].map(|port| lost.add(&server(port))), [true, false, true]);
        assert!(lost.remove(&server(1)));
        assert!(lost.add(&server(1)), "it is lost again");
        (0..3 * MAX_LOST).for_each(|port| assert!(lost.add(&server(port)) || port < 3));
        assert!(lost.0.lock().unwrap().len() <= MAX_LOST);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_ends_without_a_reply_is_a_failure() {
        assert!(
            waits(async |unconfirmed| unconfirmed.on_close(true, false, &closed())).await,
            "calls waited"
        );
        assert!(
            waits(async |unconfirmed| unconfirmed.on_close(false, false, &closed())).await,
            "closed at once"
        );
        let dismissed = async |mut unconfirmed: UnconfirmedConnection| {
            unconfirmed.on_go_away();
            unconfirmed.on_close(false, true, &closed());
        };
        assert!(waits(dismissed).await, "GOAWAY at once");
        let refused = async |mut unconfirmed: UnconfirmedConnection| {
            let status = closed().with_scope(Scope::Connection).with_retry(Retry::Elsewhere);
            unconfirmed.on_reply(Some(&Reply::new(Err(status), Head::default())));
            unconfirmed.on_close(false, true, &closed());
        };
        assert!(waits(refused).await, "no call was processed");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_ends_otherwise_is_not_a_failure() {
        let answered = async |mut unconfirmed: UnconfirmedConnection| {
            unconfirmed.on_reply(Some(&Reply::new(Err(Status::not_found("x")), Head::default())));
            unconfirmed.on_close(true, false, &closed());
        };
        assert!(!waits(answered).await, "a failure is a reply too");
        let malformed = async |mut unconfirmed: UnconfirmedConnection| {
            unconfirmed.on_incomplete_reply();
            unconfirmed.on_close(true, false, &closed());
        };
        assert!(!waits(malformed).await, "what it sent is a sign of life");
        assert!(
            !waits(async |unconfirmed| unconfirmed.on_close(false, true, &closed())).await,
            "closed by the client"
        );
        let idle = async |mut unconfirmed: UnconfirmedConnection| {
            tokio::time::advance(SECOND * 2).await;
            unconfirmed.on_go_away();
            unconfirmed.on_close(false, false, &closed());
        };
        assert!(!waits(idle).await, "the connection was unused for long");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_proceed_once_the_server_answers() {
        let gate = Arc::new(ConnectGate::new(Address::Tcp("h:1".into()), Backoff::single_server()));
        let connect_start = gate.wait_turn().await.unwrap();
        UnconfirmedConnection::new(gate.clone(), connect_start).on_close(true, false, &closed());
        let again = gate.wait_turn().await.unwrap();
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let gate = gate.clone();
                tokio::spawn(async move { gate.wait_turn().await.is_ok() })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|caller| !caller.is_finished()));
        let before = tokio::time::Instant::now();
        let mut unconfirmed = UnconfirmedConnection::new(gate.clone(), again);
        unconfirmed.on_reply(None);
        unconfirmed.confirm();
        for caller in waiting {
            assert!(caller.await.unwrap());
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}

//! What the connections of one server are admitted by and reported to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use polyrpc_core::{Reply, Retry, Scope, Status};
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::backoff::Backoff;
use super::connect_backoff::{Change, ConnectBackoff, Permit};
use crate::client::failure::reached_nobody;
use crate::rate_limited::EventLimiter;
use crate::transport::Address;

/// A [`ConnectBackoff`] that tasks share.
pub(in crate::client) struct ConnectGate {
    server: Address,
    backoff: Mutex<ConnectBackoff>,
    /// The server was found to be good, or to be not.
    changed: Notify,
}

impl ConnectGate {
    pub(in crate::client) fn new(server: Address, settings: Backoff) -> Self {
        let backoff = Mutex::new(ConnectBackoff::new(settings));
        Self { server, backoff, changed: Notify::new() }
    }

    /// Waits until a dial may begin, and returns when it began.
    ///
    /// # Errors
    ///
    /// The reason of the last failure, if it is too early to try again.
    pub(in crate::client) async fn enter(&self) -> Result<Instant, Status> {
        loop {
            // Before the question, so that no answer is missed.
            let changed = self.changed.notified();
            let now = now();
            let permit = self.lock().ask(now);
            match permit {
                Permit::Now => return Ok(now),
                Permit::Refused(reason) => return Err(reason),
                Permit::At(slot) => drop(timeout_at(slot.into(), changed).await),
            }
        }
    }

    /// Why no dial may begin now, if none may.
    pub(in crate::client) fn refusal(&self) -> Option<Status> {
        self.lock().refusal(now())
    }

    /// When it is not too early any more.
    pub(in crate::client) fn next_attempt(&self) -> Instant {
        self.lock().next_attempt(now())
    }

    /// The dial that began at `begun` has ended so.
    pub(in crate::client) fn dialled(&self, begun: Instant, failure: Option<&Status>) {
        let Some(reason) = failure else { return self.lock().connected(now()) };
        let change = self.lock().failed(begun, now(), reason);
        self.report(&change, reason);
    }

    #[cold]
    fn ended_early(&self, begun: Instant, status: &Status) {
        let reason = ended_early(&self.server, status);
        let change = self.lock().ended_early(begun, now(), &reason);
        self.report(&change, &reason);
    }

    #[cold]
    fn succeeded(&self) {
        let had_waited = self.lock().succeeded(now());
        self.changed.notify_waiters();
        log_recovery(&self.server, had_waited);
    }

    fn report(&self, change: &Change, reason: &Status) {
        self.changed.notify_waiters();
        if *change == Change::BacksOff {
            log_failure(&self.server, reason);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectBackoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on which no reply has come yet.
pub(super) struct Probation {
    gate: Arc<ConnectGate>,
    begun: Instant,
    /// The server refused a call on it.
    refused: bool,
    /// The server answered.
    answered: bool,
}

impl Probation {
    /// Of a connection whose dial began then.
    pub(in crate::client) fn new(gate: Arc<ConnectGate>, begun: Instant) -> Self {
        Self { gate, begun, refused: false, answered: false }
    }

    /// A reply came; `None`: one that has several messages began. It counts unless all it says is that the server did not
    /// look at the call.
    #[cold]
    pub(in crate::client) fn hear(&mut self, reply: Option<&Reply>) {
        let failure = reply.and_then(|reply| reply.result.as_ref().err());
        match failure.is_some_and(reached_nobody) {
            true => self.refused = true,
            false => self.answered = true,
        }
    }

    /// The server wants no more calls on it. One that says so as soon as it was connected to refuses to serve; later it is
    /// how a server lets go of its connections.
    #[cold]
    pub(super) fn dismiss(&mut self) {
        self.refused |= self.is_young();
    }

    fn is_young(&self) -> bool {
        now().saturating_duration_since(self.begun) < YOUNG
    }

    pub(in crate::client) fn is_over(&self) -> bool {
        self.answered
    }

    /// Tells the others that the server answers.
    #[cold]
    pub(in crate::client) fn pass(self) {
        self.gate.succeeded();
    }

    /// The connection ended without a reply. `left`: calls waited for one. `by_us`: this client ended it.
    #[cold]
    pub(in crate::client) fn end(self, left: bool, by_us: bool, status: &Status) {
        if self.answered {
            return self.pass();
        }
        // A connection that nobody used may be closed by an idle server, but not as soon as it is made.
        if self.refused || left || !by_us && self.is_young() {
            self.gate.ended_early(self.begun, status);
        }
    }
}

/// A server that closes an unused connection within this time did not do so because it was idle.
const YOUNG: Duration = Duration::from_secs(1);

/// Why no call was sent, when connections end before any reply.
pub(in crate::client) fn ended_early(server: &Address, status: &Status) -> Status {
    Status::unavailable(format!(
        "cannot reach {server}: a connection ended before any reply: {}",
        status.message()
    ))
    .with_scope(Scope::Connection)
    .with_retry(Retry::Elsewhere)
    .with_source(status.clone())
}

/// Logs that a server cannot be reached, once until it can be again, whichever client finds it: some make a client for
/// each attempt.
#[cold]
pub(in crate::client) fn log_failure(server: &Address, reason: &Status) {
    if !LOST.add(server) {
        return;
    }
    if let Some(suppressed) = CHANGES.allow() {
        tracing::warn!(target: TARGET, %server, error = reason.message(), suppressed, "a server cannot be reached");
    }
}

/// Logs that a server that could not be reached can be again. `had_waited`: the client that finds it had to wait for it.
#[cold]
pub(in crate::client) fn log_recovery(server: &Address, had_waited: bool) {
    if !LOST.remove(server) && !had_waited {
        return;
    }
    if let Some(suppressed) = CHANGES.allow() {
        tracing::info!(target: TARGET, %server, suppressed, "a server can be reached again");
    }
}

/// Under which name a subscriber of `tracing` is told.
const TARGET: &str = "polyrpc::client::connect_gate";

/// The servers of which was logged that they cannot be reached.
static LOST: Lost = Lost(Mutex::new(BTreeSet::new()));

struct Lost(Mutex<BTreeSet<String>>);

impl Lost {
    /// Returns whether it was not known.
    fn add(&self, server: &Address) -> bool {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Servers may be gone for good. What is forgotten is logged once more.
        if lost.len() >= MOST_LOST {
            lost.clear();
        }
        lost.insert(server.to_string())
    }

    /// Returns whether it was known.
    fn remove(&self, server: &Address) -> bool {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !lost.is_empty() && lost.remove(&server.to_string())
    }
}

/// How many lost servers are remembered.
const MOST_LOST: usize = 1024;

/// A program may have many clients, and a network may take all their servers away at once, again and again.
static CHANGES: EventLimiter = EventLimiter::new(20, Duration::from_secs(10));

/// The time by the clock that timers go by, which a test may have stopped.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use polyrpc_core::Head;

    use super::*;

    /// Whether dials have to wait after two connections that went so.
    async fn waits(connection: impl AsyncFn(Probation)) -> bool {
        let server = Address::Tcp("h:1".into());
        let gate = Arc::new(ConnectGate::new(server, Backoff::of_one_server()));
        for _ in 0..2 {
            let begun = gate.enter().await.expect("the first failure is forgiven");
            gate.dialled(begun, None);
            connection(Probation::new(gate.clone(), begun)).await;
        }
        gate.refusal().is_some()
    }

    fn closed() -> Status {
        Status::unavailable("closed")
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lost_server_is_told_once_until_it_is_back_and_memory_is_bounded() {
        let lost = Lost(Mutex::default());
        let server = |port: usize| Address::Tcp(format!("lost:{port}"));
        assert!(!lost.remove(&server(1)), "it was not lost");
        assert_eq!([1, 1, 2].map(|port| lost.add(&server(port))), [true, false, true]);
        assert!(lost.remove(&server(1)));
        assert!(lost.add(&server(1)), "it is lost again");
        (0..3 * MOST_LOST).for_each(|port| assert!(lost.add(&server(port)) || port < 3));
        assert!(lost.0.lock().unwrap().len() <= MOST_LOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_fails_if_it_ends_without_a_reply() {
        assert!(waits(async |probation| probation.end(true, false, &closed())).await, "calls waited");
        assert!(waits(async |probation| probation.end(false, false, &closed())).await, "closed at once");
        let dismissed = async |mut probation: Probation| {
            probation.dismiss();
            probation.end(false, true, &closed());
        };
        assert!(waits(dismissed).await, "GOAWAY at once");
        let refused = async |mut probation: Probation| {
            let status = closed().with_scope(Scope::Connection).with_retry(Retry::Elsewhere);
            probation.hear(Some(&Reply::new(Err(status), Head::default())));
            probation.end(false, true, &closed());
        };
        assert!(waits(refused).await, "no call was looked at");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ends_otherwise_has_not_failed() {
        let answered = async |mut probation: Probation| {
            probation.hear(Some(&Reply::new(Err(Status::not_found("x")), Head::default())));
            probation.end(true, false, &closed());
        };
        assert!(!waits(answered).await, "a failure is a reply too");
        assert!(!waits(async |probation| probation.end(false, true, &closed())).await, "by us");
        let idle = async |mut probation: Probation| {
            tokio::time::advance(SECOND * 2).await;
            probation.dismiss();
            probation.end(false, false, &closed());
        };
        assert!(!waits(idle).await, "nobody used it for long");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_who_wait_for_a_slot_go_on_as_soon_as_the_server_answers() {
        let gate = Arc::new(ConnectGate::new(Address::Tcp("h:1".into()), Backoff::of_one_server()));
        let begun = gate.enter().await.unwrap();
        Probation::new(gate.clone(), begun).end(true, false, &closed());
        let again = gate.enter().await.unwrap();
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let gate = gate.clone();
                tokio::spawn(async move { gate.enter().await.is_ok() })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|caller| !caller.is_finished()));
        let before = tokio::time::Instant::now();
        let mut probation = Probation::new(gate.clone(), again);
        probation.hear(None);
        probation.pass();
        for caller in waiting {
            assert!(caller.await.unwrap());
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use polyrpc_core::Code;

use super::consecutive::ConsecutiveFailures;
use super::cost::EmaErrorCost;
use super::rate::Window;
use super::{CircuitBreaker, TripPolicy};
use crate::client::balance::AttemptOutcome;
use crate::contention::{Mutex, MutexGuard};

/// Circuit breaker state of one server.
///
/// ```text
///          too many failures
/// closed ─────────────────────▶ open ◀── a failure ───┐
///   ▲                            │                     │
///   ├── a probe has succeeded ───┴── the same, and ──▶ on trial
///   │                                there are trials  │
///   └───────────────── enough successes ───────────────┘
/// ```
///
/// While the circuit is closed, a call costs an atomic load plus the cost of the window: an atomic or a short lock.
#[derive(Debug)]
pub(in crate::client::cluster) struct CircuitState {
    breaker: CircuitBreaker,
    state: AtomicU8,
    /// Number of successes that are still required on trial.
    trial: AtomicU32,
    memory: FailureHistory,
    ejection: Mutex<Ejection>,
    since: Instant,
}

/// Call history of a server.
#[derive(Debug)]
enum FailureHistory {
    Consecutive(ConsecutiveFailures),
    Rate(Mutex<Window>),
    Cost(Mutex<[EmaErrorCost; 2]>),
}

/// Length of the last ejection, and when the server came back.
#[derive(Debug, Default)]
struct Ejection {
    duration: Duration,
    until: Option<Instant>,
    readmitted_at: Option<Instant>,
}

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const HALF_OPEN: u8 = 2;

impl CircuitState {
    pub(in crate::client::cluster) fn new(breaker: CircuitBreaker, now: Instant) -> Self {
        Self {
            state: AtomicU8::new(CLOSED),
            trial: AtomicU32::new(0),
            memory: FailureHistory::new(&breaker.trip),
            ejection: Mutex::default(),
            since: now,
            breaker,
        }
    }

    /// Returns how many of this number of servers may be ejected.
    pub(in crate::client::cluster) fn ejection_limit(&self, servers: usize) -> usize {
        self.breaker.ejection_limit(servers)
    }

    /// Records the end of a call. Returns whether the circuit is to be [opened](Self::open). If it may not be opened,
    /// the history is reset and the following calls decide.
    pub(in crate::client::cluster) fn record(&self, outcome: &AttemptOutcome<'_>) -> bool {
        let Some(failed) = is_failure(outcome) else { return false };
        match self.state.load(Ordering::Relaxed) {
            CLOSED => {
                let now = outcome.now.saturating_duration_since(self.since);
                self.memory.record(&self.breaker.trip, failed, outcome.latency, now)
            }
            HALF_OPEN => self.record_trial(failed),
            // Calls that were in flight when the circuit opened.
            _ => false,
        }
    }

    #[cold]
    fn record_trial(&self, failed: bool) -> bool {
        if failed {
            return true;
        }
        let one_less = |left: u32| left.checked_sub(1);
        let before = self.trial.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if before.unwrap_or(0) <= 1 {
            // Fails if a concurrent failure has changed the state.
            let _ = self.state.compare_exchange(HALF_OPEN, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        }
        false
    }

    /// Opens the circuit. Returns `false` if it is open already.
    #[cold]
    pub(in crate::client::cluster) fn open(&self, now: Instant) -> bool {
        let mut ejection = self.ejection();
        if self.state.swap(OPEN, Ordering::Relaxed) == OPEN {
            return false;
        }
        ejection.start(&self.breaker, now);
        true
    }

    /// Forgets the recorded failures if the circuit may not be opened.
    #[cold]
    pub(in crate::client::cluster) fn reset(&self) {
        self.memory.forget(&self.breaker.trip);
    }

    /// Returns until when the server is ejected, if it is.
    pub(in crate::client::cluster) fn open_until(&self) -> Option<Instant> {
        if self.state.load(Ordering::Relaxed) != OPEN {
            return None;
        }
        self.ejection().until
    }

    /// Ends the ejection: closes the circuit, or starts a trial.
    #[cold]
    pub(in crate::client::cluster) fn close(&self, now: Instant) {
        let mut ejection = self.ejection();
        self.memory.forget(&self.breaker.trip);
        self.trial.store(self.breaker.half_open, Ordering::Relaxed);
        ejection.until = None;
        ejection.readmitted_at = Some(now);
        let next = if self.breaker.half_open > 0 { HALF_OPEN } else { CLOSED };
        self.state.store(next, Ordering::Relaxed);
    }

    fn ejection(&self) -> MutexGuard<'_, Ejection> {
        self.ejection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call counts as a failure of its server; `None` if the call does not count.
fn is_failure(outcome: &AttemptOutcome<'_>) -> Option<bool> {
    let Some(failure) = outcome.failure else { return Some(false) };
    // A full server rejects calls in order to get fewer of them for a moment (brpc `controller.cpp` leaves out ELIMIT).
    if failure.code() == Code::ResourceExhausted || outcome.is_cancelled() {
        return None;
    }
    Some(outcome.is_server_failure())
}

impl Ejection {
    /// Doubles the last ejection if it was recent (brpc `circuit_breaker.cpp`, `UpdateIsolationDuration`).
    fn start(&mut self, breaker: &CircuitBreaker, now: Instant) {
        let is_again = self
            .readmitted_at
            .is_some_and(|readmitted_at| now.saturating_duration_since(readmitted_at) < breaker.longest);
        self.duration = match is_again {
            true => self.duration.saturating_mul(2).min(breaker.longest),
            false => breaker.shortest,
        };
        self.until = now.checked_add(self.duration);
    }
}

impl FailureHistory {
    fn new(trip: &TripPolicy) -> Self {
        match trip {
            TripPolicy::Consecutive(_) => Self::Consecutive(ConsecutiveFailures::default()),
            TripPolicy::Rate(_) => Self::Rate(Mutex::default()),
            TripPolicy::Cost(limits) => Self::Cost(Mutex::new(limits.each_ref().map(EmaErrorCost::new))),
        }
    }

    /// Records the end of a call. Returns whether there were too many failures.
    fn record(&self, trip: &TripPolicy, failed: bool, latency: Duration, now: Duration) -> bool {
        match (self, trip) {
            (Self::Consecutive(run), TripPolicy::Consecutive(limit)) => run.record(limit, failed, now),
            (Self::Rate(window), TripPolicy::Rate(limit)) => lock(window).record(limit, failed, now),
            (Self::Cost(ledgers), TripPolicy::Cost([long, short])) => {
                let [of_long, of_short] = &mut *lock(ledgers);
                // `|` does not short-circuit: both windows must record the call.
                of_long.record(long, failed, latency) | of_short.record(short, failed, latency)
            }
            _ => false,
        }
    }

    fn forget(&self, trip: &TripPolicy) {
        match (self, trip) {
            (Self::Consecutive(run), _) => run.forget(),
            (Self::Rate(window), _) => *lock(window) = Window::default(),
            (Self::Cost(ledgers), TripPolicy::Cost(limits)) => {
                *lock(ledgers) = limits.each_ref().map(EmaErrorCost::new)
            }
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use polyrpc_core::{Scope, Status};

    use super::*;

    fn outcome(failure: Option<&Status>, now: Instant) -> AttemptOutcome<'_> {
        AttemptOutcome { failure, ..AttemptOutcome::new(Duration::from_millis(1), now) }
    }

    fn fails(circuit: &CircuitState, now: Instant) -> bool {
        circuit.record(&outcome(Some(&Status::internal("")), now))
    }

    fn succeeds(circuit: &CircuitState, now: Instant) -> bool {
        circuit.record(&outcome(None, now))
    }

    fn circuit(now: Instant) -> CircuitState {
        CircuitState::new(CircuitBreaker::consecutive(1, Duration::from_secs(10)), now)
    }

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn only_failures_of_the_server_count() {
        let now = Instant::now();
        let blame = |status: Status| is_failure(&outcome(Some(&status), now));
        assert_eq!(is_failure(&outcome(None, now)), Some(false));
        for status in [Status::internal(""), Status::unavailable(""), Status::deadline_exceeded("")] {
            assert_eq!(blame(status), Some(true));
        }
        assert_eq!(blame(Status::cancelled("broken off").with_scope(Scope::Connection)), Some(true));
        for status in [Status::invalid_argument(""), Status::not_found(""), Status::unauthenticated("")] {
            assert_eq!(blame(status), Some(false), "it answers");
        }
        for status in [Status::resource_exhausted(""), Status::cancelled("")] {
            assert_eq!(blame(status), None);
        }
    }

    #[test]
    fn repeated_ejection_lasts_twice_as_long() {
        let mut now = Instant::now();
        let circuit = circuit(now);
        let mut durations = Vec::new();
        for _ in 0..11 {
            assert!(fails(&circuit, now) && circuit.open(now));
            let until = circuit.open_until().unwrap();
            durations.push((until - now).as_millis());
            now = until + MILLI;
            circuit.close(now);
        }
        assert_eq!(durations, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        // The server was healthy for long enough.
        now += LONG;
        assert!(fails(&circuit, now) && circuit.open(now));
        assert_eq!(circuit.open_until(), Some(now + 100 * MILLI));
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn outcomes_are_ignored_while_the_circuit_is_open() {
        let now = Instant::now();
        let circuit = circuit(now);
        assert!(fails(&circuit, now) && circuit.open(now) && !circuit.open(now));
        assert!(!fails(&circuit, now) && !succeeds(&circuit, now));
        assert!(circuit.open_until().is_some());
    }

    #[test]
    fn half_open_circuit_opens_on_one_failure_until_enough_successes() {
        let now = Instant::now();
        let breaker = CircuitBreaker::consecutive(3, LONG).half_open(2);
        let circuit = CircuitState::new(breaker, now);
        assert!(!fails(&circuit, now) && !fails(&circuit, now) && fails(&circuit, now) && circuit.open(now));
        circuit.close(now);
        assert!(!succeeds(&circuit, now) && fails(&circuit, now) && circuit.open(now));
        circuit.close(now);
        assert!(!succeeds(&circuit, now) && !succeeds(&circuit, now) && !fails(&circuit, now));
    }

    #[test]
    fn reset_circuit_counts_failures_from_zero() {
        let now = Instant::now();
        for breaker in [
            CircuitBreaker::consecutive(20, LONG),
            CircuitBreaker::failure_ratio(0.5, 20, LONG),
            CircuitBreaker::brpc(),
        ] {
            let circuit = CircuitState::new(breaker, now);
            let until_out = || (1..10_000).find(|_| fails(&circuit, now)).unwrap();
            let first = until_out();
            assert!(first >= 20);
            circuit.reset();
            assert_eq!(until_out(), first);
        }
    }

    #[test]
    fn rpcx_and_brpc_presets_open_after_their_own_failure_counts() {
        let now = Instant::now();
        let rpcx = CircuitState::new(CircuitBreaker::rpcx(), now);
        assert_eq!((1..1000).find(|_| fails(&rpcx, now)), Some(100));
        let brpc = CircuitState::new(CircuitBreaker::brpc(), now);
        assert_eq!((1..1000).find(|_| fails(&brpc, now)), Some(150));
    }
}

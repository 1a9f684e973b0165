//! Backoff of a client whose connections to a server fail.

use std::time::{Duration, Instant};

use polyrpc_core::Status;

use super::backoff::{Backoff, chance};

/// Decides when the next connection to a server may be attempted.
///
/// A connection has failed if it could not be established, and also if it ended before any reply: a server that accepts
/// and closes must not be connected to as fast as callers call.
///
/// ```text
///  Healthy ───(1)───▶ Waiting ───(3)───▶ Trying
///     │                  ▲                │  ▲
///     │                  └──────(4)───────┘  │
///     └──────────────────(2)─────────────────┘
///
///  (1) a connect fails
///  (2) a connection ends before any reply
///  (3) `until` has passed
///  (4) a connect fails, or a connection ends before any reply
/// ```
///
/// While it waits, connects are refused; while it tries, each slot permits one. The first reply on any connection leads
/// from every state back to Healthy.
#[derive(Debug)]
pub(in crate::client) struct ConnectBackoff {
    settings: Backoff,
    failing: Option<FailureState>,
    /// Last time that a connection was confirmed.
    proven: Option<Instant>,
    /// Connects that started before the state of the server was known: start of the first one, and their number.
    first: Option<(Instant, usize)>,
}

/// State after the last failure.
#[derive(Debug)]
struct FailureState {
    reason: Status,
    /// Time at which it was recorded.
    noted: Instant,
    /// Pause after the failure; `None` if there was none, since it was the first connection that ended early.
    wait: Option<Duration>,
    /// Time from which the server may be tried again.
    until: Instant,
    /// While the server is tried: earliest start of another connect.
    slot: Option<Instant>,
    /// While the server is tried: time since which a connection exists that has not failed yet.
    connected: Option<Instant>,
}

/// Whether a connect may start.
#[derive(Debug)]
pub(in crate::client) enum ConnectPermit {
    Now,
    /// The server is being tried; if that fails, another connect may start at this time.
    At(Instant),
    Refused(Status),
}

/// Effect of a failure.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum BackoffChange {
    Nothing,
    /// Connects are delayed from now on.
    BacksOff,
}

impl ConnectBackoff {
    pub(in crate::client) fn new(settings: Backoff) -> Self {
        Self { settings, failing: None, proven: None, first: None }
    }

    /// Requests permission to connect. [`ConnectPermit::Now`] takes the slot if there is only one.
    pub(in crate::client) fn request_permit(&mut self, now: Instant) -> ConnectPermit {
        if let Some(refusal) = self.refusal(now) {
            return ConnectPermit::Refused(refusal);
        }
        let Some(failing) = &mut self.failing else { return self.request_initial_permit(now) };
        // The first reply may take long: a connection that has lasted long enough counts as confirmed.
        if failing.connected.is_some_and(|since| now.saturating_duration_since(since) >= CONFIRMATION_TIME) {
            return ConnectPermit::Now;
        }
        match failing.slot.filter(|slot| now < *slot) {
            Some(slot) => ConnectPermit::At(slot),
            None => {
                let pause = self.settings.initial.min(MAX_RECONNECT_INTERVAL);
                failing.slot = Some(now + pause.mul_f64(1.0 + 0.2 * chance()));
                ConnectPermit::Now
            }
        }
    }

    /// Permits the first connects. Of many callers that start at once, a few connect, and the others wait briefly for
    /// the outcome: a server that closes every connection must not be connected to by every caller.
    fn request_initial_permit(&mut self, now: Instant) -> ConnectPermit {
        if self.proven.is_some() {
            return ConnectPermit::Now;
        }
        let (begun, connects) = self.first.get_or_insert((now, 0));
        if *connects >= MAX_INITIAL_CONNECTS && now.saturating_duration_since(*begun) < INITIAL_CONNECT_WAIT {
            return ConnectPermit::At(*begun + INITIAL_CONNECT_WAIT);
        }
        *connects += 1;
        ConnectPermit::Now
    }

    /// Returns why no connect may start now, if that is so: the last failure and the time of the next attempt.
    pub(in crate::client) fn refusal(&self, now: Instant) -> Option<Status> {
        let failing = self.failing.as_ref()?;
        let left = failing.until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        let reason = &failing.reason;
        let message = format!("{}; next attempt in {:.1} s", reason.message(), left.as_secs_f64());
        let refusal = Status::new(reason.code(), message).with_fault(reason.fault());
        Some(refusal.with_scope(reason.scope()).with_retry(reason.retry()))
    }

    /// Returns the earliest time at which a connect is permitted.
    pub(in crate::client) fn next_attempt(&self, now: Instant) -> Instant {
        self.failing.as_ref().map_or(now, |failing| failing.until.max(now))
    }

    /// Records that a connection was established. Its first reply will confirm it.
    pub(in crate::client) fn on_connect(&mut self, now: Instant) {
        if let Some(failing) = &mut self.failing {
            failing.connected.get_or_insert(now);
        }
    }

    /// Records that the connect that started at `begun` failed.
    pub(in crate::client) fn on_connect_error(
        &mut self,
        begun: Instant,
        now: Instant,
        reason: &Status,
    ) -> BackoffChange {
        self.record_failure(begun, now, reason, false)
    }

    /// Records that a connection whose connect started at `begun` ended before any reply. The first time may be
    /// accidental (a server that restarts, a request that crashes it): one connect may follow at once.
    pub(in crate::client) fn on_early_end(
        &mut self,
        begun: Instant,
        now: Instant,
        reason: &Status,
    ) -> BackoffChange {
        // Other connections have been confirmed since.
        if self.proven.is_some_and(|proven| begun < proven) {
            return BackoffChange::Nothing;
        }
        self.record_failure(begun, now, reason, true)
    }

    /// Records the first reply on a connection. Returns whether connects had been delayed.
    pub(in crate::client) fn on_first_reply(&mut self, now: Instant) -> bool {
        self.proven = Some(now);
        self.failing.take().is_some_and(|failing| failing.wait.is_some())
    }

    fn record_failure(
        &mut self,
        begun: Instant,
        now: Instant,
        reason: &Status,
        is_forgiven: bool,
    ) -> BackoffChange {
        let wait = match &mut self.failing {
            None if is_forgiven => None,
            None => Some(self.settings.initial),
            // Concurrent connects fail together: that counts as one failure.
            Some(last) if begun < last.noted => {
                last.reason = reason.clone();
                return BackoffChange::Nothing;
            }
            Some(FailureState { wait: None, .. }) => Some(self.settings.initial),
            // There was no call for a long time: the old state is no longer meaningful.
            Some(last) if now.saturating_duration_since(last.until) > self.settings.max => {
                Some(self.settings.initial)
            }
            Some(FailureState { wait: Some(wait), .. }) => {
                Some(wait.mul_f64(self.settings.factor).min(self.settings.max))
            }
        };
        let had_waited = self.failing.as_ref().is_some_and(|failing| failing.wait.is_some());
        let until = now + wait.map_or(Duration::ZERO, with_jitter);
        self.failing = Some(FailureState {
            reason: reason.clone(),
            noted: now,
            wait,
            until,
            slot: None,
            connected: None,
        });
        match wait.is_some() && !had_waited {
            true => BackoffChange::BacksOff,
            false => BackoffChange::Nothing,
        }
    }
}

/// Number of connects that may start before the state of a server is known.
const MAX_INITIAL_CONNECTS: usize = 2;

/// Time for which further callers wait for the outcome of these connects.
const INITIAL_CONNECT_WAIT: Duration = Duration::from_millis(50);

/// Maximum pause between two connects while a server is tried.
const MAX_RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// A connection that has not failed for this time counts as confirmed although no reply has arrived.
const CONFIRMATION_TIME: Duration = Duration::from_secs(2);

/// Adds a jitter of a fifth, so that clients that failed together do not reconnect together.
fn with_jitter(wait: Duration) -> Duration {
    wait.mul_f64(0.8 + 0.4 * chance())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn backoff() -> ConnectBackoff {
        ConnectBackoff::new(Backoff::single_server())
    }

    fn refused() -> Status {
        Status::unavailable("refused")
    }

    /// Returns the times of the connects within this many milliseconds if callers ask every millisecond, and each
    /// connection fails after `lasting` ms.
    fn connects(backoff: &mut ConnectBackoff, start: Instant, millis: u32, lasting: u32) -> Vec<u32> {
        let mut connects = Vec::new();
        for at in 0..millis {
            let now = start + MILLI * at;
            for begun in connects.iter().filter(|begun| **begun + lasting == at) {
                backoff.on_early_end(start + MILLI * *begun, now, &refused());
            }
            if let ConnectPermit::Now = backoff.request_permit(now) {
                connects.push(at);
                backoff.on_connect(now);
            }
        }
        connects
    }

    #[test]
    fn server_that_accepts_and_closes_is_connected_to_at_most_twice_a_second() {
        for lasting in [1, 5] {
            let connects = connects(&mut backoff(), Instant::now(), 60_000, lasting);
            let later = &connects[connects.iter().position(|at| *at > 20).unwrap_or(connects.len())..];
            assert!(connects.len() - later.len() <= 10, "the first failures: {connects:?}");
            let crowded = later.windows(3).find(|three| three[2] - three[0] < 1000);
            assert_eq!(crowded, None, "{connects:?}");
            assert!(
                (10..30).contains(&later.len()),
                "it is tried every five seconds in the end: {connects:?}"
            );
        }
    }

    #[test]
    fn some_of_many_concurrent_callers_connect_and_the_others_wait() {
        let (mut backoff, now) = (backoff(), Instant::now());
        let connected = (0..50).filter(|_| matches!(backoff.request_permit(now), ConnectPermit::Now)).count();
        assert_eq!(connected, MAX_INITIAL_CONNECTS);
        let ConnectPermit::At(slot) = backoff.request_permit(now + MILLI) else { panic!("the others wait") };
        assert!(matches!(backoff.request_permit(slot), ConnectPermit::Now), "a server may be slow");
        backoff.on_first_reply(now + MILLI * 2);
        assert!(
            matches!(backoff.request_permit(now + MILLI * 2), ConnectPermit::Now),
            "a good server takes all"
        );
    }

    #[test]
    fn first_connection_that_ends_early_is_replaced_at_once() {
        let (mut backoff, now) = (backoff(), Instant::now());
        assert!(matches!(backoff.request_permit(now), ConnectPermit::Now));
        assert_eq!(backoff.on_early_end(now, now + MILLI, &refused()), BackoffChange::Nothing);
        assert!(matches!(backoff.request_permit(now + MILLI), ConnectPermit::Now));
        assert!(
            matches!(backoff.request_permit(now + MILLI), ConnectPermit::At(_)),
            "one connect, not one for each caller"
        );
        assert_eq!(backoff.on_early_end(now + MILLI, now + MILLI * 2, &refused()), BackoffChange::BacksOff);
        let ConnectPermit::Refused(status) = backoff.request_permit(now + MILLI * 2) else {
            panic!("connects have to wait")
        };
        assert!(status.message().starts_with("refused; next attempt in 0."), "{status}");
    }

    #[test]
    fn failed_connect_is_repeated_with_backoff() {
        let (mut backoff, mut now) = (backoff(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(matches!(backoff.request_permit(now), ConnectPermit::Now));
            backoff.on_connect_error(now, now, &refused());
            let next = backoff.next_attempt(now);
            waits.push((next - now).as_millis());
            now = next;
        }
        for (wait, usual) in waits.iter().zip([500.0, 800.0, 1280.0, 2048.0, 3276.8, 5000.0, 5000.0]) {
            assert!((usual * 0.79..usual * 1.21).contains(&(*wait as f64)), "{waits:?}");
        }
    }

    #[test]
    fn first_reply_resets_the_backoff() {
        let (mut backoff, now) = (backoff(), Instant::now());
        backoff.on_connect_error(now, now, &refused());
        assert!(backoff.on_first_reply(now), "connects had to wait");
        assert!((0..100).all(|_| matches!(backoff.request_permit(now), ConnectPermit::Now)));
        assert!(!backoff.on_first_reply(now));
    }

    #[test]
    fn end_of_a_connection_older_than_the_last_reply_is_ignored() {
        let (mut backoff, start) = (backoff(), Instant::now());
        backoff.on_first_reply(start + MILLI * 10);
        backoff.on_early_end(start, start + MILLI * 20, &refused());
        assert!(backoff.failing.is_none());
    }

    #[test]
    fn concurrent_connect_failures_count_once() {
        let (mut backoff, start) = (backoff(), Instant::now());
        assert_eq!(backoff.on_connect_error(start, start + MILLI, &refused()), BackoffChange::BacksOff);
        let next = backoff.next_attempt(start);
        for later in 2..50 {
            let change = backoff.on_connect_error(start, start + MILLI * later, &refused());
            assert_eq!(change, BackoffChange::Nothing);
        }
        assert_eq!(backoff.next_attempt(start), next);
    }

    #[test]
    fn long_lived_connection_resets_the_backoff() {
        let (mut backoff, start) = (backoff(), Instant::now());
        backoff.on_connect_error(start, start, &refused());
        let back = backoff.next_attempt(start);
        assert!(matches!(backoff.request_permit(back), ConnectPermit::Now));
        backoff.on_connect(back);
        assert!(matches!(backoff.request_permit(back + MILLI), ConnectPermit::At(_)));
        let lasting = back + CONFIRMATION_TIME;
        assert!((0..100).all(|_| matches!(backoff.request_permit(lasting), ConnectPermit::Now)));
        // Its failure still counts, and the backoff keeps growing.
        backoff.on_early_end(back, lasting, &refused());
        assert!(backoff.next_attempt(lasting) - lasting >= MILLI * 640);
    }

    #[test]
    fn old_failure_is_forgotten() {
        let (mut backoff, mut now) = (backoff(), Instant::now());
        for _ in 0..5 {
            backoff.on_connect_error(now, now, &refused());
            now = backoff.next_attempt(now);
        }
        now += MILLI * 60_000;
        backoff.on_connect_error(now, now, &refused());
        assert!(backoff.next_attempt(now) - now <= MILLI * 600);
    }
}

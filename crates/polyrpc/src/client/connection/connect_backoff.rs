//! When a client may connect, after connections to its server failed.

use std::time::{Duration, Instant};

use polyrpc_core::Status;

use super::backoff::{Backoff, chance};

/// Decides when the next connection to a server may be made.
///
/// A connection has failed if it could not be made, and also if it ended before any reply came on it: a server that
/// accepts and closes must not be dialled as fast as callers call. The first reply ends the failure.
///
/// ```text
///           a connection attempt fails                      `until` has passed
///  Healthy ─────────────▶ waiting (refuses) ────────────────────▶ trying (one dial per slot)
///    ▲ │                        ▲                                      │  │      ▲
///    │ │                        └──────────── a connection attempt fails ────────────┘  │      │
///    │ └──── a connection ends before any reply, for the first time ──────┼──────┘
///    └──────────── a reply, on any connection made since ─────────────────┘
/// ```
#[derive(Debug)]
pub(in crate::client) struct ConnectBackoff {
    settings: Backoff,
    failing: Option<FailureState>,
    /// When a connection was last found to be good.
    proven: Option<Instant>,
    /// Dials that began before anything was known of the server, and when the first of them did.
    first: Option<(Instant, usize)>,
}

/// What is known of the last failure.
#[derive(Debug)]
struct FailureState {
    reason: Status,
    /// When it was noted.
    noted: Instant,
    /// How long connection attempts waited after it; `None`: they did not, since it was the first connection that ended early.
    wait: Option<Duration>,
    /// When the server may be tried again.
    until: Instant,
    /// While it is tried: when one more dial may begin.
    slot: Option<Instant>,
    /// While it is tried: since when there is a connection that has not failed yet.
    connected: Option<Instant>,
}

/// Whether a connection attempt may begin.
#[derive(Debug)]
pub(in crate::client) enum ConnectPermit {
    Now,
    /// The server is being tried; if that leads to nothing, one more dial may begin then.
    At(Instant),
    Refused(Status),
}

/// What a failure changed.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum BackoffChange {
    Nothing,
    /// Dials wait from now on.
    BacksOff,
}

impl ConnectBackoff {
    pub(in crate::client) fn new(settings: Backoff) -> Self {
        Self { settings, failing: None, proven: None, first: None }
    }

    /// Asks for a connection attempt. [`ConnectPermit::Now`] takes the slot if there is but one.
    pub(in crate::client) fn ask(&mut self, now: Instant) -> ConnectPermit {
        if let Some(refusal) = self.refusal(now) {
            return ConnectPermit::Refused(refusal);
        }
        let Some(failing) = &mut self.failing else { return self.ask_at_first(now) };
        // A server may take its time for the first reply: a connection that lasts counts for as much.
        if failing.connected.is_some_and(|since| now.saturating_duration_since(since) >= LASTS) {
            return ConnectPermit::Now;
        }
        match failing.slot.filter(|slot| now < *slot) {
            Some(slot) => ConnectPermit::At(slot),
            None => {
                let pause = self.settings.initial.min(PAUSE);
                failing.slot = Some(now + pause.mul_f64(1.0 + 0.2 * chance()));
                ConnectPermit::Now
            }
        }
    }

    /// Nothing is known to be wrong. Of many callers that begin at once some dial, and the others wait for a moment for what
    /// comes of it: a server that closes every connection must not be dialled by each.
    fn ask_at_first(&mut self, now: Instant) -> ConnectPermit {
        if self.proven.is_some() {
            return ConnectPermit::Now;
        }
        let (begun, dials) = self.first.get_or_insert((now, 0));
        if *dials >= AT_FIRST && now.saturating_duration_since(*begun) < HEARD {
            return ConnectPermit::At(*begun + HEARD);
        }
        *dials += 1;
        ConnectPermit::Now
    }

    /// Why no dial may begin now, if none may: the last failure and when the next attempt is.
    pub(in crate::client) fn refusal(&self, now: Instant) -> Option<Status> {
        let failing = self.failing.as_ref()?;
        let left = failing.until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        let reason = &failing.reason;
        let message = format!("{}; next attempt in {:.1} s", reason.message(), left.as_secs_f64());
        let refusal = Status::new(reason.code(), message).with_fault(reason.fault());
        Some(refusal.with_scope(reason.scope()).with_retry(reason.retry()))
    }

    /// When the next dial may begin that is not refused.
    pub(in crate::client) fn next_attempt(&self, now: Instant) -> Instant {
        self.failing.as_ref().map_or(now, |failing| failing.until.max(now))
    }

    /// A connection was made. Whether it is good shows its first reply.
    pub(in crate::client) fn connected(&mut self, now: Instant) {
        if let Some(failing) = &mut self.failing {
            failing.connected.get_or_insert(now);
        }
    }

    /// A connection attempt that began at `begun` failed to connect.
    pub(in crate::client) fn failed(
        &mut self,
        begun: Instant,
        now: Instant,
        reason: &Status,
    ) -> BackoffChange {
        self.record_failure(begun, now, reason, false)
    }

    /// A connection whose dial began at `begun` ended before any reply. The first time may be chance (a server that
    /// restarts, a request that it chokes on): one dial may follow at once.
    pub(in crate::client) fn ended_early(
        &mut self,
        begun: Instant,
        now: Instant,
        reason: &Status,
    ) -> BackoffChange {
        // Others were good since.
        if self.proven.is_some_and(|proven| begun < proven) {
            return BackoffChange::Nothing;
        }
        self.record_failure(begun, now, reason, true)
    }

    /// The first reply came on a connection. Returns whether connection attempts had waited.
    pub(in crate::client) fn succeeded(&mut self, now: Instant) -> bool {
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
            // Dials that were under way together fail together: that is one failure.
            Some(last) if begun < last.noted => {
                last.reason = reason.clone();
                return BackoffChange::Nothing;
            }
            Some(FailureState { wait: None, .. }) => Some(self.settings.initial),
            // No call has been made for long: what was learnt then says little now.
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

/// How many connection attempts begin before anything is known of a server.
const AT_FIRST: usize = 2;

/// How long others wait for their outcome.
const HEARD: Duration = Duration::from_millis(50);

/// Between two connection attempts while a server is tried: two a second at most.
const PAUSE: Duration = Duration::from_millis(500);

/// A connection that has not failed for so long is taken to be good although no reply has come.
const LASTS: Duration = Duration::from_secs(2);

/// A fifth more or less, so that clients that failed together do not come back together.
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

    /// How many connection attempts begin in so many milliseconds if callers ask every millisecond, and each connection fails after
    /// `lasting` ms.
    fn dials(backoff: &mut ConnectBackoff, start: Instant, millis: u32, lasting: u32) -> Vec<u32> {
        let mut dials = Vec::new();
        for at in 0..millis {
            let now = start + MILLI * at;
            for begun in dials.iter().filter(|begun| **begun + lasting == at) {
                backoff.ended_early(start + MILLI * *begun, now, &refused());
            }
            if let ConnectPermit::Now = backoff.ask(now) {
                dials.push(at);
                backoff.connected(now);
            }
        }
        dials
    }

    #[test]
    fn a_server_that_accepts_and_closes_is_dialled_twice_a_second_at_most() {
        for lasting in [1, 5] {
            let dials = dials(&mut backoff(), Instant::now(), 60_000, lasting);
            let later = &dials[dials.iter().position(|at| *at > 20).unwrap_or(dials.len())..];
            assert!(dials.len() - later.len() <= 10, "the first failures: {dials:?}");
            let crowded = later.windows(3).find(|three| three[2] - three[0] < 1000);
            assert_eq!(crowded, None, "{dials:?}");
            assert!((10..30).contains(&later.len()), "it is tried every five seconds in the end: {dials:?}");
        }
    }

    #[test]
    fn of_many_callers_that_begin_at_once_some_dial_and_the_others_wait_for_the_outcome() {
        let (mut backoff, now) = (backoff(), Instant::now());
        let dialled = (0..50).filter(|_| matches!(backoff.ask(now), ConnectPermit::Now)).count();
        assert_eq!(dialled, AT_FIRST);
        let ConnectPermit::At(slot) = backoff.ask(now + MILLI) else { panic!("the others wait") };
        assert!(matches!(backoff.ask(slot), ConnectPermit::Now), "a server may be slow");
        backoff.succeeded(now + MILLI * 2);
        assert!(matches!(backoff.ask(now + MILLI * 2), ConnectPermit::Now), "a good server takes all");
    }

    #[test]
    fn the_first_connection_that_ends_early_is_dialled_again_at_once() {
        let (mut backoff, now) = (backoff(), Instant::now());
        assert!(matches!(backoff.ask(now), ConnectPermit::Now));
        assert_eq!(backoff.ended_early(now, now + MILLI, &refused()), BackoffChange::Nothing);
        assert!(matches!(backoff.ask(now + MILLI), ConnectPermit::Now));
        assert!(
            matches!(backoff.ask(now + MILLI), ConnectPermit::At(_)),
            "one dial, not one for each caller"
        );
        assert_eq!(backoff.ended_early(now + MILLI, now + MILLI * 2, &refused()), BackoffChange::BacksOff);
        let ConnectPermit::Refused(status) = backoff.ask(now + MILLI * 2) else {
            panic!("dials have to wait")
        };
        assert!(status.message().starts_with("refused; next attempt in 0."), "{status}");
    }

    #[test]
    fn a_dial_that_fails_is_repeated_after_a_growing_wait() {
        let (mut backoff, mut now) = (backoff(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(matches!(backoff.ask(now), ConnectPermit::Now));
            backoff.failed(now, now, &refused());
            let next = backoff.next_attempt(now);
            waits.push((next - now).as_millis());
            now = next;
        }
        for (wait, usual) in waits.iter().zip([500.0, 800.0, 1280.0, 2048.0, 3276.8, 5000.0, 5000.0]) {
            assert!((usual * 0.79..usual * 1.21).contains(&(*wait as f64)), "{waits:?}");
        }
    }

    #[test]
    fn the_first_reply_ends_the_failure() {
        let (mut backoff, now) = (backoff(), Instant::now());
        backoff.failed(now, now, &refused());
        assert!(backoff.succeeded(now), "dials had to wait");
        assert!((0..100).all(|_| matches!(backoff.ask(now), ConnectPermit::Now)));
        assert!(!backoff.succeeded(now));
    }

    #[test]
    fn a_connection_that_is_older_than_a_reply_says_nothing_by_its_end() {
        let (mut backoff, start) = (backoff(), Instant::now());
        backoff.succeeded(start + MILLI * 10);
        backoff.ended_early(start, start + MILLI * 20, &refused());
        assert!(backoff.failing.is_none());
    }

    #[test]
    fn dials_that_fail_together_are_one_failure() {
        let (mut backoff, start) = (backoff(), Instant::now());
        assert_eq!(backoff.failed(start, start + MILLI, &refused()), BackoffChange::BacksOff);
        let next = backoff.next_attempt(start);
        for later in 2..50 {
            assert_eq!(backoff.failed(start, start + MILLI * later, &refused()), BackoffChange::Nothing);
        }
        assert_eq!(backoff.next_attempt(start), next);
    }

    #[test]
    fn a_connection_that_lasts_is_as_good_as_a_reply() {
        let (mut backoff, start) = (backoff(), Instant::now());
        backoff.failed(start, start, &refused());
        let back = backoff.next_attempt(start);
        assert!(matches!(backoff.ask(back), ConnectPermit::Now));
        backoff.connected(back);
        assert!(matches!(backoff.ask(back + MILLI), ConnectPermit::At(_)));
        let lasting = back + LASTS;
        assert!((0..100).all(|_| matches!(backoff.ask(lasting), ConnectPermit::Now)));
        // Its failure is a failure nevertheless, and the wait goes on growing.
        backoff.ended_early(back, lasting, &refused());
        assert!(backoff.next_attempt(lasting) - lasting >= MILLI * 640);
    }

    #[test]
    fn a_failure_of_long_ago_does_not_count() {
        let (mut backoff, mut now) = (backoff(), Instant::now());
        for _ in 0..5 {
            backoff.failed(now, now, &refused());
            now = backoff.next_attempt(now);
        }
        now += MILLI * 60_000;
        backoff.failed(now, now, &refused());
        assert!(backoff.next_attempt(now) - now <= MILLI * 600);
    }
}

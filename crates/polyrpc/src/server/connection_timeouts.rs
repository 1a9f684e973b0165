//! The timeouts of one connection: they run independently of its handlers.
//!
//! A connection checks them when it is polled and reports when it must be woken for them, so that no timeout needs a
//! timer of its own. Times are ticks ([`TICK`](super::tick::TICK)).

use std::time::Duration;

use super::incidents::Closing;
use super::limits::Limits;
use super::tick::ticks;

/// The limit of each timeout, in ticks.
#[derive(Debug)]
struct TimeoutLimits {
    header: u32,
    message: u32,
    /// Minimum number of bytes of a message in each interval of `header`.
    pace: u64,
    write: u32,
    /// Minimum number of bytes that a peer must read in each interval of `write`, if that many are pending.
    drain: u64,
    /// As `write`, for data that waits in the session.
    stall: u32,
    half_close: u32,
    idle: u32,
    age: u32,
    grace: u32,
    ping: u32,
    pong: u32,
}

impl TimeoutLimits {
    fn new(limits: &Limits) -> Self {
        let forever = u32::MAX;
        // A tick more, since the first one is cut short: no timeout expires early.
        let at_least = |duration| ticks(duration).saturating_add(1);
        let rate = |window: Duration| {
            u64::try_from((limits.min_data_rate as u128 * window.as_millis()) / 1000).unwrap_or(u64::MAX)
        };
        let (header, write) = (at_least(limits.header_timeout), at_least(limits.write_timeout));
        Self {
            header,
            message: at_least(limits.message_timeout),
            pace: rate(limits.header_timeout),
            write,
            drain: rate(limits.write_timeout),
            // A second more: the session first aborts the calls whose responses are not read, if it can.
            stall: write.saturating_add(4),
            half_close: at_least(limits.half_close_timeout),
            idle: limits.idle_timeout.map_or(forever, at_least),
            age: limits.connection_age.map_or(forever, ticks),
            grace: ticks(limits.connection_age_grace),
            ping: limits.http2.keepalive_interval.map_or(forever, ticks),
            pong: at_least(limits.http2.keepalive_timeout),
        }
    }
}

/// State of a connection when it goes to sleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Activity {
    /// Bytes received so far.
    pub(super) received: u64,
    /// Bytes written so far.
    pub(super) written: u64,
    /// The incomplete part of a message, if any.
    pub(super) incomplete: Option<IncompletePart>,
    /// A complete message was taken since the last time.
    pub(super) took: bool,
    /// Data waits to be written.
    pub(super) writing: bool,
    /// Bytes of responses that wait for the peer's flow-control windows, if the connection has nothing else to write.
    pub(super) unsent: usize,
    /// The peer has closed its half, and calls are in flight.
    pub(super) half_closed: bool,
    /// Nothing is in flight.
    pub(super) idle: bool,
    /// Calls or streams are in flight, or their responses wait for the peer's windows.
    pub(super) busy: bool,
}

/// The incomplete part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IncompletePart {
    /// The rest of a head, whose length is unknown.
    Head,
    /// The rest of a message.
    Message,
    /// The rest of a message that is not read now, since the connection holds more than its share of memory.
    Paused,
}

/// Action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutAction {
    /// Close the connection.
    Close(Closing),
    /// Drain the connection: accept nothing new.
    Drain,
    /// Send a keepalive to the peer.
    Ping,
}

#[derive(Debug)]
pub(super) struct ConnectionTimeouts {
    limits: TimeoutLimits,
    message: Option<Transfer>,
    is_head: bool,
    /// Since when reading the rest of a message is paused.
    paused: Option<u32>,
    /// How many ticks the earlier pauses of this message took.
    paused_before: u32,
    write: Option<Transfer>,
    /// Bytes that the peer has read since responses began to wait for its windows, and the fewest that have waited
    /// since.
    stalled: Option<(Transfer, usize)>,
    half_closed: Option<u32>,
    /// Since when nothing is in flight.
    idle: Option<u32>,
    /// When the connection reaches its maximum age.
    aged: u32,
    is_drained: bool,
    /// When something was last received while calls were in flight.
    last_received: Option<u32>,
    received: u64,
    written: u64,
    /// When something was last received or written, as far as is known.
    last_activity: Option<u32>,
    /// When a keepalive was sent to the peer.
    pinged: Option<u32>,
}

/// A transfer in progress.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    /// When it started.
    since: u32,
    /// When the current interval started, and how many bytes had been transferred then.
    interval: u32,
    bytes: u64,
    /// When the last bytes were transferred, and how many had been by then.
    moved: u32,
    total: u64,
}

impl Transfer {
    fn new(now: u32, bytes: u64) -> Self {
        Self { since: now, interval: now, bytes, moved: now, total: bytes }
    }

    /// Records how many bytes have been transferred by now.
    fn observe(&mut self, now: u32, bytes: u64) {
        if bytes != self.total {
            (self.moved, self.total) = (now, bytes);
        }
    }

    /// Returns whether nothing was transferred for this time: an interval may begin with bytes that the peer's system
    /// took, so that its end would be too late.
    fn has_stopped(&self, now: u32, length: u32, bytes: u64) -> bool {
        bytes == self.total && now.saturating_sub(self.moved) >= length
    }

    /// Returns whether fewer than `min_bytes` were transferred in the last interval, if one has ended.
    fn is_slow(&mut self, now: u32, length: u32, bytes: u64, min_bytes: u64) -> bool {
        if now.saturating_sub(self.interval) < length {
            return false;
        }
        let came = bytes - self.bytes;
        (self.interval, self.bytes) = (now, bytes);
        came < min_bytes.max(1)
    }
}

impl ConnectionTimeouts {
    /// Creates the timeouts of a connection that was opened at this tick; `salt` varies its maximum age.
    pub(super) fn new(limits: &Limits, opened: u32, salt: u64) -> Self {
        let limits = TimeoutLimits::new(limits);
        let spread = u64::from(limits.age / 10).max(1);
        // Fibonacci hashing: connections that were opened together reach their age at different times.
        let shorter = (salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % spread;
        let aged = match limits.age {
            u32::MAX => u32::MAX,
            age => opened.saturating_add(age - shorter as u32),
        };
        Self {
            limits,
            message: None,
            is_head: false,
            paused: None,
            paused_before: 0,
            write: None,
            stalled: None,
            half_closed: None,
            idle: None,
            aged,
            is_drained: false,
            last_received: None,
            received: 0,
            written: 0,
            last_activity: None,
            pinged: None,
        }
    }

    /// Updates the timeouts with the connection's state. Returns when it must be woken for one of them.
    pub(super) fn observe(&mut self, now: u32, observed: Activity) -> u32 {
        let Activity { received, written, incomplete, took, writing, unsent, half_closed, idle, busy } =
            observed;
        let moved = received != self.received || written != self.written;
        if moved {
            self.last_activity = Some(now);
        }
        if idle && moved && incomplete.is_none() && !writing && !half_closed && !busy {
            return self.observe_answered(now, received, written);
        }
        match incomplete {
            None => self.message = None,
            Some(_) if took => self.message = Some(Transfer::new(now, received)),
            Some(_) => {
                self.message.get_or_insert_with(|| Transfer::new(now, received));
            }
        }
        self.is_head = incomplete == Some(IncompletePart::Head);
        self.observe_pause(now, incomplete, took);
        match writing {
            false => self.write = None,
            true => {
                self.write.get_or_insert_with(|| Transfer::new(now, written)).observe(now, written);
            }
        }
        self.stalled = match (unsent, self.stalled) {
            (0, _) => None,
            (_, Some((transfer, min_unsent))) if unsent >= min_unsent => Some((transfer, min_unsent)),
            (_, _) => Some((Transfer::new(now, written), unsent)),
        };
        self.half_closed = half_closed.then(|| self.half_closed.unwrap_or(now));
        let has_received = received != self.received;
        // Also while it only writes: a client may only receive pushes.
        self.idle = match (idle, self.idle) {
            (true, Some(since)) if !moved => Some(since),
            (true, _) => Some(now),
            (false, _) => None,
        };
        self.last_received = match (busy, self.last_received) {
            (true, Some(at)) if !has_received => Some(at),
            (true, _) => Some(now),
            (false, _) => None,
        };
        if has_received || !busy {
            self.pinged = None;
        }
        (self.received, self.written) = (received, written);
        self.next()
    }

    /// Pauses of one message add up: a resume lets in the few KiB that the system has buffered, which is no progress
    /// that would justify another whole pause.
    fn observe_pause(&mut self, now: u32, incomplete: Option<IncompletePart>, took: bool) {
        let is_paused = incomplete == Some(IncompletePart::Paused);
        match (self.paused, is_paused) {
            _ if took || incomplete.is_none() => {
                (self.paused, self.paused_before) = (is_paused.then_some(now), 0);
            }
            (None, true) => self.paused = Some(now),
            (Some(since), false) => {
                self.paused = None;
                self.paused_before += now.saturating_sub(since);
            }
            (Some(_), true) | (None, false) => (),
        }
    }

    /// Returns for how many ticks the current pause may last.
    fn pause_left(&self) -> u32 {
        self.limits.header.saturating_sub(self.paused_before)
    }

    /// The same for a connection that has answered all requests, which is the common case.
    #[inline]
    fn observe_answered(&mut self, now: u32, received: u64, written: u64) -> u32 {
        (self.message, self.write, self.stalled) = (None, None, None);
        (self.paused, self.half_closed, self.last_received, self.pinged) = (None, None, None, None);
        self.paused_before = 0;
        (self.received, self.written) = (received, written);
        self.idle = Some(now);
        now.saturating_add(self.limits.idle).min(self.aged)
    }

    /// Returns the earliest tick at which something may be due.
    fn next(&self) -> u32 {
        let TimeoutLimits { header, message, write, stall, half_close, idle, ping, pong, .. } = self.limits;
        let after =
            |since: Option<u32>, ticks: u32| since.map_or(u32::MAX, |since| since.saturating_add(ticks));
        let interval = self.message.filter(|_| self.paused.is_none()).map(|message| message.interval);
        let whole = self.message.map(|message| message.since);
        after(interval, header)
            .min(after(self.paused, self.pause_left()))
            .min(after(whole, if self.is_head { header } else { message }))
            .min(after(self.write.map(|write| write.interval.min(write.moved)), write))
            .min(after(self.stalled.map(|(stalled, _)| stalled.interval), stall))
            .min(after(self.half_closed, half_close))
            .min(after(self.idle, idle))
            .min(after(self.last_received.filter(|_| self.pinged.is_none()), ping))
            .min(after(self.pinged, pong))
            .min(self.aged)
    }

    /// Returns the action that is due now, if any.
    pub(super) fn due(&mut self, now: u32, received: u64, written: u64) -> Option<TimeoutAction> {
        let (limits, pause_left) = (&self.limits, self.pause_left());
        if let Some(message) = &mut self.message {
            let age = now.saturating_sub(message.since);
            if self.is_head && age >= limits.header {
                return Some(TimeoutAction::Close(Closing::Head));
            }
            let slow = self.paused.is_none() && message.is_slow(now, limits.header, received, limits.pace);
            if slow || age >= limits.message {
                return Some(TimeoutAction::Close(Closing::Message));
            }
        }
        // There was no room for the rest; the connection holds the part that it has received.
        if self.paused.is_some_and(|since| now.saturating_sub(since) >= pause_left) {
            return Some(TimeoutAction::Close(Closing::Memory));
        }
        if let Some(write) = &mut self.write
            && (write.has_stopped(now, limits.write, written)
                || write.is_slow(now, limits.write, written, limits.drain))
        {
            return Some(TimeoutAction::Close(Closing::Write));
        }
        if let Some((stalled, _)) = &mut self.stalled
            && stalled.is_slow(now, limits.stall, written, limits.drain)
        {
            return Some(TimeoutAction::Close(Closing::Write));
        }
        let passed =
            |since: Option<u32>, ticks: u32| since.is_some_and(|since| now.saturating_sub(since) >= ticks);
        if passed(self.half_closed, limits.half_close) {
            return Some(TimeoutAction::Close(Closing::HalfClosed));
        }
        if passed(self.idle, limits.idle) {
            return Some(TimeoutAction::Close(Closing::Idle));
        }
        if now >= self.aged {
            // The timeout fires a second time at the end of the grace period.
            self.aged = match self.is_drained {
                true => u32::MAX,
                false => now.saturating_add(limits.grace),
            };
            let due = if self.is_drained { TimeoutAction::Close(Closing::Age) } else { TimeoutAction::Drain };
            self.is_drained = true;
            return Some(due);
        }
        if passed(self.pinged, limits.pong) {
            return Some(TimeoutAction::Close(Closing::Keepalive));
        }
        if self.pinged.is_none() && passed(self.last_received, limits.ping) {
            return Some(TimeoutAction::Ping);
        }
        None
    }

    /// Returns since when nothing is in flight.
    pub(super) fn idle_since(&self) -> Option<u32> {
        self.idle
    }

    /// Returns when something was last received or sent, if known.
    pub(super) fn last_activity(&self) -> Option<u32> {
        self.last_activity
    }

    /// Records that a keepalive was sent, or that the protocol has none.
    pub(super) fn record_ping(&mut self, now: u32, is_sent: bool) {
        match is_sent {
            true => self.pinged = Some(now),
            false => self.limits.ping = u32::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeouts() -> ConnectionTimeouts {
        let limits = Limits {
            header_timeout: Duration::from_secs(1),
            message_timeout: Duration::from_secs(3),
            min_data_rate: 1000,
            write_timeout: Duration::from_secs(2),
            idle_timeout: Some(Duration::from_secs(10)),
            ..Limits::default()
        };
        ConnectionTimeouts::new(&limits, 0, 1)
    }

    const QUIET: Activity = Activity {
        received: 0,
        written: 0,
        incomplete: None,
        took: false,
        writing: false,
        unsent: 0,
        half_closed: false,
        idle: false,
        busy: false,
    };

    #[test]
    fn head_must_complete_in_time_at_any_rate() {
        let mut timeouts = timeouts();
        let observed = Activity { incomplete: Some(IncompletePart::Head), ..QUIET };
        for now in 0..5 {
            let wakes = timeouts.observe(now, Activity { received: u64::from(now) << 20, ..observed });
            assert_eq!((wakes, timeouts.due(now, u64::from(now) << 20, 0)), (5, None));
        }
        assert_eq!(timeouts.due(5, 5 << 20, 0), Some(TimeoutAction::Close(Closing::Head)));
    }

    #[test]
    fn message_must_keep_its_rate_and_complete_in_time() {
        let incomplete = Activity { incomplete: Some(IncompletePart::Message), busy: true, ..QUIET };
        for (bytes_a_tick, ends) in [(0, 5), (199, 5), (200, 13), (1 << 20, 13)] {
            let mut timeouts = timeouts();
            let closed = (0..20).find(|&now| {
                let received = bytes_a_tick * u64::from(now);
                timeouts.observe(now, Activity { received, ..incomplete });
                timeouts.due(now, received, 0) == Some(TimeoutAction::Close(Closing::Message))
            });
            assert_eq!(closed, Some(ends), "{bytes_a_tick} bytes a tick");
        }
    }

    #[test]
    fn each_message_has_its_own_time_limit() {
        let mut timeouts = timeouts();
        let took = Activity { incomplete: Some(IncompletePart::Message), took: true, ..QUIET };
        for now in 0..100 {
            timeouts.observe(now, took);
            assert_eq!(timeouts.due(now, 0, 0), None);
        }
    }

    #[test]
    fn pauses_of_one_message_add_up() {
        let mut timeouts = timeouts();
        let paused = Activity { incomplete: Some(IncompletePart::Paused), ..QUIET };
        let resumed = Activity { incomplete: Some(IncompletePart::Message), ..QUIET };
        assert_eq!(timeouts.observe(0, paused), 5);
        assert_eq!(timeouts.due(4, 0, 0), None);
        assert_eq!(timeouts.observe(4, Activity { received: 4096, ..resumed }), 5);
        // One of the five ticks is left.
        assert_eq!(timeouts.observe(4, Activity { received: 4096, ..paused }), 5);
        assert_eq!(timeouts.due(5, 4096, 0), Some(TimeoutAction::Close(Closing::Memory)));
    }

    #[test]
    fn each_message_has_its_own_pause() {
        let mut timeouts = timeouts();
        let paused = Activity { incomplete: Some(IncompletePart::Paused), ..QUIET };
        assert_eq!(timeouts.observe(0, paused), 5);
        assert_eq!(timeouts.observe(4, Activity { took: true, ..paused }), 9);
        assert_eq!(timeouts.due(8, 0, 0), None);
        assert_eq!(timeouts.due(9, 0, 0), Some(TimeoutAction::Close(Closing::Memory)));
    }

    #[test]
    fn peer_that_reads_nothing_is_closed_and_one_that_reads_is_not() {
        let writing = Activity { writing: true, busy: true, ..QUIET };
        for (bytes_a_tick, ends) in [(0, Some(9)), (100, Some(9)), (250, None)] {
            let mut timeouts = timeouts();
            let closed = (0..100).find(|&now| {
                let written = bytes_a_tick * u64::from(now);
                timeouts.observe(now, Activity { written, ..writing });
                timeouts.due(now, 0, written).is_some()
            });
            assert_eq!(closed, ends, "{bytes_a_tick} bytes a tick");
        }
    }

    #[test]
    fn peer_that_stops_reading_is_closed_as_soon_as_one_that_never_reads() {
        let mut timeouts = timeouts();
        let writing = Activity { writing: true, busy: true, ..QUIET };
        let written = |now: u32| u64::from(now.min(3)) << 20;
        let closed = (0..100).find(|&now| {
            let wakes = timeouts.observe(now, Activity { written: written(now), ..writing });
            assert!(wakes <= 12);
            timeouts.due(now, 0, written(now)).is_some()
        });
        assert_eq!(closed, Some(3 + 9));
    }

    #[test]
    fn peer_with_closed_windows_is_closed_unless_it_reads() {
        let cases: [(fn(usize) -> usize, Option<u32>); 3] =
            [(|_| 5, Some(13)), (|now| 4000 - now, None), (|now| 5 + now % 2, Some(13))];
        for (left, ends) in cases {
            let mut timeouts = timeouts();
            let closed = (0..100).find(|&now| {
                // It sends keepalives repeatedly.
                let written = u64::from(now) * 17;
                timeouts.observe(now, Activity { written, unsent: left(now as usize), busy: true, ..QUIET });
                timeouts.due(now, 0, written) == Some(TimeoutAction::Close(Closing::Write))
            });
            assert_eq!(closed, ends);
        }
    }

    #[test]
    fn idle_connection_is_closed_and_each_byte_restarts_the_timer() {
        let mut timeouts = timeouts();
        let idle = Activity { idle: true, ..QUIET };
        assert_eq!(timeouts.observe(0, idle), 41);
        assert_eq!(timeouts.observe(30, idle), 41);
        assert_eq!(timeouts.observe(31, Activity { received: 1, ..idle }), 72);
        assert_eq!(timeouts.due(71, 1, 0), None);
        assert_eq!(timeouts.due(72, 1, 0), Some(TimeoutAction::Close(Closing::Idle)));
    }

    #[test]
    fn half_closed_peer_is_answered_for_a_while() {
        let mut timeouts = timeouts();
        let half_closed = Activity { half_closed: true, ..QUIET };
        assert_eq!(timeouts.observe(7, half_closed), 28);
        assert_eq!(timeouts.observe(27, half_closed), 28);
        assert_eq!(timeouts.due(27, 0, 0), None);
        assert_eq!(timeouts.due(28, 0, 0), Some(TimeoutAction::Close(Closing::HalfClosed)));
    }

    #[test]
    fn connection_is_drained_at_its_maximum_age_and_closed_after_the_grace() {
        let limits = Limits {
            connection_age: Some(Duration::from_secs(100)),
            connection_age_grace: Duration::from_secs(1),
            ..Limits::default()
        };
        let mut ages = std::collections::BTreeSet::new();
        for salt in 0..100 {
            let mut timeouts = ConnectionTimeouts::new(&limits, 7, salt);
            let aged = (0..).find(|&now| timeouts.due(now, 0, 0) == Some(TimeoutAction::Drain)).unwrap();
            assert!((7 + 360..=7 + 400).contains(&aged), "{aged}");
            assert_eq!(timeouts.due(aged + 3, 0, 0), None);
            assert_eq!(timeouts.due(aged + 4, 0, 0), Some(TimeoutAction::Close(Closing::Age)));
            ages.insert(aged);
        }
        assert!(ages.len() > 20, "connections end one by one");
    }

    #[test]
    fn silent_peer_with_calls_in_flight_is_pinged_and_closed_without_a_response() {
        let mut timeouts = timeouts();
        let busy = Activity { busy: true, ..QUIET };
        assert_eq!(timeouts.observe(0, busy), 1200);
        assert_eq!(timeouts.due(1200, 0, 0), Some(TimeoutAction::Ping));
        timeouts.record_ping(1200, true);
        assert_eq!(timeouts.observe(1200, busy), 1281);
        assert_eq!(timeouts.due(1280, 0, 0), None);
        assert_eq!(timeouts.due(1281, 0, 0), Some(TimeoutAction::Close(Closing::Keepalive)));
        timeouts.observe(1281, Activity { received: 17, ..busy });
        assert_eq!(timeouts.due(1282, 17, 0), None, "the answer has come");
    }
}

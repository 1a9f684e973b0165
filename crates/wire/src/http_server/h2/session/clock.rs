//! Timeouts of incomplete requests.

use std::time::Duration;

use polyrpc_core::Status;
use polyrpc_core::session::SlowPeerGuard;

/// Timer of one incomplete message. It starts with the first tick that finds the message incomplete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// Time of the last tick.
    last_time: Option<Duration>,
    /// Elapsed time.
    age: Duration,
    /// Elapsed time since the rate was last checked.
    interval: Duration,
    /// Bytes received since then.
    bytes: usize,
    /// A long frame was arriving since then.
    delayed: bool,
}

/// Why a message timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageTimeout {
    /// It was not complete within this time.
    Incomplete(Duration),
    /// Fewer than this number of bytes arrived within this time.
    Rate(usize, Duration),
}

impl Clock {
    /// Records received bytes.
    pub(super) fn receive(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Records that a long frame is arriving: nothing of the message can come before its end, and if it is a part of the
    /// message, it is received as a whole. The connection's own timeouts apply to its rate.
    pub(super) fn delay(&mut self) {
        self.delayed = true;
    }

    /// Returns for how long the message has been incomplete.
    pub(super) fn age(&self) -> Duration {
        self.age
    }

    /// Advances the timer. Time does not count while the window is closed, so that the message cannot continue
    /// (`may_come` is false): the reader must first consume data.
    pub(super) fn tick(
        &mut self,
        now: Duration,
        may_come: bool,
        pace: &SlowPeerGuard,
    ) -> Option<MessageTimeout> {
        let passed =
            self.last_time.replace(now).map_or(Duration::ZERO, |last_time| now.saturating_sub(last_time));
        if !may_come {
            return None;
        }
        self.age += passed;
        self.interval += passed;
        if self.age >= pace.message_timeout {
            return Some(MessageTimeout::Incomplete(pace.message_timeout));
        }
        if self.interval < pace.interval {
            return None;
        }
        let wanted = self.interval.as_millis().saturating_mul(pace.rate as u128) / 1000;
        if (self.bytes as u128) < wanted && !self.delayed {
            return Some(MessageTimeout::Rate(self.bytes, self.interval));
        }
        (self.interval, self.bytes, self.delayed) = (Duration::ZERO, 0, false);
        None
    }
}

impl MessageTimeout {
    #[cold]
    pub(super) fn status(self) -> Status {
        const WHAT: &str = "the request's message did not arrive in time";
        Status::deadline_exceeded(match self {
            Self::Incomplete(age) => format!("{WHAT}: it is not complete after {} s", age.as_secs()),
            Self::Rate(bytes, interval) => format!("{WHAT}: {bytes} bytes in {} s", interval.as_secs()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: SlowPeerGuard = SlowPeerGuard {
        interval: Duration::from_secs(10),
        rate: 1024,
        message_timeout: Duration::from_secs(120),
    };

    /// Returns when a message times out that receives this many bytes per second, in quarters of a second.
    fn find_timeout(bytes: usize) -> Option<(u32, MessageTimeout)> {
        let mut clock = Clock::default();
        (0..1000).find_map(|quarter| {
            let late = clock.tick(Duration::from_millis(250) * quarter, true, &PACE);
            if quarter % 4 == 0 {
                clock.receive(bytes);
            }
            late.map(|late| (quarter, late))
        })
    }

    #[test]
    fn message_times_out_if_it_stalls_or_takes_too_long() {
        assert_eq!(find_timeout(0), Some((40, MessageTimeout::Rate(0, PACE.interval))));
        assert_eq!(find_timeout(1000), Some((40, MessageTimeout::Rate(10_000, PACE.interval))));
        assert_eq!(find_timeout(1100), Some((480, MessageTimeout::Incomplete(PACE.message_timeout))));
    }

    #[test]
    fn only_the_whole_time_is_limited_while_long_frames_arrive() {
        let mut clock = Clock::default();
        for second in 0..120 {
            clock.delay();
            assert_eq!(clock.tick(Duration::from_secs(second), true, &PACE), None);
        }
        let late = clock.tick(Duration::from_secs(120), true, &PACE);
        assert_eq!(late, Some(MessageTimeout::Incomplete(PACE.message_timeout)));
    }

    #[test]
    fn message_clock_stops_while_the_window_is_closed() {
        let mut clock = Clock::default();
        for second in 0..1000 {
            assert_eq!(clock.tick(Duration::from_secs(second), false, &PACE), None);
        }
        for second in 1000..1009 {
            assert_eq!(clock.tick(Duration::from_secs(second), true, &PACE), None);
        }
        assert!(clock.tick(Duration::from_secs(1009), true, &PACE).is_some());
    }
}

use std::collections::VecDeque;

use super::congestion::Congestion;
use super::rtt::Rtt;
use crate::kcp::config::Tuning;
use crate::kcp::time::{Millis, distance};

/// What leaves: segments that wait for a place in the window, and those that wait for their acknowledgement.
#[derive(Debug)]
pub(super) struct Sending {
    tuning: Tuning,
    mss: usize,
    waiting: VecDeque<Vec<u8>>,
    /// In order of their numbers, without a gap; the first is `first`.
    in_flight: VecDeque<InFlight>,
    /// The first that was not acknowledged (`snd_una`).
    first: u32,
    /// How many segments the peer has room for.
    remote: u16,
    rtt: Rtt,
    congestion: Congestion,
    dead: bool,
}

/// A segment that was sent.
#[derive(Debug)]
struct InFlight {
    /// `None` once it was acknowledged out of turn.
    data: Option<Vec<u8>>,
    sent: Millis,
    resend: Millis,
    timeout: u32,
    times: u32,
    /// How many later ones were acknowledged since it was sent.
    skips: u32,
}

/// A segment to be sent now.
pub(super) struct Due<'a> {
    pub(super) sn: u32,
    pub(super) data: &'a [u8],
}

impl Sending {
    pub(super) fn new(tuning: Tuning, mss: usize) -> Self {
        Self {
            mss,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            first: 0,
            // What a peer has by default, until it tells (`kcp.go: IKCP_WND_RCV`).
            remote: 32,
            rtt: Rtt::new(tuning.least_timeout(), tuning.interval),
            congestion: Congestion::new(tuning.congestion_control, mss),
            dead: false,
            tuning,
        }
    }

    /// Takes what there is room for.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> usize {
        let before = bytes.len();
        if self.tuning.stream
            && let Some(last) = self.waiting.back_mut()
        {
            let (more, rest) = bytes.split_at(bytes.len().min(self.mss.saturating_sub(last.len())));
            last.extend_from_slice(more);
            bytes = rest;
        }
        while !bytes.is_empty() && self.has_room() {
            let (segment, rest) = bytes.split_at(bytes.len().min(self.mss));
            self.waiting.push_back(segment.to_vec());
            bytes = rest;
        }
        before - bytes.len()
    }

    /// Whether one more segment would be taken.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() + self.in_flight.len() < 2 * usize::from(self.tuning.send_window)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Whether something waits that may be sent.
    pub(super) fn may_send(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight.len() < self.window()
    }

    /// Whether a segment was sent so often in vain that there is no link any more.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// The peer has no room and something waits for it.
    pub(super) fn is_shut_out(&self) -> bool {
        self.remote == 0 && !self.waiting.is_empty()
    }

    pub(super) fn remote(&mut self, window: u16) {
        self.remote = window;
    }

    /// Whether the peer can have got everything before `una`: it was sent.
    pub(super) fn has_sent(&self, una: u32) -> bool {
        distance(una, self.first.wrapping_add(self.in_flight.len() as u32)) <= 0
    }

    /// Everything before `una` has arrived. Returns whether that is news.
    pub(super) fn arrived_before(&mut self, una: u32) -> bool {
        let count = usize::try_from(distance(una, self.first)).unwrap_or(0).min(self.in_flight.len());
        self.in_flight.drain(..count);
        self.first = self.first.wrapping_add(count as u32);
        let advanced = self.advance();
        count > 0 || advanced
    }

    /// This one has arrived, and was sent at `ts`. Returns whether the window moved.
    pub(super) fn arrived(&mut self, sn: u32, ts: Millis) -> bool {
        let Ok(place) = usize::try_from(distance(sn, self.first)) else { return false };
        // Only news says something about the others: else a peer that repeats itself has all sent again.
        let Some(_) = self.in_flight.get_mut(place).and_then(|segment| segment.data.take()) else {
            return false;
        };
        for earlier in self.in_flight.iter_mut().take(place) {
            if earlier.sent.since(ts) <= 0 {
                earlier.skips += 1;
            }
        }
        self.advance()
    }

    pub(super) fn sample(&mut self, now: Millis, sent: Millis) {
        self.rtt.sample(now, sent);
    }

    /// The window has moved.
    pub(super) fn grow(&mut self) {
        self.congestion.acknowledged(u32::from(self.remote));
    }

    /// Hands out what is to be sent now, and returns when something is to be sent again.
    pub(super) fn send(&mut self, now: Millis, mut due: impl FnMut(Due<'_>)) -> Option<Millis> {
        let fresh = self.fill_window();
        let timeout = self.rtt.timeout();
        let (mut skipped, mut timed_out, mut next) = (false, false, None::<Millis>);
        let mut sn = self.first;
        for segment in &mut self.in_flight {
            if segment.data.is_some() {
                match segment.why(now, &self.tuning, fresh) {
                    Why::NotYet => {}
                    why => {
                        segment.again(now, why, timeout, &self.tuning);
                        skipped |= why == Why::Skipped;
                        timed_out |= why == Why::TimedOut;
                        self.dead |= segment.times >= DEAD_LINK;
                        due(Due { sn, data: segment.data.as_deref().unwrap_or_default() });
                    }
                }
                next = Some(next.map_or(segment.resend, |next| next.earlier(segment.resend)));
            }
            sn = sn.wrapping_add(1);
        }
        if skipped {
            self.congestion.skipped(self.in_flight.len() as u32, self.tuning.fast_resend);
        }
        if timed_out {
            self.congestion.timed_out();
        }
        next
    }

    /// Lets go of memory that a burst has left.
    pub(super) fn rest(&mut self) {
        if self.is_empty() {
            (self.waiting, self.in_flight) = Default::default();
        }
    }

    fn window(&self) -> usize {
        let most = u32::from(self.tuning.send_window.min(self.remote));
        self.congestion.window(most) as usize
    }

    /// Returns whether anything new is under way.
    fn fill_window(&mut self) -> bool {
        let room = self.window().saturating_sub(self.in_flight.len());
        let count = room.min(self.waiting.len());
        self.in_flight.extend(self.waiting.drain(..count).map(InFlight::new));
        count > 0
    }

    fn advance(&mut self) -> bool {
        let before = self.first;
        while self.in_flight.pop_front_if(|segment| segment.data.is_none()).is_some() {
            self.first = self.first.wrapping_add(1);
        }
        self.first != before
    }
}

/// Why a segment is sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    NotYet,
    First,
    Skipped,
    TimedOut,
}

impl InFlight {
    fn new(data: Vec<u8>) -> Self {
        let never = Millis::default();
        Self { data: Some(data), sent: never, resend: never, timeout: 0, times: 0, skips: 0 }
    }

    fn why(&self, now: Millis, tuning: &Tuning, fresh: bool) -> Why {
        let enough = tuning.fast_resend > 0 && self.skips >= tuning.fast_resend;
        // With nothing new to be sent there will be no more skips to count (`kcp.go: flush`, early retransmit).
        let early = tuning.fast_resend > 0 && self.skips > 0 && !fresh;
        if self.times == 0 {
            Why::First
        } else if enough || early {
            Why::Skipped
        } else if self.resend.reached(now) {
            Why::TimedOut
        } else {
            Why::NotYet
        }
    }

    fn again(&mut self, now: Millis, why: Why, timeout: u32, tuning: &Tuning) {
        self.timeout = match why {
            Why::TimedOut if tuning.nodelay => self.timeout.saturating_add(timeout / 2),
            Why::TimedOut => self.timeout.saturating_add(timeout),
            _ => timeout,
        };
        self.timeout = self.timeout.min(MOST);
        self.resend = now.after(self.timeout);
        self.sent = now;
        self.times += 1;
        self.skips = 0;
    }
}

/// `kcp.go: IKCP_DEADLINK`
const DEAD_LINK: u32 = 20;
/// `kcp.go: IKCP_RTO_MAX`
const MOST: u32 = 60_000;

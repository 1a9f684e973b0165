use std::collections::VecDeque;

use super::Sink;
use super::congestion::Congestion;
use super::rtt::Rtt;
use crate::config::Tuning;
use crate::segment::{OVERHEAD, Segment};
use crate::time::{Millis, distance};

/// Send window: segments waiting for room in the window, and segments waiting for their acknowledgement.
#[derive(Debug)]
pub(super) struct SendWindow {
    tuning: Tuning,
    mss: usize,
    waiting: VecDeque<Vec<u8>>,
    /// In order of their sequence numbers, without a gap; the first one is `first`.
    in_flight: VecDeque<InFlight>,
    /// Sequence number of the first unacknowledged segment (`snd_una`).
    first: u32,
    /// Number of segments that the peer has room for.
    remote: u16,
    rtt: Rtt,
    congestion: Congestion,
    dead: bool,
    /// There was no room for a due segment.
    held_back: bool,
}

/// A segment in flight.
#[derive(Debug)]
struct InFlight {
    /// `None` once it was acknowledged out of order.
    data: Option<Vec<u8>>,
    sent: Millis,
    resend: Millis,
    timeout: u32,
    times: u32,
    /// Number of later segments acknowledged since it was sent.
    skips: u32,
}

impl SendWindow {
    pub(super) fn new(tuning: Tuning, mss: usize) -> Self {
        Self {
            mss,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            first: 0,
            // The peer's default window, until it announces one (`kcp.go: IKCP_WND_RCV`).
            remote: 32,
            rtt: Rtt::new(tuning.min_timeout(), tuning.interval),
            congestion: Congestion::new(tuning.congestion_control, mss),
            dead: false,
            held_back: false,
            tuning,
        }
    }

    /// Buffers as many bytes as there is room for.
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

    /// Whether another segment can be buffered.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() + self.in_flight.len() < 2 * usize::from(self.tuning.send_window)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Whether sent segments were not acknowledged yet.
    pub(super) fn awaits_acknowledgement(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the number of the first segment that was not acknowledged.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the number of the next segment that was never sent.
    pub(super) fn next(&self) -> u32 {
        self.first.wrapping_add(self.in_flight.len() as u32)
    }

    /// Returns the number of buffered segments.
    pub(super) fn segments(&self) -> usize {
        self.waiting.len() + self.in_flight.len()
    }

    /// Whether a segment waits that may be sent, or that could not be sent when it was due.
    pub(super) fn has_unsent(&self) -> bool {
        self.held_back || !self.waiting.is_empty() && self.in_flight.len() < self.window()
    }

    /// Whether a segment was retransmitted so often that the link counts as dead.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Whether the peer has no room while segments wait.
    pub(super) fn is_blocked(&self) -> bool {
        self.remote == 0 && !self.waiting.is_empty()
    }

    pub(super) fn set_remote_window(&mut self, window: u16) {
        self.remote = window;
    }

    /// Whether `una` is plausible: everything before it was sent.
    pub(super) fn has_sent(&self, una: u32) -> bool {
        distance(una, self.next()) <= 0
    }

    /// Handles the acknowledgement of everything before `una`. Returns whether it is new.
    pub(super) fn acknowledge_before(&mut self, una: u32) -> bool {
        let count = usize::try_from(distance(una, self.first)).unwrap_or(0).min(self.in_flight.len());
        self.in_flight.drain(..count);
        self.first = self.first.wrapping_add(count as u32);
        let advanced = self.advance();
        count > 0 || advanced
    }

    /// Handles the acknowledgement of a segment that was sent at `ts`. Returns whether the window moved.
    pub(super) fn acknowledge(&mut self, sn: u32, ts: Millis) -> bool {
        let Ok(index) = usize::try_from(distance(sn, self.first)) else { return false };
        // Only new acknowledgements count as skips: otherwise a peer that repeats itself would cause retransmission of
        // everything.
        let Some(_) = self.in_flight.get_mut(index).and_then(|segment| segment.data.take()) else {
            return false;
        };
        for earlier in self.in_flight.iter_mut().take(index) {
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
        self.congestion.on_acknowledgement(u32::from(self.remote));
    }

    /// Sends due segments with this header, and returns when the next one is due.
    pub(super) fn send(&mut self, now: Millis, header: &Segment<'_>, sink: &mut impl Sink) -> Option<Millis> {
        self.held_back = false;
        let fresh = self.fill_window(sink.room());
        let timeout = self.rtt.timeout();
        let (mut skipped, mut timed_out, mut next) = (false, false, None::<Millis>);
        for (segment, sn) in self.in_flight.iter_mut().zip(Numbers(self.first)) {
            let Some(data) = &segment.data else { continue };
            let send_reason = segment.send_reason(now, &self.tuning, fresh);
            if send_reason != SendReason::NotYet && sink.room() < OVERHEAD + data.len() {
                // It has no due time: it is sent when the peer has sent more, or is validated.
                self.held_back = true;
                continue;
            }
            if send_reason != SendReason::NotYet {
                sink.put(&Segment { sn, data, ..*header });
                segment.retransmit(now, send_reason, timeout, &self.tuning);
                skipped |= send_reason == SendReason::Skipped;
                timed_out |= send_reason == SendReason::TimedOut;
                self.dead |= segment.times >= DEAD_LINK;
            }
            next = Some(next.map_or(segment.resend, |next| next.earlier(segment.resend)));
        }
        if skipped {
            self.congestion.on_reordering(self.in_flight.len() as u32, self.tuning.fast_resend);
        }
        if timed_out {
            self.congestion.on_timeout();
        }
        next
    }

    /// Releases memory left over from a burst.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            (self.waiting, self.in_flight) = Default::default();
        }
    }

    fn window(&self) -> usize {
        let most = u32::from(self.tuning.send_window.min(self.remote));
        self.congestion.window(most) as usize
    }

    /// Moves segments into the window. Returns whether any of them is new.
    fn fill_window(&mut self, room: usize) -> bool {
        let free = self.window().saturating_sub(self.in_flight.len());
        if room != usize::MAX {
            return self.fill_sparingly(free, room);
        }
        let count = free.min(self.waiting.len());
        self.in_flight.extend(self.waiting.drain(..count).map(InFlight::new));
        count > 0
    }

    /// Does the same with a limited number of bytes for the peer: segments are cut so that they can be retransmitted,
    /// since a `kcp-go` peer whose request was acknowledged sends nothing more by itself.
    #[cold]
    fn fill_sparingly(&mut self, free: usize, mut room: usize) -> bool {
        let before = self.in_flight.len();
        for _ in 0..free {
            let Some(first) = self.waiting.front_mut() else { break };
            let most = (room / (1 + MAX_UNVALIDATED_RETRANSMITS))
                .max(OVERHEAD + MIN_DATA_BYTES)
                .min(room)
                .saturating_sub(OVERHEAD);
            if most == 0 {
                self.held_back = true;
                break;
            }
            let rest = first.split_off(first.len().min(most));
            let data =
                if rest.is_empty() { self.waiting.pop_front() } else { Some(std::mem::replace(first, rest)) };
            let data = data.unwrap_or_default();
            room = room.saturating_sub(OVERHEAD + data.len());
            self.in_flight.push_back(InFlight::new(data));
        }
        self.in_flight.len() > before
    }

    fn advance(&mut self) -> bool {
        let before = self.first;
        while self.in_flight.pop_front_if(|segment| segment.data.is_none()).is_some() {
            self.first = self.first.wrapping_add(1);
        }
        self.first != before
    }
}

/// Iterator over sequence numbers from this one on, which wrap around.
struct Numbers(u32);

impl Iterator for Numbers {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let number = self.0;
        self.0 = number.wrapping_add(1);
        Some(number)
    }
}

/// Why a segment is sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendReason {
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

    fn send_reason(&self, now: Millis, tuning: &Tuning, fresh: bool) -> SendReason {
        let enough = tuning.fast_resend > 0 && self.skips >= tuning.fast_resend;
        // Without new segments there will be no more skips to count (`kcp.go: flush`, early retransmit).
        let early = tuning.fast_resend > 0 && self.skips > 0 && !fresh;
        if self.times == 0 {
            SendReason::First
        } else if enough || early {
            SendReason::Skipped
        } else if self.resend.is_reached(now) {
            SendReason::TimedOut
        } else {
            SendReason::NotYet
        }
    }

    fn retransmit(&mut self, now: Millis, send_reason: SendReason, timeout: u32, tuning: &Tuning) {
        self.timeout = match send_reason {
            SendReason::TimedOut if tuning.nodelay => self.timeout.saturating_add(timeout / 2),
            SendReason::TimedOut => self.timeout.saturating_add(timeout),
            _ => timeout,
        };
        self.timeout = self.timeout.min(MAX_TIMEOUT);
        self.resend = now.after(self.timeout);
        self.sent = now;
        self.times += 1;
        self.skips = 0;
    }
}

/// `kcp.go: IKCP_DEADLINK`
const DEAD_LINK: u32 = 20;
/// `kcp.go: IKCP_RTO_MAX`
const MAX_TIMEOUT: u32 = 60_000;
/// How often a segment to an unvalidated peer can be retransmitted.
const MAX_UNVALIDATED_RETRANSMITS: usize = 2;
/// Minimum number of data bytes that are worth a segment.
const MIN_DATA_BYTES: usize = 8;

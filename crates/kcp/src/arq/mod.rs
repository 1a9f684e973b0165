//! Automatic repeat request: a stream over datagrams that may be lost, duplicated and reordered (`kcp.go`).
//!
//! [`receiving`] restores the order of received segments, [`sending`] retransmits lost ones, controlled by [`rtt`] and
//! [`congestion`].

mod receiving;
mod sending;

mod congestion;
mod rtt;

use bytes::BytesMut;

use self::receiving::ReceiveWindow;
use self::sending::SendWindow;
use super::config::Tuning;
use super::segment::{Command, KNOWS_ENDS, MalformedSegment, OVERHEAD, Segment, UNKNOWN};
use super::time::{Millis, distance};

/// One side of a conversation, without the encryption and error correction around its segments.
#[derive(Debug)]
pub(super) struct Arq {
    conv: u32,
    sending: SendWindow,
    receiving: ReceiveWindow,
    interval: u32,
    /// Offset of the timestamps in our segments: acknowledgements repeat the timestamps, and cannot be forged by a peer
    /// that does not know the offset.
    clock: u32,
    /// A window probe must be sent.
    ask_window: bool,
    /// Our window must be announced.
    tell_window: bool,
    /// Our end must be announced.
    tell_end: Option<PeerEnd>,
    /// Whether we announce that we know ends.
    knows_ends: bool,
    /// Whether the peer has announced that it knows ends.
    peer_knows_ends: bool,
    /// The peer's end, if it has announced one.
    peer_end: Option<PeerEnd>,
    /// The peer is probed if its first segment does not arrive first.
    probes_for_start: bool,
    /// The first segment, which never arrived here, was acknowledged: by a predecessor of this process.
    start_is_missing: bool,
    /// Delay before the next window probe to a peer without room.
    probe_backoff: u32,
    alarms: Alarms,
}

/// Timers of pending work.
#[derive(Debug, Default)]
struct Alarms {
    acknowledge: Option<Millis>,
    resend: Option<Millis>,
    ask_window: Option<Millis>,
}

/// An announced end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerEnd {
    /// The sender has closed the conversation before the segment with this number.
    Closed(u32),
    /// The sender has no such conversation.
    Unknown,
}

/// Destination of outgoing segments.
pub(super) trait Sink {
    /// Bytes available for one more segment, with its header. [`usize::MAX`]: unlimited.
    fn room(&self) -> usize;

    /// Appends a segment, for which there is room.
    fn put(&mut self, segment: &Segment<'_>);
}

/// Origin of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Received from the peer.
    Received,
    /// Lost, and recovered by error correction: its times and windows are out of date.
    Recovered,
}

impl Arq {
    /// Creates one side of a conversation. `mss` is the maximum number of data bytes in a datagram.
    pub(super) fn new(conv: u32, tuning: Tuning, mss: usize) -> Self {
        Self {
            conv,
            receiving: ReceiveWindow::new(tuning.receive_window),
            interval: tuning.interval,
            sending: SendWindow::new(tuning, mss),
            clock: 0,
            ask_window: false,
            tell_window: false,
            tell_end: None,
            knows_ends: true,
            peer_knows_ends: false,
            peer_end: None,
            probes_for_start: false,
            start_is_missing: false,
            probe_backoff: 0,
            alarms: Alarms::default(),
        }
    }

    pub(super) fn conv(&self) -> u32 {
        self.conv
    }

    /// Marks the peer, which has started the conversation, as unvalidated: our timestamps are offset by `clock`, and few
    /// segments are buffered.
    pub(super) fn mark_unvalidated(&mut self, clock: u32) {
        self.clock = clock;
        self.probes_for_start = true;
        self.receiving.narrow(UNVALIDATED_WINDOW);
    }

    /// Marks the peer's address as validated.
    pub(super) fn trust(&mut self, tuning: &Tuning) {
        self.receiving.widen(tuning.receive_window);
    }

    /// Handles the segments of a datagram. Returns whether any of them acknowledges sent data, or announces a window:
    /// its sender has received our segments.
    ///
    /// # Errors
    ///
    /// If a segment belongs to another conversation, or acknowledges what was never sent; segments before it are
    /// applied.
    pub(super) fn handle(
        &mut self,
        now: Millis,
        mut datagram: &[u8],
        origin: Origin,
    ) -> Result<bool, MalformedSegment> {
        let (mut moved, mut answered, mut latest) = (false, false, None);
        let mut outcome = Ok(());
        while let Some(segment) = Segment::cut(&mut datagram) {
            let Some(segment) = segment.ok().filter(|segment| self.is_possible(segment)) else {
                outcome = Err(MalformedSegment);
                break;
            };
            if origin == Origin::Received {
                self.sending.set_remote_window(segment.wnd);
            }
            moved |= self.sending.acknowledge_before(segment.una);
            match segment.command {
                Command::Ack => {
                    let sent = Millis(segment.ts.0.wrapping_sub(self.clock));
                    moved |= self.sending.acknowledge(segment.sn, sent);
                    latest = Some(sent);
                }
                Command::Push => self.receive(now, &segment),
                Command::Ask => {
                    self.tell_window = true;
                    self.take_marks(&segment);
                }
                Command::Tell => {
                    answered = true;
                    self.take_marks(&segment);
                }
                Command::End if segment.frg == UNKNOWN => self.peer_end = Some(PeerEnd::Unknown),
                Command::End => self.peer_end = Some(PeerEnd::Closed(segment.sn)),
            }
        }
        if let (Some(sent), Origin::Received) = (latest, origin) {
            self.sending.sample(now, sent);
        }
        if moved {
            self.sending.grow();
        }
        outcome.map(|()| answered || moved || latest.is_some())
    }

    /// Buffers as much of `bytes` for sending as there is room for; returns the number of bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.sending.write(bytes)
    }

    /// Moves up to `max` received bytes, in order.
    pub(super) fn read(&mut self, into: &mut BytesMut, max: usize) -> usize {
        let was_full = self.receiving.unused() == 0;
        let read = self.receiving.read(into, max);
        // The peer stopped sending when there was no room (`kcp.go: Recv`, fast recover).
        self.tell_window |= was_full && self.receiving.unused() > 0;
        read
    }

    /// Discards received data.
    pub(super) fn discard(&mut self) {
        self.receiving.discard();
    }

    /// Schedules a probe that the peer must answer.
    pub(super) fn probe(&mut self) {
        self.ask_window = true;
    }

    /// Schedules the announcement that the conversation has ended.
    pub(super) fn announce_end(&mut self) {
        self.tell_end = Some(PeerEnd::Closed(self.sending.next()));
    }

    /// Schedules the announcement that there is no such conversation.
    pub(super) fn announce_unknown(&mut self) {
        self.tell_end = Some(PeerEnd::Unknown);
    }

    /// Whether the peer understands an announced end.
    pub(super) fn peer_knows_ends(&self) -> bool {
        self.peer_knows_ends
    }

    /// Behaves like `kcp-go`, which knows no ends.
    #[cfg(test)]
    pub(super) fn forget_ends(&mut self) {
        self.knows_ends = false;
    }

    /// Returns the peer's end, once everything that it sent before was received.
    pub(super) fn peer_end(&self) -> Option<PeerEnd> {
        self.peer_end.filter(|end| *end == PeerEnd::Unknown || *end == PeerEnd::Closed(self.receiving.next()))
    }

    /// Whether nothing can ever be read: the peer does not repeat its first segment, which was acknowledged by a
    /// predecessor of this process, under the same number and from the same address.
    pub(super) fn start_is_missing(&self) -> bool {
        self.start_is_missing && self.receiving.next() == 0
    }

    /// Whether sent data was not acknowledged yet.
    pub(super) fn awaits_acknowledgement(&self) -> bool {
        self.sending.awaits_acknowledgement()
    }

    /// Whether there is something to be sent at once.
    pub(super) fn is_urgent(&self) -> bool {
        // Like in TCP, every second segment is acknowledged without delay: otherwise the peer's window is exhausted.
        self.tell_window
            || self.ask_window
            || self.tell_end.is_some()
            || self.receiving.unacknowledged() >= 2
            || self.sending.has_unsent()
    }

    /// Whether it is time to send something.
    pub(super) fn is_due(&self, now: Millis) -> bool {
        self.next_alarm().is_some_and(|alarm| alarm.is_reached(now))
    }

    /// Returns when to call [`flush`](Self::flush) next, unless something is received or written before.
    pub(super) fn next_alarm(&self) -> Option<Millis> {
        let Alarms { acknowledge, resend, ask_window } = self.alarms;
        [acknowledge, resend, ask_window].into_iter().flatten().reduce(Millis::earlier)
    }

    /// Sends what is due now: acknowledgements, probes, new segments, retransmissions.
    ///
    /// Segments without room are postponed, except acknowledgements: the peer repeats the segments they belong to.
    pub(super) fn flush(&mut self, now: Millis, sink: &mut impl Sink) {
        self.check_window_probe(now);
        let header = Segment {
            conv: self.conv,
            command: Command::Ack,
            frg: 0,
            wnd: self.receiving.unused(),
            ts: Millis::default(),
            sn: 0,
            una: self.receiving.next(),
            data: &[],
        };
        let last = self.receiving.unacknowledged().saturating_sub(1);
        for (index, ack) in self.receiving.acks().drain(..).enumerate() {
            // Segments covered by `una` need no further acknowledgement; the last one serves the round-trip
            // measurement.
            if (index == last || distance(ack.sn, header.una) >= 0) && sink.room() >= OVERHEAD {
                sink.put(&Segment { sn: ack.sn, ts: ack.ts, ..header });
            }
        }
        // `sn` tells whether anything was sent before: only a probe before everything begins a conversation. `ts` tells
        // what was acknowledged.
        let (frg, acknowledged) = if self.knows_ends { (KNOWS_ENDS, self.sending.first()) } else { (0, 0) };
        let header = Segment { sn: self.sending.next(), ts: Millis(acknowledged), ..header };
        for (wanted, command) in
            [(&mut self.ask_window, Command::Ask), (&mut self.tell_window, Command::Tell)]
        {
            if *wanted && sink.room() >= OVERHEAD {
                *wanted = false;
                sink.put(&Segment { command, frg, ..header });
            }
        }
        if let Some(end) = self.tell_end.take_if(|_| sink.room() >= OVERHEAD) {
            let frg = if end == PeerEnd::Unknown { UNKNOWN } else { 0 };
            sink.put(&Segment { command: Command::End, frg, ..header });
        }
        self.alarms.acknowledge = None;
        let header = Segment { command: Command::Push, ts: now.after(self.clock), ..header };
        self.alarms.resend = self.sending.send(now, &header, sink);
    }

    /// Nothing can be sent now: due work is checked again at `until`.
    pub(super) fn postpone(&mut self, until: Millis) {
        let Alarms { acknowledge, resend, ask_window } = &mut self.alarms;
        for alarm in [acknowledge, resend, ask_window].into_iter().flatten() {
            if until.since(*alarm) > 0 {
                *alarm = until;
            }
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        self.receiving.is_readable()
    }

    pub(super) fn is_writable(&self) -> bool {
        self.sending.has_room()
    }

    /// Whether everything written was acknowledged.
    pub(super) fn is_settled(&self) -> bool {
        self.sending.is_empty()
    }

    /// Whether the peer does not answer repeated transmissions.
    pub(super) fn is_dead(&self) -> bool {
        self.sending.is_dead()
    }

    /// Returns the number of buffered segments.
    pub(super) fn segments(&self) -> usize {
        self.sending.segments() + self.receiving.segments()
    }

    /// Releases memory left over from a burst.
    pub(super) fn shrink(&mut self) {
        self.sending.shrink();
        self.receiving.shrink();
    }

    /// Whether a well-behaved peer can have sent this.
    fn is_possible(&self, segment: &Segment<'_>) -> bool {
        let acknowledges_sent =
            segment.command != Command::Ack || self.sending.has_sent(segment.sn.wrapping_add(1));
        segment.conv == self.conv && self.sending.has_sent(segment.una) && acknowledges_sent
    }

    /// Evaluates the marks of a probe or a window announcement.
    fn take_marks(&mut self, segment: &Segment<'_>) {
        if segment.frg == KNOWS_ENDS {
            self.peer_knows_ends = true;
            self.start_is_missing |= segment.ts != Millis(0) && self.receiving.next() == 0;
        }
    }

    fn receive(&mut self, now: Millis, segment: &Segment<'_>) {
        self.receiving.push(segment.sn, segment.ts, segment.data);
        if self.probes_for_start {
            // It is late, or it is missing: the answer tells.
            self.ask_window |= self.receiving.next() == 0;
            self.probes_for_start = false;
        }
        if self.receiving.unacknowledged() > 0 {
            let delay = now.after(self.interval.min(MAX_ACK_DELAY_MS));
            self.alarms.acknowledge.get_or_insert(delay);
        }
    }

    /// Decides whether to send a window probe to a peer without room.
    fn check_window_probe(&mut self, now: Millis) {
        if !self.sending.is_blocked() {
            self.probe_backoff = 0;
            self.alarms.ask_window = None;
            return;
        }
        let alarm = self.alarms.ask_window;
        if alarm.is_some_and(|alarm| !alarm.is_reached(now)) {
            return;
        }
        self.ask_window |= alarm.is_some();
        self.probe_backoff =
            (self.probe_backoff + self.probe_backoff / 2).clamp(PROBE_DELAY_MS, MAX_PROBE_DELAY_MS);
        self.alarms.ask_window = Some(now.after(self.probe_backoff));
    }
}

/// Maximum number of segments buffered for an unvalidated peer: the default that a peer assumes for our window
/// (`kcp.go: IKCP_WND_RCV`).
const UNVALIDATED_WINDOW: u16 = 32;
/// Maximum delay of an acknowledgement that waits for data to be sent with it: like TCP's.
const MAX_ACK_DELAY_MS: u32 = 40;
/// Delay before the first window probe. `kcp.go` waits 7 s, during which a lost window update would block everything.
const PROBE_DELAY_MS: u32 = 500;
/// `kcp.go: IKCP_PROBE_LIMIT` is 120 s.
const MAX_PROBE_DELAY_MS: u32 = 15_000;

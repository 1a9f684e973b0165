//! Automatic repeat request: a stream over datagrams that get lost, doubled and out of order (`kcp.go`).
//!
//! [`receiving`] puts what comes in order, [`sending`] repeats what was lost, as [`rtt`] and [`congestion`] say.

mod receiving;
mod sending;

mod congestion;
mod rtt;

use bytes::BytesMut;

use self::receiving::ReceiveWindow;
use self::sending::SendWindow;
use super::config::Tuning;
use super::segment::{Command, MalformedSegment, OVERHEAD, Segment};
use super::time::{Millis, distance};

/// One side of a conversation, without what is wrapped around its segments.
#[derive(Debug)]
pub(super) struct Arq {
    conv: u32,
    sending: SendWindow,
    receiving: ReceiveWindow,
    interval: u32,
    /// What the times in our segments are ahead of ours: acknowledgements repeat them, and cannot be forged by a peer
    /// that does not know it.
    clock: u32,
    /// The peer is to be asked for its window.
    ask: bool,
    /// The peer is to be told our window.
    tell: bool,
    /// How long to wait before the peer, which has no room, is asked again.
    patience: u32,
    alarms: Alarms,
}

/// When there is something to be done.
#[derive(Debug, Default)]
struct Alarms {
    acknowledge: Option<Millis>,
    resend: Option<Millis>,
    ask: Option<Millis>,
}

/// Where segments leave.
pub(super) trait Sink {
    /// Bytes that one more segment may have, with its header. [`usize::MAX`]: there is no bound.
    fn room(&self) -> usize;

    /// Takes a segment, for which there is room.
    fn put(&mut self, segment: &Segment<'_>);
}

/// Where a datagram comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is as the peer sent it.
    Received,
    /// It was lost and computed from others: what it says of times and windows is out of date.
    Recovered,
}

impl Arq {
    /// `mss` is how many bytes of data fit into a datagram.
    pub(super) fn new(conv: u32, tuning: Tuning, mss: usize) -> Self {
        Self {
            conv,
            receiving: ReceiveWindow::new(tuning.receive_window),
            interval: tuning.interval,
            sending: SendWindow::new(tuning, mss),
            clock: 0,
            ask: false,
            tell: false,
            patience: 0,
            alarms: Alarms::default(),
        }
    }

    pub(super) fn conv(&self) -> u32 {
        self.conv
    }

    /// With a peer whose address is not validated: our times are ahead by `clock`, and few segments are kept.
    pub(super) fn distrust(&mut self, clock: u32) {
        self.clock = clock;
        self.receiving.narrow(UNVALIDATED_WINDOW);
    }

    /// The peer's address was validated.
    pub(super) fn trust(&mut self, tuning: &Tuning) {
        self.receiving.widen(tuning.receive_window);
    }

    /// Takes the segments of a datagram. Returns whether any of them acknowledges what was sent, or tells a window:
    /// whoever wrote it has seen what we wrote.
    ///
    /// # Errors
    ///
    /// When one is of another conversation, or acknowledges what was never sent; those before it count.
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
                self.sending.remote(segment.wnd);
            }
            moved |= self.sending.arrived_before(segment.una);
            match segment.command {
                Command::Ack => {
                    let sent = Millis(segment.ts.0.wrapping_sub(self.clock));
                    moved |= self.sending.arrived(segment.sn, sent);
                    latest = Some(sent);
                }
                Command::Push => self.receive(now, &segment),
                Command::Ask => self.tell = true,
                Command::Tell => answered = true,
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

    /// Takes as much of what is to be sent as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.sending.write(bytes)
    }

    /// Moves up to `most` bytes of what has come, in order.
    pub(super) fn read(&mut self, into: &mut BytesMut, most: usize) -> usize {
        let was_full = self.receiving.unused() == 0;
        let read = self.receiving.read(into, most);
        // The peer stopped when it learnt that there was no room (`kcp.go: Recv`, fast recover).
        self.tell |= was_full && self.receiving.unused() > 0;
        read
    }

    /// Throws away what has come.
    pub(super) fn discard(&mut self) {
        self.receiving.discard();
    }

    /// Asks the peer for a sign of life.
    pub(super) fn probe(&mut self) {
        self.ask = true;
    }

    /// Whether there is something to be sent at once.
    pub(super) fn is_urgent(&self) -> bool {
        // As TCP, every second segment is acknowledged without delay: else the peer's window is used up.
        self.tell || self.ask || self.receiving.unacknowledged() >= 2 || self.sending.has_unsent()
    }

    /// Whether the time has come to send something.
    pub(super) fn is_due(&self, now: Millis) -> bool {
        self.next_alarm().is_some_and(|alarm| alarm.reached(now))
    }

    /// When to [`flush`](Self::flush) next, if nothing comes and nothing is written before.
    pub(super) fn next_alarm(&self) -> Option<Millis> {
        let Alarms { acknowledge, resend, ask } = self.alarms;
        [acknowledge, resend, ask].into_iter().flatten().reduce(Millis::earlier)
    }

    /// Sends what is to be sent now: acknowledgements, probes, what is new, what was lost.
    ///
    /// What there is no room for waits, but for acknowledgements: the peer repeats what they were for.
    pub(super) fn flush(&mut self, now: Millis, sink: &mut impl Sink) {
        self.wonder(now);
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
        for (place, ack) in self.receiving.acks().drain(..).enumerate() {
            // What `una` covers need not be said again; the last tells how long the way takes.
            if (place == last || distance(ack.sn, header.una) >= 0) && sink.room() >= OVERHEAD {
                sink.put(&Segment { sn: ack.sn, ts: ack.ts, ..header });
            }
        }
        for (wanted, command) in [(&mut self.ask, Command::Ask), (&mut self.tell, Command::Tell)] {
            if *wanted && sink.room() >= OVERHEAD {
                *wanted = false;
                sink.put(&Segment { command, ..header });
            }
        }
        self.alarms.acknowledge = None;
        let header = Segment { command: Command::Push, ts: now.after(self.clock), ..header };
        self.alarms.resend = self.sending.send(now, &header, sink);
    }

    /// Nothing can leave now: what is due is looked at again then.
    pub(super) fn postpone(&mut self, until: Millis) {
        let Alarms { acknowledge, resend, ask } = &mut self.alarms;
        for alarm in [acknowledge, resend, ask].into_iter().flatten() {
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

    /// Whether all that was written has arrived.
    pub(super) fn is_settled(&self) -> bool {
        self.sending.is_empty()
    }

    /// Whether the peer does not answer however often it is asked.
    pub(super) fn is_dead(&self) -> bool {
        self.sending.is_dead()
    }

    /// How many segments are kept.
    pub(super) fn segments(&self) -> usize {
        self.sending.segments() + self.receiving.segments()
    }

    /// Lets go of memory that a burst has left.
    pub(super) fn rest(&mut self) {
        self.sending.rest();
        self.receiving.rest();
    }

    /// Whether an honest peer can have sent this.
    fn is_possible(&self, segment: &Segment<'_>) -> bool {
        let acknowledges_sent =
            segment.command != Command::Ack || self.sending.has_sent(segment.sn.wrapping_add(1));
        segment.conv == self.conv && self.sending.has_sent(segment.una) && acknowledges_sent
    }

    fn receive(&mut self, now: Millis, segment: &Segment<'_>) {
        self.receiving.push(segment.sn, segment.ts, segment.data);
        if self.receiving.unacknowledged() > 0 {
            let delay = now.after(self.interval.min(ACK_DELAY));
            self.alarms.acknowledge.get_or_insert(delay);
        }
    }

    /// Decides whether a peer without room is to be asked for its window.
    fn wonder(&mut self, now: Millis) {
        if !self.sending.is_shut_out() {
            self.patience = 0;
            self.alarms.ask = None;
            return;
        }
        let alarm = self.alarms.ask;
        if alarm.is_some_and(|alarm| !alarm.reached(now)) {
            return;
        }
        self.ask |= alarm.is_some();
        self.patience = (self.patience + self.patience / 2).clamp(PATIENCE, PATIENCE_MOST);
        self.alarms.ask = Some(now.after(self.patience));
    }
}

/// Segments that an unvalidated peer may have us keep: what a peer takes for our window before it hears from us
/// (`kcp.go: IKCP_WND_RCV`).
const UNVALIDATED_WINDOW: u16 = 32;
/// How long an acknowledgement waits for data to travel with, at most: as TCP's.
const ACK_DELAY: u32 = 40;
/// How long to wait before asking for the window for the first time. `kcp.go` waits 7 s, for which a lost answer would
/// hold up everything.
const PATIENCE: u32 = 500;
/// `kcp.go: IKCP_PROBE_LIMIT` is 120 s.
const PATIENCE_MOST: u32 = 15_000;

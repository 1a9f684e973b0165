use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;

use super::arq::{Arq, Origin, PeerEnd, Sink};
use super::fec::{self, Decoder, Encoder, Shard};
use super::packet::{Nonces, OutgoingDatagrams};
use super::segment::{Command, Segment};
use super::settings::{OpenedDatagram, Settings};
use super::time::Millis;
use super::validation::AddressValidation;

/// One side of a conversation: datagrams in and out, a byte stream in and out.
///
/// Its driver passes received datagrams ([`handle`](Self::handle)) and data to be sent ([`write`](Self::write), then
/// [`flush`](Self::flush)), calls [`wake`](Self::wake) at the time of [`next_alarm`](Self::next_alarm), and after each
/// of these calls sends the pending [`datagram`](Self::datagram)s.
///
/// One that is [closed](Self::close) still delivers written data, and then notifies the peer of its end. KCP has no
/// such message; peers that know ours say so in their probes and window announcements. A conversation with another one
/// ends when it does not answer probes for too long, and later if the peer has started it: a `kcp-go` client never
/// notices that its conversation has ended, and would send into it forever.
///
/// ```text
///            close                settled, and the peer's end or a delay for late datagrams
///   open ──────────▶ closing ─────────────────────────────────────────────────────────────▶ ended
///    └── the peer's end, silent, or unanswered ───────────────────────────────────────────▶ ended
/// ```
#[derive(Debug)]
pub struct Session {
    settings: Arc<Settings>,
    arq: Arq,
    encoder: Option<Encoder>,
    decoder: Option<Decoder>,
    nonces: Nonces,
    out: OutgoingDatagrams,
    life: PeerLiveness,
    /// `None`: the peer's address is validated.
    validation: Option<Box<AddressValidation>>,
    /// Repetition of the first probe, until something arrives.
    connecting: Option<Connecting>,
    /// How long sent data may stay unacknowledged; `None` if the peer has started the conversation.
    unanswered: Option<u32>,
    /// The peer's silence while sent data waits for an acknowledgement.
    awaiting: Option<Silence>,
    /// The peer's silence while it owes replies.
    expecting: Option<Silence>,
    closed: Option<Millis>,
    /// Once closed, it is kept for late datagrams.
    lingers: bool,
    /// Our announcement of the end, once it was sent.
    close_announcement: Option<CloseAnnouncement>,
    ended: Option<EndReason>,
}

/// An announced end that waits for its answer.
#[derive(Debug, Clone, Copy)]
struct CloseAnnouncement {
    begun: Millis,
    repeat: Millis,
}

/// A probe that waits for its answer.
#[derive(Debug, Clone, Copy)]
struct Connecting {
    repeat: Millis,
    delay: u32,
}

/// Why a conversation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// It was closed locally.
    Closed,
    /// The peer has closed it; everything that it sent before was received.
    ClosedByPeer,
    /// The peer has no such conversation: it was restarted, or has given it up.
    Unknown,
    /// The peer has started it with a predecessor of this process, which has acknowledged what is missing here.
    StartMissing,
    /// Nothing was received from the peer, although it was probed.
    Silent,
    /// The peer did not acknowledge repeated transmissions.
    Unanswered,
    /// The peer has started another conversation.
    Replaced,
    /// Its slot was needed for another peer.
    Evicted,
}

impl Session {
    /// Creates a conversation with this number. `seed` must be random; equal seeds give equal nonces.
    pub fn new(settings: Arc<Settings>, conv: u32, seed: [u8; 32], now: Millis) -> Self {
        let (encoder, decoder) = settings.correction();
        Self {
            arq: Arq::new(conv, settings.config.tuning, settings.mss()),
            encoder,
            decoder,
            nonces: Nonces::new(seed),
            out: OutgoingDatagrams::default(),
            life: PeerLiveness::new(
                settings.config.idle_timeout.as_millis().try_into().unwrap_or(u32::MAX),
                now,
            ),
            validation: None,
            connecting: None,
            unanswered: Some(
                settings.config.ack_timeout.as_millis().clamp(MIN_UNANSWERED_MS, i32::MAX as u128) as u32,
            ),
            awaiting: None,
            expecting: None,
            closed: None,
            lingers: true,
            close_announcement: None,
            ended: None,
            settings,
        }
    }

    /// Probes the peer, again and again until something arrives from it. Without this, nothing is sent before something
    /// is written, and an absent peer is not noticed.
    pub fn connect(&mut self, now: Millis) {
        self.connecting =
            Some(Connecting { repeat: now.after(MIN_REPEAT_DELAY_MS), delay: MIN_REPEAT_DELAY_MS });
        self.arq.probe();
        self.flush(now);
    }

    /// Sets whether the peer owes replies. It is then probed when it is silent: its acknowledgements do not prove that
    /// it still lives.
    pub fn expect_replies(&mut self, now: Millis, are_expected: bool) {
        match self.unanswered.filter(|_| are_expected) {
            Some(limit) => _ = self.expecting.get_or_insert_with(|| Silence::start(now, limit)),
            None => self.expecting = None,
        }
    }

    /// Whether the peer has answered.
    pub fn is_connected(&self) -> bool {
        self.connecting.is_none()
    }

    /// Returns the datagram that notifies a peer that there is no conversation with this number. It is no longer than
    /// the datagram that it answers.
    pub fn refusal(settings: Arc<Settings>, conv: u32, seed: [u8; 32], now: Millis) -> Vec<u8> {
        let mut session = Self::new(settings, conv, seed, now);
        session.arq.announce_unknown();
        session.flush(now);
        session.datagram().unwrap_or_default().to_vec()
    }

    /// Accepts a conversation that the peer has started, whose address may be forged. Until it has acknowledged
    /// something, it is sent at most three times the bytes received from it (RFC 9000 §8.1).
    pub fn accept(settings: Arc<Settings>, conv: u32, seed: [u8; 32], now: Millis) -> Self {
        let mut session = Self::new(settings, conv, seed, now);
        let [a, b, c, d, ..] = session.nonces.next();
        session.arq.mark_unvalidated(u32::from_le_bytes([a, b, c, d]));
        session.validation = Some(Box::default());
        session.life.accept(now);
        session.unanswered = None;
        session
    }

    /// Handles a datagram. Malformed ones are ignored: any sender can cause them.
    pub fn handle(&mut self, now: Millis, datagram: OpenedDatagram<'_>) {
        if let Some(validation) = &mut self.validation {
            validation.record_received(datagram.length);
        }
        if let Shard::Data { segments, .. } = datagram.shard {
            self.validate(segments);
            if let Ok(answers) = self.arq.handle(now, segments, Origin::Received) {
                self.life.record_received(now, answers, self.validation.is_none());
                self.connecting = None;
                self.restart_silence(now);
            }
        }
        for recovered in self.recover(datagram.shard) {
            if let Some(segments) = fec::strip_padding(&recovered) {
                self.validate(segments);
                let _ = self.arq.handle(now, segments, Origin::Recovered);
            }
        }
        self.life.knows_ends = self.arq.peer_knows_ends();
        if self.closed.is_some() {
            self.arq.discard();
        }
        self.track_acknowledgement(now);
        self.apply_peer_end(now);
        self.refuse_without_start(now);
        self.announce_end(now);
        self.flush_if_urgent(now);
    }

    /// Buffers as much of `bytes` for sending as there is room for. It is sent by the next [`flush`](Self::flush).
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.closed.is_some() || self.ended.is_some() { 0 } else { self.arq.write(bytes) }
    }

    /// Moves up to `max` received bytes.
    pub fn read(&mut self, now: Millis, into: &mut BytesMut, max: usize) -> usize {
        let read = self.arq.read(into, max);
        self.flush_if_urgent(now);
        read
    }

    /// Creates datagrams of the segments that are due now.
    pub fn flush(&mut self, now: Millis) {
        // Datagrams that the socket has not accepted yet are not followed by retransmissions of them.
        if self.out.len() >= MAX_UNSENT_BYTES || self.ended.is_some() {
            return self.arq.postpone(now.after(RETRY_DELAY_MS));
        }
        let Self { settings, arq, encoder, nonces, out, validation, .. } = self;
        let (encoder, validation) = (encoder.as_mut(), validation.as_deref_mut());
        let mut packer = Packer { settings, encoder, nonces, out, validation, begin: None };
        arq.flush(now, &mut packer);
        packer.finish(0);
        self.track_acknowledgement(now);
    }

    /// Performs the work due at this time.
    pub fn wake(&mut self, now: Millis) {
        if self.life.wants_probe(now) | self.wants_to_connect(now) | self.misses_answers(now) {
            self.arq.probe();
        }
        self.announce_end(now);
        // The last acknowledgements are not delayed beyond the end.
        let is_last = self.lingers_until().is_some_and(|until| until.is_reached(now));
        if is_last || self.arq.is_due(now) || self.arq.is_urgent() {
            self.flush(now);
        }
        self.ended = self.ended.or_else(|| self.end(now));
    }

    /// Returns when to call [`wake`](Self::wake). `None`: the conversation has ended.
    pub fn next_alarm(&self) -> Option<Millis> {
        if self.ended.is_some() {
            return None;
        }
        let connecting = self.connecting.map(|connecting| connecting.repeat);
        let repeat = self.close_announcement.map(|announced| announced.repeat);
        let others = [
            self.arq.next_alarm(),
            self.lingers_until(),
            repeat,
            connecting,
            self.awaiting.map(|silence| silence.next),
            self.expecting.map(|silence| silence.next),
        ];
        let others = others.into_iter().flatten();
        Some(others.fold(self.life.silence.next, Millis::earlier))
    }

    /// Returns the next datagram to send; it stays the next until it is marked as [sent](Self::mark_sent).
    pub fn datagram(&self) -> Option<&[u8]> {
        self.out.first()
    }

    /// Marks the datagram as sent, or as impossible to send.
    pub fn mark_sent(&mut self) {
        self.out.advance();
    }

    /// Closes the conversation for writing and reading. Written data is still delivered.
    pub fn close(&mut self, now: Millis) {
        self.closed.get_or_insert(now);
        self.arq.discard();
        self.announce_end(now);
        self.flush(now);
    }

    /// Lets the conversation end as soon as it is closed and the peer has acknowledged everything. Otherwise it is kept
    /// for another second, to acknowledge what the peer repeats, unless the peer answers an announced end sooner. For a
    /// process that exits: further data of the peer will not be read.
    pub fn end_when_settled(&mut self) {
        self.lingers = false;
    }

    /// Ends the conversation because the peer has started another one.
    pub fn replace(&mut self) {
        self.ended.get_or_insert(EndReason::Replaced);
    }

    /// Ends the conversation because its slot is needed. Notifies a peer with a validated address.
    pub fn evict(&mut self, now: Millis) {
        if self.validation.is_none() && self.ended.is_none() {
            self.arq.announce_unknown();
            self.flush(now);
        }
        self.ended.get_or_insert(EndReason::Evicted);
        self.arq.discard();
    }

    /// Whether the peer has proven that it receives what is sent to its address. The side that started the conversation
    /// needs no proof.
    pub fn is_validated(&self) -> bool {
        self.validation.is_none()
    }

    /// Ends the conversation if only the extended timeout keeps it open, and returns whether it has ended.
    pub fn give_up(&mut self) -> bool {
        if self.life.is_overdue() {
            self.ended.get_or_insert(EndReason::Silent);
        }
        self.ended.is_some()
    }

    /// Returns why the conversation has ended, if it has.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.ended
    }

    /// Whether data can be read.
    pub fn is_readable(&self) -> bool {
        self.arq.is_readable()
    }

    /// Whether data can be written.
    pub fn is_writable(&self) -> bool {
        self.arq.is_writable()
    }

    /// Whether everything written was acknowledged.
    pub fn is_settled(&self) -> bool {
        self.arq.is_settled()
    }

    /// Returns the number of bytes held, as if each segment were full: received and not read, written and not
    /// acknowledged, not accepted by the socket.
    pub fn buffered_bytes(&self) -> usize {
        self.arq.segments() * self.settings.mss() + self.out.len()
    }

    /// Releases memory left over from a burst, if it is unused.
    pub fn shrink(&mut self) {
        self.arq.shrink();
        self.out.shrink();
        if let Some(decoder) = &mut self.decoder {
            decoder.shrink();
        }
    }

    /// Behaves like a `kcp-go` client, which never gives a conversation up.
    #[cfg(test)]
    pub(super) fn accept_peer(&mut self) {
        self.life.is_accepted = true;
        self.unanswered = None;
        self.arq.forget_ends();
    }

    /// Checks whether the segments of a datagram prove the peer's address.
    fn validate(&mut self, segments: &[u8]) {
        let conv = self.arq.conv();
        if self.validation.as_mut().is_some_and(|validation| validation.is_proven_by(conv, segments)) {
            self.validation = None;
            self.arq.trust(&self.settings.config.tuning);
        }
    }

    fn recover(&mut self, shard: Shard<'_>) -> Vec<Vec<u8>> {
        match (&mut self.decoder, shard) {
            (Some(decoder), Shard::Data { protected: Some((seqid, bytes)), .. }) => {
                decoder.take(seqid, true, bytes)
            }
            (Some(decoder), Shard::Parity { seqid, bytes }) => decoder.take(seqid, false, bytes),
            _ => Vec::new(),
        }
    }

    fn flush_if_urgent(&mut self, now: Millis) {
        if self.arq.is_urgent() {
            self.flush(now);
        }
    }

    /// Returns until when a closed conversation is kept: for data that the peer has not acknowledged, for the answer to
    /// an announced end, or for late datagrams.
    fn lingers_until(&self) -> Option<Millis> {
        let closed = self.closed?;
        let given_up = closed.after(CLOSE_TIMEOUT_MS);
        if !self.arq.is_settled() {
            return Some(given_up);
        }
        let linger = if self.lingers || self.arq.peer_knows_ends() { LINGER_MS } else { 0 };
        let since = self.close_announcement.map_or(closed, |announced| announced.begun);
        Some(since.after(linger).earlier(given_up))
    }

    /// Whether the first probe is to be repeated, later each time.
    fn wants_to_connect(&mut self, now: Millis) -> bool {
        let due = self.connecting.as_mut().filter(|connecting| connecting.repeat.is_reached(now));
        let Some(connecting) = due else { return false };
        connecting.delay = (connecting.delay + connecting.delay / 2).min(MAX_REPEAT_DELAY_MS);
        connecting.repeat = now.after(connecting.delay);
        true
    }

    /// Whether the peer is to be probed, since it owes replies or acknowledgements and is silent.
    fn misses_answers(&mut self, now: Millis) -> bool {
        let Some(limit) = self.unanswered else { return false };
        let mut is_due = false;
        for silence in [&mut self.awaiting, &mut self.expecting].into_iter().flatten() {
            is_due |= silence.check(now, limit);
        }
        is_due
    }

    /// Whether the peer owes replies or acknowledgements and was silent for too long.
    fn is_unanswered(&self) -> bool {
        [self.awaiting, self.expecting].into_iter().flatten().any(|silence| silence.has_lasted(1))
    }

    /// Counts the peer's silence from now on.
    fn restart_silence(&mut self, now: Millis) {
        let Some(limit) = self.unanswered else { return };
        for silence in [&mut self.awaiting, &mut self.expecting].into_iter().flatten() {
            *silence = Silence::start(now, limit);
        }
    }

    /// Counts the peer's silence while sent data waits for an acknowledgement.
    fn track_acknowledgement(&mut self, now: Millis) {
        let Some(limit) = self.unanswered else { return };
        match self.arq.awaits_acknowledgement() {
            true => _ = self.awaiting.get_or_insert_with(|| Silence::start(now, limit)),
            false => self.awaiting = None,
        }
    }

    /// Ends the conversation if the peer has ended it. What it has sent before can still be read.
    fn apply_peer_end(&mut self, now: Millis) {
        if self.ended.is_some() {
            return;
        }
        self.ended = match self.arq.peer_end() {
            None => return,
            Some(PeerEnd::Unknown) => Some(EndReason::Unknown),
            Some(PeerEnd::Closed(_)) => {
                // The peer need not repeat it.
                self.arq.announce_end();
                self.flush(now);
                Some(if self.closed.is_some() { EndReason::Closed } else { EndReason::ClosedByPeer })
            }
        };
    }

    /// Ends a conversation that the peer has started with a predecessor of this process, and tells the peer. Not one
    /// with a validated peer: the probe may be forged.
    fn refuse_without_start(&mut self, now: Millis) {
        if self.ended.is_none() && self.validation.is_some() && self.arq.start_is_missing() {
            self.arq.announce_unknown();
            self.flush(now);
            self.ended = Some(EndReason::StartMissing);
        }
    }

    /// Notifies the peer that the conversation is closed, once it has acknowledged everything, and again until it
    /// answers.
    fn announce_end(&mut self, now: Millis) {
        let is_due = self.closed.is_some()
            && self.ended.is_none()
            && self.arq.peer_knows_ends()
            && self.arq.is_settled()
            && self.close_announcement.is_none_or(|announced| announced.repeat.is_reached(now));
        if is_due {
            let begun = self.close_announcement.map_or(now, |announced| announced.begun);
            self.close_announcement =
                Some(CloseAnnouncement { begun, repeat: now.after(MIN_REPEAT_DELAY_MS) });
            self.arq.announce_end();
        }
    }

    fn end(&self, now: Millis) -> Option<EndReason> {
        if self.lingers_until().is_some_and(|until| until.is_reached(now)) {
            Some(EndReason::Closed)
        } else if self.is_unanswered() || self.arq.is_dead() && !self.life.tolerates_silence() {
            Some(EndReason::Unanswered)
        } else {
            self.life.is_over().then_some(EndReason::Silent)
        }
    }
}

/// How long a closed conversation acknowledges late datagrams, in milliseconds.
const LINGER_MS: u32 = 1000;
/// How long it tries to deliver written data.
const CLOSE_TIMEOUT_MS: u32 = 15_000;
/// Delay before the first probe, or an announced end, is repeated, in milliseconds.
const MIN_REPEAT_DELAY_MS: u32 = 200;
/// Maximum delay between repetitions of the first probe.
const MAX_REPEAT_DELAY_MS: u32 = 3200;
/// Below this, a delayed acknowledgement would look like none.
const MIN_UNANSWERED_MS: u128 = 1000;
/// Limit in bytes of datagrams that a socket has not accepted.
const MAX_UNSENT_BYTES: usize = 256 << 10;
/// Delay before retrying a socket that accepts nothing, in milliseconds.
const RETRY_DELAY_MS: u32 = 20;

/// Packs segments into datagrams.
struct Packer<'s> {
    settings: &'s Settings,
    encoder: Option<&'s mut Encoder>,
    nonces: &'s mut Nonces,
    out: &'s mut OutgoingDatagrams,
    validation: Option<&'s mut AddressValidation>,
    /// Offset of the datagram that is not full yet.
    begin: Option<usize>,
}

impl Sink for Packer<'_> {
    /// Computed as if each segment started another datagram.
    fn room(&self) -> usize {
        let Some(validation) = &self.validation else { return usize::MAX };
        let unfinished = self.begin.map_or(0, |begin| self.out.end() - begin);
        validation.allowance().saturating_sub(unfinished + self.settings.overhead())
    }

    fn put(&mut self, segment: &Segment<'_>) {
        let end = self.out.end();
        if self.begin.is_some_and(|begin| end - begin + segment.len() > self.settings.config.mtu) {
            self.finish(self.settings.overhead() + segment.len());
        }
        if self.begin.is_none() {
            self.begin = Some(self.out.end());
            let overhead = self.out.end() + self.settings.overhead();
            self.out.bytes().resize(overhead, 0);
        }
        if let (Some(validation), Command::Push) = (&mut self.validation, segment.command) {
            validation.record_segment(segment.sn, segment.ts);
        }
        segment.put(self.out.bytes());
    }
}

impl Packer<'_> {
    /// Finishes the datagram. `reserved` bytes of an unvalidated peer's allowance are kept for the following ones.
    fn finish(&mut self, reserved: usize) {
        let Some(begin) = self.begin.take() else { return };
        let Self { settings, encoder, nonces, out, validation, .. } = self;
        let outside = settings.envelope.overhead();
        let is_last_of_group =
            encoder.as_mut().is_some_and(|encoder| encoder.protect(&mut out.bytes()[begin + outside..]));
        settings.envelope.seal(&mut out.bytes()[begin..], nonces);
        if let Some(validation) = validation {
            validation.record_sent(out.end() - begin);
        }
        out.finish(begin);
        if let Some(encoder) = encoder.as_mut().filter(|_| is_last_of_group) {
            encoder.parity(|header, parity| {
                if let Some(validation) = validation {
                    let length = outside + header.len() + parity.len();
                    // Parity is optional: without room it is omitted.
                    if length + reserved > validation.allowance() {
                        return;
                    }
                    validation.record_sent(length);
                }
                let begin = out.end();
                out.bytes().resize(begin + outside, 0);
                out.bytes().extend_from_slice(&header);
                out.bytes().extend_from_slice(parity);
                settings.envelope.seal(&mut out.bytes()[begin..], nonces);
                out.finish(begin);
            });
        }
    }
}

/// Silence of the peer: it is checked after half of the time for which it may last, and then after each eighth.
///
/// Counted rather than measured: while this process is stopped, datagrams wait in its socket. However late a check is,
/// it counts as one, so that the probes sent with the first checks can be answered before the last.
#[derive(Debug, Clone, Copy)]
struct Silence {
    next: Millis,
    /// How much of the time has passed, as far as it was checked.
    eighths: u32,
}

impl Silence {
    fn start(now: Millis, limit: u32) -> Self {
        Self { next: now.after(limit / 2), eighths: 0 }
    }

    /// Performs the check that is due, if one is. Returns whether it is.
    fn check(&mut self, now: Millis, limit: u32) -> bool {
        let is_due = self.next.is_reached(now);
        if is_due {
            self.eighths = (self.eighths + 1).max(4);
            self.next = now.after(limit / 8);
        }
        is_due
    }

    /// Whether it has lasted for this many times the limit.
    fn has_lasted(&self, limits: u32) -> bool {
        self.eighths >= 8 * limits
    }
}

/// Liveness of the peer.
///
/// Anyone can start a conversation under any address. Until the peer has shown that it receives our datagrams, it is
/// given up sooner, and soonest if it started the conversation.
#[derive(Debug)]
struct PeerLiveness {
    idle: u32,
    /// The peer has started the conversation, and gets the longer timeout once it is validated.
    is_accepted: bool,
    /// The peer knows ends: it is told, should it return after it was given up.
    knows_ends: bool,
    /// Its datagrams appear to respond to ours, which can be forged.
    answers: bool,
    is_proven: bool,
    silence: Silence,
}

impl PeerLiveness {
    fn new(idle: u32, now: Millis) -> Self {
        let idle = idle.clamp(MIN_IDLE_MS, i32::MAX as u32);
        let mut life = Self {
            idle,
            is_accepted: false,
            knows_ends: false,
            answers: false,
            is_proven: false,
            silence: Silence::start(now, idle),
        };
        life.record_received(now, false, false);
        life
    }

    /// Records that the peer has started the conversation.
    fn accept(&mut self, now: Millis) {
        self.is_accepted = true;
        self.silence = Silence::start(now, self.idle_limit());
    }

    fn record_received(&mut self, now: Millis, answers: bool, validated: bool) {
        self.answers |= answers;
        self.is_proven |= answers && validated;
        self.silence = Silence::start(now, self.idle_limit());
    }

    /// Whether to send a probe, once now and again later.
    fn wants_probe(&mut self, now: Millis) -> bool {
        self.silence.check(now, self.idle_limit())
    }

    fn is_over(&self) -> bool {
        self.silence.has_lasted(if self.tolerates_silence() { SILENCE_FACTOR } else { 1 })
    }

    /// Whether the peer has not answered the probes in time.
    fn is_overdue(&self) -> bool {
        self.silence.has_lasted(1)
    }

    fn tolerates_silence(&self) -> bool {
        self.is_accepted && self.is_proven && !self.knows_ends
    }

    fn idle_limit(&self) -> u32 {
        if self.is_proven {
            self.idle
        } else if self.answers || !self.is_accepted {
            self.idle / 6
        } else {
            (self.idle / 12).min(UNVALIDATED_TIMEOUT_MS)
        }
    }
}

/// Factor by which a validated peer that started the conversation may be silent for longer.
const SILENCE_FACTOR: u32 = 10;

/// How long a peer that has answered nothing may be silent, in milliseconds.
const UNVALIDATED_TIMEOUT_MS: u32 = 5000;

/// Below this, a delayed acknowledgement would look like silence.
const MIN_IDLE_MS: u32 = 3000;

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the conversation was closed",
            Self::ClosedByPeer => "the peer has closed the conversation",
            Self::Unknown => "the peer has no such conversation",
            Self::StartMissing => "the peer has started the conversation with a predecessor of this process",
            Self::Silent => "the peer is silent",
            Self::Unanswered => "the peer does not acknowledge sent data",
            Self::Replaced => "the peer has begun another conversation",
            Self::Evicted => "the slot was needed for another peer",
        })
    }
}

impl std::error::Error for EndReason {}

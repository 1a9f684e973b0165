use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;

use super::arq::{Arq, Origin, Sink};
use super::fec::{self, Decoder, Encoder, Shard};
use super::packet::{Nonces, OutgoingDatagrams};
use super::segment::{Command, Segment};
use super::settings::{OpenedDatagram, Settings};
use super::time::Millis;
use super::validation::AddressValidation;

/// One side of a conversation: datagrams in and out, a stream of bytes in and out.
///
/// Whoever drives it hands over what the socket receives ([`handle`](Self::handle)) and what is to be written
/// ([`write`](Self::write), then [`flush`](Self::flush)), calls [`wake`](Self::wake) when
/// [`next_alarm`](Self::next_alarm) has come, and after each of these sends the [`datagram`](Self::datagram)s there
/// are.
///
/// KCP has no word for the end. A conversation ends when the peer is silent for too long, even when asked for a sign
/// of life; one that is [closed](Self::close) still has what was written delivered. One that the peer has begun is borne
/// with: a client of `kcp-go` never notices that its conversation has ended, and would call into the void for ever.
///
/// ```text
///            close                settled, and a moment for what comes late
///   open ──────────▶ closing ───────────────────────────────────────────▶ ended
///    └── silent, or unanswered ──────────────────────────────────────────▶ ended
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
    /// `None`: the peer is where its datagrams say it is.
    validation: Option<Box<AddressValidation>>,
    closed: Option<Millis>,
    ended: Option<Ended>,
}

/// Why a conversation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was closed here.
    Closed,
    /// Nothing came from the peer, though it was asked for a sign of life.
    Silent,
    /// The peer did not acknowledge what it was sent over and over again.
    Unanswered,
    /// The peer has begun another one.
    Replaced,
    /// Its address was not validated when the place was needed for another peer.
    Evicted,
}

impl Session {
    /// A conversation under this number. `seed` must be random; equal seeds give equal nonces.
    pub fn new(settings: Arc<Settings>, conv: u32, seed: [u8; 32], now: Millis) -> Self {
        let (encoder, decoder) = settings.correction();
        Self {
            arq: Arq::new(conv, settings.config.tuning, settings.mss()),
            encoder,
            decoder,
            nonces: Nonces::new(seed),
            out: OutgoingDatagrams::default(),
            life: PeerLiveness::new(settings.config.idle.as_millis().try_into().unwrap_or(u32::MAX), now),
            validation: None,
            closed: None,
            ended: None,
            settings,
        }
    }

    /// The same with a conversation that the peer has begun, whose address may be forged. Until it has acknowledged
    /// something, it is sent at most three times the bytes that came from it (RFC 9000 §8.1).
    pub fn accept(settings: Arc<Settings>, conv: u32, seed: [u8; 32], now: Millis) -> Self {
        let mut session = Self::new(settings, conv, seed, now);
        let [a, b, c, d, ..] = session.nonces.next();
        session.arq.distrust(u32::from_le_bytes([a, b, c, d]));
        session.validation = Some(Box::default());
        session.life.is_accepted = true;
        session
    }

    /// Takes a datagram. What is wrong with it is ignored: anybody can send one.
    pub fn handle(&mut self, now: Millis, datagram: OpenedDatagram<'_>) {
        if let Some(validation) = &mut self.validation {
            validation.received(datagram.length);
        }
        if let Shard::Data { segments, .. } = datagram.shard {
            self.validate(segments);
            if let Ok(answers) = self.arq.handle(now, segments, Origin::Received) {
                self.life.heard(now, answers, self.validation.is_none());
            }
        }
        for recovered in self.recover(datagram.shard) {
            if let Some(segments) = fec::sized(&recovered) {
                self.validate(segments);
                let _ = self.arq.handle(now, segments, Origin::Recovered);
            }
        }
        if self.closed.is_some() {
            self.arq.discard();
        }
        self.flush_if_urgent(now);
    }

    /// Takes as much of what is to be sent as there is room for. It leaves with the next [`flush`](Self::flush).
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.closed.is_some() || self.ended.is_some() { 0 } else { self.arq.write(bytes) }
    }

    /// Moves up to `most` bytes of what has come.
    pub fn read(&mut self, now: Millis, into: &mut BytesMut, most: usize) -> usize {
        let read = self.arq.read(into, most);
        self.flush_if_urgent(now);
        read
    }

    /// Makes datagrams of what is to be sent now.
    pub fn flush(&mut self, now: Millis) {
        // What the socket has not taken yet is not buried under repeats of it.
        if self.out.len() >= UNSENT || self.ended.is_some() {
            return self.arq.postpone(now.after(RETRY));
        }
        let Self { settings, arq, encoder, nonces, out, validation, .. } = self;
        let (encoder, validation) = (encoder.as_mut(), validation.as_deref_mut());
        let mut packer = Packer { settings, encoder, nonces, out, validation, begin: None };
        arq.flush(now, &mut packer);
        packer.finish(0);
    }

    /// Does what is to be done at this time.
    pub fn wake(&mut self, now: Millis) {
        if self.life.wants_probe(now) {
            self.arq.probe();
        }
        if self.arq.is_due(now) || self.arq.is_urgent() {
            self.flush(now);
        }
        self.ended = self.ended.or_else(|| self.end(now));
    }

    /// When to [`wake`](Self::wake) it. `None`: it has ended.
    pub fn next_alarm(&self) -> Option<Millis> {
        if self.ended.is_some() {
            return None;
        }
        let farewell =
            self.closed.map(|closed| closed.after(if self.arq.is_settled() { LINGER } else { FAREWELL }));
        let others = [self.arq.next_alarm(), farewell].into_iter().flatten();
        Some(others.fold(self.life.alarm(), Millis::earlier))
    }

    /// The next datagram to send; it stays the next until it is [sent](Self::sent).
    pub fn datagram(&self) -> Option<&[u8]> {
        self.out.first()
    }

    /// The datagram was sent, or cannot be.
    pub fn sent(&mut self) {
        self.out.advance();
    }

    /// Nothing more will be written or read. What was written still is delivered.
    pub fn close(&mut self, now: Millis) {
        self.closed.get_or_insert(now);
        self.arq.discard();
        self.flush(now);
    }

    /// The peer has begun another conversation.
    pub fn replace(&mut self) {
        self.ended.get_or_insert(Ended::Replaced);
    }

    /// Ends it since its place is needed.
    pub fn evict(&mut self) {
        self.ended.get_or_insert(Ended::Evicted);
        self.arq.discard();
    }

    /// Whether the peer has proven that it receives what is sent to its address. The side that began the conversation
    /// need not ask.
    pub fn is_validated(&self) -> bool {
        self.validation.is_none()
    }

    /// Ends it if it is only borne with, and returns whether it has ended.
    pub fn give_up(&mut self, now: Millis) -> bool {
        if self.life.is_overdue(now) {
            self.ended.get_or_insert(Ended::Silent);
        }
        self.ended.is_some()
    }

    /// Why it has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Whether there is something to be read.
    pub fn is_readable(&self) -> bool {
        self.arq.is_readable()
    }

    /// Whether something would be taken to be sent.
    pub fn is_writable(&self) -> bool {
        self.arq.is_writable()
    }

    /// Whether all that was written has arrived.
    pub fn is_settled(&self) -> bool {
        self.arq.is_settled()
    }

    /// Bytes that are kept, as if each segment were full: received and not read, written and not acknowledged, not taken
    /// by the socket.
    pub fn held(&self) -> usize {
        self.arq.segments() * self.settings.mss() + self.out.len()
    }

    /// Lets go of memory that a burst has left, if nothing waits in it.
    pub fn rest(&mut self) {
        self.arq.rest();
        self.out.rest();
        if let Some(decoder) = &mut self.decoder {
            decoder.rest();
        }
    }

    /// As a client of `kcp-go`, which never gives a conversation up.
    #[cfg(test)]
    pub(super) fn bear_with_peer(&mut self) {
        self.life.is_accepted = true;
    }

    /// Looks whether the segments of a datagram prove the peer's address.
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

    fn end(&self, now: Millis) -> Option<Ended> {
        let since_closed = self.closed.map_or(-1, |closed| now.since(closed));
        let is_delivered = self.arq.is_settled() && since_closed >= LINGER as i32;
        if is_delivered || since_closed >= FAREWELL as i32 {
            Some(Ended::Closed)
        } else if self.arq.is_dead() && !self.life.bears() {
            Some(Ended::Unanswered)
        } else {
            self.life.is_over(now).then_some(Ended::Silent)
        }
    }
}

/// How long a closed conversation acknowledges what comes late, in milliseconds.
const LINGER: u32 = 1000;
/// How long it tries to deliver what was written.
const FAREWELL: u32 = 15_000;
/// Bytes of datagrams that a socket has not taken.
const UNSENT: usize = 256 << 10;
/// How long to wait for a socket that takes nothing, in milliseconds.
const RETRY: u32 = 20;

/// Makes datagrams of segments.
struct Packer<'s> {
    settings: &'s Settings,
    encoder: Option<&'s mut Encoder>,
    nonces: &'s mut Nonces,
    out: &'s mut OutgoingDatagrams,
    validation: Option<&'s mut AddressValidation>,
    /// Where the datagram begins that is not full yet.
    begin: Option<usize>,
}

impl Sink for Packer<'_> {
    /// As if each began another datagram.
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
            validation.segment(segment.sn, segment.ts);
        }
        segment.put(self.out.bytes());
    }
}

impl Packer<'_> {
    /// Finishes the datagram. For what follows it, so many bytes of what an unvalidated peer is sent are `reserved`.
    fn finish(&mut self, reserved: usize) {
        let Some(begin) = self.begin.take() else { return };
        let Self { settings, encoder, nonces, out, validation, .. } = self;
        let outside = settings.envelope.overhead();
        let is_last_of_group =
            encoder.as_mut().is_some_and(|encoder| encoder.protect(&mut out.bytes()[begin + outside..]));
        settings.envelope.seal(&mut out.bytes()[begin..], nonces);
        if let Some(validation) = validation {
            validation.sent(out.end() - begin);
        }
        out.finish(begin);
        if let Some(encoder) = encoder.as_mut().filter(|_| is_last_of_group) {
            encoder.parity(|header, parity| {
                if let Some(validation) = validation {
                    let length = outside + header.len() + parity.len();
                    // Parity is a convenience: without room for it there is none.
                    if length + reserved > validation.allowance() {
                        return;
                    }
                    validation.sent(length);
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

/// Whether there is a peer at all.
///
/// Anybody can begin a conversation under any address. Until the peer has shown that it gets what we send, it is given
/// up sooner, and soonest where it was the one to begin.
#[derive(Debug)]
struct PeerLiveness {
    idle: u32,
    /// The peer has begun it, and is borne with once it is proven.
    is_accepted: bool,
    /// It has written as if it had seen what we wrote, which can be forged.
    answers: bool,
    is_proven: bool,
    heard: Millis,
    probe: Millis,
}

impl PeerLiveness {
    fn new(idle: u32, now: Millis) -> Self {
        let idle = idle.clamp(LEAST_IDLE, i32::MAX as u32);
        let mut life =
            Self { idle, is_accepted: false, answers: false, is_proven: false, heard: now, probe: now };
        life.heard(now, false, false);
        life
    }

    fn heard(&mut self, now: Millis, answers: bool, validated: bool) {
        self.answers |= answers;
        self.is_proven |= answers && validated;
        self.heard = now;
        self.probe = now.after(self.patience() / 2);
    }

    /// Whether to ask for a sign of life, once now and again later.
    fn wants_probe(&mut self, now: Millis) -> bool {
        let wanted = self.probe.reached(now);
        if wanted {
            self.probe = now.after(self.patience() / 8);
        }
        wanted
    }

    fn is_over(&self, now: Millis) -> bool {
        self.end().reached(now)
    }

    /// The peer does not give the sign of life that it is asked for.
    fn is_overdue(&self, now: Millis) -> bool {
        self.heard.after(self.patience()).reached(now)
    }

    fn alarm(&self) -> Millis {
        self.probe.earlier(self.end())
    }

    fn end(&self) -> Millis {
        let forbearance = if self.bears() { FORBEARANCE } else { 1 };
        self.heard.after(self.patience().saturating_mul(forbearance).min(i32::MAX as u32))
    }

    fn bears(&self) -> bool {
        self.is_accepted && self.is_proven
    }

    fn patience(&self) -> u32 {
        if self.is_proven {
            self.idle
        } else if self.answers || !self.is_accepted {
            self.idle / 6
        } else {
            (self.idle / 12).min(UNVALIDATED)
        }
    }
}

/// How many times longer a peer that is borne with may be silent.
const FORBEARANCE: u32 = 10;

/// How long a peer may be silent that has answered nothing, in milliseconds.
const UNVALIDATED: u32 = 5000;

/// Below this, an acknowledgement that waits would look like silence.
const LEAST_IDLE: u32 = 3000;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the conversation was closed",
            Self::Silent => "the peer is silent",
            Self::Unanswered => "the peer does not acknowledge what it is sent",
            Self::Replaced => "the peer has begun another conversation",
            Self::Evicted => "the place was needed before the peer's address was validated",
        })
    }
}

impl std::error::Error for Ended {}

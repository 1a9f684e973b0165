//! Definition of an attack.

use std::time::Duration;

use super::frames::Frames;

/// The bytes that an attacker sends on each connection, and the expected reaction of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// Number of open connections.
    pub(super) connections: usize,
    /// Frames after preface and SETTINGS.
    pub(super) opening: fn(&mut Frames),
    /// Frames of each following turn.
    pub(super) turn: fn(&mut Frames, u32),
    pub(super) pace: Pace,
    /// Whether it reads the server's frames.
    pub(super) reads: bool,
    pub(super) fate: Fate,
    /// Minimum duration until the server reacts.
    pub(super) least: Duration,
}

/// When an attacker starts its next turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// As soon as the server reads it.
    Flood,
    /// When the server has answered all but this many of the earlier turns.
    InStep(u32, Answer),
    /// Never: there is only the opening.
    Once,
}

/// The server's response to a turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// The end of a stream.
    End,
    /// An acknowledgement of PING or SETTINGS.
    Ack,
}

/// Fate of the attacker's connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// The server sends GOAWAY with one of these codes, and closes it.
    SentAway(&'static [u32]),
    /// The server closes it without GOAWAY.
    Closed,
    /// It stays open, and costs the server no more than legitimate traffic.
    Bounded,
}

pub(super) const STREAM_CLOSED: u32 = 5;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

impl Attack {
    pub(super) const fn flood(name: &'static str, turn: fn(&mut Frames, u32)) -> Self {
        Self {
            name,
            connections: 1,
            opening: |_| {},
            turn,
            pace: Pace::Flood,
            reads: true,
            fate: Fate::SentAway(&[ENHANCE_YOUR_CALM]),
            least: Duration::ZERO,
        }
    }

    pub(super) const fn with_opening(self, opening: fn(&mut Frames)) -> Self {
        Self { opening, ..self }
    }

    pub(super) const fn with_bounded_fate(self) -> Self {
        Self { fate: Fate::Bounded, ..self }
    }

    pub(super) const fn with_steps(self, ahead: u32, answer: Answer) -> Self {
        Self { pace: Pace::InStep(ahead, answer), fate: Fate::Bounded, ..self }
    }
}

/// Not an attack: a client that calls as fast as it can, with as many concurrent calls as every server should allow
/// (RFC 9113, §6.5.2). Its cost to others is that of any busy client.
pub(super) const NEIGHBOUR: Attack = Attack::flood("neighbour", |frames, turn| {
    frames.call(super::frames::stream(turn), super::frames::ECHO);
})
.with_opening(Frames::open_windows)
.with_steps(100, Answer::End);

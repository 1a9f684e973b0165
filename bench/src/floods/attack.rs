//! What an attack is, and all of them.

use std::time::Duration;

use super::frames::Frames;
use super::{control, data, headers, resets, slow};

/// What an attacker sends on each of its connections, and what the server is expected to make of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// How many connections it keeps open.
    pub(super) connections: usize,
    /// What follows preface and SETTINGS.
    pub(super) opening: fn(&mut Frames),
    /// What follows then, turn by turn.
    pub(super) turn: fn(&mut Frames, u32),
    pub(super) pace: Pace,
    /// Whether it reads what the server says.
    pub(super) reads: bool,
    pub(super) fate: Fate,
    /// How long it must go on for the server to do something about it.
    pub(super) least: Duration,
}

/// When an attacker takes its next turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// As soon as the server takes it.
    Flood,
    /// When the server has answered all but so many of the turns before.
    InStep(u32, Answer),
    /// Never: the opening was all.
    Once,
}

/// What the server's answer to a turn is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// The end of a stream.
    End,
    /// An acknowledgement of a PING or of SETTINGS.
    Ack,
}

/// What becomes of the attacker's connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// The server says GOAWAY with one of these codes, and closes it.
    SentAway(&'static [u32]),
    /// The server closes it without a word.
    Closed,
    /// It goes on, and costs the server no more than honest traffic would.
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

    pub(super) const fn opened_by(self, opening: fn(&mut Frames)) -> Self {
        Self { opening, ..self }
    }

    pub(super) const fn bounded(self) -> Self {
        Self { fate: Fate::Bounded, ..self }
    }

    pub(super) const fn in_step(self, ahead: u32, answer: Answer) -> Self {
        Self { pace: Pace::InStep(ahead, answer), fate: Fate::Bounded, ..self }
    }

    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        [&resets::ATTACKS[..], &control::ATTACKS, &headers::ATTACKS, &data::ATTACKS, &slow::ATTACKS]
            .into_iter()
            .flatten()
    }

    pub(super) fn named(name: &str) -> Option<&'static Self> {
        Self::all().chain([&NEIGHBOUR]).find(|attack| attack.name == name)
    }
}

/// No attack: a client that calls as fast as it can, with as many calls under way as every server should allow
/// (RFC 9113, §6.5.2). What it costs others is what any busy client costs them.
pub(super) const NEIGHBOUR: Attack = Attack::flood("neighbour", |frames, turn| {
    frames.call(super::frames::stream(turn), super::frames::ECHO);
})
.opened_by(Frames::open_windows)
.in_step(100, Answer::End);

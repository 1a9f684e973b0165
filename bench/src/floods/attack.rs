//! Definition of an attack.

use std::time::Duration;

use super::frames::Frames;

/// The bytes that an attacker sends on each connection, and the expected reaction of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// Number of open connections.
    pub(super) connections: usize,
    /// Frames sent after the preface and SETTINGS.
    pub(super) opening: fn(&mut Frames),
    /// Frames of each iteration; called with its index.
    pub(super) iteration: fn(&mut Frames, u32),
    pub(super) pace: Pace,
    /// Whether the attacker reads the server's frames.
    pub(super) reads: bool,
    pub(super) expected: ExpectedOutcome,
    /// Minimum duration of the round: the server reacts only after a timeout.
    pub(super) min_duration: Duration,
}

/// When an attacker starts its next iteration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// As soon as the socket accepts it.
    Flood,
    /// When the server has answered all but this many of the earlier iterations.
    InStep(u32, Answer),
    /// Never: there is only the opening.
    Once,
}

/// The frame that answers an iteration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// The end of a stream.
    End,
    /// An acknowledgement of PING or SETTINGS.
    Ack,
}

/// Expected reaction of the server to the attacker's connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExpectedOutcome {
    /// The server sends GOAWAY with one of these error codes and closes the connection.
    GoAway(&'static [u32]),
    /// The server closes the connection without GOAWAY.
    Closed,
    /// The connection stays open and costs the server no more than legitimate traffic.
    Bounded,
}

pub(super) const STREAM_CLOSED: u32 = 5;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

impl Attack {
    pub(super) const fn flood(name: &'static str, iteration: fn(&mut Frames, u32)) -> Self {
        Self {
            name,
            connections: 1,
            opening: |_| {},
            iteration,
            pace: Pace::Flood,
            reads: true,
            expected: ExpectedOutcome::GoAway(&[ENHANCE_YOUR_CALM]),
            min_duration: Duration::ZERO,
        }
    }

    pub(super) const fn with_opening(self, opening: fn(&mut Frames)) -> Self {
        Self { opening, ..self }
    }

    pub(super) const fn with_bounded_outcome(self) -> Self {
        Self { expected: ExpectedOutcome::Bounded, ..self }
    }

    pub(super) const fn with_steps(self, ahead: u32, answer: Answer) -> Self {
        Self { pace: Pace::InStep(ahead, answer), expected: ExpectedOutcome::Bounded, ..self }
    }
}

/// Not an attack: a client that calls as fast as it can, with as many concurrent calls as every server should allow
/// (RFC 9113, §6.5.2). Its cost to others is that of any busy client.
pub(super) const BUSY_CLIENT: Attack = Attack::flood("neighbour", |frames, iteration| {
    frames.call(super::frames::stream(iteration), super::frames::ECHO);
})
.with_opening(Frames::open_windows)
.with_steps(100, Answer::End);

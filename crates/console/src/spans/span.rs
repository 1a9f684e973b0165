use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polyrpc::layer::Side;
use polyrpc::{Code, Status};

/// A call that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) trace: u128,
    pub(crate) id: u64,
    /// The id of the span within which it was called.
    pub(crate) parent: Option<u64>,
    pub(crate) side: Side,
    pub(crate) protocol: &'static str,
    /// The service and the method.
    pub(crate) name: Arc<str>,
    /// The caller; on a client the last server that was called.
    pub(crate) peer: Box<str>,
    pub(crate) log_id: u64,
    pub(crate) began: SystemTime,
    /// Time between the arrival of the request and the start of the call, if it was measured.
    pub(crate) queued: Option<Duration>,
    pub(crate) took: Duration,
    pub(crate) request: usize,
    pub(crate) reply: usize,
    pub(crate) failure: Option<Failure>,
    /// Events within it; empty if it was not recorded from its start.
    pub(crate) events: Vec<Event>,
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// The number of the failure in its protocol.
    pub(crate) number: Option<i32>,
    pub(crate) message: Box<str>,
}

/// Event during a call.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Time since the call began.
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// The end of a phase.
    Phase(&'static str),
    /// A note of the handler, or of the client.
    Note(Box<str>),
}

/// Part of a call between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) name: &'static str,
    /// Time since the call began.
    pub(crate) start: Duration,
    pub(crate) took: Duration,
}

/// Maximum length of the text of a failure.
const MAX_MESSAGE_CHARS: usize = 256;

impl Failure {
    pub(super) fn from_status(status: &Status) -> Self {
        let message = status.message_or_code().chars().take(MAX_MESSAGE_CHARS).collect::<String>();
        Self { code: status.code(), number: status.number(), message: message.into() }
    }
}

impl Span {
    /// Returns the half of the trace's id that brpc's peers use.
    pub(crate) fn trace_low(&self) -> u64 {
        self.trace as u64
    }

    pub(crate) fn end(&self) -> SystemTime {
        self.began + self.took
    }

    /// Returns the phases in order. The time after the last one has no name.
    pub(crate) fn phases(&self) -> Vec<Interval> {
        let mut phases = Vec::new();
        let mut start = Duration::ZERO;
        for event in &self.events {
            if let What::Phase(name) = event.what {
                phases.push(Interval { name, start, took: event.at.saturating_sub(start) });
                start = event.at;
            }
        }
        phases
    }

    /// Returns its approximate size in bytes.
    pub(super) fn footprint(&self) -> usize {
        let note = |event: &Event| match &event.what {
            What::Phase(_) => 0,
            What::Note(text) => text.len(),
        };
        let events =
            self.events.capacity() * size_of::<Event>() + self.events.iter().map(note).sum::<usize>();
        let failure = self.failure.as_ref().map_or(0, |failure| failure.message.len());
        size_of::<Self>() + self.peer.len() + events + failure
    }
}

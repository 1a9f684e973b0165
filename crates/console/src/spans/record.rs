use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use polyrpc::Status;
use polyrpc::layer::Side;
use polyrpc::propagation::{CallTrace, Phase, Trace};

use super::span::{Event, Failure, Span, What};

/// A call in flight that is recorded.
#[derive(Debug)]
pub(super) struct Record {
    trace: Trace,
    began: Instant,
    /// Filled in while it is in flight.
    span: Mutex<Draft>,
    /// Keeps it once it has ended.
    keep: fn(Span),
}

#[derive(Debug)]
struct Draft {
    /// `None` once it has ended.
    span: Option<Span>,
    /// Bytes of its notes.
    note_bytes: usize,
}

/// Maximum number of bytes of the notes of a call.
const MAX_NOTE_BYTES: usize = 4 << 10;

/// Maximum number of events of a call.
const MAX_EVENTS: usize = 128;

impl Record {
    /// Starts the record of a call; `span` has the facts known at its start.
    pub(super) fn new(trace: Trace, span: Span, keep: fn(Span)) -> Self {
        let span = Mutex::new(Draft { span: Some(span), note_bytes: 0 });
        Self { trace, began: Instant::now(), span, keep }
    }

    fn change(&self, change: impl FnOnce(&mut Span, &mut usize)) {
        let mut draft = self.span.lock().unwrap_or_else(PoisonError::into_inner);
        let Draft { span, note_bytes } = &mut *draft;
        if let Some(span) = span {
            change(span, note_bytes);
        }
    }
}

impl CallTrace for Record {
    fn trace(&self) -> Trace {
        self.trace.clone()
    }

    fn phase(&self, phase: Phase<'_>) {
        let at = self.began.elapsed();
        let side = match phase {
            Phase::Connect(_) | Phase::RoundTrip => Side::Client,
            _ => Side::Server,
        };
        self.change(|span, _| {
            // A client that is not observed runs within the server's call.
            if span.side != side || span.events.len() >= MAX_EVENTS {
                return;
            }
            if let Phase::Connect(Some(server)) = phase {
                let server = server.to_string();
                if !span.peer.is_empty() {
                    let note = format!("another attempt, at {server}").into();
                    span.events.push(Event { at, what: What::Note(note) });
                }
                span.peer = server.into();
            }
            span.events.push(Event { at, what: What::Phase(phase.as_str()) });
        });
    }

    fn note(&self, text: fmt::Arguments<'_>) {
        let at = self.began.elapsed();
        // The text is the program's: it is formatted before the lock is taken.
        let mut text = text.to_string();
        self.change(|span, note_bytes| {
            if span.events.len() >= MAX_EVENTS || *note_bytes >= MAX_NOTE_BYTES {
                return;
            }
            let room = text.floor_char_boundary(MAX_NOTE_BYTES - *note_bytes);
            text.truncate(room);
            *note_bytes += text.len();
            span.events.push(Event { at, what: What::Note(text.into()) });
        });
    }

    fn end(&self, took: Duration, failure: Option<&Status>, reply: usize) {
        let span = self.span.lock().unwrap_or_else(PoisonError::into_inner).span.take();
        if let Some(span) = span {
            let failure = failure.map(Failure::from_status);
            (self.keep)(Span { took, reply, failure, ..span });
        }
    }
}

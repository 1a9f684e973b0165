//! A captured call, whose messages stay compressed until it is shown, and the memory of all of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use polyrpc::Compression;
use polyrpc::payload::compress::decompress;
use polyrpc_record::Call;
use polyrpc_record::call::{Message, StreamEvent};

use crate::terminal::pluralize;

/// A call that ended, or whose end was not seen.
pub(super) struct CapturedCall {
    /// The call, whose messages may be compressed.
    pub(super) call: Call,
    pub(super) request: Compression,
    pub(super) response: Compression,
    /// Of each event of the call.
    pub(super) events: Vec<Compression>,
    pub(super) memory: Reservation,
}

impl CapturedCall {
    /// Decompresses the messages, at most [`MAX_UNPACKED`] bytes of them.
    pub(super) fn into_call(self) -> Call {
        let Self { mut call, request, response, events, memory } = self;
        let mut room = MAX_UNPACKED;
        if let Some(message) = &mut call.request {
            unpack(message, request, &mut room);
        }
        if let Some(message) = call.outcome.as_mut().and_then(|outcome| outcome.response.as_mut()) {
            unpack(message, response, &mut room);
        }
        for (event, compression) in call.events.iter_mut().zip(events) {
            if !unpack_event(event, compression, &mut room) {
                memory.budget.note(Omission::Undecoded);
            }
        }
        call
    }
}

fn unpack(message: &mut Message, compression: Compression, room: &mut usize) {
    if compression == Compression::None || !message.omitted.is_empty() {
        return;
    }
    match decompress(compression, &message.body, *room) {
        Ok(unpacked) => {
            *room -= unpacked.len();
            message.body = unpacked.into();
        }
        Err(error) => {
            let length = message.body.len();
            message.omit(format!("{error}, of {length} bytes in {}", compression.as_str()));
        }
    }
}

/// Returns `false` if the message cannot be decompressed, and is left out.
fn unpack_event(event: &mut StreamEvent, compression: Compression, room: &mut usize) -> bool {
    if compression == Compression::None {
        return true;
    }
    let unpacked = decompress(compression, &event.message, *room);
    let is_whole = unpacked.is_ok();
    event.message = unpacked.map_or_else(|_| Bytes::new(), Bytes::from);
    *room -= event.message.len();
    is_whole
}

/// The memory of the calls of all connections whose end was not seen yet, and what was left out for want of it.
#[derive(Debug)]
pub(super) struct Budget {
    used: Cell<usize>,
    /// In bytes.
    limit: usize,
    omissions: RefCell<BTreeMap<Omission, u64>>,
}

/// What was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Omission {
    Call,
    Body,
    Event,
    Undecoded,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { used: Cell::new(0), limit, omissions: RefCell::default() })
    }

    pub(super) fn note(&self, omission: Omission) {
        *self.omissions.borrow_mut().entry(omission).or_default() += 1;
    }

    /// Describes the omitted parts.
    pub(super) fn notes(&self) -> Vec<String> {
        let omissions = self.omissions.borrow();
        let sentence = |(omission, count): (&Omission, &u64)| {
            let were = if *count == 1 { "was" } else { "were" };
            let mib = self.limit >> 20;
            match omission {
                Omission::Call => format!(
                    "{} {were} not kept: too many had no answer yet (100,000 of a connection, {mib} MiB of all)",
                    pluralize(*count, "call")
                ),
                Omission::Body => format!(
                    "{} {were} not kept: calls without an answer had more than {mib} MiB",
                    pluralize(*count, "request message")
                ),
                Omission::Event => format!(
                    "{} {were} not kept: of a stream 10,000 and 64 MiB are, of all streams {mib} MiB",
                    pluralize(*count, "message")
                ),
                Omission::Undecoded => format!(
                    "{} of streams could not be decompressed, or had more than 64 MiB",
                    pluralize(*count, "message")
                ),
            }
        };
        omissions.iter().map(sentence).collect()
    }

    /// A reservation of no bytes.
    pub(super) fn reservation(self: &Rc<Self>) -> Reservation {
        Reservation { budget: Rc::clone(self), bytes: 0 }
    }
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Reservation {
    /// Takes more of the budget; returns `false` if it does not have so much.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        let used = self.budget.used.get().saturating_add(bytes);
        let fits = used <= self.budget.limit;
        if fits {
            self.budget.used.set(used);
            self.bytes += bytes;
        }
        fits
    }

    pub(super) fn note(&self, omission: Omission) {
        self.budget.note(omission);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get().saturating_sub(self.bytes));
    }
}

/// Maximum number of bytes of a call's messages after decompression.
const MAX_UNPACKED: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use polyrpc::Format;
    use polyrpc::payload::compress::compress;
    use polyrpc_record::call::Outcome;

    fn captured_call(budget: &Rc<Budget>, request: &[u8], response: &[u8], events: &[&[u8]]) -> CapturedCall {
        let zipped = |bytes: &[u8]| Bytes::from(compress(Compression::Gzip, bytes).unwrap());
        let message = |bytes| Some(Message::new(Format::Protobuf, zipped(bytes)));
        let event = |bytes: &&[u8]| StreamEvent { message: zipped(bytes), ..StreamEvent::default() };
        CapturedCall {
            call: Call {
                request: message(request),
                outcome: Some(Outcome { response: message(response), ..Outcome::default() }),
                events: events.iter().map(event).collect(),
                ..Call::default()
            },
            request: Compression::Gzip,
            response: Compression::Gzip,
            events: vec![Compression::Gzip; events.len()],
            memory: budget.reservation(),
        }
    }

    #[test]
    fn messages_are_decompressed_when_the_call_is_shown() {
        let budget = Budget::new(0);
        let call = captured_call(&budget, b"question", b"answer", &[b"event"]).into_call();
        assert_eq!(call.request.unwrap().body, "question");
        assert_eq!(call.outcome.unwrap().response.unwrap().body, "answer");
        assert_eq!(call.events[0].message, "event");
        assert!(budget.notes().is_empty());
    }

    #[test]
    fn call_has_a_bound_after_decompression() {
        let budget = Budget::new(0);
        let large = vec![0; MAX_UNPACKED / 2 + 1];
        let mut damaged = captured_call(&budget, &large, &large, &[&large, b"event"]);
        damaged.call.events[1].message = Bytes::from_static(b"no gzip");
        let call = damaged.into_call();
        assert_eq!(call.request.unwrap().body.len(), large.len());
        let response = call.outcome.unwrap().response.unwrap();
        assert!(response.body.is_empty() && response.omitted.contains("in gzip"), "{}", response.omitted);
        assert!(call.events.iter().all(|event| event.message.is_empty()));
        let notes = budget.notes();
        assert!(notes[0].starts_with("2 messages of streams could not be decompressed"), "{notes:?}");
    }

    #[test]
    fn reservation_gives_its_bytes_back() {
        let budget = Budget::new(10);
        let mut first = budget.reservation();
        assert!(first.add(6) && first.add(4) && !first.add(1));
        drop(first);
        assert!(budget.reservation().add(10));
    }
}

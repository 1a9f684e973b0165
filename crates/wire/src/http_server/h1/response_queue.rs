//! Responses leave in the order of their requests, whenever they are ready.

use bytes::Bytes;
use polyrpc_core::Outbox;

use crate::http::cors::expose;
use crate::http::field;

/// Which requests are owed a response, and the responses that are ready before their turn.
///
/// A connection that answers one request after the other keeps nothing here.
#[derive(Debug, Default)]
pub(super) struct ResponseQueue {
    /// The oldest request that is owed a response.
    first: u64,
    /// The number the next request gets.
    next: u64,
    /// Responses to later requests than the first.
    early: Vec<(Exchange, Response)>,
    /// Bytes of `early`, and of what is gathered for later responses.
    held: usize,
    /// The newest request is the last one: its response says so.
    closing: bool,
}

/// One request and its response on their connection.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    number: u64,
    /// The peer speaks HTTP/1.0, where a connection stays open only if both sides say so.
    http10: bool,
    /// The response has a head only (`HEAD`).
    head_only: bool,
    /// A page of this origin may read the response.
    origin: Option<Bytes>,
}

#[derive(Debug)]
struct Response {
    head: Vec<u8>,
    body: Bytes,
}

impl Exchange {
    /// Its place in the order.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the peer takes a response in chunks.
    pub(super) fn takes_chunks(&self) -> bool {
        !self.http10
    }
}

impl ResponseQueue {
    /// A request arrived whole.
    pub(super) fn open(&mut self, http10: bool, head_only: bool, origin: Option<Bytes>) -> Exchange {
        let number = self.next;
        self.next += 1;
        Exchange { number, http10, head_only, origin }
    }

    /// Responds with the body that `write` returns and the head it writes, connection fields and empty
    /// line excepted; at once if it is this exchange's turn, else later.
    pub(super) fn respond(
        &mut self,
        exchange: Exchange,
        out: &mut Outbox,
        write: impl FnOnce(&mut Vec<u8>) -> Bytes,
    ) {
        if exchange.number == self.first {
            let body = write(out.buffer());
            self.finish(&exchange, body, out);
            self.release(out);
        } else {
            let mut head = Vec::new();
            let body = write(&mut head);
            self.held += head.len() + body.len();
            self.early.push((exchange, Response { head, body }));
        }
    }

    /// Ends the head of a response whose body follows piece by piece; nothing else is owed meanwhile.
    pub(super) fn start_streamed(&self, exchange: &Exchange, out: &mut Outbox) {
        self.end_head(exchange, self.pending() == 1, out);
    }

    /// The last piece of such a response was written.
    pub(super) fn end(&mut self) {
        self.first += 1;
    }

    /// No request comes after the newest one.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether the newest request is the last one.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// The number that the next request gets.
    pub(super) fn upcoming(&self) -> u64 {
        self.next
    }

    /// What is gathered for a later response has grown, or left.
    pub(super) fn holds(&mut self, before: usize, after: usize) {
        self.held = self.held.saturating_add(after).saturating_sub(before);
    }

    /// Bytes of responses that wait for their turn.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// How many requests are owed a response.
    pub(super) fn pending(&self) -> u64 {
        self.next - self.first
    }

    fn release(&mut self, out: &mut Outbox) {
        while let Some(at) = self.early.iter().position(|(exchange, _)| exchange.number == self.first) {
            let (exchange, response) = self.early.swap_remove(at);
            self.held -= response.head.len() + response.body.len();
            out.extend_from_slice(&response.head);
            self.finish(&exchange, response.body, out);
        }
    }

    fn finish(&mut self, exchange: &Exchange, body: Bytes, out: &mut Outbox) {
        self.first += 1;
        self.end_head(exchange, self.pending() == 0, out);
        if !exchange.head_only {
            out.body(body);
        }
    }

    /// Ends the head in `out`, which only now is known to be the connection's last or not.
    fn end_head(&self, exchange: &Exchange, newest: bool, out: &mut Outbox) {
        let head = out.buffer();
        if let Some(origin) = &exchange.origin {
            expose(origin, |name, value| field::field(head, name, value));
        }
        if self.closing && newest {
            field::field(head, "Connection", b"close");
        } else if exchange.http10 {
            field::field(head, "Connection", b"keep-alive");
        }
        head.extend_from_slice(b"\r\n");
    }
}

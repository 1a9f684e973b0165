//! Sends responses in the order of their requests, whatever order they are ready in.

use bytes::Bytes;
use polyrpc_core::Outbox;

use crate::http::cors::expose;
use crate::http::field;

/// Tracks which requests await a response, and stores responses that are ready before their turn.
///
/// Stores nothing if a connection answers one request after the other.
#[derive(Debug, Default)]
pub(super) struct ResponseQueue {
    /// Number of the oldest request that awaits a response.
    first: u64,
    /// Number of the next request.
    next: u64,
    /// Responses to requests other than the first.
    early: Vec<(Exchange, Response)>,
    /// Bytes of `early`, and of data gathered for later responses.
    held: usize,
    /// The newest request is the last one; its response announces this.
    closing: bool,
}

/// A request and its response on their connection.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    number: u64,
    /// The peer uses HTTP/1.0, where a connection is only kept open if both sides request it.
    http10: bool,
    /// The response consists of a head only (`HEAD`).
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
    /// Returns its position in the order.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the peer accepts chunked responses.
    pub(super) fn takes_chunks(&self) -> bool {
        !self.http10
    }
}

impl ResponseQueue {
    /// Registers a complete request.
    pub(super) fn open(&mut self, http10: bool, head_only: bool, origin: Option<Bytes>) -> Exchange {
        let number = self.next;
        self.next += 1;
        Exchange { number, http10, head_only, origin }
    }

    /// Sends a response with the body that `write` returns and the head that it writes, without connection fields and
    /// empty line; immediately if it is this exchange's turn, otherwise later.
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

    /// Ends the head of a response with a streamed body; no other response is pending meanwhile.
    pub(super) fn start_streamed(&self, exchange: &Exchange, out: &mut Outbox) {
        self.end_head(exchange, self.pending() == 1, out);
    }

    /// Marks a streamed response as complete.
    pub(super) fn end(&mut self) {
        self.first += 1;
    }

    /// Marks the newest request as the last one.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Whether the newest request is the last one.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns the number of the next request.
    pub(super) fn upcoming(&self) -> u64 {
        self.next
    }

    /// Updates the size of data gathered for a later response.
    pub(super) fn update_held(&mut self, before: usize, after: usize) {
        self.held = self.held.saturating_add(after).saturating_sub(before);
    }

    /// Returns the number of bytes of responses that wait for their turn.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of requests that await a response.
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

    /// Ends the head in `out`; only now it is known whether it is the last one of the connection.
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

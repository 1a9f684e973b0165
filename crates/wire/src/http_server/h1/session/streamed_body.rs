//! A gRPC-Web body whose messages are emitted before it is complete.

use bytes::{Bytes, BytesMut};
use polyrpc_core::{Compression, Message, Status};

use super::remaining_body::RemainingBody;
use crate::grpc::dialect::Dialect;
use crate::grpc::incoming::{Incoming, Next};
use crate::http::h1::chunked::Chunked;
use crate::http::h1::frame::BodyLength;

/// The messages of a request, and the part of its body that has not been received.
///
/// Reading pauses while the handler has not consumed as many bytes as the longest allowed message has.
#[derive(Debug)]
pub(super) struct StreamedBody {
    messages: Incoming,
    rest: RemainingBody,
    /// Bytes of messages that were emitted but not consumed.
    unconsumed: usize,
    /// Number of bytes discarded so far, if the call has ended and further input is discarded.
    discarded: Option<usize>,
}

/// The next part of the body.
#[derive(Debug)]
pub(super) enum NextMessage {
    Message(Message),
    /// More bytes are needed.
    Wait,
    /// The handler must consume messages first.
    Full,
    End,
    Failed(Status),
    /// The unwanted rest has been discarded.
    Discarded,
    /// The rest is too long to discard, or its end cannot be determined.
    Lost,
}

impl StreamedBody {
    /// Creates it from a complete body.
    pub(super) fn from_whole(dialect: Dialect, compression: Compression, body: Bytes) -> Self {
        let mut messages = Incoming::new(dialect, compression);
        messages.push(body);
        messages.end();
        Self { messages, rest: RemainingBody::Nothing, unconsumed: 0, discarded: None }
    }

    /// Creates it from a partially received body.
    pub(super) fn from_partial(
        dialect: Dialect,
        compression: Compression,
        body_length: BodyLength,
        mut chunked: Chunked,
    ) -> Self {
        let mut messages = Incoming::new(dialect, compression);
        messages.push(chunked.take());
        let rest = RemainingBody::new(body_length, chunked);
        Self { messages, rest, unconsumed: 0, discarded: None }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn held(&self) -> usize {
        self.messages.held()
    }

    /// Whether a message, or a body that is discarded, is incomplete.
    pub(super) fn is_inside(&self) -> bool {
        !self.rest.is_nothing() && (self.held() > 0 || self.discarded.is_some())
    }

    /// Records bytes that the handler has consumed.
    pub(super) fn record_consumed(&mut self, bytes: usize) {
        self.unconsumed = self.unconsumed.saturating_sub(bytes);
    }

    /// Discards the rest.
    pub(super) fn discard_rest(&mut self) {
        self.discarded.get_or_insert(0);
    }

    /// Returns the next part, for messages of at most `limit` bytes; chunk framing may add `overhead` bytes.
    pub(super) fn next(&mut self, inbox: &mut BytesMut, limit: usize, overhead: usize) -> NextMessage {
        if self.discarded.is_some() {
            return self.discard(inbox, limit, overhead);
        }
        loop {
            if self.unconsumed > limit {
                return NextMessage::Full;
            }
            match self.messages.next(limit) {
                Ok(Next::Message(message)) => {
                    self.unconsumed += message.body.len();
                    return NextMessage::Message(message);
                }
                Ok(Next::End) => return NextMessage::End,
                Err(status) => return NextMessage::Failed(status),
                Ok(Next::Wait) => {}
            }
            match self.rest.pull(inbox, overhead) {
                Ok(Some(piece)) => {
                    self.messages.push(piece);
                }
                Ok(None) => return NextMessage::Wait,
                Err(refusal) => return NextMessage::Failed(Status::internal(refusal.reason)),
            }
            if self.rest.is_nothing() {
                self.messages.end();
            }
        }
    }

    fn discard(&mut self, inbox: &mut BytesMut, limit: usize, overhead: usize) -> NextMessage {
        loop {
            if self.rest.is_nothing() {
                return NextMessage::Discarded;
            }
            let piece = match self.rest.pull(inbox, overhead) {
                Ok(Some(piece)) => piece,
                Ok(None) => return NextMessage::Wait,
                Err(_) => return NextMessage::Lost,
            };
            let discarded_bytes = self.discarded.get_or_insert(0);
            *discarded_bytes += piece.len();
            if *discarded_bytes > limit.saturating_mul(2) {
                return NextMessage::Lost;
            }
        }
    }
}

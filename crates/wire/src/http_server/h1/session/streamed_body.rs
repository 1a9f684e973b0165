//! A body of gRPC-Web whose messages are taken before it is whole.

use bytes::{Bytes, BytesMut};
use polyrpc_core::{Compression, Message, Status};

use super::remaining_body::RemainingBody;
use crate::grpc::dialect::Dialect;
use crate::grpc::incoming::{Incoming, Next};
use crate::http::h1::chunked::Chunked;
use crate::http::h1::frame::Framing;

/// The messages of a request, and what of its body has not come.
///
/// No more is read than one message of the longest kind while the handler leaves as much untaken.
#[derive(Debug)]
pub(super) struct StreamedBody {
    messages: Incoming,
    rest: RemainingBody,
    /// Bytes of messages that were handed out and not taken.
    untaken: usize,
    /// The call has ended: what still comes is thrown away. So much has been.
    unwanted: Option<usize>,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum NextMessage {
    Message(Message),
    /// More bytes are needed.
    Wait,
    /// The handler is to take messages first.
    Full,
    End,
    Failed(Status),
    /// All that nobody wants was thrown away.
    Discarded,
    /// More comes than is thrown away, or the end of the body is in doubt.
    Lost,
}

impl StreamedBody {
    /// Of a body that is whole.
    pub(super) fn from_whole(dialect: Dialect, compression: Compression, body: Bytes) -> Self {
        let mut messages = Incoming::new(dialect, compression);
        messages.push(body);
        messages.end();
        Self { messages, rest: RemainingBody::Nothing, untaken: 0, unwanted: None }
    }

    /// Of a body of which only a part is here.
    pub(super) fn from_partial(
        dialect: Dialect,
        compression: Compression,
        framing: Framing,
        mut chunked: Chunked,
    ) -> Self {
        let mut messages = Incoming::new(dialect, compression);
        messages.push(chunked.take());
        let rest = RemainingBody::of(framing, chunked);
        Self { messages, rest, untaken: 0, unwanted: None }
    }

    /// Bytes that are held here.
    pub(super) fn held(&self) -> usize {
        self.messages.held()
    }

    /// Whether the rest of a message is to come, or of what is thrown away.
    pub(super) fn is_inside(&self) -> bool {
        !self.rest.is_nothing() && (self.held() > 0 || self.unwanted.is_some())
    }

    /// The handler has taken so many bytes.
    pub(super) fn taken(&mut self, bytes: usize) {
        self.untaken = self.untaken.saturating_sub(bytes);
    }

    /// Nobody wants the rest.
    pub(super) fn discard_rest(&mut self) {
        self.unwanted.get_or_insert(0);
    }

    /// What comes next, of messages that may have `limit` bytes; chunks may say `overhead` bytes beside them.
    pub(super) fn next(&mut self, inbox: &mut BytesMut, limit: usize, overhead: usize) -> NextMessage {
        if self.unwanted.is_some() {
            return self.discard(inbox, limit, overhead);
        }
        loop {
            if self.untaken > limit {
                return NextMessage::Full;
            }
            match self.messages.next(limit) {
                Ok(Next::Message(message)) => {
                    self.untaken += message.body.len();
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
            let thrown = self.unwanted.get_or_insert(0);
            *thrown += piece.len();
            if *thrown > limit.saturating_mul(2) {
                return NextMessage::Lost;
            }
        }
    }
}

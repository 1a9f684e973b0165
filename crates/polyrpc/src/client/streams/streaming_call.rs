//! Client side of a streaming call: its two halves over a connection.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{CallId, Format, Head, Message, Metadata, Status};

use crate::call::OutcomeKind;
use crate::client::cluster::CallConnection;
use crate::client::connection::any_connection::CallEnded;
use crate::client::connection::pending::ReceivedMessages;
use crate::client::layered_call::LayerGuard;
use crate::codec::{Body, decompress_message};

/// Call on its connection. Dropping the last half before the end cancels the call.
pub(super) struct StreamingCall {
    /// Shared by the streams of one call.
    connection: Arc<CallConnection>,
    id: CallId,
}

impl StreamingCall {
    /// Wraps a call that was opened under this id.
    pub(super) fn new(connection: Arc<CallConnection>, id: CallId) -> Self {
        Self { connection, id }
    }

    /// Ends the call when no message was sent or received for this time.
    pub(super) fn end_if_idle(&self, idle: Duration) {
        self.connection.slot().end_if_idle(self.id, idle);
    }

    /// Returns the halves. Sent messages are in `format`; received ones are limited to `limit` bytes after
    /// decompression.
    pub(super) fn halves(self, format: Format, limit: usize) -> (CallSender, CallReceiver) {
        let call = Arc::new(self);
        (CallSender::new(call.clone()), CallReceiver::new(call, format, limit))
    }
}

impl Drop for StreamingCall {
    fn drop(&mut self) {
        self.connection.slot().abandon(self.id);
    }
}

/// Sending half of a call.
pub(super) struct CallSender {
    call: Arc<StreamingCall>,
    /// Messages of the next batch.
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Whether the queue holds the last messages.
    last: bool,
    /// Whether there is capacity, as far as is known.
    can_send: bool,
    done: bool,
}

impl CallSender {
    /// Maximum number of messages in a batch: many small ones go into one write.
    const MESSAGES: usize = 32;
    /// Number of queued bytes from which a batch is sent.
    const BYTES: usize = 32 << 10;

    fn new(call: Arc<StreamingCall>) -> Self {
        Self { call, queue: VecDeque::new(), queued: 0, last: false, can_send: true, done: false }
    }

    /// Sends the start of the call.
    pub(super) fn start(&mut self, cx: &mut Context<'_>) {
        // The capacity does not matter yet.
        let _ = self.poll_flush(cx);
    }

    /// Whether another message may be queued.
    pub(super) fn has_capacity(&self) -> bool {
        self.can_send && !self.last && self.queue.len() < Self::MESSAGES && self.queued < Self::BYTES
    }

    /// Queues a message.
    pub(super) fn push(&mut self, message: Bytes) {
        self.queued += message.len();
        self.queue.push_back(message);
    }

    /// Marks the queued messages as the last ones.
    pub(super) fn finish(&mut self) {
        self.last = true;
    }

    /// Whether the messages were ended.
    pub(super) fn is_finished(&self) -> bool {
        self.last
    }

    /// Whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends the queue. Ready when all of it is sent and there is capacity for more, if any follows.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallEnded>> {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        let sent = self.call.connection.slot().poll_send(self.call.id, &mut self.queue, self.last, cx);
        self.can_send = sent.is_ready();
        if self.queue.is_empty() {
            self.queued = 0;
        }
        self.done = self.last && sent.is_ready();
        sent
    }

    pub(super) fn connection(&self) -> &Arc<CallConnection> {
        &self.call.connection
    }

    /// Whether the protocol can end the messages while the response continues.
    pub(super) fn half_closes(&self) -> bool {
        self.call.connection.slot().half_closes()
    }

    /// Ends the call gracefully, in both directions if they end together. The queue must have been sent.
    pub(super) fn finish_call(&mut self) {
        self.last = true;
        self.done = true;
        self.call.connection.slot().finish(self.call.id);
    }
}

/// Receiving half of a call.
pub(super) struct CallReceiver {
    call: Arc<StreamingCall>,
    /// Received messages that were not taken yet.
    arrived: ReceivedMessages,
    /// Bytes that were taken but not credited to the server.
    consumed: usize,
    limit: usize,
    /// Response head, once it is known.
    head: Option<Head>,
    /// Format of messages if the server does not name one.
    format: Format,
    trailers: Metadata,
    over: bool,
    /// Layers of the call. Most calls have none.
    layer_guard: Option<Box<LayerGuard>>,
}

impl CallReceiver {
    /// Number of taken bytes from which the server gets credit. Below it, credit is given when all messages were taken.
    const CREDIT: usize = 32 << 10;

    fn new(call: Arc<StreamingCall>, format: Format, limit: usize) -> Self {
        Self {
            call,
            arrived: ReceivedMessages::default(),
            consumed: 0,
            limit,
            head: None,
            format,
            trailers: Metadata::new(),
            over: false,
            layer_guard: None,
        }
    }

    /// Attaches layers to the call: they observe its end, and may end it.
    pub(super) fn attach_layers(&mut self, layer_guard: LayerGuard) {
        self.layer_guard = Some(Box::new(layer_guard));
    }

    /// Polls for the leading metadata.
    ///
    /// An error ends the call: it failed before the response started.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        while self.head.is_none() {
            if let Some(head) = self.arrived.head.take() {
                self.head = Some(head);
            } else if !self.arrived.messages.is_empty() || self.over {
                self.head = Some(self.empty_head());
            } else if let Some(end) = &mut self.arrived.end {
                self.head = Some(mem::take(&mut end.head));
                if end.result.is_err() {
                    let end = self.poll_next(cx);
                    return end.map(|end| Err(end.and_then(Result::err).unwrap_or_else(no_reason)));
                }
            } else {
                ready!(self.poll_more(cx));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Starts the response: its messages are in the format of the head.
    pub(super) fn start_response(&mut self, head: Head) {
        self.head = Some(head);
    }

    /// Response head; `None` as long as it is not known.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Polls for the next message; `None` after the last. An error is returned once and ends the stream.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Body, Status>>> {
        match self.layer_guard {
            None => self.poll_inner(cx),
            Some(_) => self.poll_within_layers(cx),
        }
    }

    #[cold]
    fn poll_within_layers(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Body, Status>>> {
        let Some(mut layer_guard) = self.layer_guard.take() else { return self.poll_inner(cx) };
        let mut ending = layer_guard.poll(cx);
        if ending.is_pending() && !layer_guard.has_ended() {
            let result = match self.poll_inner(cx) {
                Poll::Ready(None) => Ok(()),
                Poll::Ready(Some(Err(status))) => Err(status),
                going_on => {
                    self.layer_guard = Some(layer_guard);
                    return going_on;
                }
            };
            let trailers = mem::take(&mut self.trailers);
            layer_guard.finish(OutcomeKind::Finish { result, trailers }.into());
            ending = layer_guard.poll(cx);
        }
        let Poll::Ready(ending) = ending else {
            self.layer_guard = Some(layer_guard);
            return Poll::Pending;
        };
        if !layer_guard.has_ended() {
            // The layers do not wait for the server any more.
            self.call.connection.slot().abandon(self.call.id);
        }
        self.over = true;
        self.arrived = ReceivedMessages::default();
        let result;
        (result, self.trailers) = ending.into_end();
        Poll::Ready(result.err().map(Err))
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Body, Status>>> {
        loop {
            if let Some(head) = self.arrived.head.take() {
                self.head = Some(head);
            }
            if let Some(message) = self.arrived.messages.pop_front() {
                let opened = self.open(message);
                if opened.is_err() {
                    self.give_up();
                }
                return Poll::Ready(Some(opened));
            }
            if let Some(end) = self.arrived.end.take() {
                self.over = true;
                self.head.get_or_insert(end.head);
                self.trailers = end.trailers;
                return Poll::Ready(end.result.err().map(|status| Err(self.with_metadata(status))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            ready!(self.poll_more(cx));
        }
    }

    /// Cancels a call with a message that cannot be decompressed: what follows would be a stream with a gap.
    #[cold]
    fn give_up(&mut self) {
        self.call.connection.slot().abandon(self.call.id);
        self.over = true;
        self.arrived = ReceivedMessages::default();
    }

    /// Adds the leading and trailing metadata to a failure.
    #[cold]
    fn with_metadata(&self, status: Status) -> Status {
        let headers = self.head.as_ref().map(|head| head.metadata.clone()).unwrap_or_default();
        status.received_with(headers, self.trailers.clone())
    }

    /// Trailing metadata.
    pub(super) fn trailers(&self) -> &Metadata {
        &self.trailers
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let consumed = mem::take(&mut self.consumed);
        let connection = &self.call.connection;
        ready!(connection.slot().poll_receive(self.call.id, consumed, &mut self.arrived, cx));
        // The duration of a stream does not show the server's load: only whether the response started, or why not, is
        // recorded.
        let failure = self.arrived.end.as_ref().and_then(|end| end.result.as_ref().err());
        connection
            .finish(failure.filter(|_| self.arrived.head.is_none() && self.arrived.messages.is_empty()));
        Poll::Ready(())
    }

    fn open(&mut self, message: Message) -> Result<Body, Status> {
        self.credit(message.body.len());
        let format = self.head.as_ref().map_or(self.format, |head| head.format);
        let bytes = decompress_message(message, self.limit)?;
        Ok(Body::new(format, bytes))
    }

    /// Records that a message was taken. The server gets credit once enough bytes were taken, and with the last message
    /// received so far: it may wait for that before it sends another one, even if the caller does not poll for it.
    fn credit(&mut self, bytes: usize) {
        self.consumed += bytes;
        let is_due = self.consumed >= Self::CREDIT || self.arrived.messages.is_empty();
        if is_due && self.arrived.end.is_none() {
            self.call.connection.slot().record_consumed(self.call.id, mem::take(&mut self.consumed));
        }
    }

    fn empty_head(&self) -> Head {
        Head { format: self.format, ..Head::default() }
    }
}

#[cold]
fn no_reason() -> Status {
    Status::internal("the call ended without a reason")
}

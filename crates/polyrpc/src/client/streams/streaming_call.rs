//! A call whose messages come and go one by one, seen from the caller: its two halves over a connection.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{CallId, Format, Head, Message, Metadata, Status};

use crate::call::Outcome;
use crate::client::cluster::CallConnection;
use crate::client::connection::any_connection::CallEnded;
use crate::client::connection::pending::ReceivedMessages;
use crate::client::layered_call::LayerGuard;
use crate::codec::{Body, decompress_message};

/// A call on its connection. When the last half of it is dropped before it has ended, it is cancelled.
pub(super) struct StreamingCall {
    /// Shared by the streams of one call.
    lease: Arc<CallConnection>,
    id: CallId,
}

impl StreamingCall {
    /// A call that was opened under this id.
    pub(super) fn new(lease: Arc<CallConnection>, id: CallId) -> Self {
        Self { lease, id }
    }

    /// The call ends when no message has come or left for so long.
    pub(super) fn end_if_idle(&self, idle: Duration) {
        self.lease.link().end_if_idle(self.id, idle);
    }

    /// Its halves, its messages written as `format`; those of the answer may have `limit` bytes once their compression
    /// is undone.
    pub(super) fn halves(self, format: Format, limit: usize) -> (CallSender, CallReceiver) {
        let call = Arc::new(self);
        (CallSender::new(call.clone()), CallReceiver::new(call, format, limit))
    }
}

impl Drop for StreamingCall {
    fn drop(&mut self) {
        self.lease.link().abandon(self.id);
    }
}

/// The half of a call that sends.
pub(super) struct CallSender {
    call: Arc<StreamingCall>,
    /// Messages that leave together.
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Nothing follows what is in the queue.
    last: bool,
    /// As far as is known there is room.
    roomy: bool,
    done: bool,
}

impl CallSender {
    /// How many messages leave together at most: many small ones in one write.
    const MESSAGES: usize = 32;
    /// From how many bytes on they leave.
    const BYTES: usize = 32 << 10;

    fn new(call: Arc<StreamingCall>) -> Self {
        Self { call, queue: VecDeque::new(), queued: 0, last: false, roomy: true, done: false }
    }

    /// Has the beginning of the call leave.
    pub(super) fn start(&mut self, cx: &mut Context<'_>) {
        // Whether there is room does not matter yet.
        let _ = self.poll_flush(cx);
    }

    /// Whether one more message may be put into the queue.
    pub(super) fn has_capacity(&self) -> bool {
        self.roomy && !self.last && self.queue.len() < Self::MESSAGES && self.queued < Self::BYTES
    }

    /// Puts a message into the queue.
    pub(super) fn push(&mut self, message: Bytes) {
        self.queued += message.len();
        self.queue.push_back(message);
    }

    /// No message follows those in the queue.
    pub(super) fn finish(&mut self) {
        self.last = true;
    }

    /// Whether the end was said.
    pub(super) fn is_finished(&self) -> bool {
        self.last
    }

    /// Whether nothing is in the queue.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what is in the queue. Ready when all of it is sent and there is room for more, if any follows.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallEnded>> {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        let sent = self.call.lease.link().poll_send(self.call.id, &mut self.queue, self.last, cx);
        self.roomy = sent.is_ready();
        if self.queue.is_empty() {
            self.queued = 0;
        }
        self.done = self.last && sent.is_ready();
        sent
    }

    pub(super) fn connection(&self) -> &Arc<CallConnection> {
        &self.call.lease
    }

    /// Whether the end of the messages can be said while the answer goes on.
    pub(super) fn half_closes(&self) -> bool {
        self.call.lease.link().half_closes()
    }

    /// Ends the call in order, in both directions where they end together. What is in the queue must have left.
    pub(super) fn finish_call(&mut self) {
        self.last = true;
        self.done = true;
        self.call.lease.link().finish(self.call.id);
    }
}

/// The half of a call that receives.
pub(super) struct CallReceiver {
    call: Arc<StreamingCall>,
    /// What was fetched from the connection and not taken.
    arrived: ReceivedMessages,
    /// Bytes taken that the server was not told of.
    consumed: usize,
    limit: usize,
    /// What travelled before the messages, once it is known.
    head: Option<Head>,
    /// How messages are written if the server does not say.
    format: Format,
    trailers: Metadata,
    over: bool,
    /// The layers around the call. Most calls have none.
    around: Option<Box<LayerGuard>>,
}

impl CallReceiver {
    /// From how many bytes on the server is told that they were taken. Before, it is told when all were.
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
            around: None,
        }
    }

    /// Puts layers around the call: they hear of its end, and may end it.
    pub(super) fn attach_layers(&mut self, around: LayerGuard) {
        self.around = Some(Box::new(around));
    }

    /// What travels before the messages.
    ///
    /// An error ends the call: it failed before its answer began.
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

    /// The answer has begun: its messages are written as its head says.
    pub(super) fn start_response(&mut self, head: Head) {
        self.head = Some(head);
    }

    /// What travelled before the messages; `None` as long as it is not known.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// The next message; `None` behind the last. An error is given once and ends it.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Body, Status>>> {
        match self.around {
            None => self.poll_inner(cx),
            Some(_) => self.poll_within_layers(cx),
        }
    }

    #[cold]
    fn poll_within_layers(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Body, Status>>> {
        let Some(mut around) = self.around.take() else { return self.poll_inner(cx) };
        let mut ending = around.poll(cx);
        if ending.is_pending() && !around.has_ended() {
            let result = match self.poll_inner(cx) {
                Poll::Ready(None) => Ok(()),
                Poll::Ready(Some(Err(status))) => Err(status),
                going_on => {
                    self.around = Some(around);
                    return going_on;
                }
            };
            around.finish(Outcome::Finish { result, trailers: mem::take(&mut self.trailers) });
            ending = around.poll(cx);
        }
        let Poll::Ready(ending) = ending else {
            self.around = Some(around);
            return Poll::Pending;
        };
        if !around.has_ended() {
            // The layers do not wait for the server any more.
            self.call.lease.link().abandon(self.call.id);
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
                return Poll::Ready(Some(self.open(message)));
            }
            if let Some(end) = self.arrived.end.take() {
                self.over = true;
                self.trailers = end.trailers;
                return Poll::Ready(end.result.err().map(|status| Err(self.received(status))));
            }
            if self.over {
                return Poll::Ready(None);
            }
            ready!(self.poll_more(cx));
        }
    }

    /// A failure with what the peer sent before and behind it.
    #[cold]
    fn received(&self, status: Status) -> Status {
        let headers = self.head.as_ref().map(|head| head.metadata.clone()).unwrap_or_default();
        status.received_with(headers, self.trailers.clone())
    }

    /// What travelled behind the last message.
    pub(super) fn trailers(&self) -> &Metadata {
        &self.trailers
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let consumed = mem::take(&mut self.consumed);
        let lease = &self.call.lease;
        ready!(lease.link().poll_receive(self.call.id, consumed, &mut self.arrived, cx));
        // How long all of it takes says nothing of the server: that it has begun counts, or why it did not.
        let failure = self.arrived.end.as_ref().and_then(|end| end.result.as_ref().err());
        lease.finish(failure.filter(|_| self.arrived.head.is_none() && self.arrived.messages.is_empty()));
        Poll::Ready(())
    }

    fn open(&mut self, message: Message) -> Result<Body, Status> {
        self.credit(message.body.len());
        let format = self.head.as_ref().map_or(self.format, |head| head.format);
        let bytes = decompress_message(message, self.limit)?;
        Ok(Body::new(format, bytes))
    }

    /// Notes that a message was taken. The server is told once it is much, and with the last that is here: it may wait
    /// for that before it sends another, even if the caller does not ask for one.
    fn credit(&mut self, bytes: usize) {
        self.consumed += bytes;
        let is_due = self.consumed >= Self::CREDIT || self.arrived.messages.is_empty();
        if is_due && self.arrived.end.is_none() {
            self.call.lease.link().consumed(self.call.id, mem::take(&mut self.consumed));
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

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use foldhash::HashMap;
use polyrpc_core::session::server::Streaming;
use polyrpc_core::session::{OfferedStreams, Server as Session};
use polyrpc_core::{Carrier, Compression, Message, Metadata, Outbox, Reply, Status, StreamId};
use tokio::sync::oneshot;

use super::unsupported_metadata;
use crate::call::streaming::{Incoming, IncomingSender, Outgoing, OutgoingReceiver, StreamNotify};
use crate::call::{AcceptedStream, Outcome, OutcomeKind, ResponseFuture, StreamOffer};
use crate::memory_budget::Account;

/// The streaming calls of one connection.
///
/// Their handlers are in flight like those of other calls; this is the link between them and the session.
#[derive(Debug)]
pub(super) struct Streams {
    /// The peer chooses the ids, but there are no more of them than calls may be in flight.
    open: HashMap<StreamId, OpenStream>,
    stream_notify: Arc<StreamNotify>,
    /// The current time, in ticks.
    now: u32,
    /// Streams with a notification.
    notified: Vec<u64>,
    /// Streams with pending messages, held back since the peer leaves too much unread.
    held: Vec<u64>,
}

#[derive(Debug)]
struct OpenStream {
    /// When a message was last received or sent, in ticks.
    active: u32,
    /// Its own idle limit in ticks, if it has one.
    idle: Option<u32>,
    feed: IncomingSender,
    drain: OutgoingReceiver,
    /// How its response carries metadata.
    carrier: Carrier,
    /// The response has started: its end must be that of a stream.
    begun: bool,
    /// Its head could not be encoded: the call fails, whatever its handler returns.
    unsendable: Option<Status>,
    /// Notifies the sender that nothing more is received; for a stream attached to a call, whose two directions end
    /// together.
    end_sender: Option<oneshot::Sender<()>>,
}

impl Streams {
    pub(super) fn new(account: Arc<Account>, now: u32) -> Self {
        let stream_notify = Arc::new(StreamNotify::new(account));
        Self { open: HashMap::default(), stream_notify, now, notified: Vec::new(), held: Vec::new() }
    }

    /// Sets the current time, in ticks.
    pub(super) fn tick(&mut self, now: u32) {
        self.now = now;
    }

    /// Returns the shortest idle limit of the streams in ticks, where the default is `allowed`.
    pub(super) fn shortest_idle(&self, allowed: u32) -> u32 {
        self.open.values().filter_map(|open| open.idle).fold(allowed, u32::min)
    }

    /// Returns the streams that were idle for longer than this many ticks, or than their own limit.
    pub(super) fn idle(&self, ticks: u32) -> Vec<StreamId> {
        let allowed = |open: &OpenStream| open.idle.map_or(ticks, |idle| idle.min(ticks));
        let is_idle = |open: &OpenStream| self.now.saturating_sub(open.active) > allowed(open);
        self.open.iter().filter(|(_, open)| is_idle(open)).map(|(stream, _)| *stream).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens both directions of a call, whose messages may have `limit` bytes after decompression.
    pub(super) fn open(&mut self, stream: StreamId, carrier: Carrier, limit: usize) -> (Incoming, Outgoing) {
        let (feed, incoming) = Incoming::new(stream.0, self.stream_notify.clone(), limit);
        let (outgoing, drain) = Outgoing::new(stream.0, self.stream_notify.clone());
        let open = OpenStream {
            active: self.now,
            idle: None,
            feed,
            drain,
            carrier,
            begun: false,
            unsendable: None,
            end_sender: None,
        };
        self.open.insert(stream, open);
        (incoming, outgoing)
    }

    /// Opens both directions of a call, whose first message was received with it unless it is empty: an empty one only
    /// opens.
    pub(super) fn open_with(
        &mut self,
        stream: StreamId,
        carrier: Carrier,
        first: Bytes,
        limit: usize,
    ) -> (Incoming, Outgoing) {
        let halves = self.open(stream, carrier, limit);
        if let Some(open) = self.open.get(&stream).filter(|_| !first.is_empty()) {
            open.feed.preface(Message { body: first, compression: Compression::None });
        }
        halves
    }

    /// Returns the offer with which a handler accepts the streams of its caller.
    pub(super) fn offer(&self, offered: OfferedStreams) -> StreamOffer {
        StreamOffer::new(offered, self.stream_notify.clone())
    }

    /// Registers an accepted stream with an idle limit in ticks; returns the future that sends on it.
    pub(super) fn register_accepted(
        &mut self,
        accepted: AcceptedStream,
        carrier: Carrier,
        idle: Option<u32>,
    ) -> (StreamId, ResponseFuture) {
        let AcceptedStream { stream, feed, drain, sending, end_sender } = accepted;
        let end_sender = Some(end_sender);
        let active = self.now;
        let open =
            OpenStream { active, idle, feed, drain, carrier, begun: true, unsendable: None, end_sender };
        self.open.insert(stream, open);
        (stream, sending)
    }

    /// Passes a message to its call. A message that will not be received counts as consumed, so that it does not take
    /// window from the peer's other streams. Returns `false` if too many are queued already, so that the stream is
    /// aborted.
    pub(super) fn deliver(
        &mut self,
        stream: StreamId,
        message: Message,
        session: &mut impl Session,
        out: &mut Outbox,
    ) -> bool {
        let Some(session) = session.streaming() else { return true };
        match self.open.get_mut(&stream) {
            Some(open) if !open.feed.is_abandoned() => {
                open.active = self.now;
                let bytes = message.body.len();
                let taken = open.feed.deliver(message);
                if !taken {
                    session.record_consumed(stream, bytes, out);
                    open.feed.abort(Status::resource_exhausted("too many unread messages"));
                    session.reset(stream, out);
                }
                return taken;
            }
            _ if message.body.is_empty() => {}
            _ => session.record_consumed(stream, message.body.len(), out),
        }
        true
    }

    /// Ends the input of a stream: the caller has sent all.
    pub(super) fn end_of_stream(&mut self, stream: StreamId) {
        let Some(open) = self.open.get_mut(&stream) else { return };
        open.feed.close(Ok(()), Metadata::new());
        if let Some(end_sender) = open.end_sender.take() {
            // The sender may have ended by itself.
            let _ = end_sender.send(());
        }
    }

    /// Cancels a stream: the caller is gone. A part of the handler that lives on elsewhere sees it in its requests.
    pub(super) fn cancel(&self, stream: StreamId) {
        if let Some(open) = self.open.get(&stream) {
            open.feed.abort(Status::cancelled("the caller went away"));
        }
    }

    /// Ends the input of all streams, since the connection ends.
    pub(super) fn cancel_all(&self) {
        let cancelled = || Err(Status::cancelled("the caller went away"));
        self.open.values().for_each(|open| open.feed.close(cancelled(), Metadata::new()));
    }

    /// Resumes a response: the peer accepts more of it.
    pub(super) fn resume_sending(&mut self, stream: StreamId) {
        if self.open.contains_key(&stream) {
            self.notified.push(stream.0);
        }
    }

    /// Moves messages between handlers and session, until `unsent` bytes wait to be written. Returns whether handlers have
    /// consumed messages.
    pub(super) fn pump(&mut self, session: &mut impl Session, out: &mut Outbox, unsent: usize) -> bool {
        if self.open.is_empty() {
            self.held.clear();
            return false;
        }
        let Some(session) = session.streaming() else { return false };
        let mut taken = false;
        self.stream_notify.take_notified(&mut self.notified);
        self.notified.append(&mut self.held);
        for stream in self.notified.drain(..).map(StreamId) {
            let Some(open) = self.open.get_mut(&stream) else { continue };
            taken |= open.credit(stream, session, out);
            let before = out.len();
            let sent_all = open.send(stream, session, out, unsent);
            if out.len() != before {
                open.active = self.now;
            }
            if !sent_all {
                self.held.push(stream.0);
            }
        }
        taken
    }

    /// Returns whether messages could be sent as soon as the peer has read the unread ones.
    pub(super) fn has_held_back_messages(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends a call. Its queued messages are sent before the end, whether there is room or not: they are few, and no
    /// sender is left to wait.
    pub(super) fn close<S: Session>(
        &mut self,
        stream: StreamId,
        ticket: S::Ticket,
        outcome: Outcome,
        session: &mut S,
        out: &mut Outbox,
    ) {
        let Some(mut open) = self.open.remove(&stream) else { return };
        let Some(streaming) = session.streaming() else { return };
        open.credit(stream, streaming, out);
        open.flush(stream, streaming, out);
        match outcome.0 {
            OutcomeKind::Finish { result, trailers } => {
                if open.end_sender.is_some() && result.is_ok() {
                    // This side has closed both directions: nothing failed.
                    open.feed.close(Ok(()), Metadata::new());
                }
                streaming.finish(ticket, result.and_then(|()| open.check_sendable()), trailers, out);
            }
            OutcomeKind::Reply(Reply { result, trailers, .. }) if open.begun => {
                let result = result.map(|message| streaming.send_message(stream, message, out));
                streaming.finish(ticket, result.and_then(|()| open.check_sendable()), trailers, out);
            }
            OutcomeKind::Reply(reply) => session.reply(ticket, reply, out),
            OutcomeKind::Accept(reply, _) => session.reply(ticket, *reply, out),
            // The connection has already handled it.
            OutcomeKind::CloseConnection | OutcomeKind::Unauthenticated(_) | OutcomeKind::Corrupt(_) => {}
        }
    }

    /// Removes a call that the peer no longer waits for.
    pub(super) fn forget(&mut self, stream: StreamId, session: &mut impl Session, out: &mut Outbox) {
        if let Some(open) = self.open.remove(&stream)
            && let Some(streaming) = session.streaming()
        {
            open.credit(stream, streaming, out);
        }
    }

    /// Marks the connection as awake: it need not be woken.
    pub(super) fn wake(&self) {
        if !self.open.is_empty() {
            self.stream_notify.set_awake();
        }
    }

    /// Marks the connection as asleep: it is woken on a stream's notification.
    pub(super) fn sleep(&self, waker: &Waker) {
        if !self.open.is_empty() {
            self.stream_notify.sleep(waker);
        }
    }
}

impl OpenStream {
    /// Returns flow-control credit for the consumed messages, if any.
    fn credit<T>(&self, stream: StreamId, session: &mut impl Streaming<T>, out: &mut Outbox) -> bool {
        match self.feed.take_consumed() {
            0 => false,
            bytes => {
                session.record_consumed(stream, bytes, out);
                true
            }
        }
    }

    /// Sends as many messages as there is room for. Returns `false` if it stopped because the peer leaves too much
    /// unread.
    fn send<T>(
        &mut self,
        stream: StreamId,
        session: &mut impl Streaming<T>,
        out: &mut Outbox,
        unsent: usize,
    ) -> bool {
        self.begin(stream, session, out);
        while session.has_room(stream) {
            if out.len() >= unsent {
                return false;
            }
            let Some(message) = self.drain.next() else { break };
            self.begun = true;
            session.send_message(stream, message, out);
        }
        self.drain.resume_senders();
        true
    }

    /// Sends all queued messages.
    fn flush<T>(&mut self, stream: StreamId, session: &mut impl Streaming<T>, out: &mut Outbox) {
        self.begin(stream, session, out);
        while let Some(message) = self.drain.next() {
            self.begun = true;
            session.send_message(stream, message, out);
        }
    }

    fn begin<T>(&mut self, stream: StreamId, session: &mut impl Streaming<T>, out: &mut Outbox) {
        if let Some(mut head) = self.drain.head() {
            self.begun = true;
            self.unsendable = unsupported_metadata::check_head(self.carrier, &mut head);
            session.start_response(stream, head, out);
        }
    }

    /// Checks that the head of the response was encoded.
    fn check_sendable(&mut self) -> Result<(), Status> {
        self.unsendable.take().map_or(Ok(()), Err)
    }
}

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use foldhash::HashMap;
use polyrpc_core::session::{OfferedStreams, Server as Session};
use polyrpc_core::{Compression, Message, Metadata, Outbox, Reply, Status, StreamId};
use tokio::sync::oneshot;

use super::unsendable;
use crate::call::{AcceptedStream, Outcome, ResponseFuture, StreamOffer};
use crate::memory_budget::Account;
use crate::streaming::{Incoming, IncomingSender, Outgoing, OutgoingReceiver, StreamNotify};

/// The calls of one connection whose messages come, or leave, one by one.
///
/// Their handlers are in flight like those of other calls; here is what lies between them and the session.
#[derive(Debug)]
pub(super) struct Streams {
    /// Names are chosen by the peer, but no more of them are here than calls may be in flight.
    open: HashMap<StreamId, OpenStream>,
    bell: Arc<StreamNotify>,
    /// The time, in ticks.
    now: u32,
    /// Streams to look at.
    rung: Vec<u64>,
    /// Streams that were not emptied, since the peer leaves too much unread.
    held: Vec<u64>,
}

#[derive(Debug)]
struct OpenStream {
    /// When a message last came or left, in ticks.
    active: u32,
    /// For how many ticks it may be idle, if it has a limit of its own.
    idle: Option<u32>,
    feed: IncomingSender,
    drain: OutgoingReceiver,
    /// The answer has begun: its end must be that of a stream.
    begun: bool,
    /// Its head could not be sent as it was: the call fails, whatever its handler says.
    unsendable: Option<Status>,
    /// Tells the sender that nothing more is received; for a stream beside a call, whose two directions end together.
    over: Option<oneshot::Sender<()>>,
}

impl Streams {
    pub(super) fn new(account: Arc<Account>, now: u32) -> Self {
        let bell = Arc::new(StreamNotify::new(account));
        Self { open: HashMap::default(), bell, now, rung: Vec::new(), held: Vec::new() }
    }

    /// Tells the time, in ticks.
    pub(super) fn tick(&mut self, now: u32) {
        self.now = now;
    }

    /// For how many ticks the least patient of the streams may be idle, where each may be so for `allowed`.
    pub(super) fn shortest_idle(&self, allowed: u32) -> u32 {
        self.open.values().filter_map(|open| open.idle).fold(allowed, u32::min)
    }

    /// The streams on which no message came or left for more than so many ticks, or than they themselves allow.
    pub(super) fn idle(&self, ticks: u32) -> Vec<StreamId> {
        let allowed = |open: &OpenStream| open.idle.map_or(ticks, |idle| idle.min(ticks));
        let is_idle = |open: &OpenStream| self.now.saturating_sub(open.active) > allowed(open);
        self.open.iter().filter(|(_, open)| is_idle(open)).map(|(stream, _)| *stream).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Opens both ways of a call, whose messages may have `limit` bytes once their compression is undone.
    pub(super) fn open(&mut self, stream: StreamId, limit: usize) -> (Incoming, Outgoing) {
        let (feed, incoming) = Incoming::new(stream.0, self.bell.clone(), limit);
        let (outgoing, drain) = Outgoing::new(stream.0, self.bell.clone());
        let open = OpenStream {
            active: self.now,
            idle: None,
            feed,
            drain,
            begun: false,
            unsendable: None,
            over: None,
        };
        self.open.insert(stream, open);
        (incoming, outgoing)
    }

    /// Opens both ways of a call, whose first message came with it if it is not empty: an empty one only opens.
    pub(super) fn open_with(&mut self, stream: StreamId, first: Bytes, limit: usize) -> (Incoming, Outgoing) {
        let ways = self.open(stream, limit);
        if let Some(open) = self.open.get(&stream).filter(|_| !first.is_empty()) {
            open.feed.preface(Message { body: first, compression: Compression::None });
        }
        ways
    }

    /// What a handler needs to accept the streams that its caller offers.
    pub(super) fn offer(&self, offered: OfferedStreams) -> StreamOffer {
        StreamOffer::new(offered, self.bell.clone())
    }

    /// Takes over a stream that was accepted, and may be idle for so many ticks; returns what sends on it.
    pub(super) fn adopt(
        &mut self,
        accepted: AcceptedStream,
        idle: Option<u32>,
    ) -> (StreamId, ResponseFuture) {
        let AcceptedStream { stream, feed, drain, sending, over } = accepted;
        let over = Some(over);
        let open = OpenStream { active: self.now, idle, feed, drain, begun: true, unsendable: None, over };
        self.open.insert(stream, open);
        (stream, sending)
    }

    /// Hands a message to its call. One that nobody will take counts as taken, so that the peer's other streams
    /// do not wait for its room. `false`: too many wait already, and the stream is given up.
    pub(super) fn give(
        &mut self,
        stream: StreamId,
        message: Message,
        session: &mut impl Session,
        out: &mut Outbox,
    ) -> bool {
        match self.open.get_mut(&stream) {
            Some(open) if !open.feed.is_abandoned() => {
                open.active = self.now;
                let bytes = message.body.len();
                let taken = open.feed.give(message);
                if !taken {
                    session.consumed(stream, bytes, out);
                    open.feed.abort(Status::resource_exhausted("too many messages wait to be taken"));
                    session.reset(stream, out);
                }
                return taken;
            }
            _ if message.body.is_empty() => {}
            _ => session.consumed(stream, message.body.len(), out),
        }
        true
    }

    /// The caller has sent all.
    pub(super) fn end_of_stream(&mut self, stream: StreamId) {
        let Some(open) = self.open.get_mut(&stream) else { return };
        open.feed.close(Ok(()), Metadata::new());
        if let Some(over) = open.over.take() {
            // Who sends may have ended by himself.
            let _ = over.send(());
        }
    }

    /// The caller is gone: a part of the handler that lives on elsewhere learns it by its requests.
    pub(super) fn cancel(&self, stream: StreamId) {
        if let Some(open) = self.open.get(&stream) {
            open.feed.abort(Status::cancelled("the caller went away"));
        }
    }

    /// The connection ends: nothing more comes.
    pub(super) fn cancel_all(&self) {
        let cancelled = || Err(Status::cancelled("the caller went away"));
        self.open.values().for_each(|open| open.feed.close(cancelled(), Metadata::new()));
    }

    /// The peer takes more of an answer.
    pub(super) fn resume_sending(&mut self, stream: StreamId) {
        if self.open.contains_key(&stream) {
            self.rung.push(stream.0);
        }
    }

    /// Carries between handlers and session what there is to carry, until `unsent` bytes wait to be written. Returns
    /// whether handlers have taken messages.
    pub(super) fn pump(&mut self, session: &mut impl Session, out: &mut Outbox, unsent: usize) -> bool {
        if self.open.is_empty() {
            self.held.clear();
            return false;
        }
        let mut taken = false;
        self.bell.answer(&mut self.rung);
        self.rung.append(&mut self.held);
        for stream in self.rung.drain(..).map(StreamId) {
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

    /// Whether messages could go on as soon as the peer has read what is unread.
    pub(super) fn has_held_back_messages(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends a call. What it had ready to send goes before the end, whether there is room or not: it is not much,
    /// and nobody is left to wait.
    pub(super) fn close<S: Session>(
        &mut self,
        stream: StreamId,
        ticket: S::Ticket,
        ending: Outcome,
        session: &mut S,
        out: &mut Outbox,
    ) {
        let Some(mut open) = self.open.remove(&stream) else { return };
        open.credit(stream, session, out);
        open.flush(stream, session, out);
        match ending {
            Outcome::Finish { result, trailers } => {
                if open.over.is_some() && result.is_ok() {
                    // This side has closed both directions: nothing failed.
                    open.feed.close(Ok(()), Metadata::new());
                }
                session.finish(ticket, result.and_then(|()| open.sendable()), trailers, out);
            }
            Outcome::Reply(Reply { result, trailers, .. }) if open.begun => {
                let result = result.map(|message| session.message(stream, message, out));
                session.finish(ticket, result.and_then(|()| open.sendable()), trailers, out);
            }
            Outcome::Reply(reply) => session.reply(ticket, reply, out),
            Outcome::Accept(reply, _) => session.reply(ticket, *reply, out),
            // The connection has told it.
            Outcome::CloseConnection | Outcome::Unauthenticated(_) | Outcome::Corrupt(_) => {}
        }
    }

    /// Forgets a call that the peer no longer waits for.
    pub(super) fn forget(&mut self, stream: StreamId, session: &mut impl Session, out: &mut Outbox) {
        if let Some(open) = self.open.remove(&stream) {
            open.credit(stream, session, out);
        }
    }

    /// The connection is awake, and need not be woken.
    pub(super) fn wake(&self) {
        if !self.open.is_empty() {
            self.bell.mark_awake();
        }
    }

    /// The connection goes to sleep: it is woken when a stream wants to be looked at.
    pub(super) fn sleep(&self, waker: &Waker) {
        if !self.open.is_empty() {
            self.bell.sleep(waker);
        }
    }
}

impl OpenStream {
    /// Tells the peer what was taken of its messages, if anything was.
    fn credit(&self, stream: StreamId, session: &mut impl Session, out: &mut Outbox) -> bool {
        match self.feed.consumed() {
            0 => false,
            bytes => {
                session.consumed(stream, bytes, out);
                true
            }
        }
    }

    /// Sends what there is room for. `false`: it stopped because the peer leaves too much unread.
    fn send(
        &mut self,
        stream: StreamId,
        session: &mut impl Session,
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
            session.message(stream, message, out);
        }
        self.drain.resume_senders();
        true
    }

    /// Sends all there is.
    fn flush(&mut self, stream: StreamId, session: &mut impl Session, out: &mut Outbox) {
        self.begin(stream, session, out);
        while let Some(message) = self.drain.next() {
            self.begun = true;
            session.message(stream, message, out);
        }
    }

    fn begin(&mut self, stream: StreamId, session: &mut impl Session, out: &mut Outbox) {
        if let Some(head) = self.drain.head() {
            self.begun = true;
            self.unsendable = unsendable::of_head(session.carrier_of(stream), &head.metadata);
            session.start_response(stream, head, out);
        }
    }

    /// Whether the head of the answer was sent as it was.
    fn sendable(&mut self) -> Result<(), Status> {
        self.unsendable.take().map_or(Ok(()), Err)
    }
}
